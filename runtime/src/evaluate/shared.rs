//! Divides an evaluation among ranks.
//!
//! Piece n of the work is done by rank n mod R, with the same calls as in a single process, and rank 0 receives
//! all results in order, so the result does not depend on the number of ranks. When one rank receives a request to
//! stop, all ranks stop after the same piece.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use dsl::Problem;

use crate::error::ExecuteError;
use crate::ranks::{Lists, Team};

/// Why an evaluation has no result.
#[derive(Debug)]
pub(super) enum Ended {
    /// A rank received a request to stop.
    Stopped,
    Failed(Problem),
}

impl From<Problem> for Ended {
    fn from(error: Problem) -> Ended {
        Ended::Failed(error)
    }
}

impl From<ExecuteError> for Ended {
    fn from(error: ExecuteError) -> Ended {
        Ended::Failed(error.into())
    }
}

/// The ranks that share an evaluation.
#[derive(Clone, Copy)]
pub(super) struct Sharing<'a> {
    pub(super) team: Option<&'a Team>,
    /// Set when this process should stop.
    pub(super) stop: &'a AtomicBool,
}

impl Sharing<'_> {
    /// Computes this rank's share of `count` pieces with `make`. On rank 0, calls `take` with the result of every piece
    /// in order; `take` returns `None` if the numbers are not a valid result.
    pub(super) fn in_order(
        self,
        count: u64,
        make: impl FnMut(u64) -> Result<Vec<i64>, Problem>,
        take: impl FnMut(u64, &[i64]) -> Option<()>,
    ) -> Result<(), Ended> {
        let stops = || self.stop.load(Ordering::Relaxed);
        match self.team {
            None => {
                let exchange = |local, stops| {
                    Ok(match stops {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(Some(vec![local])),
                    })
                };
                divided((0, 1), count, stops, make, exchange, take)
            }
            Some(team) => {
                let position = (team.ranks.rank(), team.ranks.size());
                let exchange = |local: Vec<i64>, stops| Ok(team.lists_to_first(&local, stops)?);
                divided(position, count, stops, make, exchange, take)
            }
        }
    }
}

/// [`Sharing::in_order`] for the given rank. `exchange` returns the lists of all ranks on rank 0, and on every rank
/// whether one stops.
fn divided(
    (rank, ranks): (u64, u64),
    count: u64,
    stops: impl Fn() -> bool,
    mut make: impl FnMut(u64) -> Result<Vec<i64>, Problem>,
    mut exchange: impl FnMut(Vec<i64>, bool) -> Result<Lists, Problem>,
    mut take: impl FnMut(u64, &[i64]) -> Option<()>,
) -> Result<(), Ended> {
    for first in (0..count).step_by(usize::try_from(ranks).unwrap_or(usize::MAX)) {
        let piece = first + rank;
        let stops = stops();
        let local = if piece < count && !stops { make(piece)? } else { Vec::new() };
        let all = match exchange(local, stops)? {
            ControlFlow::Break(()) => return Err(Ended::Stopped),
            ControlFlow::Continue(None) => continue,
            ControlFlow::Continue(Some(all)) => all,
        };
        for (piece, numbers) in (first..count).zip(&all) {
            take(piece, numbers).ok_or_else(|| {
                Problem::machine(
                    format!("part {piece} of an evaluation arrived incomplete"),
                    "this is a bug in canonc; please report it",
                )
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a piece; its length depends on the piece.
    fn piece(number: u64) -> Vec<i64> {
        (0..=number as i64 % 3).map(|at| 100 * number as i64 + at).collect()
    }

    #[test]
    fn each_rank_makes_its_own_pieces_and_the_first_has_all_in_order() {
        for (ranks, count) in [(1, 5), (2, 5), (3, 3), (3, 7), (5, 2), (4, 0)] {
            // What each other rank sends, round by round.
            let mut sent: Vec<Vec<Vec<i64>>> = Vec::new();
            for rank in 1..ranks {
                let (mut computed, mut lists) = (Vec::new(), Vec::new());
                let make = |number| {
                    computed.push(number);
                    Ok(piece(number))
                };
                let exchange = |local, _| {
                    lists.push(local);
                    Ok(ControlFlow::Continue(None))
                };
                let take = |_, _: &[i64]| unreachable!();
                divided((rank, ranks), count, || false, make, exchange, take).unwrap();
                let expected: Vec<u64> = (rank..count).step_by(ranks as usize).collect();
                assert_eq!(computed, expected, "rank {rank} of {ranks}");
                sent.push(lists);
            }
            let (mut computed, mut taken, mut round) = (Vec::new(), Vec::new(), 0);
            let make = |number| {
                computed.push(number);
                Ok(piece(number))
            };
            let exchange = |local, _| {
                let others = sent.iter().map(|lists| lists[round].clone());
                let all = std::iter::once(local).chain(others).collect();
                round += 1;
                Ok(ControlFlow::Continue(Some(all)))
            };
            let take = |number, numbers: &[i64]| {
                taken.push((number, numbers.to_vec()));
                Some(())
            };
            divided((0, ranks), count, || false, make, exchange, take).unwrap();
            assert_eq!(computed, (0..count).step_by(ranks as usize).collect::<Vec<u64>>());
            let wanted: Vec<_> = (0..count).map(|number| (number, piece(number))).collect();
            assert_eq!(taken, wanted, "{ranks} ranks");
        }
    }

    #[test]
    fn an_incomplete_result_is_an_error() {
        let all = |local, _| Ok(ControlFlow::Continue(Some(vec![local])));
        let make = |n| Ok(piece(n));
        let error = divided((0, 1), 2, || false, make, all, |n, _| (n == 0).then_some(()));
        let Err(Ended::Failed(error)) = error else { panic!("{error:?}") };
        assert!(error.message.contains("part 1 of an evaluation"));
    }

    #[test]
    fn who_is_asked_to_stop_makes_no_further_piece() {
        let stop = AtomicBool::new(false);
        let mut computed = Vec::new();
        let make = |number| {
            computed.push(number);
            stop.store(number == 1, Ordering::Relaxed);
            Ok(piece(number))
        };
        let end = Sharing { team: None, stop: &stop }.in_order(5, make, |_, _| Some(()));
        assert!(matches!(end, Err(Ended::Stopped)), "{end:?}");
        assert_eq!(computed, [0, 1]);
        // Another rank received the request.
        let exchange = |_, _| Ok(ControlFlow::Break(()));
        let end = divided((1, 2), 5, || false, |n| Ok(piece(n)), exchange, |_, _| unreachable!());
        assert!(matches!(end, Err(Ended::Stopped)), "{end:?}");
    }
}
