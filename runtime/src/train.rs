//! Trains a job in a run folder, from the start or from its last checkpoint.
//!
//! Weights after step n are a function of the job. A step that was logged before has the same result, or the run stops.
//! After an interruption at any time, the next process resumes from a complete checkpoint.

mod alternate;
mod evaluation;
mod follow;
mod history;
mod begun;
mod machine;
mod memory;
mod save;
mod timing;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use compiler::digest::Digest;
use dsl::Problem;

use crate::evaluate::Measurer;
use crate::execute::{Machine, Trainer};
use crate::ranks::{Command, Ending, Member};
use crate::state::{Ahead, Division, State, StepOutcome, Times};
use records::attest::{Attestation, Circumstances, RANKS_FACT};
use records::checkpoint::{Manifest, Refused, SavedCheckpoint, Store};
use records::fault::Faults;
use records::finished;
use records::job::{Estimate, Job, PLAN_TAG, estimate, fits};
use records::metrics::{self, Appended, Evaluation, Log, Record, Start, Step};
use records::platform::memory_limit;
use records::run::{
    Difference, Event, Kernels, Paths, RunFolder, belongs, cannot_read, first_difference, if_there,
    kernel_lines, parse_kernels, wrong_kernels,
};
use records::verify;

pub use alternate::alternate;
pub use follow::follow;
pub(crate) use history::started;
use history::{History, history};
pub(crate) use machine::{facts, line};
pub use machine::{facts as machine_facts, machine, machine_of_rank, spec};
pub use memory::estimate_of_rank;
pub use timing::{Timing, TimingMethod, time};

/// Options of a process that runs a job. They do not affect results.
#[derive(Debug)]
pub struct Options<'a> {
    /// When this becomes true, finish the current step, leave the current evaluation, save a checkpoint and return.
    pub stop: &'a AtomicBool,
    /// Save a checkpoint and return after this step.
    pub stop_after: Option<u64>,
    pub faults: &'a Faults,
    /// The other ranks, if this is rank 0 of several.
    pub ranks: Option<&'a Member>,
}

/// Receives a run's progress.
pub trait Observer {
    fn step(&mut self, step: &Step, seconds: f64);
    fn evaluation(&mut self, evaluation: &Evaluation, seconds: f64);
    /// An event that a person should know about: something found, cut, refused or proved.
    fn event(&mut self, event: &Event);
}

/// The outcome of training.
#[derive(Clone, Debug, PartialEq)]
pub enum TrainOutcome {
    /// All steps are done and attested.
    Finished(Attestation),
    /// The run was already finished.
    Already(Attestation),
    /// Training diverged, now or earlier, and this is attested; `why` is the evidence in the log.
    Diverged { attestation: Attestation, why: String },
    /// Training can resume from a checkpoint of this step.
    Interrupted { step: u64 },
}

/// Trains until the last step or until asked to stop.
pub fn train(
    job: &mut Job,
    folder: &Path,
    machine: Machine,
    options: &Options<'_>,
    observer: &mut dyn Observer,
) -> Result<TrainOutcome, Problem> {
    let end = train_alone_or_lead(job, folder, machine, options, observer);
    if let Some(member) = options.ranks {
        let how = match &end {
            Ok(TrainOutcome::Interrupted { .. }) => Ending::Interrupted,
            Ok(
                TrainOutcome::Finished(_)
                | TrainOutcome::Already(_)
                | TrainOutcome::Diverged { .. },
            ) => Ending::Done,
            Err(_) => Ending::Failed,
        };
        // If they are gone, `end` says so.
        let _ = Command::End(how).give(&*member.ranks);
    }
    end
}

fn train_alone_or_lead(
    job: &mut Job,
    folder: &Path,
    machine: Machine,
    options: &Options<'_>,
    observer: &mut dyn Observer,
) -> Result<TrainOutcome, Problem> {
    let ours = |text: &str| belongs(folder, job.digests, job.cadence.evaluation, text);
    // Create nothing for a run that cannot be trained. A finished run needs no more memory.
    if !Paths::new(folder).is_attested()? {
        fits(&of_this_process(job, options), memory_limit().as_ref())?;
    }
    let folder = RunFolder::open(folder, &job.lock_text, ours, options.faults)?;
    if let Some((done, records)) = attested(job, &folder, observer)? {
        return Ok(match finished::diverged(&records, job.steps) {
            Some((_, why)) if done.diverged.is_some() => {
                TrainOutcome::Diverged { attestation: done, why }
            }
            Some(_) | None => TrainOutcome::Already(done),
        });
    }
    fits(&of_this_process(job, options), memory_limit().as_ref())?;
    let mut run = TrainingRun::begin(job, folder, machine, options, observer)?;
    let end = run.go_on();
    if let Err(error) = &end {
        let reason = error.message.clone();
        // Return the original error: if the folder cannot take this line, that error already says so.
        let _ = run.folder.record(&Event::Failed { step: run.state.step, why: reason });
    }
    end
}

/// What this process needs.
fn of_this_process(job: &Job, options: &Options<'_>) -> Estimate {
    match options.ranks {
        None => estimate(job),
        Some(Member { ranks, shard, node, .. }) => {
            estimate_of_rank(job, ranks.size(), *shard, *node)
        }
    }
}

/// A finished run's attestation, if there is a credible one, and its log.
fn attested(
    job: &Job,
    folder: &RunFolder,
    observer: &mut dyn Observer,
) -> Result<Option<(Attestation, Vec<Record>)>, Problem> {
    let path = folder.paths.attestation();
    let text = if_there(&path, disk::read_text(&path, disk::SMALL))?;
    let Some(text) = text else { return Ok(None) };
    let reason = match Attestation::parse(&text) {
        Ok(attestation) if attestation.lock == job.id() => {
            let records = verify::intact(folder, job, &attestation)?;
            return Ok(Some((attestation, records)));
        }
        Ok(attestation) => format!("it belongs to lock {}", attestation.lock.short()),
        Err(why) => why,
    };
    let event = Event::CheckpointRefused { name: "attestation.toml".to_owned(), why: reason };
    observer.event(&event);
    folder.record(&event)?;
    Ok(None)
}

/// A line of the log that is still to come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    Update,
    Evaluation,
}

/// A run in this process.
struct TrainingRun<'a> {
    job: &'a mut Job,
    folder: RunFolder,
    options: &'a Options<'a>,
    observer: &'a mut dyn Observer,
    trainer: Trainer,
    measurer: Measurer,
    state: State,
    /// The windows of the next step.
    ahead: Ahead,
    log: Log,
    store: Store,
    /// The content of `kernels.txt`.
    kernels: Kernels,
    /// The last checkpoint.
    saved: Option<Manifest>,
    /// Whether rank 0 writes checkpoints alone, since another one does not see the folder.
    saves_alone: bool,
    /// Whether the state is still to be evaluated.
    evaluation_due: bool,
    counted: u64,
    /// The evidence that training diverged at the step of `state`.
    diverged: Option<String>,
    /// Number of reproduced log lines reported so far.
    proved: u64,
}

impl<'a> TrainingRun<'a> {
    /// Opens the log, finds the state to resume from and binds the plans.
    fn begin(
        job: &'a mut Job,
        folder: RunFolder,
        machine: Machine,
        options: &'a Options<'a>,
        observer: &'a mut dyn Observer,
    ) -> Result<TrainingRun<'a>, Problem> {
        let mut tell = |event: Event| {
            observer.event(&event);
            folder.record(&event)
        };
        folder.watch()?;
        let mut log = Log::open(&folder.paths.metrics())?;
        folder.keep(&folder.paths.plan(), &job.plan_text())?;
        let kernels = kept_kernels(&folder.paths.kernels(), job)?;
        let division = options.ranks.map(|member| Division::new(job, member, machine.device));
        let trainer = match &division {
            None => Trainer::new(job.plans.clone(), machine)?,
            Some(division) => division.trainer(job, machine)?,
        };
        let measurer = Measurer::new(job, machine)?;
        let mut store = Store::new(folder.paths.checkpoints(), job.id(), job.slots());
        let (checkpoint, refused) = store.find(|chain| log.holds(chain))?;
        log.settle(!refused.is_empty())?;
        if let Some(line) = log.cut() {
            tell(Event::MetricsCut { line: line.to_owned() })?;
        }
        for Refused { name, why } in refused.clone() {
            tell(Event::CheckpointRefused { name, why })?;
        }
        let (records, heads) = metrics::read_with_heads(&folder.paths.metrics())?;
        let line = machine::line(&facts_of(options));
        if checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.manifest.step > 0) {
            let here = options.ranks.is_none().then_some(line.as_str());
            begun::check(&folder.paths, job, &records, &trainer, machine, here)?;
        }
        let state = first_state(job, machine, &store, checkpoint.as_ref(), division)?;
        if let Some(checkpoint) = &checkpoint {
            log.go_on_after(checkpoint.manifest.chain);
            store.set_aside(&checkpoint.name, &refused, options.faults)?;
            store.prune_older(&checkpoint.name, job.cadence.keep, options.faults)?;
        }
        let saved = checkpoint.map(|checkpoint| checkpoint.manifest);
        let ahead = read_ahead(job, &state);
        tell(Event::Started { step: state.step, machine: line })?;
        let counted = logged_targets(&records, state.step);
        let evaluation_due = evaluation::is_due(job, log.head(), (&records, &heads));
        // If the run diverged and the last process ended after saving the last state, only the attestation is missing.
        let diverged =
            finished::diverged(&records, job.steps).filter(|(step, _)| *step == state.step);
        let diverged = diverged.map(|(_, why)| why);
        Ok(TrainingRun {
            job,
            folder,
            options,
            observer,
            trainer,
            measurer,
            state,
            ahead,
            log,
            store,
            kernels,
            saved,
            saves_alone: false,
            evaluation_due,
            counted,
            diverged,
            proved: 0,
        })
    }

    fn go_on(&mut self) -> Result<TrainOutcome, Problem> {
        if self.log.head().is_none() {
            let initial = self.state.weights_digest(self.job)?;
            let start = Start { lock: self.job.id(), eval: self.job.digests.eval, initial };
            self.append(&Record::Start(start))?;
        }
        while let Some(next) = self.next() {
            if self.stops_before(next) {
                return self.interrupted();
            }
            match next {
                Next::Update => self.step()?,
                Next::Evaluation => self.evaluate()?,
            }
            if self.log.left_to_prove() == 0 {
                self.tell_proved()?;
            }
            if self.saves_now() {
                self.checkpoint()?;
            }
        }
        if self.log.left_to_prove() > 0 {
            return Err(Problem::finding(
                format!(
                    "{} has {} lines more than a run that ends with step {}",
                    self.folder.paths.metrics().display(),
                    self.log.left_to_prove(),
                    self.state.step
                ),
                "restore the file, or move the run's folder away and run again from the start",
            ));
        }
        self.finish()
    }

    /// What is next in the log; `None` after the last step and its evaluation, or at the end of a run that diverged.
    fn next(&self) -> Option<Next> {
        if self.evaluation_due {
            return Some(Next::Evaluation);
        }
        (self.state.step < self.job.steps && self.diverged.is_none()).then_some(Next::Update)
    }

    /// Whether this process was asked to stop before that. A step to stop after is evaluated first, if that is due.
    fn stops_before(&self, next: Next) -> bool {
        let Options { stop, stop_after, faults: _, ranks: _ } = self.options;
        let reached = || stop_after.is_some_and(|after| self.state.step >= after);
        stop.load(Ordering::Relaxed) || next == Next::Update && reached()
    }

    /// Whether a checkpoint is due: not before the evaluation of its state, and for a saved state after that.
    fn saves_now(&self) -> bool {
        let step = self.state.step;
        match self.next() {
            Some(Next::Evaluation) => false,
            Some(Next::Update) => self.job.cadence.saves_after(step) || self.is_saved(),
            None => true,
        }
    }

    /// Whether the last checkpoint is of this step, with or without its evaluation.
    fn is_saved(&self) -> bool {
        self.saved.as_ref().is_some_and(|saved| saved.step == self.state.step)
    }

    /// Leaves a checkpoint to resume from, also before the first step.
    fn interrupted(&mut self) -> Result<TrainOutcome, Problem> {
        let step = self.state.step;
        self.tell_proved()?;
        if !self.is_saved() {
            self.checkpoint()?;
        }
        self.tell(Event::Interrupted { step })?;
        Ok(TrainOutcome::Interrupted { step })
    }

    /// Reports, once, the logged lines that this process reproduced.
    fn tell_proved(&mut self) -> Result<(), Problem> {
        let lines = self.log.proved() - self.proved;
        if lines > 0 {
            self.proved = self.log.proved();
            self.tell(Event::Proved { step: self.state.step, lines })?;
        }
        Ok(())
    }

    /// One update.
    fn step(&mut self) -> Result<(), Problem> {
        let start = Instant::now();
        let mut ranks = String::new();
        let step = match self.options.ranks {
            None => match self.ahead.take(self.state.step) {
                Ok(batches) => {
                    self.ahead.begin(self.state.step + 1);
                    self.state.advance_on(&batches, self.job, &self.trainer)?
                }
                Err(error) => return Err(self.saved_without_data(error)),
            },
            Some(member) => {
                let before = member.ranks.received();
                let (step, times) = self.step_together(member)?;
                ranks = times.json(member.ranks.received() - before);
                step
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        self.counted += step.counted;
        let logged = self.append(&Record::Step(step.clone()));
        // Checked first: an older log has a number where this step has none, for the same reason.
        if step.loss.is_none() {
            return Err(nothing_counted(self.job, step.step));
        }
        if logged? == Appended::New {
            self.time(&format!("{{\"step\":{},\"seconds\":{seconds:?}{ranks}}}", step.step))?;
        }
        self.observer.step(&step, seconds);
        let record = Record::Step(step);
        self.diverges(&record);
        self.evaluation_due = evaluation::is_due_after(self.job, &record);
        Ok(())
    }

    /// One update of all ranks.
    fn step_together(&mut self, member: &Member) -> Result<(Step, Times), Problem> {
        let stop = self.options.stop;
        Command::Step(self.state.step).give(&*member.ranks)?;
        match self.state.advance_together(self.job, &self.trainer, &mut self.ahead, stop)? {
            StepOutcome::Done { step, stop, times } => {
                if stop {
                    self.options.stop.store(true, Ordering::Relaxed);
                }
                Ok((*step, times))
            }
            StepOutcome::Differ { why } => Err(Problem::machine(
                why,
                "one of their machines computes wrongly: test its memory, processor and GPU, or leave it out; the same \
                 command continues from the last checkpoint",
            )),
            StepOutcome::NoData { rank, why } => {
                let error = Problem::machine(
                    format!("rank {rank} has no data for step {}: {why}", self.state.step + 1),
                    "make the same files readable on every machine",
                );
                Err(self.saved_without_data(error))
            }
        }
    }

    fn diverges(&mut self, record: &Record) {
        self.diverged = finished::divergence(record, self.job.steps).map(|(_, why)| why);
    }

    /// The error for a step with unreadable data. Nothing has used the data yet, so the state before it is saved.
    fn saved_without_data(&mut self, error: Problem) -> Problem {
        let step = self.state.step;
        let saved = if self.is_saved() { Ok(()) } else { self.checkpoint() };
        let then = match saved {
            Ok(()) => format!("step {step} was saved; the same command continues from there"),
            Err(why) => format!("step {step} was not saved: {}", why.message),
        };
        Problem { help: format!("{}; {then}", error.help), ..error }
    }

    /// Adds the paths of this process to those of earlier ones.
    fn keep_kernels(&mut self) -> Result<Kernels, Problem> {
        let path = self.folder.paths.kernels();
        let text = if_there(&path, disk::read_text(&path, disk::SMALL))?.unwrap_or_default();
        if let Some(Difference { line, found, expected }) =
            first_difference(&text, &kernel_lines(&self.kernels))
        {
            return Err(planted(
                &path,
                &format!("line {line} is {found}, but the run wrote {expected}"),
            ));
        }
        let mut paths = self.trainer.paths();
        paths.merge(&self.measurer.paths());
        for (kernel, path, _) in paths.iter() {
            self.kernels.entry(kernel.to_owned()).or_default().insert(path.to_owned());
        }
        self.folder.keep(&path, &kernel_lines(&self.kernels))?;
        Ok(self.kernels.clone())
    }

    fn finish(&mut self) -> Result<TrainOutcome, Problem> {
        let (Some(saved), Some(metrics)) = (self.saved.take(), self.log.head()) else {
            return Err(Problem::input(
                "the lock has no steps to run",
                "raise budget.steps in the recipe and build it again",
            ));
        };
        self.folder.check(true)?;
        self.log.sync()?;
        let History { machines: sessions, proved, seconds } = history(&self.folder)?;
        let facts = facts_of(self.options);
        let this_machine = machine::line(&facts);
        let attestation = Attestation {
            name: self.job.name.clone(),
            lock: self.job.id(),
            eval: self.job.digests.eval,
            platform: self.job.digests.platform,
            steps: self.state.step,
            diverged: self.diverged.as_ref().map(|_| self.state.step),
            counted: self.counted,
            metrics,
            lines: self.log.lines(),
            weights: saved.weights.tensors,
            first_moment: saved.first_moment.tensors,
            second_moment: saved.second_moment.tensors,
            plan: Digest::of(PLAN_TAG, &self.job.plan_text()),
            kernels: self.keep_kernels()?,
            machine: facts,
            other_machines: sessions
                .iter()
                .filter(|machine| **machine != this_machine)
                .cloned()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
        };
        // The attestation covers the data on disk, not this process's memory.
        verify::check_own(&self.folder.paths, self.job, &attestation, sessions.len())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64());
        let circumstances =
            Circumstances { finished: now, seconds, processes: sessions.len() as u64, proved };
        attestation.write(&self.folder.paths.attestation(), circumstances, self.options.faults)?;
        match self.diverged.take() {
            None => {
                self.tell(Event::Finished { step: self.state.step })?;
                Ok(TrainOutcome::Finished(attestation))
            }
            Some(why) => {
                self.tell(Event::Diverged { step: self.state.step, why: why.clone() })?;
                Ok(TrainOutcome::Diverged { attestation, why })
            }
        }
    }

    fn append(&mut self, record: &Record) -> Result<Appended, Problem> {
        self.log.append(record, self.options.faults)
    }

    fn time(&self, line: &str) -> Result<(), Problem> {
        self.folder.time(line)
    }

    fn tell(&mut self, event: Event) -> Result<(), Problem> {
        self.observer.event(&event);
        self.folder.record(&event)
    }
}

/// The facts of this process's machine, and the number of ranks if there are several.
fn facts_of(options: &Options<'_>) -> BTreeMap<String, String> {
    let mut facts = machine::facts();
    if let Some(member) = options.ranks {
        facts.insert(RANKS_FACT.to_owned(), member.ranks.size().to_string());
    }
    facts
}

/// The `kernels.txt` of earlier processes, if a run of this plan can have written it.
fn kept_kernels(path: &Path, job: &Job) -> Result<Kernels, Problem> {
    let text = match disk::read_text(path, disk::SMALL) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Kernels::new()),
        Err(error) => return Err(cannot_read(path, &error)),
    };
    let (kernels, why) = parse_kernels(&text);
    let wrong = why.into_iter().chain(wrong_kernels(&kernels, &job.kernel_names(), false));
    match wrong.into_iter().next() {
        None => Ok(kernels),
        Some(why) => Err(planted(path, why.trim_start_matches("kernels.txt: "))),
    }
}

/// Reads this rank's micro-batches, and those that it checks.
fn read_ahead(job: &Job, state: &State) -> Ahead {
    match state.team() {
        None => Ahead::new(job, (0..job.micro_batches).collect(), None),
        Some(team) => {
            let local = team.micro_batches(job.micro_batches).collect();
            Ahead::new(job, local, Some(team.checked()))
        }
    }
}

/// The state of the checkpoint, or the initial one if there is none.
fn first_state(
    job: &Job,
    machine: Machine,
    store: &Store,
    checkpoint: Option<&SavedCheckpoint>,
    division: Option<Division>,
) -> Result<State, Problem> {
    match (checkpoint, division) {
        (None, None) => State::initial(job, machine),
        (None, Some(division)) => State::initial_part(job, machine, division),
        (Some(checkpoint), None) => State::load(job, machine, store, checkpoint),
        (Some(checkpoint), Some(division)) => {
            State::load_part(job, machine, store, checkpoint, division)
        }
    }
}

fn planted(path: &Path, reason: &str) -> Problem {
    Problem::finding(
        format!("{} was changed by another program: {reason}", path.display()),
        "restore the file, or move the run's folder away and run the lock again",
    )
}

/// The error for a step without counted targets: continuing would train on nothing and report a loss.
fn nothing_counted(job: &Job, step: u64) -> Problem {
    let windows = job.micro_batches.saturating_mul(job.rows);
    let windows_text = match windows {
        1 => format!("its window of {} tokens", job.seq_len),
        windows => format!("all of its {windows} windows of {} tokens", job.seq_len),
    };
    Problem::finding(
        format!(
            "step {step} has no loss: no target counts, because {windows_text} end before an answer"
        ),
        "raise data.seq_len until whole samples fit, raise batch.sequences, make the task's samples shorter, \
         or count every token with data.loss_on = \"all\"; then build the recipe again",
    )
}

/// Number of counted targets in the logged steps up to `step`.
fn logged_targets(records: &[Record], step: u64) -> u64 {
    let counts = records.iter().map(|record| match record {
        Record::Step(logged) if logged.step <= step => logged.counted,
        Record::Step(_) | Record::Start(_) | Record::Evaluation(_) => 0,
    });
    counts.fold(0, u64::saturating_add)
}
