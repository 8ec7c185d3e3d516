//! The text of an open document: byte offsets for the client's positions, and back.
//!
//! A position between the halves of a character is the place before it; columns are counted as the client counts them.

use lsp_types::{Position, PositionEncodingKind, Range, TextDocumentContentChangeEvent};

/// What a client counts columns in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Bytes.
    Utf8,
    /// Units of UTF-16, which every client knows.
    #[default]
    Utf16,
}

impl Encoding {
    /// The encoding to use with a client that offers these.
    pub(crate) fn choose(offered: Option<&[PositionEncodingKind]>) -> Encoding {
        match offered {
            Some(kinds) if kinds.contains(&PositionEncodingKind::UTF8) => Encoding::Utf8,
            Some(_) | None => Encoding::Utf16,
        }
    }

    /// Its name in the protocol.
    pub(crate) fn kind(self) -> PositionEncodingKind {
        match self {
            Encoding::Utf8 => PositionEncodingKind::UTF8,
            Encoding::Utf16 => PositionEncodingKind::UTF16,
        }
    }

    /// The number of units of a text.
    pub(crate) fn width(self, text: &str) -> u32 {
        let units = match self {
            Encoding::Utf8 => text.len(),
            Encoding::Utf16 => text.chars().map(char::len_utf16).sum(),
        };
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

/// A text with the places where its lines begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    text: String,
    lines: Vec<usize>,
    encoding: Encoding,
}

impl Text {
    /// A text, for a client with this encoding.
    pub(crate) fn new(text: String, encoding: Encoding) -> Text {
        let lines = line_starts(&text);
        Text { text, lines, encoding }
    }

    /// The text itself.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The encoding of its positions.
    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The bytes of a line, without its end.
    fn line(&self, line: usize) -> &str {
        let start = self.lines.get(line).copied().unwrap_or(self.text.len());
        let end = self.lines.get(line + 1).copied().unwrap_or(self.text.len());
        let line = self.text.get(start..end).unwrap_or("");
        line.trim_end_matches('\n').trim_end_matches('\r')
    }

    /// The byte at a position. A position after the end of a line is its end.
    pub(crate) fn offset(&self, position: Position) -> usize {
        let line = position.line as usize;
        let Some(start) = self.lines.get(line).copied() else { return self.text.len() };
        let mut left = position.character;
        let mut at = start;
        for c in self.line(line).chars() {
            let units = match self.encoding {
                Encoding::Utf8 => c.len_utf8() as u32,
                Encoding::Utf16 => c.len_utf16() as u32,
            };
            if units > left {
                break;
            }
            left -= units;
            at += c.len_utf8();
        }
        at
    }

    /// The position of a byte. One after the end of the text is the end.
    pub(crate) fn position(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let line = self.lines.partition_point(|start| *start <= offset).saturating_sub(1);
        let start = self.lines.get(line).copied().unwrap_or(0);
        let mut end = offset;
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = self.text.get(start..end).unwrap_or("");
        // The end of a line has no width.
        let before = before.trim_end_matches('\n').trim_end_matches('\r');
        Position { line: line as u32, character: self.encoding.width(before) }
    }

    /// The range of these bytes.
    pub(crate) fn range(&self, start: usize, end: usize) -> Range {
        Range { start: self.position(start), end: self.position(end.max(start)) }
    }

    /// Applies an edit of the client.
    pub(crate) fn apply(&mut self, change: &TextDocumentContentChangeEvent) {
        match change.range {
            None => self.text.clone_from(&change.text),
            Some(range) => {
                let (one, two) = (self.offset(range.start), self.offset(range.end));
                self.text.replace_range(one.min(two)..one.max(two), &change.text);
            }
        }
        self.lines = line_starts(&self.text);
    }
}

/// Lines end as the protocol says: with a line feed, a carriage return, or both.
fn line_starts(text: &str) -> Vec<usize> {
    let mut starts = vec![0];
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let ends = match byte {
            b'\n' => true,
            b'\r' => bytes.get(at + 1) != Some(&b'\n'),
            _ => false,
        };
        if ends {
            starts.push(at + 1);
        }
    }
    starts
}

/// The place in `new` of a byte of `old`, if the text around it is in both: before the first difference, after the last
/// one, or in a line between them that both texts have once.
pub(crate) fn moved(old: &str, new: &str, offset: usize) -> Option<usize> {
    let common = |a: &mut dyn Iterator<Item = u8>, b: &mut dyn Iterator<Item = u8>| {
        a.zip(b).take_while(|(a, b)| a == b).count()
    };
    let before = common(&mut old.bytes(), &mut new.bytes());
    let after = common(&mut old.bytes().rev(), &mut new.bytes().rev());
    let after = after.min(old.len().min(new.len()) - before);
    if offset <= before {
        return Some(offset);
    }
    let from_end = old.len().checked_sub(offset)?;
    if from_end <= after {
        return Some(new.len() - from_end);
    }
    let start = old.get(..offset)?.rfind('\n').map_or(0, |at| at + 1);
    let line = old.get(start..)?.split_inclusive('\n').next()?;
    let once = |text: &str| {
        let mut matches = text.match_indices(line).filter(|(at, _)| {
            text.get(..*at).is_some_and(|before| before.is_empty() || before.ends_with('\n'))
        });
        let first = matches.next().map(|(at, _)| at);
        first.filter(|_| matches.next().is_none() && !line.trim().is_empty())
    };
    once(old)?;
    Some(once(new)? + offset - start)
}

#[cfg(test)]
mod tests {
    use lsp_types::Position;
    use proptest::prelude::*;

    use super::*;

    fn change(
        range: Option<((u32, u32), (u32, u32))>,
        text: &str,
    ) -> TextDocumentContentChangeEvent {
        let at = |(line, character)| Position { line, character };
        let range = range.map(|(start, end)| Range { start: at(start), end: at(end) });
        TextDocumentContentChangeEvent { range, range_length: None, text: text.to_owned() }
    }

    #[test]
    fn columns_are_units_of_utf16() {
        let text = Text::new("// é 𝄞 x\nab\r\ncd".to_owned(), Encoding::Utf16);
        assert_eq!(text.offset(Position { line: 0, character: 5 }), 6);
        // After the clef, which has two units and four bytes.
        assert_eq!(text.offset(Position { line: 0, character: 7 }), 10);
        assert_eq!(text.position(10), Position { line: 0, character: 7 });
        // Between its halves.
        assert_eq!(text.offset(Position { line: 0, character: 6 }), 6);
        assert_eq!(text.position(8), Position { line: 0, character: 5 });
        // After the ends of lines and of the text.
        assert_eq!(text.offset(Position { line: 1, character: 99 }), 15);
        assert_eq!(text.offset(Position { line: 99, character: 0 }), text.as_str().len());
        assert_eq!(text.position(13 + 3), Position { line: 1, character: 2 });
        let bytes = Text::new(text.as_str().to_owned(), Encoding::Utf8);
        assert_eq!(bytes.position(10), Position { line: 0, character: 10 });
    }

    #[test]
    fn edits_replace_ranges() {
        let mut text = Text::new("one\ntwo\nthree".to_owned(), Encoding::Utf16);
        text.apply(&change(Some(((0, 3), (1, 3))), " é𝄞"));
        assert_eq!(text.as_str(), "one é𝄞\nthree");
        text.apply(&change(Some(((0, 5), (0, 7))), ""));
        assert_eq!(text.as_str(), "one é\nthree");
        // A range the wrong way round, and one beyond the end.
        text.apply(&change(Some(((9, 9), (1, 0))), "2"));
        assert_eq!(text.as_str(), "one é\n2");
        text.apply(&change(None, "all"));
        assert_eq!((text.as_str(), text.lines.len()), ("all", 1));
    }

    #[test]
    fn places_move_with_the_text_around_them() {
        let (old, new) = ("abc def ghi", "abc XX ghi");
        assert_eq!(moved(old, new, 2), Some(2));
        assert_eq!(moved(old, new, 9), Some(8));
        assert_eq!(moved(old, new, 6), None);
        assert_eq!(moved("aa", "aaa", 2), Some(2));
        // A line between two edits.
        let (old, new) = ("one\ntwo\nthree\nfour\n", "ONE\ntwo\nmore\nthree\nFOUR\n");
        assert_eq!(moved(old, new, 9), Some(14));
        assert_eq!(moved("a\nx\nx\nb\n", "A\nx\nx\nB\n", 3), None);
    }

    proptest! {
        #[test]
        fn positions_and_offsets_agree(text in "[aé𝄞\r\n]{0,20}", line in 0u32..8, column in 0u32..30) {
            for encoding in [Encoding::Utf8, Encoding::Utf16] {
                let text = Text::new(text.clone(), encoding);
                let offset = text.offset(Position { line, character: column });
                prop_assert!(text.as_str().is_char_boundary(offset));
                prop_assert_eq!(text.offset(text.position(offset)), offset);
                for offset in 0..=text.as_str().len() {
                    let position = text.position(offset);
                    prop_assert!((position.line as usize) < text.lines.len());
                    prop_assert!(text.offset(position) <= offset);
                }
            }
        }

        #[test]
        fn edits_in_pieces_are_the_edit(
            text in "[ab\n𝄞]{0,20}", start in 0usize..20, length in 0usize..20, new in "[xé\n]{0,5}",
        ) {
            let floor = |mut at: usize| {
                at = at.min(text.len());
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                at
            };
            let (start, end) = (floor(start), floor(start + length));
            let mut document = Text::new(text.clone(), Encoding::Utf16);
            let range = document.range(start, end);
            let event = TextDocumentContentChangeEvent {
                range: Some(range), range_length: None, text: new.clone(),
            };
            document.apply(&event);
            let mut wanted = text.clone();
            wanted.replace_range(start..end, &new);
            prop_assert_eq!(document, Text::new(wanted, Encoding::Utf16));
        }
    }
}
