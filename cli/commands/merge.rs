//! `canonc merge`: git's merge driver for locks.
//!
//! A lock is written only if both commits are known and the sources merge without a conflict. The repository is not
//! changed.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use dsl::quote::sh;
use lab::lock;
use tempfile::TempDir;

use crate::fail::{Exit, Failure, Outcome, reason, shown};
use crate::out::{self, OutputKind};
use crate::output;

/// Merge a lock for git: merge what it is made from, and build it again
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  git config merge.canonc.driver 'canonc merge %O %A %B %P'
  git config merge.canonc.recursive binary
  echo 'lockfiles/*.lock merge=canonc -text' >> .gitattributes

git then runs this command for each lock that both branches changed. It merges both commits in a temporary folder,
builds the lock there and writes it over OURS. If the files that locks are made from have conflicts, or if it cannot
tell which commits are merged (a rebase, a cherry-pick), it exits 1 and leaves a conflict: a text that cannot be read as a lock,
with the command that builds it once the conflicts are resolved. It needs git 2.38.

Exit codes: 0 merged, 1 a conflict, 2 a file cannot be read.")]
pub struct MergeArgs {
    /// The lock of the common ancestor (%O)
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// Our lock, which the merged one replaces (%A)
    #[arg(value_name = "OURS")]
    pub ours: PathBuf,
    /// Their lock (%B)
    #[arg(value_name = "THEIRS")]
    pub theirs: PathBuf,
    /// The name of the lock in the repository (%P)
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
}

/// Set for the merge that this driver makes itself: its locks are conflicts, and not used.
const INSIDE: &str = "CANONC_MERGING";

/// git sets one such variable for each commit that `git merge` merges into HEAD.
const HEADS: &str = "GITHEAD_";

/// Endings of files that locks are made from.
const SOURCES: [&str; 2] = ["canon", "toml"];

/// In a lock that is also made from suites, their questions and a tokenizer.
const SUITES: &str = "evaluation.suites = ";

/// Why a lock is left as a conflict, and what to do about it.
struct Conflict {
    why: String,
    first: String,
}

pub fn merge(args: &MergeArgs) -> Outcome {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(Exit::Finding);
    }
    let read = |path: &Path| {
        disk::read_text(path, disk::SMALL).map_err(|error| Failure::cannot_read(path, &error))
    };
    let [base, ours, theirs] = [read(&args.base)?, read(&args.ours)?, read(&args.theirs)?];
    let name = shown(&args.path);
    let Some(source) = lock::source_of(&ours) else {
        return Err(Failure::bad_input(format!("our version of `{name}` is not a lock of canonc"))
            .help("see that .gitattributes names locks of canonc alone: lockfiles/*.lock merge=canonc"));
    };
    match merged(&args.path, &source, [&base, &ours, &theirs]) {
        Ok(Merged { text, stale }) => {
            out::put(&args.ours, OutputKind::Lock, &text)?;
            output::note(&format!("{name}: built again from the merged `{source}`"));
            if !stale.is_empty() {
                output::note(&format!(
                    "{}: stale after this merge, and git does not merge them; `{}` builds them again",
                    stale.join(", "),
                    build_again(&args.path, &source)
                ));
            }
            Ok(Exit::Fine)
        }
        Err(Conflict { why, first }) => {
            let build = build_again(&args.path, &source);
            let text = conflict(&ours, &why, &format!("{first}{build}"));
            out::put(&args.ours, OutputKind::Lock, &text)?;
            let failure = Failure::finding(format!("`{name}` is not merged: {why}"));
            Err(failure.help(format!("{first}`{build}`")))
        }
    }
}

/// The commands that build a lock of the repository again, typed at its root.
fn build_again(path: &Path, source: &str) -> String {
    let Some((folder, inside)) = project(Path::new("."), path, source) else {
        return format!("canonc build {} && git add {}", sh(source), sh(&shown(path)));
    };
    let mut words = Vec::new();
    if folder != Path::new("") {
        words.push(format!("cd {} &&", sh(&shown(&folder))));
    }
    words.push(format!("canonc build {}", sh(source)));
    match inside.parent().map(shown).as_deref() {
        Some("lockfiles") | None => {}
        Some(out) => words.push(format!("--out {}", sh(if out.is_empty() { "." } else { out }))),
    }
    words.push(format!("&& git add {}", sh(&shown(&inside))));
    words.join(" ")
}

/// A text that every command refuses, and that `canonc build` replaces.
fn conflict(ours: &str, why: &str, next: &str) -> String {
    let head: String = ours.lines().take(5).map(|line| format!("{line}\n")).collect();
    let one_line = |text: &str| text.replace(['\n', '\r'], " ");
    format!("{head}\n<<<<<<< not a lock: {}\n>>>>>>> next: {}\n", one_line(why), one_line(next))
}

/// What the merged sources make.
struct Merged {
    /// The lock.
    text: String,
    /// Other locks of the same source that git takes from one branch as they are.
    stale: Vec<String>,
}

/// The lock of the merged sources.
fn merged(path: &Path, source: &str, [base, ours, theirs]: [&str; 3]) -> Result<Merged, Conflict> {
    let after = |why: String| Conflict { why, first: "after the merge, ".to_owned() };
    if lock::source_of(theirs).as_deref() != Some(source) {
        return Err(after("the branches made it from different files".to_owned()));
    }
    let other = their_commit().ok_or_else(|| {
        after("only `git merge` of one branch says which commits are merged".to_owned())
    })?;
    for (commit, text) in [("HEAD", ours), (other.as_str(), theirs)] {
        let at = format!("{commit}:{}", path.display());
        if git(&["cat-file", "blob", &at], None).map_err(after)? != text.as_bytes() {
            return Err(after(format!("{at} is another text than the one to merge")));
        }
    }
    let asks = [base, ours, theirs].iter().any(|lock| lock.contains(SUITES));
    let build = |root: &Path, inside: &Path, before: &str| {
        let why = |why: String| match asks {
            true => format!("{why} (for a lock with suites, only committed files are there)"),
            false => why,
        };
        build(root, inside, source, before).map_err(why).map_err(after)
    };
    // Else the sources were found in another folder than that of the build, or outside of the repository.
    for (commit, text) in [("HEAD", ours), (other.as_str(), theirs)] {
        let place = checked_out(&format!("{commit}^{{tree}}"), asks).map_err(after)?;
        let made = match project(&tree_of(&place), path, source) {
            Some((folder, inside)) => Some(build(&tree_of(&place).join(folder), &inside, text)?),
            None => None,
        };
        if made.as_deref() != Some(text) {
            let at = path.display();
            return Err(after(format!("{commit}:{at} is not what `{source}` makes there")));
        }
    }
    let words =
        ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", "HEAD", &other];
    let out = git(&words, None).map_err(after)?;
    let fields: Vec<String> = out
        .split(|byte| *byte == 0)
        .map(|field| String::from_utf8_lossy(field).into_owned())
        .filter(|field| !field.is_empty())
        .collect();
    let Some((tree, conflicts)) = fields.split_first() else {
        return Err(after("git merge-tree printed nothing".to_owned()));
    };
    let decides = |file: &&String| is_source(file) || asks && !file.ends_with(".lock");
    if let Some(file) = conflicts.iter().find(decides) {
        let first = format!("resolve {file}, then ");
        return Err(Conflict { why: format!("{file} has conflicts"), first });
    }
    let place = checked_out(tree, asks).map_err(after)?;
    let Some((folder, inside)) = project(&tree_of(&place), path, source) else {
        return Err(after(format!("the merged branches have no {source}")));
    };
    let root = tree_of(&place).join(folder);
    let built = |before: &str| build(&root, &inside, before);
    let (base, ours, theirs) = (built(base)?, built(ours)?, built(theirs)?);
    // The versions can differ in one more thing, the data that `canonc bind` bound: merged like a line of a text.
    let text = match (ours == theirs || theirs == base, ours == base) {
        (true, _) => ours,
        (false, true) => theirs,
        (false, false) => return Err(after("the branches bound it to different data".to_owned())),
    };
    let stale = stale(tree, conflicts, path, &root.join(inside));
    Ok(Merged { text, stale })
}

/// The other locks in the folder of `path` that building the source wrote (`built` is this lock), and that the merged tree
/// has in another form without a conflict.
fn stale(tree: &str, conflicts: &[String], path: &Path, built: &Path) -> Vec<String> {
    let entries = built.parent().and_then(|folder| fs::read_dir(folder).ok());
    let others = entries.into_iter().flatten().flatten().filter(|entry| entry.path() != built);
    let mut found: Vec<String> = others
        .filter_map(|entry| {
            let name = shown(&path.with_file_name(entry.file_name()));
            let built = disk::read(&entry.path(), disk::SMALL).ok()?;
            let kept = git(&["cat-file", "blob", &format!("{tree}:{name}")], None).ok()?;
            (name.ends_with(".lock") && !conflicts.contains(&name) && kept != built).then_some(name)
        })
        .collect();
    found.sort();
    found
}

/// The one commit that is merged into HEAD.
fn their_commit() -> Option<String> {
    let heads = std::env::vars_os().filter_map(|(name, _)| {
        let id = name.to_str()?.strip_prefix(HEADS)?.to_owned();
        id.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(id)
    });
    let head = git(&["rev-parse", "HEAD"], None).ok()?;
    let head = String::from_utf8_lossy(&head).trim().to_owned();
    let mut others = heads.filter(|id| *id != head);
    let one = others.next()?;
    others.next().is_none().then_some(one)
}

fn is_source(file: &str) -> bool {
    let ending = Path::new(file).extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| SOURCES.contains(&ending))
}

/// A temporary folder with the sources and the locks of a tree, or with `all` files: a suite's questions have any name.
fn checked_out(tree: &str, all: bool) -> Result<TempDir, String> {
    let place =
        TempDir::new().map_err(|error| format!("no temporary folder: {}", reason(&error)))?;
    let index = place.path().join("index");
    git(&["read-tree", tree], Some((&index, &[])))?;
    let listed = git(&["ls-tree", "-r", "-z", "--name-only", tree], None)?;
    let files: Vec<u8> = listed
        .split_inclusive(|byte| *byte == 0)
        .filter(|name| {
            let name = String::from_utf8_lossy(name);
            let name = name.trim_end_matches('\0');
            all || is_source(name) || name.ends_with(".lock")
        })
        .flatten()
        .copied()
        .collect();
    let mut prefix = OsString::from("--prefix=");
    prefix.push(tree_of(&place));
    prefix.push("/");
    let prefix = prefix.to_string_lossy();
    git(&["checkout-index", "-z", "--stdin", &prefix], Some((&index, &files)))?;
    Ok(place)
}

/// Where the files of a tree were checked out.
fn tree_of(place: &TempDir) -> PathBuf {
    place.path().join("tree")
}

/// The folder of a tree in which the lock was built, and the lock's name in it: the nearest folder above the lock in which
/// its source exists.
fn project(tree: &Path, path: &Path, source: &str) -> Option<(PathBuf, PathBuf)> {
    let mut above = path.ancestors().skip(1);
    let folder = above.find(|folder| tree.join(folder).join(source).is_file())?;
    Some((folder.to_owned(), path.strip_prefix(folder).ok()?.to_owned()))
}

/// The lock that `canonc build` writes over another one.
fn build(root: &Path, lock: &Path, source: &str, before: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("it cannot be built: {}", reason(&error));
    let folder = lock.parent().unwrap_or(Path::new(""));
    let path = root.join(lock);
    disk::create_folders(&root.join(folder)).map_err(failed)?;
    // An empty base: both branches added the lock.
    if before.is_empty() {
        let _ = fs::remove_file(&path);
    } else {
        fs::write(&path, before).map_err(failed)?;
    }
    let program = std::env::current_exe().map_err(failed)?;
    let folder = if folder == Path::new("") { Path::new(".") } else { folder };
    let output = Command::new(program)
        .args(["--quiet", "build", source, "--out"])
        .arg(folder)
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => {}
        Some(1) => return Err(format!("the merged {source} compares confounded arms: {said}")),
        Some(_) | None => return Err(format!("the merged {source} cannot be built: {said}")),
    }
    disk::read_text(&path, disk::SMALL)
        .map_err(|_| format!("the merged {source} no longer makes {}", shown(lock)))
}

/// Standard output of git; with another index, and words on standard input.
fn git(words: &[&str], index: Option<(&Path, &[u8])>) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("git cannot be started: {}", reason(&error));
    let mut command = Command::new("git");
    command.args(words).env(INSIDE, "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(Stdio::piped());
    if let Some((index, _)) = index {
        command.env("GIT_INDEX_FILE", index);
    }
    let mut child = command.spawn().map_err(failed)?;
    let input = index.map_or(&[][..], |(_, input)| input);
    if let Some(mut pipe) = child.stdin.take() {
        // A git that ended early says why on standard error.
        let _ = pipe.write_all(input);
    }
    let output = child.wait_with_output().map_err(failed)?;
    let command = words.first().copied().unwrap_or_default();
    // 1 of merge-tree: there are conflicts, and it has listed them.
    match output.status.code() {
        Some(0) => Ok(output.stdout),
        Some(1) if command == "merge-tree" => Ok(output.stdout),
        Some(_) | None => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format!("`git {command}` failed: {said}"))
        }
    }
}
