//! Prompts decoded together give the same texts as each one alone, for every family.

use std::ops::ControlFlow;

use compiler::plan::{Options, Precision, Stream};
use compiler::plans;
use compiler::program::Compiled;
use runtime::decode::{Decoder, Prompt, SamplingOptions, Text};
use runtime::execute::{Carried, Machine, Streamer};
use runtime::generate::{Request, Sampling, generate};
use runtime::weights::Weights;

use super::support::{DOUBLE, FAST, quiet};
use ::support::archs::{models, named};

/// Eleven prompts of 1 to 300 tokens, so prefill in pieces and rows inside their prompts both occur.
fn prompts(vocab: i64) -> Vec<Vec<i64>> {
    let lengths = [5, 1, 12, 12, 2, 40, 7, 290, 300, 3, 27];
    let prompt =
        |(n, len): (usize, i64)| (0..len).map(|i| (i * i + 3 * n as i64 + 1) % vocab).collect();
    lengths.into_iter().enumerate().map(prompt).collect()
}

fn asked(prompts: &[Vec<i64>]) -> Vec<Prompt<'_>> {
    let prompt = |(n, tokens)| Prompt { tokens, most: 3 + 4 * (n % 4), seed: 70 + n as u64 };
    prompts.iter().map(Vec::as_slice).enumerate().map(prompt).collect()
}

fn alone(compiled: &Compiled, weights: &Weights, prompt: Prompt<'_>, how: SamplingOptions) -> Text {
    let Prompt { tokens, most, seed } = prompt;
    let SamplingOptions { temperature, top_k, stop, rows: _ } = how;
    let request = Request {
        graph: &compiled.graph,
        weights,
        prompt: tokens,
        max_tokens: most,
        sampling: Sampling { temperature, top_k, top_p: None, seed },
        stop,
        options: Options::default(),
        machine: DOUBLE,
    };
    let tokens = generate(&request, |_| ControlFlow::Continue(())).unwrap().tokens;
    Text { stopped: tokens.len() < most, tokens }
}

#[test]
fn together_each_prompt_gets_what_it_gets_alone() {
    quiet();
    for name in
        ["plain", "grouped", "two_windows", "gla_arch", "delta_arch", "mamba_arch", "hybrid"]
    {
        let compiled = named(name);
        let weights = Weights::init(&compiled.graph, 5).unwrap();
        let moved = weights.to(DOUBLE.device, DOUBLE.kind).unwrap();
        let decoder = Decoder::new(&compiled.graph, Options::default(), DOUBLE).unwrap();
        let prompts = prompts(compiled.graph.vocab);
        let prompts = asked(&prompts);
        let greedy = SamplingOptions { temperature: 0.0, top_k: None, stop: None, rows: 4 };
        // A token that occurs in texts, so that some of them stop.
        let stop = alone(&compiled, &weights, prompts[0], greedy).tokens[1];
        let drawn = SamplingOptions { temperature: 1.3, top_k: Some(9), ..greedy };
        for how in [
            greedy,
            SamplingOptions { stop: Some(stop), rows: 64, ..drawn },
            SamplingOptions { rows: 1, ..drawn },
        ] {
            let together = decoder.decode(&moved, &prompts, how).unwrap();
            for (n, (text, prompt)) in together.iter().zip(&prompts).enumerate() {
                assert_eq!(
                    *text,
                    alone(&compiled, &weights, *prompt, how),
                    "{name}, prompt {n}, {how:?}"
                );
            }
        }
    }
}

#[test]
fn what_cannot_be_decoded_is_refused() {
    quiet();
    let compiled = named("plain");
    let weights = Weights::init(&compiled.graph, 5).unwrap();
    let decoder = Decoder::new(&compiled.graph, Options::default(), FAST).unwrap();
    let how = SamplingOptions { temperature: 0.0, top_k: None, stop: None, rows: 8 };
    let refusal = |tokens: &[i64], how| {
        let prompts =
            [Prompt { tokens: &[1], most: 2, seed: 0 }, Prompt { tokens, most: 2, seed: 0 }];
        decoder.decode(&weights, &prompts, how).unwrap_err().message
    };
    assert_eq!(refusal(&[], how), "prompt 1 is empty");
    let outside = "the tokens of prompt 1[0, 1] is 23, but the vocabulary has 23";
    assert_eq!(refusal(&[2, 23], how), outside);
    assert_eq!(
        refusal(&[2], SamplingOptions { temperature: -1.0, ..how }),
        "the temperature is -1"
    );
    assert!(decoder.decode(&weights, &[], how).unwrap().is_empty());
    let nothing = Prompt { tokens: &[1, 2], most: 0, seed: 0 };
    assert_eq!(decoder.decode(&weights, &[nothing], how).unwrap(), [Text::default()]);
}

/// Some numbers that look random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Sequences of different lengths, some of which take a token in each round, in any order.
#[test]
fn a_sequence_has_the_same_bits_whatever_else_is_computed_with_it() {
    quiet();
    let bf16 = Options { precision: Precision::Bf16, ..Options::default() };
    let forms: [(Machine, Options); 3] =
        [(FAST, Options::default()), (FAST, bf16), (DOUBLE, Options::default())];
    for ((name, compiled), (machine, options)) in
        models().flat_map(|model| forms.map(|form| (model.clone(), form)))
    {
        let stream = Stream { state_in: true, state_out: true };
        let plan = plans::forward(&compiled.graph, stream, options);
        let streamer = Streamer::new(plan, machine).unwrap();
        let weights = Weights::init(&compiled.graph, 5).unwrap();
        let weights = weights.to(machine.device, machine.kind).unwrap();
        let mut random = 7;
        let mut token = || (next(&mut random) % compiled.graph.vocab as u64) as i64;
        let mut states: Vec<Carried> = Vec::new();
        for length in [1, 2, 5, 9, 3, 17, 4, 1, 6] {
            let prompt: Vec<i64> = (0..length).map(|_| token()).collect();
            let prompt = Streamer::row(&prompt).unwrap();
            let start = streamer.start(1).unwrap();
            states.push(streamer.forward(&weights, &prompt, &start).unwrap().1);
        }
        let mut order = 3;
        for round in 0..5 {
            let mut chosen: Vec<usize> = (0..states.len()).collect();
            for at in (1..chosen.len()).rev() {
                chosen.swap(at, (next(&mut order) % (at as u64 + 1)) as usize);
            }
            chosen.truncate(1 + (next(&mut order) % states.len() as u64) as usize);
            let tokens: Vec<i64> = chosen.iter().map(|_| token()).collect();
            let before: Vec<&Carried> = chosen.iter().map(|at| &states[*at]).collect();
            let together = streamer.forward_each(&weights, &tokens, &before).unwrap();
            assert_eq!(together.len(), chosen.len());
            for ((at, token), (logits, after)) in chosen.iter().zip(&tokens).zip(together) {
                let row = Streamer::row(&[*token]).unwrap();
                let (alone, state) = streamer.forward(&weights, &row, &states[*at]).unwrap();
                let place =
                    format!("{name}, {options:?}, round {round}, sequence {at} of {chosen:?}");
                assert!(logits.equal(&alone), "logits of {place}");
                assert_eq!(after.position, state.position, "{place}");
                for (a, b) in after.states().zip(state.states()) {
                    assert!(a.equal(b), "state of {place}");
                }
                states[*at] = after;
            }
        }
    }
}

#[test]
fn sequences_and_tokens_are_of_one_number() {
    quiet();
    let compiled = named("plain");
    let stream = Stream { state_in: true, state_out: true };
    let plan = plans::forward(&compiled.graph, stream, Options::default());
    let streamer = Streamer::new(plan, FAST).unwrap();
    let weights = Weights::init(&compiled.graph, 5).unwrap();
    let states = [streamer.start(1).unwrap(), streamer.start(1).unwrap()];
    let states: Vec<&Carried> = states.iter().collect();
    let refusal = streamer.forward_each(&weights, &[1], &states).unwrap_err();
    assert_eq!(refusal.to_string(), "1 tokens are given for 2 sequences");
    assert!(streamer.forward_each(&weights, &[], &[]).unwrap().is_empty());
}
