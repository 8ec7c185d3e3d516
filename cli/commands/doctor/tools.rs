//! Programs that building and fetching need, and their versions.
//!
//! Each is started only with `--version` or a similar option, and has a few seconds to answer.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::facts::Fact;

/// Time limit: a version is printed at once, and a program that takes longer is broken.
const PATIENCE: Duration = Duration::from_secs(5);

/// A program, the command that asks for its version, and how to install it.
struct Tool {
    name: &'static str,
    /// Tried in order; the first that answers is used.
    commands: &'static [&'static [&'static str]],
    help: &'static str,
    /// Whether only building canonc needs it.
    builds: bool,
}

const TOOLS: [Tool; 6] = [
    Tool {
        name: "cargo",
        commands: &[&["cargo", "--version"]],
        help: "needed to build: https://rustup.rs",
        builds: true,
    },
    Tool {
        name: "C++ compiler",
        commands: &[&["c++", "--version"], &["g++", "--version"], &["clang++", "--version"]],
        help: "needed to build with libtorch (Debian, Ubuntu: `apt install g++`)",
        builds: true,
    },
    Tool {
        name: "make",
        commands: &[&["make", "--version"]],
        help: "`apt install make`, or run the cargo commands of the Makefile",
        builds: true,
    },
    Tool {
        name: "python3",
        commands: &[&["python3", "--version"]],
        help: "needed to fetch libtorch (Debian, Ubuntu: `apt install python3`)",
        builds: true,
    },
    Tool {
        name: "pip",
        commands: &[&["python3", "-m", "pip", "--version"]],
        help: "needed to fetch libtorch (Debian, Ubuntu: `apt install python3-pip`; others: `python3 -m ensurepip \
         --user`)",
        builds: true,
    },
    Tool {
        name: "NVIDIA driver",
        commands: &[&["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]],
        help: "needed only for GPUs; without it, runs use the CPU",
        builds: false,
    },
];

/// In a clone all programs; elsewhere those that runs may use.
pub(super) fn facts(clone: bool) -> Vec<Fact> {
    // Start all of them together: some take half a second.
    let asked: Vec<_> = TOOLS
        .iter()
        .filter(|tool| clone || !tool.builds)
        .map(|tool| (tool, thread::spawn(|| tool.commands.iter().find_map(|c| version(c)))))
        .collect();
    asked
        .into_iter()
        .map(|(tool, answer)| match answer.join().ok().flatten() {
            Some(version) => Fact::has(tool.name, version),
            None => Fact::lacks(tool.name, "not found", tool.help),
        })
        .collect()
}

/// The first line a command prints, if it succeeds in time.
fn version(command: &[&str]) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut out = child.stdout.take()?;
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.by_ref().take(1 << 16).read_to_end(&mut bytes);
        // Nobody receives this after the time limit.
        let _ = send.send(bytes);
    });
    let answer = receive.recv_timeout(PATIENCE);
    if answer.is_err() {
        let _ = child.kill();
    }
    let succeeded = child.wait().is_ok_and(|status| status.success());
    let text = String::from_utf8_lossy(&answer.ok()?).into_owned();
    let line = text.lines().next()?.trim().to_owned();
    (succeeded && !line.is_empty()).then_some(line)
}
