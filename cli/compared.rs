//! The results of a comparison's finished runs, for the table and the page.
//!
//! An incomplete run, or one of another lock, gives no curve.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use lab::comparison::{Comparison, ComparisonRun, Role};
use lab::experiment::Experiment;
use lab::field::TABLE;
use lab::trainer::{CANONC, TrainerRecord, is_declared};
use lab::verdict::{self, Trainer};
use report::compare::{self, Arm, Facts, Proof};
use report::page::{self, Heading, PageContents, Part};
use report::scores::Scores;

use crate::extensions::suites;
use crate::fail::{Failure, shown};
use crate::files;
use crate::finished_runs::FinishedRuns;
use crate::workspace::LOCKFILES;

/// The curves of every run, by arm and point of the grid.
pub fn compared(
    comparison: &Comparison,
    runs: &[&ComparisonRun],
    folder: &Path,
    finished: &FinishedRuns,
) -> Result<compare::Comparison, Failure> {
    let count = runs.iter().map(|run| run.point + 1).max().unwrap_or(1);
    let mut points = vec![String::new(); count];
    let mut arms: Vec<Arm> = Vec::new();
    for run in runs {
        let place = finished.folder(folder, &run.experiment)?;
        let mut curves = compare::read(&place, &run.experiment)?;
        trained_as_declared(comparison.trainer, curves.trainer.as_ref(), &place)?;
        curves.timed_in(&place, folder);
        let read = compare::ArmRun { seed: run.seed, curves, shown: None };
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
    let mut compared = compare::Comparison { arms, points, selection, proof };
    compared.judge_trainers();
    Ok(compared)
}

/// Refuses a run of another trainer than the one that the comparison declares.
pub fn trained_as_declared(
    declared: Trainer,
    record: Option<&TrainerRecord>,
    run: &Path,
) -> Result<(), Failure> {
    let Some(word) = declared.word().filter(|_| !is_declared(declared, record)) else {
        return Ok(());
    };
    let by = record.map_or_else(|| CANONC.to_owned(), TrainerRecord::described);
    Err(Failure::finding(format!(
        "the comparison declares trainer = \"{word}\", but the run in {} was trained by {by}",
        shown(run)
    ))
    .help(format!(
        "train its lock by {word}, or leave `trainer` out of the comparison file and build it again"
    )))
}

/// Refuses two runs if their locks read the same data in the same batches but their logs have different batches at a
/// step.
pub fn same_data(runs: &[&ComparisonRun], compared: &compare::Comparison) -> Result<(), Failure> {
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
            let failure = Failure::finding(format!(
                "the locks of `{name}` and `{other}` read the same data, but their logs differ: at step {}, batch {} \
                 and {}",
                at + 1,
                digest(batches),
                digest(theirs)
            ));
            return Err(
                failure.help("`canonc verify` on both finds the log that does not match its lock")
            );
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
pub fn arm_of(run: &ComparisonRun) -> String {
    match run.role {
        Role::Base | Role::Treatment => run.arm.clone(),
        Role::Replicate => format!("{} replicate", run.arm),
    }
}

/// The folders of these runs.
pub fn run_folders(
    runs: &[&ComparisonRun],
    folder: &Path,
    finished: &FinishedRuns,
) -> Result<Vec<PathBuf>, Failure> {
    runs.iter().map(|run| finished.folder(folder, &run.experiment)).collect()
}

/// A run's point in the grid: `optimizer.lr 0.003`.
fn point(comparison: &Comparison, run: &ComparisonRun) -> String {
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

/// One difference in one line: its path, both values, and any note.
pub fn change(change: &verdict::Change) -> String {
    let verdict::Change { path, subject: _, a, b, defaults: _, places: _, note } = change;
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let text = format!("{path} {} → {} {note}", side(a), side(b));
    text.trim_end().to_owned()
}

/// Other locks and finished seeds of the arms; `dir` is the folder of runs.
pub fn other_records(
    comparison: &Comparison,
    compared: &compare::Comparison,
    dir: &Path,
    places: &[PathBuf],
) -> Result<compare::OtherRecords, Failure> {
    let locks = Path::new(LOCKFILES);
    Ok(compare::other_records(comparison, locks, dir, places, compared.used_seeds())?)
}

/// The HTML file to write of a comparison, from curves that have been read.
pub fn page(
    locked: &Comparison,
    facts: Facts,
    runs: &[&lab::comparison::ComparisonRun],
    folder: &Path,
    finished: &FinishedRuns,
) -> Result<String, Failure> {
    let parts = vec![part(locked, facts, runs, folder, finished)?];
    page::page(&PageContents { parts, ..PageContents::default() }).map_err(Failure::machine)
}

/// The part of a page that shows a comparison.
pub fn part(
    locked: &Comparison,
    facts: Facts,
    due: &[&lab::comparison::ComparisonRun],
    folder: &Path,
    finished: &FinishedRuns,
) -> Result<Part, Failure> {
    let mut runs = Vec::new();
    for run in due {
        let place = finished.folder(folder, &run.experiment)?;
        let logged = page::read(&place, &run.experiment);
        runs.push(page::PageRun {
            name: run.experiment.name.clone(),
            arm: arm_of(run),
            role: Some(run.role),
            seed: run.seed,
            point: run.point,
            at: facts.points.get(run.point).cloned().unwrap_or_default(),
            experiment: run.experiment.clone(),
            folder: place.clone(),
            logged: logged?,
        });
    }
    let entries = locked.treatment.keys().map(|arm| (arm.clone(), locked.entries(arm))).collect();
    Ok(Part::new(heading(locked, &facts), facts, entries, runs))
}

/// A result of `canonc eval`.
pub fn scores(path: &Path) -> Result<Scores, Failure> {
    let text = disk::read_text(path, disk::TEXT).map_err(|error| files::missing(path, &error))?;
    parse_scores(&text).map_err(|error| {
        Failure::bad_input(format!("`{}` is not a result of `canonc eval`: {error}", shown(path)))
            .help("write one with `canonc eval MODEL --suite SUITE --out FILE`")
    })
}

/// The scores in a text, each marked if it is one of the published suite.
pub fn parse_scores(text: &str) -> Result<Scores, String> {
    Scores::parse(text, &|task, shots| suites().published(task, shots))
}
