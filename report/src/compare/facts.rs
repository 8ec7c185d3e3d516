//! What a comparison shows, computed once from its runs: tables, sentences, the document, the page and the overview read
//! only this.

use lab::comparison::Selection;

use super::analysis::Analysis;
use super::comparison::{Comparison, Edge};
use super::costs::{Costs, Measured, Tuning};
use super::design::{Design, SelectionRule};
use super::family::{DeclaredTest, JudgedTest, judged};
use super::metric::{EVAL_LOSS, EXACT_MATCH, metric_name};
use super::metric_facts::MetricFacts;
use super::pair::{DivergedSeeds, Pair};
use super::proof::Proof;
use super::runs::{Arm, ArmRun, Role, diverged, final_values, paired};
use super::stopping::ArmLook;
use super::training_overlap::{TrainingOverlap, label};
use crate::statistics::{Confidence, Judged};

/// What a comparison shows.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The base first.
    pub(super) arms: Vec<ArmFacts>,
    /// Names of the grid's points; a single unnamed one without a grid.
    pub points: Vec<String>,
    pub(super) selection: Selection,
    pub(crate) proof: Proof,
    pub(crate) analysis: Analysis,
    /// The treated arms, by runs or by the lock.
    pub(super) tested: Vec<String>,
    pub(super) tests: Vec<DeclaredTest>,
    /// The tests with the words of their family.
    pub(super) family: Vec<JudgedTest>,
    /// At the points of the locked rule, or at every point if it cannot choose; every metric.
    pub(crate) pairs: Vec<PairFacts>,
    /// At equal points; only the judged metric. Empty without a grid, as the next two are.
    pub(super) at_each_point: Vec<PairFacts>,
    /// Each arm at its own best point against the base at its own.
    pub(super) best_per_arm: Vec<PairFacts>,
    /// Each arm at the base's best point.
    pub(super) best_of_base: Vec<PairFacts>,
    /// With a stopping rule: the last look at each arm, or the decisive one.
    pub(super) looks: Vec<ArmLook>,
    /// How many seeds were run.
    pub(super) seeds: usize,
    /// Whether any run has a step time.
    pub(super) timed: bool,
    /// What training contained of the questions of the evaluation loss.
    pub(super) loss_overlap: Option<TrainingOverlap>,
    /// What training contained of the questions with answers.
    pub(super) answers_overlap: Option<TrainingOverlap>,
    /// The judged metric, and why its questions are not held out, if they are not.
    pub(super) judged_label: String,
    /// Which runs another engine trained, in a sentence.
    pub(super) elsewhere: Option<String>,
    /// Facts that weaken a number, one sentence each.
    pub(super) warnings: Vec<String>,
    /// Other facts, one sentence each.
    pub(super) notes: Vec<String>,
}

/// One arm.
#[derive(Clone, Debug)]
pub(super) struct ArmFacts {
    pub(super) name: String,
    pub(super) role: Role,
    /// Who trained its runs, in words.
    pub(super) trainers: Vec<String>,
    /// Costs of one run, derived from its lock.
    pub(super) costs: Option<Costs>,
    /// Measured costs of its runs.
    pub(super) measured: Measured,
    pub(super) tuning: Tuning,
    /// The runs at each point, and their values of the judged metric.
    pub(super) points: Vec<(RunCount, Vec<f64>)>,
    /// The arm's best point by the judged metric.
    pub(super) best_point: Option<usize>,
    /// The point at which the locked rule judges the arm.
    pub(super) chosen_point: Option<usize>,
    /// With a grid, axes that end at the best point.
    pub(super) edges: Vec<Edge>,
}

/// The number of runs of an arm at a point, and of those that diverged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunCount {
    pub(crate) runs: usize,
    pub(crate) diverged: usize,
}

/// A treated arm against the base, each at one point.
#[derive(Clone, Debug)]
pub(crate) struct PairFacts {
    pub(crate) arm: String,
    pub(crate) base: String,
    pub(crate) replicate: Option<String>,
    /// The arms with their points, if there are several.
    pub(crate) arm_label: String,
    pub(crate) base_label: String,
    pub(crate) arm_point: usize,
    pub(crate) base_point: usize,
    /// Whether a rule chose the points by the values of these runs.
    pub(super) is_chosen: bool,
    pub(crate) design: Design,
    /// The design in one line.
    pub(crate) standing: String,
    /// The number of runs of the base, the treated arm and the replicate.
    pub(crate) runs: [RunCount; 3],
    pub(crate) diverged_seeds: DivergedSeeds,
    /// The seeds with a run of the base and of the treated arm.
    pub(crate) paired_seeds: Vec<usize>,
    /// The seeds with a run of the base and of its replicate.
    pub(crate) repeated_seeds: Vec<usize>,
    /// Whether some step times of both arms were not measured on one machine, in one session.
    pub(super) timed_apart: bool,
    pub(crate) metrics: Vec<MetricFacts>,
}

impl Facts {
    /// Computes all that the runs show.
    pub fn new(comparison: &Comparison) -> Facts {
        let analysis = comparison.analysis();
        let pairs = comparison.pairs();
        let tests = comparison.declared_tests(&pairs, &analysis.family);
        let family = judged(&[&tests], analysis.confidence).remove(0);
        let at_points = |pairs: Vec<Pair<'_>>| -> Vec<PairFacts> {
            let shown = pairs.iter().filter(|_| comparison.has_grid());
            let judged = |pair: &Pair<'_>| pair.facts_of(comparison.judged_by());
            shown.map(|pair| PairFacts::new(pair, judged(pair).into_iter().collect())).collect()
        };
        let overlap = |metric| comparison.overlap(metric);
        Facts {
            arms: comparison.arms.iter().map(|arm| ArmFacts::new(comparison, arm)).collect(),
            points: comparison.points.clone(),
            selection: comparison.selection.clone(),
            proof: comparison.proof.clone(),
            tested: comparison.tested(),
            pairs: pairs.iter().map(|pair| PairFacts::judged(pair, &family)).collect(),
            at_each_point: at_points(comparison.pairs_at_each_point()),
            best_per_arm: at_points(comparison.pairs_by(true)),
            best_of_base: at_points(comparison.pairs_by(false)),
            looks: comparison.last_looks(),
            seeds: comparison.seeds(),
            timed: comparison.runs().any(|run| run.curves.step_seconds.is_some()),
            loss_overlap: overlap(EVAL_LOSS),
            answers_overlap: overlap(EXACT_MATCH),
            judged_label: label(comparison.judged_by(), overlap(comparison.judged_by())),
            elsewhere: comparison.trained_elsewhere(),
            warnings: comparison.warnings(),
            notes: [
                comparison.proof.begins.clone(),
                comparison.proof.other_records.notes(),
                comparison.trainer_notes(),
            ]
            .concat(),
            analysis,
            tests,
            family,
        }
    }

    /// Whether there are several points to choose from.
    pub(super) fn has_grid(&self) -> bool {
        self.points.len() > 1
    }

    /// The metric of the selection rule, as named in tables.
    pub(super) fn judged_by(&self) -> &str {
        metric_name(&self.selection.metric)
    }

    /// The locked rule.
    pub(super) fn rule(&self) -> SelectionRule {
        SelectionRule::new(self.selection.per_arm)
    }

    /// The base's name; empty if there are no runs of the base.
    pub(super) fn base(&self) -> &str {
        let base = self.arms.iter().find(|arm| arm.role == Role::Base);
        base.map_or("", |arm| arm.name.as_str())
    }

    /// The treated arms with runs.
    pub(super) fn treated(&self) -> impl Iterator<Item = &str> {
        let treated = self.arms.iter().filter(|arm| arm.role == Role::Treatment);
        treated.map(|arm| arm.name.as_str())
    }

    /// The treated arms that must not be called controlled.
    pub(super) fn not_controlled(&self) -> Vec<&str> {
        self.treated().filter(|name| !self.proof.is_controlled(name)).collect()
    }

    /// The facts of every metric of every pair.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &MetricFacts> + Clone {
        self.pairs.iter().flat_map(|pair| &pair.metrics)
    }

    /// The verdicts of all treated arms in one line, with or without a proof. Where each arm was judged at its own point of
    /// the grid, the verdict is that of these points.
    pub fn verdict(&self) -> String {
        let each = self.tested.iter().map(|arm| {
            let chosen = self.pairs.iter().find(|pair| pair.arm == *arm && pair.is_chosen);
            let standing =
                chosen.map_or_else(|| self.proof.standing(arm), |pair| pair.standing.clone());
            format!("{arm} against {}: {standing}", self.base())
        });
        each.collect::<Vec<_>>().join("; ")
    }

    /// The design of all pairs that are judged, together; of an arm without runs, that of its lock.
    pub fn design(&self) -> Design {
        let of_pairs = self.pairs.iter().map(|pair| pair.design).max();
        let has_runs = |arm: &str| self.arms.iter().any(|known| known.name == arm);
        let without_runs = self.tested.iter().filter(|arm| !has_runs(arm));
        let of_lock = without_runs.map(|arm| self.proof.design(arm)).max();
        of_pairs.max(of_lock).unwrap_or(Design::NotControlled)
    }

    /// The tests of the primary metric.
    fn primary_tests(&self) -> Vec<DeclaredTest> {
        let primary = |test: &&DeclaredTest| test.metric == self.analysis.primary;
        self.tests.iter().filter(primary).cloned().collect()
    }
}

/// The words of the primary metrics of several comparisons shown together: all their tests form one family, at
/// the strictest of their levels. One list for each comparison.
pub(crate) fn judged_together(comparisons: &[&Facts]) -> Vec<Vec<JudgedTest>> {
    let tests: Vec<Vec<DeclaredTest>> =
        comparisons.iter().map(|facts| facts.primary_tests()).collect();
    let lists: Vec<&[DeclaredTest]> = tests.iter().map(Vec::as_slice).collect();
    judged(&lists, strictest(comparisons))
}

/// The strictest of their levels, and of 0.05.
pub(crate) fn strictest(comparisons: &[&Facts]) -> Confidence {
    let stricter = |a: Confidence, b: Confidence| if b > a { b } else { a };
    let levels = comparisons.iter().map(|facts| facts.analysis.confidence);
    levels.fold(Confidence::NINETY_FIVE, stricter)
}

impl ArmFacts {
    fn new(comparison: &Comparison, arm: &Arm) -> ArmFacts {
        let costs = comparison.costs(arm);
        let best_point = comparison.best(arm);
        let values = |runs: &Vec<ArmRun>| final_values(runs, comparison.judged_by());
        ArmFacts {
            name: arm.name.clone(),
            role: arm.role,
            trainers: Comparison::trainers(arm).into_iter().collect(),
            costs,
            measured: Measured::new(arm),
            tuning: Tuning::new(arm, costs),
            points: arm.points.iter().map(|runs| (RunCount::new(runs), values(runs))).collect(),
            best_point,
            chosen_point: comparison.chosen(arm),
            edges: best_point
                .filter(|_| comparison.has_grid())
                .map_or_else(Vec::new, |point| comparison.edges(point)),
        }
    }

    /// Whether the arm is the base or treated.
    pub(super) fn is_compared(&self) -> bool {
        self.role != Role::Replicate
    }
}

impl RunCount {
    fn new(runs: &[ArmRun]) -> RunCount {
        RunCount { runs: runs.len(), diverged: diverged(runs) }
    }
}

impl PairFacts {
    fn new(pair: &Pair<'_>, metrics: Vec<MetricFacts>) -> PairFacts {
        let (base, arm, replicate) = (pair.base_runs(), pair.arm_runs(), pair.replicate_runs());
        let seeds =
            |pairs: Vec<(&ArmRun, &ArmRun)>| pairs.into_iter().map(|(run, _)| run.seed).collect();
        PairFacts {
            arm: pair.arm.name.clone(),
            base: pair.base.name.clone(),
            replicate: pair.replicate.map(|arm| arm.name.clone()),
            arm_label: pair.comparison.at(&pair.arm.name, pair.arm_point),
            base_label: pair.comparison.at(&pair.base.name, pair.base_point),
            arm_point: pair.arm_point,
            base_point: pair.base_point,
            is_chosen: pair.chosen_by.is_some(),
            design: pair.design(),
            standing: pair.standing(),
            runs: [base, arm, replicate].map(RunCount::new),
            diverged_seeds: pair.diverged_seeds(),
            paired_seeds: seeds(paired(base, arm)),
            repeated_seeds: seeds(paired(base, replicate)),
            timed_apart: pair.is_timed_apart(),
            metrics,
        }
    }

    /// Every metric, with the words of its family.
    fn judged(pair: &Pair<'_>, family: &[JudgedTest]) -> PairFacts {
        let mut facts = PairFacts::new(pair, pair.facts_of_all());
        let words: Vec<Option<Judged>> =
            facts.metrics.iter().map(|metric| facts.word_in(family, &metric.metric)).collect();
        for (metric, word) in facts.metrics.iter_mut().zip(words) {
            metric.judged = word;
        }
        facts
    }

    /// The facts of a metric.
    pub(crate) fn metric(&self, metric: &str) -> Option<&MetricFacts> {
        self.metrics.iter().find(|facts| facts.metric == metric)
    }

    /// The word for a metric at these points in a family.
    pub(crate) fn word_in(&self, family: &[JudgedTest], metric: &str) -> Option<Judged> {
        let points = (self.arm_point, self.base_point);
        family.iter().find(|test| test.is_of(&self.arm, points, metric)).map(|test| test.judged)
    }

    /// `canon (optimizer.lr 0.02) against llama (optimizer.lr 0.01)`
    pub(crate) fn title(&self) -> String {
        format!("{} against {}", self.arm_label, self.base_label)
    }
}
