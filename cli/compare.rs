//! `canonc compare`: runs what a comparison still lacks, then says what its arms differ by.
//!
//! In: a comparison lock. Out: a run folder for each run, one table on standard output, one HTML page.
//! Must stay true: every run is `canonc run` of its own lock, so that each starts in the platform its
//! lock requires and resumes by itself; interrupted here is interrupted there, with a checkpoint; the
//! table is headed by the verdict the lock proved.

use std::path::Path;
use std::process::Command;

use compiler::lock::{self, Comparison, Lock, Role, Run};
use runtime::compare::{self, Arm, Curves};
use runtime::report::{self, Heading};
use runtime::run::{Paths, read_lock};

use crate::args::CompareArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::files;
use crate::output;
use crate::runs::{failure, read_text};
use crate::signals::stop_on_signals;

pub(crate) fn compare(args: &CompareArgs) -> Outcome {
    let text = read_text(&args.lock)?;
    let name = shown(&args.lock);
    let locked = read_lock(&name, &text).map_err(failure)?;
    let comparison = lock::comparable(locked)
        .map_err(|error| Failure::bad_input(error.message).help(error.help).at(name.as_str()))?;
    let folder = args.dir.join(&comparison.name);
    std::fs::create_dir_all(&folder).map_err(|error| Failure::cannot_write(&folder, &error))?;
    let runs = comparison.runs();
    // A run under way takes the signal itself and leaves a checkpoint; this process waits for it.
    let _stop = stop_on_signals()?;
    for (number, run) in runs.iter().enumerate() {
        let exit = carry_out(run, &folder, args.data.as_deref(), (number + 1, runs.len()))?;
        if exit != Exit::Fine {
            return Ok(exit);
        }
    }
    let arms = arms(&runs, &folder)?;
    let heading = heading(&comparison);
    let mut said = format!("{}\n", heading.verdict);
    for note in &heading.notes {
        said.push_str(&format!("  {note}\n"));
    }
    let table = compare::table(&arms);
    output::data(&format!("{said}\n{}\n{}\n", table.text(), table.caption))?;
    let page = report::page(&heading, &arms).map_err(Failure::machine)?;
    let out = args.out.clone().unwrap_or_else(|| folder.join("report.html"));
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Failure::cannot_write(parent, &error))?;
    }
    files::replace(&out, &page)?;
    output::note(&format!("curves: {}", shown(&out)));
    Ok(Exit::Fine)
}

/// Runs one lock to its end, in a process of its own.
fn carry_out(
    run: &Run,
    folder: &Path,
    data: Option<&Path>,
    (number, of): (usize, usize),
) -> Result<Exit, Failure> {
    let name = &run.experiment.name;
    let paths = Paths::new(folder.join(name));
    let lock = folder.join(format!("{name}.lock"));
    let text = lock::write(&Lock::Experiment(run.experiment.clone()));
    let before = std::fs::read_to_string(&lock).ok();
    if before.as_deref() != Some(text.as_str()) {
        files::replace(&lock, &text)?;
    }
    output::note(&format!("run {number} of {of}: {name}"));
    let program = std::env::current_exe()
        .map_err(|error| Failure::machine(format!("canonc does not find itself: {error}")))?;
    let status = Command::new(program)
        .args(["run".as_ref(), "--lock".as_ref(), lock.as_os_str(), "--dir".as_ref()])
        .arg(&paths.folder)
        .args(data.into_iter().flat_map(|path| ["--data".as_ref(), path.as_os_str()]))
        .status()
        .map_err(|error| Failure::machine(format!("`canonc run` does not start: {error}")))?;
    match status.code() {
        Some(0) => Ok(Exit::Fine),
        Some(75) => Ok(Exit::Interrupted),
        // What was wrong has been said by the run itself.
        Some(1) => Err(Failure::shown(Exit::Finding)),
        Some(2) => Err(Failure::shown(Exit::BadInput)),
        Some(3) => Err(Failure::shown(Exit::Machine)),
        Some(_) | None => Err(Failure::machine(format!("the run `{name}` ended early ({status})"))
            .help("the same command goes on from its last checkpoint")),
    }
}

/// The curves of every run, arm by arm; a grid's points are arms of their own.
fn arms(runs: &[&Run], folder: &Path) -> Result<Vec<Arm>, Failure> {
    let several = runs.iter().any(|run| run.point > 0);
    let mut arms: Vec<(String, usize, Role, Vec<Curves>)> = Vec::new();
    for run in runs {
        let curves = compare::read(&folder.join(&run.experiment.name)).map_err(failure)?;
        let known = arms.iter_mut().find(|(arm, point, role, _)| {
            *arm == run.arm && *point == run.point && *role == run.role
        });
        match known {
            Some((_, _, _, found)) => found.push(curves),
            None => arms.push((run.arm.clone(), run.point, run.role, vec![curves])),
        }
    }
    Ok(arms
        .into_iter()
        .map(|(arm, point, role, runs)| {
            let point = if several { format!(" ({})", point + 1) } else { String::new() };
            let (suffix, role) = match role {
                Role::Base => ("", compare::Role::Base),
                Role::Treatment => ("", compare::Role::Treatment),
                Role::Again => (" again", compare::Role::Again),
            };
            Arm { name: format!("{arm}{suffix}{point}"), role, runs }
        })
        .collect())
}

fn heading(comparison: &Comparison) -> Heading {
    let (mut verdicts, mut notes) = (Vec::new(), Vec::new());
    for (arm, verdict) in &comparison.verdicts {
        verdicts.push(format!("{arm} against {}: {}", comparison.base, verdict.headline()));
        for change in &verdict.consequences {
            let side =
                |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
            let (a, b) = (side(&change.a), side(&change.b));
            notes.push(format!("consequence: {} {a} → {b} {}", change.path, change.note));
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
