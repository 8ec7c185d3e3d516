//! Whether a folder's run was trained by another engine, which canonc never continues.

use std::io::{BufRead as _, BufReader, Read as _};

use dsl::Problem;

use super::{Paths, if_there};

/// The most bytes of a first line that are read.
const FIRST_LINE: u64 = 1 << 16;

/// Whether a folder holds a run that another engine trained: a trainer record, or the log of such a run.
pub fn trained_elsewhere(paths: &Paths) -> Result<bool, Problem> {
    let (trainer, metrics) = (paths.trainer(), paths.metrics());
    if if_there(&trainer, std::fs::symlink_metadata(&trainer))?.is_some() {
        return Ok(true);
    }
    let mut line = Vec::new();
    let log = disk::open(&metrics).map(|log| BufReader::new(log.take(FIRST_LINE)));
    if_there(&metrics, log.and_then(|mut log| log.read_until(b'\n', &mut line)))?;
    let first: serde_json::Value = serde_json::from_slice(&line).unwrap_or_default();
    Ok(first.get("kind").and_then(serde_json::Value::as_str) == Some("external"))
}

/// Refuses to train in such a folder.
pub fn refuse_elsewhere(paths: &Paths) -> Result<(), Problem> {
    if !trained_elsewhere(paths)? {
        return Ok(());
    }
    let folder = paths.folder.display();
    Err(Problem::input(
        format!(
            "the run in {folder} was trained by another engine, and canonc does not continue it"
        ),
        format!(
            "`canonc record {folder}` evaluates and attests it; to train its lock with canonc, name another folder \
             with --dir"
        ),
    ))
}
