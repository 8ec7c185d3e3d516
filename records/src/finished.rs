//! In: the folder of a run that claims to be finished, and its lock's requirements. Out: its attestation and every
//! logged record, or the first mismatch. A diverged run is finished too: its log ends with the step that has a loss or
//! gradient norm that is not a number. Must stay true: no logged value of a run is used, and no run is called finished,
//! before this check passes; the attestation is checked against the lock and the log, with the log's chain computed
//! again; no tensors are read and nothing is computed from the lock (`canonc verify` does both), so this is quick.

use compiler::digest::Digest;
use lab::experiment::{Digests, Experiment};
use lab::field::SuiteTask;

use crate::attest::Attestation;
use crate::job::Job;
use crate::metrics::{self, Evaluation, Record, Start, Step};
use crate::run::{Paths, RunError, cannot_read};

/// A lock's requirements for its finished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected<'a> {
    /// Digests of the lock's sections.
    pub digests: Digests,
    /// Number of steps of the training.
    pub steps: u64,
    /// Steps between evaluations; 0 for the last step only.
    pub evaluates_every: u64,
    /// The tasks of its suites.
    pub tasks: &'a [SuiteTask],
}

impl<'a> From<&'a Experiment> for Expected<'a> {
    fn from(experiment: &'a Experiment) -> Expected<'a> {
        Expected {
            digests: experiment.digests,
            steps: experiment.budget.steps,
            evaluates_every: experiment.evaluation.every,
            tasks: &experiment.evaluation.tasks,
        }
    }
}

impl<'a> From<&'a Job> for Expected<'a> {
    fn from(job: &'a Job) -> Expected<'a> {
        Expected {
            digests: job.digests,
            steps: job.steps,
            evaluates_every: job.cadence.evaluation,
            tasks: &job.tasks,
        }
    }
}

/// The attestation and log of a finished run, if they agree with each other and with the lock.
pub fn read(paths: &Paths, expected: Expected<'_>) -> Result<(Attestation, Vec<Record>), RunError> {
    let path = paths.attestation();
    let text = match disk::read_text(&path, disk::SMALL) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(unfinished(paths));
        }
        Err(error) => return Err(cannot_read(&path, &error)),
    };
    let attestation = Attestation::parse(&text)
        .map_err(|why| mismatch(paths, &format!("attestation.toml: {why}")))?;
    let records = records(paths, expected, &attestation)?;
    Ok((attestation, records))
}

/// The records that an unfinished run has logged so far, and the last step. A process may be working on it, so an
/// incomplete line is skipped.
pub fn so_far(paths: &Paths, expected: Expected<'_>) -> Result<(Vec<Record>, u64), RunError> {
    let (records, _) = metrics::read(&paths.metrics())?;
    let reached = order(expected, &records).map_err(|what| mismatch(paths, &what))?;
    of_suites(expected, &records).map_err(|what| mismatch(paths, &what))?;
    Ok((records, reached.step))
}

/// Every logged record of a run with this attestation.
pub fn records(
    paths: &Paths,
    expected: Expected<'_>,
    attestation: &Attestation,
) -> Result<Vec<Record>, RunError> {
    check_lock(expected, attestation).map_err(|what| mismatch(paths, &what))?;
    let (records, head) = metrics::read(&paths.metrics())?;
    of_the_log(attestation, &records, head)
        .and_then(|()| check_complete(expected, attestation.diverged, &records))
        .and_then(|()| of_suites(expected, &records).map(|_| ()))
        .map_err(|what| mismatch(paths, &what))?;
    if metrics::torn(&paths.metrics())?.is_some() {
        return Err(mismatch(paths, "metrics.jsonl continues after its last complete line"));
    }
    Ok(records)
}

/// The error for a run that was interrupted, or that a process is working on.
fn unfinished(paths: &Paths) -> RunError {
    let folder = paths.folder.display();
    if !paths.lock().exists() && !paths.metrics().exists() {
        return RunError::finding(
            format!("the run in {folder} has not started: it has no lock"),
            "train it with `canonc run` on its lock, or with `canonc compare` on the lock of its comparison",
        );
    }
    RunError::finding(
        format!("the run in {folder} is not finished: it has no attestation.toml"),
        format!("continue it with `canonc run --lock {} --dir {folder}`", paths.lock().display()),
    )
}

/// The error for a folder that is not the finished run of its lock; `what` names the difference.
pub fn mismatch(paths: &Paths, what: &str) -> RunError {
    let folder = paths.folder.display();
    RunError::finding(
        format!("the run in {folder} is not the finished run of its lock: {what}"),
        format!(
            "restore the folder from a copy, or move it away, and the same command trains it again from the start; \
             `canonc verify {folder}` lists every fault in it"
        ),
    )
}

fn check_lock(expected: Expected<'_>, attestation: &Attestation) -> Result<(), String> {
    let Expected { digests, steps, evaluates_every: _, tasks: _ } = expected;
    let pairs = [
        ("lock", attestation.lock, digests.train),
        ("evaluation section", attestation.eval, digests.eval),
        ("platform section", attestation.platform, digests.platform),
    ];
    for (what, attested, locked) in pairs {
        if attested != locked {
            return Err(format!(
                "it attests {what} {}, but the lock has {}",
                attested.short(),
                locked.short()
            ));
        }
    }
    match attestation.diverged {
        None if attestation.steps != steps => Err(format!(
            "it attests {}, but the lock has {steps}",
            dsl::counted(attestation.steps, "step")
        )),
        Some(at) if attestation.steps != at => Err(format!(
            "it attests {} and that training diverged at step {at}, which ends a run",
            dsl::counted(attestation.steps, "step")
        )),
        None | Some(_) => Ok(()),
    }
}

/// The value in a record that shows divergence: a loss or gradient norm that is not a finite number, in a step or in
/// the evaluation after the last one. A missing loss (no targets) is not divergence.
pub fn divergence(record: &Record, last: u64) -> Option<(u64, String)> {
    match record {
        Record::Step(step) => {
            let loss = step.loss.unwrap_or(0.0);
            (!(loss.is_finite() && step.grad_norm.is_finite())).then(|| {
                let what = format!("has loss {loss} and gradient norm {}", step.grad_norm);
                (step.step, format!("step {} {what}", step.step))
            })
        }
        // After an earlier evaluation, the next step shows it.
        Record::Evaluation(evaluation) if evaluation.step == last => {
            let loss = evaluation.nll.filter(|nll| !nll.is_finite())?;
            Some((last, format!("the evaluation after step {last} has loss {loss}")))
        }
        Record::Start(_) | Record::Evaluation(_) => None,
    }
}

fn of_the_log(
    attestation: &Attestation,
    records: &[Record],
    head: Option<Digest>,
) -> Result<(), String> {
    if head != Some(attestation.metrics) {
        let last = head.map_or_else(|| "nothing".to_owned(), |head| head.short());
        return Err(format!(
            "it attests {} metrics lines with a chain that ends in {}, but metrics.jsonl has {} and ends in {last}",
            attestation.lines,
            attestation.metrics.short(),
            records.len()
        ));
    }
    let counted: u64 = records
        .iter()
        .map(|record| match record {
            Record::Step(step) => step.counted,
            Record::Start(_) | Record::Evaluation(_) => 0,
        })
        .fold(0, u64::saturating_add);
    for (what, attested, logged) in [
        ("metrics lines", attestation.lines, records.len() as u64),
        ("counted targets", attestation.counted, counted),
    ] {
        if attested != logged {
            return Err(format!("it attests {attested} {what}, but metrics.jsonl has {logged}"));
        }
    }
    Ok(())
}

/// How far a log with lines in order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) step: u64,
    /// The evaluation after that step is required and missing.
    pub(crate) owes_evaluation: bool,
}

/// Refuses a log that is not the start of this lock's: each step once and in order, and an evaluation after each step
/// that requires one. A log that ends early is accepted.
pub(crate) fn order(expected: Expected<'_>, records: &[Record]) -> Result<Reached, String> {
    let Expected { digests, steps, evaluates_every: every, tasks: _ } = expected;
    let due = |step: u64| step == steps || (every > 0 && step.is_multiple_of(every));
    let (mut step, mut owed) = (0, false);
    for (at, record) in records.iter().enumerate() {
        match record {
            Record::Start(Start { lock, eval, initial: _ }) if at == 0 => {
                for (what, theirs, ours) in
                    [("lock", lock, digests.train), ("evaluation section", eval, digests.eval)]
                {
                    if *theirs != ours {
                        return Err(format!(
                            "metrics.jsonl belongs to {what} {}, but the lock has {}",
                            theirs.short(),
                            ours.short()
                        ));
                    }
                }
            }
            Record::Step(next) if at > 0 && !owed && next.step == step + 1 && step < steps => {
                step += 1;
                owed = due(step);
            }
            Record::Evaluation(evaluation) if owed && evaluation.step == step => owed = false,
            Record::Start(_) | Record::Step(_) | Record::Evaluation(_) => {
                return Err(format!(
                    "line {} of metrics.jsonl is {}, which is out of order",
                    at + 1,
                    record.place()
                ));
            }
        }
    }
    Ok(Reached { step, owes_evaluation: owed })
}

/// Like [`order`], for a finished run: up to the last step with its evaluation and with every loss a number; or up to
/// the step at which training diverged, by the attestation.
pub(crate) fn check_complete(
    expected: Expected<'_>,
    diverged: Option<u64>,
    records: &[Record],
) -> Result<(), String> {
    let Reached { step, owes_evaluation } = order(expected, records)?;
    if let Some(at) = diverged {
        return ends_diverged(expected, at, records);
    }
    if owes_evaluation {
        return Err(format!("metrics.jsonl has no evaluation after step {step}"));
    }
    let steps = expected.steps;
    if step != steps {
        return Err(format!("metrics.jsonl ends with step {step} of {steps}"));
    }
    // A run stops at such a step, so a finished run never logged one.
    let stops = records.iter().find_map(|record| match record {
        Record::Step(step) => {
            let finite = step.loss.is_some_and(f64::is_finite) && step.grad_norm.is_finite();
            (!finite).then_some(step)
        }
        Record::Start(_) | Record::Evaluation(_) => None,
    });
    match stops {
        None => Ok(()),
        Some(Step { step, loss, grad_norm, .. }) => {
            let loss = loss.map_or_else(|| "none".to_owned(), |loss| loss.to_string());
            Err(format!(
                "metrics.jsonl has loss {loss} and gradient norm {grad_norm} at step {step}, where every run stops"
            ))
        }
    }
}

/// Checks that the first record that shows divergence is the last one, at the attested step.
fn ends_diverged(expected: Expected<'_>, at: u64, records: &[Record]) -> Result<(), String> {
    let shows = |(line, record)| Some((line, divergence(record, expected.steps)?));
    let attested = format!("it attests that training diverged at step {at}");
    match (1..).zip(records).find_map(shows) {
        Some((line, (step, _))) if line == records.len() && step == at => Ok(()),
        Some((line, (_, what))) => Err(format!(
            "{attested}, but line {line} of {} of metrics.jsonl shows that {what}",
            records.len()
        )),
        None => Err(format!("{attested}, but every loss in metrics.jsonl is a finite number")),
    }
}

/// Refuses an evaluation without the scores of the lock's suites, or with scores that do not follow from what was logged
/// with them. Returns the number of evaluations.
pub(crate) fn of_suites(expected: Expected<'_>, records: &[Record]) -> Result<usize, String> {
    let mut count = 0;
    for record in records {
        let Record::Evaluation(Evaluation { step, suites, .. }) = record else { continue };
        let last = *step == expected.steps;
        if let Some(why) = metrics::mismatch_of_suites(suites, expected.tasks, last) {
            return Err(format!("the evaluation after step {step} {why}"));
        }
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
pub(crate) mod tests {
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
            let (loss, batch) = (4.0 / step as f64, Digest::of("batch", &step.to_string()));
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
        assert_eq!(error.kind, crate::run::RunErrorKind::Finding);
        assert!(error.message.contains(what), "{what}: {error}");
        assert!(error.message.contains(&paths.folder.display().to_string()), "{error}");
    }

    #[test]
    fn a_whole_run_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let expected = expected("one");
        let paths = write(folder.path(), expected, &log_of(expected));
        let (attestation, records) = read(&paths, expected).unwrap();
        assert_eq!((attestation.lines, records.len()), (7, 7));
    }

    #[test]
    fn a_log_that_was_cut_swapped_or_altered_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let one = expected("one");
        let paths = write(folder.path(), one, &log_of(one));
        let whole = std::fs::read_to_string(paths.metrics()).unwrap();
        let line_end = whole.trim_end().rfind('\n').unwrap() + 1;
        // Prefixes that end inside lines and between them.
        for end in (0..whole.len() - 1).step_by(41).chain([line_end]) {
            std::fs::write(paths.metrics(), &whole[..end]).unwrap();
            refused(&paths, one, "it attests 7 metrics lines with a chain that ends in");
        }
        std::fs::write(paths.metrics(), format!("{whole}{{\"kind\":")).unwrap();
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

        std::fs::write(paths.metrics(), whole.replacen("\"loss\":2.0", "\"loss\":1.0", 1)).unwrap();
        let paths = write(folder.path(), one, &log_of(one));
        std::fs::write(paths.metrics(), whole.replacen("\"loss\":2.0", "\"loss\":1.0", 1)).unwrap();
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
                let why = "steps and that training diverged at step";
                refused(&attest(&records, 4, Some(at)), one, why);
            }
            refused(
                &attest(&records, at + 1, Some(at + 1)),
                one,
                "it attests that training diverged",
            );
        }
        refused(
            &attest(&diverging(one, 4, f64::NAN, 1.0), 4, None),
            one,
            "no evaluation after step 4",
        );
        let finite = diverging(one, 3, 1.0, 1.0);
        refused(
            &attest(&finite, 3, Some(3)),
            one,
            "every loss in metrics.jsonl is a finite number",
        );
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
            (vec![scores(task, 0.4, &[])], last(), "no share of 2 questions"),
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
            let what = if loss.is_none() {
                "it attests 28 counted targets"
            } else {
                "where every run stops"
            };
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
}
