//! The folder of a run, held by one writer.
//!
//! Files: `lock` (the lock's text), `metrics.jsonl` (hash-chained, deterministic), `timings.jsonl` and `events.jsonl`
//! (times and events), `plan.txt`, `kernels.txt`, `checkpoints/`, `attestation.toml`, `writer` (held by the writer).
//!
//! A folder belongs to one lock for ever; files are replaced whole; foreign files are neither read nor deleted.

mod elsewhere;
mod errors;
mod event;
mod kernels;
mod owner;
mod seal;
mod watch;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use dsl::Problem;

use crate::fault::{Faults, Point};

pub(crate) use disk::{UNFINISHED, parent, replace, sweep, sync_folder, unfinished};
pub use errors::{Refusal, cannot_read, cannot_write, digest_of};
pub use errors::{if_readable, if_there, json_lines, paths_in};
pub use event::Event;
pub use kernels::{KernelNames, Kernels, kernel_lines};
pub use kernels::{is_path, parse as parse_kernels, wrong as wrong_kernels};
pub(crate) use watch::in_place;

pub use elsewhere::{refuse_elsewhere, trained_elsewhere};
pub use owner::{belongs, experiment_from_text, lock_from_text, of_another_version};
pub use seal::{Difference, first_difference, refuse_other_text, seal, unseal};
use watch::{FolderPlace, Watched};

/// The file in a run's `checkpoints/` that names the newest checkpoint.
pub const POINTER: &str = "latest";

/// The names in a run's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The run's folder.
    pub folder: PathBuf,
}

impl Paths {
    /// The names in this folder, which need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> Paths {
        Paths { folder: folder.into() }
    }

    /// The lock's text, `lock`.
    pub fn lock(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// The metrics log: losses and evaluations, in a hash chain.
    pub fn metrics(&self) -> PathBuf {
        self.folder.join("metrics.jsonl")
    }

    /// Seconds of each step.
    pub fn timings(&self) -> PathBuf {
        self.folder.join("timings.jsonl")
    }

    /// Starts, interruptions and ends of processes; see [`Event`].
    pub fn events(&self) -> PathBuf {
        self.folder.join("events.jsonl")
    }

    /// The plan's text.
    pub fn plan(&self) -> PathBuf {
        self.folder.join("plan.txt")
    }

    /// The path that each kernel took, in every process so far.
    pub fn kernels(&self) -> PathBuf {
        self.folder.join("kernels.txt")
    }

    /// The folder of checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    /// The claims of the finished run.
    pub fn attestation(&self) -> PathBuf {
        self.folder.join("attestation.toml")
    }

    /// Whether the run has an attestation, which need not be valid.
    pub fn is_attested(&self) -> Result<bool, Problem> {
        let path = self.attestation();
        // A file in the place of the folder has none.
        Ok(if_there(&path, fs::metadata(&path))?.is_some())
    }

    /// An SSH signature of the attestation, if it was signed.
    pub fn signature(&self) -> PathBuf {
        self.folder.join("attestation.toml.sig")
    }

    /// The trainer record of a run that was trained elsewhere.
    pub fn trainer(&self) -> PathBuf {
        self.folder.join("trainer.toml")
    }

    /// canonc's evaluations of a run that was trained elsewhere.
    pub fn evaluations(&self) -> PathBuf {
        self.folder.join("evaluations.jsonl")
    }

    /// The file that a process locks while it writes to the folder.
    pub fn writer(&self) -> PathBuf {
        self.folder.join("writer")
    }
}

/// A run's folder, held for writing until it is dropped or the process is gone.
#[derive(Debug)]
pub struct RunFolder {
    /// The names in the folder.
    pub paths: Paths,
    place: FolderPlace,
    /// The system releases this file's lock however the process ends.
    writer: File,
    watched: Mutex<Watched>,
}

impl RunFolder {
    /// Creates the folder or opens an existing one. `belongs` judges the lock text in it.
    pub fn open(
        folder: &Path,
        lock_text: &str,
        belongs: impl FnOnce(&str) -> Result<(), Problem>,
        faults: &Faults,
    ) -> Result<RunFolder, Problem> {
        let paths = Paths::new(folder);
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| cannot_write(&path, &error)
        };
        refuse_elsewhere(&paths)?;
        disk::create_folders(folder).map_err(io(folder))?;
        faults.pass(Point::FolderMade).map_err(io(folder))?;
        refuse_strange(&paths)?;
        refuse_links(&paths)?;
        let writer = hold(&paths)?;
        sweep(folder).map_err(io(folder))?;
        let recorded = match disk::read_text(&paths.lock(), disk::SMALL) {
            Ok(recorded) => Some(recorded),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(cannot_read(&paths.lock(), &error)),
        };
        if let Some(recorded) = &recorded {
            belongs(recorded)?;
        }
        // A finished run keeps the lock that it attested, even if another lock of the same training has another name.
        if recorded.as_deref() != Some(lock_text) && !paths.is_attested()? {
            replace(&paths.lock(), lock_text.as_bytes(), || Ok(())).map_err(io(&paths.lock()))?;
        }
        disk::create_folders(&paths.checkpoints()).map_err(io(&paths.checkpoints()))?;
        sweep(&paths.checkpoints()).map_err(io(&paths.checkpoints()))?;
        sync_folder(folder).and_then(|()| sync_folder(parent(folder))).map_err(io(folder))?;
        let place = FolderPlace::of(folder).map_err(io(folder))?;
        Ok(RunFolder { paths, place, writer, watched: Mutex::default() })
    }

    /// Writes a file of the run, unless it already has this content.
    pub fn keep(&self, path: &Path, text: &str) -> Result<(), Problem> {
        if if_there(path, disk::read_text(path, disk::TEXT))?.as_deref() == Some(text) {
            return Ok(());
        }
        replace(path, text.as_bytes(), || Ok(())).map_err(|error| cannot_write(path, &error))
    }

    /// Opens the logs of times and events, and watches them from now on.
    pub fn watch(&self) -> Result<(), Problem> {
        let mut watched = self.watched();
        watched.open(&self.paths.timings(), false)?;
        watched.open(&self.paths.events(), true)
    }

    /// Adds a line to `events.jsonl`.
    pub fn record(&self, event: &Event) -> Result<(), Problem> {
        // Durable before any time of this process, so that the times of each process have its start.
        self.watched().append(&self.paths.events(), &event.line(), true)
    }

    /// Adds a line to `timings.jsonl`.
    pub fn time(&self, line: &str) -> Result<(), Problem> {
        in_place(&self.writer, &self.paths.writer())?;
        self.watched().append(&self.paths.timings(), line, false)
    }

    /// Refuses to go on if another program has changed a log or taken the writer's file away; with `contents`, every byte of
    /// them is compared.
    pub fn check(&self, contents: bool) -> Result<(), Problem> {
        self.place.check(&self.paths.folder)?;
        refuse_links(&self.paths)?;
        in_place(&self.writer, &self.paths.writer())?;
        self.watched().check(contents)
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Adds a line to a log that is not evidence.
pub fn append_line(path: &Path, line: &str) -> Result<(), Problem> {
    Watched::default().append(path, line, false)
}

fn is_there(path: &Path) -> Result<Option<fs::Metadata>, Problem> {
    if_there(path, fs::symlink_metadata(path))
}

/// A run writes only to files in its own folder; a link there would lead to another one.
fn refuse_links(paths: &Paths) -> Result<(), Problem> {
    let checkpoints = paths.checkpoints();
    if is_there(&checkpoints)?.is_some_and(|metadata| !metadata.is_dir()) {
        return Err(Problem::finding(
            format!(
                "{} is a link or a file, not a run's folder of checkpoints",
                checkpoints.display()
            ),
            "put the folder itself there, or name another folder with --dir",
        ));
    }
    for path in [
        paths.lock(),
        paths.metrics(),
        paths.timings(),
        paths.events(),
        paths.plan(),
        paths.kernels(),
        paths.attestation(),
        paths.writer(),
        paths.checkpoints().join(POINTER),
    ] {
        if is_there(&path)?.is_some_and(|metadata| !metadata.is_file()) {
            return Err(Problem::finding(
                format!("{} is a link, a folder or a device, not a file of a run", path.display()),
                "put the file itself there, or name another folder with --dir",
            ));
        }
    }
    Ok(())
}

/// Refuses to write to a folder without a lock that holds anything except the beginnings of a run.
fn refuse_strange(paths: &Paths) -> Result<(), Problem> {
    let lock = paths.lock();
    if lock.try_exists().map_err(|error| cannot_read(&lock, &error))? {
        return Ok(());
    }
    let entries =
        fs::read_dir(&paths.folder).map_err(|error| cannot_read(&paths.folder, &error))?;
    for entry in entries {
        let name = entry.map_err(|error| cannot_read(&paths.folder, &error))?.file_name();
        let name = name.to_string_lossy();
        if name != "writer" && !name.starts_with(UNFINISHED) {
            return Err(Problem::input(
                format!(
                    "{} is not a run's folder: it has no `lock`, but contains `{name}`",
                    paths.folder.display()
                ),
                "name an empty or new folder with --dir",
            ));
        }
    }
    Ok(())
}

/// Takes the writer's lock of a run's folder, or returns an error that names its holder. The system releases it however
/// the process ends.
pub fn hold(paths: &Paths) -> Result<File, Problem> {
    let path = &paths.writer();
    let write = |error: io::Error| cannot_write(path, &error);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(write)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut who = String::new();
            // Other systems do not let us read a file locked by another process; then the message omits the holder.
            let _ = file.read_to_string(&mut who);
            let who = who.trim();
            let by = if who.is_empty() { "another process".to_owned() } else { who.to_owned() };
            return Err(Problem::machine(
                format!("{} is in use by {by}", parent(path).display()),
                "wait until it finishes, end it, or name another folder with --dir",
            ));
        }
        Err(TryLockError::Error(error)) => return Err(write(error)),
    }
    let who = format!("process {}\n", std::process::id());
    file.set_len(0).and_then(|()| file.write_all(who.as_bytes())).map_err(write)?;
    Ok(file)
}

/// Whether a process holds the run's folder for writing now, by its file `writer`.
pub fn is_held(writer: &Path) -> bool {
    let lock = disk::open(writer).map(|file| file.try_lock_shared());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use dsl::ProblemKind;

    use super::*;

    fn open(folder: &Path) -> Result<RunFolder, Problem> {
        let belongs = |text: &str| {
            if text == "mine" { Ok(()) } else { Err(Problem::input("another", "help")) }
        };
        RunFolder::open(folder, "mine", belongs, &Faults::none())
    }

    #[test]
    fn a_folder_is_made_and_taken_up_again() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("runs").join("one");
        let folder = open(&path).unwrap();
        assert_eq!(fs::read_to_string(folder.paths.lock()).unwrap(), "mine");
        fs::write(unfinished(&folder.paths.plan()), "half").unwrap();
        fs::create_dir(folder.paths.checkpoints().join(format!("{UNFINISHED}step-9"))).unwrap();
        drop(folder);
        let folder = open(&path).unwrap();
        assert!(!unfinished(&folder.paths.plan()).exists());
        assert_eq!(fs::read_dir(folder.paths.checkpoints()).unwrap().count(), 0);
    }

    #[test]
    fn there_is_one_writer_at_a_time() {
        let temporary = tempfile::tempdir().unwrap();
        let first = open(temporary.path()).unwrap();
        let error = open(temporary.path()).unwrap_err();
        assert_eq!(error.kind, ProblemKind::Machine);
        let by = format!("is in use by process {}", std::process::id());
        assert!(error.message.ends_with(&by), "{error}");
        drop(first);
        // The file of a process that is gone holds nothing.
        fs::write(temporary.path().join("writer"), "process 1").unwrap();
        assert!(open(temporary.path()).is_ok());
    }

    #[test]
    fn folders_of_others_are_left_alone() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("lock"), "theirs").unwrap();
        assert_eq!(open(temporary.path()).unwrap_err().message, "another");
        assert_eq!(fs::read_to_string(temporary.path().join("lock")).unwrap(), "theirs");
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("thesis.tex"), "").unwrap();
        let error = open(temporary.path()).unwrap_err();
        assert!(error.message.contains("contains `thesis.tex`"), "{error}");
        assert_eq!(error.kind, ProblemKind::Input);
    }

    #[test]
    fn what_a_kill_or_a_power_cut_left_of_a_line_is_cut() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("events.jsonl");
        for left in ["tw", "\0\0\0", "\0\0\n", "t\0\0\nthree\n", "\0\0\nthree\nfo"] {
            fs::write(&path, format!("one\n{left}")).unwrap();
            append_line(&path, "two").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n", "{left:?}");
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_the_machines_fault() {
        let temporary = tempfile::tempdir().unwrap();
        let error = cannot_write(temporary.path(), &io::ErrorKind::PermissionDenied.into());
        assert_eq!(error.kind, ProblemKind::Machine);
        let error = cannot_write(temporary.path(), &io::ErrorKind::StorageFull.into());
        assert_eq!(error.kind, ProblemKind::Machine);
    }

    #[test]
    fn a_path_of_the_wrong_kind_is_the_users_mistake() {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("run"), temporary.path().join("n".repeat(300))] {
            let error = open(&path).unwrap_err();
            assert_eq!(error.kind, ProblemKind::Input, "{error}");
            assert!(error.message.contains(&path.display().to_string()), "{error}");
        }
    }
}
