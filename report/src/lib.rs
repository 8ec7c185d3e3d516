//! What finished runs show: statistics, tables, charts, the page, TensorBoard files.
//!
//! In: run folders, read. Out: estimates with their intervals, tables, a page. Must stay true: no libtorch; nothing in
//! a run's folder is changed; every number follows from the log.

pub mod compare;
pub mod curves;
pub mod overview;
pub mod page;
pub mod statistics;
pub mod tensorboard;
