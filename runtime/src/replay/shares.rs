//! Which steps of a run to train again.

/// How many steps to compute again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Steps(u64),
    All,
}

/// How many steps to compute from each start. All steps between the last kept checkpoint and the one before it are among
/// them, whatever they cost: only they lead to the last state, which is what others use. So are two from the initial
/// weights. The update of a step shows in the step after it, or in the checkpoint after it, so each other start gets two
/// steps, or all up to the next start, the latest first. What is left goes to the same starts, one step each in turn.
pub(super) fn shares(starts: &[u64], last: u64, amount: Amount) -> Vec<(u64, u64)> {
    let ends = starts.iter().skip(1).copied().chain([last]);
    let room: Vec<u64> =
        starts.iter().zip(ends).map(|(start, end)| end.saturating_sub(*start)).collect();
    let total: u64 = room.iter().sum();
    let mut left = match amount {
        Amount::All => total,
        Amount::Steps(steps) => steps.min(total),
    };
    let leads_to_last = room.len().checked_sub(2);
    let from_initial = if leads_to_last.is_some() { 2 } else { left.min(2) };
    let mut shares = vec![0; room.len()];
    for (at, (room, share)) in room.iter().zip(&mut shares).enumerate() {
        *share = match at {
            at if Some(at) == leads_to_last => *room,
            0 => from_initial.min(*room),
            _ => 0,
        };
        left = left.saturating_sub(*share);
    }
    for at in (1..room.len()).rev().filter(|at| Some(*at) != leads_to_last) {
        let (Some(room), Some(share)) = (room.get(at), shares.get_mut(at)) else { continue };
        let unit = 2.min(*room);
        if unit <= left {
            *share = unit;
            left -= unit;
        }
    }
    while left > 0 {
        // Steps that continue others, if there is room for any.
        let begun = room.iter().zip(&shares).any(|(room, share)| *share > 0 && share < room);
        let is_open = |room: u64, share: u64| share < room && (share > 0 || !begun);
        let open = room.iter().zip(&shares).filter(|(room, share)| is_open(**room, **share));
        let open = open.count() as u64;
        // As many whole rounds as every open start has room for, then one step at a time.
        let round = (left / open.max(1)).min(
            room.iter()
                .zip(&shares)
                .filter(|(room, share)| is_open(**room, **share))
                .map(|(room, share)| room - share)
                .min()
                .unwrap_or(0),
        );
        let first = (0..room.len()).take(1);
        for at in first.chain((1..room.len()).rev()) {
            let (Some(room), Some(share)) = (room.get(at), shares.get_mut(at)) else { continue };
            if !is_open(*room, *share) {
                continue;
            }
            let more = round.max(1).min(room - *share).min(left);
            *share += more;
            left -= more;
        }
    }
    starts.iter().copied().zip(shares).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_shared_out_from_the_start_and_the_latest_checkpoints() {
        for (starts, last, amount, wanted) in [
            (&[0][..], 8, Amount::All, vec![(0, 8)]),
            (&[0], 8, Amount::Steps(3), vec![(0, 3)]),
            (&[0], 8, Amount::Steps(1), vec![(0, 1)]),
            (&[0, 6, 8], 8, Amount::All, vec![(0, 6), (6, 2), (8, 0)]),
            (&[0, 6, 8], 8, Amount::Steps(100), vec![(0, 6), (6, 2), (8, 0)]),
            (&[0, 6, 8], 8, Amount::Steps(1), vec![(0, 2), (6, 2), (8, 0)]),
            (&[0, 6, 8], 8, Amount::Steps(5), vec![(0, 3), (6, 2), (8, 0)]),
            (&[0, 500, 600], 600, Amount::Steps(32), vec![(0, 2), (500, 100), (600, 0)]),
            (&[0, 60, 120], 120, Amount::Steps(8), vec![(0, 2), (60, 60), (120, 0)]),
            (&[0, 60, 120], 120, Amount::Steps(80), vec![(0, 20), (60, 60), (120, 0)]),
            (&[0, 120], 120, Amount::Steps(8), vec![(0, 120), (120, 0)]),
            // An unfinished run: its last state is that of its last checkpoint.
            (&[0, 2, 4], 60, Amount::Steps(8), vec![(0, 2), (2, 2), (4, 4)]),
            (&[0, 2, 4, 6, 8], 8, Amount::Steps(6), vec![(0, 2), (2, 0), (4, 2), (6, 2), (8, 0)]),
            (
                &[0, 1_000_000],
                2_000_000_000_000,
                Amount::All,
                vec![(0, 1_000_000), (1_000_000, 1_999_999_000_000)],
            ),
        ] {
            assert_eq!(shares(starts, last, amount), wanted, "{starts:?} {amount:?}");
        }
    }
}
