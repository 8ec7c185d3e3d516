//! One metric of a pair: the values of both arms, their paired differences, and what the statistics say of them.

use super::bootstrap::{self, BootstrapInterval};
use super::design::ChosenAmong;
use super::interval_and_noise::{self, AaNoise, NoInterval, NoNoise};
use super::measured_on::{MeasuredOn, measured_on};
use super::metric::{better, rank, unit};
use super::pair::Pair;
use super::question_split::{NoSplit, question_split};
use super::runs::{ArmRun, diverged, final_values, mean, paired};
use super::training_overlap::{TrainingOverlap, label};
use super::unit::Unit;
use crate::statistics::equivalence::two_one_sided;
use crate::statistics::questions::Split;
use crate::statistics::tuned;
use crate::statistics::{Better, Judged, Margin, Paired, SignFlip, Undefined, sign_flip};

/// A metric of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFacts {
    /// The metric, as named in tables.
    pub metric: String,
    /// The metric's unit.
    pub unit: Unit,
    /// Final values of the base's runs, the treated arm's and the replicate's, if present; of runs that have the metric.
    pub values: Vec<Vec<f64>>,
    /// Treated minus base (for seconds, treated over base), in order of seeds.
    pub paired: Vec<f64>,
    /// Whether the interval is valid at every look, as under a stopping rule.
    pub anytime: bool,
    /// The points among which a rule chose those of the row by values of these runs; the interval and p allow for it.
    pub chosen_among: Option<ChosenAmong>,
    /// Whether lower or higher values are better.
    pub better: Better,
    /// The mean difference and its interval (the t interval, the anytime-valid one, or one that allows for a choice of
    /// points), or why there is none. For seconds, of the logarithms of ratios.
    pub interval: Result<Paired, NoInterval>,
    /// Present for six or more seeds.
    pub sign_flip: Option<SignFlip>,
    /// The secondary analysis: the bootstrap interval, which is too narrow for few seeds.
    pub bootstrap: Option<BootstrapInterval>,
    /// The difference between the base and its replicate; `None` without a replicate.
    pub noise: Option<Result<AaNoise, NoNoise>>,
    /// Questions, tokens or targets behind each value; the minimum if the numbers differ.
    pub asked: Option<u64>,
    /// What each value was measured on, with its unit.
    pub measured_on: Option<MeasuredOn>,
    /// What training contained of its questions; `None` for a metric without questions, or if that was not counted.
    pub overlap: Option<TrainingOverlap>,
    /// The squared standard error of the mean difference, split by seed and question; `None` for a metric without
    /// questions.
    pub split: Option<Result<Split, NoSplit>>,
    /// The word of the declared family for this difference; `None` outside of the family.
    pub judged: Option<Judged>,
}

impl MetricFacts {
    /// Whether a run of any arm has the metric.
    pub(crate) fn has_values(&self) -> bool {
        self.values.iter().any(|values| !values.is_empty())
    }

    /// The mean over the runs of the base (0), the treated arm (1) or the replicate (2).
    pub(super) fn mean(&self, side: usize) -> Option<f64> {
        mean(self.values.get(side)?)
    }

    /// The mean difference; for times, the geometric mean of ratios.
    pub(super) fn mean_difference(&self) -> Option<f64> {
        match self.unit {
            Unit::Seconds => {
                let logs: Vec<f64> = self.paired.iter().map(|ratio| libm::log(*ratio)).collect();
                mean(&logs).map(libm::exp)
            }
            Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => mean(&self.paired),
        }
    }

    /// Ends of the interval, in the unit of differences.
    pub(super) fn ends(&self) -> Option<(f64, f64)> {
        let Paired { low, high, .. } = self.interval.ok()?;
        Some(match self.unit {
            Unit::Seconds => (libm::exp(low), libm::exp(high)),
            Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => (low, high),
        })
    }

    /// The smallest and the largest difference. A NaN among them makes both NaN.
    pub(super) fn range(&self) -> Option<(f64, f64)> {
        let extreme = |pick: fn(f64, f64) -> f64| {
            let or_nan =
                |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) };
            self.paired.iter().copied().reduce(or_nan)
        };
        extreme(f64::min).zip(extreme(f64::max))
    }

    /// The row's label in tables: the metric, and why its questions are not held out, if they are not.
    pub(crate) fn label(&self) -> String {
        label(&self.metric, self.overlap)
    }
}

impl Pair<'_> {
    /// The facts of one metric; `None` if no run has it.
    pub(super) fn facts_of(&self, metric: &str) -> Option<MetricFacts> {
        Some(self.metric_facts(metric.to_owned())).filter(MetricFacts::has_values)
    }

    /// The facts of each metric, in reading order. A metric of the family is among them even if no run has it.
    pub(super) fn facts_of_all(&self) -> Vec<MetricFacts> {
        let mut names: Vec<String> = [self.base_runs(), self.arm_runs(), self.replicate_runs()]
            .into_iter()
            .flatten()
            .flat_map(|run| run.curves.finals().into_keys())
            .chain(self.comparison.analysis().family)
            .collect();
        names.sort_by_key(|name| (rank(name), name.clone()));
        names.dedup();
        names.into_iter().map(|metric| self.metric_facts(metric)).collect()
    }

    fn metric_facts(&self, metric: String) -> MetricFacts {
        let (base, arm, replicate) = (self.base_runs(), self.arm_runs(), self.replicate_runs());
        let mut values = vec![final_values(base, &metric), final_values(arm, &metric)];
        values.extend(self.replicate.map(|_| final_values(replicate, &metric)));
        let unit = unit(&metric);
        let analysis = self.comparison.analysis();
        let (confidence, anytime) = (analysis.confidence, analysis.max_seeds.is_some());
        let proof = &self.comparison.proof;
        let paired = differences(base, arm, &metric);
        let of_itself = paired_values(base, replicate, &metric);
        let noise =
            |_| interval_and_noise::noise(unit, &of_itself, paired.len(), proof.varied, confidence);
        let chosen_among = self.chosen_among(&metric);
        let interval = interval_and_noise::interval(
            unit,
            &paired,
            &of_itself,
            proof.steady(),
            confidence,
            anytime,
        );
        // The sign-flip test and the bootstrap allow neither for repeated looks nor for a choice of points.
        let single_look = !anytime && chosen_among.is_none();
        let flips = single_look && unit != Unit::Seconds;
        let asked = base.iter().chain(arm).filter_map(|run| run.curves.asked.get(&metric));
        MetricFacts {
            interval: interval
                .and_then(|paired| self.allowing_for_choice(&metric, paired, chosen_among)),
            sign_flip: if flips { sign_flip::sign_flip(&paired) } else { None },
            bootstrap: if single_look { bootstrap::bootstrap(&paired) } else { None },
            anytime,
            chosen_among,
            noise: self.replicate.map(noise),
            asked: asked.min().copied(),
            measured_on: measured_on(base, arm, &metric),
            overlap: self.overlap(&metric),
            split: question_split(base, arm, &metric, confidence, chosen_among),
            better: better(&metric),
            judged: None,
            paired,
            metric,
            unit,
            values,
        }
    }

    /// An interval and a p value that hold although the points were chosen by these runs.
    fn allowing_for_choice(
        &self,
        metric: &str,
        pair: Paired,
        chosen: Option<ChosenAmong>,
    ) -> Result<Paired, NoInterval> {
        match chosen {
            None => Ok(pair),
            Some(ChosenAmong { treated, base, best_of_each: false }) => {
                Ok(tuned::among(treated * base, pair))
            }
            Some(ChosenAmong { best_of_each: true, .. }) => self
                .best_of_each(metric, pair, None)
                .map(|best| best.result)
                .map_err(NoInterval::Undefined),
        }
    }

    /// P value of the hypothesis that the true difference is at or beyond the margin, allowing for the choice.
    pub(super) fn equivalence_allowing_for_choice(
        &self,
        facts: &MetricFacts,
        among: ChosenAmong,
        margin: Margin,
    ) -> Option<f64> {
        let interval = facts.interval.ok()?;
        let ChosenAmong { treated, base, best_of_each } = among;
        if best_of_each {
            return self.best_of_each(&facts.metric, interval, Some(margin)).ok()?.p_equivalence;
        }
        Some(((treated * base) as f64 * two_one_sided(&interval, margin)).min(1.0))
    }

    fn best_of_each(
        &self,
        metric: &str,
        pair: Paired,
        margin: Option<Margin>,
    ) -> Result<tuned::Chosen, Undefined> {
        let seeds = self.base.runs().chain(self.arm.runs()).map(|run| run.seed + 1);
        let seeds = seeds.max().unwrap_or(0);
        let [treated, base] =
            [&self.arm.points, &self.base.points].map(|points| candidates(points, metric, seeds));
        tuned::best_of_each(&treated, &base, pair, better(metric), margin)
    }
}

/// The values of each point by seed; `None` for a point that ranks behind others, since more of its runs diverged.
fn candidates(points: &[Vec<ArmRun>], metric: &str, seeds: usize) -> Vec<Option<Vec<Option<f64>>>> {
    let least = points.iter().map(|runs| diverged(runs)).min().unwrap_or(0);
    let by_seed = |runs: &Vec<ArmRun>| {
        let run = |seed| runs.iter().find(|run| run.seed == seed);
        (0..seeds).map(|seed| run(seed)?.curves.last(metric)).collect()
    };
    points.iter().map(|runs| (diverged(runs) == least).then(|| by_seed(runs))).collect()
}

/// The metric of both runs of each pair; seconds only if both runs are from one machine.
fn paired_values(base: &[ArmRun], other: &[ArmRun], metric: &str) -> Vec<(f64, f64)> {
    let both = |(base, other): (&ArmRun, &ArmRun)| {
        let [a, b] = [base, other].map(|run| run.curves.last(metric));
        match unit(metric) {
            Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => Some((a?, b?)),
            Unit::Seconds if base.curves.is_timed_with(&other.curves) && a? > 0.0 => Some((a?, b?)),
            Unit::Seconds => None,
        }
    };
    paired(base, other).into_iter().filter_map(both).collect()
}

fn differences(base: &[ArmRun], other: &[ArmRun], metric: &str) -> Vec<f64> {
    let difference = |(a, b): (f64, f64)| match unit(metric) {
        Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => b - a,
        Unit::Seconds => b / a,
    };
    paired_values(base, other, metric).into_iter().map(difference).collect()
}
