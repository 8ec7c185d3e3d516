//! `canonc compare`: runs what a comparison still lacks, then says what its arms differ by.
//!
//! In: a comparison lock. Out: a run folder for each run, one table on standard output, one HTML page.
//! Must stay true: every run is `canonc run` of its own lock, so that each starts in the platform its
//! lock requires and resumes by itself; interrupted here is interrupted there, with a checkpoint; the
//! table is headed by the verdict the lock proved.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use compiler::lock::{self, Comparison, Lock, Role, Run};
use runtime::compare::{self, Arm};
use runtime::report::{self, Heading};
use runtime::run::read_lock;

use crate::args::CompareArgs;
use crate::build::change;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::runs::{failure, read_text};
use crate::signals::stop_on_signals;
use crate::{child, files, output};

pub(crate) fn compare(args: &CompareArgs) -> Outcome {
    let text = read_text(&args.lock)?;
    let name = shown(&args.lock);
    let locked = read_lock(&name, &text).map_err(failure)?;
    let is_experiment = locked.kind() == "experiment";
    let comparison = lock::comparable(locked).map_err(|error| {
        let failure = Failure::bad_input(error.message).help(error.help).at(name.as_str());
        if is_experiment {
            failure.help(format!("or train it alone: `canonc run --lock {name}`"))
        } else {
            failure
        }
    })?;
    let folder = args.dir.join(&comparison.name);
    std::fs::create_dir_all(&folder).map_err(|error| Failure::cannot_write(&folder, &error))?;
    let runs = comparison.runs();
    // A run under way is told, and leaves a checkpoint; this process waits for it.
    let stop = stop_on_signals()?;
    let carry = Carry { folder: &folder, data: args.data.as_deref(), jobs: args.jobs, stop: &stop };
    if carry.all(&runs)? == Exit::Interrupted {
        return Ok(Exit::Interrupted);
    }
    let compared = compared(&comparison, &runs, &folder)?;
    let heading = heading(&comparison);
    let mut said = format!("{}\n", heading.verdict);
    for note in &heading.notes {
        said.push_str(&format!("  {note}\n"));
    }
    output::data(&format!("{said}\n{}", compare::summary(&compared).text()))?;
    let page = report::page(&heading, &compared).map_err(Failure::machine)?;
    let out = folder.join("report.html");
    files::replace(&out, &page)?;
    if let Some(out) = &args.out {
        if let Some(parent) = out.parent() {
            std::fs::create_dir_all(parent)
                .map_err(|error| Failure::cannot_write(parent, &error))?;
        }
        files::replace(out, &page)?;
    }
    output::note(&format!("curves: {}", shown(args.out.as_ref().unwrap_or(&out))));
    Ok(Exit::Fine)
}

/// How runs are carried out.
#[derive(Clone, Copy)]
pub(crate) struct Carry<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) data: Option<&'a Path>,
    /// At a time.
    pub(crate) jobs: usize,
    pub(crate) stop: &'a AtomicBool,
}

impl Carry<'_> {
    /// Runs each lock to its end, until one of them does not get there.
    pub(crate) fn all(self, runs: &[&Run]) -> Outcome {
        let text = |run: &&Run| lock::write(&Lock::Experiment(run.experiment.clone()));
        let runs: Vec<(&str, String)> =
            runs.iter().map(|run| (run.experiment.name.as_str(), text(run))).collect();
        let (next, halt) = (AtomicUsize::new(0), AtomicBool::new(false));
        let work = || {
            while !halt.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some((name, text)) = runs.get(number) else { break };
                output::note(&format!("run {} of {}: {name}", number + 1, runs.len()));
                let exit = self.one(name, text);
                if !matches!(exit, Ok(Exit::Fine)) {
                    halt.store(true, Ordering::Relaxed);
                    return exit;
                }
            }
            Ok(Exit::Fine)
        };
        let died = || Failure::machine("a thread that waits for a run ended early");
        let ends: Vec<Outcome> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs).map(|_| scope.spawn(&work)).collect();
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

    /// Runs one lock to its end, in a process of its own.
    fn one(self, name: &str, text: &str) -> Outcome {
        let Carry { folder, data, jobs, stop } = self;
        let lock = folder.join(format!("{name}.lock"));
        let before = std::fs::read_to_string(&lock).ok();
        if before.as_deref() != Some(text) {
            files::replace(&lock, text)?;
        }
        let mut words: Vec<OsString> = vec!["run".into(), "--lock".into(), lock.into()];
        words.extend(["--dir".into(), folder.join(name).into()]);
        words.extend(data.into_iter().flat_map(|path| ["--data".into(), path.into()]));
        child::carry_out(&words, (jobs > 1).then_some(name), stop)
    }
}

/// The curves of every run, by arm and point of the grid.
fn compared(
    comparison: &Comparison,
    runs: &[&Run],
    folder: &Path,
) -> Result<compare::Comparison, Failure> {
    let count = runs.iter().map(|run| run.point + 1).max().unwrap_or(1);
    let mut points = vec![String::new(); count];
    let mut arms: Vec<Arm> = Vec::new();
    for run in runs {
        let curves = compare::read(&folder.join(&run.experiment.name), &run.experiment);
        let read = compare::Run { seed: run.seed, curves: curves.map_err(failure)? };
        if let Some(label) = points.get_mut(run.point) {
            *label = point(comparison, run);
        }
        let name = match run.role {
            Role::Base | Role::Treatment => run.arm.clone(),
            Role::Again => format!("{} again", run.arm),
        };
        let known = arms.iter().position(|arm| arm.name == name && arm.role == run.role);
        let at = known.unwrap_or_else(|| {
            arms.push(Arm { name, role: run.role, points: vec![Vec::new(); count] });
            arms.len() - 1
        });
        if let Some(of_point) = arms.get_mut(at).and_then(|arm| arm.points.get_mut(run.point)) {
            of_point.push(read);
        }
    }
    Ok(compare::Comparison { arms, points, selection: comparison.selection.clone() })
}

/// A run's place in the grid: `optimizer.lr 0.003`.
fn point(comparison: &Comparison, run: &Run) -> String {
    let paths = comparison.grid.iter().flat_map(|grid| &grid.paths);
    let values =
        paths.filter_map(|path| Some(format!("{path} {}", run.experiment.value(path)?.plain())));
    values.collect::<Vec<_>>().join(", ")
}

fn heading(comparison: &Comparison) -> Heading {
    let (mut verdicts, mut notes) = (Vec::new(), Vec::new());
    let several = comparison.verdicts.len() > 1;
    for (arm, verdict) in &comparison.verdicts {
        verdicts.push(format!("{arm} against {}: {}", comparison.base, verdict.headline()));
        let whose = if several { format!("{arm}: ") } else { String::new() };
        for (kind, changes) in
            [("consequence", &verdict.consequences), ("platform", &verdict.platform)]
        {
            notes.extend(changes.iter().map(|c| format!("{whose}{kind}: {}", change(c))));
        }
    }
    Heading {
        title: comparison.name.clone(),
        verdict: verdicts.join("; "),
        // A comparison that is not controlled is never locked.
        controlled: true,
        lock_id: comparison.id().to_string(),
        notes,
    }
}
