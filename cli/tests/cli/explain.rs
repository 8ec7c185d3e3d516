//! The commands that check a verdict without canonc.

use cli::commands::diff::explain::commands;

#[test]
fn words_are_typed_as_they_are_meant() {
    let treatment = ["canon", "slots.A", "arch.layers.*.slots.A", "slots.A.kernel", "optimizer.lr"];
    let text = commands("a b.lock", "it's.lock", &treatment.map(str::to_owned), Some("canonc"));
    let want = "check_verdict.py 'a b.lock' 'it'\\''s.lock' canon slots.A 'arch.layers.*.slots.A' --trainer canonc\n";
    assert!(text.contains(want), "{text}");
    assert!(text.contains("It reports slots.A.kernel, optimizer.lr as"), "{text}");
}
