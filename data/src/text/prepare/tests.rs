//! Prepared files compared with documents in memory: the same identity and windows for any input format, any number of
//! threads and any interruptions; and hostile input.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use dsl::Problem;

use super::super::index::{SourceFiles, TextIndex};
use super::super::tokenizer::{Kind, MarkNames, TokenizerKind};
use super::super::{EOS, HeldOut, Marks, Options, Shuffle, TextWindows, file};
use super::*;
use crate::Split;
use crate::batch::{Batch, digest_of_windows};
use std::time::Duration;
use support::golden;

pub(super) fn documents(range: Range<usize>) -> Vec<String> {
    range.map(|i| format!("document {i} – {}", "größer ".repeat(i * 7 % 23))).collect()
}

pub(super) fn lines(documents: &[String]) -> String {
    documents
        .iter()
        .map(|text| serde_json::json!({"id": 1, "text": text}).to_string() + "\n")
        .collect()
}

/// A table with one row group per seven rows.
fn table(path: &Path, documents: &[Option<String>]) {
    let schema = "message m { required int64 id; optional binary text (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut to =
        SerializedFileWriter::new(fs::File::create(path).unwrap(), schema, properties).unwrap();
    for rows in documents.chunks(7) {
        let mut group = to.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let ids: Vec<i64> = (0..rows.len() as i64).collect();
        column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> =
            rows.iter().flatten().map(|text| ByteArray::from(text.as_str())).collect();
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    to.close().unwrap();
}

fn input(path: &Path) -> Input {
    let bytes = fs::metadata(path).unwrap().len();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    Input { name, bytes, path: Some(path.to_owned()) }
}

pub(super) fn source(name: &str, files: &[&Path]) -> SourceInput {
    SourceInput { name: name.to_owned(), files: files.iter().map(|path| input(path)).collect() }
}

pub(super) fn request<'a>(sources: &'a [SourceInput], tokenizer: &'a Tokenizer) -> Request<'a> {
    Request {
        sources,
        field: Field::Usual,
        plain: Plain::File,
        on_bad_line: OnBadLine::Refuse,
        tokenizer,
        workers: 2,
        checkpoint: 1,
        fault: None,
    }
}

pub(super) fn prepared(request: &Request<'_>, out: &Path) -> Result<LineCounts, Problem> {
    match prepare(request, out, &AtomicBool::new(false), &mut |_| ())? {
        PrepareOutcome::Finished { report, .. } => Ok(report),
        PrepareOutcome::Interrupted(_) => panic!("nobody asked"),
    }
}

/// Digests of the first windows of both splits, and in weighted order.
fn digest(index: Arc<TextIndex>) -> Vec<String> {
    [(Split::Train, vec![]), (Split::Train, vec![2, 1]), (Split::HeldOut, vec![])]
        .map(|(split, weights)| {
            let held_out = HeldOut { seed: 5, per_million: 200_000 };
            let marks = Marks { bos: true, eos: true };
            let options = Options {
                seq_len: 48,
                seed: 3,
                split,
                held_out,
                marks,
                weights,
                shuffle: Shuffle::Documents,
            };
            let mut batch = Batch::default();
            TextWindows::new(index.clone(), options).unwrap().fill(0..300, &mut batch).unwrap();
            digest_of_windows(&batch.window_digests()).to_hex().to_string()
        })
        .into()
}

#[test]
fn every_form_of_the_documents_gives_the_same_windows() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (one, two) = (documents(0..60), documents(60..100));
    let text = lines(&two);
    fs::write(path("a.jsonl"), lines(&one)).unwrap();
    fs::write(path("b.jsonl"), &text).unwrap();
    // Two frames or members, cut anywhere.
    let (first, second) = text.as_bytes().split_at(text.len() / 3);
    let frames = [first, second].map(|part| zstd::encode_all(part, 3).unwrap()).concat();
    fs::write(path("b.jsonl.zst"), frames).unwrap();
    let members = [first, second].map(|part| {
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        to.write_all(part).unwrap();
        to.finish().unwrap()
    });
    fs::write(path("b.jsonl.gz"), members.concat()).unwrap();
    table(&path("b.parquet"), &two.iter().cloned().map(Some).collect::<Vec<_>>());

    let files = |name: &str, text: String| SourceFiles {
        name: name.to_owned(),
        files: vec![(name.to_owned(), std::io::Cursor::new(text))],
    };
    let memory =
        TextIndex::build(vec![files("x", lines(&one)), files("y", text)], OnBadLine::Refuse);
    let memory = Arc::new(memory.unwrap().0);
    let want = digest(memory.clone());
    let bytes = Tokenizer::bytes();
    for form in ["b.jsonl", "b.jsonl.zst", "b.jsonl.gz", "b.parquet"] {
        let sources = [source("x", &[&path("a.jsonl")]), source("y", &[&path(form)])];
        let mut first: Option<Vec<u8>> = None;
        for workers in [1, 2, 5] {
            let out = path("out.index");
            let report = prepared(&Request { workers, ..request(&sources, &bytes) }, &out).unwrap();
            assert_eq!((report.lines, report.documents), (100, 100));
            assert!(!path("out.index.partial").exists());
            let file = fs::read(&out).unwrap();
            assert!(first.as_ref().is_none_or(|first| *first == file), "{form} {workers}");
            first = Some(file);
        }
        let index = file::load(&path("out.index")).unwrap();
        index.check().unwrap();
        assert_eq!(index.identity(), memory.identity());
        let tokens: Vec<u64> = index.manifest().unwrap().sources.iter().map(|s| s.tokens).collect();
        assert_eq!(tokens, [&one, &two].map(|d| d.concat().len() as u64), "{form}");
        assert_eq!(digest(Arc::new(index)), want, "{form}");
    }
}

#[test]
fn tokens_are_the_tokenizers_and_documents_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let texts = documents(0..50);
    fs::write(path("a.jsonl"), lines(&texts)).unwrap();
    let sources = [source("x", &[&path("a.jsonl")])];
    let golden = format!("{}/../tests/golden/tokenizers/llama3.model", env!("CARGO_MANIFEST_DIR"));
    let golden = fs::read(golden).unwrap();
    let tokenizer =
        Tokenizer::read(Kind::File(TokenizerKind::Tiktoken), &golden, "it", &MarkNames::default())
            .unwrap();
    prepared(&request(&sources, &tokenizer), &path("t.index")).unwrap();
    prepared(&request(&sources, &Tokenizer::bytes()), &path("b.index")).unwrap();
    let index = file::load(&path("t.index")).unwrap();
    let bytes = file::load(&path("b.index")).unwrap();
    assert_eq!(index.documents_digest(), bytes.documents_digest());
    assert_ne!(index.identity(), bytes.identity());
    assert_eq!(index.tokenizer(), tokenizer.info());
    let mut want: Vec<Vec<u32>> = texts
        .iter()
        .map(|text| {
            let mut ids = vec![560];
            tokenizer.encode(text, &mut ids).unwrap();
            ids
        })
        .collect();
    let options = Options {
        seq_len: 32,
        seed: 3,
        split: Split::Train,
        held_out: HeldOut { seed: 0, per_million: 0 },
        marks: Marks { bos: true, eos: true },
        weights: Vec::new(),
        shuffle: Shuffle::Documents,
    };
    let mut windows = TextWindows::new(Arc::new(index), options).unwrap();
    let tokens = windows.tokens();
    let mut batch = Batch::default();
    windows.fill(0..tokens / 32 + 1, &mut batch).unwrap();
    let stream: Vec<u32> =
        batch.inputs().iter().take(tokens as usize).map(|id| *id as u32).collect();
    let mut got: Vec<Vec<u32>> = stream.split(|id| *id == 561).map(<[u32]>::to_vec).collect();
    assert_eq!(got.pop(), Some(Vec::new()));
    want.sort();
    got.sort();
    assert_eq!(got, want);
    assert_ne!(561, EOS);
    // Epochs count tokens with bos and eos.
    let epochs = windows.epochs(3 * tokens);
    assert_eq!(epochs.len(), 1);
    assert_eq!((epochs[0].documents, epochs[0].tokens), (50, tokens));
    assert!((epochs[0].epochs - 3.0).abs() < 1e-9 && epochs[0].share == 1.0);
}

/// Sources of several pieces in `folder`, and the text of their first file. Pieces hold a megabyte, so a document fills
/// half of one.
fn sources_of_several_pieces(folder: &Path) -> ([SourceInput; 2], String) {
    let path = |name: &str| folder.join(name);
    let texts: Vec<String> = (0..9).map(|i| format!("{i} ").repeat(250_000)).collect();
    let text = lines(&texts) + "\n" + &lines(&[String::new()]);
    fs::write(path("a.jsonl"), &text).unwrap();
    fs::write(path("b.jsonl.zst"), zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
    table(&path("c.parquet"), &texts.into_iter().map(Some).collect::<Vec<_>>());
    let sources = [
        source("x", &[&path("a.jsonl"), &path("b.jsonl.zst")]),
        source("y", &[&path("c.parquet")]),
    ];
    (sources, text)
}

#[test]
fn a_preparation_stopped_anywhere_resumes_to_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (sources, _) = sources_of_several_pieces(folder.path());
    let bytes = Tokenizer::bytes();
    prepared(&request(&sources, &bytes), &path("straight")).unwrap();
    let want = fs::read(path("straight")).unwrap();
    let out = path("out");
    let mut stops = 0;
    for after in 1.. {
        let _ = fs::remove_file(&out);
        let stop = AtomicBool::new(false);
        let mut pieces = 0;
        let first = prepare(&request(&sources, &bytes), &out, &stop, &mut |news| {
            if let News::Progress(_) = news {
                pieces += 1;
                stop.store(pieces == after, Ordering::Relaxed);
            }
        });
        let PrepareOutcome::Interrupted(done) = first.unwrap() else { break };
        assert!(!out.exists());
        stops += 1;
        let mut resumed = None;
        let request = Request { workers: 1 + after % 3, ..request(&sources, &bytes) };
        let ended = prepare(&request, &out, &AtomicBool::new(false), &mut |news| match news {
            News::Resumed(from) => resumed = Some(*from),
            News::Anew(reason) => panic!("{reason}"),
            News::Progress(_) => {}
        });
        let PrepareOutcome::Finished { report, .. } = ended.unwrap() else { panic!() };
        assert_eq!(resumed, Some(done));
        let LineCounts { lines, documents, blank, empty, .. } = report;
        assert_eq!((lines, documents, blank, empty), (31, 27, 2, 2));
        assert!(fs::read(&out).unwrap() == want, "stopped after {after}");
    }
    assert!(stops >= 8, "{stops}");
}

#[test]
fn damaged_work_or_work_of_other_inputs_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (sources, text) = sources_of_several_pieces(folder.path());
    let bytes = Tokenizer::bytes();
    let out = path("out");
    let interrupt = || {
        let stop = AtomicBool::new(false);
        prepare(&request(&sources, &bytes), &out, &stop, &mut |_| {
            stop.store(true, Ordering::Relaxed);
        })
        .unwrap();
    };
    let anew = |request: &Request<'_>| {
        let mut reason = None;
        let stop = AtomicBool::new(false);
        prepare(request, &out, &stop, &mut |news| match news {
            News::Anew(text) => reason = Some(*text),
            News::Progress(_) => stop.store(true, Ordering::Relaxed),
            News::Resumed(_) => {}
        })
        .unwrap();
        reason.unwrap_or_default()
    };
    interrupt();
    let skipping = Request { on_bad_line: OnBadLine::Skip, ..request(&sources, &bytes) };
    assert!(anew(&skipping).contains("other files"));
    assert!(anew(&request(&sources, &bytes)).contains("other files"));
    let tokens = path("out.partial/tokens");
    let mut bad = fs::read(&tokens).unwrap();
    bad[100] ^= 1;
    fs::write(&tokens, bad).unwrap();
    assert_eq!(anew(&request(&sources, &bytes)), "it is damaged");
    fs::write(&tokens, "").unwrap();
    assert_eq!(anew(&request(&sources, &bytes)), "a part of it is missing");
    fs::write(path("out.partial/state.toml"), "version = 1").unwrap();
    assert_eq!(anew(&request(&sources, &bytes)), "its state cannot be read");
    fs::write(path("a.jsonl"), text + "{\"text\":\"more\"}\n").unwrap();
    assert!(anew(&request(&sources, &bytes)).contains("other files"));
}

#[test]
fn every_damage_of_a_prepared_file_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.jsonl"), lines(&documents(0..3))).unwrap();
    let out = path("out.index");
    prepared(&request(&[source("x", &[&path("a.jsonl")])], &Tokenizer::bytes()), &out).unwrap();
    assert!(file::is_index(&out).unwrap());
    let good = fs::read(&out).unwrap();
    let used = || file::load(&out).and_then(|index| index.check());
    used().unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&out, &bad).unwrap();
        assert!(used().is_err(), "byte {at}");
        fs::write(&out, &good[..at]).unwrap();
        assert!(used().is_err(), "cut at {at}");
    }
    fs::write(&out, [&good[..], b"x"].concat()).unwrap();
    assert!(used().is_err());
    assert!(file::load(folder.path()).unwrap_err().message.contains("is a folder"));
}

/// Prepares one file of `folder`, and removes the result.
fn prepared_from(
    folder: &Path,
    name: &str,
    field: Field,
    on_bad_line: OnBadLine,
) -> Result<LineCounts, Problem> {
    let out = folder.join("out.index");
    let sources = [source("x", &[&folder.join(name)])];
    let bytes = Tokenizer::bytes();
    let result = prepared(&Request { field, on_bad_line, ..request(&sources, &bytes) }, &out);
    // Only complete files are left, and the unfinished work of a failed preparation.
    assert_eq!(out.exists(), result.is_ok());
    let _ = fs::remove_file(&out);
    let _ = fs::remove_dir_all(folder.join("out.index.partial"));
    result
}

/// The message that refuses a file of `folder`.
fn refusal(folder: &Path, name: &str) -> String {
    prepared_from(folder, name, Field::Usual, OnBadLine::Refuse).unwrap_err().message
}

#[test]
fn damaged_archives_and_tables_are_refused_with_the_file_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let with = |name: &str, field: Field, on_bad_line| {
        prepared_from(folder.path(), name, field, on_bad_line)
    };
    let refused = |name: &str| refusal(folder.path(), name);

    let text = lines(&documents(0..50));
    let compressed = zstd::encode_all(text.as_bytes(), 3).unwrap();
    fs::write(path("cut.jsonl.zst"), &compressed[..compressed.len() - 9]).unwrap();
    assert!(refused("cut.jsonl.zst").starts_with("cannot read cut.jsonl.zst: "));
    // What a file contains decides, not its name.
    fs::write(path("no.jsonl.zst"), &text).unwrap();
    assert_eq!(with("no.jsonl.zst", Field::Usual, OnBadLine::Refuse).unwrap().documents, 50);
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(text.as_bytes()).unwrap();
    let compressed = to.finish().unwrap();
    fs::write(path("cut.jsonl.gz"), &compressed[..compressed.len() - 9]).unwrap();
    assert!(refused("cut.jsonl.gz").starts_with("cannot read cut.jsonl.gz: "));

    let rows: Vec<Option<String>> = (0..20).map(|i| (i != 4).then(|| format!("row {i}"))).collect();
    table(&path("t.parquet"), &rows);
    assert_eq!(
        refused("t.parquet"),
        "1 of 20 lines hold no document:\nt.parquet:5: `text` or `content` has no value"
    );
    let named = |name: &str| Field::Named(name.to_owned());
    let error = with("t.parquet", named("id"), OnBadLine::Skip).unwrap_err().message;
    assert_eq!(error, "cannot read t.parquet: its column `id` is INT64, but documents are strings");
    let error = with("t.parquet", named("body"), OnBadLine::Skip).unwrap_err().message;
    assert_eq!(error, "cannot read t.parquet: it has no column `body`; it has id, text");
    let good = fs::read(path("t.parquet")).unwrap();
    // An odd distance, for every bit of a byte to be flipped somewhere.
    let step = (good.len() / support::cases(good.len() as u32 / 3) as usize) | 1;
    for at in (0..good.len()).step_by(step) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        for bytes in [&bad[..], &good[..at]] {
            fs::write(path("bad.parquet"), bytes).unwrap();
            // The result is readable or refused with a message. A flipped bit may also turn text into other text.
            let _ = with("bad.parquet", Field::Usual, OnBadLine::Skip);
        }
    }
}

#[test]
fn a_line_that_is_too_long_is_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let refused = |name: &str| refusal(folder.path(), name);
    // 100 MB.
    let mut long = b"{\"text\": \"first\"}\n{\"text\": \"".to_vec();
    long.resize(100_000_000, b'a');
    long.extend_from_slice(b"\"}\n{\"text\": \"\xff\"}\n\n{\"text\": \"\"}\n{\"text\": \"last\"}");
    fs::write(path("long.jsonl"), long).unwrap();
    let report = prepared_from(folder.path(), "long.jsonl", Field::Usual, OnBadLine::Skip).unwrap();
    let LineCounts { lines, documents, blank, malformed, empty, ref first_bad, .. } = report;
    assert_eq!((lines, documents, blank, malformed, empty), (6, 2, 1, 2, 1));
    assert_eq!(
        first_bad[0].to_string(),
        "long.jsonl:2: 95.3 MiB, but a line can have at most 64 MiB"
    );
    assert!(first_bad[1].to_string().starts_with("long.jsonl:3: not a JSON object: "));
    assert!(refused("long.jsonl").starts_with("2 of 6 lines hold no document:\nlong.jsonl:2: "));
    fs::write(path("empty.jsonl"), "\n{\"text\": \"\"}\n").unwrap();
    assert!(
        refused("empty.jsonl").contains("source `x` has no documents: 2 lines, 1 of them empty")
    );
}

/// Everything that readers get from a file: windows of both splits, digests of documents, every block.
fn all_of(index: &Arc<TextIndex>) -> Result<Vec<String>, Problem> {
    const SEQ_LEN: u64 = 2048;
    let mut got = Vec::new();
    let held_out = HeldOut { seed: 5, per_million: 200_000 };
    let marks = Marks { bos: true, eos: true };
    for split in [Split::Train, Split::HeldOut] {
        let options = Options {
            seq_len: SEQ_LEN as usize,
            seed: 3,
            split,
            held_out,
            marks,
            weights: vec![],
            shuffle: Shuffle::Windows,
        };
        let mut windows = TextWindows::new(index.clone(), options)?;
        let mut batch = Batch::default();
        windows.fill(0..windows.tokens() / SEQ_LEN + 1, &mut batch)?;
        got.push(digest_of_windows(&batch.window_digests()).to_hex().to_string());
    }
    index.digests(0..index.len() as u32, |_, digest| got.push(digest.to_string()))?;
    index.check()?;
    Ok(got)
}

/// Writes a file of several blocks, and returns what readers get from it.
fn of_several_blocks(out: &Path) -> Vec<String> {
    let jsonl = out.with_extension("jsonl");
    let texts: Vec<String> =
        (0..40).map(|i| format!("{i} größer ").repeat(100 + 131 * (i * 7 % 23))).collect();
    fs::write(&jsonl, lines(&texts)).unwrap();
    prepared(&request(&[source("x", &[&jsonl])], &Tokenizer::bytes()), out).unwrap();
    all_of(&Arc::new(file::load(out).unwrap())).unwrap()
}

/// Changes bytes of a file that is open elsewhere.
fn put(path: &Path, at: usize, bytes: &[u8]) {
    use std::io::{Seek, SeekFrom};
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(bytes).unwrap();
}

/// Offsets of a file's parts: tokens, documents, digests of blocks, manifest, trailer, end.
pub(super) fn parts(file: &[u8]) -> [usize; 6] {
    let trailer = file.len() - 56;
    let offset = |at: usize| {
        u64::from_le_bytes(file[trailer + at..trailer + at + 8].try_into().unwrap()) as usize
    };
    [16, offset(0), offset(8), offset(16), trailer, file.len()]
}

#[test]
fn a_byte_that_changes_under_a_reader_is_found_or_never_read() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.index");
    let want = of_several_blocks(&out);
    let good = fs::read(&out).unwrap();
    let parts = parts(&good);
    let [_, documents, digests, ..] = parts;
    assert!(digests > 2 << 18, "{parts:?}");
    let mut places: Vec<usize> = (0..16).collect();
    places.extend(parts.iter().flat_map(|at| [at - 1, *at]).filter(|at| *at < good.len()));
    places.extend([1 << 18, (1 << 18) - 1, 2 << 18, documents + 40, documents + 48]);
    places.extend((0..good.len()).step_by(good.len() / support::cases(60) as usize));
    // It has read everything before each change.
    let reader = Arc::new(file::load(&out).unwrap());
    assert_eq!(all_of(&reader).unwrap(), want);
    for at in places {
        for read_before in [false, true] {
            let index =
                if read_before { reader.clone() } else { Arc::new(file::load(&out).unwrap()) };
            put(&out, at, &[good[at] ^ 1 << (at % 8)]);
            let got = all_of(&index);
            match got {
                // Bytes outside all blocks are read once, when the file is opened.
                Ok(got) => assert!(got == want && at >= digests, "byte {at}"),
                Err(error) => {
                    let block = format!("(block {})", at >> 18);
                    let named = error.message.contains("out.index is damaged: bytes ");
                    assert!(named && error.message.contains(&block), "byte {at}: {error}");
                    // Opening reads the list of documents, and so the blocks that contain it.
                    let known = read_before || at >> 18 >= documents >> 18;
                    assert_eq!(error.message.contains("first read them"), known, "{error}");
                }
            }
            put(&out, at, &[good[at]]);
            assert_eq!(all_of(&index).unwrap(), want, "restored, byte {at}");
        }
    }
}

#[test]
fn a_file_that_shrinks_goes_or_is_replaced_under_a_reader_gives_no_other_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.index");
    let want = of_several_blocks(&out);
    let good = fs::read(&out).unwrap();
    for length in [0, 16, 1000, 1 << 18, good.len() / 2] {
        let index = Arc::new(file::load(&out).unwrap());
        let open = |length| fs::OpenOptions::new().write(true).open(&out).unwrap().set_len(length);
        open(length as u64).unwrap();
        let error = all_of(&index).unwrap_err();
        let expected = "out.index is damaged: it ends before bytes ";
        assert!(error.message.contains(expected) && error.message.contains("(block "), "{error}");
        // Longer again, with other bytes.
        open(good.len() as u64).unwrap();
        assert!(all_of(&index).is_err(), "{length}");
        fs::write(&out, &good).unwrap();
        assert_eq!(all_of(&index).unwrap(), want, "{length}");
    }
    if cfg!(unix) {
        // An open file stays the one that was opened, even if another file takes its name.
        let index = Arc::new(file::load(&out).unwrap());
        let other = folder.path().join("other.index");
        fs::write(&other, &good[..good.len() / 2]).unwrap();
        fs::rename(&other, &out).unwrap();
        assert_eq!(all_of(&index).unwrap(), want);
        fs::remove_file(&out).unwrap();
        assert_eq!(all_of(&index).unwrap(), want);
        assert!(file::load(&out).is_err());
    }
}

/// The file with a newly computed list of digests and trailer.
pub(super) fn sealed_again(file: &[u8]) -> Vec<u8> {
    let [_, _, digests, manifest, trailer, _] = parts(file);
    let blocks: Vec<u8> =
        file[..digests].chunks(1 << 18).flat_map(|b| *blake3::hash(b).as_bytes()).collect();
    let (manifest, offsets) = (&file[manifest..trailer], &file[trailer..trailer + 24]);
    let seal = super::super::prepared::trailer_digest(&blocks, manifest, offsets);
    [&file[..digests], &blocks, manifest, offsets, seal.as_bytes()].concat()
}

#[test]
fn a_file_that_is_consistent_but_not_of_its_documents_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.index");
    of_several_blocks(&out);
    let good = fs::read(&out).unwrap();
    let [tokens, documents, ..] = parts(&good);
    assert!(sealed_again(&good) == good);
    fs::write(out.with_extension("good"), &good).unwrap();
    // Digests of documents decide the identity, which a lock names: a file that contradicts it is not opened.
    let mut bad = good.clone();
    bad[documents + 8] ^= 1;
    fs::write(&out, sealed_again(&bad)).unwrap();
    let error = file::load(&out).unwrap_err().message;
    assert!(error.ends_with("is damaged: its identity does not match its documents"), "{error}");
    // Byte tokens equal the documents, so a full check finds the difference.
    let identity = *file::load(&out.with_extension("good")).unwrap().identity();
    let mut bad = good.clone();
    bad[tokens + 100_000] ^= 1;
    fs::write(&out, sealed_again(&bad)).unwrap();
    let index = file::load(&out).unwrap();
    let error = index.check().unwrap_err().message;
    assert!(error.contains("is damaged: document "), "{error}");
    // For any tokenizer, a lock names the tokens: other tokens are other data.
    assert_ne!(*index.identity(), identity);
}

#[test]
fn what_changes_while_it_is_prepared_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.jsonl"), lines(&documents(0..30))).unwrap();
    let sources = [source("x", &[&path("a.jsonl")])];
    let bytes = Tokenizer::bytes();
    let (request, out) = (request(&sources, &bytes), path("out.index"));
    let changing = |change: &dyn Fn()| {
        let mut changed = false;
        let stop = AtomicBool::new(false);
        prepare(&request, &out, &stop, &mut |news| {
            if let (News::Progress(_), false) = (news, changed) {
                changed = true;
                change();
            }
        })
    };
    // A digest in the list of documents, which is read back at the end.
    let error = changing(&|| put(&path("out.index.partial/documents"), 20, b"?")).unwrap_err();
    assert!(error.message.ends_with("documents has changed since it was written"), "{error}");
    assert!(!out.exists());
    let error = changing(&|| put(&path("a.jsonl"), 0, b"{ ")).unwrap_err();
    assert!(error.message.ends_with("a.jsonl changed while it was read"), "{error}");
    assert!(!out.exists());
    // The same command starts again.
    fs::write(path("a.jsonl"), lines(&documents(0..30))).unwrap();
    prepared(&request, &out).unwrap();
    file::load(&out).unwrap().check().unwrap();
}

/// A pattern that needs the square of a run of digits: each match looks ahead to the run's end.
fn digits_from_the_right() -> Tokenizer {
    let mut json = golden::read("tokenizers/llama3");
    json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
        r"\d{1,3}(?=(?:\d{3})*\b)|\D+".into();
    let kind = Kind::File(TokenizerKind::HuggingFace);
    let bytes = serde_json::to_vec(&json).unwrap();
    Tokenizer::read(kind, &bytes, "it", &MarkNames::default()).unwrap()
}

#[test]
fn a_document_that_takes_too_long_is_named_and_a_stop_inside_it_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let lines = format!("{{\"text\": \"a\"}}\n{{\"text\": \"{}\"}}\n", "7".repeat(1 << 17));
    fs::write(path("a.jsonl"), lines).unwrap();
    let sources = [source("x", &[&path("a.jsonl")])];
    let tokenizer = digits_from_the_right();
    let request = request(&sources, &tokenizer);
    let stopped = prepare(&request, &path("out"), &AtomicBool::new(true), &mut |_| ()).unwrap();
    let PrepareOutcome::Interrupted(done) = stopped else { panic!("{stopped:?}") };
    assert_eq!(done.documents, 0);
    let run = AtomicBool::new(false);
    let error =
        prepare_within(Duration::ZERO, &request, &path("out"), &run, &mut |_| ()).unwrap_err();
    let expected =
        "a.jsonl:2: this document of 131072 bytes is not tokenized after 1 s of computing";
    assert!(error.message.ends_with(expected), "{error}");
}

#[test]
fn paragraphs_larger_than_a_piece_are_whole_and_stops_are_between_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // A paragraph of three pieces, then small ones that end near the end of a piece.
    let mut paragraphs = vec!["a line of a long paragraph\n".repeat(130_000)];
    paragraphs.extend((0..3000).map(|n| format!("paragraph {n}\n{}\n", "x".repeat(900))));
    fs::write(path("a.txt"), paragraphs.join("\n\n")).unwrap();
    let texts: Vec<String> = paragraphs.iter().map(|text| text.trim_end().to_owned()).collect();
    fs::write(path("a.jsonl"), lines(&texts)).unwrap();
    let bytes = Tokenizer::bytes();
    let sources = [source("x", &[&path("a.jsonl")])];
    prepared(&request(&sources, &bytes), &path("wanted")).unwrap();
    let identity = |name: &str| *file::load(&path(name)).unwrap().identity();
    let wanted = identity("wanted");
    let sources = [source("x", &[&path("a.txt")])];
    let request = Request { plain: Plain::Paragraph, ..request(&sources, &bytes) };
    for after in 1..4 {
        let stop = AtomicBool::new(false);
        let mut pieces = 0;
        let first = prepare(&request, &path("out"), &stop, &mut |news| {
            if let News::Progress(_) = news {
                pieces += 1;
                stop.store(pieces == after, Ordering::Relaxed);
            }
        });
        assert!(matches!(first, Ok(PrepareOutcome::Interrupted(_))));
        let report = prepared(&request, &path("out")).unwrap();
        assert_eq!(report.documents, texts.len() as u64);
        assert_eq!(identity("out"), wanted, "stopped after {after}");
        fs::remove_file(path("out")).unwrap();
    }
}
