//! Tokenizers in tiktoken's rank files (base64 token, space, rank on each line), read like Llama-3's and Lingua's
//! reader: the ranks, then 256 special tokens; the published pattern; pieces of 400,000 characters, each encoded alone.
//!
//! Every byte is a token, so any text has tokens. Ranks are 0 to n − 1, each once.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tiktoken_rs::CoreBPE;

use super::{Engine, MarkNames, ParsedTokenizer, mark};

/// Llama-3's pattern, the same as cl100k's.
const PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Number of special tokens after the ranks.
const SPECIAL: u32 = 256;

/// Maximum characters encoded at once, as in the published readers.
const CHARACTERS: usize = 400_000;

pub(super) struct Tiktoken {
    bpe: CoreBPE,
}

impl std::fmt::Debug for Tiktoken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tiktoken").finish_non_exhaustive()
    }
}

pub(super) fn read(file: &[u8], marks: &MarkNames) -> Result<ParsedTokenizer, String> {
    let text = std::str::from_utf8(file).map_err(|_| "it is not text".to_owned())?;
    let mut ranks: Vec<(Vec<u8>, u32)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() {
            continue;
        }
        let wrong = |problem: &str| format!("line {} {problem}", number + 1);
        let (token, rank) = line
            .split_once(' ')
            .ok_or_else(|| wrong("is not a base64 token, a space and a rank"))?;
        let token = STANDARD.decode(token).map_err(|_| wrong("does not begin with base64"))?;
        let rank: u32 = rank.parse().map_err(|_| wrong("does not end with a rank"))?;
        if token.is_empty() {
            return Err(wrong("has an empty token"));
        }
        ranks.push((token, rank));
    }
    let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
    let numbers: BTreeSet<u32> = ranks.iter().map(|(_, rank)| *rank).collect();
    let tokens: BTreeSet<&[u8]> = ranks.iter().map(|(token, _)| token.as_slice()).collect();
    if numbers.len() != ranks.len() || tokens.len() != ranks.len() {
        return Err("a token or a rank occurs twice".to_owned());
    }
    if let Some(last) = numbers.last().filter(|last| **last >= count) {
        return Err(format!("it has {count} tokens, but rank {last}"));
    }
    if let Some(byte) = (0..=u8::MAX).find(|byte| !tokens.contains([*byte].as_slice())) {
        return Err(format!("byte 0x{byte:02x} is not one of its {count} tokens"));
    }
    let special = |name: &str| match name {
        "<|begin_of_text|>" => Some(count),
        "<|end_of_text|>" => Some(count + 1),
        _ => None,
    };
    let bos = mark(marks.bos.as_ref(), Some(count), special)?;
    let eos = mark(marks.eos.as_ref(), Some(count + 1), special)?;
    // Text is encoded as ordinary, so the special tokens' names are never looked for.
    let names =
        [("<|begin_of_text|>".to_owned(), count), ("<|end_of_text|>".to_owned(), count + 1)];
    let bpe = CoreBPE::new(ranks.into_iter().collect(), names.into_iter().collect(), PATTERN)
        .map_err(|error| error.to_string())?;
    Ok(ParsedTokenizer {
        engine: Engine::Tiktoken(Tiktoken { bpe }),
        vocab: count as usize + SPECIAL as usize,
        text_vocab: count as usize,
        bos,
        eos,
        note: None,
    })
}

impl Tiktoken {
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.char_indices().nth(CHARACTERS).map_or(rest.len(), |(at, _)| at);
            let (piece, after) = rest.split_at(end);
            out.extend(self.bpe.encode_ordinary(piece));
            rest = after;
        }
        Ok(())
    }

    pub(super) fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        self.bpe.decode_bytes(ids).map_err(|error| error.to_string())
    }
}
