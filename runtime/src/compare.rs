//! What the runs of a comparison say together.
//!
//! In: the curves of every arm, point of the grid and seed, read from finished runs. Out: for each treatment arm its
//! difference from the base, at the points that the locked rule chooses. Must stay true: differences are paired by
//! seed and never pooled; a value is of a run's last step or there is none; what is missing is counted, never passed
//! over; the band is what two runs of the base but for their seeds differ by, so a difference inside it says nothing.

mod table;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use compiler::lock::{Choose, Experiment, Selection};

use crate::attest::Attestation;
use crate::finished;
use crate::metrics::Record;
use crate::run::{Paths, RunError};

pub use compiler::lock::Role;
pub use table::{Section, Summary, Table, summary};
pub(crate) use table::{at, title};

/// What one run logged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// (step, training loss).
    pub loss: Vec<(u64, f64)>,
    /// By metric, (step, value).
    pub metrics: BTreeMap<String, Vec<(u64, f64)>>,
    /// Median seconds of an optimiser step, if the run timed them.
    pub step_seconds: Option<f64>,
    /// The platform and the machine that the seconds are of; `None` where several machines worked on the run.
    pub timed_on: Option<String>,
}

/// One run of an arm.
#[derive(Clone, Debug)]
pub struct Run {
    /// Place in the list of seeds; runs of equal place are paired.
    pub seed: usize,
    pub curves: Curves,
}

#[derive(Clone, Debug)]
pub struct Arm {
    pub name: String,
    pub role: Role,
    /// The runs at each point of the grid.
    pub points: Vec<Vec<Run>>,
}

/// Everything that was run.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The base first.
    pub arms: Vec<Arm>,
    /// What each point of the grid is called; one without a name where there is no grid.
    pub points: Vec<String>,
    pub selection: Selection,
}

/// A treatment arm, and the points at which it and the base are compared.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    pub arm: &'a Arm,
    pub base: &'a Arm,
    /// The base with other seeds, at the base's point.
    pub again: Option<&'a Arm>,
    pub arm_point: usize,
    pub base_point: usize,
}

/// What a metric is counted in, which decides how two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Natural logarithms, a difference.
    Nats,
    /// A fraction of one, a difference.
    Share,
    /// Something counted, a difference.
    Count,
    /// A ratio.
    Seconds,
}

/// A mean, and how many runs had the value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    pub value: f64,
    pub runs: usize,
}

/// A metric of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub metric: String,
    pub unit: Unit,
    /// Of the base, the treated arm and the base again, as far as there are any.
    pub means: Vec<Option<Mean>>,
    /// Treated minus base (of seconds: treated over base), in order of seeds.
    pub paired: Vec<f64>,
    /// The largest distance between the base and its repetition, seed by seed (of seconds: from 1, of the ratio).
    pub band: Option<f64>,
}

/// The share of the last steps whose mean is a run's final training loss.
const TAIL: f64 = 0.1;
pub(crate) const TRAINING_LOSS: &str = "training loss";
const STEP_TIME: &str = "step time";
const HELD_OUT_LOSS: &str = "held-out loss";
const TOKENS_RIGHT: &str = "answer tokens right";
const ANSWERS_RIGHT: &str = "whole answers right";

/// What an evaluation's further measures are called in tables, and what they are counted in.
const MEASURES: [(&str, &str, Unit); 4] = [
    ("bits", "bits learnt", Unit::Count),
    ("bits_per_parameter", "bits learnt a parameter", Unit::Count),
    ("kl", "KL from the true law", Unit::Nats),
    ("validity", "sentences valid", Unit::Share),
];

/// What people call a measure.
pub fn measured(name: &str) -> &str {
    MEASURES.iter().find(|(known, ..)| *known == name).map_or(name, |(_, called, _)| called)
}

/// Reads what a finished run of this lock logged; refuses a folder that holds anything else.
pub fn read(folder: &Path, experiment: &Experiment) -> Result<Curves, RunError> {
    let paths = Paths::new(folder);
    let (attestation, records) = finished::read(&paths, experiment.into())?;
    let mut curves = Curves::default();
    for record in records {
        match record {
            Record::Start(_) => {}
            Record::Step(step) => curves.loss.extend(step.loss.map(|loss| (step.step, loss))),
            Record::Evaluation(eval) => {
                let mut put = |name: String, value: Option<f64>| {
                    if let Some(value) = value {
                        curves.metrics.entry(name).or_default().push((eval.step, value));
                    }
                };
                put(HELD_OUT_LOSS.to_owned(), eval.nll);
                put(TOKENS_RIGHT.to_owned(), eval.tokens.ratio());
                put(ANSWERS_RIGHT.to_owned(), eval.exact().ratio());
                for (level, score) in &eval.answers {
                    put(format!("{ANSWERS_RIGHT}, level {level}"), score.ratio());
                }
                for (name, value) in &eval.measures {
                    put(measured(name).to_owned(), Some(*value));
                }
            }
        }
    }
    curves.step_seconds = median_step_seconds(&paths.timings());
    curves.timed_on = timed_on(&attestation);
    Ok(curves)
}

/// Two runs whose texts agree may have their seconds compared.
fn timed_on(attestation: &Attestation) -> Option<String> {
    let mut text = attestation.platform.to_string();
    for (fact, value) in &attestation.machine {
        let _ = write!(text, "\n{fact} {value}");
    }
    attestation.other_machines.is_empty().then_some(text)
}

/// Timings are of one machine's day and prove nothing; a run without them has none, and neither has one that others
/// ran beside, which says so among them.
fn median_step_seconds(path: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(path).ok()?;
    let lines: Vec<serde_json::Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if lines.iter().any(|line| line.get("beside").is_some()) {
        return None;
    }
    let mut seconds: Vec<f64> = lines
        .iter()
        .filter_map(|value| value.get("seconds")?.as_f64())
        .filter(|seconds| (0.0..=MOST_SECONDS).contains(seconds))
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied()
}

/// Of one step: a month.
const MOST_SECONDS: f64 = 3e6;

/// What is added to the timings of a run that shared its machine with others of its comparison.
pub fn ran_beside(others: usize) -> String {
    format!("{{\"beside\":{others}}}")
}

impl Curves {
    /// Every metric after the last step; of the training loss, the mean of the last tenth of all steps.
    fn finals(&self) -> BTreeMap<String, f64> {
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
        let tail = ((self.loss.len() as f64 * TAIL) as usize).max(1);
        let losses: Vec<f64> = self.loss.iter().rev().take(tail).map(|(_, loss)| *loss).collect();
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
    pub(crate) fn last(&self, metric: &str) -> Option<f64> {
        self.finals().get(metric).copied()
    }
}

pub(crate) fn mean(values: &[f64]) -> Option<Mean> {
    let runs = values.len();
    (runs > 0).then(|| Mean { value: values.iter().sum::<f64>() / runs as f64, runs })
}

/// A metric's mean over an arm's runs at a point.
fn mean_of(runs: &[Run], metric: &str) -> Option<Mean> {
    let values: Vec<f64> =
        runs.iter().filter_map(|run| run.curves.finals().get(metric).copied()).collect();
    mean(&values)
}

impl Comparison {
    pub fn base(&self) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.role == Role::Base)
    }

    /// The metric that the rule goes by, as tables call it.
    pub fn judged_by(&self) -> &'static str {
        match self.selection.metric.as_str() {
            "answer_accuracy" => ANSWERS_RIGHT,
            "token_accuracy" => TOKENS_RIGHT,
            metric => {
                let measure = MEASURES.iter().find(|(name, ..)| *name == metric);
                measure.map_or(HELD_OUT_LOSS, |(_, called, _)| called)
            }
        }
    }

    /// An arm's point with the best mean, the first of equal ones; only points where every run has the metric count.
    pub fn best(&self, arm: &Arm) -> Option<usize> {
        let score = |runs: &Vec<Run>| {
            let mean = mean_of(runs, self.judged_by())?;
            let better_is_less = match self.selection.choose {
                Choose::Least => mean.value,
                Choose::Most => -mean.value,
            };
            (mean.runs == runs.len() && mean.value.is_finite()).then_some(better_is_less)
        };
        let scores = arm.points.iter().enumerate();
        scores
            .filter_map(|(at, runs)| Some((at, score(runs)?)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(at, _)| at)
    }

    /// Where the rule has the arm judged: at its own best point, or at the base's. The base again is the base, and is
    /// judged where that is. Without a grid there is nothing to choose; `None` where the rule cannot choose.
    pub fn chosen(&self, arm: &Arm) -> Option<usize> {
        if self.points.len() == 1 {
            return Some(0);
        }
        match arm.role {
            Role::Treatment if self.selection.per_arm => self.best(arm),
            Role::Base | Role::Treatment | Role::Again => self.best(self.base()?),
        }
    }

    /// Each treatment arm against the base, at the points chosen; at every point alike where none can be.
    pub fn pairs(&self) -> Vec<Pair<'_>> {
        let Some(base) = self.base() else { return Vec::new() };
        let again = self.arms.iter().find(|arm| arm.role == Role::Again);
        let pair = |arm, (arm_point, base_point)| Pair { arm, base, again, arm_point, base_point };
        self.arms
            .iter()
            .filter(|arm| arm.role == Role::Treatment)
            .flat_map(|arm| {
                let points = match (self.chosen(arm), self.chosen(base)) {
                    (Some(own), Some(of_base)) => vec![(own, of_base)],
                    (Some(_) | None, _) => (0..self.points.len()).map(|p| (p, p)).collect(),
                };
                points.into_iter().map(move |points| pair(arm, points)).collect::<Vec<_>>()
            })
            .collect()
    }
}

impl<'a> Pair<'a> {
    pub(crate) fn base_runs(&self) -> &'a [Run] {
        self.base.points.get(self.base_point).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn arm_runs(&self) -> &'a [Run] {
        self.arm.points.get(self.arm_point).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn again_runs(&self) -> &'a [Run] {
        self.again.and_then(|arm| arm.points.get(self.base_point)).map_or(&[], Vec::as_slice)
    }

    /// One row a metric, in the order people read them.
    pub fn rows(&self) -> Vec<Row> {
        let (base, arm, again) = (self.base_runs(), self.arm_runs(), self.again_runs());
        let mut names: Vec<String> = base
            .iter()
            .chain(arm)
            .chain(again)
            .flat_map(|run| run.curves.finals().into_keys())
            .collect();
        names.sort_by_key(|name| (rank(name), name.clone()));
        names.dedup();
        let row = |metric: String| {
            let mut means = vec![mean_of(base, &metric), mean_of(arm, &metric)];
            means.extend(self.again.map(|_| mean_of(again, &metric)));
            let unit = unit(&metric);
            let band = differences(base, again, &metric).into_iter().map(|d| match unit {
                Unit::Nats | Unit::Share | Unit::Count => d.abs(),
                Unit::Seconds => (d - 1.0).abs(),
            });
            Row {
                band: band.reduce(f64::max),
                paired: differences(base, arm, &metric),
                metric,
                unit,
                means,
            }
        };
        names.into_iter().map(row).collect()
    }
}

/// Runs of equal seeds.
pub(crate) fn paired<'a>(base: &'a [Run], other: &'a [Run]) -> Vec<(&'a Run, &'a Run)> {
    base.iter()
        .filter_map(|base| Some((base, other.iter().find(|other| other.seed == base.seed)?)))
        .collect()
}

fn differences(base: &[Run], other: &[Run], metric: &str) -> Vec<f64> {
    let difference = |(base, other): (&Run, &Run)| {
        let [a, b] = [base, other].map(|run| run.curves.finals().get(metric).copied());
        let alike = base.curves.timed_on.is_some() && base.curves.timed_on == other.curves.timed_on;
        match unit(metric) {
            Unit::Nats | Unit::Share | Unit::Count => Some(b? - a?),
            Unit::Seconds if alike && a? > 0.0 => Some(b? / a?),
            Unit::Seconds => None,
        }
    };
    paired(base, other).into_iter().filter_map(difference).collect()
}

fn unit(metric: &str) -> Unit {
    match metric {
        STEP_TIME => Unit::Seconds,
        _ if metric.starts_with(TOKENS_RIGHT) || metric.starts_with(ANSWERS_RIGHT) => Unit::Share,
        _ => {
            let found = MEASURES.iter().find(|(_, called, _)| *called == metric);
            found.map_or(Unit::Nats, |(.., unit)| *unit)
        }
    }
}

fn rank(metric: &str) -> u8 {
    match metric {
        TRAINING_LOSS => 0,
        HELD_OUT_LOSS => 1,
        TOKENS_RIGHT => 2,
        ANSWERS_RIGHT => 3,
        STEP_TIME => 5,
        _ => 4,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Twenty steps of one loss, and the answers that are right at the end.
    pub(crate) fn run(seed: usize, loss: f64, right: f64) -> Run {
        let metrics = BTreeMap::from([
            (TOKENS_RIGHT.to_owned(), vec![(10, 0.0), (20, right)]),
            (HELD_OUT_LOSS.to_owned(), vec![(10, 9.0), (20, loss)]),
        ]);
        let curves = Curves {
            loss: (1..=20).map(|s| (s, loss)).collect(),
            metrics,
            step_seconds: Some(0.01),
            timed_on: Some("here".to_owned()),
        };
        Run { seed, curves }
    }

    pub(crate) fn arm(name: &str, role: Role, points: Vec<Vec<Run>>) -> Arm {
        Arm { name: name.to_owned(), role, points }
    }

    pub(crate) fn by(metric: &str, choose: Choose, per_arm: bool) -> Selection {
        Selection { metric: metric.to_owned(), choose, per_arm }
    }

    /// Two seeds of a base and a treated arm; of the base again one.
    pub(crate) fn two_seeds() -> Comparison {
        Comparison {
            arms: vec![
                arm("llama", Role::Base, vec![vec![run(0, 2.0, 0.5), run(1, 3.0, 0.4)]]),
                arm("canon", Role::Treatment, vec![vec![run(0, 1.5, 0.75), run(1, 2.75, 0.7)]]),
                arm("llama again", Role::Again, vec![vec![run(0, 2.1, 0.5)]]),
            ],
            points: vec![String::new()],
            selection: by("loss", Choose::Least, true),
        }
    }

    /// Three arms at two points, each best at another one.
    pub(crate) fn grid(selection: Selection) -> Comparison {
        let points = |losses: [f64; 2]| losses.map(|loss| vec![run(0, loss, 1.0 / loss)]).to_vec();
        Comparison {
            arms: vec![
                arm("base", Role::Base, points([2.0, 3.0])),
                arm("left", Role::Treatment, points([4.0, 1.5])),
                arm("right", Role::Treatment, points([1.25, 4.5])),
                arm("base again", Role::Again, points([2.5, 1.0])),
            ],
            points: vec!["optimizer.lr 0.01".to_owned(), "optimizer.lr 0.02".to_owned()],
            selection,
        }
    }

    #[test]
    fn measures_have_names_units_and_can_be_judged_by() {
        let mut comparison = grid(by("bits", Choose::Most, true));
        for (arm, bits) in comparison.arms.iter_mut().zip([10.0, 30.0, 20.0, 10.0]) {
            for (point, runs) in arm.points.iter_mut().enumerate() {
                let curves = &mut runs[0].curves;
                for (name, value) in
                    [("bits", bits + point as f64), ("kl", 0.5), ("validity", 0.25)]
                {
                    curves.metrics.insert(measured(name).to_owned(), vec![(20, value)]);
                }
            }
        }
        assert_eq!(comparison.judged_by(), "bits learnt");
        assert_eq!(comparison.best(&comparison.arms[1]), Some(1));
        let rows = comparison.pairs()[0].rows();
        let row = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap();
        assert_eq!(
            (row("bits learnt").unit, &row("bits learnt").paired[..]),
            (Unit::Count, &[20.0][..])
        );
        assert_eq!(row("KL from the true law").unit, Unit::Nats);
        assert_eq!(row("sentences valid").unit, Unit::Share);
        assert_eq!(measured("something newer"), "something newer");
        let text = summary(&comparison).text();
        assert!(text.contains("31.0000") && text.contains("25.0%"), "{text}");
    }

    fn places(comparison: &Comparison) -> Vec<(&str, usize, usize)> {
        let pairs = comparison.pairs();
        pairs.iter().map(|p| (p.arm.name.as_str(), p.arm_point, p.base_point)).collect()
    }

    #[test]
    fn differences_are_paired_by_seed() {
        let comparison = two_seeds();
        let rows = comparison.pairs()[0].rows();
        assert_eq!(rows[0].metric, TRAINING_LOSS);
        assert_eq!(rows[0].paired, [-0.5, -0.25]);
        assert!((rows[0].band.unwrap() - 0.1).abs() < 1e-12);
        assert_eq!(rows[0].means[2], Some(Mean { value: 2.1, runs: 1 }));
        assert_eq!(rows[2].means[0], Some(Mean { value: 0.45, runs: 2 }));
        // The treated arm lost its first seed: what is left is of the second alone.
        let mut comparison = two_seeds();
        comparison.arms[1].points[0].remove(0);
        assert_eq!(comparison.pairs()[0].rows()[0].paired, [-0.25]);
    }

    #[test]
    fn a_value_of_an_earlier_step_is_not_the_last_one() {
        let mut comparison = two_seeds();
        let metrics = &mut comparison.arms[1].points[0][0].curves.metrics;
        metrics.get_mut(HELD_OUT_LOSS).unwrap().pop();
        let rows = comparison.pairs()[0].rows();
        let held_out = rows.iter().find(|row| row.metric == HELD_OUT_LOSS).unwrap();
        assert_eq!(held_out.means[1], Some(Mean { value: 2.75, runs: 1 }));
        assert_eq!(held_out.paired, [-0.25]);
    }

    #[test]
    fn the_locked_rule_chooses_the_points() {
        let chosen = |metric, choose, per_arm| grid(by(metric, choose, per_arm));
        let each = [("left", 1, 0), ("right", 0, 0)];
        assert_eq!(places(&chosen("loss", Choose::Least, true)), each);
        assert_eq!(places(&chosen("token_accuracy", Choose::Most, true)), each);
        let shared = [("left", 0, 0), ("right", 0, 0)];
        assert_eq!(places(&chosen("loss", Choose::Least, false)), shared);
        let worst = [("left", 0, 1), ("right", 1, 1)];
        assert_eq!(places(&chosen("loss", Choose::Most, true)), worst);
        // The base again has its best point elsewhere, and is the base.
        let comparison = chosen("loss", Choose::Least, true);
        assert_eq!(comparison.pairs()[0].rows()[0].band, Some(0.5));
        // Nobody measured what the rule goes by: every point, at equal points.
        let none = chosen("answer_accuracy", Choose::Most, true);
        let all = [("left", 0, 0), ("left", 1, 1), ("right", 0, 0), ("right", 1, 1)];
        assert_eq!(places(&none), all);
    }

    #[test]
    fn a_point_that_lacks_a_value_is_not_chosen() {
        let mut comparison = grid(by("loss", Choose::Least, true));
        let best = &mut comparison.arms[1].points[1];
        let mut lacking = run(1, 0.5, 1.0);
        lacking.curves.metrics.clear();
        best.push(lacking);
        assert_eq!(places(&comparison)[0], ("left", 0, 0));
    }

    #[test]
    fn seconds_are_compared_on_one_machine_only() {
        let time = |comparison: &Comparison| comparison.pairs()[0].rows().pop().unwrap();
        let mut comparison = two_seeds();
        comparison.arms[1].points[0][0].curves.step_seconds = Some(0.02);
        comparison.arms[2].points[0][0].curves.step_seconds = Some(0.009);
        let row = time(&comparison);
        assert_eq!((row.metric.as_str(), row.paired), (STEP_TIME, vec![2.0, 1.0]));
        assert!((row.band.unwrap() - 0.1).abs() < 1e-12);
        for elsewhere in [Some("there".to_owned()), None] {
            comparison.arms[1].points[0][0].curves.timed_on = elsewhere;
            assert_eq!(time(&comparison).paired, [1.0]);
        }
    }
}
