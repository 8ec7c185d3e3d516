//! `forward` and `generate` as a person uses them: named results, sampling, refusals.

use std::ops::ControlFlow;

use compiler::plan::{Loss, Options};
use compiler::program::Compiled;
use dsl::Problem;
use runtime::execute::KernelRequest;
use runtime::forward::{Request, forward};
use runtime::generate::{self, Sampling, generate};
use runtime::weights::{Weights, file};
use tch::{Kind, Tensor};

use super::support::{DOUBLE, FAST, furthest, quiet, relative, streamer};
use ::support::archs::named;

fn weights(compiled: &Compiled) -> Weights {
    Weights::init(&compiled.graph, 5).unwrap()
}

fn rows(ids: &[i64]) -> Tensor {
    Tensor::from_slice(ids).reshape([1, -1])
}

#[test]
fn forward_gives_logits_losses_and_gradients_by_name() {
    quiet();
    let compiled = named("grouped");
    let weights = weights(&compiled);
    let (tokens, targets) = (rows(&[1, 5, 2, 9]), rows(&[5, -100, 9, 3]));
    let ask = |targets, gradients, machine| {
        let (graph, weights, tokens) = (&compiled.graph, &weights, &tokens);
        let (loss, options) = (Loss::CROSS_ENTROPY, Options::default());
        forward(&Request { graph, weights, tokens, targets, gradients, loss, options, machine })
            .unwrap()
    };
    let bare = ask(None, false, FAST);
    assert_eq!(bare.logits.size(), [1, 4, 23]);
    assert_eq!(bare.named().len(), 1);

    let full = ask(Some(&targets), true, FAST);
    assert!(full.logits == bare.logits);
    let log_p = full.logits.to_kind(Kind::Double).log_softmax(-1, None::<Kind>);
    let measured = full.measured.as_ref().unwrap();
    let picked: f64 =
        [(0, 5), (2, 9), (3, 3)].iter().map(|(t, id)| log_p.double_value(&[0, *t, *id])).sum();
    assert!((measured.loss + picked / 3.0).abs() < 1e-6);
    assert_eq!(measured.counted, 3);
    assert_eq!(measured.nll.double_value(&[0, 1]), 0.0);
    let paths: Vec<&str> = full.gradients.iter().map(|(path, _)| path.as_str()).collect();
    let params: Vec<&str> = compiled.graph.params().iter().map(|p| p.path.as_str()).collect();
    assert_eq!(paths, params);

    let exact = ask(Some(&targets), true, DOUBLE);
    assert_eq!(exact.logits.kind(), Kind::Double);
    for ((path, fast), (_, exact)) in full.gradients.iter().zip(&exact.gradients) {
        assert!(relative(fast, exact) < 1e-4, "{path}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.safetensors");
    std::fs::write(&path, full.bytes().unwrap()).unwrap();
    let read = file::read(&path).unwrap();
    assert_eq!(read.len(), params.len() + 3);
    assert!(read["logits"] == full.logits);
    assert_eq!(read["loss"].double_value(&[0]).to_bits(), measured.loss.to_bits());
    assert!(
        read["grad.layers.0.mixer.B"]
            == full.gradients[params.iter().position(|p| *p == "layers.0.mixer.B").unwrap()].1
    );
    assert!(
        full.paths
            .iter()
            .any(|(kernel, path, _)| kernel == "attention" && path.starts_with("fused/"))
    );
}

#[test]
fn forward_refuses_what_is_no_batch() {
    quiet();
    let compiled = named("plain");
    let weights = weights(&compiled);
    let refusal = |tokens: &Tensor, targets: Option<&Tensor>, gradients| -> Problem {
        let (graph, weights, machine) = (&compiled.graph, &weights, FAST);
        let (loss, options) = (Loss::CROSS_ENTROPY, Options::default());
        forward(&Request { graph, weights, tokens, targets, gradients, loss, options, machine })
            .unwrap_err()
    };
    let good = rows(&[1, 2]);
    let message = |error: Problem| error.message;
    assert_eq!(
        message(refusal(&rows(&[1, 23]), None, false)),
        "tokens[0, 1] is 23, but the vocabulary has 23"
    );
    assert_eq!(
        message(refusal(&rows(&[-1, 2]), None, false)),
        "tokens[0, 0] is -1, but the vocabulary has 23"
    );
    assert_eq!(message(refusal(&rows(&[]), None, false)), "tokens are Int64 of shape [1, 0]");
    assert_eq!(
        message(refusal(&Tensor::from_slice(&[1i64]), None, false)),
        "tokens are Int64 of shape [1]"
    );
    assert_eq!(
        message(refusal(&good, Some(&rows(&[1, -1])), false)),
        "targets[0, 1] is -1, but the vocabulary has 23"
    );
    assert_eq!(
        message(refusal(&good, Some(&rows(&[1])), false)),
        "targets are [1, 1] and tokens [1, 2]"
    );
    assert_eq!(message(refusal(&good, None, true)), "gradients need a loss");
    let none = rows(&[-100, -100]);
    assert_eq!(
        message(refusal(&good, Some(&none), false)),
        "all targets are -100, so the loss is undefined"
    );
}

fn drawn(
    compiled: &Compiled,
    prompt: &[i64],
    count: usize,
    sampling: Sampling,
    stop: Option<i64>,
) -> Vec<i64> {
    let weights = weights(compiled);
    let request = generate::Request {
        graph: &compiled.graph,
        weights: &weights,
        prompt,
        max_tokens: count,
        sampling,
        stop,
        options: Options::default(),
        machine: FAST,
    };
    let mut seen = Vec::new();
    let generated = generate(&request, |token| {
        seen.push(token);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(generated.tokens, seen);
    seen
}

const GREEDY: Sampling = Sampling { temperature: 0.0, top_k: None, top_p: None, seed: 0 };

#[test]
fn greedy_text_is_what_the_whole_forward_pass_says() {
    quiet();
    for name in ["grouped", "hybrid", "mamba_arch", "two_windows"] {
        let compiled = named(name);
        let weights = weights(&compiled);
        let streamer = streamer(&compiled.graph, FAST);
        let prompt = [3, 1, 4, 1, 5];
        let text = drawn(&compiled, &prompt, 9, GREEDY, None);
        let mut all = prompt.to_vec();
        for token in &text {
            let start = streamer.start(1).unwrap();
            let (logits, _) = streamer.forward(&weights, &rows(&all), &start).unwrap();
            let last = logits.select(1, -1);
            assert_eq!(last.argmax(-1, false).int64_value(&[0]), *token, "{name} after {all:?}");
            all.push(*token);
        }
    }
}

#[test]
fn sampling_is_a_function_of_its_seed() {
    quiet();
    let compiled = named("plain");
    let sampling = |seed| Sampling { temperature: 1.5, top_k: Some(10), top_p: None, seed };
    let text = |seed| drawn(&compiled, &[2], 30, sampling(seed), None);
    assert_eq!(text(7), text(7));
    assert_ne!(text(7), text(8));
    // A longer text begins with the shorter one.
    let longer = drawn(&compiled, &[2], 40, sampling(7), None);
    assert_eq!(longer[..30], text(7));
    let stop = text(7)[4];
    let stopped = drawn(&compiled, &[2], 30, sampling(7), Some(stop));
    assert!(stopped.len() <= 4 && text(7).starts_with(&stopped));
}

#[test]
fn a_prompt_longer_than_one_piece_is_the_same_sequence() {
    quiet();
    let compiled = named("hybrid");
    let prompt: Vec<i64> = (0..300).map(|i| (i * i + 3) % 23).collect();
    let weights = weights(&compiled);
    let streamer = streamer(&compiled.graph, FAST);
    let start = streamer.start(1).unwrap();
    let (uncut, _) = streamer.forward(&weights, &rows(&prompt), &start).unwrap();
    let (_, carried) = streamer.forward(&weights, &rows(&prompt[..256]), &start).unwrap();
    let (rest, _) = streamer.forward(&weights, &rows(&prompt[256..]), &carried).unwrap();
    let want = uncut.narrow(1, 256, 44);
    assert!(furthest(&rest, &want) < 1e-4 * want.abs().max().double_value(&[]));
    let first = drawn(&compiled, &prompt, 1, GREEDY, None);
    assert_eq!(first, [uncut.select(1, -1).argmax(-1, false).int64_value(&[0])]);
}

#[test]
fn a_machine_without_cuda_says_so() {
    if runtime::kernels::cuda_devices() == 0 {
        let error =
            runtime::execute::Machine::new(true, false, KernelRequest::FASTEST).unwrap_err();
        assert!(error.message.starts_with("this machine cannot use CUDA"), "{}", error.message);
    }
}
