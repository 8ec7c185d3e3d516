//! Whether a folder's run was trained by another engine, which canonc never continues.

use std::io::Read as _;

use dsl::Problem;

use super::Paths;

/// The beginning of such a run's log.
const BEGINNING: &[u8] = b"{\"kind\":\"external\"";

/// Whether a folder holds a run that another engine trained: a trainer record, or the log of such a run.
pub fn trained_elsewhere(paths: &Paths) -> bool {
    let mut beginning = Vec::new();
    let log = disk::open(&paths.metrics());
    let read = log.and_then(|log| log.take(BEGINNING.len() as u64).read_to_end(&mut beginning));
    std::fs::symlink_metadata(paths.trainer()).is_ok() || read.is_ok() && beginning == BEGINNING
}

/// Refuses to train in such a folder.
pub fn refuse_elsewhere(paths: &Paths) -> Result<(), Problem> {
    if !trained_elsewhere(paths) {
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
