//! `canonc build`: architectures, recipes and comparisons, each as its lock.
//!
//! In: `.canon` and `.toml` files. Out: one lock for each arch, each point of a sweep, each comparison; or
//! with `--check` what would change. What is wrong with one keeps none of the others from being made. Must stay true: an equal lock is not written again; a lock made from
//! another file is never written over; building again does not open what `bind` closed; a comparison
//! that is confounded is reported and not locked.

mod check;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use compiler::compare;
use compiler::lock::{self, ArchLock, Lock, LockedArch, NoComparison};
use compiler::program::Compiled;
use compiler::recipe::comparison::ArmFile;
use compiler::recipe::{self, ArchRef, Source};
use dsl::{Diagnostic, FileId, Sources};

use crate::args::BuildArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::load::{self, Archs, Content};
use crate::{files, locks, output};

pub(crate) fn build(args: &BuildArgs) -> Outcome {
    let mut made: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut worst = Exit::Fine;
    for file in &args.files {
        let built = match built(file) {
            Ok(built) => built,
            Err(failure) => {
                output::failure(&failure);
                worst = worst.max(failure.exit);
                continue;
            }
        };
        let source = load::name(file);
        for lock in built {
            let path = args.out.join(format!("{}.lock", lock.name()));
            let before = made.entry(path.clone()).or_insert_with(|| source.clone());
            let done = match (*before != source, args.check) {
                (true, _) => Err(two_sources(&path, before, &source)),
                (false, true) => check::check(&path, lock),
                (false, false) => write(&path, lock),
            };
            worst = worst.max(match done {
                Ok(exit) => exit,
                // The next file would fail alike.
                Err(failure) if failure.exit == Exit::Machine => return Err(failure),
                Err(failure) => {
                    output::failure(&failure);
                    failure.exit
                }
            });
        }
        worst = worst.max(check::orphans(args, &source, &made)?);
    }
    // What was wrong has been said, file by file.
    if worst > Exit::Finding { Err(Failure::shown(worst)) } else { Ok(worst) }
}

fn two_sources(path: &Path, one: &str, other: &str) -> Failure {
    Failure::bad_input(format!("`{one}` and `{other}` would both write `{}`", shown(path)))
        .help("rename one of them, or give them folders of their own with --out")
}

/// The locks that a file makes; diagnostics have been shown.
pub(crate) fn built(file: &Path) -> Result<Vec<Lock>, Failure> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("canon") => archs(file),
        Some("toml") => {
            let (sources, id) = toml(file)?;
            match recipe::source(sources.text(id)) {
                Source::Recipe => Ok(experiments(&sources, id, None)?.0),
                Source::Comparison => comparison(&sources, id),
            }
        }
        Some("lock") => Err(Failure::bad_input(format!("`{}` is a lock already", shown(file)))
            .help("name what it was made from: its `source` line says it")),
        Some(_) | None => Err(Failure::bad_input(format!(
            "`{}` is neither an architecture (.canon) nor a recipe (.toml)",
            shown(file)
        ))
        .help("name a file of one of the two; `canonc new DIR` writes first ones")),
    }
}

fn archs(file: &Path) -> Result<Vec<Lock>, Failure> {
    let Archs { name: source, found } = load::archs(file, None)?;
    let stem = stem(file)?;
    let name = |arch: &Compiled| if found.len() == 1 { stem.clone() } else { arch.name.clone() };
    let lock = |arch: &Compiled| {
        let locked = ArchLock::new(name(arch), source.clone(), arch);
        locked.map(Lock::Arch).map_err(|error| locks::refused(file, error))
    };
    found.iter().map(|found| lock(&found.compiled)).collect()
}

/// The name of a file without its ending, which names its locks.
fn stem(file: &Path) -> Result<String, Failure> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("");
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if stem.is_empty() || stem.starts_with('.') || !stem.chars().all(plain) {
        return Err(Failure::bad_input(format!("`{}` cannot name a lock", shown(file)))
            .help("rename it: letters, digits, `_`, `-` and `.` only"));
    }
    Ok(stem.to_owned())
}

/// A TOML file as one of the sources that diagnostics point into.
fn toml(file: &Path) -> Result<(Sources, FileId), Failure> {
    let text = match load::read(file) {
        Ok(Content::Text(text)) => text,
        Ok(Content::Not(load::Trouble::NotText(_))) => {
            return Err(Failure::bad_input(format!("`{}` is not UTF-8 text", shown(file)))
                .help("save it as UTF-8"));
        }
        Ok(Content::Not(load::Trouble::TooLarge(_))) => {
            return Err(Failure::bad_input(format!("`{}` is too large for a recipe", shown(file)))
                .help("a recipe is a page of text: name another file"));
        }
        Err(error) => return Err(files::missing(file, &error)),
    };
    let mut sources = Sources::new();
    let id = sources.add(load::name(file), text);
    Ok((sources, id))
}

/// Shows diagnostics; errors among them end the command.
fn judge(sources: &Sources, found: &[Diagnostic]) -> Result<(), Failure> {
    output::diagnostics(sources, found);
    let bad = found.iter().any(Diagnostic::is_error);
    if bad { Err(Failure::shown(Exit::BadInput)) } else { Ok(()) }
}

/// The experiments of a recipe, in order, and their archs' number; with another arch than its own if one is named.
fn experiments(
    sources: &Sources,
    id: FileId,
    arch: Option<&ArchRef>,
) -> Result<(Vec<Lock>, usize), Failure> {
    let (read, found) = recipe::read(sources, id);
    judge(sources, &found)?;
    let Some(mut read) = read else { return Err(Failure::shown(Exit::BadInput)) };
    if let Some(arch) = arch {
        read.use_arch(arch);
    }
    let mut archs: BTreeMap<ArchRef, Rc<LockedArch>> = BTreeMap::new();
    let mut failed = false;
    for (named, span) in &read.archs {
        match locked_arch(named) {
            Ok(arch) => {
                archs.insert(named.clone(), arch);
            }
            Err(failure) => {
                failed = true;
                match &failure.message {
                    Some(message) => {
                        let mut d = Diagnostic::error("bad-arch", *span, message.clone());
                        d.help = failure.help;
                        output::diagnostics(sources, &[d]);
                    }
                    None => output::failure(&failure),
                }
            }
        }
    }
    if failed {
        return Err(Failure::shown(Exit::BadInput));
    }
    let source = sources.name(id);
    let stem = stem(Path::new(source))?;
    let (made, found) = read.experiments(&stem, source, &|named| archs.get(named).cloned());
    judge(sources, &found)?;
    Ok((made.into_iter().map(Lock::Experiment).collect(), archs.len()))
}

/// The arch that a recipe names, compiled from its file.
fn locked_arch(named: &ArchRef) -> Result<Rc<LockedArch>, Failure> {
    let path = Path::new(&named.path);
    let Archs { name: _, found } = load::archs(path, named.name.as_deref())?;
    match found.as_slice() {
        [one] => {
            let locked = LockedArch::new(&one.compiled).map(Rc::new);
            locked.map_err(|error| locks::refused(path, error))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|arch| arch.compiled.name.as_str()).collect();
            let first = names.first().copied().unwrap_or("NAME");
            Err(Failure::bad_input(format!(
                "`{}` defines {} archs: {}",
                named.path,
                names.len(),
                names.join(", ")
            ))
            .help(format!("say which: `arch = \"…/{}#{first}\"`", shown(path))))
        }
    }
}

fn comparison(sources: &Sources, id: FileId) -> Result<Vec<Lock>, Failure> {
    let (read, found) = recipe::comparison::read(sources, id);
    judge(sources, &found)?;
    let Some(read) = read else { return Err(Failure::shown(Exit::BadInput)) };
    let mut arms = Vec::new();
    for ArmFile { name, recipe: path, arch } in &read.arms {
        let at = read.place(&format!("arms.{name}"));
        let bad = |message: String, help: &str| {
            let d = Diagnostic::error("bad-arm", at, message).help(help);
            output::diagnostics(sources, &[d]);
            Failure::shown(Exit::BadInput)
        };
        let file = Path::new(path);
        if !file.is_file() {
            let help = "arms are recipes, their paths relative to this file";
            return Err(bad(format!("arm `{name}`: there is no `{path}`"), help));
        }
        let (own, own_id) = toml(file)?;
        let (mut experiments, _) = experiments(&own, own_id, arch.as_ref())?;
        match (experiments.pop(), experiments.is_empty()) {
            (Some(Lock::Experiment(experiment)), true) => arms.push((name.clone(), experiment)),
            (Some(_) | None, true | false) => {
                let help = "an arm is one experiment: move its [sweep] to the comparison's [grid]";
                return Err(bad(format!("arm `{name}`: `{path}` makes several locks"), help));
            }
        }
    }
    let source = sources.name(id);
    let stem = stem(Path::new(source))?;
    match read.comparison(&stem, source, arms) {
        Ok(comparison) => Ok(vec![Lock::Comparison(comparison)]),
        Err(why) => {
            if let NoComparison::Confounded(_, verdict) = &why {
                output::data(&compare::text(verdict, false))?;
            }
            output::diagnostics(sources, &read.explain(&why));
            let confounded = matches!(why, NoComparison::Confounded(..));
            Err(Failure::shown(if confounded { Exit::Finding } else { Exit::BadInput }))
        }
    }
}

/// What is to stand at a path: the lock, bound as the one there is, and what stands there now.
pub(crate) fn settled(path: &Path, lock: Lock) -> Result<(Lock, Option<String>), Failure> {
    let Some(before) = locks::standing(path)? else { return Ok((lock, None)) };
    match lock::source_of(&before) {
        None => Err(Failure::bad_input(format!("`{}` is no lock of canonc", shown(path)))
            .help("move it away, or give the locks another folder with --out")),
        Some(source) if source != lock.source() => Err(Failure::bad_input(format!(
            "`{}` was made from `{source}`, not from `{}`",
            shown(path),
            lock.source()
        ))
        .help(format!("delete it if `{source}` is gone, rename one of the two, or use --out"))),
        Some(_) => {
            let standing = lock::read(&shown(path), &before);
            if let Err(error) = &standing
                && error.code == "lock-version"
            {
                let failure = locks::refused(path, error.clone());
                return Err(failure.help("or delete it, and build it as this canonc does"));
            }
            // A lock that cannot be read has no binding worth keeping.
            let bound =
                standing.and_then(|standing| lock::keep_binding(&lock, &standing)).unwrap_or(None);
            Ok((bound.unwrap_or(lock), Some(before)))
        }
    }
}

fn write(path: &Path, lock: Lock) -> Outcome {
    let (lock, before) = settled(path, lock)?;
    let text = lock::write(&lock);
    let name = shown(path);
    if before.as_deref() == Some(text.as_str()) {
        output::note(&format!("{name}: up to date"));
    } else {
        locks::write(path, &text)?;
        output::note(&format!("{name}: wrote {} {}", lock.kind(), lock.id().short()));
    }
    describe(path, &lock);
    Ok(Exit::Fine)
}

/// What a person should know of a lock beyond its name.
fn describe(path: &Path, lock: &Lock) {
    match lock {
        Lock::Arch(_) | Lock::Experiment(_) => {}
        Lock::Comparison(comparison) => {
            for (arm, verdict) in &comparison.verdicts {
                output::note(&format!(
                    "  {arm} against {}: {}",
                    comparison.base,
                    comparison.headline(arm)
                ));
                for differing in &verdict.platform {
                    output::note(&format!("    platform: {}", change(differing)));
                }
            }
            output::note(&format!("  {}", output::count(comparison.runs().len(), "run")));
        }
    }
    for input in lock.open_inputs() {
        output::note(&format!(
            "  open: {input} has no digest; close it with `canonc bind {} --data PATH`",
            shown(path)
        ));
    }
}

/// A difference in a line: its path, both values, and what there is to add.
pub(crate) fn change(change: &compare::Change) -> String {
    let compare::Change { path, a, b, defaults: _, places: _, note } = change;
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let text = format!("{path} {} → {} {note}", side(a), side(b));
    text.trim_end().to_owned()
}
