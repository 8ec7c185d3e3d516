//! Tokenizers: bytes, or a trained one that is read from a file.
//!
//! Ids are those of the published library for the same file (golden vectors check this). Text that spells a special
//! token is text. A file that does not hold a tokenizer is refused with a message, whatever it contains. Every returned
//! id is below `vocab`.

mod expansion;
mod huggingface;
mod sentencepiece;
mod tiktoken;

use std::fmt;
use std::sync::Arc;

use dsl::Problem;

pub use lab::experiment::TokenizerKind;

use super::guard::guarded;
use super::losses::Losses;
use super::{BOS, EOS, VOCAB};

/// The kinds of tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Each byte is its own token; no file.
    Bytes,
    /// A trained tokenizer, in a file of this format.
    File(TokenizerKind),
}

impl From<&lab::experiment::Tokenizer> for Kind {
    fn from(locked: &lab::experiment::Tokenizer) -> Kind {
        match locked {
            lab::experiment::Tokenizer::Bytes => Kind::Bytes,
            lab::experiment::Tokenizer::File { kind, .. } => Kind::File(*kind),
        }
    }
}

impl Kind {
    /// The name that recipes use.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bytes => "bytes",
            Kind::File(kind) => kind.name(),
        }
    }

    /// The kind with this name.
    pub fn parse(name: &str) -> Option<Kind> {
        match TokenizerKind::named(name) {
            Some(kind) => Some(Kind::File(kind)),
            None => (name == Kind::Bytes.name()).then_some(Kind::Bytes),
        }
    }

    /// A version to change when the meaning of a kind changes. A correction towards the published library's ids is
    /// none: prepared files are identified by their tokens.
    fn rules(self) -> u32 {
        match self {
            Kind::Bytes
            | Kind::File(
                TokenizerKind::HuggingFace | TokenizerKind::SentencePiece | TokenizerKind::Tiktoken,
            ) => 1,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The facts about a tokenizer in a lock and in a prepared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its kind.
    pub kind: Kind,
    /// Digest of the file's bytes and everything else that decides an id.
    pub digest: blake3::Hash,
    /// Number of token ids, including special ones.
    pub vocab: u32,
    /// The token before a document.
    pub bos: Option<u32>,
    /// The token after a document.
    pub eos: Option<u32>,
}

impl Info {
    /// The tokenizer that needs no file.
    pub fn bytes() -> Info {
        Info::new(Kind::Bytes, &[], VOCAB, Some(BOS), Some(EOS))
    }

    fn new(kind: Kind, file: &[u8], vocab: u32, bos: Option<u32>, eos: Option<u32>) -> Info {
        let id = |id: Option<u32>| id.map_or("none".to_owned(), |id| id.to_string());
        let text = format!(
            "kind {kind}\nrules {}\nfile {}\nvocab {vocab}\nbos {}\neos {}\n",
            kind.rules(),
            blake3::hash(file),
            id(bos),
            id(eos)
        );
        let digest =
            blake3::Hasher::new_derive_key("canonc 1 tokenizer").update(text.as_bytes()).finalize();
        Info { kind, digest, vocab, bos, eos }
    }
}

/// Names of the mark tokens, if the file does not decide them or the user wants others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkNames {
    /// The token before a document.
    pub bos: Option<String>,
    /// The token after a document.
    pub eos: Option<String>,
}

/// Turns text into tokens. A clone shares the file's contents.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    info: Info,
    engine: Arc<Engine>,
    text_vocab: u32,
    note: Option<String>,
}

#[derive(Debug)]
enum Engine {
    Bytes,
    Huggingface(huggingface::Huggingface),
    Sentencepiece(Box<sentencepiece::Sentencepiece>),
    Tiktoken(tiktoken::Tiktoken),
}

/// The contents of a tokenizer file, as read by its kind.
struct ParsedTokenizer {
    engine: Engine,
    vocab: usize,
    /// One more than the highest id that a text can become.
    text_vocab: usize,
    bos: Option<u32>,
    eos: Option<u32>,
    note: Option<String>,
}

/// Maximum size of a tokenizer's file. The largest published ones have 30 MB.
pub const MOST_BYTES: u64 = 256 << 20;

impl Tokenizer {
    /// The tokenizer that needs no file.
    pub fn bytes() -> Tokenizer {
        Tokenizer {
            info: Info::bytes(),
            engine: Arc::new(Engine::Bytes),
            text_vocab: VOCAB,
            note: None,
        }
    }

    /// Reads a tokenizer's file. Messages call it `name`.
    pub fn read(
        kind: Kind,
        file: &[u8],
        name: &str,
        marks: &MarkNames,
    ) -> Result<Tokenizer, Problem> {
        let read = match kind {
            Kind::Bytes => {
                return Err(Problem::input(
                    format!("the bytes tokenizer has no file, but `{name}` is given"),
                    "remove it, or name its kind",
                ));
            }
            Kind::File(TokenizerKind::HuggingFace) => guarded(|| huggingface::read(file, marks)),
            Kind::File(TokenizerKind::SentencePiece) => {
                guarded(|| sentencepiece::read(file, marks))
            }
            Kind::File(TokenizerKind::Tiktoken) => guarded(|| tiktoken::read(file, marks)),
        };
        let what = match kind {
            Kind::Bytes | Kind::File(TokenizerKind::HuggingFace) => {
                "a tokenizer.json of Hugging Face's tokenizers"
            }
            Kind::File(TokenizerKind::SentencePiece) => {
                "a SentencePiece model, as Llama-2's tokenizer.model"
            }
            Kind::File(TokenizerKind::Tiktoken) => {
                "a list of base64 tokens and ranks, as Llama-3's tokenizer.model"
            }
        };
        let ParsedTokenizer { engine, vocab, text_vocab, bos, eos, note } =
            read.flatten().map_err(|reason| {
                Problem::input(
                    format!("`{name}` cannot be used as a {kind} tokenizer: {reason}"),
                    format!("name {what}"),
                )
            })?;
        let vocab = u32::try_from(vocab).ok().filter(|vocab| *vocab <= 1 << 24);
        let vocab = vocab.ok_or_else(|| {
            Problem::input(
                format!("`{name}` has more than {} token ids", 1 << 24),
                format!("name {what}"),
            )
        })?;
        // Check this first: a post-processor may name an id without a token.
        for (id, side) in [(bos, "before"), (eos, "after")] {
            if let Some(id) = id.filter(|id| *id >= vocab) {
                return Err(Problem::input(
                    format!(
                        "`{name}` puts token {id} {side} a document, but its ids end at {}",
                        vocab.saturating_sub(1)
                    ),
                    "correct its post-processor, or name another token with --bos or --eos",
                ));
            }
        }
        let info = Info::new(kind, file, vocab, bos, eos);
        let text_vocab = u32::try_from(text_vocab).unwrap_or(vocab);
        let note = note.map(|note| format!("`{name}`: {note}"));
        Ok(Tokenizer { info, engine: Arc::new(engine), text_vocab, note })
    }

    /// One more than the highest token id that a text can become. Special tokens that were added at the end of the
    /// vocabulary, such as one for padding, are not counted.
    pub fn text_vocab(&self) -> u32 {
        self.text_vocab
    }

    /// What a user should know about the file: a part of it that is not used.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// A tokenizer for texts that spell special tokens, as a chat template writes them. `None` for tokenizers whose
    /// special tokens no text spells.
    pub fn with_special_tokens(&self) -> Option<SpecialTokens> {
        match &*self.engine {
            Engine::Huggingface(engine) => Some(SpecialTokens::new(engine.with_special_tokens())),
            Engine::Bytes | Engine::Sentencepiece(_) | Engine::Tiktoken(_) => None,
        }
    }

    /// Its kind, digest, vocabulary and marks.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Appends the tokens of a document, without marks.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        let before = out.len();
        guarded(|| match &*self.engine {
            Engine::Bytes => {
                out.extend(text.bytes().map(u32::from));
                Ok(())
            }
            Engine::Huggingface(engine) => engine.encode(text, out),
            Engine::Sentencepiece(engine) => {
                engine.encode(text, out);
                Ok(())
            }
            Engine::Tiktoken(engine) => engine.encode(text, out),
        })
        .flatten()?;
        let vocab = self.info.vocab;
        match out.iter().skip(before).find(|id| **id >= vocab) {
            None => Ok(()),
            Some(id) => Err(format!("the tokenizer returned token {id}, but has only {vocab}")),
        }
    }
}

impl Tokenizer {
    /// The losses of a text with these tokens.
    pub fn losses(&self, text: &str, ids: &[u32]) -> Result<Losses, String> {
        let count = |unknown: Option<u32>| match unknown {
            Some(unknown) => ids.iter().filter(|id| **id == unknown).count() as u64,
            None => 0,
        };
        guarded(|| match &*self.engine {
            Engine::Bytes | Engine::Tiktoken(_) => Ok(Losses::default()),
            Engine::Sentencepiece(engine) => {
                Ok(Losses { unknown: count(engine.unknown()), ..Losses::default() })
            }
            Engine::Huggingface(engine) => {
                let dropped = engine.dropped(text)?;
                Ok(Losses { unknown: count(engine.unknown()), ..dropped })
            }
        })
        .flatten()
    }

    /// The bytes that tokens add to those of a prompt. A token's bytes may depend on earlier tokens.
    pub fn continuation(&self, prompt: &[u32], tokens: &[u32]) -> Result<Vec<u8>, String> {
        let all = self.decode(&[prompt, tokens].concat())?;
        match all.strip_prefix(&self.decode(prompt)?[..]) {
            Some(rest) => Ok(rest.to_vec()),
            None => self.decode(tokens),
        }
    }

    /// The bytes of the tokens. If the tokenizer normalizes text first, they may differ from the original text.
    pub fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        guarded(|| match &*self.engine {
            Engine::Bytes => Ok(ids.iter().filter_map(|id| u8::try_from(*id).ok()).collect()),
            Engine::Huggingface(engine) => engine.decode(ids),
            Engine::Sentencepiece(engine) => engine.decode(ids),
            Engine::Tiktoken(engine) => engine.decode(ids),
        })
        .flatten()
    }
}

/// A tokenizer that reads the text of a special token as that token.
#[derive(Debug)]
pub struct SpecialTokens {
    tokenizer: tokenizers::Tokenizer,
    /// Special tokens that are looked for in the normalized text, where another text may spell them.
    normalized: Vec<u32>,
}

impl SpecialTokens {
    fn new(tokenizer: tokenizers::Tokenizer) -> SpecialTokens {
        let added = tokenizer.get_added_tokens_decoder();
        let normalized = added.iter().filter(|(_, token)| token.special && token.normalized);
        let normalized = match tokenizer.get_normalizer() {
            Some(_) => normalized.map(|(id, _)| *id).collect(),
            None => Vec::new(),
        };
        SpecialTokens { tokenizer, normalized }
    }

    /// The tokens of a text, without those that the post-processor adds.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoded = guarded(|| self.tokenizer.encode_fast(text, false))?;
        Ok(encoded.map_err(|error| error.to_string())?.get_ids().to_vec())
    }

    /// A special token that the normalizer makes of a text, such as `<s>` of `<S>`.
    pub fn normalized(&self, text: &str) -> Option<u32> {
        if self.normalized.is_empty() {
            return None;
        }
        self.encode(text).ok()?.into_iter().find(|id| self.normalized.contains(id))
    }
}

/// The byte that a token names: `<0xE2>`.
fn named_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// The token for a mark: the requested one, or else the one that the file decides.
fn mark(
    asked: Option<&String>,
    usual: Option<u32>,
    id_of: impl Fn(&str) -> Option<u32>,
) -> Result<Option<u32>, String> {
    match asked {
        None => Ok(usual),
        Some(name) => {
            id_of(name).map(Some).ok_or_else(|| format!("it has no special token `{name}`"))
        }
    }
}

#[cfg(test)]
mod tests;
