//! Processes that train a few steps at a time, so that they can take turns.
//!
//! The protocol, in lines: after warming up the process prints a `Ready` as JSON. For each number that it reads, it
//! does that many steps and prints `Steps`. It ends when its input does. Other lines on its output are ignored.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use records::platform::{page_faults_of, peak_memory_of};
use runtime::execute::ExecuteError;
use runtime::observe::{Torch, observe};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use cli::fail::{Exit, Failure, Outcome, reason};
use cli::output;

/// Untimed steps before the first timed one. `torch.compile` compiles in them.
pub(super) const WARM_UP: usize = 3;

/// Lines kept of what a process writes on standard error.
const LAST_LINES: usize = 12;

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
}

/// The answer to a number of steps.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Steps {
    /// Milliseconds of each.
    pub(super) ms: Vec<f64>,
}

/// A group of steps, timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Milliseconds of each.
    pub ms: Vec<f64>,
    /// Page faults of all its steps, if the system counts them.
    pub faults: Option<u64>,
}

/// A process that waits for numbers of steps.
pub struct Contender {
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

    /// The same, waiting no longer than the limit.
    pub fn start_within(
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
                    if last.len() == LAST_LINES {
                        last.pop_front();
                    }
                    last.push_back(line);
                }
                last
            })
        });
        let output = output
            .ok_or_else(|| Failure::machine(format!("{name} was started without an output")))?;
        let ready = Ready { torch: String::new(), threads: 0, parameters: 0 };
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

    /// The error of a process that ended early, with its last lines.
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

/// Our side of the protocol. `times` does as many steps as it is given and returns the milliseconds of each.
pub(super) fn serve(
    parameters: i64,
    mut times: impl FnMut(usize) -> Result<Vec<f64>, ExecuteError>,
) -> Outcome {
    let help = "give a number of steps on each line";
    let Torch { version, threads, .. } = observe().torch;
    print(&Ready { torch: version, threads, parameters })?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| match error.kind() == std::io::ErrorKind::InvalidData {
            true => Failure::bad_input("standard input is not UTF-8").help(help),
            false => Failure::machine(format!("standard input cannot be read: {}", reason(&error))),
        })?;
        let count = line.trim().parse().map_err(|_| Failure::bad_input(help))?;
        print(&Steps { ms: times(count).map_err(failed)? })?;
    }
    Ok(Exit::Fine)
}

pub(super) fn failed(error: ExecuteError) -> Failure {
    Failure::machine(error.to_string())
}

/// Prints one line of JSON.
fn print(value: &impl Serialize) -> Result<(), Failure> {
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
