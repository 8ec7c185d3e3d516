//! The self-test's processes: started, read line by line, and ended at their limits.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};

use super::results::{Line, Log, Process};
use canonc::args::{OnDevice, SelftestArgs, SelftestPart};
use canonc::fail::{Failure, reason};
use canonc::output;

/// How often a process is asked whether it has ended.
const POLL: Duration = Duration::from_millis(20);

/// Lines kept of what a process writes on standard error.
const LAST_LINES: usize = 12;

/// A check that will run in a process of its own.
pub(super) struct Child {
    /// Its part, a slash, its name.
    name: String,
    limit: Duration,
    command: Command,
}

/// In a check's process: it ends when the self-test does.
pub(super) fn end_with_parent() -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::machine(format!("no signal at the end of the parent: {error}")))
}

/// How many processes of a part run at a time. Those that are timed run alone.
pub(super) fn at_once(part: SelftestPart, device: OnDevice) -> usize {
    match (part, device) {
        // Most of their time is the reference's, on the CPU.
        (SelftestPart::Kernels | SelftestPart::Goldens, OnDevice::Cuda) => {
            (cores() / 4).clamp(1, 4)
        }
        (SelftestPart::Kernels | SelftestPart::Goldens, OnDevice::Cpu)
        | (SelftestPart::Runs | SelftestPart::Steps | SelftestPart::Peers, _) => 1,
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
        goldens: &Path,
    ) -> Result<Child, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::machine(format!("canonc does not find itself: {}", reason(&error)))
        })?;
        let name = format!("{}/{name}", part.name());
        let mut command = Command::new(program);
        command.args(["selftest", "--only", &name, "--device"]);
        command.arg(super::device_name(args.device));
        command.arg("--out").arg(&args.out).arg("--goldens").arg(goldens);
        for (flag, path) in [("--python", &args.python), ("--peer", &args.peer)] {
            if let Some(path) = path {
                command.arg(flag).arg(path);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // What it starts ends with it.
        command.process_group(0);
        Ok(Child { name, limit: Duration::from_secs(part.limit(args.device)), command })
    }

    /// Runs the process and sends each of its results, then how it ended. The error is that nobody receives them.
    fn run(mut self, until: Option<Instant>, results: &Sender<Line>) -> Result<(), ()> {
        let began = Instant::now();
        let left = until.map(|until| until.saturating_duration_since(began));
        let limit = left.map_or(self.limit, |left| left.min(self.limit));
        let failure = match limit.is_zero() {
            true => Some("not begun: no time was left".to_owned()),
            false => self.results(limit, results)?,
        };
        let process = Process {
            name: self.name,
            seconds: began.elapsed().as_secs_f64(),
            limit: limit.as_secs_f64(),
            failure,
        };
        results.send(Line::Process(process)).map_err(|_| ())
    }

    /// Sends the results of the process. Returns why it has fewer than it should.
    fn results(&mut self, limit: Duration, results: &Sender<Line>) -> Result<Option<String>, ()> {
        let until = Instant::now() + limit;
        let mut child = match self.command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Some(format!("it cannot be started: {}", reason(&error)))),
        };
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let kill = || group.map(|group| kill_process_group(group, Signal::KILL));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            let lines = scope.spawn(|| forward(stdout, results));
            let messages = scope.spawn(|| last_lines(stderr));
            let mut timed_out = false;
            let status = loop {
                match child.try_wait() {
                    Ok(Some(status)) => break Ok(status),
                    Ok(None) if Instant::now() >= until => {
                        timed_out = true;
                        let _ = kill();
                    }
                    Ok(None) => {}
                    Err(error) => break Err(reason(&error)),
                }
                std::thread::sleep(POLL);
            };
            // Processes that it left behind would keep its output open.
            let _ = kill();
            let sent = lines.join().unwrap_or(Err(()));
            let messages = messages.join().unwrap_or_default();
            sent?;
            Ok(match status {
                _ if timed_out => {
                    Some(format!("ended at its limit of {:.0} s", limit.as_secs_f64()))
                }
                Ok(status) => ending(status, &messages),
                Err(error) => Some(error),
            })
        })
    }
}

/// Sends each line that is a result.
fn forward(stdout: Option<impl Read>, results: &Sender<Line>) -> Result<(), ()> {
    let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
    for line in lines.map_while(Result::ok) {
        if let Ok(line) = serde_json::from_str(&line) {
            results.send(line).map_err(|_| ())?;
        }
    }
    Ok(())
}

fn last_lines(stderr: Option<impl Read>) -> Vec<String> {
    let mut last = Vec::new();
    let lines = stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines());
    for line in lines.map_while(Result::ok).filter(|line| !line.trim().is_empty()) {
        if last.len() == LAST_LINES {
            last.remove(0);
        }
        last.push(line);
    }
    last
}

/// Why a process that ended by itself failed: its error, or its last line.
fn ending(status: ExitStatus, messages: &[String]) -> Option<String> {
    if status.success() {
        return None;
    }
    let error = messages.iter().rev().find(|line| line.starts_with("error: ")).or(messages.last());
    let error = error.map(|line| line.trim_start_matches("error: ").to_owned());
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
    let queue = Mutex::new(children.collect::<Vec<_>>().into_iter());
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || {
                let next = || queue.lock().ok()?.next();
                while let Some(child) = next() {
                    if child.run(until, &sender).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for line in receiver {
            if let Line::Process(process) = &line {
                let ending = process.failure.as_deref().unwrap_or("done");
                output::note(&format!("  {}, {:.0} s: {ending}", process.name, process.seconds));
            }
            log.add(line)?;
        }
        Ok(())
    })
}
