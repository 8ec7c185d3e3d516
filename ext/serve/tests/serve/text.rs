//! Text from tokens: right at every split of a character.

use proptest::prelude::*;

use serve::model::{Codec, Specials};
use serve::text::{StopStrings, TextStream};

/// Tokens are pieces of a text's bytes, in order. Some tokenizers return bytes, others text with � for what is none;
/// some drop the blank at the front.
#[derive(Debug)]
struct Pieces {
    pieces: Vec<Vec<u8>>,
    as_text: bool,
    drops_first_blank: bool,
}

impl Codec for Pieces {
    fn encode(&self, _: &str) -> Result<Vec<u32>, String> {
        Err("not needed".to_owned())
    }

    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| self.pieces[*id as usize].clone()).collect();
        let bytes = match self.drops_first_blank {
            true => bytes.strip_prefix(b" ").map(<[u8]>::to_vec).unwrap_or(bytes),
            false => bytes,
        };
        Ok(match self.as_text {
            true => String::from_utf8_lossy(&bytes).into_owned().into_bytes(),
            false => bytes,
        })
    }

    fn before(&self) -> Option<u32> {
        None
    }

    fn ends(&self) -> &[u32] {
        &[]
    }

    fn specials(&self) -> &Specials {
        Specials::none()
    }
}

/// Cuts bytes after each of these lengths, in turns. Some pieces are empty, as marks are.
fn cut(bytes: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
    let (mut pieces, mut rest) = (Vec::new(), bytes);
    let mut lengths = lengths.iter().cycle();
    let mut empty = 0;
    while !rest.is_empty() {
        let length = (*lengths.next().unwrap()).min(rest.len());
        empty = if length == 0 { empty + 1 } else { 0 };
        let length = if empty > 3 { 1 } else { length };
        pieces.push(rest[..length].to_vec());
        rest = &rest[length..];
    }
    pieces
}

/// All pieces of text, the last one at the end; each must be a prefix of what is left.
fn streamed(codec: &Pieces, prompt: usize) -> Vec<String> {
    let ids: Vec<u32> = (0..codec.pieces.len() as u32).collect();
    let mut stream = TextStream::after(&ids[..prompt]);
    let mut texts: Vec<String> =
        ids[prompt..].iter().map(|id| stream.push(codec, *id).unwrap()).collect();
    texts.push(stream.finish(codec).unwrap());
    texts
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just("é".as_bytes().to_vec()),
        Just("漢字".as_bytes().to_vec()),
        Just("👩‍🔬".as_bytes().to_vec()),
        Just("\u{fffd}".as_bytes().to_vec()),
        Just(" a b".as_bytes().to_vec()),
        Just(vec![0xff]),
        Just(vec![0xf0, 0x9f]),
        Just(vec![0x80, 0x80, 0x80, 0x80, 0x80]),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn pieces_are_the_whole_text_at_any_split(
        bytes in hostile(),
        lengths in proptest::collection::vec(0usize..6, 1..6),
        as_text in any::<bool>(),
        drops_first_blank in any::<bool>(),
    ) {
        let pieces = cut(&bytes, &lengths);
        let codec = Pieces { pieces, as_text, drops_first_blank };
        let ids: Vec<u32> = (0..codec.pieces.len() as u32).collect();
        let decoded = codec.decode(&ids).unwrap();
        prop_assert_eq!(streamed(&codec, 0).concat(), String::from_utf8_lossy(&decoded));
    }

    #[test]
    fn a_character_appears_with_its_last_byte(text in "[a-zé漢👩 ]{0,12}", as_text in any::<bool>()) {
        let pieces: Vec<Vec<u8>> = text.bytes().map(|byte| vec![byte]).collect();
        let codec = Pieces { pieces, as_text, drops_first_blank: false };
        let texts = streamed(&codec, 0);
        let mut at = 0;
        for c in text.chars() {
            for (byte, text) in texts[at..at + c.len_utf8()].iter().enumerate() {
                let wanted = if byte + 1 == c.len_utf8() { c.to_string() } else { String::new() };
                prop_assert_eq!(text, &wanted);
            }
            at += c.len_utf8();
        }
        prop_assert_eq!(texts.last().unwrap(), "");
    }

    #[test]
    fn a_prompt_is_not_repeated(before in "[a-zé ]{0,9}", after in "[a-zé ]{0,9}", as_text in any::<bool>()) {
        let pieces = |text: &str| text.chars().map(|c| c.to_string().into_bytes()).collect::<Vec<_>>();
        let (first, second) = (pieces(&before), pieces(&after));
        let prompt = first.len();
        let codec = Pieces { pieces: [first, second].concat(), as_text, drops_first_blank: true };
        let kept = if prompt == 0 { after.strip_prefix(' ').unwrap_or(&after) } else { &after };
        prop_assert_eq!(streamed(&codec, prompt).concat(), kept);
    }

    #[test]
    fn a_stop_string_cuts_at_the_same_place_however_the_text_arrives(
        text in "[ab]{0,20}",
        stops in proptest::collection::vec("[ab]{1,4}", 0..3),
        lengths in proptest::collection::vec(1usize..5, 1..4),
    ) {
        // The match that ends first; of those, the one that begins first.
        let match_of = |stop: &String| text.find(stop.as_str()).map(|at| (at + stop.len(), at));
        let wanted = stops.iter().filter_map(match_of).min();
        let mut stream = StopStrings::new(stops);
        let mut seen = String::new();
        for piece in cut(text.as_bytes(), &lengths) {
            seen += &stream.push(std::str::from_utf8(&piece).unwrap());
            prop_assert!(text.starts_with(&seen));
        }
        prop_assert_eq!(stream.found, wanted.is_some());
        seen += &stream.finish();
        prop_assert_eq!(seen, &text[..wanted.map_or(text.len(), |(_, at)| at)]);
    }
}

#[test]
fn text_waits_only_while_it_may_be_a_stop_string() {
    let mut stream = StopStrings::new(vec!["\n\n".to_owned(), String::new()]);
    assert_eq!(stream.push("one"), "one");
    assert_eq!(stream.push("\n"), "");
    assert_eq!(stream.push("two\n"), "\ntwo");
    assert!(!stream.found);
    assert_eq!(stream.push("\nthree"), "");
    assert!(stream.found);
    assert_eq!((stream.push("four"), stream.finish()), (String::new(), String::new()));
}
