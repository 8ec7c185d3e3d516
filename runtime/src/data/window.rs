//! In: a task, a seed and window numbers. Out: windows packed from whole samples (data spec, section 8): samples
//! in stream order until the window is full, the last one cut and its rest dropped, the next window starting with
//! the next sample; Capo's training windows begin anywhere in their first biography, as the paper cuts them (data
//! spec, 4.6). Must stay true: in the indexed order window `w` is a function of (task digest, split, mode,
//! seed, `w`) alone; the published order is one generator from one seed, so it can only be walked.

mod key;
mod questions;

use std::ops::Range;

use super::batch::{Answer, Batch};
use super::cpython::Random;
use super::task::{Mode, Scratch, Tape, Task};
use super::{DataError, Split};
use key::generator;
pub(super) use key::window_key;
pub use questions::Asked;

/// Which targets count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossOn {
    /// Those the task labels: the answer and the marker before it.
    Answer,
    All,
}

/// How windows follow from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each window from its own generator: any window in constant time, any number of ranks.
    Indexed,
    /// All windows from one generator seeded once, as the published scripts do.
    Published,
}

/// How tokens are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// As the published generators write them, thousands of numbers no sample uses included.
    Published,
    /// By place in the task's alphabet, so that a small model needs no table for unused numbers.
    Dense,
}

/// What, besides the task, decides the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Inputs of a window; it holds one token more.
    pub seq_len: usize,
    pub seed: u64,
    pub split: Split,
    pub mode: Mode,
    pub order: Order,
    pub loss_on: LossOn,
    pub ids: Ids,
}

/// The numbered windows of one task.
#[derive(Clone, Debug)]
pub struct TaskWindows {
    task: Task,
    task_digest: blake3::Hash,
    options: Options,
    /// The dense number of each published token, and the token of each dense number; empty for published numbers.
    dense: Vec<u32>,
    alphabet: Vec<u32>,
    /// The published order's generator, and the window it is about to make.
    published: Box<Random>,
    next: u64,
    scratch: Box<Scratch>,
    tape: Tape,
    /// Where the tape's samples begin.
    starts: Vec<usize>,
}

impl TaskWindows {
    /// Refuses what could only ever give empty or misleading windows.
    pub fn new(task: Task, options: Options) -> Result<TaskWindows, DataError> {
        let Options { seq_len, seed, split, mode, order, loss_on, ids } = options;
        let name = task.name();
        let least = task.least_tokens(mode);
        if (seq_len as u64) < least.saturating_sub(1) {
            return Err(DataError::new(
                format!(
                    "a window of seq_len {seq_len} ends before the first answer of any {name} sample, which takes {least} tokens"
                ),
                format!("set seq_len to {} or more, or make the task smaller", least - 1),
            ));
        }
        if seq_len > 1 << 24 {
            return Err(DataError::new(
                format!("seq_len is {seq_len}, more than a window can hold"),
                format!("set seq_len to {} or less", 1 << 24),
            ));
        }
        match (loss_on, task.has_labels()) {
            (LossOn::Answer, true) | (LossOn::All, true | false) => {}
            (LossOn::Answer, false) => {
                return Err(DataError::new(
                    format!("loss_on is `answer`, but {name} samples do not label their answers"),
                    "set loss_on = \"all\", as published",
                ));
            }
        }
        match (order, split) {
            (Order::Indexed, Split::Train | Split::HeldOut) | (Order::Published, Split::Train) => {}
            (Order::Published, Split::HeldOut) => {
                return Err(DataError::new(
                    "the published order is the training stream; nothing in it is held out",
                    "evaluate on the indexed order, which the published one cannot meet",
                ));
            }
        }
        Ok(TaskWindows {
            task_digest: task.digest(),
            dense: match ids {
                Ids::Published => Vec::new(),
                Ids::Dense => dense(&task),
            },
            alphabet: match ids {
                Ids::Published => Vec::new(),
                Ids::Dense => task.alphabet(),
            },
            task,
            options,
            published: Box::new(Random::new(seed)),
            next: 0,
            scratch: Box::default(),
            tape: Tape::default(),
            starts: Vec::new(),
        })
    }

    /// The least vocabulary an architecture needs for these windows.
    pub fn vocab(&self) -> u32 {
        match self.options.ids {
            Ids::Published => self.task.vocab(),
            Ids::Dense => self.task.alphabet().len() as u32,
        }
    }

    pub fn task(&self) -> &Task {
        &self.task
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The sample that window `number` begins with, in published numbers and whole, whatever the windows' length.
    pub fn first_sample(&mut self, number: u64) -> &Tape {
        let TaskWindows { task, task_digest, options, scratch, tape, .. } = self;
        let mut random = generator(task_digest, options, number);
        tape.clear();
        task.sample(&mut random, options.mode, scratch, tape);
        tape
    }

    /// What windows have for a published token.
    pub fn id(&self, token: u32) -> i64 {
        match self.options.ids {
            Ids::Published => i64::from(token),
            Ids::Dense => self.dense.get(token as usize).map_or(i64::MAX, |id| i64::from(*id)),
        }
    }

    /// The published token that windows have as `id`; of what stands for none, a number that is no token.
    pub fn token(&self, id: i64) -> u32 {
        let id = usize::try_from(id).unwrap_or(usize::MAX);
        match self.options.ids {
            Ids::Published => u32::try_from(id).unwrap_or(u32::MAX),
            Ids::Dense => self.alphabet.get(id).copied().unwrap_or(u32::MAX),
        }
    }

    /// Fills `batch` with the windows of these numbers, one a row. In the published order they must be the next
    /// ones.
    pub fn fill(&mut self, numbers: Range<u64>, batch: &mut Batch) -> Result<(), DataError> {
        let rows = numbers.end.saturating_sub(numbers.start);
        match self.options.order {
            Order::Indexed => {}
            Order::Published if numbers.start == self.next => {}
            Order::Published => {
                return Err(DataError::new(
                    format!(
                        "the published order is one sequence from one seed: its next window is {}, not {}",
                        self.next, numbers.start
                    ),
                    "set order = \"indexed\" to reach any window, or replay the sequence up to it",
                ));
            }
        }
        batch.reset(rows as usize, self.options.seq_len);
        for (row, number) in numbers.enumerate() {
            self.make(number);
            self.push(batch, row);
        }
        Ok(())
    }

    /// Refuses ranks that would have to share one sequence.
    pub fn check_ranks(&self, ranks: u32) -> Result<(), DataError> {
        match self.options.order {
            Order::Indexed => Ok(()),
            Order::Published if ranks == 1 => Ok(()),
            Order::Published => Err(DataError::new(
                format!(
                    "the published order is one sequence from one seed and cannot be shared by {ranks} ranks"
                ),
                "set order = \"indexed\", or run on one rank",
            )),
        }
    }

    /// Brings the published order to window `number`, by making all windows before it again. Nothing to do for the
    /// indexed order.
    pub fn replay_to(&mut self, number: u64) {
        match self.options.order {
            Order::Indexed => {}
            Order::Published => {
                if number < self.next {
                    *self.published = Random::new(self.options.seed);
                    self.next = 0;
                }
                while self.next < number {
                    self.make(self.next);
                }
            }
        }
    }

    /// Puts window `number` on the tape, `seq_len` + 1 tokens or more.
    fn make(&mut self, number: u64) {
        let TaskWindows {
            task,
            task_digest,
            options,
            dense,
            alphabet: _,
            published,
            next,
            scratch,
            tape,
            starts,
        } = self;
        let mut keyed;
        let random = match options.order {
            Order::Indexed => {
                keyed = generator(task_digest, options, number);
                &mut keyed
            }
            Order::Published => {
                *next = number + 1;
                published.as_mut()
            }
        };
        tape.clear();
        starts.clear();
        // Where the window begins on the tape.
        let mut start = 0;
        while tape.tokens.len() <= start + options.seq_len {
            let first = tape.tokens.is_empty();
            // Tasks with labels have none.
            tape.tokens.extend(task.separator());
            starts.push(tape.tokens.len());
            task.sample(random, options.mode, scratch, tape);
            if first && task.cuts_anywhere() && options.split == Split::Train {
                start = random.index(tape.tokens.len());
            }
        }
        tape.cut_before(start);
        if !dense.is_empty() {
            for token in &mut tape.tokens {
                *token = dense.get(*token as usize).copied().unwrap_or(*token);
            }
        }
    }

    /// Copies the window on the tape to row `row` of `batch`, cut to length.
    fn push(&self, batch: &mut Batch, row: usize) {
        let seq_len = self.options.seq_len;
        let Tape { tokens, labels, answers } = &self.tape;
        let labels = match self.options.loss_on {
            LossOn::Answer => Some(labels.as_slice()),
            LossOn::All => None,
        };
        batch.push_window(tokens.get(..=seq_len).unwrap_or_default(), labels);
        for span in answers.iter().filter(|span| span.start <= seq_len) {
            // Target i is token i + 1. A sample starts with bos, so no answer is the window's first token.
            let start = span.start.saturating_sub(1);
            let len = span.len.min(seq_len - start);
            batch.push_answer(Answer {
                row,
                start,
                len,
                level: span.level,
                complete: len == span.len,
            });
        }
    }
}

/// The place in the alphabet of each published token; of others, a number that is no token.
fn dense(task: &Task) -> Vec<u32> {
    let mut table = vec![u32::MAX; task.vocab() as usize];
    for (place, token) in task.alphabet().into_iter().enumerate() {
        if let Some(entry) = table.get_mut(token as usize) {
            *entry = place as u32;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::batch::{IGNORED, digest_of_windows};
    use proptest::prelude::*;
    use serde_json::json;

    fn depo() -> Task {
        let params = json!({"N": 12, "K": 2, "mini_vocab": 50, "min_tlen": 1, "max_tlen": 2});
        Task::parse("depo", params).unwrap()
    }

    fn brevo() -> Task {
        Task::parse("brevo", json!({"N": 12})).unwrap()
    }

    fn mano() -> Task {
        Task::parse("mano", json!({"L": 10})).unwrap()
    }

    fn options(order: Order) -> Options {
        Options {
            seq_len: 128,
            seed: 42,
            split: Split::Train,
            mode: Mode::Train,
            order,
            loss_on: LossOn::Answer,
            ids: Ids::Published,
        }
    }

    fn batch(windows: &mut TaskWindows, numbers: Range<u64>) -> Batch {
        let mut batch = Batch::default();
        windows.fill(numbers, &mut batch).unwrap();
        batch
    }

    /// Section 8, written the slow way: samples one by one, cut at the window's end.
    fn packed_slowly(
        task: &Task,
        mode: Mode,
        random: &mut Random,
        seq_len: usize,
    ) -> (Vec<u32>, Vec<u8>) {
        let (mut tokens, mut labels) = (Vec::new(), Vec::new());
        let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
        while tokens.len() < seq_len + 1 {
            tape.clear();
            task.sample(random, mode, &mut scratch, &mut tape);
            for (i, &token) in tape.tokens.iter().enumerate() {
                if tokens.len() < seq_len + 1 {
                    tokens.push(token);
                    labels.push(tape.labels.get(i).copied().unwrap_or(0));
                }
            }
        }
        (tokens, labels)
    }

    #[test]
    fn published_windows_are_whole_samples_in_stream_order() {
        for loss_on in [LossOn::Answer, LossOn::All] {
            let mut windows =
                TaskWindows::new(depo(), Options { loss_on, ..options(Order::Published) }).unwrap();
            let mut random = Random::new(42);
            let mut last = Batch::default();
            for number in 0..20 {
                let (tokens, labels) = packed_slowly(&depo(), Mode::Train, &mut random, 128);
                last = batch(&mut windows, number..number + 1);
                assert_eq!(last.inputs()[0], 9999, "a window begins with a sample");
                for i in 0..128 {
                    assert_eq!(last.inputs()[i], i64::from(tokens[i]));
                    let counts = labels[i + 1] == 1 || loss_on == LossOn::All;
                    let want = if counts { i64::from(tokens[i + 1]) } else { IGNORED };
                    assert_eq!(last.targets()[i], want);
                }
            }
            // Replaying forwards and backwards comes to the same window.
            windows.replay_to(30);
            windows.replay_to(19);
            assert_eq!(batch(&mut windows, 19..20), last);
        }
    }

    #[test]
    fn the_published_order_refuses_what_it_cannot_do() {
        let mut windows = TaskWindows::new(depo(), options(Order::Published)).unwrap();
        batch(&mut windows, 0..4);
        let error = windows.fill(7..8, &mut Batch::default()).unwrap_err();
        assert!(error.message.contains("its next window is 4, not 7"), "{error}");
        assert!(windows.check_ranks(1).is_ok());
        assert!(windows.check_ranks(2).unwrap_err().message.contains("2 ranks"));
        let held_out = Options { split: Split::HeldOut, ..options(Order::Published) };
        assert!(TaskWindows::new(depo(), held_out).unwrap_err().message.contains("held out"));
    }

    #[test]
    fn answers_point_at_targets_and_cut_ones_say_so() {
        let (mut complete, mut cut) = (0, 0);
        let depo_marker: fn(u32) -> bool = |token| token == 9500;
        let brevo_marker = |token| token == 9998;
        let mano_marker = |token| token % 10 / 4 == 1;
        for (task, loss_on, is_marker) in [
            (depo(), LossOn::Answer, depo_marker),
            (brevo(), LossOn::Answer, brevo_marker),
            (mano(), LossOn::All, mano_marker),
        ] {
            let mut windows =
                TaskWindows::new(task.clone(), Options { loss_on, ..options(Order::Indexed) })
                    .unwrap();
            let batch = batch(&mut windows, 0..64);
            for row in 0..64 {
                let random_key =
                    window_key(&task.digest(), Split::Train, Mode::Train, 42, row as u64);
                let mut random = Random::from_key(random_key.as_bytes());
                let (tokens, labels) = packed_slowly(&task, Mode::Train, &mut random, 128);
                let answers: Vec<&Answer> =
                    batch.answers().iter().filter(|answer| answer.row == row).collect();
                let mut in_answers = 0;
                for answer in &answers {
                    assert!(answer.len > 0 && answer.start + answer.len <= 128);
                    assert!(answer.complete || answer.start + answer.len == 128);
                    for target in answer.start..answer.start + answer.len {
                        let want = i64::from(tokens[target + 1]);
                        assert_eq!(batch.targets()[row * 128 + target], want);
                    }
                    assert!(is_marker(tokens[answer.start]));
                    in_answers += answer.len;
                    complete += usize::from(answer.complete);
                    cut += usize::from(!answer.complete);
                }
                if loss_on == LossOn::Answer {
                    // Brevo's end is its answer marker once more.
                    let markers =
                        (1..=128).filter(|&i| labels[i] == 1 && is_marker(tokens[i])).count();
                    let labelled = (1..=128).filter(|&i| labels[i] == 1).count();
                    assert_eq!(in_answers + markers, labelled);
                }
            }
        }
        assert!(complete > 500 && cut > 0, "{complete} complete, {cut} cut");
    }

    #[test]
    fn mano_windows_score_every_value() {
        let test = Options {
            mode: Mode::Test,
            split: Split::HeldOut,
            loss_on: LossOn::All,
            ..options(Order::Indexed)
        };
        let mut windows = TaskWindows::new(mano(), test).unwrap();
        let batch = batch(&mut windows, 0..8);
        // 25 tokens a sample at L = 10: five whole ones in 129 tokens.
        assert_eq!(batch.answers().len(), 8 * 5);
        assert!(batch.answers().iter().all(|answer| answer.complete && answer.level == 10));
        assert_eq!(batch.counted_targets(), 8 * 128);
    }

    #[test]
    fn everything_that_should_key_a_window_does() {
        let first = |options: Options| batch(&mut TaskWindows::new(depo(), options).unwrap(), 0..1);
        let base = options(Order::Indexed);
        let others = [
            Options { seed: 43, ..base },
            Options { split: Split::HeldOut, ..base },
            Options { mode: Mode::Test, ..base },
            Options { order: Order::Published, ..base },
        ];
        for other in others {
            assert_ne!(first(other).inputs(), first(base).inputs(), "{other:?}");
        }
        // The loss is no part of the key, and a shorter window begins the longer one.
        assert_eq!(first(Options { loss_on: LossOn::All, ..base }).inputs(), first(base).inputs());
        assert_eq!(first(Options { seq_len: 64, ..base }).inputs(), &first(base).inputs()[..64]);
        // The keying never changes: it decides every indexed run's data.
        let digest = digest_of_windows(&first(base).window_digests());
        assert_eq!(
            digest.to_hex().as_str(),
            "3b1dd0f086f2ffecc38da8fd77a95d239059dc7bd2af8331d5feb7c38499b567"
        );
    }

    #[test]
    fn windows_that_could_hold_no_answer_are_refused() {
        let error = TaskWindows::new(depo(), Options { seq_len: 9, ..options(Order::Indexed) })
            .unwrap_err();
        assert!(
            error.message.contains("takes 11 tokens") && error.help.contains("10 or more"),
            "{error}"
        );
        assert!(
            TaskWindows::new(depo(), Options { seq_len: 10, ..options(Order::Indexed) }).is_ok()
        );
        assert!(
            TaskWindows::new(depo(), Options { seq_len: 0, ..options(Order::Indexed) }).is_err()
        );
        assert!(
            TaskWindows::new(depo(), Options { seq_len: usize::MAX, ..options(Order::Indexed) })
                .is_err()
        );
        let error = TaskWindows::new(mano(), options(Order::Indexed)).unwrap_err();
        assert!(error.message.contains("do not label"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_walk_over_indexed_windows_gives_the_same_windows(
            seed: u64,
            starts in prop::collection::vec(0u64..1 << 40, 1..5),
            rows in 1u64..4,
        ) {
            let options = Options { seed, ..options(Order::Indexed) };
            let mut walked = TaskWindows::new(depo(), options).unwrap();
            for start in starts {
                let together = batch(&mut walked, start..start + rows);
                for row in 0..rows {
                    let alone = batch(
                        &mut TaskWindows::new(depo(), options).unwrap(),
                        start + row..start + row + 1,
                    );
                    let at = row as usize;
                    prop_assert_eq!(alone.inputs(), &together.inputs()[at * 128..(at + 1) * 128]);
                    prop_assert_eq!(&alone.window_digests()[0], &together.window_digests()[at]);
                }
            }
        }
    }

    #[test]
    fn what_separates_samples_comes_before_each() {
        let lano = Task::parse("lano", json!({"config": "cfg3f"})).unwrap();
        let options = Options { seq_len: 512, loss_on: LossOn::All, ..options(Order::Published) };
        let mut windows = TaskWindows::new(lano.clone(), options).unwrap();
        let batch = batch(&mut windows, 0..1);
        let (mut random, mut tape, mut want) = (Random::new(42), Tape::default(), Vec::new());
        while want.len() < 512 {
            tape.clear();
            lano.sample(&mut random, Mode::Train, &mut Scratch::default(), &mut tape);
            want.push(4);
            want.extend(tape.tokens.iter().map(|&token| i64::from(token)));
        }
        assert_eq!(batch.inputs(), &want[..512]);
        assert_eq!(batch.counted_targets(), 512);
        assert_eq!((windows.vocab(), windows.task().alphabet()), (5, vec![1, 2, 3, 4]));
    }

    #[test]
    fn dense_tokens_are_places_in_the_alphabet() {
        let mano = Task::parse("mano", json!({"L": 4})).unwrap();
        for (task, loss_on) in [(depo(), LossOn::Answer), (mano, LossOn::All)] {
            let alphabet: Vec<i64> = task.alphabet().into_iter().map(i64::from).collect();
            assert!(alphabet.is_sorted_by(|a, b| a < b));
            let options = Options { loss_on, ids: Ids::Published, ..options(Order::Indexed) };
            let mut published = TaskWindows::new(task.clone(), options).unwrap();
            let mut dense = TaskWindows::new(task, Options { ids: Ids::Dense, ..options }).unwrap();
            let (mut a, mut b) = (Batch::default(), Batch::default());
            published.fill(0..50, &mut a).unwrap();
            dense.fill(0..50, &mut b).unwrap();
            let back: Vec<i64> = b.inputs().iter().map(|&i| alphabet[i as usize]).collect();
            assert_eq!(back, a.inputs());
            let most = b.inputs().iter().chain(b.targets()).max().unwrap();
            assert!(*most < i64::from(dense.vocab()));
            // Every token of the alphabet is one that samples use.
            let used: std::collections::BTreeSet<i64> = back.into_iter().collect();
            assert!(used.len() * 10 >= alphabet.len() * 9, "{} of {}", used.len(), alphabet.len());
        }
    }
}
