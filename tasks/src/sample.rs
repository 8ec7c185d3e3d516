//! A sample as its generator writes it: tokens, labels, and the place of each answer.

/// How sizes are drawn: as in training, or always the largest, as in the published tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Sizes are drawn.
    Train,
    /// Every size is the largest.
    Test,
}

/// Consecutive samples, as a generator writes them.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    /// Token ids of all samples, one after another.
    pub tokens: Vec<u32>,
    /// One label per token: 1 where the token is a target. Empty for tasks without labels.
    pub labels: Vec<u8>,
    /// The answers, in order.
    pub answers: Vec<Span>,
}

/// The tokens of one answer on a tape, without the marker before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the first token on the tape.
    pub start: usize,
    /// Number of tokens.
    pub len: usize,
    /// Difficulty of the question: Depo's hops, Brevo's depth, Mano's operations, a multi-hop question's hops. For
    /// Capo, the number of the value.
    pub level: u32,
}

impl Tape {
    /// Removes all samples and keeps the memory.
    pub fn clear(&mut self) {
        let Tape { tokens, labels, answers } = self;
        tokens.clear();
        labels.clear();
        answers.clear();
    }

    /// Drops the first `start` tokens of samples without labels, and every answer that starts at or before `start`.
    pub fn cut_before(&mut self, start: usize) {
        let Tape { tokens, labels: _, answers } = self;
        if start > 0 {
            tokens.drain(..start.min(tokens.len()));
            // The window's first token cannot be a target.
            answers.retain(|span| span.start > start);
            answers.iter_mut().for_each(|span| span.start -= start);
        }
    }

    /// The bytes of a sample of text, and of the answer at its end if it `is_answered`.
    pub fn text(&self, is_answered: bool) -> (String, Option<String>) {
        let answer = self.answers.first().filter(|_| is_answered);
        let end = answer.map_or(self.tokens.len(), |answer| answer.start);
        let (text, answer) = self.tokens.split_at(end);
        let string = |tokens: &[u32]| {
            let bytes: Vec<u8> = tokens.iter().map(|&token| token as u8).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        (string(text), is_answered.then(|| string(answer)))
    }
}

/// How descriptions of samples judge an answer.
pub(super) fn verdict(right: bool) -> &'static str {
    if right { "right" } else { "WRONG" }
}
