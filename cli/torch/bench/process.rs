//! Processes that take turns: each trains or generates a few steps or tokens at a time.
//!
//! In: a command that speaks the protocol below. Out: times, page faults, peak memory. Must stay true: a process ends
//! with its [`Contender`]; if it ends early, the error has its last words.
//!
//! The protocol, in lines: after warming up the process prints a [`Ready`] as JSON. For each number that it reads, it
//! does that many steps and prints [`Steps`]. It ends when its input does. Other lines on its output are ignored.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use canonc::fail::{Exit, Failure, Outcome, reason};
use canonc::output;
use records::platform::{page_faults_of, peak_memory_of};
use runtime::execute::ExecuteError;
use runtime::observe::{Torch, observe};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// Untimed steps before the first timed one. `torch.compile` compiles in them.
pub(super) const WARM_UP: usize = 3;

/// Lines kept of what a process writes on standard error.
const LAST_WORDS: usize = 12;

/// The pause after each group of steps: threads of OpenMP spin a while before they sleep.
const PAUSE: Duration = Duration::from_millis(200);

/// The longest wait for a process to be ready: `torch.compile` may take minutes.
const READY: Duration = Duration::from_secs(20 * 60);

/// How many pauses a process that has closed its output has left.
const GRACE: usize = 25;

/// This program's file.
pub(super) fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::machine(format!("canonc does not find itself: {}", reason(&error)))
    })
}

/// A folder with these files, by name and text, and their paths. It is removed when the value is dropped.
pub(super) fn folder_of<const N: usize>(
    files: [(&str, &str); N],
) -> Result<(TempDir, [PathBuf; N]), Failure> {
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::machine(format!("no working folder can be made: {error}")))?;
    let paths = files.map(|(name, _)| folder.path().join(name));
    for (path, (_, text)) in paths.iter().zip(files) {
        std::fs::write(path, text).map_err(|error| Failure::cannot_write(path, &error))?;
    }
    Ok((folder, paths))
}

/// The first line: what was warmed up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    /// The version of PyTorch or libtorch.
    pub(super) torch: String,
    /// Threads that compute.
    pub(super) threads: usize,
    /// Parameters of the model.
    pub(super) parameters: i64,
    /// Of a decoder of ours, the bytes of weights that a token reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) weight_bytes: Option<u64>,
}

/// The answer to a number of steps.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Steps {
    /// Milliseconds of each.
    pub(super) ms: Vec<f64>,
}

/// A group of steps, timed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub(super) ms: Vec<f64>,
    /// Page faults of all its steps, if the system counts them.
    pub(super) faults: Option<u64>,
}

/// A process that waits for numbers of steps.
pub(super) struct Contender {
    pub(super) name: String,
    child: Child,
    /// `None` after the end.
    input: Option<ChildStdin>,
    /// Its lines, until it closes its output.
    output: Receiver<String>,
    errors: Option<JoinHandle<VecDeque<String>>>,
    pub(super) ready: Ready,
}

impl Contender {
    /// Starts the process and waits until it is warm.
    pub(super) fn start(name: &str, command: &mut Command) -> Result<Contender, Failure> {
        Contender::start_within(READY, name, command)
    }

    fn start_within(
        limit: Duration,
        name: &str,
        command: &mut Command,
    ) -> Result<Contender, Failure> {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().map_err(|error| {
            Failure::machine(format!("{name} cannot be started: {}", reason(&error)))
        })?;
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let errors = errors.map(|errors| {
            std::thread::spawn(move || {
                let mut last = VecDeque::new();
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    if last.len() == LAST_WORDS {
                        last.pop_front();
                    }
                    last.push_back(line);
                }
                last
            })
        });
        let output = output
            .ok_or_else(|| Failure::machine(format!("{name} was started without an output")))?;
        let ready = Ready { torch: String::new(), threads: 0, parameters: 0, weight_bytes: None };
        let name = name.to_owned();
        let output = lines(output);
        let mut contender = Contender { name, child, input, output, errors, ready };
        contender.ready = contender.answer(Some(limit))?;
        std::thread::sleep(PAUSE);
        Ok(contender)
    }

    /// Trains this many steps.
    pub(super) fn steps(&mut self, count: usize) -> Result<Group, Failure> {
        let faults = || page_faults_of(self.child.id());
        let before = faults();
        // A process that has ended is reported by `answer`.
        let _ = self.input.as_mut().map(|input| writeln!(input, "{count}"));
        let Steps { ms } = self.answer(None)?;
        let faults = page_faults_of(self.child.id());
        std::thread::sleep(PAUSE);
        if ms.len() != count || ms.iter().any(|ms| !ms.is_finite() || *ms <= 0.0) {
            return Err(Failure::machine(format!(
                "{} was asked for {count} steps and answered with {ms:?} ms",
                self.name
            )));
        }
        Ok(Group { ms, faults: faults.zip(before).map(|(after, before)| after - before) })
    }

    /// Its peak memory so far, if the system reports it.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        peak_memory_of(self.child.id())
    }

    /// The next line of JSON, within the limit if there is one.
    fn answer<T: DeserializeOwned>(&mut self, limit: Option<Duration>) -> Result<T, Failure> {
        let began = Instant::now();
        loop {
            let line = match limit {
                Some(limit) => self.output.recv_timeout(limit.saturating_sub(began.elapsed())),
                None => self.output.recv().map_err(RecvTimeoutError::from),
            };
            match line {
                Ok(line) => {
                    if let Ok(answer) = serde_json::from_str(&line) {
                        return Ok(answer);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Failure::machine(format!(
                        "{} was started, but did not say that it is ready within {} seconds",
                        self.name,
                        began.elapsed().as_secs()
                    ))
                    .help("the process loads its packages, warms up and prints one line of JSON"));
                }
            }
        }
    }

    /// Waits for its end; a process that goes on without an output is killed.
    fn end(&mut self) -> std::io::Result<std::process::ExitStatus> {
        for _ in 0..GRACE {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(PAUSE);
        }
        self.child.kill()?;
        self.child.wait()
    }

    /// Why it ended before its time.
    fn ended(&mut self) -> Failure {
        self.input = None;
        let status = self.end();
        let errors = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let how = match status.map(|status| (status.code(), status)) {
            Ok((Some(code), _)) => format!("ended with exit code {code}"),
            Ok((None, status)) => format!("was ended ({status})"),
            Err(error) => format!("cannot be waited for: {}", reason(&error)),
        };
        let mut message = format!("{} {how}", self.name);
        if !errors.is_empty() {
            message += "; its last lines:";
        }
        for line in errors {
            message += &format!("\n{line}");
        }
        Failure::machine(message)
    }
}

/// The lines of an output, from a thread that ends with it.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            if send.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    receive
}

/// Checks that all processes have as many parameters and threads as the first, ours.
pub(super) fn equal<'a>(
    contenders: impl IntoIterator<Item = &'a Contender>,
) -> Result<(), Failure> {
    let mut first = None;
    for Contender { name, ready, .. } in contenders {
        let Ready { parameters, threads, torch: _, weight_bytes: _ } = *ready;
        let ours = *first.get_or_insert((parameters, threads));
        if ours != (parameters, threads) {
            return Err(Failure::machine(format!(
                "{name} has {parameters} parameters and {threads} threads, and canonc has {} and {}: they cannot be \
                 compared",
                ours.0, ours.1,
            )));
        }
    }
    Ok(())
}

/// Gives each of `all` a turn in every round, in an order that each round reverses.
pub(super) fn take_turns<T>(
    all: &mut [T],
    rounds: usize,
    mut before: impl FnMut() -> Result<(), Failure>,
    mut turn: impl FnMut(&mut T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for round in 0..rounds {
        output::note(&format!("round {} of {rounds}", round + 1));
        before()?;
        let mut order: Vec<_> = all.iter_mut().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        order.into_iter().try_for_each(&mut turn)?;
    }
    Ok(())
}

/// Our side of the protocol. `times` does as many `things` as it is given and returns the milliseconds of each.
pub(super) fn serve(
    parameters: i64,
    weight_bytes: Option<u64>,
    things: &str,
    mut times: impl FnMut(usize) -> Result<Vec<f64>, ExecuteError>,
) -> Outcome {
    let Torch { version, threads, .. } = observe().torch;
    say(&Ready { torch: version, threads, parameters, weight_bytes })?;
    for line in std::io::stdin().lock().lines() {
        let line = match line {
            Ok(line) => line,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(Failure::bad_input("standard input is not UTF-8")
                    .help(format!("give a number of {things} on each line")));
            }
            Err(error) => {
                return Err(Failure::machine(format!(
                    "standard input cannot be read: {}",
                    reason(&error)
                )));
            }
        };
        let wrong = |_| Failure::bad_input(format!("give a number of {things} on each line"));
        let count = line.trim().parse().map_err(wrong)?;
        say(&Steps { ms: times(count).map_err(failed)? })?;
    }
    Ok(Exit::Fine)
}

pub(super) fn failed(error: ExecuteError) -> Failure {
    Failure::machine(error.to_string())
}

/// Prints one line of JSON.
fn say(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value)
        .map_err(|error| Failure::machine(format!("the JSON cannot be written: {error}")))?;
    output::json_lines(&(line + "\n"))
}

impl Drop for Contender {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_never_ready_is_not_waited_for() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no JSON; exec sleep 60"]);
        let limit = Duration::from_millis(300);
        let error = Contender::start_within(limit, "PyTorch", &mut command).err().unwrap();
        let said = format!("{error:?}");
        assert!(said.contains("PyTorch was started, but did not say that it is ready"), "{said}");
    }
}
