//! In: a SentencePiece model of type BPE, such as Llama-2's `tokenizer.model`. Out: tokens as the SentencePiece library
//! makes them. The kitoken crate does the merging. Normalisation by the model's own table happens here, since
//! SentencePiece walks that table by longest match, not by grapheme. Must stay true: features that kitoken handles
//! differently from SentencePiece (unigram models, pieces with a blank inside, unused pieces) are refused.

use kitoken::Kitoken;
use sentencepiece_model::{ModelType, NormalizerSpec, SentencePieceModel, Type};

use super::{Engine, Found, MarkNames, mark};

/// The character for a blank in pieces.
const BLANK: char = '\u{2581}';

#[derive(Debug)]
pub(super) struct Sentencepiece {
    kitoken: Box<Kitoken>,
    normalizer: Normalizer,
    /// The unknown token, for models without byte pieces. A run of unknown characters becomes one of it.
    unknown: Option<u32>,
}

#[derive(Debug)]
struct Normalizer {
    map: Option<CharsMap>,
    /// Pieces that normalisation never changes, longest first.
    user_defined: Vec<String>,
    dummy_prefix: bool,
    remove_extra: bool,
}

pub(super) fn read(file: &[u8], marks: &MarkNames) -> Result<Found, String> {
    let model = SentencePieceModel::from_slice(file)
        .map_err(|_| "it is not in SentencePiece's format".to_owned())?;
    let trainer = model.trainer().ok_or("it does not say how it was trained")?;
    let kind = trainer.model_type();
    if kind != ModelType::Bpe {
        return Err(format!("its type is {kind:?}, but only BPE is supported"));
    }
    if trainer.treat_whitespace_as_suffix() {
        return Err("it puts spaces after words".to_owned());
    }
    let mut user_defined = Vec::new();
    let mut bytes = 0;
    let mut unknown = None;
    for (id, piece) in model.pieces().iter().enumerate() {
        let text = piece.piece();
        match piece.r#type() {
            Type::Byte => bytes += 1,
            Type::UserDefined => user_defined.push(text.to_owned()),
            Type::Unknown if unknown.is_none() => unknown = u32::try_from(id).ok(),
            Type::Unknown => return Err("it has two unknown tokens".to_owned()),
            Type::Unused => return Err(format!("its piece {id}, `{text}`, is marked unused")),
            Type::Control => {}
            Type::Normal if text.is_empty() => return Err(format!("its piece {id} is empty")),
            Type::Normal if text.trim_start_matches(BLANK).contains(BLANK) => {
                return Err(format!("its piece {id}, `{text}`, crosses word boundaries"));
            }
            Type::Normal => {}
        }
    }
    let unknown = unknown.ok_or("it has no unknown token")?;
    if trainer.byte_fallback() && bytes != 256 {
        return Err(format!("it falls back to bytes, but has {bytes} of 256"));
    }
    user_defined.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let spec = model.normalizer().ok_or("it does not say how text is normalised")?;
    let normalizer = Normalizer::from_spec(spec, user_defined)?;

    // The last value of a field counts, so this sets a normaliser that changes nothing.
    let plain = [file, b"\x1a\x0e\x0a\x08identity\x18\x00\x20\x00"].concat();
    let definition =
        kitoken::Definition::from_sentencepiece_slice(&plain).map_err(|error| error.to_string())?;
    let kitoken = Kitoken::from_definition(definition).map_err(|error| error.to_string())?;

    let count = model.pieces().len();
    let declared = |id: i32| {
        u32::try_from(id).ok().filter(|id| usize::try_from(*id).is_ok_and(|id| id < count))
    };
    let special = |name: &str| {
        let at = model.pieces().iter().position(|piece| piece.piece() == name)?;
        u32::try_from(at).ok()
    };
    let bos = mark(marks.bos.as_ref(), declared(trainer.bos_id()), special)?;
    let eos = mark(marks.eos.as_ref(), declared(trainer.eos_id()), special)?;
    let unknown = (!trainer.byte_fallback()).then_some(unknown);
    let engine = Sentencepiece { kitoken: Box::new(kitoken), normalizer, unknown };
    Ok(Found { engine: Engine::Sentencepiece(engine), vocab: count, bos, eos })
}

impl Sentencepiece {
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        let text = self.normalizer.normalize(text);
        if text.is_empty() {
            return Ok(());
        }
        let tokens = self
            .kitoken
            .encode(&text, &[kitoken::SpecialTokenKind::Priority][..])
            .map_err(|error| error.to_string())?;
        let Some(unknown) = self.unknown else {
            out.extend(tokens);
            return Ok(());
        };
        let mut before = None;
        for token in tokens {
            if token != unknown || before != Some(unknown) {
                out.push(token);
            }
            before = Some(token);
        }
        Ok(())
    }

    pub(super) fn unknown(&self) -> Option<u32> {
        self.unknown
    }

    /// Turns escaped blanks into blanks. Keeps the blank that the normaliser puts before a text.
    pub(super) fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        let bytes = self
            .kitoken
            .decode(ids, &[kitoken::SpecialTokenKind::Priority][..])
            .map_err(|error| error.to_string())?;
        let escaped = BLANK.to_string().into_bytes();
        let mut text = Vec::with_capacity(bytes.len());
        let mut rest = &bytes[..];
        while let Some((first, after)) = rest.split_first() {
            match rest.strip_prefix(&escaped[..]) {
                Some(after) => {
                    text.push(b' ');
                    rest = after;
                }
                None => {
                    text.push(*first);
                    rest = after;
                }
            }
        }
        Ok(text)
    }
}

impl Normalizer {
    fn from_spec(spec: &NormalizerSpec, user_defined: Vec<String>) -> Result<Normalizer, String> {
        if !spec.escape_whitespaces() {
            return Err("it does not escape spaces".to_owned());
        }
        let map = match spec.precompiled_charsmap() {
            [] => None,
            blob => Some(CharsMap::read(blob).ok_or("its character table is damaged")?),
        };
        Ok(Normalizer {
            map,
            user_defined,
            dummy_prefix: spec.add_dummy_prefix(),
            remove_extra: spec.remove_extra_whitespaces(),
        })
    }

    /// The result of SentencePiece's `Normalizer::Normalize`, with escaped blanks.
    fn normalize(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 4 + BLANK.len_utf8());
        let mut rest = text;
        let next = |rest: &mut &str| -> String {
            let (piece, length) = self.prefix(rest);
            let piece = piece.to_owned();
            *rest = rest.get(length..).unwrap_or_default();
            piece
        };
        let mut first = None;
        if self.remove_extra {
            while !rest.is_empty() {
                let piece = next(&mut rest);
                if piece != " " {
                    first = Some(piece);
                    break;
                }
            }
        }
        if first.is_none() && rest.is_empty() {
            return out;
        }
        if self.dummy_prefix {
            out.push(BLANK);
        }
        let mut after_blank = self.remove_extra;
        while let Some(piece) = first.take().or_else(|| (!rest.is_empty()).then(|| next(&mut rest)))
        {
            let piece = match after_blank {
                true => piece.trim_start_matches(' '),
                false => piece.as_str(),
            };
            if !piece.is_empty() {
                out.extend(piece.chars().map(|c| if c == ' ' { BLANK } else { c }));
                after_blank = self.remove_extra && piece.ends_with(' ');
            }
        }
        if self.remove_extra {
            let kept = out.trim_end_matches(BLANK).len();
            out.truncate(kept);
        }
        out
    }

    /// The normalised beginning of a text, and the length of that beginning.
    fn prefix<'a>(&'a self, text: &'a str) -> (&'a str, usize) {
        if let Some(symbol) = self.user_defined.iter().find(|s| text.starts_with(s.as_str())) {
            return (symbol, symbol.len());
        }
        let found = self.map.as_ref().and_then(|map| map.longest(text));
        found.unwrap_or_else(|| {
            let length = text.chars().next().map_or(0, char::len_utf8);
            (text.get(..length).unwrap_or_default(), length)
        })
    }
}

/// The character table: a double array trie of the keys (Yata's Darts-clone), and the replacements.
#[derive(Debug)]
struct CharsMap {
    units: Vec<u32>,
    replacements: String,
}

impl CharsMap {
    fn read(blob: &[u8]) -> Option<CharsMap> {
        let (size, rest) = blob.split_first_chunk::<4>()?;
        let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
        let (trie, replacements) = rest.split_at_checked(size)?;
        let (units, left) = trie.as_chunks::<4>();
        if units.is_empty() || !left.is_empty() {
            return None;
        }
        Some(CharsMap {
            units: units.iter().map(|unit| u32::from_le_bytes(*unit)).collect(),
            replacements: std::str::from_utf8(replacements).ok()?.to_owned(),
        })
    }

    /// The replacement of the longest prefix that has one, and that prefix's length.
    fn longest(&self, text: &str) -> Option<(&str, usize)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut position = offset(*self.units.first()?);
        let mut found = None;
        for (at, byte) in text.bytes().enumerate() {
            // A zero byte ends a key, so keys contain none.
            if byte == 0 {
                break;
            }
            position ^= usize::from(byte);
            let Some(&unit) = self.units.get(position) else { break };
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            position ^= offset(unit);
            if unit >> 8 & 1 == 1 {
                let value = self.units.get(position)? & 0x7fff_ffff;
                found = Some((value as usize, at + 1));
            }
        }
        let (value, length) = found?;
        let replacement = self.replacements.get(value..)?.split('\0').next()?;
        text.is_char_boundary(length).then_some((replacement, length))
    }
}
