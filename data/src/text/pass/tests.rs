//! Passes compared with lists of all their documents, as earlier versions kept them; the memory that the tables take.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::identity::Blocks;
use super::super::index::{Scratch, TextIndex};
use super::super::layout::{BLOCK, ENTRY, START, documents_hasher};
use super::super::order::{Order, side};
use super::super::permutation::Permutation;
use super::super::prepared::{Manifest, SourceEntry, TokenizerEntry, trailer_digest};
use super::super::table::Counted;
use super::super::tokenizer::Info;
use super::super::{HeldOut, Marks, Options, Shuffle, TextWindows, file};
use super::{EVERY, Pass};
use crate::Split;
use crate::batch::Batch;

/// Writes a prepared file of version 2 with documents of these lengths, each source with its own.
fn write(path: &Path, sources: &[(&str, Range<u64>)], length: impl Fn(u64) -> u64) {
    let mut to = BufWriter::new(File::create(path).unwrap());
    let mut blocks = Blocks::default();
    let mut put = |bytes: &[u8]| {
        blocks.note(bytes);
        to.write_all(bytes).unwrap();
    };
    put(START);
    let text: Vec<u8> =
        (0..1u32 << 16).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let documents = sources.iter().map(|(_, documents)| documents.end).max().unwrap();
    for document in 0..documents {
        let start = document as usize % 1000;
        put(&text[start..start + length(document) as usize]);
    }
    let mut end = 0;
    for document in 0..documents {
        end += length(document);
        put(&end.to_le_bytes());
        put(blake3::hash(&document.to_le_bytes()).as_bytes());
    }
    let mut identity = documents_hasher();
    let mut entries = Vec::new();
    for (name, range) in sources {
        identity.update(&(range.end - range.start).to_le_bytes());
        for document in range.clone() {
            identity.update(blake3::hash(&document.to_le_bytes()).as_bytes());
        }
        let tokens = range.clone().map(&length).sum();
        let documents = range.end - range.start;
        entries.push(SourceEntry {
            name: (*name).to_owned(),
            documents,
            tokens,
            files: Vec::new(),
        });
    }
    let manifest = Manifest {
        version: 2,
        identity: identity.finalize().to_hex().to_string(),
        documents,
        tokens: end,
        tokenizer: TokenizerEntry::from_info(&Info::bytes()),
        sources: entries,
    };
    let manifest = toml::to_string(&manifest).unwrap();
    let listed = blocks.all();
    let documents_at = START.len() as u64 + end;
    let blocks_at = documents_at + ENTRY * documents;
    let offsets = [documents_at, blocks_at, blocks_at + listed.len() as u64];
    let offsets = offsets.map(u64::to_le_bytes).concat();
    let digest = trailer_digest(&listed, manifest.as_bytes(), &offsets);
    for bytes in [&listed, manifest.as_bytes(), &offsets, digest.as_bytes()] {
        to.write_all(bytes).unwrap();
    }
    to.flush().unwrap();
}

/// Lengths from nothing to some hundred tokens.
fn length(document: u64) -> u64 {
    let mixed = document.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    if mixed.is_multiple_of(7) { 0 } else { mixed % 190 }
}

/// A pass as a list of its documents, and where each ends.
struct Listed {
    start: u128,
    documents: Vec<u32>,
    ends: Vec<u64>,
}

/// Slots per pass, number, documents and tokens of a source, from lists.
struct ListedSource {
    share: u64,
    number: usize,
    documents: Vec<u32>,
}

impl Listed {
    /// What earlier versions computed, from the same keys.
    fn new(order: &Order, index: &TextIndex, options: &Options, number: u64) -> Listed {
        let tokens = |document: u32| {
            let Marks { bos, eos } = options.marks;
            index.tokens(document).unwrap() + u64::from(bos) + u64::from(eos)
        };
        let mut sources = Vec::new();
        for known in &order.sources {
            let all = index.sources()[known.number].documents.clone();
            let mut documents = Vec::new();
            index
                .digests(all, |document, digest| {
                    if side(digest, options.held_out) == options.split {
                        documents.push(document);
                    }
                })
                .unwrap();
            sources.push(ListedSource { share: known.share, number: known.number, documents });
        }
        let epoch = |source: &ListedSource, number: u64| {
            let count = source.documents.len() as u64;
            if order.as_listed {
                return Permutation::identity(count);
            }
            let key = order.key(&format!("source {}\nepoch {number}\n", source.number));
            Permutation::new(count, &key)
        };
        let mut start = 0u128;
        for source in &sources {
            let drawn = u128::from(number) * u128::from(source.share);
            let count = source.documents.len() as u128;
            let all: u64 = source.documents.iter().map(|document| tokens(*document)).sum();
            start += drawn / count * u128::from(all);
            let epoch = epoch(source, (drawn / count) as u64);
            for position in 0..(drawn % count) as u64 {
                start += u128::from(tokens(source.documents[epoch.at(position) as usize]));
            }
        }
        let slots = Permutation::new(order.slots, &order.key(&format!("pass {number}\n")));
        let mut taken = vec![0; sources.len()];
        let (mut documents, mut ends, mut end) = (Vec::new(), Vec::new(), 0);
        for slot in 0..order.slots {
            let draw = slots.at(slot);
            let (mut which, mut before) = (0, 0);
            while draw >= before + sources[which].share {
                before += sources[which].share;
                which += 1;
            }
            let source = &sources[which];
            let position = if order.as_listed { taken[which] } else { draw - before };
            taken[which] += 1;
            let draw = u128::from(number) * u128::from(source.share) + u128::from(position);
            let count = source.documents.len() as u128;
            let position = epoch(source, (draw / count) as u64).at((draw % count) as u64);
            let document = source.documents[position as usize];
            end += tokens(document);
            documents.push(document);
            ends.push(end);
        }
        Listed { start, documents, ends }
    }

    /// The document at a position in the pass, and the number of its tokens before that position.
    fn document_at(&self, at: u64) -> (u32, u64) {
        let position = self.ends.partition_point(|&end| end <= at);
        let begins = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        (self.documents[position], at - begins)
    }
}

fn index_of(counts: &[u64]) -> TextIndex {
    let mut sources = Vec::new();
    let mut start = 0;
    for (name, count) in ["a", "b", "c"].into_iter().zip(counts) {
        sources.push((name, start..start + count));
        start += count;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    write(file.path(), &sources, length);
    file::load(file.path()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(96)))]

    #[test]
    fn a_pass_equals_the_list_of_its_documents(
        counts in prop::collection::vec(1u64..200, 1..4),
        weighted: bool,
        held_out in prop_oneof![Just(0u32), 1u32..900_000],
        split in prop_oneof![Just(Split::Train), Just(Split::HeldOut)],
        marks: (bool, bool),
        seed: u64,
        listed: bool,
        number in prop_oneof![0u64..4, 0u64..1 << 33],
        every in prop_oneof![Just(1), Just(EVERY), 1..EVERY],
        tried in prop::collection::vec(any::<u64>(), 12),
    ) {
        let index = index_of(&counts);
        let weights = if weighted { (1..=counts.len() as u64).rev().collect() } else { Vec::new() };
        let options = Options {
            seq_len: 8,
            seed,
            split,
            held_out: HeldOut { seed: 3, per_million: held_out },
            marks: Marks { bos: marks.0, eos: marks.1 },
            weights,
            shuffle: if listed { Shuffle::Buffer { windows: 4 } } else { Shuffle::Windows },
        };
        // Splits without documents and sources without tokens are refused.
        let Ok(order) = Order::new(&index, &options) else { return Ok(()) };
        let wanted = Listed::new(&order, &index, &options, number);
        prop_assume!(wanted.start < u128::from(u64::MAX >> 2));
        let pass = order.pass(&index, number).unwrap();
        prop_assert_eq!(u128::from(pass.start()), wanted.start);
        let pass = Pass::with_sums(&order, &index, number, pass.start(), every).unwrap();
        let length = wanted.ends[wanted.ends.len() - 1];
        prop_assert_eq!(pass.end() - pass.start(), length);
        prop_assert_eq!(pass.documents(&order, &index), wanted.documents.clone());
        if length == 0 {
            return Ok(());
        }
        let edges = wanted.ends.iter().flat_map(|end| [end.saturating_sub(1), *end]);
        let mut scratch = Scratch::default();
        for at in edges.chain(tried.iter().map(|at| at % length)).filter(|at| *at < length) {
            let entry = pass.find(&order, &index, pass.start() + at, &mut scratch).unwrap();
            let (document, skipped) = wanted.document_at(at);
            prop_assert_eq!((entry.document, pass.start() + at - entry.stream.start), (document, skipped));
            prop_assert_eq!(entry.tokens.end - entry.tokens.start, index.tokens(document).unwrap());
        }
        // The same pass by its positions, from nothing and from the one before.
        for at in [0, length / 2, length - 1].map(|at| pass.start() + at) {
            let entry = order.pass_at(&index, at, None).unwrap();
            prop_assert_eq!(entry.number(), number);
            if let Some(before) = number.checked_sub(1) {
                let before = order.pass(&index, before).unwrap();
                prop_assert_eq!(order.pass_at(&index, at, Some(&before)).unwrap().number(), number);
            }
        }
    }
}

/// The most that the tables of a rank take, for so many documents with so many tokens each on average.
fn predicted(documents: f64, mean: f64) -> f64 {
    // Which documents are in a split: a bit each, and a count for 512 of them, for training and for evaluation.
    let splits = 2.0 * (1.0 / 8.0 + 4.0 / 512.0);
    // Fingerprints of the entries of documents, 16 bytes for 2 KiB, and for each block its digest and two pointers.
    let entries = ENTRY as f64 * (16.0 / 2048.0 + (32.0 + 24.0) / BLOCK as f64);
    // A pass and the next one. For each group of slots: the low bits of a sum and two bits for the rest of it.
    let groups = 1.0 / EVERY as f64;
    let sums = 2.0 * groups * ((EVERY as f64 * mean).log2() + 2.0 * (1.0 + 1.0 / 16.0)) / 8.0;
    // While a table is made, a number of 32 bits for each group.
    let making = groups * 4.0;
    documents * (splits + entries + sums + making)
}

#[test]
fn tables_take_less_than_a_byte_for_each_document() {
    const DOCUMENTS: u64 = 1_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.index");
    write(&path, &[("a", 0..DOCUMENTS)], |document| 20 + document % 41);
    let index = Arc::new(file::load(&path).unwrap());
    fs::remove_dir_all(folder.path()).unwrap();
    let windows = |split| {
        let held_out = HeldOut { seed: 1, per_million: 5_000 };
        let marks = Marks { bos: true, eos: true };
        let (weights, shuffle) = (Vec::new(), Shuffle::Windows);
        let options = Options { seq_len: 64, seed: 2, split, held_out, marks, weights, shuffle };
        TextWindows::new(index.clone(), options).unwrap()
    };
    let (mut train, mut evaluation) = (windows(Split::Train), windows(Split::HeldOut));
    // As for many more documents, of which fewer have a sum of their own.
    let pass = |number, start| {
        Arc::new(Pass::with_sums(&train.order, &index, number, start, EVERY).unwrap())
    };
    let first = pass(0, 0);
    let second = pass(1, first.end());
    (train.pass, train.other) = (Some(first), Some(second));
    let mut batch = Batch::default();
    evaluation.fill(0..1, &mut batch).unwrap();
    // The last window of the first pass goes on into the second.
    let last = train.tokens() / 64;
    train.options.shuffle = Shuffle::Documents;
    train.fill(last..last + 1, &mut batch).unwrap();
    assert_eq!(train.other.as_ref().map(|other| other.number()), Some(1));
    // Of the index, what checks the entries of documents; the rest checks tokens, by their number.
    let tokens = index.tokens_of(&index.sources()[0].documents).unwrap();
    let listed = tokens.div_ceil(BLOCK) * (32 + 24);
    let making = Counted::new(train.documents().div_ceil(EVERY)).bytes();
    let measured = train.memory() + evaluation.memory() + index.memory() + making - listed;
    let each = measured as f64 / DOCUMENTS as f64;
    let wanted = predicted(1.0, 42.0);
    // 0.81, and fingerprints of the few blocks of tokens that were read.
    assert!((each - wanted).abs() < 0.03, "{each} bytes, predicted {wanted}");
    // At a billion documents of a thousand tokens each: 0.85 GB.
    let most = predicted(1e9, 1002.0);
    assert!(each <= 1.0 && most <= 0.86e9, "{most}");
    // A pass finds its documents again.
    let order = Order::new(&index, train.options()).unwrap();
    let pass = order.pass(&index, 0).unwrap();
    let mut scratch = Scratch::default();
    for at in (0..pass.end()).step_by(9_999_991) {
        let entry = pass.find(&order, &index, at, &mut scratch).unwrap();
        assert!(entry.stream.contains(&at));
    }
}
