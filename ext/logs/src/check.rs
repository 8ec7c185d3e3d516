//! What a log says, held against a lock: learning rates and tokens step by step, sequences, and the number of steps.
//!
//! Losses and norms cannot be checked without training; nothing here says that a run was of the lock.

use std::fmt;

use dsl::Problem;
use lab::experiment::Experiment;
use records::job;

use crate::log::Log;
use crate::series::Points;

/// Largest relative difference between a learning rate and its text: numbers of an f32 have seven digits.
const RATE_TOLERANCE: f64 = 1e-6;
/// The same for a count of tokens, as an f32.
const COUNT_TOLERANCE: f64 = 1.2e-7;
/// Where a schedule ends at 0, formulas differ by rounding: relative to the greatest value.
const NEAR_ZERO: f64 = 1e-9;
/// Fewest values that show that a whole log is a step off.
const LEAST_SHIFTED: usize = 3;

/// Which step's value of the lock a log has at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// That of the step after.
    Next,
    /// That of the step before.
    Before,
}

/// How far each shift's step of the lock is from the log's.
const SHIFTS: [(Shift, i64); 2] = [(Shift::Next, 1), (Shift::Before, -1)];

/// A value of the log that is not the lock's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Apart {
    /// The step in the log.
    pub step: u64,
    /// The value in the log.
    pub log: f64,
    /// The value by the lock.
    pub lock: f64,
}

/// How the values of a log agree with a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Agreement {
    /// The number of values that the lock has a value for.
    pub compared: usize,
    /// How many of them differ.
    pub differing: usize,
    /// The first that differs.
    pub first: Option<Apart>,
    /// If all are the lock's values of another step.
    pub shift: Option<Shift>,
    /// If all are the lock's values times one number.
    pub times: Option<f64>,
}

impl Agreement {
    /// Compares values by step with those of the lock, which has none for some steps.
    fn new(points: &Points, lock: impl Fn(u64) -> Option<f64>, tolerance: f64) -> Agreement {
        let greatest = points.iter().filter_map(|(step, _)| lock(*step)).fold(0.0, f64::max);
        let equal = |log: f64, lock: f64| {
            (log - lock).abs() <= tolerance * lock.abs() + NEAR_ZERO * greatest
        };
        let mut agreement = Agreement::default();
        for (step, log) in points {
            let Some(lock) = lock(*step) else { continue };
            agreement.compared += 1;
            if !equal(*log, lock) {
                agreement.differing += 1;
                let apart = Apart { step: *step, log: *log, lock };
                agreement.first = agreement.first.or(Some(apart));
            }
        }
        if agreement.differing == 0 {
            return agreement;
        }
        for (shift, steps) in SHIFTS {
            let pairs = points
                .iter()
                .filter_map(|(step, log)| Some((*log, lock(step.checked_add_signed(steps)?)?)));
            let pairs: Vec<(f64, f64)> = pairs.collect();
            if pairs.len() >= LEAST_SHIFTED && pairs.iter().all(|(log, lock)| equal(*log, *lock)) {
                agreement.compared = pairs.len();
                agreement.shift = Some(shift);
                return agreement;
            }
        }
        agreement.times = constant_ratio(points, lock);
        agreement
    }

    /// The differing values in words.
    fn says(&self) -> String {
        let Some(Apart { step, log, lock }) = self.first else { return String::new() };
        let Agreement { compared, differing, .. } = self;
        let other = match self.shift {
            Some(Shift::Next) => Some("next step"),
            Some(Shift::Before) => Some("step before"),
            None => None,
        };
        if let Some(other) = other {
            return format!(
                "all {compared} values are those of the lock's {other}; at step {step}: {log}, by the lock {lock}"
            );
        }
        let times = self.times.map_or(String::new(), |times| {
            format!("; all are {} times the lock's", significant(times))
        });
        format!(
            "first at step {step}: {log}, by the lock {lock}; {differing} of {compared} values differ{times}"
        )
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.compared, self.differing, self.shift) {
            (0, _, _) => f.write_str("not in the log"),
            (1, 0, _) => f.write_str("the lock's"),
            (all, 0, _) => write!(f, "all {all} are the lock's"),
            (all, _, Some(Shift::Next)) => write!(f, "all {all} are the lock's of the next step"),
            (all, _, Some(Shift::Before)) => {
                write!(f, "all {all} are the lock's of the step before")
            }
            (_, _, None) => f.write_str(&self.says()),
        }
    }
}

/// The ratio of all values to the lock's, if it is the same for all.
fn constant_ratio(points: &Points, lock: impl Fn(u64) -> Option<f64>) -> Option<f64> {
    let both = points.iter().filter_map(|(step, log)| Some((*log, lock(*step)?)));
    let mut ratios =
        both.filter(|(log, lock)| (*log, *lock) != (0.0, 0.0)).map(|(log, lock)| log / lock);
    let first = ratios.next().filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
    let mut others = 0;
    let same = ratios.all(|ratio| {
        others += 1;
        (ratio - first).abs() <= RATE_TOLERANCE * first
    });
    (same && others > 0).then_some(first)
}

/// A number with four figures.
fn significant(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// A difference between a log and a lock, as a rule of an audit states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The rule.
    pub rule: &'static str,
    /// The field of the lock.
    pub key: &'static str,
    /// What differs, without values.
    pub message: &'static str,
    /// The values.
    pub says: String,
}

impl Difference {
    /// Whether an [`Agreement`] of a [`Check`] says the same: of learning rates, or of tokens.
    pub fn is_in_agreements(&self) -> bool {
        [LR, TOKENS].contains(&self.key)
    }
}

/// Everything of a log that a lock determines.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Learning rates.
    pub lr: Agreement,
    /// Tokens so far.
    pub tokens: Agreement,
    /// Sequences of each step.
    pub sequences: Agreement,
    /// What is not the lock's.
    pub differences: Vec<Difference>,
}

/// Fields of the lock.
const LR: &str = "optimizer.lr";
const TOKENS: &str = "batch.tokens_per_step";
const SEQUENCES: &str = "batch.sequences";
const BUDGET: &str = "budget.steps";

/// Rules, which `audit` describes.
const RATE: &str = "log-rate";
const BATCH: &str = "log-batch";
const STEPS: &str = "log-steps";
const SHIFTED: &str = "log-shifted";
const SHORT: &str = "log-short";

/// Holds a log against the lock that its reader names. Errors if the lock's schedule cannot be computed.
pub fn check(log: &Log, experiment: &Experiment) -> Result<Check, Problem> {
    let rates = job::rates(experiment)?;
    let budget = experiment.budget.steps;
    let batch = experiment.batch;
    let rows = batch.sequences * batch.micro_batches;
    let of_step = |step: u64| (1..=budget).contains(&step);
    let rate = |step: u64| of_step(step).then(|| rates(step - 1));
    let tokens = |step: u64| of_step(step).then_some(step as f64 * batch.tokens_per_step as f64);
    let mut check = Check {
        lr: Agreement::new(&log.lr, rate, RATE_TOLERANCE),
        tokens: Agreement::new(&log.tokens, tokens, COUNT_TOLERANCE),
        sequences: Agreement::new(&log.sequences, |_| Some(rows as f64), COUNT_TOLERANCE),
        differences: Vec::new(),
    };
    check.compare_rates();
    check.compare_batches(log, rows, batch.tokens_per_step);
    check.compare_steps(log, budget);
    Ok(check)
}

impl Check {
    fn add(&mut self, rule: &'static str, key: &'static str, message: &'static str, says: String) {
        self.differences.push(Difference { rule, key, message, says });
    }

    fn compare_rates(&mut self) {
        let (rule, message) = match (self.lr.differing, self.lr.shift) {
            (0, _) => return,
            (_, Some(Shift::Next)) => {
                (SHIFTED, "each learning rate is the lock's of the next step")
            }
            (_, Some(Shift::Before)) => {
                (RATE, "each learning rate is the lock's of the step before")
            }
            (_, None) => (RATE, "the learning rate is not the lock's"),
        };
        self.add(rule, LR, message, self.lr.says());
    }

    fn compare_batches(&mut self, log: &Log, rows: u64, tokens_per_step: u64) {
        let says = self.tokens.says();
        match (self.tokens.differing, self.tokens.shift) {
            (0, _) => {}
            (_, Some(Shift::Next | Shift::Before)) => {
                self.add(SHIFTED, TOKENS, "the tokens so far are the lock's of another step", says);
            }
            (_, None) => {
                let says = format!("{says}; the lock has {tokens_per_step} a step");
                self.add(BATCH, TOKENS, "the tokens so far are not the lock's", says);
            }
        }
        if self.sequences.differing > 0 {
            let says = self.sequences.says();
            self.add(BATCH, SEQUENCES, "the sequences of a step are not the lock's", says);
        }
        if let Some(device) = log.device_sequences.filter(|device| !rows.is_multiple_of(*device)) {
            let says = format!("{device} on a device at a time; the lock has {rows} a step");
            let message = "no number of devices makes the lock's sequences of a step";
            self.add(BATCH, SEQUENCES, message, says);
        }
    }

    fn compare_steps(&mut self, log: &Log, budget: u64) {
        if let Some(planned) = log.planned.filter(|planned| *planned != budget) {
            let says = format!("{planned} in the log, {budget} in the lock");
            self.add(STEPS, BUDGET, "the run was planned for another number of steps", says);
        }
        if log.reached > budget {
            let says = format!("step {} in the log, {budget} steps in the lock", log.reached);
            self.add(STEPS, BUDGET, "the log goes on after the lock's last step", says);
        } else if budget - log.reached >= log.gap() {
            let says = format!("step {} of {budget}", log.reached);
            self.add(SHORT, BUDGET, "the log ends before the lock's last step", says);
        }
    }
}
