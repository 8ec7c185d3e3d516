//! In: requests as text, a tokenizer. Out: tokens, of which the last ones are predicted. Must stay true: the boundary
//! between context and continuation is the harness's (`lm_eval/api/model.py`, `_encode_pair`;
//! `lm_eval/models/huggingface.py`, `_loglikelihood_tokens`; `lm_eval/utils.py`, `get_rolling_token_windows`): spaces
//! at the end of a context belong to the continuation, both are tokenized as one text, and what does not fit is cut
//! from the left.

use crate::request::is_space;

/// Text to tokens.
pub trait Encoder {
    /// The tokens of a text, with the mark before it if contexts have one.
    fn encode(&self, text: &str) -> Result<Vec<i64>, String>;

    /// The token before a text without context.
    fn prefix(&self) -> Option<i64>;
}

/// Tokens of which the last are predicted, each from all before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// At least two tokens, at most one more than the longest input.
    pub tokens: Vec<i64>,
    /// How many of the last tokens are predicted, from 1 to one less than there are.
    pub scored: usize,
}

impl Piece {
    fn new(mut context: Vec<i64>, continuation: &[i64], longest: usize) -> Result<Piece, String> {
        let scored = continuation.len();
        if scored == 0 {
            return Err("the tokenizer makes no token of what is scored".to_owned());
        }
        if scored > longest {
            return Err(format!(
                "what is scored has {scored} tokens, but the longest input is {longest}"
            ));
        }
        context.extend(continuation);
        let too_many = context.len().saturating_sub(longest + 1);
        context.drain(..too_many);
        match context.len() > scored {
            true => Ok(Piece { tokens: context, scored }),
            false => Err("there is no token before the scored text".to_owned()),
        }
    }
}

/// A continuation after a context.
pub fn pair(
    encoder: &dyn Encoder,
    context: &str,
    continuation: &str,
    longest: usize,
) -> Result<Piece, String> {
    let kept = context.trim_end_matches(is_space);
    let whole = encoder.encode(&format!("{context}{continuation}"))?;
    if context.is_empty() {
        // As in the harness, a mark is then scored, too.
        return Piece::new(vec![prefix(encoder)?], &whole, longest);
    }
    let given = encoder.encode(kept)?;
    let rest = whole.get(given.len()..).unwrap_or_default().to_vec();
    // A context of spaces alone has no token.
    let given = if given.is_empty() { vec![prefix(encoder)?] } else { given };
    Piece::new(given, &rest, longest)
}

/// All tokens of a document, with the mark if texts have one, in windows that overlap by one token.
pub fn document(encoder: &dyn Encoder, text: &str, longest: usize) -> Result<Vec<Piece>, String> {
    let tokens = encoder.encode(text)?;
    let longest = longest.max(1);
    let mut pieces = Vec::new();
    let first = longest.min(tokens.len());
    let Some(start) = tokens.get(..first).filter(|start| !start.is_empty()) else {
        return Err("the tokenizer makes no token of it".to_owned());
    };
    pieces.push(Piece::new(vec![prefix(encoder)?], start, longest)?);
    let mut done = first;
    while done < tokens.len() {
        let end = (done + longest).min(tokens.len());
        // The last window is filled up with tokens that were predicted before.
        let begin = end.saturating_sub(longest + 1);
        let context = tokens.get(begin..done).unwrap_or_default().to_vec();
        pieces.push(Piece::new(context, tokens.get(done..end).unwrap_or_default(), longest)?);
        done = end;
    }
    Ok(pieces)
}

/// The tokens of a prompt that leaves room for an answer.
pub fn prompt(
    encoder: &dyn Encoder,
    text: &str,
    longest: usize,
    answer: usize,
) -> Result<Vec<i64>, String> {
    let Some(room) = longest.checked_sub(answer).filter(|room| *room > 0) else {
        return Err(format!(
            "an answer of {answer} tokens leaves no room for a prompt: the longest input is {longest}"
        ));
    };
    let mut tokens = encoder.encode(text)?;
    if tokens.is_empty() {
        tokens.push(prefix(encoder)?);
    }
    let too_many = tokens.len().saturating_sub(room);
    tokens.drain(..too_many);
    Ok(tokens)
}

fn prefix(encoder: &dyn Encoder) -> Result<i64, String> {
    encoder.prefix().ok_or_else(|| {
        "a text without context needs a token before it, but the tokenizer has no bos and no eos".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A token for each character, `ab` as one.
    struct Toy {
        marks: bool,
    }

    impl Encoder for Toy {
        fn encode(&self, text: &str) -> Result<Vec<i64>, String> {
            let mark = self.marks.then_some(1);
            let text = text.replace("ab", "\u{100}");
            Ok(mark.into_iter().chain(text.chars().map(|c| i64::from(u32::from(c)))).collect())
        }

        fn prefix(&self) -> Option<i64> {
            Some(0)
        }
    }

    fn ids(text: &str) -> Vec<i64> {
        text.chars().map(|c| i64::from(u32::from(c))).collect()
    }

    #[test]
    fn spaces_belong_to_the_continuation() {
        let piece = pair(&Toy { marks: false }, "Q: ", "x", 100).unwrap();
        assert_eq!(piece, Piece { tokens: ids("Q: x"), scored: 2 });
        let piece = pair(&Toy { marks: true }, "Q", " x", 100).unwrap();
        assert_eq!(piece, Piece { tokens: [vec![1], ids("Q x")].concat(), scored: 2 });
        // A token across the boundary: the context's own length decides.
        let piece = pair(&Toy { marks: false }, "xa", "bc", 100).unwrap();
        assert_eq!(piece, Piece { tokens: ids("xac"), scored: 1 });
        let piece = pair(&Toy { marks: false }, "", "xy", 100).unwrap();
        assert_eq!(piece, Piece { tokens: [vec![0], ids("xy")].concat(), scored: 2 });
        let piece = pair(&Toy { marks: true }, "", "xy", 100).unwrap();
        assert_eq!(piece, Piece { tokens: [vec![0, 1], ids("xy")].concat(), scored: 3 });
        let piece = pair(&Toy { marks: false }, "  ", "xy", 100).unwrap();
        assert_eq!(piece, Piece { tokens: [vec![0], ids("  xy")].concat(), scored: 4 });
    }

    #[test]
    fn what_does_not_fit_is_cut_from_the_left() {
        let piece = pair(&Toy { marks: false }, "0123456789", "xy", 4).unwrap();
        assert_eq!(piece, Piece { tokens: ids("789xy"), scored: 2 });
        assert!(pair(&Toy { marks: false }, "0", "vwxyz", 4).unwrap_err().contains("5 tokens"));
        assert_eq!(prompt(&Toy { marks: false }, "0123456789", 5, 2).unwrap(), ids("789"));
        assert!(prompt(&Toy { marks: false }, "0", 5, 5).unwrap_err().contains("leaves no room"));
    }

    proptest! {
        #[test]
        fn a_document_is_predicted_once(length in 1usize..60, longest in 1usize..20, marks: bool) {
            let text: String = (0..length).map(|n| char::from_u32(0x4e00 + n as u32).unwrap()).collect();
            let pieces = document(&Toy { marks }, &text, longest).unwrap();
            let mut predicted: Vec<i64> = Vec::new();
            for piece in &pieces {
                prop_assert!(piece.tokens.len() <= longest + 1 && piece.tokens.len() > piece.scored);
                predicted.extend(&piece.tokens[piece.tokens.len() - piece.scored..]);
                // Tokens are neighbours in the text.
                let marks = piece.tokens.iter().take_while(|id| **id < 2).count();
                let own = &piece.tokens[marks..];
                prop_assert!(own.windows(2).all(|two| two[1] == two[0] + 1));
            }
            let mark: Vec<i64> = marks.then_some(1).into_iter().collect();
            prop_assert_eq!(predicted, [mark, ids(&text)].concat());
        }
    }
}
