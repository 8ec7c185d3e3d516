//! The folder of a comparison's runs: whether each run is the one that its folder's name and the lock beside it promise.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use disk::SMALL;
use dsl::Problem;
use lab::comparison::{Comparison, Stop};
use lab::experiment::Experiment;
use lab::lock::Lock;
use records::private::private;
use records::run::{Paths, if_there, json_lines, paths_in, trained_elsewhere};
use records::verify::{Subject, VerifyReport};

use crate::fail::{Failure, shown};
use crate::finished_runs::{FinishedRuns, folders};
use crate::workspace::{LOCKFILES, lock_at};
use crate::{output, worker_claims};

/// Files that `canonc compare` writes beside the runs, each with a member of its lines if it has lines.
const FILES: [(&str, Option<&str>); 4] = [
    ("report.html", None),
    ("reported.jsonl", Some("runs")),
    ("overlap.jsonl", Some("of")),
    ("looks.jsonl", Some("decision")),
];
const REPORTED: &str = "reported.jsonl";
const PAGE: &str = "report.html";

/// A folder of a comparison's runs.
struct Folder {
    path: PathBuf,
    name: String,
    /// The comparison's lock, if it is among the locks here and its runs are these.
    locked: Option<Comparison>,
    /// What each run folder holds, read once.
    held: OnceCell<BTreeMap<String, Held>>,
    /// The first file that the machine could not read: what was found without it says nothing.
    unread: RefCell<Option<Problem>>,
}

/// What a run folder holds.
struct Held {
    experiment: Option<Experiment>,
    /// Whether another engine trained it.
    is_external: bool,
    /// The text of its attestation.
    attestation: Option<String>,
}

impl Folder {
    /// The folder at this path, if it is one of a comparison's runs.
    fn at(path: &Path) -> Result<Option<Folder>, Problem> {
        let path = std::path::absolute(path).ok();
        let name = path.as_deref().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let (Some(path), Some(name)) = (path, name) else { return Ok(None) };
        let folder = Folder {
            locked: None,
            path: path.clone(),
            name,
            held: OnceCell::new(),
            unread: RefCell::default(),
        };
        let is_one = folder.recognised();
        folder.settled()?;
        Ok(is_one.map(|locked| Folder { locked, ..folder }))
    }

    /// The comparison's lock, as [`Folder::locked`], if the folder is one of a comparison's runs.
    fn recognised(&self) -> Option<Option<Comparison>> {
        let Folder { path, name, .. } = self;
        if Paths::new(path).lock().is_file() {
            return None;
        }
        let lock = Path::new(LOCKFILES).join(format!("{name}.lock"));
        let locked = self.note(lock_at(&lock)).and_then(|lock| match lock {
            Lock::Comparison(comparison) => Some(comparison),
            Lock::Experiment(_) | Lock::Arch(_) => None,
        });
        let wrote = |file: &str| std::fs::symlink_metadata(path.join(file)).is_ok();
        let prefix = format!("{name}-");
        let runs = locked.as_ref().map(Comparison::runs).unwrap_or_default();
        // A lock that was built again since has other runs, which says nothing about these.
        let is_there = |run: &Experiment| {
            let held = self.experiment_at(&Paths::new(path.join(&run.name)).lock());
            let own = [self.lock_of(&run.name), held];
            own.into_iter().flatten().any(|own| own.digests == run.digests)
        };
        let id = locked.as_ref().map(|locked| locked.id().to_string());
        let is_reported = self.reported().iter().any(|(lock, _)| Some(lock) == id.as_ref());
        let is_of_these = is_reported || runs.iter().any(|run| is_there(&run.experiment));
        let is_one = is_of_these
            // `canonc report` writes a page of that name wherever it is called.
            || FILES.iter().any(|(file, _)| *file != PAGE && wrote(file))
            || wrote(worker_claims::FOLDER)
            || self.locks().iter().any(|run| run.starts_with(&prefix));
        is_one.then(|| locked.filter(|_| is_of_these))
    }

    /// What was read, or nothing, which [`Folder::settled`] then reports.
    fn note<T: Default>(&self, read: Result<T, Problem>) -> T {
        read.unwrap_or_else(|problem| {
            self.unread.borrow_mut().get_or_insert(problem);
            T::default()
        })
    }

    /// An error if a file could not be read so far.
    fn settled(&self) -> Result<(), Problem> {
        self.unread.borrow().clone().map_or(Ok(()), Err)
    }

    /// The lock of one experiment at this path, if there is one.
    fn experiment_at(&self, path: &Path) -> Option<Experiment> {
        match self.note(lock_at(path))? {
            Lock::Experiment(experiment) => Some(experiment),
            Lock::Comparison(_) | Lock::Arch(_) => None,
        }
    }

    /// The names of the locks in the folder.
    fn locks(&self) -> Vec<String> {
        let paths = self.note(paths_in(&self.path));
        let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
        let mut names: Vec<String> =
            names.filter_map(|name| name.strip_suffix(".lock").map(str::to_owned)).collect();
        names.sort();
        names
    }

    /// Whether `canonc compare` wrote here.
    fn is_compared(&self) -> bool {
        !self.locks().is_empty() || FILES.iter().any(|(file, _)| self.path.join(file).exists())
    }

    /// The locks whose results were shown, with the ids of their runs.
    fn reported(&self) -> Vec<(String, Vec<String>)> {
        let lines = self.note(json_lines(&self.path.join(REPORTED)));
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let one = |line: &serde_json::Value| {
            let runs = line.get("runs")?.as_array()?.iter().filter_map(text).collect();
            Some((text(line.get("lock")?)?, runs))
        };
        lines.iter().filter_map(one).collect()
    }

    fn lock_of(&self, run: &str) -> Option<Experiment> {
        self.experiment_at(&self.path.join(format!("{run}.lock")))
    }

    fn held(&self) -> &BTreeMap<String, Held> {
        self.held.get_or_init(|| {
            let held = |run: String| {
                let paths = Paths::new(self.path.join(&run));
                let path = paths.attestation();
                let attestation = self.note(if_there(&path, disk::read_text(&path, SMALL)));
                let is_external = self.note(trained_elsewhere(&paths));
                let experiment = self.experiment_at(&paths.lock());
                (run, Held { experiment, is_external, attestation })
            };
            self.runs().into_iter().map(held).collect()
        })
    }

    /// The run folders, also those without a lock.
    fn runs(&self) -> Vec<String> {
        let beside = self.locks();
        let inside = self.note(folders(&self.path)).into_iter().filter_map(|run| {
            let name = run.file_name()?.to_str()?.to_owned();
            (Paths::new(&run).lock().is_file() || beside.contains(&name)).then_some(name)
        });
        inside.collect()
    }

    /// What contradicts that the folder `name` holds the run of that name; if `complete` is set, also that its lock beside
    /// it is gone.
    fn faults_of(&self, name: &str, complete: bool) -> Vec<String> {
        let beside = self.path.join(format!("{name}.lock"));
        // An unreadable lock in the run's folder is a finding about the run.
        let Some(held) = self.held().get(name) else { return Vec::new() };
        // Runs of another engine come before the comparison, which then writes their locks.
        let complete = complete && (!held.is_external || self.is_compared());
        let Some(held) = &held.experiment else { return Vec::new() };
        let held_text = said(held);
        let mut faults = Vec::new();
        if std::fs::symlink_metadata(&beside).is_ok_and(|found| !found.is_file()) {
            faults.push(format!("{name}.lock beside the folder is a link or a folder, not a lock"));
        }
        match self.experiment_at(&beside) {
            None if held.name != name => {
                faults.push(format!("folder {name} holds run {held_text}"));
            }
            None if !complete => {}
            None => faults.push(format!(
                "folder {name} holds run {held_text}, but there is no readable lock {name}.lock beside it; \
                 `canonc compare` writes one for each of its runs"
            )),
            Some(lock) if lock.digests != held.digests || lock.name != name || held.name != name => {
                faults.push(format!(
                    "folder {name} holds run {held_text}, beside {name}.lock ({})",
                    said(&lock)
                ));
            }
            Some(_) => {}
        }
        let runs = self.locked.as_ref().map(Comparison::runs).unwrap_or_default();
        if let Some(run) = runs.iter().find(|run| run.experiment.name == name)
            && run.experiment.digests != held.digests
            && faults.is_empty()
        {
            faults.push(format!(
                "folder {name} holds run {held_text}, but {}/{}.lock has {} under that name",
                LOCKFILES,
                self.name,
                said(&run.experiment)
            ));
        }
        faults.extend(self.copies_of(name, held));
        faults
    }

    /// Other folders with the same lock or the same attestation.
    fn copies_of(&self, name: &str, held: &Experiment) -> Vec<String> {
        let attested = |run: &str| self.held().get(run)?.attestation.as_ref();
        let own = attested(name);
        let runs = self.locked.as_ref().map(Comparison::runs).unwrap_or_default();
        let locked = |name: &str| runs.iter().find(|run| run.experiment.name == name);
        let others = self.held().iter().filter(|(other, _)| *other != name);
        let copy = |(other, theirs): (&String, &Held)| {
            if own.is_some() && own == theirs.attestation.as_ref() {
                return Some(format!(
                    "folders {name} and {other} have one attestation: one is a copy"
                ));
            }
            let theirs = theirs.experiment.as_ref()?;
            // A comparison may have one run under two names.
            let may_be = match (locked(name), locked(other)) {
                (Some(one), Some(other)) => one.experiment.digests == other.experiment.digests,
                (None, _) | (_, None) => false,
            };
            (theirs.digests == held.digests && !may_be).then(|| {
                format!("folders {name} and {other} hold the run of one lock, {}", said(held))
            })
        };
        others.filter_map(copy).collect()
    }

    /// Runs that the folder has a lock for, that were reported or that the comparison needs, and that are not there.
    fn missing(&self) -> Vec<String> {
        let runs = self.runs();
        // A run of another comparison is used where it was trained.
        let finished = FinishedRuns::under(self.path.parent().unwrap_or(Path::new("")));
        let is_there = |name: &str, experiment: &Experiment| {
            runs.iter().any(|run| run == name) || self.note(finished.of(experiment)).is_some()
        };
        let mut missing = BTreeMap::new();
        for name in self.locks() {
            match self.lock_of(&name) {
                None => drop(
                    missing.insert(name.clone(), format!("{name}.lock is not the lock of a run")),
                ),
                Some(lock) if !is_there(&name, &lock) => drop(missing.insert(
                    name.clone(),
                    format!(
                        "run {name} is missing: {name}.lock is there, but no folder has its run"
                    ),
                )),
                Some(_) => {}
            }
        }
        let Some(comparison) = &self.locked else { return missing.into_values().collect() };
        let (reported, id) = (self.reported(), comparison.id().to_string());
        let was_reported = |run: &Experiment| {
            let run = run.id().to_string();
            reported.iter().any(|(lock, runs)| *lock == id && runs.contains(&run))
        };
        let all = self.path.join(PAGE).is_file() && comparison.analysis.stop == Stop::Fixed;
        for run in comparison.runs() {
            let run = &run.experiment;
            if (all || was_reported(run)) && !is_there(&run.name, run) {
                missing.entry(run.name.clone()).or_insert_with(|| {
                    format!(
                        "run {} is missing: {}/{}.lock has it, and its results were shown",
                        run.name, LOCKFILES, self.name
                    )
                });
            }
        }
        missing.into_values().collect()
    }

    /// Files of the comparison that canonc did not write so.
    fn files(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (file, member) in FILES {
            let path = self.path.join(file);
            let found = self.note(if_there(&path, std::fs::symlink_metadata(&path)));
            let Some(found) = found else { continue };
            if !found.is_file() {
                faults.push(format!(
                    "{file} is a link, a folder or a device, not a file of a comparison"
                ));
                continue;
            }
            let Some(member) = member else { continue };
            let text = match disk::read_text(&path, disk::TEXT) {
                Ok(text) => text,
                Err(error) => {
                    faults.push(format!("{file} cannot be read: {error}"));
                    self.note(if_there(&path, Err::<(), _>(error)));
                    continue;
                }
            };
            let is_line = |line: &str| {
                serde_json::from_str::<serde_json::Value>(line)
                    .is_ok_and(|line| line.get(member).is_some())
            };
            let wrong = (1..).zip(text.lines()).find(|(_, line)| !is_line(line));
            faults.extend(wrong.map(|(number, _)| {
                format!("{file}: line {number} is not a line that canonc writes")
            }));
        }
        faults
    }
}

/// A run in words.
fn said(experiment: &Experiment) -> String {
    format!("\"{}\" (lock {})", experiment.name, experiment.id().short())
}

/// The run folders of a comparison's folder, also those without a lock; `None` for any other folder.
pub fn runs_of(folder: &Path) -> Result<Option<Vec<PathBuf>>, Problem> {
    let Some(of) = Folder::at(folder)? else { return Ok(None) };
    let runs = of.runs().into_iter().map(|name| folder.join(name)).collect();
    of.settled().map(|()| Some(runs))
}

/// What is wrong with a comparison's folder as a whole; `None` for any other folder.
pub fn report(folder: &Path) -> Result<Option<VerifyReport>, Problem> {
    let Some(of) = Folder::at(folder)? else { return Ok(None) };
    let mut report = VerifyReport::default();
    report.broken.extend(of.missing());
    report.broken.extend(of.files());
    of.settled()?;
    if report.broken.is_empty() {
        report.checked(
            Subject::OtherFiles,
            "runs: each lock in the folder has its run; files beside them are not sealed",
        );
    }
    Ok(Some(report))
}

/// The folders above runs, each read once: a comparison may have many runs.
#[derive(Default)]
pub struct Folders(BTreeMap<PathBuf, Option<Folder>>);

impl Folders {
    /// What contradicts that this folder, in a comparison's, holds the run of its name.
    pub fn faults(&mut self, run: &Path) -> Result<Vec<String>, Problem> {
        self.faults_of(run, true)
    }

    fn faults_of(&mut self, run: &Path, complete: bool) -> Result<Vec<String>, Problem> {
        let Ok(run) = std::path::absolute(run) else { return Ok(Vec::new()) };
        let name = run.file_name().and_then(|name| name.to_str());
        let (Some(above), Some(name)) = (run.parent(), name) else { return Ok(Vec::new()) };
        let folder = match self.0.entry(above.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Folder::at(above)?),
        };
        let Some(folder) = folder else { return Ok(Vec::new()) };
        let faults = folder.faults_of(name, complete);
        folder.settled().map(|()| faults)
    }
}

/// Refuses a run of a comparison that is in another run's place.
pub fn refuse_others(run: &Path) -> Result<(), Failure> {
    let faults = Folders::default().faults_of(run, false)?;
    let Some(fault) = faults.into_iter().next() else { return Ok(()) };
    let failure = Failure::finding(fault);
    Err(failure.at(shown(run)).help(
        "restore the run's own folder from a copy, or move this one away, and `canonc compare` trains it again",
    ))
}

/// Warns of what a run's files say about the machine or its user. Earlier versions of canonc recorded it, under a seal.
pub fn warn_of_private(run: &Path) -> Result<(), Failure> {
    let private = private(&Paths::new(run))?;
    if !private.is_empty() {
        output::note(&format!(
            "warning: {} has {}; whoever gets the run can read that, and taking it out breaks the run's seals",
            shown(run),
            private.join(", ")
        ));
    }
    Ok(())
}
