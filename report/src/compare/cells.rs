//! Cells and heads that the tables of a comparison and the overview have in common. A missing interval has a reason; a
//! mean or a difference over fewer runs than there are says so.

use super::bootstrap::BootstrapInterval;
use super::facts::RunCount;
use super::interval_and_noise::{AaNoise, NoInterval, NoNoise};
use super::measured_on::MeasuredOn;
use super::metric_facts::MetricFacts;
use super::pair::DivergedSeeds;
use super::runs::mean;
use super::unit::Unit;
use crate::statistics::paired::{Coverage, covers};
use crate::statistics::questions::Split;
use crate::statistics::{Confidence, Effect, Judged, sequential};

pub(super) const NOTHING: &str = "–";

/// `95%`
pub(crate) fn percent(confidence: Confidence) -> String {
    let share = format!("{:.4}", 100.0 * confidence.share());
    format!("{}%", share.trim_end_matches('0').trim_end_matches('.'))
}

/// The level of a family of tests: `0.05`.
pub(crate) fn level(confidence: Confidence) -> String {
    let level = format!("{:.4}", confidence.alpha());
    level.trim_end_matches('0').to_owned()
}

/// Of intervals at another level than 95%.
const NOT_MEASURED: &str = " (coverage not measured at this level)";

/// The head of a column of intervals: the level that was asked for and the coverage that was reached.
pub(crate) fn interval_head<'r>(
    confidence: Confidence,
    rows: impl Iterator<Item = &'r MetricFacts>,
) -> String {
    let level = percent(confidence);
    let rows: Vec<&MetricFacts> = rows.collect();
    if let Some(among) = rows.iter().find_map(|row| row.chosen_among) {
        return format!("{level} interval ({})", among.text());
    }
    if rows.iter().any(|row| row.anytime) {
        let Coverage { normal, skewed } = sequential::COVERS;
        let reached = match confidence == Confidence::NINETY_FIVE {
            true => format!(" (covers {normal}% at all looks together, {skewed}% if skewed)"),
            false => NOT_MEASURED.to_owned(),
        };
        // Tables of several comparisons may have both kinds.
        let kind =
            if rows.iter().all(|row| row.anytime) { "anytime-valid" } else { "t or anytime-valid" };
        return format!("{level} {kind} interval{reached}");
    }
    // Coverage is measured at 95%. If the numbers of seeds differ, state the lowest.
    let least = rows.iter().filter_map(|row| row.interval.ok()).map(|interval| interval.n).min();
    match least.and_then(|n| Some((n, covers(n)?))) {
        Some((n, reached)) if confidence == Confidence::NINETY_FIVE => format!(
            "{level} t interval (covers {}% at n = {n}, {}% if skewed)",
            reached.normal, reached.skewed
        ),
        Some(_) => format!("{level} t interval{NOT_MEASURED}"),
        None => format!("{level} t interval"),
    }
}

/// The adjusted p value, and the word, with its number of seeds if some diverged.
pub(crate) fn effect_cells(word: Option<Judged>, of_seeds: &str) -> [String; 2] {
    let Some(Judged { effect, p_adjusted, within_margin, .. }) = word else {
        return [NOTHING.to_owned(), format!("exploratory{of_seeds}")];
    };
    let small = within_margin == Some(true) && matches!(effect, Effect::Better | Effect::Worse);
    let small = if small { ", within the margin" } else { "" };
    [p_cell(p_adjusted), format!("{}{small}{of_seeds}", effect.word())]
}

pub(crate) fn p_cell(p: Option<f64>) -> String {
    match p {
        None => NOTHING.to_owned(),
        Some(p) if p < 0.0001 => "<0.0001".to_owned(),
        Some(p) => format!("{p:.4}"),
    }
}

/// The mean of a metric over those of an arm's runs that have it.
pub(crate) fn mean_cell(unit: Unit, values: &[f64], count: RunCount) -> String {
    let RunCount { runs, diverged } = count;
    match (mean(values), diverged) {
        (None, 0) => NOTHING.to_owned(),
        (None, _) => format!("{diverged} of {runs} diverged"),
        (Some(mean), _) if values.len() == runs => unit.value(mean),
        (Some(mean), 0) => format!("{} ({} of {runs})", unit.value(mean), values.len()),
        (Some(mean), _) => {
            format!("{} ({} of {runs}, {diverged} diverged)", unit.value(mean), values.len())
        }
    }
}

impl MetricFacts {
    /// The mean difference, with the number of pairs it covers.
    pub(crate) fn difference_cell(&self, seeds: DivergedSeeds) -> String {
        match self.mean_difference() {
            Some(mean) => self.unit.difference(mean) + &seeds.suffix(self.paired.len()),
            None => NOTHING.to_owned(),
        }
    }

    /// The interval, or why there is none.
    pub(crate) fn interval_cell(&self) -> String {
        match (self.interval, self.ends()) {
            (Ok(_), Some((low, high))) => self.unit.between(low, high),
            (Err(_), _) if self.paired.is_empty() => NOTHING.to_owned(),
            (Err(reason), _) => NoInterval::brief(reason),
            (Ok(_), None) => NOTHING.to_owned(),
        }
    }

    /// The difference of the base from its replicate, or why it is unknown.
    pub(crate) fn noise_cell(&self) -> String {
        match self.noise {
            None => NOTHING.to_owned(),
            Some(Ok(AaNoise::OfMean(noise))) => self.unit.width(noise.standard_error),
            Some(Ok(AaNoise::Ratio(ratio))) => format!("×{ratio:.2} (A/A)"),
            Some(Err(reason)) => NoNoise::brief(reason),
        }
    }

    /// The p value without an adjustment.
    pub(crate) fn p_cell(&self) -> String {
        p_cell(self.interval.ok().map(|interval| interval.p))
    }

    /// What each value was measured on.
    pub(crate) fn measured_on_cell(&self) -> String {
        self.measured_on.map_or_else(|| NOTHING.to_owned(), MeasuredOn::text)
    }

    /// `lowest … highest`; a single difference is no range.
    pub(super) fn range_cell(&self) -> String {
        match self.range() {
            Some((low, high)) if self.paired.len() > 1 => self.unit.between(low, high),
            Some(_) | None => NOTHING.to_owned(),
        }
    }

    pub(super) fn bootstrap_cell(&self) -> String {
        match self.bootstrap {
            Some(BootstrapInterval { low, high, .. }) => self.unit.between(low, high),
            None => NOTHING.to_owned(),
        }
    }

    /// `seeds 1.2, questions 1.5, both 0.9 pp`: standard errors, not their squares.
    pub(super) fn split_cell(&self) -> String {
        let width = |part: f64| self.unit.width(libm::sqrt(part));
        match self.split {
            None => NOTHING.to_owned(),
            Some(Err(reason)) => reason.brief(),
            Some(Ok(Split { seed_part, question_part, both_part, .. })) => {
                let questions = width(question_part);
                match seed_part {
                    None => format!("questions {questions} (these runs only)"),
                    Some(seed) if both_part > 0.0 => {
                        let (seed, both) = (width(seed), width(both_part));
                        format!("seeds {seed}, questions {questions}, both {both}")
                    }
                    Some(seed) => format!("seeds {}, questions {questions}", width(seed)),
                }
            }
        }
    }
}
