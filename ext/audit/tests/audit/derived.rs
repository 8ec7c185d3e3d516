//! Columns that follow from keys, empty cells as Python and YAML write them, and evaluations.

use audit::vocabularies::LINGUA;
use audit::{AuditReport, Experiment, Findings, Names, Rules, Severity, audit, subjects, table};

fn audited(experiments: &[Experiment]) -> AuditReport {
    audit(&subjects(experiments), &Rules::default(), Findings::default())
}

fn yaml(name: &str, keys: &[(&str, &str)]) -> Experiment {
    let keys = keys.iter().zip(1..).map(|((key, cell), line)| (line, *key, *cell));
    Experiment::of_keys(name, "a.yaml", &Names::of_vocabulary(&LINGUA), keys).unwrap()
}

fn rows(columns: &[(&str, &str)]) -> Vec<Experiment> {
    let heads: Vec<&str> = columns.iter().map(|(key, _)| *key).collect();
    let cells: Vec<&str> = columns.iter().map(|(_, cell)| *cell).collect();
    table("a.tsv", &format!("model\t{}\na\t{}\n", heads.join("\t"), cells.join("\t"))).unwrap()
}

fn messages(report: &AuditReport, rule: &str) -> Vec<String> {
    let findings = report.findings.iter().filter(|(_, finding)| finding.rule == rule);
    findings.map(|(_, finding)| finding.message.clone()).collect()
}

const KEYS: [(&str, &str); 7] = [
    ("batch.sequences", "8"),
    ("data.seq_len", "16"),
    ("gpus", "4"),
    ("steps", "100"),
    ("schedule.warmup", "10"),
    ("optim.lr", "0.001"),
    ("optim.weight_decay", "0.1"),
];

/// Every derived column: its correct value, and the message for a wrong one.
#[test]
fn derived_columns_are_held_to_their_keys() {
    for (column, right, wrong) in [
        ("schedule.warmup_share", "0.1", "0.9"),
        ("warmup_frac", "0.1", "0.9"),
        ("batch.tokens_per_step", "512", "1024"),
        ("tokens_per_step", "512", "1024"),
        ("budget.tokens", "51200", "99999"),
        ("tokens_total", "51200", "99999"),
        ("optimizer.lr_wd_steps", "0.01", "0.02"),
        ("lr_x_wd_x_steps", "0.01", "0.02"),
        ("warmup_tokens", "5120", "10"),
        ("seqs_per_step", "32", "8"),
    ] {
        for (value, is_wrong) in [(right, false), (wrong, true)] {
            let keys = [&KEYS[..], &[(column, value)]].concat();
            for set in [vec![yaml("a", &keys)], rows(&keys)] {
                let report = audited(&set);
                let messages = messages(&report, "reported");
                assert_eq!(!messages.is_empty(), is_wrong, "{column} {value}: {messages:?}");
                if is_wrong {
                    assert!(report.fails());
                    let both = [column, wrong, right];
                    let line = messages.join("; ");
                    assert!(both.iter().all(|word| line.contains(word)), "{line}");
                }
            }
        }
    }
    // Without the keys the column cannot be checked, and twins that differ in it differ in the key.
    let text = "model\tschedule.warmup_share\tmodel.canon_set\nrun\t0.1\t\nruncanon\t0.9\tABCD\n";
    let report = audited(&table("a.tsv", text).unwrap());
    assert_eq!(messages(&report, "reported"), Vec::<String>::new());
    assert_eq!(messages(&report, "twin-training").len(), 1, "{:?}", report.findings);
}

#[test]
fn defaults_are_not_a_difference_however_they_are_written() {
    let base = [
        ("model.model_name", "llama"),
        ("model.dim", "64"),
        ("model.n_heads", "4"),
        ("optim.lr", "1e-3"),
    ];
    for (key, value) in [
        ("model.rope_theta", "10000"),
        ("model.n_kv_heads", "4"),
        ("model.rope_dim", "16"),
        ("model.n_kv_heads", "None"),
        ("model.n_kv_heads", "null"),
        ("model.sliding_window", "None"),
        ("model.sliding_window", "null"),
        ("model.qk_norm", "FALSE"),
        ("model.weight_tying", "False"),
        ("data.add_bos", "True"),
        ("model.model_name", "LLAMA"),
        ("model.model_name", "Llama"),
    ] {
        let mut keys = base.to_vec();
        keys.retain(|(other, _)| *other != key);
        keys.extend([(key, value), ("model.canon_set", "ABCD")]);
        let report = audited(&[yaml("run", &base), yaml("runcanon", &keys)]);
        let rules: Vec<_> = report
            .findings
            .iter()
            .filter(|(details, _)| details.severity > Severity::Note)
            .collect();
        assert!(rules.is_empty(), "{key} {value}: {rules:?}");
        assert_eq!(report.clean.len(), 1, "{key} {value}");
    }
}

#[test]
fn a_column_canon_alone_identifies_treated_experiments() {
    let audit_of = |text: &str| audited(&table("a.tsv", text).unwrap());
    let report = audit_of("model\tcanon\toptim.lr\nllama\tno\t1\nllamacanon\tyes\t1\n");
    assert_eq!(messages(&report, "reported"), Vec::<String>::new());
    assert_eq!((report.pairs.len(), report.clean.len(), report.fails()), (1, 1, false));
    let report = audit_of("model\tcanon\nllama\tFALSE\nllamacanon\tFALSE\n");
    assert_eq!(messages(&report, "name-canon").len(), 1);
    // With a column of slots, this one is checked against it.
    let report = audit_of("model\tcanon\tmodel.canon_set\nllama\tyes\t\n");
    assert_eq!(messages(&report, "reported").len(), 1);
}

/// Two arms that are both treated, or neither: how the treatment differs is a difference like any other.
#[test]
fn a_difference_in_the_treatment_of_both_arms_is_seen() {
    let audit_of = |text: &str| audited(&table("a.tsv", text).unwrap());
    for (a, b) in [("ABCD", "A"), ("A", "ABCD"), ("yes", "A")] {
        let alone = audit_of(&format!("model\tarch.canon\toptim.lr\nx\t{a}\t1\ny\t{b}\t1\n"));
        assert_eq!(alone.pairs.len(), 1, "{a} {b}");
        assert_eq!(messages(&alone, "one-change").len(), 1, "{a} {b}: {:?}", alone.findings);
        let two = audit_of(&format!("model\tarch.canon\toptim.lr\nx\t{a}\t1\ny\t{b}\t2\n"));
        assert_eq!(messages(&two, "twin-training").len(), 2, "{a} {b}: {:?}", two.findings);
        assert!(two.fails() && two.clean.is_empty());
    }
    for (key, a, b) in [("arch.canon.kernel", "3", "4"), ("arch.canon.bias", "true", "false")] {
        let text =
            |lr| format!("model\tarch.canon\t{key}\toptim.lr\nx\tAC\t{a}\t1\ny\tAC\t{b}\t{lr}\n");
        assert_eq!(messages(&audit_of(&text(1)), "one-change").len(), 1, "{key}");
        assert_eq!(messages(&audit_of(&text(2)), "twin-training").len(), 2, "{key}");
    }
    // Settings that only one arm has because of its slots come with them.
    let text =
        "model\tarch.canon\tarch.canon.kernel.A\tarch.canon.kernel.B\nx\tAB\t4\t4\ny\tA\t4\t\n";
    assert_eq!(messages(&audit_of(text), "one-change").len(), 1, "{:?}", audit_of(text).findings);
    let equal = audit_of("model\tarch.canon\toptim.lr\nx\tA\t1\ny\tA\t1\n");
    assert!(equal.pairs.is_empty());
}

/// Columns with names of derived quantities: a difference that no key explains, and a contradiction with the keys.
#[test]
fn derived_columns_decide() {
    let pair = |key: &str, a: &str, b: &str, more: &str| {
        let columns: Vec<&str> = more.split(' ').filter(|m| !m.is_empty()).collect();
        let names: String =
            columns.iter().map(|m| format!("\t{}", m.split_once('=').unwrap().0)).collect();
        let cells = |at: usize| -> String {
            let cell =
                |m: &&str| m.split_once('=').unwrap().1.split('|').nth(at).unwrap().to_owned();
            columns.iter().map(|m| format!("\t{}", cell(m))).collect()
        };
        let text = format!(
            "model\tarch.canon\t{key}{names}\nx\t\t{a}{}\nxcanon\tABCD\t{b}{}\n",
            cells(0),
            cells(1)
        );
        audited(&table("a.tsv", &text).unwrap())
    };
    for (key, a, b, rule) in [
        ("data.epochs", "1", "2", "twin-data"),
        ("data.tokens", "1000", "2000", "twin-data"),
        ("budget.flops", "1e20", "2e20", "twin-budget"),
        ("arch.parameters", "1e9", "2e9", "twin-training"),
        ("arch.train_flops_per_token", "1e9", "2e9", "twin-training"),
        ("arch.seq_len", "4096", "8192", "twin-data"),
    ] {
        let report = pair(key, a, b, "");
        assert_eq!(messages(&report, rule).len(), 1, "{key}: {:?}", report.findings);
        assert!(report.fails() && report.clean.is_empty(), "{key}");
        assert_eq!(pair(key, a, a, "").clean.len(), 1, "{key}");
    }
    // The treatment costs a little; more tokens and another arch cost more, and have keys of their own.
    assert_eq!(pair("budget.flops", "1e20", "1.01e20", "").clean.len(), 1);
    assert_eq!(pair("arch.parameters", "1e9", "1.01e9", "").clean.len(), 1);
    let wider = pair("arch.parameters", "1e9", "2e9", "arch.dim=512|1024");
    assert_eq!(messages(&wider, "twin-training").len(), 1, "{:?}", wider.findings);
    let tokens = pair("budget.flops", "1e20", "2e20", "budget.tokens=1000|2000");
    assert_eq!(messages(&tokens, "twin-budget").len(), 1, "{:?}", tokens.findings);
    let unlike = pair("budget.flops", "1e20", "2e20", "budget.tokens=1000|1000");
    assert_eq!(messages(&unlike, "twin-budget").len(), 1, "{:?}", unlike.findings);
    let contradiction = pair("arch.seq_len", "4096", "4096", "data.seq_len=8192|8192");
    assert_eq!(messages(&contradiction, "reported").len(), 1, "{:?}", contradiction.findings);
    let epochs = pair("data.epochs", "3", "3", "budget.tokens=1000|1000 data.tokens=500|500");
    assert_eq!(messages(&epochs, "reported").len(), 1, "{:?}", epochs.findings);
}

/// Scores of two evaluations cannot be compared; no weight depends on them, so the pair stays clean.
#[test]
fn other_evaluations_are_a_warning() {
    for (key, one, two) in [
        ("eval.generator.dtype", "bf16", "fp32"),
        ("eval.generator.max_tokens", "1024", "2048"),
        ("eval.generator.temperature", "0", "0.5"),
        ("eval.harness.num_fewshot", "0", "5"),
        ("eval.harness.tasks", "hellaswag", "hellaswag,piqa"),
        ("eval.harness.of_my_own", "0", "5"),
    ] {
        let arm = |name, value, canon| yaml(name, &[(key, value), ("model.canon_set", canon)]);
        let report = audited(&[arm("run", one, ""), arm("runcanon", two, "ABCD")]);
        let finding = report.findings.iter().find(|(_, finding)| finding.rule == "twin-evaluation");
        let (details, _) = finding.unwrap_or_else(|| panic!("{key}: {:?}", report.findings));
        assert_eq!((details.severity, report.clean.len()), (Severity::Warning, 1), "{key}");
        assert!(!report.fails());
    }
}
