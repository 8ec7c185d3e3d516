//! In: a `tokenizer.json`. Out: tokens as Hugging Face's own library makes them, without those its post-processor adds.
//! Must stay true: a text has one list of tokens, so a model that drops merges at random is refused; truncation and
//! padding in the file are refused, since they would silently change a document; marks are the tokens that its
//! post-processor puts around a text, or the requested ones.

use tokenizers::ModelWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::tokenizer::Tokenizer;

use super::super::losses::Losses;
use super::{Engine, Found, MarkNames, mark};

#[derive(Debug)]
pub(super) struct Huggingface {
    tokenizer: Box<Tokenizer>,
    /// The token for unknown text.
    unknown: Option<u32>,
    /// Whether the model drops unknown text.
    drops: bool,
}

pub(super) fn read(file: &[u8], marks: &MarkNames) -> Result<Found, String> {
    super::expansion::check(file)?;
    let mut tokenizer = Tokenizer::from_bytes(file).map_err(|error| error.to_string())?;
    if tokenizer.get_truncation().is_some() || tokenizer.get_padding().is_some() {
        return Err("it truncates or pads texts: `truncation` or `padding` is set".to_owned());
    }
    if let ModelWrapper::BPE(model) = tokenizer.get_model()
        && let Some(share) = model.dropout.filter(|share| *share != 0.0)
    {
        return Err(format!(
            "it tokenizes a text differently each time: `model.dropout` is {share}; set it to null"
        ));
    }
    tokenizer.set_encode_special_tokens(true);
    // Ids may have gaps, so `vocab` is one more than the highest id.
    let vocab = tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1);
    if vocab == 0 {
        return Err("it has no tokens".to_owned());
    }
    let (before, after) = around(&tokenizer)?;
    let special = |name: &str| tokenizer.token_to_id(name);
    let bos = mark(marks.bos.as_ref(), before, special)?;
    let eos = mark(marks.eos.as_ref(), after, special)?;
    let unknown = unknown(&tokenizer);
    let drops = drops(&tokenizer);
    let engine =
        Engine::Huggingface(Huggingface { tokenizer: Box::new(tokenizer), unknown, drops });
    Ok(Found { engine, vocab, bos, eos })
}

/// The model's token for unknown text.
fn unknown(tokenizer: &Tokenizer) -> Option<u32> {
    let name = match tokenizer.get_model() {
        ModelWrapper::BPE(model) => model.unk_token.clone()?,
        ModelWrapper::WordPiece(model) => model.unk_token.clone(),
        ModelWrapper::WordLevel(model) => model.unk_token.clone(),
        // The library does not expose the unknown token of a Unigram model, so read it from the file.
        ModelWrapper::Unigram(model) => {
            let id = serde_json::to_value(model).ok()?.get("unk_id")?.as_u64()?;
            return u32::try_from(id).ok();
        }
    };
    tokenizer.token_to_id(&name)
}

/// Whether the model can drop a character: byte-pair encoding without an unknown token and without all byte tokens.
fn drops(tokenizer: &Tokenizer) -> bool {
    let ModelWrapper::BPE(model) = tokenizer.get_model() else { return false };
    let bytes = |text: String| {
        (0..=255u8)
            .all(|byte| tokenizer.token_to_id(&text.replace('#', &format!("{byte:02X}"))).is_some())
    };
    let falls_back = model.byte_fallback && bytes("<0x#>".to_owned());
    let by_bytes =
        ByteLevel::alphabet().iter().all(|c| tokenizer.token_to_id(&c.to_string()).is_some());
    model.unk_token.is_none() && !falls_back && !by_bytes
}

/// The tokens that the post-processor puts before and after a text: at most one each.
fn around(tokenizer: &Tokenizer) -> Result<(Option<u32>, Option<u32>), String> {
    let ids = |text: &str, special: bool| -> Result<Vec<u32>, String> {
        let encoded = tokenizer.encode_fast(text, special).map_err(|error| error.to_string())?;
        Ok(encoded.get_ids().to_vec())
    };
    let (plain, marked) = (ids("a", false)?, ids("a", true)?);
    let added = marked.len().saturating_sub(plain.len());
    for before in 0..=added {
        if marked.get(before..before + plain.len()) == Some(plain.as_slice()) {
            let after = marked.get(before + plain.len()..).unwrap_or_default();
            let one = |ids: &[u32]| match ids {
                [] => Ok(None),
                [id] => Ok(Some(*id)),
                several => {
                    Err(format!("its post-processor inserts {} tokens in one place", several.len()))
                }
            };
            return Ok((one(marked.get(..before).unwrap_or_default())?, one(after)?));
        }
    }
    Err("its post-processor changes the tokens of a text".to_owned())
}

impl Huggingface {
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        let encoded = self.tokenizer.encode_fast(text, false).map_err(|error| error.to_string())?;
        out.extend_from_slice(encoded.get_ids());
        Ok(())
    }

    pub(super) fn unknown(&self) -> Option<u32> {
        self.unknown
    }

    /// Characters that no token covers, except white space.
    pub(super) fn dropped(&self, text: &str) -> Result<Losses, String> {
        if !self.drops {
            return Ok(Losses::default());
        }
        let encoded = self.tokenizer.encode(text, false).map_err(|error| error.to_string())?;
        let mut covered = vec![false; text.len()];
        for (start, end) in encoded.get_offsets() {
            covered.get_mut(*start..*end).into_iter().flatten().for_each(|byte| *byte = true);
        }
        let mut losses = Losses::default();
        for (at, _) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
            losses.characters += 1;
            losses.dropped += u64::from(covered.get(at) != Some(&true));
        }
        Ok(losses)
    }

    pub(super) fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        if self.tokenizer.get_decoder().is_some() {
            let text = self.tokenizer.decode(ids, false).map_err(|error| error.to_string())?;
            return Ok(text.into_bytes());
        }
        // A file without a decoder is read like SentencePiece's: escaped blanks, and bytes by their names.
        let mut bytes = Vec::new();
        for token in ids.iter().filter_map(|id| self.tokenizer.id_to_token(*id)) {
            let byte = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
            match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend(token.replace('\u{2581}', " ").into_bytes()),
            }
        }
        Ok(bytes)
    }
}
