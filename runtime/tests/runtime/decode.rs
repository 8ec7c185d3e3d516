//! Prompts decoded together give the same texts as each one alone, for every family.

use std::ops::ControlFlow;

use compiler::plan::{Options, Precision, Stream};
use compiler::plans;
use compiler::program::Compiled;
use runtime::Tensor;
use runtime::decode::{Decoder, Prompt, SamplingOptions, Text};
use runtime::execute::{Carried, Machine, Piece, Streamer};
use runtime::generate::{Request, Sampling, generate};
use runtime::weights::Weights;
use tch::Kind;

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

fn alone(
    compiled: &Compiled,
    weights: &Weights,
    prompt: Prompt<'_>,
    options: SamplingOptions,
) -> Text {
    let Prompt { tokens, most, seed } = prompt;
    let SamplingOptions { temperature, top_k, stop, rows: _ } = options;
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
    let options = SamplingOptions { temperature: 0.0, top_k: None, stop: None, rows: 8 };
    let refusal = |tokens: &[i64], options| {
        let prompts =
            [Prompt { tokens: &[1], most: 2, seed: 0 }, Prompt { tokens, most: 2, seed: 0 }];
        decoder.decode(&weights, &prompts, options).unwrap_err().message
    };
    assert_eq!(refusal(&[], options), "prompt 1 is empty");
    let outside = "the tokens of prompt 1[0, 1] is 23, but the vocabulary has 23";
    assert_eq!(refusal(&[2, 23], options), outside);
    assert_eq!(
        refusal(&[2], SamplingOptions { temperature: -1.0, ..options }),
        "the temperature is -1"
    );
    assert!(decoder.decode(&weights, &[], options).unwrap().is_empty());
    let nothing = Prompt { tokens: &[1, 2], most: 0, seed: 0 };
    assert_eq!(decoder.decode(&weights, &[nothing], options).unwrap(), [Text::default()]);
}

/// Some numbers that look random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Whether two tensors differ by rounding alone.
fn are_near(a: &Tensor, b: &Tensor, options: Options) -> bool {
    let (a, b) = (a.to_kind(Kind::Double), b.to_kind(Kind::Double));
    if a.numel() == 0 {
        return a.size() == b.size();
    }
    let most = b.abs().max().double_value(&[]).max(1.0);
    let tolerance = match options.precision {
        Precision::F32 => 1e-4,
        Precision::Bf16 => 0.1,
    };
    (a - b).abs().max().double_value(&[]) <= tolerance * most
}

/// Compares what one sequence got among others with what it gets alone, and with `forward` over its tokens, to the bit
/// if they are at most `few`.
fn is_as_alone(
    streamer: &Streamer,
    weights: &Weights,
    piece: &Piece<'_>,
    (logits, after): (Option<&Tensor>, &Carried),
    (few, options): (usize, Options),
    case: &str,
) {
    let (alone, state) = streamer.forward_each(weights, &[*piece]).unwrap().remove(0);
    let row = Streamer::row(piece.tokens).unwrap();
    let (all, whole) = streamer.forward(weights, &row, piece.state).unwrap();
    assert_eq!(logits.map(Tensor::size), alone.as_ref().map(Tensor::size));
    let kept = piece.logits as i64;
    if let (Some(logits), Some(alone)) = (logits, &alone) {
        assert!(logits.equal(alone), "logits of {case}");
        let last = all.narrow(1, all.size()[1] - kept, kept);
        assert_eq!(logits.size(), last.size(), "{case}");
        if piece.tokens.len() <= few {
            assert!(logits.equal(&last), "logits of {case}, of all tokens");
        }
        assert!(are_near(logits, &last, options), "logits of {case}, of all tokens");
    }
    assert_eq!(logits.is_some(), kept > 0);
    let others = [("alone", &state, true), ("whole", &whole, piece.tokens.len() <= few)];
    for (other, state, is_equal) in others {
        assert_eq!(after.position, state.position, "{case}");
        for (a, b) in after.states().zip(state.states()) {
            assert_eq!(a.size(), b.size(), "state of {case}, {other}");
            assert!(!is_equal || a.equal(b), "state of {case}, {other}");
            assert!(are_near(a, b, options), "state of {case}, {other}");
        }
    }
}

/// Sequences of different lengths, some of which take one token or more in each round, in any order.
#[test]
fn a_sequence_has_the_same_bits_whatever_else_is_computed_with_it() {
    quiet();
    let bf16 = Options { precision: Precision::Bf16, ..Options::default() };
    // With the most tokens that are computed by row, so that `forward` gives the same bits.
    let forms: [(Machine, Options, usize); 3] =
        [(FAST, Options::default(), 64), (FAST, bf16, 4), (DOUBLE, Options::default(), 0)];
    for ((name, compiled), (machine, options, few)) in
        models().flat_map(|model| forms.map(|form| (model.clone(), form)))
    {
        let stream = Stream { state_in: true, state_out: true };
        let plan = plans::forward(&compiled.graph, stream, options);
        let streamer = Streamer::new(plan, machine).unwrap();
        let weights = Weights::init(&compiled.graph, 5).unwrap();
        let weights = weights.to(machine.device, machine.kind).unwrap();
        let mut random = 7;
        let mut tokens = |count: usize| -> Vec<i64> {
            (0..count).map(|_| (next(&mut random) % compiled.graph.vocab as u64) as i64).collect()
        };
        let mut states: Vec<Carried> = (0..9).map(|_| streamer.start(1).unwrap()).collect();
        let mut order = 3;
        for round in 0..5 {
            let mut chosen: Vec<usize> = (0..states.len()).collect();
            for at in (1..chosen.len()).rev() {
                chosen.swap(at, (next(&mut order) % (at as u64 + 1)) as usize);
            }
            chosen.truncate(1 + (next(&mut order) % states.len() as u64) as usize);
            // In the first round whole prompts, then mostly single tokens.
            let lengths = [[5, 2, 17, 1, 9, 3, 70, 4, 1], [1, 1, 1, 6, 1, 1, 1, 66, 1]];
            let given: Vec<Vec<i64>> =
                (0..chosen.len()).map(|n| tokens(lengths[round.min(1)][(n + round) % 9])).collect();
            let piece = |(n, at): (usize, &usize)| {
                let (tokens, state) = (given[n].as_slice(), &states[*at]);
                Piece { tokens, state, logits: [1, tokens.len(), 0, 1][n % 4] }
            };
            let pieces: Vec<Piece<'_>> = chosen.iter().enumerate().map(piece).collect();
            let together = streamer.forward_each(&weights, &pieces).unwrap();
            assert_eq!(together.len(), chosen.len());
            for (n, (piece, (logits, after))) in pieces.iter().zip(&together).enumerate() {
                let case = format!("{name}, {options:?}, round {round}, {n} of {chosen:?}");
                let result = (logits.as_ref(), after);
                is_as_alone(&streamer, &weights, piece, result, (few, options), &case);
            }
            for (at, (_, after)) in chosen.iter().zip(together) {
                states[*at] = after;
            }
        }
    }
}

#[test]
fn a_sequence_without_a_next_token_is_refused() {
    quiet();
    let compiled = named("plain");
    let stream = Stream { state_in: true, state_out: true };
    let plan = plans::forward(&compiled.graph, stream, Options::default());
    let streamer = Streamer::new(plan, FAST).unwrap();
    let weights = Weights::init(&compiled.graph, 5).unwrap();
    let state = streamer.start(1).unwrap();
    let piece = |tokens| Piece { tokens, state: &state, logits: 1 };
    let refusal = streamer.forward_each(&weights, &[piece(&[1]), piece(&[])]).unwrap_err();
    assert_eq!(refusal.to_string(), "sequence 1 has no next token");
    assert!(streamer.forward_each(&weights, &[]).unwrap().is_empty());
}
