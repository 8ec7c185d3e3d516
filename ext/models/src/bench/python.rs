//! The Python that runs PyTorch: the one that was named, one that is there, or an environment made for it.
//!
//! Nothing is downloaded unless `--make-environment` asks for it. Without `--python`, PyTorch has libtorch's version, up to
//! the patch.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cli::fail::{Failure, reason, shown};
use cli::output;
use commands::bench::BenchArgs;

/// What a fresh environment downloads.
const DOWNLOAD: &str = "about 5 GB";

/// An interpreter, and the version of PyTorch that it imports.
#[derive(Debug)]
pub(super) struct Python {
    pub(super) program: PathBuf,
    pub(super) torch: String,
}

/// What an interpreter lacks.
#[derive(Debug)]
enum Lacks {
    /// It cannot be started.
    Python(io::Error),
    /// It cannot import torch; the last line of its error.
    Torch(String),
}

/// The interpreter to use beside a libtorch of this version.
pub(super) fn find(args: &BenchArgs, libtorch: &str) -> Result<Python, Failure> {
    if let Some(program) = &args.python {
        return named(program, libtorch);
    }
    let environment = environment(libtorch);
    let system = probe(Path::new("python3"));
    let suits = |program: PathBuf, torch: &str| {
        (minor(torch) == minor(libtorch)).then(|| Python { program, torch: torch.to_owned() })
    };
    if let Some(python) = system.as_ref().ok().and_then(|torch| suits("python3".into(), torch)) {
        return Ok(python);
    }
    if let Some(program) = environment.as_ref().map(|folder| folder.join("bin/python"))
        && let Ok(torch) = probe(&program)
        && let Some(python) = suits(program, &torch)
    {
        return Ok(python);
    }
    let Some(environment) = environment else {
        return Err(Failure::machine(missing(&system, libtorch))
            .help("name a Python that has PyTorch: `--python PATH`"));
    };
    if let (true, Err(Lacks::Python(_))) = (args.make_environment, &system) {
        return Err(Failure::machine("python3 is not on PATH, and it makes the environment")
            .help("install python3 with its venv module and pip, then repeat the command"));
    }
    if !args.make_environment {
        return Err(Failure::machine(missing(&system, libtorch))
            .help(format!(
                "`canonc bench peers --make-environment` downloads it once ({DOWNLOAD}) into {}",
                shown(&environment)
            ))
            .help("or name a Python that has it: `--python PATH`"));
    }
    make(&environment, release(libtorch))
}

fn named(program: &Path, libtorch: &str) -> Result<Python, Failure> {
    match probe(program) {
        Ok(torch) => {
            if minor(&torch) != minor(libtorch) {
                output::note(&format!(
                    "note: this measures PyTorch {torch}; canonc uses libtorch {libtorch}, so part of a difference \
                     can be a difference of versions"
                ));
            }
            Ok(Python { program: program.to_owned(), torch })
        }
        Err(Lacks::Python(error)) => Err(Failure::bad_input(format!(
            "the Python `{}` cannot be started: {}",
            shown(program),
            reason(&error)
        ))
        .help("name an interpreter, such as `--python env/bin/python`")),
        Err(Lacks::Torch(error)) => Err(Failure::machine(format!(
            "the Python `{}` cannot import torch: {error}",
            shown(program)
        ))
        .help(format!(
            "`{} -m pip install torch=={} numpy transformers` installs it ({DOWNLOAD})",
            shown(program),
            release(libtorch)
        ))),
    }
}

/// The message if neither python3 nor the environment can be used.
fn missing(system: &Result<String, Lacks>, libtorch: &str) -> String {
    let wanted = minor(libtorch);
    match system {
        Ok(torch) => format!("python3 has PyTorch {torch}, and canonc uses libtorch {wanted}"),
        Err(Lacks::Python(_)) => {
            format!("no Python with PyTorch {wanted} was found: python3 is not on PATH")
        }
        Err(Lacks::Torch(error)) => {
            format!(
                "no Python with PyTorch {wanted} was found: python3 cannot import torch ({error})"
            )
        }
    }
}

/// The version of torch that an interpreter imports.
fn probe(program: &Path) -> Result<String, Lacks> {
    let version = "import torch; print(torch.__version__)";
    let output = Command::new(program).args(["-c", version]).stdin(Stdio::null()).output();
    let output = output.map_err(Lacks::Python)?;
    let last = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).lines().last().unwrap_or_default().trim().to_owned()
    };
    match last(&output.stdout) {
        version if output.status.success() && is_version(&version) => Ok(version),
        version if output.status.success() && !version.is_empty() => {
            Err(Lacks::Torch("its torch.__version__ is not a version".to_owned()))
        }
        _ => Err(Lacks::Torch(last(&output.stderr))),
    }
}

/// The folder of the environment with this version: `canonc/peers-2.11.0` in the user's cache.
fn environment(libtorch: &str) -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty());
    let cache = match folder("XDG_CACHE_HOME").map(PathBuf::from) {
        Some(cache) if cache.is_absolute() => cache,
        Some(_) | None => PathBuf::from(folder("HOME")?).join(".cache"),
    };
    Some(cache.join(format!("canonc/peers-{}", release(libtorch))))
}

fn make(folder: &Path, version: &str) -> Result<Python, Failure> {
    output::note(&format!(
        "making a Python environment with PyTorch {version}, NumPy and transformers in {}; downloads {DOWNLOAD}",
        shown(folder)
    ));
    let program = folder.join("bin/python");
    run("python3", &["-m", "venv", "--clear"].map(OsStr::new), Some(folder.as_os_str()))?;
    let torch = format!("torch=={version}");
    let words =
        ["-m", "pip", "install", "--disable-pip-version-check", &torch, "numpy", "transformers"];
    run(&program, &words.map(OsStr::new), None)?;
    let torch = probe(&program).map_err(|lacks| {
        Failure::machine(match lacks {
            Lacks::Python(error) => {
                format!("`{}` cannot be started: {}", shown(&program), reason(&error))
            }
            Lacks::Torch(error) => format!("the new environment cannot import torch: {error}"),
        })
        .help(format!("remove {} and repeat the command", shown(folder)))
    })?;
    Ok(Python { program, torch })
}

/// Runs a program that shows its progress to the person.
fn run(program: impl AsRef<OsStr>, words: &[&OsStr], last: Option<&OsStr>) -> Result<(), Failure> {
    let program = program.as_ref();
    let mut command = Command::new(program);
    command.args(words).args(last).stdin(Stdio::null()).stdout(io::stderr());
    let line: Vec<_> =
        [program].iter().chain(words).chain(&last).map(|word| word.to_string_lossy()).collect();
    let line = line.join(" ");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::machine(format!("`{line}` failed ({status})"))
            .help("its reason is above; repeating the command starts afresh")),
        Err(error) => {
            Err(Failure::machine(format!("`{line}` cannot be started: {}", reason(&error))))
        }
    }
}

/// Whether it looks like `2.11.0+cpu`: a digit, then letters, digits, `.`, `+`, `-` and `_`.
pub fn is_version(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".+-_".contains(c))
}

/// `2.11.0` of `2.11.0+cpu`.
pub fn release(version: &str) -> &str {
    version.split('+').next().unwrap_or(version)
}

/// `2.11` of `2.11.0+cpu`.
pub fn minor(version: &str) -> &str {
    let version = release(version);
    version.match_indices('.').nth(1).map_or(version, |(at, _)| &version[..at])
}
