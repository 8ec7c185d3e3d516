//! Trains the missing runs of a comparison.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lab::comparison::ComparisonRun;
use lab::lock::{self, Lock};
use records::attest::{Attestation, Attested};
use records::fault::Faults;
use records::job::Job;
use records::run::{
    Paths, RunFolder, append_line, belongs, cannot_read, experiment_from_text, is_held,
};
use records::verify::{self, holds};
use report::compare;

use crate::fail::{Exit, Failure, Outcome, shown};
use crate::finished_runs::{FinishedRuns, attestation};
use crate::inputs::GivenPaths;
use crate::out::{self, OutputKind};
use crate::{child, documents, output, workspace};

/// The step at which a run that ended with a finding is attested to have diverged; `None` if its files do not hold, since
/// then the finding may be another.
pub fn diverged(end: &Outcome, run: &Path) -> Result<Option<u64>, Failure> {
    if !matches!(end, Err(failure) if failure.exit == Exit::Finding) {
        return Ok(None);
    }
    let diverged = attestation(&Paths::new(run))?.and_then(|attested| attested.diverged);
    Ok(if diverged.is_some() && holds(run)? { diverged } else { None })
}

/// Trains the missing runs of a comparison, each in its own process.
#[derive(Clone, Copy)]
pub struct Trainer<'a> {
    pub folder: &'a Path,
    pub given: GivenPaths<'a>,
    /// Where each run writes its events.
    pub tensorboard: Option<&'a Path>,
    /// Number of runs at a time.
    pub jobs: usize,
    pub stop: &'a AtomicBool,
    pub finished: &'a FinishedRuns,
}

/// A run to be done, without what only one thread may hold.
struct MissingRun<'a> {
    name: &'a str,
    /// Its lock.
    text: String,
    /// Its folder.
    run_folder: PathBuf,
    /// The inputs that it reads.
    given: GivenPaths<'a>,
    /// Number of processes, if its lock asks for several; 1 for a run that is finished.
    ranks: Option<u32>,
}

/// What is said of a run that was finished before.
pub fn already_finished(attested: &Attested, folder: &Path) -> String {
    let trainer = attested.trainer.as_ref();
    let by = trainer.map_or_else(String::new, |one| format!(", trained by {}", one.described()));
    format!(
        "already finished: {}, weights {}, in {}{by}",
        output::counted(attested.steps, "step"),
        attested.weights.short(),
        shown(folder)
    )
}

impl Trainer<'_> {
    /// Runs each lock to its end, and stops at the first that fails.
    pub fn train_all(self, runs: &[&ComparisonRun], of: usize) -> Outcome {
        let before = of - runs.len();
        let runs: Vec<MissingRun<'_>> =
            runs.iter().map(|run| self.due(run)).collect::<Result<_, Failure>>()?;
        let (next, halt) = (AtomicUsize::new(0), AtomicBool::new(false));
        let work = || {
            while !halt.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(run) = runs.get(number) else { break };
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(Exit::Interrupted);
                }
                output::note(&format!("run {} of {of}: {}", before + number + 1, run.name));
                let exit = self.one(run);
                // A diverged run is a result of the comparison like any other.
                let exit = match diverged(&exit, &run.run_folder) {
                    Ok(None) => exit,
                    Ok(Some(step)) => {
                        output::note(&format!(
                            "{} diverged at step {step}; the other runs continue",
                            run.name
                        ));
                        continue;
                    }
                    Err(failure) => Err(failure),
                };
                if !matches!(exit, Ok(Exit::Fine)) {
                    halt.store(true, Ordering::Relaxed);
                    return exit;
                }
            }
            Ok(Exit::Fine)
        };
        let died = || Failure::machine("a thread that waited for a run ended early");
        let ends: Vec<Outcome> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or(Err(died()))).collect()
        });
        let mut all = Exit::Fine;
        for end in ends {
            let end = end?;
            if end != Exit::Fine {
                all = end;
            }
        }
        Ok(all)
    }

    /// Runs one of the comparison's locks to its end, in its own process.
    pub fn train(self, run: &ComparisonRun) -> Outcome {
        self.one(&self.due(run)?)
    }

    fn due<'r>(
        self,
        ComparisonRun { experiment, .. }: &'r ComparisonRun,
    ) -> Result<MissingRun<'r>, Failure>
    where
        Self: 'r,
    {
        let run_folder = self.finished.folder(self.folder, experiment)?;
        let is_finished = attestation(&Paths::new(&run_folder))?.is_some();
        let devices = experiment.platform.devices.filter(|devices| *devices > 1);
        // `canonc run` asks for `--ranks` even where it only checks the run.
        let ranks = devices.map(|devices| if is_finished { 1 } else { devices });
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if let Some(devices) = ranks.filter(|ranks| *ranks as usize > cores) {
            return Err(Failure::machine(format!(
                "`{}` has platform.devices = {devices}, but this machine runs {} at once",
                experiment.name,
                output::counted(cores as u64, "thread")
            ))
            .help("`canonc run LOCK --dir RUN --ranks N` trains it with any number of ranks, and `canonc export LOCK --to slurm` on a cluster")
            .help("a comparison uses finished runs"));
        }
        Ok(MissingRun {
            name: &experiment.name,
            text: lock::write(&Lock::Experiment(experiment.clone())),
            run_folder,
            given: self.given.of(experiment),
            ranks,
        })
    }

    /// The attestation of a run that is finished and intact, so that no process has to start. `None` if `canonc run` has
    /// to train it, say what is wrong with it, or write event files.
    fn finished_before(self, run: &MissingRun<'_>) -> Result<Option<Attested>, Failure> {
        let MissingRun { name, text, run_folder, .. } = run;
        let Some(attested) = attestation(&Paths::new(run_folder))? else { return Ok(None) };
        if attested.trainer.is_some() {
            return Ok(holds(run_folder)?.then_some(attested));
        }
        if self.tensorboard.is_some() {
            return Ok(None);
        }
        let is_intact = || {
            let experiment = &experiment_from_text(name, text).ok()?;
            let documents = documents::read(experiment, run.given.data).ok()?;
            let job = Job::new(experiment, text, documents).ok()?;
            let ours = |lock: &str| belongs(run_folder, job.digests, job.cadence.evaluation, lock);
            let folder = RunFolder::open(run_folder, text, ours, &Faults::none()).ok()?;
            let text = disk::read_text(&folder.paths.attestation(), disk::SMALL).ok()?;
            verify::intact(&folder, &job, &Attestation::parse(&text).ok()?).ok()
        };
        Ok(is_intact().map(|_| attested))
    }

    /// Runs one lock to its end, in its own process, unless the run is finished.
    fn one(self, run: &MissingRun<'_>) -> Outcome {
        let Trainer { folder, given: _, tensorboard, jobs, stop, finished: _ } = self;
        let MissingRun { name, text, run_folder, given, ranks } = run;
        let lock = &out::named(folder, name, ".lock")?;
        let before = workspace::text_at(lock)?;
        if before.as_deref() != Some(text) {
            out::put(lock, OutputKind::Lock, text)?;
        }
        let beside = (jobs > 1).then_some(*name);
        if let Some(attestation) = self.finished_before(run)? {
            if let Some(step) = attestation.diverged {
                return Err(Failure::finding(format!("`{name}` diverged at step {step}")));
            }
            let line = already_finished(&attestation, run_folder);
            output::note(&beside.map_or_else(|| line.clone(), |name| format!("{name}: {line}")));
            return Ok(Exit::Fine);
        }
        let mut words: Vec<OsString> = vec!["run".into(), "--lock".into(), lock.into()];
        if output::quiet() {
            words.insert(0, "--quiet".into());
        }
        words.extend(["--dir".into(), run_folder.into()]);
        words.extend(ranks.iter().flat_map(|n| ["--ranks".into(), n.to_string().into()]));
        words.extend(given.options().flat_map(|(option, path)| [option.into(), path.into()]));
        words.extend(tensorboard.iter().flat_map(|dir| ["--tensorboard".into(), (*dir).into()]));
        let is_new = before.is_none();
        let timings = Paths::new(run_folder).timings();
        let length = || match std::fs::metadata(&timings) {
            Ok(file) => Ok(file.len()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(cannot_read(&timings, &error)),
        };
        let before = length()?;
        let ended = child::run_canonc(&words, beside, stop);
        // A lock without a run would say that one is missing.
        if is_new && matches!(run_folder.try_exists(), Ok(false)) {
            std::fs::remove_file(lock).map_err(|error| Failure::cannot_write(lock, &error))?;
        }
        // Its timings were taken while other runs used the machine, unless another process holds the run and wrote them.
        let is_others = ended.is_err() && is_held(&Paths::new(run_folder).writer());
        if jobs > 1 && !is_others && length()? > before {
            append_line(&timings, &compare::ran_beside(jobs - 1))?;
        }
        ended
    }
}
