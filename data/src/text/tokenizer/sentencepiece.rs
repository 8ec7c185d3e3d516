//! Tokens of a SentencePiece model (`tokenizer.model`), as the SentencePiece library makes them: normalisation by the
//! model's own table, then byte-pair merges.

mod segment;

use sentencepiece_model::{ModelType, NormalizerSpec, SentencePieceModel, Type};

use super::{Engine, MarkNames, ParsedTokenizer, mark, named_byte};
use segment::{Pieces, Symbols};

/// The character for a blank in pieces.
const BLANK: char = '\u{2581}';

/// The id of each byte.
type ByteIds = Box<[u32; 256]>;

#[derive(Debug)]
pub(super) struct Sentencepiece {
    normalizer: Normalizer,
    pieces: Pieces,
    /// The ids of the 256 byte pieces, for models that write unknown characters as bytes.
    bytes: Option<ByteIds>,
    /// What each id adds to a text.
    texts: Vec<Box<[u8]>>,
}

#[derive(Debug)]
struct Normalizer {
    map: Option<CharsMap>,
    /// Pieces that normalisation never changes.
    user_defined: Symbols,
    blank: char,
    dummy_prefix: bool,
    /// Whether a word's blank follows it.
    suffix: bool,
    remove_extra: bool,
}

pub(super) fn read(file: &[u8], marks: &MarkNames) -> Result<ParsedTokenizer, String> {
    let model = SentencePieceModel::from_slice(file)
        .map_err(|_| "it is not in SentencePiece's format".to_owned())?;
    let trainer = model.trainer().ok_or("it does not say how it was trained")?;
    let kind = trainer.model_type();
    if kind != ModelType::Bpe {
        return Err(format!("its type is {kind:?}, but only BPE is supported"));
    }
    let pieces = Pieces::new(model.pieces())?;
    let (texts, bytes) = texts_and_bytes(&model, trainer.byte_fallback())?;
    let spec = model.normalizer().ok_or("it does not say how text is normalised")?;
    let suffix = trainer.treat_whitespace_as_suffix();
    let normalizer = Normalizer::new(spec, pieces.user_defined().clone(), suffix)?;

    let declared = |id: i32| {
        u32::try_from(id).ok().filter(|id| usize::try_from(*id).is_ok_and(|id| id < texts.len()))
    };
    let special = |name: &str| {
        let at = model.pieces().iter().position(|piece| piece.piece() == name)?;
        u32::try_from(at).ok()
    };
    let bos = mark(marks.bos.as_ref(), declared(trainer.bos_id()), special)?;
    let eos = mark(marks.eos.as_ref(), declared(trainer.eos_id()), special)?;
    let vocab = texts.len();
    let engine = Sentencepiece { normalizer, pieces, bytes, texts };
    Ok(ParsedTokenizer {
        engine: Engine::Sentencepiece(Box::new(engine)),
        vocab,
        text_vocab: vocab,
        bos,
        eos,
        note: None,
    })
}

/// What each id adds to a text.
type Texts = Vec<Box<[u8]>>;

/// What each id adds to a text, and the ids of the 256 byte pieces if the model falls back to bytes.
fn texts_and_bytes(
    model: &SentencePieceModel,
    byte_fallback: bool,
) -> Result<(Texts, Option<ByteIds>), String> {
    let mut bytes = Box::new([None; 256]);
    let mut texts = Vec::with_capacity(model.pieces().len());
    for (id, piece) in (0..).zip(model.pieces()) {
        let text = piece.piece();
        texts.push(match piece.r#type() {
            Type::Byte if !byte_fallback => {
                return Err(format!(
                    "its piece {id}, `{text}`, is a byte, but it has no byte fallback"
                ));
            }
            Type::Byte => {
                let byte = named_byte(text)
                    .ok_or_else(|| format!("its piece {id}, `{text}`, is no byte"))?;
                if let Some(slot) = bytes.get_mut(usize::from(byte)) {
                    *slot = Some(id);
                }
                Box::from([byte])
            }
            Type::Control | Type::Unknown => Box::default(),
            Type::Normal | Type::UserDefined | Type::Unused => {
                text.replace(BLANK, " ").into_bytes().into_boxed_slice()
            }
        });
    }
    if !byte_fallback {
        return Ok((texts, None));
    }
    let present = bytes.iter().flatten().count();
    let ids: Vec<u32> = bytes.iter().copied().flatten().collect();
    let ids: Option<ByteIds> = ids.try_into().ok().map(Box::new);
    let ids = ids.ok_or_else(|| format!("it falls back to bytes, but has {present} of 256"))?;
    Ok((texts, Some(ids)))
}

impl Sentencepiece {
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let text = self.normalizer.normalize(text);
        let mut after_unknown = false;
        self.pieces.segment(&text, &mut |piece: &str, id: u32| {
            let is_unknown = id == self.pieces.unknown();
            match &self.bytes {
                Some(bytes) if is_unknown => {
                    out.extend(piece.bytes().filter_map(|byte| bytes.get(usize::from(byte))));
                }
                // A run of unknown characters becomes one token.
                _ if is_unknown && after_unknown => {}
                _ => out.push(id),
            }
            after_unknown = is_unknown;
        });
    }

    /// The token for unknown text, if the model has no byte pieces for it.
    pub(super) fn unknown(&self) -> Option<u32> {
        self.bytes.is_none().then_some(self.pieces.unknown())
    }

    /// The text of tokens, with the blank that the normaliser puts before a text. Control tokens and the unknown token
    /// have none.
    pub(super) fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        let text = |id: &u32| {
            let text = usize::try_from(*id).ok().and_then(|id| self.texts.get(id));
            text.map(|text| &text[..]).ok_or_else(|| format!("{id} is not one of its tokens"))
        };
        ids.iter().map(text).collect::<Result<Vec<_>, _>>().map(|texts| texts.concat())
    }
}

impl Normalizer {
    fn new(
        spec: &NormalizerSpec,
        user_defined: Symbols,
        suffix: bool,
    ) -> Result<Normalizer, String> {
        let map = match spec.precompiled_charsmap() {
            [] => None,
            blob => Some(CharsMap::read(blob).ok_or("its character table is damaged")?),
        };
        Ok(Normalizer {
            map,
            user_defined,
            blank: if spec.escape_whitespaces() { BLANK } else { ' ' },
            suffix,
            dummy_prefix: spec.add_dummy_prefix(),
            remove_extra: spec.remove_extra_whitespaces(),
        })
    }

    /// The result of SentencePiece's `Normalizer::Normalize`.
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
        if self.dummy_prefix && !self.suffix {
            out.push(self.blank);
        }
        let mut after_blank = self.remove_extra;
        while let Some(piece) = first.take().or_else(|| (!rest.is_empty()).then(|| next(&mut rest)))
        {
            let piece = match after_blank {
                true => piece.trim_start_matches(' '),
                false => piece.as_str(),
            };
            if !piece.is_empty() {
                out.extend(piece.chars().map(|c| if c == ' ' { self.blank } else { c }));
                after_blank = self.remove_extra && piece.ends_with(' ');
            }
        }
        if self.remove_extra {
            let kept = out.trim_end_matches(self.blank).len();
            out.truncate(kept);
        }
        if self.dummy_prefix && self.suffix {
            out.push(self.blank);
        }
        out
    }

    /// The normalised beginning of a text, and the length of that beginning.
    fn prefix<'a>(&'a self, text: &'a str) -> (&'a str, usize) {
        let (symbol, is_user_defined) = self.user_defined.prefix(text);
        let replaced = self.map.as_ref().filter(|_| !is_user_defined);
        replaced.and_then(|map| map.longest(text)).unwrap_or((symbol, symbol.len()))
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
        let mut longest = None;
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
                longest = Some((value as usize, at + 1));
            }
        }
        let (value, length) = longest?;
        let replacement = self.replacements.get(value..)?.split('\0').next()?;
        text.is_char_boundary(length).then_some((replacement, length))
    }
}
