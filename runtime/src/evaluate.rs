//! Measures the weights of a run on its held-out windows: mean loss per counted token, token accuracy of answers, exact
//! match by level, the task's other metrics, and the scores of suites.
//!
//! The windows are the same at every evaluation and in every arm; an answer that its window cuts off is not scored; sums
//! run in window order. Each token of an answer is predicted from the true tokens before it. An answer matches only if
//! every prediction is right, and then greedy decoding writes the same answer, so exact match equals that of generation.
//! For tasks with several right answers, `written` lets the model write its own.

mod knowledge;
mod sentences;
mod shared;
mod suites;
mod written;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use dsl::Problem;
use tch::Device;

use crate::answer::Answerer;
use crate::decode::Decoder;
use crate::execute::{Evaluator, ExecuteError, Machine, Paths};
use crate::likelihood::guesses;
use crate::ranks::Command;
use crate::state::{State, tensors, values};
use data::Windows;
use data::batch::{Answer, Batch};
use records::job::{AnsweringPlans, Job, Metrics};
use records::metrics::{Asked, Evaluation, Questions, Score};
use records::run::digest_of;
use tasks::capo::bits::Losses;
use tasks::task::{Scoring, Task};

use shared::{Ended, Sharing};

/// The plans of a job's evaluations, bound to a machine.
#[derive(Debug)]
pub struct Measurer {
    evaluator: Evaluator,
    decoder: Option<Decoder>,
    answerer: Option<RefCell<Answerer>>,
    device: Device,
}

impl Measurer {
    pub fn new(job: &Job, machine: Machine) -> Result<Measurer, ExecuteError> {
        let vocab = job.graph.vocab;
        let decoder = job.writing.clone().map(|plan| Decoder::from_plan(plan, vocab, machine));
        let answerer = job.answering.clone().map(|AnsweringPlans { score, write }| {
            Answerer::from_plans(vocab, score, write, machine).map(RefCell::new)
        });
        Ok(Measurer {
            answerer: answerer.transpose()?,
            evaluator: Evaluator::new(job.evaluation.clone(), machine)?,
            decoder: decoder.transpose()?,
            device: machine.device,
        })
    }

    /// The paths of each kernel so far.
    pub fn paths(&self) -> Paths {
        let mut paths = self.evaluator.paths();
        if let Some(decoder) = &self.decoder {
            paths.merge(&decoder.streamer().paths());
        }
        if let Some(answerer) = &self.answerer {
            paths.merge(&answerer.borrow().paths());
        }
        paths
    }

    /// Measures the state on the job's held-out windows.
    pub fn measure(&self, job: &mut Job, state: &State) -> Result<Evaluation, Problem> {
        let never = AtomicBool::new(false);
        self.measure_until(job, state, &never)?.ok_or_else(|| {
            let message = "an evaluation stopped, but nobody asked it to";
            Problem::machine(message, "this is a bug in canonc; please report it")
        })
    }

    /// The same; `None` if `stop`, on any rank, becomes true before the end.
    pub(crate) fn measure_until(
        &self,
        job: &mut Job,
        state: &State,
        stop: &AtomicBool,
    ) -> Result<Option<Evaluation>, Problem> {
        if let Some(team) = state.team() {
            Command::Evaluate.give(&*team.ranks)?;
        }
        self.share(job, state, stop)
    }

    /// This rank's part of an evaluation. All ranks call it; only rank 0 has the result.
    pub(crate) fn share(
        &self,
        job: &mut Job,
        state: &State,
        stop: &AtomicBool,
    ) -> Result<Option<Evaluation>, Problem> {
        match self.shared(job, state, stop) {
            Ok(evaluation) => Ok(Some(evaluation)),
            Err(Ended::Stopped) => Ok(None),
            Err(Ended::Failed(error)) => Err(error),
        }
    }

    fn shared(&self, job: &mut Job, state: &State, stop: &AtomicBool) -> Result<Evaluation, Ended> {
        let gathered = state.gathered()?;
        let state = gathered.as_ref().unwrap_or(state);
        let sharing = Sharing { team: state.team(), stop };
        let Forced { nll, counted, tokens, mut answers, knowledge, mut singles } =
            self.forced(job, state, sharing)?;
        let metrics = job.metrics;
        let mut measures = BTreeMap::new();
        let task = task(job).cloned();
        match task.as_ref().map_or(Scoring::Predicted, Task::scoring) {
            Scoring::Predicted => {}
            Scoring::Judged(judge) => {
                if let Some(decoder) = self.decoder.as_ref().filter(|_| metrics.answers) {
                    answers = written::judged(judge, decoder, job, (state, sharing), &mut singles)?;
                }
            }
            Scoring::Sentences(grammar) => {
                if let Some(decoder) = &self.decoder {
                    let measured = (state, sharing);
                    let (device, measures) = (self.device, &mut measures);
                    sentences::measure(grammar, decoder, job, measured, device, measures)?;
                }
            }
            Scoring::Knowledge { people } => {
                if metrics.bits {
                    knowledge::measure(people, knowledge, job, &mut measures);
                }
            }
        }
        // Only at the end: earlier, counts are enough to draw a curve.
        let last = state.step == job.steps;
        let suites = match &self.answerer {
            Some(answerer) => {
                suites::measure(&mut answerer.borrow_mut(), job, (state, sharing), last)?
            }
            None => Vec::new(),
        };
        Ok(Evaluation {
            step: state.step,
            nll: (metrics.loss && counted > 0).then(|| nll / counted as f64),
            counted,
            tokens: if metrics.tokens { tokens } else { Score::default() },
            answers: if metrics.answers { answers } else { BTreeMap::new() },
            measures,
            questions: singles.questions(metrics).filter(|_| last),
            suites,
        })
    }

    /// Runs every held-out window, predicting each token from the true ones before it. Ranks share the batches.
    fn forced(&self, job: &mut Job, state: &State, sharing: Sharing<'_>) -> Result<Forced, Ended> {
        let mut forced = Forced::default();
        let (count, rows, bits) = (batches(job), job.rows, job.metrics.bits);
        let predict = |index: u64| self.predict(job, state, index);
        sharing.in_order(count, predict, |index, numbers| {
            let (batch, Predicted { losses, guesses }) = Predicted::read_from(numbers)?;
            // Ignored targets have loss 0.
            forced.nll += losses.iter().map(|loss| f64::from(*loss)).sum::<f64>();
            forced.counted += batch.counted_targets();
            score(&batch, index * rows, &guesses, &mut forced);
            if bits {
                knowledge::add(&batch, &losses, &mut forced.knowledge);
            }
            Some(())
        })?;
        Ok(forced)
    }

    /// One batch of held-out windows with its predictions, as numbers.
    fn predict(&self, job: &mut Job, state: &State, index: u64) -> Result<Vec<i64>, Problem> {
        let mut batch = Batch::default();
        job.held_out.fill(windows(job, index), &mut batch)?;
        let (inputs, targets) = tensors(&batch, self.device)?;
        let result = self.evaluator.evaluate(&state.weights, &inputs, &targets)?;
        let predicted =
            Predicted { losses: values(&result.nll)?, guesses: guesses(&result.argmax)? };
        Ok(predicted.numbers(&batch))
    }
}

/// What a model predicts for a batch, [rows, seq_len] in row-major order.
#[derive(Debug, PartialEq)]
struct Predicted {
    /// −ln p(target); 0 where ignored.
    losses: Vec<f32>,
    /// The likeliest next token.
    guesses: Vec<i64>,
}

impl Predicted {
    /// The batch, then a token's loss and guess in turn.
    fn numbers(&self, batch: &Batch) -> Vec<i64> {
        let mut numbers = Vec::new();
        batch.write_to(&mut numbers);
        numbers.extend(self.losses.iter().map(|loss| i64::from(loss.to_bits())));
        numbers.extend(&self.guesses);
        numbers
    }

    fn read_from(numbers: &[i64]) -> Option<(Batch, Predicted)> {
        let (batch, rest) = Batch::read_from(numbers)?;
        let (losses, guesses) = rest.split_at_checked(batch.targets().len())?;
        let losses = losses.iter().map(|bits| Some(f32::from_bits(u32::try_from(*bits).ok()?)));
        let losses = losses.collect::<Option<_>>()?;
        Some((batch, Predicted { losses, guesses: guesses.to_vec() }))
    }
}

/// Number of batches in an evaluation.
fn batches(job: &Job) -> u64 {
    job.evaluation_windows.div_ceil(job.rows.max(1))
}

/// The held-out windows of one batch.
fn windows(job: &Job, index: u64) -> Range<u64> {
    let first = index * job.rows;
    first..(first + job.rows).min(job.evaluation_windows)
}

/// Results of predicting each token.
#[derive(Debug, Default)]
struct Forced {
    /// Sum over counted targets.
    nll: f64,
    counted: u64,
    tokens: Score,
    answers: BTreeMap<u32, Score>,
    /// Losses of whole biographies.
    knowledge: Losses,
    singles: Singles,
}

/// Each question on its own.
#[derive(Debug, Default)]
struct Singles {
    asked: Asked,
    answers: BTreeMap<u32, Vec<bool>>,
    tokens: Vec<u64>,
}

impl Singles {
    /// The part that the lock asks for, if anything was scored.
    fn questions(self, metrics: Metrics) -> Option<Questions> {
        let Singles { asked, answers, tokens } = self;
        let answers = if metrics.answers { answers } else { BTreeMap::new() };
        let tokens = if metrics.tokens { tokens } else { Vec::new() };
        let some = !(answers.is_empty() && tokens.is_empty());
        some.then(|| Questions { asked: digest_of(asked.digest()), answers, tokens })
    }
}

fn task(job: &Job) -> Option<&Task> {
    match &job.held_out {
        Windows::Task(windows) => Some(windows.task()),
        Windows::Text(_) => None,
    }
}

/// Scores the answers of a batch that begins with window `window`.
fn score(batch: &Batch, window: u64, guesses: &[i64], forced: &mut Forced) {
    forced.singles.asked.batch(batch, window);
    for Answer { row, start, len, level, complete } in batch.answers() {
        let begin = row * batch.seq_len();
        let first = begin + start;
        let (guesses, wanted) =
            (guesses.get(first..first + len), batch.targets().get(first..first + len));
        let (Some(guesses), Some(wanted), true) = (guesses, wanted, *complete) else { continue };
        let right = guesses.iter().zip(wanted).filter(|(guess, wanted)| guess == wanted).count();
        forced.tokens.right += right as u64;
        forced.tokens.of += *len as u64;
        forced.answers.entry(*level).or_default().add(right == *len);
        let singles = &mut forced.singles;
        singles.answers.entry(*level).or_default().push(right == *len);
        singles.tokens.push(right as u64);
    }
}
