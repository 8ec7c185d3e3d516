//! The time of a training step, kernel by kernel, and the runner that benchmarks share.
//!
//! The benchmarks themselves are in `benches/`: `cargo bench -p canonc-bench --bench NAME` (docs/performance.md).

#![forbid(unsafe_code)]

pub mod turns;
pub mod step;
