//! `canonc compare`: does the missing runs of a comparison, then reports how its arms differ.
//!
//! In: comparison locks. Out: a run folder for each run, a table for each comparison on standard output, and an HTML
//! page in the folder of its runs; for several comparisons, one table of all and a picture.
//! Must stay true: an error that would refuse a run is found before anything is written; every run is `canonc run` of
//! its own lock, so it starts in the platform of that lock and resumes on its own; a run that is interrupted leaves a
//! checkpoint; the table's heading is the lock's verdict; with --json, standard output is a single document.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ::report::compare::{self, Facts};
use ::report::overview::{self, TaskComparison};
use lab::comparison::{Comparison, Run};
use lab::experiment::{DataSource, Evaluation, Experiment};
use lab::field::FieldValue;
use lab::lock::{self, Lock};
use records::attest::Attestation;
use records::job::Job;
use records::run::{Paths, append_line, belongs, read_lock};
use records::verify::holds;

use crate::args::{CompareArgs, CompareTo};
use crate::compared::{compared, heading, places, same_data};
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::forecast::{self, Forecast};
use crate::found::Found;
use crate::looks;
use crate::out::{self, OutputKind};
use crate::runs::{failure, read_text};
use crate::signals::stop_on_signals;
use crate::tensors::{Tensors, Work};
use crate::{build, child, live, locks, named, output, report, runs, shown, slurm, work};

pub fn compare(args: &CompareArgs, tensors: &dyn Tensors) -> Outcome {
    named::once(&args.locks)?;
    out::container(&args.dir)?;
    // Read all of them before the first run starts.
    let locked = args.locks.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    for (word, comparison) in args.locks.iter().zip(&locked) {
        let lock = Lock::Comparison(comparison.clone());
        if let Some(warning) = build::warning_of_source(&named::lock(word)?, &lock) {
            output::note(&warning);
        }
    }
    if let Some(steps) = args.time {
        return tensors.carry_out(Work::StepTimes(args, &locked, usize::from(steps)));
    }
    if let Some(out) = &args.out {
        let kind = if locked.len() == 1 { OutputKind::Page } else { OutputKind::Picture };
        out::check(out, kind)?;
    }
    // A run made for another comparison is reused.
    let found = Found::under(&args.dir);
    for comparison in &locked {
        let folder = out::named(&args.dir, &comparison.name, "")?;
        check(comparison, &folder, args.data.as_deref(), &found)?;
        if let Some(events) = &args.tensorboard {
            apart(events, comparison, &folder, &found)?;
        }
    }
    if args.to == Some(CompareTo::Slurm) {
        return slurm::array(args, &locked);
    }
    // A signal is passed on to the current run, which leaves a checkpoint; this process waits for it.
    let stop = stop_on_signals()?;
    if args.work {
        return work::work(args, &locked, &stop);
    }
    let mut done: Vec<(String, Facts)> = Vec::new();
    for comparison in &locked {
        let folder = out::named(&args.dir, &comparison.name, "")?;
        std::fs::create_dir_all(&folder).map_err(|error| Failure::cannot_write(&folder, &error))?;
        // By now the runs of the earlier comparisons are there too.
        let found = Found::under(&args.dir);
        let carry = Carry {
            folder: &folder,
            data: args.data.as_deref(),
            tensorboard: args.tensorboard.as_deref(),
            jobs: args.jobs,
            stop: &stop,
            found: &found,
        };
        forecast(comparison, args, &folder, &found, &stop);
        if stop.load(Ordering::Relaxed) {
            output::note("interrupted before the first run; the same command continues from there");
            return Ok(Exit::Interrupted);
        }
        // With a stopping rule, do the runs of one more seed until it decides.
        let (mut due, mut looks) = looks::due(comparison, &folder, &found)?;
        let mut carried = 0;
        while carried < due.len() {
            if carry.all(due.get(carried..).unwrap_or_default(), due.len())? == Exit::Interrupted {
                return Ok(Exit::Interrupted);
            }
            carried = due.len();
            (due, looks) = looks::due(comparison, &folder, &found)?;
        }
        let due = looks::in_lock_order(comparison, &due);
        looks::record(comparison, &folder, &looks)?;
        let mut compared = compared(comparison, &due, &folder, &found)?;
        same_data(&due, &compared)?;
        compared.proof.other_records =
            other_records(comparison, &compared, &args.dir, &places(&due, &folder, &found)?);
        shown::count(&due, &mut compared, &folder, true)?;
        for line in looks::said(&looks) {
            output::note(&line);
        }
        let facts = Facts::new(&compared);
        let page = say(comparison, &facts, &due, &folder, &found, args.json)?;
        looks::reported(comparison, &folder, &due)?;
        if let (Some(out), [_]) = (&args.out, &locked[..]) {
            out::put(out, OutputKind::Page, &page)?;
            output::note(&format!("page: {}", shown(out)));
        }
        let task = comparison.arms.first().and_then(|arm| arm.experiment.value("data.task"));
        done.push((task.map_or_else(String::new, FieldValue::plain), facts));
    }
    if let [_, _, ..] = &done[..] {
        let lines: Vec<TaskComparison<'_>> =
            done.iter().map(|(task, facts)| TaskComparison { task, facts }).collect();
        if !args.json {
            let (table, caption) = (overview::table(&lines).text(), overview::caption(&lines));
            output::data(&format!("\n{table}\n{caption}\n"))?;
        }
        if let Some(out) = &args.out {
            out::put(out, OutputKind::Picture, overview::picture(&lines))?;
            output::note(&format!("picture: {}", shown(out)));
        }
    }
    if args.json {
        let all = locked.iter().zip(&done);
        output::json(&compare::document(all.map(|(comparison, (_, facts))| {
            (comparison.name.as_str(), comparison.id().to_string(), facts)
        })))?;
    }
    Ok(Exit::Fine)
}

/// Says what the missing runs will show and cost.
fn forecast(
    comparison: &Comparison,
    args: &CompareArgs,
    folder: &Path,
    found: &Found,
    stop: &AtomicBool,
) {
    if output::quiet() {
        return;
    }
    let finished = |experiment: &Experiment| found.is_finished(folder, experiment);
    let data = args.data.as_deref();
    let forecast = forecast::of_comparison(comparison, data, &args.dir, finished, stop);
    let forecast = forecast.filter(|_| !stop.load(Ordering::Relaxed));
    for line in forecast.iter().flat_map(Forecast::lines) {
        output::note(&line);
    }
}

fn read(path: &Path) -> Result<Comparison, Failure> {
    let text = read_text(path)?;
    let name = shown(path);
    let locked = read_lock(&name, &text).map_err(failure)?;
    let is_experiment = locked.kind() == "experiment";
    lock::comparable(locked).map_err(|error| {
        let failure = Failure::bad_input(error.message).help(error.help).at(name.as_str());
        if is_experiment {
            failure.help(format!("or train it alone: `canonc run --lock {name}`"))
        } else {
            failure
        }
    })
}

/// Refuses a folder for event files that is, for any run, a part of any run's folder.
fn apart(
    events: &Path,
    comparison: &Comparison,
    folder: &Path,
    found: &Found,
) -> Result<(), Failure> {
    let runs = comparison.runs();
    for of in &runs {
        let place = found.place(folder, &of.experiment)?;
        for run in &runs {
            live::folder(events, &run.experiment.name, &place)?;
        }
    }
    Ok(())
}

/// Finds errors that would stop a run, before anything is written: a folder of another run, other data, other questions, a
/// lock that cannot run here.
fn check(
    comparison: &Comparison,
    folder: &Path,
    data: Option<&Path>,
    found: &Found,
) -> Result<(), Failure> {
    let mut documents = BTreeMap::new();
    let mut asked: Vec<(&Evaluation, &DataSource)> = Vec::new();
    let runs = comparison.runs();
    for run in &runs {
        let experiment = &run.experiment;
        let place = found.place(folder, experiment)?;
        let lock = Paths::new(&place).lock();
        match disk::read_text(&lock, disk::SMALL) {
            Ok(found) => belongs(&place, experiment.digests, experiment.evaluation.every, &found)
                .map_err(failure)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::cannot_read(&lock, &error)),
        }
        let name = experiment.value("data.source").map(FieldValue::plain);
        let documents = match documents.get(&name) {
            Some(known) => Option::clone(known),
            None => {
                // Of several comparisons some may be on a task.
                let data = data.filter(|_| runs::reads_documents(experiment));
                let read = runs::documents(experiment, data)?;
                documents.insert(name, read.clone());
                read
            }
        };
        // Runs of one comparison mostly have the same suites, which take a while to read. A finished run asks nothing.
        let asks = (&experiment.evaluation, &experiment.data.source);
        if !Paths::new(&place).attestation().exists() && !asked.contains(&asks) {
            suite::run::of(experiment, documents.as_deref()).map_err(failure)?;
            asked.push(asks);
        }
        Job::new(experiment, "", documents).map_err(failure)?;
    }
    Ok(())
}

/// Other locks and finished seeds of the arms; `dir` is the folder of runs.
pub fn other_records(
    comparison: &Comparison,
    compared: &compare::Comparison,
    dir: &Path,
    places: &[PathBuf],
) -> compare::OtherRecords {
    let locks = Path::new(locks::FOLDER);
    compare::other_records(comparison, locks, dir, places, compared.used_seeds())
}

/// Prints the verdict and the table, and returns the page with the curves, which is written to the folder of the runs.
fn say(
    comparison: &Comparison,
    facts: &Facts,
    due: &[&Run],
    folder: &Path,
    found: &Found,
    json: bool,
) -> Result<String, Failure> {
    let heading = heading(comparison, facts);
    let mut said = format!("design: {}\n", heading.verdict);
    for note in &heading.notes {
        said.push_str(&format!("  {note}\n"));
    }
    if !json {
        output::data(&format!("{said}\n{}", facts.summary().text()))?;
    }
    let page = report::page(comparison, facts.clone(), due, folder, found)?;
    let beside = folder.join("report.html");
    out::put(&beside, OutputKind::Page, &page)?;
    output::note(&format!("curves: {}", shown(&beside)));
    Ok(page)
}

/// The step at which a run that ended with a finding is attested to have diverged; `None` if its files do not hold, since
/// then the finding may be another.
pub fn diverged(end: &Outcome, place: &Path) -> Option<u64> {
    let is_finding = matches!(end, Err(failure) if failure.exit == Exit::Finding);
    let text = disk::read_text(&Paths::new(place).attestation(), disk::SMALL);
    let attested = is_finding.then(|| Attestation::parse(&text.ok()?).ok())??;
    attested.diverged.filter(|_| holds(place))
}

/// How to carry out runs.
#[derive(Clone, Copy)]
pub struct Carry<'a> {
    pub folder: &'a Path,
    pub data: Option<&'a Path>,
    /// Where each run writes its events.
    pub tensorboard: Option<&'a Path>,
    /// Number of runs at a time.
    pub jobs: usize,
    pub stop: &'a AtomicBool,
    pub found: &'a Found,
}

/// A run to be done, without what only one thread may hold.
struct Due<'a> {
    name: &'a str,
    /// Its lock.
    text: String,
    /// Its folder.
    place: PathBuf,
    reads_documents: bool,
    /// Processes that its lock asks for, if there are several.
    ranks: Option<u32>,
}

impl Carry<'_> {
    /// Runs each lock to its end, and stops at the first that fails.
    pub fn all(self, runs: &[&Run], of: usize) -> Outcome {
        let before = of - runs.len();
        let runs: Vec<Due<'_>> =
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
                if let Some(step) = diverged(&exit, &run.place) {
                    output::note(&format!(
                        "{} diverged at step {step}; the other runs continue",
                        run.name
                    ));
                    continue;
                }
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
    pub fn one_of(self, run: &Run) -> Outcome {
        self.one(&self.due(run)?)
    }

    fn due<'r>(self, Run { experiment, .. }: &'r Run) -> Result<Due<'r>, Failure> {
        let ranks = experiment.platform.devices.filter(|devices| *devices > 1);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if let Some(devices) = ranks.filter(|devices| *devices as usize > cores) {
            return Err(Failure::machine(format!(
                "`{}` has platform.devices = {devices}, but this machine runs {} at once",
                experiment.name,
                output::counted(cores as u64, "thread")
            ))
            .help("`canonc run LOCK --dir RUN --ranks N` trains it with any number of ranks, and `canonc export LOCK --to slurm` on a cluster")
            .help("a comparison uses finished runs"));
        }
        Ok(Due {
            name: &experiment.name,
            text: lock::write(&Lock::Experiment(experiment.clone())),
            place: self.found.place(self.folder, experiment)?,
            reads_documents: runs::reads_documents(experiment),
            ranks,
        })
    }

    /// Runs one lock to its end, in its own process.
    fn one(self, run: &Due<'_>) -> Outcome {
        let Carry { folder, data, tensorboard, jobs, stop, found: _ } = self;
        let Due { name, text, place, reads_documents, ranks } = run;
        let lock = &out::named(folder, name, ".lock")?;
        let before = disk::read_text(lock, disk::SMALL).ok();
        if before.as_deref() != Some(text) {
            out::put(lock, OutputKind::Lock, text)?;
        }
        let mut words: Vec<OsString> = vec!["run".into(), "--lock".into(), lock.into()];
        if output::quiet() {
            words.insert(0, "--quiet".into());
        }
        words.extend(["--dir".into(), place.into()]);
        words.extend(ranks.iter().flat_map(|n| ["--ranks".into(), n.to_string().into()]));
        let data = data.filter(|_| *reads_documents);
        words.extend(data.into_iter().flat_map(|path| ["--data".into(), path.into()]));
        words.extend(tensorboard.iter().flat_map(|dir| ["--tensorboard".into(), (*dir).into()]));
        let is_new = before.is_none();
        let timings = Paths::new(place).timings();
        let length = || std::fs::metadata(&timings).map_or(0, |file| file.len());
        let before = length();
        let ended = child::carry_out(&words, (jobs > 1).then_some(name), stop);
        // A lock without a run would say that one is missing.
        if is_new && !place.exists() {
            std::fs::remove_file(lock).map_err(|error| Failure::cannot_write(lock, &error))?;
        }
        // Its timings were taken while other runs used the machine.
        if jobs > 1 && length() > before {
            append_line(&timings, &compare::ran_beside(jobs - 1)).map_err(failure)?;
        }
        ended
    }
}
