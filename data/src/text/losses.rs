//! Counts the text that a tokenizer loses: characters without a token, and tokens for unknown text.
//!
//! White space is not counted, since many tokenizers split at it. A tokenizer that cannot drop a character costs
//! nothing here.

use serde::{Deserialize, Serialize};

/// Counts of lost text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Losses {
    /// Characters that are not white space.
    pub characters: u64,
    /// Of these, characters that no token covers.
    pub dropped: u64,
    /// Tokens for text that the tokenizer does not know.
    pub unknown: u64,
}

impl Losses {
    /// Adds the counts of further documents.
    pub fn add(&mut self, next: Losses) {
        let Losses { characters, dropped, unknown } = next;
        self.characters += characters;
        self.dropped += dropped;
        self.unknown += unknown;
    }

    /// Warnings about documents with `tokens` tokens; none if nothing is lost.
    pub fn warnings(&self, tokens: u64) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.dropped > 0 {
            warnings.push(format!(
                "the tokenizer has no token for {} of {} characters ({}) and drops them",
                self.dropped,
                self.characters,
                share(self.dropped, self.characters)
            ));
        }
        if self.unknown > 0 {
            warnings.push(format!(
                "{} of {tokens} tokens ({}) are the tokenizer's token for unknown text",
                self.unknown,
                share(self.unknown, tokens)
            ));
        }
        warnings
    }

    /// Whether every character of the documents is lost.
    pub fn all(&self, tokens: u64) -> bool {
        let dropped = self.dropped > 0 && self.dropped == self.characters;
        dropped || tokens == 0 || self.unknown == tokens
    }
}

fn share(part: u64, total: u64) -> String {
    let percent = part as f64 * 100.0 / total.max(1) as f64;
    if percent < 0.01 { "under 0.01%".to_owned() } else { format!("{percent:.2}%") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_give_the_share_of_lost_text() {
        let mut losses = Losses { characters: 200, dropped: 0, unknown: 0 };
        assert!(losses.warnings(50).is_empty() && !losses.all(50));
        losses.add(Losses { characters: 0, dropped: 3, unknown: 5 });
        let warnings = losses.warnings(50).join("; ");
        assert!(warnings.contains("3 of 200 characters (1.50%)"), "{warnings}");
        assert!(warnings.contains("5 of 50 tokens (10.00%)"), "{warnings}");
        assert!(Losses { unknown: 50, ..losses }.all(50));
        assert!(Losses { dropped: 200, ..losses }.all(50));
        assert_eq!(share(1, 1_000_000), "under 0.01%");
    }
}
