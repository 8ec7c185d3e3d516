//! Classes of `transformers` besides the released ones: the arch of each key, refusals, weights, origins.
//! `ext/models/tests/models/stock.rs` compares logits.

use std::fs;
use std::path::{Path, PathBuf};

use interop::arch;
use interop::import::{Imported, Request, read};
use interop::source::ArchWeights;
use serde_json::{Value, json};
use support::golden::folders;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/stock").join(name)
}

fn import(source: &Path, weights: bool) -> Result<Imported, String> {
    read(&Request { source, name: Some("model"), devices: None, weights })
        .map_err(|error| error.to_string())
}

/// The configuration of a golden folder with changes; "absent" removes a key.
fn changed(name: &str, changes: &Value) -> Result<Imported, String> {
    let text = fs::read_to_string(golden(name).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let keys = config.as_object_mut().unwrap();
    for (key, value) in changes.as_object().unwrap() {
        if value == "absent" {
            keys.remove(key).unwrap_or_else(|| panic!("{name} has no {key}"));
        } else {
            keys.insert(key.clone(), value.clone());
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    fs::write(&path, serde_json::to_string_pretty(&config).unwrap()).unwrap();
    import(&path, false)
}

/// The words of a text, however it is laid out.
fn plain(text: &str) -> String {
    text.replace(',', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn values(source: &ArchWeights, index: usize) -> Vec<f32> {
    let mut values = Vec::new();
    source
        .param(index, &mut |piece| {
            values.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
    values
}

/// The texts as a person reads them, one for each way of writing layers.
#[test]
fn texts_are_short_and_use_std() {
    assert_eq!(
        import(&golden("gemma2"), false).unwrap().text,
        "\
block model_local = sandwich {
  mixer grouped_attention {
    heads    4
    kv_heads 2
    head_dim 12
    scale    rsqrt(20)
    softcap  4
    window   5
    rope { theta 10000, layout half }
  }
  mlp   geglu { hidden 40 }
}

block model_global = sandwich {
  mixer grouped_attention {
    heads    4
    kv_heads 2
    head_dim 12
    scale    rsqrt(20)
    softcap  4
    rope { theta 10000, layout half }
  }
  mlp   geglu { hidden 40 }
}

/// Imported from gemma2.
arch model {
  vocab 64   dim 32   norm_eps 1e-6
  init huggingface
  head capped { cap 6 }
  layers [scaled_embedding, 2 of [model_local, model_global]]
}
"
    );
    assert_eq!(
        import(&golden("olmo2"), false).unwrap().text,
        "\
/// Imported from olmo2.
arch model {
  vocab 64   dim 32   norm_eps 1e-5
  init huggingface
  layers 2 of post_norm {
    mixer attention { heads 4, kv_heads 2, qk_norm true, rope { theta 5e5, layout half } }
    mlp   swiglu { hidden 40 }
  }
}
"
    );
    let windows = import(&golden("qwen3_windows"), false).unwrap().text;
    assert!(windows.contains("layers [model_global, 2 of model_local]"), "{windows}");
}

/// A golden folder, changes to its configuration, and text that the arch then has.
fn expressed() -> Vec<(&'static str, Value, &'static str)> {
    let scaled = |map: &str| {
        json!({"rope_scaling": "absent", "rope_theta": "absent", map: {
            "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 2.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64
        }})
    };
    let gated = json!({"sliding_window": 7, "use_sliding_window": true, "max_window_layers": 0});
    let types = |kinds: [&str; 2]| kinds.map(|kind| format!("{kind}_attention"));
    let mut listed = gated.clone();
    listed["layer_types"] = json!(types(["sliding", "full"]));
    vec![
        ("llama31", scaled("rope_parameters"), "factor 8, original 64, low 2 }"),
        ("llama31", json!({}), "rope llama3_rotary { theta 5e5, factor 8, original 64 }"),
        ("llama_linear", json!({}), "rope interpolated_rotary { theta 10000, factor 2.5 }"),
        ("llama_linear", json!({}), "bias true"),
        ("llama_yarn", json!({}), "rope yarn_rotary { theta 10000, factor 4, original 64 }"),
        (
            "llama_yarn",
            json!({"rope_scaling": {"type": "yarn", "factor": 2, "truncate": false}}),
            "factor 2, original 64, truncate false",
        ),
        ("mistral", json!({}), "window 5"),
        ("mistral", json!({"sliding_window": "absent"}), "window 4096"),
        (
            "mistral",
            json!({"num_attention_heads": 8, "num_key_value_heads": "absent"}),
            "heads 8, head_dim 12",
        ),
        ("mistral", json!({"hidden_act": "gelu_pytorch_tanh"}), "geglu"),
        ("mistral", json!({"initializer_range": 0.01}), "linear normal(0.01)"),
        ("qwen3", json!({}), "head_norm true"),
        ("qwen3", gated.clone(), "window 7"),
        ("qwen3", listed, "layers [model_local, model_global]"),
        ("qwen3", json!({"head_dim": "absent"}), "head_dim 128"),
        ("qwen3", json!({"rms_norm_eps": 1e-4}), "norm_eps 0.0001"),
        ("qwen3", json!({"tie_word_embeddings": true}), "head tied"),
        ("qwen3", json!({"canonc": {"rope_layout": "interleaved"}}), "layout interleaved"),
        ("gemma2", json!({"attn_logit_softcapping": "absent"}), "softcap 50"),
        ("gemma2", json!({"final_logit_softcapping": "absent"}), "cap 30"),
        ("gemma2", json!({"final_logit_softcapping": null}), "head tied"),
        ("gemma2", json!({"query_pre_attn_scalar": "absent"}), "scale rsqrt(256)"),
        ("gemma2", json!({"sliding_window": "absent"}), "window 4096"),
        (
            "gemma2",
            json!({"num_hidden_layers": 3}),
            "[scaled_embedding, model_local, model_global, model_local]",
        ),
        ("olmo2", json!({"rms_norm_eps": "absent"}), "norm_eps 1e-5"),
        ("olmo2", json!({"rope_theta": "absent"}), "theta 10000"),
    ]
}

/// Every key that changes the computation, with a text that the arch then has.
#[test]
fn keys_are_expressed() {
    for (name, changes, wanted) in expressed() {
        let imported =
            changed(name, &changes).unwrap_or_else(|error| panic!("{name} {changes}: {error}"));
        let text = plain(&imported.text);
        assert!(text.contains(&plain(wanted)), "{name} {changes}: {text}");
    }
    // What `null` switches off.
    for (name, key, gone) in [
        ("mistral", "sliding_window", "window"),
        ("gemma2", "attn_logit_softcapping", "softcap"),
        ("gemma2", "final_logit_softcapping", "capped"),
    ] {
        let imported = changed(name, &json!({ key: null })).unwrap();
        assert!(!imported.text.contains(gone), "{}", imported.text);
    }
    // A Llama without scaled RoPE is still one of the released family.
    let plain = changed("llama31", &json!({"rope_scaling": null})).unwrap();
    assert!(plain.described.is_released());
    // So is a Mistral without windows, as an arch.
    let plain = changed("mistral", &json!({"sliding_window": null})).unwrap();
    assert!(arch::model(&plain.compiled).is_ok());
}

/// A golden folder, changes to its configuration, and text in the error.
type RefusedKeys = (&'static str, Value, &'static str);

/// Sizes, biases, activations and bounds that no arch can have.
fn layers_refused() -> Vec<RefusedKeys> {
    vec![
        (
            "mistral",
            json!({"attention_bias": true}),
            "`attention_bias` is true, and attention of Mistral",
        ),
        ("olmo2", json!({"attention_bias": true}), "`attention_bias` is true"),
        ("llama31", json!({"mlp_bias": true}), "`mlp_bias` is true"),
        ("qwen3", json!({"hidden_act": "relu"}), "`hidden_act` is \"relu\""),
        ("gemma2", json!({"hidden_activation": "gelu"}), "`hidden_activation` is \"gelu\""),
        ("gemma2", json!({"hidden_act": "silu"}), "`hidden_activation` is \"gelu_pytorch_tanh\""),
        ("gemma2", json!({"tie_word_embeddings": false}), "`final_logit_softcapping` is 6"),
        ("gemma2", json!({"query_pre_attn_scalar": 0.5}), "`query_pre_attn_scalar` is 0.5"),
        (
            "gemma2",
            json!({"use_bidirectional_attention": true}),
            "`use_bidirectional_attention` is true",
        ),
        ("qwen3", json!({"attention_dropout": 0.1}), "`attention_dropout` is 0.1"),
        ("qwen3", json!({"num_experts": 8}), "`num_experts` is 8, and this key is unknown"),
        ("qwen3", json!({"num_hidden_layers": 10_000_000}), "at most 10000 layers"),
        (
            "qwen3",
            json!({"architectures": ["Qwen3ForSequenceClassification"]}),
            "a `model_type` of qwen3",
        ),
        (
            "gemma2",
            json!({"canonc": {"score_scale": "default"}}),
            "`query_pre_attn_scalar` is not the heads' width, 12",
        ),
        ("qwen3", json!({"num_attention_heads": 3}), "these sizes do not make an arch"),
        ("qwen3", json!({"model_type": "qwen4"}), "mistral, qwen3, gemma2, olmo2"),
    ]
}

/// RoPE that no arch can have.
fn rope_refused() -> Vec<RefusedKeys> {
    vec![
        ("qwen3", json!({"partial_rotary_factor": 0.5}), "`partial_rotary_factor` is 0.5"),
        ("qwen3", json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}), "is \"dynamic\""),
        (
            "qwen3",
            json!({"rope_scaling": {"rope_type": "linear", "type": "yarn"}}),
            "make them agree",
        ),
        (
            "qwen3",
            json!({"rope_scaling": {"rope_type": "linear"}}),
            "`rope_scaling.factor` is absent",
        ),
        (
            "qwen3",
            json!({"rope_parameters": {"rope_theta": 1.0}}),
            "`rope_parameters.rope_theta` is 1",
        ),
        (
            "llama31",
            json!({"rope_parameters": {"rope_type": "default"}}),
            "and `rope_scaling` is there, too",
        ),
        (
            "llama31",
            json!({"rope_scaling": {
                "rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1,
                "original_max_position_embeddings": 64,
            }}),
            "it should be above `low_freq_factor`, 4",
        ),
    ]
}

/// Settings of YaRN that no arch can have.
fn yarn_refused() -> Vec<RefusedKeys> {
    let scaled = |more: Value| {
        let mut scaling = json!({"rope_type": "yarn", "factor": 4.0});
        scaling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "rope_scaling": scaling })
    };
    vec![
        ("llama_yarn", scaled(json!({"beta_fast": 16})), "`rope_scaling.beta_fast` is 16"),
        (
            "llama_yarn",
            scaled(json!({"attention_factor": 1.5})),
            "`rope_scaling.attention_factor` is 1.5",
        ),
        (
            "llama_yarn",
            scaled(json!({"mscale": 0.7, "mscale_all_dim": 0.5})),
            "`rope_scaling.mscale` is 0.7",
        ),
        ("llama_yarn", scaled(json!({"factor": 0.5})), "`rope_scaling.factor` is 0.5"),
        (
            "llama_yarn",
            scaled(json!({"factor": null, "original_max_position_embeddings": 48})),
            "no multiple of the 48",
        ),
        ("llama_yarn", json!({"rope_theta": 1.0}), "YaRN needs a `rope_theta` above 1"),
        (
            "llama_yarn",
            scaled(json!({"finetuned": true})),
            "`rope_scaling.finetuned` is true, and this key is unknown",
        ),
    ]
}

/// Windows that no arch can have.
fn windows_refused() -> Vec<RefusedKeys> {
    vec![
        ("mistral", json!({"use_sliding_window": true}), "`use_sliding_window` is true"),
        (
            "llama31",
            json!({"sliding_window": 8}),
            "`sliding_window` is 8, and this class ignores it",
        ),
        ("gemma2", json!({"sliding_window_size": 6}), "`sliding_window_size` is 6"),
        ("mistral", json!({"sliding_window": 0}), "`sliding_window` is 0"),
        (
            "mistral",
            json!({"layer_types": ["full_attention", "full_attention"]}),
            "`sliding_window` decides",
        ),
        (
            "gemma2",
            json!({"layer_types": ["full_attention"]}),
            "with 1 layers, and `num_hidden_layers` is 4",
        ),
        (
            "qwen3",
            json!({"layer_types": ["sliding_attention", "full_attention"]}),
            "layer 0 would have a window",
        ),
        (
            "qwen3",
            json!({"layer_types": ["linear_attention", "full_attention"]}),
            "\"linear_attention\"",
        ),
    ]
}

#[test]
fn what_cannot_be_expressed_is_refused_with_its_value_and_line() {
    for (name, changes, wanted) in
        [layers_refused(), rope_refused(), yarn_refused(), windows_refused()].into_iter().flatten()
    {
        let error = changed(name, &changes).expect_err(&format!("{name} {changes}"));
        assert!(error.contains(wanted), "{name} {changes}: {error}");
        let key = changes.as_object().unwrap().keys().next().unwrap();
        let known = error.contains("config.json:") || error.contains("config.json: ");
        assert!(known && error.contains("help: "), "{key}: {error}");
    }
}

/// Keys that other programs leave behind, and keys at the value that they have anyway.
#[test]
fn keys_that_change_nothing_are_left_out_by_name() {
    let scaled = |more: Value| {
        let mut scaling =
            json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
        scaling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "rope_scaling": scaling })
    };
    for (name, changes, key) in [
        ("llama31", json!({"unsloth_fixed": true}), "unsloth_fixed"),
        ("qwen3", json!({"unsloth_version": "2024.9"}), "unsloth_version"),
        ("olmo2", json!({"max_sequence_length": 2048}), "max_sequence_length"),
        ("gemma2", json!({"transformers.js_config": {"dtype": "q4"}}), "transformers.js_config"),
        ("mistral", json!({"use_sliding_window": false}), "use_sliding_window"),
        ("mistral", json!({"max_window_layers": 2}), "max_window_layers"),
        ("llama31", json!({"use_sliding_window": false, "sliding_window": 8}), "sliding_window"),
        ("llama_yarn", scaled(json!({"mscale": 0.7})), "rope_scaling.mscale"),
        ("llama_yarn", scaled(json!({"mscale": 1, "mscale_all_dim": 0})), "rope_scaling.mscale"),
        (
            "llama_yarn",
            scaled(json!({"attention_factor": 1.138_629_436_111_989})),
            "rope_scaling.attention_factor",
        ),
        (
            "llama_yarn",
            scaled(json!({"beta_fast": 32.0, "beta_slow": 1})),
            "rope_scaling.beta_fast",
        ),
    ] {
        let imported = changed(name, &changes).unwrap_or_else(|error| panic!("{changes}: {error}"));
        let listed = imported.left_out.iter().any(|left| left.name == key);
        assert!(listed, "{name} {changes}: {:?}", imported.left_out);
        let plain = changed(name, &json!({})).unwrap();
        assert_eq!(imported.text, plain.text, "{name} {changes}");
    }
}

/// `null` in place of a setting of YaRN means what the class makes of it.
#[test]
fn absent_settings_of_yarn_are_those_of_the_class() {
    let with = |scaling: Value| {
        let config = json!({"rope_scaling": scaling, "max_position_embeddings": 256});
        plain(&changed("llama_yarn", &config).unwrap().text)
    };
    let original = 64;
    let computed = with(json!({
        "rope_type": "yarn", "factor": null, "original_max_position_embeddings": original,
    }));
    assert!(computed.contains("yarn_rotary { theta 10000 factor 4 original 64 }"), "{computed}");
    let exact = with(json!({
        "rope_type": "yarn", "factor": 4, "original_max_position_embeddings": original,
        "truncate": null,
    }));
    assert!(exact.contains("original 64 truncate false"), "{exact}");
}

/// Tensors that are missing, extra or misshapen are refused, as for the released families.
#[test]
fn weights_follow_their_configuration() {
    for name in &folders("stock") {
        let dir = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(golden(name)).unwrap() {
            let path = entry.unwrap().path();
            fs::write(dir.path().join(path.file_name().unwrap()), fs::read(&path).unwrap())
                .unwrap();
        }
        let imported = import(dir.path(), true).unwrap();
        let direct = ArchWeights::open(&imported.compiled, dir.path()).unwrap();
        let source = imported.weights.as_ref().unwrap();
        for index in 0..imported.params().len() {
            assert_eq!(values(source, index), values(&direct, index), "{name}");
        }
        // The same weights, but the arch is another one.
        let config = dir.path().join("config.json");
        let text = fs::read_to_string(&config).unwrap();
        let theta = "\"rope_theta\": ";
        fs::write(&config, text.replace(theta, &format!("{theta}2"))).unwrap();
        let error = ArchWeights::open(&imported.compiled, dir.path()).unwrap_err().to_string();
        assert!(error.contains("config.json") && error.contains("rope.theta"), "{error}");
        // The same arch, but the tensors are others.
        fs::write(&config, text.replace("\"intermediate_size\": 40", "\"intermediate_size\": 48"))
            .unwrap();
        let error = import(dir.path(), true).unwrap_err();
        assert!(
            error.contains("mlp.up_proj.weight is [40, 32], but the configuration needs [48, 32]"),
            "{error}"
        );
        fs::remove_file(&config).unwrap();
        let error = ArchWeights::open(&imported.compiled, dir.path()).unwrap_err().to_string();
        assert!(error.contains("config.json"), "{error}");
    }
}

/// The norms of Gemma 2 multiply by 1 + weight.
#[test]
fn weights_of_gemmas_norms_are_changed_and_the_origins_say_so() {
    let imported = import(&golden("gemma2"), true).unwrap();
    let source = imported.weights.as_ref().unwrap();
    let mut changed = 0;
    for (index, param) in imported.params().iter().enumerate() {
        let ours = values(source, index);
        let theirs = match param.path.as_str() {
            "head.norm" => "model.norm.weight",
            "layers.1.pre_mixer" => "model.layers.0.input_layernorm.weight",
            "layers.4.post_mlp" => "model.layers.3.post_feedforward_layernorm.weight",
            "embed" => "model.embed_tokens.weight",
            _ => continue,
        };
        let stored = source.store.values(theirs, 0, ours.len() as u64).unwrap();
        let added = if param.path == "embed" { 0.0 } else { 1.0 };
        let wanted: Vec<f32> = stored.iter().map(|value| value + added).collect();
        assert_eq!(ours, wanted, "{}", param.path);
        changed += 1;
    }
    assert_eq!(changed, 4);
    let dir = tempfile::tempdir().unwrap();
    imported.write(&dir.path().join("out")).unwrap();
    let origins = fs::read_to_string(dir.path().join("out/import.toml")).unwrap();
    assert_eq!(origins.matches("[[changed]]").count(), 4 * 4 + 1, "{origins}");
    assert!(
        origins.contains("name = \"model.norm.weight\"\nhow = \"1 + weight, computed in f32"),
        "{origins}"
    );
    let plain = import(&golden("olmo2"), true).unwrap();
    plain.write(&dir.path().join("plain")).unwrap();
    let origins = fs::read_to_string(dir.path().join("plain/import.toml")).unwrap();
    assert!(!origins.contains("[[changed]]"), "{origins}");
}
