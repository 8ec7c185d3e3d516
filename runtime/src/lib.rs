//! Trains, evaluates and generates with libtorch: turns a plan and data into a run folder. No other crate links
//! libtorch.
//!
//! A run is a function of its lock. Device and dtype are arguments everywhere.

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
pub mod elsewhere;
pub mod selftest;

/// The words of libtorch that requests and results are written in.
pub use tch::{Device, Kind, Tensor};
