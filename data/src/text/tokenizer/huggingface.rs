//! Tokens of a `tokenizer.json`, as Hugging Face's own library makes them, without those that its post-processor adds.

use std::collections::BTreeMap;

use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::tokenizer::{Decoder, NormalizedString, Normalizer, Tokenizer};
use tokenizers::{DecoderWrapper, ModelWrapper};

use super::super::losses::Losses;
use super::{Engine, MarkNames, ParsedTokenizer, mark, named_byte};

#[derive(Debug)]
pub(super) struct Huggingface {
    /// It reads the text of a special token as text.
    tokenizer: Box<Tokenizer>,
    spelling: Spelling,
    /// The token for unknown text.
    unknown: Option<u32>,
    /// Whether the model drops unknown text.
    drops: bool,
}

/// How tokens spell bytes, so that a part of a character keeps them: the library's decoder would make it `�`.
#[derive(Debug)]
enum Spelling {
    /// A character for each byte, as GPT-2's.
    Characters(BTreeMap<char, u8>),
    /// `<0xE2>`, as Llama-2's.
    Names,
    Unknown,
}

pub(super) fn read(file: &[u8], marks: &MarkNames) -> Result<ParsedTokenizer, String> {
    super::expansion::check(file)?;
    let mut tokenizer = Tokenizer::from_bytes(file).map_err(|error| error.to_string())?;
    // As in transformers, a text is cut or filled only where a call asks for it.
    let mut note = None;
    if tokenizer.get_truncation().is_some() || tokenizer.get_padding().is_some() {
        tokenizer.with_padding(None).with_truncation(None).map_err(|error| error.to_string())?;
        note = Some(
            "its `truncation` and `padding` are not used: texts keep all their tokens".to_owned(),
        );
    }
    if let ModelWrapper::BPE(model) = tokenizer.get_model()
        && let Some(share) = model.dropout.filter(|share| *share != 0.0)
    {
        return Err(format!(
            "it tokenizes a text differently each time: `model.dropout` is {share}; set it to null"
        ));
    }
    refuse_equal_added_tokens(&tokenizer)?;
    tokenizer.set_encode_special_tokens(true);
    // Ids may have gaps, so `vocab` is one more than the highest id.
    let after = |id: Option<u32>| id.map_or(0, |id| id as usize + 1);
    let ids: Vec<u32> = tokenizer.get_vocab(true).into_values().collect();
    let vocab = after(ids.iter().copied().max());
    if vocab == 0 {
        return Err("it has no tokens".to_owned());
    }
    let added = tokenizer.get_added_tokens_decoder();
    let in_text = ids.into_iter();
    let text_vocab =
        after(in_text.filter(|id| added.get(id).is_none_or(|token| !token.special)).max());
    let (before, after) = around(&tokenizer)?;
    let special = |name: &str| tokenizer.token_to_id(name);
    let bos = mark(marks.bos.as_ref(), before, special)?;
    let eos = mark(marks.eos.as_ref(), after, special)?;
    let unknown = unknown(&tokenizer);
    let drops = drops(&tokenizer);
    let spelling = Spelling::from_decoder(tokenizer.get_decoder());
    let engine = Huggingface { tokenizer: Box::new(tokenizer), spelling, unknown, drops };
    Ok(ParsedTokenizer { engine: Engine::Huggingface(engine), vocab, text_vocab, bos, eos, note })
}

/// Refuses two added tokens that the normalizer makes equal: the library takes either, differently each time.
fn refuse_equal_added_tokens(tokenizer: &Tokenizer) -> Result<(), String> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for token in tokenizer.get_added_tokens_decoder().into_values().filter(|token| token.normalized)
    {
        let mut text = NormalizedString::from(token.content.as_str());
        if let Some(normalizer) = tokenizer.get_normalizer() {
            normalizer.normalize(&mut text).map_err(|error| error.to_string())?;
        }
        if let Some(other) = texts.insert(text.get().to_owned(), token.content.clone()) {
            return Err(format!(
                "its normalizer makes the added tokens {other:?} and {:?} equal: it would take either",
                token.content
            ));
        }
    }
    Ok(())
}

impl Spelling {
    fn from_decoder(decoder: Option<&DecoderWrapper>) -> Spelling {
        let parts = match decoder {
            Some(DecoderWrapper::Sequence(sequence)) => sequence.get_decoders(),
            Some(one) => std::slice::from_ref(one),
            None => return Spelling::Names,
        };
        match parts {
            [DecoderWrapper::ByteLevel(_)] => Spelling::Characters(characters()),
            parts if parts.iter().any(|part| matches!(part, DecoderWrapper::ByteFallback(_))) => {
                Spelling::Names
            }
            _ => Spelling::Unknown,
        }
    }
}

/// The byte of each character of [`ByteLevel`]: printable ones stand for themselves, the others are moved up by 256.
fn characters() -> BTreeMap<char, u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let moved = (0..=u8::MAX).filter(|byte| !is_printable(byte)).zip('\u{100}'..);
    let same = (0..=u8::MAX).filter(is_printable).map(|byte| (byte, char::from(byte)));
    moved.chain(same).map(|(byte, character)| (character, byte)).collect()
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

    /// A tokenizer that reads the text of a special token as that token, as a chat template writes it.
    pub(super) fn with_special_tokens(&self) -> Tokenizer {
        let mut tokenizer = (*self.tokenizer).clone();
        tokenizer.set_encode_special_tokens(false);
        tokenizer
    }

    pub(super) fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        let tokens: Vec<String> =
            ids.iter().filter_map(|id| self.tokenizer.id_to_token(*id)).collect();
        let Some(decoder) = self.tokenizer.get_decoder() else {
            // A file without a decoder is read like SentencePiece's.
            let bytes = |token: String| match named_byte(&token) {
                Some(byte) => vec![byte],
                None => token.replace('\u{2581}', " ").into_bytes(),
            };
            return Ok(tokens.into_iter().flat_map(bytes).collect());
        };
        match &self.spelling {
            Spelling::Characters(characters) => {
                let bytes = |token: &String| -> Vec<u8> {
                    let bytes = token.chars().map(|character| characters.get(&character).copied());
                    bytes.collect::<Option<_>>().unwrap_or_else(|| token.as_bytes().to_vec())
                };
                Ok(tokens.iter().flat_map(bytes).collect())
            }
            // Bytes pass through the decoder as characters of a private plane.
            Spelling::Names if !tokens.iter().any(|token| token.contains(is_private)) => {
                let hidden = |token: String| match named_byte(&token) {
                    Some(byte) => String::from(private(byte)),
                    None => token,
                };
                let text = decoder
                    .decode(tokens.into_iter().map(hidden).collect())
                    .map_err(|error| error.to_string())?;
                let mut bytes = Vec::with_capacity(text.len());
                for character in text.chars() {
                    match u8::try_from(u32::from(character) ^ PRIVATE) {
                        Ok(byte) => bytes.push(byte),
                        Err(_) => bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
                Ok(bytes)
            }
            Spelling::Names | Spelling::Unknown => {
                let text = decoder.decode(tokens).map_err(|error| error.to_string())?;
                Ok(text.into_bytes())
            }
        }
    }
}

/// The first of 256 characters without a meaning.
const PRIVATE: u32 = 0xf_0000;

fn is_private(character: char) -> bool {
    u8::try_from(u32::from(character) ^ PRIVATE).is_ok()
}

fn private(byte: u8) -> char {
    char::from_u32(PRIVATE | u32::from(byte)).unwrap_or_default()
}
