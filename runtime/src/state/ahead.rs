//! Reads the windows of the next step while this one is computed.
//!
//! A thread reads only the micro-batches that this process computes or checks, one step ahead and no more. An error of
//! reading is reported by the step that needs those windows.

use std::sync::mpsc::{Receiver, Sender, channel};

use dsl::Problem;

use crate::ranks::UnderWay;
use data::batch::Batch;
use records::job::{BatchReader, Job};

/// The windows of one step, and which one.
type Answer = (u64, Result<Vec<Batch>, Problem>);

/// The name of the thread that reads.
const THREAD: &str = "windows";

/// A thread that reads. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Ahead {
    asks: Sender<u64>,
    answers: Receiver<Answer>,
    /// The step that is being read.
    asked: Option<u64>,
    /// The windows of the next step, once this rank has begun to announce them.
    announcement: Option<Announcement>,
    /// Number of steps of the run.
    last: u64,
}

/// This rank's windows of a step, and the exchange in which all ranks announce theirs.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) step: u64,
    pub(crate) batches: Result<Vec<Batch>, Problem>,
    pub(crate) exchange: UnderWay,
}

impl Ahead {
    /// Reads these micro-batches of each step; `checked`, too, at the end, in steps with a check.
    pub(crate) fn new(job: &Job, local: Vec<u64>, checked: Option<u64>) -> Ahead {
        let cadence = job.cadence;
        let mut reader: BatchReader = job.reader();
        let indices = move |step| {
            let checked = checked.filter(|_| cadence.checks_in(step + 1));
            local.iter().copied().chain(checked).collect()
        };
        Ahead::reading(job.steps, indices, move |step, index| reader.batch(step, index))
    }

    /// Reads the micro-batches that `of` lists for each step.
    fn reading(
        last: u64,
        of: impl Fn(u64) -> Vec<u64> + Send + 'static,
        mut read: impl FnMut(u64, u64) -> Result<Batch, Problem> + Send + 'static,
    ) -> Ahead {
        let (asks, asked) = channel::<u64>();
        let (answer, answers) = channel();
        let reads = move || {
            for step in asked {
                let batches = of(step).into_iter().map(|index| read(step, index)).collect();
                // Nobody waits for it any more.
                if answer.send((step, batches)).is_err() {
                    break;
                }
            }
        };
        // Without a thread the first answer is missing, which is an error.
        let _ = std::thread::Builder::new().name(THREAD.to_owned()).spawn(reads);
        Ahead { asks, answers, asked: None, announcement: None, last }
    }

    /// The windows of the step after `step` updates.
    pub(crate) fn take(&mut self, step: u64) -> Result<Vec<Batch>, Problem> {
        if self.asked != Some(step) {
            self.ask(step);
        }
        self.asked = None;
        loop {
            match self.answers.recv() {
                Ok((of, batches)) if of == step => return batches,
                // The windows of a step that is not computed after all.
                Ok(_) => {}
                Err(_) => {
                    return Err(Problem::machine(
                        "the thread that reads training windows ended early",
                        "the same command continues from the last checkpoint",
                    ));
                }
            }
        }
    }

    /// Begins to read the windows of the step after `step` updates, if the run has it.
    pub(crate) fn begin(&mut self, step: u64) {
        if self.has(step) && self.asked != Some(step) {
            self.ask(step);
        }
    }

    /// Whether the run has a step after `step` updates.
    pub(crate) fn has(&self, step: u64) -> bool {
        step < self.last
    }

    /// Keeps the announcement of the next step.
    pub(crate) fn keep(&mut self, announcement: Announcement) {
        self.announcement = Some(announcement);
    }

    /// The announcement of the step after `step` updates, if it was made a step ahead.
    pub(crate) fn kept(&mut self, step: u64) -> Option<Announcement> {
        self.announcement.take().filter(|announcement| announcement.step == step)
    }

    fn ask(&mut self, step: u64) {
        // If the thread has ended, the missing answer says so.
        let _ = self.asks.send(step);
        self.asked = Some(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was read: the thread, the step and the micro-batch.
    type Read = (String, u64, u64);

    /// Micro-batches 1, 3 and, in odd steps, 2 are this rank's.
    fn ahead(fails_in: Option<u64>) -> (Ahead, Receiver<Read>) {
        let (tell, told) = channel();
        let indices = |step: u64| if step % 2 == 1 { vec![1, 3, 2] } else { vec![1, 3] };
        let read = move |step, index| {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            tell.send((thread, step, index)).unwrap();
            match fails_in == Some(step) {
                true => Err(Problem::machine("unreadable", "")),
                false => Ok(Batch::default()),
            }
        };
        (Ahead::reading(4, indices, read), told)
    }

    #[test]
    fn only_own_micro_batches_are_read_on_a_thread_one_step_ahead() {
        let (mut ahead, told) = ahead(None);
        let read = |count: usize| -> Vec<(u64, u64)> {
            let read = (0..count).map(|_| told.recv().unwrap());
            read.map(|(thread, step, index)| {
                assert_eq!(thread, THREAD);
                (step, index)
            })
            .collect()
        };
        assert_eq!(ahead.take(0).unwrap().len(), 2);
        assert_eq!(read(2), [(0, 1), (0, 3)]);
        // Nothing is read before it is requested; then it is read even if nobody takes it yet.
        assert!(told.try_recv().is_err());
        ahead.begin(1);
        assert_eq!(read(3), [(1, 1), (1, 3), (1, 2)]);
        assert_eq!(ahead.take(1).unwrap().len(), 3);
        ahead.begin(2);
        ahead.begin(2);
        assert_eq!(ahead.take(2).unwrap().len(), 2);
        assert_eq!(read(2), [(2, 1), (2, 3)]);
        // Another step than the one that was read ahead, then the end of the run.
        ahead.begin(3);
        assert_eq!(ahead.take(0).unwrap().len(), 2);
        assert_eq!(read(5)[3..], [(0, 1), (0, 3)]);
        ahead.begin(4);
        drop(ahead);
        assert!(told.recv().is_err(), "the thread ends, and read nothing of step 4");
    }

    #[test]
    fn an_error_is_that_of_its_step() {
        let (mut ahead, _told) = ahead(Some(1));
        assert!(ahead.take(0).is_ok());
        ahead.begin(1);
        assert_eq!(ahead.take(1).unwrap_err().message, "unreadable");
        assert!(ahead.take(2).is_ok());
    }
}
