//! Metrics of evaluations, by the names that recipes and logs use.
//!
//! In: nothing. Out: names, and what kind of number each is. Must stay true: every crate takes the names from here; a
//! name is in locks and logs, so it never changes.

/// Capo: bits of the people's values that the model knows.
pub const BITS: &str = "bits";
/// Mean loss over targets of held-out windows.
pub const EVAL_LOSS: &str = "eval_loss";
/// Share of the answers with every token right.
pub const EXACT_MATCH: &str = "exact_match";
/// Lano: divergence from the true distribution of the next token.
pub const KL: &str = "kl";
/// Share of the answers' tokens that are right.
pub const TOKEN_ACCURACY: &str = "token_accuracy";
/// Lano: share of the model's sentences that the grammar accepts.
pub const VALIDITY: &str = "validity";

/// Every metric, by name.
pub const NAMES: &[&str] = &[BITS, EVAL_LOSS, EXACT_MATCH, KL, TOKEN_ACCURACY, VALIDITY];
/// Metrics for which lower is better.
pub const LESS_IS_BETTER: &[&str] = &[EVAL_LOSS, KL];
/// Metrics from 0 to 1.
pub const SHARES: &[&str] = &[EXACT_MATCH, TOKEN_ACCURACY, VALIDITY];
/// Logged with [`BITS`]: bits for each parameter of the model.
pub const BITS_PER_PARAMETER: &str = "bits_per_parameter";
