//! A canonc command run by another: `demo` runs `compare`, `compare` runs `run`.
//!
//! A signal sent only to the outer process reaches the inner one, which then ends as usual, with a checkpoint. A signal
//! sent to both (Ctrl-C at a terminal) counts once in the inner one.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::fail::{Exit, Failure, Outcome};
use crate::output;
use crate::signals::{self, ignores_hangup, stop_on_signals};

/// Runs commands one after another and prints each as one would type it; `again` is the command that resumes them.
pub fn steps(steps: Vec<Vec<String>>, again: &str) -> Outcome {
    let stop = stop_on_signals()?;
    for step in steps {
        output::note(&format!("\n$ canonc {}", step.join(" ")));
        let words: Vec<OsString> = step.into_iter().map(OsString::from).collect();
        if run_canonc(&words, None, &stop)? == Exit::Interrupted {
            output::note(&format!("interrupted; `{again}` continues from there"));
            return Ok(Exit::Interrupted);
        }
    }
    Ok(Exit::Fine)
}

/// Runs a command and returns its own exit code. The command has printed its own errors. If other commands run at the
/// same time, each line of its output starts with its name.
pub fn run_canonc(
    words: &[OsString],
    name: Option<&str>,
    stop: &AtomicBool,
) -> Result<Exit, Failure> {
    let said = || {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        format!("`canonc {}`", words.join(" "))
    };
    if stop.load(Ordering::Relaxed) {
        return Ok(Exit::Interrupted);
    }
    let program = std::env::current_exe().map_err(|error| {
        Failure::machine(format!("canonc cannot find its own program: {error}"))
    })?;
    let status = wait(Command::new(program).args(words), name)
        .map_err(|error| Failure::machine(format!("{} cannot be started: {error}", said())))?;
    if let Some(outcome) = outcome(status) {
        return outcome;
    }
    // It was stopped before it could handle the signal.
    if status.code().is_none() && stop.load(Ordering::Relaxed) {
        return Ok(Exit::Interrupted);
    }
    Err(Failure::machine(format!("{} ended early ({status})", said()))
        .help("the same command continues from its last checkpoint"))
}

/// What the exit code of another canonc means, which has shown its own message; `None` if it is none of canonc's.
pub fn outcome(status: ExitStatus) -> Option<Outcome> {
    match status.code()? {
        0 => Some(Ok(Exit::Fine)),
        75 => Some(Ok(Exit::Interrupted)),
        1 => Some(Err(Failure::shown(Exit::Finding))),
        2 => Some(Err(Failure::shown(Exit::BadInput))),
        3 => Some(Err(Failure::shown(Exit::Machine))),
        _ => None,
    }
}

fn wait(command: &mut Command, name: Option<&str>) -> std::io::Result<ExitStatus> {
    let hangup = (!ignores_hangup()).then_some(SIGHUP);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGUSR2].into_iter().chain(hangup))?;
    let handle = signals.handle();
    if name.is_some() {
        command.stderr(Stdio::piped());
    }
    // Until it listens, so that a signal never ends it without a checkpoint.
    signals::hold();
    let spawned = command.spawn();
    signals::release();
    let mut child = spawned?;
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let forward = std::thread::spawn(move || {
        for _ in signals.forever() {
            // SIGUSR1: a second one does not force an exit. The process may have ended meanwhile.
            let _ = id.map(|id| kill_process(id, Signal::USR1));
        }
    });
    if let (Some(name), Some(said)) = (name, child.stderr.take()) {
        // Until the process closes the pipe, which it does by ending.
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            output::note(&format!("{name}: {line}"));
        }
    }
    let status = child.wait();
    handle.close();
    let _ = forward.join();
    status
}
