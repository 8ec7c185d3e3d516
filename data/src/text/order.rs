//! The endless sequence of a split's documents, as numbered passes that can each be made alone.
//!
//! A pass has as many slots as the split has documents. With weights, a source has a fixed share of them, and goes
//! through its own documents epoch by epoch, each epoch in its own order. So the stream position of a pass is
//! arithmetic over whole epochs plus at most one unfinished one per source. Memory holds one bit for each document, and
//! none if none is held out.

use std::ops::Range;
use std::sync::Arc;

use dsl::Problem;

use crate::Split;

use super::index::{Lengths, SourceRange, TextIndex};
use super::permutation::Permutation;
use super::shuffle;
use super::table::{Marked, Marking};
use super::{HeldOut, Marks, Options, Shuffle, document_tokens};

/// The order of one split's documents.
#[derive(Clone, Debug)]
pub(super) struct Order {
    seed: u64,
    split: Split,
    pub(super) marks: Marks,
    pub(super) sources: Vec<SourceOrder>,
    pub(super) slots: u64,
    /// Whether every epoch of a source keeps the order of its files.
    pub(super) as_listed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct SourceOrder {
    /// Its index among the index's sources.
    pub(super) number: usize,
    pub(super) documents: Documents,
    /// Slots per pass.
    pub(super) share: u64,
    /// Number of tokens in all its documents.
    tokens: u64,
}

impl SourceOrder {
    fn mean_pass(&self) -> f64 {
        self.tokens as f64 * self.share as f64 / self.documents.len().max(1) as f64
    }
}

/// The documents of a source that are in the split, in the order of their files.
#[derive(Clone, Debug)]
pub(super) struct Documents {
    all: Range<u32>,
    /// Which of them, if not all.
    chosen: Option<Arc<Marked>>,
}

impl Documents {
    pub(super) fn len(&self) -> u64 {
        match &self.chosen {
            None => u64::from(self.all.end - self.all.start),
            Some(chosen) => chosen.count(),
        }
    }

    /// The document at `position` among these, which must be below their number.
    pub(super) fn at(&self, position: u64) -> u32 {
        let position = self.chosen.as_ref().map_or(position, |chosen| chosen.at(position));
        self.all.start + position as u32
    }

    fn contains(&self, document: u32) -> bool {
        let position = document.checked_sub(self.all.start).map(u64::from);
        match &self.chosen {
            None => self.all.contains(&document),
            Some(chosen) => position.is_some_and(|position| chosen.contains(position)),
        }
    }
}

/// Goes through the documents of a source, again and again, in the order of their files.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    documents: &'a Documents,
    marks: Marks,
    lengths: Lengths<'a>,
    next: u32,
}

impl Walk<'_> {
    /// The next document's number of tokens, with marks.
    pub(super) fn next(&mut self) -> Result<u64, Problem> {
        loop {
            if self.next == self.documents.all.end {
                self.next = self.documents.all.start;
            }
            let document = self.next;
            self.next += 1;
            if self.documents.contains(document) {
                return Ok(document_tokens(self.lengths.tokens(document)?, self.marks));
            }
        }
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

impl Order {
    pub(super) fn new(index: &TextIndex, options: &Options) -> Result<Order, Problem> {
        let Options { seq_len: _, seed, split, held_out, marks, weights, shuffle } = options;
        if held_out.per_million > 1_000_000 {
            return Err(Problem::input(
                format!("held_out is {} of a million documents", held_out.per_million),
                "hold out 0 to 1000000",
            ));
        }
        let mut sources = Vec::new();
        for (number, SourceRange { name: _, documents }) in index.sources().iter().enumerate() {
            let documents = of_split(index, documents.clone(), *held_out, *split)?;
            let tokens = tokens_of(index, &documents, *marks)?;
            sources.push(SourceOrder { number, share: documents.len(), documents, tokens });
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
            return Err(Problem::input(
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
            return Err(Problem::input(
                format!("the documents of source `{name}` have no tokens, not even bos or eos"),
                "remove the source, or set add_bos or add_eos under [data]",
            ));
        }
        let as_listed = matches!(shuffle::of_split(*shuffle, *split), Shuffle::Buffer { .. });
        Ok(Order { seed: *seed, split: *split, marks: *marks, sources, slots, as_listed })
    }

    pub(super) fn documents(&self) -> u64 {
        self.sources.iter().map(|source| source.documents.len()).sum()
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
        let epochs_of = |source: &SourceOrder| SourceEpochs {
            name: index.sources().get(source.number).map_or("", |source| &source.name).to_owned(),
            documents: source.documents.len(),
            tokens: source.tokens,
            share: source.share as f64 / self.slots.max(1) as f64,
            token_share: source.mean_pass() / pass,
            epochs: passes * source.share as f64 / source.documents.len().max(1) as f64,
        };
        self.sources.iter().map(epochs_of).collect()
    }

    /// Bounds of the tokens before pass `number`, from whole epochs alone.
    pub(super) fn start_between(&self, number: u64) -> (u128, u128) {
        let (mut least, mut most) = (0, 0);
        for source in &self.sources {
            let drawn = u128::from(number) * u128::from(source.share);
            let count = u128::from(source.documents.len());
            least += drawn / count * u128::from(source.tokens);
            most += drawn.div_ceil(count) * u128::from(source.tokens);
        }
        (least, most)
    }

    /// Tokens before pass `number`. If every pass has whole epochs (no weights), this looks at no document.
    pub(super) fn start_of(&self, index: &TextIndex, number: u64) -> Result<u128, Problem> {
        let mut start = 0;
        for source in &self.sources {
            let drawn = u128::from(number) * u128::from(source.share);
            let count = u128::from(source.documents.len());
            start += drawn / count * u128::from(source.tokens);
            let rest = (drawn % count) as u64;
            if rest > 0 {
                let epoch = self.epoch(source, (drawn / count) as u64);
                let mut walk = self.walk(index, source, 0);
                // The documents in file order, which are read in one go, and where the epoch has each of them.
                for position in 0..source.documents.len() {
                    let tokens = walk.next()?;
                    if epoch.inverse(position) < rest {
                        start += u128::from(tokens);
                    }
                }
            }
        }
        Ok(start)
    }

    /// The documents of a source in the order of their files, from the one at `position` on.
    pub(super) fn walk<'a>(
        &self,
        index: &'a TextIndex,
        source: &'a SourceOrder,
        position: u64,
    ) -> Walk<'a> {
        let documents = &source.documents;
        let next = documents.at(position);
        Walk { documents, marks: self.marks, lengths: Lengths::new(index), next }
    }

    /// The order of a source's documents in its epoch `number`.
    pub(super) fn epoch(&self, source: &SourceOrder, number: u64) -> Permutation {
        if self.as_listed {
            return Permutation::identity(source.documents.len());
        }
        let key = self.key(&format!("source {}\nepoch {number}\n", source.number));
        Permutation::new(source.documents.len(), &key)
    }

    /// Bytes of the tables in memory.
    pub(super) fn bytes(&self) -> u64 {
        let chosen = self.sources.iter().filter_map(|source| source.documents.chosen.as_ref());
        chosen.map(|chosen| chosen.bytes()).sum()
    }

    pub(super) fn key(&self, label: &str) -> blake3::Hash {
        let text = format!("split {}\nseed {}\n{label}", self.split.key(), self.seed);
        blake3::Hasher::new_derive_key("canonc 1 data text order")
            .update(text.as_bytes())
            .finalize()
    }
}

/// Number of tokens in documents, each with its marks.
fn tokens_of(index: &TextIndex, documents: &Documents, marks: Marks) -> Result<u64, Problem> {
    let Documents { all, chosen } = documents;
    let mut tokens = documents.len() * document_tokens(0, marks);
    if chosen.is_none() {
        return Ok(tokens + index.tokens_of(all)?);
    }
    let mut lengths = Lengths::new(index);
    for document in all.clone().filter(|document| documents.contains(*document)) {
        tokens += lengths.tokens(document)?;
    }
    Ok(tokens)
}

/// The documents of a split, in order.
fn of_split(
    index: &TextIndex,
    documents: Range<u32>,
    held_out: HeldOut,
    split: Split,
) -> Result<Documents, Problem> {
    if held_out.per_million == 0 {
        let all = match split {
            Split::Train => documents,
            Split::HeldOut => documents.start..documents.start,
        };
        return Ok(Documents { all, chosen: None });
    }
    let mut chosen = Marking::new(u64::from(documents.end - documents.start));
    index.digests(documents.clone(), |document, digest| {
        if side(digest, held_out) == split {
            chosen.mark(u64::from(document - documents.start));
        }
    })?;
    Ok(Documents { all: documents, chosen: Some(Arc::new(chosen.done())) })
}

/// The split of a document.
pub(super) fn side(digest: &blake3::Hash, held_out: HeldOut) -> Split {
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
) -> Result<(), Problem> {
    let total: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    if total == 0 {
        return Err(Problem::input(
            "every weight is 0, so no source would be read",
            "give at least one source a weight of 1 or more",
        ));
    }
    if weights.len() != sources.len() {
        return Err(Problem::input(
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
        if weight > 0 && source.documents.len() == 0 {
            return Err(Problem::input(
                format!("source `{name}` has weight {weight} but no document left to train on"),
                "hold out fewer documents, or give the source weight 0",
            ));
        }
        if weight > 0 && source.share == 0 {
            return Err(Problem::input(
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
