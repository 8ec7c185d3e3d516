//! Folders of runs, and the checks on their contents: jobs, logs, checkpoints, attestations.
//!
//! No libtorch. Everything that follows from a lock or from bytes on disk is computed again, never taken from a copy.
//!
//! A run's log is a chain of digests, so no line can be changed alone:
//!
//! ```
//! use compiler::digest::Digest;
//! use records::fault::Faults;
//! use records::metrics::{self, Log, Record, Step};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("metrics.jsonl");
//! let mut log = Log::open(&path)?;
//! for (step, loss) in [(1, 5.5), (2, 4.75)] {
//!     let batch = Some(Digest::of("example", "the windows of the step"));
//!     let (loss, terms) = (Some(loss), [None; 9]);
//!     let step = Step { step, loss, grad_norm: 1.0, lr: 3e-4, batch, counted: 4096, terms };
//!     log.append(&Record::Step(step), &Faults::none())?;
//! }
//! let (records, head) = metrics::read(&path)?;
//! assert_eq!((records.len(), head), (2, log.head()));
//!
//! let text = std::fs::read_to_string(&path)?;
//! std::fs::write(&path, text.replace("5.5", "2.5"))?;
//! assert!(metrics::read(&path).is_err());
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

pub mod fault;
pub mod platform;
pub mod progress;
pub mod model_folder;
pub mod run;
pub mod private;
pub mod attest;
pub mod checkpoint;
pub mod init;
pub mod weights;
pub mod initial;
pub mod dropout;
pub mod metrics;
pub mod schedule;
pub mod measure;
pub mod job;
pub mod external;
pub mod finished;
pub mod overlap;
pub mod verify;

#[cfg(test)]
mod golden {
    /// The reference vectors with this name under `tests/golden`.
    pub(crate) fn read(name: &str) -> serde_json::Value {
        let path = format!("{}/../tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }
}
