//! Ctrl-C, SIGTERM and SIGHUP, for commands that have something to finish or to clear away first.
//!
//! In: nothing. Out: a flag that the first signal raises. Must stay true: a second one ends the process at once,
//! whatever it is doing, as a shell would say it. SIGUSR1, by which one canonc tells another, and SIGHUP, which a
//! terminal and its shell both send when it closes, only ever raise the flag; under `nohup` SIGHUP is left ignored.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag::{register, register_conditional_shutdown};

use crate::fail::Failure;

/// A second Ctrl-C ends as a shell would say it.
const INTERRUPTED_TWICE: i32 = 130;

/// Becomes true with the first SIGINT, SIGTERM, SIGHUP or SIGUSR1; a second of the first two ends the process.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let cannot = |error| Failure::machine(format!("signals cannot be waited for: {error}"));
    let (stop, before) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds it false and sets it.
        register_conditional_shutdown(signal, INTERRUPTED_TWICE, before.clone())
            .and_then(|_| register(signal, before.clone()))
            .and_then(|_| register(signal, stop.clone()))
            .map_err(cannot)?;
    }
    register(SIGUSR1, stop.clone()).map_err(cannot)?;
    if !ignores_hangup() {
        register(SIGHUP, stop.clone()).map_err(cannot)?;
    }
    Ok(stop)
}

/// Whether whoever started this process wants it to outlive its terminal, as `nohup` does. Where the system does not
/// say, nobody does.
pub fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}
