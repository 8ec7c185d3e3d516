//! `canonc run`: trains a lock to its end, in a run folder.
//!
//! In: a lock, or none if there is only one to run. Out: the run's folder; progress on standard
//! error. Must stay true: the lock alone determines the result, and `--device` makes another lock of
//! it; libtorch starts in the environment the lock requires, so the process may restart itself;
//! one Ctrl-C leaves a good checkpoint, a second one ends immediately.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

use compiler::plan::Precision;
use data::text::SourceEpochs;
use lab::experiment::{Device, Experiment};
use lab::field::{FieldValue, Fields};
use lab::lock::Lock;
use records::attest::Attestation;
use records::checkpoint::{set_aside, step_of};
use records::fault::Faults;
use records::job::{Job, estimate, fits, repeated};
use records::metrics::{Evaluation, Score, Step, SuiteScores};
use records::platform::{memory_limit, multiplies_bf16, needs_reexec, peak_memory};
use records::progress::{Progress, bytes, rounded, span};
use records::run::{Event, Paths, read_experiment, read_lock};
use report::compare::measure_name;
use runtime::execute::Machine;
use runtime::ranks::Launch;
use runtime::train::{
    Observer, Options, TimingMethod, TrainOutcome, estimate_of_rank, machine_of_rank, spec, time,
    train,
};

use canonc::args::{OnDevice, RunArgs};
use canonc::fail::{Exit, Failure, Outcome, shown};
use canonc::forecast::{MemorySource, RunEstimate, RunState, Timed};
use canonc::found::Found;
use canonc::live::Live;
use canonc::runs::{self, failure};
use canonc::signals::{stop_in_time, stop_on_signals};
use canonc::{child, named, out, output};

use crate::{live, ranks};

pub(crate) fn run(args: &RunArgs) -> Outcome {
    let path = match (args.named.as_slice(), &args.lock) {
        ([_, _, ..], _) => return several(args),
        ([word], _) | ([], Some(Some(word))) => named::lock(word)?,
        ([], Some(None) | None) => runs::only_experiment()?,
    };
    output::detail(|| format!("lock: {}", shown(&path)));
    let launch = Launch::from_environment(|name| std::env::var(name).ok()).map_err(failure)?;
    if launch.is_some() {
        ranks::end_with_parent()?;
    }
    let read = || {
        let text = runs::read_text(&path)?;
        trains(&path, &text)?;
        let locked = read_experiment(&shown(&path), &text).map_err(failure)?;
        let experiment = on_device(locked.clone(), args.device)?;
        ranks::check(args, &experiment, launch.as_ref())?;
        Ok((locked, experiment))
    };
    let (locked, experiment) = read().inspect_err(|failure: &Failure| {
        if let (Some(launch), Some(why), false) = (&launch, &failure.message, args.dry_run) {
            ranks::give_up(launch.clone(), why);
        }
    })?;
    if let (None, Some(ranks @ 2..)) = (&launch, args.ranks)
        && !args.dry_run
    {
        return ranks::start(ranks, experiment.platform.threads);
    }
    start_again(&experiment)?;
    let text = lab::lock::write(&Lock::Experiment(experiment.clone()));
    let folder = match &args.dir {
        Some(dir) => dir.clone(),
        None => {
            let (folder, usual) = usual_folder(&path, &experiment)?;
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
    let warning = match run_of_lock(&path) {
        _ if launch.as_ref().is_some_and(|launch| launch.rank > 0) => None,
        Some(run) => runs::of_another_lock(&run, &locked),
        None => canonc::build::warning_of_source(&path, &Lock::Experiment(locked)),
    };
    if let Some(warning) = warning {
        output::note(&warning);
    }
    let tensorboard = args
        .tensorboard
        .as_ref()
        .filter(|_| !args.dry_run && launch.as_ref().is_none_or(|launch| launch.rank == 0));
    let live = tensorboard.map(|dir| Live::open(dir, &folder, &experiment)).transpose();
    let live = live.inspect_err(|failure| {
        if let (Some(launch), Some(why)) = (&launch, &failure.message) {
            ranks::give_up(launch.clone(), why);
        }
    })?;
    let prepare = || -> Result<(Job, Machine), Failure> {
        let documents = runs::documents(&experiment, args.data.as_deref())?;
        // A finished run asks nothing.
        let measure = match Paths::new(&folder).attestation().exists() {
            true => None,
            false => suite::run::of(&experiment, documents.as_deref()).map_err(failure)?,
        };
        let job = Job::new(&experiment, &text, documents).map_err(failure)?.with_measure(measure);
        let (place, local) = launch.as_ref().map_or((0, 1), |launch| (launch.place, launch.local));
        let on = machine_of_rank(&experiment.platform, place, local).map_err(failure)?;
        Ok((job, on))
    };
    let meets = launch.clone().filter(|_| !args.dry_run);
    let arrived = meets.map(|launch| ranks::arrive(launch, args)).transpose()?;
    let (mut job, on) = prepare().inspect_err(|failure: &Failure| {
        if let (Some(arrived), Some(why)) = (&arrived, &failure.message) {
            arrived.give_up(why);
        }
    })?;
    if args.dry_run {
        let flops = experiment.analysis.train_flops_per_token as f64
            * experiment.batch.tokens_per_step as f64;
        let timing = time(&mut job, on, flops).map_err(failure)?;
        let ranks = launch.as_ref().map_or(args.ranks, |launch| Some(launch.size));
        return dry_run(&experiment, &folder, &job, timing, ranks.filter(|ranks| *ranks > 1), args);
    }
    let faults = match &args.fault {
        None => Faults::none(),
        Some(text) => Faults::parse(text).map_err(|error| Failure::bad_input(error.to_string()))?,
    };
    let stop = stop_on_signals()?;
    stop_in_time(&stop, args.stop_after);
    let joined = match (arrived, &launch) {
        (Some(arrived), Some(launch)) => Some(ranks::join(arrived, launch, args, &experiment)?),
        (_, _) => None,
    };
    if let Some(joined) = joined.as_ref().filter(|joined| !joined.leads()) {
        return joined.follow(&mut job, on, &stop, &folder);
    }
    let member = joined.as_ref().map(|joined| &joined.member);
    let options =
        Options { stop: &stop, stop_after: args.stop_after_step, faults: &faults, ranks: member };
    output::note(&format!(
        "{}: {} of {}, lock {}, in {}",
        experiment.name,
        output::counted(experiment.budget.steps, "step"),
        output::counted(experiment.batch.tokens_per_step, "token"),
        experiment.id().short(),
        shown(&folder)
    ));
    if let Some(warning) = runs::learns_nothing(&experiment) {
        output::note(&warning);
    }
    let bf16 = experiment.precision == Precision::Bf16;
    if bf16 && experiment.platform.device == Device::Cpu && !multiplies_bf16() {
        output::note(
            "warning: this CPU has no instructions for bf16 products (AVX512-BF16 or AMX), so bf16 is right but slower \
             than f32",
        );
    }
    let estimated = estimate(&job);
    for source in estimated.epochs.iter().flatten() {
        output::note(&format!("epochs: {}", read_of(source)));
    }
    for warning in repeated(&job, &estimated) {
        output::note(&format!("warning: {warning}"));
    }
    let mut shown_to = live::Shown { screen: Screen::new(&experiment), live };
    let end = train(&mut job, &folder, on, &options, &mut shown_to);
    shown_to.screen.clear();
    match end.map_err(failure)? {
        TrainOutcome::Finished(attestation) => {
            output::note(&format!(
                "finished: weights {}, metrics {}; `canonc verify {}` checks the run",
                attestation.weights.short(),
                attestation.metrics.short(),
                shown(&folder)
            ));
            Ok(Exit::Fine)
        }
        TrainOutcome::Already(attestation) => {
            output::note(&format!(
                "already finished: {}, weights {}, in {}",
                output::counted(attestation.steps, "step"),
                attestation.weights.short(),
                shown(&folder)
            ));
            Ok(Exit::Fine)
        }
        TrainOutcome::Diverged { attestation: Attestation { steps, .. }, why } => {
            output::note(&format!(
                "attested as diverged at step {steps}, in {}; `canonc verify {}` checks the run",
                shown(&folder),
                shown(&folder)
            ));
            let failure = Failure::bad_input(format!("training diverged: {why}"));
            Err(Failure { exit: Exit::Finding, ..failure }.help(
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
    let runs = Path::new(runs::FOLDER);
    let usual = out::named(runs, &experiment.name, "")?;
    Ok((Found::under(runs).place(runs, experiment)?, usual))
}

/// The run that a lock is in the folder of. Its folder has a name, also if the path has none.
fn run_of_lock(lock: &Path) -> Option<Paths> {
    let folder = lock.parent().filter(|folder| folder.file_name().is_some());
    let whole = std::path::absolute(lock).ok()?;
    let run = Paths::new(folder.or(whole.parent())?);
    (run.lock().file_name() == lock.file_name()).then_some(run)
}

/// Runs each lock in its own process, since each starts in its own platform. Reads all locks first. Stops at the first
/// run that does not reach its end; a diverged run did.
fn several(args: &RunArgs) -> Outcome {
    let RunArgs {
        named,
        lock: _,
        dir,
        data,
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
    if dir.is_some() {
        return Err(Failure::bad_input(
            "`--dir` names the folder of one run, but several locks are given",
        )
        .help("remove it: each run gets runs/NAME, NAME being its lock's"));
    }
    named::once(named)?;
    let mut experiments = Vec::new();
    for word in named {
        let path = named::lock(word)?;
        let text = runs::read_text(&path)?;
        trains(&path, &text)?;
        let locked = read_experiment(&shown(&path), &text).map_err(failure)?;
        experiments.push((path, on_device(locked, *device)?));
    }
    let stop = stop_on_signals()?;
    let mut all = Exit::Fine;
    for (number, (path, experiment)) in experiments.iter().enumerate() {
        output::note(&format!("lock {} of {}: {}", number + 1, named.len(), shown(path)));
        let mut words: Vec<OsString> = vec!["run".into(), path.into()];
        let mut option = |name: &str, value: Option<OsString>| {
            words.extend(value.into_iter().flat_map(|value| [name.into(), value]));
        };
        let data = data.as_ref().filter(|_| runs::reads_documents(experiment));
        option("--data", data.map(OsString::from));
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
        let end = child::carry_out(&words, None, &stop);
        let (folder, _) = usual_folder(path, experiment)?;
        match end {
            Ok(Exit::Fine) => {}
            // A diverged run reached its end; go on with the others.
            end if canonc::compare::diverged(&end, &folder).is_some() => all = Exit::Finding,
            other => return other,
        }
    }
    Ok(all)
}

/// Refuses a lock of another kind, and names the command for it.
fn trains(path: &Path, text: &str) -> Result<(), Failure> {
    let name = shown(path);
    let Ok(lock) = read_lock(&name, text) else { return Ok(()) };
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
            let recipes = canonc::build::recipes_of(&arch.source, &arch.arch.name);
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
fn on_device(experiment: Experiment, device: Option<OnDevice>) -> Result<Experiment, Failure> {
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

/// Replaces this process by one in the lock's required environment, unless it already has it.
pub(crate) fn start_again(experiment: &Experiment) -> Result<(), Failure> {
    let spec = spec(&experiment.platform).map_err(failure)?;
    let Some(missing) = needs_reexec(&spec, |name| std::env::var(name).ok()) else {
        return Ok(());
    };
    let program = std::env::current_exe().map_err(|error| {
        Failure::machine(format!("canonc cannot find its own program: {error}"))
    })?;
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1)).envs(missing);
    Err(become_it(command))
}

#[cfg(unix)]
fn become_it(mut command: std::process::Command) -> Failure {
    use std::os::unix::process::CommandExt;
    let error = command.exec();
    Failure::machine(format!("canonc cannot start itself again: {error}"))
}

/// On systems where a process cannot replace itself, waits for the new one and exits with its code.
#[cfg(not(unix))]
fn become_it(mut command: std::process::Command) -> Failure {
    match command.status() {
        Ok(status) => Failure::shown(match status.code() {
            Some(0) => Exit::Fine,
            Some(1) => Exit::Finding,
            Some(2) => Exit::BadInput,
            Some(75) => Exit::Interrupted,
            Some(_) | None => Exit::Machine,
        }),
        Err(error) => Failure::machine(format!("canonc cannot start itself again: {error}")),
    }
}

/// What a run of one process takes beside its steps, evaluations and state: the arenas of its other threads and the code
/// that a step does not reach. Measured.
const BESIDE_STEPS: u64 = 8 << 20;

fn dry_run(
    experiment: &Experiment,
    folder: &Path,
    job: &Job,
    timing: runtime::train::Timing,
    ranks: Option<u32>,
    args: &RunArgs,
) -> Outcome {
    let needed = match ranks {
        None => estimate(job),
        Some(ranks) => {
            let platform = &experiment.platform;
            let local = u64::from(ranks);
            let node = platform.devices_per_node.map(u64::from);
            let node = node.or_else(|| args.by_node.then_some(local));
            estimate_of_rank(job, local, platform.shard, node)
        }
    };
    let fits = fits(&needed, memory_limit().as_ref()).map_err(failure);
    let on_cpu = experiment.platform.device == Device::Cpu;
    // The timed step left its peak behind; the rest is from the plans.
    let peak = peak_memory().filter(|_| on_cpu && timing.how == TimingMethod::Run);
    let (memory_bytes, memory_from) = match peak {
        Some(peak) => {
            let beside = if ranks.is_some() { 0 } else { BESIDE_STEPS };
            let whole = peak.saturating_add(needed.memory_bytes + beside);
            (whole.saturating_sub(needed.step_bytes), MemorySource::Measured)
        }
        None => (needed.memory_bytes, MemorySource::Plan),
    };
    let token_seconds = timing.step_seconds / experiment.batch.tokens_per_step.max(1) as f64;
    let training_seconds = timing.step_seconds * experiment.budget.steps as f64;
    let evaluation_seconds = FORWARD_SHARE * token_seconds * needed.evaluation_tokens as f64;
    let estimate = RunEstimate {
        name: experiment.name.clone(),
        lock: experiment.id().to_string(),
        folder: shown(folder),
        state: match (Paths::new(folder).attestation(), Paths::new(folder).lock()) {
            (attestation, _) if attestation.exists() => RunState::Finished,
            (_, lock) if lock.exists() => RunState::Begun,
            (_, _) => RunState::New,
        },
        device: if on_cpu { "cpu" } else { "cuda" }.to_owned(),
        ranks,
        parameters: needed.parameters,
        steps: experiment.budget.steps,
        tokens: needed.tokens,
        memory_bytes,
        memory_from,
        state_bytes: needed.state_bytes,
        disk_bytes: needed.disk_bytes,
        step_seconds: timing.step_seconds,
        training_seconds,
        evaluation_seconds,
        written_answers: job.writing.is_some() || job.answering.is_some(),
        seconds: training_seconds + evaluation_seconds,
        timed: match timing.how {
            TimingMethod::Run => Timed::MicroBatches,
            TimingMethod::Flops => Timed::Flops,
        },
    };
    if args.json {
        output::json(&estimate.document())?;
        return fits.map(|()| Exit::Fine);
    }
    let epochs = match &needed.epochs {
        None => vec!["generated, never repeated".to_owned()],
        Some(sources) => sources.iter().map(read_of).collect(),
    };
    output::data(&estimate_text(experiment, &estimate, epochs))?;
    fits.map(|()| Exit::Fine)
}

/// An evaluation's share of the time that training takes for the same tokens: forward, of forward and backward.
const FORWARD_SHARE: f64 = 1.0 / 3.0;

/// The table of a dry run.
fn estimate_text(experiment: &Experiment, estimate: &RunEstimate, epochs: Vec<String>) -> String {
    let RunEstimate { ranks, memory_from, timed, step_seconds, seconds, .. } = estimate;
    let how = match timed {
        Timed::MicroBatches if ranks.is_some() => {
            "in one process, from micro-batches timed just now"
        }
        Timed::MicroBatches => "from micro-batches timed just now",
        Timed::Flops => "from FLOPs and the speed of a matrix product, timed just now",
    };
    let state = match estimate.state {
        RunState::New => "",
        RunState::Begun => " (begun)",
        RunState::Finished => " (finished: nothing is left to train)",
    };
    let each = ranks.map_or_else(String::new, |ranks| format!(" for each of {ranks} ranks"));
    let memory = format!(
        "{}{each} (weights and moments {})",
        bytes(estimate.memory_bytes),
        bytes(estimate.state_bytes)
    );
    let memory = match memory_from {
        MemorySource::Measured => {
            format!("{memory}, with libtorch; measured with a micro-batch and an update")
        }
        MemorySource::Plan => format!("{memory} by the plan, in addition to libtorch"),
    };
    let speed = rounded(experiment.batch.tokens_per_step as f64 / step_seconds.max(1e-9));
    let evaluations = span(estimate.evaluation_seconds);
    let evaluations = match estimate.written_answers {
        false => format!("{evaluations} of it for evaluations"),
        true => format!("{evaluations} of it for evaluations, without the answers that they write"),
    };
    let mut rows = vec![
        ("lock", format!("{} ({})", experiment.name, experiment.id().short())),
        ("folder", format!("{}{state}", estimate.folder)),
        ("device", estimate.device.clone()),
        ("parameters", output::grouped(i128::from(estimate.parameters))),
        ("steps", output::grouped(i128::from(estimate.steps))),
        ("tokens", output::grouped(i128::from(estimate.tokens))),
    ];
    rows.extend(epochs.into_iter().map(|passes| ("epochs", passes)));
    rows.extend([
        ("memory", memory),
        ("disk", format!("{} at most", bytes(estimate.disk_bytes))),
        (
            "time",
            format!(
                "{}{} ({} a step, {speed} tok/s; {evaluations}), {how}",
                if *timed == Timed::Flops { "at least " } else { "" },
                span(*seconds),
                span(*step_seconds)
            ),
        ),
    ]);
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    output::table(&rows, &[], 0)
}

/// How often the run reads a source.
fn read_of(source: &SourceEpochs) -> String {
    let SourceEpochs { name, documents, tokens, share, token_share, epochs } = source;
    format!(
        "{epochs:.3} of {name} ({}, {}), {:.1}% of the documents read and {:.1}% of the tokens",
        output::counted(*documents, "document"),
        output::counted(*tokens, "token"),
        100.0 * share,
        100.0 * token_share
    )
}

/// Progress: one line that is redrawn on a terminal, or separate lines in a log.
pub(crate) struct Screen {
    progress: Progress,
    every: u64,
    last: u64,
    terminal: bool,
    drawn: Option<Instant>,
    /// Whether the cursor is after a line that can be redrawn.
    open: bool,
}

/// Seconds between two redraws.
const REDRAW: f64 = 0.1;

impl Screen {
    pub(crate) fn new(experiment: &Experiment) -> Screen {
        Screen {
            progress: Progress::new(experiment.budget.steps, experiment.batch.tokens_per_step),
            every: experiment.log_every.max(1),
            last: experiment.budget.steps,
            terminal: std::io::stderr().is_terminal(),
            drawn: None,
            open: false,
        }
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.open) {
            output::draw("\r\x1b[2K");
        }
    }

    fn line(&mut self, text: &str) {
        self.clear();
        output::note(text);
    }
}

impl Observer for Screen {
    fn step(&mut self, step: &Step, seconds: f64) {
        let status = self.progress.step(step.step, step.loss, step.lr, seconds);
        if self.terminal {
            let due = self.drawn.is_none_or(|drawn| drawn.elapsed().as_secs_f64() > REDRAW);
            if due {
                output::draw(&format!("\r\x1b[2K{status}"));
                (self.drawn, self.open) = (Some(Instant::now()), true);
            }
        } else if step.step.is_multiple_of(self.every) || step.step == self.last {
            self.line(&status.to_string());
        }
    }

    fn evaluation(&mut self, evaluation: &Evaluation, seconds: f64) {
        let Evaluation { step, nll, counted, tokens, answers, measures, questions: _, suites } =
            evaluation;
        let mut parts = vec![format!("evaluation after step {step}:")];
        parts.extend(match nll {
            Some(nll) => Some(format!("eval_loss {nll:.4}")),
            None if *counted == 0 => Some("eval_loss - (no held-out target counts)".to_owned()),
            None => None,
        });
        let percent = |score: Score| score.ratio().map(|ratio| format!("{:.1}%", 100.0 * ratio));
        parts.extend(percent(*tokens).map(|share| format!("token_accuracy {share}")));
        parts.extend(percent(evaluation.exact()).map(|share| format!("exact_match {share}")));
        let levels: Vec<String> = answers
            .iter()
            .filter_map(|(level, score)| Some(format!("{level}: {}", percent(*score)?)))
            .collect();
        if levels.len() > 1 {
            parts.push(format!("({})", levels.join(", ")));
        }
        parts.extend(
            measures.iter().map(|(name, value)| format!("{} {value:.4}", measure_name(name))),
        );
        for SuiteScores { task, scores, .. } in suites {
            let one = |(word, value): (&String, &f64)| format!("{}/{word} {value:.4}", task.name);
            parts.extend(scores.iter().map(one));
        }
        parts.push(format!("in {}", span(seconds)));
        self.line(&parts.join(" "));
    }

    fn event(&mut self, event: &Event) {
        let text = match event {
            Event::Started { step: 0, .. } | Event::Interrupted { .. } | Event::Finished { .. } => {
                return;
            }
            Event::Started { step, .. } => format!("going on after step {step}"),
            Event::MetricsCut { .. } => {
                "the metrics log ended in an incomplete line, which was removed".to_owned()
            }
            Event::CheckpointRefused { name, why } => match step_of(name) {
                None => format!("warning: {name} is not used: {why}"),
                Some(_) => format!(
                    "warning: {name} is not used, and becomes checkpoints/{}: {why}",
                    set_aside(name)
                ),
            },
            Event::SavesAlone { rank } => format!(
                "warning: rank {rank} does not see the run's folder, so rank 0 collects the state and writes checkpoints alone"
            ),
            Event::Proved { step, lines } => {
                let lines = output::counted(*lines, "logged line");
                format!("{lines} up to step {step} came out the same")
            }
            Event::Failed { .. } | Event::Diverged { .. } => return,
        };
        self.line(&text);
    }
}
