//! Which trainer runs the arms, and what that makes of the fields that only another one reads.
//!
//! In: a word of a comparison file, a lock or a command. Out: a [`Trainer`]; of two arms, where a carried
//! field that differs belongs. Must stay true: unless someone declares that canonc runs both arms, a
//! carried field that differs is a confound; a declaration is never silent.

use toml::de::DeValue;

use super::{Change, Judge};
use crate::field::{self, Class, FieldDef, FieldValue, TABLE, shown};

/// Who runs the arms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trainer {
    /// Nobody said: it may be a trainer that reads every key.
    #[default]
    Any,
    /// canonc, which reads none of the keys that it only carries for others.
    Canonc,
}

impl Trainer {
    /// What may be declared.
    pub const WORDS: &'static [&'static str] = &["canonc"];

    /// The word, where something was declared.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Trainer::Any => None,
            Trainer::Canonc => Some("canonc"),
        }
    }

    pub fn parse(word: &str) -> Option<Trainer> {
        (word == "canonc").then_some(Trainer::Canonc)
    }

    /// The value of a comparison file or its lock.
    pub(crate) fn read(value: &DeValue<'_>) -> Result<Trainer, String> {
        let word = field::string(value).and_then(Trainer::parse);
        word.ok_or_else(|| {
            format!("{} is not \"canonc\"; leave it out for any other trainer", shown(value))
        })
    }
}

/// What a verdict says of a carried field.
const READ_ELSEWHERE: &str = "another trainer reads it, where it can decide a result";
const NOT_READ: &str = "canonc runs both arms and does not read it";
const NOT_BOUND: &str =
    "canonc runs both arms and does not read it; bind them to one text, which has no digest yet";

/// Whether a field records where text comes from, or how it becomes tokens.
fn records_text(path: &str) -> bool {
    field::find(path).is_some_and(|def| def.records_text)
}

impl Change {
    /// Whether it is a confound only where another trainer runs the arms.
    /// Whether scores that another trainer measures depend on it.
    pub fn reaches_scores(&self) -> bool {
        field::find(&self.path).is_some_and(FieldDef::reaches_scores)
    }

    pub fn is_carried(&self) -> bool {
        field::find(&self.path).is_some_and(|def| def.class == Class::Carried)
    }
}

impl Judge<'_> {
    /// Who runs both arms.
    pub(super) fn trainer(&self) -> Trainer {
        match self.sides.map(|side| side.trainer) {
            [Trainer::Canonc, Trainer::Canonc] => Trainer::Canonc,
            [Trainer::Any | Trainer::Canonc, Trainer::Any | Trainer::Canonc] => Trainer::Any,
        }
    }

    /// Puts a carried field that differs where it belongs.
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
            // Nothing else that is recorded says that both names mean one text.
            (Trainer::Canonc, true) if records_text(&change.path) && self.is_open() => {
                cosmetic.push(change.note(NOT_BOUND));
            }
            (Trainer::Canonc, true) => cosmetic.push(change.note(NOT_READ)),
            // It comes and goes with another field, which says so.
            (Trainer::Any | Trainer::Canonc, false) => cosmetic.push(change),
        }
    }

    /// Whether some input of an arm has no digest.
    fn is_open(&self) -> bool {
        self.experiments.is_some_and(|arms| arms.iter().any(|arm| !arm.open_inputs().is_empty()))
    }

    /// Whether the arms record one folder and one tokenizer for their text, so that one name can mean one
    /// set of documents.
    pub(super) fn records_agree(&self) -> bool {
        let Some([a, b]) = &self.effective else { return true };
        let mut recorded = TABLE.iter().filter(|def| def.records_text).map(|def| def.path);
        recorded.all(|path| a.get(path) == b.get(path))
    }
}
