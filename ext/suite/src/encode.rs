//! Tokenizes requests, with the boundaries between context and continuation of lm-evaluation-harness
//! (`lm_eval/api/model.py`, `_encode_pair`; `lm_eval/models/huggingface.py`, `_loglikelihood_tokens`;
//! `lm_eval/utils.py`, `get_rolling_token_windows`): spaces at the end of a context belong to the continuation, both
//! are tokenized as one text, and what does not fit is cut from the left.

use jinja::is_space;

use crate::request::Request;
use crate::suite::Task;

/// Text to tokens.
pub trait Encoder {
    /// The tokens of a text, with a beginning-of-text token if contexts have one.
    fn encode(&self, text: &str) -> Result<Vec<i64>, String>;

    /// The token before a text without context.
    fn prefix(&self) -> Option<i64>;
}

/// A model's tokens, in both directions.
pub trait Codec: Encoder {
    /// The bytes that tokens add to those of a prompt.
    fn continuation(&self, prompt: &[i64], tokens: &[i64]) -> Result<Vec<u8>, String>;

    /// The token that ends a text.
    fn stop(&self) -> Option<i64>;
}

/// Why a request has no tokens for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenError {
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to do next.
    pub help: &'static str,
}

impl TokenError {
    fn new(message: impl Into<String>, help: &'static str) -> TokenError {
        TokenError { message: message.into(), help }
    }

    /// A text that the tokenizer refuses.
    fn refused(reason: String) -> TokenError {
        TokenError::new(reason, "change the question's text")
    }
}

/// Tokens, the last of which are predicted, each from all tokens before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// At least two tokens, at most one more than the longest input.
    pub tokens: Vec<i64>,
    /// How many of the last tokens are predicted: at least one, and never the first token.
    pub scored: usize,
}

impl Piece {
    fn new(
        mut context: Vec<i64>,
        continuation: &[i64],
        longest: usize,
    ) -> Result<Piece, TokenError> {
        let scored = continuation.len();
        if scored == 0 {
            return Err(TokenError::new(
                "the tokenizer makes no token of what is scored",
                "give the answer a character besides spaces",
            ));
        }
        if scored > longest {
            return Err(TokenError::new(
                format!("what is scored has {scored} tokens, but the longest input is {longest}"),
                "shorten the answer, or use a longer input: --max-length, or data.seq_len of a recipe",
            ));
        }
        context.extend(continuation);
        let too_many = context.len().saturating_sub(longest + 1);
        context.drain(..too_many);
        match context.len() > scored {
            true => Ok(Piece { tokens: context, scored }),
            false => Err(no_prefix()),
        }
    }
}

/// The tokens of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// Of continuations, whose log-likelihoods are compared or reported.
    Continuations(Vec<Piece>),
    /// Of a document, whose log-likelihoods are added.
    Document(Vec<Piece>),
    /// Of a prompt, after which the model writes.
    Prompt(Vec<i64>),
}

/// The tokens of a request for a model with inputs of at most `longest` tokens, or why they do not fit.
pub fn request(
    encoder: &dyn Encoder,
    task: &Task,
    request: &Request,
    longest: usize,
) -> Result<Tokens, TokenError> {
    Ok(match request {
        Request::Choose { pairs, right: _, lengths: _ } => {
            let pieces = pairs.iter().map(|(context, rest)| pair(encoder, context, rest, longest));
            Tokens::Continuations(pieces.collect::<Result<_, _>>()?)
        }
        Request::Continue { context, continuation } => {
            Tokens::Continuations(vec![pair(encoder, context, continuation, longest)?])
        }
        Request::Document { text, words: _, bytes: _ } => {
            Tokens::Document(document(encoder, text, longest)?)
        }
        Request::Generate { prompt: text, expected: _ } => {
            Tokens::Prompt(prompt(encoder, text, longest, task.max_tokens())?)
        }
    })
}

/// A continuation after a context.
pub fn pair(
    encoder: &dyn Encoder,
    context: &str,
    continuation: &str,
    longest: usize,
) -> Result<Piece, TokenError> {
    let kept = context.trim_end_matches(is_space);
    let encode = |text: &str| encoder.encode(text).map_err(TokenError::refused);
    let joined = encode(&format!("{context}{continuation}"))?;
    if context.is_empty() {
        // As in the harness, a beginning-of-text token is then scored, too.
        return Piece::new(vec![prefix(encoder)?], &joined, longest);
    }
    let before = encode(kept)?;
    let rest = joined.get(before.len()..).unwrap_or_default().to_vec();
    // A context of spaces only has no token.
    let before = if before.is_empty() { vec![prefix(encoder)?] } else { before };
    Piece::new(before, &rest, longest)
}

/// All tokens of a document, with a beginning-of-text token if texts have one, in windows that overlap by one token.
pub fn document(
    encoder: &dyn Encoder,
    text: &str,
    longest: usize,
) -> Result<Vec<Piece>, TokenError> {
    let tokens = encoder.encode(text).map_err(TokenError::refused)?;
    let longest = longest.max(1);
    let mut pieces = Vec::new();
    let first = longest.min(tokens.len());
    let Some(start) = tokens.get(..first).filter(|start| !start.is_empty()) else {
        return Err(TokenError::new(
            "the tokenizer makes no token of the document",
            "give it a character besides spaces, or leave it out",
        ));
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

/// How many tokens a prompt may have, at least one.
pub fn room(longest: usize, answer: usize) -> Result<usize, TokenError> {
    longest.checked_sub(answer).filter(|room| *room > 0).ok_or_else(|| {
        TokenError::new(
            format!(
                "an answer of {answer} tokens leaves no room for a prompt: the longest input is {longest}"
            ),
            "lower max_tokens of the task, or use a longer input: --max-length, or data.seq_len of a recipe",
        )
    })
}

/// The tokens of a prompt that leaves room for an answer.
pub fn prompt(
    encoder: &dyn Encoder,
    text: &str,
    longest: usize,
    answer: usize,
) -> Result<Vec<i64>, TokenError> {
    let room = room(longest, answer)?;
    let mut tokens = encoder.encode(text).map_err(TokenError::refused)?;
    if tokens.is_empty() {
        tokens.push(prefix(encoder)?);
    }
    let too_many = tokens.len().saturating_sub(room);
    tokens.drain(..too_many);
    Ok(tokens)
}

fn prefix(encoder: &dyn Encoder) -> Result<i64, TokenError> {
    encoder.prefix().ok_or_else(no_prefix)
}

fn no_prefix() -> TokenError {
    TokenError::new(
        "a text without context needs a token before it, but the tokenizer has no bos and no eos",
        "name one with --bos, or give the task a prompt",
    )
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
        let long = pair(&Toy { marks: false }, "0", "vwxyz", 4).unwrap_err();
        assert!(long.message.contains("5 tokens") && long.help.contains("shorten"), "{long:?}");
        assert_eq!(prompt(&Toy { marks: false }, "0123456789", 5, 2).unwrap(), ids("789"));
        let full = prompt(&Toy { marks: false }, "0", 5, 5).unwrap_err();
        assert!(full.message.contains("leaves no room") && full.help.contains("max_tokens"));
        let empty = pair(&Toy { marks: false }, "x", "", 4).unwrap_err();
        assert!(empty.message.contains("no token of what is scored"), "{empty:?}");
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
                let characters = &piece.tokens[marks..];
                prop_assert!(characters.windows(2).all(|two| two[1] == two[0] + 1));
            }
            let mark: Vec<i64> = marks.then_some(1).into_iter().collect();
            prop_assert_eq!(predicted, [mark, ids(&text)].concat());
        }
    }
}
