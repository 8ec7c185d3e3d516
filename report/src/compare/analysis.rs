//! The analysis that a comparison declares: its primary metric, family of tests, margin, level and stopping rule.

use lab::comparison::Stop;
use serde::Serialize;

use super::metric::metric_name;
use crate::statistics::{Confidence, Margin};

/// The declared tests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The primary metric, as named in tables.
    pub primary: String,
    /// The metrics of the family, as named in tables; each counts once per treated arm.
    pub family: Vec<String>,
    /// In the unit of the primary metric.
    pub margin: Option<Margin>,
    /// Confidence of the whole family.
    pub confidence: Confidence,
    /// With a stopping rule, the maximum number of seeds.
    pub max_seeds: Option<usize>,
    /// Whether the comparison's lock declares the analysis; if not, these are the defaults.
    pub declared: bool,
}

impl Analysis {
    /// The analysis that a lock declares; `None` if all its values are neutral.
    pub(super) fn declared(locked: &lab::comparison::Comparison) -> Option<Analysis> {
        // The bound on timing noise is not part of the tests.
        let lab::comparison::Analysis { primary, family, margin, level, stop, time_bound: _ } =
            &locked.analysis;
        let confidence = Confidence::new(1.0 - level.to_f64())?;
        let neutral = *primary == locked.selection.metric
            && *family == [primary.as_str()]
            && margin.is_none()
            && confidence == Confidence::NINETY_FIVE
            && *stop == Stop::Fixed;
        (!neutral).then(|| Analysis {
            primary: metric_name(primary).to_owned(),
            family: family.iter().map(|metric| metric_name(metric).to_owned()).collect(),
            margin: margin.and_then(|margin| Margin::new(margin.to_f64())),
            confidence,
            max_seeds: match stop {
                Stop::Fixed => None,
                Stop::Sequential { max_seeds } => Some(*max_seeds),
            },
            declared: true,
        })
    }

    /// Without a declaration: the selection's metric for every treated arm, no margin, level 0.05.
    pub(super) fn default_of(judged_by: &str) -> Analysis {
        Analysis {
            primary: judged_by.to_owned(),
            family: vec![judged_by.to_owned()],
            margin: None,
            confidence: Confidence::NINETY_FIVE,
            max_seeds: None,
            declared: false,
        }
    }
}
