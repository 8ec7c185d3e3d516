//! `canonc data prepare` and `about`, and `canonc bind` of prepared data: their output; the same file after a
//! kill at any point; documents of another tokenizer are refused.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{canonc, canonc_reading, folder, root, run_line};

fn golden(name: &str) -> String {
    root().join("tests/golden/tokenizers").join(name).to_string_lossy().into_owned()
}

/// Documents as JSON lines: right and wrong ones, numbered chunks, and a tree of folders.
fn documents() -> tempfile::TempDir {
    folder(&[
        ("a.jsonl", "{\"text\": \"hello\"}\n"),
        ("b.jsonl", "\n{\"content\": \"world\"}\n{\"text\": \"again\"}\n"),
        ("bad.jsonl", "{\"text\": \"hello\"}\nhello\n{\"text\": \"\"}\n{\"id\": 3}\n"),
        ("body.jsonl", "{\"text\": 1, \"body\": \"hello\"}\n"),
        ("old.index", "not one\n"),
        ("d=e.jsonl", "{\"text\": \"equals\"}\n"),
        ("empty.jsonl", ""),
        ("shards/README.md", "What these are.\n"),
        ("shards/x.chunk.10.jsonl", "{\"text\": \"third\"}\n"),
        ("shards/x.chunk.2.jsonl", "{\"text\": \"second\"}\n"),
        ("shards/x.chunk.00.jsonl", "{\"text\": \"first\"}\n"),
        ("shards/x.val.jsonl", "{\"text\": \"held out\"}\n"),
        ("tree/b/c.jsonl", "{\"text\": \"one\"}\n"),
        ("tree/a.jsonl", "{\"text\": \"two\"}\n"),
        ("none/README.md", "Nothing here.\n"),
    ])
}

/// The identity of prepared documents.
fn identity(dir: &Path, file: &str) -> Value {
    let about = run_line(dir, &format!("data about {file} --json"));
    serde_json::from_str::<Value>(&about.stdout).unwrap()["identity"].clone()
}

#[test]
fn documents_become_a_prepared_file() {
    let dir = documents();
    let dir = dir.path();
    let mut snapshots: Vec<(String, String)> = Vec::new();
    let mut show = |line: &str| {
        let ran = run_line(dir, line);
        let line = line.replace(&golden(""), "golden/");
        snapshots
            .push((line.to_string(), ran.text(dir).replace(&golden(""), "golden/").to_string()));
        ran.code
    };
    let llama3 = format!("--tokenizer tiktoken --tokenizer-file {}", golden("llama3.model"));
    for line in [
        "data prepare a.jsonl b.jsonl --out c4.index",
        "data prepare a.jsonl b.jsonl --out c4.index --workers 1",
        "data prepare web=a.jsonl books=b.jsonl --out mix.index",
        "data prepare web=a.jsonl books=bad.jsonl web=b.jsonl --out mix.index --malformed skip",
        "data prepare body.jsonl --out body.index --field body",
        "data prepare d=e.jsonl --out equals.index",
        "data prepare shards tree/ --out chunks.index",
        &format!("data prepare web=a.jsonl books=b.jsonl --out t.index {llama3}"),
        "data about t.index --check",
    ] {
        assert_eq!(show(line), 0, "{line}");
    }
    for line in [
        "data prepare bad.jsonl --out bad.index",
        "data prepare empty.jsonl --out empty.index",
        "data prepare a.jsonl none=empty.jsonl --out empty.index",
        "data prepare a.jsn --out c.index",
        "data prepare web=a.jsn --out c.index",
        "data prepare none --out c.index",
        "data prepare a.jsonl ./a.jsonl a.jsonl --out c.index",
        "data prepare tree tree/a.jsonl --out c.index",
        "data prepare a.jsonl --out a.jsonl",
        "data prepare a.jsonl --out old.index",
        "data prepare a.jsonl --out -",
        "data prepare a.jsonl --out shards",
        "data prepare a.jsonl --out c.index --tokenizer tiktoken",
        "data prepare a.jsonl --out c.index --tokenizer-file a.jsonl",
        "data prepare a.jsonl --out c.index --tokenizer sentencepiece --tokenizer-file a.jsonl",
        "data prepare a.jsonl --out c.index --tokenizer huggingface --tokenizer-file none.json",
        &format!("data prepare a.jsonl --out c.index {llama3} --bos <s>"),
        "data prepare a.jsonl --out c.index --workers 0",
        "data prepare a.jsonl --out c.index --malformed fix",
        "data about old.index",
        "data about none.index",
    ] {
        assert_eq!(show(line), 2, "{line}");
    }
    support::assert_cases!("tests/cli", "documents_become_a_prepared_file", snapshots);
    assert_eq!(fs::read_to_string(dir.join("old.index")).unwrap(), "not one\n");
    let left = fs::read_dir(dir).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().ends_with(".partial"));
    assert_eq!(left.count(), 0);
    // The folder is made, like those of locks and runs.
    assert_eq!(canonc(dir, &["data", "prepare", "a.jsonl", "--out", "data/deep/a.index"]).code, 0);
    assert!(dir.join("data/deep/a.index").is_file());
}

/// Chunks are read in the order of their numbers, so the result equals that of a single file.
#[test]
fn chunks_are_read_in_the_order_of_their_numbers() {
    let dir = documents();
    let dir = dir.path();
    fs::write(
        dir.join("all.jsonl"),
        ["first", "second", "third", "two", "one"]
            .map(|t| format!("{{\"text\":\"{t}\"}}\n"))
            .concat(),
    )
    .unwrap();
    for (sources, index) in [
        ("all.jsonl", "all.index"),
        ("shards tree/", "chunks.index"),
        ("a.jsonl b.jsonl", "c4.index"),
    ] {
        assert_eq!(
            run_line(dir, &format!("data prepare {sources} --out {index}")).code,
            0,
            "{index}"
        );
    }
    assert_eq!(identity(dir, "all.index"), identity(dir, "chunks.index"));
    assert_ne!(identity(dir, "all.index"), identity(dir, "c4.index"));
    let piped = canonc_reading(
        dir,
        &["data", "prepare", "-", "--out", "c4.index"],
        "{\"text\": \"piped\"}\n",
    );
    assert_eq!(piped.code, 0, "{}", piped.stderr);
    assert!(piped.stderr.contains("replaced by 1 document, 5 bytes"), "{}", piped.stderr);
}

#[cfg(unix)]
#[test]
fn a_loop_of_links_is_refused() {
    let dir = folder(&[("tree/a.jsonl", "{\"text\": \"hello\"}\n")]);
    std::os::unix::fs::symlink("..", dir.path().join("tree/up")).unwrap();
    let ran = run_line(dir.path(), "data prepare tree --out c.index");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("links to a folder that contains it"), "{}", ran.stderr);
}

/// Documents of several pieces, with lines no longer than a page.
fn many(lines: usize) -> String {
    let text = "the quick brown fox jumps over the lazy dog, naïve “quotes” and 日本 ".repeat(20);
    (0..lines).map(|i| format!("{{\"id\": {i}, \"text\": \"{i} {text}\"}}\n")).collect()
}

/// Runs a line that prepares `k.index`, and kills it after another number of written states each time, until it
/// finishes; returns the number of kills.
fn kills_until_finished(dir: &Path, line: &[&str]) -> usize {
    let mut kills = 0;
    for states in 1.. {
        let mut child = crate::command(dir, line).spawn().unwrap();
        let state = dir.join("k.index.partial/state.toml");
        let mut seen = fs::read(&state).ok();
        let mut changes = 0;
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            let now = fs::read(&state).ok();
            changes += usize::from(now != seen);
            seen = now;
            if changes > states % 3 {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::yield_now();
        };
        match ended {
            Some(status) => {
                assert!(status.success());
                break;
            }
            None => kills += 1,
        }
    }
    kills
}

#[test]
fn preparing_resumes_after_a_kill_to_the_same_file() {
    let dir = folder(&[("a.jsonl", &many(4000)), ("b.jsonl", &many(500))]);
    let dir = dir.path();
    let prepare = "data prepare x=a.jsonl y=b.jsonl --checkpoint 1000000";
    assert_eq!(run_line(dir, &format!("{prepare} --out straight.index")).code, 0);
    let straight = fs::read(dir.join("straight.index")).unwrap();
    let points = [
        "piece:1",
        "piece:3",
        "piece:7",
        "state-before:1",
        "state-before:4",
        "state-written:1",
        "state-written:5",
        "finish-half",
        "rename-before",
        "remove-before",
    ];
    for point in points {
        let line = format!("{prepare} --out k.index");
        let killed = run_line(dir, &format!("{line} --fault {point}"));
        assert_eq!((killed.code, killed.stdout.as_str()), (-1, ""), "{point}: {}", killed.stderr);
        assert_eq!(dir.join("k.index").exists(), point == "remove-before", "{point}");
        let again = run_line(dir, &format!("{line} --workers 3"));
        assert_eq!(again.code, 0, "{point}: {}", again.stderr);
        assert!(!again.stderr.contains("cannot be continued"), "{point}: {}", again.stderr);
        let went_on = again.stderr.starts_with("going on after ");
        assert_eq!(
            went_on,
            !["piece:1", "state-before:1", "state-written:1", "remove-before"].contains(&point)
        );
        assert!(fs::read(dir.join("k.index")).unwrap() == straight, "{point}");
        assert!(!dir.join("k.index.partial").exists(), "{point}");
        fs::remove_file(dir.join("k.index")).unwrap();
    }
    // Killed by a signal at arbitrary points, again and again until it finishes.
    let line: Vec<String> =
        format!("{prepare} --out k.index").split_whitespace().map(str::to_owned).collect();
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    assert!(kills_until_finished(dir, &line) > 0);
    assert!(fs::read(dir.join("k.index")).unwrap() == straight);
}

/// Thirty documents, and an arch with a vocabulary for the tokenizer of the goldens.
fn project_for_tokenizers() -> tempfile::TempDir {
    folder(&[
        ("a.jsonl", &many(30)),
        (
            "small.canon",
            &crate::GOOD.replace("arch good", "arch small").replace("vocab 16", "vocab 816"),
        ),
    ])
}

/// Prepares `a.jsonl` as bytes (`b.index`) and with one vocabulary in two formats (`t.index`, `h.index`).
fn prepare_with_three_tokenizers(dir: &Path) {
    let llama3 = format!("--tokenizer tiktoken --tokenizer-file {}", golden("llama3.model"));
    assert_eq!(run_line(dir, &format!("data prepare a.jsonl --out t.index {llama3}")).code, 0);
    assert_eq!(run_line(dir, "data prepare a.jsonl --out b.index").code, 0);
    let json = format!("--tokenizer huggingface --tokenizer-file {}", golden("llama3.json"));
    assert_eq!(run_line(dir, &format!("data prepare a.jsonl --out h.index {json}")).code, 0);
}

#[test]
fn a_lock_is_bound_to_documents_of_its_tokenizer() {
    let dir = project_for_tokenizers();
    let dir = dir.path();
    let recipe = |name: &str, data: &str| recipe_lock(dir, name, data, "");
    let tokens = recipe("tokens", ", tokenizer = \"tiktoken\", tokenizer_vocab = 816");
    let narrow = recipe("narrow", ", tokenizer = \"tiktoken\", tokenizer_vocab = 815");
    let bytes = recipe("bytes", "");
    prepare_with_three_tokenizers(dir);
    let bind = |lock: &str, data: &str| run_line(dir, &format!("bind {lock} --data {data}"));
    for (lock, data, message) in [
        (
            &tokens,
            "b.index",
            "data.tokenizer is tiktoken, but the documents were prepared with bytes",
        ),
        (
            &tokens,
            "h.index",
            "data.tokenizer is tiktoken, but the documents were prepared with huggingface",
        ),
        (
            &narrow,
            "t.index",
            "data.tokenizer_vocab is 815, but the documents were prepared with 816",
        ),
        (
            &bytes,
            "t.index",
            "data.tokenizer is bytes, but the documents were prepared with tiktoken",
        ),
    ] {
        let before = fs::read(dir.join(lock)).unwrap();
        let ran = bind(lock, data);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
        assert_eq!(fs::read(dir.join(lock)).unwrap(), before);
    }
    let about = run_line(dir, &format!("data about t.index --lock {tokens} --json"));
    let about: Value = serde_json::from_str(&about.stdout).unwrap();
    // 100 steps of 4 windows of 64.
    let (read, all) = (25_600.0, about["reads"][0]["tokens"].as_f64().unwrap());
    assert!((about["reads"][0]["epochs"].as_f64().unwrap() - read / all).abs() < 1e-9);
    assert_eq!(about["reads"][0]["source"], "t");

    let ran = bind(&tokens, "t.index");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let text = fs::read_to_string(dir.join(&tokens)).unwrap();
    for digest in [&about["identity"], &about["tokenizer"]["digest"]] {
        assert!(text.contains(digest.as_str().unwrap()), "{text}");
    }
    assert!(bind(&tokens, "t.index").stderr.contains("already bound to this data"));
    // A file with a changed byte is refused by bind.
    let mut file = fs::read(dir.join("t.index")).unwrap();
    file[1000] ^= 1;
    fs::write(dir.join("t.index"), file).unwrap();
    let ran = bind(&tokens, "t.index");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("is damaged: bytes 0 to "), "{}", ran.stderr);
}

const SMALL: &str = "arch small { vocab 258  dim 16  norm_eps 1e-5  init lingua  \
    layers 1 of decoder { mixer attention { heads 2 }  mlp swiglu { hidden 32 } } }\n";

/// Makes a recipe on text for `SMALL`, and its lock; returns the lock's name.
fn locked(dir: &Path, name: &str, data: &str, more: &str) -> String {
    fs::write(dir.join("small.canon"), SMALL).unwrap();
    recipe_lock(dir, name, data, more)
}

/// The same for the `small.canon` that is there.
fn recipe_lock(dir: &Path, name: &str, data: &str, more: &str) -> String {
    let text = format!(
        "arch = \"small.canon\"\ndata = {{ task = \"text\", seq_len = 64, source = \"web\"{data} }}\n\
         batch = {{ sequences = 4 }}\noptimizer = {{ lr = 0.002, weight_decay = 0.02 }}\n\
         schedule = {{ kind = \"inv_sqrt\", warmup = 10 }}\nbudget = {{ steps = 100 }}\n\
         seeds = {{ init = 1, data = 1 }}\n{more}"
    );
    fs::write(dir.join(format!("{name}.toml")), text).unwrap();
    let built = run_line(dir, &format!("build {name}.toml"));
    assert_eq!(built.code, 0, "{}", built.stderr);
    format!("lockfiles/{name}.lock")
}

/// What `data prepare` writes to standard error, with `out.index` as its output.
fn prepared(dir: &Path, line: &str, code: i32) -> String {
    let ran = run_line(dir, &format!("data prepare {line} --out out.index"));
    assert_eq!(ran.code, code, "{line}: {}", ran.stderr);
    ran.stderr
}

#[test]
fn plain_text_is_prepared_with_a_note_of_what_was_assumed() {
    let dir = folder(&[
        ("one.txt", "first line\nsecond line\r\n\nthird\n"),
        ("book", "It was a dark night.\n"),
        ("lines", "{\"text\": \"json\"}\n"),
        ("books/a.txt", "a book\n"),
        ("books/deep/b.txt", "another\n"),
        ("mixed/a.jsonl", "{\"text\": \"a document\"}\n"),
        ("mixed/notes.txt", "what these are\n"),
        ("empty.txt", ""),
    ]);
    let dir = dir.path();
    fs::write(dir.join("latin.txt"), b"caf\xe9\n").unwrap();
    let stderr = prepared(dir, "one.txt", 0);
    assert!(stderr.contains("one.txt: read as plain text, each file is a document"), "{stderr}");
    assert!(stderr.contains("1 document, 31 bytes"), "{stderr}");
    let stderr = prepared(dir, "one.txt --lines", 0);
    assert!(
        stderr.contains("each line is a document") && stderr.contains("3 documents, 26 bytes"),
        "{stderr}"
    );
    let stderr = prepared(dir, "book", 0);
    assert!(
        stderr.contains("book: read as plain text") && stderr.contains("1 document"),
        "{stderr}"
    );
    assert!(!prepared(dir, "lines", 0).contains("plain text"));
    let stderr = prepared(dir, "books", 0);
    assert!(stderr.contains("and 1 more: read as plain text"), "{stderr}");
    assert!(stderr.contains("2 documents"), "{stderr}");
    let stderr = prepared(dir, "mixed", 0);
    assert!(
        stderr.contains("not read: mixed/notes.txt") && stderr.contains("1 document"),
        "{stderr}"
    );
    let stderr = prepared(dir, "lines --lines", 2);
    assert!(stderr.contains("--lines is for plain text"), "{stderr}");
    let stderr = prepared(dir, "latin.txt", 2);
    assert!(stderr.contains("latin.txt:1: the file is not UTF-8"), "{stderr}");
    let stderr = prepared(dir, "empty.txt", 2);
    assert!(stderr.contains("has no documents"), "{stderr}");
}

/// The documents equal those from JSON lines, and so do the windows.
#[test]
fn plain_text_equals_the_same_documents_as_json_lines() {
    let dir = folder(&[("one.txt", "first line\nsecond line\r\n\nthird\n")]);
    let dir = dir.path();
    fs::write(
        dir.join("same.jsonl"),
        "{\"text\": \"first line\"}\n{\"text\": \"second line\"}\n{\"text\": \"third\"}\n",
    )
    .unwrap();
    let identity_after = |line: &str| {
        prepared(dir, line, 0);
        identity(dir, "out.index")
    };
    assert_eq!(identity_after("one.txt --lines"), identity_after("same.jsonl"));
    // Blank lines end a paragraph, however many there are and whatever is in them.
    fs::write(dir.join("paragraphs.txt"), "\r\none\r\ntwo\r\n \t\r\n\r\nthree").unwrap();
    let paragraphs = "{\"text\": \"one\\ntwo\"}\n{\"text\": \"three\"}\n";
    fs::write(dir.join("paragraphs.jsonl"), paragraphs).unwrap();
    let stderr = prepared(dir, "paragraphs.txt --paragraphs", 0);
    assert!(stderr.contains("each paragraph is a document"), "{stderr}");
    assert_eq!(identity_after("paragraphs.txt --paragraphs"), identity_after("paragraphs.jsonl"));
    let piped = canonc_reading(
        dir,
        &["data", "prepare", "-", "--lines", "--out", "out.index"],
        "first line\nsecond line\nthird\n",
    );
    assert_eq!(piped.code, 0, "{}", piped.stderr);
    let about = identity(dir, "out.index");
    assert_eq!(about, identity_after("same.jsonl"));
}

#[test]
fn data_too_small_for_the_run_is_not_bound() {
    let dir = folder(&[
        ("a.jsonl", &many(30)),
        ("short.jsonl", "{\"text\": \"x\"}\n{\"text\": \"yy\"}\n"),
    ]);
    let dir = dir.path();
    for (file, index) in [("a.jsonl", "a.index"), ("short.jsonl", "short.index")] {
        assert_eq!(run_line(dir, &format!("data prepare {file} --out {index}")).code, 0);
    }
    let few = locked(dir, "few", ", held_out = 0.000001", "");
    let fine = locked(dir, "fine", ", held_out = 0.2", "");
    let all = locked(dir, "all", ", held_out = 0", "evaluation = { metrics = [] }\n");
    for (lock, index, message) in [
        (&few, "a.index", "of 30 documents leaves none for evaluation"),
        (
            &all,
            "short.index",
            "the documents to train on have 7 tokens, but one window of `all` needs 65",
        ),
    ] {
        let before = fs::read(dir.join(lock)).unwrap();
        let ran = run_line(dir, &format!("bind {lock} --data {index}"));
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
        assert_eq!(fs::read(dir.join(lock)).unwrap(), before);
    }
    assert_eq!(run_line(dir, &format!("bind {fine} --data a.index")).code, 0);
    assert_eq!(run_line(dir, &format!("bind {all} --data a.index")).code, 0);
}

/// Windows exported as JSON lines and as binary records are the same 400, numbered, and a part of them is that part.
fn check_exported_windows(dir: &Path, lock: &str) {
    for (file, count) in [("w.jsonl", ""), ("w.bin", ""), ("part.bin", "--from 7 --count 5")] {
        let ran = run_line(dir, &format!("data export {lock} {count} --out {file}"));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    let lines = fs::read_to_string(dir.join("w.jsonl")).unwrap();
    let bin = fs::read(dir.join("w.bin")).unwrap();
    let size = 8 + 4 * 2 * 64;
    assert_eq!((lines.lines().count(), bin.len()), (400, 400 * size));
    assert_eq!(fs::read(dir.join("part.bin")).unwrap(), bin[7 * size..12 * size]);
    for (number, (line, record)) in lines.lines().zip(bin.chunks(size)).enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        let numbers = |key: &str| -> Vec<i64> {
            line[key].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
        };
        let (tokens, targets) = (numbers("tokens"), numbers("targets"));
        assert_eq!(line["window"], number);
        assert_eq!(tokens[1..], targets[..63]);
        let ids: Vec<i64> = record[8..]
            .chunks(4)
            .map(|id| i64::from(i32::from_le_bytes(id.try_into().unwrap())))
            .collect();
        assert_eq!(record[..8], (number as u64).to_le_bytes());
        assert_eq!(ids, [tokens, targets].concat());
    }
}

#[test]
fn what_a_run_reads_is_listed_shown_and_exported() {
    let dir = folder(&[("a.jsonl", &many(60)), ("b.jsonl", "{\"text\": \"\u{1b}[31mred\"}\n")]);
    let dir = dir.path();
    let red = "{\"text\": \"one \\u001b[31mred, and so on\"}\n".repeat(20);
    fs::write(dir.join("b.jsonl"), red).unwrap();
    fs::create_dir(dir.join("data")).unwrap();
    assert_eq!(run_line(dir, "data prepare a=a.jsonl b=b.jsonl --out data/web.index").code, 0);
    let lock = locked(dir, "mix", ", held_out = 0.2, weights = [10, 30]", "");
    assert_eq!(run_line(dir, &format!("bind {lock} --data data/web.index")).code, 0);
    let about = run_line(dir, &format!("data about --lock {lock}"));
    assert_eq!(about.code, 0, "{}", about.stderr);
    for part in
        ["24.6%", "75.4%", "of tokens", "400 windows", "25,600 tokens", "held out", "windows"]
    {
        assert!(about.stdout.contains(part), "{part}: {}", about.stdout);
    }
    let json = run_line(dir, &format!("data about --lock {lock} --json"));
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&json["run"]["windows"], &json["run"]["shuffle"]),
        (&400.into(), &"windows".into())
    );
    let shares = |key: &str| -> f64 {
        json["reads"].as_array().unwrap().iter().map(|read| read[key].as_f64().unwrap()).sum()
    };
    assert!((shares("share") - 1.0).abs() < 1e-9 && (shares("token_share") - 1.0).abs() < 1e-9);

    let shown = run_line(dir, &format!("data inspect {lock} --from 3 --count 40"));
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(
        shown.stdout.starts_with("window 3: 64 tokens, 64 targets counted\n"),
        "{}",
        shown.stdout
    );
    assert!(shown.stdout.contains("<eos><bos>") && shown.stdout.contains("\u{241b}[31mred"));
    assert!(!shown.stdout.contains('\u{1b}'));
    assert_eq!(run_line(dir, &format!("data inspect {lock} --from 400")).code, 2);
    assert_eq!(run_line(dir, "data inspect nothing").code, 2);

    check_exported_windows(dir, &lock);
    assert_eq!(run_line(dir, &format!("data export {lock} --from 390 --count 11")).code, 2);
    let held_out = run_line(dir, &format!("data export {lock} --held-out --count 2"));
    assert_eq!(held_out.stdout.lines().count(), 2);
}

#[test]
fn exported_windows_of_a_task_have_only_answers_as_targets() {
    let dir = folder(&[("small.canon", SMALL)]);
    let dir = dir.path();
    let task = "arch = \"small.canon\"\ndata = { depo = { N = 4, K = 1, mini_vocab = 4, min_tlen = 1, \
        max_tlen = 2 }, seq_len = 24, ids = \"dense\" }\nbatch = { sequences = 4 }\n\
        optimizer = { lr = 0.002, weight_decay = 0.02 }\nschedule = { kind = \"constant\" }\n\
        budget = { steps = 2 }\nseeds = { init = 1, data = 1 }\n";
    fs::write(dir.join("depo.toml"), task).unwrap();
    assert_eq!(run_line(dir, "build depo.toml").code, 0);
    let out = run_line(dir, "data export lockfiles/depo.lock");
    assert_eq!(out.stdout.lines().count(), 8, "{}", out.stderr);
    assert!(out.stdout.contains("-100"));
}

#[test]
fn a_run_that_learns_nothing_is_warned_of() {
    let dir = folder(&[]);
    let dir = dir.path();
    locked(dir, "fine", "", "");
    let text = fs::read_to_string(dir.join("fine.toml")).unwrap();
    let text = text.replace("warmup = 10", "warmup = 1").replace("steps = 100", "steps = 1");
    fs::write(dir.join("idle.toml"), text).unwrap();
    let warned = |name: &str| {
        let ran = run_line(dir, &format!("build {name}.toml"));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stderr.contains("warning: ")
            && ran.stderr.contains("the learning rate is 0 at every one of 1 step")
    };
    assert!(warned("idle"));
    assert!(!warned("fine"));
}

/// A file is decompressed because of its content, and other contents are named with what to type.
#[test]
fn compressed_documents_are_known_by_their_content() {
    let text = "{\"text\": \"first\"}\n{\"text\": \"second\"}\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    // One block that is not compressed, in a frame with a window of 2^31 bytes.
    let [a, b, c, _] = ((text.len() as u32) << 3 | 1).to_le_bytes();
    let zstd = [&b"\x28\xb5\x2f\xfd\x00\xa8"[..], &[a, b, c], text.as_bytes()].concat();
    let dir = folder(&[("plain.jsonl", text)]);
    let dir = dir.path();
    let prepare = |name: &str| {
        let ran = run_line(dir, &format!("data prepare {name} --out out.index"));
        (ran.code, ran.stderr)
    };
    assert_eq!(prepare("plain.jsonl").0, 0);
    let wanted = identity(dir, "out.index");
    for (name, bytes) in [
        ("a.ndjson.gz", &gzip),
        ("named.jsonl", &gzip),
        ("named", &gzip),
        ("RC_2011-01.zst", &zstd),
        ("long.jsonl.zst", &zstd),
    ] {
        fs::write(dir.join(name), bytes).unwrap();
        let (code, stderr) = prepare(name);
        assert_eq!(code, 0, "{name}: {stderr}");
        assert_eq!(identity(dir, "out.index"), wanted, "{name}");
    }
    // A folder holds them, too.
    fs::create_dir(dir.join("dump")).unwrap();
    fs::write(dir.join("dump/RC_2011-01.zst"), &zstd).unwrap();
    assert_eq!(prepare("dump").0, 0);
    assert_eq!(identity(dir, "out.index"), wanted);
    fs::write(dir.join("book.txt.gz"), &gzip).unwrap();
    assert!(prepare("book.txt.gz").1.contains("book.txt.gz: read as plain text"));
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (bytes, wanted) in [
        ([&b"\xff\xfe"[..], &utf16].concat(), ["text in UTF-16", "iconv -f UTF-16 -t UTF-8"]),
        (utf16, ["text in UTF-16", "iconv -f UTF-16 -t UTF-8"]),
        (b"PK\x03\x04rest".to_vec(), ["a zip archive", "unzip"]),
        (b"version https://git-lfs.github.com/spec/v1\n".to_vec(), ["Git LFS", "git lfs pull"]),
        (gzip[..gzip.len() - 4].to_vec(), ["cannot read other.jsonl", "is complete"]),
    ] {
        fs::write(dir.join("other.jsonl"), bytes).unwrap();
        let (code, stderr) = prepare("other.jsonl");
        assert!(code == 2 && wanted.iter().all(|part| stderr.contains(part)), "{code}: {stderr}");
    }
}
