//! The questions in a window, each as a digest of everything before its answer in its own sample.
//!
//! Equal questions have equal digests in any window, so questions of training and held-out windows can be compared.
//! Complete answers here are the same as in `fill`.

use super::TaskWindows;
use tasks::sample::Span;

/// Which questions of a window to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Questions with complete answers in the window.
    InWindow,
    /// The question of the first sample, taken alone and complete.
    First,
}

impl TaskWindows {
    /// The level and the digest of each question in window `number`. In the published order it must be the next one.
    pub fn questions(&mut self, number: u64, asked: Asked, mut each: impl FnMut(u32, [u8; 32])) {
        self.make(number);
        let tokens = &self.tape.tokens;
        // For the current sample: its start, and how far it is digested.
        let (mut hash, mut from, mut done) = (blake3::Hasher::new(), usize::MAX, 0);
        for Span { start, len, level } in &self.tape.answers {
            match asked {
                Asked::InWindow if start + len > self.options.seq_len + 1 => continue,
                Asked::First if from != usize::MAX => break,
                Asked::InWindow | Asked::First => {}
            }
            let samples = self.starts.partition_point(|begin| begin <= start);
            let begin = samples.checked_sub(1).and_then(|at| self.starts.get(at)).copied();
            let begin = begin.unwrap_or_default();
            if begin != from {
                hash.reset();
                (from, done) = (begin, begin);
            }
            for token in tokens.get(done..*start).unwrap_or_default() {
                hash.update(&token.to_le_bytes());
            }
            done = *start;
            each(*level, *hash.finalize().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Ids, LossOn, Options, Order};
    use super::*;
    use crate::Split;
    use crate::batch::Batch;
    use serde_json::json;
    use tasks::sample::Mode;
    use tasks::task::Task;

    /// The same from the batch alone: from each complete answer back to the last token that begins a sample.
    #[test]
    fn questions_are_what_stands_before_whole_answers() {
        let depo = json!({"N": 5, "K": 2, "mini_vocab": 50, "min_tlen": 1, "max_tlen": 2});
        let mano = json!({"L": 3, "knowledge_augment": false});
        for (name, params) in [("depo", depo), ("brevo", json!({"N": 6})), ("mano", mano)] {
            let options = Options {
                seq_len: 100,
                seed: 5,
                split: Split::HeldOut,
                mode: Mode::Train,
                order: Order::Indexed,
                loss_on: LossOn::All,
                ids: Ids::Published,
            };
            let task = Task::parse(name, params).unwrap();
            let mut windows = TaskWindows::new(task, options).unwrap();
            for number in 0..50 {
                let mut batch = Batch::default();
                windows.fill(number..number + 1, &mut batch).unwrap();
                let inputs = batch.inputs();
                let want: Vec<(u32, [u8; 32])> = batch
                    .answers()
                    .iter()
                    .filter(|answer| answer.complete)
                    .map(|answer| {
                        let end = answer.start + 1;
                        let begin = inputs[..end].iter().rposition(|&token| token == 9999).unwrap();
                        let bytes: Vec<u8> = inputs[begin..end]
                            .iter()
                            .flat_map(|&token| (token as u32).to_le_bytes())
                            .collect();
                        (answer.level, *blake3::hash(&bytes).as_bytes())
                    })
                    .collect();
                let mut got = Vec::new();
                windows
                    .questions(number, Asked::InWindow, |level, digest| got.push((level, digest)));
                assert_eq!(got, want, "{name} {number}");
                let mut first = Vec::new();
                windows
                    .questions(number, Asked::First, |level, digest| first.push((level, digest)));
                assert_eq!(first, want[..1], "{name} {number}");
            }
        }
    }
}
