//! The commands that rank 0 sends to the other ranks, each one broadcast of four numbers.

use tch::Tensor;

use super::Collectives;
use crate::error::ExecuteError;
use records::checkpoint::{PARTS, Part};

/// One thing that all ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Take over a tensor of a checkpoint, which rank 0 sends.
    Take(Part, usize),
    /// The state is that after this many updates.
    Resume(u64),
    /// Compute the update after this many.
    Step(u64),
    /// Send a tensor of the state to rank 0.
    Send(Part, usize),
    /// Write this rank's part of the checkpoint after this many updates.
    Save(u64),
    /// Evaluate the state.
    Evaluate,
    /// There is nothing more to do.
    End(Ending),
}

/// How rank 0's training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps are done, or training diverged.
    Done,
    /// It can be resumed from a checkpoint.
    Interrupted,
    /// Rank 0 reports an error.
    Failed,
}

const ENDINGS: [Ending; 3] = [Ending::Done, Ending::Interrupted, Ending::Failed];

impl Command {
    fn numbers(self) -> [i64; 4] {
        let tensor = |kind: i64, part: Part, index: usize| {
            let part = PARTS.iter().position(|known| *known == part).unwrap_or(0);
            [kind, part as i64, index as i64, 0]
        };
        match self {
            Command::Take(part, index) => tensor(1, part, index),
            Command::Resume(step) => [2, step as i64, 0, 0],
            Command::Step(step) => [3, step as i64, 0, 0],
            Command::Send(part, index) => tensor(4, part, index),
            Command::Save(step) => [7, step as i64, 0, 0],
            Command::Evaluate => [5, 0, 0, 0],
            Command::End(how) => {
                let how = ENDINGS.iter().position(|known| *known == how).unwrap_or(0);
                [6, how as i64, 0, 0]
            }
        }
    }

    fn from_numbers(numbers: [i64; 4]) -> Option<Command> {
        let [kind, a, b, _] = numbers;
        let part = || PARTS.get(usize::try_from(a).ok()?).copied();
        Some(match kind {
            1 => Command::Take(part()?, usize::try_from(b).ok()?),
            2 => Command::Resume(u64::try_from(a).ok()?),
            3 => Command::Step(u64::try_from(a).ok()?),
            4 => Command::Send(part()?, usize::try_from(b).ok()?),
            7 => Command::Save(u64::try_from(a).ok()?),
            5 => Command::Evaluate,
            6 => Command::End(*ENDINGS.get(usize::try_from(a).ok()?)?),
            _ => return None,
        })
    }

    /// Broadcasts the command to the other ranks; for rank 0.
    pub(crate) fn give(self, ranks: &dyn Collectives) -> Result<(), ExecuteError> {
        let mut numbers = Tensor::f_from_slice(&self.numbers())?;
        ranks.broadcast(&mut numbers)
    }

    /// Waits for rank 0's next command; for the other ranks.
    pub(crate) fn next(ranks: &dyn Collectives) -> Result<Command, ExecuteError> {
        let mut tensor = Tensor::f_from_slice(&[0i64; 4])?;
        ranks.broadcast(&mut tensor)?;
        let mut numbers = [0i64; 4];
        tensor.f_copy_data(&mut numbers, 4)?;
        Command::from_numbers(numbers).ok_or_else(|| {
            ExecuteError::new(format!("rank 0 sent an unknown command: {numbers:?}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_survives_encoding() {
        for command in [
            Command::Take(Part::FirstMoment, 7),
            Command::Resume(9),
            Command::Step(1 << 40),
            Command::Send(Part::SecondMoment, 0),
            Command::Save(3),
            Command::Evaluate,
            Command::End(Ending::Interrupted),
        ] {
            assert_eq!(Command::from_numbers(command.numbers()), Some(command));
        }
        assert_eq!(Command::from_numbers([0; 4]), None);
        assert_eq!(Command::from_numbers([1, 3, 0, 0]), None);
    }
}
