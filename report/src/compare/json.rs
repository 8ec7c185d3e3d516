//! A comparison of runs for programs, in the schema `canonc.compare.v2`.
//!
//! In: the runs and their lock's verdicts. Out: a serialisable document with every number of the tables, unrounded, and
//! every sentence that goes with them. Must stay true: a missing value is null, never 0; an arm is `controlled` only if
//! its lock proved it, and `attributable` only if its treatment is one factor; members are added to a version of the
//! schema, never changed. Version 1 had the bootstrap as its interval and a band for reading it.

use serde::Serialize;

use super::costs::{Costs, Measured, Tuning};
use super::interval::covers as bootstrap_covers;
use super::nuisance::{OF_BASE, PER_ARM};
use super::table::judged;
use super::{
    AaNoise, Analysis, ArmLook, ChosenAmong, Comparison, Design, DivergedSeeds, EXACT_MATCH, Edge,
    Equal, Interval, MeasuredOn, Member, NoInterval, NoNoise, NoParts, Pair, Role, Row, Siblings,
    TrainingOverlap, analysis_of, at, extreme, label, methods, summary, together,
};
use crate::statistics::paired::{Coverage, FEWEST, covers};
use crate::statistics::questions::Split;
use crate::statistics::{Better, Judged, SignFlip, sequential};

const SCHEMA: &str = "canonc.compare.v2";

/// All requested comparisons.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// Name and version of this format.
    pub schema: &'static str,
    /// Whether every treated arm of every comparison is controlled.
    pub controlled: bool,
    /// Whether each of them is controlled for one factor.
    pub attributable: bool,
    /// Each comparison, in the order asked for.
    pub comparisons: Vec<One>,
    /// The primary rows of all comparisons as one family, in their order.
    pub together: Vec<OneOfAll>,
}

/// One primary row in the family of all comparisons.
#[derive(Clone, Debug, Serialize)]
pub struct OneOfAll {
    /// Name of the comparison.
    pub comparison: String,
    /// Name of the treated arm.
    pub arm: String,
    /// The metric, as named in tables.
    pub metric: String,
    /// Its word within that family.
    pub judged: Judged,
}

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct One {
    /// The comparison's name.
    pub name: String,
    /// The id of the comparison's lock.
    pub lock: String,
    /// The design of all judged pairs together.
    pub design: Design,
    /// Whether every judged pair differs only in what was declared.
    pub controlled: bool,
    /// Whether in each of them that is one factor.
    pub attributable: bool,
    /// The verdicts of all arms in one line.
    pub verdict: String,
    /// All arms, the base first.
    pub arms: Vec<OneArm>,
    /// The points of the grid; one empty name without a grid.
    pub points: Vec<String>,
    /// How a point of the grid is selected.
    pub selection: SelectionRule,
    /// The declared tests.
    pub analysis: Analysis,
    /// How intervals are computed.
    pub interval: Method,
    /// At the points of the locked rule, or at every point if it cannot choose; every metric.
    pub pairs: Vec<OnePair>,
    /// At equal points; only the judged metric. Empty without a grid, as the next two are.
    pub paired_at_each_point: Vec<OnePair>,
    /// Each arm at its own best point against the base at its own.
    pub best_per_arm: Vec<OnePair>,
    /// Each arm at the base's best point.
    pub best_of_base_for_all: Vec<OnePair>,
    /// With a stopping rule: the look at each arm that its rows show.
    pub looks: Vec<ArmLook>,
    /// Other locks of the same arms, and finished seeds that this lock leaves out.
    pub siblings: Siblings,
    /// How many questions with answers training contained, over all runs; null if that was not counted.
    pub seen: Option<TrainingOverlap>,
    /// The largest ratio of the base to itself at which ratios of times have an interval.
    pub time_bound: f64,
    /// Important warnings: divergences, chosen seeds, edges of the grid.
    pub warnings: Vec<String>,
    /// Other facts: locks of the same arms.
    pub notes: Vec<String>,
    /// The caption of its tables.
    pub caption: String,
    /// A paragraph for a paper.
    pub methods: String,
}

/// One arm.
#[derive(Clone, Debug, Serialize)]
pub struct OneArm {
    /// The arm's name.
    pub name: String,
    /// `base`, `treated` or `replicate`.
    pub role: &'static str,
    /// Null for the base and its replicate.
    pub verdict: Option<String>,
    /// The design at equal points of the grid; null for the base and its replicate.
    pub design: Option<Design>,
    /// Whether the lock proves that only the treatment differs at equal points; null for the base and its replicate.
    pub controlled: Option<bool>,
    /// Whether the arm is controlled for one factor; null for the base and its replicate.
    pub attributable: Option<bool>,
    /// Factors of the treatment. Several are a bundle, and no difference can be attributed to one of them.
    pub factors: Option<usize>,
    /// Costs of one run, derived from its lock.
    pub costs: Option<Costs>,
    /// Measured costs of its runs.
    pub measured: Measured,
    /// How much it was tuned.
    pub tuning: Tuning,
    /// The quantity that the lock matches with the base, if any.
    pub matched: Option<Equal>,
    /// Finished runs at each point.
    pub runs: Vec<usize>,
    /// The arm's best point by the judged metric, as an index into `points`.
    pub best_point: Option<usize>,
    /// Axes that end at that point.
    pub at_the_edge: Vec<OneEdge>,
}

/// An axis of the grid that ends at an arm's best point.
#[derive(Clone, Debug, Serialize)]
pub struct OneEdge {
    /// The field that the axis varies.
    pub path: String,
    /// `lowest` or `highest`.
    pub end: super::AxisEnd,
}

/// How a point of the grid is selected.
#[derive(Clone, Debug, Serialize)]
pub struct SelectionRule {
    /// The metric's name in the lock.
    pub metric: String,
    /// The metric's name in tables.
    pub called: String,
    /// `min` or `max`.
    pub mode: &'static str,
    /// Whether each arm has its own best point; if not, all use the base's.
    pub per_arm: bool,
    /// `best per arm` or `best of the base for all`.
    pub declared: &'static str,
    /// The number of points that the best one was chosen from.
    pub points: usize,
    /// Whether points were selected on the evaluation windows that are reported.
    pub selected_on_reported: bool,
}

/// How intervals are computed.
#[derive(Clone, Debug, Serialize)]
pub struct Method {
    /// The share of intervals that should hold the truth, such as 0.95.
    pub level: f64,
    /// Name of the method.
    pub method: &'static str,
    /// Fewest differences for an interval.
    pub fewest: usize,
    /// Name of the secondary method.
    pub secondary: &'static str,
}

/// A treated arm against the base, each at one point.
#[derive(Clone, Debug, Serialize)]
pub struct OnePair {
    /// Name of the treated arm.
    pub arm: String,
    /// Name of the base.
    pub base: String,
    /// The arms with their points, as named in tables.
    pub title: String,
    /// What these points show: `controlled`, `compensated`, `bundle`, `tuned` or `not_controlled`.
    pub design: Design,
    /// Whether the lock proves that at these points only what was declared differs.
    pub controlled: bool,
    /// Whether that is one factor.
    pub attributable: bool,
    /// The design in one line.
    pub verdict: String,
    /// An index into `points`.
    pub arm_point: usize,
    /// An index into `points`.
    pub base_point: usize,
    /// Seeds of the rows, and seeds without a difference because a run diverged.
    pub seeds: DivergedSeeds,
    /// One row for each metric.
    pub rows: Vec<OneRow>,
}

/// One metric of a pair.
#[derive(Clone, Debug, Serialize)]
pub struct OneRow {
    /// The metric, as named in tables.
    pub metric: String,
    /// The row's label in tables: the metric, and why its questions are not held out, if they are not.
    pub label: String,
    /// `nats`, `share` and `count`, compared by difference; or `seconds`, compared by ratio.
    pub unit: &'static str,
    /// Mean over the base's runs; null if no run has the metric.
    pub base: Option<f64>,
    /// Mean over the treated arm's runs; null if no run has the metric.
    pub treated: Option<f64>,
    /// Mean over the replicate's runs; null if no run has the metric.
    pub replicate: Option<f64>,
    /// Paired differences, in order of seeds.
    pub paired: Vec<f64>,
    /// Number of differences.
    pub n: usize,
    /// Mean difference; for seconds, the geometric mean ratio.
    pub difference: Option<f64>,
    /// The smallest difference.
    pub lowest: Option<f64>,
    /// The largest difference.
    pub highest: Option<f64>,
    /// Whether lower or higher values are better.
    pub better: Better,
    /// The t interval, or the anytime-valid one; if null, `no_interval` gives the reason.
    pub interval: Option<OneInterval>,
    /// Why there is no interval.
    pub no_interval: Option<NoInterval>,
    /// Present for six or more seeds.
    pub sign_flip: Option<SignFlip>,
    /// The secondary analysis.
    pub bootstrap: Option<Interval>,
    /// How often a bootstrap interval of normal differences holds the truth, in percent, if measured.
    pub bootstrap_covers_percent: Option<u32>,
    /// Only for rows of the family.
    pub judged: Option<Judged>,
    /// The difference between the base and its replicate; null without an A/A arm, or if `no_noise` gives a reason.
    pub noise: Option<AaNoise>,
    /// Why the noise is unknown.
    pub no_noise: Option<NoNoise>,
    /// Questions, tokens or targets behind each value.
    pub asked: Option<u64>,
    /// What each value was measured on.
    pub over: Option<MeasuredOn>,
    /// How many of the row's questions training contained; null if it has none, or if they were not counted.
    pub seen: Option<TrainingOverlap>,
    /// The squared standard error split by seed and question; null for a metric without an evaluation, or if
    /// `no_parts` gives a reason.
    pub parts: Option<Split>,
    /// Why the parts are unknown.
    pub no_parts: Option<NoParts>,
}

/// The interval of the mean difference; for times its ends are ratios.
#[derive(Clone, Debug, Serialize)]
pub struct OneInterval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Number of differences.
    pub n: usize,
    /// Standard error of the mean; for times, of logarithms.
    pub standard_error: f64,
    /// Standard deviation of single differences; for times, of logarithms.
    pub sd: f64,
    /// Two-sided p value for no difference.
    pub p: f64,
    /// Whether the interval and p hold at all looks together, as under a stopping rule.
    pub anytime: bool,
    /// The points among which the row's were chosen by these runs; interval and p allow for the choice.
    pub chosen_among: Option<ChosenAmong>,
    /// The measured coverage of intervals at 0.95.
    pub covers_percent: Option<Coverage>,
}

/// The document of comparisons, each with its name and the id of its lock.
pub fn json<'c>(all: impl IntoIterator<Item = (&'c str, String, &'c Comparison)>) -> Document {
    let all: Vec<(&str, String, &Comparison)> = all.into_iter().collect();
    let of: Vec<&Comparison> = all.iter().map(|(.., comparison)| *comparison).collect();
    let together = all.iter().zip(together(&of)).flat_map(|((name, ..), members)| {
        members.into_iter().map(|member| OneOfAll {
            comparison: (*name).to_owned(),
            arm: member.arm,
            metric: member.metric,
            judged: member.judged,
        })
    });
    let together = together.collect();
    let comparisons: Vec<One> =
        all.into_iter().map(|(name, lock, comparison)| one(name, lock, comparison)).collect();
    Document {
        schema: SCHEMA,
        controlled: comparisons.iter().all(|one| one.controlled),
        attributable: comparisons.iter().all(|one| one.attributable),
        comparisons,
        together,
    }
}

fn one(name: &str, lock: String, comparison: &Comparison) -> One {
    let judged = comparison.judged_by();
    let analysis = analysis_of(comparison);
    let family = comparison.family();
    let grid = comparison.points.len() > 1;
    let of_metric = |pairs: Vec<Pair<'_>>| -> Vec<OnePair> {
        let row = |pair: &Pair<'_>| pair.row(judged).into_iter().collect();
        let kept = pairs.iter().filter(|_| grid);
        kept.map(|pair| one_pair(comparison, pair, row(pair), &[])).collect()
    };
    let selection = &comparison.selection;
    One {
        name: name.to_owned(),
        methods: methods(name, &lock, comparison),
        lock,
        design: comparison.design(),
        controlled: comparison.design().is_controlled(),
        attributable: comparison.design().is_attributable(),
        verdict: comparison.verdict(),
        arms: arms(comparison),
        points: comparison.points.clone(),
        selection: SelectionRule {
            metric: selection.metric.clone(),
            called: judged.to_owned(),
            mode: match selection.mode {
                lab::comparison::SelectionMode::Min => "min",
                lab::comparison::SelectionMode::Max => "max",
            },
            per_arm: selection.per_arm,
            declared: if selection.per_arm { PER_ARM } else { OF_BASE },
            points: comparison.points.len(),
            selected_on_reported: comparison.points.len() > 1,
        },
        interval: Method {
            level: analysis.confidence.share(),
            method: match analysis.max_seeds {
                None if comparison.points.len() > 1 && selection.per_arm => {
                    "interval of the difference between each arm's best point, over seeds; of other metrics, the \
                     paired t interval at the chosen points, at the level divided by the pairs of points; of times, \
                     of log ratios"
                }
                None if comparison.points.len() > 1 => {
                    "paired t interval of the mean difference over seeds, at the level divided by the points that \
                     the base's was chosen from; of times, of log ratios"
                }
                None => {
                    "paired t interval of the mean difference over seeds; of times, of log ratios"
                }
                Some(_) => {
                    "anytime-valid interval of the mean difference over seeds; of times, of log ratios"
                }
            },
            fewest: FEWEST,
            secondary: "percentile bootstrap at 0.95",
        },
        analysis,
        pairs: comparison
            .pairs()
            .iter()
            .map(|pair| one_pair(comparison, pair, pair.rows(), &family))
            .collect(),
        paired_at_each_point: of_metric(comparison.at_each_point()),
        best_per_arm: of_metric(comparison.judged(true)),
        best_of_base_for_all: of_metric(comparison.judged(false)),
        looks: comparison.last_looks(),
        siblings: comparison.proved.siblings.clone(),
        seen: comparison.seen(EXACT_MATCH),
        time_bound: comparison.proved.steady(),
        warnings: comparison.warnings(),
        notes: comparison.notes(),
        caption: summary(comparison).caption,
    }
}

fn arms(comparison: &Comparison) -> Vec<OneArm> {
    let one = |arm: &super::Arm| {
        let treated = arm.role == Role::Treatment;
        let best_point = comparison.best(arm).filter(|_| comparison.points.len() > 1);
        let edges = best_point.map_or_else(Vec::new, |point| comparison.edges(point));
        OneArm {
            name: arm.name.clone(),
            role: match arm.role {
                Role::Base => "base",
                Role::Treatment => "treated",
                Role::Replicate => "replicate",
            },
            verdict: treated.then(|| comparison.standing(&arm.name)),
            design: treated.then(|| comparison.proved.design(&arm.name)),
            controlled: treated.then(|| comparison.is_controlled(&arm.name)),
            attributable: treated.then(|| comparison.proved.design(&arm.name).is_attributable()),
            costs: comparison.costs(arm),
            measured: comparison.measured(arm),
            tuning: comparison.tuning(arm),
            factors: comparison.proved.claims.get(&arm.name).map(|claim| claim.factors),
            matched: comparison
                .proved
                .claims
                .get(&arm.name)
                .and_then(|claim| claim.matched.clone()),
            runs: arm.points.iter().map(Vec::len).collect(),
            best_point,
            at_the_edge: edges
                .into_iter()
                .map(|Edge { path, end }| OneEdge { path, end })
                .collect(),
        }
    };
    comparison.arms.iter().map(one).collect()
}

fn one_pair(
    comparison: &Comparison,
    pair: &Pair<'_>,
    rows: Vec<Row>,
    family: &[Member],
) -> OnePair {
    OnePair {
        arm: pair.arm.name.clone(),
        base: pair.base.name.clone(),
        title: format!(
            "{} against {}",
            at(comparison, &pair.arm.name, pair.arm_point),
            at(comparison, &pair.base.name, pair.base_point)
        ),
        design: pair.design(),
        controlled: pair.design().is_controlled(),
        attributable: pair.design().is_attributable(),
        verdict: pair.standing(),
        arm_point: pair.arm_point,
        base_point: pair.base_point,
        seeds: pair.lost(),
        rows: rows.into_iter().map(|row| one_row(row, pair, family)).collect(),
    }
}

fn one_row(row: Row, pair: &Pair<'_>, family: &[Member]) -> OneRow {
    let of = |side: usize| row.means.get(side).copied().flatten().map(|mean| mean.value);
    let interval = row.result.ok().zip(row.ends()).map(|(found, (low, high))| OneInterval {
        low,
        high,
        n: found.n,
        standard_error: found.standard_error,
        sd: found.sd,
        p: found.p,
        anytime: row.anytime,
        chosen_among: row.chosen_among,
        covers_percent: if row.anytime { Some(sequential::COVERS) } else { covers(found.n) }
            .filter(|_| found.confidence == crate::statistics::Confidence::NINETY_FIVE)
            .filter(|_| row.chosen_among.is_none()),
    });
    OneRow {
        label: label(&row.metric, row.seen),
        unit: row.unit.word(),
        base: of(0),
        treated: of(1),
        replicate: of(2),
        n: row.paired.len(),
        difference: row.mean_difference(),
        lowest: extreme(row.paired.iter().copied(), f64::min),
        highest: extreme(row.paired.iter().copied(), f64::max),
        better: row.better,
        interval,
        no_interval: row.result.err(),
        sign_flip: row.sign_flip,
        bootstrap: row.bootstrap,
        bootstrap_covers_percent: row
            .bootstrap
            .filter(|found| found.exact)
            .and_then(|found| bootstrap_covers(found.n)),
        judged: judged(family, pair, &row.metric),
        noise: row.itself.and_then(Result::ok),
        no_noise: row.itself.and_then(Result::err),
        asked: row.asked,
        over: row.over,
        seen: row.seen,
        parts: row.parts.and_then(Result::ok),
        no_parts: row.parts.and_then(Result::err),
        metric: row.metric,
        paired: row.paired,
    }
}
