//! Classifies fields that only another trainer reads: unless someone declares that canonc runs both arms, one that differs
//! is a confound.

use super::judge::Judge;
use super::model::{Change, Trainer};
use crate::field::{self, FieldValue, TABLE};

/// A verdict's note on a carried field.
const READ_ELSEWHERE: &str = "another trainer reads it and it can affect results there";
const NOT_READ: &str = "canonc runs both arms and does not read it";
const NOT_READ_BY_PYTORCH: &str = "pytorch runs both arms by canonc.torch, which does not read it";
const NOT_BOUND: &str = "canonc runs both arms and does not read it; bind both arms to one text, since it has no digest yet";

/// Whether a field records the source or the tokenization of text.
fn records_text(path: &str) -> bool {
    field::find(path).is_some_and(|def| def.records_text)
}

impl Judge<'_> {
    /// The trainer that runs both arms.
    pub(super) fn trainer(&self) -> Trainer {
        match self.sides.map(|side| side.trainer) {
            [one, other] if one == other => one,
            [_, _] => Trainer::Any,
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
            (Trainer::Pytorch, true) => cosmetic.push(change.note(NOT_READ_BY_PYTORCH)),
            // Only one arm has it. The field that brings it is listed instead.
            (Trainer::Any | Trainer::Canonc | Trainer::Pytorch, false) => cosmetic.push(change),
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
