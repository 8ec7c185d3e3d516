//! The release's 48 Hugging Face configurations, and other keys that a configuration may have.

use std::fs;
use std::path::{Path, PathBuf};

use compiler::program::{Compiled, Program, Std};
use interop::export::{self, To};
use interop::import::{Imported, Request, read};
use interop::{arch, dtype::Dtype};
use serde_json::{Map, Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn released() -> Map<String, Value> {
    let text = fs::read_to_string(root().join("recipes/published/data/hf_configs.json")).unwrap();
    serde_json::from_str(&python_to_json(&text)).unwrap()
}

/// `serde_json` does not know Python's `Infinity`.
fn python_to_json(text: &str) -> String {
    text.replace("Infinity", "\"Infinity\"")
}

/// A configuration in Python's format.
fn written(config: &Value) -> String {
    serde_json::to_string_pretty(config).unwrap().replace("\"Infinity\"", "Infinity")
}

fn import(config: &Value) -> Result<Imported, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    fs::write(&path, written(config)).unwrap();
    let request = Request { source: &path, name: Some("model"), devices: None, weights: false };
    read(&request).map_err(|error| error.to_string())
}

/// The committed arch of a published model: `GLA5Canon-3B-…` is `gla5canon_3B`.
fn committed(name: &str) -> Compiled {
    let mut parts = name.split('-');
    let family = parts.next().unwrap().to_lowercase();
    let size = parts.next().unwrap();
    let name = format!("{}_{size}", family.trim_end_matches("conv"));
    let files = |folder: &str| -> Vec<(String, String)> {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let entries = entries.map(|entry| entry.unwrap().path());
        entries
            .map(|path| {
                let file = path.file_name().unwrap().to_string_lossy().into_owned();
                (format!("{folder}/{file}"), fs::read_to_string(&path).unwrap())
            })
            .collect()
    };
    let program = Program::new(files("arch"), Std::Embedded);
    let (compiled, diagnostics) = program.compile(&format!("arch/{name}.canon"), &name);
    compiled.unwrap_or_else(|| panic!("{name}: {}", program.render(&diagnostics)))
}

fn of_type(model_type: &str) -> Value {
    let configs = released();
    let config = configs.values().find(|config| config["model_type"] == model_type);
    config.unwrap_or_else(|| panic!("no {model_type}")).clone()
}

#[test]
fn every_released_configuration_makes_the_graph_of_its_committed_arch() {
    let all = released();
    assert_eq!(all.len(), 48);
    for (name, config) in &all {
        let imported = import(config).unwrap_or_else(|error| panic!("{name}: {error}"));
        let wanted = committed(name);
        assert_eq!(imported.compiled.identity.graph_text, wanted.identity.graph_text, "{name}");
        assert_eq!(imported.compiled.identity.manifest, wanted.identity.manifest, "{name}");
        let listed = |key: &str| imported.left_out.iter().any(|left| left.name == key);
        let neutral =
            ["use_l2warp", "noconv1d"].into_iter().filter(|key| config.get(key).is_some());
        for key in neutral {
            assert!(listed(key), "{name}: {key} is not listed");
        }
    }
}

/// Type, changes, and text in the arch's source, or else text in the error.
type ClassCase = (&'static str, Value, Result<&'static str, &'static str>);

fn linear_cases() -> Vec<ClassCase> {
    vec![
        ("GLACanon", json!({"use_l2warp": true}), Err("`use_l2warp` is true")),
        ("GLACanon", json!({"use_l2warp": null}), Ok("gla")),
        ("GLACanon", json!({"some_later_option": null}), Ok("gla")),
        ("GLACanon", json!({"some_later_option": 1}), Err("`some_later_option` is 1")),
        ("GLACanon", json!({"expand_k": "absent"}), Err("the class takes as 0.5")),
        ("GLACanon", json!({"expand_v": "absent"}), Err("the class takes as 1")),
        ("GLACanon", json!({"output_gate_rank": "absent"}), Err("the class takes as null")),
        ("GLACanon", json!({"output_gate_rank": null}), Err("`output_gate_rank` is null")),
        ("GLACanon", json!({"use_short_conv": "absent"}), Err("is false if it is absent")),
        ("GatedDeltaNetCanon", json!({"expand_v": "absent"}), Ok("gated_deltanet")),
        ("GatedDeltaNetCanon", json!({"use_short_conv": "absent"}), Ok("gated_deltanet")),
        ("GatedDeltaNetCanon", json!({"head_dim": "absent"}), Err("the class takes as 256")),
        ("Mamba2Canon", json!({"n_groups": "absent"}), Err("the class takes as 8")),
        ("Mamba2Canon", json!({"head_dim": "absent"}), Err("the class takes as 64")),
        ("Mamba2Canon", json!({"layer_norm_epsilon": 1e-6}), Ok("norm_eps 1e-6")),
        ("Mamba2Canon", json!({"noconv1d": "absent"}), Ok("canon A, C, D")),
        (
            "Mamba2Canon",
            json!({"noconv1d": true, "use_conv_bias": false, "canon_set": "ACD"}),
            Ok("short_conv false"),
        ),
        (
            "Mamba2Canon",
            json!({"noconv1d": true, "use_conv_bias": false, "canon_set": "absent"}),
            Ok("short_conv false"),
        ),
        ("Mamba2Canon", json!({"noconv1d": true, "canon_set": ""}), Err("`use_conv_bias` is true")),
        (
            "Mamba2Canon",
            json!({"noconv1d": true, "use_conv_bias": false}),
            Err("`noconv1d` is true, where a `b` is that convolution"),
        ),
        ("Mamba2Canon", json!({"use_conv_bias": false}), Err("`use_conv_bias` is false")),
        // The class reads `noconv1d`, not the letter.
        ("Mamba2Canon", json!({"canon_set": "ACD"}), Ok("canon A, C, D")),
        (
            "Mamba2Canon",
            json!({"canon_set": "ACD", "noconv1d": "absent"}),
            Err("the class builds the convolution"),
        ),
    ]
}

#[test]
fn what_a_key_means_is_what_the_published_class_makes_of_it() {
    for (model_type, changes, wanted) in linear_cases() {
        let mut config = of_type(model_type);
        let config = config.as_object_mut().unwrap();
        for (key, value) in changes.as_object().unwrap() {
            if value == "absent" {
                config.remove(key);
            } else {
                config.insert(key.clone(), value.clone());
            }
        }
        match (import(&Value::Object(config.clone())), wanted) {
            (Ok(imported), Ok(part)) => {
                let text = &imported.text;
                assert!(text.contains(part), "{model_type} {changes}: {text}");
                let short = changes.get("noconv1d") == Some(&Value::Bool(true));
                assert_eq!(text.contains("short_conv false"), short, "{changes}: {text}");
            }
            (Err(error), Err(part)) => {
                assert!(error.contains(part), "{model_type} {changes}: {error}")
            }
            (Ok(imported), Err(part)) => panic!("{changes}: no `{part}` but {}", imported.text),
            (Err(error), Ok(_)) => panic!("{model_type} {changes}: {error}"),
        }
    }
}

/// Llama, as `transformers` 5 writes it and with RoPE dimensions that the class would compute differently.
#[test]
fn configurations_of_llama_old_and_new() {
    let llama = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 97, "hidden_size": 32,
        "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "head_dim": 8, "hidden_act": "silu", "rms_norm_eps": 1e-6, "attention_bias": false, "mlp_bias": false,
        "attention_dropout": 0.0, "pretraining_tp": 1, "initializer_range": 0.02, "tie_word_embeddings": false,
        "dtype": "float32", "transformers_version": "5.23.0", "use_cache": true, "max_position_embeddings": 2048,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    });
    let with = |changes: Value| {
        let mut config = llama.clone();
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        import(&config)
    };
    assert!(with(json!({})).unwrap().text.contains("theta 5e5"));
    let listed = with(json!({"partial_rotary_factor": 1.0, "num_experts": null})).unwrap().left_out;
    let names: Vec<&str> = listed.iter().map(|left| left.name.as_str()).collect();
    assert_eq!(names, ["partial_rotary_factor", "num_experts"]);
    let rope_parameters =
        json!({"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 1.0});
    assert!(with(json!({ "rope_parameters": rope_parameters })).is_ok());
    for (changes, wanted) in [
        (json!({"partial_rotary_factor": 0.5}), "`partial_rotary_factor` is 0.5"),
        (
            json!({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}}),
            "`rope_parameters.partial_rotary_factor` is 0.25",
        ),
        (json!({"rope_theta": 10000.0}), "`rope_parameters.rope_theta` is 5e5"),
        (json!({"rope_parameters": {"rope_type": "yarn"}}), "`rope_parameters.factor` is absent"),
    ] {
        let error = with(changes.clone()).unwrap_err();
        assert!(error.contains(wanted), "{changes}: {error}");
    }
    let canon = |changes: Value| {
        let mut config = llama.clone();
        let entries = config.as_object_mut().unwrap();
        entries.insert("model_type".to_owned(), json!("LlamaCanon"));
        entries.insert("architectures".to_owned(), json!(["LlamaCanonForCausalLM"]));
        for (key, value) in changes.as_object().unwrap() {
            if value == "absent" {
                entries.remove(key);
            } else {
                entries.insert(key.clone(), value.clone());
            }
        }
        import(&config)
    };
    assert!(canon(json!({"rope_dim": 4, "partial_rotary_factor": 0.5})).is_ok());
    assert!(canon(json!({"intermediate_size": null})).unwrap().text.contains("hidden 85"));
    for (changes, wanted) in [
        // The class rotates half of the head: no other key says how much.
        (json!({"partial_rotary_factor": 0.5}), "`rope_dim` makes it 8 of 8"),
        (json!({"rope_dim": 4, "partial_rotary_factor": 0.25}), "`rope_dim` makes it 4 of 8"),
        (json!({"intermediate_size": "absent"}), "which the class takes as 11008"),
    ] {
        let error = canon(changes.clone()).unwrap_err();
        assert!(error.contains(wanted), "{changes}: {error}");
    }
}

/// Arbitrary weights of an arch, under our paths.
fn weights(compiled: &Compiled, path: &Path) {
    let params = compiled.graph.params();
    let tensors: Vec<_> = params
        .iter()
        .map(|p| {
            let count: i64 = p.shape.iter().product();
            let data: Vec<u8> = (0..count).flat_map(|n| (n as f32 + 0.5).to_le_bytes()).collect();
            (p.path.clone(), p.shape.iter().map(|n| *n as usize).collect::<Vec<_>>(), data)
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, data)| {
        let dtype = safetensors::Dtype::F32;
        let view = safetensors::tensor::TensorView::new(dtype, shape.clone(), data).unwrap();
        (name, view)
    });
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn exported(text: &str, to: To, out: &Path) -> Result<Vec<String>, String> {
    let compiled = arch::compile("model", text).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.safetensors");
    weights(&compiled, &path);
    let request = export::Request {
        compiled: &compiled,
        experiment: None,
        weights: Some(&path),
        to,
        dtype: Dtype::F32,
        gpus_per_node: 8,
        ranks: None,
        comparison: None,
        origin: None,
        tokenizer: Err("No tokenizer is in this folder."),
        imported_text: None,
        initial: None,
    };
    export::write(&request, out).map_err(|error| error.to_string())
}

const LLAMA: &str = "arch model { vocab 97 dim 32 norm_eps 1e-5 init lingua HEAD
  layers 2 of decoder { mixer attention { heads 4 MORE rope { layout interleaved DIMS } }
    mlp swiglu { hidden 64 } CANON } }";

fn llama(head: &str, more: &str, dims: &str, canon: &str) -> String {
    let text = LLAMA.replace("HEAD", head).replace("MORE", more);
    text.replace("DIMS", dims).replace("CANON", canon)
}

#[test]
fn what_the_published_loader_cannot_carry_is_refused_by_name_before_anything_is_written() {
    let mamba = "arch model { vocab 97 dim 32 norm_eps EPS init mamba
      layers 1 of decoder { mixer mamba2 { heads 2, state STATE } mlp swiglu { hidden 64 } } }";
    let mamba = |eps: &str, state: &str| mamba.replace("EPS", eps).replace("STATE", state);
    let canon = "canon A, B, C, D { kernel 4 }";
    for (text, wanted) in [
        (llama("", "", "", "canon A { kernel 3 }"), "`canon.kernel` is 3, but it loads 4"),
        (llama("", "", "", "canon A { residual false }"), "`canon.residual` is false"),
        (llama("", "", "", "canon A { activation silu }"), "`canon.activation` is silu"),
        (llama("", "head_dim 16", "", canon), "`head_dim` is 16, but it loads dim / heads"),
        (llama("head tied", "", "", canon), "`head` is tied"),
        (mamba("1e-6", "64"), "`norm_eps` is 1e-6, but it loads 1e-5"),
        (mamba("1e-5", "32"), "`state` is 32, but it loads 64, 128 or 256"),
        // 30 of 88: the class's quotient is 29.999…
        (
            llama("", "", "dims 30", "").replace("dim 32", "dim 352"),
            "`rope.dims` is 30, but it loads 29",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let error = exported(&text, To::Lingua, &out).unwrap_err();
        assert!(error.contains(wanted), "{text}: {error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something was written");
        // The class has keys for everything except that quotient.
        match (wanted.contains("rope.dims"), exported(&text, To::Release, &out)) {
            (true, Err(error)) => assert!(error.contains("`rope.dims` is 30"), "{error}"),
            (false, Ok(_)) => {}
            (_, other) => panic!("{text}: {other:?}"),
        }
    }
    // The loader reads all other keys, including `data.seq_len`.
    for text in [llama("", "qk_norm true", "dims 4", canon), mamba("1e-5", "64")] {
        let dir = tempfile::tempdir().unwrap();
        let files = exported(&text, To::Lingua, &dir.path().join("out")).unwrap();
        assert_eq!(files, ["default/params.json", "default/consolidated.pth"]);
        let params = fs::read_to_string(dir.path().join("out/default/params.json")).unwrap();
        let params: Value = serde_json::from_str(&params).unwrap();
        assert!(params["data"]["seq_len"].is_u64(), "{params}");
        for key in ["vocab_size", "dim", "hidden_dim", "n_layers", "n_heads", "norm_eps"] {
            assert!(params["model"][key].is_number(), "{key}: {params}");
        }
    }
}

#[test]
fn a_mamba2_without_its_convolution_says_so_to_the_class() {
    let text = "arch model { vocab 97 dim 32 norm_eps 1e-5 init mamba
      layers 1 of decoder { mixer mamba2 { heads 2, state 64, short_conv SHORT } mlp swiglu { hidden 64 } } }";
    for short in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        exported(&text.replace("SHORT", &short.to_string()), To::Release, &out).unwrap();
        let config = fs::read_to_string(out.join("config.json")).unwrap();
        let config: Value = serde_json::from_str(&python_to_json(&config)).unwrap();
        assert_eq!(config["noconv1d"], !short, "{config}");
        assert_eq!(config["use_conv_bias"], short, "{config}");
        let imported = import(&config).unwrap();
        assert_eq!(imported.text.contains("short_conv false"), !short, "{}", imported.text);
    }
}

/// The linear families' loader ties the head itself, and expects the table under both names.
#[test]
fn a_tied_linear_model_is_written_whole_for_the_loader() {
    let text = "arch model { vocab 97 dim 32 norm_eps 1e-5 init flash_linear head tied
      layers 1 of decoder { mixer gla { heads 2 } mlp swiglu { hidden 64 } } }";
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    exported(text, To::Lingua, &out).unwrap();
    let (store, _) = interop::pth::read(&out.join("default/consolidated.pth")).unwrap();
    for name in ["trans.lm_head.weight", "trans.model.embeddings.weight"] {
        assert_eq!(store.tensors[name].shape, [97, 32]);
    }
    let request = Request { source: &out, name: Some("model"), devices: None, weights: true };
    let again = read(&request).unwrap();
    assert_eq!(again.compiled.identity.graph, arch::compile("model", text).unwrap().identity.graph);
    assert!(again.weights.is_some());
}
