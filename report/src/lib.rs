//! Reports on finished runs: statistics, tables, charts, the page, TensorBoard files.
//!
//! In: run folders, read-only. Out: estimates with their intervals, tables, a page. Must stay true: no libtorch; no
//! file in a run's folder is changed; every number follows from the log.
//!
//! Differences seed by seed become an interval, and a word only if the whole family of tests allows it:
//!
//! ```
//! use report::statistics::equivalence::{Row, judge};
//! use report::statistics::{Better, Confidence, Effect, Paired};
//!
//! // Evaluation loss of the treatment minus that of the base, one difference per seed.
//! let row = |differences: &[f64]| Row {
//!     result: Paired::from_differences(differences, Confidence::NINETY_FIVE),
//!     p: None,
//!     p_equivalence: None,
//!     better: Better::Less,
//!     margin: None,
//!     diverged: [0, 0],
//! };
//! let family = [row(&[-0.051, -0.047, -0.055, -0.049, -0.052]), row(&[-0.02, 0.03, -0.01, 0.0, 0.02])];
//! let words: Vec<Effect> = judge(&family, Confidence::NINETY_FIVE).iter().map(|row| row.effect).collect();
//! assert_eq!(words, [Effect::Better, Effect::Undecided]);
//! ```

#![warn(missing_docs)]

pub mod statistics;
pub mod curves;
pub mod compare;
pub mod overview;
pub mod scores;
pub mod samples;
pub mod page;
pub mod tensorboard;
