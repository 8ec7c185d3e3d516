//! Weights under our paths and under others' names; all mismatches are reported at once.

use std::collections::BTreeMap;
use std::path::Path;

use compiler::number::InitRule;
use compiler::program::Compiled;
use dsl::Problem;
use interop::source::{ArchWeights, as_sentence};
use records::init;
use runtime::weights::{Weights, file};
use tch::{Device, Kind, Tensor};

use super::support::arch;
use ::support::archs::named;

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

/// Loads a file of these tensors.
fn loaded(compiled: &Compiled, tensors: &BTreeMap<String, Tensor>) -> Result<Weights, Problem> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let named: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    file::write(&path, &named, None).unwrap();
    load(compiled, &path)
}

fn load(compiled: &Compiled, path: &Path) -> Result<Weights, Problem> {
    let source = ArchWeights::open(compiled, path).map_err(as_sentence)?;
    Weights::read(&compiled.graph, &source, Device::Cpu, Kind::Float)
}

/// The reported mismatches, one per line.
fn faults(compiled: &Compiled, tensors: &BTreeMap<String, Tensor>) -> Vec<String> {
    let message = loaded(compiled, tensors).unwrap_err().message;
    let (_, message) = message.split_once("w.safetensors").unwrap();
    let message = message.trim_start_matches([':', ' ']);
    message.lines().map(|line| line.trim().to_owned()).collect()
}

fn assert_initial(compiled: &Compiled, weights: &Weights) {
    let want = Weights::init(&compiled.graph, 1).unwrap();
    assert_eq!(weights.paths, want.paths);
    for ((path, got), want) in want.paths.iter().zip(&weights.tensors).zip(&want.tensors) {
        assert!(got == want, "{path}");
    }
}

/// The manifest alone determines the initial values: its key, with the seed, gives every element.
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
        init::fill(&InitRule::Normal { std: 0.5 }, 7, key, 0, &mut drawn).unwrap();
        assert!(Tensor::from_slice(&drawn).reshape(tensor.size()) == *tensor, "{line}");
    }
}

#[test]
fn a_saved_file_loads_to_the_bit() {
    let compiled = named("hybrid");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    Weights::init(&compiled.graph, 1).unwrap().save(&path).unwrap();
    assert_initial(&compiled, &load(&compiled, &path).unwrap());
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "something unfinished is left"
    );
}

/// Lingua's names for a Llama, as its released checkpoints have them; written here apart from the table they test.
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
    // Filters in a convolution's shape, and halved precision, widen exactly.
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
    // The golden cases use the reference's own names; this tests only the prefixes that Lingua adds.
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
        ["`output.weight`: it is tied to tok_embeddings.weight but differs from it"]
    );
}

#[test]
fn everything_that_does_not_fit_is_reported_at_once() {
    let compiled = llama();
    let mut broken = ours(&compiled);
    broken.remove("layers.0.mixer.wq");
    broken.insert(
        "layers.2.mixer.wq".to_owned(),
        Tensor::zeros([12, 12], (Kind::Float, tch::Device::Cpu)),
    );
    let wide = broken["layers.1.mlp.D"].repeat([1, 2]);
    broken.insert("layers.1.mlp.D".to_owned(), wide);
    let double = broken["embed"].to_kind(Kind::Double);
    broken.insert("embed".to_owned(), double);
    assert_eq!(
        faults(&compiled, &broken),
        [
            "does not contain this arch's weights (names of canonc)",
            "missing: layers.0.mixer.wq [12, 12]",
            "dtype: embed is F64, but weights must be F32, BF16 or F16",
            "shape: layers.1.mlp.D is [40, 8], but the arch needs [40, 4]",
            "extra: layers.2.mixer.wq [12, 12]",
        ]
    );
    let mut diverged = ours(&compiled);
    let _ = diverged.get_mut("head.norm").unwrap().get(3).fill_(f64::NAN);
    assert_eq!(
        faults(&compiled, &diverged),
        ["`head.norm` [12] has NaN at 3, but weights must be finite"]
    );
    let mut theirs = under(&compiled, lingua);
    theirs.remove("layers.1.feed_forward.w2.weight");
    assert_eq!(
        faults(&compiled, &theirs),
        [
            "does not contain this arch's weights (names of Lingua Llama)",
            "missing: layers.1.feed_forward.w2.weight [12, 20]",
        ]
    );
    let mut cut = ours(&compiled);
    cut.retain(|name, _| name == "embed");
    assert!(faults(&compiled, &cut).last().unwrap().starts_with("… and "));
}

#[test]
fn names_of_two_programs_and_of_none_are_refused_with_the_names() {
    let compiled = llama();
    let mut mixed = ours(&compiled);
    let norm = mixed.remove("head.norm").unwrap();
    mixed.insert("norm.weight".to_owned(), norm);
    let message = faults(&compiled, &mixed).join(" ");
    assert!(message.contains("mixes the names of canonc (embed, "), "{message}");
    assert!(message.contains("with those of Lingua Llama (norm.weight)"), "{message}");
    // Names of two other programs. Those of the second match no tensor of the first.
    let mut mixed = under(&compiled, lingua);
    let norm = mixed.remove("norm.weight").unwrap();
    mixed.insert("model.norm.weight".to_owned(), norm);
    let message = faults(&compiled, &mixed).join(" ");
    assert!(message.contains("missing: norm.weight [12]"), "{message}");
    assert!(
        message.contains("extra: model.norm.weight [12], a name of Hugging Face Llama"),
        "{message}"
    );
    let strange = under(&compiled, |path| format!("transformer.{path}"));
    let message = faults(&compiled, &strange).join(" ");
    assert!(
        message.contains("names belong to no supported program: transformer.embed, "),
        "{message}"
    );
    assert!(faults(&compiled, &BTreeMap::new()).join(" ").contains("it is empty"));
    // The families' names with an arch outside the families: the order of rows is unknown.
    let text = LAYERS.replace("heads 2", "heads 2, window 4");
    let windowed =
        arch(&format!("arch w {{ vocab 23  dim 12  norm_eps 1e-5  init lingua  {text} }}"), "w");
    let message = faults(&windowed, &under(&windowed, lingua)).join(" ");
    assert!(
        message.contains("uses the names of Lingua Llama") && message.contains("window"),
        "{message}"
    );
}

/// Rearranges each head's rows into halves, as Hugging Face's RoPE pairs channels.
fn halves(tensor: &Tensor, heads: i64) -> Tensor {
    let size = tensor.size();
    let width = tensor.numel() as i64 / size[0];
    let pairs = tensor.reshape([heads, size[0] / heads / 2, 2, width]);
    pairs.transpose(1, 2).reshape(size)
}

#[test]
fn rows_of_q_and_k_are_reordered_for_the_rope_of_the_program_that_wrote_them() {
    let text = |layout: &str| {
        format!(
            "arch plain {{ vocab 23  dim 16  norm_eps 1e-5  init lingua
               layers 2 of decoder {{ mixer attention {{ heads 4, kv_heads 2, rope {{ layout {layout} }} }}
                                      mlp swiglu {{ hidden 20 }} }} }}"
        )
    };
    let [neighbours, half] = ["interleaved", "half"].map(|layout| arch(&text(layout), "plain"));
    let rename = |path: &str| {
        let name = path
            .replace("pre_mixer", "input_layernorm")
            .replace("pre_mlp", "post_attention_layernorm")
            .replace("mixer.w", "self_attn.")
            .replace(".mlp.gate", ".mlp.gate_proj")
            .replace(".mlp.up", ".mlp.up_proj")
            .replace(".mlp.down", ".mlp.down_proj");
        let name = match name.rsplit_once("self_attn.") {
            Some((layer, q)) => format!("{layer}self_attn.{q}_proj"),
            None => name,
        };
        match name.as_str() {
            "embed" => "model.embed_tokens.weight".to_owned(),
            "head.norm" => "model.norm.weight".to_owned(),
            "head.output" => "lm_head.weight".to_owned(),
            name => format!("model.{name}.weight"),
        }
    };
    let same = |loaded: &Weights, compiled: &Compiled, q: &dyn Fn(&str, &Tensor) -> Tensor| {
        let want = Weights::init(&compiled.graph, 1).unwrap();
        for ((path, got), want) in want.paths.iter().zip(&loaded.tensors).zip(&want.tensors) {
            assert!(*got == q(path, want), "{path}");
        }
    };
    let turn = |path: &str, tensor: &Tensor| match path.rsplit('.').next() {
        Some("wq") => halves(tensor, 4),
        Some("wk") => halves(tensor, 2),
        _ => tensor.shallow_clone(),
    };
    let keep = |_: &str, tensor: &Tensor| tensor.shallow_clone();
    // Stock `transformers` pairs halves. Two readings of an interleaved file are two different models.
    let hf: BTreeMap<String, Tensor> = {
        let weights = Weights::init(&neighbours.graph, 1).unwrap();
        let tensors = weights.paths.iter().zip(&weights.tensors);
        tensors.map(|(path, tensor)| (rename(path), turn(path, tensor))).collect()
    };
    same(&loaded(&neighbours, &hf).unwrap(), &neighbours, &keep);
    same(&loaded(&half, &hf).unwrap(), &half, &turn);
    // Lingua pairs neighbours.
    let theirs = under(&neighbours, lingua);
    same(&loaded(&neighbours, &theirs).unwrap(), &neighbours, &keep);
    same(&loaded(&half, &theirs).unwrap(), &half, &turn);
    // Our own files work for any arch.
    same(&loaded(&half, &ours(&half)).unwrap(), &half, &keep);
}

/// Memory in addition to the parameters while a file is read: at most a piece, and no parameter twice.
#[test]
fn loading_holds_the_parameters_and_a_piece_of_the_file() {
    let text = "arch wide { vocab 1100  dim 1024  norm_eps 1e-5  init lingua
        layers 1 of decoder { mixer attention { heads 2, rope { layout interleaved } } mlp swiglu { hidden 1536 } } }";
    let compiled = arch(text, "wide");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let weights = Weights::init(&compiled.graph, 1).unwrap();
    weights.save(&path).unwrap();
    let piece = interop::store::PIECE as usize;
    assert!(weights.tensors.iter().any(|tensor| tensor.numel() > piece), "no test of pieces");
    let source = ArchWeights::open(&compiled, &path).unwrap();
    for (index, tensor) in weights.tensors.iter().enumerate() {
        let mut total = 0;
        source
            .param(index, &mut |values| {
                assert!(values.len() <= piece);
                total += values.len();
                Ok(())
            })
            .unwrap();
        assert_eq!(total, tensor.numel());
    }
    let loaded = Weights::read(&compiled.graph, &source, Device::Cpu, Kind::Float).unwrap();
    assert_initial(&compiled, &loaded);
    // Tensors of the machine's type are shared. Others are converted while reading the file.
    let used = loaded.on(Device::Cpu, Kind::Float).unwrap();
    for (a, b) in loaded.tensors.iter().zip(&used.tensors) {
        assert_eq!(a.data_ptr(), b.data_ptr());
    }
    let narrow = Weights::read(&compiled.graph, &source, Device::Cpu, Kind::BFloat16).unwrap();
    for (a, b) in narrow.tensors.iter().zip(&loaded.tensors) {
        assert!(*a == b.to_kind(Kind::BFloat16));
    }
}

#[test]
fn files_without_weights_are_refused() {
    let compiled = llama();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    Weights::init(&compiled.graph, 1).unwrap().save(&path).unwrap();
    let content = std::fs::read(&path).unwrap();
    let refusal = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        load(&compiled, &path).unwrap_err().message
    };
    let empty = refusal(b"");
    assert!(empty.contains("contains no weights that can be read: it is empty"), "{empty}");
    for bytes in
        [&b"not safetensors at all"[..], &content[..content.len() - 1], &content[..40], &[0xff; 64]]
    {
        let message = refusal(bytes);
        assert!(message.contains("is not a usable safetensors file"), "{message}");
    }
    let missing = load(&compiled, Path::new("/nonexistent/w.safetensors"));
    assert!(missing.unwrap_err().message.contains("/nonexistent/w.safetensors cannot be read"));
    assert!(file::ids(&path, "tokens").is_err());
}
