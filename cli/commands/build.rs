//! `canonc build`: writes the locks of architectures, recipes and comparisons.
//!
//! An error in one file does not stop the others. A lock made from another file is never overwritten, and rebuilding keeps
//! the binding that `bind` wrote.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::Args;
use lab::experiment::{Experiment, LockedArch};
use lab::lock::{self, Lock};
use lab::verdict;
use serde::Serialize;
use serde_json::json;

use crate::build::{self, Built, Known, State, built};
use crate::compared::change;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::finished_runs::FinishedRuns;
use crate::forecast::{self, Forecast};
use crate::{load, out, output, workspace};

/// Compile architectures, recipes and comparisons into locks
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc build arch/llamacanon_1B.canon     writes lockfiles/llamacanon_1B.lock
  canonc build recipes/*.toml               writes one lock for each point of each sweep
  canonc build --check arch/*.canon         writes nothing; exits 1 if a lock is missing or stale

For the first four experiments and comparisons, it also says how many evaluation questions training will contain, how
long the missing runs take on this machine (a few steps are timed if they take over a minute), and, once runs of the base
are finished, what difference the seeds can find. -q leaves this out.

Schema of --json: {schema: \"canonc.build.v1\", locks: [{path, kind, id, state, forecast: {questions, time, seeds}, of the
first four experiments and comparisons}], failed: [{source, state}]}. The
state of a lock is \"wrote\" or \"up to date\"; with --check also \"stale\" or \"missing\"; \"orphan\" if its source no longer
makes it, \"unreadable\" (kind and id are null) if it is not a lock. That of a file without locks is \"confounded\" or
\"error\". Verdicts, notes and errors go to standard error.")]
pub struct BuildArgs {
    /// .canon files, recipes and comparisons
    #[arg(value_name = "FILE", required_unless_present = "check")]
    pub files: Vec<PathBuf>,
    /// Write nothing; list locks that are missing or stale, and exit 1 if there are any. Without a FILE, check
    /// the source of every lock
    #[arg(long)]
    pub check: bool,
    /// Folder for locks
    #[arg(long, value_name = "DIR", default_value = "lockfiles")]
    pub out: PathBuf,
    /// Also print the locks as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// What building did with a lock, or would do.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum LockState {
    Wrote,
    #[serde(rename = "up to date")]
    UpToDate,
    Stale,
    Missing,
    /// Its source no longer makes it.
    Orphan,
    /// It is not a lock.
    Unreadable,
}

/// A lock that was built or checked, for `--json`.
#[derive(Clone, Serialize)]
struct Locked {
    path: String,
    /// `None` if the lock cannot be read.
    kind: Option<String>,
    id: Option<String>,
    state: LockState,
    /// What its runs will show and cost, if it was named and can be trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast: Option<Forecast>,
}

impl Locked {
    fn new(path: &Path, lock: &Lock, state: LockState) -> Locked {
        let (kind, id) = (Some(lock.kind().to_owned()), Some(lock.id().to_string()));
        Locked { path: shown(path), kind, id, state, forecast: None }
    }

    /// A lock that no source makes.
    fn left(path: &Path, state: LockState) -> Locked {
        let read = workspace::text_at(path).ok().flatten();
        match read.and_then(|text| lock::read(&shown(path), &text).ok()) {
            Some(lock) => Locked::new(path, &lock, state),
            None => Locked { path: shown(path), kind: None, id: None, state, forecast: None },
        }
    }

    /// Of `canonc build --check`.
    fn exit(&self) -> Exit {
        match self.state {
            LockState::Wrote | LockState::UpToDate => Exit::Fine,
            LockState::Stale | LockState::Missing | LockState::Orphan | LockState::Unreadable => {
                Exit::Finding
            }
        }
    }
}

/// A file that makes no lock, or one that cannot be written, for `--json`.
#[derive(Serialize)]
struct Failed {
    source: String,
    state: &'static str,
}

impl Failed {
    fn new(source: String, failure: &Failure) -> Failed {
        let state = if failure.exit == Exit::Finding { "confounded" } else { "error" };
        Failed { source, state }
    }
}

/// Most locks of one kind that get a forecast, which takes seconds each.
const MOST_FORECASTS: u64 = 4;

pub fn build(args: &BuildArgs) -> Outcome {
    out::container(&args.out)?;
    let mut session = Session::new(args);
    // Without a named file, the sources of all locks are checked.
    let everything = args.files.is_empty().then(|| check::in_folder(args)).transpose()?;
    let all = match &everything {
        Some(in_folder) => check::sources(args, in_folder)?,
        None => Vec::new(),
    };
    for file in args.files.iter().chain(&all) {
        session.file(file)?;
    }
    session.tell_left_out();
    let Session { sources, origins, mut listed, failed, mut worst, .. } = session;
    let mut unmade = match everything {
        Some(in_folder) => {
            let orphans = check::orphans(&in_folder, &sources, &origins);
            [orphans, check::unreadable(&in_folder)].concat()
        }
        None => check::orphans(&check::in_folder(args)?, &sources, &origins),
    };
    if args.check {
        worst = unmade.iter().map(Locked::exit).fold(worst, Exit::max);
    }
    listed.append(&mut unmade);
    if args.json {
        let answer = json!({ "schema": "canonc.build.v1", "locks": listed, "failed": failed });
        output::json(&answer)?;
    }
    // Each file's errors have already been shown.
    if worst > Exit::Finding { Err(Failure::shown(worst)) } else { Ok(worst) }
}

/// One call of `canonc build`.
struct Session<'a> {
    args: &'a BuildArgs,
    known: Known,
    /// Files of which every lock was built.
    sources: BTreeSet<String>,
    /// The source of each lock.
    origins: BTreeMap<PathBuf, String>,
    experiments: u64,
    comparisons: u64,
    listed: Vec<Locked>,
    failed: Vec<Failed>,
    worst: Exit,
}

impl<'a> Session<'a> {
    fn new(args: &'a BuildArgs) -> Session<'a> {
        let mut known = Known::default();
        known.json = args.json;
        Session {
            args,
            known,
            sources: BTreeSet::new(),
            origins: BTreeMap::new(),
            experiments: 0,
            comparisons: 0,
            listed: Vec::new(),
            failed: Vec::new(),
            worst: Exit::Fine,
        }
    }

    fn fail(&mut self, source: String, failure: &Failure) {
        output::failure(failure);
        self.failed.push(Failed::new(source, failure));
        self.worst = self.worst.max(failure.exit);
    }

    /// Builds a file. Its errors do not stop the others, but those of this machine do.
    fn file(&mut self, file: &Path) -> Result<(), Failure> {
        let locks = match built(&mut self.known, file) {
            Ok(locks) => locks,
            Err(failure) => {
                self.fail(load::name(file), &failure);
                return Ok(());
            }
        };
        let (path, arch) = load::split(file);
        let source = load::name(&path);
        for lock in locks {
            match self.lock(&source, lock) {
                Ok(lock) => {
                    self.worst = self.worst.max(lock.exit());
                    self.listed.push(lock);
                }
                // The next file would fail in the same way.
                Err(failure) if failure.exit == Exit::Machine => return Err(failure),
                Err(failure) => self.fail(source.clone(), &failure),
            }
        }
        // One arch of a file says nothing about the locks of its others.
        if arch.is_none() {
            self.sources.insert(source);
        }
        Ok(())
    }

    /// Writes or checks a lock of a file.
    fn lock(&mut self, source: &str, lock: Lock) -> Result<Locked, Failure> {
        let path = out::named(&self.args.out, lock.name(), ".lock")?;
        let origin = self.origins.entry(path.clone()).or_insert_with(|| source.to_owned());
        if origin != source {
            return Err(two_sources(&path, origin, source));
        }
        if self.args.check {
            return check::check(&path, lock);
        }
        let count = match &lock {
            Lock::Arch(_) => None,
            Lock::Experiment(_) => Some(&mut self.experiments),
            Lock::Comparison(_) => Some(&mut self.comparisons),
        };
        let has_forecast = count.is_some_and(|count| {
            *count += 1;
            *count <= MOST_FORECASTS && !output::quiet()
        });
        write(&path, lock, has_forecast)
    }

    /// Says how many locks have no forecast.
    fn tell_left_out(&self) {
        let counts = [self.experiments, self.comparisons];
        let more: u64 = counts.iter().map(|count| count.saturating_sub(MOST_FORECASTS)).sum();
        if more > 0 {
            output::note(&format!(
                "what to expect of {} is left out; `canonc build` of one file tells it",
                output::counted(more, "more lock")
            ));
        }
    }
}

fn two_sources(path: &Path, one: &str, other: &str) -> Failure {
    Failure::bad_input(format!("`{one}` and `{other}` would both write `{}`", shown(path)))
        .help("rename one of them, or use different folders with --out")
}

fn write(path: &Path, lock: Lock, forecasts: bool) -> Result<Locked, Failure> {
    let Built { lock, before, state } = build::compare(path, lock)?;
    if before.as_deref().is_some_and(lock::is_older) {
        let bound =
            if lock.open_inputs().is_empty() { "" } else { "; if it was bound, bind it again" };
        output::note(&format!("{}: replaced a lock of an older version{bound}", shown(path)));
    }
    let text = lock::write(&lock);
    let name = shown(path);
    let is_current = state == State::Current;
    if is_current {
        output::note(&format!("{name}: up to date"));
    } else {
        out::put(path, out::OutputKind::Lock, &text)?;
        output::note(&format!("{name}: wrote {} {}", lock.kind(), lock.id().short()));
    }
    describe(path, &lock, &text);
    let forecast = forecasts.then(|| forecast(&lock)).flatten();
    if forecasts && forecast.is_none() && lock.open_inputs().is_empty() {
        output::note("  finished: nothing is left to train");
    }
    for line in forecast.iter().flat_map(Forecast::lines) {
        output::note(&format!("  {line}"));
    }
    let state = if is_current { LockState::UpToDate } else { LockState::Wrote };
    Ok(Locked { forecast, ..Locked::new(path, &lock, state) })
}

/// What the runs of a lock will show and cost; `None` if it trains nothing, or nothing more.
fn forecast(lock: &Lock) -> Option<Forecast> {
    if !lock.open_inputs().is_empty() {
        return None;
    }
    let runs = Path::new(workspace::RUNS);
    let finished = FinishedRuns::under(runs);
    match lock {
        Lock::Arch(_) => None,
        Lock::Experiment(experiment) => {
            (!finished.has(runs, experiment)).then(|| forecast::of_experiment(experiment, None))
        }
        Lock::Comparison(comparison) => {
            let folder = out::named(runs, &comparison.name, "").ok()?;
            let finished = |experiment: &Experiment| finished.has(&folder, experiment);
            forecast::of_comparison(comparison, None, runs, finished, &AtomicBool::new(false))
        }
    }
}

/// Prints what is notable about a lock besides its name.
fn describe(path: &Path, lock: &Lock, text: &str) {
    let redefined = |arch: &LockedArch| {
        for redefined in verdict::redefinitions(arch, text) {
            output::note(&format!("  {redefined}"));
        }
    };
    match lock {
        Lock::Arch(arch) => redefined(&arch.arch),
        Lock::Experiment(experiment) => {
            redefined(&experiment.arch);
            if let Some(warning) = forecast::learns_nothing(experiment) {
                output::note(&warning);
            }
        }
        Lock::Comparison(comparison) => {
            for run in comparison.runs() {
                if let Some(warning) = forecast::learns_nothing(&run.experiment) {
                    output::note(&warning);
                }
            }
            for (arm, verdict) in &comparison.verdicts {
                output::note(&format!(
                    "  {arm} against {}: {}",
                    comparison.base,
                    comparison.headline(arm)
                ));
                for differing in &verdict.platform {
                    output::note(&format!("    platform: {}", change(differing)));
                }
                for namesake in &verdict.names {
                    output::note(&format!("    {}", namesake.line([&comparison.base, arm])));
                }
            }
            output::note(&format!("  {}", output::counted(comparison.runs().len(), "run")));
        }
    }
    for input in lock.open_inputs() {
        output::note(&format!(
            "  open: {input} has no digest; close it with `canonc bind {}{}`",
            shown(path),
            lock::bind_options(std::slice::from_ref(&input))
        ));
    }
}
