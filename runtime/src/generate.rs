//! Samples text from an arch, token by token, and passes each token to the caller when it is drawn.
//!
//! Draws are a function of the seed and the number of earlier draws, so the same request gives the same tokens wherever
//! logits have the same bits. The state is carried from token to token, so except for attention a token costs the same
//! at any position.

use std::ops::ControlFlow;

use compiler::graph::Graph;
use compiler::plan::{Options, Plan, Stream};
use compiler::plans;
use dsl::Problem;
use tch::Kind;

use crate::execute::{Carried, ExecuteError, Machine, Paths, Piece, Streamer, check_ids};
use crate::weights::Weights;
use records::init::philox::Philox;

/// How to choose the next token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token, and the lowest id among equals.
    pub temperature: f64,
    /// Sample only among this many of the likeliest tokens.
    pub top_k: Option<usize>,
    /// Sample only among the likeliest tokens that have this probability together, after `top_k`.
    pub top_p: Option<f64>,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub graph: &'a Graph,
    pub weights: &'a Weights,
    /// At least one token.
    pub prompt: &'a [i64],
    pub max_tokens: usize,
    pub sampling: Sampling,
    /// Token that ends the text when drawn; it is not returned.
    pub stop: Option<i64>,
    pub options: Options,
    pub machine: Machine,
}

/// Facts about a generation, in addition to its tokens.
#[derive(Debug)]
pub struct Generated {
    pub tokens: Vec<i64>,
    /// Bytes of state carried at the end.
    pub state_bytes: usize,
    pub paths: Paths,
}

/// Prompt tokens processed at once, to bound attention's memory.
pub const PREFILL: usize = 256;

/// Draws tokens until there are enough, the stop token is drawn, or `each` breaks.
pub fn generate(
    request: &Request<'_>,
    each: impl FnMut(i64) -> ControlFlow<()>,
) -> Result<Generated, Problem> {
    let Request { graph, weights, prompt, max_tokens, sampling, stop, options, machine } = *request;
    let weights = weights.on(machine.device, machine.kind)?;
    let generator = Generator::new(graph, options, machine)?;
    generator.generate(&weights, &Continuation { prompt, max_tokens, sampling, stop }, each)
}

/// An arch bound to a machine, to generate one text after another.
#[derive(Debug)]
pub struct Generator {
    streamer: Streamer,
    vocab: i64,
}

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub struct Continuation<'a> {
    /// At least one token.
    pub prompt: &'a [i64],
    pub max_tokens: usize,
    pub sampling: Sampling,
    /// Token that ends the text when drawn; it is not returned.
    pub stop: Option<i64>,
}

impl Generator {
    pub fn new(graph: &Graph, options: Options, machine: Machine) -> Result<Self, ExecuteError> {
        let stream = Stream { state_in: true, state_out: true };
        Self::from_plan(graph.vocab, plans::forward(graph, stream, options), machine)
    }

    /// A generator for a plan that carries state from one call to the next.
    pub(crate) fn from_plan(
        vocab: i64,
        plan: Plan,
        machine: Machine,
    ) -> Result<Self, ExecuteError> {
        Ok(Self { streamer: Streamer::new(plan, machine)?, vocab })
    }

    /// The paths of each kernel so far.
    pub fn paths(&self) -> Paths {
        self.streamer.paths()
    }

    /// Like [`generate`], with weights that are on the machine.
    pub fn generate(
        &self,
        weights: &Weights,
        what: &Continuation<'_>,
        mut each: impl FnMut(i64) -> ControlFlow<()>,
    ) -> Result<Generated, Problem> {
        let Continuation { prompt, max_tokens, sampling, stop } = *what;
        check(&sampling)?;
        if prompt.is_empty() {
            return Err(Problem::input("the prompt is empty", "give at least one token"));
        }
        check_ids("the prompt's tokens", &Streamer::row(prompt)?, self.vocab, false)?;
        let mut carried = self.streamer.start(1)?;
        let mut last = Vec::new();
        for piece in prompt.chunks(PREFILL) {
            (last, carried) = advance(&self.streamer, weights, piece, &carried)?;
        }
        let draws = Philox::new(&key(sampling.seed));
        let mut tokens = Vec::new();
        while tokens.len() < max_tokens {
            let token = choose(&last, sampling, &draws, tokens.len() as u64)?;
            if Some(token) == stop {
                break;
            }
            tokens.push(token);
            if each(token).is_break() || tokens.len() == max_tokens {
                break;
            }
            (last, carried) = advance(&self.streamer, weights, &[token], &carried)?;
        }
        Ok(Generated { tokens, state_bytes: carried.bytes(), paths: self.streamer.paths() })
    }
}

pub(crate) fn check(sampling: &Sampling) -> Result<(), Problem> {
    let Sampling { temperature, top_k, top_p, seed: _ } = *sampling;
    if !temperature.is_finite() || temperature < 0.0 {
        return Err(Problem::input(
            format!("the temperature is {temperature}"),
            "give at least 0; 0 always takes the most likely token",
        ));
    }
    if top_k == Some(0) {
        return Err(Problem::input("top-k of 0 leaves no token", "give 1 or more"));
    }
    if let Some(top_p) = top_p.filter(|top_p| !(*top_p > 0.0 && *top_p <= 1.0)) {
        return Err(Problem::input(
            format!("top-p is {top_p}"),
            "give more than 0 and at most 1, which keeps all tokens",
        ));
    }
    Ok(())
}

/// Logits after the last of `piece`, and the state.
fn advance(
    streamer: &Streamer,
    weights: &Weights,
    piece: &[i64],
    carried: &Carried,
) -> Result<(Vec<f64>, Carried), ExecuteError> {
    let piece = Piece { tokens: piece, state: carried, logits: 1 };
    let Some((Some(logits), after)) = streamer.forward_each(weights, &[piece])?.into_iter().next()
    else {
        return Err(ExecuteError::new("the model gave no logits"));
    };
    let last = logits.f_reshape([-1])?.f_to_kind(Kind::Double)?; // [vocab]
    Ok((Vec::try_from(last.f_to_device(tch::Device::Cpu)?)?, after))
}

/// The next token, given logits. `index`: the number of earlier draws with this seed.
pub fn draw(logits: &[f64], sampling: Sampling, index: u64) -> Result<i64, Problem> {
    check(&sampling)?;
    choose(logits, sampling, &Philox::new(&key(sampling.seed)), index)
}

/// The next token, given logits. `index`: the number of earlier draws.
pub(crate) fn choose(
    logits: &[f64],
    sampling: Sampling,
    draws: &Philox,
    index: u64,
) -> Result<i64, Problem> {
    let Sampling { temperature, top_k, top_p, seed: _ } = sampling;
    if let Some(bad) = logits.iter().find(|logit| logit.is_nan() || **logit == f64::INFINITY) {
        return Err(Problem::finding(
            format!("the model returned a logit of {bad}"),
            "check that the weights come from a run that did not diverge",
        ));
    }
    let logit = |i: &usize| logits.get(*i).copied().unwrap_or(f64::NEG_INFINITY);
    // By logit, then by id: the order in which top-k keeps tokens.
    let by_logit = |a: &usize, b: &usize| logit(b).total_cmp(&logit(a)).then(a.cmp(b));
    let mut order: Vec<usize> = match temperature {
        0.0 => (0..logits.len()).min_by(by_logit).into_iter().collect(),
        _ => (0..logits.len()).collect(),
    };
    order.sort_unstable_by(by_logit);
    order.truncate(top_k.unwrap_or(usize::MAX));
    let Some(best) = order.first() else {
        return Err(Problem::input("the vocabulary is empty", "use an arch with a vocabulary"));
    };
    let most = logit(best);
    let mut weights: Vec<f64> = order
        .iter()
        .map(|i| libm::exp((logit(i) - most) / temperature.max(f64::MIN_POSITIVE)))
        .collect();
    if let Some(top_p) = top_p {
        let enough = top_p * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        let before = |weight: &&f64| {
            let lacks = sum < enough;
            sum += **weight;
            lacks
        };
        let kept = weights.iter().take_while(before).count();
        weights.truncate(kept.max(1));
    }
    let mut uniform = [0.0];
    draws.uniforms(index, &mut uniform);
    let mut left = uniform[0] * weights.iter().sum::<f64>();
    let mut chosen = *best;
    for (token, weight) in order.iter().zip(&weights) {
        if *weight > 0.0 {
            chosen = *token;
        }
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    Ok(chosen as i64)
}

/// Key of the draws of one text.
pub(crate) fn key(seed: u64) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key("canonc 1 sample");
    hasher.update(&seed.to_le_bytes());
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(logits: &[f64], temperature: f64, top_k: Option<usize>, count: u64) -> Vec<i64> {
        let sampling = Sampling { temperature, top_k, top_p: None, seed: 7 };
        let draws = Philox::new(&key(sampling.seed));
        (0..count).map(|n| choose(logits, sampling, &draws, n).unwrap()).collect()
    }

    #[test]
    fn temperature_zero_takes_the_likeliest_and_the_lowest_of_equals() {
        assert_eq!(sampled(&[0.5, 2.0, 2.0, -1.0], 0.0, None, 3), [1, 1, 1]);
        assert_eq!(sampled(&[f64::NEG_INFINITY, -5.0], 0.0, None, 1), [1]);
    }

    #[test]
    fn frequencies_are_those_of_the_softmax() {
        let logits = [0.0, libm::log(2.0), libm::log(5.0), f64::NEG_INFINITY];
        let drawn = sampled(&logits, 1.0, None, 8000);
        let count = |token| drawn.iter().filter(|t| **t == token).count() as f64;
        for (token, share) in [(0, 0.125), (1, 0.25), (2, 0.625)] {
            // Five standard errors of a share of 8000 draws are under 0.03.
            assert!((count(token) / 8000.0 - share).abs() < 0.03, "{token}: {}", count(token));
        }
        assert_eq!(count(3), 0.0);
        let of_two = sampled(&logits, 1.0, Some(2), 1000);
        assert!(of_two.iter().all(|token| [1, 2].contains(token)));
        assert_ne!(sampled(&logits, 1.0, None, 50), sampled(&logits, 3.0, None, 50));
    }

    #[test]
    fn top_p_keeps_the_fewest_tokens_that_have_it_together() {
        // Probabilities of 1/8, 2/8 and 5/8.
        let logits = [0.0, libm::log(2.0), libm::log(5.0), f64::NEG_INFINITY];
        let drawn = |top_p, temperature| {
            let sampling = Sampling { temperature, top_k: None, top_p: Some(top_p), seed: 3 };
            let draws = (0..400).map(|n| draw(&logits, sampling, n).unwrap());
            draws.collect::<std::collections::BTreeSet<i64>>()
        };
        assert_eq!(drawn(0.6, 1.0), [2].into());
        assert_eq!(drawn(0.63, 1.0), [1, 2].into());
        assert_eq!(drawn(0.87, 1.0), [1, 2].into());
        assert_eq!(drawn(0.88, 1.0), [0, 1, 2].into());
        assert_eq!(drawn(1e-300, 1.0), [2].into());
        // Hotter, the likeliest has less.
        assert_eq!(drawn(0.6, 4.0), [1, 2].into());
        assert_eq!(drawn(1e-9, 0.0), [2].into());
    }

    #[test]
    fn draws_depend_on_the_seed_and_the_count_alone() {
        let logits = vec![0.0; 100];
        assert_eq!(sampled(&logits, 1.0, None, 40), sampled(&logits, 1.0, None, 40));
        let other = Philox::new(&key(8));
        let sampling = Sampling { temperature: 1.0, top_k: None, top_p: None, seed: 8 };
        let drawn: Vec<i64> =
            (0..40).map(|n| choose(&logits, sampling, &other, n).unwrap()).collect();
        assert_ne!(drawn, sampled(&logits, 1.0, None, 40));
    }

    #[test]
    fn what_cannot_be_sampled_is_refused() {
        let draws = Philox::new(&key(0));
        let sampling = Sampling { temperature: 1.0, top_k: None, top_p: None, seed: 0 };
        for bad in [f64::NAN, f64::INFINITY] {
            assert!(choose(&[0.0, bad], sampling, &draws, 0).is_err());
        }
        for (temperature, top_k) in [(-1.0, None), (f64::NAN, None), (1.0, Some(0))] {
            assert!(check(&Sampling { temperature, top_k, top_p: None, seed: 0 }).is_err());
        }
        for top_p in [0.0, -0.5, 1.5, f64::NAN] {
            let sampling = Sampling { temperature: 1.0, top_k: None, top_p: Some(top_p), seed: 0 };
            assert!(check(&sampling).is_err(), "{top_p}");
        }
    }
}
