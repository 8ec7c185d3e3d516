//! Samples of a task one by one. In the published order sample i is the i-th that the published script makes from that
//! seed; in the indexed order it is the first sample of training window i, independent of all other samples.

use super::Split;
use super::window::{Order, window_key};
use dsl::Problem;
use tasks::cpython::Random;
use tasks::sample::{Mode, Tape};
use tasks::task::{Scratch, Task};

/// Samples of a task by number.
#[derive(Clone, Debug)]
pub struct Stream {
    task: Task,
    digest: blake3::Hash,
    order: Order,
    mode: Mode,
    seed: u64,
    random: Box<Random>,
    next: u64,
    scratch: Box<Scratch>,
    tape: Tape,
}

impl Stream {
    /// In the published order the task may have its own draws and seed: see [`Task::published`].
    pub fn new(task: Task, order: Order, mode: Mode, seed: u64) -> Stream {
        let (task, start) = match order {
            Order::Published => task.published(seed),
            Order::Indexed => (task, seed),
        };
        Stream {
            digest: task.digest(),
            task,
            order,
            mode,
            seed,
            random: Box::new(Random::new(start)),
            next: 0,
            scratch: Box::default(),
            tape: Tape::default(),
        }
    }

    /// The task that makes the samples.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The number of the next sample.
    pub fn number(&self) -> u64 {
        self.next
    }

    /// Moves to sample `number`, to give `count` samples from there. Only the indexed order can start anywhere.
    pub fn skip_to(&mut self, number: u64, count: u64) -> Result<(), Problem> {
        if number.checked_add(count).is_none() {
            return Err(Problem::input(
                format!(
                    "from is {number} and count {count}, but the largest sample number is {}",
                    u64::MAX - 1
                ),
                match u64::MAX - number {
                    0 => "start from a smaller number".to_owned(),
                    left => format!("set count to {left} or less, or start from a smaller number"),
                },
            ));
        }
        match self.order {
            Order::Indexed => {
                self.next = number;
                Ok(())
            }
            Order::Published if number == self.next => Ok(()),
            Order::Published => Err(Problem::input(
                format!(
                    "the published order is one sequence: its next sample is {}, not {number}",
                    self.next
                ),
                "start from 0, or add --order indexed",
            )),
        }
    }

    /// The next sample.
    pub fn sample(&mut self) -> &Tape {
        self.seek();
        let Stream { task, order, mode, random, next, scratch, tape, .. } = self;
        tape.clear();
        match order {
            Order::Published => task.sample_published(*next, random, *mode, scratch, tape),
            Order::Indexed => task.sample(random, *mode, scratch, tape),
        }
        *next += 1;
        tape
    }

    /// The generator of the next sample, before its draws.
    pub fn generator(&mut self) -> Random {
        self.seek();
        Random::clone(&self.random)
    }

    /// Moves the generator to where the next sample begins.
    fn seek(&mut self) {
        match self.order {
            Order::Indexed => {
                let key = window_key(&self.digest, Split::Train, self.mode, self.seed, self.next);
                *self.random = Random::from_key(key.as_bytes());
            }
            Order::Published => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::window::{Ids, LossOn, Options, TaskWindows};
    use serde_json::json;
    use tasks::DEFINITIONS;
    use tasks::capo::{self, Capo};
    use tasks::task::Generator;

    /// Every task, with the parameters of its example.
    fn tasks() -> Vec<Task> {
        let example = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
        DEFINITIONS.map(|definition| definition.task(example(definition.example)).unwrap()).into()
    }

    #[test]
    fn indexed_samples_begin_their_windows() {
        for task in tasks() {
            let options = Options {
                seq_len: 2048,
                seed: 3,
                split: Split::Train,
                mode: Mode::Train,
                order: Order::Indexed,
                loss_on: LossOn::All,
                ids: Ids::Published,
            };
            let mut windows = TaskWindows::new(task.clone(), options).unwrap();
            let mut stream = Stream::new(task.clone(), Order::Indexed, Mode::Train, 3);
            stream.skip_to(5, 3).unwrap();
            for number in 5..8 {
                let mut random = stream.generator();
                let tape = stream.sample();
                let mut again = Tape::default();
                task.sample(&mut random, Mode::Train, &mut Scratch::default(), &mut again);
                assert_eq!(again.tokens, tape.tokens);
                let mut batch = Batch::default();
                windows.fill(number..number + 1, &mut batch).unwrap();
                let mut from = usize::from(task.separator().is_some());
                let mut want: Vec<i64> =
                    tape.tokens.iter().map(|&token| i64::from(token)).collect();
                if task.cuts_anywhere() {
                    // The window starts inside a sample, with the rest of it up to the next separator.
                    let end = i64::from(task.separator().unwrap());
                    let left = batch.inputs().iter().skip(1).position(|&token| token == end);
                    let left = left.unwrap() + 1;
                    let cut = (want.len() + 1).saturating_sub(left).saturating_sub(1);
                    from = usize::from(left > want.len());
                    want.drain(..cut);
                }
                assert_eq!(batch.inputs()[from..][..want.len()], want, "{} {number}", task.name());
            }
            assert_eq!(stream.number(), 8);
        }
    }

    #[test]
    fn published_samples_come_in_turn() {
        for task in tasks() {
            let mut stream = Stream::new(task.clone(), Order::Published, Mode::Train, 3);
            let (mut random, mut scratch, mut tape) =
                (Random::new(3), Scratch::default(), Tape::default());
            let mut names = Vec::new();
            for _ in 0..8 {
                let got = stream.sample();
                if task.name() == "capo" {
                    names.push(got.tokens[got.answers[0].start..][..got.answers[0].len].to_vec());
                    continue;
                }
                tape.clear();
                task.sample(&mut random, Mode::Train, &mut scratch, &mut tape);
                assert_eq!(got.tokens, tape.tokens);
            }
            if task.name() == "capo" {
                // Seven people, then the first one again.
                assert_eq!(names[7], names[0]);
                names.sort();
                names.dedup();
                assert_eq!(names.len(), 7);
            }
            assert!(stream.skip_to(8, 1).is_ok());
            assert!(
                stream.skip_to(0, 1).unwrap_err().message.contains("its next sample is 8, not 0")
            );
        }
    }

    #[test]
    fn sample_numbers_past_64_bits_are_refused() {
        let task = Task::parse("mano", json!({"L": 4})).unwrap();
        let mut stream = Stream::new(task, Order::Indexed, Mode::Train, 3);
        stream.skip_to(u64::MAX - 2, 2).unwrap();
        stream.sample();
        stream.sample();
        assert_eq!(stream.number(), u64::MAX);
        for (from, count) in [(u64::MAX - 2, 3), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)]
        {
            let error = stream.skip_to(from, count).unwrap_err();
            let want = format!("from is {from} and count {count}, but");
            assert!(error.message.contains(&want), "{error}");
        }
    }

    #[test]
    fn biographies_are_cut_anywhere_in_training_and_nowhere_else() {
        let parameters = json!({"N": 7, "permute": true});
        let task = Task::parse("capo", &parameters).unwrap();
        let capo = Capo::new(&capo::DEFINITION.arguments(&parameters).unwrap()).unwrap();
        let end = i64::from(task.separator().unwrap());
        let windows = |split| {
            let options = Options {
                seq_len: 1024,
                seed: 3,
                split,
                mode: Mode::Train,
                order: Order::Indexed,
                loss_on: LossOn::All,
                ids: Ids::Published,
            };
            let mut windows = TaskWindows::new(task.clone(), options).unwrap();
            let mut batch = Batch::default();
            windows.fill(0..200, &mut batch).unwrap();
            batch
        };
        let (trained, held_out) = (windows(Split::Train), windows(Split::HeldOut));
        let begins =
            |batch: &Batch| batch.inputs().chunks(1024).filter(|window| window[0] == end).count();
        assert!(begins(&trained) < 10 && begins(&held_out) == 200);
        // The first end can be anywhere: after 184 tokens on average, if all biographies have 367.
        let firsts = trained
            .inputs()
            .chunks(1024)
            .filter_map(|window| window.iter().position(|token| *token == end));
        let mean = firsts.sum::<usize>() as f64 / 200.0;
        assert!((150.0..220.0).contains(&mean), "{mean}");
        // Names are still where the answers say.
        let mut names = 0;
        for answer in trained.answers().iter().filter(|answer| answer.level == 0 && answer.complete)
        {
            let at = answer.row * 1024 + answer.start;
            let name: Vec<u8> =
                trained.targets()[at..at + answer.len].iter().map(|t| *t as u8).collect();
            assert!(capo.people().iter().any(|person| person.full_name().as_bytes() == name));
            names += 1;
        }
        assert!(names > 200, "{names}");
    }
}
