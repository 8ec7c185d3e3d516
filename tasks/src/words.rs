//! Names of several tokens, for Depo and Brevo: a prefix code, since only their last token comes from the second
//! alphabet. A repeated name costs its draws and changes nothing else.

use super::cpython::Random;
use super::cpython::set::{TupleSet, WIDTH_STEP};

/// Fills `set` with `count` words of `least..=most` letters 1..=letters, with `letters` added to the last letter of
/// each. The caller guarantees that enough words exist.
pub(super) fn words(
    random: &mut Random,
    set: &mut TupleSet,
    count: u32,
    letters: u32,
    least: u32,
    most: u32,
) {
    set.reset(most as usize);
    while set.len() < count as usize {
        let len = least + random.below(most - least + 1);
        set.insert_with(len as usize, |word| {
            for letter in word.iter_mut() {
                *letter = 1 + random.below(letters);
            }
            if let Some(last) = word.last_mut() {
                *last += letters;
            }
        });
    }
}

/// Number of possible words, or more than any N if the sum is large.
pub(super) fn name_space(letters: u32, least: u32, most: u32) -> u64 {
    (least..=most)
        .map(|len| u64::from(letters).saturating_pow(len))
        .fold(0, |sum: u64, count| sum.saturating_add(count))
}

/// The tokens of a name, joined.
pub(super) fn joined(name: &[u32]) -> String {
    name.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

/// Appends to a list that it first extends, so that names (with lengths that no branch predictor can guess) are copied
/// in pieces of fixed size. The next name overwrites anything written past a name's end.
pub(super) struct Writer<'a> {
    tokens: &'a mut Vec<u32>,
    /// Position of the next token.
    pub(super) at: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the end of `tokens`, for at most `most` tokens.
    pub(super) fn new(tokens: &'a mut Vec<u32>, most: usize) -> Writer<'a> {
        let at = tokens.len();
        tokens.resize(at + most + 64 + WIDTH_STEP, 0);
        Writer { tokens, at }
    }

    #[inline]
    pub(super) fn push(&mut self, token: u32) {
        self.tokens[self.at] = token;
        self.at += 1;
    }

    /// Appends the first `len` of these tokens.
    #[inline]
    pub(super) fn push_some<const MOST: usize>(&mut self, tokens: [u32; MOST], len: usize) {
        self.tokens[self.at..self.at + MOST].copy_from_slice(&tokens);
        self.at += len;
    }

    /// Appends a name in the form that [`TupleSet::padded`] returns.
    #[inline]
    pub(super) fn push_padded(&mut self, (padded, len): (&[u32], usize)) {
        let mut at = self.at;
        for piece in padded.as_chunks::<WIDTH_STEP>().0 {
            self.tokens[at..at + WIDTH_STEP].copy_from_slice(piece);
            at += WIDTH_STEP;
        }
        self.at += len;
    }

    pub(super) fn finish(self) {
        self.tokens.truncate(self.at);
    }
}
