//! Confounds put into every key of configurations and tables, unknown keys, and columns that repeat a key.

use std::collections::BTreeSet;

use audit::keys::{self, CANON};
use audit::vocabularies::LINGUA;
use audit::{
    AuditReport, Experiment, Findings, KeyValue, Names, Rules, audit, rules, subjects, table,
};
use lab::field::{Absent, Class, FieldDef, Kind, Origin, Topic};

fn audited(set: &[Experiment]) -> AuditReport {
    audit(&subjects(set), &Rules::default(), Findings::default())
}

/// A configuration such as the release's, without what a test plants.
const KEYS: &[(&str, &str)] = &[
    ("steps", "240000"),
    ("grad_acc_steps", "1"),
    ("seed", "777"),
    ("model.dim", "2048"),
    ("model.n_layers", "24"),
    ("model.n_heads", "32"),
    ("optim.lr", "0.002"),
    ("optim.weight_decay", "0.02"),
    ("optim.warmup", "8000"),
    ("data.batch_size", "8"),
    ("data.seq_len", "4096"),
    ("data.sources.books", "0.5"),
    ("data.sources.web", "0.5"),
    ("data.tokenizer.name", "sp"),
    ("gpus_from_comment", "128"),
];

/// A value that differs from every default and every key above.
fn planted_value(row: &FieldDef) -> &'static str {
    match (row.kind, row.absent) {
        (_, Absent::Is("true") | Absent::Default("true")) => "false",
        (Kind::Bool, _) | (_, Absent::Is("false")) => "true",
        (Kind::Int(..) | Kind::Real(_) | Kind::IntOr(..) | Kind::RealOr(..) | Kind::Seed, _) => "3",
        _ if ["arch.canon", "reported.canon"].contains(&row.path) => "AB",
        _ => "another",
    }
}

/// The names under which a file may write a row.
fn names(row: &FieldDef) -> Vec<String> {
    let all = row.foreign.iter().copied().chain([row.path]);
    let mut names: Vec<String> = all
        .filter(|name| !name.starts_with("lingua.") || !name.ends_with('*'))
        .map(|name| name.strip_suffix('*').map_or(name.to_owned(), |start| format!("{start}any")))
        .collect();
    if names.is_empty() {
        names.push(row.path.to_owned());
    }
    names
}

fn lingua() -> Names {
    Names::of_vocabulary(&LINGUA)
}

fn as_configuration(name: &str, keys: &[(&str, &str)]) -> Experiment {
    Experiment::of_keys(
        name,
        "x.yaml",
        &lingua(),
        keys.iter().map(|(key, value)| (1, *key, *value)),
    )
    .unwrap()
}

/// Both arms as rows of one table.
fn as_table(arms: [&[(&str, &str)]; 2]) -> Vec<Experiment> {
    let columns: BTreeSet<&str> =
        arms.iter().flat_map(|keys| keys.iter().map(|(key, _)| *key)).collect();
    let mut text = format!("model\t{}\n", columns.iter().copied().collect::<Vec<_>>().join("\t"));
    for (name, keys) in ["run", "runcanon"].into_iter().zip(arms) {
        let cell =
            |column: &&str| keys.iter().find(|(key, _)| key == column).map_or("", |(_, v)| *v);
        text += &format!("{name}\t{}\n", columns.iter().map(cell).collect::<Vec<_>>().join("\t"));
    }
    table("x.tsv", &text).unwrap()
}

#[test]
fn a_confound_in_any_key_is_seen_in_configurations_and_tables() {
    let canon = ("model.canon_set", "ABCD");
    let mut asked = 0;
    for row in keys::rows() {
        let derived = row.origin == Origin::Derived && row.instead.is_none();
        let idle =
            row.only.is_some_and(|(on, words)| on == "schedule.kind" && !words.contains(&"cosine"));
        if derived || idle || row.path.starts_with(CANON) || row.path.starts_with("arch.canon") {
            continue;
        }
        // `model.canon_set` gives both.
        let canon = if row.path == "arch.mixer.short_conv" { (CANON, "ABCD") } else { canon };
        for key in names(row) {
            let value = planted_value(row);
            let without =
                |k: &&(&str, &str)| keys::known(k.0).is_none_or(|known| known.path != row.path);
            let plain: Vec<_> = KEYS.iter().filter(without).copied().collect();
            // The key in one arm only; then two different values.
            let second = if value == "3" { "5" } else { "something" };
            let mut cases = vec![(plain.clone(), value)];
            // Shares are relative to their sum, so one source has one share.
            if (value == "3" || value == "another") && row.path != "data.sources.*" {
                let mut with = plain.clone();
                with.push((key.as_str(), second));
                cases.push((with, value));
            }
            for (first, value) in cases {
                let mut arm = plain.clone();
                arm.extend([(key.as_str(), value), canon]);
                let configurations =
                    vec![as_configuration("run", &first), as_configuration("runcanon", &arm)];
                let rows = as_table([&first, &arm]);
                for (kind, set) in [("configuration", configurations), ("table", rows)] {
                    let report = audited(&set);
                    let what = || format!("{key} = {value} in a {kind}: {:?}", report.findings);
                    assert_eq!(report.pairs.len(), 1, "{}", what());
                    // Columns are checked against the keys, or against the other arm's if those are missing.
                    if row.topic != Topic::Reported {
                        // Where no digest identifies the data, the number of its tokens does.
                        let decides = row.topic.decides()
                            || row.class == Class::Measured
                            || row.path == "data.tokens";
                        let spoilt = decides || row.topic == Topic::Revision;
                        assert_eq!(report.clean.is_empty(), spoilt, "{}", what());
                        assert_eq!(report.fails(), decides, "{}", what());
                    }
                    asked += 1;
                }
            }
        }
    }
    assert!(asked > 600, "{asked}");
}

#[test]
fn differences_in_unknown_keys_are_reported_and_equal_values_are_not() {
    for key in ["my.flag", "optim.lrr", "data.shuffle_seed", "env.NVIDIA_TF32_OVERRIDE", "remark"] {
        let mut first = KEYS.to_vec();
        first.push((key, "x"));
        let mut arm = first.clone();
        arm.push(("model.canon_set", "ABCD"));
        let equal = audited(&as_table([&first, &arm]));
        assert!(!equal.fails() && equal.clean.len() == 1 && equal.unknown.len() == 1, "{key}");
        let last = arm.len() - 2;
        arm[last].1 = "y";
        for set in [
            vec![as_configuration("run", &first), as_configuration("runcanon", &arm)],
            as_table([&first, &arm]),
        ] {
            let report = audited(&set);
            let ids: Vec<&str> = report.findings.iter().map(|(_, f)| f.rule.as_str()).collect();
            assert!(
                ids.contains(&"unknown-key") && report.fails() && report.clean.is_empty(),
                "{key}"
            );
            // A rule can declare the key's topic.
            let rules = rules(&format!("[keys]\n\"{key}\" = \"setup\"\n")).unwrap();
            let mut set = set;
            set.iter_mut().for_each(|experiment| experiment.declare(&rules.keys));
            let report = audit(&subjects(&set), &rules, Findings::default());
            assert!(!report.fails() && report.clean.len() == 1, "{key}: {:?}", report.findings);
        }
    }
    // A null value is not ignored.
    let null = as_configuration("run", &[("my.flag", "null")]);
    assert!(null.unknown.contains("my.flag"));
    assert_eq!(null.values["my.flag"], KeyValue::text("null"));
}

#[test]
fn columns_that_repeat_a_key_replace_a_missing_key() {
    let canon = ("model.canon_set", "ABCD");
    for (key, one, two) in [
        ("seqs_per_step", "128", "256"),
        ("warmup_tokens_B", "25.17", "33.55"),
        ("warmup_tokens_M", "25", "33"),
        ("tokens_total", "1000", "2000"),
        ("tokens_per_step", "1000", "2000"),
        ("lr_x_wd", "4e-5", "2e-5"),
        ("size", "1B", "3B"),
        ("family", "MyNet", "YourNet"),
        ("rope_fraction", "1.0", "0.25"),
        ("head_dim_derived", "64", "128"),
    ] {
        let report = audited(&as_table([&[(key, one)], &[(key, two), canon]]));
        assert!(report.fails() && report.clean.is_empty(), "{key}: {:?}", report.findings);
        let same = audited(&as_table([&[(key, one)], &[(key, one), canon]]));
        assert!(!same.fails() && same.clean.len() == 1, "{key}: {:?}", same.findings);
    }
    // A value that does not follow from the keys is an error, in one arm or in both.
    for (key, lie) in [
        ("seqs_per_step", "7"),
        ("warmup_tokens_B", "7"),
        ("tokens_total_T", "7"),
        ("tokens_claim", "7T"),
        ("lr_claim", "0.7"),
        ("n_evals", "7"),
        ("canon", "1"),
        ("family", "GLA5"),
        ("checkpoint_every_tokens_B", "7"),
    ] {
        let keys: Vec<_> = KEYS
            .iter()
            .copied()
            .chain([("checkpoint.dump.every", "1000"), ("checkpoint.eval.every", "1000")])
            .chain([("model.model_name", "Llama"), (key, lie)])
            .collect();
        let arm = keys.iter().map(|(k, v)| (*k, if *k == "canon" { "0" } else { *v }));
        let arm: Vec<_> = arm.chain([canon]).collect();
        let report = audited(&as_table([&keys, &arm]));
        let errors = report
            .findings
            .iter()
            .filter(|(_, f)| f.rule == "reported" && f.occurrences.len() == 2);
        let twice = if key == "canon" {
            report.findings.iter().filter(|(_, f)| f.rule == "reported").count() == 2
        } else {
            errors.count() == 1
        };
        assert!(twice, "{key}: {:?}", report.findings);
    }
}
