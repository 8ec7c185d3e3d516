//! Turns a plan and data into a run folder. This is the only crate that links libtorch.
//!
//! In: locks, plans and windows of tokens. Out: training, evaluation, generation, and their records. Must stay true:
//! a run is a function of its lock; device and dtype are arguments everywhere.

pub mod kernels;
mod error;
pub mod observe;
pub mod weights;
pub mod execute;
pub mod forward;
pub mod generate;
pub mod decode;
pub mod ranks;
pub mod state;
pub mod likelihood;
pub mod answer;
pub mod evaluate;
pub mod train;
pub mod replay;
pub mod reproduce;
pub mod selftest;

/// The words of libtorch that requests and results are written in.
pub use tch::{Device, Kind, Tensor};
