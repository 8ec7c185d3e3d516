//! Tests of the `canonc` binary: exit code, standard output and standard error, as snapshots in `tests/cli` with
//! digests and the folder's name replaced. Every command's help, work and bad input is tested here, and the results are
//! the same with and without libtorch.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

mod cli {
    #[cfg(feature = "ext")]
    mod audit;
    #[cfg(feature = "ext")]
    mod audit_foreign;
    mod bad_input;
    mod check;
    mod data;
    mod doors;
    mod fields;
    mod fmt;
    #[cfg(feature = "ext")]
    mod graph;
    mod locks;
    #[cfg(feature = "ext")]
    mod lsp;
    mod merge;
    mod other;
    mod overlap;
    mod readme;
    mod report;
    mod scaling;
    mod show;
    #[cfg(feature = "torch")]
    mod start;
    mod stream;
    mod text;
}

/// The result of running the binary.
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

/// The root of this repository, where `arch/` is.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Runs `canonc` in a folder, without the user's own settings.
fn canonc(dir: &Path, arguments: &[&str]) -> Ran {
    canonc_reading(dir, arguments, "")
}

/// Runs `canonc` with text on standard input.
fn canonc_reading(dir: &Path, arguments: &[&str], input: &str) -> Ran {
    let mut child = command(dir, arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Whether this build has the command of a line: without `ext/` some are missing.
fn has(line: &str) -> bool {
    let command = line.split(' ').next().unwrap();
    let help = || canonc(&root(), &["help", command]);
    cfg!(feature = "ext") || !help().stderr.contains(&format!("`{command}` is not a command"))
}

/// Runs `canonc` with the words of a line, split at blanks.
fn run_line(dir: &Path, line: &str) -> Ran {
    canonc(dir, &line.split_whitespace().collect::<Vec<_>>())
}

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canonc"));
    command.current_dir(dir).args(arguments).env_remove("NO_COLOR").env("COLUMNS", "100");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Ran {
    /// Exit code and both streams, for a snapshot.
    fn text(&self, dir: &Path) -> String {
        let Ran { code, stdout, stderr } = self;
        let text = format!("exit {code}\n--- stdout\n{stdout}--- stderr\n{stderr}");
        let dir = dir.to_string_lossy();
        let text = text.replace(dir.as_ref(), "[dir]");
        // On Windows usage lines show the binary as `canonc.exe`.
        hex_replaced(&text.replace("canonc.exe", "canonc"), 64, "[digest]")
    }
}

/// Replaces every run of `digits` hexadecimal digits by `with`: other tests check their values.
fn hex_replaced(text: &str, digits: usize, with: &str) -> String {
    let mut out = String::new();
    let mut run = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_hexdigit() && !c.is_ascii_uppercase() {
            run.push(c);
            continue;
        }
        out += if run.len() == digits { with } else { &run };
        run.clear();
        out.push(c);
    }
    out.pop();
    out
}

/// A temporary folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

/// A valid architecture.
const GOOD: &str = "\
/// A small one.
arch good {
  vocab 16   dim 8   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 2 }
    mlp   swiglu { hidden 16 }
  }
}
";
