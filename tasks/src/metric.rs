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

/// The metrics of tasks in evaluation suites: their words, whether they are shares from 0 to 1, and whether lower is
/// better. A run's log and a comparison name them with their task: `piqa/acc`.
pub const OF_SUITES: &[(&str, bool, bool)] = &[
    ("acc", true, false),
    ("acc_norm", true, false),
    ("bits_per_byte", false, true),
    ("byte_perplexity", false, true),
    ("contains", true, false),
    ("exact_match", true, false),
    ("perplexity", false, true),
    ("word_perplexity", false, true),
];

/// The task and the word of a suite's metric: `piqa/acc`.
pub fn of_suite(name: &str) -> Option<(&str, &str)> {
    let (task, word) = name.rsplit_once('/')?;
    let known = OF_SUITES.iter().any(|(known, ..)| *known == word);
    (known && !task.is_empty()).then_some((task, word))
}

/// Whether a name can be a metric's.
pub fn is_known(name: &str) -> bool {
    NAMES.contains(&name) || of_suite(name).is_some()
}

/// Whether a metric is from 0 to 1.
pub fn is_share(name: &str) -> bool {
    SHARES.contains(&name)
        || of_suite(name).is_some_and(|(_, word)| OF_SUITES.contains(&(word, true, false)))
}

/// Whether lower is better.
pub fn is_less_better(name: &str) -> bool {
    LESS_IS_BETTER.contains(&name)
        || of_suite(name).is_some_and(|(_, word)| OF_SUITES.contains(&(word, false, true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_suites_are_known_by_their_last_word() {
        assert_eq!(of_suite("piqa/acc_norm"), Some(("piqa", "acc_norm")));
        assert!(is_known("piqa/acc") && is_share("piqa/acc") && !is_less_better("piqa/acc"));
        assert!(is_less_better("wiki/bits_per_byte") && !is_share("wiki/bits_per_byte"));
        assert!(is_share(VALIDITY) && is_less_better(KL) && is_known(BITS));
        for name in ["acc", "/acc", "piqa/", "piqa/loss", "eval_losses"] {
            assert!(!is_known(name), "{name}");
        }
    }
}
