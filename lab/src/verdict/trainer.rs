//! Declares which trainer runs the arms, and classifies fields that only another trainer reads.
//!
//! In: a word of a comparison file, a lock or a command. Out: a [`Trainer`]; for two arms, the group of each
//! carried field that differs. Must stay true: unless someone declares that canonc runs both arms, a
//! carried field that differs is a confound; a declaration is always reported.

use toml::de::DeValue;

use super::{Change, Judge};
use crate::field::{self, Class, FieldDef, FieldValue, TABLE, shown};

/// The trainer that runs the arms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trainer {
    /// Not declared: it may be a trainer that reads every key.
    #[default]
    Any,
    /// canonc, which ignores the keys that it only carries for other trainers.
    Canonc,
}

impl Trainer {
    /// Words that may be declared.
    pub const WORDS: &'static [&'static str] = &["canonc"];

    /// The declared word, if any.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Trainer::Any => None,
            Trainer::Canonc => Some("canonc"),
        }
    }

    /// The trainer that this word declares.
    pub fn parse(word: &str) -> Option<Trainer> {
        (word == "canonc").then_some(Trainer::Canonc)
    }

    /// Reads the value from a comparison file or its lock.
    pub(crate) fn read(value: &DeValue<'_>) -> Result<Trainer, String> {
        let word = field::string(value).and_then(Trainer::parse);
        word.ok_or_else(|| {
            format!("{} is not \"canonc\"; leave it out for any other trainer", shown(value))
        })
    }
}

/// A verdict's note on a carried field.
const READ_ELSEWHERE: &str = "another trainer reads it and it can affect results there";
const NOT_READ: &str = "canonc runs both arms and does not read it";
const NOT_BOUND: &str = "canonc runs both arms and does not read it; bind both arms to one text, since it has no digest yet";

/// Whether a field records the source or the tokenization of text.
fn records_text(path: &str) -> bool {
    field::find(path).is_some_and(|def| def.records_text)
}

impl Change {
    /// Whether scores that another trainer measures depend on this field.
    pub fn reaches_scores(&self) -> bool {
        field::find(&self.path).is_some_and(FieldDef::reaches_scores)
    }

    /// Whether only another trainer reads the field.
    pub fn is_carried(&self) -> bool {
        field::find(&self.path).is_some_and(|def| def.class == Class::Carried)
    }
}

impl Judge<'_> {
    /// The trainer that runs both arms.
    pub(super) fn trainer(&self) -> Trainer {
        match self.sides.map(|side| side.trainer) {
            [Trainer::Canonc, Trainer::Canonc] => Trainer::Canonc,
            [Trainer::Any | Trainer::Canonc, Trainer::Any | Trainer::Canonc] => Trainer::Any,
        }
    }

    /// Adds a carried field that differs to its group.
    pub(super) fn carried(
        &self,
        [before, after]: [Option<&FieldValue>; 2],
        change: Change,
        confounds: &mut Vec<Change>,
        cosmetic: &mut Vec<Change>,
    ) {
        if before == after {
            return;
        }
        match (self.trainer(), before.is_some() && after.is_some()) {
            (Trainer::Any, true) => confounds.push(change.note(READ_ELSEWHERE)),
            // No other recorded fact shows that both names mean one text.
            (Trainer::Canonc, true) if records_text(&change.path) && self.is_open() => {
                cosmetic.push(change.note(NOT_BOUND));
            }
            (Trainer::Canonc, true) => cosmetic.push(change.note(NOT_READ)),
            // Only one arm has it. The field that brings it is listed instead.
            (Trainer::Any | Trainer::Canonc, false) => cosmetic.push(change),
        }
    }

    /// Whether some input of an arm has no digest.
    fn is_open(&self) -> bool {
        self.experiments.is_some_and(|arms| arms.iter().any(|arm| !arm.open_inputs().is_empty()))
    }

    /// Whether the arms record the same folder and tokenizer for their text, so that equal names can mean
    /// equal documents.
    pub(super) fn records_agree(&self) -> bool {
        let Some([a, b]) = &self.effective else { return true };
        let mut recorded = TABLE.iter().filter(|def| def.records_text).map(|def| def.path);
        recorded.all(|path| a.get(path) == b.get(path))
    }
}
