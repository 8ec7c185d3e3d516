//! Random tokenizers and texts (`peers.py`): ids as the published Python libraries give them.
//!
//! `make test-transformers` runs this, not `cargo test`: it makes a Python environment. CANONC_TOKENIZERS and
//! CANONC_TEXTS set how many tokenizers, and how many texts for each; CANONC_SEED draws others; CANONC_CODE_POINTS=1 adds
//! every assigned code point.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use data::text::tokenizer::{Kind, MarkNames, Tokenizer};
use serde_json::Value;

fn run(program: &Path, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn number(variable: &str, default: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| default.to_owned())
}

/// The Python of an environment with the published libraries, made once.
fn python() -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tokenizers");
    let python = home.join("bin/python");
    let locked = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/requirements.locked.txt");
    // Made again for another list.
    let complete = home.join("complete");
    let list = fs::read(locked).unwrap();
    if fs::read(&complete).ok().as_ref() != Some(&list) {
        run(Path::new("python3"), &["-m", "venv", "--clear", &home.to_string_lossy()]);
        run(&python, &["-m", "pip", "install", "-q", "--require-hashes", "-r", locked]);
        fs::write(complete, list).unwrap();
    }
    python
}

/// The texts of a file whose ids differ from ours, each with both, and the number of texts.
fn differences(tokenizer: &Tokenizer, texts: &Path) -> (Vec<String>, usize) {
    let (mut differences, mut compared) = (Vec::new(), 0);
    for line in fs::read_to_string(texts).unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let expected: Vec<u32> =
            row["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        let text = row["text"].as_str().unwrap();
        let mut ids = Vec::new();
        let result = tokenizer.encode(text, &mut ids);
        if result.is_err() || ids != expected {
            differences.push(format!("{text:?}: {result:?} {ids:?}, not {expected:?}"));
        }
        compared += 1;
    }
    (differences, compared)
}

#[test]
fn ids_of_random_tokenizers_are_the_published_libraries() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers.py");
    let [tokenizers, texts, seed] =
        [("CANONC_TOKENIZERS", "40"), ("CANONC_TEXTS", "30"), ("CANONC_SEED", "1")]
            .map(|(variable, default)| number(variable, default));
    let path = folder.path().to_string_lossy();
    let every = std::env::var_os("CANONC_CODE_POINTS").map(|_| "--code-points");
    let words = [script, &path, "--tokenizers", &tokenizers, "--texts", &texts, "--seed", &seed];
    run(&python, &words.into_iter().chain(every).collect::<Vec<_>>());

    let (mut compared, mut all) = (0, BTreeMap::<String, Vec<String>>::new());
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let kind = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => "huggingface",
            Some("model") => "sentencepiece",
            _ => continue,
        };
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let file = fs::read(&path).unwrap();
        let tokenizer = match Tokenizer::read(
            Kind::parse(kind).unwrap(),
            &file,
            &name,
            &MarkNames::default(),
        ) {
            Ok(tokenizer) => tokenizer,
            Err(error) => {
                all.entry(name).or_default().push(format!("refused: {}", error.message));
                continue;
            }
        };
        let (differing, count) = differences(&tokenizer, &path.with_extension("jsonl"));
        if !differing.is_empty() {
            all.entry(name).or_default().extend(differing);
        }
        compared += count;
    }
    let shortest = |(name, texts): (&String, &Vec<String>)| {
        let text = texts.iter().min_by_key(|text| text.len()).unwrap();
        format!("{name}: {} texts differ: {text}\n", texts.len())
    };
    assert!(
        all.is_empty(),
        "of {compared} texts:\n{}",
        all.iter().map(shortest).collect::<String>()
    );
    assert!(compared > 1000);
}
