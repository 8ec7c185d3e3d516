//! Documents name only files, types and functions that exist.

use std::collections::BTreeSet;
use std::path::Path;

use support::programs::{files_below, read, root};

use super::rings::code_of;
use super::tidy::{all, has_word};

/// Words in the paths of documents that stand for a name of the reader's.
const PLACEHOLDERS: [&str; 8] = ["NAME", "FAMILY", "READER", "DATE", "DIGEST", "-ID", "*", "…"];

/// Endings of the files that documents name.
const ENDINGS: [&str; 14] = [
    ".rs", ".py", ".md", ".toml", ".canon", ".sh", ".json", ".txt", ".cpp", ".j2", ".tsv", ".yml",
    ".js", ".cu",
];

/// The documents: every Markdown file, but for those of hidden folders.
pub(super) fn documents() -> Vec<String> {
    let is_hidden = |name: &str| name.split('/').any(|part| part.starts_with('.'));
    all().into_iter().filter(|name| name.ends_with(".md") && !is_hidden(name)).collect()
}

/// The lines of a text with their numbers, inside of blocks of code or outside of them.
pub(super) fn lines(text: &str, inside: bool) -> Vec<(usize, &str)> {
    let (mut is_block, mut chosen) = (false, Vec::new());
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
            // A block ends a paragraph.
            chosen.push((number + 1, ""));
        } else if is_block == inside {
            chosen.push((number + 1, line));
        }
    }
    chosen
}

/// Texts between single backticks, each with the number of its line; one may go on in the next line. Blocks of code are
/// left out.
pub(super) fn quoted(text: &str) -> Vec<(usize, String)> {
    let (mut is_open, mut quotes) = (false, Vec::<(usize, String)>::new());
    for (number, line) in lines(text, false) {
        let start = line.trim_start();
        let is_new = start.is_empty() || ["- ", "* ", "|"].iter().any(|c| start.starts_with(c));
        is_open &= !is_new;
        for (at, part) in line.split('`').enumerate() {
            is_open ^= at > 0;
            match quotes.last_mut() {
                Some((_, quote)) if is_open && at == 0 => *quote += &format!(" {part}"),
                _ if is_open => quotes.push((number, part.to_owned())),
                _ => {}
            }
        }
    }
    quotes
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

/// The files and folders of this repository that a word names: paths with a slash and a known ending.
fn paths_of(word: &str) -> Vec<String> {
    let is_path = word.trim_end_matches('/').contains('/')
        && !word.contains([' ', ':', '$'])
        && !word.starts_with(['~', '/'])
        && (word.ends_with('/') || ENDINGS.iter().any(|ending| word.ends_with(ending)))
        && !PLACEHOLDERS.iter().any(|placeholder| word.contains(placeholder));
    let is_here = |path: &String| has_extensions() || !path.starts_with("ext/");
    if is_path { expanded(word).into_iter().filter(is_here).collect() } else { Vec::new() }
}

/// Paths that a document names, with those that are neither at the root nor beside the document as sentences.
fn missing(document: &str, text: &str) -> (usize, Vec<String>) {
    let folder = root().join(document).parent().map(Path::to_owned).unwrap_or_default();
    let (mut named, mut sentences) = (0, Vec::new());
    for (line, quote) in quoted(text) {
        for path in paths_of(&quote) {
            named += 1;
            let is_example = EXAMPLES.contains(&path.as_str());
            if !is_example && !root().join(&path).exists() && !folder.join(&path).exists() {
                sentences.push(format!("{document}:{line}: there is no {path}"));
            }
        }
    }
    for (line, link) in links(text) {
        named += 1;
        if !folder.join(link).exists() {
            sentences.push(format!("{document}:{line}: the link leads nowhere: {link}"));
        }
    }
    (named, sentences)
}

/// The files that links lead to.
fn links(text: &str) -> Vec<(usize, &str)> {
    let of_line = |(number, line)| {
        let targets =
            str::split(line, "](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let files = targets.filter(|target| !target.is_empty() && !target.contains("://"));
        files.map(move |target| (number, target)).collect::<Vec<_>>()
    };
    lines(text, false).into_iter().flat_map(of_line).collect()
}

/// Files of the reader's in examples.
const EXAMPLES: [&str; 7] = [
    "arch/gated.canon",
    "recipes/gated.toml",
    "recipes/r.toml",
    "recipes/s.toml",
    "tasks/piqa.yaml",
    "gla/model.py",
    ".github/workflows/",
];

#[test]
fn every_named_file_exists() {
    let (mut named, mut sentences) = (0, Vec::new());
    for document in documents() {
        let (count, more) = missing(&document, &read(&document));
        named += count;
        sentences.extend(more);
    }
    assert!(named > 400, "{named} paths");
    assert!(sentences.is_empty(), "{}", sentences.join("\n"));
    let text = "see `dsl/src/none.rs`, `interop/none.rs`\nand [this](none.md#part)";
    let sentences = [
        "docs/a.md:1: there is no dsl/src/none.rs",
        "docs/a.md:1: there is no interop/none.rs",
        "docs/a.md:2: the link leads nowhere: none.md",
    ];
    assert_eq!(missing("docs/a.md", text).1, sentences);
    let both = [(1, "a b".to_owned()), (2, "c".to_owned())];
    assert_eq!(quoted("one `a\nb` and `c`\n\n```\n`d`\n```\n"), both);
}

/// Files of other programs that comments name, by the beginnings of their paths, and examples.
const FOREIGN: [(&str, &str); 5] = [
    ("lm_eval/", "lm-evaluation-harness"),
    ("megatron/", "Megatron-LM"),
    ("utils/chat_template_utils.py", "transformers"),
    ("llama-3/", "Axolotl"),
    ("../arch/", "an example of what a recipe says"),
];

/// The text of a file; of one that is not text, nothing.
pub(super) fn text_of(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_default()
}

/// The comment of a line; in Rust, C++ and JavaScript after `//`, elsewhere after `#`.
fn comment<'a>(file: &str, line: &'a str) -> &'a str {
    let is_hash = [".py", ".sh", ".toml", ".yml", "Makefile"].iter().any(|end| file.ends_with(end));
    let (before, rest) = line.split_once(if is_hash { "#" } else { "//" }).unwrap_or_default();
    let is_comment = before.is_empty() || before.ends_with(' ');
    if is_comment { rest } else { "" }
}

/// Whether a path in a comment is that of a file: from a folder above this one or from its `src`, or below its module.
fn exists_near(file: &str, path: &str) -> bool {
    let module = root().join(file).with_extension("");
    let above = module.ancestors().take_while(|folder| folder.starts_with(root()));
    above.flat_map(|folder| [folder.join(path), folder.join("src").join(path)]).any(|p| p.exists())
}

/// The paths in the comments of a file that name nothing, as sentences.
fn missing_in_comments(file: &str, text: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words =
            comment(file, line).split(|c: char| c.is_whitespace() || "`()[]<>\"'#".contains(c));
        for path in
            words.flat_map(|word| paths_of(word.trim_end_matches(['.', ',', ';', ':', '/'])))
        {
            let is_foreign = FOREIGN.iter().any(|(start, _)| path.starts_with(start));
            if !is_foreign && !exists_near(file, &path) {
                sentences.push(format!("{file}:{}: there is no {path}", number + 1));
            }
        }
    }
    sentences
}

#[test]
fn every_file_that_a_comment_names_exists() {
    let endings = [".rs", ".py", ".sh", ".toml", ".yml", ".js", ".cpp", ".h", ".canon", "Makefile"];
    let is_source = |name: &String| endings.iter().any(|ending| name.ends_with(ending));
    // Not this file, whose examples name nothing.
    let files = all().into_iter().filter(|name| is_source(name) && !name.ends_with(file!()));
    let sentences: Vec<String> =
        files.flat_map(|file| missing_in_comments(&file, &text_of(&file))).collect();
    assert!(sentences.is_empty(), "{}", sentences.join("\n"));
    let text = "//! `interop/tests/none.rs` reads it; `run_cli/stock.rs` and `golden/ssh/README.md` exist.\n";
    let sentence = "tests/run_cli.rs:1: there is no interop/tests/none.rs";
    assert_eq!(missing_in_comments("tests/run_cli.rs", text), [sentence]);
    assert_eq!(
        missing_in_comments("a.rs", "let a = \"https://github.com/a.rs\";"),
        [] as [&str; 0]
    );
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
pub(super) fn has_extensions() -> bool {
    root().join("ext").is_dir()
}

/// A path at the beginning of a text, which may go on with arguments or fields.
fn path_of(text: &str) -> &str {
    text.split([' ', '(', ';']).next().unwrap_or(text)
}

/// A file without its comments, which may name anything.
pub(super) fn code(file: &str) -> String {
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
        let paths = quoted(files);
        let paths: Vec<&str> = paths.iter().map(|(_, path)| path.as_str()).collect();
        for (_, name) in quoted(names) {
            let is_there = !homes(&paths, &name).is_empty();
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

/// Whether a name in a walk is that of a file.
fn is_code(path: &str) -> bool {
    [".rs", ".canon", ".j2"].iter().any(|ending| path.ends_with(ending))
}

/// A walk is followed without knowing where the last step was.
#[test]
fn walks_name_files_from_the_root() {
    for (line, path) in quoted(&read("docs/dev/walks.md")) {
        let is_there =
            root().join(&path).is_file() || (path.starts_with("ext/") && !has_extensions());
        assert!(!is_code(&path) || is_there, "docs/dev/walks.md:{line}: there is no {path}");
    }
}

/// The line below the heading of each walk counts its files: in the rows of the table, and beside them in cells and text.
#[test]
fn every_walk_counts_its_files() {
    let text = read("docs/dev/walks.md");
    let mut sentences = Vec::new();
    for walk in text.split("\n## ").skip(1) {
        let files = |text: &str| {
            let names = quoted(text).into_iter().map(|(_, path)| path);
            names
                .filter(|path| is_code(path) && root().join(path).is_file())
                .collect::<BTreeSet<_>>()
        };
        let row = |line: &str| {
            let cells: Vec<&str> = line.split('|').collect();
            let is_row = cells.len() > 3 && cells[1].trim().parse::<u32>().is_ok();
            if is_row { cells[2].to_owned() } else { String::new() }
        };
        let rows: BTreeSet<String> = walk.lines().flat_map(|line| files(&row(line))).collect();
        let count = format!(
            "{} files in the table, {} more beside it",
            rows.len(),
            files(walk).len() - rows.len()
        );
        if !walk.lines().nth(2).is_some_and(|line| line.starts_with(&count)) {
            sentences.push(format!("{}: {count}", walk.lines().next().unwrap_or_default()));
        }
    }
    assert!(
        !has_extensions() || sentences.is_empty(),
        "docs/dev/walks.md:\n{}",
        sentences.join("\n")
    );
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
            let path = path_of(&text);
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
