//! Logs and attestations that contradict a lock or each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::*;
use crate::attest::Circumstances;
use crate::fault::Faults;
use crate::metrics::{Log, Score, SuiteScores};

pub(crate) fn expected(lock: &str) -> Expected<'static> {
    let digest = |what: &str| Digest::of("test", what);
    let digests =
        Digests { train: digest(lock), eval: digest("eval"), platform: digest("platform") };
    Expected { digests, steps: 4, evaluates_every: 2, tasks: &[] }
}

fn log_of(expected: Expected<'_>) -> Vec<Record> {
    let Digests { train: lock, eval, platform: _ } = expected.digests;
    let mut records = vec![Record::Start(Start { lock, eval, initial: lock })];
    for step in 1..=expected.steps {
        let (loss, batch) = (4.0 / step as f64, Some(Digest::of("batch", &step.to_string())));
        records.push(Record::Step(Step {
            step,
            loss: Some(loss),
            grad_norm: 1.0,
            lr: 0.1,
            batch,
            counted: 7,
            terms: [None; compiler::plan::TERMS.len()],
        }));
        if step % expected.evaluates_every == 0 {
            records.push(Record::Evaluation(Evaluation {
                step,
                nll: Some(loss),
                counted: 7,
                tokens: Score { right: step, of: 10 },
                answers: BTreeMap::new(),
                measures: BTreeMap::new(),
                questions: None,
                suites: Vec::new(),
            }));
        }
    }
    records
}

fn write(folder: &Path, expected: Expected<'_>, records: &[Record]) -> Paths {
    let paths = Paths::new(folder);
    let _ = std::fs::remove_file(paths.metrics());
    let mut log = Log::open(&paths.metrics()).unwrap();
    for record in records {
        log.append(record, &Faults::none()).unwrap();
    }
    let digest = Digest::of("test", "state");
    let steps = records.iter().filter(|record| matches!(record, Record::Step(_))).count();
    let attestation = Attestation {
        name: "small".to_owned(),
        lock: expected.digests.train,
        eval: expected.digests.eval,
        platform: expected.digests.platform,
        steps: expected.steps,
        diverged: None,
        counted: 7 * steps as u64,
        metrics: log.head().unwrap(),
        lines: log.lines(),
        weights: digest,
        first_moment: digest,
        second_moment: digest,
        plan: digest,
        kernels: BTreeMap::from([("canon".to_owned(), BTreeSet::new())]),
        machine: BTreeMap::from([("cpu".to_owned(), "one".to_owned())]),
        other_machines: Vec::new(),
    };
    attestation.write(&paths.attestation(), Circumstances::default(), &Faults::none()).unwrap();
    paths
}

fn refused(paths: &Paths, expected: Expected<'_>, what: &str) {
    let error = read(paths, expected).unwrap_err();
    assert_eq!(error.kind, dsl::ProblemKind::Finding);
    assert!(error.message.contains(what), "{what}: {error}");
    assert!(error.message.contains(&paths.folder.display().to_string()), "{error}");
}

#[test]
fn a_whole_run_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let expected = expected("one");
    let paths = write(folder.path(), expected, &log_of(expected));
    let (attestation, records) = read(&paths, expected).unwrap();
    assert_eq!((attestation.steps, records.len()), (4, 7));
}

#[test]
fn a_log_that_was_cut_swapped_or_altered_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let one = expected("one");
    let paths = write(folder.path(), one, &log_of(one));
    let text = std::fs::read_to_string(paths.metrics()).unwrap();
    let line_end = text.trim_end().rfind('\n').unwrap() + 1;
    // Prefixes that end inside lines and between them.
    for end in (0..text.len() - 1).step_by(41).chain([line_end]) {
        std::fs::write(paths.metrics(), &text[..end]).unwrap();
        refused(&paths, one, "it attests 7 metrics lines with a chain that ends in");
    }
    std::fs::write(paths.metrics(), format!("{text}{{\"kind\":")).unwrap();
    refused(&paths, one, "continues after its last complete line");
    std::fs::remove_file(paths.metrics()).unwrap();
    refused(&paths, one, "metrics.jsonl has 0 and ends in nothing");

    let other = tempfile::tempdir().unwrap();
    let two = expected("two");
    let theirs = write(other.path(), two, &log_of(two));
    std::fs::copy(theirs.metrics(), paths.metrics()).unwrap();
    refused(&paths, one, "it attests 7 metrics lines with a chain that ends in");
    // Together with its attestation it is consistent, but belongs to another lock.
    std::fs::copy(theirs.attestation(), paths.attestation()).unwrap();
    refused(&paths, one, "it attests lock");

    std::fs::write(paths.metrics(), text.replacen("\"loss\":2.0", "\"loss\":1.0", 1)).unwrap();
    let paths = write(folder.path(), one, &log_of(one));
    std::fs::write(paths.metrics(), text.replacen("\"loss\":2.0", "\"loss\":1.0", 1)).unwrap();
    assert!(read(&paths, one).unwrap_err().message.contains("line 3 of"));
    std::fs::remove_file(paths.attestation()).unwrap();
    refused(&paths, one, "it has no attestation.toml");
}

/// Like [`log_of`], ending with a step of this loss and gradient norm.
fn diverging(expected: Expected<'_>, at: u64, loss: f64, grad_norm: f64) -> Vec<Record> {
    let mut records = Vec::new();
    for record in log_of(expected) {
        match record {
            Record::Step(step) if step.step == at => {
                records.push(Record::Step(Step { loss: Some(loss), grad_norm, ..step }));
                return records;
            }
            Record::Start(_) | Record::Step(_) | Record::Evaluation(_) => records.push(record),
        }
    }
    records
}

#[test]
fn a_run_that_diverged_is_whole_up_to_that_step_and_no_further() {
    let folder = tempfile::tempdir().unwrap();
    let one = expected("one");
    let attest = |records: &[Record], steps: u64, diverged: Option<u64>| {
        let paths = write(folder.path(), one, records);
        let text = std::fs::read_to_string(paths.attestation()).unwrap();
        let attestation = Attestation::parse(&text).unwrap();
        let attestation = Attestation { steps, diverged, ..attestation };
        let none = Faults::none();
        attestation.write(&paths.attestation(), Circumstances::default(), &none).unwrap();
        paths
    };
    for (at, loss, grad_norm) in [
        (1, f64::NAN, f64::NAN),
        (2, f64::INFINITY, 1.0),
        (3, 1.0, f64::INFINITY),
        (4, 1.0, f64::NAN),
    ] {
        let records = diverging(one, at, loss, grad_norm);
        let (attestation, read) = read(&attest(&records, at, Some(at)), one).unwrap();
        assert_eq!((attestation.diverged, read.len()), (Some(at), records.len()));
        // At the last step it would be the same attestation.
        if at < 4 {
            let expected = "steps and that training diverged at step";
            refused(&attest(&records, 4, Some(at)), one, expected);
        }
        refused(&attest(&records, at + 1, Some(at + 1)), one, "it attests that training diverged");
    }
    refused(&attest(&diverging(one, 4, f64::NAN, 1.0), 4, None), one, "no evaluation after step 4");
    let finite = diverging(one, 3, 1.0, 1.0);
    refused(&attest(&finite, 3, Some(3)), one, "every loss in metrics.jsonl is a finite number");
    refused(&attest(&log_of(one), 4, Some(4)), one, "every loss in metrics.jsonl is a finite");
    // A log that continues after that step, as none does.
    let mut longer = diverging(one, 1, f64::NAN, 1.0);
    longer.push(log_of(one).remove(2));
    refused(
        &attest(&longer, 2, Some(2)),
        one,
        "line 2 of 3 of metrics.jsonl shows that step 1 has loss NaN",
    );
    // After the last step, an evaluation shows it too.
    let mut last = log_of(one);
    let Some(Record::Evaluation(evaluation)) = last.last_mut() else { panic!() };
    evaluation.nll = Some(f64::NAN);
    read(&attest(&last, 4, Some(4)), one).unwrap();
    // Such runs were attested before attestations had a `diverged` line.
    read(&attest(&last, 4, None), one).unwrap();
}

#[test]
fn scores_of_suites_are_those_of_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let digest = |what: &str| Digest::of("test", what);
    let tasks = [SuiteTask {
        name: "pick".to_owned(),
        metrics: vec!["acc".to_owned()],
        questions: 2,
        settings: digest("settings"),
        asked: digest("questions"),
        examples: None,
        counted: None,
    }];
    let one = Expected { tasks: &tasks, ..expected("one") };
    let scores = |task: &SuiteTask, value: f64, parts: &[f64]| {
        let each = (!parts.is_empty()).then(|| ("acc".to_owned(), parts.to_vec()));
        let scores = [("acc".to_owned(), value)].into();
        SuiteScores { task: task.clone(), scores, each: each.into_iter().collect() }
    };
    // At steps 2 and 4.
    let logged = |earlier: Vec<SuiteScores>, last: Vec<SuiteScores>| {
        let mut all = [earlier, last].into_iter();
        let mut records = log_of(one);
        for record in &mut records {
            if let Record::Evaluation(evaluation) = record {
                evaluation.suites = all.next().unwrap();
            }
        }
        write(folder.path(), one, &records)
    };
    let task = &tasks[0];
    let earlier = || vec![scores(task, 0.0, &[])];
    let last = || vec![scores(task, 0.5, &[1.0, 0.0])];
    let paths = logged(earlier(), last());
    assert_eq!(so_far(&paths, one).unwrap(), (read(&paths, one).unwrap().1, 4));
    let other = SuiteTask { asked: digest("other questions"), ..task.clone() };
    for (earlier, last, says) in [
        (Vec::new(), last(), "the evaluation after step 2 logged scores of 0 tasks"),
        (vec![scores(task, 0.4, &[])], last(), "not a share of 2 questions"),
        (earlier(), vec![scores(task, 1.0, &[1.0, 0.0])], "its questions give 0.5"),
        (earlier(), vec![scores(&other, 0.5, &[1.0, 0.0])], "but the lock has `pick"),
        (earlier(), Vec::new(), "the evaluation after step 4 logged scores of 0 tasks"),
    ] {
        refused(&logged(earlier, last), one, says);
    }
}

#[test]
fn a_log_that_is_attested_and_yet_not_of_the_lock_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let one = expected("one");
    let records = log_of(one);
    let foreign = |what: &str, at: usize, record: Option<Record>| {
        let mut records = records.clone();
        match record {
            Some(record) => records[at] = record,
            None => drop(records.remove(at)),
        }
        let paths = write(folder.path(), one, &records);
        refused(&paths, one, what);
    };
    foreign("metrics.jsonl belongs to lock", 0, log_of(expected("two")).into_iter().next());
    foreign("line 1 of metrics.jsonl is step 1", 0, None);
    foreign("line 3 of metrics.jsonl is the evaluation after step 2", 2, None);
    foreign("line 4 of metrics.jsonl is step 3", 3, None);
    foreign("metrics.jsonl has no evaluation after step 4", 6, None);
    for (loss, grad_norm) in [(None, 1.0), (Some(f64::NAN), 1.0), (Some(1.0), f64::INFINITY)] {
        let Some(Record::Step(step)) = records.get(2).cloned() else { panic!("{records:?}") };
        let counted = if loss.is_none() { 0 } else { step.counted };
        let step = Record::Step(Step { loss, grad_norm, counted, ..step });
        let what =
            if loss.is_none() { "it attests 28 counted targets" } else { "where every run stops" };
        foreign(what, 2, Some(step));
    }
    let cut = write(folder.path(), one, &records[..4]);
    refused(&cut, one, "metrics.jsonl ends with step 2 of 4");
    let longer = Expected { steps: 5, ..one };
    refused(&cut, longer, "it attests 4 steps, but the lock has 5");
    for changed in [
        Digests { eval: one.digests.train, ..one.digests },
        Digests { platform: one.digests.train, ..one.digests },
    ] {
        refused(&cut, Expected { digests: changed, ..one }, "section");
    }
}
