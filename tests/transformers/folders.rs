//! Tests of exported folders in the real `transformers` and lm-evaluation-harness: small archs of every mixer, window,
//! sharing and head with their own code, and every stock class, both imported and written here.
//!
//! Logits are equal to f32 rounding, generation of padded batches with a cache is that of single rows without one, and
//! `save_pretrained` writes the same bits, which every `--weights` reads.

use std::path::Path;

use compiler::plan::{Loss, Options};
use compiler::program::{Compiled, Program, Std};
use interop::dtype::Dtype;
use interop::export::{Request, To, write};
use interop::import;
use interop::source::ArchWeights;
use interop::tokenizer::Tokenizer;
use runtime::execute::{KernelRequest, Machine};
use runtime::forward;
use runtime::weights::{Weights, file};
use runtime::{Device, Kind, Tensor};
use support::{archs, golden, programs};

use super::modules::read_back;
use super::{python, run};

/// With a vocabulary of bytes, so that it has a tokenizer.
pub(super) const BYTES: &str = "
block recurrent = decoder { mixer gated_deltanet { heads 2 } mlp swiglu { hidden 20 } }
block softmax = decoder { mixer attention { heads 2  window 6 } mlp swiglu { hidden 20 } }
arch base { vocab 258  dim 12  norm_eps 1e-5  init lingua  layers [recurrent, softmax]  head tied }
arch on_bytes = base with { canon A, C }
";

/// Each class of `transformers` in forms that no committed arch and no imported folder has: rows of q and k that are
/// reordered, with norms and biases; a window on some layers; a gate of gelu; a scale and no bounds.
const STOCK: &str = "
arch mistral {
  vocab 97   dim 16   norm_eps 1e-5
  init lingua
  layers 3 of decoder {
    mixer attention { heads 4, kv_heads 2, window 5 }
    mlp   swiglu { hidden 24 }
  }
}
arch mistral_gelu = mistral with { mlp = geglu { hidden 20 }   mixer.head_dim 6   head tied }
arch grouped = mistral with {
  mixer = grouped_attention { heads 4, kv_heads 2, rope { layout interleaved } }
}
arch qwen = grouped with { mixer.head_norm true   mixer.bias true }
arch qwen_upper = qwen with { layers[1..3].mixer.window 7 }
arch llama_biased = grouped with { mixer.bias true }
arch llama3 = grouped with { mixer.rope = llama3_rotary { factor 8, original 16, layout interleaved } }
arch linear = grouped with { mixer.rope = interpolated_rotary { factor 2.5 } }
arch yarn = grouped with { mixer.rope = yarn_rotary { factor 4, original 16 } }
block local = sandwich {
  mixer grouped_attention { heads 4, kv_heads 2, softcap 4, window 6 }
  mlp   geglu { hidden 20 }
}
block global = sandwich {
  mixer grouped_attention { heads 4, kv_heads 2, softcap 4 }
  mlp   geglu { hidden 20 }
}
arch gemma {
  vocab 97   dim 16   norm_eps 1e-6
  init lingua
  head capped { cap 3 }
  layers [scaled_embedding, local, global, local]
}
arch gemma_unbounded = gemma with {
  head tied   layers[1..4].mixer.softcap none   layers[1..4].mixer.scale rsqrt(7)
}
arch olmo {
  vocab 97   dim 16   norm_eps 1e-6
  init lingua
  layers 2 of post_norm {
    mixer attention { heads 4, kv_heads 2, qk_norm true }
    mlp   swiglu { hidden 24 }
  }
}
";

/// The largest difference of logits in f32, relative to the largest.
const ALLOWED: f64 = 1e-4;

#[derive(serde::Deserialize, Debug)]
struct FolderResult {
    name: String,
    logits: f64,
    own_code: bool,
    harness: bool,
}

/// Initial values, but no norm of ones and no bias of zeros, which would hide a wrong place of either.
pub(super) fn drawn(compiled: &Compiled) -> Weights {
    let mut weights = Weights::init(&compiled.graph, 7).unwrap();
    for (param, tensor) in compiled.graph.params().iter().zip(&mut weights.tensors) {
        if matches!(param.role.as_str(), "norm" | "bias") {
            let count: i64 = param.shape.iter().product();
            let positions = Tensor::arange(count, (Kind::Float, Device::Cpu));
            *tensor = &*tensor + (positions * 0.7).sin().reshape(&param.shape) * 0.3;
        }
    }
    weights
}

/// Exports a folder; writes tokens and our logits next to it.
pub(super) fn lay_out(
    root: &Path,
    name: &str,
    compiled: &Compiled,
    weights: Weights,
    tokenizer: Option<&Tokenizer>,
) -> Weights {
    let graph = &compiled.graph;
    let file = root.join(format!("{name}.safetensors"));
    weights.save(&file).unwrap();
    let request = Request {
        compiled,
        experiment: None,
        weights: Some(&file),
        to: To::HuggingFace,
        dtype: Dtype::F32,
        gpus_per_node: 1,
        ranks: None,
        comparison: None,
        origin: None,
        tokenizer: tokenizer.ok_or("No tokenizer is in this folder."),
        imported_text: None,
        initial: None,
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
    std::fs::write(root.join(format!("{name}.ours.safetensors")), answer.unwrap().bytes().unwrap())
        .unwrap();
    let named: [(&str, &Tensor); 1] = [("tokens", &tokens)];
    file::write(&root.join(format!("{name}.tokens.safetensors")), &named, None).unwrap();
    weights
}

/// An arch, its weights, and a tokenizer if the folder gets one.
type FolderCase<'a> = (&'a str, Compiled, Weights, Option<&'a Tokenizer>);

/// Uses each folder as people do; `own_code` says which have code of their own.
fn works(all: Vec<FolderCase<'_>>, own_code: impl Fn(&str) -> bool) {
    let python = python();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let mut laid_out = Vec::new();
    for (name, compiled, weights, tokenizer) in all {
        let weights = lay_out(root, name, &compiled, weights, tokenizer);
        laid_out.push((name, compiled, weights, tokenizer));
    }
    let script = programs::root().join("tests/transformers_folders.py");
    let folders = laid_out.iter().map(|(name, ..)| root.join(name));
    let words: Vec<String> = [script]
        .into_iter()
        .chain(folders)
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let stdout = run(&python, &words).unwrap_or_else(|error| panic!("{error}"));
    let lines = stdout.lines().filter(|line| line.starts_with('{'));
    let results: Vec<FolderResult> =
        lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), laid_out.len(), "{stdout}");
    for (result, (name, compiled, weights, tokenizer)) in results.iter().zip(&laid_out) {
        assert_eq!(&result.name, name);
        assert!(result.logits <= ALLOWED, "{result:?}");
        assert_eq!(result.own_code, own_code(name), "{result:?}");
        assert_eq!(result.harness, tokenizer.is_some());
        read_back(name, compiled, weights, &root.join(format!("{name}-saved")));
        eprintln!("{name}: logits off by {:.1e}", result.logits);
    }
}

#[test]
fn folders_of_any_arch_work_in_transformers_and_in_lm_eval() {
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
    let on_bytes = programs::compiled(BYTES);
    let archs = names.into_iter().map(|name| (name, archs::named(name), None));
    let all =
        archs.chain([("on_bytes", on_bytes, Some(&bytes))]).map(|(name, compiled, tokenizer)| {
            let weights = Weights::init(&compiled.graph, 7).unwrap();
            (name, compiled, weights, tokenizer)
        });
    works(all.collect(), |name| !matches!(name, "plain" | "tied" | "windowed"));
}

#[test]
fn stock_classes_compute_what_our_archs_do() {
    let mut all = Vec::new();
    let stock = golden::folders("stock");
    for name in stock.iter().map(String::as_str) {
        let source = programs::root().join("tests/golden/stock").join(name);
        let request =
            import::Request { source: &source, name: Some("model"), devices: None, weights: true };
        let imported = import::read(&request).unwrap_or_else(|error| panic!("{name}: {error}"));
        let source = ArchWeights::open(&imported.compiled, &source).unwrap();
        let graph = &imported.compiled.graph;
        let weights = Weights::read(graph, &source, Device::Cpu, Kind::Float).unwrap();
        all.push((name, imported.compiled, weights, None));
    }
    for name in ["qwen3_demo", "gemma2_demo", "olmo2_demo"] {
        let file = format!("arch/{name}.canon");
        let text = programs::read(&file);
        let program = Program::new([(file.clone(), text)], Std::Embedded);
        let compiled = program.compile(&file, name).0.unwrap();
        let weights = drawn(&compiled);
        all.push((name, compiled, weights, None));
    }
    let program = Program::new([("stock.canon".to_owned(), STOCK.to_owned())], Std::Embedded);
    let names = program.archs("stock.canon");
    for name in &names {
        let (compiled, diagnostics) = program.compile("stock.canon", name);
        let compiled = compiled.unwrap_or_else(|| panic!("{}", program.render(&diagnostics)));
        let weights = drawn(&compiled);
        // Golden folders have some of these names.
        let name = match name.as_str() {
            "mistral" => "mistral_paired",
            name => name,
        };
        all.push((name, compiled, weights, None));
    }
    works(all, |_| false);
}
