//! Folders of runs, and the checks on their contents: jobs, logs, checkpoints, attestations.
//!
//! In: a lock, and the files of a run. Out: the job that the lock describes, and recomputed claims of a run. Must stay
//! true: no libtorch; everything that follows from a lock or from bytes on disk is computed again, never taken from a
//! copy; a file is complete or absent.

pub mod attest;
pub mod checkpoint;
pub mod fault;
pub mod finished;
pub mod init;
pub mod job;
pub mod metrics;
pub mod overlap;
pub mod platform;
pub mod progress;
pub mod reduce;
pub mod run;
pub mod schedule;
pub mod sign;
pub mod verify;

#[cfg(test)]
mod golden {
    /// The reference vectors with this name under `tests/golden`.
    pub(crate) fn read(name: &str) -> serde_json::Value {
        let path = format!("{}/../tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }
}
