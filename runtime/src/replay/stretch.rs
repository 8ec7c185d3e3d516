//! Trains stretches of a run's steps again and compares each result with the recorded one.
//!
//! Nothing is written, and only equal bits count as equal.

use compiler::digest::Digest;
use dsl::Problem;
use records::checkpoint::{SavedCheckpoint, StateDifference, compare};
use records::job::{Job, estimate, fits};
use records::metrics::{Evaluation, Record, Step};
use records::platform::memory_limit;
use records::run::Paths;

use super::difference::{Difference, RunPoint};
use super::platform::Platform;
use super::recorded::RecordedRun;
use crate::evaluate::Measurer;
use crate::execute::{Machine, Trainer};
use crate::state::State;
use crate::train;

/// A known earlier state of a run.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Initial,
    Kept(Box<SavedCheckpoint>),
}

impl Origin {
    pub(crate) fn step(&self) -> u64 {
        match self {
            Origin::Initial => 0,
            Origin::Kept(kept) => kept.manifest.step,
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Origin::Initial => "the initial weights".to_owned(),
            Origin::Kept(kept) => format!("checkpoints/{}", kept.name),
        }
    }
}

/// Receives progress.
pub trait Observer {
    /// Called once, with the number of steps to train.
    fn begins(&mut self, _steps: u64) {}
    fn step(&mut self, _step: &Step) {}
    fn evaluation(&mut self, _evaluation: &Evaluation) {}
    /// Called when a difference is found.
    fn differs(&mut self, _point: RunPoint, _text: &str) {}
}

/// The results to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All. A kept state is evaluated where a stretch starts from it.
    All,
    /// All up to the first difference. Training then continues only to a kept checkpoint, without comparisons.
    ToFirstDifference,
}

/// The results of a stretch of steps, compared.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    /// Number of equal steps, and of equal evaluations.
    pub(crate) steps: u64,
    pub(crate) evaluations: u64,
    /// Number of those whose single questions the log lacks.
    pub(crate) without_questions: u64,
    /// Results that differ from the log, in the order of computation.
    pub(crate) differences: Vec<(Record, Difference)>,
    /// The comparison with the checkpoint of the last step, if one is kept.
    pub(crate) checkpoint: Option<Option<StateDifference>>,
}

/// A recorded run, and the plans to compute it again.
pub(crate) struct Replayer {
    pub(crate) job: Job,
    pub(crate) machine: Machine,
    pub(crate) trainer: Trainer,
    pub(crate) measurer: Measurer,
    pub(crate) run: RecordedRun,
    pub(crate) platform: Platform,
}

impl Replayer {
    /// Reads the run and binds its plans. Computes nothing yet.
    pub(crate) fn new(paths: &Paths, job: Job, machine: Machine) -> Result<Replayer, Problem> {
        fits(&estimate(&job), memory_limit().as_ref())?;
        let run = RecordedRun::open(paths, job.id(), job.slots())?;
        if run.steps() == 0 {
            return Err(Problem::input(
                format!("{} has no logged step to train again", paths.folder.display()),
                "`canonc run` trains it",
            ));
        }
        let facts = train::facts();
        let platform = Platform::compare(
            &run.machines,
            &facts,
            &train::line(&facts),
            machine.device.is_cuda(),
        );
        Ok(Replayer {
            trainer: Trainer::new(job.plans.clone(), machine)?,
            measurer: Measurer::new(&job, machine)?,
            job,
            machine,
            run,
            platform,
        })
    }

    pub(crate) fn state(&self, origin: &Origin) -> Result<State, Problem> {
        match origin {
            Origin::Initial => State::initial(&self.job, self.machine),
            Origin::Kept(kept) => State::load(&self.job, self.machine, &self.run.store, kept),
        }
    }

    /// The digests of the initial weights, logged and computed, if they differ.
    pub(crate) fn initial_difference(&self, state: &State) -> Result<Option<[Digest; 2]>, Problem> {
        let Some(Record::Start(start)) = self.run.record(RunPoint::Start) else {
            return Ok(None);
        };
        let computed = state.weights_digest(&self.job)?;
        Ok((computed != start.initial).then_some([start.initial, computed]))
    }

    /// Trains on to step `to` from a state that the run had, too.
    pub(crate) fn train_on(
        &mut self,
        state: &mut State,
        to: u64,
        extent: Extent,
        observer: &mut dyn Observer,
    ) -> Result<Stretch, Problem> {
        let since = state.step;
        let mut stretch = Stretch::default();
        let stops = |stretch: &Stretch| {
            extent == Extent::ToFirstDifference && !stretch.differences.is_empty()
        };
        if extent == Extent::All && self.is_evaluated(since) {
            self.evaluate(state, since, &mut stretch, observer)?;
        }
        let leads_to_checkpoint = self.run.kept_at(to).is_some();
        while state.step < to && (leads_to_checkpoint || !stops(&stretch)) {
            let step = state.advance(&mut self.job, &self.trainer)?;
            observer.step(&step);
            if stops(&stretch) {
                continue;
            }
            self.compare(Record::Step(step), since, &mut stretch, observer);
            let is_origin = extent == Extent::All && self.run.kept_at(state.step).is_some();
            if !stops(&stretch) && !is_origin && self.is_evaluated(state.step) {
                self.evaluate(state, since, &mut stretch, observer)?;
            }
        }
        if state.step > since && state.step == to {
            stretch.checkpoint = self.compare_checkpoint(state)?;
        }
        Ok(stretch)
    }

    pub(super) fn is_evaluated(&self, step: u64) -> bool {
        self.run.record(RunPoint::Evaluation(step)).is_some()
    }

    fn evaluate(
        &mut self,
        state: &State,
        since: u64,
        stretch: &mut Stretch,
        observer: &mut dyn Observer,
    ) -> Result<(), Problem> {
        let evaluation = self.measurer.measure(&mut self.job, state)?;
        observer.evaluation(&evaluation);
        self.compare(Record::Evaluation(evaluation), since, stretch, observer);
        Ok(())
    }

    fn compare(
        &self,
        record: Record,
        since: u64,
        stretch: &mut Stretch,
        observer: &mut dyn Observer,
    ) {
        if let Some(difference) = self.difference(&record, since) {
            observer.differs(RunPoint::from_record(&record), &difference.text);
            stretch.differences.push((record, difference));
            return;
        }
        match record {
            Record::Start(_) => {}
            Record::Step(_) => stretch.steps += 1,
            Record::Evaluation(_) => {
                let logged = self.run.record(RunPoint::from_record(&record));
                let lacks_questions = logged.is_some_and(|logged| logged.lacks(&record));
                stretch.evaluations += 1;
                stretch.without_questions += u64::from(lacks_questions);
            }
        }
    }

    /// How a record differs from the logged one, if at all. After step `since`, both runs had the same state.
    pub(crate) fn difference(&self, record: &Record, since: u64) -> Option<Difference> {
        let logged = self.run.record(RunPoint::from_record(record))?;
        Difference::between(logged, &record.as_logged(logged), since, &self.platform)
    }

    /// Compares a state with its step's checkpoint, if one is kept.
    pub(crate) fn compare_checkpoint(
        &self,
        state: &State,
    ) -> Result<Option<Option<StateDifference>>, Problem> {
        let Some(kept) = self.run.kept_at(state.step) else { return Ok(None) };
        let mut read = |part, index, out: &mut Vec<u8>| state.read(part, index, out);
        compare(&self.run.store, kept, &mut read).map(Some)
    }
}
