//! Metrics of a language model against a grammar: the share of its sentences that the grammar accepts, and the
//! divergence of its next-token probabilities from the true ones.
//!
//! The model writes sentences after only the mark between sentences, at temperature 1, with the same draws at each
//! evaluation; an unfinished sentence is invalid. Probabilities are compared after every prefix, up to a window's
//! length, of the first sentence of each held-out window.

use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};

use super::shared::{Ended, Sharing};
use crate::decode::{Decoder, Prompt, SamplingOptions, on_the_cpu};
use crate::execute::ExecuteError;
use crate::state::State;
use data::Windows;
use data::window::TaskWindows;
use records::job::Job;
use tasks::grammar::Grammar;
use tasks::grammar::law::{self, Law};
use tasks::metric;

/// Maximum number of sentences that one rank writes at once.
const TOGETHER: u64 = 256;

/// The job's metrics for a grammar.
pub(super) fn measure(
    grammar: &Grammar,
    decoder: &Decoder,
    job: &mut Job,
    (state, sharing): (&State, Sharing<'_>),
    device: Device,
    measures: &mut BTreeMap<String, f64>,
) -> Result<(), Ended> {
    if job.metrics.validity {
        let validity = validity(grammar, decoder, job, (state, sharing))?;
        measures.extend(validity.map(|share| (metric::VALIDITY.to_owned(), share)));
    }
    if job.metrics.kl {
        let kl = divergence(grammar, decoder, job, (state, sharing), device)?;
        measures.extend(kl.map(|mean| (metric::KL.to_owned(), mean)));
    }
    Ok(())
}

/// The share of the model's sentences that the grammar accepts.
fn validity(
    grammar: &Grammar,
    decoder: &Decoder,
    job: &Job,
    (state, sharing): (&State, Sharing<'_>),
) -> Result<Option<f64>, Ended> {
    let Windows::Task(windows) = &job.held_out else { return Ok(None) };
    let end = [windows.id(grammar.end())];
    let rows = usize::try_from(job.rows).unwrap_or(usize::MAX);
    let options = SamplingOptions { temperature: 1.0, top_k: None, stop: Some(end[0]), rows };
    // Anything longer than the longest sentence is invalid, so it need not end.
    let most = grammar.lengths().1 as usize + 1;
    let (mut right, count) = (0u64, job.evaluation_samples);
    let write = |part: u64| {
        let seed = |number| seed(windows.options().seed, number);
        let numbers = part * TOGETHER..count.min((part + 1) * TOGETHER);
        let prompts: Vec<Prompt<'_>> =
            numbers.map(|n| Prompt { tokens: &end, most, seed: seed(n) }).collect();
        let mut right = 0;
        for text in decoder.decode(&state.weights, &prompts, options)? {
            let tokens: Vec<u32> = text.tokens.iter().map(|id| windows.token(*id)).collect();
            right += i64::from(text.stopped && grammar.accepts(&tokens));
        }
        Ok(vec![right])
    };
    sharing.in_order(count.div_ceil(TOGETHER), write, |_, numbers| {
        right += u64::try_from(*numbers.first()?).ok()?;
        Some(())
    })?;
    Ok((job.evaluation_samples > 0).then(|| right as f64 / job.evaluation_samples as f64))
}

/// Seed of the draws of written sentence `number`.
fn seed(seed: u64, number: u64) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("canonc 1 evaluation sentence");
    hasher.update(&seed.to_le_bytes()).update(&number.to_le_bytes());
    let hash = hasher.finalize();
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Mean over prefixes of KL(truth || model), smoothed as published.
fn divergence(
    grammar: &Grammar,
    decoder: &Decoder,
    job: &mut Job,
    (state, sharing): (&State, Sharing<'_>),
    device: Device,
) -> Result<Option<f64>, Ended> {
    let (count, rows) = (job.evaluation_samples, job.rows.max(1));
    let Windows::Task(windows) = &mut job.held_out else { return Ok(None) };
    let (mut sum, mut positions) = (0.0, 0u64);
    let compare = |part: u64| {
        let numbers = part * rows..count.min((part + 1) * rows);
        let sentences: Vec<Vec<u32>> = numbers.map(|n| sentence(windows, n)).collect();
        let models = laws(grammar, windows, decoder, state, &sentences, device)?;
        let mut divergences = Vec::new();
        for (sentence, model) in sentences.iter().zip(models) {
            let truth: Law = grammar.law(sentence);
            let pairs = truth.rows().zip(&model);
            divergences.extend(pairs.map(|(truth, model)| law::divergence(truth, model)));
        }
        Ok(divergences.iter().map(|divergence: &f64| divergence.to_bits() as i64).collect())
    };
    sharing.in_order(count.div_ceil(rows), compare, |_, numbers| {
        for bits in numbers {
            sum += f64::from_bits(*bits as u64);
            positions += 1;
        }
        Some(())
    })?;
    Ok((positions > 0).then(|| sum / positions as f64))
}

/// The first sentence of held-out window `number`, as far as the window reaches, without the mark before it.
fn sentence(windows: &mut TaskWindows, number: u64) -> Vec<u32> {
    let most = windows.options().seq_len.saturating_sub(1);
    let tokens = &windows.first_sample(number).tokens;
    tokens.get(..most).unwrap_or(tokens).to_vec()
}

/// The model's next-token probabilities after each prefix of each sentence: of the end, then of the tokens ascending.
fn laws(
    grammar: &Grammar,
    windows: &TaskWindows,
    decoder: &Decoder,
    state: &State,
    sentences: &[Vec<u32>],
    device: Device,
) -> Result<Vec<Vec<Vec<f64>>>, ExecuteError> {
    let end = windows.id(grammar.end());
    let time = sentences.iter().map(Vec::len).max().unwrap_or(0) + 1;
    let mut tokens = Vec::with_capacity(sentences.len() * time);
    for sentence in sentences {
        tokens.push(end);
        tokens.extend(sentence.iter().map(|token| windows.id(*token)));
        // Tokens after a sentence do not affect earlier ones.
        tokens.resize(tokens.len() + time - 1 - sentence.len(), end);
    }
    let tokens =
        Tensor::f_from_slice(&tokens)?.f_reshape([-1, time as i64])?.f_to_device(device)?;
    let start = decoder.streamer().start(sentences.len() as i64)?;
    let (logits, _) = decoder.streamer().forward(&state.weights, &tokens, &start)?; // [rows, time, vocab]
    let ids: Vec<i64> =
        std::iter::once(end).chain((1..=grammar.tokens()).map(|token| windows.id(token))).collect();
    let ids = Tensor::f_from_slice(&ids)?.f_to_device(device)?;
    let width = grammar.tokens() as usize + 1;
    let chosen =
        logits.f_to_kind(Kind::Double)?.f_softmax(-1, Kind::Double)?.f_index_select(-1, &ids)?;
    let chosen = on_the_cpu(&chosen)?; // [rows, time, end and tokens]
    let row = |(sentence, laws): (&Vec<u32>, &[f64])| {
        laws.chunks_exact(width).take(sentence.len() + 1).map(<[f64]>::to_vec).collect()
    };
    Ok(sentences.iter().zip(chosen.chunks_exact(width * time)).map(row).collect())
}
