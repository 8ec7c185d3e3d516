//! Metrics by name: their names in tables, units, directions and order. A measure that this version does not know keeps
//! its name and has no unit.

use tasks::metric::{
    BITS, BITS_PER_PARAMETER, KL, NAMES, VALIDITY, is_less_better, is_share, of_suite,
};
pub(super) use tasks::metric::{EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY};

use super::unit::Unit;
use crate::statistics::Better;

pub(crate) const TRAINING_LOSS: &str = "training loss";
pub(super) const STEP_TIME: &str = "step time";
/// The evaluation loss of text in bits per byte, where the bytes of its tokens are known.
pub(crate) const BITS_PER_BYTE: &str = "bits per byte";
/// The evaluation loss of text in bits, where tokens are bytes and the marks of documents.
pub(crate) const BITS_PER_TOKEN: &str = "bits per token";

/// Further measures of an evaluation: their names in tables and their units.
pub(super) const MEASURES: [(&str, &str, Unit); 4] = [
    (BITS, "bits learned", Unit::Count),
    (BITS_PER_PARAMETER, "bits learned per parameter", Unit::Count),
    (KL, "KL from the true distribution", Unit::Nats),
    (VALIDITY, "valid sentences", Unit::Share),
];

/// A measure's name in tables.
pub fn measure_name(name: &str) -> &str {
    MEASURES.iter().find(|(known, ..)| *known == name).map_or(name, |(_, in_tables, _)| in_tables)
}

/// The name in tables of a metric of `evaluation.metrics` or of a suite.
pub fn metric_name(metric: &str) -> &str {
    match metric {
        _ if of_suite(metric).is_some() => metric,
        EXACT_MATCH => EXACT_MATCH,
        TOKEN_ACCURACY => TOKEN_ACCURACY,
        _ => {
            let measure = MEASURES.iter().find(|(name, ..)| *name == metric);
            measure.map_or(EVAL_LOSS, |(_, in_tables, _)| in_tables)
        }
    }
}

/// The exact match of one level's answers.
pub(super) fn exact_match_of(level: u32) -> String {
    format!("{EXACT_MATCH}, level {level}")
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
            let measure = MEASURES.iter().find(|(_, in_tables, _)| *in_tables == metric);
            measure.map_or(Unit::Unknown, |(.., unit)| *unit)
        }
    }
}

/// The direction in which a metric improves, from the field table.
pub(super) fn better(metric: &str) -> Better {
    let name = NAMES.iter().find(|name| metric_name(name) == metric).copied().unwrap_or(metric);
    match is_less_better(name) || metric == TRAINING_LOSS || metric == STEP_TIME {
        true => Better::Less,
        false => Better::More,
    }
}

/// The position of a metric in a table.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_has_a_direction() {
        for (metric, direction) in [
            (TRAINING_LOSS, Better::Less),
            (EVAL_LOSS, Better::Less),
            (STEP_TIME, Better::Less),
            ("KL from the true distribution", Better::Less),
            (TOKEN_ACCURACY, Better::More),
            (EXACT_MATCH, Better::More),
            ("bits learned", Better::More),
            ("valid sentences", Better::More),
        ] {
            assert_eq!(better(metric), direction, "{metric}");
        }
    }
}
