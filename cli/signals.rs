//! Ctrl-C and SIGTERM, for commands that have something to finish or to clear away first.
//!
//! In: nothing. Out: a flag that the first signal raises. Must stay true: a second one ends the process at once,
//! whatever it is doing, as a shell would say it; SIGUSR1, by which one canonc tells another, only ever raises the flag.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag::{register, register_conditional_shutdown};

use crate::fail::Failure;

/// A second Ctrl-C ends as a shell would say it.
const INTERRUPTED_TWICE: i32 = 130;

/// Becomes true with the first SIGINT, SIGTERM or SIGUSR1; a second of the first two ends the process.
pub(crate) fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
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
    Ok(stop)
}
