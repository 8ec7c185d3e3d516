//! `canonc run`: trains a lock to its end, in a run folder.
//!
//! The lock alone determines the result, and `--device` makes another lock of it. libtorch starts in the environment that
//! the lock requires, so the process may restart itself. One Ctrl-C leaves a good checkpoint, a second one ends at once.

mod estimate;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use compiler::plan::Precision;
use data::text::SourceEpochs;
use lab::experiment::{Device, Experiment};
use lab::field::{FieldValue, Fields};
use lab::lock::{self, Lock};
use records::attest::Attestation;
use records::fault::Faults;
use records::job::{Job, estimate as estimate_of, repeated};
use records::platform::multiplies_bf16;
use records::run::{Paths, experiment_from_text, lock_from_text};
use runtime::execute::Machine;
use runtime::ranks::{Arrived, Launch};
use runtime::train::{Options, TrainOutcome, machine_of_rank, train};
use serde::Serialize;

use crate::environment::start_again;
use crate::progress::{Observed, Screen};
use crate::ranks;
use cli::commands::run::RunArgs;
use cli::extensions::suites;
use cli::fail::{Exit, Failure, Outcome, shown};
use cli::finished_runs::FinishedRuns;
use cli::inputs::GivenPaths;
use cli::live::Live;
use cli::options::OnDevice;
use cli::signals::{release, stop_in_time, stop_on_signals};
use cli::training::{already_finished, diverged};
use cli::{build, child, documents, forecast, initial_weights, out, output, workspace};

pub(crate) fn run(args: &RunArgs) -> Outcome {
    let path = match (args.named.as_slice(), &args.lock) {
        ([_, _, ..], _) => return run_several(args),
        ([word], _) | ([], Some(Some(word))) => workspace::lock_path(word)?,
        ([], Some(None) | None) => workspace::only_experiment()?,
    };
    output::detail(|| format!("lock: {}", shown(&path)));
    let launch = Launch::from_environment(|name| std::env::var(name).ok())?;
    if launch.is_some() {
        ranks::end_with_parent()?;
    }
    // A dry run does not meet the other ranks.
    let mut others =
        OtherRanks { launch: launch.as_ref().filter(|_| !args.dry_run), arrived: None };
    let (locked, experiment) = others.or_give_up(read(&path, args, launch.as_ref()))?;
    if let (None, Some(ranks @ 2..)) = (&launch, args.ranks)
        && !args.dry_run
    {
        return ranks::start(ranks, experiment.platform.threads, args.rank_timeout);
    }
    start_again(&experiment)?;
    // An estimate ends at once.
    let stop = match args.dry_run {
        true => Arc::default(),
        false => stop_on_signals()?,
    };
    release();
    stop_in_time(&stop, args.stop_after);
    let folder = folder(args, &path, &experiment)?;
    let leads = launch.as_ref().is_none_or(|launch| launch.rank == 0);
    if leads && let Some(warning) = changed(&path, locked) {
        output::note(&warning);
    }
    let dir = args.tensorboard.as_ref().filter(|_| !args.dry_run && leads);
    let live = dir.map(|dir| Live::open(dir, &folder, &experiment)).transpose();
    let live = others.or_give_up(live)?;
    others.arrive(args)?;
    let prepared = prepare(&experiment, &folder, args, launch.as_ref());
    let (mut job, machine) = others.or_give_up(prepared)?;
    if args.dry_run {
        let ranks = launch.as_ref().map_or(args.ranks, |launch| Some(launch.size));
        return estimate::show(&experiment, &folder, &mut job, machine, ranks, args);
    }
    let faults = match &args.fault {
        None => Faults::none(),
        Some(text) => Faults::parse(text).map_err(|error| Failure::bad_input(error.to_string()))?,
    };
    let joined = match (others.arrived, &launch) {
        (Some(arrived), Some(launch)) => Some(ranks::join(arrived, launch, args, &experiment)?),
        (_, _) => None,
    };
    if let Some(joined) = joined.as_ref().filter(|joined| !joined.leads()) {
        return joined.follow(&mut job, machine, &stop, &folder);
    }
    let member = joined.as_ref().map(|joined| &joined.member);
    let options =
        Options { stop: &stop, stop_after: args.stop_after_step, faults: &faults, ranks: member };
    tell_beginning(&experiment, &folder, &job);
    let mut observed = Observed { screen: Screen::new(&experiment), live };
    let end = train(&mut job, &folder, machine, &options, &mut observed);
    observed.screen.clear();
    let end = end?;
    if args.json {
        output::json(&Ended::new(&end, &experiment, &folder))?;
    }
    report(end, &folder)
}

/// How a run ended, for `--json`; the schema is in `canonc run --help`.
#[derive(Serialize)]
struct Ended<'a> {
    schema: &'static str,
    name: &'a str,
    lock: String,
    folder: String,
    state: &'static str,
    steps: u64,
}

impl<'a> Ended<'a> {
    fn new(outcome: &TrainOutcome, experiment: &'a Experiment, folder: &Path) -> Ended<'a> {
        let (state, steps) = match outcome {
            TrainOutcome::Finished(run) | TrainOutcome::Already(run) => ("finished", run.steps),
            TrainOutcome::Diverged { attestation, why: _ } => ("diverged", attestation.steps),
            TrainOutcome::Interrupted { step } => ("interrupted", *step),
        };
        Ended {
            schema: "canonc.run.v1",
            name: &experiment.name,
            lock: experiment.id().to_string(),
            folder: shown(folder),
            state,
            steps,
        }
    }
}

/// The other ranks of this run, which must not wait for one that has failed.
struct OtherRanks<'a> {
    /// `None` if there are no others.
    launch: Option<&'a Launch>,
    /// Where they meet, once this one is there.
    arrived: Option<Arrived>,
}

impl OtherRanks<'_> {
    fn arrive(&mut self, args: &RunArgs) -> Result<(), Failure> {
        let launch = self.launch.cloned();
        self.arrived = launch.map(|launch| ranks::arrive(launch, args)).transpose()?;
        Ok(())
    }

    /// Tells them why this one fails, if it does.
    fn or_give_up<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        result.inspect_err(|failure| {
            let Some(reason) = &failure.message else { return };
            match (&self.arrived, self.launch) {
                (Some(arrived), _) => arrived.give_up(reason),
                (None, Some(launch)) => ranks::give_up(launch.clone(), reason),
                (None, None) => {}
            }
        })
    }
}

/// The experiment of a lock, and that experiment for the given device.
fn read(
    path: &Path,
    args: &RunArgs,
    launch: Option<&Launch>,
) -> Result<(Experiment, Experiment), Failure> {
    let locked = experiment(path)?;
    let experiment = on_device(locked.clone(), args.device)?;
    ranks::check(args, &experiment, launch)?;
    Ok((locked, experiment))
}

fn experiment(path: &Path) -> Result<Experiment, Failure> {
    let text = workspace::read_lock_text(path)?;
    refuse_other_kinds(path, &text)?;
    Ok(experiment_from_text(&shown(path), &text)?)
}

/// The folder to train in.
fn folder(args: &RunArgs, lock: &Path, experiment: &Experiment) -> Result<PathBuf, Failure> {
    let folder = match &args.dir {
        Some(dir) => dir.clone(),
        None => {
            let (folder, usual) = usual_folder(lock, experiment)?;
            if folder != usual {
                output::note(&format!(
                    "`{}` is a finished run of this lock under another name; `--dir {}` trains it anyway",
                    shown(&folder),
                    shown(&usual)
                ));
            }
            folder
        }
    };
    out::folder(&folder)?;
    Ok(folder)
}

/// A warning for a lock that is not what its name or its source says now.
fn changed(path: &Path, locked: Experiment) -> Option<String> {
    match run_of_lock(path) {
        Some(run) => build::warning_of_other_lock(&run, &locked),
        None => build::warning_of_source(path, &Lock::Experiment(locked)),
    }
}

/// The job of a lock, and the machine of this rank.
fn prepare(
    experiment: &Experiment,
    folder: &Path,
    args: &RunArgs,
    launch: Option<&Launch>,
) -> Result<(Job, Machine), Failure> {
    let documents = documents::read(experiment, args.data.as_deref())?;
    initial_weights::refuse_unused(experiment, args.weights.as_deref())?;
    // A finished run needs no evaluation suites and no weights, and times do not depend on the weights.
    let is_finished = Paths::new(folder).is_attested()?;
    let measure = match is_finished {
        true => None,
        false => suites().measure(experiment, documents.as_deref())?,
    };
    let weights = match is_finished || args.dry_run {
        true => None,
        false => initial_weights::read(experiment, args.weights.as_deref())?,
    };
    let text = lock::write(&Lock::Experiment(experiment.clone()));
    let job = Job::new(experiment, &text, documents)?.with_measure(measure).with_weights(weights);
    let (place, local) = launch.map_or((0, 1), |launch| (launch.local_rank, launch.local));
    Ok((job, machine_of_rank(&experiment.platform, place, local)?))
}

/// Says what will be trained, and what is notable about it.
fn tell_beginning(experiment: &Experiment, folder: &Path, job: &Job) {
    output::note(&format!(
        "{}: {} of {}, lock {}, in {}",
        experiment.name,
        output::counted(experiment.budget.steps, "step"),
        output::counted(experiment.batch.tokens_per_step, "token"),
        experiment.id().short(),
        shown(folder)
    ));
    if let Some(warning) = forecast::learns_nothing(experiment) {
        output::note(&warning);
    }
    let bf16 = experiment.precision == Precision::Bf16;
    if bf16 && experiment.platform.device == Device::Cpu && !multiplies_bf16() {
        output::note(
            "warning: this CPU has no instructions for bf16 products (AVX512-BF16 or AMX), so bf16 is right but slower \
             than f32",
        );
    }
    let estimated = estimate_of(job);
    for source in estimated.epochs.iter().flatten() {
        output::note(&format!("epochs: {}", epochs(source)));
    }
    for warning in repeated(job, &estimated) {
        output::note(&format!("warning: {warning}"));
    }
}

/// Reports how training ended.
fn report(outcome: TrainOutcome, run_folder: &Path) -> Outcome {
    let folder = shown(run_folder);
    match outcome {
        TrainOutcome::Finished(attestation) => {
            output::note(&format!(
                "finished: weights {}, metrics {}; `canonc verify {folder}` checks the run",
                attestation.weights.short(),
                attestation.metrics.short()
            ));
            Ok(Exit::Fine)
        }
        TrainOutcome::Already(attestation) => {
            output::note(&already_finished(&attestation.into(), run_folder));
            Ok(Exit::Fine)
        }
        TrainOutcome::Diverged { attestation: Attestation { steps, .. }, why } => {
            output::note(&format!(
                "attested as diverged at step {steps}, in {folder}; `canonc verify {folder}` checks the run"
            ));
            Err(Failure::finding(format!("training diverged: {why}")).help(
                "lower optimizer.lr or optimizer.clip, or lengthen schedule.warmup, in a new recipe",
            ))
        }
        TrainOutcome::Interrupted { step } => {
            let (when, of) = match step {
                0 => ("before the first step".to_owned(), " of the initial weights"),
                step => (format!("after step {step}"), ""),
            };
            output::note(&format!(
                "interrupted {when}, with a checkpoint{of}; the same command continues from there"
            ));
            Ok(Exit::Interrupted)
        }
    }
}

/// The folder of a lock's run if none is given, and the folder of the lock's name. The first is the folder that the
/// lock is in if that is a run, or a finished run of the same lock, whatever its name.
fn usual_folder(lock: &Path, experiment: &Experiment) -> Result<(PathBuf, PathBuf), Failure> {
    if let Some(run) = run_of_lock(lock)
        && run.writer().is_file()
    {
        return Ok((run.folder.clone(), run.folder));
    }
    let runs = Path::new(workspace::RUNS);
    let usual = out::named(runs, &experiment.name, "")?;
    Ok((FinishedRuns::under(runs).folder(runs, experiment)?, usual))
}

/// The run that a lock is in the folder of. Its folder has a name, also if the path has none.
fn run_of_lock(lock: &Path) -> Option<Paths> {
    let folder = lock.parent().filter(|folder| folder.file_name().is_some());
    let absolute = std::path::absolute(lock).ok()?;
    let run = Paths::new(folder.or(absolute.parent())?);
    (run.lock().file_name() == lock.file_name()).then_some(run)
}

/// Runs each lock in its own process, since each starts in its own platform. Reads all locks first. Stops at the first
/// run that does not reach its end; a diverged run did.
fn run_several(args: &RunArgs) -> Outcome {
    if args.dir.is_some() {
        return Err(Failure::bad_input(
            "`--dir` names the folder of one run, but several locks are given",
        )
        .help("remove it: each run gets runs/NAME, NAME being its lock's"));
    }
    workspace::refuse_repeated(&args.named)?;
    let mut experiments = Vec::new();
    for word in &args.named {
        let path = workspace::lock_path(word)?;
        let locked = experiment(&path)?;
        experiments.push((path, on_device(locked, args.device)?));
    }
    let stop = stop_on_signals()?;
    let mut all = Exit::Fine;
    for (number, (path, experiment)) in experiments.iter().enumerate() {
        let count = experiments.len();
        output::note(&format!("lock {} of {count}: {}", number + 1, shown(path)));
        let end = child::run_canonc(&words(args, path, experiment), None, &stop);
        let (folder, _) = usual_folder(path, experiment)?;
        match end {
            Ok(Exit::Fine) => {}
            // A diverged run reached its end; go on with the others.
            end if diverged(&end, &folder)?.is_some() => all = Exit::Finding,
            other => return other,
        }
    }
    Ok(all)
}

/// The command that runs one of several locks.
fn words(args: &RunArgs, path: &Path, experiment: &Experiment) -> Vec<OsString> {
    let RunArgs {
        named: _,
        lock: _,
        dir: _,
        data,
        weights,
        tensorboard,
        dry_run,
        json,
        device,
        ranks,
        by_node,
        rank_timeout,
        stop_after,
        stop_after_step,
        fault,
    } = args;
    let mut words: Vec<OsString> = vec!["run".into(), path.into()];
    let mut option = |name: &str, value: Option<OsString>| {
        words.extend(value.into_iter().flat_map(|value| [name.into(), value]));
    };
    let given = GivenPaths { data: data.as_deref(), weights: weights.as_deref() };
    for (name, path) in given.of(experiment).options() {
        option(name, Some(path.into()));
    }
    option("--tensorboard", tensorboard.as_ref().map(OsString::from));
    option("--stop-after", stop_after.map(|time| format!("{}s", time.as_secs()).into()));
    option("--stop-after-step", stop_after_step.map(|n| n.to_string().into()));
    option("--ranks", ranks.map(|n| n.to_string().into()));
    option("--rank-timeout", Some(rank_timeout.to_string().into()));
    option("--fault", fault.as_ref().map(OsString::from));
    option("--device", device.map(|device| device.name().into()));
    words.extend(by_node.then(|| "--by-node".into()));
    words.extend(dry_run.then(|| "--dry-run".into()));
    words.extend(json.then(|| "--json".into()));
    words.extend(output::quiet().then(|| "--quiet".into()));
    words
}

/// Refuses a lock of another kind, and names the command for it.
fn refuse_other_kinds(path: &Path, text: &str) -> Result<(), Failure> {
    let name = shown(path);
    let Ok(lock) = lock_from_text(&name, text) else { return Ok(()) };
    let kind = lock.kind();
    let wrong = Failure::bad_input(format!(
        "`{name}` is a lock of kind {kind}, but an experiment is needed"
    ));
    match lock {
        Lock::Experiment(_) => Ok(()),
        Lock::Comparison(_) => {
            Err(wrong.help(format!("`canonc compare {name}` trains all of its arms")))
        }
        Lock::Arch(arch) => {
            let recipes = build::recipes_of(&arch.source, &arch.arch.name);
            Err(match recipes.split_first() {
                None => wrong.help(
                    "an architecture has no data and no optimizer: use it in a recipe, and run `canonc build \
                     recipes/NAME.toml`",
                ),
                Some((first, rest)) => {
                    let more = match rest {
                        [] => String::new(),
                        _ => format!("; so do {}", rest.join(", ")),
                    };
                    wrong.help(format!("`{first}` trains it: `canonc build {first}`, then run its lock{more}"))
                }
            })
        }
    }
}

/// The experiment for another device: the same id, another platform section.
pub(crate) fn on_device(
    experiment: Experiment,
    device: Option<OnDevice>,
) -> Result<Experiment, Failure> {
    let Some(word) = device.map(OnDevice::name) else { return Ok(experiment) };
    let values = Fields::from([("platform.device".to_owned(), FieldValue::text(word))]);
    experiment.with(experiment.name.clone(), &values).map_err(|problems| {
        let first = problems.into_iter().next();
        first.map_or_else(
            || Failure::bad_input(format!("the lock cannot run on {word}")),
            |problem| Failure::bad_input(problem.message).help(problem.help),
        )
    })
}

/// How often the run reads a source.
fn epochs(source: &SourceEpochs) -> String {
    let SourceEpochs { name, documents, tokens, share, token_share, epochs } = source;
    format!(
        "{epochs:.3} of {name} ({}, {}), {:.1}% of the documents read and {:.1}% of the tokens",
        output::counted(*documents, "document"),
        output::counted(*tokens, "token"),
        100.0 * share,
        100.0 * token_share
    )
}
