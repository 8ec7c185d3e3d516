//! The published set without its curves.

use lab::audit::{Findings, Rules, audit, subjects, table};

#[test]
fn known_problems_of_the_release_are_found_and_nothing_else_fails() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../recipes/published/data/recipes.tsv");
    let experiments = table("recipes.tsv", &std::fs::read_to_string(path).unwrap()).unwrap();
    let report = audit(&subjects(&experiments), &Rules::default(), Findings::default());
    // The curves show one more that is not clean.
    assert_eq!((report.pairs.len(), report.clean.len()), (32, 18));
    let failing = report.findings.iter().filter(|(own, _)| own.severity.fails());
    let failing: Vec<(&str, &str, usize)> =
        failing.map(|(_, f)| (f.rule.as_str(), f.key.as_str(), f.places.len())).collect();
    let want = [
        ("budget-ambiguous", "budget.tokens", 2),
        ("twin-training", "arch.mixer.rope.share", 8),
        ("twin-kernel", "platform.kernels.gated_norm", 1),
        ("lr-wd-steps", "optimizer.lr * optimizer.weight_decay * budget.steps", 6),
    ];
    assert_eq!(failing, want);
    let rules: Vec<&str> = report.findings.iter().map(|(_, f)| f.rule.as_str()).collect();
    for rule in ["missing-twin", "twin-unclear", "devices-unread", "devices-disagree"] {
        assert!(!rules.contains(&rule), "{rule}");
    }
}
