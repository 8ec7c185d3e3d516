//! Arguments of `canonc data prepare` and `canonc data about`.
//!
//! In: argv, as clap reads it. Out: plain values. Must stay true: as in `args`; an option that changes a byte of the
//! prepared file is covered by the digest of the tokenizer or of the documents.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Make tokens of documents, once: what `canonc bind` and `canonc run --data` take
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

`--help` says what files may hold and what interrupting it does.",
    after_long_help = "\
Examples:
  canonc data prepare shards/*.jsonl --out data/c4.index
  canonc data prepare web=web/ code=code.jsonl.zst books=books.parquet --out data/mix.index
  canonc data prepare gutenberg/ --out data/books.index        a folder of .txt files
  canonc data prepare fineweb_edu_shuffled/ --tokenizer tiktoken --tokenizer-file tokenizer.model \\
      --workers 16 --out data/fineweb.index
  zcat c4.jsonl.gz | canonc data prepare - --out data/c4.index

Files: JSON lines, also as .jsonl.zst and .jsonl.gz, and .parquet. A document is the string under `text`
or, without that, under `content`, or under --field. Plain text (.txt, .text, or a file named by
itself that does not begin with `{`) is a document a file, or with --lines one a line; what was assumed is
said. A folder stands for all such files below it, sorted, plain text only where nothing else is there;
one that holds Lingua's chunks (NAME.chunk.N.jsonl) for its chunks, by number. What is left aside in a
folder is named. A recipe's weights are of the sources in the order they are first named.

Tokenizers: `bytes`; `sentencepiece` and `tiktoken` read Llama-2's and Llama-3's tokenizer.model,
`huggingface` a tokenizer.json. Text that spells a special token is text. Bos and eos are those of the
file, unless --bos and --eos name others; whether documents get them, the recipe says.

The prepared file holds tokens, documents' digests and a manifest, and is there whole or not at all. Until
then work lies in FILE.partial: after Ctrl-C, a kill or a power cut the same command goes on from the
last of the points there, 64 MiB of text apart, and ends with the same bytes, whatever --workers is. Locks
are bound to one digest of tokens, documents and tokenizer; names of files and sources are no part of it.
Every read of the file is checked against the digests that it is made of, so other tokens than those that
were bound are never trained on."
)]
pub struct PrepareArgs {
    /// Files or folders, `-` for standard input; NAME=FILE says which source they are of
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Where the prepared file goes
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// What makes tokens of text
    #[arg(long, value_enum, value_name = "KIND", default_value_t)]
    pub tokenizer: TokenizerArg,
    /// Its file, for every kind but bytes
    #[arg(long, value_name = "FILE")]
    pub tokenizer_file: Option<PathBuf>,
    /// The token before a document [default: as the tokenizer's file says]
    #[arg(long, value_name = "TOKEN")]
    pub bos: Option<String>,
    /// The token after a document [default: as the tokenizer's file says]
    #[arg(long, value_name = "TOKEN")]
    pub eos: Option<String>,
    /// The field or column that is the document [default: text, else content]
    #[arg(long, value_name = "NAME")]
    pub field: Option<String>,
    /// Take each line of plain text as a document, not each file
    #[arg(long)]
    pub lines: bool,
    /// Threads that make tokens [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// What becomes of lines that hold no document: left out and named, or an error
    #[arg(long, value_enum, value_name = "POLICY", default_value_t)]
    pub malformed: Malformed,
    /// Bytes of text between two points from which it can go on
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, hide = true)]
    pub checkpoint: u64,
    /// Where the process aborts, for tests
    #[arg(long, value_name = "POINT", hide = true)]
    pub fault: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TokenizerArg {
    /// UTF-8, 256 and 257 before and after a document
    #[default]
    Bytes,
    /// A SentencePiece BPE model, as Llama-2's tokenizer.model
    Sentencepiece,
    /// Base64 tokens and ranks, as Llama-3's tokenizer.model
    Tiktoken,
    /// A tokenizer.json
    Huggingface,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Malformed {
    #[default]
    Refuse,
    Skip,
}

/// Show what a prepared file holds, and how often a lock's run reads each source
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
  sources     each {name, documents, tokens}, tokens without marks
  reads       with --lock, each {source, documents, tokens, share, token_share, epochs} of the training split,
              shares of the documents and of the tokens that are read; else null
  run         with --lock, {shuffle, documents, tokens, windows, tokens_read, passes, held_out: {documents,
              tokens, windows}}, held_out null where nothing is measured; else null")]
pub struct AboutArgs {
    /// What `canonc data prepare` wrote [default: with --lock, data/NAME.index of its data.source]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// An experiment's lock, bound or not
    #[arg(long, value_name = "LOCK")]
    pub lock: Option<PathBuf>,
    /// Check every byte against its digest and every token against the vocabulary, and with the tokenizer `bytes`
    /// every document as well
    #[arg(long)]
    pub check: bool,
    /// As JSON on standard output (`--help` states the schema)
    #[arg(long)]
    pub json: bool,
}

/// Prepare and stream a corpus made for it, beside a plain Python reader
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data bench
  canonc data bench --bytes 100000000 --tokenizer huggingface --tokenizer-file tokenizer.json

Writes about 2.5 times --bytes under --dir and takes it away again. The plain reader is a few lines of our own
Python: json, the same documents as bytes, one process.")]
pub struct BenchTextArgs {
    /// Bytes of the corpus, as JSON lines
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u64).range(100_000..=1 << 50))]
    pub bytes: u64,
    /// Where it is made [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// What makes tokens of text
    #[arg(long, value_enum, value_name = "KIND", default_value_t)]
    pub tokenizer: TokenizerArg,
    /// Its file, for every kind but bytes
    #[arg(long, value_name = "FILE")]
    pub tokenizer_file: Option<PathBuf>,
    /// Threads that make tokens [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}
