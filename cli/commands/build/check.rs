//! `canonc build --check`: the facts that building would change, and locks that no source makes any more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use lab::lock::{self, Drift, Lock};

use super::{BuildArgs, LockState, Locked};
use crate::build::{self, Built, State};
use crate::fail::{Failure, shown};
use crate::{output, workspace};

/// Most facts shown for one lock; the rest is only counted.
const MAX_SHOWN: usize = 20;

pub(super) fn check(path: &Path, lock: Lock) -> Result<Locked, Failure> {
    let Built { lock, before, state } = build::compare(path, lock)?;
    let name = shown(path);
    match state {
        State::Missing => {
            output::note(&format!("{name}: missing; `canonc build {}` writes it", lock.source()));
            Ok(Locked::new(path, &lock, LockState::Missing))
        }
        State::Current => {
            output::note(&format!("{name}: up to date"));
            Ok(Locked::new(path, &lock, LockState::UpToDate))
        }
        State::Stale => {
            output::note(&format!(
                "{name}: stale; `canonc build {}` writes it again",
                lock.source()
            ));
            tell_drift(&before.unwrap_or_default(), &lock::write(&lock));
            Ok(Locked::new(path, &lock, LockState::Stale))
        }
    }
}

/// Lists the facts that building changes.
fn tell_drift(before: &str, after: &str) {
    let drift = lock::drift(before, after);
    for Drift { key, before, after } in drift.iter().take(MAX_SHOWN) {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        output::note(&format!("  {key}: {} -> {}", value(before), value(after)));
    }
    if let Some(more) = drift.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
        output::note(&format!("  … and {more} more"));
    }
    if drift.is_empty() {
        output::note("  (every fact is the same, but the text is not as canonc writes it)");
    }
}

/// The sources recorded in the folder's locks, each once, for a check without named files.
pub(super) fn sources(
    args: &BuildArgs,
    in_folder: &LocksInFolder,
) -> Result<Vec<PathBuf>, Failure> {
    let found: BTreeSet<PathBuf> =
        in_folder.iter().filter_map(|(_, source)| Some(PathBuf::from(source.as_ref()?))).collect();
    if found.is_empty() {
        return Err(Failure::bad_input(format!("`{}` contains no locks", shown(&args.out)))
            .help("name what to build: `canonc build recipes/NAME.toml`"));
    }
    Ok(found.into_iter().collect())
}

/// Locks without a readable source: damaged, or not made by canonc.
pub(super) fn unreadable(in_folder: &LocksInFolder) -> Vec<Locked> {
    let found = in_folder.iter().filter(|(_, source)| source.is_none());
    found
        .map(|(path, _)| {
            output::note(&format!(
                "{}: damaged, or not a lock of canonc; build it again from its source, or move it away",
                shown(path)
            ));
            Locked::left(path, LockState::Unreadable)
        })
        .collect()
}

/// The locks in the folder, by name, each with its recorded source, if any.
pub(super) type LocksInFolder = Vec<(PathBuf, Option<String>)>;

pub(super) fn in_folder(args: &BuildArgs) -> Result<LocksInFolder, Failure> {
    let paths = workspace::files_in(&args.out, "lock")?;
    let source = |path: PathBuf| {
        let text = workspace::text_at(&path)?.unwrap_or_default();
        Ok((path, lock::source_of(&text)))
    };
    paths.into_iter().map(source).collect()
}

/// Locks that were made from one of `sources`, which no longer makes them.
pub(super) fn orphans(
    in_folder: &LocksInFolder,
    sources: &BTreeSet<String>,
    made: &BTreeMap<PathBuf, String>,
) -> Vec<Locked> {
    let mut found = Vec::new();
    for (path, source) in in_folder.iter().filter(|(path, _)| !made.contains_key(path)) {
        if let Some(source) = source.as_ref().filter(|source| sources.contains(*source)) {
            output::note(&format!(
                "{}: `{source}` no longer makes this lock; delete it",
                shown(path)
            ));
            found.push(Locked::left(path, LockState::Orphan));
        }
    }
    found
}
