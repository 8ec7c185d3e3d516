//! Runs contenders in turn, so that a busy moment affects all of them.

use std::hint::black_box;
use std::time::Instant;

/// Gives each contender a turn in every round, in an order that each round reverses. `begin` is called before a round,
/// with its number.
pub fn take_turns<T, E>(
    contenders: &mut [T],
    rounds: usize,
    mut begin: impl FnMut(usize) -> Result<(), E>,
    mut turn: impl FnMut(&mut T) -> Result<(), E>,
) -> Result<(), E> {
    for round in 0..rounds {
        begin(round)?;
        let mut order: Vec<&mut T> = contenders.iter_mut().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        order.into_iter().try_for_each(&mut turn)?;
    }
    Ok(())
}

/// Milliseconds of a call.
pub fn clock<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<f64, E> {
    let began = Instant::now();
    let result = work()?;
    let milliseconds = began.elapsed().as_secs_f64() * 1e3;
    drop(black_box(result));
    Ok(milliseconds)
}

/// Seconds of the fastest of a few calls.
pub fn fastest<T, E>(mut work: impl FnMut() -> Result<T, E>) -> Result<f64, E> {
    const CALLS: usize = 6;
    let mut best = f64::INFINITY;
    for _ in 0..CALLS {
        best = best.min(clock(&mut work)? / 1e3);
    }
    Ok(best)
}
