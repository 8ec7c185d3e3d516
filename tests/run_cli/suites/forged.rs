//! Forged scores of suites, in a log with its chain and attestation.

use std::fs;
use std::path::Path;
use std::process::Output;

use lab::experiment::Experiment;
use records::attest::Attestation;
use records::fault::Faults;
use records::finished;
use records::metrics::{self, Evaluation, Log, Record};
use records::run::{Paths, experiment_from_text};
use tasks::metric;

use super::*;

/// Writes a log of these records anew, each evaluation changed.
fn rewrite_log(path: &Path, records: &[Record], change: &dyn Fn(&mut Evaluation)) -> Log {
    fs::remove_file(path).unwrap();
    let mut log = Log::open(path).unwrap();
    for mut record in records.iter().cloned() {
        if let Record::Evaluation(evaluation) = &mut record {
            change(evaluation);
        }
        log.append(&record, &Faults::none()).unwrap();
    }
    log
}

/// A finished run, and what its log and attestation were before any change.
struct FinishedRun {
    workspace: Place,
    paths: Paths,
    experiment: Experiment,
    attested: String,
    records: Vec<Record>,
}

impl FinishedRun {
    /// Reads the run `small`.
    fn read(workspace: Place) -> FinishedRun {
        let paths = Paths::new(workspace.path("runs/small"));
        let lock = fs::read_to_string(paths.lock()).unwrap();
        let experiment = experiment_from_text("lock", &lock).unwrap();
        let attested = fs::read_to_string(paths.attestation()).unwrap();
        let records = metrics::read(&paths.metrics()).unwrap().0;
        FinishedRun { workspace, paths, experiment, attested, records }
    }

    /// Verifies the run with changed evaluations, an intact chain and an attestation of them.
    fn verify_forged(&self, change: &dyn Fn(&mut Evaluation)) -> Output {
        let log = rewrite_log(&self.paths.metrics(), &self.records, change);
        let (mut attestation, below) =
            Attestation::parse_with_circumstances(&self.attested).unwrap();
        attestation.metrics = log.head().unwrap();
        attestation.write(&self.paths.attestation(), below, &Faults::none()).unwrap();
        self.workspace.type_in("verify runs/small")
    }

    fn assert_refused(&self, change: &dyn Fn(&mut Evaluation), message: &str) {
        let output = self.verify_forged(change);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(message), "{message}: {text}");
        let error = finished::read(&self.paths, (&self.experiment).into()).unwrap_err();
        assert!(error.message.contains(message), "{message}: {error}");
    }
}

/// What somebody who did not train could write into a log, with its chain and attestation.
#[test]
fn scores_that_contradict_the_lock_or_each_other_are_refused() {
    let workspace = with_suite();
    workspace.exits(0, "build -q recipes/small.toml");
    workspace.exits(0, "run lockfiles/small.lock");
    let output = workspace.exits(0, "verify runs/small");
    assert!(output.contains("4 tasks and the metrics of 2 evaluations are the lock's"), "{output}");
    assert!(
        output.contains("scores of suites: each question's part after the last step"),
        "{output}"
    );
    let run = FinishedRun::read(workspace);
    assert_eq!(run.verify_forged(&|_| ()).status.code(), Some(0));
    run.assert_refused(
        &|evaluation| evaluation.suites.clear(),
        "the evaluation after step 3 logged scores of 0 tasks of suites",
    );
    run.assert_refused(
        &|evaluation| {
            evaluation.suites[0].task.asked = evaluation.suites[0].task.settings;
        },
        "but the lock has `next acc",
    );
    run.assert_refused(
        &|evaluation| {
            let wrong = 3.0 - (3.0 * evaluation.suites[1].scores["acc"]).round();
            evaluation.suites[1].scores.insert("acc".to_owned(), wrong / 3.0);
        },
        "for `pick/acc`, but its questions give",
    );
    for word in ["bits_per_byte", "byte_perplexity", "word_perplexity"] {
        let better = |evaluation: &mut Evaluation| {
            let score = evaluation.suites[2].scores.entry(word.to_owned());
            score.and_modify(|value| *value *= 0.9);
        };
        run.assert_refused(&better, "contradicts");
    }
    // All of them, so that they agree: only the last evaluation shows it.
    run.assert_refused(
        &|evaluation| {
            let counted = evaluation.suites[2].task.counted.unwrap();
            for (word, value) in &mut evaluation.suites[2].scores {
                *value = metric::of_word(word).unwrap().rule.value(&[-1.0; 3], counted);
            }
        },
        "the evaluation after step 6 logged",
    );
}

/// Even where the machine may round otherwise.
#[test]
fn a_forged_score_is_a_fault_on_any_machine() {
    let workspace = with_suite();
    workspace.exits(0, "build -q recipes/small.toml");
    workspace.exits(75, "run --lock lockfiles/small.lock --dir forged --stop-after-step 3");
    let path = workspace.path("forged/metrics.jsonl");
    let honest = metrics::read(&path).unwrap().0;
    let events = fs::read_to_string(workspace.path("forged/events.jsonl")).unwrap();
    let elsewhere = events.replacen("\"machine\":\"", "\"machine\":\"another ", 1);
    assert_ne!(events, elsewhere);
    fs::write(workspace.path("forged/events.jsonl"), elsewhere).unwrap();
    // The initial weights are enough for a replay.
    fs::remove_dir_all(workspace.path("forged/checkpoints")).unwrap();
    let replay_with = |change: &dyn Fn(&mut Evaluation)| {
        rewrite_log(&path, &honest, change);
        workspace.type_in("verify forged --replay --all")
    };
    let scale_score = |evaluation: &mut Evaluation, task: usize, word: &str, factor: f64| {
        *evaluation.suites[task].scores.get_mut(word).unwrap() *= factor;
    };
    let output = replay_with(&|_| ());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    // The last digit may be rounding there.
    let output = replay_with(&|evaluation| scale_score(evaluation, 0, "perplexity", 1.0 + 1e-12));
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("may be rounding"), "{}", said(&output));
    let output = replay_with(&|evaluation| scale_score(evaluation, 0, "perplexity", 0.5));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("BROKEN     replay: the evaluation after step 3"));
    let output = replay_with(&|evaluation| {
        let acc = evaluation.suites[1].scores.get_mut("acc").unwrap();
        *acc = if *acc > 0.5 { 0.0 } else { 1.0 };
    });
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}
