//! Weights under our paths and under others' names; everything that does not fit is said at once.

use std::collections::BTreeMap;
use std::path::Path;

use compiler::program::Compiled;
use runtime::foreign::source::Source;
use runtime::init::{self, Rule};
use runtime::run::RunError;
use runtime::weights::{Weights, file};
use tch::{Kind, Tensor};

use super::archs::named;
use super::support::arch;

const LAYERS: &str =
    "layers 2 of decoder { mixer attention { heads 2  qk_norm true } mlp swiglu { hidden 20 } }";

fn llama() -> Compiled {
    let text = format!(
        "arch base {{ vocab 23  dim 12  norm_eps 1e-5  init lingua  {LAYERS} }}
         arch named = base with {{ canon A, B, C, D }}"
    );
    arch(&text, "named")
}

/// Initial weights, and the same under other names.
fn under(compiled: &Compiled, rename: impl Fn(&str) -> String) -> BTreeMap<String, Tensor> {
    let weights = Weights::init(&compiled.graph, 1).unwrap();
    weights.paths.iter().zip(weights.tensors).map(|(path, t)| (rename(path), t)).collect()
}

fn ours(compiled: &Compiled) -> BTreeMap<String, Tensor> {
    under(compiled, str::to_owned)
}

/// What a file of these tensors loads as.
fn loaded(compiled: &Compiled, tensors: &BTreeMap<String, Tensor>) -> Result<Weights, RunError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let named: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    file::write(&path, &named).unwrap();
    Weights::load(compiled, &path)
}

/// The lines of what does not fit.
fn faults(compiled: &Compiled, tensors: &BTreeMap<String, Tensor>) -> Vec<String> {
    let message = loaded(compiled, tensors).unwrap_err().message;
    let (_, message) = message.split_once("w.safetensors ").unwrap();
    message.lines().map(|line| line.trim().to_owned()).collect()
}

fn assert_initial(compiled: &Compiled, weights: &Weights) {
    let want = Weights::init(&compiled.graph, 1).unwrap();
    assert_eq!(weights.paths, want.paths);
    for ((path, got), want) in want.paths.iter().zip(&weights.tensors).zip(&want.tensors) {
        assert!(got == want, "{path}");
    }
}

/// The manifest alone says what is drawn: its key, with the seed, gives every element.
#[test]
fn the_manifests_key_is_the_key_that_draws() {
    let text = "arch base {
  vocab 23  dim 12  norm_eps 1e-5
  init { embed normal(0.5)  linear normal(0.5)  norm normal(0.5) }
  layers 2 of decoder { mixer attention { heads 2  qk_norm true }  mlp swiglu { hidden 20 } }
}
arch named = base with { canon A, B, C, D { init normal(0.5) } }";
    let compiled = arch(text, "named");
    let weights = Weights::init(&compiled.graph, 7).unwrap();
    let manifest: Vec<&str> = compiled.identity.manifest_text.lines().collect();
    assert_eq!(manifest.len(), weights.tensors.len());
    for (line, tensor) in manifest.iter().zip(&weights.tensors) {
        let [key, _, "normal(0.5)"] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let mut drawn = vec![0.0f32; tensor.numel()];
        init::fill(&Rule::Normal { std: 0.5 }, 7, key, 0, &mut drawn).unwrap();
        assert!(Tensor::from_slice(&drawn).reshape(tensor.size()) == *tensor, "{line}");
    }
}

#[test]
fn a_saved_file_loads_to_the_bit() {
    let compiled = named("hybrid");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    Weights::init(&compiled.graph, 1).unwrap().save(&path).unwrap();
    assert_initial(&compiled, &Weights::load(&compiled, &path).unwrap());
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "something unfinished is left"
    );
}

/// Lingua's names for a Llama, by the table of the spec.
fn lingua(path: &str) -> String {
    let name = path
        .replace("pre_mixer", "attention_norm")
        .replace("pre_mlp", "ffn_norm")
        .replace(".mixer.", ".attention.")
        .replace(".mlp.gate", ".feed_forward.w1")
        .replace(".mlp.up", ".feed_forward.w3")
        .replace(".mlp.down", ".feed_forward.w2")
        .replace(".mlp.D", ".feed_forward.canonD")
        .replace("attention.B", "attention.canonB")
        .replace("head.", "");
    let name = match name.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        Some((layer, slot @ ("A" | "C"))) => format!("layers.{layer}.canon{slot}"),
        _ => name,
    };
    format!("{}.weight", name.replace("embed", "tok_embeddings"))
}

#[test]
fn lingua_names_are_read() {
    let compiled = llama();
    let mut theirs = under(&compiled, lingua);
    assert!(theirs.contains_key("layers.1.feed_forward.canonD.weight"));
    assert_initial(&compiled, &loaded(&compiled, &theirs).unwrap());
    // Filters as a convolution keeps them, and halved precision, widen exactly.
    for (name, tensor) in &mut theirs {
        if name.contains("canon") {
            *tensor = tensor.unsqueeze(1);
        }
    }
    assert_initial(&compiled, &loaded(&compiled, &theirs).unwrap());
    for tensor in theirs.values_mut() {
        *tensor = tensor.to_kind(Kind::BFloat16);
    }
    let halved = loaded(&compiled, &theirs).unwrap();
    let want = Weights::init(&compiled.graph, 1).unwrap();
    let rounded = want.get("embed").unwrap().to_kind(Kind::BFloat16).to_kind(Kind::Float);
    assert!(*halved.get("embed").unwrap() == rounded);
}

#[test]
fn linguas_prefix_is_taken_off() {
    // The reference's own names are met in the golden cases; here only what Lingua puts in front.
    let text = "arch small { vocab 23  dim 12  norm_eps 1e-5  init flash_linear
        layers 1 of decoder { mixer gla { heads 2 } mlp swiglu { hidden 20 } } }";
    let compiled = arch(text, "small");
    let weights = Weights::init(&compiled.graph, 1).unwrap();
    let packed = Tensor::cat(
        &[weights.get("layers.0.mlp.gate").unwrap(), weights.get("layers.0.mlp.up").unwrap()],
        0,
    );
    let names = [
        ("embed", "model.embeddings.weight"),
        ("layers.0.pre_mixer", "model.layers.0.attn_norm.weight"),
        ("layers.0.pre_mlp", "model.layers.0.mlp_norm.weight"),
        ("layers.0.mlp.down", "model.layers.0.mlp.down_proj.weight"),
        ("head.norm", "model.norm.weight"),
        ("head.output", "lm_head.weight"),
        ("layers.0.mixer.wq", "model.layers.0.attn.q_proj.weight"),
        ("layers.0.mixer.wk", "model.layers.0.attn.k_proj.weight"),
        ("layers.0.mixer.wv", "model.layers.0.attn.v_proj.weight"),
        ("layers.0.mixer.wo", "model.layers.0.attn.o_proj.weight"),
        ("layers.0.mixer.conv_q", "model.layers.0.attn.q_conv1d.weight"),
        ("layers.0.mixer.conv_k", "model.layers.0.attn.k_conv1d.weight"),
        ("layers.0.mixer.conv_v", "model.layers.0.attn.v_conv1d.weight"),
        ("layers.0.mixer.decay_down", "model.layers.0.attn.gk_proj.0.weight"),
        ("layers.0.mixer.decay_up", "model.layers.0.attn.gk_proj.1.weight"),
        ("layers.0.mixer.decay_up.bias", "model.layers.0.attn.gk_proj.1.bias"),
        ("layers.0.mixer.o_norm", "model.layers.0.attn.g_norm.weight"),
        ("layers.0.mixer.gate_down", "model.layers.0.attn.g_proj.0.weight"),
        ("layers.0.mixer.gate_up", "model.layers.0.attn.g_proj.1.weight"),
        ("layers.0.mixer.gate_up.bias", "model.layers.0.attn.g_proj.1.bias"),
    ];
    let mut theirs: BTreeMap<String, Tensor> = names
        .iter()
        .map(|(ours, theirs)| {
            (format!("trans.{theirs}"), weights.get(ours).unwrap().shallow_clone())
        })
        .collect();
    theirs.insert("trans.model.layers.0.mlp.gate_proj.weight".to_owned(), packed);
    assert_initial(&compiled, &loaded(&compiled, &theirs).unwrap());
}

#[test]
fn a_tied_head_is_the_embedding_under_any_name() {
    let text = format!(
        "arch shared {{ vocab 23  dim 12  norm_eps 1e-5  init lingua  head tied  {LAYERS} }}"
    );
    let compiled = arch(&text, "shared");
    let mut theirs = under(&compiled, lingua);
    assert_initial(&compiled, &loaded(&compiled, &theirs).unwrap());
    let embedding = theirs["tok_embeddings.weight"].shallow_clone();
    theirs.insert("output.tied_module.weight".to_owned(), embedding.shallow_clone());
    theirs.insert("output.weight".to_owned(), embedding.shallow_clone());
    assert_initial(&compiled, &loaded(&compiled, &theirs).unwrap());
    theirs.insert("output.weight".to_owned(), embedding + 1.0);
    assert_eq!(
        faults(&compiled, &theirs),
        ["`output.weight`: it is tied to tok_embeddings.weight and differs from it"]
    );
}

#[test]
fn everything_that_does_not_fit_is_said_at_once() {
    let compiled = llama();
    let mut broken = ours(&compiled);
    broken.remove("layers.0.mixer.wq");
    broken.insert(
        "layers.2.mixer.wq".to_owned(),
        Tensor::zeros([12, 12], (Kind::Float, tch::Device::Cpu)),
    );
    let wide = broken["layers.1.mlp.D"].repeat([1, 2]);
    broken.insert("layers.1.mlp.D".to_owned(), wide);
    let _ = broken.get_mut("head.norm").unwrap().get(3).fill_(f64::NAN);
    let double = broken["embed"].to_kind(Kind::Double);
    broken.insert("embed".to_owned(), double);
    assert_eq!(
        faults(&compiled, &broken),
        [
            "(names of canonc)",
            "shape: layers.1.mlp.D is [40, 8], and layers.1.mlp.D is [40, 4]",
            "extra: layers.2.mixer.wq [12, 12]",
            "missing: layers.0.mixer.wq [12, 12]",
            "dtype: embed is Double, and weights are f32, bf16 or f16",
            "not finite: head.norm has NaN or infinity in it",
        ]
    );
    let mut theirs = under(&compiled, lingua);
    theirs.remove("layers.1.feed_forward.w2.weight");
    assert_eq!(
        faults(&compiled, &theirs),
        [
            "(names of Lingua Llama)",
            "missing: layers.1.mlp.down [12, 20], which is in layers.1.feed_forward.w2.weight",
        ]
    );
    assert!(faults(&compiled, &BTreeMap::new()).last().unwrap().starts_with("… and "));
}

#[test]
fn files_that_are_none_are_refused() {
    let compiled = llama();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    Weights::init(&compiled.graph, 1).unwrap().save(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let refusal = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Weights::load(&compiled, &path).unwrap_err().message
    };
    for bytes in
        [&b""[..], b"not safetensors at all", &whole[..whole.len() - 1], &whole[..40], &[0xff; 64]]
    {
        assert!(refusal(bytes).contains("is no safetensors file"), "{} bytes", bytes.len());
    }
    let missing = Weights::load(&compiled, Path::new("/nonexistent/w.safetensors"));
    assert!(missing.unwrap_err().message.contains("/nonexistent/w.safetensors cannot be read"));
    assert!(file::ids(&path, "tokens").is_err());
}
