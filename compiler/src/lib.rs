//! Compiles parsed text to a locked experiment and a plan: every decision of canonc, no side effects.
//!
//! In: syntax trees and recipes, as values. Out: graphs, locks, comparisons and plans. Must stay
//! true: pure (no files, clock, environment, threads, randomness, torch); exact arithmetic decides
//! every field; data flows in the order of the modules below.

#![forbid(unsafe_code)]

pub mod analyse;
pub mod arch;
mod arrange;
pub mod artifacts;
pub mod audit;
pub mod canonical;
pub mod compare;
mod diag;
mod differentiate;
pub mod digest;
pub mod draw;
pub mod elaborate;
pub mod erase;
pub mod field;
mod fuse;
pub mod graph;
mod inline;
pub mod lock;
pub mod lower;
mod names;
pub mod op;
mod order;
pub mod plan;
pub mod precision;
pub mod program;
pub mod recipe;
mod recover;
mod rename;
pub mod resolve;
pub mod tree;
pub mod value;
