//! Prepared files with replaced tokens that are consistent in themselves.

use std::fs;
use std::sync::Arc;

use super::super::tokenizer::{Kind, MarkNames, TokenizerKind};
use super::super::{HeldOut, Marks, Options, Shuffle, TextWindows, file};
use super::tests::{documents, lines, parts, prepared, request, sealed_again, source};
use super::*;
use crate::Split;
use crate::batch::Batch;

#[test]
fn replaced_tokens_are_other_data_and_none_is_past_the_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.jsonl"), lines(&documents(0..50))).unwrap();
    let sources = [source("x", &[&path("a.jsonl")])];
    let golden = format!("{}/../tests/golden/tokenizers/llama3.model", env!("CARGO_MANIFEST_DIR"));
    let golden = disk::read(golden.as_ref(), disk::SMALL).unwrap();
    let tokenizer =
        Tokenizer::read(Kind::File(TokenizerKind::Tiktoken), &golden, "it", &MarkNames::default())
            .unwrap();
    let out = path("t.index");
    prepared(&request(&sources, &tokenizer), &out).unwrap();
    let good = file::load(&out).unwrap();
    good.check().unwrap();
    let bytes = disk::read(&out, disk::SMALL).unwrap();
    let [tokens, ..] = parts(&bytes);
    let replaced = |id: u16| {
        let mut bad = bytes.clone();
        for at in (tokens..tokens + 200).step_by(2) {
            bad[at..at + 2].copy_from_slice(&id.to_le_bytes());
        }
        fs::write(&out, sealed_again(&bad)).unwrap();
        Arc::new(file::load(&out).unwrap())
    };
    // The same documents and consistent in itself, but not the data that a lock of the first was bound to.
    let other = replaced(7);
    other.check().unwrap();
    assert_eq!(other.documents_digest(), good.documents_digest());
    assert_ne!(other.identity(), good.identity());
    // The highest id is 815; a model has no row for 816.
    replaced(815).check().unwrap();
    let past = replaced(816);
    let want = "its token 0 has id 816, but its tokenizer has ids below 816";
    let error = past.check().unwrap_err().message;
    assert!(error.ends_with(want), "{error}");
    let options = Options {
        seq_len: 32,
        seed: 3,
        split: Split::Train,
        held_out: HeldOut { seed: 0, per_million: 0 },
        marks: Marks { bos: true, eos: true },
        weights: Vec::new(),
        shuffle: Shuffle::Windows,
    };
    let mut windows = TextWindows::new(past, options).unwrap();
    let count = windows.tokens() / 32;
    let error = windows.fill(0..count, &mut Batch::default()).unwrap_err().message;
    assert!(error.contains("has id 816"), "{error}");
}
