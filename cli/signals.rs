//! Ctrl-C and SIGTERM, for commands that have something to finish or to clear away first.
//!
//! In: nothing. Out: a flag that the first signal raises. Must stay true: the second signal ends the process at
//! once, whatever it is doing, as a shell would say it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::fail::Failure;

/// A second Ctrl-C ends as a shell would say it.
const INTERRUPTED_TWICE: i32 = 130;

/// Becomes true with the first SIGINT or SIGTERM; the second ends the process.
pub(crate) fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: the first signal finds it false and sets it.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED_TWICE, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Failure::machine(format!("signals cannot be waited for: {error}")))?;
    }
    Ok(stop)
}
