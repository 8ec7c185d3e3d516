//! Starts `canonc-torch`, the program in the same folder that links libtorch.
//!
//! In: the words this process was started with. Out: the same process, now running the other program. Must stay true:
//! signals, standard streams and the exit code are those of the other program; a missing program or library is named,
//! with exit code 3.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::doctor::{Fact, Report};
use crate::fail::{Failure, Outcome, reason, shown};
use crate::pytorch;
use crate::tensors::{Tensors, Work};
use records::platform::strict_blas;

/// Its file name.
pub const PROGRAM: &str = "canonc-torch";

/// How serious a line of PyTorch's own log must be to be printed.
const TORCH_LOG: &str = "TORCH_CPP_LOG_LEVEL";

/// Settings of jemalloc, which reads them before `main`: a server's pages go back to the system, where a training step's
/// are kept for the next one. Pages of large tensors are kept for a second, too: the next prompt needs as many.
const ALLOCATOR: (&str, &str) =
    ("MALLOC_CONF", "dirty_decay_ms:1000,muzzy_decay_ms:0,oversize_threshold:0,thp:default");

/// Runs tensor work by replacing this process with the other program.
#[derive(Debug)]
pub struct Sibling;

impl Tensors for Sibling {
    fn carry_out(&self, work: Work<'_>) -> Outcome {
        let other = found()?;
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        // libtorch is linked, so it reads its environment before `main`.
        let strict = strict_blas(|name| std::env::var(name).ok());
        let mut command = other.command();
        command.arg0("canonc").args(&words).envs(strict);
        // PyTorch would print where in its code it noticed that a rank is gone; canonc says which one.
        if std::env::var_os(TORCH_LOG).is_none() {
            command.env(TORCH_LOG, "FATAL");
        }
        if matches!(work, Work::Serve(_)) && std::env::var_os(ALLOCATOR.0).is_none() {
            command.env(ALLOCATOR.0, ALLOCATOR.1);
        }
        let error = command.exec();
        Err(Failure::machine(format!(
            "`{}` cannot be started: {}",
            shown(&other.program),
            reason(&error)
        )))
    }

    fn facts(&self) -> Vec<Fact> {
        match asked() {
            Ok(facts) => facts,
            Err(failure) => {
                vec![Fact::lacks(
                    "torch",
                    failure.message.unwrap_or_default(),
                    failure.help.join("; "),
                )]
            }
        }
    }
}

/// The other program, and where it finds libtorch.
struct Other {
    program: PathBuf,
    /// A folder that is searched before its run path.
    libraries: Option<PathBuf>,
}

impl Other {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", pytorch::search_path(libraries));
        }
        command
    }
}

/// The other program, if it exists and finds its libraries.
fn found() -> Result<Other, Failure> {
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
        .help(
            "`make build` fetches libtorch and builds both programs; keep them in the same folder",
        ));
    }
    let other = Other { program, libraries: pytorch::libraries()? };
    let Some(library) = missing(&other) else { return Ok(other) };
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

/// A library that the loader does not find. The loader would report it too, but in its own words and with exit code
/// 127.
fn missing(other: &Other) -> Option<String> {
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

/// Facts about libtorch from the other program.
fn asked() -> Result<Vec<Fact>, Failure> {
    let other = found()?;
    let broken = |why: String| Failure::machine(format!("`{}`: {why}", shown(&other.program)));
    let words = ["doctor", "--json"].map(OsStr::new);
    let output = other
        .command()
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| broken(reason(&error)))?;
    let report: Report = serde_json::from_slice(&output.stdout)
        .map_err(|_| broken(format!("it exited with {}", output.status)))?;
    Ok(report.facts.into_iter().filter(|fact| fact.of_libtorch).collect())
}
