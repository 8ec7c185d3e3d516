//! Diagnostics: an error or a warning, its place, and a correction to type.

mod foreign;
mod problem;
mod render;
pub(crate) mod syntax;

pub use foreign::advice_for;
pub use problem::{Problem, ProblemKind};
pub use render::{render, render_coloured};

use crate::Span;

/// Whether a diagnostic refuses the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The input has no meaning, or must not be used.
    Error,
    /// The input is accepted.
    Warning,
}

/// A place in a text and the message to show there.
#[derive(Clone, Debug)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// The message there; empty where the place says enough.
    pub text: String,
    /// Whether it only shows where the error occurs: the error is not about that place.
    pub around: bool,
}

/// An error or a warning, with its place and a correction. Messages have no trailing period.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Whether it refuses the input.
    pub severity: Severity,
    /// A stable `kebab-case` word that tests and editors refer to.
    pub code: &'static str,
    /// What is wrong, on one line and without a period at the end.
    pub message: String,
    /// The first label is the error's own place; the others are what it conflicts with.
    pub labels: Vec<Label>,
    /// What to type instead.
    pub help: Vec<String>,
    /// The names that it is about: fields, settings and definitions, as written. The message says them to a person.
    pub names: Vec<String>,
    /// What to write in place of the text at the first label, if one word is the likely correction.
    pub instead: Option<String>,
}

/// Everything found in one pass, in the order to show it.
pub type Diagnostics = Vec<Diagnostic>;

impl Diagnostic {
    /// An error at this place. `code` is a stable `kebab-case` word.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code,
            message: message.into(),
            labels: vec![Label { span, text: String::new(), around: false }],
            help: Vec::new(),
            names: Vec::new(),
            instead: None,
        }
    }

    /// A warning at this place. `code` is a stable `kebab-case` word.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// The message to show at the primary place.
    pub fn here(mut self, text: impl Into<String>) -> Diagnostic {
        if let Some(label) = self.labels.first_mut() {
            label.text = text.into();
        }
        self
    }

    /// Adds a second place, such as the definition that this one conflicts with.
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label { span, text: text.into(), around: false });
        self
    }

    /// Adds a line that says what to type instead.
    pub fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.help.push(text.into());
        self
    }

    /// Suggests a word in place of the one at the primary place.
    pub fn mean(mut self, word: &str) -> Diagnostic {
        self.instead = Some(word.to_owned());
        self.help(format!("did you mean `{word}`?"))
    }

    /// Adds names that it is about. A path counts as the names between its dots.
    pub fn about<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Diagnostic {
        let names = paths.into_iter().flat_map(|path| path.split('.'));
        self.names.extend(names.map(str::to_owned));
        self
    }

    /// Whether it refuses the input.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// The candidate nearest to `word`, if it is close enough to be a misspelling of it.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        if candidate == word {
            continue;
        }
        let score = likeness(&word.to_lowercase(), &candidate.to_lowercase());
        if score > CLOSE && best.is_none_or(|(s, _)| score > s) {
            best = Some((score, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// How alike two words must be for one to count as a misspelling of the other.
const CLOSE: f64 = 0.8;
/// Shorter words get no suggestion: a typo in them often makes another word.
const LONG_ENOUGH: usize = 3;

/// How alike two words are, from 0 to 1. In short words the usual measure does not see swapped letters (`rnu`).
fn likeness(word: &str, candidate: &str) -> f64 {
    let score = strsim::jaro_winkler(word, candidate);
    let is_slip = || strsim::osa_distance(word, candidate) == 1;
    match word.chars().count().min(candidate.chars().count()) >= LONG_ENOUGH && is_slip() {
        true => score.max(CLOSE + 0.01),
        false => score,
    }
}

#[cfg(test)]
mod tests {
    use super::suggest;

    #[test]
    fn typing_errors_in_short_words_get_a_suggestion() {
        let commands = ["run", "new", "fmt", "bind", "build", "verify"];
        for (word, want) in [
            ("rnu", Some("run")),
            ("rum", Some("run")),
            ("fm", Some("fmt")),
            ("nwe", Some("new")),
            ("buidl", Some("build")),
            ("verfy", Some("verify")),
            ("RUNS", Some("run")),
            ("xyz", None),
            ("q", None),
            ("fly", None),
        ] {
            assert_eq!(suggest(word, commands), want, "{word}");
        }
    }
}
