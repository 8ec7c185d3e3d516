//! Reads the options of a launch command in a comment.
//!
//! In: a line of text. Out: [`CommentCount`]. Must stay true: options that do not count devices are ignored; a command that may
//! belong to another run is not read.

use super::comment::{CommentCount, Counts};

/// Words that suggest that a command in a comment belongs to another run.
#[rustfmt::skip]
const OTHERWISE: &[&str] = &[
    "ablation", "baseline", "each", "earlier", "formerly", "instead", "not", "old", "or", "original", "originally",
    "otherwise", "paper", "per", "previous", "previously", "todo", "vs", "was", "were",
];

/// Reads `--nodes 16 --ntasks-per-node 8`. Other options and their values are ignored.
pub(super) fn flags(text: &str) -> CommentCount {
    let words: Vec<&str> = text.split([' ', '\t', '=']).filter(|word| !word.is_empty()).collect();
    let other = words.iter().map(|word| word.to_lowercase());
    let other = other
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned())
        .find(|word| OTHERWISE.contains(&word.as_str()));
    let mut counts = Counts::default();
    let mut numbered = false;
    let mut unclear = other.map(|word| format!("`{word}` suggests another launch"));
    for (at, flag) in words.iter().enumerate().filter(|(_, word)| word.starts_with('-')) {
        let name = flag.trim_start_matches('-').replace('_', "-");
        let list = match (name.as_str(), flag.starts_with("--")) {
            ("nodes" | "nnodes" | "num-nodes" | "num-machines", true) => &mut counts.nodes,
            ("N", false) => &mut counts.nodes,
            (
                "ntasks-per-node" | "nproc-per-node" | "gpus-per-node" | "tasks-per-node"
                | "num-gpus-per-node" | "gres",
                true,
            ) => &mut counts.per_node,
            ("gpus" | "ngpus" | "num-gpus" | "ntasks" | "num-processes" | "world-size", true) => {
                &mut counts.totals
            }
            ("devices", true) => &mut counts.totals,
            _ => continue,
        };
        numbered = true;
        let value = words.get(at + 1).copied().unwrap_or("");
        let number = match name.as_str() {
            "gres" => value.strip_prefix("gpu:").map(|v| v.rsplit(':').next().unwrap_or(v)),
            _ => Some(value),
        };
        match number.and_then(|n| n.parse().ok()).filter(|n| *n > 0) {
            Some(n) => list.push(n),
            None => unclear = Some(format!("`{flag} {value}` does not give a number")),
        }
    }
    // A launch has as many tasks as processes and as GPUs.
    for list in [&mut counts.totals, &mut counts.nodes, &mut counts.per_node] {
        list.sort_unstable();
        list.dedup();
        if list.len() > 1 {
            unclear = Some("its options give different numbers".to_owned());
        }
    }
    match (unclear, counts.is_empty()) {
        (_, true) if !numbered => CommentCount::Nothing,
        (Some(why), _) => CommentCount::Unclear(why),
        (None, true) => CommentCount::Nothing,
        (None, false) => CommentCount::Devices(counts),
    }
}
