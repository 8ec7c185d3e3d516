//! Scores of suites that nobody measured, in a log with its chain and attestation.

use std::fs;

use records::attest::Attestation;
use records::fault::Faults;
use records::finished;
use records::metrics::{self, Evaluation, Log, Record};
use records::run::{Paths, read_experiment};
use tasks::metric;

use super::*;

/// What somebody who did not train could write into a log, with its chain and attestation.
#[test]
fn scores_that_are_not_the_locks_are_found() {
    let place = place();
    place.exits(0, "build recipes/small.toml");
    place.exits(0, "run lockfiles/small.lock");
    let said = place.exits(0, "verify runs/small");
    assert!(said.contains("4 tasks and the metrics of 2 evaluations are the lock's"), "{said}");
    assert!(said.contains("scores of suites: each question's part after the last step"), "{said}");
    let paths = Paths::new(place.path("runs/small"));
    let lock = fs::read_to_string(paths.lock()).unwrap();
    let experiment = read_experiment("lock", &lock).unwrap();
    let attested = fs::read_to_string(paths.attestation()).unwrap();
    let records = metrics::read(&paths.metrics()).unwrap().0;
    let forged = |forge: &dyn Fn(&mut Evaluation)| {
        fs::remove_file(paths.metrics()).unwrap();
        let mut log = Log::open(&paths.metrics()).unwrap();
        for mut record in records.clone() {
            if let Record::Evaluation(evaluation) = &mut record {
                forge(evaluation);
            }
            log.append(&record, &Faults::none()).unwrap();
        }
        let (mut attestation, below) = Attestation::parse_with_circumstances(&attested).unwrap();
        attestation.metrics = log.head().unwrap();
        attestation.write(&paths.attestation(), below, &Faults::none()).unwrap();
        place.type_in("verify runs/small")
    };
    let found = |forge: &dyn Fn(&mut Evaluation), says: &str| {
        let output = forged(forge);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(says), "{says}: {said}");
        let error = finished::read(&paths, (&experiment).into()).unwrap_err();
        assert!(error.message.contains(says), "{says}: {error}");
    };
    assert_eq!(forged(&|_| ()).status.code(), Some(0));
    found(
        &|it| it.suites.clear(),
        "the evaluation after step 3 logged scores of 0 tasks of suites",
    );
    found(&|it| it.suites[0].task.asked = it.suites[0].task.settings, "but the lock has `next acc");
    found(
        &|it| {
            let wrong = 3.0 - (3.0 * it.suites[1].scores["acc"]).round();
            it.suites[1].scores.insert("acc".to_owned(), wrong / 3.0);
        },
        "for `pick/acc`, but its questions give",
    );
    for word in ["bits_per_byte", "byte_perplexity", "word_perplexity"] {
        let better = |it: &mut Evaluation| {
            it.suites[2].scores.entry(word.to_owned()).and_modify(|value| *value *= 0.9);
        };
        found(&better, "contradicts");
    }
    // All of them, so that they agree: only the last evaluation shows it.
    found(
        &|it| {
            let counted = it.suites[2].task.counted.unwrap();
            for (word, value) in &mut it.suites[2].scores {
                *value = metric::of_word(word).unwrap().rule.value(&[-1.0; 3], counted);
            }
        },
        "the evaluation after step 6 logged",
    );
}

/// Even where the machine may round otherwise.
#[test]
fn a_forged_score_is_a_fault_on_any_machine() {
    let place = place();
    place.exits(0, "build recipes/small.toml");
    place.exits(75, "run --lock lockfiles/small.lock --dir forged --stop-after-step 3");
    let path = place.path("forged/metrics.jsonl");
    let honest = metrics::read(&path).unwrap().0;
    let events = fs::read_to_string(place.path("forged/events.jsonl")).unwrap();
    let elsewhere = events.replacen("\"machine\":\"", "\"machine\":\"another ", 1);
    assert_ne!(events, elsewhere);
    fs::write(place.path("forged/events.jsonl"), elsewhere).unwrap();
    // The initial weights are enough for a replay.
    fs::remove_dir_all(place.path("forged/checkpoints")).unwrap();
    let with = |change: &dyn Fn(&mut Evaluation)| {
        fs::remove_file(&path).unwrap();
        let mut log = Log::open(&path).unwrap();
        for mut record in honest.clone() {
            if let Record::Evaluation(evaluation) = &mut record {
                change(evaluation);
            }
            log.append(&record, &Faults::none()).unwrap();
        }
        place.type_in("verify forged --replay --all")
    };
    let score = |evaluation: &mut Evaluation, task: usize, word: &str, by: f64| {
        *evaluation.suites[task].scores.get_mut(word).unwrap() *= by;
    };
    let output = with(&|_| ());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    // The last digit may be rounding there.
    let output = with(&|evaluation| score(evaluation, 0, "perplexity", 1.0 + 1e-12));
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("may be rounding"), "{}", said(&output));
    let output = with(&|evaluation| score(evaluation, 0, "perplexity", 0.5));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("BROKEN     replay: the evaluation after step 3"));
    let output = with(&|evaluation| {
        let acc = evaluation.suites[1].scores.get_mut("acc").unwrap();
        *acc = if *acc > 0.5 { 0.0 } else { 1.0 };
    });
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}
