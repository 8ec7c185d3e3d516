//! Checks a run's metrics log against its lock, as far as that needs no training: order, totals, learning rates, batches and
//! the data of evaluations.

use std::collections::BTreeMap;

use compiler::digest::Digest;
use compiler::plan::TERMS;
use dsl::{Problem, ProblemKind};
use lab::experiment::Experiment;

use super::{Subject, VerifyReport};
use crate::finished::{self, Reached};
use crate::job::{self, Job};
use crate::metrics::{self, Asked, Evaluation, Record, Step};
use crate::run::{Paths, digest_of};
use data::batch::{Answer, Batch, digest_of_windows};
use tasks::metric;

/// The steps for which to make the data again and compare digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remake {
    /// [`REMADE`] steps spread evenly over the run, and its last one; all steps if there are no more.
    Spread,
    /// All steps.
    Every,
}

/// Number of steps in [`Remake::Spread`], in addition to the last one.
pub const REMADE: u64 = 64;

/// A log with a valid chain.
pub(super) struct Log {
    pub(super) records: Vec<Record>,
    /// The chain after each record.
    pub(super) heads: Vec<Digest>,
}

impl Log {
    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.records.iter().filter_map(|record| match record {
            Record::Step(step) => Some(step),
            Record::Start(_) | Record::Evaluation(_) => None,
        })
    }

    pub(super) fn evaluations(&self) -> impl Iterator<Item = &Evaluation> {
        self.records.iter().filter_map(|record| match record {
            Record::Evaluation(evaluation) => Some(evaluation),
            Record::Start(_) | Record::Step(_) => None,
        })
    }

    /// The chains after each line of a step, last the one after its evaluation; for step 0, after the start.
    pub(super) fn heads_after(&self, step: u64) -> Vec<Digest> {
        let of_step = |record: &Record| match record {
            Record::Start(_) => step == 0,
            Record::Step(logged) => logged.step == step,
            Record::Evaluation(evaluation) => evaluation.step == step,
        };
        let pairs = self.records.iter().zip(&self.heads);
        pairs.filter(|(record, _)| of_step(record)).map(|(_, head)| *head).collect()
    }

    /// Whether the last line is an evaluation.
    pub(super) fn ends_evaluated(&self) -> bool {
        matches!(self.records.last(), Some(Record::Evaluation(_)))
    }
}

/// Reads the log; `None` if it cannot be read.
pub(super) fn check(
    paths: &Paths,
    experiment: &Experiment,
    finished: bool,
    diverged: Option<u64>,
    report: &mut VerifyReport,
) -> Option<Log> {
    let what = "metrics.jsonl continues after its last complete line";
    match metrics::torn(&paths.metrics()) {
        Ok(Some(_)) if finished => report.broken(what),
        Ok(Some(_)) => {
            report.trusted(Subject::Log, format!("{what}; the run removes that when it continues"))
        }
        Err(error) if error.kind == ProblemKind::Machine => report.faulty("", error),
        // A fault is found again below.
        Ok(None) | Err(_) => {}
    }
    let (records, heads) = match metrics::read_with_heads(&paths.metrics()) {
        Ok(read) => read,
        Err(error) => {
            report.faulty("", error);
            return None;
        }
    };
    let expected = experiment.into();
    let last = experiment.budget.steps;
    let in_order = finished::order(expected, &records).and_then(|reached| match finished {
        true => finished::check_complete(expected, diverged, &records).map(|()| reached),
        false => Ok(reached),
    });
    match in_order {
        Ok(Reached { step, owes_evaluation: _ }) => report.checked(
            Subject::Log,
            format!(
                "metrics: {} chained, to step {step} of {last}{}",
                dsl::counted(records.len(), "line"),
                diverged.map_or("", |_| ", where training diverged")
            ),
        ),
        Err(reason) => report.broken(reason),
    }
    Some(Log { records, heads })
}

/// Checks the learning rates of all logged steps.
pub(super) fn check_rates(log: &Log, experiment: &Experiment, report: &mut VerifyReport) {
    match plausible(&log.records, experiment) {
        Ok(0) => {}
        Ok(count) => report
            .recomputed(Subject::LearningRates, format!("learning rates of all steps ({count})")),
        Err(reason) => report.broken(reason),
    }
}

/// Checks the scores of suites in all evaluations: the lock suffices.
pub(super) fn check_suites(log: &Log, experiment: &Experiment, report: &mut VerifyReport) {
    let evaluations = match finished::of_suites(experiment.into(), &log.records) {
        Ok(count) => count,
        Err(reason) => {
            report.broken(reason);
            return;
        }
    };
    let tasks = experiment.evaluation.tasks.len();
    if tasks == 0 || evaluations == 0 {
        return;
    }
    let last = log.evaluations().any(|evaluation| evaluation.step == experiment.budget.steps);
    let follow = match last {
        true => "; after the last step they follow from each question's part",
        false => "",
    };
    report.recomputed(
        Subject::Suites,
        format!(
            "scores of suites: {} and the metrics of {} are the lock's{follow}",
            dsl::counted(tasks, "task"),
            dsl::counted(evaluations, "evaluation"),
        ),
    );
    report.trusted(
        Subject::Evaluations,
        match (last, evaluations) {
            (true, 1) => "scores of suites: each question's part: only asking again (--replay) can prove it",
            (true, _) => {
                "scores of suites: each question's part after the last step, and the scores before: only asking again \
                 (--replay) can prove them"
            }
            (false, _) => "scores of suites: only asking again (--replay) can prove them",
        },
    );
}

/// The number of logged steps, if each has the lock's learning rate and no number is one that training cannot give.
pub fn plausible(records: &[Record], experiment: &Experiment) -> Result<usize, String> {
    let rate = job::rates(experiment)
        .map_err(|error| format!("the schedule cannot be computed: {}", error.message))?;
    let mut count = 0;
    for record in records {
        let Step { step, lr, loss, grad_norm, terms, .. } = match record {
            Record::Step(step) => step,
            Record::Evaluation(evaluation) if evaluation.nll.is_some_and(|nll| nll < 0.0) => {
                let step = evaluation.step;
                return Err(format!(
                    "the evaluation after step {step} logged a negative cross-entropy"
                ));
            }
            Record::Evaluation(_) | Record::Start(_) => continue,
        };
        if *grad_norm < 0.0 {
            return Err(format!("step {step} logged a negative gradient norm"));
        }
        if loss.is_some_and(|loss| loss < 0.0) {
            return Err(format!("step {step} logged a negative cross-entropy"));
        }
        let weighed = TERMS.map(|term| experiment.weighs(term));
        if terms.map(|term| term.is_some()) != weighed {
            return Err(format!("step {step} logged other auxiliary losses than the lock weighs"));
        }
        let locked = rate(step.saturating_sub(1));
        if locked.to_bits() != lr.to_bits() {
            return Err(format!("step {step} logged lr {lr:?}, but the lock gives {locked:?}"));
        }
        count += 1;
    }
    Ok(count)
}

/// Maximum bytes of one step's data to make for a comparison.
const MAX_STEP: u128 = 8 << 30;

/// Maximum tokens, over all steps, for [`Remake::Spread`]: a minute's work. A lock can ask for any number.
const MAX_SPREAD: u128 = 1 << 28;

/// Maximum tokens of one evaluation to make again: a few minutes' work.
const MAX_HELD_OUT: u128 = 1 << 30;

/// Checks the data of some steps and of the evaluations by making it again.
pub(super) fn check_data(log: &Log, mut job: Job, which: Remake, report: &mut VerifyReport) {
    let count = log.steps().count() as u64;
    // Inputs and targets of a step, eight bytes each.
    let tokens = u128::from(job.rows) * u128::from(job.seq_len) * u128::from(job.micro_batches);
    if tokens * 16 > MAX_STEP {
        report.trusted(
            Subject::Batches,
            format!("batches of all steps: one has {tokens} tokens, too many to recompute here"),
        );
        return;
    }
    let mut remade = 0;
    // The last step is always among them.
    let most = match which {
        Remake::Every => u128::MAX,
        Remake::Spread => (MAX_SPREAD / tokens.max(1)).max(1),
    };
    for (at, step) in log.steps().enumerate() {
        // Evenly over the run, including its ends.
        let at = at as u64;
        let all = which == Remake::Every || count <= REMADE;
        let chosen = all || at == 0 || at * REMADE / count != (at - 1) * REMADE / count;
        let room = u128::from(remade) + 1 < most;
        if !(chosen && room) && at + 1 != count {
            continue;
        }
        match check_batch(&mut job, step) {
            Ok(Ok(())) => remade += 1,
            Ok(Err(reason)) => {
                report.broken(reason);
                return;
            }
            // If the data is present but cannot be read, the logged values must not count as trusted.
            Err(error) => {
                report.faulty(&format!("the data of step {}: ", step.step), error);
                return;
            }
        }
    }
    // Another engine may not have computed the digests.
    let same = match log.steps().all(|step| step.batch.is_some()) {
        true => "the same digests and counted targets",
        false => "the same counted targets",
    };
    let claim = |remade| format!("data of {remade} of {}: {same}", dsl::counted(count, "step"));
    if remade > 0 && remade == count {
        report.recomputed(Subject::Batches, claim(remade));
    } else if remade > 0 {
        let part = |steps| format!("{steps} of {}", dsl::counted(count, "step"));
        let rest = count - remade;
        report.split(
            Subject::Batches,
            (part(remade), claim(remade)),
            (
                part(rest),
                format!("data of {rest} of {}: `--all` recomputes it", dsl::counted(count, "step")),
            ),
        );
    }
    check_evaluations(log, &mut job, report);
}

fn check_batch(job: &mut Job, step: &Step) -> Result<Result<(), String>, Problem> {
    let batches = job.batches(step.step.saturating_sub(1))?;
    let windows: Vec<_> = batches.iter().flat_map(Batch::window_digests).collect();
    let digest = digest_of(digest_of_windows(&windows));
    let counted: u64 = batches.iter().map(Batch::counted_targets).sum();
    // Another engine may not have computed the digest.
    Ok(match (digest, counted) == (step.batch.unwrap_or(digest), step.counted) {
        true => Ok(()),
        false => Err(format!(
            "step {} logged batch {} with {} targets, but the lock gives {} with {counted}",
            step.step,
            step.batch.map_or_else(|| "null".to_owned(), |batch| batch.short()),
            step.counted,
            digest.short()
        )),
    })
}

/// The data of every evaluation: counted targets, and answers with their tokens.
#[derive(Debug, Default)]
struct HeldOut {
    counted: u64,
    tokens: u64,
    /// By level.
    answers: BTreeMap<u32, u64>,
    /// Digest of the questions in the windows.
    asked: Asked,
}

fn check_evaluations(log: &Log, job: &mut Job, report: &mut VerifyReport) {
    let count = log.evaluations().count();
    if count == 0 {
        return;
    }
    let tokens = u128::from(job.evaluation_windows) * u128::from(job.seq_len);
    if tokens > MAX_HELD_OUT || u128::from(job.rows) * u128::from(job.seq_len) * 16 > MAX_STEP {
        let windows = job.evaluation_windows;
        report.trusted_since(
            Subject::HeldOut,
            "too many to recompute here",
            format!(
                "held-out windows: {windows} of {} tokens, too many to recompute here",
                job.seq_len
            ),
        );
        return;
    }
    let held_out_data = match held_out(job) {
        Ok(held_out_data) => held_out_data,
        Err(error) => {
            report.faulty("held-out windows: ", error);
            return;
        }
    };
    // Canonc logs single questions since its log has a place for them, so that a log without them may be an older one.
    let per_question = held_out_data.tokens > 0 || job.writing.is_some();
    let last = log.evaluations().last().filter(|last| last.step == job.steps);
    if per_question && last.is_some_and(|last| last.questions.is_none()) {
        report.trusted(
            Subject::HeldOut,
            "the last evaluation: scores of single questions were not logged, so their part of the variance is unknown",
        );
    }
    for evaluation in log.evaluations() {
        if let Err(reason) = check_evaluation(evaluation, &held_out_data, job) {
            report.broken(format!("the evaluation after step {} {reason}", evaluation.step));
            return;
        }
    }
    report.recomputed(
        Subject::HeldOut,
        format!(
            "held-out windows of {}: the same numbers of targets and answers",
            dsl::counted(count, "evaluation")
        ),
    );
}

fn held_out(job: &mut Job) -> Result<HeldOut, Problem> {
    let mut data = HeldOut::default();
    let mut batch = Batch::default();
    let mut first = 0;
    while first < job.evaluation_windows {
        let end = (first + job.rows.max(1)).min(job.evaluation_windows);
        job.held_out.fill(first..end, &mut batch)?;
        first = end;
        data.counted += batch.counted_targets();
        data.asked.batch(&batch, first - batch.rows() as u64);
        for Answer { row: _, start: _, len, level, complete } in batch.answers() {
            if *complete {
                data.tokens += *len as u64;
                *data.answers.entry(*level).or_default() += 1;
            }
        }
    }
    Ok(data)
}

fn check_evaluation(
    evaluation: &Evaluation,
    locked_data: &HeldOut,
    job: &Job,
) -> Result<(), String> {
    let Evaluation { step: _, nll, counted, tokens, answers, measures, questions: _, suites: _ } =
        evaluation;
    let same = |what: &str, logged: u64, locked: u64| match logged == locked {
        true => Ok(()),
        false => Err(format!("logged {logged} {what}, but the lock gives {locked}")),
    };
    if nll.is_some_and(|nll| nll < 0.0) {
        return Err("logged a negative cross-entropy".to_owned());
    }
    same("counted targets", *counted, locked_data.counted)?;
    let metrics = job.metrics;
    same("tokens of answers", tokens.of, if metrics.tokens { locked_data.tokens } else { 0 })?;
    let means = u64::from(nll.is_some());
    same("mean losses", means, u64::from(metrics.loss && locked_data.counted > 0))?;
    // The model writes answers to other questions than those in the windows.
    if job.writing.is_none() {
        let none = BTreeMap::new();
        let locked = if metrics.answers { &locked_data.answers } else { &none };
        for (level, count) in locked {
            let logged = answers.get(level).map_or(0, |score| score.of);
            same(&format!("answers of level {level}"), logged, *count)?;
        }
        same("levels of answers", answers.len() as u64, locked.len() as u64)?;
    }
    check_questions(evaluation, locked_data, job)?;
    let asked = [
        (metric::BITS, metrics.bits),
        (metric::BITS_PER_PARAMETER, metrics.bits),
        (metric::KL, metrics.kl),
        (metric::VALIDITY, metrics.validity),
    ];
    let known = |name: &str| asked.iter().any(|(known, asked)| *asked && *known == name);
    if let Some(name) = measures.keys().find(|name| !known(name)) {
        return Err(format!("logged `{name}`, which the lock does not request"));
    }
    match answers.values().chain([tokens]).find(|score| score.right > score.of) {
        None => Ok(()),
        Some(score) => Err(format!("logged {} of {} right", score.right, score.of)),
    }
}

/// Checks the scores of single questions, if they are logged.
fn check_questions(
    evaluation: &Evaluation,
    locked_data: &HeldOut,
    job: &Job,
) -> Result<(), String> {
    let Some(questions) = &evaluation.questions else { return Ok(()) };
    if evaluation.step != job.steps {
        return Err(
            "logged scores of single questions, which only the last evaluation does".to_owned()
        );
    }
    if let Some(reason) = questions.mismatch(evaluation.tokens, &evaluation.answers) {
        return Err(reason);
    }
    // If the model writes its answers, other questions come after those of the windows.
    if job.writing.is_none() && questions.asked != digest_of(locked_data.asked.digest()) {
        return Err(
            "logged scores of single questions for other windows than the lock's".to_owned()
        );
    }
    Ok(())
}
