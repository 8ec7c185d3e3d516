//! An evaluation's work, shared by ranks.
//!
//! In: numbered pieces of work, and how one is done. Out: their results on rank 0. Must stay true: piece n is done by rank
//! n mod R, which alone makes what it needs, and in the same calls as in one process; rank 0 takes all results in order.

use crate::ranks::Team;
use records::run::RunError;

/// Does the pieces of this rank, of `count`, and gives rank 0 the result of each piece in order. `take` returns `None` if
/// the numbers are not a result.
pub(super) fn in_order(
    team: Option<&Team>,
    count: u64,
    make: impl FnMut(u64) -> Result<Vec<i64>, RunError>,
    take: impl FnMut(u64, &[i64]) -> Option<()>,
) -> Result<(), RunError> {
    match team {
        None => divided((0, 1), count, make, |own| Ok(Some(vec![own])), take),
        Some(team) => {
            let place = (team.ranks.rank(), team.ranks.size());
            divided(place, count, make, |own| Ok(team.lists_to_first(&own)?), take)
        }
    }
}

/// The same for one rank of so many. `exchange` gives rank 0 the lists of all ranks.
fn divided(
    (rank, ranks): (u64, u64),
    count: u64,
    mut make: impl FnMut(u64) -> Result<Vec<i64>, RunError>,
    mut exchange: impl FnMut(Vec<i64>) -> Result<Option<Vec<Vec<i64>>>, RunError>,
    mut take: impl FnMut(u64, &[i64]) -> Option<()>,
) -> Result<(), RunError> {
    for first in (0..count).step_by(usize::try_from(ranks).unwrap_or(usize::MAX)) {
        let piece = first + rank;
        let own = if piece < count { make(piece)? } else { Vec::new() };
        let Some(all) = exchange(own)? else { continue };
        for (piece, numbers) in (first..count).zip(&all) {
            take(piece, numbers).ok_or_else(|| {
                RunError::machine(
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

    /// A piece of so many numbers.
    fn piece(number: u64) -> Vec<i64> {
        (0..=number as i64 % 3).map(|at| 100 * number as i64 + at).collect()
    }

    #[test]
    fn each_rank_makes_its_own_pieces_and_the_first_has_all_in_order() {
        for (ranks, count) in [(1, 5), (2, 5), (3, 3), (3, 7), (5, 2), (4, 0)] {
            // What each other rank sends, round by round.
            let mut sent: Vec<Vec<Vec<i64>>> = Vec::new();
            for rank in 1..ranks {
                let (mut made, mut lists) = (Vec::new(), Vec::new());
                let make = |number| {
                    made.push(number);
                    Ok(piece(number))
                };
                let exchange = |own| {
                    lists.push(own);
                    Ok(None)
                };
                divided((rank, ranks), count, make, exchange, |_, _| unreachable!()).unwrap();
                let own: Vec<u64> = (rank..count).step_by(ranks as usize).collect();
                assert_eq!(made, own, "rank {rank} of {ranks}");
                sent.push(lists);
            }
            let (mut made, mut taken, mut round) = (Vec::new(), Vec::new(), 0);
            let make = |number| {
                made.push(number);
                Ok(piece(number))
            };
            let exchange = |own| {
                let others = sent.iter().map(|lists| lists[round].clone());
                let all = std::iter::once(own).chain(others).collect();
                round += 1;
                Ok(Some(all))
            };
            let take = |number, numbers: &[i64]| {
                taken.push((number, numbers.to_vec()));
                Some(())
            };
            divided((0, ranks), count, make, exchange, take).unwrap();
            assert_eq!(made, (0..count).step_by(ranks as usize).collect::<Vec<u64>>());
            let wanted: Vec<_> = (0..count).map(|number| (number, piece(number))).collect();
            assert_eq!(taken, wanted, "{ranks} ranks");
        }
    }

    #[test]
    fn an_incomplete_result_is_an_error() {
        let all = |own| Ok(Some(vec![own]));
        let error = divided((0, 1), 2, |n| Ok(piece(n)), all, |n, _| (n == 0).then_some(()));
        assert!(error.unwrap_err().message.contains("part 1 of an evaluation"));
    }
}
