//! Evaluates the kept weights of a run that another engine trained, and attests it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use dsl::Problem;
use records::attest::ExternalAttestation;
use records::checkpoint::SavedCheckpoint;
use records::external::ExternalRun;
use records::finished;
use records::job::Job;
use records::metrics::{Evaluation, MeasuredWeights, measurements_text};
use records::run::{Paths, cannot_write};

use crate::evaluate::Measurer;
use crate::execute::Machine;
use crate::state::State;
use crate::train;

/// What was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The attestation, as written.
    pub attestation: ExternalAttestation,
    /// The evaluations, in the order of steps.
    pub measured: Vec<MeasuredWeights>,
}

/// Evaluates and attests a run whose log has reached its end; `tell` hears of each evaluation. Nothing is written before
/// all of them are done.
pub fn record(
    paths: &Paths,
    job: &mut Job,
    machine: Machine,
    tell: &mut dyn FnMut(&Evaluation),
) -> Result<Recorded, Problem> {
    let mut run = ExternalRun::read(paths)?;
    (run.measured, run.measured_head) = (Vec::new(), None);
    let store = run.store(paths, job.slots());
    let kept = store.kept(|chain| run.log.heads.contains(&chain))?;
    let last = run.last();
    let Some(end) = kept.iter().find(|kept| kept.manifest.step == last) else {
        return Err(Problem::finding(
            format!(
                "{} has no valid checkpoint of the last step, {last}",
                paths.checkpoints().display()
            ),
            "`canonc verify` lists the faults of the run",
        ));
    };
    let diverged = finished::end_elsewhere((&*job).into(), &run)
        .map_err(|what| finished::mismatch(paths, &what))?;
    let due = |step: u64| {
        job.cadence.evaluates_after(step, job.steps) && step > 0 && diverged != Some(step)
    };
    let due: Vec<&SavedCheckpoint> = kept.iter().filter(|kept| due(kept.manifest.step)).collect();
    let measurer = Measurer::new(job, machine)?;
    for saved in due {
        let state = State::load(job, machine, &store, saved)?;
        let evaluation = measurer.measure(job, &state)?;
        tell(&evaluation);
        let weights = saved.manifest.weights.tensors;
        run.measured.push(MeasuredWeights { evaluation, weights });
    }
    let (text, head) = measurements_text(&run.measured);
    run.measured_head = head;
    let attestation = attested(paths, job, &run, end)?;
    if !run.measured.is_empty() {
        write(&paths.evaluations(), &text)?;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    attestation.write(&paths.attestation(), now)?;
    Ok(Recorded { attestation, measured: run.measured })
}

/// The claims of a run that has been evaluated, with its last state.
fn attested(
    paths: &Paths,
    job: &Job,
    run: &ExternalRun,
    end: &SavedCheckpoint,
) -> Result<ExternalAttestation, Problem> {
    let diverged = finished::end_elsewhere(job.into(), run)
        .map_err(|what| finished::mismatch(paths, &what))?;
    let (metrics, lines) = run.log.end;
    Ok(ExternalAttestation {
        name: job.name.clone(),
        lock: job.id(),
        eval: job.digests.eval,
        platform: job.digests.platform,
        trainer: run.trainer.clone(),
        steps: run.last(),
        diverged,
        counted: run.log.steps.iter().fold(0u64, |sum, step| sum.saturating_add(step.counted)),
        metrics,
        lines,
        evaluations: run.measured_head,
        weights: end.manifest.weights.tensors,
        first_moment: end.manifest.first_moment.tensors,
        second_moment: end.manifest.second_moment.tensors,
        machine: train::machine_facts(),
    })
}

fn write(path: &Path, text: &str) -> Result<(), Problem> {
    disk::replace(path, text.as_bytes(), || Ok(())).map_err(|error| cannot_write(path, &error))
}
