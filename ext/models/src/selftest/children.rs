//! The self-test's processes: started, read line by line, and ended at their limits.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::results::{Line, Log, Process};
use cli::fail::{Failure, reason};
use cli::options::OnDevice;
use cli::output;
use commands::selftest::{SelftestArgs, SelftestPart};

/// How often a process is asked whether it has ended.
const POLL: Duration = Duration::from_millis(20);

/// How long a killed process may take to end. One that waits for a hung driver never does.
const GRACE: Duration = Duration::from_secs(5);

/// Lines kept of what a process prints that is no result.
const LAST_LINES: usize = 12;

/// The id of the self-test's process, in the environment of a check's.
pub(super) const PARENT: &str = "CANONC_SELFTEST_PARENT";

/// Characters kept of such a line.
const LONGEST: usize = 2000;

/// Bytes of a line that are read at once: a process may print without end.
const PIECE: u64 = 1 << 16;

/// The start of every result.
const RESULT: &str = "{\"part\":";

/// A check that will run in a process of its own.
pub(super) struct Child {
    /// Its part, a slash, its name.
    name: String,
    limit: Duration,
    command: Command,
}

/// What a thread that runs processes tells.
enum Message {
    Result(Line),
    /// There are no more processes for it.
    Done,
}

/// How many processes of a part run at a time. Those that are timed run alone.
pub(super) fn at_once(part: SelftestPart, args: &SelftestArgs) -> usize {
    match (part, args.device, args.each) {
        // Most of their time is the reference's, on the CPU. Under a tool that needs longer they take turns.
        (SelftestPart::Kernels | SelftestPart::Goldens, OnDevice::Cuda, None) => {
            (cores() / 4).clamp(1, 4)
        }
        (SelftestPart::Kernels | SelftestPart::Goldens, _, _)
        | (SelftestPart::Runs | SelftestPart::Steps | SelftestPart::Peers, _, _) => 1,
    }
}

fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

impl Child {
    pub(super) fn new(
        part: SelftestPart,
        name: String,
        args: &SelftestArgs,
        goldens: Option<&Path>,
    ) -> Result<Child, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::machine(format!("canonc does not find itself: {}", reason(&error)))
        })?;
        let name = format!("{}/{name}", part.name());
        let mut command = Command::new(program);
        command.args(["selftest", "--only", &name, "--device"]);
        command.arg(args.device.name());
        command.arg("--out").arg(&args.out);
        let paths = [
            ("--goldens", goldens),
            ("--python", args.python.as_deref()),
            ("--peer", args.peer.as_deref()),
        ];
        for (flag, path) in paths {
            if let Some(path) = path {
                command.arg(flag).arg(path);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, which ends with it.
        command.process_group(0);
        command.env(PARENT, std::process::id().to_string());
        let limit = Duration::from_secs(args.each.unwrap_or(part.limit(args.device)));
        Ok(Child { name, limit, command })
    }

    /// Runs the process and sends each of its results, then how it ended. The error is that nobody receives them.
    fn run(mut self, until: Option<Instant>, messages: &Sender<Message>) -> Result<(), ()> {
        let began = Instant::now();
        let left = until.map(|until| until.saturating_duration_since(began));
        let limit = left.map_or(self.limit, |left| left.min(self.limit));
        let failure = match limit.is_zero() {
            true => Some("not begun: no time was left".to_owned()),
            false => self.results(limit, messages)?,
        };
        let process = Process {
            name: self.name,
            seconds: began.elapsed().as_secs_f64(),
            limit: limit.as_secs_f64(),
            failure,
        };
        messages.send(Message::Result(Line::Process(process))).map_err(|_| ())
    }

    /// Sends the results of the process. Returns why it has fewer than it should.
    fn results(
        &mut self,
        limit: Duration,
        messages: &Sender<Message>,
    ) -> Result<Option<String>, ()> {
        let until = Instant::now() + limit;
        let mut child = match self.command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Some(format!("it cannot be started: {}", reason(&error)))),
        };
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let kill = || group.map(|group| kill_process_group(group, Signal::KILL));
        let printed = lines_of(child.stdout.take(), child.stderr.take());
        let mut output = Printed::default();
        let mut timed_out = false;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if Instant::now() >= until + GRACE => {
                    return Ok(Some(format!("{}, and does not end when killed", at_limit(limit))));
                }
                Ok(None) if Instant::now() >= until => {
                    timed_out = true;
                    let _ = kill();
                }
                Ok(None) => {}
                Err(error) => break Err(reason(&error)),
            }
            output.take(&printed, Instant::now() + POLL, messages)?;
        };
        // Processes that it left behind would keep its output open, but one that left its group still may.
        let _ = kill();
        output.take(&printed, Instant::now() + GRACE, messages)?;
        Ok(match status {
            Ok(_) if timed_out => Some(at_limit(limit)),
            Ok(status) => ending(status, &output),
            Err(error) => Some(error),
        })
    }
}

fn at_limit(limit: Duration) -> String {
    format!("ended at its limit of {:.0} s", limit.as_secs_f64())
}

/// What a process has printed.
#[derive(Default)]
struct Printed {
    results: usize,
    /// The last lines that are no results.
    rest: Vec<String>,
}

impl Printed {
    /// Takes lines until a time, or until there will be none. The error is that nobody receives the results.
    fn take(
        &mut self,
        lines: &Receiver<Printing>,
        until: Instant,
        messages: &Sender<Message>,
    ) -> Result<(), ()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let (stream, line) = match lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    // The process may live on with its output closed.
                    thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
                    return Ok(());
                }
            };
            // A library may have begun the line.
            let at = line.rfind(RESULT).filter(|_| stream == Stream::Output);
            let result: Option<Line> = at.and_then(|at| serde_json::from_str(line.get(at..)?).ok());
            match result.filter(Line::is_result) {
                Some(result) => {
                    self.results += 1;
                    messages.send(Message::Result(result)).map_err(|_| ())?;
                }
                None if line.trim().is_empty() => {}
                None => {
                    if self.rest.len() == LAST_LINES {
                        self.rest.remove(0);
                    }
                    self.rest.push(line.chars().take(LONGEST).collect());
                }
            }
        }
    }
}

/// A stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Output,
    Error,
}

/// A line that a process has printed, or a part of a long one.
type Printing = (Stream, String);

/// The lines that a process prints, of both streams. Bytes that are no text are replaced.
fn lines_of(
    stdout: Option<impl Read + Send + 'static>,
    stderr: Option<impl Read + Send + 'static>,
) -> Receiver<Printing> {
    let (sender, receiver) = channel();
    if let Some(stdout) = stdout {
        send_lines(Stream::Output, stdout, sender.clone());
    }
    if let Some(stderr) = stderr {
        send_lines(Stream::Error, stderr, sender);
    }
    receiver
}

fn send_lines(stream: Stream, from: impl Read + Send + 'static, sender: Sender<Printing>) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.by_ref().take(PIECE).read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            if sender.send((stream, text)).is_err() {
                break;
            }
            line.clear();
        }
    });
}

/// The last lines of a program's output and of its errors.
#[derive(Default)]
pub(super) struct LastLines {
    pub(super) output: Vec<String>,
    pub(super) errors: Vec<String>,
}

impl LastLines {
    fn keep(&mut self, (stream, line): Printing) {
        let lines = match stream {
            Stream::Output => &mut self.output,
            Stream::Error => &mut self.errors,
        };
        if lines.len() == LAST_LINES {
            lines.remove(0);
        }
        lines.push(line.chars().take(LONGEST).collect());
    }
}

/// Runs another program: its status, `None` if it was ended at its limit, and its last lines. What it leaves running does
/// not delay this.
pub(super) fn run_program(
    mut command: Command,
    limit: Option<Duration>,
) -> std::io::Result<(Option<ExitStatus>, LastLines)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let printed = lines_of(child.stdout.take(), child.stderr.take());
    let until = limit.map(|limit| Instant::now() + limit);
    let mut lines = LastLines::default();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            child.kill()?;
            break None;
        }
        match printed.recv_timeout(POLL) {
            Ok(line) => lines.keep(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL),
        }
    };
    while let Ok(line) = printed.recv_timeout(Duration::from_secs(1)) {
        lines.keep(line);
    }
    Ok((status, lines))
}

/// Why a process that ended by itself failed: its error, or its last line.
fn ending(status: ExitStatus, printed: &Printed) -> Option<String> {
    let rest = &printed.rest;
    let error = rest.iter().rev().find(|line| line.starts_with("error: ")).or(rest.last());
    let error = error.map(|line| line.trim_start_matches("error: ").to_owned());
    if status.success() {
        return (printed.results == 0).then(|| match error {
            Some(error) => format!("it printed no result: {error}"),
            None => "it printed no result".to_owned(),
        });
    }
    Some(match (status.signal(), error) {
        (Some(signal), None) => format!("ended by signal {signal}"),
        (Some(signal), Some(error)) => format!("ended by signal {signal}: {error}"),
        (None, Some(error)) => error,
        (None, None) => format!("ended with {status}"),
    })
}

/// Runs processes, `at_once` at a time, and adds their results to the log as they come.
pub(super) fn run(
    children: Vec<Child>,
    at_once: usize,
    until: Option<Instant>,
    log: &mut Log,
) -> Result<(), Failure> {
    let threads = (at_once > 1).then(|| (cores() / at_once).max(1).to_string());
    let children = children.into_iter().map(|mut child| {
        if let Some(threads) = &threads
            && std::env::var_os("OMP_NUM_THREADS").is_none()
        {
            child.command.env("OMP_NUM_THREADS", threads);
        }
        child
    });
    let queue = Arc::new(Mutex::new(children.collect::<Vec<_>>().into_iter()));
    let (sender, receiver) = channel();
    for _ in 0..at_once {
        let (queue, sender) = (queue.clone(), sender.clone());
        // The thread lives as long as its process, which the system would end with it.
        thread::spawn(move || {
            let next = || queue.lock().ok()?.next();
            while let Some(child) = next() {
                if child.run(until, &sender).is_err() {
                    break;
                }
            }
            let _ = sender.send(Message::Done);
        });
    }
    let mut running = at_once;
    while running > 0 {
        match receiver.recv() {
            Ok(Message::Result(line)) => {
                if let Line::Process(process) = &line {
                    let ending = process.failure.as_deref().unwrap_or("done");
                    output::note(&format!(
                        "  {}, {:.0} s: {ending}",
                        process.name, process.seconds
                    ));
                }
                log.add(line)?;
            }
            Ok(Message::Done) => running -= 1,
            Err(_) => return Err(Failure::machine("the self-test's threads ended early")),
        }
    }
    Ok(())
}
