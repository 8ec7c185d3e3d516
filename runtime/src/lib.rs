//! Plan and data in, a run folder out: the only crate that links libtorch, and only with its feature `torch`.
//!
//! In: locks and plans. Out: runs: metrics, checkpoints, attestations, reports. Must stay true: a run is a
//! function of its lock; data, initial values, schedules, metrics and reports need no libtorch; device and dtype
//! are arguments everywhere.

pub mod attest;
#[cfg(feature = "torch")]
pub mod bench;
pub(crate) mod checked;
pub mod checkpoint;
pub mod compare;
pub mod curves;
pub mod data;
#[cfg(feature = "torch")]
pub mod decode;
#[cfg(feature = "torch")]
pub mod evaluate;
#[cfg(feature = "torch")]
pub mod execute;
pub mod fault;
pub mod files;
pub mod finished;
pub mod foreign;
#[cfg(feature = "torch")]
pub mod forward;
#[cfg(feature = "torch")]
pub mod generate;
pub mod init;
pub mod job;
#[cfg(feature = "torch")]
pub mod kernels;
pub mod metrics;
pub mod overview;
pub mod platform;
pub mod progress;
pub mod reduce;
#[cfg(feature = "torch")]
pub mod replay;
pub mod report;
#[cfg(feature = "torch")]
pub mod reproduce;
pub mod run;
pub mod schedule;
pub mod sign;
pub mod statistics;
pub mod tensorboard;
#[cfg(feature = "torch")]
pub mod train;
pub mod verify;
#[cfg(feature = "torch")]
pub mod weights;
