//! The combined results of a comparison's runs.
//!
//! In: the curves of every arm, point of the grid and seed, read from finished runs. Out: for each treatment arm its
//! difference from the base, at the points that the locked rule chooses. Must stay true: differences are paired by
//! seed and never pooled; a value is from a run's last step or absent; missing values are counted, never ignored;
//! a mean difference has its t interval or the reason for its absence; only declared tests get a word;
//! an arm is called controlled only if its lock proved it.

mod analysis;
mod caption;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod concludes;
mod costs;
mod design;
mod diverged;
mod effect;
pub mod interval;
mod json;
mod looks;
mod methods;
mod metric;
mod nuisance;
mod over;
mod parts;
mod proved;
mod seen;
mod siblings;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod unit;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use compiler::digest::Digest;
use lab::comparison::{Selection, SelectionMode};
use lab::experiment::Experiment;

use disk::json_lines;
use records::attest::Attestation;
use records::finished;
use records::metrics::{Record, Score};
use records::run::{Paths, RunError};
use records::verify::{TimedRun, plausible, timed_seconds};
use tasks::metric::{EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY};

use crate::statistics::questions::Split;
use crate::statistics::{Better, Paired, SignFlip, sign_flip, student};

pub use analysis::{Analysis, Member, analysis_of, together};
pub(crate) use analysis::{better, strictest};
pub(crate) use caption::level;
pub use costs::Costs;
pub use design::{ChosenAmong, Design, Rule};
pub use diverged::DivergedSeeds;
pub(crate) use diverged::diverged;
pub use effect::{AaNoise, NoInterval, NoNoise, STEADY, Varied};
pub use interval::{Interval, interval};
pub use json::{Document, json};
pub use lab::comparison::Role;
pub use looks::{ArmLook, LOOKS};
pub use methods::methods;
#[cfg(test)]
use metric::MEASURES;
use metric::rank;
pub use metric::{called, measured, unit};
pub use nuisance::{AxisEnd, Edge};
pub use over::MeasuredOn;
pub use parts::{NoParts, Single, scores_of};
pub(crate) use proved::NOT_CONTROLLED;
pub use proved::{Axis, Claim, Equal, Proved};
pub use seen::{Counted, RunOverlap, TrainingOverlap, label, percent_of, seen};
pub use siblings::{EarlierReport, LeftOut, REPORTED, Sibling, Siblings, siblings};
pub use table::{Section, Summary, Table, summary};
pub(crate) use table::{
    at, effect_cells, interval_head, judged, mean_cell, over_cell, p_cell, percent, title,
};
pub use unit::Unit;

/// The logged curves of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// (step, training loss).
    pub loss: Vec<(u64, f64)>,
    /// By metric, (step, value).
    pub metrics: BTreeMap<String, Vec<(u64, f64)>>,
    /// By metric, the number of questions, tokens or targets behind its last value, if logged.
    pub asked: BTreeMap<String, u64>,
    /// Windows of one evaluation, by the lock.
    pub windows: Option<u64>,
    /// Samples that the model writes at one evaluation, by the lock.
    pub samples: Option<u64>,
    /// By metric, the score of each question after the last step, if logged.
    pub questions: BTreeMap<String, Single>,
    /// Peak memory of any process of the run, if it was measured.
    pub peak_bytes: Option<u64>,
    /// Median seconds of an optimiser step, if the run timed them.
    pub step_seconds: Option<f64>,
    /// The number of steps with a time.
    pub timed_steps: Option<u64>,
    /// Why the run's times are not used, if its file of times is not one that a run writes.
    pub untimed: Option<String>,
    /// The platform and machine of the timings; `None` if several machines worked on the run.
    pub timed_on: Option<String>,
    /// The step at which training diverged. Such a run has no metric values, and ranks below all runs that have.
    pub diverged: Option<u64>,
    /// Digest of the data of each step, from the first on.
    pub batches: Vec<Digest>,
}

/// One run of an arm.
#[derive(Clone, Debug)]
pub struct Run {
    /// Index in the list of seeds; runs with equal index are paired.
    pub seed: usize,
    /// Its logged curves.
    pub curves: Curves,
    /// What training contained of its evaluation questions; `None` if that was not counted, as for documents.
    pub shown: Option<RunOverlap>,
}

/// One arm of a comparison, with its runs.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The arm's name in the lock.
    pub name: String,
    /// Base, treatment or replicate of the base.
    pub role: Role,
    /// The runs at each point of the grid.
    pub points: Vec<Vec<Run>>,
}

/// All runs of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The base first.
    pub arms: Vec<Arm>,
    /// Names of the grid's points; a single unnamed one without a grid.
    pub points: Vec<String>,
    /// How the lock selects a point of the grid for each arm.
    pub selection: Selection,
    /// What the lock proved. By default nothing, and then no arm is called controlled.
    pub proved: Proved,
}

/// A treatment arm, and the points at which it and the base are compared.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The comparison that both arms belong to.
    pub of: &'a Comparison,
    /// The treated arm.
    pub arm: &'a Arm,
    /// The base.
    pub base: &'a Arm,
    /// The replicate of the base with other seeds, at the base's point.
    pub replicate: Option<&'a Arm>,
    /// Index of the treated arm's point.
    pub arm_point: usize,
    /// Index of the base's point, also that of its replicate.
    pub base_point: usize,
    /// The number of seeds that a stopping rule needed to decide; later ones are not shown. `None` means all.
    pub seeds: Option<usize>,
    /// The rule that chose the points by the values of these runs; `None` for points that nothing chose.
    pub chosen_by: Option<Rule>,
}

/// A mean, and the number of runs that had the value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Number of runs.
    pub runs: usize,
}

/// A metric of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The metric, as named in tables.
    pub metric: String,
    /// The metric's unit.
    pub unit: Unit,
    /// Means of the base, the treated arm and the replicate, if present.
    pub means: Vec<Option<Mean>>,
    /// Treated minus base (for seconds, treated over base), in order of seeds.
    pub paired: Vec<f64>,
    /// Whether the result is valid at every look, as under a stopping rule.
    pub anytime: bool,
    /// The points among which a rule chose those of the row by values of these runs; the interval and p allow for it.
    pub chosen_among: Option<ChosenAmong>,
    /// Whether lower or higher values are better.
    pub better: Better,
    /// The mean difference and its interval (the t interval, the anytime-valid one, or one that allows for a choice of
    /// points), or why there is none. For seconds, of the logarithms of ratios.
    pub result: Result<Paired, NoInterval>,
    /// Present for six or more seeds.
    pub sign_flip: Option<SignFlip>,
    /// The secondary analysis: the bootstrap interval, which is too narrow for few seeds.
    pub bootstrap: Option<Interval>,
    /// The difference between the base and its replicate; `None` without a replicate.
    pub itself: Option<Result<AaNoise, NoNoise>>,
    /// Questions, tokens or targets behind each value; the minimum if the numbers differ.
    pub asked: Option<u64>,
    /// What each value was measured on, with its unit.
    pub over: Option<MeasuredOn>,
    /// What training contained of its questions; `None` for a metric without questions, or if that was not counted.
    pub seen: Option<TrainingOverlap>,
    /// The squared standard error of the mean difference, split by seed and question; `None` for a metric without
    /// questions.
    pub parts: Option<Result<Split, NoParts>>,
}

/// A run's final training loss is the mean over this share of its last steps.
const TAIL: f64 = 0.1;
pub(crate) const TRAINING_LOSS: &str = "training loss";
const STEP_TIME: &str = "step time";
/// The evaluation loss of text in bits per byte, where the bytes of its tokens are known.
pub(crate) const BITS_PER_BYTE: &str = "bits per byte";
/// The evaluation loss of text in bits, where tokens are bytes and the marks of documents.
pub(crate) const BITS_PER_TOKEN: &str = "bits per token";

/// Reads the log of a finished run of this lock; refuses any other folder.
pub fn read(folder: &Path, experiment: &Experiment) -> Result<Curves, RunError> {
    let paths = Paths::new(folder);
    let (attestation, records) = finished::read(&paths, experiment.into())?;
    plausible(&records, experiment).map_err(|what| finished::mismatch(&paths, &what))?;
    let mut curves = Curves::from_records(&records);
    (curves.windows, curves.samples) =
        (Some(experiment.evaluation.windows), Some(experiment.evaluation.samples));
    let run = TimedRun {
        records: &records,
        processes: started(&paths.events()),
        steps: experiment.budget.steps,
        finished: true,
    };
    match timed_seconds(&paths, run) {
        Ok(_) => {
            let times = median_step_seconds(&paths.timings());
            (curves.step_seconds, curves.timed_steps) =
                (times.map(|(median, _)| median), times.map(|(_, n)| n));
            curves.peak_bytes = peak_bytes(&paths.timings());
        }
        Err(why) => curves.untimed = Some(format!("{}: {why}", folder.display())),
    }
    curves.timed_on = timed_on(&attestation);
    // Older versions attested a run even if its last loss was NaN.
    let last = experiment.budget.steps;
    let shown = records.last().and_then(|record| finished::divergence(record, last));
    curves.diverged = shown.map(|(step, _)| step);
    Ok(curves)
}

impl Curves {
    /// Curves from records, without timings.
    pub(crate) fn from_records(records: &[Record]) -> Curves {
        let mut curves = Curves::default();
        for record in records {
            match record {
                Record::Start(_) => {}
                Record::Step(step) => {
                    curves.loss.extend(step.loss.map(|loss| (step.step, loss)));
                    curves.batches.push(step.batch);
                }
                Record::Evaluation(eval) => {
                    let mut put = |name: String, value: Option<f64>, asked: Option<u64>| {
                        let Some(value) = value else { return };
                        if let Some(asked) = asked {
                            curves.asked.insert(name.clone(), asked);
                        }
                        curves.metrics.entry(name).or_default().push((eval.step, value));
                    };
                    let score = |score: &Score| (score.ratio(), Some(score.of));
                    put(EVAL_LOSS.to_owned(), eval.nll, Some(eval.counted));
                    let (right, of) = score(&eval.tokens);
                    put(TOKEN_ACCURACY.to_owned(), right, of);
                    let (right, of) = score(&eval.exact());
                    put(EXACT_MATCH.to_owned(), right, of);
                    for (level, of_level) in &eval.answers {
                        let (right, of) = score(of_level);
                        put(format!("{EXACT_MATCH}, level {level}"), right, of);
                    }
                    for (name, value) in &eval.measures {
                        put(measured(name).to_owned(), Some(*value), None);
                    }
                    for (name, value, asked) in parts::of_suites(eval) {
                        put(name, Some(value), Some(asked));
                    }
                    curves.questions = parts::singles(eval);
                }
            }
        }
        curves
    }
}

/// The number of processes that trained a run.
fn started(events: &Path) -> usize {
    let is_start =
        |event: &&serde_json::Value| event.get("event").is_some_and(|event| event == "started");
    json_lines(events).iter().filter(is_start).count()
}

/// The timings of two runs are comparable if these texts are equal.
fn timed_on(attestation: &Attestation) -> Option<String> {
    let mut text = attestation.platform.to_string();
    for (fact, value) in &attestation.machine {
        let _ = write!(text, "\n{fact} {value}");
    }
    attestation.other_machines.is_empty().then_some(text)
}

/// The median step time, and the number of timed steps. Timings depend on the machine and prove nothing. `None` for a
/// run without timings, or if its file of timings records that it shared the machine with others.
fn median_step_seconds(path: &Path) -> Option<(f64, u64)> {
    let lines = json_lines(path);
    if lines.iter().any(|line| line.get("beside").is_some()) {
        return None;
    }
    let mut seconds: Vec<f64> = lines
        .iter()
        .filter_map(|value| value.get("seconds")?.as_f64())
        .filter(|seconds| *seconds > 0.0 && *seconds <= MOST_SECONDS)
        .collect();
    seconds.sort_by(f64::total_cmp);
    Some((*seconds.get(seconds.len() / 2)?, seconds.len() as u64))
}

/// The peak memory over all processes that worked on the run, if recorded.
fn peak_bytes(path: &Path) -> Option<u64> {
    json_lines(path).iter().filter_map(|line| line.get("peak_memory_bytes")?.as_u64()).max()
}

/// Longest accepted step time: about a month.
const MOST_SECONDS: f64 = 3e6;

/// The line added to the timings of a run that shared its machine with other runs of its comparison.
pub fn ran_beside(others: usize) -> String {
    format!("{{\"beside\":{others}}}")
}

impl Curves {
    /// The number of last steps that a final training loss is the mean of.
    fn tail(&self) -> usize {
        ((self.loss.len() as f64 * TAIL) as usize).max(1)
    }

    /// Every metric after the last step; none for a diverged run. The training loss is a mean over the last steps.
    fn finals(&self) -> BTreeMap<String, f64> {
        if self.diverged.is_some() {
            return BTreeMap::new();
        }
        let last = self.loss.last().map(|(step, _)| *step);
        let at_the_end = |points: &Vec<(u64, f64)>| {
            let (step, value) = *points.last()?;
            (Some(step) == last).then_some(value)
        };
        let mut values: BTreeMap<String, f64> = self
            .metrics
            .iter()
            .filter_map(|(name, points)| Some((name.clone(), at_the_end(points)?)))
            .collect();
        let losses: Vec<f64> =
            self.loss.iter().rev().take(self.tail()).map(|(_, loss)| *loss).collect();
        if let Some(Mean { value, runs: _ }) = mean(&losses) {
            values.insert(TRAINING_LOSS.to_owned(), value);
        }
        if let Some(seconds) = self.step_seconds {
            values.insert(STEP_TIME.to_owned(), seconds);
        }
        values
    }
}

impl Curves {
    /// A metric after the last step.
    pub fn last(&self, metric: &str) -> Option<f64> {
        self.finals().get(metric).copied()
    }
}

pub(crate) fn mean(values: &[f64]) -> Option<Mean> {
    let runs = values.len();
    (runs > 0).then(|| Mean { value: values.iter().sum::<f64>() / runs as f64, runs })
}

/// The minimum or maximum. A NaN among the values makes the result NaN.
pub(crate) fn extreme(
    values: impl IntoIterator<Item = f64>,
    pick: fn(f64, f64) -> f64,
) -> Option<f64> {
    let or_none = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) };
    values.into_iter().reduce(or_none)
}

/// A metric of a run after its last step.
pub(crate) fn metric_of(run: &Run, metric: &str) -> Option<f64> {
    run.curves.last(metric)
}

/// A metric's mean over the runs of an arm at one point.
fn mean_of(runs: &[Run], metric: &str) -> Option<Mean> {
    let values: Vec<f64> =
        runs.iter().filter_map(|run| run.curves.finals().get(metric).copied()).collect();
    mean(&values)
}

impl Comparison {
    /// The base; `None` if the comparison has no arms.
    pub fn base(&self) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.role == Role::Base)
    }

    /// The metric of the selection rule, as named in tables.
    pub fn judged_by(&self) -> &str {
        called(&self.selection.metric)
    }

    /// An arm's point with the best mean, or the first of equal ones. Only points count where every run that did not
    /// diverge has the metric; a point with fewer diverged runs ranks before one with more.
    pub fn best(&self, arm: &Arm) -> Option<usize> {
        self.best_points(arm).first().copied()
    }

    /// All points with the best mean.
    pub(crate) fn best_points(&self, arm: &Arm) -> Vec<usize> {
        let score = |runs: &Vec<Run>| {
            let mean = mean_of(runs, self.judged_by())?;
            // Adding 0.0 makes -0.0 and 0.0 equal.
            let better_is_less = match self.selection.mode {
                SelectionMode::Min => mean.value + 0.0,
                SelectionMode::Max => 0.0 - mean.value,
            };
            let diverged = diverged(runs);
            let all = mean.runs + diverged == runs.len() && mean.value.is_finite();
            all.then_some((diverged, better_is_less))
        };
        let scores = arm.points.iter().enumerate();
        let scores: Vec<(usize, (usize, f64))> =
            scores.filter_map(|(at, runs)| Some((at, score(runs)?))).collect();
        let best = scores.iter().map(|(_, score)| *score);
        let best = best.reduce(|a, b| if b < a { b } else { a });
        scores.into_iter().filter(|(_, score)| Some(*score) == best).map(|(at, _)| at).collect()
    }

    /// The point at which the locked rule judges the arm.
    pub fn chosen(&self, arm: &Arm) -> Option<usize> {
        self.chosen_by(arm, self.selection.per_arm)
    }

    /// The point at which a rule judges an arm: the arm's own best point, or the base's. The replicate is judged at the
    /// base's point. Without a grid there is only one point; `None` if the rule cannot choose.
    pub(crate) fn chosen_by(&self, arm: &Arm, per_arm: bool) -> Option<usize> {
        if self.points.len() == 1 {
            return Some(0);
        }
        match arm.role {
            Role::Treatment if per_arm => self.best(arm),
            Role::Base | Role::Treatment | Role::Replicate => self.best(self.base()?),
        }
    }

    /// Each treatment arm paired with the base at the chosen points, or at every point if none can be chosen.
    pub fn pairs(&self) -> Vec<Pair<'_>> {
        let Some(base) = self.base() else { return Vec::new() };
        self.arms
            .iter()
            .filter(|arm| arm.role == Role::Treatment)
            .flat_map(|arm| match (self.chosen(arm), self.chosen(base)) {
                (Some(own), Some(of_base)) => vec![self.pair(base, arm, own, of_base, self.rule())],
                (Some(_) | None, _) => {
                    (0..self.points.len()).map(|p| self.pair(base, arm, p, p, None)).collect()
                }
            })
            .collect()
    }

    /// Whether the rule selected the pair's points.
    fn is_selected(&self, pair: &Pair<'_>) -> bool {
        let points = (self.chosen(pair.arm), self.chosen(pair.base));
        points == (Some(pair.arm_point), Some(pair.base_point))
    }

    /// The declared rule, where there are several points to choose from.
    fn rule(&self) -> Option<Rule> {
        (self.points.len() > 1).then(|| Rule::new(self.selection.per_arm))
    }

    fn pair<'a>(
        &'a self,
        base: &'a Arm,
        arm: &'a Arm,
        arm_point: usize,
        base_point: usize,
        chosen_by: Option<Rule>,
    ) -> Pair<'a> {
        let replicate = self.arms.iter().find(|arm| arm.role == Role::Replicate);
        let seeds = self.decided_after(base, arm);
        Pair { of: self, arm, base, replicate, arm_point, base_point, seeds, chosen_by }
    }
}

impl<'a> Pair<'a> {
    /// The base's runs, in order of seeds, as far as they are shown.
    pub fn base_runs(&self) -> &'a [Run] {
        self.shown(self.base.points.get(self.base_point))
    }

    /// The treated arm's runs, in order of seeds, as far as they are shown.
    pub fn arm_runs(&self) -> &'a [Run] {
        self.shown(self.arm.points.get(self.arm_point))
    }

    /// The replicate's runs, in order of seeds, as far as they are shown; empty without a replicate.
    pub fn replicate_runs(&self) -> &'a [Run] {
        self.shown(self.replicate.and_then(|arm| arm.points.get(self.base_point)))
    }

    /// The runs of a point in order of seeds, up to the look that decided.
    fn shown(&self, runs: Option<&'a Vec<Run>>) -> &'a [Run] {
        let runs = runs.map_or(&[][..], Vec::as_slice);
        let count = match self.seeds {
            None => runs.len(),
            Some(seeds) => runs.partition_point(|run| run.seed < seeds),
        };
        runs.get(..count).unwrap_or(runs)
    }

    /// The number of replicates of the base with other seeds.
    pub fn repetitions(&self) -> usize {
        paired(self.base_runs(), self.replicate_runs()).len()
    }

    /// The row of one metric.
    pub fn row(&self, metric: &str) -> Option<Row> {
        let row = self.row_of(metric.to_owned());
        row.means.iter().any(Option::is_some).then_some(row)
    }

    /// One row per metric, in reading order. A metric of the family has a row even if no run has it.
    pub fn rows(&self) -> Vec<Row> {
        let (base, arm, replicate) = (self.base_runs(), self.arm_runs(), self.replicate_runs());
        let mut names: Vec<String> = base
            .iter()
            .chain(arm)
            .chain(replicate)
            .flat_map(|run| run.curves.finals().into_keys())
            .chain(analysis_of(self.of).family)
            .collect();
        names.sort_by_key(|name| (rank(name), name.clone()));
        names.dedup();
        names.into_iter().map(|metric| self.row_of(metric)).collect()
    }

    fn row_of(&self, metric: String) -> Row {
        let (base, arm, replicate) = (self.base_runs(), self.arm_runs(), self.replicate_runs());
        let mut means = vec![mean_of(base, &metric), mean_of(arm, &metric)];
        means.extend(self.replicate.map(|_| mean_of(replicate, &metric)));
        let unit = unit(&metric);
        let Analysis { confidence, max_seeds, .. } = analysis_of(self.of);
        let anytime = max_seeds.is_some();
        let paired = differences(base, arm, &metric);
        let of_itself = values(base, replicate, &metric);
        let varied = self.of.proved.varied;
        let noise = |_| effect::noise(unit, &of_itself, paired.len(), varied, confidence);
        let chosen_among = self.chosen_among(&metric);
        let single_look = !anytime && chosen_among.is_none();
        let asked = base.iter().chain(arm).filter_map(|run| run.curves.asked.get(&metric));
        Row {
            result: effect::result(
                unit,
                &paired,
                &of_itself,
                self.of.proved.steady(),
                confidence,
                anytime,
            )
            .and_then(|pair| self.allowing_for_choice(&metric, pair, chosen_among)),
            sign_flip: match unit {
                // The sign-flip test and the bootstrap allow neither for repeated looks nor for a choice of points.
                Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown if single_look => {
                    sign_flip::sign_flip(&paired)
                }
                Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown | Unit::Seconds => None,
            },
            bootstrap: if single_look { interval(&paired) } else { None },
            anytime,
            chosen_among,
            itself: self.replicate.map(noise),
            asked: asked.min().copied(),
            over: over::over(base, arm, &metric),
            seen: self.seen(&metric),
            parts: parts::of_metric(base, arm, &metric, confidence)
                .map(|split| split.map(|split| allowing_for_choice(split, chosen_among))),
            better: better(&metric),
            paired,
            metric,
            unit,
            means,
        }
    }
}

/// The split at points that the runs chose: interval and p allow for every pair that could have been chosen.
fn allowing_for_choice(split: Split, chosen: Option<ChosenAmong>) -> Split {
    let Some(ChosenAmong { treated, base, .. }) = chosen else { return split };
    let count = treated * base;
    let half =
        student::critical(split.confidence.of_each(count).alpha(), split.df) * split.standard_error;
    Split {
        low: split.mean - half,
        high: split.mean + half,
        p: (count as f64 * split.p).min(1.0),
        ..split
    }
}

/// Pairs of runs with equal seeds.
pub(crate) fn paired<'a>(base: &'a [Run], other: &'a [Run]) -> Vec<(&'a Run, &'a Run)> {
    base.iter()
        .filter_map(|base| Some((base, other.iter().find(|other| other.seed == base.seed)?)))
        .collect()
}

/// The metric of both runs of each pair; seconds only if both runs are from one machine.
fn values(base: &[Run], other: &[Run], metric: &str) -> Vec<(f64, f64)> {
    let both = |(base, other): (&Run, &Run)| {
        let [a, b] = [base, other].map(|run| run.curves.finals().get(metric).copied());
        let alike = base.curves.timed_on.is_some() && base.curves.timed_on == other.curves.timed_on;
        match unit(metric) {
            Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => Some((a?, b?)),
            Unit::Seconds if alike && a? > 0.0 => Some((a?, b?)),
            Unit::Seconds => None,
        }
    };
    paired(base, other).into_iter().filter_map(both).collect()
}

fn differences(base: &[Run], other: &[Run], metric: &str) -> Vec<f64> {
    let difference = |(a, b): (f64, f64)| match unit(metric) {
        Unit::Nats | Unit::Share | Unit::Count | Unit::Unknown => b - a,
        Unit::Seconds => b / a,
    };
    values(base, other, metric).into_iter().map(difference).collect()
}
