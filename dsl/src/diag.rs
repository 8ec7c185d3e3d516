//! Diagnostics: the error, its place, and a correction to type. In: spans and words. Out: one type
//! for every stage, and its rendering as text. Must stay true: messages have no trailing period,
//! rendering never panics on any span, colour never carries meaning.

mod render;
pub(crate) mod syntax;

pub use render::{render, render_coloured};

use crate::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Error,
    Warning,
}

/// A place in a text and the message to show there.
#[derive(Clone, Debug)]
pub struct Label {
    pub span: Span,
    pub text: String,
}

#[derive(Clone, Debug)]
pub struct Diagnostic {
    pub severity: Severity,
    /// A stable `kebab-case` word that tests and editors refer to.
    pub code: &'static str,
    pub message: String,
    /// The first label is the error's own place; the others are what it conflicts with.
    pub labels: Vec<Label>,
    /// What to type instead.
    pub help: Vec<String>,
}

pub type Diagnostics = Vec<Diagnostic>;

impl Diagnostic {
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code,
            message: message.into(),
            labels: vec![Label { span, text: String::new() }],
            help: Vec::new(),
        }
    }

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

    pub fn label(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    pub fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.help.push(text.into());
        self
    }

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

/// Likeness of a misspelling.
const CLOSE: f64 = 0.8;
/// Fewest letters of a word in which one slip is not another word.
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
    fn slips_in_short_words_are_seen() {
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
