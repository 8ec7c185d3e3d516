//! What a comparison's lock proves of its arms and declares of its analysis, for display with the results.

use std::collections::{BTreeMap, BTreeSet};

use compiler::digest::Digest;
use lab::experiment::{Init, Seeds};
use tasks::metric::of_suite;

use super::analysis::Analysis;
use super::costs::Costs;
use super::design::{Design, NOT_CONTROLLED};
use super::interval_and_noise::{STEADY, Varied};
use super::other_records::OtherRecords;
use crate::statistics::questions::Asked;

/// Facts from the lock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proof {
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
    /// A note for the weights that arms begin from: what they were trained on is not counted.
    pub begins: Vec<String>,
    /// Whether all seeds are evaluated on the same windows; `None` if unknown or mixed. Suites ask all the same.
    pub questions: Option<Asked>,
    /// The largest ratio of the base to itself at which ratios of times have an interval; `None` for the default.
    pub time_bound: Option<f64>,
    /// By arm, the cost of one run.
    pub costs: BTreeMap<String, Costs>,
    /// Other locks and finished seeds of these arms, if they were searched.
    pub other_records: OtherRecords,
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
    pub matched: Option<MatchedQuantity>,
    /// Whether one factor is treated and sizes were adjusted to match it.
    pub compensated: bool,
    /// Whether one run of the arm trains on as many tokens as one of the base.
    pub equal_budget: bool,
}

/// A quantity that is matched between the arms.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct MatchedQuantity {
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
    fn new(
        locked: &lab::comparison::Comparison,
        arm: &str,
        verdict: &lab::verdict::Verdict,
    ) -> Claim {
        let matched = locked.matching.zip(locked.matched.get(arm));
        let matched = matched.map(|(matching, quantity)| MatchedQuantity {
            on: matching.on.word(),
            path: matching.on.path(),
            within: matching.within.to_string(),
            base: quantity.base,
            arm: quantity.arm,
            apart: quantity.apart(),
        });
        let tokens = |name: &str| {
            let arm = locked.arms.iter().find(|known| known.name == name);
            arm.and_then(|arm| Costs::from_experiment(&arm.experiment).tokens)
        };
        Claim {
            verdict: locked.headline(arm),
            controlled: verdict.is_controlled(),
            factors: verdict.treatment.iter().map(|declared| declared.factors).sum(),
            matched,
            compensated: locked.is_compensated(arm),
            equal_budget: tokens(arm) == tokens(&locked.base),
        }
    }

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

impl Axis {
    fn new(locked: &lab::comparison::Comparison, path: &str) -> Axis {
        let mut values = BTreeMap::new();
        for run in locked.runs() {
            values.entry(run.point).or_insert_with(|| {
                run.experiment.value(path).and_then(|value| value.plain().parse().ok())
            });
        }
        Axis { path: path.to_owned(), values: values.into_values().collect() }
    }
}

impl Proof {
    /// What a comparison's lock proves.
    pub fn from_lock(locked: &lab::comparison::Comparison) -> Proof {
        let claims = locked
            .verdicts
            .iter()
            .map(|(arm, verdict)| (arm.clone(), Claim::new(locked, arm, verdict)));
        let axes = locked.grid.iter().flat_map(|grid| &grid.paths);
        let costs = locked
            .arms
            .iter()
            .map(|arm| (arm.name.clone(), Costs::from_experiment(&arm.experiment)));
        let drawn = locked.arms.iter().any(|arm| arm.experiment.draws_weights());
        Proof {
            claims: claims.collect(),
            axes: axes.map(|path| Axis::new(locked, path)).collect(),
            analysis: Analysis::declared(locked),
            varied: varied(&locked.seeds, &locked.replicate, drawn),
            repeated: repeated(&locked.seeds, drawn),
            begins: begins(locked),
            questions: questions(&locked.seeds),
            time_bound: Some(locked.analysis.time_bound.to_f64()),
            costs: costs.collect(),
            other_records: OtherRecords::default(),
        }
    }

    /// Whether all seeds answer the same questions of a metric; `None` if unknown or mixed.
    pub(super) fn questions_of(&self, metric: &str) -> Option<Asked> {
        match of_suite(metric) {
            Some(_) => Some(Asked::Same),
            None => self.questions,
        }
    }

    /// The largest accepted ratio of the base's times to themselves.
    pub(super) fn steady(&self) -> f64 {
        self.time_bound.unwrap_or(STEADY)
    }

    /// An arm's design at equal points of the grid.
    pub(crate) fn design(&self, arm: &str) -> Design {
        self.claims.get(arm).map_or(Design::NotControlled, Claim::design)
    }

    /// Whether an arm and the base train on equally many tokens.
    pub(super) fn has_equal_budget(&self, arm: &str) -> bool {
        self.claims.get(arm).is_some_and(|claim| claim.equal_budget)
    }

    /// Whether the lock proves that only the treatment of this arm differs from the base.
    pub(super) fn is_controlled(&self, arm: &str) -> bool {
        self.claims.get(arm).is_some_and(|claim| claim.controlled)
    }

    /// The verdict on an arm, in one line.
    pub(crate) fn standing(&self, arm: &str) -> String {
        match self.claims.get(arm) {
            Some(Claim { verdict, controlled: true, .. }) => verdict.clone(),
            Some(Claim { verdict, controlled: false, .. }) => {
                format!("{NOT_CONTROLLED}: {verdict}")
            }
            None => format!("{NOT_CONTROLLED}: nothing proves how this arm differs"),
        }
    }

    /// The fields of the grid, in its order.
    pub(super) fn grid_fields(&self) -> String {
        let paths: Vec<&str> = self.axes.iter().map(|axis| axis.path.as_str()).collect();
        if paths.is_empty() { "the grid's fields".to_owned() } else { paths.join(", ") }
    }
}

/// Seeds that several pairs have in common. The seed of initial weights does not count if none is drawn.
fn repeated(seeds: &[Seeds], drawn: bool) -> Vec<String> {
    let warning = |kind: &str, seed: fn(&Seeds) -> u64| {
        let distinct: BTreeSet<u64> = seeds.iter().map(seed).collect();
        match distinct.first() {
            Some(only) if distinct.len() == 1 && seeds.len() > 1 => Some(format!(
                "Warning: all {} pairs have {kind} seed {only}: their interval holds for this seed only.",
                seeds.len()
            )),
            Some(_) if distinct.len() < seeds.len() => Some(format!(
                "Warning: {} pairs have {} different {kind} seeds: pairs that share one are not independent, and the \
                 interval may be too narrow.",
                seeds.len(),
                distinct.len()
            )),
            Some(_) | None => None,
        }
    };
    let init = if drawn { warning("init", |seeds| seeds.init) } else { None };
    init.into_iter().chain(warning("data", |seeds| seeds.data)).collect()
}

/// Which seeds are all distinct, of the base and its repetition together: pairs that share one differ by less than
/// seeds make runs differ. If no initial weight is drawn, no seed of them can be shared.
fn varied(base: &[Seeds], replicate: &[Seeds], drawn: bool) -> Varied {
    let distinct = |seed: fn(&Seeds) -> u64| {
        let used = || base.iter().take(replicate.len()).chain(replicate).map(seed);
        !replicate.is_empty() && used().collect::<BTreeSet<u64>>().len() == used().count()
    };
    let data = distinct(|seeds| seeds.data);
    Varied { init: if drawn { distinct(|seeds| seeds.init) } else { data }, data }
}

/// A note for each file of weights, and the arms that begin from it.
fn begins(locked: &lab::comparison::Comparison) -> Vec<String> {
    let mut arms: BTreeMap<(&String, Option<Digest>), Vec<String>> = BTreeMap::new();
    for arm in &locked.arms {
        if let Init::Weights { name, digest, missing: _ } = &arm.experiment.init {
            arms.entry((name, *digest)).or_default().push(format!("`{}`", arm.name));
        }
    }
    let note = |((name, digest), arms): ((&String, Option<Digest>), Vec<String>)| {
        let which = match arms.as_slice() {
            all if all.len() == locked.arms.len() => "Every arm begins".to_owned(),
            [one] => format!("Arm {one} begins"),
            several => format!("Arms {} begin", several.join(" and ")),
        };
        let digest = digest.map_or(String::new(), |digest| format!(" ({})", digest.short()));
        format!(
            "{which} from the weights {name}{digest}: the questions, tokens and FLOPs of their own training are not counted."
        )
    };
    arms.into_iter().map(note).collect()
}

/// The windows of an evaluation follow from `seeds.eval` alone.
fn questions(seeds: &[Seeds]) -> Option<Asked> {
    let distinct: BTreeSet<u64> = seeds.iter().map(|seeds| seeds.eval).collect();
    match distinct.len() {
        1 => Some(Asked::Same),
        count if count == seeds.len() => Some(Asked::Fresh),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(numbers: &[(u64, u64)]) -> Vec<Seeds> {
        numbers.iter().map(|(init, data)| Seeds { init: *init, data: *data, eval: 0 }).collect()
    }

    #[test]
    fn pairs_that_share_a_seed_are_warned_of() {
        let warnings =
            |init: [u64; 3]| repeated(&seeds(&[(init[0], 1), (init[1], 2), (init[2], 3)]), true);
        assert!(warnings([1, 2, 3]).is_empty());
        assert!(warnings([1, 1, 1])[0].contains("all 3 pairs have init seed 1"));
        assert!(warnings([1, 1, 2])[0].contains("3 pairs have 2 different init seeds"));
        assert!(repeated(&seeds(&[(1, 1)]), true).is_empty());
    }

    #[test]
    fn one_seed_for_all_repetitions_is_not_varied() {
        let base = seeds(&[(1, 1), (2, 2), (3, 3)]);
        for (replicate, init, data) in [
            ([(101, 101), (102, 102), (103, 103)], true, true),
            ([(101, 102), (101, 103), (101, 104)], false, true),
            ([(101, 102), (102, 102), (103, 102)], true, false),
            // The base's own seeds in another order.
            ([(2, 11), (3, 12), (1, 13)], false, true),
        ] {
            assert_eq!(
                varied(&base, &seeds(&replicate), true),
                Varied { init, data },
                "{replicate:?}"
            );
        }
        assert_eq!(varied(&base, &[], true), Varied::default());
        // Seeds of the base without a repetition do not count.
        let base = seeds(&[(1, 1), (1, 1)]);
        assert_eq!(varied(&base, &seeds(&[(2, 2)]), true), Varied { init: true, data: true });
    }

    /// The output repeats the lock: verdicts, matched quantities, the values along the grid.
    #[test]
    fn claims_are_the_lock_s_verdicts() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../lockfiles/demo_matched.lock");
        let text = std::fs::read_to_string(path).unwrap();
        let lab::lock::Lock::Comparison(locked) = lab::lock::read(path, &text).unwrap() else {
            panic!("no comparison")
        };
        let proof = Proof::from_lock(&locked);
        assert_eq!(proof.claims.keys().collect::<Vec<_>>(), ["gated_deltanet", "gla", "mamba2"]);
        for (arm, claim) in &proof.claims {
            assert!(claim.controlled && claim.factors == 2, "{arm}");
            assert!(
                text.contains(&format!("{arm} = \"{}\"\n", claim.verdict)),
                "{}",
                claim.verdict
            );
            let MatchedQuantity { on, path, base, .. } = claim.matched.as_ref().unwrap();
            assert_eq!((*on, *path, *base), ("parameters", "arch.parameters", 120_128));
        }
        assert!(proof.axes.is_empty());
    }
}
