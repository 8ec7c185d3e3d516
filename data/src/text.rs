//! Windows of tokens from prepared documents.
//!
//! Each document is `bos`, its tokens and `eos`; bytes are one kind of token. Documents form one endless stream, pass
//! after pass over the split, each pass in its own order. The stream is cut into windows: cut `c` is stream tokens
//! [c*S, c*S + S], so neighbours share one token and each token is a target once. `shuffle` maps window `w` to a cut.
//!
//! Window `w` is a function of (documents, options, `w`). Documents held out for a seed are never trained on with it.

pub mod file;
mod guard;
mod identity;
pub mod index;
mod layout;
pub mod lines;
pub mod locked;
pub mod losses;
mod order;
mod pass;
mod permutation;
pub mod prepare;
pub mod prepared;
mod shuffle;
mod table;
pub mod tokenizer;

use std::ops::Range;
use std::sync::Arc;

use dsl::Problem;

use super::Split;
use super::batch::Batch;
use index::{Scratch, TextIndex};
use order::Order;
use pass::{Pass, PassCursor};
use tokenizer::Info;

pub use lab::experiment::Shuffle;
pub use order::SourceEpochs;

pub use tasks::{BOS, BYTES as VOCAB, EOS};

/// The documents kept out of training: those with a content hash that, with this seed, falls in the first `per_million`
/// parts of a million. Equal documents fall on the same side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldOut {
    /// Seed of the choice.
    pub seed: u64,
    /// Share of the documents, in millionths.
    pub per_million: u32,
}

/// Which special tokens a document gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Whether the token `bos` precedes each document.
    pub bos: bool,
    /// Whether the token `eos` follows each document.
    pub eos: bool,
}

/// Everything except the documents that determines the windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Inputs per window. A window holds one more token.
    pub seq_len: usize,
    /// Seed of the order of documents.
    pub seed: u64,
    /// Training or held-out documents.
    pub split: Split,
    /// The documents kept out of training.
    pub held_out: HeldOut,
    /// Special tokens around each document.
    pub marks: Marks,
    /// Each source's share of the training documents, in the order of the index's sources. Empty means every document
    /// once per pass. Held-out windows always take every document once.
    pub weights: Vec<u64>,
    /// How windows map to parts of the stream.
    pub shuffle: Shuffle,
}

/// The numbered windows of one split of a [`TextIndex`].
#[derive(Clone, Debug)]
pub struct TextWindows {
    index: Arc<TextIndex>,
    options: Options,
    order: Order,
    /// The pass read last; none before the first window is read.
    pass: Option<Arc<Pass>>,
    /// Another pass that the next window may need. It is kept because making a pass takes time for each document.
    other: Option<Arc<Pass>>,
    tokens: Vec<u32>,
    scratch: Scratch,
}

impl TextWindows {
    /// Refuses splits and sources without documents.
    pub fn new(index: Arc<TextIndex>, options: Options) -> Result<TextWindows, Problem> {
        if options.seq_len == 0 || options.seq_len > 1 << 24 {
            return Err(Problem::input(
                format!("seq_len is {}, but a window has 1 to {} inputs", options.seq_len, 1 << 24),
                "set seq_len to the number of tokens in a window",
            ));
        }
        let Info { kind, bos, eos, .. } = *index.tokenizer();
        let wanted =
            [(options.marks.bos, bos, "before", "bos"), (options.marks.eos, eos, "after", "eos")];
        for (wanted, id, side, mark) in wanted {
            if wanted && id.is_none() {
                return Err(Problem::input(
                    format!(
                        "the {kind} tokenizer of these documents has no token {side} a document"
                    ),
                    format!(
                        "set add_{mark} = false under [data], or prepare them with --{mark} TOKEN"
                    ),
                ));
            }
        }
        let order = Order::new(&index, &options)?;
        Ok(TextWindows {
            index,
            options,
            order,
            pass: None,
            other: None,
            tokens: Vec::new(),
            scratch: Scratch::default(),
        })
    }

    /// The options of these windows.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Number of documents in the split.
    pub fn documents(&self) -> u64 {
        self.order.documents()
    }

    /// Number of tokens in the split, with each document counted once.
    pub fn tokens(&self) -> u64 {
        self.order.tokens()
    }

    /// For each source, how often `tokens` tokens of this order read its training documents.
    pub fn epochs(&self, tokens: u64) -> Vec<SourceEpochs> {
        self.order.epochs(&self.index, tokens)
    }

    /// Number of passes over the split in that many tokens of this order.
    pub fn passes(&self, tokens: u64) -> f64 {
        self.order.passes(tokens)
    }

    /// Bytes in memory of the tables over documents: which are in the split, and where those of a pass begin. The
    /// index has others: [`TextIndex::memory`].
    pub fn memory(&self) -> u64 {
        let passes = [&self.pass, &self.other].into_iter().flatten();
        self.order.bytes() + passes.map(|pass| pass.bytes()).sum::<u64>()
    }

    /// Fills `batch` with the windows of these numbers, one per row.
    pub fn fill(&mut self, numbers: Range<u64>, batch: &mut Batch) -> Result<(), Problem> {
        let seq_len = self.options.seq_len;
        batch.reset(numbers.end.saturating_sub(numbers.start) as usize, seq_len);
        for number in numbers {
            let start = number.checked_mul(seq_len as u64).filter(|start| *start <= u64::MAX / 4);
            let Some(start) = start else {
                return Err(Problem::input(
                    format!(
                        "window {number} of {seq_len} tokens is beyond the longest possible stream"
                    ),
                    "use fewer steps",
                ));
            };
            let cut = self.cut(number, start)?;
            self.read(cut.saturating_mul(seq_len as u64))?;
            batch.push_window(&self.tokens, None);
        }
        Ok(())
    }

    /// The cut for window `number`. Without a shuffle it begins at `start`.
    fn cut(&mut self, number: u64, start: u64) -> Result<u64, Problem> {
        let seq_len = self.options.seq_len as u64;
        Ok(match shuffle::of_split(self.options.shuffle, self.options.split) {
            Shuffle::Documents => number,
            Shuffle::Buffer { windows } => {
                shuffle::in_buffer(number, windows, |label| self.order.key(label))
            }
            Shuffle::Windows => {
                let pass = self.go_to(start)?;
                let cuts = shuffle::cuts_of(pass.start()..pass.end(), seq_len);
                let key = self.order.key(&format!("windows of pass {}\n", pass.number()));
                shuffle::in_epoch(number, cuts, &key)
            }
        })
    }

    /// Makes `pass` the one that holds stream position `at`, and returns it.
    fn go_to(&mut self, at: u64) -> Result<Arc<Pass>, Problem> {
        if let Some(pass) = self.pass.as_ref().filter(|pass| pass.holds(at)) {
            return Ok(pass.clone());
        }
        let next = match self.other.take() {
            Some(other) if other.holds(at) => other,
            Some(_) | None => {
                Arc::new(self.order.pass_at(&self.index, at, self.pass.as_deref())?)
            }
        };
        let before = self.pass.replace(next.clone());
        // A buffer alternates between two passes; every other order never returns to an earlier pass.
        self.other = before.filter(|_| matches!(self.options.shuffle, Shuffle::Buffer { .. }));
        Ok(next)
    }

    /// Puts the `seq_len` + 1 stream tokens from `start` on into `tokens`.
    fn read(&mut self, start: u64) -> Result<(), Problem> {
        let mut pass = self.go_to(start)?;
        let TextWindows { index, options, order, pass: _, other, tokens, scratch } = self;
        let Info { bos, eos, .. } = *index.tokenizer();
        let bos = bos.filter(|_| options.marks.bos);
        let eos = eos.filter(|_| options.marks.eos);
        tokens.clear();
        let wanted = options.seq_len + 1;
        let mut at = start;
        let mut current: Option<PassCursor> = None;
        // Past the end of the pass. Short documents may need several passes.
        let mut following = false;
        while tokens.len() < wanted {
            if !pass.holds(at) {
                let known = other.take().filter(|other| other.number() == pass.number() + 1);
                pass = match known {
                    Some(known) => known,
                    None => Arc::new(order.pass_after(index, &pass)?),
                };
                (current, following) = (None, true);
                continue;
            }
            let document = match &mut current {
                None => current.insert(pass.find(order, index, at, scratch)?),
                Some(document) => {
                    while document.stream.end <= at {
                        pass.advance(order, index, document, scratch)?;
                    }
                    document
                }
            };
            let skipped = at - document.stream.start;
            let before = tokens.len();
            let first = u64::from(bos.is_some());
            if skipped == 0 {
                tokens.extend(bos);
            }
            let left = wanted - tokens.len();
            let range = document.tokens.clone();
            let length = first + (range.end - range.start);
            index.read_at(range, skipped.saturating_sub(first), left, scratch, tokens)?;
            if tokens.len() < wanted && skipped <= length {
                tokens.extend(eos);
            }
            at += (tokens.len() - before) as u64;
        }
        if following {
            *other = Some(pass);
        }
        Ok(())
    }
}

/// Windows of documents packed in the given order, like the published loader before it shuffles. The walk stops with
/// the documents; a last part that does not fill a window is dropped.
pub fn pack<'a>(
    documents: impl IntoIterator<Item = &'a [u8]>,
    marks: Marks,
    seq_len: usize,
) -> impl Iterator<Item = Vec<u32>> {
    let mut documents = documents.into_iter();
    let mut stream: Vec<u32> = Vec::new();
    std::iter::from_fn(move || {
        while stream.len() <= seq_len {
            push_document(documents.next()?, marks, 0, usize::MAX, &mut stream);
        }
        let window = stream.get(..=seq_len)?.to_vec();
        stream.drain(..seq_len);
        Some(window)
    })
}

/// A document's number of tokens, including its marks.
fn document_tokens(content: u64, marks: Marks) -> u64 {
    content + u64::from(marks.bos) + u64::from(marks.eos)
}

/// Appends a document's tokens after the first `skipped`, at most `limit` of them.
fn push_document(bytes: &[u8], marks: Marks, skipped: u64, limit: usize, out: &mut Vec<u32>) {
    let mut skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
    let mut limit = limit;
    if marks.bos {
        if skipped > 0 {
            skipped -= 1;
        } else if limit > 0 {
            out.push(BOS);
            limit -= 1;
        }
    }
    let rest = bytes.get(skipped..).unwrap_or_default();
    let taken = rest.get(..limit).unwrap_or(rest);
    out.extend(taken.iter().map(|&byte| u32::from(byte)));
    if marks.eos && skipped <= bytes.len() && taken.len() < limit {
        out.push(EOS);
    }
}

#[cfg(test)]
mod tests;
