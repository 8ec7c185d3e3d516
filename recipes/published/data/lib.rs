//! Numbers published by *Physics of Language Models: Part 4.2*, as data; README.md describes each file.
//!
//! `canonc-report` shows them next to a user's runs. This crate contains no code.
//!
//! ```
//! assert!(published::RECIPES.starts_with("model\tfamily\tcanon\tsize"));
//! ```
#![warn(missing_docs)]

/// Training loss of the 48 linear models over training (CSV, gzip).
pub const LOSS: &[u8] = include_bytes!("curves_trainloss_linear.csv.gz");
/// Scores on 14 benchmarks over training (CSV, gzip).
pub const BENCHMARKS: &[u8] = include_bytes!("curves_benchmarks.csv.gz");
/// The 64 experiments with every configuration key.
pub const RECIPES: &str = include_str!("recipes.tsv");
/// Spikes of the training-loss curves.
pub const SPIKES: &str = include_str!("loss_spikes.tsv");
/// Which runs read their data in the same order.
pub const ORDERS: &str = include_str!("data_order_fingerprint.tsv");
/// The effect of Canon layers, for each pair.
pub const TWINS: &str = include_str!("canon_gains.tsv");
/// Every key in which pairs differ.
pub const TWIN_KEYS: &str = include_str!("twin_diffs.tsv");
/// Statements to compare your own runs with.
pub const ANSWERS: &str = include_str!("known_answers.tsv");
/// The release's scores on 13 tasks and two perplexities, for its 64 models.
pub const HARNESS: &str = include_str!("harness.tsv");
/// The scores of 18 open models that the release compares itself with.
pub const OPEN_MODELS: &str = include_str!("open_models.tsv");
