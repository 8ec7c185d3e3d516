//! Arguments of `canonc data prepare` and `canonc data about`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`; an option that changes a byte of the
//! prepared file is covered by the digest of the tokenizer or of the documents.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use data::text::tokenizer::{Kind, TokenizerKind};

/// Tokenize documents once, into a file for `canonc bind` and `canonc run --data`
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc data prepare shards/*.jsonl --out data/c4.index
  canonc data prepare web=web/ code=code.jsonl.zst books=books.parquet --out data/mix.index
  canonc data prepare gutenberg/ --out data/books.index        a folder of .txt files
  canonc data prepare fineweb_edu_shuffled/ --tokenizer tiktoken --tokenizer-file tokenizer.model \\
      --workers 16 --out data/fineweb.index
  zcat c4.jsonl.gz | canonc data prepare - --out data/c4.index

`--help` describes the file formats and how to continue after an interruption.",
    after_long_help = "\
Examples:
  canonc data prepare shards/*.jsonl --out data/c4.index
  canonc data prepare web=web/ code=code.jsonl.zst books=books.parquet --out data/mix.index
  canonc data prepare gutenberg/ --out data/books.index        a folder of .txt files
  canonc data prepare fineweb_edu_shuffled/ --tokenizer tiktoken --tokenizer-file tokenizer.model \\
      --workers 16 --out data/fineweb.index
  zcat c4.jsonl.gz | canonc data prepare - --out data/c4.index

Files: JSON lines, Parquet and plain text; compressed by gzip, zstd (any window), xz or bzip2, which is seen
from the content. A document is the string under `text` or, if missing, under `content`, or under --field. A
plain text file (.txt, .text, or a named file that does not begin with `{`) is one document; with --lines one
per line, with --paragraphs one per run of lines between blank lines. The output says how it was read.
A folder means all such files below it, sorted, and plain text only if there is nothing else; a folder with
Lingua's chunks (NAME.chunk.N.jsonl) means its chunks, by number. Files of a folder that are not read are
listed. The weights in a recipe refer to the sources in the order in which they are first named.

Tokenizers: `bytes`; `sentencepiece` and `tiktoken` read Llama-2's and Llama-3's tokenizer.model,
`huggingface` reads a tokenizer.json. Text that spells a special token is encoded as text. Bos and eos come
from the tokenizer file, or from --bos and --eos; the recipe decides whether documents get them.

The prepared file contains tokens, digests of documents and a manifest, and appears only when it is complete.
Until then work is kept in FILE.partial: after Ctrl-C, a kill or a power cut the same command continues from
the last saved point (one every 64 MiB of text), and the result has the same bytes for any --workers. Locks
are bound to one digest of tokens, documents and tokenizer; names of files and sources do not affect it.
Every read is checked against the file's digests, so a run never trains on tokens other than those that were
bound."
)]
pub struct PrepareArgs {
    /// Files or folders, or `-` for standard input; NAME=FILE names their source
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The prepared file to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The tokenizer
    #[arg(long, value_enum, value_name = "KIND", default_value_t)]
    pub tokenizer: TokenizerArg,
    /// The tokenizer's file; not for bytes
    #[arg(long, value_name = "FILE")]
    pub tokenizer_file: Option<PathBuf>,
    /// The token before a document [default: as the tokenizer's file says]
    #[arg(long, value_name = "TOKEN")]
    pub bos: Option<String>,
    /// The token after a document [default: as the tokenizer's file says]
    #[arg(long, value_name = "TOKEN")]
    pub eos: Option<String>,
    /// The field or column with the document [default: text, else content]
    #[arg(long, value_name = "NAME")]
    pub field: Option<String>,
    /// Treat each line of plain text as a document, instead of each file
    #[arg(long)]
    pub lines: bool,
    /// Treat each paragraph of plain text as a document: lines up to the next blank line
    #[arg(long, conflicts_with = "lines")]
    pub paragraphs: bool,
    /// Number of tokenizer threads [default: one per core]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::within::<u16>(1, 1024))]
    pub workers: Option<u16>,
    /// How to treat lines without a document: skip and list them, or fail
    #[arg(long, value_enum, value_name = "POLICY", default_value_t)]
    pub malformed: Malformed,
    /// Bytes of text between two points from which preparation can continue
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, hide = true)]
    pub checkpoint: u64,
    /// Abort at this point, for tests
    #[arg(long, value_name = "POINT", hide = true)]
    pub fault: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TokenizerArg {
    /// Bytes of UTF-8, with 256 and 257 before and after a document
    #[default]
    Bytes,
    /// A SentencePiece BPE model, such as Llama-2's tokenizer.model
    Sentencepiece,
    /// Base64 tokens and ranks, such as Llama-3's tokenizer.model
    Tiktoken,
    /// A tokenizer.json of Hugging Face
    Huggingface,
}

impl From<TokenizerArg> for Kind {
    fn from(typed: TokenizerArg) -> Kind {
        match typed {
            TokenizerArg::Bytes => Kind::Bytes,
            TokenizerArg::Sentencepiece => Kind::File(TokenizerKind::SentencePiece),
            TokenizerArg::Tiktoken => Kind::File(TokenizerKind::Tiktoken),
            TokenizerArg::Huggingface => Kind::File(TokenizerKind::HuggingFace),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Malformed {
    #[default]
    Refuse,
    Skip,
}

/// Show the contents of a prepared file, and how often a lock's run reads each source
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data about data/mix.index
  canonc data about data/mix.index --lock lockfiles/mix.lock
  canonc data about --lock lockfiles/mix.lock
  canonc data about data/mix.index --check

Schema of --json, one object on standard output:
  schema      \"canonc.data.about.v1\"
  identity    the digest of tokens, documents and tokenizer, which locks bind
  documents   the digest of the documents alone
  tokenizer   {kind, digest, vocab, bos, eos}
  sources     each {name, documents, tokens}, tokens without bos and eos
  reads       with --lock, each {source, documents, tokens, share, token_share, epochs} of the training split,
              with shares of the documents and of the tokens that are read; else null
  run         with --lock, {shuffle, documents, tokens, windows, tokens_read, passes, held_out: {documents,
              tokens, windows}}, held_out null if nothing is evaluated; else null")]
pub struct AboutArgs {
    /// A file written by `canonc data prepare` [default: with --lock, data/NAME.index of its data.source]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// An experiment's lock, bound or not
    #[arg(long, value_name = "LOCK")]
    pub lock: Option<PathBuf>,
    /// Check every byte against its digest and every token against the vocabulary; with the tokenizer `bytes`, also
    /// every document
    #[arg(long)]
    pub check: bool,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}
