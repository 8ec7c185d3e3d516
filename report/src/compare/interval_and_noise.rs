//! The interval of a metric's mean difference and the A/A noise of that mean, or the reason why either is missing.
//!
//! Times are compared as ratios on the log scale, and only if the base agrees with itself. Noise needs three replicates
//! with other init and data seeds, and is that of a mean, like the difference next to it.

use serde::Serialize;

use super::unit::Unit;
use crate::statistics::noise::{self, Bounds, OfMean};
use crate::statistics::paired::Paired;
use crate::statistics::ratio::{self, Refused};
use crate::statistics::sequential::StoppingRule;
use crate::statistics::{Confidence, Margin, Noise, Undefined};

/// The largest ratio of the base to itself at which a time still has an interval, unless the lock declares another
/// bound.
pub const STEADY: f64 = 1.05;

/// Which seeds the replicates of the base change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Varied {
    /// The seed of the initial parameters.
    pub init: bool,
    /// The seed of the data.
    pub data: bool,
}

impl Varied {
    /// Whether all seeds are distinct.
    pub(super) fn all(self) -> bool {
        self.init && self.data
    }

    /// The seeds that are not all distinct.
    pub(super) fn shared(self) -> &'static str {
        match (self.init, self.data) {
            (true, _) => "data seeds",
            (false, true) => "init seeds",
            (false, false) => "init and data seeds",
        }
    }
}

/// Why a row has no interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "no_interval")]
pub enum NoInterval {
    /// The statistics are undefined.
    Undefined(Undefined),
    /// For a time.
    Time(Refused),
}

/// The difference between the base and its replicate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AaNoise {
    /// The noise due to seeds alone, of a mean over as many differences as the row has.
    OfMean(OfMean),
    /// For times: a ratio of at least 1.
    Ratio(f64),
}

/// Why the noise is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "no_noise")]
pub enum NoNoise {
    /// The statistics are undefined.
    Undefined(Undefined),
    /// For a time.
    Time(Refused),
    /// The replicates share a seed with the base.
    NotVaried(Varied),
}

/// The mean difference with its interval; for times, of the logarithms of ratios.
pub(super) fn interval(
    unit: Unit,
    differences: &[f64],
    of_itself: &[(f64, f64)],
    bound: f64,
    confidence: Confidence,
    anytime: bool,
) -> Result<Paired, NoInterval> {
    let interval = |differences: &[f64]| {
        let method = if anytime { at_any_look } else { Paired::from_differences };
        method(differences, confidence).map_err(NoInterval::Undefined)
    };
    match unit {
        Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => interval(differences),
        Unit::Seconds => {
            let itself = ratios(of_itself);
            ratio::ratio(differences, &itself, bound, confidence).map_err(NoInterval::Time)?;
            let logs: Vec<f64> = differences.iter().map(|ratio| libm::log(*ratio)).collect();
            interval(&logs)
        }
    }
}

/// The mean difference with an interval and a p value that stay valid under repeated looks.
fn at_any_look(differences: &[f64], confidence: Confidence) -> Result<Paired, Undefined> {
    let fixed = Paired::from_differences(differences, confidence)?;
    let rule = StoppingRule::new(confidence, MOST_LOOKS);
    let too_few = Undefined::TooFew { have: differences.len(), need: rule.fewest() };
    let look = rule.at(differences).ok_or(too_few)?;
    let (low, high) = look.interval.ok_or(too_few)?;
    Ok(Paired { low, high, p: look.p.unwrap_or(1.0), ..fixed })
}

/// Anytime p value of the hypothesis that the true difference is at or beyond the margin.
pub(super) fn beyond(differences: &[f64], margin: Margin, confidence: Confidence) -> Option<f64> {
    StoppingRule::new(confidence, MOST_LOOKS).beyond(differences, margin)
}

/// Bounds the search for the first possible interval; no declared level needs this many seeds.
const MOST_LOOKS: usize = 1000;

/// The A/A noise of a mean of `n` differences.
pub(super) fn noise(
    unit: Unit,
    of_itself: &[(f64, f64)],
    n: usize,
    varied: Varied,
    confidence: Confidence,
) -> Result<AaNoise, NoNoise> {
    let bounds = match unit {
        Unit::Seconds => {
            let ratio = ratio::base_against_itself(&ratios(of_itself));
            return ratio.map(AaNoise::Ratio).map_err(NoNoise::Time);
        }
        Unit::Share => Some(Bounds::SHARE),
        Unit::Nats | Unit::Count | Unit::Unknown => None,
    };
    if of_itself.len() >= noise::FEWEST && !varied.all() {
        return Err(NoNoise::NotVaried(varied));
    }
    Noise::of_pairs(of_itself, bounds, confidence)
        .map(|noise| AaNoise::OfMean(noise.of_mean(n)))
        .map_err(NoNoise::Undefined)
}

fn ratios(of_itself: &[(f64, f64)]) -> Vec<f64> {
    of_itself.iter().map(|(base, replicate)| replicate / base).collect()
}

impl NoInterval {
    /// The short form for a table cell.
    pub(crate) fn brief(self) -> String {
        let reason = match self {
            NoInterval::Undefined(undefined) | NoInterval::Time(Refused::Undefined(undefined)) => {
                undefined_cell(undefined)
            }
            NoInterval::Time(Refused::BaseNotMeasured { have, need }) => {
                format!("A/A timed {have} of {need} times")
            }
            NoInterval::Time(Refused::Unsteady { base_against_itself, bound: _ }) => {
                format!("unsteady, A/A ×{base_against_itself:.2}")
            }
            NoInterval::Time(Refused::NotPositive) => "not all times above 0".to_owned(),
        };
        format!("{reason}: no interval")
    }
}

fn undefined_cell(undefined: Undefined) -> String {
    match undefined {
        Undefined::TooFew { have, need: _ } => format!("n = {have}"),
        Undefined::NotFinite => "not all numbers".to_owned(),
        Undefined::NoVariance { value: _ } => "all equal".to_owned(),
        Undefined::AtBound { bound, values, of } => {
            format!("{values} of {of} at {:.0}%", 100.0 * bound)
        }
    }
}

impl NoNoise {
    /// The short form for a table cell.
    pub(crate) fn brief(self) -> String {
        match self {
            NoNoise::Time(Refused::Unsteady { .. }) => self.reason(),
            NoNoise::Undefined(_) | NoNoise::Time(_) | NoNoise::NotVaried(_) => {
                format!("unknown: {}", self.reason())
            }
        }
    }

    /// The reason alone.
    pub(crate) fn reason(self) -> String {
        match self {
            NoNoise::Undefined(Undefined::TooFew { have, need })
            | NoNoise::Time(Refused::BaseNotMeasured { have, need }) => {
                format!("{have} of {need} repetitions")
            }
            NoNoise::Undefined(undefined) | NoNoise::Time(Refused::Undefined(undefined)) => {
                undefined_cell(undefined)
            }
            NoNoise::Time(Refused::NotPositive) => "not all times above 0".to_owned(),
            NoNoise::Time(Refused::Unsteady { base_against_itself, .. }) => {
                format!("×{base_against_itself:.2}")
            }
            NoNoise::NotVaried(varied) => format!("same {}", varied.shared()),
        }
    }
}
