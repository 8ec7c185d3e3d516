//! The same cases with `precision.policy = "bf16"`: no further from the exact numbers than PyTorch in bf16 with the
//! release's rounding points (`tests/golden/models/bf16_error.json`); equal bits on each run and any number of threads.

use std::collections::BTreeMap;

use compiler::plan::{IGNORED, Options, Precision, Stream, TrainOptions};
use compiler::plans;
use runtime::execute::{Machine, Streamer, Trainer};
use serde_json::Value;
use tch::{Kind, Tensor};

use super::{GoldenCase, by_their_names, cases, folder};
use crate::models::support::{FAST, PLAIN, train_options};

/// Errors may be this much larger than PyTorch's.
const WITHIN: f64 = 1.25;
/// Without fusion, each kernel rounds its result: more often than PyTorch does.
const UNFUSED: f64 = 2.0;

fn options(fuse: bool) -> Options {
    Options { precision: Precision::Bf16, fuse, ..Options::default() }
}

struct Results {
    logits: Tensor,
    loss: f64,
    gradients: Vec<Tensor>,
}

fn results(case: &GoldenCase, machine: Machine, fuse: bool) -> Results {
    let compiled = case.compiled();
    let (tokens, targets) = (case.tensor("in/tokens"), case.tensor("in/targets"));
    let weights = case.weights(&compiled, machine);
    let plan = plans::forward(&compiled.graph, Stream::default(), options(fuse));
    let streamer = Streamer::new(plan, machine).unwrap();
    let start = streamer.start(tokens.size()[0]).unwrap();
    let (logits, _) = streamer.forward(&weights, tokens, &start).unwrap();
    let common = TrainOptions { common: options(fuse), ..train_options(case.loss()) };
    let trainer = Trainer::new(plans::train(&compiled.graph, &common), machine).unwrap();
    let counted = targets.ne(IGNORED).sum(Kind::Int64).int64_value(&[]) as f64;
    let sums = trainer.micro_batch(&weights, tokens, targets, 1.0 / counted).unwrap();
    Results { logits, loss: sums.loss_sum().unwrap() / counted, gradients: sums.gradients }
}

fn squares(tensor: &Tensor) -> f64 {
    tensor.to_kind(Kind::Double).square().sum(None::<Kind>).double_value(&[])
}

/// Root mean square error of the logits, and the relative L2 error of all gradients together.
fn errors(case: &GoldenCase, results: &Results) -> (f64, f64) {
    let double = |tensor: &Tensor| tensor.to_kind(Kind::Double);
    let want = case.tensor("out/logits");
    let logits = (squares(&(double(&results.logits) - double(want))) / want.numel() as f64).sqrt();
    let gold: BTreeMap<String, Tensor> = case.under("grad/");
    let frozen = case.text["params_without_grad"].as_array().unwrap();
    let (mut off, mut whole) = (0.0, 0.0);
    for (name, gradient) in by_their_names(case, &case.compiled(), &results.gradients) {
        if frozen.iter().any(|other| *other == name) {
            continue;
        }
        assert_eq!(gradient.kind(), Kind::Float, "{name}");
        let want = &gold[&name];
        off += squares(&(double(&gradient.reshape(want.size())) - double(want)));
        whole += squares(want);
    }
    (logits, (off / whole).sqrt())
}

fn with_logits() -> Vec<GoldenCase> {
    cases("").into_iter().filter(|case| case.tensors.contains_key("out/logits")).collect()
}

#[test]
fn errors_are_those_of_pytorch_in_bf16() {
    super::quiet();
    let text = std::fs::read_to_string(folder().join("bf16_error.json")).unwrap();
    let yardstick: Value = serde_json::from_str(&text).unwrap();
    let mut table = String::new();
    let (mut worst, mut count) = (0.0f64, 0);
    for case in with_logits() {
        let theirs = &yardstick[case.name()]["bf16"];
        let Some(logits_rms) = theirs["logits_rms"].as_f64() else { continue };
        for (machine, fuse) in [(FAST, true), (FAST, false), (PLAIN, true)] {
            let ours = results(&case, machine, fuse);
            let (logits, gradients) = errors(&case, &ours);
            let parts = [logits / logits_rms, gradients / theirs["grad_rel_l2"].as_f64().unwrap()];
            table += &format!(
                "{:40} {:?} fuse {fuse}: logits {:.3} gradients {:.3} loss {:.2e}\n",
                case.name(),
                machine.kernels.all,
                parts[0],
                parts[1],
                ours.loss - case.tensor("out/loss_f64").double_value(&[0]),
            );
            let within = if fuse { WITHIN } else { UNFUSED };
            worst = parts.into_iter().map(|part| part / within).fold(worst, f64::max);
        }
        count += 1;
    }
    assert_eq!(count, yardstick.as_object().unwrap().len());
    assert!(worst <= 1.0, "{worst}\n{table}");
}

#[test]
fn bits_are_equal_on_every_run_and_any_number_of_threads() {
    let before = tch::get_num_threads();
    for case in with_logits() {
        let [one, again, two] = [1, 1, 2].map(|threads| {
            tch::set_num_threads(threads);
            results(&case, FAST, true)
        });
        for other in [&again, &two] {
            assert!(one.logits == other.logits, "{}", case.name());
            assert_eq!(one.loss.to_bits(), other.loss.to_bits(), "{}", case.name());
            let pairs = one.gradients.iter().zip(&other.gradients);
            assert!(pairs.into_iter().all(|(a, b)| a == b), "{}", case.name());
        }
    }
    tch::set_num_threads(before);
}
