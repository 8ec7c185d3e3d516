//! Logs of runs that other programs trained: their series by step, and how they agree with a lock.
//!
//! A log proves nothing about the run: who names a lock beside it says that it is of that lock. Every size is bounded before
//! memory is used, and what a log does not say is never guessed.

#![warn(missing_docs)]

mod series;
mod program;
mod json;
mod columns;
mod events;
mod log;
mod check;

pub use check::{Agreement, Check, Difference, check};
pub use log::{Log, MOST_BYTES, parse};
pub use program::{Names, Quantity};
pub use series::Points;
