//! Continues the initial weights and kept checkpoints of a run that another engine trained, and holds the engine's losses,
//! norms and updates to bounds.
//!
//! Which checkpoints are continued follows from the log's last chain, so nobody can choose them before the log ends.

use std::collections::BTreeSet;

use dsl::Problem;
use lab::trainer::TrainerRecord;
use records::attest::ExternalAttestation;
use records::checkpoint::{Part, SavedCheckpoint, Store};
use records::external::ExternalRun;
use records::job::Job;
use records::metrics::{MeasuredWeights, Record, Step};
use records::run::Paths;
use records::verify::{Subject, VerifyReport};

use compiler::plan::Precision;

use super::bounds::{Bounds, bounds};
use super::update::{Tensors, UpdateDifference, compare};
use crate::evaluate::Measurer;
use crate::execute::{Machine, Trainer};
use crate::replay::{Difference, Platform};
use crate::state::State;
use crate::train;

/// Steps from each state, if no number is asked for.
pub const SPOT_STEPS: u64 = 8;
/// Most steps from one state: after more, rounding may have grown beyond any bound.
const MOST: u64 = 32;
/// Checkpoints that the last chain chooses, besides the one before the last step.
const CHOSEN: usize = 2;
/// A loss or norm above this overflows within steps.
const HUGE: f64 = 1e6;
/// How many times as far as one unit in the last place two engines may be apart.
const GROWN: f64 = 30.0;
/// Steps after which a mixture of experts may have made another choice.
const CHOICES: u64 = 2;

/// Receives progress.
pub trait Watcher {
    /// A step was computed again.
    fn step(&mut self, step: u64);
}

/// What was computed again, and what differs.
#[derive(Clone, Debug, Default)]
pub struct SpotCheck {
    /// Steps within the bounds, by one or several stretches.
    steps: BTreeSet<u64>,
    of_steps: u64,
    of_states: usize,
    /// First and last step of each stretch.
    stretches: Vec<(u64, u64)>,
    /// Steps whose update was compared with the next checkpoint.
    updates: BTreeSet<u64>,
    /// Steps whose kept state was compared with canonc's, several steps after equal ones.
    states: BTreeSet<u64>,
    /// Evaluations that came out again.
    evaluations: usize,
    of_evaluations: usize,
    /// The largest relative differences of a loss, a norm, an update, and a change in several steps.
    largest: [f64; 4],
    broken: Vec<String>,
    undecided: Vec<String>,
    bounds: Option<&'static Bounds>,
}

/// A difference beyond what is allowed.
struct Excess {
    text: String,
    /// How far apart; `None` for what must be equal.
    apart: Option<f64>,
}

/// A run, and what computes its steps again.
struct Checker<'a> {
    job: &'a mut Job,
    machine: Machine,
    trainer: Trainer,
    run: ExternalRun,
    store: Store,
    kept: Vec<SavedCheckpoint>,
    bounds: &'static Bounds,
}

/// Computes steps again: so many from each state, or as many as can be judged from every kept one.
pub fn spot_check(
    paths: &Paths,
    job: &mut Job,
    machine: Machine,
    precision: Precision,
    requested: Option<u64>,
    watcher: &mut dyn Watcher,
) -> Result<SpotCheck, Problem> {
    let run = ExternalRun::read(paths)?;
    let store = run.store(paths, job.slots());
    let kept = store.kept(|chain| run.log.heads.contains(&chain))?;
    let bounds = bounds(precision);
    let mut check = SpotCheck {
        of_steps: run.log.steps.len() as u64,
        of_evaluations: run.measured.len(),
        of_states: kept.len(),
        bounds: Some(bounds),
        ..SpotCheck::default()
    };
    let trainer = Trainer::new(job.plans.clone(), machine)?;
    let mut checker = Checker { job, machine, trainer, run, store, kept, bounds };
    let length = requested.unwrap_or(MOST).min(MOST);
    let last = checker.run.last();
    for origin in checker.origins(requested.is_none()) {
        let from = origin.as_ref().map_or(0, |kept| kept.manifest.step);
        // The last weights must come out of the steps before them.
        let leads_to_the_end = checker.before_last() == from;
        if leads_to_the_end && last - from > MOST {
            check.undecided.push(format!(
                "no state between steps {from} and {last} is kept: {} are too many to continue with bounds, so nothing shows \
                 that the last weights come out of them",
                dsl::counted(last - from, "step")
            ));
        }
        let length = if leads_to_the_end && last - from <= MOST { last - from } else { length };
        checker.stretch(origin.as_ref(), length, &mut check, watcher)?;
    }
    checker.evaluations(paths, requested.is_none(), &mut check)?;
    Ok(check)
}

impl Checker<'_> {
    /// The step of the newest kept state before the last one; 0 for the initial state.
    fn before_last(&self) -> u64 {
        let earlier = self.kept.iter().map(|kept| kept.manifest.step);
        earlier.filter(|step| *step < self.run.last()).max().unwrap_or(0)
    }

    /// The states to continue: the initial one, the newest before the last one, and some that the last chain chooses, or all.
    fn origins(&self, all: bool) -> Vec<Option<SavedCheckpoint>> {
        let last = self.run.last();
        let earlier = self.kept.iter().filter(|kept| (1..last).contains(&kept.manifest.step));
        let mut earlier: Vec<&SavedCheckpoint> = earlier.collect();
        let chain = self.run.log.heads.last().map(ToString::to_string).unwrap_or_default();
        let by_chain = |kept: &&SavedCheckpoint| {
            let follows = self.kept_at(kept.manifest.step + 1).is_some();
            let drawn = blake3::hash(format!("{chain}\n{}", kept.name).as_bytes());
            // A checkpoint that is followed by the next step's shows an update.
            (!follows, *drawn.as_bytes())
        };
        earlier.sort_by_key(by_chain);
        let newest = self.before_last();
        let before_last = |kept: &&&SavedCheckpoint| kept.manifest.step == newest;
        let mut chosen: Vec<&SavedCheckpoint> =
            earlier.iter().filter(before_last).copied().collect();
        let others = earlier.iter().filter(|kept| !before_last(kept)).copied();
        chosen.extend(others.take(if all { usize::MAX } else { CHOSEN }));
        chosen.sort_by_key(|kept| kept.manifest.step);
        [None].into_iter().chain(chosen.into_iter().cloned().map(Some)).collect()
    }

    fn kept_at(&self, step: u64) -> Option<&SavedCheckpoint> {
        self.kept.iter().find(|kept| kept.manifest.step == step)
    }

    /// Continues a state, up to its first difference.
    fn stretch(
        &mut self,
        origin: Option<&SavedCheckpoint>,
        length: u64,
        check: &mut SpotCheck,
        watcher: &mut dyn Watcher,
    ) -> Result<(), Problem> {
        let mut state = self.origin(origin)?;
        let from = state.step;
        let text = origin.map_or_else(
            || "the initial weights".to_owned(),
            |kept| format!("checkpoints/{}", kept.name),
        );
        let to = (from + length).min(self.run.last());
        let slots = self.job.slots();
        let reaches_one = (from + 1..=to).any(|step| self.kept_at(step).is_some());
        let before = reaches_one.then(|| Tensors::of_state(&state, &slots)).transpose()?;
        while state.step < to {
            let next = self.kept_at(state.step + 1).cloned();
            let computed = state.advance(self.job, &self.trainer)?;
            watcher.step(computed.step);
            let after = computed.step - from;
            if let Some(excess) = self.step_differs(&computed, after, check) {
                let differs = format!("step {} from {text}: {}", computed.step, excess.text);
                let reason = self.excuse(origin, (&computed, None), after, excess.apart)?;
                check.differs(differs, reason);
                check.covers(from, computed.step - 1);
                return Ok(());
            }
            check.steps.insert(computed.step);
            if let (Some(next), Some(before)) = (&next, &before)
                && computed.loss.is_none_or(f64::is_finite)
                && computed.grad_norm.is_finite()
            {
                let ours = Tensors::of_state(&state, &slots)?;
                let worst = compare(&self.store, next, &slots, before, &ours, self.bounds)?;
                if let Some(worst) = worst
                    && let Some(why) = self.state_differs(&worst, &computed, after, check)
                {
                    let text = format!("checkpoints/{} from {text}: {why}", next.name);
                    let states = Some((before, &ours, &worst));
                    let apart = Some(worst.relative);
                    let reason = self.excuse(origin, (&computed, states), after, apart)?;
                    check.differs(text, reason);
                    check.covers(from, computed.step - 1);
                    return Ok(());
                }
                let reached = if after == 1 { &mut check.updates } else { &mut check.states };
                reached.insert(computed.step);
            }
        }
        check.covers(from, to);
        Ok(())
    }

    /// How the change to a kept state differs from canonc's by more than rounding explains.
    fn state_differs(
        &self,
        worst: &UpdateDifference,
        computed: &Step,
        after: u64,
        check: &mut SpotCheck,
    ) -> Option<String> {
        let kind = if after == 1 { 2 } else { 3 };
        if let Some(largest) = check.largest.get_mut(kind) {
            *largest = larger(*largest, worst.relative);
        }
        let bound = self.bounds.state(worst.part, after) * Bounds::widened(computed.loss);
        exceeds(worst.relative, bound).then(|| {
            format!(
                "the change of {} of {} in {} differs from canonc's by {:.1e} of its size, more than {bound:.0e} ({})",
                worst.path,
                worst.part.name(),
                dsl::counted(after, "step"),
                worst.relative,
                self.bounds.precision
            )
        })
    }

    /// Why a difference may be rounding although it is beyond the bounds.
    fn excuse(
        &mut self,
        origin: Option<&SavedCheckpoint>,
        (computed, states): (&Step, Option<(&Tensors, &Tensors, &UpdateDifference)>),
        after: u64,
        apart: Option<f64>,
    ) -> Result<Option<String>, Problem> {
        let Some(apart) = apart else { return Ok(None) };
        if after > CHOICES && self.job.graph.has_choices() {
            return Ok(Some(
                "a token may have chosen another expert by rounding, which no bound can tell from a fault"
                    .to_owned(),
            ));
        }
        let huge = |value: f64| !value.is_finite() || value > HUGE;
        if computed.loss.is_some_and(huge) || huge(computed.grad_norm) {
            return Ok(Some("training diverges there, and rounding with it".to_owned()));
        }
        if after <= 1 {
            return Ok(None);
        }
        // How far rounding grows from here: the same steps from weights that are a unit in the last place away.
        let mut twin = self.origin(origin)?;
        twin.nudge()?;
        let mut step = None;
        for _ in 0..after {
            step = Some(twin.advance(self.job, &self.trainer)?);
        }
        let Some(step) = step else { return Ok(None) };
        let losses = step.loss.zip(computed.loss).map_or(0.0, |(a, b)| of_loss(a, b));
        let grown = match states {
            None => losses.max(relative(step.grad_norm, computed.grad_norm)),
            Some((before, ours, worst)) => {
                worst.between(before, ours, &Tensors::of_state(&twin, &self.job.slots())?)
            }
        };
        Ok((grown * GROWN >= apart).then(|| {
            format!(
                "rounding grows there: weights a unit in the last place away come out {grown:.1e} apart"
            )
        }))
    }

    /// A state to continue.
    fn origin(&self, origin: Option<&SavedCheckpoint>) -> Result<State, Problem> {
        match origin {
            None => State::initial(self.job, self.machine),
            Some(kept) => State::load(self.job, self.machine, &self.store, kept),
        }
    }

    /// How a step differs from the logged one by more than rounding explains, with both values and the bound.
    fn step_differs(&self, computed: &Step, after: u64, check: &mut SpotCheck) -> Option<Excess> {
        let exact_only = |text: String| Some(Excess { text, apart: None });
        let at = usize::try_from(computed.step.saturating_sub(1)).ok()?;
        let logged = self.run.log.steps.get(at)?;
        let exact = [
            ("lr", format!("{:?}", logged.lr), format!("{:?}", computed.lr)),
            ("counted", logged.counted.to_string(), computed.counted.to_string()),
        ];
        if let Some((what, logged, computed)) = exact.into_iter().find(|(_, a, b)| a != b) {
            return exact_only(format!(
                "{what} is {logged} in the log, but canonc computes {computed}"
            ));
        }
        if logged.batch.is_some() && logged.batch != computed.batch {
            return exact_only("it read other windows than the lock's".to_owned());
        }
        let bound = self.bounds.loss(after);
        let terms = logged.terms.iter().zip(computed.terms).zip(compiler::plan::TERMS);
        let of_term = self.bounds.term(after);
        let terms = terms.map(|((logged, computed), name)| (name, *logged, computed, of_term));
        let numbers = [
            ("loss", logged.loss, computed.loss, bound),
            (
                "grad_norm",
                Some(logged.grad_norm),
                Some(computed.grad_norm),
                self.bounds.norm(after) * Bounds::widened(computed.loss),
            ),
        ];
        for (what, logged, computed, bound) in numbers.into_iter().chain(terms) {
            let (logged, computed) = match (logged, computed) {
                (Some(logged), Some(computed)) => (logged, computed),
                (None, None) => continue,
                (_, _) => return exact_only(format!("one of log and canonc has no {what}")),
            };
            let apart = match what {
                "grad_norm" => relative(logged, computed),
                _ => of_loss(logged, computed),
            };
            let kind = usize::from(what == "grad_norm");
            if let Some(largest) = check.largest.get_mut(kind) {
                *largest = larger(*largest, apart);
            }
            if exceeds(apart, bound) {
                let text = format!(
                    "{what} is {logged:?} in the log, but canonc computes {computed:?}: apart by {apart:.1e}, more than \
                     {bound:.0e} ({}, {} after equal weights)",
                    self.bounds.precision,
                    dsl::counted(after, "step")
                );
                return Some(Excess { text, apart: Some(apart) });
            }
        }
        None
    }

    /// Evaluates kept weights again: the last ones, or all.
    fn evaluations(
        &mut self,
        paths: &Paths,
        all: bool,
        check: &mut SpotCheck,
    ) -> Result<(), Problem> {
        let text = disk::read_text(&paths.attestation(), disk::SMALL).ok();
        let attested = text.and_then(|text| ExternalAttestation::parse(&text).ok());
        let Some(attested) = attested else { return Ok(()) };
        let platform = Platform::of_facts(&attested.machine, &train::machine_facts());
        let measurer = Measurer::new(self.job, self.machine)?;
        let last = self.run.last();
        let measured: Vec<MeasuredWeights> = self.run.measured.clone();
        for one in measured.iter().filter(|one| all || one.evaluation.step == last) {
            let step = one.evaluation.step;
            let Some(kept) = self.kept_at(step).cloned() else { continue };
            let state = State::load(self.job, self.machine, &self.store, &kept)?;
            let computed = Record::Evaluation(measurer.measure(self.job, &state)?);
            let recorded = Record::Evaluation(one.evaluation.clone());
            match Difference::between(&recorded, &computed, step, &platform) {
                None => check.evaluations += 1,
                Some(difference) => {
                    let text = format!("the evaluation after step {step}: {}", difference.text);
                    match difference.maybe_rounding {
                        true => check.undecided.push(format!(
                            "{text}; this may be rounding: it was recorded on another machine"
                        )),
                        false => check.broken.push(text),
                    }
                }
            }
        }
        Ok(())
    }
}

/// The difference of two numbers relative to the larger; 0 for equal ones, also if neither is finite: then training ends.
fn relative(one: f64, other: f64) -> f64 {
    if one == other || !(one.is_finite() || other.is_finite()) {
        return 0.0;
    }
    (one - other).abs() / one.abs().max(other.abs())
}

/// The difference of two losses, relative to the larger, or to 1 nat if both are smaller.
fn of_loss(one: f64, other: f64) -> f64 {
    relative(one, other) * one.abs().max(other.abs()).min(1.0)
}

/// Whether a difference is larger than its bound, or not a number.
fn exceeds(apart: f64, bound: f64) -> bool {
    apart.is_nan() || apart > bound
}

/// The larger of two differences, where one that is not a number is the largest.
fn larger(known: f64, new: f64) -> f64 {
    if new > known || new.is_nan() { new } else { known }
}

impl SpotCheck {
    /// Adds the steps after one of them up to another to those that were computed again.
    fn covers(&mut self, from: u64, to: u64) {
        if to > from {
            self.stretches.push((from + 1, to));
        }
    }

    fn differs(&mut self, text: String, excuse: Option<String>) {
        match excuse {
            None => self.broken.push(text),
            Some(excuse) => self.undecided.push(format!("{text}; {excuse}")),
        }
    }

    /// Adds the results to the report of `canonc verify`.
    pub fn tell(&self, record: &TrainerRecord, report: &mut VerifyReport) {
        report.broken.extend(self.broken.iter().map(|text| format!("replay: {text}")));
        report.undecided.extend(self.undecided.iter().map(|text| format!("replay: {text}")));
        let found_nothing = self.broken.is_empty() && !self.stretches.is_empty();
        let Some(bounds) = self.bounds.filter(|_| found_nothing) else { return };
        let range = |(first, last): &(u64, u64)| match first == last {
            true => first.to_string(),
            false => format!("{first} to {last}"),
        };
        let ranges: Vec<String> = self.stretches.iter().map(range).collect();
        let [loss, norm, update, several] = self.largest;
        let hides = bounds
            .hides
            .map_or_else(String::new, |what| format!("; {} hides {what}", bounds.precision));
        let all = dsl::counted(self.of_steps, "step");
        report.spot_checked(
            Subject::Losses,
            format!("{} of {all}", self.steps.len()),
            format!(
                "losses and gradient norms of {} of {all} by {} ({}): within the bounds of {} from canonc's (largest {loss:.0e} \
                 and {norm:.0e} of their size){hides}",
                self.steps.len(),
                record.engine_words(),
                ranges.join(", "),
                bounds.precision
            ),
        );
        if !self.updates.is_empty() {
            let steps: Vec<String> = self.updates.iter().map(u64::to_string).collect();
            report.spot_checked(
                Subject::Updates,
                format!("{} of {all}", steps.len()),
                format!(
                    "updates of weights and moments in step {}: within {:.0e} and {:.0e} of canonc's ({}; largest {update:.0e} \
                     of its size){hides}",
                    steps.join(", "),
                    bounds.update(Part::Weights),
                    bounds.update(Part::SecondMoment),
                    bounds.precision
                ),
            );
        }
        if !self.states.is_empty() {
            let steps: Vec<String> = self.states.iter().map(u64::to_string).collect();
            report.spot_checked(
                Subject::States,
                format!("{} of {}", steps.len(), dsl::counted(self.of_states, "state")),
                format!(
                    "kept states after step {}: what canonc trains from earlier ones, within {:.0e} of the change ({}; \
                     largest {several:.0e}){hides}",
                    steps.join(", "),
                    bounds.state(Part::Weights, 2),
                    bounds.precision
                ),
            );
        }
        if self.evaluations > 0 {
            let (count, all) = (self.evaluations, self.of_evaluations);
            let text = format!("{count} of {}: the same", dsl::counted(all, "evaluation"));
            let rest = format!("{} of {all}", all - count);
            let trusted =
                "scores of evaluations by canonc: --replay all evaluates all kept weights again";
            match count == all {
                true => report.proved(Subject::Evaluations, text),
                false => report.proved_in_part(
                    Subject::Evaluations,
                    (format!("{count} of {all}"), text),
                    (rest, trusted.to_owned()),
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_losses_are_compared_by_their_size_in_nats() {
        assert!((of_loss(0.013976_78, 0.013976_83) - 5e-8).abs() < 1e-9);
        assert!((of_loss(4.0, 4.000_004) - 1e-6).abs() < 1e-9);
        assert!(of_loss(f64::NAN, 1.0).is_nan() && of_loss(f64::NAN, f64::INFINITY) == 0.0);
        assert_eq!([Some(4.0), Some(0.01), None].map(Bounds::widened), [1.0, 100.0, 1.0]);
    }
}
