//! Windows packed from the samples of a task.
//!
//! Samples follow in stream order until the window is full. The last one is cut and its rest dropped; the next window
//! starts with the next sample. Capo's training windows begin anywhere in their first biography, as in the paper.
//!
//! In the indexed order, window `w` is a function of (task digest, split, mode, seed, `w`) alone. The published order
//! is one generator from one seed, so its windows can only be made in sequence.

mod key;
mod questions;

use std::ops::Range;

use dsl::Problem;

use super::Split;
use super::batch::{Answer, Batch};
use key::generator;
pub(super) use key::window_key;
pub use lab::experiment::{Ids, LossOn, Order};
pub use questions::Asked;
use tasks::cpython::Random;
use tasks::sample::{Mode, Tape};
use tasks::task::{Scratch, Task};

/// Everything except the task that determines the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Inputs per window. A window holds one more token.
    pub seq_len: usize,
    /// Seed of the samples.
    pub seed: u64,
    /// Training or held-out windows.
    pub split: Split,
    /// How sizes are drawn: as in training, or as in the published tests.
    pub mode: Mode,
    /// The published or the indexed order of samples.
    pub order: Order,
    /// Which targets the loss counts.
    pub loss_on: LossOn,
    /// Published token numbers, or dense ones.
    pub ids: Ids,
}

/// The numbered windows of one task.
#[derive(Clone, Debug)]
pub struct TaskWindows {
    task: Task,
    task_digest: blake3::Hash,
    options: Options,
    /// The dense number of each published token, then the token of each dense number. Empty for published numbers.
    dense: Vec<u32>,
    alphabet: Vec<u32>,
    /// The published order's generator, and the window that it makes next.
    published: Box<Random>,
    next: u64,
    scratch: Box<Scratch>,
    tape: Tape,
    /// Positions of the samples on the tape.
    starts: Vec<usize>,
}

impl TaskWindows {
    /// Refuses options that could only give empty or misleading windows.
    pub fn new(task: Task, options: Options) -> Result<TaskWindows, Problem> {
        let Options { seq_len, seed, split, mode, order, loss_on, ids } = options;
        let name = task.name();
        let least = task.least_tokens(mode);
        if (seq_len as u64) < least.saturating_sub(1) {
            return Err(Problem::input(
                format!(
                    "a window of seq_len {seq_len} ends before the first answer of any {name} sample, which takes {least} tokens"
                ),
                format!("set seq_len to {} or more, or make the task smaller", least - 1),
            ));
        }
        if seq_len > 1 << 24 {
            return Err(Problem::input(
                format!("seq_len is {seq_len}, more than a window can hold"),
                format!("set seq_len to {} or less", 1 << 24),
            ));
        }
        match (loss_on, task.has_labels()) {
            (LossOn::Answer, true) | (LossOn::All, true | false) => {}
            (LossOn::Answer, false) => {
                return Err(Problem::input(
                    format!("loss_on is `answer`, but {name} samples do not label their answers"),
                    "set loss_on = \"all\", as published",
                ));
            }
        }
        match (order, split) {
            (Order::Indexed, Split::Train | Split::HeldOut) | (Order::Published, Split::Train) => {}
            (Order::Published, Split::HeldOut) => {
                return Err(Problem::input(
                    "the published order is the training stream; nothing in it is held out",
                    "evaluate on the indexed order, which shares no window with the published one",
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

    /// The smallest vocabulary that an architecture needs for these windows.
    pub fn vocab(&self) -> u32 {
        match self.options.ids {
            Ids::Published => self.task.vocab(),
            Ids::Dense => self.task.alphabet().len() as u32,
        }
    }

    /// The task that makes the samples.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The options of these windows.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The first sample of window `number`, complete and in published numbers, for windows of any length.
    pub fn first_sample(&mut self, number: u64) -> &Tape {
        let TaskWindows { task, task_digest, options, scratch, tape, .. } = self;
        let mut random = generator(task_digest, options, number);
        tape.clear();
        task.sample(&mut random, options.mode, scratch, tape);
        tape
    }

    /// The windows' id for a published token.
    pub fn id(&self, token: u32) -> i64 {
        match self.options.ids {
            Ids::Published => i64::from(token),
            Ids::Dense => self.dense.get(token as usize).map_or(i64::MAX, |id| i64::from(*id)),
        }
    }

    /// The published token for the windows' `id`; for an id without one, a number that no token has.
    pub fn token(&self, id: i64) -> u32 {
        let id = usize::try_from(id).unwrap_or(usize::MAX);
        match self.options.ids {
            Ids::Published => u32::try_from(id).unwrap_or(u32::MAX),
            Ids::Dense => self.alphabet.get(id).copied().unwrap_or(u32::MAX),
        }
    }

    /// Fills `batch` with the windows of these numbers, one per row. In the published order they must be the next ones.
    pub fn fill(&mut self, numbers: Range<u64>, batch: &mut Batch) -> Result<(), Problem> {
        let rows = numbers.end.saturating_sub(numbers.start);
        match self.options.order {
            Order::Indexed => {}
            Order::Published if numbers.start == self.next => {}
            Order::Published => {
                return Err(Problem::input(
                    format!(
                        "the published order is one sequence from one seed: its next window is {}, not {}",
                        self.next, numbers.start
                    ),
                    "set order = \"indexed\" to read any window, or replay the sequence up to it",
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

    /// Refuses several ranks if they would have to share one sequence.
    pub fn check_ranks(&self, ranks: u32) -> Result<(), Problem> {
        match self.options.order {
            Order::Indexed => Ok(()),
            Order::Published if ranks == 1 => Ok(()),
            Order::Published => Err(Problem::input(
                format!(
                    "the published order is one sequence from one seed and cannot be shared by {ranks} ranks"
                ),
                "set order = \"indexed\", or run on one rank",
            )),
        }
    }

    /// Moves the published order to window `number` by making all windows before it again. Does nothing for the indexed
    /// order.
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

    /// Puts window `number` on the tape, in `seq_len` + 1 tokens or more.
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
        // Start of the window on the tape.
        let mut start = 0;
        while tape.tokens.len() <= start + options.seq_len {
            let first = tape.tokens.is_empty();
            // Tasks with labels have no separator.
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

    /// Copies the window on the tape, cut to length, to row `row` of `batch`.
    fn push(&self, batch: &mut Batch, row: usize) {
        let seq_len = self.options.seq_len;
        let Tape { tokens, labels, answers } = &self.tape;
        let labels = match self.options.loss_on {
            LossOn::Answer => Some(labels.as_slice()),
            LossOn::All => None,
        };
        batch.push_window(tokens.get(..=seq_len).unwrap_or_default(), labels);
        for span in answers.iter().filter(|span| span.start <= seq_len) {
            // Target i is token i + 1. A sample starts with bos, so an answer is never the window's first token.
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

/// The index in the alphabet of each published token; for other numbers, a number that no token has.
fn dense(task: &Task) -> Vec<u32> {
    let mut table = vec![u32::MAX; task.vocab() as usize];
    for (rank, token) in task.alphabet().into_iter().enumerate() {
        if let Some(entry) = table.get_mut(token as usize) {
            *entry = rank as u32;
        }
    }
    table
}

#[cfg(test)]
mod tests;
