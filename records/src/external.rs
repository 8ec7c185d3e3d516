//! The folder of a run that another engine trained (format `canonc.external.v1`, in docs/files.md), read and compared with
//! its lock as far as that needs no data.

use compiler::digest::Digest;
use dsl::Problem;
use lab::trainer::TrainerRecord;

use crate::checkpoint::{Slot, Store};
use crate::metrics::{self, ExternalLog, MeasuredWeights, Measurements, Record};
use crate::run::{Paths, cannot_read, if_there, trained_elsewhere};

/// What the folder of such a run holds, besides its tensors.
#[derive(Clone, Debug)]
pub struct ExternalRun {
    /// What the engine says of itself.
    pub trainer: TrainerRecord,
    /// The log.
    pub log: ExternalLog,
    /// canonc's evaluations of its weights.
    pub measured: Vec<MeasuredWeights>,
    /// The last chain of these.
    pub measured_head: Option<Digest>,
}

impl ExternalRun {
    /// Reads the folder. The log must name the trainer record.
    pub fn read(paths: &Paths) -> Result<ExternalRun, Problem> {
        let trainer = trainer(paths)?;
        let log = metrics::read_external(&paths.metrics())?;
        let (measured, measured_head): Measurements =
            metrics::read_measurements(&paths.evaluations())?;
        if log.start.trainer != trainer.digest() {
            return Err(Problem::finding(
                format!(
                    "{} has digest {}, but the log names {}",
                    paths.trainer().display(),
                    trainer.digest().short(),
                    log.start.trainer.short()
                ),
                "restore the folder from a copy",
            ));
        }
        Ok(ExternalRun { trainer, log, measured, measured_head })
    }

    /// What the engine says of itself, with what changed while it trained.
    pub fn trainer_throughout(&self) -> TrainerRecord {
        let changes = self.log.resumed.iter().flat_map(|resumed| &resumed.changes);
        self.trainer
            .clone()
            .with_changes(changes.map(|(key, value)| (key.as_str(), value.as_str())))
    }

    /// The records that canonc's own log would have.
    pub fn records(&self) -> Vec<Record> {
        self.log.records(&self.measured)
    }

    /// The last step of the log.
    pub fn last(&self) -> u64 {
        self.log.steps.last().map_or(0, |step| step.step)
    }

    /// Its checkpoints.
    pub fn store(&self, paths: &Paths, slots: Vec<Slot>) -> Store {
        let (lock, trainer) = (self.log.start.lock, self.trainer.digest());
        Store::of_trainer(paths.checkpoints(), lock, slots, trainer)
    }
}

/// The trainer record of a run, with what changed while it was trained; `None` for one that canonc trained.
pub fn trainer_of(paths: &Paths) -> Result<Option<TrainerRecord>, Problem> {
    if !trained_elsewhere(paths)? {
        return Ok(None);
    }
    let metrics = paths.metrics();
    let has_log = if_there(&metrics, std::fs::metadata(&metrics))?.is_some_and(|log| log.is_file());
    Ok(Some(match has_log {
        true => ExternalRun::read(paths)?.trainer_throughout(),
        false => trainer(paths)?,
    }))
}

fn trainer(paths: &Paths) -> Result<TrainerRecord, Problem> {
    let path = paths.trainer();
    let missing = || {
        let path = path.display();
        let message = format!("{path} is missing; every run that another engine trained has one");
        Problem::finding(message, "restore the folder from a copy")
    };
    let text = disk::read_text(&path, disk::SMALL).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            missing()
        } else {
            cannot_read(&path, &error)
        }
    })?;
    TrainerRecord::parse(&text).map_err(|why| {
        Problem::finding(
            format!("{}: {why}", path.display()),
            "docs/files.md has the form of a trainer record",
        )
    })
}
