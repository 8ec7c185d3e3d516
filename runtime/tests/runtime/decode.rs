//! Prompts decoded together give the same texts as each one alone, for every family.

use std::ops::ControlFlow;

use compiler::plan::Options;
use compiler::program::Compiled;
use runtime::decode::{Decoder, Prompt, SamplingOptions, Text};
use runtime::generate::{Request, Sampling, generate};
use runtime::weights::Weights;

use super::support::{DOUBLE, FAST, quiet};
use ::support::archs::named;

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
        sampling: Sampling { temperature, top_k, seed },
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
