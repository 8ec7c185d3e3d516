//! Windows of documents compared with the published packing, and each order as a bijection of the cuts of one stream.

use super::index::{OnBadLine, SourceFiles};
use super::*;
use crate::batch::digest_of_windows;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use support::golden;

const BOTH: Marks = Marks { bos: true, eos: true };
const NOTHING_HELD: HeldOut = HeldOut { seed: 0, per_million: 0 };

pub(super) fn index_of(sources: &[(&str, Vec<String>)]) -> Arc<TextIndex> {
    let files = sources
        .iter()
        .map(|(name, documents)| {
            let lines: String = documents
                .iter()
                .map(|text| serde_json::json!({"text": text}).to_string() + "\n")
                .collect();
            SourceFiles {
                name: (*name).to_owned(),
                files: vec![("memory".to_owned(), std::io::Cursor::new(lines))],
            }
        })
        .collect();
    Arc::new(TextIndex::build(files, OnBadLine::Refuse).unwrap().0)
}

fn documents(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("document {i} {}", "x".repeat(i * 7 % 23))).collect()
}

fn options(seq_len: usize, split: Split, held_out: HeldOut) -> Options {
    Options {
        seq_len,
        seed: 11,
        split,
        held_out,
        marks: BOTH,
        weights: Vec::new(),
        shuffle: Shuffle::Documents,
    }
}

/// The windows' tokens, [rows][seq_len + 1].
fn windows(windows: &mut TextWindows, numbers: Range<u64>) -> Vec<Vec<u32>> {
    let mut batch = Batch::default();
    windows.fill(numbers, &mut batch).unwrap();
    let seq_len = batch.seq_len();
    let rows = batch.inputs().chunks_exact(seq_len).zip(batch.targets().chunks_exact(seq_len));
    rows.map(|(inputs, targets)| {
        assert_eq!(inputs[1..], targets[..seq_len - 1]);
        inputs.iter().chain(targets.last()).map(|&token| token as u32).collect()
    })
    .collect()
}

/// Documents of a stream of tokens, cut at eos. An unfinished last one is dropped.
fn read_back(stream: &[u32]) -> Vec<String> {
    let mut ended: Vec<&[u32]> = stream.split(|&token| token == EOS).collect();
    ended.pop();
    ended
        .iter()
        .map(|tokens| {
            assert_eq!(tokens[0], BOS);
            String::from_utf8(tokens[1..].iter().map(|&token| token as u8).collect()).unwrap()
        })
        .collect()
}

/// The whole stream up to window `count`, joined from windows that share one token.
fn stream(source: &mut TextWindows, count: u64) -> Vec<u32> {
    let mut stream = Vec::new();
    for window in windows(source, 0..count) {
        if let Some(shared) = stream.pop() {
            assert_eq!(shared, window[0], "neighbours share one token");
        }
        stream.extend(window);
    }
    stream
}

#[test]
fn packed_rows_equal_the_published_loader() {
    let golden = golden::read("data_order");
    let texts = |source: &str| -> Vec<String> {
        golden["docs"][source]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    };
    // What numpy's default_rng((777, 1, 2)).choice draws for loader 1, with two sources on rank 1 of 2. We do not have
    // its generator, only this record of its draws.
    let drawn = "aaaababaabbaababaabbaaaaaabaabaaababaabaaabbbaaabaaaabaaaaaa";
    for (number, loader) in golden["loaders"].as_array().unwrap().iter().enumerate() {
        let config = &loader["cfg"];
        let (rank, world) =
            (config["rank"].as_u64().unwrap() as usize, config["world"].as_u64().unwrap() as usize);
        let sources = config["sources"].as_object().unwrap();
        // A rank reads every world-th line of a source's file, and starts again after the end.
        let mut lines: BTreeMap<String, _> = sources
            .keys()
            .map(|name| {
                let local: Vec<String> =
                    texts(name).into_iter().skip(rank).step_by(world).collect();
                (name.clone(), local.into_iter().cycle())
            })
            .collect();
        let order: Vec<String> = match sources.len() {
            1 => vec![sources.keys().next().unwrap().clone(); 60],
            _ => drawn.chars().map(String::from).collect(),
        };
        let documents: Vec<String> =
            order.iter().map(|source| lines.get_mut(source).unwrap().next().unwrap()).collect();

        let marks = Marks { bos: config["add_bos"] == true, eos: config["add_eos"] == true };
        let seq_len = loader["seq_len"].as_u64().unwrap() as usize;
        let rows: Vec<Vec<u32>> =
            pack(documents.iter().map(String::as_bytes), marks, seq_len).collect();
        let want = |row: &Value| -> Vec<u32> {
            let views: Vec<Vec<u32>> = row.as_array().unwrap().iter().map(golden::tokens).collect();
            assert!(views.windows(2).all(|pair| pair[0][1] == pair[1][0]));
            views.iter().map(|view| view[0]).chain(views.last().map(|view| view[1])).collect()
        };
        let packed = loader["packed_unshuffled"].as_array().unwrap();
        assert_eq!(packed.len(), 12);
        for (row, wanted) in rows.iter().zip(packed) {
            assert_eq!(*row, want(wanted), "loader {number}");
        }
        assert!(rows.len() >= 26, "11 batches of 2 out of a buffer of 4");
        // numpy shuffles the batches, so we check that each row is one of these and that none repeats.
        let batches = loader["batches"].as_array().unwrap();
        let mut left = rows;
        for row in batches.iter().flat_map(|batch| batch.as_array().unwrap()) {
            let at = left.iter().position(|candidate| *candidate == want(row));
            left.swap_remove(at.expect("a row of a batch is a packed row"));
        }
    }
}

#[test]
fn a_pass_holds_every_document_once_and_the_next_one_another_order() {
    let texts = documents(50);
    let mut source = TextWindows::new(
        index_of(&[("a", texts.clone())]),
        options(16, Split::Train, NOTHING_HELD),
    )
    .unwrap();
    assert_eq!(source.documents(), 50);
    let pass = source.tokens();
    assert_eq!(pass, texts.iter().map(|text| text.len() as u64 + 2).sum::<u64>());
    let stream = stream(&mut source, 3 * pass / 16 + 2);
    let read = read_back(&stream);
    let wanted: BTreeSet<&String> = texts.iter().collect();
    for pass in 0..3 {
        assert_eq!(read[50 * pass..50 * (pass + 1)].iter().collect::<BTreeSet<_>>(), wanted);
    }
    assert_ne!(read[..50], texts);
    assert_ne!(read[..50], read[50..100]);
    assert_ne!(read[50..100], read[100..150]);
}

#[test]
fn held_out_documents_are_apart_from_trained_ones() {
    let texts = documents(400);
    let index = index_of(&[("a", texts[..150].to_vec()), ("b", texts[150..].to_vec())]);
    let held_out = HeldOut { seed: 3, per_million: 100_000 };
    let read = |split, seed| {
        let options = Options { seed, ..options(32, split, held_out) };
        let mut source = TextWindows::new(index.clone(), options).unwrap();
        let count = source.tokens() / 32 + 1;
        let stream = stream(&mut source, count);
        let seen: BTreeSet<String> =
            read_back(&stream[..source.tokens() as usize]).into_iter().collect();
        assert_eq!(seen.len() as u64, source.documents());
        seen
    };
    let (train, held) = (read(Split::Train, 1), read(Split::HeldOut, 2));
    assert!(train.is_disjoint(&held));
    assert_eq!(train.len() + held.len(), 400);
    assert!((20..60).contains(&held.len()), "{} of 400 held out", held.len());
    // The order's seed moves no document between splits; the split's own seed does.
    assert_eq!(read(Split::HeldOut, 9), held);
    let moved = Options {
        held_out: HeldOut { seed: 4, ..held_out },
        ..options(32, Split::HeldOut, held_out)
    };
    let mut moved = TextWindows::new(index.clone(), moved).unwrap();
    let tokens = moved.tokens();
    assert_ne!(
        read_back(&stream(&mut moved, tokens / 32 + 1)).into_iter().collect::<BTreeSet<_>>(),
        held
    );
}

#[test]
fn weights_are_exact_shares_of_a_pass() {
    let index = index_of(&[
        ("a", (0..30).map(|i| format!("a{i}")).collect()),
        ("b", (0..10).map(|i| format!("b{i}")).collect()),
    ]);
    let weighted = Options { weights: vec![1, 3], ..options(8, Split::Train, NOTHING_HELD) };
    let mut source = TextWindows::new(index, weighted).unwrap();
    let read = read_back(&stream(&mut source, 120));
    for pass in read.chunks_exact(40) {
        assert_eq!(pass.iter().filter(|text| text.starts_with('b')).count(), 30);
    }
    // In three passes, source `a` is read once and `b` nine times, each in whole epochs.
    let mut counts = BTreeMap::new();
    for text in &read[..120] {
        *counts.entry(text.clone()).or_insert(0) += 1;
    }
    assert!(counts.iter().all(|(text, &count)| count == if text.starts_with('a') { 1 } else { 9 }));
    assert_eq!(counts.len(), 40);
}

#[test]
fn empty_splits_and_wrong_weights_are_refused() {
    let index = index_of(&[("a", documents(3)), ("b", documents(2))]);
    let message = |options: Options| TextWindows::new(index.clone(), options).unwrap_err().message;
    let train = options(8, Split::Train, NOTHING_HELD);
    assert!(
        message(Options { split: Split::HeldOut, ..train.clone() })
            .contains("of 5 documents leaves none")
    );
    let all_held = HeldOut { seed: 0, per_million: 1_000_000 };
    assert!(
        message(Options { held_out: all_held, ..train.clone() })
            .contains("of 5 documents leaves none")
    );
    let too_much = HeldOut { seed: 0, per_million: 1_000_001 };
    assert!(message(Options { held_out: too_much, ..train.clone() }).contains("1000001"));
    assert!(message(Options { weights: vec![1], ..train.clone() }).contains("1 weight"));
    assert!(
        message(Options { weights: vec![0, 0], ..train.clone() }).contains("every weight is 0")
    );
    assert!(
        message(Options { weights: vec![1, 1, 1], ..train.clone() })
            .contains("3 weights, but the documents have 2 sources")
    );
    assert!(message(Options { weights: vec![1, 100], ..train.clone() }).contains("`a`"));
    assert!(message(Options { seq_len: 0, ..train.clone() }).contains("seq_len is 0"));
    let mut source = TextWindows::new(index.clone(), train).unwrap();
    let error = source.fill(u64::MAX - 1..u64::MAX, &mut Batch::default()).unwrap_err();
    assert!(error.message.contains("beyond"), "{error}");
}

#[test]
fn far_windows_are_reached_at_once() {
    let mut source = TextWindows::new(
        index_of(&[("a", documents(50))]),
        options(16, Split::Train, NOTHING_HELD),
    )
    .unwrap();
    let far = 1 << 50;
    let window = windows(&mut source, far..far + 1);
    assert_eq!(windows(&mut source, far - 1..far + 1)[1], window[0]);
}

#[test]
fn the_order_never_changes() {
    let index = index_of(&[("a", documents(40)), ("b", documents(25))]);
    let held_out = HeldOut { seed: 5, per_million: 200_000 };
    let digest = |weights: Vec<u64>, split| {
        let mut batch = Batch::default();
        let options = Options { weights, ..options(32, split, held_out) };
        TextWindows::new(index.clone(), options).unwrap().fill(0..100, &mut batch).unwrap();
        digest_of_windows(&batch.window_digests()).to_hex().to_string()
    };
    assert_eq!(
        digest(vec![], Split::Train),
        "2bc9d585479997921b35ed29180591b8f828addb05289ad236960e24c6d2d2b8"
    );
    assert_eq!(
        digest(vec![2, 1], Split::Train),
        "0fa8a3eae38ce3419e5a749bcf76be0dc1889cfec28b55df8f2efc6837d9059a"
    );
    assert_eq!(digest(vec![2, 1], Split::HeldOut), digest(vec![], Split::HeldOut));
    let shuffled = |shuffle, split| {
        let mut batch = Batch::default();
        let options = Options { shuffle, weights: vec![2, 1], ..options(32, split, held_out) };
        TextWindows::new(index.clone(), options).unwrap().fill(0..100, &mut batch).unwrap();
        digest_of_windows(&batch.window_digests()).to_hex().to_string()
    };
    assert_eq!(
        shuffled(Shuffle::Windows, Split::Train),
        "a79420ac981864345d1aad8304b352b6754e4775dc44743ea580f0f9906ad132"
    );
    assert_eq!(
        shuffled(Shuffle::Buffer { windows: 24 }, Split::Train),
        "2e823ba176dba9efb3635805ae69e276da58a7ecbc8f8285cd31111282ffcb66"
    );
    assert_eq!(
        shuffled(Shuffle::Buffer { windows: 24 }, Split::HeldOut),
        shuffled(Shuffle::Windows, Split::HeldOut)
    );
    assert_eq!(
        index.documents_digest().to_hex().as_str(),
        "47db4167d49d6f4c987e0d13c6d39327b52bf26da5536d92ab5c93705faa4961"
    );
    assert_eq!(
        index.identity().to_hex().as_str(),
        "95d662e86d1d1024f1645b21a7bf8f302f6c793b2794830b6fa8643b5d8fd937"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(64)))]

    #[test]
    fn any_window_is_the_same_part_of_the_stream(
        counts in prop::collection::vec(1usize..12, 1..4),
        weights: bool,
        bos: bool,
        eos: bool,
        seq_len in 1usize..80,
        seed: u64,
        jumps in prop::collection::vec(0u64..60, 1..12),
        shuffle in shuffles(),
    ) {
        let names = ["a", "b", "c"];
        let sources: Vec<(&str, Vec<String>)> =
            names.iter().zip(&counts).map(|(name, &count)| (*name, documents(count))).collect();
        let index = index_of(&sources);
        let marks = Marks { bos, eos };
        // Shares near the documents' own, so that each source is drawn.
        let weights =
            if weights { counts.iter().map(|&count| count as u64 * 10 + 3).collect() } else { Vec::new() };
        let options =
            Options { seed, marks, weights, shuffle, ..options(seq_len, Split::Train, NOTHING_HELD) };
        let mut jumping = match TextWindows::new(index.clone(), options.clone()) {
            Ok(source) => source,
            Err(error) => { prop_assert!(error.message.contains("never")); return Ok(()); }
        };

        // The stream in full: passes one after the other, packed by the sequential helper.
        let order = Order::new(&index, &options).unwrap();
        let mut texts: Vec<&[u8]> = Vec::new();
        let mut pass = order.pass(&index, 0).unwrap();
        let mut epochs = Vec::new();
        while pass.start() < 61 * seq_len as u64 + 1 {
            texts.extend(pass.documents(&order, &index).iter().map(|&document| index.document(document)));
            epochs.push(pass.start().div_ceil(seq_len as u64));
            pass = order.pass_after(&index, &pass).unwrap();
        }
        epochs.push(pass.start().div_ceil(seq_len as u64));
        let last = epochs[epochs.len() - 1];
        while pass.start() < (last + 1) * seq_len as u64 + 1 {
            texts.extend(pass.documents(&order, &index).iter().map(|&document| index.document(document)));
            pass = order.pass_after(&index, &pass).unwrap();
        }
        let walked: Vec<Vec<u32>> = pack(texts, marks, seq_len).take(last as usize).collect();
        // Windows in order, and any window alone.
        let all = windows(&mut jumping.clone(), 0..last);
        for jump in jumps {
            prop_assert_eq!(&windows(&mut jumping, jump..jump + 1)[0], &all[jump as usize]);
        }
        // Within a shuffled block, each cut is read once, at any length.
        let together: Vec<u64> = match shuffle {
            Shuffle::Documents => (0..=last).collect(),
            Shuffle::Buffer { windows } => (0..=last / windows).map(|i| i * windows).collect(),
            Shuffle::Windows => epochs,
        };
        for part in together.windows(2) {
            let part = part[0] as usize..part[1] as usize;
            let (mut got, mut want) = (all[part.clone()].to_vec(), walked[part].to_vec());
            got.sort();
            want.sort();
            prop_assert_eq!(got, want);
        }
    }
}

fn shuffles() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        Just(Shuffle::Documents),
        Just(Shuffle::Windows),
        (1u64..30).prop_map(|windows| Shuffle::Buffer { windows }),
    ]
}

/// Forty long documents of one letter each. With consecutive windows, a batch is one document.
#[test]
fn a_batch_holds_windows_of_many_documents() {
    let texts: Vec<String> =
        (0..40u8).map(|i| char::from(b'0' + i).to_string().repeat(4000)).collect();
    let index = index_of(&[("letters", texts)]);
    let letters = |shuffle, batch: u64| {
        let options = Options { shuffle, ..options(64, Split::Train, NOTHING_HELD) };
        let mut source = TextWindows::new(index.clone(), options).unwrap();
        let rows = windows(&mut source, batch * 16..batch * 16 + 16);
        rows.iter().map(|row| row[32]).collect::<BTreeSet<u32>>().len()
    };
    // In an epoch of 2501 windows. 16 independent draws from 40 letters would give 13 or 14 different ones.
    for batch in 0..150 {
        assert!(letters(Shuffle::Documents, batch) <= 4);
        assert!(letters(Shuffle::Windows, batch) >= 8, "batch {batch}");
    }
    // A buffer of 128 windows holds two or three books, as in Lingua.
    assert!((2..=4).contains(&letters(Shuffle::Buffer { windows: 128 }, 0)));
}

#[test]
fn a_buffer_takes_documents_in_the_order_of_their_files() {
    let texts = documents(30);
    let index = index_of(&[("a", texts.clone())]);
    let options = Options {
        shuffle: Shuffle::Buffer { windows: 1 },
        ..options(16, Split::Train, NOTHING_HELD)
    };
    let mut source = TextWindows::new(index, options).unwrap();
    let pass = source.tokens();
    let read = read_back(&stream(&mut source, 2 * pass / 16 + 2));
    assert_eq!(read[..60], [&texts[..], &texts[..]].concat());
}
