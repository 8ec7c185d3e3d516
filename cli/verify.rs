//! `canonc verify`: every digest of a run or a lock, checked again without a network or libtorch.
//!
//! In: a run's folder or a lock. Out: what holds and what does not. Must stay true: exit 1 if and
//! only if something does not hold; nothing is written.

use std::path::{Path, PathBuf};

use compiler::lock::Lock;
use runtime::run::{Paths, read_experiment, read_lock};
use runtime::verify::{Claim, Remake, Report, Subject, verify as check};
use serde_json::json;

use crate::args::VerifyArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::output;
use crate::runs::{self, documents, failure, read_text};

pub(crate) fn verify(args: &VerifyArgs) -> Outcome {
    let report = match place(&args.what) {
        Place::Run(folder) => {
            let which = if args.all { Remake::Every } else { Remake::Spread };
            of_run(&folder, args.data.as_deref(), which)?
        }
        Place::Lock(path) => {
            let text = read_text(&path)?;
            match read_lock(&shown(&path), &text) {
                Ok(lock) => of_lock(&path, &lock),
                Err(error) => {
                    let help = error.help.clone();
                    return finish(
                        args,
                        Report { broken: vec![error.message], ..Report::default() },
                        Some(help),
                    );
                }
            }
        }
    };
    finish(args, report, None)
}

enum Place {
    Run(PathBuf),
    Lock(PathBuf),
}

/// A folder, a file, or the name of a run under `runs/`.
fn place(what: &Path) -> Place {
    let named = Path::new(runs::FOLDER).join(what);
    if what.is_dir() {
        Place::Run(what.to_owned())
    } else if !what.exists() && named.is_dir() {
        Place::Run(named)
    } else {
        Place::Lock(what.to_owned())
    }
}

/// What a lock's text gives again, and what the lock still waits for.
fn of_lock(path: &Path, lock: &Lock) -> Report {
    let mut report = Report::default();
    let id = lock.id().short();
    report.recomputed(
        Subject::Lock,
        format!("{} lock {id}: every line follows from its text", lock.kind()),
    );
    for input in lock.open_inputs() {
        let what = format!(
            "open: {input} has no digest, so it cannot run yet; `canonc bind {} --data PATH` closes it",
            shown(path)
        );
        report.trusted(Subject::Batches, what);
    }
    report
}

fn of_run(folder: &Path, data: Option<&Path>, which: Remake) -> Result<Report, Failure> {
    // Documents are looked for only where the lock can say which; a lock that cannot be read is in the report.
    let experiment = std::fs::read_to_string(Paths::new(folder).lock())
        .ok()
        .and_then(|text| read_experiment("lock", &text).ok());
    let documents = match &experiment {
        Some(experiment) if data.is_some() => documents(experiment, data)?,
        Some(experiment) => documents(experiment, None).unwrap_or_default(),
        None => None,
    };
    check(folder, documents, which).map_err(failure)
}

fn finish(args: &VerifyArgs, report: Report, help: Option<String>) -> Outcome {
    let Report { recomputed, checked, trusted, broken } = &report;
    let closing = report.closing();
    if args.json {
        output::json(&json!({
            "schema": "canonc.verify.v2",
            "recomputed": recomputed,
            "checked": checked,
            "trusted": trusted,
            "broken": broken,
            "closing": closing,
        }))?;
    } else {
        let line = |word: &str, what: &str| format!("{word:<10} {what}\n");
        let mut text = String::new();
        for (word, claims) in
            [("recomputed", recomputed), ("checked", checked), ("trusted", trusted)]
        {
            text.extend(claims.iter().map(|Claim { subject: _, text }| line(word, text)));
        }
        text.extend(broken.iter().map(|what| line("BROKEN", what)));
        text.push_str(&format!("{closing}\n"));
        output::data(&text)?;
    }
    if broken.is_empty() {
        return Ok(Exit::Fine);
    }
    let failure = Failure::bad_input(format!(
        "`{}` is not what it claims to be: {}",
        shown(&args.what),
        output::count(broken.len(), "finding")
    ));
    let failure = Failure { exit: Exit::Finding, ..failure };
    Err(match help {
        Some(help) => failure.help(help),
        None => {
            failure.help("restore it from a copy, or run the lock again in a new folder (--dir)")
        }
    })
}
