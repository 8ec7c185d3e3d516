//! Evaluations of a run, which are steps of its loop.
//!
//! A log has whole evaluations only. If a process stops before one ends, the checkpoint's log ends with the line of the
//! training step, and a process that resumes from it evaluates first; so every log has the same lines.

use std::sync::atomic::Ordering;
use std::time::Instant;

use compiler::digest::Digest;
use dsl::Problem;
use records::finished::divergence;
use records::job::Job;
use records::metrics::{Appended, Record};

use super::TrainingRun;

/// Whether the log up to `head` ends with a step that is to be evaluated.
pub(super) fn is_due(
    job: &Job,
    head: Option<Digest>,
    (records, heads): (&[Record], &[Digest]),
) -> bool {
    let line = head.and_then(|head| heads.iter().position(|known| *known == head));
    line.and_then(|line| records.get(line)).is_some_and(|record| is_due_after(job, record))
}

/// Whether an evaluation comes after that line.
pub(super) fn is_due_after(job: &Job, record: &Record) -> bool {
    match record {
        Record::Step(step) => {
            job.cadence.evaluates_after(step.step, job.steps)
                && divergence(record, job.steps).is_none()
        }
        Record::Start(_) | Record::Evaluation(_) => false,
    }
}

impl TrainingRun<'_> {
    /// Evaluates the state and logs it. If the run is asked to stop before the end, nothing is logged and the
    /// evaluation stays due.
    pub(super) fn evaluate(&mut self) -> Result<(), Problem> {
        let start = Instant::now();
        let stop = self.options.stop;
        let Some(evaluation) = self.measurer.measure_until(self.job, &self.state, stop)? else {
            // Another rank may have received the request to stop.
            stop.store(true, Ordering::Relaxed);
            return Ok(());
        };
        let seconds = start.elapsed().as_secs_f64();
        let record = Record::Evaluation(evaluation.clone());
        if self.append(&record)? == Appended::New {
            let step = self.state.step;
            self.time(&format!("{{\"evaluation\":{step},\"evaluation_seconds\":{seconds:?}}}"))?;
        }
        self.evaluation_due = false;
        self.observer.evaluation(&evaluation, seconds);
        self.diverges(&record);
        Ok(())
    }
}
