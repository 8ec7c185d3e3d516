//! Batched decoding: prompts of any lengths, each continued until its stop token or its limit.
//!
//! All rows start at position 0 together. A row that is still inside its prompt is fed its prompt's next token, so rows
//! need no padding and no mask; finished rows leave the batch. This works the same for every family of models, since
//! each carries a state.
//!
//! A prompt gets the same tokens as from [`generate`] alone, up to rounding at another batch size: draws are a function
//! of the prompt's own seed and the number of earlier draws.
//!
//! [`generate`]: crate::generate::generate

use compiler::graph::Graph;
use compiler::plan::{Options, Plan, Stream};
use compiler::plans;
use dsl::Problem;
use tch::{Device, Kind, Tensor};

use crate::execute::{Carried, ExecuteError, Machine, Streamer, check_ids};
use crate::generate::{PREFILL, Sampling, check, choose, key};
use crate::weights::Weights;
use records::init::philox::Philox;

/// A prompt to continue.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// At least one token.
    pub tokens: &'a [i64],
    /// Maximum number of tokens to draw before the stop token.
    pub most: usize,
    /// Seed of this prompt's draws.
    pub seed: u64,
}

/// Sampling options for all prompts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingOptions {
    /// 0 takes the likeliest token.
    pub temperature: f64,
    pub top_k: Option<usize>,
    /// Token that ends a text when drawn; it is not returned.
    pub stop: Option<i64>,
    /// Maximum number of prompts continued together.
    pub rows: usize,
}

/// The continuation of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    pub tokens: Vec<i64>,
    /// Whether the stop token was drawn.
    pub stopped: bool,
}

/// An arch bound to a machine for decoding.
#[derive(Debug)]
pub struct Decoder {
    streamer: Streamer,
    vocab: i64,
}

/// One prompt in progress.
struct DecodeRow<'a> {
    /// Index of the prompt.
    number: usize,
    prompt: Prompt<'a>,
    draws: Philox,
    text: Text,
    done: bool,
}

impl Decoder {
    pub fn new(graph: &Graph, options: Options, machine: Machine) -> Result<Decoder, ExecuteError> {
        let stream = Stream { state_in: true, state_out: true };
        Decoder::from_plan(plans::forward(graph, stream, options), graph.vocab, machine)
    }

    /// A decoder for a streaming plan with states as inputs and outputs.
    pub fn from_plan(plan: Plan, vocab: i64, machine: Machine) -> Result<Decoder, ExecuteError> {
        Ok(Decoder { streamer: Streamer::new(plan, machine)?, vocab })
    }

    /// Its streaming plan.
    pub fn streamer(&self) -> &Streamer {
        &self.streamer
    }

    /// The texts of the prompts, in their order. `weights` must be on the decoder's machine.
    pub fn decode(
        &self,
        weights: &Weights,
        prompts: &[Prompt<'_>],
        options: SamplingOptions,
    ) -> Result<Vec<Text>, Problem> {
        check(&options.sampling(0))?;
        for (number, prompt) in prompts.iter().enumerate() {
            if prompt.tokens.is_empty() {
                return Err(Problem::input(
                    format!("prompt {number} is empty"),
                    "give at least one token",
                ));
            }
            let name = format!("the tokens of prompt {number}");
            check_ids(&name, &Streamer::row(prompt.tokens)?, self.vocab, false)?;
        }
        let mut texts = vec![Text::default(); prompts.len()];
        // Group prompts of similar lengths, so fewer tokens are fed one by one.
        let mut order: Vec<(usize, Prompt<'_>)> = prompts.iter().copied().enumerate().collect();
        order.sort_by_key(|(number, prompt)| (prompt.tokens.len(), *number));
        for some in order.chunks(options.rows.max(1)) {
            for DecodeRow { number, text, .. } in self.together(weights, some, options)? {
                if let Some(slot) = texts.get_mut(number) {
                    *slot = text;
                }
            }
        }
        Ok(texts)
    }

    /// Continues some prompts in lockstep.
    fn together<'a>(
        &self,
        weights: &Weights,
        prompts: &[(usize, Prompt<'a>)],
        options: SamplingOptions,
    ) -> Result<Vec<DecodeRow<'a>>, Problem> {
        let mut rows: Vec<DecodeRow<'a>> =
            prompts.iter().map(|(n, prompt)| DecodeRow::new(*n, *prompt)).collect();
        let mut ended = Vec::new();
        take_done(&mut rows, &mut ended);
        let shared = rows.iter().map(|row| row.prompt.tokens.len()).min().unwrap_or(0);
        let mut carried = self.streamer.start(rows.len() as i64)?;
        let mut last = Tensor::default();
        let mut at = 0;
        while at < shared {
            let end = (at + PREFILL).min(shared);
            let piece =
                |row: &DecodeRow<'a>| row.prompt.tokens.get(at..end).unwrap_or_default().to_vec();
            (last, carried) =
                self.feed(weights, rows.iter().flat_map(piece).collect(), end - at, &carried)?;
            at = end;
        }
        while !rows.is_empty() {
            let logits = on_the_cpu(&last)?; // [rows, vocab]
            let width = usize::try_from(self.vocab).unwrap_or(0).max(1);
            let mut next = Vec::with_capacity(rows.len());
            for (row, logits) in rows.iter_mut().zip(logits.chunks_exact(width)) {
                next.push(row.next(at, logits, options)?);
            }
            if rows.iter().any(|row| row.done) {
                let left = |(index, row): (usize, &DecodeRow<'a>)| (!row.done).then_some(index);
                let kept: Vec<usize> = rows.iter().enumerate().filter_map(left).collect();
                next = kept.iter().filter_map(|index| next.get(*index).copied()).collect();
                let kept: Vec<i64> = kept.into_iter().map(|index| index as i64).collect();
                take_done(&mut rows, &mut ended);
                if !kept.is_empty() {
                    carried = self.streamer.keep(&carried, &kept)?;
                }
            }
            if !rows.is_empty() {
                (last, carried) = self.feed(weights, next, 1, &carried)?;
                at += 1;
            }
        }
        Ok(ended)
    }

    /// Logits [rows, vocab] after the next `time` tokens of each row, and the state.
    fn feed(
        &self,
        weights: &Weights,
        tokens: Vec<i64>,
        time: usize,
        carried: &Carried,
    ) -> Result<(Tensor, Carried), ExecuteError> {
        let tokens = Tensor::f_from_slice(&tokens)?.f_reshape([-1, time as i64])?; // [rows, time]
        let (logits, after) = self.streamer.forward(weights, &tokens, carried)?;
        Ok((logits.f_select(1, -1)?, after))
    }
}

impl SamplingOptions {
    fn sampling(&self, seed: u64) -> Sampling {
        Sampling { temperature: self.temperature, top_k: self.top_k, top_p: None, seed }
    }
}

impl<'a> DecodeRow<'a> {
    fn new(number: usize, prompt: Prompt<'a>) -> DecodeRow<'a> {
        let draws = Philox::new(&key(prompt.seed));
        DecodeRow { number, prompt, draws, text: Text::default(), done: prompt.most == 0 }
    }

    /// The token to feed at position `at`: from its prompt, or after it, drawn from the logits there.
    fn next(
        &mut self,
        at: usize,
        logits: &[f64],
        options: SamplingOptions,
    ) -> Result<i64, Problem> {
        if let Some(token) = self.prompt.tokens.get(at) {
            return Ok(*token);
        }
        let count = self.text.tokens.len();
        let token = choose(logits, options.sampling(self.prompt.seed), &self.draws, count as u64)?;
        if Some(token) == options.stop {
            self.text.stopped = true;
            self.done = true;
        } else {
            self.text.tokens.push(token);
            self.done = count + 1 >= self.prompt.most;
        }
        Ok(token)
    }
}

/// Moves finished rows from `rows` to `ended`. The rest keep their order.
fn take_done<'a>(rows: &mut Vec<DecodeRow<'a>>, ended: &mut Vec<DecodeRow<'a>>) {
    let (done, left): (Vec<_>, Vec<_>) = std::mem::take(rows).into_iter().partition(|row| row.done);
    ended.extend(done);
    *rows = left;
}

pub(crate) fn on_the_cpu(tensor: &Tensor) -> Result<Vec<f64>, ExecuteError> {
    let tensor = tensor.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double)?.f_contiguous()?;
    Ok(Vec::try_from(tensor.f_reshape([-1])?)?)
}

/// The logits of one row at one of its positions, from [1, time, vocab].
pub fn numbers(logits: &Tensor, at: usize) -> Result<Vec<f64>, ExecuteError> {
    on_the_cpu(&logits.f_select(1, at as i64)?)
}
