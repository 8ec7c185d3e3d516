//! Documents mention only names, commands and targets of make that exist.

use std::collections::BTreeSet;

use support::programs::read;

use super::documents::{code, documents, has_extensions, lines, quoted, text_of};
use super::tidy::all;

/// Names of other programs, and of a reader's own, that nothing here uses.
const FOREIGN: [(&str, &str); 6] = [
    ("manylinux_2_34", "the tag of a wheel, which auditwheel computes"),
    ("logits_cache", "an option of lm-evaluation-harness"),
    ("lg_tcache_max", "an option of jemalloc"),
    ("INSTA_UPDATE", "a variable of insta"),
    ("DataCollatorForLanguageModeling", "a class of transformers"),
    ("canon_sweep", "an example of an experiment's name"),
];

/// Whether a word can only be a name in code: with an underscore inside, or with a capital after a small letter.
fn is_name(word: &str) -> bool {
    let has_capital_inside = word.starts_with(char::is_uppercase)
        && word
            .as_bytes()
            .windows(2)
            .any(|c| c[0].is_ascii_lowercase() && c[1].is_ascii_uppercase());
    word.contains(char::is_alphabetic)
        && (word.trim_matches('_').contains('_') || has_capital_inside)
}

/// The words of a text that can only be names. `test_scan_*` and `cpu_NAME` stand for several.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| is_name(word) && !word.ends_with('_') && !word.contains("NAME"))
}

/// The names of code and data, and of files. Comments in Rust do not count, since they may name what is gone.
fn known() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for file in all() {
        known.extend(names(&file).map(str::to_owned));
        // These two hold examples of what does not exist.
        let is_test = file.ends_with("lang/documents.rs") || file.ends_with("lang/mentions.rs");
        if file.ends_with(".md") || is_test {
            continue;
        }
        let text = if file.ends_with(".rs") { code(&file) } else { text_of(&file) };
        known.extend(names(&text).map(str::to_owned));
    }
    known
}

/// The names in a document that are not known, as sentences.
fn unknown(document: &str, text: &str, known: &BTreeSet<String>) -> Vec<String> {
    let is_known =
        |name: &str| known.contains(name) || FOREIGN.iter().any(|(word, _)| *word == name);
    let mut sentences = Vec::new();
    for (line, quote) in quoted(text) {
        let missing = names(&quote).filter(|name| !is_known(name));
        sentences
            .extend(missing.map(|name| format!("{document}:{line}: nothing is called `{name}`")));
    }
    sentences
}

#[test]
fn every_name_is_in_the_code_or_the_data() {
    if !has_extensions() {
        return;
    }
    let known = known();
    let unknown_in = |document: &String| unknown(document, &read(document), &known);
    let sentences: Vec<String> = documents().iter().flat_map(unknown_in).collect();
    assert!(sentences.is_empty(), "{}", sentences.join("\n"));
    let text = "`a_step_reads_once` and `Plan`, but `a_step_reads(x)` and\n`PlanOfNothing`";
    let sentences =
        ["a.md:1: nothing is called `a_step_reads`", "a.md:2: nothing is called `PlanOfNothing`"];
    assert_eq!(unknown("a.md", text, &known), sentences);
    for (word, reason) in FOREIGN {
        assert!(!known.contains(word), "{word} ({reason}) exists");
    }
}

/// What may stand before a command in a line.
const BEFORE: [&str; 5] = ["$ ", "&& ", "| ", "; ", "run: "];

/// The words that follow a program's name where a text runs it.
fn arguments<'a>(text: &'a str, program: &str) -> Vec<Vec<&'a str>> {
    let starts = text.match_indices(program).filter(|(at, _)| {
        let before = &text[..*at];
        before.trim().is_empty() || BEFORE.iter().any(|word| before.ends_with(word))
    });
    starts.map(|(at, _)| text[at + program.len()..].split_whitespace().collect()).collect()
}

/// What documents tell a reader to run with this program, with places.
fn calls(document: &str, text: &str, program: &str) -> Vec<(String, Vec<String>)> {
    let blocks = lines(text, true).into_iter().map(|(line, text)| (line, text.to_owned()));
    let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let of_text = |(line, text): (usize, String)| {
        let calls = arguments(&text, program).into_iter().map(owned);
        calls.map(|words| (format!("{document}:{line}"), words)).collect::<Vec<_>>()
    };
    blocks.chain(quoted(text)).flat_map(of_text).collect()
}

/// The names in rows of commands.
fn rows(file: &str) -> Vec<String> {
    let text = read(file);
    let parts: Vec<&str> = text.split('"').collect();
    let strings = parts.windows(2).step_by(2);
    let is_name = |before: &str| before.trim_end().ends_with(">(") || before.ends_with("name: ");
    strings.filter(|pair| is_name(pair[0])).map(|pair| pair[1].to_owned()).collect()
}

/// Texts that begin like a command.
const NO_COMMANDS: [(&str, &str); 1] = [("text", "the first bytes of prepared text")];

/// The calls that run no command, as sentences.
fn without_command(document: &str, text: &str, lists: &[Vec<String>; 2]) -> Vec<String> {
    let is_word = |word: &&String| word.starts_with(|c: char| c.is_ascii_lowercase());
    let mut sentences = Vec::new();
    let programs = ["canonc ", "canonc-torch "];
    for (position, words) in programs.iter().flat_map(|program| calls(document, text, program)) {
        let [commands, parts] = lists;
        let is_foreign = |word: &str| NO_COMMANDS.iter().any(|(text, _)| *text == word);
        let bare = |word: &String| word.trim_end_matches([',', ';', ':', ')']).to_owned();
        let Some(first) = words.first().filter(is_word).map(bare) else { continue };
        if !commands.contains(&first) && !is_foreign(&first) {
            sentences.push(format!("{position}: there is no `canonc {first}`"));
        }
        let second = words.get(1).filter(is_word).map(bare).filter(|_| first == "data");
        if let Some(second) = second.filter(|second| !parts.contains(second)) {
            sentences.push(format!("{position}: there is no `canonc data {second}`"));
        }
    }
    sentences
}

#[test]
fn every_command_exists() {
    if !has_extensions() {
        return;
    }
    let commands = [rows("cli/commands.rs"), rows("ext/commands/src/lib.rs")].concat();
    let lists = [commands, rows("cli/commands/data.rs")];
    assert!(lists[0].len() > 30 && lists[1].len() > 5, "{lists:?}");
    let called = |document: &String| calls(document, &read(document), "canonc ").len();
    let called: usize = documents().iter().map(called).sum();
    assert!(called > 300, "{called} commands");
    let sentences: Vec<String> = documents()
        .iter()
        .flat_map(|document| without_command(document, &read(document), &lists))
        .collect();
    assert!(sentences.is_empty(), "{}", sentences.join("\n"));
    let text =
        "`canonc show std`, `canonc shew`\n```\n$ canonc data made x && canonc nothing\n```\n";
    let sentences =
        ["a.md:3: there is no `canonc data made`", "a.md:3: there is no `canonc nothing`"];
    assert_eq!(without_command("a.md", text, &lists)[..2], sentences);
    assert_eq!(without_command("a.md", text, &lists)[2], "a.md:1: there is no `canonc shew`");
}

#[test]
fn every_target_of_make_exists() {
    let makefile = read("Makefile");
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(_, rest)| !rest.starts_with('='))
        .flat_map(|(names, _)| names.split_whitespace())
        .collect();
    let mut sentences = Vec::new();
    let mut asked = 0;
    for document in documents() {
        for (position, words) in calls(&document, &read(&document), "make ") {
            let is_target = |word: &&String| word.starts_with(|c: char| c.is_ascii_lowercase());
            let Some(target) = words.first().filter(is_target) else { continue };
            asked += 1;
            if !targets.contains(target.as_str()) {
                sentences.push(format!("{position}: the Makefile has no target {target}"));
            }
        }
    }
    assert!(asked > 20, "{asked} targets");
    assert!(sentences.is_empty(), "{}", sentences.join("\n"));
}
