//! Lets the model write answers to questions with several right ones, and judges them.
//!
//! WrittenQuestion i is the first sample of held-out window i, alone and complete. Decoding is greedy, so a state has one score;
//! an answer that never ends is wrong.

use std::collections::BTreeMap;

use super::Singles;
use super::shared::{Ended, Sharing};
use crate::decode::{Decoder, Prompt, SamplingOptions};
use crate::state::State;
use data::Windows;
use records::job::Job;
use records::metrics::Score;
use tasks::sample::{Span, Tape};
use tasks::task::Judge;

/// Questions that one rank asks at once.
const TOGETHER: u64 = 256;

/// A question and the facts needed to judge its answers.
struct WrittenQuestion {
    /// Published tokens up to the answer marker.
    prompt: Vec<u32>,
    /// The same as the model's ids.
    ids: Vec<i64>,
    /// Length of every right answer, since all have the same names; the end token comes after.
    most: usize,
    /// The window, the place of the answer in it, and the question's level.
    position: [u64; 3],
}

/// The number of right answers by the questions' level.
pub(super) fn judged(
    judge: &dyn Judge,
    decoder: &Decoder,
    job: &mut Job,
    (state, sharing): (&State, Sharing<'_>),
    singles: &mut Singles,
) -> Result<BTreeMap<u32, Score>, Ended> {
    let mut scores: BTreeMap<u32, Score> = BTreeMap::new();
    let rows = usize::try_from(job.rows).unwrap_or(usize::MAX);
    let count = job.evaluation_samples;
    // The questions in the windows differ from these, and get no score of their own here.
    singles.answers.clear();
    let Windows::Task(windows) = &mut job.held_out else { return Ok(scores) };
    let stop = windows.id(judge.end());
    let options = SamplingOptions { temperature: 0.0, top_k: None, stop: Some(stop), rows };
    let ask = |part: u64| {
        let mut questions = Vec::new();
        for number in part * TOGETHER..count.min((part + 1) * TOGETHER) {
            let Tape { tokens, labels: _, answers } = windows.first_sample(number);
            let Some(Span { start, len, level }) = answers.first().copied() else { continue };
            let prompt = tokens.get(..start).unwrap_or_default().to_vec();
            let ids: Vec<i64> = prompt.iter().map(|token| windows.id(*token)).collect();
            let position = [number, start as u64, u64::from(level)];
            questions.push(WrittenQuestion { prompt, ids, most: len + 1, position });
        }
        let asked: Vec<Prompt<'_>> = questions
            .iter()
            .map(|question| Prompt { tokens: &question.ids, most: question.most, seed: 0 })
            .collect();
        let texts = decoder.decode(&state.weights, &asked, options)?;
        let mut numbers = Vec::new();
        for (WrittenQuestion { prompt, ids, position, .. }, text) in questions.iter().zip(texts) {
            let answer: Vec<u32> = text.tokens.iter().map(|id| windows.token(*id)).collect();
            let right = text.stopped && judge.is_right(prompt, &answer);
            numbers.extend([i64::from(right), ids.len() as i64]);
            numbers.extend(position.map(|number| number as i64));
            numbers.extend(ids);
        }
        Ok(numbers)
    };
    sharing.in_order(count.div_ceil(TOGETHER), ask, |_, mut numbers| {
        while let Some(([right, length, position @ ..], rest)) = numbers.split_first_chunk::<5>() {
            let (ids, after) = rest.split_at_checked(usize::try_from(*length).ok()?)?;
            let position = position.map(|number| number as u64);
            let level = u32::try_from(position[2]).ok()?;
            singles.asked.text(ids);
            singles.asked.add(position, &[]);
            scores.entry(level).or_default().add(*right != 0);
            singles.answers.entry(level).or_default().push(*right != 0);
            numbers = after;
        }
        numbers.is_empty().then_some(())
    })?;
    Ok(scores)
}
