//! Ctrl-C, SIGTERM, SIGHUP and SIGUSR2, and the end of a time, for commands that must finish or clean up before they
//! exit.
//!
//! SIGUSR1, which one canonc sends to another, SIGUSR2, which Slurm sends before the end of a job, and SIGHUP, which a
//! terminal and its shell both send when it closes, only ever set the flag; under `nohup` SIGHUP stays ignored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag::{register, register_conditional_shutdown};

use crate::fail::Failure;

/// The command whose stops are agreed from its first instant: a signal before it can listen waits until it does.
pub(crate) const HELD_BY: &str = "run";

fn held() -> SigSet {
    SigSet::from_iter([
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ])
}

/// Lets signals to this thread, and to the programs and threads that it starts, wait until [`release`]. The first thread of a
/// program never releases them: it only waits for the one that does the work.
pub fn hold() {
    // It fails only for a mask that does not exist.
    let _ = held().thread_block();
}

/// Delivers the signals that wait, and later ones.
pub fn release() {
    let _ = held().thread_unblock();
}

/// Exit code after a second Ctrl-C, as a shell would report it.
const INTERRUPTED_TWICE: i32 = 130;

/// The flag is set by the first SIGINT, SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2; a second SIGINT or SIGTERM ends the process.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = stop_on_most()?;
    register(SIGUSR2, stop.clone()).map_err(cannot)?;
    release();
    Ok(stop)
}

/// The same, but SIGUSR2 does nothing: Slurm sends it to a job's every process, and the reader of a pipe decides when it
/// has read enough.
pub fn stop_on_most_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = stop_on_most()?;
    release();
    Ok(stop)
}

fn stop_on_most() -> Result<Arc<AtomicBool>, Failure> {
    let (stop, before) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: at the first signal the flag is still false, and is set afterwards.
        register_conditional_shutdown(signal, INTERRUPTED_TWICE, before.clone())
            .and_then(|_| register(signal, before.clone()))
            .and_then(|_| register(signal, stop.clone()))
            .map_err(cannot)?;
    }
    register(SIGUSR1, stop.clone())
        .and_then(|_| register(SIGUSR2, Arc::default()))
        .map_err(cannot)?;
    if !ignores_hangup() {
        register(SIGHUP, stop.clone()).map_err(cannot)?;
    }
    Ok(stop)
}

fn cannot(error: std::io::Error) -> Failure {
    Failure::machine(format!("cannot wait for signals: {error}"))
}

/// Most time before the end of a Slurm job at which a run stops.
const NOTICE: Duration = Duration::from_secs(120);

/// Sets the flag after `asked`, and in a Slurm job two minutes before its end: a job of a few minutes keeps nine tenths.
pub fn stop_in_time(stop: &Arc<AtomicBool>, asked: Option<Duration>) {
    let job = std::env::var("SLURM_JOB_END_TIME").ok().and_then(|end| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let left = Duration::from_secs(end.parse().ok()?).checked_sub(now)?;
        Some(left - NOTICE.min(left / 10))
    });
    let Some(after) = [asked, job].into_iter().flatten().min() else { return };
    let stop = stop.clone();
    // It ends with the process.
    let _waiting = std::thread::spawn(move || {
        std::thread::sleep(after);
        stop.store(true, Ordering::Relaxed);
    });
}

/// Whether this process should outlive its terminal, as under `nohup`. Assumes no if unknown.
pub fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}
