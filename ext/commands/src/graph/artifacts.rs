//! `canonc graph --artifacts`: every file in this folder that is made from another, and whether it is up to date.
//!
//! A run belongs to the lock in its folder, not to the lock of the same name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use compiler::artifacts::{Artifact, ArtifactKind, Artifacts, State};
use compiler::resolve::import_target;
use dsl::{FileId, Sources};
use lab::experiment::Experiment;
use lab::lock::{self, Lock};
use lab::recipe::{self, FileKind};
use records::finished;
use records::run::{Paths, experiment_from_text};

use cli::build::{self, Known, built};
use cli::fail::Failure;
use cli::files::canon_files;
use cli::load::{Content, name, read};
use cli::out;
use cli::workspace::{ARCHS, LOCKFILES, RECIPES, RUNS, files_in, text_at};

/// The artefact graph of the current folder.
pub(super) fn artifacts() -> Result<Artifacts, Failure> {
    let mut all = Artifacts::default();
    let mut sources: Vec<PathBuf> = Vec::new();
    if Path::new(ARCHS).is_dir() {
        sources.extend(canon_files(Path::new(ARCHS)).unwrap_or_default());
    }
    sources.extend(files_in(Path::new(RECIPES), "toml")?);
    if sources.is_empty() && !Path::new(LOCKFILES).is_dir() {
        return Err(Failure::bad_input(format!(
            "`{ARCHS}`, `{RECIPES}` and `{LOCKFILES}` are all missing here"
        ))
        .help("run it in the folder of a project; `canonc new DIR` creates one"));
    }
    let mut made = BTreeSet::new();
    let mut known = Known::default();
    for source in &sources {
        add_source(&mut all, &mut known, source, &mut made);
    }
    for path in files_in(Path::new(LOCKFILES), "lock")? {
        if made.contains(&name(&path)) {
            continue;
        }
        let text = text_at(&path)?.unwrap_or_default();
        match lock::source_of(&text) {
            // A source outside the usual folders.
            Some(source) if Path::new(&source).is_file() && all.get(&source).is_none() => {
                add_source(&mut all, &mut known, Path::new(&source), &mut made);
            }
            Some(_) | None => {}
        }
        // No source that was built makes this lock.
        let note = lock::source_of(&text).map(|source| format!("made from {source}"));
        let note = note.unwrap_or_else(|| "no lock of canonc".to_owned());
        all.add(name(&path), Artifact { kind: ArtifactKind::Lock, state: State::Orphan, note });
    }
    Ok(all)
}

/// Adds a source, the files it reads, and the locks it makes.
fn add_source(all: &mut Artifacts, known: &mut Known, source: &Path, made: &mut BTreeSet<String>) {
    let path = name(source);
    let built = built(known, source);
    let state = if built.is_ok() { State::Current } else { State::Broken };
    let kind = read_by(all, source, &path);
    all.add(path.clone(), Artifact { kind, state, note: String::new() });
    for lock in built.unwrap_or_default() {
        let Ok(file) = out::named(Path::new(LOCKFILES), lock.name(), ".lock") else { continue };
        let lock_path = name(&file);
        all.need(lock_path.clone(), path.clone());
        made.insert(lock_path.clone());
        let (lock, state) = match build::compare(&file, lock) {
            Ok(build::Built { lock, state, before: _ }) => (lock, state_of(state)),
            Err(failure) => {
                // The file there is another source's lock, or not a lock at all.
                let note = failure.message.unwrap_or_default();
                all.add(
                    lock_path,
                    Artifact { kind: ArtifactKind::Lock, state: State::Broken, note },
                );
                continue;
            }
        };
        let open = if lock.open_inputs().is_empty() { "" } else { ", open" };
        let note = format!("{} {}{open}", lock.kind(), lock.id().short());
        all.add(lock_path.clone(), Artifact { kind: ArtifactKind::Lock, state, note });
        add_runs(all, &lock, &lock_path);
    }
}

fn state_of(state: build::State) -> State {
    match state {
        build::State::Missing => State::Missing,
        build::State::Current => State::Current,
        build::State::Stale => State::Stale,
    }
}

/// The files that a source names: an arch its imports, a recipe its archs, a comparison its recipes.
fn read_by(all: &mut Artifacts, source: &Path, path: &str) -> ArtifactKind {
    let text = match read(source) {
        Ok(Content::Text(text)) => text,
        Ok(Content::Not(_)) | Err(_) => String::new(),
    };
    if source.extension().is_some_and(|extension| extension == "canon") {
        let (ast, _) = dsl::parse(FileId(0), &text);
        for target in ast.imports.iter().filter_map(|i| import_target(path, &i.path)) {
            all.need(path, target);
        }
        return ArtifactKind::Arch;
    }
    let mut sources = Sources::new();
    let id = sources.add(path, text.clone());
    match recipe::file_kind(&text) {
        FileKind::Recipe => {
            let archs = recipe::read(&sources, id).0.map(|recipe| recipe.archs);
            for (arch, _) in archs.unwrap_or_default() {
                all.need(path, arch.path);
            }
            ArtifactKind::Recipe
        }
        FileKind::Comparison => {
            let read = recipe::comparison::read(&sources, id).0;
            for arm in read.iter().flat_map(recipe::ComparisonFile::arms) {
                all.need(path, arm.recipe.as_str());
                if let Some(arch) = &arm.arch {
                    all.need(path, arch.path.as_str());
                }
            }
            ArtifactKind::Comparison
        }
    }
}

/// Adds the runs that a lock calls for, and the report on them.
fn add_runs(all: &mut Artifacts, lock: &Lock, lock_path: &str) {
    match lock {
        Lock::Arch(_) => {}
        Lock::Experiment(experiment) => {
            if let Ok(folder) = out::named(Path::new(RUNS), &experiment.name, "") {
                add_run(all, experiment, &folder, lock_path);
            }
        }
        Lock::Comparison(comparison) => {
            let Ok(folder) = out::named(Path::new(RUNS), &comparison.name, "") else { return };
            let report = folder.join("report.html");
            let state = if report.is_file() { State::Current } else { State::Missing };
            let report = name(&report);
            for run in comparison.runs() {
                let Ok(run_folder) = out::named(&folder, &run.experiment.name, "") else {
                    continue;
                };
                add_run(all, &run.experiment, &run_folder, lock_path);
                all.need(report.clone(), name(&run_folder));
            }
            all.add(report, Artifact { kind: ArtifactKind::Report, state, note: String::new() });
        }
    }
}

fn add_run(all: &mut Artifacts, experiment: &Experiment, folder: &Path, lock_path: &str) {
    let paths = Paths::new(folder);
    let path = name(folder);
    let state = match disk::read_text(&paths.lock(), disk::SMALL) {
        Err(_) => State::Missing,
        Ok(text) => match experiment_from_text(&path, &text) {
            Err(_) => State::Broken,
            // The run's source may have changed since. Its digests must not have.
            Ok(theirs) if theirs.digests != experiment.digests => State::Stale,
            Ok(_) if !paths.attestation().is_file() => State::Unfinished,
            Ok(theirs) => match finished::read(&paths, (&theirs).into()) {
                Ok(_) => State::Current,
                Err(_) => State::Broken,
            },
        },
    };
    all.need(path.clone(), lock_path);
    all.add(path, Artifact { kind: ArtifactKind::Run, state, note: String::new() });
}
