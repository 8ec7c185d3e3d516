//! Reads the windows of the next step while this one is computed.
//!
//! In: which micro-batches of each step this process computes, and which one it checks. Out: their windows, in order. Must stay true: the windows of
//! a step are those that [`Job::batch`] gives; an error of reading is the error of the step that needs those windows; one
//! step is read ahead, no more.

use std::sync::mpsc::{Receiver, Sender, channel};

use data::batch::Batch;
use records::job::{Job, Reader};
use records::run::RunError;

/// The windows of one step, and which one.
type Answer = (u64, Result<Vec<Batch>, RunError>);

/// A thread that reads. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Ahead {
    asks: Sender<u64>,
    answers: Receiver<Answer>,
    /// The step that is being read.
    asked: Option<u64>,
    /// The run has so many steps.
    last: u64,
}

impl Ahead {
    /// Reads these micro-batches of each step; `checked`, too, at the end, in steps with a check.
    pub(crate) fn new(job: &Job, own: Vec<u64>, checked: Option<u64>) -> Ahead {
        let cadence = job.cadence;
        let (asks, asked) = channel::<u64>();
        let (answer, answers) = channel();
        let mut reader: Reader = job.reader();
        let read = move || {
            for step in asked {
                let checked = checked.filter(|_| cadence.checks_in(step + 1));
                let indices = own.iter().copied().chain(checked);
                let batches = indices.map(|index| reader.batch(step, index)).collect();
                // Nobody waits for it any more.
                if answer.send((step, batches)).is_err() {
                    break;
                }
            }
        };
        // Without a thread the first answer is missing, which is an error.
        let _ = std::thread::Builder::new().name("windows".to_owned()).spawn(read);
        Ahead { asks, answers, asked: None, last: job.steps }
    }

    /// The windows of the step after `step` updates. Begins to read those of the next one.
    pub(crate) fn take(&mut self, step: u64) -> Result<Vec<Batch>, RunError> {
        if self.asked != Some(step) {
            self.ask(step);
        }
        let found = loop {
            match self.answers.recv() {
                Ok((of, batches)) if of == step => break batches,
                // The windows of a step that is not computed after all.
                Ok(_) => {}
                Err(_) => {
                    break Err(RunError::machine(
                        "the thread that reads training windows ended early",
                        "the same command continues from the last checkpoint",
                    ));
                }
            }
        };
        self.asked = None;
        if found.is_ok() && step + 1 < self.last {
            self.ask(step + 1);
        }
        found
    }

    fn ask(&mut self, step: u64) {
        // If the thread has ended, the missing answer says so.
        let _ = self.asks.send(step);
        self.asked = Some(step);
    }
}
