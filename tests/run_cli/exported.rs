//! `canonc export` of any arch as a process: the PyTorch module, the folder with its own code, tokenizers, and every way
//! back. No test needs PyTorch; `tests/transformers` runs what is written here.

use std::fs;

use runtime::Tensor;
use runtime::weights::{Weights, file};

use crate::{DEPO, Place, arch_named, experiment};

/// Text in bytes, from a source without a digest.
const OPEN: &[(&str, &str)] = &[
    (
        "task = \"depo\"\ndepo.N = 4\ndepo.K = 1\ndepo.mini_vocab = 4\ndepo.min_tlen = 1\ndepo.max_tlen = 2\nids = \"dense\"",
        "task = \"text\"\nsource = \"corpus\"\ntokenizer = \"bytes\"",
    ),
    ("windows = 2", "windows = 2\nmetrics = [\"eval_loss\"]"),
];

/// A workspace with a lock of the arch, weights for it, and four tokens.
fn with_weights(changes: &[(&str, &str)], arch: &str) -> Place {
    let workspace = Place::new(&experiment(arch, DEPO, changes));
    let compiled = arch_named(arch).compiled;
    Weights::init(&compiled.graph, 3).unwrap().save(&workspace.path("w.safetensors")).unwrap();
    let tokens = Tensor::from_slice(&[1i64, 5, 2, 7]).reshape([1, 4]);
    file::write(&workspace.path("t.safetensors"), &[("tokens", &tokens)], None).unwrap();
    workspace
}

fn read(workspace: &Place, name: &str) -> String {
    fs::read_to_string(workspace.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn a_module_is_written_with_and_without_weights_and_read_back() {
    let workspace = with_weights(&[], "small_gdn");
    let output = workspace.exits(0, "export lockfiles/small.lock --to torch --out plain");
    assert_eq!(output, "plain/model.py\n");
    let text = read(&workspace, "plain/model.py");
    for part in ["class Model(Parameters)", "def delta_scan(", "def loss(", "# [batch, time, 16]"] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("def gla_scan(") && !text.contains("transformers"), "only what is used");
    workspace.exits(0, "export lockfiles/small.lock --weights w.safetensors --to torch --out t");
    workspace.exits(0, "export lockfiles/small.lock --weights w.safetensors --to hf --out hf");
    workspace
        .exits(0, "export lockfiles/small.lock --weights w.safetensors --to release --out release");
    assert_eq!(text, read(&workspace, "t/model.py"));
    assert!(read(&workspace, "hf/modeling_canonc.py").starts_with(&text));
    let config: serde_json::Value =
        serde_json::from_str(&read(&workspace, "hf/config.json")).unwrap();
    assert_eq!(config["auto_map"]["AutoModelForCausalLM"], "modeling_canonc.CanoncForCausalLM");
    let logits = |weights: &str, arch: &str| {
        let forward = format!(
            "forward {arch} --weights {weights} --tokens t.safetensors --out o.safetensors"
        );
        workspace.exits(0, &forward);
        fs::read(workspace.path("o.safetensors")).unwrap()
    };
    let ours = logits("w.safetensors", "lockfiles/small.lock");
    for weights in ["t", "t/model.safetensors", "hf", "hf/model.safetensors"] {
        assert!(ours == logits(weights, "lockfiles/small.lock"), "{weights}");
    }
    // The folder's own text is the arch.
    assert!(ours == logits("hf", "hf/arch.canon"));
    // Import gives back an arch from a stock or a published class; for this folder it says where the arch is.
    let output = workspace.exits(2, "import hf --out back");
    assert!(output.contains("canonc") && !workspace.path("back").exists(), "{output}");
}

#[test]
fn weights_of_another_arch_are_refused_by_parameter() {
    let workspace = with_weights(&[], "small_gdn");
    workspace.exits(0, "export lockfiles/small.lock --weights w.safetensors --to torch --out t");
    workspace.lock("other", &lab::lock::Lock::Experiment(experiment("small", DEPO, &[])));
    let words =
        "forward lockfiles/other.lock --weights t --tokens t.safetensors --out o.safetensors";
    let output = workspace.exits(2, words);
    assert!(
        output.contains("layers.0.mixer.A_log") && !workspace.path("o.safetensors").exists(),
        "{output}"
    );
    for to in ["torch", "hf"] {
        let output = workspace
            .exits(2, &format!("export lockfiles/other.lock --weights t --to {to} --out no"));
        assert!(
            output.contains("layers.0.mixer.A_log") && !workspace.path("no").exists(),
            "{output}"
        );
    }
    let output = workspace.exits(2, "export lockfiles/other.lock --to hf --out no");
    assert!(output.contains("needs weights") && !workspace.path("no").exists(), "{output}");
}

#[test]
fn a_lock_on_bytes_exports_its_tokenizer_and_others_say_why_not() {
    let workspace = with_weights(OPEN, "small_text");
    workspace.exits(0, "export lockfiles/small.lock --weights w.safetensors --to hf --out hf");
    let tokenizer: serde_json::Value =
        serde_json::from_str(&read(&workspace, "hf/tokenizer.json")).unwrap();
    assert_eq!(tokenizer["model"]["vocab"]["A"], 65);
    assert_eq!(tokenizer["added_tokens"][1]["id"], 257);
    let config: serde_json::Value =
        serde_json::from_str(&read(&workspace, "hf/generation_config.json")).unwrap();
    assert_eq!((&config["bos_token_id"], &config["eos_token_id"]), (&256.into(), &257.into()));
    let card = read(&workspace, "hf/README.md");
    assert!(card.contains("`tokenizer.json` is the tokenizer of the training"), "{card}");
    assert!(card.contains("The lock is open"), "{card}");
    let words =
        "export lockfiles/small.lock --weights w.safetensors --to hf --out no --tokenizer-file x";
    assert!(workspace.exits(2, words).contains("the lock's tokens are bytes"));
    let words = "export lockfiles/small.lock --to torch --out no --tokenizer-file x";
    assert!(workspace.exits(2, words).contains("only `--to hf` writes a tokenizer"));

    let workspace = with_weights(&[], "small_gdn");
    workspace.exits(0, "export lockfiles/small.lock --weights w.safetensors --to hf --out hf");
    let card = read(&workspace, "hf/README.md");
    let sentence = "No tokenizer is in this folder: the tokens of the task depo are not text.";
    assert!(card.contains(sentence) && !workspace.path("hf/tokenizer.json").exists(), "{card}");
}

#[test]
fn a_tokenizer_file_is_written_if_it_is_the_locks() {
    let mut changes = OPEN.to_vec();
    changes.push(("tokenizer = \"bytes\"", "tokenizer = \"huggingface\"\ntokenizer_vocab = 16"));
    let workspace = with_weights(&changes, "small_gdn");
    let vocab: Vec<String> =
        (0..16).map(|id| format!("\"{}\":{id}", char::from(b'a' + id))).collect();
    let text = format!(
        "{{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],\"normalizer\":null,\
         \"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,\"model\":{{\"type\":\"BPE\",\
         \"vocab\":{{{}}},\"merges\":[]}}}}",
        vocab.join(",")
    );
    fs::write(workspace.path("tokenizer.json"), &text).unwrap();
    fs::write(workspace.path("other.json"), text.replace(",\"p\":15", "")).unwrap();
    let words = "export lockfiles/small.lock --weights w.safetensors --to hf --out";
    workspace.exits(0, &format!("{words} without"));
    assert!(read(&workspace, "without/README.md").contains("`--tokenizer-file`"));
    workspace.exits(0, &format!("{words} with --tokenizer-file tokenizer.json --eos p"));
    assert_eq!(read(&workspace, "with/tokenizer.json"), text);
    let config: serde_json::Value =
        serde_json::from_str(&read(&workspace, "with/tokenizer_config.json")).unwrap();
    assert_eq!(config["eos_token"], "p");
    let output = workspace.exits(2, &format!("{words} no --tokenizer-file other.json"));
    assert!(output.contains("tokenizer_vocab") && !workspace.path("no").exists(), "{output}");
}
