//! In: JSON lines, a document a line under `text` (or, without it, `content`). Out: the documents, their digests
//! and the identity of the whole set, with a report of the lines that gave none. Must stay true: the identity
//! depends on the documents' bytes, their order and their grouping into sources alone, not on file names, broken
//! lines or how the JSON was written; a line that cannot be used is counted and named, never dropped in silence.

use std::fmt;
use std::io::{BufRead, Read};
use std::ops::Range;

use serde::Deserialize;

use crate::data::DataError;

/// One source's files, in reading order, each with the name that messages use.
#[derive(Debug)]
pub struct SourceFiles<R> {
    pub name: String,
    pub files: Vec<(String, R)>,
}

/// What becomes of lines without a usable document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBadLine {
    /// Leave them out and report them.
    Skip,
    /// Read to the end, then fail and name them.
    Refuse,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub lines: u64,
    pub documents: u64,
    pub bytes: u64,
    /// Lines of white space; no error under any policy.
    pub blank: u64,
    /// Lines whose JSON is malformed or holds no text.
    pub malformed: u64,
    /// Documents of no bytes.
    pub empty: u64,
    /// The first of the malformed and empty lines.
    pub first_bad: Vec<BadLine>,
}

/// A line that gave no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    pub file: String,
    /// Counted from 1.
    pub line: u64,
    pub why: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.why)
    }
}

/// Documents by number, grouped by source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextIndex {
    sources: Vec<Source>,
    /// All documents' bytes, one after the other.
    bytes: Vec<u8>,
    /// Where each document ends in `bytes`.
    ends: Vec<u64>,
    digests: Vec<blake3::Hash>,
    identity: blake3::Hash,
}

/// A named run of documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub name: String,
    pub documents: Range<u32>,
}

const LONGEST_LINE: u64 = 1 << 28;
const NAMED_LINES: usize = 20;

impl TextIndex {
    /// Reads all documents of all sources.
    pub fn build<R: BufRead>(
        sources: Vec<SourceFiles<R>>,
        on_bad_line: OnBadLine,
    ) -> Result<(TextIndex, Report), DataError> {
        let mut documents = Documents::default();
        let mut report = Report::default();
        let mut ends = Vec::new();
        for SourceFiles { name, files } in sources {
            for (file, reader) in files {
                read_file(reader, &file, &mut documents, &mut report)?;
            }
            ends.push((name, documents.len()));
        }
        let bad = report.malformed + report.empty;
        if on_bad_line == OnBadLine::Refuse && bad > 0 {
            let named: Vec<String> = report.first_bad.iter().map(BadLine::to_string).collect();
            let more = bad - named.len() as u64;
            let rest = if more > 0 { format!("\n... and {more} more") } else { String::new() };
            return Err(DataError::new(
                format!(
                    "{bad} of {} lines hold no document:\n{}{rest}",
                    report.lines,
                    named.join("\n")
                ),
                "correct these lines, or leave them out with `canonc data prepare --skip-bad-lines`",
            ));
        }
        // Only now, so that a source whose every line is bad is told apart from one that has none.
        for (name, end) in ends {
            documents.end_source(name, end)?;
        }
        let index = documents.finish()?;
        report.documents = index.len() as u64;
        report.bytes = index.bytes.len() as u64;
        Ok((index, report))
    }

    /// Documents of all sources.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The UTF-8 bytes of a document; empty past the last one.
    pub fn document(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let start =
            number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(number).copied().unwrap_or(start);
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }

    /// The digest of a document's bytes.
    pub fn document_digest(&self, number: u32) -> Option<&blake3::Hash> {
        self.digests.get(number as usize)
    }

    /// The identity of the data set: what a lock binds.
    pub fn identity(&self) -> &blake3::Hash {
        &self.identity
    }
}

/// Documents being collected; [`Documents::finish`] is the only way to a [`TextIndex`].
#[derive(Debug, Default)]
pub(super) struct Documents {
    sources: Vec<Source>,
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
    pub(super) fn end_source(&mut self, name: String, end: usize) -> Result<(), DataError> {
        let start = self.sources.last().map_or(0, |source| source.documents.end);
        let end = u32::try_from(end).map_err(|_| {
            DataError::new(
                format!("there are {end} documents, more than an index can number"),
                format!("prepare at most {} documents at a time", u32::MAX),
            )
        })?;
        if start == end {
            return Err(DataError::new(
                format!("source `{name}` has no documents"),
                "give it JSON lines with a `text` or `content` field, or leave the source out",
            ));
        }
        if self.sources.iter().any(|source| source.name == name) {
            return Err(DataError::new(
                format!("there are two sources called `{name}`"),
                "rename one, or put their files into one source",
            ));
        }
        self.sources.push(Source { name, documents: start..end });
        Ok(())
    }

    pub(super) fn finish(self) -> Result<TextIndex, DataError> {
        let Documents { sources, bytes, ends } = self;
        if sources.is_empty() {
            return Err(DataError::new(
                "there are no sources of text",
                "name at least one file of JSON lines",
            ));
        }
        let mut digests = Vec::with_capacity(ends.len());
        let mut start = 0;
        for &end in &ends {
            digests.push(blake3::hash(bytes.get(start..end as usize).unwrap_or_default()));
            start = end as usize;
        }
        let mut identity = blake3::Hasher::new_derive_key("canonc 1 data text");
        for Source { name: _, documents } in &sources {
            identity.update(&u64::from(documents.end - documents.start).to_le_bytes());
            for digest in
                digests.get(documents.start as usize..documents.end as usize).unwrap_or_default()
            {
                identity.update(digest.as_bytes());
            }
        }
        let identity = identity.finalize();
        Ok(TextIndex { sources, bytes, ends, digests, identity })
    }
}

/// The fields of a line that matter; all others may hold anything.
#[derive(Deserialize)]
struct Line {
    #[serde(default, deserialize_with = "present")]
    text: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "present")]
    content: Option<serde_json::Value>,
}

/// A field that is there, null included: a null `text` is an error, not a reason to look for `content`.
fn present<'de, D: serde::Deserializer<'de>>(
    value: D,
) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(value).map(Some)
}

fn read_file(
    mut reader: impl BufRead,
    file: &str,
    documents: &mut Documents,
    report: &mut Report,
) -> Result<(), DataError> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let unreadable = |error| {
            DataError::new(
                format!("cannot read {file}: {error}"),
                "check that the file is there and readable",
            )
        };
        let read =
            reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        report.lines += 1;
        let document = if read as u64 == LONGEST_LINE && line.last() != Some(&b'\n') {
            reader.skip_until(b'\n').map_err(unreadable)?;
            Err(format!("longer than {LONGEST_LINE} bytes"))
        } else if line.trim_ascii().is_empty() {
            report.blank += 1;
            continue;
        } else {
            document_of(&line)
        };
        let why = match document {
            Ok(text) if text.is_empty() => {
                report.empty += 1;
                "the document is empty".to_owned()
            }
            Ok(text) => {
                documents.push(text.as_bytes());
                continue;
            }
            Err(why) => {
                report.malformed += 1;
                why
            }
        };
        if report.first_bad.len() < NAMED_LINES {
            report.first_bad.push(BadLine { file: file.to_owned(), line: number, why });
        }
    }
    Ok(())
}

/// The text of a line, or why it has none. `content` counts only where there is no `text` at all.
fn document_of(line: &[u8]) -> Result<String, String> {
    // Without this, a list would be read as the fields in order.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("not a JSON object".to_owned());
    }
    let Line { text, content } =
        serde_json::from_slice(line).map_err(|error| format!("not a JSON object: {error}"))?;
    match text.or(content) {
        Some(serde_json::Value::String(text)) => Ok(text),
        Some(_) => Err("`text` or `content` is not a string".to_owned()),
        None => Err("no `text` and no `content`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn build(
        files: &[(&str, &str)],
        on_bad_line: OnBadLine,
    ) -> Result<(TextIndex, Report), DataError> {
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
        let Report { lines, documents, bytes, blank, malformed, empty, first_bad } = report;
        assert_eq!((lines, documents, bytes, blank, malformed, empty), (11, 4, 13, 2, 4, 1));
        let lines: Vec<u64> = first_bad.iter().map(|bad| bad.line).collect();
        assert_eq!(lines, [4, 5, 6, 7, 8]);
        assert_eq!(first_bad[0].to_string(), "a.jsonl:4: the document is empty");
        assert!(first_bad[1].why.starts_with("not a JSON object: "), "{}", first_bad[1]);
        assert_eq!(first_bad[2].why, "`text` or `content` is not a string");
        assert_eq!(first_bad[3].why, "no `text` and no `content`");
        assert_eq!(first_bad[4].why, "not a JSON object");
    }

    #[test]
    fn refusing_names_all_bad_lines_at_once() {
        let error = build(&[("a.jsonl", MIXED)], OnBadLine::Refuse).unwrap_err();
        assert!(
            error.message.starts_with("5 of 11 lines hold no document:\na.jsonl:4: "),
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
        assert!(error.message.contains("two sources called `a`"), "{error}");
        let none: Vec<SourceFiles<Cursor<Vec<u8>>>> = Vec::new();
        assert!(TextIndex::build(none, OnBadLine::Skip).is_err());
    }

    #[test]
    fn the_identity_is_of_the_documents_alone() {
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
