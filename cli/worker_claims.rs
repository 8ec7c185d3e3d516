//! Claims of workers on the runs of a comparison, in a folder that all of them see.
//!
//! A claim is the file with the highest number. Only creating the next number takes it over, which one worker can do, and
//! only after its holder was silent for the whole lease, by the clock of the file system.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::fail::Failure;

/// The folder of claims, in the folder of a comparison's runs.
pub const FOLDER: &str = "claims";

/// A run that this worker alone may train, until this is dropped.
#[derive(Debug)]
pub struct Claim {
    claims: PathBuf,
    run: String,
    number: u64,
    beat: Option<(Sender<()>, JoinHandle<()>)>,
}

/// Result of asking for a run.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// This worker may train it.
    Claimed(Claim),
    /// The worker of this name trains it.
    Held(String),
}

/// Claims a run. `lost` is called if another worker takes the claim over, since this one was silent.
pub fn claim(
    folder: &Path,
    run: &str,
    lease: Duration,
    lost: impl Fn() + Send + 'static,
) -> Result<ClaimOutcome, Failure> {
    let claims = folder.join(FOLDER);
    let failed = |error: std::io::Error| Failure::cannot_write(&claims, &error);
    disk::create_folders(&claims).map_err(failed)?;
    loop {
        let latest = latest(&claims, run).map_err(failed)?;
        if latest > 0
            && let Some(holder) = holder(&claims, run, latest, lease).map_err(failed)?
        {
            return Ok(ClaimOutcome::Held(holder));
        }
        let number = latest + 1;
        let path = path(&claims, run, number);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(who().as_bytes()).map_err(failed)?;
                let (end, ended) = channel();
                let (at, name) = (claims.clone(), run.to_owned());
                let beat = std::thread::spawn(move || {
                    keep(&at, &name, number, lease, &ended, &lost);
                });
                let run = run.to_owned();
                return Ok(ClaimOutcome::Claimed(Claim {
                    claims,
                    run,
                    number,
                    beat: Some((end, beat)),
                }));
            }
            // Another worker was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((end, beat)) = self.beat.take() {
            drop(end);
            let _ = beat.join();
        }
        // Claims that this one took over, first: the highest number decides.
        for number in 1..=self.number {
            let _ = fs::remove_file(path(&self.claims, &self.run, number));
        }
    }
}

fn path(claims: &Path, run: &str, number: u64) -> PathBuf {
    claims.join(format!("{run}.{number}"))
}

/// This worker, in words.
fn who() -> String {
    let host = ["SLURMD_NODENAME", "HOSTNAME"].iter().find_map(|name| std::env::var(name).ok());
    let host =
        host.or_else(|| disk::read_text(Path::new("/proc/sys/kernel/hostname"), disk::SMALL).ok());
    let host = host.unwrap_or_else(|| "this machine".to_owned());
    format!("process {} on {}", std::process::id(), host.trim())
}

/// The highest number of a claim on the run; 0 if there is none.
fn latest(claims: &Path, run: &str) -> std::io::Result<u64> {
    let mut latest = 0;
    for entry in fs::read_dir(claims)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(run)?.strip_prefix('.'));
        latest = latest.max(number.and_then(|number| number.parse().ok()).unwrap_or(0));
    }
    Ok(latest)
}

/// Who holds this claim; `None` if nobody has renewed it within the lease.
fn holder(
    claims: &Path,
    run: &str,
    number: u64,
    lease: Duration,
) -> std::io::Result<Option<String>> {
    let claim = path(claims, run, number);
    let renewed = match fs::metadata(&claim).and_then(|found| found.modified()) {
        Ok(renewed) => renewed,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // The clock of the file system: that of this machine may differ.
    let probe = tempfile::Builder::new().prefix(".now-").tempfile_in(claims)?;
    let now = probe.as_file().metadata()?.modified()?;
    if now.duration_since(renewed).unwrap_or_default() >= lease {
        return Ok(None);
    }
    let text = disk::read_text(&claim, disk::SMALL).unwrap_or_default();
    let name = text.lines().next().unwrap_or("another worker");
    Ok(Some(name.to_owned()))
}

/// Renews a claim until it ends.
fn keep(
    claims: &Path,
    run: &str,
    number: u64,
    lease: Duration,
    ended: &Receiver<()>,
    lost: &dyn Fn(),
) {
    loop {
        match ended.recv_timeout(lease / 4) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        if latest(claims, run).is_ok_and(|latest| latest > number) {
            lost();
            return;
        }
        // If it cannot be renewed now, it can be the next time, or the lease ends.
        let _ = File::create(path(claims, run, number))
            .and_then(|mut file| file.write_all(who().as_bytes()));
    }
}
