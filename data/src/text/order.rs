//! In: the documents of an index, a split, a seed and weights. Out: the endless sequence of documents as numbered
//! passes, which can each be made alone. Must stay true: a pass has as many slots as the split has documents; with
//! weights a source has a fixed share of them, and goes through its own documents epoch by epoch, each epoch in its own
//! order. So the stream position of a pass is arithmetic over whole epochs plus at most one unfinished one per source.

use std::ops::Range;

use crate::{DataError, Split};

use super::index::{Source, TextIndex};
use super::shuffle;
use super::{HeldOut, Marks, Options, Shuffle, document_tokens};

/// A keyed bijection of 0..n: a balanced Feistel network on the next even power of two, iterated until the result is in
/// range (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    n: u64,
    half_bits: u32,
    /// None for the identity permutation.
    keys: Option<[u64; 8]>,
}

impl Permutation {
    /// The permutation of 0..n for `key`; `n` is at least 1.
    pub(super) fn new(n: u64, key: &blake3::Hash) -> Permutation {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let mut keys = [0; 8];
        let (mut bytes, mut reader) =
            ([0; 8], blake3::Hasher::new_keyed(key.as_bytes()).finalize_xof());
        for key in &mut keys {
            reader.fill(&mut bytes);
            *key = u64::from_le_bytes(bytes);
        }
        Permutation { n, half_bits: bits.div_ceil(2).max(1), keys: Some(keys) }
    }

    /// The identity permutation of 0..n.
    pub(super) fn identity(n: u64) -> Permutation {
        Permutation { n, half_bits: 1, keys: None }
    }

    /// The image of `i`, which must be below `n`.
    pub(super) fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.n);
        let Some(keys) = &self.keys else { return i };
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = i;
        // The domain is less than four times n, and the cycle through i returns to i at the latest.
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for &key in keys {
                (left, right) = (right, left ^ (mixed(right ^ key) & mask));
            }
            value = left << self.half_bits | right;
            if value < self.n {
                return value;
            }
        }
    }
}

/// SplitMix64's finaliser (Steele, Lea and Flood 2014).
fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The order of one split's documents.
#[derive(Clone, Debug)]
pub(super) struct Order {
    seed: u64,
    split: Split,
    marks: Marks,
    sources: Vec<SourceOrder>,
    slots: u64,
    /// Whether every epoch of a source keeps the order of its files.
    as_listed: bool,
}

#[derive(Clone, Debug)]
struct SourceOrder {
    /// Its index among the index's sources.
    number: usize,
    documents: Vec<u32>,
    /// Slots per pass.
    share: u64,
    /// Number of tokens in all its documents.
    tokens: u64,
}

impl SourceOrder {
    fn mean_pass(&self) -> f64 {
        self.tokens as f64 * self.share as f64 / self.documents.len().max(1) as f64
    }
}

/// How much a run reads of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceEpochs {
    /// The source's name.
    pub name: String,
    /// Number of documents in the split.
    pub documents: u64,
    /// Number of their tokens, marks included, each document once.
    pub tokens: u64,
    /// Its share of the documents read.
    pub share: f64,
    /// Its share of the tokens read. Sources with longer documents have a larger one.
    pub token_share: f64,
    /// How often each document is read.
    pub epochs: f64,
}

/// One pass: its documents in order, and where each ends in the stream.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    number: u64,
    start: u64,
    documents: Vec<u32>,
    /// Where each document ends, from the start of the pass.
    ends: Vec<u64>,
}

impl Order {
    pub(super) fn new(index: &TextIndex, options: &Options) -> Result<Order, DataError> {
        let Options { seq_len: _, seed, split, held_out, marks, weights, shuffle } = options;
        if held_out.per_million > 1_000_000 {
            return Err(DataError::new(
                format!("held_out is {} of a million documents", held_out.per_million),
                "hold out 0 to 1000000",
            ));
        }
        let mut sources = Vec::new();
        for (number, Source { name: _, documents }) in index.sources().iter().enumerate() {
            let documents = of_split(index, documents.clone(), *held_out, *split)?;
            let tokens = documents
                .iter()
                .map(|&document| document_tokens(index.tokens(document), *marks))
                .sum();
            sources.push(SourceOrder { number, share: documents.len() as u64, documents, tokens });
        }
        let slots: u64 = sources.iter().map(|source| source.share).sum();
        if slots == 0 {
            let (part, help) = match split {
                Split::Train => {
                    ("for training", "lower data.held_out in the recipe, or prepare more documents")
                }
                Split::HeldOut => (
                    "for evaluation",
                    "raise data.held_out in the recipe, or prepare more documents: each text file is one document, \
                     or with `canonc data prepare --lines` each line",
                ),
            };
            return Err(DataError::new(
                format!(
                    "data.held_out = {} of {} leaves none {part}",
                    f64::from(held_out.per_million) / 1e6,
                    dsl::counted(index.len(), "document")
                ),
                help,
            ));
        }
        match split {
            Split::Train if !weights.is_empty() => weigh(index, &mut sources, slots, weights)?,
            Split::Train | Split::HeldOut => {}
        }
        sources.retain(|source| source.share > 0);
        // Positions are counted in tokens, so every source needs some.
        if let Some(source) = sources.iter().find(|source| source.tokens == 0) {
            let name = index.sources().get(source.number).map_or("", |source| &source.name);
            return Err(DataError::new(
                format!("the documents of source `{name}` have no tokens, not even bos or eos"),
                "remove the source, or set add_bos or add_eos under [data]",
            ));
        }
        let as_listed = matches!(shuffle::of_split(*shuffle, *split), Shuffle::Buffer { .. });
        Ok(Order { seed: *seed, split: *split, marks: *marks, sources, slots, as_listed })
    }

    pub(super) fn documents(&self) -> u64 {
        self.sources.iter().map(|source| source.documents.len() as u64).sum()
    }

    pub(super) fn tokens(&self) -> u64 {
        self.sources.iter().map(|source| source.tokens).sum()
    }

    /// Mean tokens per pass. With weights, each pass draws other documents.
    fn mean_pass(&self) -> f64 {
        self.sources.iter().map(SourceOrder::mean_pass).sum::<f64>().max(1.0)
    }

    pub(super) fn passes(&self, tokens: u64) -> f64 {
        tokens as f64 / self.mean_pass()
    }

    /// Each source's epochs. A pass draws a fixed number of documents per source, so passes are proportional to tokens.
    pub(super) fn epochs(&self, index: &TextIndex, tokens: u64) -> Vec<SourceEpochs> {
        let (pass, passes) = (self.mean_pass(), self.passes(tokens));
        let of = |source: &SourceOrder| SourceEpochs {
            name: index.sources().get(source.number).map_or("", |source| &source.name).to_owned(),
            documents: source.documents.len() as u64,
            tokens: source.tokens,
            share: source.share as f64 / self.slots.max(1) as f64,
            token_share: source.mean_pass() / pass,
            epochs: passes * source.share as f64 / source.documents.len().max(1) as f64,
        };
        self.sources.iter().map(of).collect()
    }

    pub(super) fn pass(&self, index: &TextIndex, number: u64) -> Pass {
        self.pass_from(index, number, self.start_of(index, number) as u64)
    }

    pub(super) fn pass_after(&self, index: &TextIndex, pass: &Pass) -> Pass {
        self.pass_from(index, pass.number + 1, pass.end())
    }

    /// The pass that holds stream position `at`. `near` is any pass; it is used if it directly precedes.
    pub(super) fn pass_at(&self, index: &TextIndex, at: u64, near: &Pass) -> Pass {
        if near.end() <= at {
            let next = self.pass_after(index, near);
            if next.holds(at) {
                return next;
            }
        }
        let begins_by = |number: u64| self.start_of(index, number) <= u128::from(at);
        let mut above = 1;
        while begins_by(above) {
            above *= 2;
        }
        let mut below = above / 2;
        // Pass `below` begins at or before `at`, pass `above` after it.
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if begins_by(middle) {
                below = middle;
            } else {
                above = middle;
            }
        }
        self.pass(index, below)
    }

    /// Tokens before pass `number`. If every pass has whole epochs (no weights), this looks at no document.
    fn start_of(&self, index: &TextIndex, number: u64) -> u128 {
        let mut start = 0;
        for source in &self.sources {
            let drawn = u128::from(number) * u128::from(source.share);
            let count = source.documents.len() as u128;
            start += drawn / count * u128::from(source.tokens);
            let rest = (drawn % count) as u64;
            if rest > 0 {
                let epoch = self.epoch(source, (drawn / count) as u64);
                start += (0..rest)
                    .map(|i| u128::from(self.tokens_of(index, source, epoch.at(i))))
                    .sum::<u128>();
            }
        }
        start
    }

    fn pass_from(&self, index: &TextIndex, number: u64, start: u64) -> Pass {
        let slots = Permutation::new(self.slots, &self.key(&format!("pass {number}\n")));
        // The epochs of each source that this pass draws from, and the slots before the source's own.
        let mut before = 0;
        let epochs: Vec<(u64, &SourceOrder, u128, Vec<Permutation>)> = self
            .sources
            .iter()
            .map(|source| {
                let drawn = u128::from(number) * u128::from(source.share);
                let count = source.documents.len() as u128;
                let last = (drawn + u128::from(source.share) - 1) / count;
                let epochs =
                    (drawn / count..=last).map(|epoch| self.epoch(source, epoch as u64)).collect();
                let entry = (before, source, drawn, epochs);
                before += source.share;
                entry
            })
            .collect();

        let mut taken = vec![0; epochs.len()];
        let mut documents = Vec::with_capacity(self.slots as usize);
        let mut ends = Vec::with_capacity(self.slots as usize);
        let mut end = 0;
        for slot in 0..self.slots {
            let draw = slots.at(slot);
            let which = epochs.partition_point(|(before, ..)| *before <= draw).saturating_sub(1);
            let (before, source, drawn, epochs) = &epochs[which];
            let count = source.documents.len() as u128;
            // In file order, a source's documents come in sequence, whichever slot draws them.
            let place = if self.as_listed { taken[which] } else { draw - before };
            taken[which] += 1;
            let draw = drawn + u128::from(place);
            let epoch = (draw / count - drawn / count) as usize;
            let document = source.documents[epochs[epoch].at((draw % count) as u64) as usize];
            end += document_tokens(index.tokens(document), self.marks);
            documents.push(document);
            ends.push(end);
        }
        Pass { number, start, documents, ends }
    }

    fn tokens_of(&self, index: &TextIndex, source: &SourceOrder, place: u64) -> u64 {
        let document = source.documents.get(place as usize).copied().unwrap_or(u32::MAX);
        document_tokens(index.tokens(document), self.marks)
    }

    /// The order of a source's documents in its epoch `number`.
    fn epoch(&self, source: &SourceOrder, number: u64) -> Permutation {
        if self.as_listed {
            return Permutation::identity(source.documents.len() as u64);
        }
        let key = self.key(&format!("source {}\nepoch {number}\n", source.number));
        Permutation::new(source.documents.len() as u64, &key)
    }

    pub(super) fn key(&self, of: &str) -> blake3::Hash {
        let text = format!("split {}\nseed {}\n{of}", self.split.key(), self.seed);
        blake3::Hasher::new_derive_key("canonc 1 data text order")
            .update(text.as_bytes())
            .finalize()
    }
}

impl Pass {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    #[cfg(test)]
    pub(super) fn documents(&self) -> &[u32] {
        &self.documents
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn holds(&self, at: u64) -> bool {
        (self.start..self.end()).contains(&at)
    }

    pub(super) fn end(&self) -> u64 {
        self.start + self.ends.last().copied().unwrap_or(0)
    }

    /// The document at a position in the pass, and the number of its tokens before that position.
    pub(super) fn document_at(&self, at: u64) -> (u32, u64) {
        let at = at - self.start;
        let place = self.ends.partition_point(|&end| end <= at);
        let begins = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        (self.documents[place], at - begins)
    }
}

/// The documents of a split, in order.
fn of_split(
    index: &TextIndex,
    documents: Range<u32>,
    held_out: HeldOut,
    split: Split,
) -> Result<Vec<u32>, DataError> {
    if held_out.per_million == 0 {
        return Ok(match split {
            Split::Train => documents.collect(),
            Split::HeldOut => Vec::new(),
        });
    }
    let mut found = Vec::new();
    index.digests(documents, |document, digest| {
        if side(digest, held_out) == split {
            found.push(document);
        }
    })?;
    Ok(found)
}

/// The split of a document.
fn side(digest: &blake3::Hash, held_out: HeldOut) -> Split {
    let HeldOut { seed, per_million } = held_out;
    let mut hasher = blake3::Hasher::new_derive_key("canonc 1 data text held out");
    hasher.update(&seed.to_le_bytes());
    hasher.update(digest.as_bytes());
    let mut draw = [0; 8];
    hasher.finalize_xof().fill(&mut draw);
    let millionths = (u128::from(u64::from_le_bytes(draw)) * 1_000_000) >> 64;
    if millionths < u128::from(per_million) { Split::HeldOut } else { Split::Train }
}

/// Shares of `slots` in proportion to the weights, by largest remainder; ties go to earlier sources.
fn weigh(
    index: &TextIndex,
    sources: &mut [SourceOrder],
    slots: u64,
    weights: &[u64],
) -> Result<(), DataError> {
    let total: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    if total == 0 {
        return Err(DataError::new(
            "every weight is 0, so no source would be read",
            "give at least one source a weight of 1 or more",
        ));
    }
    if weights.len() != sources.len() {
        return Err(DataError::new(
            format!(
                "data.weights has {}, but the documents have {}",
                dsl::counted(weights.len(), "weight"),
                dsl::counted(sources.len(), "source")
            ),
            "give each source one weight, in the order in which they were prepared, with at least one above 0",
        ));
    }
    let mut left = slots;
    let mut remainders = Vec::new();
    for (at, (source, &weight)) in sources.iter_mut().zip(weights).enumerate() {
        let product = u128::from(slots) * u128::from(weight);
        source.share = (product / total) as u64;
        left -= source.share;
        remainders.push((product % total, at));
    }
    remainders.sort_by(|(one, at_one), (two, at_two)| two.cmp(one).then(at_one.cmp(at_two)));
    for &(_, at) in remainders.iter().take(left as usize) {
        sources[at].share += 1;
    }
    for (source, &weight) in sources.iter().zip(weights) {
        let name = index.sources().get(source.number).map_or("", |source| &source.name);
        if weight > 0 && source.documents.is_empty() {
            return Err(DataError::new(
                format!("source `{name}` has weight {weight} but no document left to train on"),
                "hold out fewer documents, or give the source weight 0",
            ));
        }
        if weight > 0 && source.share == 0 {
            return Err(DataError::new(
                format!(
                    "with weight {weight} of {total}, source `{name}` would never be drawn among {}",
                    dsl::counted(slots, "document")
                ),
                "raise its weight, or set it to 0 to leave the source out",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(number: u64) -> blake3::Hash {
        blake3::hash(&number.to_le_bytes())
    }

    proptest! {
        #[test]
        fn a_permutation_meets_each_place_once(n in 1u64..3000, seed: u64) {
            let permutation = Permutation::new(n, &key(seed));
            let mut places: Vec<u64> = (0..n).map(|i| permutation.at(i)).collect();
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..n));
        }

        #[test]
        fn a_permutation_of_any_length_gives_no_place_twice(n in 1u64..=u64::MAX >> 2, seed: u64) {
            // Adjacent and distant positions all have different images.
            let permutation = Permutation::new(n, &key(seed));
            let mut tried: Vec<u64> = (0..n.min(500)).collect();
            tried.extend((1..500).map(|i| n - 1 - (n - 1) / 500 * i));
            tried.sort_unstable();
            tried.dedup();
            let count = tried.len();
            let mut places: Vec<u64> = tried.into_iter().map(|i| permutation.at(i)).collect();
            prop_assert!(places.iter().all(|place| *place < n));
            places.sort_unstable();
            places.dedup();
            prop_assert_eq!(places.len(), count);
        }

        #[test]
        fn a_large_permutation_stays_in_range(n in 1u64..=u64::MAX >> 2, i: u64, seed: u64) {
            prop_assert!(Permutation::new(n, &key(seed)).at(i % n) < n);
        }
    }

    #[test]
    fn permutations_of_four_are_about_equally_likely() {
        let mut counts: BTreeMap<Vec<u64>, f64> = BTreeMap::new();
        for seed in 0..24_000 {
            let permutation = Permutation::new(4, &key(seed));
            *counts.entry((0..4).map(|i| permutation.at(i)).collect()).or_default() += 1.0;
        }
        assert_eq!(counts.len(), 24);
        // Eight rounds on two bits are not a perfect shuffle. Each order is within a tenth of its share.
        assert!(counts.values().all(|count| (count / 1000.0 - 1.0).abs() < 0.15), "{counts:?}");
    }
}
