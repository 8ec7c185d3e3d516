//! Evaluations of a run.
//!
//! In: a run after a step that an evaluation is due after. Out: the evaluation, logged; or nothing, if the run was asked
//! to stop meanwhile. Must stay true: a log has whole evaluations only; the checkpoint of a step that was not evaluated
//! ends with the step's own line, and a process that resumes from it evaluates first, so that every log has the same
//! lines.

use std::sync::atomic::Ordering;
use std::time::Instant;

use compiler::digest::Digest;
use records::finished::divergence;
use records::job::Job;
use records::metrics::{Appended, Record};
use records::run::{Event, RunError};

use super::{Run, TrainOutcome};

/// Whether the log up to `head` ends with a step that is to be evaluated.
pub(super) fn is_owed(
    job: &Job,
    head: Option<Digest>,
    (records, heads): (&[Record], &[Digest]),
) -> bool {
    let line = head.and_then(|head| heads.iter().position(|known| *known == head));
    match line.and_then(|line| records.get(line)) {
        Some(record @ Record::Step(step)) => {
            job.cadence.evaluates_after(step.step, job.steps)
                && divergence(record, job.steps).is_none()
        }
        Some(Record::Start(_) | Record::Evaluation(_)) | None => false,
    }
}

impl Run<'_> {
    /// Evaluates the state and logs it. Returns false if it was asked to stop before the end, and then logs nothing.
    pub(super) fn evaluate(&mut self) -> Result<bool, RunError> {
        let start = Instant::now();
        let stop = self.options.stop;
        let Some(evaluation) = self.measurer.measure_until(self.job, &self.state, stop)? else {
            // It may be another rank that was asked.
            stop.store(true, Ordering::Relaxed);
            return Ok(false);
        };
        let seconds = start.elapsed().as_secs_f64();
        let new = self.append(&Record::Evaluation(evaluation.clone()))?;
        if new == Appended::New {
            let step = self.state.step;
            self.time(&format!("{{\"evaluation\":{step},\"evaluation_seconds\":{seconds:?}}}"))?;
        }
        self.observer.evaluation(&evaluation, seconds);
        self.diverges(&Record::Evaluation(evaluation));
        Ok(true)
    }

    /// Does the evaluation that the last process was stopped in. Its checkpoint is then one of the evaluated state.
    pub(super) fn evaluate_first(&mut self) -> Result<Option<TrainOutcome>, RunError> {
        let step = self.state.step;
        if self.evaluate()? {
            self.log.sync()?;
            self.keep_kernels()?;
            if let (Some(saved), Some(chain)) = (&self.saved, self.log.head()) {
                self.saved = Some(self.store.rechain(saved, chain)?);
            }
            let goes_on = step == self.job.steps || self.diverged.is_some() || !self.stops();
            if goes_on {
                return Ok(None);
            }
        }
        self.tell(Event::Interrupted { step })?;
        Ok(Some(TrainOutcome::Interrupted { step }))
    }
}
