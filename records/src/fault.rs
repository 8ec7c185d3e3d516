//! Faults for tests: a hidden flag, `NAME[:COUNT]`, lets the process abort, or the disk be full, at the COUNT-th passing of
//! a point.
//!
//! Every durable step of a run has its points; the list is closed and tested point by point.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// A point where a run can be made to fail on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The run's folder is made; it is still empty.
    FolderMade,
    /// A metrics line is computed, not written.
    MetricsBefore,
    /// The first half of a metrics line is written.
    MetricsTorn,
    /// A metrics line is written.
    MetricsAfter,
    /// The disk is full when a metrics line is written.
    MetricsFull,
    /// Half of a checkpoint's first file is written.
    CheckpointHalf,
    /// The disk is full when a checkpoint's file is written.
    CheckpointFull,
    /// All files of a checkpoint are written and synced, under the temporary name.
    CheckpointWritten,
    /// The checkpoint has its name; its folder is not synced.
    CheckpointRenamed,
    /// The folder with the checkpoint's name cannot be synced.
    CheckpointSyncFull,
    /// The checkpoint is durable; the pointer still names the one before.
    PointerBefore,
    /// The pointer's new text is in its temporary file.
    PointerWritten,
    /// The pointer is moved; old checkpoints are still there.
    PruneBefore,
    /// An old checkpoint is renamed away, not yet deleted.
    PruneHalf,
    /// All steps are done and checkpointed; no attestation exists yet.
    AttestBefore,
    /// The disk is full when the attestation is written.
    AttestFull,
    /// The attestation is written.
    AttestAfter,
}

/// All points, with their names for the flag.
pub const POINTS: [(Point, &str); 17] = [
    (Point::FolderMade, "folder-made"),
    (Point::MetricsBefore, "metrics-before"),
    (Point::MetricsTorn, "metrics-torn"),
    (Point::MetricsAfter, "metrics-after"),
    (Point::MetricsFull, "metrics-full"),
    (Point::CheckpointHalf, "checkpoint-half"),
    (Point::CheckpointFull, "checkpoint-full"),
    (Point::CheckpointWritten, "checkpoint-written"),
    (Point::CheckpointRenamed, "checkpoint-renamed"),
    (Point::CheckpointSyncFull, "checkpoint-sync-full"),
    (Point::PointerBefore, "pointer-before"),
    (Point::PointerWritten, "pointer-written"),
    (Point::PruneBefore, "prune-before"),
    (Point::PruneHalf, "prune-half"),
    (Point::AttestBefore, "attest-before"),
    (Point::AttestFull, "attest-full"),
    (Point::AttestAfter, "attest-after"),
];

impl Point {
    /// Whether the disk is full at this point; otherwise the process aborts.
    pub fn fills_disk(self) -> bool {
        matches!(
            self,
            Point::MetricsFull
                | Point::CheckpointFull
                | Point::CheckpointSyncFull
                | Point::AttestFull
        )
    }
}

/// The failure to cause: none, or one at a point.
#[derive(Debug, Default)]
pub struct Faults {
    armed: Option<Armed>,
}

#[derive(Debug)]
struct Armed {
    point: Point,
    left: AtomicU64,
}

/// The flag does not name a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchPoint(String);

impl fmt::Display for NoSuchPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = POINTS.iter().map(|(_, name)| *name).collect();
        let Self(text) = self;
        write!(
            f,
            "`{text}` is not a fault point\nhelp: write NAME or NAME:COUNT with one of {}",
            names.join(", ")
        )
    }
}

impl std::error::Error for NoSuchPoint {}

impl Faults {
    /// No faults, as in every ordinary run.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// `NAME` or `NAME:COUNT`, where 1 is the first passing.
    pub fn parse(text: &str) -> Result<Faults, NoSuchPoint> {
        let wrong = || NoSuchPoint(text.to_owned());
        let (name, count) = text.split_once(':').unwrap_or((text, "1"));
        let (point, _) = POINTS.into_iter().find(|(_, n)| *n == name).ok_or_else(wrong)?;
        let count: u64 = count.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
        Ok(Faults { armed: Some(Armed { point, left: AtomicU64::new(count) }) })
    }

    /// Passes `point`: returns, aborts the process, or returns a disk-full error.
    pub(crate) fn pass(&self, point: Point) -> io::Result<()> {
        if !self.is_due(point) {
            return Ok(());
        }
        if point.fills_disk() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        std::process::abort()
    }

    /// Passes a point where the caller leaves half-done work. If true, it must do so and call [`Self::now`].
    pub(crate) fn is_due(&self, point: Point) -> bool {
        let Some(armed) = self.armed.as_ref().filter(|armed| armed.point == point) else {
            return false;
        };
        armed.left.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Ends the process.
    pub(crate) fn now(&self) -> ! {
        std::process::abort()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_comes_once_at_its_count() {
        let faults = Faults::parse("metrics-full:3").unwrap();
        let passed: Vec<bool> = (0..5).map(|_| faults.pass(Point::MetricsFull).is_ok()).collect();
        assert_eq!(passed, [true, true, false, true, true]);
        assert!(faults.pass(Point::CheckpointFull).is_ok());
        assert!(Faults::none().pass(Point::CheckpointHalf).is_ok());
    }

    #[test]
    fn names_are_checked() {
        for (point, name) in POINTS {
            assert_eq!(Faults::parse(name).unwrap().armed.unwrap().point, point);
        }
        for wrong in ["", "nothing", "metrics-full:0", "metrics-full:x", "metrics-full:-1"] {
            let error = Faults::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("help: ") && error.contains("prune-half"), "{error}");
        }
    }
}
