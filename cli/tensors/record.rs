//! `canonc record`: checks a run that another engine trained, evaluates its weights and attests it.

use std::path::Path;

use records::attest::Attested;
use records::external::ExternalRun;
use records::finished;
use records::job::Job;
use records::run::{Paths, experiment_from_text, hold, trained_elsewhere};
use records::verify::{Inputs, Remake, VerifyReport, verify};
use runtime::elsewhere::record as evaluate_and_attest;
use runtime::train::machine;
use serde_json::json;

use crate::environment::start_again;
use crate::run::on_device;
use cli::commands::record::RecordArgs;
use cli::extensions::suites;
use cli::fail::{Exit, Failure, Outcome, shown};
use cli::workspace::refuse;
use cli::{documents, initial_weights, output, workspace};

pub(crate) fn record(args: &RecordArgs) -> Outcome {
    let folder = workspace::path(&args.run)?;
    let paths = Paths::new(&folder);
    if !paths.lock().is_file() {
        return Err(refuse::not_a_run(&folder));
    }
    if !trained_elsewhere(&paths)? {
        return Err(Failure::bad_input(format!(
            "the run in `{}` was not trained by another engine: it has no trainer.toml",
            shown(&folder)
        ))
        .help("`canonc run` attests the runs that it trains itself"));
    }
    let text = workspace::read_lock_text(&paths.lock())?;
    let experiment = experiment_from_text(&shown(&paths.lock()), &text)?;
    let here = on_device(experiment.clone(), args.device)?;
    start_again(&here)?;
    let documents = documents::read(&experiment, args.data.as_deref())?;
    let which = if args.all { Remake::Every } else { Remake::Spread };
    let weights = initial_weights::read_if_present(&experiment, args.weights.as_deref())?;
    let inputs = Inputs { documents: documents.clone(), weights };
    let report = verify(&folder, inputs, which)?;
    sound(&folder, &report)?;
    if let Some(attested) = Attested::read(&paths)?.and_then(Result::ok) {
        return tell(args, &folder, &attested, &paths, false);
    }
    let run = ExternalRun::read(&paths)?;
    finished::end_elsewhere((&experiment).into(), &run).map_err(|what| {
        Failure::finding(format!("the run in `{}` is not finished: {what}", shown(&folder)))
            .help("go on with it where it is trained (`bash launch.sh` of its exported folder), and bring it back")
    })?;
    let writer = hold(&paths)?;
    let measure = suites().measure(&experiment, documents.as_deref())?;
    let mut job = Job::new(&experiment, &text, documents)?.with_measure(measure);
    let machine = machine(&here.platform)?;
    let attested = evaluate_and_attest(&paths, &mut job, machine, &mut |evaluation| {
        output::note(&format!("evaluated the weights of step {}", evaluation.step));
    });
    drop(writer);
    tell(args, &folder, &attested?.attestation.into(), &paths, true)
}

/// Refuses a run with a finding, and shows all of them.
fn sound(folder: &Path, report: &VerifyReport) -> Result<(), Failure> {
    let VerifyReport { broken, .. } = report;
    let Some(first) = broken.first() else { return Ok(()) };
    for finding in broken {
        output::note(&format!("BROKEN     {finding}"));
    }
    let of = match broken.len() {
        1 => first.clone(),
        count => format!("{first}, and {} more", count - 1),
    };
    let message = format!("`{}` is not recorded: {of}", shown(folder));
    Err(Failure { exit: Exit::Finding, ..Failure::bad_input(message) }
        .help("docs/files.md has the form of such a folder; train the lock again, or restore the folder from a copy"))
}

fn tell(
    args: &RecordArgs,
    folder: &Path,
    attested: &Attested,
    paths: &Paths,
    now: bool,
) -> Outcome {
    let run = ExternalRun::read(paths)?;
    let steps: Vec<u64> = run.measured.iter().map(|one| one.evaluation.step).collect();
    if args.json {
        output::json(&json!({
            "schema": "canonc.record.v1",
            "run": shown(folder),
            "trainer": run.trainer.words(),
            "steps": attested.steps,
            "diverged": attested.diverged,
            "weights": attested.weights.to_string(),
            "evaluations": steps,
            "recorded": now,
        }))?;
        return Ok(Exit::Fine);
    }
    let done = if now { "recorded" } else { "already recorded" };
    let ended = match attested.diverged {
        Some(step) => format!("diverged at step {step}"),
        None => output::counted(attested.steps, "step"),
    };
    output::note(&format!(
        "{done}: {ended} by {}, weights {}, {}; `canonc verify {}` lists what is taken on trust",
        run.trainer.words(),
        attested.weights.short(),
        output::counted(steps.len(), "evaluation"),
        shown(folder),
    ));
    Ok(Exit::Fine)
}
