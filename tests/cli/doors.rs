//! A newcomer's input: files of other systems, folders of several runs, sizes, names.
//!
//! In: small files. Out: the command line's text. Must stay true: every input that is dropped is reported, and
//! an error gives the next command to type.

use std::fs;
use std::path::Path;

use crate::{Ran, canonc, folder, root};

fn ran(dir: &Path, line: &str) -> Ran {
    canonc(dir, &line.split_whitespace().collect::<Vec<_>>())
}

/// Number of tokens of the bytes tokenizer, from the source's line.
fn tokens(ran: &Ran) -> String {
    let line = ran.stderr.lines().find(|line| line.starts_with("source ")).unwrap_or_default();
    line.split(": ").nth(1).unwrap_or_default().to_owned()
}

#[test]
fn marks_and_line_ends_of_other_systems() {
    let dir = folder(&[
        ("plain.txt", "\u{feff}ab\ncd\n"),
        ("mac.txt", "\u{feff}ab\rcd\r"),
        ("windows.txt", "ab\r\ncd\r\n"),
        ("lines.jsonl", "\u{feff}{\"text\": \"abcd\"}\n"),
        ("unnamed", "\u{feff}{\"text\": \"abcd\"}\n"),
    ]);
    for (line, want) in [
        ("plain.txt --lines", "2 documents, 4 tokens"),
        ("mac.txt --lines", "2 documents, 4 tokens"),
        ("windows.txt --lines", "2 documents, 4 tokens"),
        ("plain.txt", "1 document, 6 tokens"),
        ("lines.jsonl", "1 document, 4 tokens"),
        ("unnamed", "1 document, 4 tokens"),
    ] {
        let ran = ran(dir.path(), &format!("data prepare {line} --out out/{}.index", line.len()));
        assert_eq!((ran.code, tokens(&ran).as_str()), (0, want), "{line}: {}", ran.stderr);
        fs::remove_dir_all(dir.path().join("out")).unwrap();
    }
}

#[test]
fn hidden_files_are_left_out_and_counted() {
    let dir = folder(&[
        ("texts/a.txt", "ab"),
        ("texts/._a.txt", "resource fork"),
        ("texts/.DS_Store", "x"),
        ("texts/.git/config.txt", "x"),
        ("texts/notes.md", "x"),
    ]);
    let ran = ran(dir.path(), "data prepare texts --out t.index");
    assert_eq!((ran.code, tokens(&ran).as_str()), (0, "1 document, 2 tokens"), "{}", ran.stderr);
    assert!(ran.stderr.contains("left aside: texts/notes.md"), "{}", ran.stderr);
    assert!(ran.stderr.contains("left out: 3 hidden files"), "{}", ran.stderr);
}

/// Byte-pair encoding over `a` and `b`, as a `tokenizer.json`.
fn two_letters(model: &str) -> String {
    format!(
        "{{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null, \
         \"pre_tokenizer\": {{\"type\": \"Whitespace\"}}, \"post_processor\": null, \"decoder\": null, \
         \"model\": {{\"type\": \"BPE\", \"dropout\": null, {model} \"fuse_unk\": false, \
         \"vocab\": {{\"a\": 0, \"b\": 1, \"<unk>\": 2}}, \"merges\": []}}}}"
    )
}

#[test]
fn what_a_tokenizer_loses_is_said() {
    let drops = two_letters("\"unk_token\": null,");
    let unknown = two_letters("\"unk_token\": \"<unk>\",");
    let dir = folder(&[
        ("drops.json", drops.as_str()),
        ("unknown.json", unknown.as_str()),
        ("some.txt", "ab ba xa"),
        ("none.txt", "xyz"),
        ("all.txt", "ab ba"),
    ]);
    let prepare = |tokenizer: &str, text: &str| {
        let _ = fs::remove_file(dir.path().join("o.index"));
        let line = format!(
            "data prepare {text}.txt --out o.index --tokenizer huggingface --tokenizer-file {tokenizer}.json"
        );
        ran(dir.path(), &line)
    };
    let ran = prepare("drops", "some");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let said = "warning: the tokenizer has no token for 1 of 6 characters (16.67%), and drops them";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let ran = prepare("unknown", "some");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: 1 of 6 tokens (16.67%)"), "{}", ran.stderr);
    for tokenizer in ["drops", "unknown"] {
        let ran = prepare(tokenizer, "none");
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("nothing of the documents is left"), "{}", ran.stderr);
        assert!(
            !dir.path().join("o.index").exists() && !dir.path().join("o.index.partial").exists()
        );
        let ran = prepare(tokenizer, "all");
        assert!(ran.code == 0 && !ran.stderr.contains("warning"), "{}", ran.stderr);
    }
}

#[test]
fn a_folder_of_several_runs_lists_them() {
    let lock = fs::read_to_string(root().join("lockfiles/llama_tiny.lock"));
    let lock = lock
        .unwrap_or_else(|_| fs::read_to_string(root().join("lockfiles/llama_1B.lock")).unwrap());
    let dir = folder(&[("runs/demo/a/lock", lock.as_str()), ("runs/demo/b/lock", lock.as_str())]);
    for command in ["show", "verify", "graph"] {
        let ran = ran(dir.path(), &format!("{command} runs/demo"));
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        let said = "error: `runs/demo` is not a run, but holds 2 runs\n  = help: name one: `runs/demo/a`, `runs/demo/b`";
        assert!(ran.stderr.contains(said), "{command}: {}", ran.stderr);
    }
    let ran = ran(dir.path(), "show demo/a");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn names_that_are_not_there() {
    let dir = folder(&[("lockfiles/known.lock", ""), ("file", "")]);
    for (line, said) in [
        ("verify nosuch", "there is no lock and no run `nosuch`"),
        ("verify nosuch.lock", "there is no lock `nosuch.lock`"),
        ("help data nothing", "`canonc data` has no command `nothing`"),
        ("help data prepar", "did you mean `canonc data prepare`?"),
        ("man file", "`file` is a file, and pages go into a folder"),
    ] {
        let ran = ran(dir.path(), line);
        assert!(ran.code == 2 && ran.stderr.contains(said), "{line}: {} {}", ran.code, ran.stderr);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_table_of_holes_is_refused_by_its_size() {
    let dir = folder(&[]);
    fs::File::create(dir.path().join("t.csv")).unwrap().set_len(1 << 40).unwrap();
    let ran = ran(dir.path(), "audit t.csv");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("`t.csv` has 1 TiB; at most 256 MiB are read"), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn a_link_is_no_folder_to_make() {
    let dir = folder(&[("real/.keep", "")]);
    fs::remove_file(dir.path().join("real/.keep")).unwrap();
    std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
    let lock = root().join("lockfiles/llama_1B.lock");
    let ran =
        canonc(dir.path(), &["export", &lock.to_string_lossy(), "--to", "card", "--out", "link"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("`link` is a link, and a folder is made there"), "{}", ran.stderr);
}
