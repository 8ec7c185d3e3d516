//! Exported folders in the real `transformers` and lm-evaluation-harness: any arch, with its own code or a stock class.
//!
//! In: small archs of every mixer, window, sharing and head. Out: pass or fail. Must stay true: logits are equal to f32
//! rounding; generation of padded batches with a cache is that of single rows without; `save_pretrained` writes the
//! same bits, which every `--weights` reads.

use std::path::Path;

use compiler::plan::{Loss, Options};
use compiler::program::Compiled;
use interop::dtype::Dtype;
use interop::export::{Request, To, write};
use interop::tokenizer::Tokenizer;
use runtime::execute::{KernelRequest, Machine};
use runtime::forward;
use runtime::weights::{Weights, file};
use runtime::{Device, Kind, Tensor};
use support::{archs, programs};

use super::modules::read_back;
use super::{python, run};

/// On bytes, so that it has a tokenizer.
const BYTES: &str = "
block recurrent = decoder { mixer gated_deltanet { heads 2 } mlp swiglu { hidden 20 } }
block softmax = decoder { mixer attention { heads 2  window 6 } mlp swiglu { hidden 20 } }
arch base { vocab 258  dim 12  norm_eps 1e-5  init lingua  layers [recurrent, softmax]  head tied }
arch on_bytes = base with { canon A, C }
";

/// The largest difference of logits in f32, relative to the largest.
const ALLOWED: f64 = 1e-4;

#[derive(serde::Deserialize, Debug)]
struct Found {
    name: String,
    logits: f64,
    own_code: bool,
    harness: bool,
}

/// Exports a folder; writes tokens and our logits next to it.
fn lay_out(root: &Path, name: &str, compiled: &Compiled, tokenizer: Option<&Tokenizer>) -> Weights {
    let graph = &compiled.graph;
    let weights = Weights::init(graph, 7).unwrap();
    let file = root.join(format!("{name}.safetensors"));
    weights.save(&file).unwrap();
    let request = Request {
        compiled,
        experiment: None,
        weights: Some(&file),
        to: To::HuggingFace,
        dtype: Dtype::F32,
        gpus_per_node: 1,
        origin: None,
        tokenizer: tokenizer.ok_or("No tokenizer is in this folder."),
    };
    write(&request, &root.join(name)).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    read_back(name, compiled, &weights, &root.join(name));
    let ids: Vec<i64> = (0..2 * 21).map(|n| (n * n * 31 + n * 7 + 5) % graph.vocab).collect();
    let tokens = Tensor::from_slice(&ids).reshape([2, 21]);
    let answer = forward::forward(&forward::Request {
        graph,
        weights: &weights,
        tokens: &tokens,
        targets: None,
        gradients: false,
        loss: Loss::CROSS_ENTROPY,
        options: Options::default(),
        machine: Machine {
            device: Device::Cpu,
            kind: Kind::Float,
            kernels: KernelRequest::REFERENCE,
        },
    });
    answer.unwrap().write(&root.join(format!("{name}.ours.safetensors"))).unwrap();
    let named: [(&str, &Tensor); 1] = [("tokens", &tokens)];
    file::write(&root.join(format!("{name}.tokens.safetensors")), &named, None).unwrap();
    weights
}

#[test]
fn folders_of_any_arch_work_in_transformers_and_in_lm_eval() {
    let python = python();
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let bytes = Tokenizer::bytes(tasks::BOS, tasks::EOS);
    let names = [
        "plain",
        "grouped",
        "filters",
        "windowed",
        "two_windows",
        "tied",
        "shared_layers",
        "one_matrix",
        "functions",
        "filled",
        "gla_arch",
        "gla_bare",
        "delta_arch",
        "mamba_arch",
        "mamba_bare",
        "hybrid",
    ];
    let mut all: Vec<(&str, Compiled, Option<&Tokenizer>)> =
        names.into_iter().map(|name| (name, archs::named(name), None)).collect();
    all.push(("on_bytes", programs::compiled(BYTES), Some(&bytes)));
    let mut laid_out = Vec::new();
    for (name, compiled, tokenizer) in &all {
        laid_out.push(lay_out(root, name, compiled, *tokenizer));
    }
    let script = programs::root().join("tests/transformers_folders.py");
    let folders = all.iter().map(|(name, ..)| root.join(name));
    let words: Vec<String> = [script]
        .into_iter()
        .chain(folders)
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = run(&python, &words).unwrap_or_else(|why| panic!("{why}"));
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let found: Vec<Found> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), all.len(), "{said}");
    for (found, (name, compiled, tokenizer)) in found.iter().zip(&all) {
        assert_eq!(&found.name, name);
        assert!(found.logits <= ALLOWED, "{found:?}");
        assert_eq!(found.own_code, *name != "plain" && *name != "tied", "{found:?}");
        assert_eq!(found.harness, tokenizer.is_some());
        let index = all.iter().position(|(other, ..)| other == name).unwrap();
        let saved = root.join(format!("{name}-saved"));
        read_back(name, compiled, &laid_out[index], &saved);
        eprintln!("{name}: logits off by {:.1e}", found.logits);
    }
}
