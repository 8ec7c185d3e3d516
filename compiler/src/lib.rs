//! From parsed text to a locked experiment and a plan: every decision of canonc, none of its effects.
//!
//! In: syntax trees and recipes, as values. Out: graphs, locks, comparisons and plans. Must stay
//! true: pure (no files, clock, environment, threads, randomness, torch); exact arithmetic decides
//! every field; data flows in the order of the modules below.

#![forbid(unsafe_code)]

pub mod analyse;
pub mod arch;
pub mod canonical;
mod diag;
pub mod digest;
pub mod elaborate;
pub mod erase;
pub mod graph;
mod inline;
mod names;
pub mod op;
mod order;
pub mod plan;
pub mod program;
mod rename;
pub mod resolve;
pub mod tree;
pub mod value;
