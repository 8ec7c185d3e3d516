//! Archs that are a class of `transformers`, exported to that class and read back: the graph decides, whatever the text
//! calls its definitions, and what the class cannot express keeps its own code.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use compiler::program::{Compiled, Program, Std};
use interop::dtype::Dtype;
use interop::export::{self, To};
use interop::import::{self, Imported};
use interop::source::ArchWeights;
use interop::store::{Planned, Store, write_safetensors};
use serde_json::Value;
use support::golden::folders;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn golden(name: &str) -> PathBuf {
    root().join("tests/golden/stock").join(name)
}

fn import(source: &Path) -> Imported {
    let request = import::Request { source, name: Some("model"), devices: None, weights: true };
    import::read(&request).unwrap_or_else(|error| panic!("{}: {error}", source.display()))
}

fn export(compiled: &Compiled, weights: &Path, dtype: Dtype, out: &Path) -> Vec<String> {
    let request = export::Request {
        compiled,
        experiment: None,
        weights: Some(weights),
        to: To::HuggingFace,
        dtype,
        gpus_per_node: 1,
        ranks: None,
        comparison: None,
        origin: None,
        tokenizer: Err("No tokenizer is in this folder."),
        imported_text: None,
        initial: None,
    };
    export::write(&request, out).unwrap_or_else(|error| panic!("{}: {error}", compiled.name))
}

fn compiled(text: &str, name: &str) -> Compiled {
    let program = Program::new([("a.canon".to_owned(), text.to_owned())], Std::Embedded);
    let (compiled, diagnostics) = program.compile("a.canon", name);
    compiled.unwrap_or_else(|| panic!("{name}: {}", program.render(&diagnostics)))
}

/// Weights of any arch: other values in each place, none of which bf16 rounds, all between 1/2 and 2.
fn weights(compiled: &Compiled, path: &Path) {
    let params = compiled.graph.params();
    let planned: Vec<Planned> = params
        .iter()
        .map(|param| Planned { name: param.path.clone(), shape: param.shape.clone() })
        .collect();
    write_safetensors(path, &planned, Dtype::F32, &[], |index, put| {
        let count: i64 = params[index].shape.iter().product();
        let value = |n: i64| 0.5 + ((n * 31 + index as i64 * 7) % 128) as f32 / 128.0;
        put(&(0..count).map(value).collect::<Vec<f32>>())
    })
    .unwrap();
}

fn values(source: &ArchWeights, count: usize) -> Vec<Vec<u32>> {
    let each = (0..count).map(|index| {
        let mut bits = Vec::new();
        source
            .param(index, &mut |piece| {
                bits.extend(piece.iter().map(|value| value.to_bits()));
                Ok(())
            })
            .unwrap();
        bits
    });
    each.collect()
}

fn config(folder: &Path) -> serde_json::Map<String, Value> {
    let text = fs::read_to_string(folder.join("config.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Tensors by name, as bits.
fn tensors(folder: &Path) -> BTreeMap<String, (Vec<i64>, Vec<u32>)> {
    let index = folder.join("model.safetensors.index.json");
    let store = match index.is_file() {
        true => Store::sharded(&index),
        false => Store::single(&folder.join("model.safetensors")),
    };
    let store = store.unwrap();
    let each = store.tensors.iter().map(|(name, stored)| {
        let values = store.values(name, 0, stored.count()).unwrap();
        let bits = values.iter().map(|value| value.to_bits()).collect();
        (name.clone(), (stored.shape.clone(), bits))
    });
    each.collect()
}

/// Exports an arch and reads the folder back: the class, and whether it has code of its own.
fn round_trip(compiled: &Compiled) -> (String, bool) {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("w.safetensors"), dir.path().join("out"));
    weights(compiled, &file);
    let files = export(compiled, &file, Dtype::F32, &out);
    let keys = config(&out);
    let class = keys["architectures"][0].as_str().unwrap().to_owned();
    let own_code = files.iter().any(|name| name == "modeling_canonc.py");
    assert_eq!(own_code, class == "CanoncForCausalLM", "{files:?}");
    let params = compiled.graph.params().len();
    let ours = values(&ArchWeights::open(compiled, &file).unwrap(), params);
    let direct = ArchWeights::open(compiled, &out).unwrap();
    assert_eq!(values(&direct, params), ours, "{}", compiled.name);
    if !own_code {
        let again = import(&out);
        assert_eq!(again.compiled.identity.graph, compiled.identity.graph, "{}", again.text);
        assert_eq!(again.compiled.identity.manifest, compiled.identity.manifest, "{}", again.text);
        assert_eq!(values(again.weights.as_ref().unwrap(), params), ours, "{}", compiled.name);
    }
    (class, own_code)
}

/// Tensors are equal, and keys mean the same: the arch of both is the same text, and numbers that both have are equal.
#[test]
fn imported_models_go_out_to_their_class_and_come_back() {
    for name in &folders("stock") {
        let first = import(&golden(name));
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let mut files = export(&first.compiled, &golden(name), Dtype::Bf16, &out);
        files.sort();
        let wanted = ["README.md", "config.json", "generation_config.json", "model.safetensors"];
        assert_eq!(files, wanted, "{name}");
        assert_eq!(tensors(&out), tensors(&golden(name)), "{name}");
        let (ours, theirs) = (config(&out), config(&golden(name)));
        assert_eq!(ours["architectures"], theirs["architectures"]);
        let class = ours["architectures"][0].as_str().unwrap();
        let about = ["max_position_embeddings", "torch_dtype"];
        for (key, value) in &ours {
            let mark = key.ends_with("_token_id") || about.contains(&key.as_str());
            let Some(other) = theirs.get(key).filter(|_| !mark) else { continue };
            if key == "rope_scaling" && !value.is_null() {
                let numbers_in = |settings: &Value| {
                    let numbers = settings.as_object().unwrap().iter();
                    let numbers = numbers.filter_map(|(key, n)| Some((key.clone(), n.as_f64()?)));
                    numbers.collect::<BTreeMap<_, _>>()
                };
                assert_eq!(numbers_in(value), numbers_in(other), "{name}");
            } else {
                let equal = value == other || value.is_number() && value.as_f64() == other.as_f64();
                // Of Qwen's windows, the first layer is read only if there are any.
                let unused = key == "max_window_layers" && ours["use_sliding_window"] == false;
                assert!(equal || unused, "{name}: {key} is {value}, was {other}");
            }
        }
        let again = import(&out);
        let without_docs = |text: &str| {
            text.lines().filter(|line| !line.starts_with("///")).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(without_docs(&again.text), without_docs(&first.text), "{name}");
        let params = first.params().len();
        let [ours, theirs] = [&again, &first].map(|i| values(i.weights.as_ref().unwrap(), params));
        assert_eq!(ours, theirs, "{name}");
        let card = fs::read_to_string(out.join("README.md")).unwrap();
        assert!(card.contains(&format!("`model`, {class} |")), "{card}");
        let eager = name == "gemma2";
        assert_eq!(card.contains("attn_implementation=\"eager\""), eager, "{card}");
        assert_eq!(ours_eager(&out), eager);
    }
}

fn ours_eager(folder: &Path) -> bool {
    config(folder).get("_attn_implementation").is_some_and(|value| value == "eager")
}

#[test]
fn committed_archs_go_out_to_their_class() {
    for (name, class) in [
        ("qwen3_demo", "Qwen3ForCausalLM"),
        ("gemma2_demo", "Gemma2ForCausalLM"),
        ("olmo2_demo", "Olmo2ForCausalLM"),
        ("llama_demo", "LlamaForCausalLM"),
    ] {
        let text = fs::read_to_string(root().join(format!("arch/{name}.canon"))).unwrap();
        assert_eq!(round_trip(&compiled(&text, name)), (class.to_owned(), false));
        let canon = name.replace("_demo", "canon_demo");
        if text.contains(&canon) {
            let (class, own_code) = round_trip(&compiled(&text, &canon));
            assert!(own_code, "{canon} is {class}");
        }
    }
}

/// Archs of one text with changes; each gives its class, or has code of its own.
const FORMS: &str = "
arch mistral {
  vocab 40   dim 16   norm_eps 1e-5
  init huggingface
  layers 3 of decoder {
    mixer attention { heads 4, kv_heads 2, window 5, rope { layout half } }
    mlp   swiglu { hidden 24 }
  }
}
arch mistral_paired = mistral with { mixer.rope.layout interleaved }
arch mistral_wide = mistral with { mixer.head_dim 6  init lingua  head tied }
arch mistral_gelu = mistral with { mlp = geglu { hidden 20 } }
arch whole_past_gelu = mistral_gelu with { mixer.window none }
arch one_window = mistral with { layers[0].mixer.window none }
arch two_windows = mistral with { layers[0].mixer.window 4 }
arch part_turned = mistral with { mixer.rope.dims 2 }
arch no_positions = mistral with { mixer.rope = nope }
arch joint_norm = mistral with { mixer.qk_norm true }
arch filled = mistral with { canon C }

arch options {
  vocab 40   dim 16   norm_eps 1e-5
  init huggingface
  layers 3 of decoder {
    mixer grouped_attention { heads 4, kv_heads 2, rope { layout half } }
    mlp   swiglu { hidden 24 }
  }
}
arch qwen = options with { mixer.head_norm true }
arch qwen_paired = qwen with { mixer.rope.layout interleaved  mixer.bias true }
arch qwen_upper = qwen with { layers[1..3].mixer.window 7 }
arch qwen_lower = qwen with { layers[0..2].mixer.window 7 }
arch qwen_all = qwen with { mixer.window 7 }
arch qwen_bounded = qwen with { mixer.softcap 20 }
arch qwen_scaled = qwen with { mixer.scale 0.3 }
arch qwen_yarn = qwen with { mixer.rope = yarn_rotary { factor 4, original 32 } }
arch biased = options with { mixer.bias true }
arch biased_window = biased with { mixer.window 4 }
arch biased_gelu = biased with { mlp = geglu { hidden 20 } }
arch sinks = options with { mixer.sinks true }
arch llama3 = options with { mixer.rope = llama3_rotary { factor 8, original 16, low 2 } }
arch llama3_paired = llama3 with { mixer.rope.layout interleaved }
arch linear = options with { mixer.rope = interpolated_rotary { factor 2.5 } }
arch yarn = options with { mixer.rope = yarn_rotary { factor 4, original 32, truncate false } }

block gemma_local = sandwich {
  mixer grouped_attention { heads 4, kv_heads 2, rope { layout half }, softcap 20, window 6 }
  mlp   geglu { hidden 20 }
}
block gemma_global = sandwich {
  mixer grouped_attention { heads 4, kv_heads 2, rope { layout half }, softcap 20 }
  mlp   geglu { hidden 20 }
}
arch gemma {
  vocab 40   dim 16   norm_eps 1e-6
  init huggingface
  head capped { cap 12 }
  layers [scaled_embedding, gemma_local, gemma_global, gemma_local]
}
arch gemma_own_scale = gemma with { layers[1..4].mixer.scale rsqrt(10) }
arch gemma_same_scale = gemma with { layers[1..4].mixer.scale 1 / 2 }
arch gemma_odd_scale = gemma with { layers[1..4].mixer.scale 0.4 }
arch gemma_uncapped = gemma with { head tied }
arch gemma_untied = gemma with { head untied }
arch gemma_silu = gemma with { layers[1..4].mlp = swiglu { hidden 20 } }
arch gemma_two_caps = gemma with { layers[1].mixer.softcap 10 }
arch gemma_late = gemma with { layers [scaled_embedding, gemma_global, gemma_local] }
arch gemma_plain_embedding = gemma with { layers [gemma_local, gemma_global] }

arch olmo {
  vocab 40   dim 16   norm_eps 1e-6
  init huggingface
  layers 2 of post_norm {
    mixer attention { heads 4, kv_heads 2, qk_norm true, rope { layout interleaved } }
    mlp   swiglu { hidden 24 }
  }
}
arch olmo_window = olmo with { mixer.window 4 }
arch olmo_plain = olmo with { mixer.qk_norm false }
";

#[test]
fn the_graph_decides_which_class_an_arch_is() {
    let own_class = "CanoncForCausalLM";
    for (name, class) in [
        ("mistral", "MistralForCausalLM"),
        ("mistral_paired", "MistralForCausalLM"),
        ("mistral_wide", "MistralForCausalLM"),
        ("mistral_gelu", "MistralForCausalLM"),
        ("whole_past_gelu", "MistralForCausalLM"),
        ("one_window", own_class),
        ("two_windows", own_class),
        ("part_turned", own_class),
        ("no_positions", own_class),
        ("joint_norm", own_class),
        ("filled", own_class),
        ("options", "LlamaForCausalLM"),
        ("qwen", "Qwen3ForCausalLM"),
        ("qwen_paired", "Qwen3ForCausalLM"),
        ("qwen_upper", "Qwen3ForCausalLM"),
        ("qwen_lower", own_class),
        ("qwen_all", "Qwen3ForCausalLM"),
        ("qwen_bounded", own_class),
        ("qwen_scaled", own_class),
        ("qwen_yarn", "Qwen3ForCausalLM"),
        ("biased", "LlamaForCausalLM"),
        ("biased_window", own_class),
        ("biased_gelu", "LlamaForCausalLM"),
        ("sinks", own_class),
        ("llama3", "LlamaForCausalLM"),
        ("llama3_paired", "LlamaForCausalLM"),
        ("linear", "LlamaForCausalLM"),
        ("yarn", "LlamaForCausalLM"),
        ("gemma", "Gemma2ForCausalLM"),
        ("gemma_own_scale", "Gemma2ForCausalLM"),
        ("gemma_same_scale", "Gemma2ForCausalLM"),
        ("gemma_odd_scale", own_class),
        ("gemma_uncapped", "Gemma2ForCausalLM"),
        ("gemma_untied", "Gemma2ForCausalLM"),
        ("gemma_silu", "Gemma2ForCausalLM"),
        ("gemma_two_caps", own_class),
        ("gemma_late", own_class),
        ("gemma_plain_embedding", own_class),
        ("olmo", "Olmo2ForCausalLM"),
        ("olmo_window", own_class),
        ("olmo_plain", own_class),
    ] {
        let (written, _) = round_trip(&compiled(FORMS, name));
        assert_eq!(written, class, "{name}");
    }
}

/// The same computation in definitions with other names.
#[test]
fn names_of_definitions_do_not_matter() {
    let text = "
block layer(x; attend, feed) {
  h = x + attend mixer (rms_norm pre_mixer (x))
  h + feed mlp (rms_norm pre_mlp (h))
}
mixer look(x; count) {
  q = heads(linear wq (x, dim), count)
  k = heads(linear wk (x, dim), count)
  v = heads(linear wv (x, dim), count)
  q = rms_norm q_norm (q)
  k = rms_norm k_norm (k)
  linear wo (merge(attention(rope(q, layout = half), rope(k, layout = half), v)), dim)
}
mlp gated(x) {
  linear down (silu(linear gate (x, 24)) * linear up (x, 24), dim)
}
head last(x) {
  linear output (rms_norm norm (x), vocab)
}
arch mine {
  vocab 40   dim 16   norm_eps 1e-5
  init huggingface
  head last
  layers 2 of layer { attend look { count 4 }, feed gated }
}
";
    assert_eq!(round_trip(&compiled(text, "mine")), ("Qwen3ForCausalLM".to_owned(), false));
}

/// Norms of Gemma 2 are stored less 1. Values that f32 cannot give back that way are off by its last place at 1.
#[test]
fn norms_of_gemma_are_exact_from_one_half_on() {
    let dir = tempfile::tempdir().unwrap();
    let compiled = compiled(FORMS, "gemma");
    let params = compiled.graph.params();
    let file = dir.path().join("w.safetensors");
    let planned: Vec<Planned> = params
        .iter()
        .map(|param| Planned { name: param.path.clone(), shape: param.shape.clone() })
        .collect();
    let value = |n: i64| (1.0 + n as f32 / 7.0) * [1e-3, -0.3, 1.0, 100.0][n as usize % 4];
    write_safetensors(&file, &planned, Dtype::F32, &[], |index, put| {
        let count: i64 = params[index].shape.iter().product();
        put(&(0..count).map(value).collect::<Vec<f32>>())
    })
    .unwrap();
    export(&compiled, &file, Dtype::F32, &dir.path().join("out"));
    let again = import(&dir.path().join("out"));
    for (param, bits) in params.iter().zip(values(again.weights.as_ref().unwrap(), params.len())) {
        for (n, bits) in bits.into_iter().enumerate() {
            let (was, is) = (value(n as i64), f32::from_bits(bits));
            let exact = param.role != "norm" || was >= 0.5;
            let off = (was - is).abs();
            assert!(
                if exact { off == 0.0 } else { off <= f32::EPSILON },
                "{} {was} {is}",
                param.path
            );
        }
    }
    // The names of other programs need the configuration beside them, since they mean 1 + weight only there.
    fs::remove_file(dir.path().join("out/config.json")).unwrap();
    assert!(ArchWeights::open(&compiled, &dir.path().join("out")).is_err());
}
