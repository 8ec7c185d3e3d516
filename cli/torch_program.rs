//! Starts `canonc-torch`, the program in the same folder that links libtorch.
//!
//! Signals, standard streams and the exit code are those of the other program. A missing program or library is named,
//! with exit code 3.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ArgMatches;
use records::platform::strict_blas;

use crate::command::Program;
use crate::facts::{Fact, Facts};
use crate::fail::{Failure, Outcome, reason, shown};
use crate::pytorch;

/// Its file name.
pub const PROGRAM: &str = "canonc-torch";

const BUILD: &str =
    "`make build` fetches libtorch and builds both programs; keep them in the same folder";

/// How serious a line of PyTorch's own log must be to be printed.
const TORCH_LOG: &str = "TORCH_CPP_LOG_LEVEL";

/// A command that `canonc-torch` runs.
pub fn run(_: &Program, _: &ArgMatches) -> Outcome {
    Err(replace_process(&[]))
}

/// Replaces this process by `canonc-torch` with the same arguments, and returns only if that fails. Variables that the
/// user has set stay as they are.
pub fn replace_process(variables: &[(&str, &str)]) -> Failure {
    let other = match OtherProgram::find() {
        Ok(other) => other,
        Err(failure) => return failure,
    };
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // libtorch is linked, so it reads its environment before `main`.
    let strict = strict_blas(|name| std::env::var(name).ok());
    let mut command = other.command();
    command.arg0("canonc").args(&words).envs(strict);
    // PyTorch would print where in its code it noticed that a rank is gone; canonc says which one.
    for (name, value) in [(TORCH_LOG, "FATAL")].iter().chain(variables) {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    let error = command.exec();
    Failure::machine(format!("`{}` cannot be started: {}", shown(&other.program), reason(&error)))
}

/// Facts about libtorch, from the other program.
pub fn facts() -> Vec<Fact> {
    ask_for_facts().unwrap_or_else(|failure| {
        let message = failure.message.unwrap_or_default();
        vec![Fact::lacks("torch", message, failure.help.join("; "))]
    })
}

/// The other program, and where it finds libtorch.
struct OtherProgram {
    program: PathBuf,
    /// A folder that is searched before its run path.
    libraries: Option<PathBuf>,
}

impl OtherProgram {
    /// The other program, if it exists and finds its libraries.
    fn find() -> Result<OtherProgram, Failure> {
        let own = std::env::current_exe().map_err(|error| {
            Failure::machine(format!("canonc does not find itself: {}", reason(&error)))
        })?;
        // If this program was started through a link, the other one is in the link's target folder.
        let own = own.canonicalize().unwrap_or(own);
        let program = own.with_file_name(PROGRAM);
        if !program.is_file() {
            return Err(Failure::machine(format!(
                "`{PROGRAM}`, which computes with tensors, is missing in {}",
                shown(own.parent().unwrap_or(Path::new(".")))
            ))
            .help(BUILD));
        }
        if program.canonicalize().is_ok_and(|program| program == own) {
            // It would start itself for ever.
            return Err(Failure::machine(format!(
                "{} is this program itself, and it does not run the command",
                shown(&program)
            ))
            .help(BUILD));
        }
        let other = OtherProgram { program, libraries: pytorch::libraries()? };
        let Some(library) = missing_library(&other) else { return Ok(other) };
        Err(match &other.libraries {
            None => Failure::machine(format!("`{PROGRAM}` does not find the library {library}"))
                .help("`make libtorch` downloads it into third_party/ of the clone")
                .help("or name its folder: `export LD_LIBRARY_PATH=/path/to/torch/lib`"),
            Some(folder) => Failure::machine(format!(
                "`{PROGRAM}` does not find the library {library}, which the PyTorch in {} needs",
                shown(folder)
            ))
            .help(pytorch::again()),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", pytorch::search_path(libraries));
        }
        command
    }
}

/// A library that the loader does not find. The loader would report it too, but in its own words and with exit code
/// 127.
fn missing_library(other: &OtherProgram) -> Option<String> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let listed = other
        .command()
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&listed.stdout);
    let line = text.lines().find(|line| line.contains("=> not found"))?;
    Some(line.split_whitespace().next()?.to_owned())
}

fn ask_for_facts() -> Result<Vec<Fact>, Failure> {
    let other = OtherProgram::find()?;
    let broken = |why: String| Failure::machine(format!("`{}`: {why}", shown(&other.program)));
    let words = ["doctor", "--json"].map(OsStr::new);
    let output = other
        .command()
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| broken(reason(&error)))?;
    let document: Facts = serde_json::from_slice(&output.stdout)
        .map_err(|_| broken(format!("it exited with {}", output.status)))?;
    Ok(document.facts.into_iter().filter(|fact| fact.of_libtorch).collect())
}
