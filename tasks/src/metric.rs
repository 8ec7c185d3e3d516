//! Metrics of evaluations, by the names that recipes and logs use. Every crate takes names and formulas from here, so that
//! a log's scores are recomputed to the bit. A name is in locks and logs, so it never changes.

use std::f64::consts::LN_2;

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

/// A metric of tasks in evaluation suites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfSuites {
    /// Its word in suites, locks and logs.
    pub word: &'static str,
    /// How it follows from the questions' parts.
    pub rule: MetricRule,
    /// Whether the model writes an answer.
    pub is_written: bool,
}

/// How a metric of a suite follows from its questions' parts: 0 or 1 for a share, a log-likelihood in nats otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricRule {
    /// The mean: a share from 0 to 1.
    Share,
    /// exp of the negative mean.
    Perplexity,
    /// exp of the negative sum, divided by the words of all documents.
    WordPerplexity,
    /// exp of the negative sum, divided by the bytes of all documents.
    BytePerplexity,
    /// The negative sum in bits, divided by the bytes of all documents.
    BitsPerByte,
}

/// What all documents of a task have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Number of words.
    pub words: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The metrics of tasks in evaluation suites, by word. A run's log and a comparison name them with their task:
/// `piqa/acc`.
pub const OF_SUITES: &[OfSuites] = &[
    OfSuites { word: "acc", rule: MetricRule::Share, is_written: false },
    OfSuites { word: "acc_norm", rule: MetricRule::Share, is_written: false },
    OfSuites { word: "bits_per_byte", rule: MetricRule::BitsPerByte, is_written: false },
    OfSuites { word: "byte_perplexity", rule: MetricRule::BytePerplexity, is_written: false },
    OfSuites { word: "contains", rule: MetricRule::Share, is_written: true },
    OfSuites { word: "exact_match", rule: MetricRule::Share, is_written: true },
    OfSuites { word: "perplexity", rule: MetricRule::Perplexity, is_written: false },
    OfSuites { word: "word_perplexity", rule: MetricRule::WordPerplexity, is_written: false },
];

/// The metric of suites with this word.
pub fn of_word(word: &str) -> Option<&'static OfSuites> {
    OF_SUITES.iter().find(|known| known.word == word)
}

impl OfSuites {
    /// Whether it is from 0 to 1; if not, lower is better.
    pub fn is_share(&self) -> bool {
        self.rule == MetricRule::Share
    }
}

impl MetricRule {
    /// Whether it divides by the words or bytes of documents.
    pub fn counts(self) -> bool {
        match self {
            MetricRule::Share | MetricRule::Perplexity => false,
            MetricRule::WordPerplexity | MetricRule::BytePerplexity | MetricRule::BitsPerByte => {
                true
            }
        }
    }

    /// The metric's value. `counted` matters only if the rule [counts](MetricRule::counts).
    pub fn value(self, parts: &[f64], counted: Counted) -> f64 {
        let sum: f64 = parts.iter().sum();
        let count = parts.len() as f64;
        let Counted { words, bytes } = counted;
        match self {
            MetricRule::Share => sum / count,
            MetricRule::Perplexity => libm::exp(-sum / count),
            MetricRule::WordPerplexity => libm::exp(-sum / words as f64),
            MetricRule::BytePerplexity => libm::exp(-sum / bytes as f64),
            MetricRule::BitsPerByte => -sum / bytes as f64 / LN_2,
        }
    }

    /// The sum of the parts that give a value, up to rounding; `count` is their number.
    pub fn sum(self, value: f64, count: u64, counted: Counted) -> f64 {
        let Counted { words, bytes } = counted;
        match self {
            MetricRule::Share => value * count as f64,
            MetricRule::Perplexity => -libm::log(value) * count as f64,
            MetricRule::WordPerplexity => -libm::log(value) * words as f64,
            MetricRule::BytePerplexity => -libm::log(value) * bytes as f64,
            MetricRule::BitsPerByte => -value * LN_2 * bytes as f64,
        }
    }
}

/// The standard error of a share over its questions; `None` for fewer than two.
pub fn stderr(share: f64, parts: &[f64]) -> Option<f64> {
    let count = parts.len() as f64;
    (parts.len() > 1).then(|| {
        let squares: f64 = parts.iter().map(|part| (part - share) * (part - share)).sum();
        libm::sqrt(squares / (count - 1.0) / count)
    })
}

/// The task and the word of a suite's metric: `piqa/acc`.
pub fn of_suite(name: &str) -> Option<(&str, &str)> {
    let (task, word) = name.rsplit_once('/')?;
    (of_word(word).is_some() && !task.is_empty()).then_some((task, word))
}

/// Whether a name can be a metric's.
pub fn is_known(name: &str) -> bool {
    NAMES.contains(&name) || of_suite(name).is_some()
}

/// Whether a metric is from 0 to 1.
pub fn is_share(name: &str) -> bool {
    SHARES.contains(&name)
        || of_suite(name).and_then(|(_, word)| of_word(word)).is_some_and(OfSuites::is_share)
}

/// Whether lower is better.
pub fn is_less_better(name: &str) -> bool {
    LESS_IS_BETTER.contains(&name)
        || of_suite(name).and_then(|(_, word)| of_word(word)).is_some_and(|it| !it.is_share())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_follows_from_its_parts_and_gives_their_sum() {
        let parts = [-1.0, -3.0];
        let counted = Counted { words: 8, bytes: 16 };
        let value = |rule: MetricRule| rule.value(&parts, counted);
        assert_eq!(value(MetricRule::Perplexity), libm::exp(2.0));
        assert_eq!(value(MetricRule::WordPerplexity), libm::exp(0.5));
        assert_eq!(value(MetricRule::BytePerplexity), libm::exp(0.25));
        assert_eq!(value(MetricRule::BitsPerByte), 0.25 / LN_2);
        assert_eq!(MetricRule::Share.value(&[1.0, 0.0], counted), 0.5);
        for OfSuites { rule, .. } in OF_SUITES {
            let sum = rule.sum(value(*rule), 2, counted);
            assert!((sum + 4.0).abs() < 1e-12, "{rule:?}: {sum}");
        }
        assert_eq!(stderr(0.5, &[1.0, 0.0]), Some(0.5));
        assert_eq!(stderr(1.0, &[1.0]), None);
    }

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
