//! An event file for TensorBoard that grows while a run trains.
//!
//! After a kill, a torn record is cut and what the log has beyond the file is added, so that no step is there twice and
//! none is missing. A file that does not agree with the log is replaced.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lab::experiment::Experiment;
use records::metrics::{Evaluation, Step};
use report::tensorboard::{self, Event};

use crate::fail::{Failure, shown};
use crate::out;

/// The event file of a run that trains in this process.
#[derive(Debug)]
pub struct Live {
    /// The folder of the file.
    folder: PathBuf,
    /// The lock's id.
    lock: String,
    tokens_per_step: u64,
    /// There is none before the first event.
    file: Option<File>,
    /// The last step, and the last evaluation, in the file.
    last: [u64; 2],
    /// The latest wall time in the file.
    wall_time: f64,
}

/// The event files of canonc in a folder, sorted.
pub fn event_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::cannot_read(folder, &error)),
    };
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(tensorboard::BEGINNING) && name.ends_with(tensorboard::ENDING)
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut found = paths.map_err(|error| Failure::cannot_read(folder, &error))?;
    found.retain(is_ours);
    found.sort();
    Ok(found)
}

/// The folder of a run's event file, which is no part of the run's folder.
pub fn folder(dir: &Path, name: &str, run: &Path) -> Result<PathBuf, Failure> {
    out::container(dir)?;
    let folder = out::named(dir, name, "")?;
    out::container(&folder)?;
    // The run's folder may not exist yet.
    let [ours, theirs] = [folder.as_path(), run].map(real);
    if ours.starts_with(&theirs) {
        return Err(Failure::bad_input(format!(
            "`--tensorboard {}` would write into the run's folder, `{}`, which may contain only files of the run",
            shown(dir),
            shown(run)
        ))
        .help("name another folder, such as `--tensorboard tensorboard`"));
    }
    Ok(folder)
}

/// Most bytes of an event file that canonc goes on with.
const MOST_BYTES: u64 = disk::TEXT;
/// A file that is shorter may be the torn first record of one.
const FIRST: u64 = 128;

impl Live {
    /// Finds or prepares the event file of a run, and brings it to where the run's log is.
    pub fn open(dir: &Path, run: &Path, experiment: &Experiment) -> Result<Live, Failure> {
        let folder = folder(dir, &experiment.name, run)?;
        let mut live = Live {
            folder,
            lock: experiment.id().to_string(),
            tokens_per_step: experiment.batch.tokens_per_step,
            file: None,
            last: [0; 2],
            wall_time: 0.0,
        };
        let found = match event_files(&live.folder)?.as_slice() {
            [] => None,
            [one] => Some((one.clone(), live.take_up(one)?)),
            several => {
                let names: Vec<String> =
                    several.iter().map(|path| format!("`{}`", shown(path))).collect();
                return Err(Failure::bad_input(format!(
                    "a run has one event file, but there are {}: {}",
                    several.len(),
                    names.join(", ")
                ))
                .help("remove them, or name another folder with `--tensorboard`"));
            }
        };
        // A log of another lock, or a damaged one: training says what is wrong with it.
        let Ok(logged) = tensorboard::logged(run, experiment) else { return Ok(live) };
        live.catch_up(found, &logged)
            .map_err(|error| Failure::cannot_write(&live.folder, &error))?;
        Ok(live)
    }

    /// Opens an existing file for this process alone, and reads it.
    fn take_up(&mut self, path: &Path) -> Result<tensorboard::Records, Failure> {
        let is_file = |found: &fs::Metadata| found.is_file();
        match fs::symlink_metadata(path) {
            Ok(found) if is_file(&found) && found.len() < FIRST => {}
            Ok(_) | Err(_) => out::check(path, out::OutputKind::Events)?,
        }
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .open(path)
            .map_err(|error| Failure::cannot_write(path, &error))?;
        hold(&file).map_err(|error| match error {
            TryLockError::WouldBlock => {
                Failure::machine(format!("`{}` is being written by another process", shown(path)))
                    .help("wait until it ends, or name another folder with `--tensorboard`")
            }
            TryLockError::Error(error) => Failure::cannot_write(path, &error),
        })?;
        let bytes =
            disk::read(path, MOST_BYTES).map_err(|error| Failure::cannot_read(path, &error))?;
        let records = tensorboard::read(&bytes);
        if let Some(other) = records.lock.as_ref().filter(|lock| **lock != self.lock) {
            return Err(Failure::bad_input(format!(
                "`{}` has the events of a run of lock {}, but this run's lock is {}",
                shown(path),
                short(other),
                short(&self.lock)
            ))
            .help("remove it, or name another folder with `--tensorboard`"));
        }
        if records.lock.is_none() && records.complete > 0 && records.events.is_empty() {
            return Err(Failure::bad_input(format!(
                "`{}` does not look like an event file of a run",
                shown(path)
            ))
            .help("remove it, or name another folder with `--tensorboard`"));
        }
        self.file = Some(file);
        Ok(records)
    }

    /// Cuts a torn record and adds what the log has beyond the file; replaces a file that does not agree with the log.
    fn catch_up(
        &mut self,
        found: Option<(PathBuf, tensorboard::Records)>,
        logged: &[Event],
    ) -> io::Result<()> {
        let mut kept = 0;
        if let (Some((path, records)), Some(file)) = (found, &mut self.file) {
            let written = &records.events;
            let agrees = (records.lock.is_some() || records.complete == 0)
                && written.len() <= logged.len()
                && written.iter().zip(logged).all(|(own, of_log)| tensorboard::agree(own, of_log));
            if agrees {
                // TensorBoard reads a record that is not whole again later, so it never saw what is cut.
                file.set_len(records.complete as u64)?;
                kept = written.len();
                self.wall_time = written.last().map_or(0.0, |event| event.wall_time);
            } else {
                // In a file that became shorter, TensorBoard would wait behind the end.
                fs::remove_file(&path)?;
                self.file = None;
            }
        }
        for (at, event) in logged.iter().enumerate() {
            if at >= kept {
                self.write(event.clone())?;
            }
            self.note(event);
        }
        Ok(())
    }

    /// Adds a step that has been logged, unless it is in the file.
    pub fn step(&mut self, step: &Step, seconds: f64) -> io::Result<()> {
        let [last, _] = self.last;
        if step.step <= last {
            return Ok(());
        }
        self.add(tensorboard::of_step(step, self.tokens_per_step, Some(seconds), now()))
    }

    /// Adds an evaluation that has been logged, unless it is in the file.
    pub fn evaluation(&mut self, evaluation: &Evaluation) -> io::Result<()> {
        let [_, last] = self.last;
        match tensorboard::of_evaluation(evaluation, now()) {
            Some(event) if evaluation.step > last => self.add(event),
            Some(_) | None => Ok(()),
        }
    }

    fn add(&mut self, event: Event) -> io::Result<()> {
        self.note(&event);
        self.write(event)
    }

    fn note(&mut self, event: &Event) {
        let [step, evaluation] = &mut self.last;
        let last = if tensorboard::is_evaluation(event) { evaluation } else { step };
        *last = event.step.max(*last);
    }

    /// Writes a record in one call, which no reader sees half of but where the disk is full.
    fn write(&mut self, mut event: Event) -> io::Result<()> {
        event.wall_time = event.wall_time.max(self.wall_time);
        self.wall_time = event.wall_time;
        let mut bytes = Vec::new();
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                disk::create_folders(&self.folder)?;
                self.file.insert(new_file(&self.folder)?)
            }
        };
        if file.metadata()?.len() == 0 {
            bytes = tensorboard::first(event.wall_time, &self.lock);
        }
        bytes.extend(event.record());
        file.write_all(&bytes)
    }
}

/// A new file, named by the time, so that it comes after those that TensorBoard has read.
fn new_file(folder: &Path) -> io::Result<File> {
    let path = folder.join(tensorboard::file_name(now()));
    let file = OpenOptions::new().read(true).append(true).create_new(true).open(path)?;
    hold(&file).map_err(io::Error::from)?;
    Ok(file)
}

fn hold(file: &File) -> Result<(), TryLockError> {
    file.try_lock()
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let known = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match known {
        Some((above, real)) => match path.strip_prefix(above) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            Ok(_) | Err(_) => real,
        },
        None => path,
    }
}
