//! In: the weights of a run and its held-out windows. Out: how well they do: mean loss a counted token, tokens of
//! answers right, answers right as a whole by level. Must stay true: the windows are the same at every evaluation
//! and in every arm; an answer that its window cuts off is not scored; sums are taken in window order.
//!
//! Each token of an answer is guessed from the true tokens before it. An answer is right as a whole only if every
//! guess is, and then greedy decoding writes the same answer, so exact match is what generating would give.

use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};

use crate::data::batch::{Answer, Batch};
use crate::execute::{Evaluator, ExecuteError};
use crate::job::Job;
use crate::metrics::{Evaluation, Score};
use crate::run::RunError;
use crate::train::{State, tensors, values};

/// Measures the state on the job's held-out windows.
pub fn evaluate(
    job: &mut Job,
    evaluator: &Evaluator,
    state: &State,
    device: Device,
) -> Result<Evaluation, RunError> {
    let metrics = job.metrics;
    let (mut nll, mut counted) = (0.0f64, 0u64);
    let mut tokens = Score::default();
    let mut answers: BTreeMap<u32, Score> = BTreeMap::new();
    let mut batch = Batch::default();
    let mut first = 0;
    while first < job.evaluation_windows {
        let end = (first + job.rows).min(job.evaluation_windows);
        job.held_out.fill(first..end, &mut batch)?;
        first = end;
        let result = tensors(&batch, device).and_then(|(inputs, targets)| {
            let result = evaluator.evaluate(&state.weights, &inputs, &targets)?;
            Ok((values(&result.nll)?, guesses(&result.argmax)?))
        });
        let (losses, guesses) = result?;
        // Ignored targets have loss 0.
        nll += losses.iter().map(|loss| f64::from(*loss)).sum::<f64>();
        counted += batch.counted_targets();
        score(&batch, &guesses, &mut tokens, &mut answers);
    }
    Ok(Evaluation {
        step: state.step,
        nll: (metrics.loss && counted > 0).then(|| nll / counted as f64),
        counted,
        tokens: if metrics.tokens { tokens } else { Score::default() },
        answers: if metrics.answers { answers } else { BTreeMap::new() },
    })
}

fn score(batch: &Batch, guesses: &[i64], tokens: &mut Score, answers: &mut BTreeMap<u32, Score>) {
    for Answer { row, start, len, level, complete } in batch.answers() {
        let place = row * batch.seq_len() + start;
        let (guesses, wanted) =
            (guesses.get(place..place + len), batch.targets().get(place..place + len));
        let (Some(guesses), Some(wanted), true) = (guesses, wanted, *complete) else { continue };
        let right = guesses.iter().zip(wanted).filter(|(guess, wanted)| guess == wanted).count();
        tokens.right += right as u64;
        tokens.of += *len as u64;
        answers.entry(*level).or_default().add(right == *len);
    }
}

fn guesses(argmax: &Tensor) -> Result<Vec<i64>, ExecuteError> {
    let tensor = argmax.f_to_device(Device::Cpu)?.f_to_kind(Kind::Int64)?.f_contiguous()?;
    let count = tensor.numel();
    let mut guesses = vec![0i64; count];
    tensor.f_copy_data(&mut guesses, count)?;
    Ok(guesses)
}
