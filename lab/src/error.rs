//! Errors for locks that cannot be used, one constructor each, with the command that fixes them. Locks that were
//! edited, truncated, written by another version, or made for primitives that this binary computes differently get
//! different errors, since each needs another fix.

use std::fmt;

use crate::field::{FieldDef, FieldValue, Fields};

/// Why a lock cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockError {
    /// A stable word, `kebab-case`.
    pub code: &'static str,
    /// What is wrong, on one line.
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
    format!("rebuild it: `canonc build {}`", source.unwrap_or("SOURCE"))
}

pub(crate) fn not_a_lock(name: &str) -> LockError {
    error(
        "not-a-lock",
        format!("`{name}` does not begin like a lock"),
        "name a file that `canonc build` wrote, such as lockfiles/llama_1B.lock",
    )
}

pub(crate) fn byte_order_mark(source: Option<&str>) -> LockError {
    let message = "the file begins with a byte order mark (BOM), probably added by an editor";
    at(
        1,
        error(
            "lock-byte-order-mark",
            message,
            format!("{}, or save the file without the mark", rebuild(source)),
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
    version: &str,
    known: u32,
    source: Option<&str>,
) -> LockError {
    let (age, help) = match version.parse::<u32>() {
        Ok(version) if version < known => (
            "an older",
            format!(
                "rebuild it with `canonc build {}`, or read it with the canonc that wrote it",
                source.unwrap_or("SOURCE")
            ),
        ),
        Ok(_) | Err(_) => {
            ("a newer", format!("use the canonc that wrote it, or {}", rebuild(source)))
        }
    };
    let message = format!(
        "this lock was written by {age} canonc: it has version {version}, and this canonc reads version {known}"
    );
    at(line, error("lock-version", message, help))
}

/// The version of this canonc in quotes.
pub(crate) fn version_as_text(line: usize, quoted: &str, known: u32) -> LockError {
    let message = format!("`version` is the text {quoted}, but must be a number");
    at(
        line,
        error("lock-version", message, format!("write `version = {known}`, or restore the file")),
    )
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
            format!("the lock ends here, but {wanted} should follow"),
            rebuild(source),
        ),
    )
}

pub(crate) fn not_toml(line: usize, reason: &str) -> LockError {
    at(
        line,
        error("lock-not-toml", format!("this line does not belong in a lock: {reason}"), REBUILD),
    )
}

pub(crate) fn cut_short(line: usize, source: Option<&str>) -> LockError {
    let message = "the lock ends in the middle of a value: the file was truncated";
    at(line, error("lock-truncated", message, rebuild(source)))
}

pub(crate) fn unknown_fact(line: usize, path: &str, hint: Option<&str>) -> LockError {
    let hint = hint.map_or(String::new(), |hint| format!(" (did you mean `{hint}`?)"));
    at(line, error("lock-unknown-field", format!("a lock has no `{path}`{hint}"), REBUILD))
}

pub(crate) fn missing_fact(path: &str) -> LockError {
    error("lock-missing-field", format!("`{path}` is missing"), REBUILD)
}

pub(crate) fn bad_fact(line: usize, path: &str, reason: &str) -> LockError {
    at(line, error("lock-bad-value", format!("`{path}`: {reason}"), REBUILD))
}

pub(crate) fn bad_kind(line: usize, kind: &str) -> LockError {
    at(
        line,
        error(
            "lock-bad-value",
            format!("`kind`: {kind} is not \"arch\", \"experiment\" or \"comparison\""),
            REBUILD,
        ),
    )
}

pub(crate) fn other_revision(
    what: &str,
    locked: i64,
    ours: Option<i64>,
    source: &str,
) -> LockError {
    let note = match ours {
        Some(ours) => format!("this canonc computes revision {ours}"),
        None => "this canonc does not have it".to_owned(),
    };
    error(
        "lock-revision",
        format!("the lock uses revision {locked} of `{what}`; {note}"),
        format!(
            "use the canonc that wrote it, or build it again with the current revision, under a new id: `canonc build {source}`"
        ),
    )
}

pub(crate) fn broken_arch(name: &str, reason: &str) -> LockError {
    error(
        "lock-broken-arch",
        format!("the arch text of `{name}` does not compile: {reason}"),
        REBUILD,
    )
}

pub(crate) fn not_canonical(name: &str) -> LockError {
    error(
        "lock-not-canonical",
        format!("the arch text of `{name}` is not formatted as `canonc build` writes it"),
        REBUILD,
    )
}

/// A derived fact that differs from the value its own lock gives.
pub(crate) fn differs(line: usize, key: &str, written: &str, derived: &str) -> LockError {
    at(
        line,
        error(
            "lock-edited",
            format!("`{key}` is {written}, but the rest of the lock gives {derived}"),
            REBUILD,
        ),
    )
}

/// A digest that does not match the facts it covers.
pub(crate) fn edited(
    line: usize,
    digest: &str,
    covers: &str,
    written: &str,
    derived: &str,
) -> LockError {
    let message =
        format!("`{digest}` is {written}, but {covers} gives {derived}: one of the two was edited");
    at(line, error("lock-edited", message, REBUILD))
}

/// A line that differs from the expected one.
pub(crate) fn other_line(line: usize, actual: &str, wanted: &str) -> LockError {
    let message = match (actual, wanted) {
        ("", "") => "an empty line does not belong in this lock".to_owned(),
        (actual, "") => format!("`{actual}` does not belong in this lock"),
        ("", wanted) => format!("found an empty line, expected `{wanted}`"),
        (actual, wanted) => format!("found `{actual}`, expected `{wanted}`"),
    };
    at(line, error("lock-edited", message, REBUILD))
}

pub(crate) fn line_ends(line: usize) -> LockError {
    let message = "the lock has Windows line endings, but its digest covers the original ones";
    let help = "add `*.lock text eol=lf` to .gitattributes, and restore the file";
    at(line, error("lock-line-ends", message, help))
}

pub(crate) fn problem(path: &str, message: &str, help: &str) -> LockError {
    error("lock-bad-value", format!("`{path}`: {message}"), format!("{help}; {REBUILD}"))
}

/// The options of `canonc bind` that close these inputs.
pub fn bind_options(inputs: &[String]) -> String {
    let options = [("data.", " --data PATH"), ("init.", " --weights PATH")];
    let needed = |section: &str| inputs.iter().any(|input| input.starts_with(section));
    options.iter().filter(|(section, _)| needed(section)).map(|(_, option)| *option).collect()
}

pub(crate) fn open(name: &str, inputs: &[String]) -> LockError {
    let options = bind_options(inputs);
    let what = if options.contains("--data") { "the data" } else { "the weights" };
    let inputs = inputs.join(", ");
    error(
        "lock-open",
        format!("`{name}` is open: {inputs} has no digest yet"),
        format!("bind it to {what}: `canonc bind lockfiles/{name}.lock{options}`"),
    )
}

pub(crate) fn nothing_to_bind(name: &str, reason: &str) -> LockError {
    error(
        "nothing-to-bind",
        format!("`{name}` has nothing to bind: {reason}"),
        "only locks that name text data or weights need binding; run this one directly",
    )
}

pub(crate) fn bound_otherwise(name: &str, bound: &str, given: &str) -> LockError {
    error(
        "data-drift",
        format!("`{name}` is bound to data {bound}, but the data given is {given}"),
        "give the data it was bound to; or, for a new experiment, delete the lock, build it again and bind it",
    )
}

pub(crate) fn other_weights(name: &str, bound: &str, given: &str) -> LockError {
    error(
        "weights-drift",
        format!("`{name}` is bound to weights {bound}, but the weights given are {given}"),
        "give the weights it was bound to; or, for a new experiment, delete the lock, build it again and bind it",
    )
}

pub(crate) fn tokenized_otherwise(name: &str, has: &str, given: &str) -> LockError {
    error(
        "tokenizer-drift",
        format!("`{name}` expects the tokenizer {has}, but the given data was made with {given}"),
        "prepare the data with the tokenizer that the recipe names (`canonc data prepare --tokenizer …`)",
    )
}

pub(crate) fn other_kind(name: &str, kind: &str, wanted: &str) -> LockError {
    error(
        "lock-kind",
        format!("`{name}` is a lock of kind {kind}, but this needs kind {wanted}"),
        format!("give a lock of kind {wanted}"),
    )
}

/// The first problem of an experiment that should never have been locked.
pub(crate) fn first(problems: Vec<FieldProblem>) -> LockError {
    match problems.first() {
        Some(first) => problem(&first.path, &first.message, &first.help),
        None => inconsistent("an experiment was refused without a reason"),
    }
}

/// A bug in this program rather than an error of its user.
pub(crate) fn inconsistent(what: &str) -> LockError {
    error(
        "internal-inconsistency",
        what.to_owned(),
        "this is a bug in canonc: please report it with the files that show it",
    )
}

/// A problem with a field of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// Path of the field, or the nearest one.
    pub path: String,
    /// A stable word, `kebab-case`.
    pub code: &'static str,
    /// What is wrong, on one line.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl FieldProblem {
    pub(crate) fn new(
        path: &str,
        code: &'static str,
        message: String,
        help: impl Into<String>,
    ) -> FieldProblem {
        FieldProblem { path: path.to_owned(), code, message, help: help.into() }
    }

    pub(crate) fn missing(def: &FieldDef) -> FieldProblem {
        let (section, last) = def.table_and_name();
        let doc = def.doc.trim_end_matches('.');
        FieldProblem::new(
            def.path,
            "missing-field",
            format!("`{}` is not set, and has no default", def.path),
            format!("add `{last} = …` under `[{section}]`: {} ({doc})", def.kind.describe()),
        )
    }

    /// A field that has no effect, given the other fields.
    pub(crate) fn idle(def: &FieldDef, fields: &Fields) -> FieldProblem {
        let (on, words) = def.only.unwrap_or(("", &[]));
        let has = fields.get(on).map_or_else(String::new, FieldValue::to_string);
        let words: Vec<String> = words.iter().map(|w| format!("\"{w}\"")).collect();
        if def.path == "evaluation.suites" && on == "data.task" {
            return FieldProblem::new(
                def.path,
                "suite-needs-text",
                format!("suites ask in text, but with {on} = {has} the tokens are not text"),
                format!("remove suites, or train on text: {on} = {}", words.join(" or ")),
            );
        }
        if words.is_empty() {
            let message = format!("`{}` has no effect without {on}", def.path);
            let help = format!("leave it out, or give {on} too");
            return FieldProblem::new(def.path, "idle-field", message, help);
        }
        FieldProblem::new(
            def.path,
            "idle-field",
            format!("`{}` has no effect when {on} = {has}", def.path),
            format!("leave it out; it belongs to {on} = {}", words.join(" or ")),
        )
    }
}
