//! In: a point's name from a hidden flag, `NAME[:COUNT]`. Out: at that point's COUNT-th passing the process aborts,
//! or the disk is full. Must stay true: every durable step of a run has its points, the list is closed and tested
//! point by point; without the flag nothing here does anything, and no environment variable is read.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place where a run can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The run's folder is made; nothing is in it.
    FolderMade,
    /// A metrics line is computed, not written.
    MetricsBefore,
    /// The first half of a metrics line is written.
    MetricsTorn,
    /// A metrics line is written.
    MetricsAfter,
    /// A metrics line finds no room.
    MetricsFull,
    /// Half of a checkpoint's first file is written.
    CheckpointHalf,
    /// A checkpoint's file finds no room.
    CheckpointFull,
    /// All files of a checkpoint are written and synced, under the temporary name.
    CheckpointWritten,
    /// The checkpoint has its name; its folder is not synced.
    CheckpointRenamed,
    /// The folder that has the checkpoint's name cannot be synced.
    CheckpointSyncFull,
    /// The checkpoint is durable; the pointer still names the one before.
    PointerBefore,
    /// The pointer's new text is written beside it.
    PointerWritten,
    /// The pointer is moved; old checkpoints are still there.
    PruneBefore,
    /// An old checkpoint is renamed away, not yet deleted.
    PruneHalf,
    /// All steps are done and checkpointed; nothing says so yet.
    AttestBefore,
    /// The attestation finds no room.
    AttestFull,
    /// The attestation is written.
    AttestAfter,
}

/// All points, with the names the flag takes.
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
    /// Whether the disk is full there, rather than the process gone.
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

/// What is to go wrong: nothing, or one point.
#[derive(Debug, Default)]
pub struct Faults {
    armed: Option<Armed>,
}

#[derive(Debug)]
struct Armed {
    point: Point,
    left: AtomicU64,
}

/// A flag that names no point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchPoint(String);

impl fmt::Display for NoSuchPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = POINTS.iter().map(|(_, name)| *name).collect();
        let Self(text) = self;
        write!(
            f,
            "there is no fault point `{text}`\nhelp: write NAME or NAME:COUNT with one of {}",
            names.join(", ")
        )
    }
}

impl std::error::Error for NoSuchPoint {}

impl Faults {
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

    /// Passes `point`: returns, aborts the process, or says that the disk is full.
    pub(crate) fn pass(&self, point: Point) -> io::Result<()> {
        if !self.is_due(point) {
            return Ok(());
        }
        if point.fills_disk() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        std::process::abort()
    }

    /// Passes a point whose half-done work the caller does first; true if it is to do it, then call [`Self::now`].
    pub(crate) fn is_due(&self, point: Point) -> bool {
        let Some(armed) = self.armed.as_ref().filter(|armed| armed.point == point) else {
            return false;
        };
        armed.left.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// The end of a process.
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
