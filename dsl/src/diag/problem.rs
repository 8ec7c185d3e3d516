//! A problem that stops a command: what is wrong, where, and what to do next.

use std::fmt;

/// The kind of a problem, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// A claim is false: 1.
    Finding,
    /// Invalid input: 2.
    Input,
    /// This machine cannot do it, or not now: 3.
    Machine,
}

/// A problem in words for people. A [`crate::Diagnostic`] is one in a text whose lines can be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kind of problem.
    pub kind: ProblemKind,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to do next.
    pub help: String,
    /// The file, and the line if known.
    pub place: Option<String>,
}

impl Problem {
    /// A claim that is false.
    pub fn finding(message: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem { kind: ProblemKind::Finding, ..Problem::input(message, help) }
    }

    /// Invalid input.
    pub fn input(message: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem {
            kind: ProblemKind::Input,
            message: message.into(),
            help: help.into(),
            place: None,
        }
    }

    /// A failure of this machine.
    pub fn machine(message: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem { kind: ProblemKind::Machine, ..Problem::input(message, help) }
    }

    /// Invalid input in a file.
    pub fn in_file(
        place: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Problem {
        Problem::input(message, help).at(place)
    }

    /// The same problem, in this file.
    pub fn at(self, place: impl Into<String>) -> Problem {
        Problem { place: Some(place.into()), ..self }
    }

    /// What is wrong and where, on one line.
    pub fn located(&self) -> String {
        match &self.place {
            Some(place) => format!("{place}: {}", self.message),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhelp: {}", self.located(), self.help)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_shown_with_its_place_and_its_help() {
        let problem = Problem::machine("it cannot be read", "name another file");
        assert_eq!(problem.to_string(), "it cannot be read\nhelp: name another file");
        let text = problem.at("a.toml, line 3").to_string();
        assert_eq!(text, "a.toml, line 3: it cannot be read\nhelp: name another file");
    }
}
