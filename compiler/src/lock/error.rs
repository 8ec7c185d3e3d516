//! Reasons to refuse a lock, one constructor each.
//!
//! In: the found and the expected text. Out: an error with the command that fixes it. Must stay true:
//! locks that were edited, truncated, written by another version, or made for primitives that this
//! binary computes differently get different errors, since each needs another fix.

use std::fmt;

/// Why a lock cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockError {
    /// A stable word, `kebab-case`.
    pub code: &'static str,
    pub message: String,
    /// The line of the file with the problem, counted from 1.
    pub line: Option<usize>,
    /// The suggested command or edit.
    pub help: String,
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LockError { code: _, message, line, help } = self;
        match line {
            Some(line) => write!(f, "line {line}: {message}\nhelp: {help}"),
            None => write!(f, "{message}\nhelp: {help}"),
        }
    }
}

impl std::error::Error for LockError {}

const REBUILD: &str =
    "a lock is never edited: change the recipe and `canonc build` it, or restore the file";

fn error(code: &'static str, message: impl Into<String>, help: impl Into<String>) -> LockError {
    LockError { code, message: message.into(), line: None, help: help.into() }
}

fn at(line: usize, error: LockError) -> LockError {
    LockError { line: Some(line), ..error }
}

fn rebuild(source: Option<&str>) -> String {
    format!("write it again: `canonc build {}`", source.unwrap_or("SOURCE"))
}

pub(crate) fn not_a_lock(name: &str) -> LockError {
    error(
        "not-a-lock",
        format!("`{name}` does not begin as a lock does"),
        "name a file that `canonc build` wrote, such as lockfiles/llama_1B.lock",
    )
}

pub(crate) fn byte_order_mark(source: Option<&str>) -> LockError {
    let message = "the file begins with a byte order mark (BOM), which an editor has put there";
    at(
        1,
        error(
            "lock-byte-order-mark",
            message,
            format!("{}, or save it without the mark", rebuild(source)),
        ),
    )
}

pub(crate) fn too_large(bytes: usize, limit: usize) -> LockError {
    error(
        "lock-too-large",
        format!("the file has {}", dsl::over(bytes as u64, limit as u64)),
        "name a file that `canonc build` wrote",
    )
}

pub(crate) fn not_text() -> LockError {
    error("lock-not-text", "the file is not UTF-8 text", REBUILD)
}

pub(crate) fn other_version(
    line: usize,
    found: &str,
    known: u32,
    source: Option<&str>,
) -> LockError {
    let (age, help) = match found.parse::<u32>() {
        Ok(found) if found < known => (
            "an older",
            format!(
                "`canonc build {}` writes it anew; the canonc that wrote it still reads it",
                source.unwrap_or("SOURCE")
            ),
        ),
        Ok(_) | Err(_) => {
            ("a newer", format!("use the canonc that wrote it, or {}", rebuild(source)))
        }
    };
    let message = format!(
        "this lock was written by {age} canonc: it is of version {found}, and this one reads version {known}"
    );
    at(line, error("lock-version", message, help))
}

pub(crate) fn truncated(line: usize, wanted: &str, source: Option<&str>) -> LockError {
    let wanted = match wanted {
        "" => "the end of the line".to_owned(),
        wanted => format!("`{wanted}`"),
    };
    at(
        line,
        error(
            "lock-truncated",
            format!("the lock ends here, where {wanted} should follow"),
            rebuild(source),
        ),
    )
}

pub(crate) fn not_toml(line: usize, why: &str) -> LockError {
    at(line, error("lock-not-toml", format!("this is no line of a lock: {why}"), REBUILD))
}

pub(crate) fn cut_short(line: usize, source: Option<&str>) -> LockError {
    let message = "the lock ends in the middle of a value: the file was cut short";
    at(line, error("lock-truncated", message, rebuild(source)))
}

pub(crate) fn unknown_fact(line: usize, path: &str, near: Option<&str>) -> LockError {
    let near = near.map_or(String::new(), |near| format!(" (there is `{near}`)"));
    at(line, error("lock-unknown-field", format!("a lock has no `{path}`{near}"), REBUILD))
}

pub(crate) fn missing_fact(path: &str) -> LockError {
    error("lock-missing-field", format!("`{path}` is missing"), REBUILD)
}

pub(crate) fn bad_fact(line: usize, path: &str, why: &str) -> LockError {
    at(line, error("lock-bad-value", format!("`{path}`: {why}"), REBUILD))
}

pub(crate) fn bad_kind(line: usize, found: &str) -> LockError {
    at(
        line,
        error(
            "lock-bad-value",
            format!("`kind`: {found} is none of \"arch\", \"experiment\", \"comparison\""),
            REBUILD,
        ),
    )
}

pub(crate) fn other_revision(what: &str, found: i64, here: Option<i64>, source: &str) -> LockError {
    let here = match here {
        Some(here) => format!("this canonc computes revision {here}"),
        None => "this canonc has none".to_owned(),
    };
    error(
        "lock-revision",
        format!("the lock uses `{what}` of revision {found}; {here}"),
        format!(
            "use the canonc that wrote it, or lock the newer meaning under a new id: `canonc build {source}`"
        ),
    )
}

pub(crate) fn broken_arch(name: &str, why: &str) -> LockError {
    error("lock-broken-arch", format!("the arch text of `{name}` does not compile: {why}"), REBUILD)
}

pub(crate) fn not_canonical(name: &str) -> LockError {
    error(
        "lock-not-canonical",
        format!("the arch text of `{name}` is not as `canonc build` writes it"),
        REBUILD,
    )
}

/// A derived fact that differs from the value its own lock gives.
pub(crate) fn differs(line: usize, key: &str, found: &str, derived: &str) -> LockError {
    at(
        line,
        error(
            "lock-edited",
            format!("`{key}` stands as {found}, but the rest of the lock gives {derived}"),
            REBUILD,
        ),
    )
}

/// A digest that does not match the facts it covers.
pub(crate) fn edited(
    line: usize,
    digest: &str,
    covers: &str,
    found: &str,
    derived: &str,
) -> LockError {
    let message = format!(
        "`{digest}` stands as {found}, but {covers} gives {derived}: one of the two was edited"
    );
    at(line, error("lock-edited", message, REBUILD))
}

/// A line that differs from the expected one.
pub(crate) fn other_line(line: usize, found: &str, wanted: &str) -> LockError {
    let message = match (found, wanted) {
        ("", "") => "an empty line is no part of this lock".to_owned(),
        (found, "") => format!("`{found}` is no part of this lock"),
        ("", wanted) => format!("an empty line stands where `{wanted}` should"),
        (found, wanted) => format!("`{found}` stands where `{wanted}` should"),
    };
    at(line, error("lock-edited", message, REBUILD))
}

pub(crate) fn line_ends(line: usize) -> LockError {
    let message = "the lock has line ends of Windows, but a lock is hashed with its own";
    let help = "add `*.lock text eol=lf` to .gitattributes, and restore the file";
    at(line, error("lock-line-ends", message, help))
}

pub(crate) fn problem(path: &str, message: &str, help: &str) -> LockError {
    error("lock-bad-value", format!("`{path}`: {message}"), format!("{help}; {REBUILD}"))
}

pub(crate) fn open(name: &str, inputs: &[String]) -> LockError {
    let inputs = inputs.join(", ");
    error(
        "lock-open",
        format!("`{name}` is open: {inputs} has no digest yet"),
        format!("close it with the data: `canonc bind lockfiles/{name}.lock --data PATH`"),
    )
}

pub(crate) fn nothing_to_bind(name: &str, why: &str) -> LockError {
    error(
        "nothing-to-bind",
        format!("`{name}` has nothing to bind: {why}"),
        "only locks of text data are open; run this one as it is",
    )
}

pub(crate) fn bound_otherwise(name: &str, found: &str, given: &str) -> LockError {
    error(
        "data-drift",
        format!("`{name}` is bound to data {found}, but the data given is {given}"),
        "give the data it was bound to; or delete the lock, build it again and bind that: it is another experiment",
    )
}

pub(crate) fn tokenized_otherwise(name: &str, has: &str, given: &str) -> LockError {
    error(
        "tokenizer-drift",
        format!("`{name}` reads tokens of {has}, but the data given has those of {given}"),
        "prepare the data with the tokenizer that the recipe names (`canonc data prepare --tokenizer …`)",
    )
}

pub(crate) fn other_kind(name: &str, found: &str, wanted: &str) -> LockError {
    error(
        "lock-kind",
        format!("`{name}` is a lock of kind {found}; {wanted} is needed here"),
        format!("name a lock of kind {wanted}"),
    )
}

/// The first problem of an experiment that should never have been locked.
pub(crate) fn first(problems: Vec<super::Problem>) -> LockError {
    match problems.first() {
        Some(found) => problem(&found.path, &found.message, &found.help),
        None => inconsistent("an experiment was refused without a reason"),
    }
}

/// A bug in this program rather than an error of its user.
pub(crate) fn inconsistent(what: &str) -> LockError {
    error(
        "internal-inconsistency",
        what.to_owned(),
        "this is a fault of canonc: please report it with the files that show it",
    )
}
