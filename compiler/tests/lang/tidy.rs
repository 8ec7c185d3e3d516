//! Rules of the repository: the order of crates and modules, libraries that stay in one module, sizes, places.

use std::path::Path;

use compiler::op;

use support::programs::{files, read, root};

use super::rings::{code_of, crates};

/// What git ignores at the root, and git itself.
const SKIPPED: [&str; 7] = ["target", "third_party", "runs", "demo", "playground", ".gpu", ".git"];

/// Folders that Python and npm make, anywhere.
const MADE: [&str; 2] = ["__pycache__", "node_modules"];

/// All files of the repository, sorted, with paths from its root.
pub(super) fn all() -> Vec<String> {
    fn walk(folder: &Path, files: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().unwrap().is_dir() {
                let is_skipped = folder == root() && SKIPPED.contains(&name.as_ref());
                if !is_skipped && !MADE.contains(&name.as_ref()) {
                    walk(&path, files);
                }
            } else if !(folder == root() && SKIPPED.contains(&name.as_ref())) {
                // In a second working tree `.git` is a file.
                let path = path.strip_prefix(root()).unwrap();
                files.push(path.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    let mut files = Vec::new();
    walk(root(), &mut files);
    files.sort();
    assert!(files.len() > 200, "{} files", files.len());
    files
}

fn code() -> Vec<(String, String)> {
    let names = all().into_iter().filter(|name| name.ends_with(".rs"));
    names.map(|name| (name.clone(), read(&name))).collect()
}

/// Whether a line contains a word, not as part of a longer one.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
        !line[..at].chars().next_back().is_some_and(part_of_name)
            && !line[at + word.len()..].chars().next().is_some_and(part_of_name)
    })
}

/// The small program must not depend on anything that links libtorch.
#[test]
fn only_the_other_program_names_the_runtime() {
    for (name, text) in code().iter().filter(|(name, _)| name.starts_with("cli/")) {
        let named = text.lines().map(code_of).any(|line| line.contains("runtime::"));
        assert!(
            !named || name.starts_with("cli/tensors/") || name == "cli/bin/canonc-torch.rs",
            "{name} names the runtime"
        );
    }
}

#[test]
fn a_library_stays_in_the_module_that_owns_it() {
    for (word, homes) in [
        ("nom", ["dsl/src/lex.rs", "dsl/src/parse"].as_slice()),
        ("petgraph", &["compiler/src/order.rs"]),
        ("codespan_reporting", &["dsl/src/diag"]),
        ("tch", &["runtime/", "ext/models/tests/"]),
        ("torch_sys", &["runtime/"]),
    ] {
        for (name, text) in code() {
            let used = text.lines().map(code_of).any(|line| has_word(line, &format!("{word}::")));
            let allowed = homes.iter().any(|home| name.starts_with(home));
            assert!(!used || allowed || name.ends_with("tidy.rs"), "{name} uses {word}");
        }
    }
    // Only the command line prints.
    for (name, text) in code() {
        let library = crates().iter().any(|folder| name.starts_with(&format!("{folder}/src/")));
        let prints =
            text.lines().map(code_of).any(|l| has_word(l, "println!") || has_word(l, "eprintln!"));
        let tests = text.find("#[cfg(test)]").unwrap_or(text.len());
        let early = text[..tests]
            .lines()
            .map(code_of)
            .any(|l| has_word(l, "println!") || has_word(l, "eprintln!"));
        assert!(!(library && prints && early), "{name} prints");
    }
}

/// Files that open files without `disk`, which refuses pipes and limits the amount read: the system's own files,
/// unfinished work of a run or a preparation, and inputs that may be pipes and are read up to a limit.
const OPENS: [&str; 15] = [
    // This process's own mappings.
    "cli/tensors/doctor.rs",
    // The repository's own files.
    "runtime/src/kernels/cuda/tests/steps.rs",
    "ext/commands/src/audit/read.rs",
    "cli/tokenizer.rs",
    "cli/load.rs",
    "cli/signals.rs",
    "data/src/text/file.rs",
    "data/src/text/prepare/input.rs",
    "data/src/text/prepare/partial.rs",
    "disk/src/lib.rs",
    "disk/src/replace.rs",
    "tools/editors/generate/src/main.rs",
    "records/src/platform.rs",
    "records/src/platform/memory.rs",
    "runtime/src/observe.rs",
];

#[test]
fn files_of_others_are_opened_in_one_place() {
    let opens = ["fs::read(", "fs::read_to_string(", "File::open("];
    for (name, text) in code() {
        let is_source = name.contains("/src/") || name.starts_with("cli/");
        let tests = ["tests/", "cli/tests/", "cli/tensors/tests/"];
        let is_source = is_source && !tests.iter().any(|folder| name.starts_with(folder));
        if !is_source || name.ends_with("tests.rs") || OPENS.contains(&name.as_str()) {
            continue;
        }
        let starts = ["#[cfg(test)]\nmod ", "#[cfg(test)]\npub(crate) mod ", "mod tests {"];
        let tests = starts.iter().filter_map(|start| text.find(start)).min();
        let tests = tests.unwrap_or(text.len());
        for line in text[..tests].lines().map(code_of) {
            let opening = opens.iter().find(|word| line.contains(**word));
            assert!(opening.is_none(), "{name} opens a file: use `files::read`: {line}");
        }
    }
}

#[test]
fn files_have_a_header() {
    for (name, text) in code() {
        assert!(
            text.starts_with("//! "),
            "{name} does not begin with a `//!` line that describes it"
        );
    }
}

#[test]
fn unsafe_stays_in_one_folder() {
    for (name, text) in code() {
        if name.starts_with("runtime/src/kernels/ffi") {
            continue;
        }
        for line in text.lines().map(code_of) {
            let quoted = line.contains('"') && name.ends_with("tidy.rs");
            assert!(quoted || !has_word(line, "unsafe"), "{name}: {line}");
        }
    }
    let forbids = ["dsl", "tasks", "compiler", "lab", "ext/audit"];
    for folder in crates().iter().filter(|folder| forbids.contains(&folder.as_str())) {
        let library = format!("{folder}/src/lib.rs");
        assert!(read(&library).contains("#![forbid(unsafe_code)]"), "{library}");
    }
}

#[test]
fn no_todo_and_no_ignored_test_is_left() {
    let words = ["todo!", "unimplemented!", "#[ignore", "dbg!(", "#[allow(", "#![allow("];
    for (name, text) in code().into_iter().filter(|(name, _)| !name.ends_with("tidy.rs")) {
        for line in text.lines().map(code_of) {
            for word in words {
                assert!(!line.contains(word), "{name}: {word}");
            }
        }
    }
    for name in all() {
        assert!(!name.ends_with(".proptest-regressions"), "{name}: make it a separate case");
    }
}

/// Hosts that anyone can reach. Other hosts, and folders of one machine, do not belong in a clone.
const HOSTS: [&str; 19] = [
    "github.com",
    "crates.io",
    "docs.rs",
    "doc.rust-lang.org",
    "rustup.rs",
    "sh.rustup.rs",
    "pypi.org",
    "files.pythonhosted.org",
    "download.pytorch.org",
    "pytorch.org",
    "arxiv.org",
    "huggingface.co",
    "git-lfs.github.com",
    "www.apache.org",
    "www.w3.org",
    "json-schema.org",
    "platform.openai.com",
    "schemas.microsoft.com",
    "schemas.openxmlformats.org",
];

#[test]
fn nothing_points_at_one_machine() {
    // In halves, so that this file does not contain the text it searches for.
    let folders = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/Use", "rs/"),
        concat!("../sha", "red"),
    ];
    for name in all() {
        // Data from others is unchanged; pictures and tensors are not text.
        let Ok(text) = std::fs::read_to_string(root().join(&name)) else { continue };
        for folder in folders {
            assert!(!text.contains(folder), "{name} names {folder}");
        }
        for scheme in ["https://", "http://"] {
            for (at, _) in text.match_indices(scheme) {
                let host: String = text[at + scheme.len()..]
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || ".-".contains(*c))
                    .collect();
                let is_local = ["", "localhost", "127.0.0.1", "{host}"].contains(&host.as_str());
                assert!(is_local || HOSTS.contains(&host.as_str()), "{name} names the host {host}");
            }
        }
    }
    let lock = read("Cargo.lock");
    for source in lock.lines().filter(|line| line.starts_with("source = ")) {
        assert_eq!(source, "source = \"registry+https://github.com/rust-lang/crates.io-index\"");
    }
}

#[test]
fn every_primitive_has_its_file() {
    let names: Vec<String> =
        op::ALL.iter().map(|p| format!("compiler/src/op/{}.rs", p.name)).collect();
    let files = files("compiler/src/op", ".rs");
    let without = |all: &[String], others: &[String]| {
        all.iter().filter(|name| !others.contains(name)).cloned().collect::<Vec<_>>()
    };
    assert_eq!(
        (without(&files, &names), without(&names, &files)),
        (Vec::new(), Vec::new()),
        "files without a row in ALL of compiler/src/op.rs, and rows without a file"
    );
    assert_eq!(files, names, "ALL in compiler/src/op.rs is sorted by name");
    for primitive in op::ALL {
        let text = read(&format!("compiler/src/op/{}.rs", primitive.name));
        assert!(text.contains("pub(super) static PRIMITIVE: Primitive"), "{}", primitive.name);
        assert!(text.contains(&format!("name: \"{}\"", primitive.name)), "{}", primitive.name);
    }
}

/// Each crate declares its few test binaries; Cargo does not look for others.
#[test]
fn crates_list_their_test_binaries() {
    // The two crates of texts have no tests.
    let crates = crates()
        .into_iter()
        .filter(|folder| !["std", "recipes/published/data"].contains(&folder.as_str()));
    for manifest in crates.map(|folder| format!("{folder}/Cargo.toml")) {
        assert!(read(&manifest).contains("autotests = false"), "{manifest}");
    }
}

/// A library with few unit tests has them in `tests/`, since it would be compiled a second time for them; one left in its
/// sources would never run.
#[test]
fn a_library_that_is_not_tested_has_no_tests() {
    let (files, mut untested) = (code(), 0);
    let support = "tests/support".to_owned();
    for folder in crates().into_iter().chain([support]) {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let lib = manifest.split("[lib]\n").nth(1).unwrap_or_default();
        if !lib.lines().take_while(|line| !line.starts_with('[')).any(|line| line == "test = false")
        {
            continue;
        }
        untested += 1;
        for (name, text) in &files {
            // `cli/tensors` is a crate of its own.
            let is_other = folder == "cli" && name.starts_with("cli/tensors/");
            let is_source = name.starts_with(&format!("{folder}/"))
                && !name.starts_with(&format!("{folder}/tests/"))
                && !is_other;
            let has_test = text.lines().map(code_of).any(|line| line.contains("#[test]"));
            assert!(!(is_source && has_test), "{name} has a test, but {folder} has `test = false`");
        }
    }
    assert!(untested > 3, "{untested}");
}
