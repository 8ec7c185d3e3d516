//! The score of each question at the last evaluation, as a member of its line.
//!
//! Two runs have equal `asked` digests only if they were asked the same questions in the same order. Lines of older logs
//! have no such member, and none is invented for them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use compiler::digest::Digest;
use data::batch::{Answer, Batch};
use serde_json::Value;

use super::score::Score;

/// Every scored question, in the order of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Questions {
    /// Digest of the questions and their true answers.
    pub asked: Digest,
    /// Exact match of each answer, by level.
    pub answers: BTreeMap<u32, Vec<bool>>,
    /// Number of correct tokens of each answer in the windows.
    pub tokens: Vec<u64>,
}

impl Questions {
    /// The member of a line: one digit per answer, one number per answer's tokens.
    pub(super) fn text(&self) -> String {
        let Questions { asked, answers, tokens } = self;
        let mut text = format!("{{\"asked\":\"{asked}\",\"answers\":{{");
        for (at, (level, right)) in answers.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let digits: String = right.iter().map(|right| if *right { '1' } else { '0' }).collect();
            let _ = write!(text, "{comma}\"{level}\":\"{digits}\"");
        }
        text.push_str("},\"tokens\":[");
        for (at, right) in tokens.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(text, "{comma}{right}");
        }
        text.push_str("]}");
        text
    }

    pub(super) fn read(value: &Value) -> Option<Questions> {
        let digit = |digit: char| match digit {
            '0' => Some(false),
            '1' => Some(true),
            _ => None,
        };
        let level = |(level, digits): (&String, &Value)| {
            let right = digits.as_str()?.chars().map(digit).collect::<Option<Vec<bool>>>()?;
            Some((level.parse().ok()?, right))
        };
        Some(Questions {
            asked: Digest::parse(value.get("asked")?.as_str()?)?,
            answers: value.get("answers")?.as_object()?.iter().map(level).collect::<Option<_>>()?,
            tokens: value
                .get("tokens")?
                .as_array()?
                .iter()
                .map(Value::as_u64)
                .collect::<Option<_>>()?,
        })
    }

    /// A message if the scores disagree with the counts of the same line.
    pub fn mismatch(&self, tokens: Score, answers: &BTreeMap<u32, Score>) -> Option<String> {
        let counted = |right: &Vec<bool>| Score {
            right: right.iter().filter(|right| **right).count() as u64,
            of: right.len() as u64,
        };
        let scores: BTreeMap<u32, Score> =
            self.answers.iter().map(|(level, right)| (*level, counted(right))).collect();
        if scores != *answers {
            return Some("logged single answers that do not add up to its counts".to_owned());
        }
        let right = self.tokens.iter().fold(0u64, |sum, right| sum.saturating_add(*right));
        (right != tokens.right || self.tokens.len() as u64 > tokens.of).then(|| {
            format!(
                "logged {right} right tokens answer by answer, but {} of {} in its counts",
                tokens.right, tokens.of
            )
        })
    }
}

/// Computes the digest of the questions.
#[derive(Debug)]
pub struct Asked(blake3::Hasher);

impl Default for Asked {
    fn default() -> Asked {
        Asked(blake3::Hasher::new_derive_key("canonc 1 questions asked"))
    }
}

impl Asked {
    /// Adds the text before the following answers: a window, or a prompt.
    pub fn text(&mut self, tokens: &[i64]) {
        let length = [tokens.len() as i64];
        let bytes: Vec<u8> =
            length.iter().chain(tokens).flat_map(|token| token.to_le_bytes()).collect();
        self.0.update(&bytes);
    }

    /// Adds a question: its position, its level and its answer.
    pub fn add(&mut self, position: [u64; 3], answer: &[i64]) {
        for number in position {
            self.0.update(&number.to_le_bytes());
        }
        self.text(answer);
    }

    /// Adds the whole answers of a batch that begins with window `first`.
    pub fn batch(&mut self, batch: &Batch, first: u64) {
        let mut of_row = None;
        for Answer { row, start, len, level, complete } in batch.answers() {
            let begin = row * batch.seq_len();
            let wanted = batch.targets().get(begin + start..begin + start + len);
            let (Some(wanted), true) = (wanted, *complete) else { continue };
            if of_row != Some(*row) {
                of_row = Some(*row);
                let window = batch.inputs().get(begin..begin + batch.seq_len());
                self.text(window.unwrap_or_default());
            }
            self.add([first + *row as u64, *start as u64, u64::from(*level)], wanted);
        }
    }

    /// The digest of the questions added so far, with their answers.
    pub fn digest(&self) -> blake3::Hash {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions() -> Questions {
        Questions {
            asked: Digest::of("test", "asked"),
            answers: BTreeMap::from([(2, vec![true, false, true]), (10, vec![false])]),
            tokens: vec![3, 0, 12],
        }
    }

    #[test]
    fn scores_are_read_back() {
        let text = questions().text();
        assert!(text.contains(r#""answers":{"2":"101","10":"0"},"tokens":[3,0,12]"#), "{text}");
        let read = |text: &str| Questions::read(&serde_json::from_str(text).unwrap());
        assert_eq!(read(&text), Some(questions()));
        for (from, to) in [("101", "121"), ("[3", "[-3"), ("\"asked\":\"", "\"asked\":\"x")] {
            assert_eq!(read(&text.replace(from, to)), None, "{from}");
        }
    }

    #[test]
    fn question_scores_that_contradict_the_totals_are_named() {
        let score = |right, of| Score { right, of };
        let answers = BTreeMap::from([(2, score(2, 3)), (10, score(0, 1))]);
        assert_eq!(questions().mismatch(score(15, 40), &answers), None);
        assert!(questions().mismatch(score(16, 40), &answers).is_some());
        assert!(questions().mismatch(score(15, 2), &answers).is_some());
        let other = BTreeMap::from([(2, score(1, 3)), (10, score(1, 1))]);
        assert!(questions().mismatch(score(15, 40), &other).is_some());
    }

    #[test]
    fn the_digest_covers_context_answer_and_position() {
        let digest = |before: &[i64], answer: &[i64], position| {
            let mut asked = Asked::default();
            asked.text(before);
            asked.add(position, answer);
            asked.digest()
        };
        let one = digest(&[1, 2], &[3], [0, 1, 2]);
        assert_eq!(one, digest(&[1, 2], &[3], [0, 1, 2]));
        assert_ne!(one, digest(&[1], &[2, 3], [0, 1, 2]));
        assert_ne!(one, digest(&[1, 2], &[4], [0, 1, 2]));
        assert_ne!(one, digest(&[1, 2], &[3], [0, 1, 1]));
    }
}
