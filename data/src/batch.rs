//! A micro-batch made of windows of `seq_len` + 1 tokens: inputs and targets as row-major [rows, seq_len] i64, ready
//! for a tensor, with the positions of answers, and digests.
//!
//! Input `i` predicts target `i`; a target that does not count is [`IGNORED`]. A window's digest depends only on its
//! own tokens and targets, so a step's digest does not depend on how many ranks made its windows.

/// A target that the loss skips.
pub const IGNORED: i64 = -100;

/// A micro-batch of windows. Its buffers are reused from fill to fill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    rows: usize,
    seq_len: usize,
    inputs: Vec<i64>,
    targets: Vec<i64>,
    answers: Vec<Answer>,
}

/// An answer inside a window: targets `start..start + len` of row `row`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Row of the micro-batch, from 0.
    pub row: usize,
    /// Position of its first target in the row.
    pub start: usize,
    /// Number of its targets inside the window.
    pub len: usize,
    /// Difficulty of the question: Depo's hops, Brevo's depth, Mano's operations. For Capo, the number of the value.
    pub level: u32,
    /// False when the window ends inside the answer. Such an answer is not scored.
    pub complete: bool,
}

impl Batch {
    /// Number of windows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of inputs of each window.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// [rows, seq_len]
    pub fn inputs(&self) -> &[i64] {
        &self.inputs
    }

    /// [rows, seq_len]; [`IGNORED`] where the loss does not count
    pub fn targets(&self) -> &[i64] {
        &self.targets
    }

    /// Every answer that begins inside its window, by row and start.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Number of targets that count: this micro-batch's part of the step's loss normaliser.
    pub fn counted_targets(&self) -> u64 {
        self.targets.iter().filter(|&&target| target != IGNORED).count() as u64
    }

    /// Appends everything in the batch as numbers, for another process.
    pub fn write_to(&self, numbers: &mut Vec<i64>) {
        let Batch { rows, seq_len, inputs, targets, answers } = self;
        numbers.extend([rows, seq_len, &answers.len()].map(|count| *count as i64));
        numbers.extend(inputs);
        numbers.extend(targets);
        for Answer { row, start, len, level, complete } in answers {
            numbers.extend([*row as i64, *start as i64, *len as i64]);
            numbers.extend([i64::from(*level), i64::from(*complete)]);
        }
    }

    /// The batch at the start of these numbers, and the numbers after it; `None` if they are not a batch.
    pub fn read_from(numbers: &[i64]) -> Option<(Batch, &[i64])> {
        let count = |number: i64| usize::try_from(number).ok();
        let ([rows, seq_len, answers], rest) = numbers.split_first_chunk()?;
        let (rows, seq_len, answers) = (count(*rows)?, count(*seq_len)?, count(*answers)?);
        let tokens = rows.checked_mul(seq_len)?;
        let (inputs, rest) = rest.split_at_checked(tokens)?;
        let (targets, rest) = rest.split_at_checked(tokens)?;
        let (listed, rest) = rest.split_at_checked(answers.checked_mul(5)?)?;
        let answer = |[row, start, len, level, complete]: &[i64; 5]| {
            Some(Answer {
                row: count(*row)?,
                start: count(*start)?,
                len: count(*len)?,
                level: u32::try_from(*level).ok()?,
                complete: *complete != 0,
            })
        };
        let answers = listed.as_chunks().0.iter().map(answer).collect::<Option<_>>()?;
        let (inputs, targets) = (inputs.to_vec(), targets.to_vec());
        Some((Batch { rows, seq_len, inputs, targets, answers }, rest))
    }

    /// The digest of each row.
    pub fn window_digests(&self) -> Vec<blake3::Hash> {
        let width = self.seq_len.max(1);
        let rows = self.inputs.chunks_exact(width).zip(self.targets.chunks_exact(width));
        let mut bytes = Vec::with_capacity(16 * width);
        rows.map(|(inputs, targets)| {
            bytes.clear();
            for value in inputs.iter().chain(targets) {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            blake3::Hasher::new_derive_key("canonc 1 data window").update(&bytes).finalize()
        })
        .collect()
    }

    pub(super) fn reset(&mut self, rows: usize, seq_len: usize) {
        let Batch { rows: old_rows, seq_len: old_seq_len, inputs, targets, answers } = self;
        (*old_rows, *old_seq_len) = (rows, seq_len);
        inputs.clear();
        inputs.reserve(rows * seq_len);
        targets.clear();
        targets.reserve(rows * seq_len);
        answers.clear();
    }

    /// Appends a window of `seq_len` + 1 tokens. With `labels`, only targets labelled 1 count.
    pub(super) fn push_window(&mut self, tokens: &[u32], labels: Option<&[u8]>) {
        debug_assert_eq!(tokens.len(), self.seq_len + 1);
        let (Some((_, next)), Some((_, inputs))) = (tokens.split_first(), tokens.split_last())
        else {
            return;
        };
        self.inputs.extend(inputs.iter().map(|&token| i64::from(token)));
        match labels {
            None => self.targets.extend(next.iter().map(|&token| i64::from(token))),
            Some(labels) => self.targets.extend(
                next.iter()
                    .zip(labels.iter().skip(1))
                    .map(|(&token, &label)| if label == 1 { i64::from(token) } else { IGNORED }),
            ),
        }
    }

    pub(super) fn push_answer(&mut self, answer: Answer) {
        self.answers.push(answer);
    }
}

/// The digest of a batch or a step: over its windows' digests in window order, whichever rank made them.
pub fn digest_of_windows<'a>(windows: impl IntoIterator<Item = &'a blake3::Hash>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key("canonc 1 data batch");
    for window in windows {
        hasher.update(window.as_bytes());
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_next_tokens_and_labels_choose_them() {
        let mut batch = Batch::default();
        batch.reset(2, 3);
        batch.push_window(&[1, 2, 3, 4], None);
        batch.push_window(&[5, 6, 7, 8], Some(&[1, 0, 1, 0]));
        assert_eq!(batch.inputs(), [1, 2, 3, 5, 6, 7]);
        assert_eq!(batch.targets(), [2, 3, 4, IGNORED, 7, IGNORED]);
        assert_eq!((batch.rows(), batch.seq_len(), batch.counted_targets()), (2, 3, 4));
        batch.reset(1, 3);
        assert_eq!((batch.inputs().len(), batch.answers().len()), (0, 0));
    }

    #[test]
    fn a_batch_survives_as_numbers() {
        let mut batch = Batch::default();
        batch.reset(2, 3);
        batch.push_window(&[1, 2, 3, 4], None);
        batch.push_window(&[5, 6, 7, 8], Some(&[1, 0, 1, 0]));
        batch.push_answer(Answer { row: 1, start: 1, len: 2, level: 9, complete: false });
        batch.push_answer(Answer { row: 1, start: 2, len: 1, level: 0, complete: true });
        let mut numbers = Vec::new();
        batch.write_to(&mut numbers);
        numbers.extend([7, 8]);
        assert_eq!(Batch::read_from(&numbers), Some((batch, &[7i64, 8][..])));
        for cut in 0..numbers.len() - 2 {
            assert_eq!(Batch::read_from(&numbers[..cut]), None);
        }
        numbers[0] = -1;
        assert_eq!(Batch::read_from(&numbers), None);
        numbers[0] = i64::MAX;
        assert_eq!(Batch::read_from(&numbers), None);
    }

    #[test]
    fn a_digest_tells_targets_and_order_apart() {
        let digests = |windows: [(&[u32], Option<&[u8]>); 2]| {
            let mut batch = Batch::default();
            batch.reset(2, 2);
            for (tokens, labels) in windows {
                batch.push_window(tokens, labels);
            }
            batch.window_digests()
        };
        let (first, second): (&[u32], &[u32]) = (&[1, 2, 3], &[1, 2, 4]);
        let plain = digests([(first, None), (second, None)]);
        let labelled = digests([(first, Some(&[0, 0, 1])), (second, None)]);
        assert_ne!(plain[0], plain[1]);
        assert_ne!(plain[0], labelled[0]);
        assert_eq!(plain[1], labelled[1]);
        assert_ne!(digest_of_windows(&plain), digest_of_windows(plain.iter().rev()));
        // The format is part of every run's log: these bytes never change.
        assert_eq!(
            digest_of_windows(&plain).to_hex().as_str(),
            "ab9820dcb59b5679383cd9e11760014e6b000618be1f8cf9d3743fcc839a5698"
        );
    }
}
