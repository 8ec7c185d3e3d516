//! Requests and scores equal those of EleutherAI's lm-evaluation-harness 0.4.7, which made `expected.json` (its maker is
//! `tests/golden/suites/make.py`).

use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use suite::RELEASE;
use suite::questions::Questions;
use suite::request::{Request, requests};
use suite::score::{Reply, score};
use suite::suite::{Suite, Task};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/suites")
}

/// As in `make.py`.
fn likelihood(words: &[&str]) -> (f64, bool) {
    let digest = Sha256::digest(words.join("\u{1f}").as_bytes());
    (-f64::from(digest[0] % 16) * 4.0, digest[1] % 2 == 0)
}

const TEXTS: [&str; 4] = [" PARIS!\nQ", "Jupiter", " three. And", "y"];

fn asked(task: &Task) -> Vec<Request> {
    let read = |file: &str| Questions::read(&golden().join("questions").join(file)).unwrap();
    let questions = read(&task.file);
    let examples = task.shots_file.as_deref().filter(|_| task.shots > 0).map(read);
    requests(task, &questions, examples.as_ref().unwrap_or(&questions), None).unwrap()
}

#[test]
fn requests_and_scores_are_the_harnesses() {
    let text = std::fs::read_to_string(golden().join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let further = std::fs::read_to_string(golden().join("own.toml")).unwrap();
    let suites = [Suite::read("release", RELEASE).unwrap(), Suite::read("own", &further).unwrap()];
    let tasks: Vec<&Task> = suites.iter().flat_map(|suite| &suite.tasks).collect();
    assert_eq!(tasks.len(), 17);
    for task in tasks {
        let expected = &expected[&task.name];
        let requests = asked(task);
        let (mut ours, mut replies) = (Vec::new(), Vec::new());
        for (number, request) in requests.iter().enumerate() {
            match request {
                Request::Choose { pairs, .. } => {
                    ours.extend(pairs.iter().map(|(a, b)| vec![a.clone(), b.clone()]));
                    let likelihoods = pairs.iter().map(|(a, b)| likelihood(&[a, b]));
                    replies.push(Reply::Likelihoods(likelihoods.collect()));
                }
                Request::Continue { context, continuation } => {
                    ours.push(vec![context.clone(), continuation.clone()]);
                    replies.push(Reply::Likelihoods(vec![likelihood(&[context, continuation])]));
                }
                Request::Document { text, .. } => {
                    ours.push(vec![text.clone()]);
                    replies.push(Reply::Likelihood(likelihood(&[text]).0));
                }
                Request::Generate { prompt, .. } => {
                    ours.push(vec![prompt.clone()]);
                    replies.push(Reply::Text(TEXTS[number % TEXTS.len()].to_owned()));
                }
            }
        }
        let theirs: Vec<Vec<String>> =
            serde_json::from_value(expected["requests"].clone()).unwrap();
        assert_eq!(ours, theirs, "{}", task.name);
        let scores = score(task, &requests, &replies);
        assert_eq!(scores.len(), expected["scores"].as_object().unwrap().len(), "{}", task.name);
        for measured in scores {
            let wanted = expected["scores"][measured.metric.word()].as_f64().unwrap();
            let is_close = (measured.value - wanted).abs() <= 1e-12 * wanted.abs();
            assert!(is_close, "{} {:?}: {} {wanted}", task.name, measured.metric, measured.value);
        }
    }
}
