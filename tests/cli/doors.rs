//! A newcomer's input: files of other systems, folders of several runs, sizes, names. Every input that is dropped is
//! reported, and an error gives the next command to type.

use std::fs;

use crate::{Ran, canonc, folder, has, root, run_line};

/// The number of tokens in the line of a source, for the tokenizer of bytes.
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
        let ran =
            run_line(dir.path(), &format!("data prepare {line} --out out/{}.index", line.len()));
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
    let ran = run_line(dir.path(), "data prepare texts --out t.index");
    assert_eq!((ran.code, tokens(&ran).as_str()), (0, "1 document, 2 tokens"), "{}", ran.stderr);
    assert!(ran.stderr.contains("not read: texts/notes.md"), "{}", ran.stderr);
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
fn text_that_a_tokenizer_loses_is_reported() {
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
        run_line(dir.path(), &line)
    };
    let ran = prepare("drops", "some");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let warning =
        "warning: the tokenizer has no token for 1 of 6 characters (16.67%) and drops them";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    let ran = prepare("unknown", "some");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: 1 of 6 tokens (16.67%)"), "{}", ran.stderr);
    for tokenizer in ["drops", "unknown"] {
        let ran = prepare(tokenizer, "none");
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("no part of the documents is left"), "{}", ran.stderr);
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
    for command in ["show", "verify --replay", "graph"].into_iter().filter(|line| has(line)) {
        let ran = run_line(dir.path(), &format!("{command} runs/demo"));
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        let error = "error: `runs/demo` is not a run, but contains 2 runs\n  = help: name one: `runs/demo/a`, `runs/demo/b`";
        assert!(ran.stderr.contains(error), "{command}: {}", ran.stderr);
    }
    let ran = run_line(dir.path(), "show demo/a");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn missing_names_are_reported_with_a_suggestion() {
    let dir = folder(&[("lockfiles/known.lock", ""), ("arch/gla_small.canon", ""), ("file", "")]);
    for (line, message) in [
        ("verify nosuch", "there is no lock or run `nosuch`"),
        ("verify nosuch.lock", "there is no lock `nosuch.lock`"),
        ("verify gla_small", "help: `arch/gla_small.canon` is an arch; to train it, name the lock"),
        ("help data nothing", "`canonc data` has no command `nothing`"),
        ("help data prepar", "did you mean `canonc data prepare`?"),
        ("man file", "`file` is a file, but a folder is needed"),
        ("rnu", "did you mean `canonc run`?"),
        ("data genrate", "a similar subcommand exists: `generate`"),
    ] {
        let ran = run_line(dir.path(), line);
        assert!(
            ran.code == 2 && ran.stderr.contains(message),
            "{line}: {} {}",
            ran.code,
            ran.stderr
        );
    }
    // A lock of that name which trains nothing does not help either.
    let ran = run_line(&root(), "verify llama_1B");
    assert!(ran.stderr.contains("`arch/llama_1B.canon` is an arch; to train it"), "{}", ran.stderr);
}

#[cfg(target_os = "linux")]
#[cfg(feature = "ext")]
#[test]
fn a_table_of_holes_is_refused_by_its_size() {
    let dir = folder(&[]);
    fs::File::create(dir.path().join("t.csv")).unwrap().set_len(1 << 40).unwrap();
    let ran = run_line(dir.path(), "audit t.csv");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("`t.csv` has 1 TiB; at most 256 MiB are read"), "{}", ran.stderr);
}

#[cfg(feature = "ext")]
#[test]
fn a_card_and_a_module_take_an_arch_outside_the_released_families() {
    let dir = folder(&[]);
    let arch = root().join("arch/hybridcanon_tiny.canon");
    let arch = arch.to_str().unwrap();
    let ran = canonc(dir.path(), &["export", arch, "--to", "release", "--out", "release"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("`card` take any arch"), "{}", ran.stderr);
    let ran = canonc(dir.path(), &["export", arch, "--to", "torch", "--out", "torch"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "torch/model.py\n"), "{}", ran.stderr);
    let ran = canonc(dir.path(), &["export", arch, "--to", "card", "--out", "card"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "card/README.md\n"), "{}", ran.stderr);
    let card = fs::read_to_string(dir.path().join("card/README.md")).unwrap();
    assert!(card.contains("| architecture | `hybridcanon_tiny` |"), "{card}");
    assert!(card.contains("\narch hybridcanon_tiny {"), "{card}");
    assert!(!card.contains("transformers") && !card.contains("{{"), "{card}");
}

/// Commands that write, with `OUT` in place of their output: a file in a folder, or a folder.
#[cfg(unix)]
const WRITERS: [(&str, bool); 8] = [
    ("build a.canon --out OUT", true),
    ("export llama.lock --to card --out OUT", true),
    ("import hf --no-weights --out OUT", true),
    ("new OUT", true),
    ("man OUT", true),
    ("data generate mano --set L=4 --count 1 --out OUT/x.jsonl", false),
    ("data prepare a.txt --out OUT/x.index", false),
    ("report --published GLA5conv-8B-Nemo-1T-lr0.003 --out OUT/x.html", false),
];

#[cfg(unix)]
fn writers_folder() -> tempfile::TempDir {
    let lock = fs::read_to_string(root().join("lockfiles/llama_1B.lock")).unwrap();
    let model = root().join("tests/golden/checkpoints/hf_llama/config.json");
    let model = fs::read_to_string(model).unwrap();
    let files = [
        ("a.canon", crate::GOOD),
        ("llama.lock", &lock),
        ("hf/config.json", &model),
        ("a.txt", "ab"),
    ];
    folder(&files)
}

/// One rule for every output: a link to a folder is that folder, and a link to a file or to nothing is refused.
#[cfg(unix)]
#[test]
fn links_to_folders_are_followed_and_no_others() {
    use std::os::unix::fs::symlink;
    for (line, is_folder) in WRITERS.into_iter().filter(|(line, _)| has(line)) {
        let dir = writers_folder();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("real")).unwrap();
        symlink("real", at("link")).unwrap();
        let ran = run_line(dir.path(), &line.replace("OUT", "link"));
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink(), "{line}");
        assert!(fs::read_dir(at("real")).unwrap().next().is_some(), "{line} wrote nothing");
        symlink("nowhere", at("lost")).unwrap();
        fs::write(at("theirs"), "theirs").unwrap();
        symlink("theirs", at("file")).unwrap();
        for wrong in ["lost", "file"] {
            let line = line.replace("OUT", wrong);
            let ran = run_line(dir.path(), &line);
            assert_eq!(ran.code, 2, "{line}: {}", ran.stderr);
            assert!(ran.stderr.contains("but a folder is needed"), "{line}: {}", ran.stderr);
        }
        if !is_folder {
            for wrong in ["lost", "file"] {
                let name = line.replace("OUT/", "link/").replace("/x.", &format!("/{wrong}."));
                let path = name.rsplit(' ').next().unwrap();
                symlink(at(wrong), at(path)).unwrap();
                let ran = run_line(dir.path(), &name);
                assert_eq!(ran.code, 2, "{name}: {}", ran.stderr);
                assert!(ran.stderr.contains("link"), "{name}: {}", ran.stderr);
            }
        }
        assert!(!at("nowhere").exists(), "{line}");
        assert_eq!(fs::read_to_string(at("theirs")).unwrap(), "theirs", "{line}");
    }
}

/// A path of the wrong kind is bad usage (2), whatever the command, and nothing waits or is written.
#[cfg(unix)]
#[test]
fn a_path_of_the_wrong_kind_is_bad_usage() {
    let dir = writers_folder();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "theirs").unwrap();
    std::os::unix::fs::symlink("loop", at("loop")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let long = "n".repeat(300);
    for wrong in ["file", "file/in", "pipe", "loop", "/dev/null", &long] {
        for (line, _) in WRITERS.into_iter().filter(|(line, _)| has(line)) {
            let line = line.replace("OUT", wrong);
            if wrong == long && !line.contains("/x.") {
                continue;
            }
            let ran = run_line(dir.path(), &line);
            assert_eq!(ran.code, 2, "{line}: {}", ran.stderr);
        }
        if wrong == "file" {
            continue;
        }
        for line in [
            "check IN",
            "show IN",
            "graph IN",
            "build IN",
            "bind llama.lock --data IN",
            "diff IN llama.lock",
            "audit IN",
            "audit llama.lock --rules IN",
            "verify IN",
            "verify llama.lock --signers IN",
            "report IN --out r.html",
            "compare IN",
            "data prepare IN --out r.index",
            "data about IN",
            "data prepare a.txt --out r.index --tokenizer huggingface --tokenizer-file IN",
            "data inspect IN",
            "data generate mano --set L=@IN --count 1",
            "import IN --out r",
            "export IN --to card --out r",
        ]
        .into_iter()
        .filter(|line| has(line))
        {
            let line = line.replace("IN", wrong);
            let ran = run_line(dir.path(), &line);
            assert_eq!(ran.code, 2, "{line}: {}", ran.stderr);
        }
    }
    assert!(!["r", "r.html", "r.index", "r.index.partial"].iter().any(|name| at(name).exists()));
}

/// `data prepare` opens no pipe that could block, and reads no file that is mostly holes.
#[cfg(target_os = "linux")]
#[test]
fn documents_without_an_end_are_refused() {
    let dir = folder(&[]);
    let at = |name: &str| dir.path().join(name);
    for name in ["pipe.jsonl", "pipe.txt", "pipe.parquet", "pipe.jsonl.gz"] {
        assert!(std::process::Command::new("mkfifo").arg(at(name)).status().unwrap().success());
        let ran = run_line(dir.path(), &format!("data prepare {name} --out o.index"));
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("is a pipe or a device, not a file"), "{}", ran.stderr);
    }
    for name in ["holes.jsonl", "holes.txt", "holes.jsonl.zst", "holes"] {
        fs::File::create(at(name)).unwrap().set_len(20 << 30).unwrap();
        let ran = run_line(dir.path(), &format!("data prepare {name} --out o.index"));
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(
            ran.stderr.contains("it was not completely written or copied"),
            "{name}: {}",
            ran.stderr
        );
    }
    assert!(!at("o.index").exists());
}

/// Text of an argument or a file is never a line of its own on a terminal, and never a control sequence.
#[cfg(unix)]
#[test]
fn foreign_names_stay_within_a_line() {
    let hostile = "a\nerror: b\u{1b}[31m";
    let recipe = format!("{:?} = 1\n", "x\nerror: b\u{1b}[31m");
    let config = format!("{{{:?}: 1, \"model_type\": {:?}}}", "k\nerror: b", "m\nerror: b");
    let dir = folder(&[
        ("r.toml", recipe.as_str()),
        ("hf/config.json", config.as_str()),
        ("a.txt", "ab"),
    ]);
    let prepared = format!("{hostile}=a.txt");
    for line in [
        vec!["import", "--name", hostile, "hf", "--out", "x"],
        vec!["import", "hf", "--out", "x"],
        vec![hostile],
        vec!["check", hostile],
        vec!["verify", hostile],
        vec!["build", "r.toml"],
        vec!["data", "prepare", &prepared, "--out", "o.index"],
        vec!["data", "generate", "mano", "--set", hostile, "--count", "1"],
        vec!["data", "generate", "mano", "--set", "L=4", "--set", "a\nerror: b=1", "--count", "1"],
    ]
    .into_iter()
    .filter(|line| line.first() == Some(&hostile) || has(line.first().unwrap()))
    {
        let ran = canonc(dir.path(), &line);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, 2, "{line:?}: {all}");
        assert!(!all.contains('\u{1b}'), "{line:?}: {all:?}");
        assert!(!all.contains("\nerror: b"), "{line:?}: {all}");
    }
    if !has("audit") {
        return;
    }
    // Keys and names of another trainer's configurations, in a report.
    let config = "\"k\\nerror: b\": 3\nsteps: ";
    let dir = folder(&[
        ("a/x.yaml", &format!("{config}1\n")),
        ("a/y\nerror: b.yaml", &format!("{config}2\n")),
    ]);
    let ran = canonc(dir.path(), &["audit", "a"]);
    assert!(ran.stdout.contains("unknown keys"), "{}{}", ran.stdout, ran.stderr);
    assert!(!ran.stdout.contains("\nerror: b"), "{}", ran.stdout);
}

#[test]
fn a_lock_with_a_byte_order_mark_is_refused_by_its_name() {
    let lock = fs::read_to_string(root().join("lockfiles/llama_1B.lock")).unwrap();
    let marked = format!("\u{feff}{lock}");
    let dir = folder(&[("a.lock", marked.as_str())]);
    let ran = run_line(dir.path(), "show a.lock");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("byte order mark (BOM)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("canonc build arch/llama_1B.canon"), "{}", ran.stderr);
}

#[test]
fn a_lock_of_another_version_is_bad_input() {
    let lock = fs::read_to_string(root().join("lockfiles/llama_1B.lock")).unwrap();
    for (version, message) in
        [("1", "written by an older canonc"), ("999", "written by a newer canonc")]
    {
        let changed = lock.replacen("version = 3", &format!("version = {version}"), 1);
        let dir = folder(&[("a.lock", changed.as_str()), ("runs/a/lock", changed.as_str())]);
        for line in ["verify a.lock", "verify a", "show a.lock", "diff a.lock a.lock"] {
            let ran = run_line(dir.path(), line);
            assert_eq!(ran.code, 2, "{line}: {}", ran.stderr);
            assert!(ran.stderr.contains(message), "{line}: {}", ran.stderr);
            let help = if line == "verify a" {
                "move `runs/a` away"
            } else {
                "canonc build arch/llama_1B.canon"
            };
            assert!(ran.stderr.contains(help), "{line}: {}", ran.stderr);
        }
    }
}

#[test]
fn a_file_that_is_named_twice_is_refused_by_its_name() {
    let lock = fs::read_to_string(root().join("lockfiles/demo.lock")).unwrap();
    let dir = folder(&[("a.lock", lock.as_str())]);
    for line in [
        "audit a.lock a.lock",
        "compare a.lock a.lock",
        "run a.lock a.lock",
        "report a.lock a.lock --out r.html",
    ]
    .into_iter()
    .filter(|line| has(line))
    {
        let ran = run_line(dir.path(), line);
        assert_eq!(ran.code, 2, "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("`a.lock` is given twice"), "{line}: {}", ran.stderr);
    }
    for line in
        ["audit a.lock ./a.lock", "compare a.lock ./a.lock"].into_iter().filter(|line| has(line))
    {
        let ran = run_line(dir.path(), line);
        assert!(ran.stderr.contains("`a.lock` and `./a.lock` are the same"), "{}", ran.stderr);
    }
}

/// The output of a README's commands that train nothing is what the README shows; `…` stands for any lines.
#[cfg(unix)]
#[cfg(feature = "ext")]
#[test]
fn the_readme_shows_what_its_commands_print() {
    let dir = folder(&[]);
    for name in ["arch", "lockfiles", "recipes", "std", "tests"] {
        std::os::unix::fs::symlink(root().join(name), dir.path().join(name)).unwrap();
    }
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut checked = Vec::new();
    for block in readme.split("```\n").flat_map(|part| part.split("\n```").next()) {
        for part in block.split("$ canonc ").skip(1) {
            let (line, shown) = part.split_once('\n').unwrap_or((part, ""));
            let command = line.split(' ').next().unwrap();
            if shown.is_empty()
                || !["audit", "build", "diff", "export", "import"].contains(&command)
            {
                continue;
            }
            let ran = run_line(dir.path(), line);
            let printed = format!("{}{}", ran.stdout, ran.stderr);
            let mut lines = printed.lines();
            let mut any = false;
            for wanted in shown.lines() {
                if wanted == "…" {
                    any = true;
                    continue;
                }
                let printed_line =
                    if any { lines.find(|line| *line == wanted) } else { lines.next() };
                assert_eq!(printed_line, Some(wanted), "canonc {line}:\n{printed}");
                any = false;
            }
            assert!(any || lines.next().is_none(), "canonc {line}:\n{printed}");
            checked.push(command.to_owned());
        }
    }
    checked.sort();
    assert_eq!(checked, ["audit", "build", "diff", "diff", "export", "import"]);
}
