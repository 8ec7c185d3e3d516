//! The text section of a lock: the options of its windows, and whether documents use its tokenizer.
//!
//! Every value comes from the lock. Documents of another tokenizer are never read as if they were of this one.

use lab::experiment::{DataSource, Tokenizer};

use super::tokenizer::{Info, Kind};
use super::{HeldOut, Marks, Options};
use crate::Split;

/// The window options for a text source; `None` for a task.
pub fn options(source: &DataSource, seq_len: usize, split: Split, seed: u64) -> Option<Options> {
    match source {
        DataSource::Task { .. } => None,
        DataSource::Text {
            name: _,
            digest: _,
            tokenizer: _,
            add_bos,
            add_eos,
            held_out_per_million,
            held_out_seed,
            weights,
            shuffle,
        } => Some(Options {
            seq_len,
            seed,
            split,
            held_out: HeldOut { seed: *held_out_seed, per_million: *held_out_per_million },
            marks: Marks { bos: *add_bos, eos: *add_eos },
            weights: weights.clone(),
            shuffle: *shuffle,
        }),
    }
}

/// The tokens around a text, as a model saw them in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    /// Before each text.
    pub before: Option<u32>,
    /// After a text that has ended.
    pub after: Option<u32>,
    /// Before a text without context, which needs a token to predict it from.
    pub first: Option<u32>,
}

/// The tokens around a text of a source, or of a tokenizer alone.
pub fn around(source: Option<&DataSource>, tokenizer: &Info) -> Around {
    let Info { bos, eos, .. } = *tokenizer;
    let (before, after) = match source {
        None => (bos, eos),
        Some(DataSource::Task { task, .. }) => (task.separator(), task.separator()),
        Some(DataSource::Text { add_bos, add_eos, .. }) => {
            (bos.filter(|_| *add_bos), eos.filter(|_| *add_eos))
        }
    };
    Around { before, after, first: before.or(bos).or(eos) }
}

/// A message about how the tokenizer of a lock and that of documents differ; `None` if they are equal.
pub fn mismatch(lock: &Tokenizer, documents: &Info) -> Option<String> {
    let Info { kind: has_kind, digest: has_digest, vocab: has_vocab, bos: _, eos: _ } = documents;
    let differ = |field: &str, lock: &dyn std::fmt::Display, has: &dyn std::fmt::Display| {
        Some(format!(
            "the lock's data.{field} is {lock}, but the documents were prepared with {has}"
        ))
    };
    let kind = Kind::from(lock);
    match lock {
        _ if kind != *has_kind => differ("tokenizer", &kind, has_kind),
        Tokenizer::Bytes => None,
        Tokenizer::File { vocab, .. } if *vocab != u64::from(*has_vocab) => {
            differ("tokenizer_vocab", vocab, has_vocab)
        }
        Tokenizer::File { digest: Some(digest), .. }
            if digest.to_string() != has_digest.to_hex().as_str() =>
        {
            let has = has_digest.to_hex();
            differ("tokenizer_digest", &digest.short(), &has.get(..12).unwrap_or_default())
        }
        Tokenizer::File { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::TokenizerKind;
    use super::*;
    use compiler::digest::Digest;

    #[test]
    fn each_mismatch_names_both_values() {
        let digest = blake3::hash(b"a");
        let has = Info {
            kind: Kind::File(TokenizerKind::Tiktoken),
            digest,
            vocab: 300,
            bos: None,
            eos: None,
        };
        let lock = |kind, digest: Option<&str>, vocab| Tokenizer::File {
            kind,
            digest: digest.and_then(Digest::parse),
            vocab,
        };
        let hex = digest.to_hex();
        let other = blake3::hash(b"b").to_hex();
        assert_eq!(mismatch(&Tokenizer::Bytes, &Info::bytes()), None);
        assert_eq!(mismatch(&lock(TokenizerKind::Tiktoken, None, 300), &has), None);
        assert_eq!(mismatch(&lock(TokenizerKind::Tiktoken, Some(hex.as_str()), 300), &has), None);
        let message = |lock, has: &Info| mismatch(&lock, has).unwrap();
        assert!(
            message(Tokenizer::Bytes, &has)
                .contains("is bytes, but the documents were prepared with tiktoken")
        );
        assert!(
            message(lock(TokenizerKind::HuggingFace, None, 300), &has)
                .contains("is huggingface, but")
        );
        assert!(
            message(lock(TokenizerKind::Tiktoken, None, 300), &Info::bytes())
                .ends_with("with bytes")
        );
        assert!(message(lock(TokenizerKind::Tiktoken, None, 301), &has).contains("is 301, but"));
        let text = message(lock(TokenizerKind::Tiktoken, Some(other.as_str()), 300), &has);
        assert!(
            text.contains(&other.as_str()[..12]) && text.ends_with(&hex.as_str()[..12]),
            "{text}"
        );
    }
}
