//! The combined results of a comparison's finished runs, for the table and the page.
//!
//! In: a locked comparison and the folder of its runs. Out: their curves by arm, and the heading of its verdict.
//! Must stay true: nothing is run; an incomplete run, or one of another lock, gives no curve.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use lab::comparison::{Comparison, Role, Run};
use lab::experiment::Experiment;
use lab::field::TABLE;
use report::compare::{self, Arm, Facts, Proof};
use report::page::Heading;

use crate::build::change;
use crate::fail::{Exit, Failure};
use crate::found::Found;
use crate::runs::failure;

/// The curves of every run, by arm and point of the grid.
pub fn compared(
    comparison: &Comparison,
    runs: &[&Run],
    folder: &Path,
    found: &Found,
) -> Result<compare::Comparison, Failure> {
    let count = runs.iter().map(|run| run.point + 1).max().unwrap_or(1);
    let mut points = vec![String::new(); count];
    let mut arms: Vec<Arm> = Vec::new();
    for run in runs {
        let place = found.place(folder, &run.experiment)?;
        let mut curves = compare::read(&place, &run.experiment).map_err(failure)?;
        curves.timed_in(&place, folder);
        let read = compare::Run { seed: run.seed, curves, shown: None };
        if let Some(label) = points.get_mut(run.point) {
            *label = point(comparison, run);
        }
        let name = arm_of(run);
        let known = arms.iter().position(|arm| arm.name == name && arm.role == run.role);
        let at = known.unwrap_or_else(|| {
            arms.push(Arm { name, role: run.role, points: vec![Vec::new(); count] });
            arms.len() - 1
        });
        if let Some(of_point) = arms.get_mut(at).and_then(|arm| arm.points.get_mut(run.point)) {
            of_point.push(read);
        }
    }
    let (selection, proof) = (comparison.selection.clone(), Proof::from_lock(comparison));
    Ok(compare::Comparison { arms, points, selection, proof })
}

/// Refuses two runs if their locks read the same data in the same batches but their logs have different batches at a
/// step.
pub fn same_data(runs: &[&Run], compared: &compare::Comparison) -> Result<(), Failure> {
    let mut data: BTreeMap<String, (&str, &[Digest])> = BTreeMap::new();
    for run in runs {
        let (name, arm) = (run.experiment.name.as_str(), arm_of(run));
        let of_arm = compared.arms.iter().find(|known| known.name == arm && known.role == run.role);
        let at_point = of_arm.and_then(|arm| arm.points.get(run.point));
        let read = at_point.and_then(|runs| runs.iter().find(|read| read.seed == run.seed));
        let Some(batches) = read.map(|read| read.curves.batches.as_slice()) else { continue };
        let key = reads(&run.experiment);
        let Some((other, theirs)) = data.get(&key).copied() else {
            data.insert(key, (name, batches));
            continue;
        };
        if let Some(at) = batches.iter().zip(theirs).position(|(ours, theirs)| ours != theirs) {
            let digest =
                |of: &[Digest]| of.get(at).map(|digest| digest.short()).unwrap_or_default();
            let failure = Failure::bad_input(format!(
                "the locks of `{name}` and `{other}` read the same data, but their logs differ: at step {}, batch {} \
                 and {}",
                at + 1,
                digest(batches),
                digest(theirs)
            ));
            return Err(Failure { exit: Exit::Finding, ..failure }
                .help("`canonc verify` on both finds the log that does not match its lock"));
        }
        if batches.len() > theirs.len() {
            data.insert(key, (name, batches));
        }
    }
    Ok(())
}

/// The fields that decide which data each step reads.
fn reads(experiment: &Experiment) -> String {
    let decides = |path: &str| {
        path.starts_with("data.") || path.starts_with("batch.") || path == "seeds.data"
    };
    let paths = TABLE.iter().map(|def| def.path).filter(|path| decides(path));
    let line = |path| Some(format!("{path} = {}\n", experiment.value(path)?));
    paths.filter_map(line).collect()
}

/// The name of a run's arm in tables.
pub fn arm_of(run: &Run) -> String {
    match run.role {
        Role::Base | Role::Treatment => run.arm.clone(),
        Role::Replicate => format!("{} replicate", run.arm),
    }
}

/// The folders of these runs.
pub fn places(runs: &[&Run], folder: &Path, found: &Found) -> Result<Vec<PathBuf>, Failure> {
    runs.iter().map(|run| found.place(folder, &run.experiment)).collect()
}

/// A run's point in the grid: `optimizer.lr 0.003`.
fn point(comparison: &Comparison, run: &Run) -> String {
    let paths = comparison.grid.iter().flat_map(|grid| &grid.paths);
    let values =
        paths.filter_map(|path| Some(format!("{path} {}", run.experiment.value(path)?.plain())));
    values.collect::<Vec<_>>().join(", ")
}

/// The heading of a comparison's tables: the designs at the points where its arms are judged.
pub fn heading(comparison: &Comparison, facts: &Facts) -> Heading {
    let mut notes = Vec::new();
    let several = comparison.verdicts.len() > 1;
    for (arm, verdict) in &comparison.verdicts {
        let prefix = if several { format!("{arm}: ") } else { String::new() };
        for (kind, changes) in
            [("consequence", &verdict.consequences), ("platform", &verdict.platform)]
        {
            notes.extend(changes.iter().map(|c| format!("{prefix}{kind}: {}", change(c))));
        }
        let arms = [comparison.base.as_str(), arm.as_str()];
        notes.extend(verdict.names.iter().map(|name| format!("{prefix}name {}", name.line(arms))));
    }
    Heading {
        title: comparison.name.clone(),
        verdict: facts.verdict(),
        design: facts.design(),
        lock_id: comparison.id().to_string(),
        notes,
    }
}
