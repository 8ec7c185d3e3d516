//! `canonc show`.

use crate::{GOOD, canonc, folder, has, root};

#[test]
fn architectures() {
    for name in ["llamacanon_1B", "gla5canon_1B", "hybridcanon_tiny"] {
        let ran = canonc(&root(), &["show", &format!("arch/{name}.canon")]);
        insta::assert_snapshot!(name, ran.text(&root()));
    }
}

#[test]
fn several_archs_in_one_file() {
    let two = format!("{GOOD}\narch other = good with {{ canon A }}\n");
    let dir = folder(&[("two.canon", &two)]);
    let both = canonc(dir.path(), &["show", "two.canon"]);
    let named = canonc(dir.path(), &["show", "two.canon", "--arch", "other"]);
    assert_eq!((both.code, named.code), (0, 0));
    assert!(both.stdout.starts_with("good ") && both.stdout.contains("\nother "));
    assert!(both.stdout.ends_with(&named.stdout));
    let none = canonc(dir.path(), &["show", "two.canon", "--arch", "otter"]);
    insta::assert_snapshot!("no_such_arch", none.text(dir.path()));
}

/// `FILE.canon#NAME`, as recipes write it, wherever a file with archs is named.
#[test]
fn one_arch_of_a_file_is_named_as_in_recipes() {
    let two = format!("{GOOD}\narch other = good with {{ canon A }}\n");
    let dir = folder(&[("two.canon", &two)]);
    let named = canonc(dir.path(), &["show", "two.canon", "--arch", "other"]);
    assert_eq!(canonc(dir.path(), &["show", "two.canon#other"]).stdout, named.stdout);
    for command in ["show", "graph", "check", "build"].into_iter().filter(|line| has(line)) {
        let ran = canonc(dir.path(), &[command, "two.canon#other"]);
        assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
        let ran = canonc(dir.path(), &[command, "two.canon#otter"]);
        assert_eq!(ran.code, 2, "{command}: {}", ran.stdout);
        assert!(ran.stderr.contains("it defines `good`, `other`"), "{command}: {}", ran.stderr);
    }
    let locks = std::fs::read_dir(dir.path().join("lockfiles")).unwrap();
    let names: Vec<_> = locks.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["other.lock"]);
    let ran = canonc(dir.path(), &["show", "two.canon#other", "--arch", "good"]);
    assert!(ran.code == 2 && ran.stderr.contains("but --arch names `good`"), "{}", ran.stderr);
    // A file with such a name is that file.
    std::fs::write(dir.path().join("odd.canon#other"), "").unwrap();
    let ran = canonc(dir.path(), &["check", "odd.canon#other"]);
    assert!(!ran.stderr.contains("cannot find"), "{}", ran.stderr);
}

#[test]
fn json_adds_up() {
    for name in ["llamacanon_1B", "gdn2canon_tiny", "hybridcanon_tiny", "mamba2_1B"] {
        let ran = canonc(&root(), &["show", "--json", &format!("arch/{name}.canon")]);
        let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(value["schema"], "canonc.show.v1");
        let arch = &value["archs"][0];
        let tables = arch["tables"].as_array().unwrap();
        let times = |table: &serde_json::Value| {
            table["layers"].as_array().map_or(1, |layers| layers.len() as i64)
        };
        let sum = |column: &str, field: &str| -> i64 {
            let rows_sum = |table: &serde_json::Value| -> i64 {
                let rows = table[column].as_array().unwrap();
                rows.iter().map(|row| row[field].as_i64().unwrap()).sum()
            };
            tables.iter().map(|table| times(table) * rows_sum(table)).sum()
        };
        assert_eq!(sum("parameters", "count"), arch["parameters"]["total"], "{name}");
        assert_eq!(sum("state", "elements"), arch["state"]["per_sequence"], "{name}");
        assert_eq!(sum("state", "per_token"), arch["state"]["per_token"], "{name}");
        assert_eq!(ran.code, 0);
    }
}

#[test]
fn shared_layers_count_once() {
    let shared = GOOD.replace("2 of decoder", "2 of share decoder");
    let dir = folder(&[("shared.canon", &shared)]);
    insta::assert_snapshot!(canonc(dir.path(), &["show", "shared.canon"]).text(dir.path()));
}

#[test]
fn standard_definitions() {
    insta::assert_snapshot!("canon", canonc(&root(), &["show", "canon"]).text(&root()));
    // After the definitions come the primitives, one line each, with the words of their own files.
    let all = canonc(&root(), &["show", "std"]).text(&root());
    let (definitions, primitives) = all.split_once("primitives\n").unwrap();
    insta::assert_snapshot!("std", definitions);
    let mut lines = primitives.lines();
    for (primitive, line) in compiler::op::ALL.iter().zip(lines.by_ref()) {
        let (name, doc) = line.trim_start().split_once(' ').unwrap();
        assert_eq!((name, doc.trim_start()), (primitive.name, primitive.doc));
    }
    assert_eq!(lines.next(), Some("--- stderr"));
    for (name, file) in [("attention", "attention"), ("decoder", "decoder"), ("lingua", "init")] {
        let ran = canonc(&root(), &["show", name]);
        let file = format!("std/{file}.canon");
        let (heading, text) = ran.stdout.split_once('\n').unwrap();
        assert_eq!((ran.code, heading.to_owned()), (0, format!("// {file}")));
        // A primitive of the same name is shown below.
        let text = text.split("\nprimitive ").next().unwrap();
        let source = std::fs::read_to_string(root().join(&file)).unwrap();
        assert!(text.starts_with("/// ") && source.contains(text.trim_end()), "{text}");
    }
}

#[test]
fn a_name_after_std_is_that_name() {
    let alone = canonc(&root(), &["show", "attention"]);
    assert_eq!(canonc(&root(), &["show", "std", "attention"]).stdout, alone.stdout);
    let ran = canonc(&root(), &["show", "std", "atention"]);
    assert!(ran.code == 2 && ran.stderr.contains("`canonc show attention`"), "{}", ran.stderr);
    let ran = canonc(&root(), &["show", "attention", "gla"]);
    assert!(ran.code == 2 && ran.stderr.contains("one file or name"), "{}", ran.stderr);
}

#[test]
fn unknown_names() {
    let dir = folder(&[]);
    for name in ["atention", "xyzzy"] {
        insta::assert_snapshot!(name, canonc(dir.path(), &["show", name]).text(dir.path()));
    }
    let json = canonc(dir.path(), &["show", "--json", "attention"]);
    insta::assert_snapshot!("name_as_json", json.text(dir.path()));
}

/// The table of docs/scale.md is what its command prints.
#[test]
fn the_documented_table_of_locks_is_the_commands() {
    let docs = std::fs::read_to_string(root().join("docs/scale.md")).unwrap();
    let command =
        docs.lines().find_map(|line| line.strip_prefix("canonc show lockfiles ")).unwrap();
    let words: Vec<&str> = ["show", "lockfiles"].into_iter().chain(command.split(' ')).collect();
    let ran = canonc(&root(), &words);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let (_, after) = docs.split_once("<!-- table -->\n").unwrap();
    let (table, _) = after.split_once("<!-- end -->").unwrap();
    assert!(table == ran.stdout, "put this between the marks of docs/scale.md:\n{}", ran.stdout);
    // Each of the 64 locks of the release is in a row.
    let counted = |row: &str| -> u32 {
        let cell = row.split('|').nth(1).unwrap();
        let counts = cell.split('(').skip(1).map(|rest| rest.split(')').next().unwrap());
        counts.map(|count| count.parse::<u32>().unwrap()).sum()
    };
    assert_eq!(ran.stdout.lines().skip(2).map(counted).sum::<u32>(), 64);
}
