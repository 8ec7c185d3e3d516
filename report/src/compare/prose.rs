//! The sentences of a comparison: the caption of its tables, and a methods paragraph for a paper.
//!
//! The templates hold the sentences; this file says what they are about. No sentence says more than the runs and the lock
//! show.

use std::collections::BTreeSet;

use dsl::counted;
use minijinja::value::Value;
use minijinja::{Environment, UndefinedBehavior, context};
use tasks::metric::of_suite;

use super::cells::{level, percent};
use super::design::Design;
use super::facts::{ArmFacts, Facts, PairFacts};
use super::interval_and_noise::NoInterval;
use super::measured_on::MeasuredOn;
use super::metric_facts::MetricFacts;
use super::question_split::NoSplit;
use super::runs::Role;
use super::stopping::ArmLook;
use super::unit::Unit;
use crate::statistics::paired::{Coverage, FEWEST, covers};
use crate::statistics::questions::Asked;
use crate::statistics::sequential::{self, Decision};
use crate::statistics::{Confidence, Effect, Undefined, noise, sign_flip};

const CAPTION: &str = include_str!("prose/caption.txt");
const METHODS: &str = include_str!("prose/methods.txt");

/// Renders a template, and joins its lines by spaces.
fn paragraph(template: &str, facts: Value) -> String {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    match environment.render_str(template, facts) {
        Ok(text) => {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            lines.collect::<Vec<_>>().join(" ")
        }
        // Only the template itself can be wrong, which every test of a sentence shows.
        Err(error) => error.to_string(),
    }
}

impl Facts {
    /// What the tables show, and how it was computed.
    pub(super) fn caption(&self) -> String {
        paragraph(CAPTION, self.subjects())
    }

    /// A methods paragraph for a paper, by the comparison's name and the id of its lock.
    pub fn methods(&self, name: &str, lock: &str) -> String {
        paragraph(
            METHODS,
            context! { name, lock, of_primary => self.of_primary(), ..self.subjects() },
        )
    }

    /// What the sentences of both texts are about.
    fn subjects(&self) -> Value {
        let analysis = &self.analysis;
        let bundles = self.treated().filter(|arm| self.proof.design(arm) == Design::Bundle);
        let flips = self.metrics().any(|row| row.sign_flip.is_some());
        context! {
            treated => self.treated().collect::<Vec<_>>(),
            base => self.base(),
            elsewhere => self.elsewhere,
            verdict => self.verdict(),
            not_controlled => self.not_controlled(),
            bundles => bundles.collect::<Vec<_>>(),
            seeds => self.seeds_of_arms(),
            timed => self.timed,
            pairs_a_row => self.pairs_a_row(),
            grid => self.has_grid().then(|| self.grid()),
            intervals => self.interval_sizes(),
            fewest_seeds => FEWEST,
            level => percent(analysis.confidence),
            at_95 => analysis.confidence == Confidence::NINETY_FIVE,
            alpha => level(analysis.confidence),
            anytime => sequential::COVERS,
            sequential => analysis.max_seeds.is_some(),
            max_seeds => analysis.max_seeds,
            choice => self.choice(),
            all_equal => self.metrics_without_variance(),
            declared => analysis.declared,
            primary => analysis.primary,
            family => self.family_of_tests(),
            sign_flip => flips.then_some(sign_flip::FEWEST),
            margin => analysis.margin.map(|margin| margin.size().to_string()),
            undecided => self.undecided(),
            diverged => self.diverged_pairs(),
            noise => self.noise(),
            questions => self.questions(),
            overlap => self.overlap().unwrap_or_default(),
            times => self.times(),
            decisions => self.looks.iter().map(|look| self.decision(look)).collect::<Vec<_>>(),
            runs_taken => self.proof.other_records.taken.len(),
            known_before => self.known_before(),
        }
    }

    /// `3 seeds`, or those of each arm if they differ.
    fn seeds_of_arms(&self) -> String {
        let count = |arm: &ArmFacts| arm.points.iter().map(|(count, _)| count.runs).min();
        let counts: Vec<(&str, usize)> =
            self.arms.iter().map(|arm| (arm.name.as_str(), count(arm).unwrap_or(0))).collect();
        let first = counts.first().map_or(0, |(_, count)| *count);
        if counts.iter().all(|(_, count)| *count == first) {
            return counted(first, "seed");
        }
        let each: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        format!("seeds ({})", each.join(", "))
    }

    /// The facts of the primary metric in each pair where runs have it.
    fn primary_rows(&self) -> Vec<&MetricFacts> {
        let rows = self.pairs.iter().filter_map(|pair| pair.metric(&self.analysis.primary));
        rows.filter(|row| row.has_values()).collect()
    }

    /// The numbers of differences of the primary metric.
    fn pairs_a_row(&self) -> String {
        let counts: Vec<usize> = self.primary_rows().iter().map(|row| row.paired.len()).collect();
        let (least, most) = (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
        match least == most {
            true => counted(*most, "pair"),
            false => format!("{least} to {most} pairs"),
        }
    }

    /// The selection rule, and its result.
    fn grid(&self) -> Value {
        let per_arm = self.selection.per_arm;
        // The arms that the rule considers.
        let considered = |arm: &&ArmFacts| match arm.role {
            Role::Base => true,
            Role::Treatment => per_arm,
            Role::Replicate => false,
        };
        let names = |arms: Vec<&ArmFacts>| -> Vec<String> {
            arms.iter().map(|arm| arm.name.clone()).collect()
        };
        let without_best = self.arms.iter().filter(considered).filter(|a| a.best_point.is_none());
        let unselected = self.arms.iter().filter(|arm| arm.is_compared());
        let unselected = unselected.filter(|arm| arm.chosen_point.is_none());
        context! {
            per_arm,
            points => self.points.len(),
            metric => self.judged_by(),
            rule => self.rule().name(),
            direction => match self.selection.mode {
                lab::comparison::SelectionMode::Min => "lowest",
                lab::comparison::SelectionMode::Max => "highest",
            },
            without_best => names(without_best.collect()),
            unselected => names(unselected.collect()),
        }
    }

    /// The numbers of differences of which there are intervals, with the coverage of such intervals.
    fn interval_sizes(&self) -> Vec<Value> {
        let sizes: BTreeSet<usize> =
            self.metrics().filter_map(|row| Some(row.interval.ok()?.n)).collect();
        sizes.into_iter().map(|n| context! { n, covers => covers(n) }).collect()
    }

    /// How intervals and p values allow for a choice of points by the runs that they report.
    fn choice(&self) -> Option<Value> {
        let among = self.metrics().find_map(|row| row.chosen_among)?;
        let is_best = |row: &&MetricFacts| row.chosen_among.is_some_and(|among| among.best_of_each);
        let divided = |row: &MetricFacts| row.chosen_among.is_some_and(|among| !among.best_of_each);
        Some(context! {
            points => among.base,
            best_of_each => self.metrics().find(is_best).map(|row| row.metric.clone()),
            divided => self.metrics().any(divided),
            pairs => among.treated * among.base,
            of_both => among.treated > 1,
        })
    }

    fn metrics_without_variance(&self) -> BTreeSet<&str> {
        let all_equal = |row: &&MetricFacts| {
            matches!(row.interval, Err(NoInterval::Undefined(Undefined::NoVariance { .. })))
        };
        self.metrics().filter(all_equal).map(|row| row.metric.as_str()).collect()
    }

    fn family_of_tests(&self) -> Value {
        let unselected: BTreeSet<&str> = self
            .family
            .iter()
            .filter(|test| test.points.is_none())
            .map(|test| test.arm.as_str())
            .collect();
        context! {
            tests => self.family.len(),
            counted => counted(self.family.len(), "test"),
            metrics => self.analysis.family,
            tested => self.family.iter().any(|test| test.judged.p_adjusted.is_some()),
            unselected,
        }
    }

    /// What undecided tests leave open: an interval may hold zero, exclude it, or not be there.
    fn undecided(&self) -> Value {
        let (mut with_zero, mut without_zero, mut without_interval) = (false, false, false);
        let open = self.family.iter().filter(|test| test.judged.effect == Effect::Undecided);
        for test in open.filter(|test| test.points.is_some()) {
            let pair = |pair: &&PairFacts| {
                test.is_of(&pair.arm, (pair.arm_point, pair.base_point), &test.metric)
            };
            let row = self.pairs.iter().find(pair).and_then(|pair| pair.metric(&test.metric));
            match row.and_then(|row| row.interval.ok()) {
                Some(interval) if interval.low <= 0.0 && 0.0 <= interval.high => with_zero = true,
                Some(_) => without_zero = true,
                None => without_interval = true,
            }
        }
        context! { with_zero, without_zero, without_interval }
    }

    /// The pairs with seeds that have no difference because a run diverged.
    fn diverged_pairs(&self) -> Vec<Value> {
        let pairs = self.pairs.iter().filter(|pair| pair.diverged_seeds.without_difference() > 0);
        let pair = |pair: &PairFacts| {
            let seeds = pair.diverged_seeds;
            let counts = seeds.suffix(seeds.pairs - seeds.without_difference());
            context! { arm => pair.arm_label, counts => counts.replace(['(', ')'], "").trim() }
        };
        pairs.map(pair).collect()
    }

    /// The repetitions of the base.
    fn noise(&self) -> Value {
        let repetitions = self.pairs.iter().map(|pair| pair.repeated_seeds.len()).min();
        let repetitions = repetitions.unwrap_or(0);
        let varied = self.proof.varied;
        context! {
            has_replicate => self.arms.iter().any(|arm| arm.role == Role::Replicate),
            repetitions,
            repeated => match repetitions {
                1 => "once".to_owned(),
                _ => format!("{repetitions} times"),
            },
            fewest => noise::FEWEST,
            shared_seeds => (!varied.all()).then(|| varied.shared()),
            at_other_point => self.pairs.iter().any(|pair| pair.arm_point != pair.base_point),
        }
    }

    /// The questions behind the rows; `None` if there are none.
    fn questions(&self) -> Option<Value> {
        let (suites, windows): (Vec<&MetricFacts>, Vec<&MetricFacts>) = self
            .metrics()
            .filter(|row| row.asked.is_some())
            .partition(|row| of_suite(&row.metric).is_some());
        if suites.is_empty() && windows.is_empty() {
            return None;
        }
        let have_intervals = |rows: &[&MetricFacts]| rows.iter().any(|row| row.interval.is_ok());
        let asked = match self.proof.questions {
            Some(Asked::Same) => "same",
            Some(Asked::Fresh) => "fresh",
            None => "unknown",
        };
        Some(context! {
            one_pair => self.metrics().all(|row| row.paired.len() <= 1),
            windows => (!windows.is_empty()).then_some(asked),
            windows_have_intervals => have_intervals(&windows),
            suites => !suites.is_empty(),
            suites_have_intervals => have_intervals(&suites),
            split => self.split(),
        })
    }

    /// How the questions' part of the standard errors was computed, or why it is absent.
    fn split(&self) -> &'static str {
        let splits = || self.metrics().filter_map(|row| row.split);
        if splits().flatten().any(|split| split.seeds < 2) {
            return "one run";
        }
        if splits().any(|split| split.is_ok()) {
            return "split";
        }
        match splits().any(|split| split == Err(NoSplit::NotRecorded)) {
            true => "not recorded",
            false => "one mean",
        }
    }

    /// What training contained of the questions, in one sentence.
    fn overlap(&self) -> Option<String> {
        let mut reasons =
            self.metrics().filter_map(|row| row.overlap).map(|overlap| overlap.not_held_out());
        let first = reasons.next()?;
        self.loss_overlap?.sentence(reasons.all(|reason| reason == first))
    }

    fn times(&self) -> Value {
        let is_ratio = |row: &MetricFacts| row.unit == Unit::Seconds && !row.paired.is_empty();
        context! {
            apart => self.pairs.iter().any(|pair| pair.timed_apart),
            ratios => self.metrics().any(is_ratio),
            bound => self.proof.steady().to_string(),
        }
    }

    /// The stopping rule's decision on an arm.
    fn decision(&self, ArmLook { arm, metric, look }: &ArmLook) -> String {
        let decision = match look.decision {
            Decision::Continue => "the rule has not decided yet",
            Decision::Differs => "the arms differ",
            Decision::Equivalent => "the arms are equivalent within the margin",
            Decision::Exhausted => "nothing is decided, and no seeds remain",
        };
        let later = self.seeds.saturating_sub(look.n);
        let later = match (look.decision, later) {
            (Decision::Differs | Decision::Equivalent, 1) => {
                "; 1 later seed changes nothing and is not in its rows".to_owned()
            }
            (Decision::Differs | Decision::Equivalent, 2..) => {
                format!("; {later} later seeds change nothing and are not in its rows")
            }
            _ => String::new(),
        };
        format!("{arm}, by {metric}: after {} {decision}{later}.", counted(look.n, "seed"))
    }

    /// Results that were known before the lock was written.
    fn known_before(&self) -> Option<Value> {
        let earlier = self.proof.other_records.earlier_reports.last()?;
        let added = earlier.added.len();
        Some(context! {
            seeds => counted(earlier.seeds, "seed"),
            added => (added > 0).then(|| counted(added, "other seed")),
        })
    }

    /// What the methods paragraph says of the primary metric alone.
    fn of_primary(&self) -> Value {
        let rows = self.primary_rows();
        let least_n = rows.iter().filter_map(|row| Some(row.interval.ok()?.n)).min();
        let coverage: Option<Coverage> = least_n.and_then(covers);
        let noise: Vec<_> = rows.iter().filter_map(|row| row.noise).collect();
        let refused = noise.iter().find_map(|noise| noise.err());
        let measured = rows.iter().find_map(|row| Some((row, row.measured_on?)));
        let most = rows.iter().map(|row| row.paired.len()).max().unwrap_or(0);
        let questions = |metric: &str| match self.proof.questions_of(metric) {
            _ if most <= 1 => "of one seed",
            Some(Asked::Same) => "the same for all seeds",
            Some(Asked::Fresh) => "other ones for each seed",
            None => "not known to be the same for all seeds",
        };
        context! {
            least_n,
            covers => coverage,
            choice => rows.iter().find_map(|row| row.chosen_among).map(|among| among.text()),
            noise_refused => refused.map(|reason| reason.reason()),
            noise_known => !rows.is_empty() && noise.len() == rows.len(),
            measured_on => measured.map(|(_, items)| MeasuredOn::text(items)),
            questions => measured.map(|(row, _)| questions(&row.metric)),
        }
    }
}
