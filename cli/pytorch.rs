//! The PyTorch of a Python environment, whose libraries `canonc-torch` loads.
//!
//! The launcher of the Python package names it in two variables (`python/canonc/_launch.py`). Without them nothing
//! changes, and the loader follows its run path.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::fail::{Failure, reason, shown};

/// The folder of the package `torch`.
const TORCH: &str = "CANONC_TORCH";

/// The Python that started this program.
const PYTHON: &str = "CANONC_PYTHON";

/// The release that `canonc-torch` is compiled for: its libraries have one binary interface.
pub const RELEASE: &str = "2.11";

/// The folder of the libraries, or `None` without a launcher.
pub(crate) fn libraries() -> Result<Option<PathBuf>, Failure> {
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let python = set(PYTHON).map(PathBuf::from);
    match set(TORCH).map(PathBuf::from) {
        Some(torch) => checked(&torch, python.as_deref()).map(Some),
        None => match python {
            Some(python) => Err(Failure::machine(format!(
                "this command computes with PyTorch, and {} has none",
                shown(&python)
            ))
            .help(install(Some(&python)))),
            None => Ok(None),
        },
    }
}

/// Whether a person or the launcher names a PyTorch.
pub fn is_named() -> bool {
    std::env::var_os(TORCH).is_some_and(|value| !value.is_empty())
}

/// `LD_LIBRARY_PATH` with this folder first.
pub(crate) fn search_path(libraries: &Path) -> OsString {
    let mut path = libraries.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|value| !value.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}

fn checked(torch: &Path, python: Option<&Path>) -> Result<PathBuf, Failure> {
    let libraries = torch.join("lib");
    if !libraries.join("libtorch_cpu.so").is_file() {
        return Err(Failure::machine(format!(
            "{} is not the folder of a PyTorch: it has no lib/libtorch_cpu.so",
            shown(torch)
        ))
        .help(install(python)));
    }
    let file = torch.join("version.py");
    let text = disk::read_text(&file, disk::SMALL).map_err(|error| {
        let message = format!("{} cannot be read: {}", shown(&file), reason(&error));
        Failure::machine(message).help(install(python))
    })?;
    let version = version(&text).unwrap_or("of an unknown version");
    if minor(version) != RELEASE {
        return Err(Failure::machine(format!(
            "the PyTorch in {} is {version}, and this canonc works with {RELEASE}",
            shown(torch)
        ))
        .help(install(python)));
    }
    Ok(libraries)
}

/// How to repair an installation that lacks a library.
pub(crate) fn again() -> String {
    let python = std::env::var_os(PYTHON).filter(|value| !value.is_empty()).map(PathBuf::from);
    let python = python.as_deref().map_or_else(|| "python3".to_owned(), shown);
    format!(
        "`{python} -m pip install --force-reinstall torch=={RELEASE}.0` installs it with all it needs"
    )
}

fn install(python: Option<&Path>) -> String {
    let python = python.map_or_else(|| "python3".to_owned(), shown);
    format!("`{python} -m pip install torch=={RELEASE}.0` installs it")
}

/// `2.11.0+cpu` of the line `__version__ = '2.11.0+cpu'`.
pub fn version(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    let quoted = line.split_once('=')?.1.trim();
    quoted.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"'])
}

/// `2.11` of `2.11.0+cpu`.
pub fn minor(version: &str) -> &str {
    let mut dots = version.match_indices('.');
    dots.nth(1).map_or(version, |(at, _)| &version[..at])
}
