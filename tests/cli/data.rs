//! `canonc data`: the published vectors through the binary, its output, and refused input.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use lab::field::{Kind, find};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tasks::task;

use crate::{canonc, command, folder, root, run_line};

fn vectors(task: &str) -> Value {
    let path = root().join(format!("tests/golden/playground/{task}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The arguments that make a vector's samples.
fn arguments(task: &str, case: &Value, background: Option<&Path>) -> Vec<String> {
    let seed = case["seed"].as_u64().or(case["people_seed"].as_u64()).unwrap();
    let mut arguments = vec!["data".to_owned(), "generate".to_owned(), task.to_owned()];
    arguments.extend(["--seed".to_owned(), seed.to_string()]);
    arguments.extend(["--count".to_owned(), "200".to_owned()]);
    if task != "depo" && case["mode"] == "qa" {
        arguments.extend(["--mode".to_owned(), "test".to_owned()]);
    }
    let mut set = |name: &str, value: String| {
        arguments.extend(["--set".to_owned(), format!("{name}={value}")]);
    };
    for (name, value) in case["params"].as_object().unwrap() {
        // As a person would type them: strings without quotation marks.
        set(name, value.as_str().map_or(value.to_string(), str::to_owned));
    }
    if let Some(path) = background {
        set("background", format!("@{}", path.display()));
    }
    arguments
}

/// Calls `check` for every case of a task with seed 42 and a digest; returns their number.
fn with_cases(
    task: &str,
    digest: &str,
    mut check: impl FnMut(&Path, &Value, Vec<String>),
) -> usize {
    let dir = folder(&[]);
    let file = vectors(task);
    let background = file["background"].as_array().map(|sentences| {
        let path = dir.path().join("background.txt");
        let lines: Vec<&str> = sentences.iter().map(|line| line.as_str().unwrap()).collect();
        fs::write(&path, lines.join("\n")).unwrap();
        path
    });
    let mut checked = 0;
    for case in file["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        if !id.ends_with("-s42") || id.starts_with("bioR") || case[digest].is_null() {
            continue;
        }
        check(dir.path(), case, arguments(task, case, background.as_deref()));
        checked += 1;
    }
    checked
}

#[test]
fn binary_files_are_the_published_vectors() {
    let digests = [
        ("depo", "digest_tokens", 18),
        ("brevo", "digest_tokens", 12),
        ("mano", "digest_tokens", 7),
        ("lano", "digest_tokens", 9),
        ("capo", "digest_utf8", 5),
        ("multihop", "digest_text_nul_answer_utf8", 5),
    ];
    for (task, digest, cases) in digests {
        let checked = with_cases(task, digest, |dir, case, mut arguments| {
            arguments.extend(["--out".to_owned(), "samples.bin".to_owned()]);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let ran = canonc(dir, &arguments);
            assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
            let bytes = fs::read(dir.join("samples.bin")).unwrap();
            fs::remove_file(dir.join("samples.bin")).unwrap();
            let want = &case[digest];
            assert_eq!(hex(&Sha256::digest(&bytes)), want["sha256"], "{}", case["id"]);
            assert_eq!(bytes.len() as u64, 4 * (200 + want["items"].as_u64().unwrap()));
        });
        assert_eq!(checked, cases, "{task}");
    }
}

#[test]
fn lines_hold_the_published_tokens_and_labels() {
    for (task, cases) in [("depo", 18), ("brevo", 12)] {
        let checked = with_cases(task, "digest_labels", |dir, case, arguments| {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let ran = canonc(dir, &arguments);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            let lines: Vec<Value> =
                ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            for name in ["tokens", "labels"] {
                let mut hash = Sha256::new();
                for line in &lines {
                    let items = line[name].as_array().unwrap();
                    hash.update((items.len() as u32).to_le_bytes());
                    for item in items {
                        hash.update((item.as_u64().unwrap() as u32).to_le_bytes());
                    }
                }
                let want = &case[&format!("digest_{name}")]["sha256"];
                assert_eq!(hex(&hash.finalize()), *want, "{} {name}", case["id"]);
            }
        });
        assert_eq!(checked, cases, "{task}");
    }
}

/// Parameters of the smallest samples of each task.
const SMALL: [(&str, &str); 6] = [
    ("brevo", "--set N=6"),
    ("capo", "--set N=3"),
    ("depo", "--set N=4 --set K=2 --set mini_vocab=3 --set min_tlen=1 --set max_tlen=2 --set M=2"),
    ("lano", "--set grammar=@small.json"),
    ("mano", "--set L=3"),
    ("multihop", "--set N=3 --set hops=2"),
];

const GRAMMAR: &str = r#"{"depth": 2, "num_sym": 2, "sizes": [1, 2, 2], "idx": [[8], [6, 7], [1, 2]],
    "all": [[{"id": 8, "children": [[0, 1], [1, 1, 0]]}],
            [{"id": 6, "children": [[0, 1]]}, {"id": 7, "children": [[1], [0, 0]]}],
            [{"id": 1}, {"id": 2}]]}"#;

#[test]
fn samples_are_shown_and_counted() {
    let dir = folder(&[("small.json", GRAMMAR)]);
    let dir = dir.path();
    let mut snapshots: Vec<(String, String)> = Vec::new();
    for (task, set) in SMALL {
        // Skip texts: they are long, and would be shown a second time as bytes.
        if !["capo", "multihop"].contains(&task) {
            let line = format!("data generate {task} {set} --count 2");
            snapshots.push((line.to_string(), run_line(dir, &line).text(dir)));
        }
        for line in [
            format!("data inspect {task} {set} --count 2 --seed 7"),
            format!("data stats {task} {set} --count 50"),
        ] {
            snapshots.push((line.to_string(), run_line(dir, &line).text(dir)));
        }
    }
    let json = "data stats depo --set N=4 --set K=2 --set mini_vocab=3 --set min_tlen=1 \
                --set max_tlen=2 --count 50 --json";
    snapshots.push((json.to_string(), run_line(dir, json).text(dir)));
    support::assert_cases!("tests/cli", "samples_are_shown_and_counted", snapshots);
    assert_eq!(SMALL.map(|(task, _)| task).as_slice(), task::names());
}

#[test]
fn indexed_samples_do_not_depend_on_the_range() {
    let dir = folder(&[("small.json", GRAMMAR)]);
    let dir = dir.path();
    for (task, set) in SMALL {
        let generated = |from: u64, count: u64| {
            let what = format!("--order indexed --from {from} --count {count}");
            let ran = run_line(dir, &format!("data generate {task} {set} {what}"));
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            ran.stdout
        };
        assert_eq!(
            generated(0, 8),
            generated(0, 3) + &generated(3, 1) + &generated(4, 4),
            "{task}"
        );
        assert_ne!(generated(0, 8), generated(1 << 40, 8), "{task}");
    }
    let shown =
        run_line(dir, "data inspect mano --set L=3 --order indexed --from 18446744073709551610");
    assert!(shown.stdout.starts_with("mano sample 18446744073709551610: "), "{}", shown.stdout);
    let inspected =
        run_line(dir, "data inspect lano --set grammar=@small.json --order indexed --from 9");
    let tokens = run_line(
        dir,
        "data generate lano --set grammar=@small.json --order indexed --from 9 --count 1",
    );
    let count = tokens.stdout.matches(',').count() + 1;
    assert!(inspected.stdout.starts_with(&format!("lano sample 9: {count} tokens\n")));
}

#[test]
fn formats_follow_the_files_name() {
    let dir = folder(&[]);
    let dir = dir.path();
    for (name, start) in
        [("a.parquet", b"PAR1"), ("a.bin", b"\x05\0\0\0"), ("a.jsonl", b"{\"to"), ("a", b"{\"to")]
    {
        let ran = run_line(
            dir,
            &format!("data generate mano --set L=1 --set lens=[1] --count 2 --out {name}"),
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let bytes = fs::read(dir.join(name)).unwrap();
        assert!(bytes.starts_with(start) || name == "a.bin" && bytes[0] == 7, "{name}: {bytes:?}");
    }
    let asked = run_line(dir, "data generate mano --set L=1 --count 2 --format bin --out b.jsonl");
    assert!(asked.stderr.starts_with("`b.jsonl`: 2 samples, "), "{}", asked.stderr);
    assert!(fs::read(dir.join("b.jsonl")).unwrap().ends_with(b"\0\0"));
}

/// Lines after `data generate` that are refused; `DEPO` stands for its required parameters.
const HOSTILE: &[&str] = &[
    "deop --set N=3",
    "DEPO --set N=2551",
    "DEPO --set N=2",
    "DEPO --set N=0",
    "DEPO --set N=12 --set K=9",
    "DEPO --set N=12 --set M=0",
    "DEPO --set N=12 --set QA=true --mode train",
    "depo --set N=12 --set K=500 --set mini_vocab=50 --set min_tlen=1 --set max_tlen=2",
    "depo --set N=12 --set K=0 --set mini_vocab=50 --set min_tlen=1 --set max_tlen=2",
    "depo --set N=12 --set K=2 --set mini_vocab=50 --set min_tlen=3 --set max_tlen=2",
    "brevo --set N=337 --set multi=true",
    "brevo --set N=9001",
    "brevo --set N=-3",
    "brevo --set N=99999999999999999999",
    "brevo --set N=1e3",
    "brevo --set N=many",
    "brevo --set n=12",
    "brevo --set N=12.0",
    "brevo --set brevo.N=12",
    "brevo --set data.brevo.N=12",
    "lano --set lano.config=cfg3f",
    "brevo --set N",
    "brevo --set =12",
    "brevo",
    "mano --set L=4 --set ttype=asmd --set value_mod=24",
    "mano --set L=40 --set ttype=d --set value_mod=5",
    "mano --set L=5 --set lens=[7]",
    "mano --set L=@",
    "mano --set L=4 --set ttype=",
    "mano --set L=4 --set value_mod=1",
    "mano --set L=4 --set lens=[]",
    "mano --set L=4 --set lens=[2,1,2]",
    "mano --set L=4 --set lens=[1,2] --set qids=[3,3]",
    "mano --set L=4 --set lens=[1,\"x\"]",
    "mano --set L=9223372036854775807",
    "lano",
    "lano --set config=cfg3z",
    "lano --set config=cfg3f --set grammar=@empty.json",
    "lano --set grammar=@cyclic.json",
    "lano --set grammar=@long.json",
    "lano --set grammar=@rulesless.json",
    "lano --set grammar=@empty.json",
    "lano --set grammar=@nothing.json",
    "lano --set grammar=@cut.json",
    "lano --set grammar=@deep.json",
    "lano --set grammar=@list.json",
    "lano --set grammar=@bytes.json",
    "lano --set grammar=@smal.json",
    "lano --set grammar=@.",
    "capo --set N=0",
    "capo --set N=10000001",
    "capo --set people_seed=-1",
    "capo --set pronoun=they",
    "multihop --set N=61 --set hops=1",
    "multihop --set N=5 --set hops=0",
    "multihop --set N=5 --set hops=999999",
    "multihop --set N=5 --set hops=1 --set M=200",
    "multihop --set N=5 --set hops=1 --set M=200 --set background=@blank.txt",
    "brevo --set N=12 --from 1",
    "brevo --set N=12 --seed -1",
    "brevo --set N=12 --count 0",
    "brevo --set N=12 --count 18446744073709551616",
    "brevo --set N=12 --out no/where.jsonl",
    "brevo --set N=12 --out .",
    "brevo --set N=12 --out a.parquet/",
    "brevo --set N=12 --out cut.json/",
    "brevo --set N=12 --out a.parquet/.",
    "brevo --set N=12 --out=",
    "brevo --set N=12 --order indexed --from 18446744073709551610 --count 10",
    "brevo --set N=12 --order indexed --from 18446744073709551615 --count 1",
    "brevo --set N=12 --order indexed --from 1 --count 18446744073709551615",
    "brevo --set N=12 --from 18446744073709551610 --count 10",
];

/// The small grammar with its first `from` replaced.
fn grammar(from: &str, to: &str) -> String {
    assert!(GRAMMAR.contains(from), "{from}");
    GRAMMAR.replacen(from, to, 1)
}

/// A grammar whose sentences double in size on each of 64 levels.
fn doubling_grammar() -> String {
    let level = |level: u32| match level {
        64 => r#"[{"id": 1}]"#.to_owned(),
        _ => format!(r#"[{{"id": {}, "children": [[0, 0]]}}]"#, 100 - level),
    };
    let all: Vec<String> = (0..=64).map(level).collect();
    let idx: Vec<String> =
        (0..=64).map(|level| format!("[{}]", if level == 64 { 1 } else { 100 - level })).collect();
    format!(
        r#"{{"depth": 64, "num_sym": 1, "sizes": {:?}, "idx": [{}], "all": [{}]}}"#,
        [1; 65],
        idx.join(","),
        all.join(",")
    )
}

#[test]
fn hostile_parameters_are_answered() {
    let cyclic = grammar(r#""children": [[0, 1]]}, {"id": 7"#, r#""children": [[2]]}, {"id": 7"#);
    let long = doubling_grammar();
    let dir = folder(&[
        ("cyclic.json", &cyclic),
        ("long.json", &long),
        ("rulesless.json", &grammar("[[0, 1], [1, 1, 0]]", "[]")),
        ("empty.json", "{}"),
        ("nothing.json", ""),
        ("cut.json", &GRAMMAR[..60]),
        ("deep.json", &"[".repeat(100_000)),
        ("list.json", "[1, 2]"),
        ("blank.txt", " \n\n"),
    ]);
    let dir = dir.path();
    fs::write(dir.join("bytes.json"), b"{\"depth\": \"\xff\"}").unwrap();
    let mut snapshots: Vec<(String, String)> = Vec::new();
    let depo = "depo --set K=8 --set mini_vocab=50 --set min_tlen=1 --set max_tlen=2";
    for line in HOSTILE {
        let line = line.replace("DEPO", depo);
        let count = if line.contains("--count") { "" } else { " --count 1" };
        let ran = run_line(dir, &format!("data generate {line}{count}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{line}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.len() < 600, "{}", ran.stderr);
        snapshots.push((line, ran.stderr));
    }
    support::assert_cases!("tests/cli", "hostile_parameters_are_answered", snapshots);
    for command in ["inspect", "stats"] {
        let line = format!(
            "data {command} mano --set L=3 --order indexed --from {} --count 3",
            u64::MAX - 2
        );
        let ran = run_line(dir, &line);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{line}: {}", ran.stderr);
        let message = format!("from is {} and count 3, but", u64::MAX - 2);
        assert!(ran.stderr.contains(&message) && ran.stderr.contains("help: "), "{}", ran.stderr);
    }
    // Nothing was written, not even partly.
    assert_eq!(fs::read_dir(dir).unwrap().count(), 10);
}

#[test]
fn parameters_that_the_published_code_accepts_are_accepted() {
    let dir = folder(&[]);
    // More hops and more questions than names; as many names as possible.
    let around = "data inspect depo --set N=3 --set K=499 --set M=65536 --set mini_vocab=1 \
                  --set min_tlen=1 --set max_tlen=3 --mode test";
    let ran = run_line(dir.path(), around);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout.matches("(right)").count(), 3, "{}", ran.stdout);
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let dir = folder(&[]);
    let line = ["data", "generate", "mano", "--set", "L=3", "--count", "18446744073709551615"];
    let mut child = command(dir.path(), &line).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("{\"tokens\":["), "{first}");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[cfg(unix)]
#[test]
fn an_interrupted_output_file_is_left_unchanged() {
    let before = "{\"tokens\":[1]}\n";
    let dir = folder(&[("old.jsonl", before)]);
    let dir = dir.path();
    // The existing file may be somebody's corpus, so it is never overwritten.
    let ran = canonc(dir, &["data", "generate", "mano", "--count", "1", "--out", "old.jsonl"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    for out in ["new.jsonl", "new.parquet"] {
        let line = [
            "data",
            "generate",
            "mano",
            "--set",
            "L=3",
            "--count",
            "18446744073709551615",
            "--out",
            out,
        ];
        let mut child = command(dir, &line).spawn().unwrap();
        // The new file is written in the same folder; by then signals are handled.
        let begun = || {
            let mut entries = fs::read_dir(dir).unwrap().flatten();
            entries.any(|entry| entry.file_name().to_string_lossy().starts_with(".unfinished-"))
        };
        while !begun() {
            assert!(child.try_wait().unwrap().is_none(), "it has ended");
            std::thread::yield_now();
        }
        let kill =
            std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        assert!(
            stderr.starts_with("error: interrupted after ") && stderr.contains("is unchanged"),
            "{stderr}"
        );
        assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(dir.join("old.jsonl")).unwrap(), before);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_no_finished_file() {
    let dir = folder(&[]);
    for format in ["jsonl", "bin", "parquet"] {
        let line = format!(
            "data generate mano --set L=3 --count 100000 --format {format} --out /dev/full"
        );
        let ran = run_line(dir.path(), &line);
        assert_eq!(ran.code, 3);
        assert_eq!(ran.stderr, "error: `/dev/full` cannot be written: the disk is full\n");
    }
    // A device is written to, not replaced.
    assert_eq!(
        run_line(dir.path(), "data generate mano --set L=3 --count 9 --out /dev/null").code,
        0
    );
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

/// Writes more bytes than its memory limit.
#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_count() {
    let dir = folder(&[]);
    let generate = "data generate capo --set N=100 --count 400000 --format bin --out /dev/null";
    let script = format!("ulimit -d 500000 && exec \"$0\" {generate}");
    let output = std::process::Command::new("sh")
        .current_dir(dir.path())
        .args(["-c", &script, env!("CARGO_BIN_EXE_canonc")])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let bytes = stderr.split(", ").last().unwrap().trim_end_matches(" bytes\n").replace(',', "");
    assert!(bytes.parse::<u64>().unwrap() > 500_000 * 1024, "{stderr}");
}

#[test]
fn help_lists_every_parameter() {
    let help = run_line(&root(), "data generate --help").stdout;
    for task in task::names() {
        let asked = run_line(&root(), &format!("data generate {task} --set x=1 --count 1")).stderr;
        let names: Vec<&str> = asked.split('`').skip(1).step_by(2).collect();
        let line = help.lines().find(|line| line.starts_with(&format!("  {task} "))).unwrap();
        // Backticks also enclose the unknown name, the task and the help.
        let names = names.iter().filter(|name| !["x", task].contains(name) && !name.contains(' '));
        let mut listed = 0;
        for name in names {
            assert!(line.contains(name), "{task}: {name} is not in {line}");
            listed += 1;
        }
        let parameters = task::Definition::find(task).unwrap().parameters;
        assert!(listed >= parameters.len(), "{asked}");
    }
    // Grammars have names that can be typed.
    let Kind::Word(configs, _) = find("data.lano.config").unwrap().kind else { panic!() };
    for config in configs {
        let mut words = help.split(|c: char| !c.is_ascii_alphanumeric());
        assert!(words.any(|word| word == *config), "{config} is not listed");
    }
}
