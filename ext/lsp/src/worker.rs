//! The thread that judges documents, so that typing and questions never wait for an arch to be built.
//!
//! The document that is being edited comes first, and the others have their turns meanwhile. A fault while judging one
//! document loses that result only.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Builder;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::analysis::{Analyst, DocumentResult, Facts, Findings, Job, Judged, Part};
use crate::finding::Finding;

/// Stack size. It is reserved rather than used: pages are allocated when touched.
const STACK_BYTES: usize = 256 << 20;

/// The thread.
pub(crate) struct Worker {
    /// Sends jobs; the thread ends when it is dropped.
    pub(crate) jobs: Sender<Job>,
    /// Receives the results of every job that no later one replaced.
    pub(crate) results: Receiver<DocumentResult>,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Worker> {
        let (jobs, received) = unbounded();
        let (sender, results) = unbounded();
        Builder::new()
            .name("analysis".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || work(&received, &sender))?;
        Ok(Worker { jobs, results })
    }
}

/// The jobs that wait, at most one of each document.
#[derive(Default)]
struct Queue(VecDeque<Job>);

impl Queue {
    /// Adds the jobs that have arrived.
    fn receive(&mut self, jobs: &Receiver<Job>) {
        for job in jobs.try_iter() {
            self.add(job);
        }
    }

    /// Adds a job in place of an older one of its document. It goes to the front if the document was edited. Otherwise
    /// it has the turn of the older one, so that a document is judged however often its imports change.
    fn add(&mut self, job: Job) {
        let older = self.0.iter().position(|older| older.name == job.name);
        if job.is_edited {
            older.and_then(|at| self.0.remove(at));
            self.0.push_front(job);
        } else if let Some(older) = older.and_then(|at| self.0.get_mut(at)) {
            *older = job;
        } else {
            self.0.push_back(job);
        }
    }

    /// Whether a job of a document waits.
    fn holds(&self, name: &str) -> bool {
        self.0.iter().any(|job| job.name == name)
    }
}

/// Does jobs until no more can be sent.
pub(crate) fn work(jobs: &Receiver<Job>, results: &Sender<DocumentResult>) {
    let mut analyst = Analyst::default();
    let mut waiting = Queue::default();
    loop {
        if waiting.0.is_empty() {
            match jobs.recv() {
                Ok(job) => waiting.add(job),
                Err(_) => return,
            }
        }
        waiting.receive(jobs);
        let Some(job) = waiting.0.pop_front() else { continue };
        let judged = catch_unwind(AssertUnwindSafe(|| analyst.findings(&job)));
        let (findings, judged) = judged.unwrap_or_else(|_| {
            analyst = Analyst::default();
            (Findings { shown: vec![failed()], files: None }, Judged::Other(Facts::Nothing))
        });
        let result = |part| DocumentResult { name: job.name.clone(), job: job.number, part };
        if results.send(result(Part::Findings(findings))).is_err() {
            return;
        }
        let mut is_newest = || {
            waiting.receive(jobs);
            !waiting.holds(&job.name)
        };
        let facts = catch_unwind(AssertUnwindSafe(|| judged.facts(&mut is_newest)));
        let Some(facts) = facts.unwrap_or(Some(Facts::Nothing)) else { continue };
        if results.send(result(Part::Facts(facts))).is_err() {
            return;
        }
    }
}

/// The finding of a document that could not be judged because of a fault in this program.
fn failed() -> Finding {
    let message = "canonc failed on this text; its other findings are not shown".to_owned();
    let mut finding = Finding::error("internal-error", (0, 0), message);
    finding.help.push("`canonc check` shows the fault: please report it with the file".to_owned());
    finding
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::{DocumentKind, Store};

    fn job(number: u64, name: &str, is_edited: bool) -> Job {
        Job {
            number,
            name: name.to_owned(),
            kind: DocumentKind::Canon,
            text: "".into(),
            is_edited,
            store: Arc::new(Store::default()),
        }
    }

    /// Adds these jobs; the one of `z` is edited.
    fn add(queue: &mut Queue, number: u64, names: &[&str]) {
        for name in names {
            queue.add(job(number, name, *name == "z"));
        }
    }

    fn waiting(queue: &Queue) -> Vec<(&str, u64)> {
        queue.0.iter().map(|job| (job.name.as_str(), job.number)).collect()
    }

    #[test]
    fn an_edited_document_is_first_and_the_others_keep_their_turns() {
        let mut queue = Queue::default();
        add(&mut queue, 1, &["a", "b", "z"]);
        assert_eq!(waiting(&queue), [("z", 1), ("a", 1), ("b", 1)]);
        add(&mut queue, 2, &["a", "b", "z"]);
        assert_eq!(waiting(&queue), [("z", 2), ("a", 2), ("b", 2)]);
        // An import of the edited document changed as well: it waits as before, in front.
        queue.add(job(3, "z", false));
        assert_eq!(waiting(&queue), [("z", 3), ("a", 2), ("b", 2)]);
        assert!(queue.holds("a") && !queue.holds("c"));
    }

    #[test]
    fn every_document_is_judged_while_somebody_types() {
        let mut queue = Queue::default();
        let mut judged = Vec::new();
        for edit in 0..4 {
            // The next edit arrives when the edited document and one other are judged.
            add(&mut queue, edit, &["a", "b", "c", "z"]);
            judged.extend([queue.0.pop_front(), queue.0.pop_front()].map(|job| job.unwrap().name));
        }
        assert_eq!(judged, ["z", "a", "z", "b", "z", "c", "z", "a"]);
    }
}
