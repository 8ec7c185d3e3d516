//! The verdicts of a comparison's lock on its arms, for display with the results.
//!
//! In: a locked comparison. Out: each treatment arm's verdict, and the quantity it is matched on; the values along the
//! grid. Must stay true: an arm without a proof, or with a verdict other than controlled, is called not controlled in
//! every table, page, picture and document.

use std::collections::{BTreeMap, BTreeSet};

use super::{Analysis, Arm, Comparison, Costs, Design, Pair, Role, Siblings, Varied};
use crate::statistics::questions::Asked;
use tasks::metric::of_suite;

/// Facts from the lock, for display with the results of the runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proved {
    /// By treated arm.
    pub claims: BTreeMap<String, Claim>,
    /// Fields that the grid varies.
    pub axes: Vec<Axis>,
    /// The declared analysis; `None` if the lock declares none.
    pub analysis: Option<Analysis>,
    /// Which seeds are all distinct, of the base and its repetition together.
    pub varied: Varied,
    /// A warning for each kind of seed that pairs have in common: such pairs are not independent.
    pub repeated: Vec<String>,
    /// Whether all seeds are evaluated on the same windows; `None` if unknown or mixed. Suites ask all the same.
    pub questions: Option<Asked>,
    /// The largest ratio of the base to itself at which ratios of times have an interval; `None` for the default.
    pub time_bound: Option<f64>,
    /// By arm, the cost of one run.
    pub costs: BTreeMap<String, Costs>,
    /// Other locks and finished seeds of these arms, if they were searched.
    pub siblings: Siblings,
}

/// The lock's verdict on one arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The verdict in one line, with the matched quantity.
    pub verdict: String,
    /// Also true for a bundle of several factors.
    pub controlled: bool,
    /// Factors of the treatment. With several, no difference can be attributed to one.
    pub factors: usize,
    /// The quantity that the lock matches, if any.
    pub matched: Option<Equal>,
    /// Whether one factor is treated and sizes were adjusted to match it.
    pub compensated: bool,
    /// Whether one run of the arm trains on as many tokens as one of the base.
    pub equal_budget: bool,
}

/// A quantity that is matched between the arms.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Equal {
    /// Its name in the comparison file.
    pub on: &'static str,
    /// The derived field.
    pub path: &'static str,
    /// The declared tolerance.
    pub within: String,
    /// The quantity in the base.
    pub base: i128,
    /// The quantity in the treated arm.
    pub arm: i128,
    /// How much the arm exceeds the base: `+0.35%`, `equal`.
    pub apart: String,
}

/// A field that the grid varies, and its value at each point, if numeric.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The field, as in locks.
    pub path: String,
    /// Its value at each point; `None` if it is not a number.
    pub values: Vec<Option<f64>>,
}

impl Claim {
    /// The design at equal points of the grid.
    pub fn design(&self) -> Design {
        match self.controlled {
            false => Design::NotControlled,
            true if self.compensated => Design::Compensated,
            true if self.factors <= 1 => Design::Controlled,
            true => Design::Bundle,
        }
    }
}

/// Seeds that several pairs have in common.
fn repeated(seeds: &[lab::experiment::Seeds]) -> Vec<String> {
    let of = |what: &str, seed: fn(&lab::experiment::Seeds) -> u64| {
        let distinct: BTreeSet<u64> = seeds.iter().map(seed).collect();
        match distinct.first() {
            Some(only) if distinct.len() == 1 && seeds.len() > 1 => Some(format!(
                "Warning: all {} pairs have {what} seed {only}: their interval holds for this seed only.",
                seeds.len()
            )),
            Some(_) if distinct.len() < seeds.len() => Some(format!(
                "Warning: {} pairs have {} different {what} seeds: pairs that share one are not independent, and the \
                 interval may be too narrow.",
                seeds.len(),
                distinct.len()
            )),
            Some(_) | None => None,
        }
    };
    [of("init", |seeds| seeds.init), of("data", |seeds| seeds.data)].into_iter().flatten().collect()
}

/// Which seeds are all distinct, of the base and its repetition together: pairs that share one differ by less than
/// seeds make runs differ.
fn varied(base: &[lab::experiment::Seeds], replicate: &[lab::experiment::Seeds]) -> Varied {
    let distinct = |of: fn(&lab::experiment::Seeds) -> u64| {
        let used = || base.iter().take(replicate.len()).chain(replicate).map(of);
        !replicate.is_empty() && used().collect::<BTreeSet<u64>>().len() == used().count()
    };
    Varied { init: distinct(|seeds| seeds.init), data: distinct(|seeds| seeds.data) }
}

/// The windows of an evaluation follow from `seeds.eval` alone.
fn questions(locked: &lab::comparison::Comparison) -> Option<Asked> {
    let evals: std::collections::BTreeSet<u64> =
        locked.seeds.iter().map(|seeds| seeds.eval).collect();
    match evals.len() {
        1 => Some(Asked::Same),
        count if count == locked.seeds.len() => Some(Asked::Fresh),
        _ => None,
    }
}

/// The prefix of every statement about an arm without a proof.
pub(crate) const NOT_CONTROLLED: &str = "NOT CONTROLLED";

impl Proved {
    /// Whether all seeds answer the same questions of a metric; `None` if unknown or mixed.
    pub(crate) fn questions_of(&self, metric: &str) -> Option<Asked> {
        match of_suite(metric) {
            Some(_) => Some(Asked::Same),
            None => self.questions,
        }
    }

    /// What a comparison's lock proves.
    pub fn from_lock(locked: &lab::comparison::Comparison) -> Proved {
        let tokens = |arm: &str| {
            let arm = locked.arms.iter().find(|known| known.name == arm);
            arm.and_then(|arm| Costs::from_experiment(&arm.experiment).tokens)
        };
        let claims = locked.verdicts.iter().map(|(arm, verdict)| {
            let matched = locked.matching.zip(locked.matched.get(arm));
            let matched = matched.map(|(of, found)| Equal {
                on: of.on.word(),
                path: of.on.path(),
                within: of.within.to_string(),
                base: found.base,
                arm: found.arm,
                apart: found.apart(),
            });
            let claim = Claim {
                verdict: locked.headline(arm),
                controlled: verdict.is_controlled(),
                factors: verdict.treatment.iter().map(|declared| declared.factors).sum(),
                matched,
                compensated: locked.is_compensated(arm),
                equal_budget: tokens(arm) == tokens(&locked.base),
            };
            (arm.clone(), claim)
        });
        let paths = locked.grid.iter().flat_map(|grid| &grid.paths);
        let axes = paths.map(|path| {
            let mut values = BTreeMap::new();
            for run in locked.runs() {
                values.entry(run.point).or_insert_with(|| {
                    run.experiment.value(path).and_then(|value| value.plain().parse().ok())
                });
            }
            Axis { path: path.clone(), values: values.into_values().collect() }
        });
        let costs = locked
            .arms
            .iter()
            .map(|arm| (arm.name.clone(), Costs::from_experiment(&arm.experiment)));
        Proved {
            claims: claims.collect(),
            axes: axes.collect(),
            analysis: Analysis::declared(locked),
            varied: varied(&locked.seeds, &locked.replicate),
            repeated: repeated(&locked.seeds),
            questions: questions(locked),
            time_bound: Some(locked.analysis.time_bound.to_f64()),
            costs: costs.collect(),
            siblings: Siblings::default(),
        }
    }

    /// The largest accepted ratio of the base's times to themselves.
    pub(crate) fn steady(&self) -> f64 {
        self.time_bound.unwrap_or(super::STEADY)
    }

    /// An arm's design at equal points of the grid.
    pub(crate) fn design(&self, arm: &str) -> Design {
        self.claims.get(arm).map_or(Design::NotControlled, Claim::design)
    }

    /// Whether an arm and the base train on equally many tokens.
    pub(crate) fn has_equal_budget(&self, arm: &str) -> bool {
        self.claims.get(arm).is_some_and(|claim| claim.equal_budget)
    }

    /// The verdict on an arm, in one line.
    pub fn standing(&self, arm: &str) -> String {
        match self.claims.get(arm) {
            Some(Claim { verdict, controlled: true, .. }) => verdict.clone(),
            Some(Claim { verdict, controlled: false, .. }) => {
                format!("{NOT_CONTROLLED}: {verdict}")
            }
            None => format!("{NOT_CONTROLLED}: nothing proves how this arm differs"),
        }
    }
}

impl Comparison {
    /// The verdict on an arm, in one line.
    pub fn standing(&self, arm: &str) -> String {
        self.proved.standing(arm)
    }

    /// Whether the lock proves that only the treatment of this arm differs from the base.
    pub fn is_controlled(&self, arm: &str) -> bool {
        self.proved.claims.get(arm).is_some_and(|claim| claim.controlled)
    }

    /// The treated arms that must not be called controlled.
    pub fn not_controlled(&self) -> Vec<&str> {
        let treated = self.arms.iter().filter(|arm| arm.role == Role::Treatment);
        let names = treated.map(|Arm { name, .. }| name.as_str());
        names.filter(|name| !self.is_controlled(name)).collect()
    }

    /// The verdicts of all treated arms in one line, with or without a proof. Where each arm was judged at its own point of
    /// the grid, the verdict is that of these points.
    pub fn verdict(&self) -> String {
        let base = self.base().map_or("", |arm| arm.name.as_str());
        let pairs = self.pairs();
        let each = self.tested().into_iter().map(|arm| {
            let mut of_arm =
                pairs.iter().filter(|pair| pair.arm.name == arm && pair.chosen_by.is_some());
            let standing = of_arm.next().map_or_else(|| self.standing(&arm), Pair::standing);
            format!("{arm} against {base}: {standing}")
        });
        each.collect::<Vec<_>>().join("; ")
    }

    /// The design of all pairs that are judged, together; of an arm without runs, that of its lock.
    pub fn design(&self) -> Design {
        let of_pairs = self.pairs().iter().map(Pair::design).max();
        let has_runs = |arm: &str| self.arms.iter().any(|known| known.name == arm);
        let of_lock = self.tested().into_iter().filter(|arm| !has_runs(arm));
        let of_lock = of_lock.map(|arm| self.proved.design(&arm)).max();
        of_pairs.max(of_lock).unwrap_or(Design::NotControlled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_share_a_seed_are_warned_of() {
        let of = |init: [u64; 3]| {
            let seeds = init.iter().zip(1..).map(|(&init, data)| lab::experiment::Seeds {
                init,
                data,
                eval: 0,
            });
            repeated(&seeds.collect::<Vec<_>>())
        };
        assert!(of([1, 2, 3]).is_empty());
        assert!(of([1, 1, 1])[0].contains("all 3 pairs have init seed 1"));
        assert!(of([1, 1, 2])[0].contains("3 pairs have 2 different init seeds"));
        assert!(repeated(&[lab::experiment::Seeds { init: 1, data: 1, eval: 0 }]).is_empty());
    }

    #[test]
    fn one_seed_for_all_repetitions_is_not_varied() {
        let seeds = |numbers: &[(u64, u64)]| -> Vec<lab::experiment::Seeds> {
            numbers
                .iter()
                .map(|(init, data)| lab::experiment::Seeds { init: *init, data: *data, eval: 0 })
                .collect()
        };
        let base = seeds(&[(1, 1), (2, 2), (3, 3)]);
        for (replicate, init, data) in [
            ([(101, 101), (102, 102), (103, 103)], true, true),
            ([(101, 102), (101, 103), (101, 104)], false, true),
            ([(101, 102), (102, 102), (103, 102)], true, false),
            // The base's own seeds in another order.
            ([(2, 11), (3, 12), (1, 13)], false, true),
        ] {
            assert_eq!(varied(&base, &seeds(&replicate)), Varied { init, data }, "{replicate:?}");
        }
        assert_eq!(varied(&base, &[]), Varied::default());
        // Seeds of the base without a repetition do not count.
        let base = seeds(&[(1, 1), (1, 1)]);
        assert_eq!(varied(&base, &seeds(&[(2, 2)])), Varied { init: true, data: true });
    }
}
