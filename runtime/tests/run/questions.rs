//! The score of each question at the end of a run: paired across arms, different for each seed, and absent from older
//! logs.

use std::fs;

use records::metrics::{Questions, Record};
use report::compare;
use runtime::replay::Amount;
use runtime::reproduce::against;
use runtime::train::TrainOutcome;

use super::forger::Forger;
use super::replay::{replayed, reproduced};
use super::support::*;

fn questions(folder: &Folder) -> Questions {
    match folder.records().pop() {
        Some(Record::Evaluation(evaluation)) => evaluation.questions.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn arms_of_a_seed_are_asked_the_same_and_other_evaluation_seeds_are_not() {
    let asked = |arch: &str, changes: &[(&str, &str)]| {
        questions(&Folder::finished(&experiment(arch, DEPO, changes))).asked
    };
    let base = asked("small", &[]);
    assert_eq!(asked("small_canon", &[]), base);
    assert_eq!(asked("small", &[("init = 1", "init = 5")]), base);
    assert_ne!(asked("small", &[("data = 2", "data = 2\neval = 7")]), base);
    assert_ne!(asked("small", &[("windows = 3", "windows = 4")]), base);
}

#[test]
fn a_run_says_how_much_memory_it_took_and_each_question() {
    let experiment = depo(&[]);
    let folder = Folder::finished(&experiment);
    let curves = compare::read(&folder.path(), &experiment).unwrap();
    let single = &curves.questions["exact_match"];
    let mean = single.scores.iter().sum::<f64>() / single.scores.len() as f64;
    assert!((mean - curves.last("exact_match").unwrap()).abs() < 1e-12);
    assert_eq!(single.scores.len() as u64, curves.asked["exact_match"]);
    let peak = curves.peak_bytes;
    assert_eq!(peak.is_some(), cfg!(target_os = "linux"));
    assert!(peak.is_none_or(|bytes| bytes > 1 << 20), "{peak:?}");
    // They are not part of what another run must reproduce.
    let text = fs::read_to_string(folder.paths().attestation()).unwrap();
    assert!(!text.contains("peak"), "{text}");
}

/// Rewrites the log as a canonc without questions would, with everything above it updated.
fn older(folder: &Folder) {
    Forger::at(&folder.path(), &depo(&[])).records(|record| {
        if let Record::Evaluation(evaluation) = record {
            evaluation.questions = None;
        }
    });
}

#[test]
fn a_log_of_an_older_canonc_is_read_replayed_and_continued() {
    let experiment = depo(&[]);
    let folder = Folder::finished(&experiment);
    older(&folder);
    let curves = compare::read(&folder.path(), &experiment).unwrap();
    assert!(curves.questions.is_empty());
    assert!(curves.last("exact_match").is_some());
    assert_eq!(replayed(&folder, &experiment, Amount::All).differences, []);
    let again = reproduced(&folder, &experiment);
    assert_eq!((again.first, again.evaluations, again.without_questions), (None, 2, 1));
    let newer = Folder::finished(&experiment);
    let both = against(&folder.path(), &newer.path(), &experiment).unwrap();
    assert_eq!((both.first, both.without_questions), (None, 1));
    // Its last steps and its last evaluation again, from the checkpoint before them.
    let last = folder.checkpoint(8);
    fs::remove_file(folder.paths().attestation()).unwrap();
    fs::remove_dir_all(last).unwrap();
    fs::write(folder.paths().checkpoints().join("latest"), "step-0000000006\n").unwrap();
    let (end, _) = folder.run(&experiment, None, None);
    assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
    assert!(compare::read(&folder.path(), &experiment).unwrap().questions.is_empty());
}
