//! Reports on finished runs: statistics, tables, charts, the page, TensorBoard files. Every number follows from a run's
//! log; no file in its folder is changed.
//!
//! Differences seed by seed become an interval, and a word only if the whole family of tests allows it:
//!
//! ```
//! use report::statistics::equivalence::{Evidence, judge};
//! use report::statistics::{Better, Confidence, Effect, Paired};
//!
//! // Evaluation loss of the treatment minus that of the base, one difference per seed.
//! let row = |differences: &[f64]| Evidence {
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
mod svg;
pub mod compare;
pub mod overview;
pub mod scores;
pub mod samples;
pub mod page;
pub mod tensorboard;
