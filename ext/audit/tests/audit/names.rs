//! Every word of a name is checked against the experiment.

use audit::{AuditReport, Findings, Rules, audit, subjects, table};

fn audited(text: &str) -> AuditReport {
    audit(&subjects(&table("t.tsv", text).unwrap()), &Rules::default(), Findings::default())
}

/// Findings of rules about names.
fn name_findings(text: &str) -> Vec<(String, String)> {
    let report = audited(text);
    let findings = report.findings.iter().map(|(_, finding)| finding);
    let of_names = findings.filter(|finding| finding.rule.starts_with("name-"));
    of_names.map(|finding| (finding.rule.clone(), finding.message.clone())).collect()
}

#[test]
fn a_name_agrees_with_the_filled_slots() {
    for (name, slots, want) in [
        ("LlamaCanon-1B", "", "the name says Canon, but no slot is filled"),
        ("llama_canon", "", "the name says Canon, but no slot is filled"),
        ("llama+canon", "", "the name says Canon, but no slot is filled"),
        ("GLA5Canon", "", "the name says Canon, but no slot is filled"),
        ("LlamaNoCanon-1B", "ABCD", "the name says no Canon, but slots ABCD"),
        ("llama_without_canon", "A", "the name says no Canon, but slots A"),
        ("Canonless", "ABCD", "the name says no Canon"),
        ("canon_off", "ABCD", "the name says no Canon"),
        ("llama_canon_excluded", "ABCD", "the name says no Canon"),
        ("llama_lacks_canon", "ABCD", "the name says no Canon"),
        ("llama_-canon", "ABCD", "the name says no Canon"),
        ("LlamaCanonAC", "ABCD", "the name says Canon at AC, but slots ABCD are filled"),
    ] {
        let findings = name_findings(&format!("name\tarch.canon\nother\tnone\n{name}\t{slots}\n"));
        let [(rule, message)] = &findings[..] else { panic!("{name} {slots}: {findings:?}") };
        assert!(rule == "name-canon" && message.contains(want), "{name}: {message}");
    }
    for (name, slots) in [
        ("LlamaCanon-1B", "ABCD"),
        ("LlamaCanonAC", "AC"),
        ("GDN2CanonAbCD", "ACD"),
        ("LlamaNoCanon-1B", ""),
        ("llama_without_canon", ""),
        ("non-canon", ""),
        ("Canonless", ""),
        ("canon_off", ""),
        ("canonical-1B", ""),
        ("canonical-1B", "ABCD"),
        ("uncanny", ""),
        ("canonc-test", ""),
        ("llama_vs_canon", ""),
        ("llama_vs_canon", "ABCD"),
        ("canon-0", ""),
        ("canon-0", "ABCD"),
        ("LlamaCanon-no-wd", "ABCD"),
        ("LlamaCanon-no-wd", ""),
        ("llama-canon-twin", ""),
        ("llama-canon-twin", "ABCD"),
        ("llama_canon_set_none", ""),
        ("llama_canon_ablated", ""),
        ("w_o_canon", ""),
        ("llama_canon_excluded", ""),
        ("llama_canon_omitted", ""),
        ("llama_lacks_canon", ""),
        ("llama_omits_canon", ""),
        ("llama_ncanon", ""),
        ("llama_-canon", ""),
        ("-canon", ""),
        ("llama_+canon", "ABCD"),
        ("llama--canon", "ABCD"),
        ("wo_canon", ""),
        ("canonless", ""),
        ("sans-canon", ""),
    ] {
        let findings = name_findings(&format!("name\tarch.canon\nother\tnone\n{name}\t{slots}\n"));
        assert!(findings.is_empty(), "{name} {slots}: {findings:?}");
    }
}

#[test]
fn a_name_agrees_with_the_numbers_of_its_keys() {
    let head = "name\toptimizer.lr\toptimizer.weight_decay\tbudget.steps\tschedule.warmup\n";
    for name in [
        "a-lr0.002-wd0.1",
        "a-lr2e-3",
        "a-lr2e3",
        "a-min_lr0.0001",
        "a-eval_steps50",
        "a-warmup_steps7",
        "a-lr_decay0.5",
        "a-steps240k",
        "a-lr-3",
        "lr0.001_vs_lr0.002",
        "a-lr0002",
        "a-weight_decay0.1-warmup10",
    ] {
        let findings = name_findings(&format!("{head}{name}\t0.002\t0.1\t240000\t10\n"));
        assert!(findings.is_empty(), "{name}: {findings:?}");
    }
    for (name, want) in [
        ("a-lr0.003", "the name says lr0.003, but optimizer.lr is 0.002"),
        ("a_lr_0.003", "the name says lr_0.003, but optimizer.lr is 0.002"),
        ("a-LR=3e-3", "the name says LR=3e-3, but optimizer.lr is 0.002"),
        ("a-weight_decay0.2", "the name says weight_decay0.2, but optimizer.weight_decay is 0.1"),
        ("a-steps240", "the name says steps240, but budget.steps is 240000"),
        ("a-warmup20", "the name says warmup20, but schedule.warmup is 10"),
    ] {
        let findings = name_findings(&format!("{head}{name}\t0.002\t0.1\t240000\t10\n"));
        assert_eq!(findings, [("name-value".to_owned(), want.to_owned())], "{name}");
    }
}

/// Twins that differ in one key and not in the treatment are a comparison of that key, unless a name claims the
/// treatment in a word of its own.
#[test]
fn one_change_is_a_note_unless_a_name_claims_the_treatment() {
    let fails = |base: &str, other: &str| {
        let report = audited(&format!("name\toptimizer.lr\n{base}\t0.1\n{other}\t0.2\n"));
        assert_eq!(report.pairs.len(), 1, "{base} {other}");
        report.fails()
    };
    for (base, other) in [
        ("A", "ACanon"),
        ("run-base", "run-canon"),
        ("llama", "llama_canonACD"),
        ("A-noCanon", "A-canon"),
    ] {
        assert!(fails(base, other), "{base} {other}");
    }
    for (base, other) in
        [("A", "ANoCanon"), ("llama", "llama_without_canon"), ("run-canon_off", "run-base")]
    {
        assert!(!fails(base, other), "{base} {other}");
    }
}
