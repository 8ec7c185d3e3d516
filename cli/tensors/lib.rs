//! The commands of the core that compute with tensors: training, replaying, and the times of steps.

// Each module uses only those above it.
mod environment;
mod progress;
pub mod ranks;
pub mod doctor;
mod replay;
mod reproduce;
mod run;
mod record;
mod step_times;

use cli::command::{Run, with};
use cli::commands;
use cli::commands::verify::Replayer;

/// How `canonc verify --replay` trains steps again.
const REPLAYER: Replayer = Replayer { prepare: replay::prepare, replay: replay::replay };

/// The commands of the core that `canonc-torch` runs, by name.
pub const TENSORS: &[(&str, Run)] = &[
    ("run", |_, args| with(args, run::run)),
    ("reproduce", |_, args| with(args, reproduce::reproduce)),
    ("record", |_, args| with(args, record::record)),
    ("compare", |_, args| with(args, |args| commands::compare::compare(args, step_times::measure))),
    ("verify", |_, args| with(args, |args| commands::verify::verify(args, &REPLAYER))),
    ("doctor", |_, args| with(args, |args| commands::doctor::doctor(args, doctor::facts))),
];
