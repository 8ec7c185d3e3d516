//! What comes with imported weights: tokenizer, chat template, context and end tokens are copied and recorded, and used as
//! those of the folder are; what is left out is listed.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use compiler::program::{Program, Std};
use runtime::weights::Weights;
use serde_json::{Value, json};

use super::foreign::{type_in, works};
use super::serve::Server;

/// More tokens than bytes have, so the tokenizer cannot be guessed.
const ARCH: &str = "arch llama { vocab 300  dim 32  norm_eps 1e-5  init lingua
  layers 2 of decoder { mixer attention { heads 4, kv_heads 2, rope { theta 10000, layout half } }  mlp swiglu { hidden 64 } } }
";

const TEMPLATE: &str =
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}";

const IMPORTED: [&str; 3] = ["in/arch/model.canon", "--weights", "in/weights.safetensors"];

/// A folder with a Hugging Face folder `hf` of 96 positions and two end tokens, and with its import `in`.
fn imported() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    fs::write(root.join("a.canon"), ARCH).unwrap();
    let program = Program::new([("a.canon".to_owned(), ARCH.to_owned())], Std::Embedded);
    let compiled = program.compile("a.canon", "llama").0.unwrap();
    Weights::init(&compiled.graph, 7).unwrap().save(&root.join("w.safetensors")).unwrap();
    works(root, &["export", "a.canon", "--weights", "w.safetensors", "--to", "hf", "--out", "hf"]);
    let folder = root.join("hf");
    change(&folder.join("config.json"), |config| {
        config["max_position_embeddings"] = json!(96);
        config["bos_token_id"] = json!(256);
        config["temperature"] = json!(0.5);
    });
    let generation = json!({ "eos_token_id": [257, 10], "temperature": 0.6 }).to_string();
    fs::write(folder.join("generation_config.json"), generation).unwrap();
    let bytes = interop::tokenizer::Tokenizer::bytes(256, 257);
    fs::write(folder.join("tokenizer.json"), &bytes.json).unwrap();
    fs::write(folder.join("special_tokens_map.json"), "{}").unwrap();
    let config =
        json!({ "bos_token": "<|bos|>", "eos_token": "<|eos|>", "chat_template": TEMPLATE });
    fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
    works(root, &["import", "hf", "--out", "in", "--name", "model"]);
    temp
}

fn change(path: &Path, change: impl Fn(&mut Value)) {
    let mut value: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn an_import_copies_the_files_of_texts_and_lists_what_it_leaves_out() {
    let temp = imported();
    let root = temp.path();
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        let bytes = |folder: &str| fs::read(root.join(folder).join(name)).unwrap();
        assert!(bytes("hf") == bytes("in"), "{name}");
    }
    let record = fs::read_to_string(root.join("in/import.toml")).unwrap();
    for line in [
        "context = 96",
        "context_from = \"max_position_embeddings of config.json\"",
        "bos_token_id = 256",
    ] {
        assert!(record.lines().any(|known| known == line), "{record}");
    }
    let output = type_in(root, &["import", "hf", "--out", "again", "--name", "model", "--json"]);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["context"], 96);
    assert_eq!(summary["copied"].as_array().unwrap().len(), 3, "{summary}");
    let left: Vec<_> =
        summary["left_out"].as_array().unwrap().iter().map(|left| left["name"].clone()).collect();
    assert_eq!(left, ["temperature", "special_tokens_map.json"]);
    let output = type_in(root, &["import", "hf", "--out", "listed", "--name", "model"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    for part in [
        "context: 96 tokens (max_position_embeddings of config.json)",
        "left out: temperature (",
        "left out: special_tokens_map.json (",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn an_imported_model_has_the_numbers_of_its_folder() {
    let temp = imported();
    let root = temp.path();
    fs::write(
        root.join("s.toml"),
        "[[task]]\nname = \"text\"\nkind = \"document\"\nfile = \"q.jsonl\"\ntext = \"{{ given }}\"\n",
    )
    .unwrap();
    // Longer than the context, so that it is cut.
    let long = "Once upon a time there was a cat. ".repeat(9);
    fs::write(root.join("q.jsonl"), json!({ "given": long }).to_string() + "\n").unwrap();
    let results = |model: &[&str]| {
        let words = [&["eval"], model, &["--suite", "s.toml"]].concat();
        let stderr = String::from_utf8(type_in(root, &words).stderr).unwrap();
        assert!(stderr.contains("inputs of at most 96 tokens"), "{stderr}");
        let scores = works(root, &[words.as_slice(), &["--json"]].concat());
        let scores: Value = serde_json::from_str(&scores).unwrap();
        (scores["settings"].clone(), scores["tasks"].clone())
    };
    let (settings, tasks) = results(&IMPORTED);
    assert_eq!(settings["max_length"], 96);
    works(root, &["build", "a.canon", "--out", "."]);
    let forms: [&[&str]; 4] =
        [&["hf"], &["in"], &["a.canon", "--weights", "hf"], &["llama.lock", "--weights", "hf"]];
    for form in forms {
        assert_eq!((settings.clone(), tasks.clone()), results(form), "{form:?}");
    }
    let text = |model: &[&str]| {
        let words = ["--prompt", "Once", "--max-tokens", "20", "--seed", "3"];
        works(root, &[&["generate"], model, &words].concat())
    };
    assert_eq!(text(&IMPORTED), text(&["hf"]));
}

#[test]
fn an_exported_import_has_the_files_of_the_original_folder() {
    let temp = imported();
    let root = temp.path();
    let export = |out: &str, more: &[&str]| {
        let words = [&["export"], &IMPORTED[..], &["--to", "hf", "--out", out], more].concat();
        type_in(root, &words)
    };
    assert!(export("out", &[]).status.success());
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        let bytes = |folder: &str| fs::read(root.join(folder).join(name)).unwrap();
        assert!(bytes("hf") == bytes("out"), "{name}");
    }
    let config = read(&root.join("out/config.json"));
    assert_eq!(config["max_position_embeddings"], 96);
    assert_eq!(config["bos_token_id"], 256);
    // An edited arch takes the weights with a warning.
    let edited = fs::read_to_string(root.join("in/arch/model.canon")).unwrap();
    fs::write(root.join("edited.canon"), edited.replace("theta 10000", "theta 500")).unwrap();
    let words =
        ["generate", "edited.canon", "--weights", "in", "--prompt", "a", "--max-tokens", "1"];
    let stderr = String::from_utf8(type_in(root, &words).stderr).unwrap();
    assert!(stderr.contains("were imported for another graph"), "{stderr}");
    // However the model is named, the folder is the same.
    let card = |folder: &str| fs::read_to_string(root.join(folder).join("README.md")).unwrap();
    for (out, form) in [("of_import", "in"), ("of_arch", "a.canon --weights hf/model.safetensors")]
    {
        let words: Vec<&str> = form.split(' ').collect();
        works(root, &[&["export"], &words[..], &["--to", "hf", "--out", out]].concat());
        assert_eq!(read(&root.join(out).join("config.json")), config, "{form}");
        assert!(root.join(out).join("tokenizer.json").is_file(), "{form}");
    }
    assert_eq!(card("of_import"), card("out"));
    // A named tokenizer, with marks of its own.
    fs::create_dir(root.join("other")).unwrap();
    fs::copy(root.join("hf/tokenizer.json"), root.join("other/tokenizer.json")).unwrap();
    let named = ["--tokenizer-file", "other/tokenizer.json", "--eos", "a"];
    let output = export("named", &named);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(read(&root.join("named/generation_config.json"))["eos_token_id"], 97);
    assert_eq!(read(&root.join("named/tokenizer_config.json"))["eos_token"], "a");
    // An arch whose weights are of unknown origin.
    let words = ["export", "a.canon", "--weights", "w.safetensors", "--to", "hf"];
    let named = ["--tokenizer-file", "hf/tokenizer.json", "--out", "arch"];
    works(root, &[words.as_slice(), &named].concat());
    assert!(read(&root.join("arch/tokenizer_config.json"))["chat_template"].is_string());
    let small = fs::read_to_string(root.join("a.canon")).unwrap().replace("300", "200");
    fs::write(root.join("small.canon"), small).unwrap();
    let words = ["export", "small.canon", "--to", "hf", "--tokenizer-file", "hf/tokenizer.json"];
    let output = type_in(root, &[words.as_slice(), &["--out", "no"]].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("it has 258 tokens, but the arch has 200"), "{stderr}");
}

#[test]
fn a_damaged_record_is_refused() {
    let temp = imported();
    let root = temp.path();
    for (text, part) in [("context = 0\n", "`context` is not"), ("context", "import.toml")] {
        fs::write(root.join("in/import.toml"), text).unwrap();
        let words = [&["generate"], &IMPORTED[..], &["--prompt", "a"]].concat();
        let output = type_in(root, &words);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn a_server_has_the_context_of_its_model() {
    let temp = imported();
    let root = temp.path();
    let imported = IMPORTED.join(" ");
    for (words, expected, warns) in [
        ("hf".to_owned(), 96, false),
        (imported.clone(), 96, false),
        (format!("{imported} --context 50"), 50, false),
        (format!("{imported} --context 97"), 97, true),
        ("a.canon --weights w.safetensors".to_owned(), 4096, false),
        ("a.canon --weights hf".to_owned(), 96, false),
    ] {
        let server = Server::in_folder(root, &words);
        let (_, text) = server.ask("GET", "/v1/models", "", "");
        let models: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(models["data"][0]["max_model_len"], expected, "{words}: {text}");
        let (_, stderr) = server.end("-TERM");
        let warning =
            "warning: --context 97 is more than the 96 tokens that this model is made for";
        assert_eq!(stderr.contains(warning), warns, "{words}: {stderr}");
    }
    let generate = |count: &str| {
        let words = ["--prompt-tokens", "79,110", "--max-tokens", count];
        let output = type_in(root, &[&["generate"], &IMPORTED[..], &words].concat());
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(generate("94"), "");
    let stderr = generate("95");
    assert!(
        stderr.contains("warning: the text has 97 tokens, more than the 96 tokens"),
        "{stderr}"
    );
}

#[test]
fn a_model_without_a_tokenizer_says_how_to_name_one() {
    let temp = imported();
    let root = temp.path();
    let arch = ["a.canon", "--weights", "w.safetensors"];
    let prompt = ["--prompt", "Once", "--max-tokens", "9", "--seed", "3"];
    let refusal = |words: &[&str]| {
        let output = type_in(root, words);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let refused = refusal(&[&["generate"], &arch[..], &prompt].concat());
    assert!(refused.contains("no tokenizer is named with --tokenizer-file"), "{refused}");
    assert!(
        refused.contains(
            "help: name its tokenizer.json with --tokenizer-file, or the Hugging Face folder"
        ),
        "{refused}"
    );
    let server = Server::in_folder(root, &arch.join(" "));
    let (status, text) = server.ask("POST", "/v1/completions", "", r#"{"prompt": "a"}"#);
    assert!(status == 400 && text.contains("--tokenizer-file"), "{text}");
    let (_, stderr) = server.end("-TERM");
    assert!(
        stderr.contains("warning: requests need token ids, not text: no tokenizer"),
        "{stderr}"
    );
    // A named tokenizer.json brings the files beside it: marks, end tokens, chat template.
    let named = ["--tokenizer-file", "hf/tokenizer.json"];
    let text = |model: &[&str]| works(root, &[&["generate"], model, &prompt].concat());
    assert_eq!(text(&[&arch[..], &named].concat()), text(&["hf"]));
    let server = Server::in_folder(root, &[&arch[..], &named].concat().join(" "));
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] }).to_string();
    let (_, text) = server.ask("POST", "/tokenize", "", &body);
    let tokens: Value = serde_json::from_str(&text).unwrap();
    let expected: Vec<u32> =
        std::iter::once(256).chain("[user]hi".bytes().map(u32::from)).collect();
    assert_eq!(tokens["tokens"], json!(expected), "{text}");
    let (_, stderr) = server.end("-TERM");
    assert!(!stderr.contains("warning"), "{stderr}");
    // An imported arch whose tokenizer is gone.
    fs::remove_file(root.join("in/tokenizer.json")).unwrap();
    let refused = refusal(&[&["generate"], &IMPORTED[..], &prompt].concat());
    assert!(
        refused.contains("`in` has no tokenizer.json; name one with --tokenizer-file"),
        "{refused}"
    );
}

#[test]
fn the_spelling_of_a_special_token_is_plain_text_with_a_warning() {
    let temp = imported();
    let root = temp.path();
    let prompt = ["--prompt", "a<|eos|>b", "--max-tokens", "2", "--json"];
    let output = type_in(root, &[&["generate"], &IMPORTED[..], &prompt].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr
            .contains("warning: `<|eos|>` in the prompt is plain text, not the special token 257"),
        "{stderr}"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_conversation_in_a_terminal_is_that_of_a_server() {
    let temp = imported();
    let root = temp.path();
    let server = Server::in_folder(root, "hf");
    let answer = |messages: &[(&str, &str)]| {
        let messages: Vec<Value> = messages
            .iter()
            .map(|(role, content)| json!({ "role": role, "content": content }))
            .collect();
        let body = json!({ "messages": messages, "seed": 3, "max_tokens": 5 }).to_string();
        let (status, text) = server.ask("POST", "/v1/chat/completions", "", &body);
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let first = answer(&[("user", "hi")]);
    let second = answer(&[("user", "hi"), ("assistant", &first), ("user", "you")]);
    let expected = format!("{first}\n{second}\n{first}\n");
    for model in [&["hf"][..], &IMPORTED] {
        let words = ["--interactive", "--chat", "--seed", "3", "--max-tokens", "5"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_canonc"));
        command.current_dir(root).arg("generate").args(model).args(words);
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"hi\nyou\n\nhi\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{stderr}");
    }
}
