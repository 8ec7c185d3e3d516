//! Reports on finished runs: statistics, tables, charts, the page, TensorBoard files.
//!
//! In: run folders, read-only. Out: estimates with their intervals, tables, a page. Must stay true: no libtorch; no
//! file in a run's folder is changed; every number follows from the log.

pub mod compare;
pub mod curves;
pub mod overview;
pub mod page;
pub mod statistics;
pub mod tensorboard;
