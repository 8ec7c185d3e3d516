//! The combined results of a comparison's runs: differences paired by seed, never pooled.
//!
//! [`Comparison`] holds the runs, [`Facts`] all that they show; tables, sentences and documents read only the facts.

mod unit;
mod metric;
mod question_scores;
mod training_overlap;
mod runs;
mod run_log;
mod measured_on;
mod interval_and_noise;
mod bootstrap;
mod analysis;
mod costs;
mod design;
mod other_records;
mod proof;
mod comparison;
mod stopping;
mod pair;
mod question_split;
mod metric_facts;
mod family;
mod trainers;
mod warnings;
mod facts;
mod cells;
mod text_table;
mod tables;
mod prose;
mod summary;
mod document;
#[cfg(test)]
pub(crate) mod made_up;
#[cfg(test)]
mod tests;

pub use analysis::Analysis;
pub use bootstrap::BootstrapInterval;
pub(crate) use cells::{effect_cells, interval_head, level, mean_cell, percent};
pub use comparison::{AxisEnd, Comparison, Edge};
pub use costs::{Costs, Measured, Tuning};
pub(crate) use design::NOT_CONTROLLED;
pub use design::{ChosenAmong, Design, SelectionRule};
pub use document::{CompareDocument, document};
pub use facts::Facts;
pub(crate) use facts::{PairFacts, judged_together, strictest};
pub use interval_and_noise::{AaNoise, NoInterval, NoNoise, STEADY, Varied};
pub use measured_on::MeasuredOn;
pub(crate) use metric::{BITS_PER_BYTE, BITS_PER_TOKEN, TRAINING_LOSS};
pub use metric::{measure_name, metric_name, unit};
pub use metric_facts::MetricFacts;
pub use other_records::{
    EarlierLooks, EarlierReport, LOOKS, LeftOut, OtherLock, OtherRecords, REPORTED, other_records,
};
pub use pair::{DivergedSeeds, Pair};
pub use proof::{Axis, Claim, MatchedQuantity, Proof};
pub use question_scores::QuestionScores;
pub use question_split::NoSplit;
pub use run_log::{ran_beside, read, scores_of};
pub use runs::{Arm, ArmRun, Curves, Role};
pub use stopping::ArmLook;
pub use summary::Summary;
pub use text_table::{Section, TextTable};
pub use training_overlap::{
    Counted, RunOverlap, TrainingOverlap, label, percent_of, training_overlap,
};
pub use unit::Unit;
