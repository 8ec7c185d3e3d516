//! What a run recorded: its log, its kept checkpoints and its machines.

use std::collections::BTreeMap;

use compiler::digest::Digest;
use dsl::Problem;
use records::attest::Attestation;
use records::checkpoint::{SavedCheckpoint, Slot, Store};
use records::metrics::{self, Record};
use records::run::Paths;

use super::difference::RunPoint;
use super::platform::Machines;
use crate::train;

/// What a run recorded.
pub(crate) struct RecordedRun {
    /// In the order of computation.
    records: BTreeMap<(u64, u8), Record>,
    pub(crate) store: Store,
    /// Oldest first.
    pub(crate) kept: Vec<SavedCheckpoint>,
    pub(crate) machines: Machines,
}

impl RecordedRun {
    /// Reads the log of a run of this lock with these parameters, and verifies its checkpoints.
    pub(crate) fn open(
        paths: &Paths,
        lock: Digest,
        slots: Vec<Slot>,
    ) -> Result<RecordedRun, Problem> {
        let (records, heads) = metrics::read_with_heads(&paths.metrics())?;
        let store = Store::new(paths.checkpoints(), lock, slots);
        let kept = store.kept(|chain| heads.contains(&chain))?;
        let text = disk::read_text(&paths.attestation(), disk::SMALL).ok();
        let attestation = text.and_then(|text| Attestation::parse(&text).ok());
        Ok(RecordedRun {
            records: records
                .into_iter()
                .map(|record| (RunPoint::from_record(&record).order(), record))
                .collect(),
            store,
            kept,
            machines: Machines { attestation, started: train::started(paths)? },
        })
    }

    /// In the order of computation.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    pub(crate) fn record(&self, point: RunPoint) -> Option<&Record> {
        self.records.get(&point.order())
    }

    /// The number of logged steps.
    pub(crate) fn steps(&self) -> u64 {
        self.records().filter(|record| matches!(record, Record::Step(_))).count() as u64
    }

    /// The number of logged evaluations.
    pub(crate) fn evaluations(&self) -> u64 {
        self.records().filter(|record| matches!(record, Record::Evaluation(_))).count() as u64
    }

    /// The last logged step.
    pub(crate) fn last(&self) -> u64 {
        self.records.keys().next_back().map_or(0, |(step, _)| *step)
    }

    /// The kept checkpoint of a step.
    pub(crate) fn kept_at(&self, step: u64) -> Option<&SavedCheckpoint> {
        self.kept.iter().find(|kept| kept.manifest.step == step)
    }
}
