//! `canonc diff --explain` and `--script`: how to check a verdict without canonc.

use std::fmt::Write as _;

use dsl::quote::sh;

/// The script, written from `docs/locks.md` alone.
pub(super) const SCRIPT: &str = include_str!("../../../docs/check_verdict.py");

/// The commands that check a verdict.
pub fn commands(a: &str, b: &str, treatment: &[String], trainer: Option<&str>) -> String {
    let (slots, others): (Vec<&String>, Vec<&String>) =
        treatment.iter().partition(|entry| is_slots(entry));
    let mut words = vec![a, b];
    words.extend(slots.iter().map(|entry| entry.as_str()));
    words.extend(trainer.into_iter().flat_map(|trainer| ["--trainer", trainer]));
    let words: Vec<String> = words.into_iter().map(sh).collect();
    let mut text = format!(
        "\nTo check this verdict without canonc (the format is docs/locks.md):\n  \
         canonc diff --script > check_verdict.py\n  \
         python3 -m pip install blake3\n  \
         python3 check_verdict.py {}\n",
        words.join(" ")
    );
    if !others.is_empty() {
        let others: Vec<&str> = others.into_iter().map(String::as_str).collect();
        let _ = writeln!(
            text,
            "The script checks only treatments of slots. It reports {} as a difference.",
            others.join(", ")
        );
    }
    text
}

/// Whether a treatment names slots: `canon`, `slots.A`, `arch.layers.0..6.slots.A`.
fn is_slots(entry: &str) -> bool {
    let slot = entry.strip_prefix("slots.").or_else(|| entry.split_once(".slots.").map(|(_, s)| s));
    entry == "canon" || slot.is_some_and(|slot| !slot.contains('.'))
}
