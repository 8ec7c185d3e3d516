//! The thread that judges documents, so that typing and questions never wait for an arch to be built.
//!
//! In: jobs, of which only the newest of each document counts. Out: reports: findings first, then facts unless a newer
//! text is waiting. Must stay true: a fault while judging one
//! document loses that report only; the stack is large enough for the deepest text that the compiler accepts.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Builder;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::analysis::{Analyst, Facts, Job, Judged, Part, Report};
use crate::finding::Finding;

/// Stack size. It is reserved rather than used: pages are allocated when touched.
const STACK_BYTES: usize = 256 << 20;

/// The thread.
pub(crate) struct Worker {
    /// Sends jobs; the thread ends when it is dropped.
    pub(crate) jobs: Sender<Job>,
    /// Receives the reports of every job that no later one replaced.
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
        take(&mut waiting, jobs);
        let Some(job) = waiting.pop_front() else { continue };
        let judged = catch_unwind(AssertUnwindSafe(|| analyst.findings(&job)));
        let (findings, judged) = judged.unwrap_or_else(|_| {
            analyst = Analyst::default();
            (vec![failed()], Judged::Other(Facts::Nothing))
        });
        let report = |part| Report { name: job.name.clone(), version: job.version, part };
        if reports.send(report(Part::Findings(findings))).is_err() {
            return;
        }
        let mut is_newest = || {
            take(&mut waiting, jobs);
            waiting.iter().all(|newer| newer.name != job.name)
        };
        let facts = catch_unwind(AssertUnwindSafe(|| judged.facts(&mut is_newest)));
        let Some(facts) = facts.unwrap_or(Some(Facts::Nothing)) else { continue };
        if reports.send(report(Part::Facts(facts))).is_err() {
            return;
        }
    }
}

/// Takes the jobs that have arrived: the newest of each document.
fn take(waiting: &mut VecDeque<Job>, jobs: &Receiver<Job>) {
    for job in jobs.try_iter() {
        waiting.retain(|known| known.name != job.name);
        waiting.push_back(job);
    }
}

/// The finding of a document that could not be judged because of a fault in this program.
fn failed() -> Finding {
    let message = "canonc failed on this text; its other findings are not shown".to_owned();
    let mut finding = Finding::error("internal-error", (0, 0), message);
    finding.help.push("`canonc check` shows the fault: please report it with the file".to_owned());
    finding
}
