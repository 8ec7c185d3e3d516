//! Why a command stops: the one error type of the command line, its exit code and its text.

use std::io;
use std::path::Path;

use dsl::{Problem, ProblemKind};

use crate::printable::{disturbs, inline};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    Fine,
    /// A drift, a confound, a mismatch, or an unformatted file.
    Finding,
    /// Bad input or usage.
    BadInput,
    /// This machine cannot: permissions, disk, a missing library.
    Machine,
    /// Interrupted with a good checkpoint.
    Interrupted,
    /// Ended by a signal without a checkpoint; uses the exit code that a shell would report.
    Stopped,
}

impl Exit {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Fine => 0,
            Exit::Finding => 1,
            Exit::BadInput => 2,
            Exit::Machine => 3,
            Exit::Interrupted => 75,
            Exit::Stopped => 130,
        }
    }
}

/// The result of a command.
pub type Outcome = Result<Exit, Failure>;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// `None` if everything has been shown already, or the reader has closed the pipe.
    pub message: Option<String>,
    /// A file, or a file with line and column.
    pub place: Option<String>,
    /// Commands or advice, one line each.
    pub help: Vec<String>,
}

impl Failure {
    pub fn bad_input(message: impl Into<String>) -> Failure {
        Failure {
            exit: Exit::BadInput,
            message: Some(message.into()),
            place: None,
            help: Vec::new(),
        }
    }

    pub fn machine(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Machine, ..Failure::bad_input(message) }
    }

    /// A drift, a confound or a mismatch.
    pub fn finding(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Finding, ..Failure::bad_input(message) }
    }

    /// Ends the command without another message: diagnostics have been shown.
    pub fn shown(exit: Exit) -> Failure {
        Failure { exit, message: None, place: None, help: Vec::new() }
    }

    pub fn at(mut self, place: impl Into<String>) -> Failure {
        self.place = Some(place.into());
        self
    }

    pub fn help(mut self, text: impl Into<String>) -> Failure {
        self.help.push(text.into());
        self
    }

    /// Error for a file that could not be read, with the reason.
    pub fn cannot_read(path: &Path, error: &io::Error) -> Failure {
        let path = shown(path);
        match disk::is_of_machine(error) {
            true => Failure::machine(format!("`{path}` cannot be read: {error}")),
            false => Failure::bad_input(format!("`{path}` cannot be read: {}", reason(error))),
        }
    }

    /// Error for a file that could not be written, with the reason. A path of the wrong kind is bad usage.
    pub fn cannot_write(path: &Path, error: &io::Error) -> Failure {
        if let Some(problem) = disk::not_durable(error, format!("`{}`", shown(path))) {
            return problem.into();
        }
        let message = format!("`{}` cannot be written: {}", shown(path), reason(error));
        match disk::is_wrong_path(error) {
            true => Failure::bad_input(message).help("name another path"),
            false => Failure::machine(message),
        }
    }

    /// The failure as text for people. Empty if everything has been shown.
    pub fn render(&self, coloured: bool) -> String {
        let Some(message) = &self.message else { return String::new() };
        let message = inline(message);
        let (red, bold, plain) =
            if coloured { ("\x1b[1;31m", "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{red}error{plain}{bold}: {message}{plain}\n");
        if let Some(place) = &self.place {
            text += &format!("  --> {}\n", inline(place));
        }
        for help in &self.help {
            text += &format!("  = help: {}\n", inline(help));
        }
        text
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        let Problem { kind, message, help, place } = problem;
        let exit = match kind {
            ProblemKind::Finding => Exit::Finding,
            ProblemKind::Input => Exit::BadInput,
            ProblemKind::Machine => Exit::Machine,
        };
        let help = if help.is_empty() { Vec::new() } else { vec![help] };
        Failure { exit, message: Some(message), place, help }
    }
}

/// A path as canonc prints it: with `/`, and without characters that could disturb a terminal.
pub fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    let text = if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() };
    let hidden = |c: char| c.is_control() || disturbs(c);
    text.chars().map(|c| if hidden(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Why a file operation failed, in words, without the operating system's error number.
pub fn reason(error: &io::Error) -> String {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "`ErrorKind` is an open set; other errors describe themselves"
    )]
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::AlreadyExists => "a file is in the place of a folder".to_owned(),
        io::ErrorKind::NotADirectory => "a part of the path is not a folder".to_owned(),
        io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => {
            let text = error.to_string();
            let words = text.split(" (os error").next().unwrap_or(&text);
            // The system's sentences begin with a capital letter; names in others keep theirs.
            let mut letters = words.chars();
            match (letters.next(), letters.next()) {
                (Some(first), Some(second)) if second.is_lowercase() => {
                    first.to_lowercase().chain(words.chars().skip(1)).collect()
                }
                (_, _) => words.to_owned(),
            }
        }
    }
}
