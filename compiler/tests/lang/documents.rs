//! Documents name only files and functions that exist.

use support::programs::{files_below, read, root};

use super::rings::code_of;
use super::tidy::has_word;

/// Words in the paths of documents that stand for a name of the reader's.
const PLACEHOLDERS: [&str; 5] = ["NAME", "FAMILY", "READER", "*", "…"];

/// Endings of the files that documents name.
const ENDINGS: [&str; 12] =
    [".rs", ".py", ".md", ".toml", ".canon", ".sh", ".json", ".txt", ".cpp", ".j2", ".tsv", ".yml"];

fn documents() -> Vec<String> {
    let docs = files_below("docs").into_iter().filter(|name| name.ends_with(".md"));
    docs.chain(["ARCHITECTURE.md", "README.md"].map(str::to_owned)).collect()
}

/// Texts between single backticks, each with the number of its line. Blocks of code are left out.
fn quoted(text: &str) -> Vec<(usize, &str)> {
    let (mut is_block, mut all) = (false, Vec::new());
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            all.extend(line.split('`').skip(1).step_by(2).map(|part| (number + 1, part)));
        }
    }
    all
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn expanded(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(a, rest)| Some((a, rest.split_once('}')?))) {
        Some((before, (list, after))) => {
            list.split(',').map(|item| format!("{before}{}{after}", item.trim())).collect()
        }
        None => vec![path.to_owned()],
    }
}

/// Paths from the root that a text names, with those that do not exist as sentences.
fn missing(document: &str, text: &str) -> (usize, Vec<String>) {
    let entries = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap());
    let folders: Vec<String> = entries
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| !["target", "runs", "demo"].contains(&name.as_str()))
        .collect();
    let (mut named, mut sentences) = (0, Vec::new());
    for (line, path) in quoted(text) {
        let first = path.split('/').next().unwrap_or_default();
        let is_path = path.contains('/')
            && !path.contains(' ')
            && folders.iter().any(|folder| folder == first)
            && (path.ends_with('/') || ENDINGS.iter().any(|ending| path.ends_with(ending)))
            && !PLACEHOLDERS.iter().any(|word| path.contains(word));
        for path in expanded(path).iter().filter(|_| is_path) {
            named += 1;
            // An example of a user's own file.
            if !root().join(path).exists() && !EXAMPLES.contains(&path.as_str()) {
                sentences.push(format!("{document}:{line}: there is no {path}"));
            }
        }
    }
    (named, sentences)
}

/// Files of the reader's in examples.
const EXAMPLES: [&str; 2] = ["recipes/r.toml", "tasks/piqa.yaml"];

#[test]
fn every_named_file_exists() {
    let (mut named, mut sentences) = (0, Vec::new());
    for document in documents() {
        let (count, more) = missing(&document, &read(&document));
        named += count;
        sentences.extend(more);
    }
    assert!(named > 300, "{named} paths");
    assert!(sentences.is_empty(), "{}", sentences.join("\n"));
    assert_eq!(missing("a.md", "see `dsl/src/none.rs`").1, ["a.md:1: there is no dsl/src/none.rs"]);
}

/// The words before a definition's name.
const KEYWORDS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "static", "const", "mod"];

/// Whether code defines a name: after a keyword, or at the beginning of a line as a type's variant or field.
fn defines(code: &str, name: &str, is_of_type: bool) -> bool {
    let is_type = name.starts_with(char::is_uppercase);
    let ends: &[&str] = if is_type { &["(", ",", " {", " ="] } else { &[": "] };
    code.lines().filter(|line| has_word(line, name)).any(|line| {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let is_after_keyword =
            words.windows(2).any(|pair| KEYWORDS.contains(&pair[0]) && pair[1] == name);
        let line = line.trim_start();
        let public = ["pub ", "pub(crate) ", "pub(super) "];
        let rest = public.iter().find_map(|word| line.strip_prefix(word)).unwrap_or(line);
        let is_member = rest
            .strip_prefix(name)
            .is_some_and(|rest| ends.iter().any(|end| rest.starts_with(end)));
        is_after_keyword || (is_of_type && is_member)
    })
}

/// Whether a file has what a document calls `name`, `module::name` or `Type::name`. A variant that a macro makes is found
/// where it is used.
fn has(file: &str, code: &str, path: &str) -> bool {
    let Some((before, name)) = path.rsplit_once("::") else { return defines(code, path, false) };
    if !code.contains(name) {
        return false;
    }
    let outer = before.rsplit("::").next().unwrap_or(before);
    let is_type = |word: &str| word.starts_with(char::is_uppercase);
    if is_type(outer) {
        let implements =
            || code.lines().any(|line| line.starts_with("impl") && has_word(line, outer));
        let is_used = || is_type(name) && has_word(code, &format!("{outer}::{name}"));
        return is_used()
            || (defines(code, name, true) && (defines(code, outer, false) || implements()));
    }
    file.split(['/', '.']).any(|part| part == outer) && defines(code, name, is_type(name))
}

/// Documents name files of extensions, which a copy of the tree may lack (`tools/without_ext.sh`).
fn has_extensions() -> bool {
    root().join("ext").is_dir()
}

/// A path at the beginning of a text, which may go on with arguments or fields.
fn path_of(text: &str) -> &str {
    text.split([' ', '(', ';']).next().unwrap_or(text)
}

/// A file without its comments, which may name anything.
fn code(file: &str) -> String {
    read(file).lines().map(code_of).collect::<Vec<_>>().join("\n")
}

/// The files of a step that has this in its third column.
fn homes<'a>(files: &[&'a str], name: &str) -> Vec<&'a str> {
    let is_home = |file: &&&str| match file.ends_with(".canon") {
        true => read(file).contains(name.split('(').next().unwrap_or(name)),
        false => has(file, &code(file), path_of(name)),
    };
    files.iter().filter(is_home).copied().collect()
}

/// Each row of a walk names files, and what to look at in them.
#[test]
fn every_step_of_a_walk_is_in_its_file() {
    let text = read("docs/dev/walks.md");
    let mut steps = 0;
    for (number, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, step, files, names, ..] = cells[..] else { continue };
        if step.parse::<u32>().is_err() {
            continue;
        }
        steps += 1;
        if files.contains("`ext/") && !has_extensions() {
            continue;
        }
        let paths: Vec<&str> = quoted(files).into_iter().map(|(_, path)| path).collect();
        for (_, name) in quoted(names) {
            let is_there = !homes(&paths, name).is_empty();
            assert!(is_there, "docs/dev/walks.md:{}: {files} does not define `{name}`", number + 1);
        }
    }
    assert!(steps > 30, "{steps} steps");
    let file = ["compiler/src/kernel/scan.rs"];
    assert_eq!(homes(&file, "Recurrence"), file);
    assert_eq!(homes(&["std/gla.canon"], "mixer gla(x; heads, …)"), ["std/gla.canon"]);
    for name in ["recurrence", "Scan", "PlanBuilder", "Recurrence::step_of", "prelude"] {
        assert!(homes(&file, name).is_empty(), "{name}");
    }
}

/// A walk is followed without knowing where the last step was.
#[test]
fn walks_name_files_from_the_root() {
    for (line, path) in quoted(&read("docs/dev/walks.md")) {
        let is_file = [".rs", ".canon", ".j2"].iter().any(|ending| path.ends_with(ending));
        let is_there =
            root().join(path).is_file() || (path.starts_with("ext/") && !has_extensions());
        assert!(!is_file || is_there, "docs/dev/walks.md:{line}: there is no {path}");
    }
}

/// What documents call `module::name` or `Type::name` is somewhere in the code.
#[test]
fn every_named_path_is_in_the_code() {
    if !has_extensions() {
        return;
    }
    let folders = ["cli", "compiler", "data", "disk", "dsl", "ext", "gpu", "lab", "records"];
    let folders = folders.into_iter().chain(["report", "runtime", "scale", "tasks", "tests"]);
    let files = folders.filter(|folder| root().join(folder).is_dir()).flat_map(files_below);
    // Not this file, which names what the code lacks.
    let files = files.filter(|file| file.ends_with(".rs") && !file.ends_with("lang/documents.rs"));
    let files: Vec<(String, String)> = files.map(|file| (file.clone(), code(&file))).collect();
    let mut paths = 0;
    for document in documents() {
        for (line, text) in quoted(&read(&document)) {
            let path = path_of(text);
            let is_path = path.contains("::")
                && path
                    .split("::")
                    .all(|word| !word.is_empty() && !word.contains(|c: char| !is_part(c)));
            if is_path {
                paths += 1;
                let is_there = files.iter().any(|(file, code)| has(file, code, path));
                assert!(is_there, "{document}:{line}: the code has no `{path}`");
            }
        }
    }
    assert!(paths > 30, "{paths} paths");
    for path in ["State::advance_once", "Scan::Gla", "Rule::Channel", "workspace::lock"] {
        assert!(!files.iter().any(|(file, code)| has(file, code, path)), "{path}");
    }
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
