//! The tokenizer that options name.

use std::io::Read;
use std::path::Path;

use data::text::tokenizer::{Kind, MOST_BYTES, MarkNames, Tokenizer};

use crate::fail::{Failure, shown};
use crate::{files, output};

/// The chosen tokenizer, with its file read.
pub fn read(kind: Kind, path: Option<&Path>, marks: MarkNames) -> Result<Tokenizer, Failure> {
    let Some(path) = path else {
        if kind != Kind::Bytes {
            return Err(Failure::bad_input(format!("the {kind} tokenizer needs a file"))
                .help("name it with --tokenizer-file FILE"));
        }
        if marks != MarkNames::default() {
            return Err(Failure::bad_input(
                "the bytes tokenizer always uses 256 and 257 for --bos and --eos",
            )
            .help("remove --bos and --eos"));
        }
        return Ok(Tokenizer::bytes());
    };
    if kind == Kind::Bytes {
        return Err(Failure::bad_input("--tokenizer-file is given, but --tokenizer is bytes")
            .help("name its kind: --tokenizer sentencepiece, tiktoken or huggingface"));
    }
    let file = bytes_of(path)?;
    let tokenizer = Tokenizer::read(kind, &file, &shown(path), &marks)?;
    if let Some(note) = tokenizer.note() {
        output::note(&format!("note: {note}"));
    }
    Ok(tokenizer)
}

/// The bytes of a tokenizer's file.
pub fn bytes_of(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = disk::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| files::missing(path, &error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Failure::bad_input(format!(
            "`{}` has more than {}, too large for a tokenizer",
            shown(path),
            dsl::size(MOST_BYTES)
        )));
    }
    Ok(bytes)
}
