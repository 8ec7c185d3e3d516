//! Documents name only files and functions that exist.

use support::programs::{files_below, read, root};

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

/// Each row of a walk names a file and what to look at in it.
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
        let texts: Vec<String> = quoted(files).into_iter().map(|(_, path)| read(path)).collect();
        for (_, name) in quoted(names) {
            let name = name.split("::").last().unwrap_or(name);
            let word = name.split([' ', '(', ';']).next().unwrap_or(name);
            let is_there = texts.iter().any(|text| text.contains(word));
            assert!(is_there, "docs/dev/walks.md:{}: {files} has no `{name}`", number + 1);
        }
    }
    assert!(steps > 30, "{steps} steps");
}
