//! Documents by number, in memory or in a prepared file: their tokens, their digests, and the identity of the whole
//! set.
//!
//! The identity depends only on the documents' bytes, order and grouping into sources, the tokenizer and the tokens;
//! not on file names, broken lines or the JSON's formatting.

use std::io::{BufRead, Read};
use std::ops::Range;

use disk::checked::ReadBuffer;
use dsl::Problem;

use super::identity;
use super::layout::documents_hasher;
use super::lines::{BadLine, Field, LONGEST_LINE, NAMED_LINES, document_of};
use super::prepared::{Manifest, Opened, Prepared};
use super::tokenizer::Info;

pub use super::layout::SourceRange;
pub use super::lines::{LineCounts, OnBadLine};

/// One source's files, in reading order, each with its name for messages.
#[derive(Debug)]
pub struct SourceFiles<R> {
    /// The source's name, as locks and reports call it.
    pub name: String,
    /// The name and the content of each file.
    pub files: Vec<(String, R)>,
}

/// Documents by number, grouped by source.
#[derive(Debug)]
pub struct TextIndex {
    sources: Vec<SourceRange>,
    store: Store,
    identity: blake3::Hash,
    documents_digest: blake3::Hash,
    tokenizer: Info,
}

/// Where the tokens and digests are stored.
#[derive(Debug)]
enum Store {
    /// The documents' concatenated bytes, which are their tokens, and where each document ends.
    Memory {
        bytes: Vec<u8>,
        ends: Vec<u64>,
        digests: Vec<blake3::Hash>,
    },
    File(Box<Prepared>),
}

/// Buffers reused between reads.
pub type Scratch = ReadBuffer;

impl TextIndex {
    /// Reads all documents of all sources into memory, as bytes.
    pub fn build<R: BufRead>(
        sources: Vec<SourceFiles<R>>,
        on_bad_line: OnBadLine,
    ) -> Result<(TextIndex, LineCounts), Problem> {
        let mut documents = Documents::default();
        let mut report = LineCounts::default();
        let mut ends = Vec::new();
        for SourceFiles { name, files } in sources {
            for (file, reader) in files {
                read_file(reader, &file, &mut documents, &mut report)?;
            }
            ends.push((name, documents.len()));
        }
        if on_bad_line == OnBadLine::Refuse && report.malformed > 0 {
            return Err(malformed(&report));
        }
        // Only now, to distinguish a source with only bad lines from one without lines.
        for (name, end) in ends {
            documents.end_source(name, end)?;
        }
        let index = documents.finish()?;
        report.documents = index.len() as u64;
        report.bytes = index.tokens_of(&(0..index.len() as u32))?;
        Ok((index, report))
    }

    /// The index of a prepared file.
    pub(super) fn of_prepared(opened: Opened) -> TextIndex {
        let Opened { sources, identity, documents_digest, tokenizer, prepared } = opened;
        let store = Store::File(Box::new(prepared));
        TextIndex { sources, store, identity, documents_digest, tokenizer }
    }

    /// Number of documents in all sources.
    pub fn len(&self) -> usize {
        self.sources.last().map_or(0, |source| source.documents.end as usize)
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sources, in the order of their documents.
    pub fn sources(&self) -> &[SourceRange] {
        &self.sources
    }

    /// The tokenizer that made the tokens.
    pub fn tokenizer(&self) -> &Info {
        &self.tokenizer
    }

    /// The identity of the data, including tokens. Locks bind it.
    pub fn identity(&self) -> &blake3::Hash {
        &self.identity
    }

    /// The digest of the documents alone, for any tokenizer: equal if the same documents were prepared twice. Locks of
    /// earlier versions bind it.
    pub fn documents_digest(&self) -> &blake3::Hash {
        &self.documents_digest
    }

    /// Range of a document's tokens among all tokens; empty past the last document.
    pub(super) fn token_range(
        &self,
        number: u32,
        scratch: &mut Scratch,
    ) -> Result<Range<u64>, Problem> {
        match &self.store {
            Store::Memory { ends, .. } => {
                let number = number as usize;
                let start = number.checked_sub(1).and_then(|before| ends.get(before));
                let start = start.copied().unwrap_or(0);
                Ok(start..ends.get(number).copied().unwrap_or(start))
            }
            Store::File(prepared) => prepared.token_range(u64::from(number), scratch),
        }
    }

    /// Number of tokens in a document, without marks.
    pub fn tokens(&self, number: u32) -> Result<u64, Problem> {
        let token_range = self.token_range(number, &mut Scratch::default())?;
        Ok(token_range.end - token_range.start)
    }

    /// Number of tokens in a range of documents, without marks.
    pub fn tokens_of(&self, documents: &Range<u32>) -> Result<u64, Problem> {
        let mut scratch = Scratch::default();
        let mut before = |number: u32| match number.checked_sub(1) {
            None => Ok(0),
            Some(last) => Ok::<u64, Problem>(self.token_range(last, &mut scratch)?.end),
        };
        Ok(before(documents.end)? - before(documents.start)?)
    }

    /// Appends a document's tokens after the first `skipped`, at most `limit` of them.
    pub fn read(
        &self,
        number: u32,
        skipped: u64,
        limit: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), Problem> {
        let token_range = self.token_range(number, scratch)?;
        self.read_at(token_range, skipped, limit, scratch, out)
    }

    /// Like [`TextIndex::read`], for a document with this range among all tokens.
    pub(super) fn read_at(
        &self,
        token_range: Range<u64>,
        skipped: u64,
        limit: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), Problem> {
        let start = token_range.start.saturating_add(skipped).min(token_range.end);
        let end = token_range.end.min(start.saturating_add(limit as u64));
        match &self.store {
            Store::Memory { bytes, .. } => {
                let bytes = bytes.get(start as usize..end as usize).unwrap_or_default();
                out.extend(bytes.iter().map(|&byte| u32::from(byte)));
                Ok(())
            }
            Store::File(prepared) => prepared.tokens(start..end, scratch, out),
        }
    }

    #[cfg(test)]
    pub(super) fn document(&self, number: u32) -> &[u8] {
        let Store::Memory { bytes, .. } = &self.store else { return &[] };
        let token_range = self.token_range(number, &mut Scratch::default()).unwrap();
        bytes.get(token_range.start as usize..token_range.end as usize).unwrap_or_default()
    }

    /// The manifest of a prepared file. Documents in memory have none.
    pub fn manifest(&self) -> Option<&Manifest> {
        match &self.store {
            Store::Memory { .. } => None,
            Store::File(prepared) => Some(prepared.manifest()),
        }
    }

    /// Returns the digests of the bytes of a range of documents, in order.
    pub fn digests(
        &self,
        documents: Range<u32>,
        mut to: impl FnMut(u32, &blake3::Hash),
    ) -> Result<(), Problem> {
        match &self.store {
            Store::Memory { digests, .. } => {
                for number in documents {
                    if let Some(digest) = digests.get(number as usize) {
                        to(number, digest);
                    }
                }
                Ok(())
            }
            Store::File(prepared) => prepared.digests(documents, &mut to),
        }
    }

    /// Reads everything and checks it against its digests. Documents in memory were already checked.
    pub fn check(&self) -> Result<(), Problem> {
        match &self.store {
            Store::Memory { .. } => Ok(()),
            Store::File(prepared) => prepared.check(),
        }
    }

    /// Bytes in memory to check what is read of a prepared file. They grow with the parts that were read.
    pub fn memory(&self) -> u64 {
        match &self.store {
            Store::Memory { .. } => 0,
            Store::File(prepared) => prepared.memory(),
        }
    }
}

/// Looks up the lengths of documents. Reads several at once, since lookups come in about their order.
#[derive(Debug)]
pub(super) struct Lengths<'a> {
    index: &'a TextIndex,
    /// The documents that were read, and where each ends, after the start of the first.
    read: Range<u32>,
    ends: Vec<u64>,
    scratch: Scratch,
}

impl<'a> Lengths<'a> {
    /// Documents that are read at once.
    const TOGETHER: u32 = 4096;

    pub(super) fn new(index: &'a TextIndex) -> Lengths<'a> {
        Lengths { index, read: 0..0, ends: Vec::new(), scratch: Scratch::default() }
    }

    /// Number of tokens in a document, without marks.
    pub(super) fn tokens(&mut self, document: u32) -> Result<u64, Problem> {
        if !self.read.contains(&document) {
            let count = self.index.len() as u32;
            self.read = document..count.min(document.saturating_add(Self::TOGETHER));
            self.ends.clear();
            match &self.index.store {
                Store::Memory { ends, .. } => {
                    let first = document.checked_sub(1).and_then(|last| ends.get(last as usize));
                    self.ends.push(first.copied().unwrap_or(0));
                    let range = self.read.start as usize..self.read.end as usize;
                    self.ends.extend(ends.get(range).unwrap_or_default());
                }
                Store::File(prepared) => {
                    if document == 0 {
                        self.ends.push(0);
                    }
                    let range = document.saturating_sub(1)..self.read.end;
                    let range = u64::from(range.start)..u64::from(range.end);
                    prepared.ends(range, &mut self.scratch, &mut self.ends)?;
                }
            }
        }
        let at = (document - self.read.start) as usize;
        match self.ends.get(at..at + 2) {
            Some([start, end]) => Ok(end.saturating_sub(*start)),
            Some(_) | None => Ok(0),
        }
    }
}

/// The error when malformed lines are refused.
pub(super) fn malformed(report: &LineCounts) -> Problem {
    Problem::input(
        report.malformed_lines(),
        "correct these lines, name another field with --field, or skip them with `canonc data prepare --malformed skip`",
    )
}

/// A builder of a [`TextIndex`]; [`Documents::finish`] is the only way to make one.
#[derive(Debug, Default)]
pub(super) struct Documents {
    sources: Vec<SourceRange>,
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Documents {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn push(&mut self, document: &[u8]) {
        self.bytes.extend_from_slice(document);
        self.ends.push(self.bytes.len() as u64);
    }

    /// Makes the documents from the last source's end up to `end` the source `name`.
    pub(super) fn end_source(&mut self, name: String, end: usize) -> Result<(), Problem> {
        let start = self.sources.last().map_or(0, |source| source.documents.end);
        let end = u32::try_from(end).map_err(|_| {
            Problem::input(
                format!("there are {end} documents, more than an index can number"),
                format!("prepare at most {} documents at a time", u32::MAX),
            )
        })?;
        if start == end {
            return Err(Problem::input(
                format!("source `{name}` has no documents"),
                "give it JSON lines with a `text` or `content` field, or remove the source",
            ));
        }
        if self.sources.iter().any(|source| source.name == name) {
            return Err(Problem::input(
                format!("two sources are called `{name}`"),
                "rename one, or merge them into one source",
            ));
        }
        self.sources.push(SourceRange { name, documents: start..end });
        Ok(())
    }

    pub(super) fn finish(self) -> Result<TextIndex, Problem> {
        let Documents { sources, bytes, ends } = self;
        if sources.is_empty() {
            return Err(Problem::input("no text is given", "name at least one file of JSON lines"));
        }
        let mut digests = Vec::with_capacity(ends.len());
        let mut start = 0;
        for &end in &ends {
            digests.push(blake3::hash(bytes.get(start..end as usize).unwrap_or_default()));
            start = end as usize;
        }
        let mut all = documents_hasher();
        for SourceRange { name: _, documents } in &sources {
            all.update(&u64::from(documents.end - documents.start).to_le_bytes());
            for digest in
                digests.get(documents.start as usize..documents.end as usize).unwrap_or_default()
            {
                all.update(digest.as_bytes());
            }
        }
        let counts = sources
            .iter()
            .map(|SourceRange { name: _, documents }| u64::from(documents.end - documents.start));
        let identity = identity::of_bytes(counts, &bytes, &ends, &digests);
        Ok(TextIndex {
            sources,
            store: Store::Memory { bytes, ends, digests },
            identity,
            documents_digest: all.finalize(),
            tokenizer: Info::bytes(),
        })
    }
}

/// The mark that some editors put before a text.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn read_file(
    mut reader: impl BufRead,
    file: &str,
    documents: &mut Documents,
    report: &mut LineCounts,
) -> Result<(), Problem> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let unreadable = |error| {
            Problem::input(
                format!("cannot read {file}: {error}"),
                "check that the file exists and is readable",
            )
        };
        let read =
            reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        report.lines += 1;
        if number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        let document = if read as u64 == LONGEST_LINE && line.last() != Some(&b'\n') {
            reader.skip_until(b'\n').map_err(unreadable)?;
            Err(format!("longer than {}", dsl::size(LONGEST_LINE)))
        } else if line.trim_ascii().is_empty() {
            report.blank += 1;
            continue;
        } else {
            document_of(&line, &Field::Usual)
        };
        let reason = match document {
            Ok(text) if text.is_empty() => {
                report.empty += 1;
                continue;
            }
            Ok(text) => {
                documents.push(text.as_bytes());
                continue;
            }
            Err(reason) => {
                report.malformed += 1;
                reason
            }
        };
        if report.first_bad.len() < NAMED_LINES {
            report.first_bad.push(BadLine { file: file.to_owned(), line: number, reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn build(
        files: &[(&str, &str)],
        on_bad_line: OnBadLine,
    ) -> Result<(TextIndex, LineCounts), Problem> {
        let files = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), Cursor::new(text.as_bytes().to_vec())));
        TextIndex::build(
            vec![SourceFiles { name: "a".to_owned(), files: files.collect() }],
            on_bad_line,
        )
    }

    const MIXED: &str = "{\"text\": \"one\"}\n\n{\"content\": \"zwei\", \"id\": [1, {}]}\n{\"text\": \"\"}\n{not json}\n\
        {\"text\": null, \"content\": \"\"}\n{\"id\": 3}\n[\"a\", \"b\"]\n{\"text\": \"\\u00e9\", \"content\": \"no\"}\r\n  \n{\"text\": \"last\"}";

    #[test]
    fn bad_lines_are_counted_and_named() {
        let (index, report) = build(&[("a.jsonl", MIXED)], OnBadLine::Skip).unwrap();
        let texts: Vec<&str> = (0..index.len() as u32)
            .map(|i| std::str::from_utf8(index.document(i)).unwrap())
            .collect();
        assert_eq!(texts, ["one", "zwei", "é", "last"]);
        assert_eq!(index.document(4), b"");
        let LineCounts { lines, documents, bytes, blank, malformed, empty, first_bad } = report;
        assert_eq!((lines, documents, bytes, blank, malformed, empty), (11, 4, 13, 2, 4, 1));
        let lines: Vec<u64> = first_bad.iter().map(|bad| bad.line).collect();
        assert_eq!(lines, [5, 6, 7, 8]);
        assert!(first_bad[0].to_string().starts_with("a.jsonl:5: not a JSON object: "));
        assert_eq!(first_bad[1].reason, "`text` or `content` is not a string");
        assert_eq!(first_bad[2].reason, "no `text` and no `content`, but `id`");
        assert_eq!(first_bad[3].reason, "a JSON list, not one object a line");
    }

    #[test]
    fn refusing_names_all_bad_lines_at_once() {
        let error = build(&[("a.jsonl", MIXED)], OnBadLine::Refuse).unwrap_err();
        assert!(
            error.message.starts_with("4 of 11 lines hold no document:\na.jsonl:5: "),
            "{error}"
        );
        assert!(error.message.contains("a.jsonl:8"), "{error}");
        let many = "x\n".repeat(30);
        let error = build(&[("b", &many)], OnBadLine::Refuse).unwrap_err();
        assert!(error.message.ends_with("... and 10 more"), "{error}");
    }

    #[test]
    fn hostile_lines_are_malformed_not_fatal() {
        let deep = format!(
            "{{\"text\": {}1{}}}\n{{\"text\": \"fine\"}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        let (index, report) = build(&[("a", &deep)], OnBadLine::Skip).unwrap();
        assert_eq!((index.len(), report.malformed), (1, 1));
        let files = vec![(
            "a".to_owned(),
            Cursor::new(b"{\"text\": \"\xff\"}\n{\"text\": \"a\"}".to_vec()),
        )];
        let source = SourceFiles { name: "a".to_owned(), files };
        let (index, report) = TextIndex::build(vec![source], OnBadLine::Skip).unwrap();
        assert_eq!((index.len(), report.malformed), (1, 1));
    }

    #[test]
    fn sources_without_documents_or_of_one_name_are_refused() {
        let error = build(&[("a", "\n\n")], OnBadLine::Skip).unwrap_err();
        assert!(error.message.contains("source `a` has no documents"), "{error}");
        let source = || SourceFiles {
            name: "a".to_owned(),
            files: vec![("f".to_owned(), Cursor::new(b"{\"text\":\"x\"}".to_vec()))],
        };
        let error = TextIndex::build(vec![source(), source()], OnBadLine::Skip).unwrap_err();
        assert!(error.message.contains("two sources are called `a`"), "{error}");
        let none: Vec<SourceFiles<Cursor<Vec<u8>>>> = Vec::new();
        assert!(TextIndex::build(none, OnBadLine::Skip).is_err());
    }

    #[test]
    fn the_identity_ignores_file_names_and_json_formatting() {
        let identity =
            |files: &[(&str, &str)]| *build(files, OnBadLine::Skip).unwrap().0.identity();
        let one = identity(&[("a", "{\"text\": \"x\"}\n{\"text\": \"y\"}\n")]);
        assert_eq!(
            identity(&[("b", "{\"content\":\"x\"}\n\nbroken\n"), ("c", "{\"text\":\"\\u0079\"}")]),
            one
        );
        assert_ne!(identity(&[("a", "{\"text\": \"y\"}\n{\"text\": \"x\"}\n")]), one);
        assert_ne!(identity(&[("a", "{\"text\": \"xy\"}\n")]), one);
        let split = [("a", "x"), ("b", "y")].map(|(name, text)| SourceFiles {
            name: name.to_owned(),
            files: vec![("f".to_owned(), Cursor::new(format!("{{\"text\":\"{text}\"}}")))],
        });
        assert_ne!(*TextIndex::build(split.into(), OnBadLine::Skip).unwrap().0.identity(), one);
    }
}
