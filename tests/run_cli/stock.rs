//! `canonc import` and `canonc export` as processes, on classes of `transformers` that are not among the released ones.
//! `ext/interop/tests/foreign/stock.rs` reads the texts of the archs.

use std::fs;
use std::path::{Path, PathBuf};

use runtime::weights::file;
use serde_json::{Value, json};
use support::golden::folders;

use crate::DEPO;

use super::foreign::{type_in, works};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/stock").join(name)
}

fn floats(path: &Path, tensor: &str) -> Vec<f64> {
    let tensors = file::read(path).unwrap();
    Vec::try_from(tensors[tensor].reshape([-1])).unwrap()
}

/// The configuration in a folder.
fn config(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("config.json")).unwrap()).unwrap()
}

#[test]
fn a_class_comes_in_as_an_arch_with_its_logits_and_goes_out_as_that_class() {
    for name in &folders("stock") {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let source = golden(name).to_string_lossy().into_owned();
        let listed = works(folder, &["import", &source, "--out", "in", "--name", "model"]);
        assert_eq!(listed, "in/arch/model.canon\nin/weights.safetensors\n", "{name}");
        works(folder, &["check", "in/arch/model.canon"]);
        works(folder, &["fmt", "--check", "in/arch/model.canon"]);
        // A recipe beside it trains the arch.
        fs::create_dir(folder.join("in/recipes")).unwrap();
        let recipe = format!("arch = \"../arch/model.canon\"\n{DEPO}");
        fs::write(folder.join("in/recipes/small.toml"), recipe).unwrap();
        works(folder, &["build", "in/recipes/small.toml"]);
        works(folder, &["build", "--check", "in/recipes/small.toml"]);
        let lock = fs::read_to_string(folder.join("lockfiles/small.lock")).unwrap();
        let origins = fs::read_to_string(folder.join("in/import.toml")).unwrap();
        let graph = origins.lines().find_map(|line| line.strip_prefix("graph = \"")).unwrap();
        assert!(lock.contains(graph.trim_end_matches('"')), "{name}: {origins}");

        let expected = file::read(&golden(name).join("expected.safetensors")).unwrap();
        let tokens = [("tokens", &expected["tokens"])];
        file::write(&folder.join("t.safetensors"), &tokens, None).unwrap();
        let logits = |weights: &str| {
            let words = ["forward", "in/arch/model.canon", "--tokens", "t.safetensors"];
            let options = ["--weights", weights, "--out", "o.safetensors"];
            works(folder, &[words.as_slice(), &options].concat());
            floats(&folder.join("o.safetensors"), "logits")
        };
        let expected_logits = floats(&golden(name).join("expected.safetensors"), "logits");
        let computed = logits("in/weights.safetensors");
        assert_eq!(computed.len(), expected_logits.len());
        let largest = expected_logits.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let error =
            computed.iter().zip(&expected_logits).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error <= 1e-5 * largest, "{name}: off by {error:e} of {largest}");

        let words = ["export", "in/arch/model.canon", "--weights", "in/weights.safetensors"];
        let listed = works(folder, &[words.as_slice(), &["--to", "hf", "--out", "out"]].concat());
        let files = ["config.json", "generation_config.json", "model.safetensors", "README.md"];
        assert_eq!(listed.lines().collect::<Vec<_>>(), files.map(|name| format!("out/{name}")));
        let exported = config(&folder.join("out"));
        assert_eq!(exported["model_type"], config(&golden(name))["model_type"]);
        assert!(exported.get("auto_map").is_none(), "{exported}");
        for weights in ["out", "out/model.safetensors", &source] {
            assert_eq!(logits(weights), computed, "{name} {weights}");
        }
        works(folder, &["import", "out", "--out", "again", "--name", "model"]);
        let again = fs::read_to_string(folder.join("again/import.toml")).unwrap();
        let ids = |text: &str| text.lines().skip(2).take(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(ids(&again), ids(&origins), "{name}");
    }
}

#[test]
fn a_key_that_changes_the_computation_is_refused_with_what_to_do() {
    for (name, changes, message, help) in [
        (
            "mistral",
            json!({"attention_bias": true}),
            "`attention_bias` is true, and attention of MistralForCausalLM has no biases here",
            "only false can be expressed",
        ),
        (
            "qwen3",
            json!({"hidden_act": "relu"}),
            "`hidden_act` is \"relu\", and a gated MLP has silu or gelu_pytorch_tanh here",
            "change the arch after the import, in .canon",
        ),
        (
            "qwen3",
            json!({"partial_rotary_factor": 0.5}),
            "`partial_rotary_factor` is 0.5, and RoPE rotates the whole head",
            "only 1 can be expressed",
        ),
        (
            "olmo2",
            json!({"attention_dropout": 0.1}),
            "`attention_dropout` is 0.1, and dropout inside attention cannot be expressed",
            "only 0 can be expressed",
        ),
        (
            "llama31",
            json!({"rope_scaling": {"rope_type": "longrope", "factor": 2}}),
            "`rope_scaling.rope_type` is \"longrope\", and RoPE can be default, linear, llama3 or yarn here",
            "change the arch after an import with one of them, in .canon",
        ),
        (
            "gemma2",
            json!({"use_bidirectional_attention": true}),
            "`use_bidirectional_attention` is true, and tokens see only the past",
            "only false can be expressed",
        ),
        (
            "gemma2",
            json!({"query_pre_attn_scaler": 20}),
            "`query_pre_attn_scaler` is 20, and this key is unknown",
            "did you mean `query_pre_attn_scalar`?",
        ),
        (
            "qwen3",
            json!({"zeroed_experts": 8}),
            "`zeroed_experts` is 8, and this key is unknown",
            "remove it if it does not affect the model or its training",
        ),
        (
            "qwen3",
            json!({"model_type": "qwen3_moe"}),
            "`model_type` is \"qwen3_moe\", and it should be one of llama, LlamaCanon",
            "other families cannot be imported; write such an arch in .canon",
        ),
    ] {
        assert_key_is_refused(name, &changes, message, help);
    }
}

/// Imports the configuration with these keys: the message and its help name the key and its line.
fn assert_key_is_refused(name: &str, changes: &Value, message: &str, help: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut config = config(&golden(name));
    let keys = config.as_object_mut().unwrap();
    keys.extend(changes.as_object().unwrap().clone());
    fs::create_dir(folder.join("model")).unwrap();
    let text = serde_json::to_string_pretty(&config).unwrap();
    fs::write(folder.join("model/config.json"), &text).unwrap();
    let output = type_in(folder, &["import", "model", "--out", "o", "--no-weights"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{name} {changes}: {stderr}");
    for part in [message, help] {
        assert!(stderr.contains(part), "{name} {changes}: {stderr}");
    }
    let key = message.split('`').nth(1).unwrap();
    let leaf = key.rsplit('.').next().unwrap();
    let line = text.lines().position(|line| line.contains(&format!("\"{leaf}\""))).unwrap() + 1;
    assert!(stderr.contains(&format!("model/config.json:{line}")), "{line}: {stderr}");
    assert!(!folder.join("o").exists() && output.stdout.is_empty(), "{stderr}");
}
