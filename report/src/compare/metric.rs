//! Metrics by name: their names in tables, their units, and their order.
//!
//! In: a metric of a log or of a lock. Out: its name in tables, its unit. Must stay true: a measure that this version
//! does not know keeps its own name and has no unit.

use tasks::metric::{BITS, BITS_PER_PARAMETER, KL, VALIDITY, is_share, of_suite};

use super::{
    BITS_PER_BYTE, BITS_PER_TOKEN, EVAL_LOSS, EXACT_MATCH, STEP_TIME, TOKEN_ACCURACY,
    TRAINING_LOSS, Unit,
};

/// Further measures of an evaluation: their names in tables and their units.
pub(super) const MEASURES: [(&str, &str, Unit); 4] = [
    (BITS, "bits learned", Unit::Count),
    (BITS_PER_PARAMETER, "bits learned per parameter", Unit::Count),
    (KL, "KL from the true distribution", Unit::Nats),
    (VALIDITY, "valid sentences", Unit::Share),
];

/// A measure's name in tables.
pub fn measured(name: &str) -> &str {
    MEASURES.iter().find(|(known, ..)| *known == name).map_or(name, |(_, called, _)| called)
}

/// The name in tables of a metric of `evaluation.metrics` or of a suite.
pub fn called(metric: &str) -> &str {
    match metric {
        _ if of_suite(metric).is_some() => metric,
        EXACT_MATCH => EXACT_MATCH,
        TOKEN_ACCURACY => TOKEN_ACCURACY,
        _ => {
            let measure = MEASURES.iter().find(|(name, ..)| *name == metric);
            measure.map_or(EVAL_LOSS, |(_, called, _)| called)
        }
    }
}

/// The unit of a metric, by its name in tables.
pub fn unit(metric: &str) -> Unit {
    match metric {
        STEP_TIME => Unit::Seconds,
        TRAINING_LOSS | EVAL_LOSS => Unit::Nats,
        _ if of_suite(metric).is_some() => match is_share(metric) {
            true => Unit::Share,
            // A perplexity, or bits per byte: its name says which.
            false => Unit::Unknown,
        },
        BITS_PER_BYTE | BITS_PER_TOKEN => Unit::Count,
        _ if metric.starts_with(TOKEN_ACCURACY) || metric.starts_with(EXACT_MATCH) => Unit::Share,
        _ => {
            let found = MEASURES.iter().find(|(_, called, _)| *called == metric);
            found.map_or(Unit::Unknown, |(.., unit)| *unit)
        }
    }
}

/// The place of a metric in a table.
pub(super) fn rank(metric: &str) -> u8 {
    match metric {
        TRAINING_LOSS => 0,
        EVAL_LOSS => 1,
        TOKEN_ACCURACY => 2,
        EXACT_MATCH => 3,
        STEP_TIME => 6,
        _ if of_suite(metric).is_some() => 5,
        _ => 4,
    }
}
