//! `canonc eval` and the real lm-evaluation-harness on the same questions, for the same weights.
//!
//! An arch on bytes with weights as drawn; the questions and tasks of `tests/golden/suites`, which the harness 0.4.9 still
//! reads. Shares are equal to the last digit, perplexities to rounding.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::folders::{BYTES, drawn, lay_out};
use super::{older, python};
use interop::tokenizer::Tokenizer;
use support::programs;

/// The largest relative difference of a perplexity.
const ALLOWED: f64 = 1e-5;

fn ours(root: &Path, suite: &str, questions: &Path, bos: bool) -> Value {
    let questions = questions.to_string_lossy();
    let mut words = vec![
        "eval",
        "a.canon",
        "--arch",
        "on_bytes",
        "--weights",
        "on_bytes.safetensors",
        "--suite",
        suite,
        "--data",
        &questions,
        "--max-length",
        "300",
        "--out",
        "scores.json",
    ];
    words.extend((!bos).then_some("--no-bos"));
    super::canonc(root, &words);
    serde_json::from_str(&fs::read_to_string(root.join("scores.json")).unwrap()).unwrap()
}

#[test]
fn scores_are_those_of_the_harness() {
    let python = python();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(root.join("a.canon"), BYTES).unwrap();
    let tokenizer = Tokenizer::bytes(tasks::BOS, tasks::EOS);
    let compiled = programs::compiled(BYTES);
    lay_out(root, "on_bytes", &compiled, drawn(&compiled), Some(&tokenizer));
    let golden = programs::root().join("tests/golden/suites");
    // Answers as short as the harness is told.
    let suite = fs::read_to_string(golden.join("own.toml")).unwrap();
    let suite = suite.replace("kind = \"generate\"", "kind = \"generate\"\nmax_tokens = 12");
    fs::write(root.join("own.toml"), suite).unwrap();
    let script = programs::root().join("tests/transformers_suites.py");
    for bos in [false, true] {
        let questions = root.join(format!("questions-{bos}"));
        let words: [String; 4] = [
            script.to_string_lossy().into_owned(),
            root.join("on_bytes").to_string_lossy().into_owned(),
            questions.to_string_lossy().into_owned(),
            if bos { "bos" } else { "plain" }.to_owned(),
        ];
        let output = Command::new(&python).args(words).env("PYTHONPATH", older()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = stdout.lines().find(|line| line.starts_with('{')).unwrap();
        let theirs: Value = serde_json::from_str(line).unwrap();
        let mut compared = 0;
        for suite in ["release", "own.toml"] {
            for task in ours(root, suite, &questions, bos)["tasks"].as_array().unwrap() {
                let name = task["name"].as_str().unwrap();
                for measured in task["metrics"].as_array().unwrap() {
                    let metric = measured["metric"].as_str().unwrap();
                    let (ours, theirs) = (&measured["value"], &theirs[name][metric]);
                    let (ours, theirs) = (ours.as_f64().unwrap(), theirs.as_f64().unwrap());
                    let is_share = !metric.contains("per");
                    let allowed = if is_share { 1e-12 } else { ALLOWED * theirs };
                    assert!(
                        (ours - theirs).abs() <= allowed,
                        "{name} {metric} {bos}: {ours} {theirs}"
                    );
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 25);
    }
}
