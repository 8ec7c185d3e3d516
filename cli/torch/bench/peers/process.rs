//! A process that trains one of the models, a few steps at a time.
//!
//! In: a command that speaks the protocol below. Out: times of steps, page faults, peak memory. Must stay true: the
//! process ends with this value; if it ends early, the error has its last words.
//!
//! The protocol, in lines: after warming up the process prints a [`Ready`] as JSON. For each number that it reads, it
//! trains that many steps and prints [`Steps`]. It ends when its input does. Other lines on its output are ignored.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use canonc::fail::{Failure, reason};
use records::platform::{page_faults_of, peak_memory_of};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Untimed steps before the first timed one. `torch.compile` compiles in them.
pub(crate) const WARM_UP: usize = 3;

/// Lines kept of what a process writes on standard error.
const LAST_WORDS: usize = 12;

/// The pause after each group of steps: threads of OpenMP spin a while before they sleep.
const PAUSE: Duration = Duration::from_millis(200);

/// How many pauses a process that has closed its output has left.
const GRACE: usize = 25;

/// The first line: what was warmed up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// The version of PyTorch or libtorch.
    pub(crate) torch: String,
    /// Threads that compute.
    pub(crate) threads: usize,
    /// Parameters of the model.
    pub(crate) parameters: i64,
    /// Of a decoder of ours, the bytes of weights that a token reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weight_bytes: Option<u64>,
}

/// The answer to a number of steps.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Steps {
    /// Milliseconds of each.
    pub(crate) ms: Vec<f64>,
}

/// A group of steps, timed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) ms: Vec<f64>,
    /// Page faults of all its steps, if the system counts them.
    pub(crate) faults: Option<u64>,
}

/// A process that waits for numbers of steps.
pub(crate) struct Contender {
    pub(crate) name: String,
    child: Child,
    /// `None` after the end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: Option<JoinHandle<VecDeque<String>>>,
    pub(crate) ready: Ready,
}

impl Contender {
    /// Starts the process and waits until it is warm.
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<Contender, Failure> {
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
        let output = BufReader::new(output);
        let mut contender = Contender { name, child, input, output, errors, ready };
        contender.ready = contender.answer()?;
        std::thread::sleep(PAUSE);
        Ok(contender)
    }

    /// Trains this many steps.
    pub(crate) fn steps(&mut self, count: usize) -> Result<Group, Failure> {
        let faults = || page_faults_of(self.child.id());
        let before = faults();
        // A process that has ended is reported by `answer`.
        let _ = self.input.as_mut().map(|input| writeln!(input, "{count}"));
        let Steps { ms } = self.answer()?;
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
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        peak_memory_of(self.child.id())
    }

    /// The next line of JSON.
    fn answer<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        loop {
            line.clear();
            match self.output.read_line(&mut line) {
                Ok(0) | Err(_) => return Err(self.ended()),
                Ok(_) => {}
            }
            if let Ok(answer) = serde_json::from_str(&line) {
                return Ok(answer);
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

impl Drop for Contender {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
