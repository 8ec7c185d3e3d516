//! Splits normalised text into the pieces of a byte-pair model, as SentencePiece's `bpe_model.cc` does.

use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

use sentencepiece_model::{SentencePiece, Type};

/// Symbols that are never split or changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Symbols {
    texts: HashSet<Box<str>>,
    /// Their lengths in bytes, longest first.
    lengths: Vec<usize>,
}

impl Symbols {
    fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Symbols {
        let texts: HashSet<Box<str>> = texts.map(Box::from).collect();
        let lengths: BTreeSet<usize> = texts.iter().map(|text| text.len()).collect();
        Symbols { texts, lengths: lengths.into_iter().rev().collect() }
    }

    /// The longest symbol at the start of a text, else its first character, and which of the two it is.
    pub(super) fn prefix<'t>(&self, text: &'t str) -> (&'t str, bool) {
        let mut prefixes = self.lengths.iter().filter_map(|length| text.get(..*length));
        match prefixes.find(|prefix| self.texts.contains(*prefix)) {
            Some(symbol) => (symbol, true),
            None => {
                let length = text.chars().next().map_or(0, char::len_utf8);
                (text.get(..length).unwrap_or_default(), false)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    id: u32,
    score: f32,
}

/// The pieces of a model that text can become.
#[derive(Debug)]
pub(super) struct Pieces {
    pieces: HashMap<Box<str>, Piece>,
    unknown: u32,
    user_defined: Symbols,
}

impl Pieces {
    /// Refuses pieces whose ids depend on the version of SentencePiece.
    pub(super) fn new(model: &[SentencePiece]) -> Result<Pieces, String> {
        let mut pieces = HashMap::new();
        let mut texts = HashSet::new();
        let mut unknown = None;
        for (id, piece) in (0..).zip(model) {
            let (text, score) = (piece.piece(), piece.score());
            if text.is_empty() {
                return Err(format!("its piece {id} is empty"));
            }
            if !texts.insert(text) {
                return Err(format!("its piece {id}, `{text}`, occurs twice"));
            }
            if score.is_nan() {
                return Err(format!("the score of its piece {id}, `{text}`, is not a number"));
            }
            match piece.r#type() {
                Type::Normal | Type::UserDefined => {
                    pieces.insert(Box::from(text), Piece { id, score });
                }
                Type::Unused => return Err(format!("its piece {id}, `{text}`, is marked unused")),
                Type::Unknown if unknown.replace(id).is_some() => {
                    return Err("it has two unknown tokens".to_owned());
                }
                Type::Control | Type::Byte | Type::Unknown if text.chars().count() == 1 => {
                    return Err(format!(
                        "its piece {id}, `{text}`, is a control token of one character"
                    ));
                }
                Type::Control | Type::Byte | Type::Unknown => {}
            }
        }
        let unknown = unknown.ok_or("it has no unknown token")?;
        let user_defined = model.iter().filter(|piece| piece.r#type() == Type::UserDefined);
        let user_defined = Symbols::new(user_defined.map(|piece| piece.piece()));
        Ok(Pieces { pieces, unknown, user_defined })
    }

    pub(super) fn unknown(&self) -> u32 {
        self.unknown
    }

    pub(super) fn user_defined(&self) -> &Symbols {
        &self.user_defined
    }

    /// Characters and user-defined symbols, and which of the two each is.
    fn symbols<'t>(&self, text: &'t str) -> impl Iterator<Item = (&'t str, bool)> {
        let mut rest = text;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (symbol, is_user_defined) = self.user_defined.prefix(rest);
            rest = rest.get(symbol.len()..).unwrap_or_default();
            Some((symbol, is_user_defined))
        })
    }

    /// Calls `each` with each piece of a normalised text and its id: the neighbours with the highest score are joined,
    /// of equal ones the leftmost, until no two make a piece.
    pub(super) fn segment<'t>(&self, text: &'t str, each: &mut dyn FnMut(&'t str, u32)) {
        let mut merging = Merging {
            pieces: &self.pieces,
            text,
            symbols: Vec::with_capacity(text.len()),
            merges: BinaryHeap::new(),
        };
        let mut start = 0;
        for (symbol, is_frozen) in self.symbols(text) {
            let end = start + symbol.len();
            let count = merging.symbols.len();
            let (before, after) = (count.checked_sub(1), Some(count + 1));
            merging.symbols.push(Symbol { start, end, before, after, is_frozen });
            start = end;
        }
        if let Some(last) = merging.symbols.last_mut() {
            last.after = None;
        }
        for right in 1..merging.symbols.len() {
            merging.offer(right - 1, right);
        }
        while let Some(merge) = merging.merges.pop() {
            merging.apply(&merge);
        }
        let symbols = merging.symbols;
        let mut next = (!symbols.is_empty()).then_some(0);
        while let Some(symbol) = next.and_then(|next| symbols.get(next)) {
            let piece = text.get(symbol.start..symbol.end).unwrap_or_default();
            each(piece, self.pieces.get(piece).map_or(self.unknown, |piece| piece.id));
            next = symbol.after;
        }
    }
}

/// A text while its symbols are joined.
struct Merging<'a> {
    pieces: &'a HashMap<Box<str>, Piece>,
    text: &'a str,
    symbols: Vec<Symbol>,
    /// The pairs of neighbours that make a piece; some may be out of date.
    merges: BinaryHeap<Merge>,
}

impl Merging<'_> {
    /// Adds a merge if these two neighbours make a piece.
    fn offer(&mut self, left: usize, right: usize) {
        let (Some(first), Some(second)) = (self.symbols.get(left), self.symbols.get(right)) else {
            return;
        };
        if first.is_frozen || second.is_frozen {
            return;
        }
        let merged = self.text.get(first.start..second.end).unwrap_or_default();
        if let Some(piece) = self.pieces.get(merged) {
            self.merges.push(Merge { score: piece.score, left, right, length: merged.len() });
        }
    }

    fn apply(&mut self, merge: &Merge) {
        let Merge { left, right, length, .. } = *merge;
        let (Some(first), Some(second)) = (self.symbols.get(left), self.symbols.get(right)) else {
            return;
        };
        let (first_length, second_length) = (first.end - first.start, second.end - second.start);
        // One of the two has been merged with another meanwhile.
        if first_length == 0 || second_length == 0 || first_length + second_length != length {
            return;
        }
        let (before, after, end) = (first.before, second.after, second.end);
        if let Some(first) = self.symbols.get_mut(left) {
            first.end = end;
            first.after = after;
        }
        if let Some(second) = self.symbols.get_mut(right) {
            second.end = second.start;
        }
        if let Some(next) = after.and_then(|next| self.symbols.get_mut(next)) {
            next.before = Some(left);
        }
        if let Some(previous) = before {
            self.offer(previous, left);
        }
        if let Some(next) = after {
            self.offer(left, next);
        }
    }
}

/// A part of the text, in a list of neighbours.
#[derive(Debug)]
struct Symbol {
    start: usize,
    end: usize,
    before: Option<usize>,
    after: Option<usize>,
    /// A user-defined symbol, which joins no other.
    is_frozen: bool,
}

/// Two neighbours that make a piece of `length` bytes.
#[derive(Debug, PartialEq)]
struct Merge {
    score: f32,
    left: usize,
    right: usize,
    length: usize,
}

impl Eq for Merge {}

impl Ord for Merge {
    fn cmp(&self, other: &Merge) -> std::cmp::Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Merge {
    fn partial_cmp(&self, other: &Merge) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
