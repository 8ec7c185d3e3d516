//! A comparison of runs for programs: the schema is `canonc.compare.v1`.
//!
//! In: what was run and what was proved. Out: a serialisable document with every number of the tables, unrounded, and
//! every sentence beside them. Must stay true: what is missing is null and never 0; an arm is `controlled` only if its
//! lock proved it; members are added to the schema, never changed.

use serde::Serialize;

use super::interval::{EXACT, FEWEST, covers};
use super::nuisance::{OF_BASE, PER_ARM};
use super::{Comparison, Edge, Equal, Interval, Pair, Role, Row, Unit, at, extreme, mean, summary};

const SCHEMA: &str = "canonc.compare.v1";

/// Every comparison that was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    pub schema: &'static str,
    /// Whether each treated arm of each comparison is.
    pub controlled: bool,
    pub comparisons: Vec<One>,
}

#[derive(Clone, Debug, Serialize)]
pub struct One {
    pub name: String,
    /// The id of the comparison's lock.
    pub lock: String,
    pub controlled: bool,
    /// Of all arms, in a line.
    pub verdict: String,
    pub arms: Vec<OneArm>,
    /// The points of the grid; one empty name where there is no grid.
    pub points: Vec<String>,
    pub selection: Rule,
    pub interval: Method,
    /// By the locked rule, or point by point where it cannot choose; every metric.
    pub pairs: Vec<OnePair>,
    /// At equal points; the judged metric. Empty without a grid, as the next two are.
    pub paired_at_each_point: Vec<OnePair>,
    pub best_per_arm: Vec<OnePair>,
    pub best_of_base_for_all: Vec<OnePair>,
    pub warnings: Vec<String>,
    pub caption: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct OneArm {
    pub name: String,
    /// `base`, `treated` or `again`.
    pub role: &'static str,
    /// Null of the base and of its repetition.
    pub verdict: Option<String>,
    pub controlled: Option<bool>,
    /// Of the treatment: of several it is a bundle, and no difference can be laid to one of them.
    pub factors: Option<usize>,
    pub matched: Option<Equal>,
    /// Finished runs at each point.
    pub runs: Vec<usize>,
    /// The arm's best point by the judged metric, as a place in `points`.
    pub best_point: Option<usize>,
    /// Axes that end at that point.
    pub at_the_edge: Vec<OneEdge>,
}

#[derive(Clone, Debug, Serialize)]
pub struct OneEdge {
    pub path: String,
    /// `lowest` or `highest`.
    pub end: super::End,
}

#[derive(Clone, Debug, Serialize)]
pub struct Rule {
    /// As the lock says it, and as tables call it.
    pub metric: String,
    pub called: &'static str,
    /// `least` or `most`.
    pub choose: &'static str,
    pub per_arm: bool,
    /// `best per arm` or `best of the base for all`.
    pub declared: &'static str,
    /// How many points a best one is the best of.
    pub points: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct Method {
    pub level: f64,
    pub method: &'static str,
    /// Below so many differences there is no interval.
    pub fewest: usize,
    /// Up to so many every resample is counted.
    pub exact_up_to: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct OnePair {
    pub arm: String,
    pub base: String,
    /// With their points, as tables call them.
    pub title: String,
    pub controlled: bool,
    pub verdict: String,
    /// Places in `points`.
    pub arm_point: usize,
    pub base_point: usize,
    pub rows: Vec<OneRow>,
}

#[derive(Clone, Debug, Serialize)]
pub struct OneRow {
    pub metric: String,
    /// `nats`, `share`, `count`, or `seconds`, whose differences are ratios.
    pub unit: &'static str,
    /// Means over runs; null where no run has the metric.
    pub base: Option<f64>,
    pub treated: Option<f64>,
    pub again: Option<f64>,
    /// Paired differences, seed by seed, and how many.
    pub paired: Vec<f64>,
    pub n: usize,
    pub difference: Option<f64>,
    pub lowest: Option<f64>,
    pub highest: Option<f64>,
    pub interval: Option<Interval>,
    /// How often such an interval of normal differences holds the truth, in percent, where it was measured.
    pub covers_percent: Option<u32>,
    /// The A/A band, and how many distances it is the largest of.
    pub band: Option<f64>,
    pub band_pairs: usize,
}

/// A comparison under its name and the id of its lock.
pub fn json<'c>(all: impl IntoIterator<Item = (&'c str, String, &'c Comparison)>) -> Document {
    let comparisons: Vec<One> =
        all.into_iter().map(|(name, lock, comparison)| one(name, lock, comparison)).collect();
    let controlled = comparisons.iter().all(|one| one.controlled);
    Document { schema: SCHEMA, controlled, comparisons }
}

fn one(name: &str, lock: String, comparison: &Comparison) -> One {
    let judged = comparison.judged_by();
    let grid = comparison.points.len() > 1;
    let of_metric = |pairs: Vec<Pair<'_>>| -> Vec<OnePair> {
        let row = |pair: &Pair<'_>| pair.row(judged).into_iter().collect();
        let kept = pairs.iter().filter(|_| grid);
        kept.map(|pair| one_pair(comparison, pair, row(pair))).collect()
    };
    let selection = &comparison.selection;
    One {
        name: name.to_owned(),
        lock,
        controlled: comparison.not_controlled().is_empty(),
        verdict: comparison.verdict(),
        arms: arms(comparison),
        points: comparison.points.clone(),
        selection: Rule {
            metric: selection.metric.clone(),
            called: judged,
            choose: match selection.choose {
                compiler::lock::Choose::Least => "least",
                compiler::lock::Choose::Most => "most",
            },
            per_arm: selection.per_arm,
            declared: if selection.per_arm { PER_ARM } else { OF_BASE },
            points: comparison.points.len(),
        },
        interval: Method {
            level: 0.95,
            method: "percentile bootstrap of the mean paired difference over seeds",
            fewest: FEWEST,
            exact_up_to: EXACT,
        },
        pairs: comparison
            .pairs()
            .iter()
            .map(|pair| one_pair(comparison, pair, pair.rows()))
            .collect(),
        paired_at_each_point: of_metric(comparison.at_each_point()),
        best_per_arm: of_metric(comparison.judged(true)),
        best_of_base_for_all: of_metric(comparison.judged(false)),
        warnings: comparison.warnings(),
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
                Role::Again => "again",
            },
            verdict: treated.then(|| comparison.standing(&arm.name)),
            controlled: treated.then(|| comparison.is_controlled(&arm.name)),
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

fn one_pair(comparison: &Comparison, pair: &Pair<'_>, rows: Vec<Row>) -> OnePair {
    OnePair {
        arm: pair.arm.name.clone(),
        base: pair.base.name.clone(),
        title: format!(
            "{} against {}",
            at(comparison, &pair.arm.name, pair.arm_point),
            at(comparison, &pair.base.name, pair.base_point)
        ),
        controlled: comparison.is_controlled(&pair.arm.name),
        verdict: comparison.standing(&pair.arm.name),
        arm_point: pair.arm_point,
        base_point: pair.base_point,
        rows: rows.into_iter().map(|row| one_row(pair, row)).collect(),
    }
}

fn one_row(pair: &Pair<'_>, row: Row) -> OneRow {
    let Row { metric, unit, means, paired, interval, band } = row;
    let of = |side: usize| means.get(side).copied().flatten().map(|mean| mean.value);
    OneRow {
        metric,
        unit: match unit {
            Unit::Nats => "nats",
            Unit::Share => "share",
            Unit::Count => "count",
            Unit::Seconds => "seconds",
        },
        base: of(0),
        treated: of(1),
        again: of(2),
        n: paired.len(),
        difference: mean(&paired).map(|mean| mean.value),
        lowest: extreme(paired.iter().copied(), f64::min),
        highest: extreme(paired.iter().copied(), f64::max),
        covers_percent: interval.filter(|found| found.exact).and_then(|found| covers(found.n)),
        interval,
        band,
        band_pairs: if band.is_some() { pair.band_pairs() } else { 0 },
        paired,
    }
}
