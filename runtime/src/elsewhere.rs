//! Runs that another engine trained: canonc measures their weights, and computes a few of their steps again.

mod bounds;
mod record;
mod update;
mod spot_check;

pub use bounds::{Bounds, bounds};
pub use record::{Recorded, record};
pub use spot_check::{SPOT_STEPS, SpotCheck, Watcher, spot_check};
