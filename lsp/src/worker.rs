//! The thread that judges documents, so that typing and questions never wait for an arch to be built.
//!
//! In: jobs, of which only the newest of each document counts. Out: reports. Must stay true: a fault while judging one
//! document loses that report only; the stack is large enough for the deepest text that the compiler accepts.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Builder;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::analysis::{Analyst, Facts, Job, Report};
use crate::finding::Finding;

/// Stack size. It is reserved rather than used: pages are allocated when touched.
const STACK_BYTES: usize = 256 << 20;

/// The thread.
pub(crate) struct Worker {
    /// Sends jobs; the thread ends when it is dropped.
    pub(crate) jobs: Sender<Job>,
    /// Receives a report for every job that no later one replaced.
    pub(crate) reports: Receiver<Report>,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Worker> {
        let (jobs, received) = unbounded();
        let (sender, reports) = unbounded();
        Builder::new()
            .name("analysis".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || work(&received, &sender))?;
        Ok(Worker { jobs, reports })
    }
}

fn work(jobs: &Receiver<Job>, reports: &Sender<Report>) {
    let mut analyst = Analyst::default();
    let mut waiting: VecDeque<Job> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            match jobs.recv() {
                Ok(job) => waiting.push_back(job),
                Err(_) => return,
            }
        }
        for job in jobs.try_iter() {
            waiting.retain(|known| known.name != job.name);
            waiting.push_back(job);
        }
        let Some(job) = waiting.pop_front() else { continue };
        let report = catch_unwind(AssertUnwindSafe(|| analyst.report(&job)));
        let report = report.unwrap_or_else(|_| {
            analyst = Analyst::default();
            failed(&job)
        });
        if reports.send(report).is_err() {
            return;
        }
    }
}

/// The report of a document that could not be judged because of a fault in this program.
fn failed(job: &Job) -> Report {
    let message = "canonc failed on this text; its other findings are not shown".to_owned();
    let mut finding = Finding::error("internal-error", (0, 0), message);
    finding.help.push("`canonc check` shows the fault: please report it with the file".to_owned());
    Report {
        name: job.name.clone(),
        version: job.version,
        findings: vec![finding],
        facts: Facts::Nothing,
    }
}
