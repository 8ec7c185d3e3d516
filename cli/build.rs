//! `canonc build`: writes the locks of architectures, recipes and comparisons.
//!
//! In: `.canon` and `.toml` files. Out: one lock for each arch, each point of a sweep and each comparison; with
//! `--check`, what would change. An error in one file does not stop the others. Must stay true: an equal lock is not
//! rewritten; a lock made from another file is never overwritten; rebuilding keeps the binding that `bind` wrote;
//! a confounded comparison is reported and not locked.

mod check;
mod known;
mod suites;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use compiler::program::Compiled;
use lab::experiment::{Experiment, LockedArch};
use lab::lock::{self, ArchLock, Lock};
use lab::recipe::{self, Source};
use lab::verdict;
use serde::Serialize;
use serde_json::json;

use crate::archs::{self, Archs};
use crate::args::BuildArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::forecast::{self, Forecast};
use crate::found::Found;
use crate::{load, locks, out, output, runs};

pub use known::Known;

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
        let read = locks::standing(path).ok().flatten();
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

/// The usual folder of recipes.
const RECIPES: &str = "recipes";

/// Most locks of one kind that get a forecast, which takes seconds each.
const MOST_FORECASTS: u64 = 4;

pub fn build(args: &BuildArgs) -> Outcome {
    out::container(&args.out)?;
    let mut made: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut worst = Exit::Fine;
    let mut known = Known::default();
    known.json = args.json;
    let mut sources = BTreeSet::new();
    let (mut listed, mut failed) = (Vec::new(), Vec::new());
    let (mut experiments, mut comparisons) = (0, 0);
    let everything = args.files.is_empty().then(|| check::in_folder(args)).transpose()?;
    let all = match &everything {
        Some(in_folder) => check::sources(args, in_folder)?,
        None => Vec::new(),
    };
    for file in args.files.iter().chain(&all) {
        let built = match built(&mut known, file) {
            Ok(built) => built,
            Err(failure) => {
                output::failure(&failure);
                worst = worst.max(failure.exit);
                failed.push(Failed::new(load::name(file), &failure));
                continue;
            }
        };
        let (path, named) = load::split(file);
        let source = load::name(&path);
        for lock in built {
            let path = out::named(&args.out, lock.name(), ".lock")?;
            let before = made.entry(path.clone()).or_insert_with(|| source.clone());
            let done = match (*before != source, args.check) {
                (true, _) => Err(two_sources(&path, before, &source)),
                (false, true) => check::check(&path, lock),
                (false, false) => {
                    let count = match &lock {
                        Lock::Arch(_) => None,
                        Lock::Experiment(_) => Some(&mut experiments),
                        Lock::Comparison(_) => Some(&mut comparisons),
                    };
                    let forecasts = count.is_some_and(|count| {
                        *count += 1;
                        *count <= MOST_FORECASTS && !output::quiet()
                    });
                    write(&path, lock, forecasts)
                }
            };
            worst = worst.max(match done {
                Ok(lock) => {
                    let exit = lock.exit();
                    listed.push(lock);
                    exit
                }
                // The next file would fail in the same way.
                Err(failure) if failure.exit == Exit::Machine => return Err(failure),
                Err(failure) => {
                    output::failure(&failure);
                    failed.push(Failed::new(source.clone(), &failure));
                    failure.exit
                }
            });
        }
        // One arch of a file says nothing about the locks of its others.
        if named.is_none() {
            sources.insert(source);
        }
    }
    let more: u64 = [experiments, comparisons]
        .map(|count: u64| count.saturating_sub(MOST_FORECASTS))
        .iter()
        .sum();
    if more > 0 {
        output::note(&format!(
            "what to expect of {} is left out; `canonc build` of one file tells it",
            output::counted(more, "more lock")
        ));
    }
    let mut left = match everything {
        Some(in_folder) => {
            let orphans = check::orphans(&in_folder, &sources, &made);
            [orphans, check::unreadable(&in_folder)].concat()
        }
        None => check::orphans(&check::in_folder(args)?, &sources, &made),
    };
    if args.check {
        worst = left.iter().map(Locked::exit).fold(worst, Exit::max);
    }
    listed.append(&mut left);
    if args.json {
        let answer = json!({ "schema": "canonc.build.v1", "locks": listed, "failed": failed });
        output::json(&answer)?;
    }
    // Each file's errors have already been shown.
    if worst > Exit::Finding { Err(Failure::shown(worst)) } else { Ok(worst) }
}

fn two_sources(path: &Path, one: &str, other: &str) -> Failure {
    Failure::bad_input(format!("`{one}` and `{other}` would both write `{}`", shown(path)))
        .help("rename one of them, or use different folders with --out")
}

/// A warning for a lock below this folder that the file it was made from, if that is there, does not make any more.
pub fn warning_of_source(path: &Path, lock: &Lock) -> Option<String> {
    let (source, name) = (lock.source(), shown(path));
    let here = Path::new(".").canonicalize().ok()?;
    if !path.canonicalize().is_ok_and(|path| path.starts_with(here)) || !Path::new(source).is_file()
    {
        return None;
    }
    // The experiments of a comparison have the locks that `canonc compare` wrote, which has asked already.
    let text = disk::read_text(Path::new(source), disk::TEXT).unwrap_or_default();
    let of_comparison = matches!(recipe::source(&text), Source::Comparison);
    if of_comparison && matches!(lock, Lock::Experiment(_)) {
        return None;
    }
    let Ok(now) = output::silently(|| built(&mut Known::default(), Path::new(source))) else {
        return Some(format!(
            "warning: `{source}`, which `{name}` was made from, has errors now; `canonc build {source}` shows them"
        ));
    };
    let now = now.into_iter().find(|now| now.name() == lock.name());
    let is_same =
        now.is_some_and(|now| settled(path, now).map_or(true, |(now, _)| now.id() == lock.id()));
    (!is_same).then(|| {
        format!(
            "warning: `{source}`, or what it names, has changed since `{name}` was built; `canonc build {source}` builds \
             it again"
        )
    })
}

/// The locks that a file makes. Its diagnostics have been shown.
pub fn built(known: &mut Known, file: &Path) -> Result<Vec<Lock>, Failure> {
    let (path, _) = load::split(file);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("canon") => archs(file),
        Some("toml") => {
            let (sources, id) = known::toml(file)?;
            match recipe::source(sources.text(id)) {
                Source::Recipe => {
                    let made = known.recipe(file, None)?;
                    Ok(made.iter().cloned().map(Lock::Experiment).collect())
                }
                Source::Comparison => known.comparisons(&sources, id),
            }
        }
        Some("lock") => Err(Failure::bad_input(format!("`{}` is already a lock", shown(file)))
            .help("name its source instead, as in its `source` line")),
        Some(_) | None => Err(Failure::bad_input(format!(
            "`{}` is neither an architecture (.canon) nor a recipe (.toml)",
            shown(file)
        ))
        .help("name a .canon or .toml file; `canonc new DIR` writes examples")),
    }
}

fn archs(file: &Path) -> Result<Vec<Lock>, Failure> {
    let Archs { name: source, found } = archs::all(file, None)?;
    let lock = |arch: &Compiled| {
        let locked = ArchLock::new(arch.name.clone(), source.clone(), arch);
        locked.map(Lock::Arch).map_err(|error| locks::refused(file, error))
    };
    found.iter().map(|found| lock(&found.compiled)).collect()
}

/// A file's name without its ending. Its locks are named after it.
fn stem(file: &Path) -> Result<String, Failure> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("");
    if lab::experiment::check_name(stem).is_err() {
        return Err(Failure::bad_input(format!("`{}` cannot name a lock", shown(file))).help(
            "rename it: use only letters, digits, `_`, `-` and `.`, starting with a letter, digit or `_`",
        ));
    }
    Ok(stem.to_owned())
}

/// The recipes that name an arch of a file, by their paths. Files that are no recipes are passed over.
pub fn recipes_of(source: &str, arch: &str) -> Vec<String> {
    let entries = std::fs::read_dir(RECIPES).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    let names_it = |path: &PathBuf| {
        let Ok((sources, id)) = known::toml(path) else { return false };
        let (Some(recipe), _) = recipe::read(&sources, id) else { return false };
        recipe.archs.iter().any(|(named, _)| {
            named.path == source && named.name.as_ref().is_none_or(|name| name == arch)
        })
    };
    paths.iter().filter(|path| names_it(path)).map(|path| shown(path)).collect()
}

/// The lock to write at a path, with the binding of the existing lock, and the text that is there now.
pub fn settled(path: &Path, lock: Lock) -> Result<(Lock, Option<String>), Failure> {
    let Some(before) = locks::standing(path)? else { return Ok((lock, None)) };
    if before == lock::write(&lock) {
        return Ok((lock, Some(before)));
    }
    match lock::source_of(&before) {
        None => Err(Failure::bad_input(format!("`{}` is not a lock of canonc", shown(path)))
            .help("move it away, or choose another folder for locks with --out")),
        Some(source) if source != lock.source() => Err(Failure::bad_input(format!(
            "`{}` was made from `{source}`, not from `{}`",
            shown(path),
            lock.source()
        ))
        .help(format!(
            "delete it if `{source}` no longer exists, rename one of the two, or use --out"
        ))),
        Some(_) => {
            let standing = lock::read(&shown(path), &before);
            if let Err(error) = &standing
                && error.code == "lock-version"
                && !lock::is_older(&before)
            {
                let failure = locks::refused(path, error.clone());
                return Err(failure.help("or delete it, and build it with this canonc"));
            }
            // A lock that cannot be read has no binding to keep.
            let bound =
                standing.and_then(|standing| lock::keep_binding(&lock, &standing)).unwrap_or(None);
            Ok((bound.unwrap_or(lock), Some(before)))
        }
    }
}

fn write(path: &Path, lock: Lock, forecasts: bool) -> Result<Locked, Failure> {
    let (lock, before) = settled(path, lock)?;
    if before.as_deref().is_some_and(lock::is_older) {
        let bound =
            if lock.open_inputs().is_empty() { "" } else { "; if it was bound, bind it again" };
        output::note(&format!("{}: replaced a lock of an older version{bound}", shown(path)));
    }
    let text = lock::write(&lock);
    let name = shown(path);
    let same = before.as_deref() == Some(text.as_str());
    if same {
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
    let state = if same { LockState::UpToDate } else { LockState::Wrote };
    Ok(Locked { forecast, ..Locked::new(path, &lock, state) })
}

/// What the runs of a lock will show and cost; `None` if it trains nothing, or nothing more.
fn forecast(lock: &Lock) -> Option<Forecast> {
    if !lock.open_inputs().is_empty() {
        return None;
    }
    let runs = Path::new(runs::FOLDER);
    let found = Found::under(runs);
    match lock {
        Lock::Arch(_) => None,
        Lock::Experiment(experiment) => (!found.is_finished(runs, experiment))
            .then(|| forecast::of_experiment(experiment, None)),
        Lock::Comparison(comparison) => {
            let folder = out::named(runs, &comparison.name, "").ok()?;
            let finished = |experiment: &Experiment| found.is_finished(&folder, experiment);
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
            if let Some(warning) = runs::learns_nothing(experiment) {
                output::note(&warning);
            }
        }
        Lock::Comparison(comparison) => {
            for run in comparison.runs() {
                if let Some(warning) = runs::learns_nothing(&run.experiment) {
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
            "  open: {input} has no digest; close it with `canonc bind {} --data PATH`",
            shown(path)
        ));
    }
}

/// One difference in one line: its path, both values, and any note.
pub fn change(change: &verdict::Change) -> String {
    let verdict::Change { path, subject: _, a, b, defaults: _, places: _, note } = change;
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let text = format!("{path} {} → {} {note}", side(a), side(b));
    text.trim_end().to_owned()
}
