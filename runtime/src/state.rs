//! In: a job and the number of updates done. Out: weights and moments, and the next update. Must stay true: the windows
//! of step n are used in no other step; the loss is divided by the counted targets of the whole step, known before any
//! forward pass; sums of micro-batches go up the fixed tree, in any order of arrival; everything is in f32.

use compiler::digest::Digest;
use tch::{Device, Kind, Tensor};

use crate::execute::{ExecuteError, Machine, Moments, Sums, Trainer};
use crate::weights::Weights;
use data::batch::{Batch, digest_of_windows};
use records::checkpoint::{PARTS, Part, SavedCheckpoint, Slot, Store, TensorDigests};
use records::job::Job;
use records::metrics::Step;
use records::reduce::{ReduceError, Tree};
use records::run::{RunError, digest_of};

/// Weights and moments after `step` updates.
#[derive(Debug)]
pub struct State {
    pub step: u64,
    pub weights: Weights,
    pub moments: Moments,
}

impl State {
    /// The initial state of every run of the job.
    pub fn initial(job: &Job, machine: Machine) -> Result<State, RunError> {
        let weights = Weights::init(&job.graph, job.init_seed)?;
        let weights = weights.to(machine.device, machine.kind)?;
        let moments = Moments::zeros(&weights)?;
        Ok(State { step: 0, weights, moments })
    }

    /// The state in a checkpoint.
    pub fn load(
        job: &Job,
        machine: Machine,
        store: &Store,
        found: &SavedCheckpoint,
    ) -> Result<State, RunError> {
        let slots = job.slots();
        let mut tensors: [Vec<Tensor>; 3] = Default::default();
        store.load(found, &mut |part, index, bytes| {
            let slot = slots.get(index).ok_or_else(|| broken(&format!("no parameter {index}")))?;
            let tensor = from_bytes(slot, bytes, machine)?;
            let place = PARTS.iter().position(|known| *known == part);
            if let Some(tensors) = place.and_then(|place| tensors.get_mut(place)) {
                tensors.push(tensor);
            }
            Ok(())
        })?;
        let [weights, first, second] = tensors;
        let paths = slots.into_iter().map(|slot| slot.path).collect();
        Ok(State {
            step: found.manifest.step,
            weights: Weights::new(paths, weights),
            moments: Moments { first, second },
        })
    }

    /// Does one update and returns its record for the log.
    pub fn advance(&mut self, job: &mut Job, trainer: &Trainer) -> Result<Step, RunError> {
        let batches = job.batches(self.step)?;
        self.advance_on(&batches, job, trainer)
    }

    /// Does the update for these micro-batches, which must be the next step's.
    pub fn advance_on(
        &mut self,
        batches: &[Batch],
        job: &Job,
        trainer: &Trainer,
    ) -> Result<Step, RunError> {
        let counted: u64 = batches.iter().map(Batch::counted_targets).sum();
        let windows: Vec<blake3::Hash> = batches.iter().flat_map(Batch::window_digests).collect();
        let order: Vec<u64> = (0..batches.len() as u64).collect();
        let sums = gradients(trainer, &self.weights, batches, &order, counted)?;
        let lr = job.rate(self.step);
        let number = i64::try_from(self.step + 1).map_err(|_| broken("too many steps"))?;
        let State { step, weights, moments } = self;
        let grad_norm = trainer.update(weights, moments, &sums.gradients, lr, number)?;
        let loss_sum = sums.loss_sum()?;
        *step += 1;
        Ok(Step {
            step: *step,
            // A mean over no targets is undefined, and 0 would be the best possible loss.
            loss: (counted > 0).then(|| loss_sum / counted as f64),
            grad_norm,
            lr,
            batch: digest_of(digest_of_windows(&windows)),
            counted,
        })
    }

    /// The digest of all weights, as in a checkpoint of them.
    pub fn weights_digest(&self, job: &Job) -> Result<Digest, RunError> {
        let mut digests = TensorDigests::default();
        let mut bytes = Vec::new();
        for (index, slot) in job.slots().iter().enumerate() {
            bytes.clear();
            self.read(Part::Weights, index, &mut bytes)?;
            digests.add(slot, &bytes);
        }
        Ok(digests.finish())
    }

    /// Appends a tensor's elements as little-endian f32.
    pub fn read(&self, part: Part, index: usize, out: &mut Vec<u8>) -> Result<(), RunError> {
        let tensors = match part {
            Part::Weights => &self.weights.tensors,
            Part::FirstMoment => &self.moments.first,
            Part::SecondMoment => &self.moments.second,
        };
        let tensor = tensors.get(index).ok_or_else(|| broken(&format!("no parameter {index}")))?;
        let values = values(tensor)?;
        out.reserve(4 * values.len());
        for value in values {
            out.extend_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }
}

/// The sum over micro-batches, computed in this order of arrival.
pub fn gradients(
    trainer: &Trainer,
    weights: &Weights,
    batches: &[Batch],
    order: &[u64],
    counted: u64,
) -> Result<Sums, RunError> {
    let scale = if counted == 0 { 0.0 } else { 1.0 / counted as f64 };
    let mut tree: Tree<Result<Sums, ExecuteError>> = Tree::new(batches.len() as u64);
    for index in order {
        let Some(batch) = batches.get(*index as usize) else { continue };
        let sums = tensors(batch, trainer.machine().device)
            .and_then(|(tokens, targets)| trainer.micro_batch(weights, &tokens, &targets, scale));
        let add = |left: Result<Sums, _>, right: Result<Sums, _>| trainer.combine(left?, right?);
        tree.push(*index, sums, add).map_err(unbalanced)?;
    }
    match tree.finish().map_err(unbalanced)? {
        Some(sums) => Ok(sums?),
        None => Err(broken("a step without micro-batches")),
    }
}

/// Inputs and targets, [rows, seq_len] i64 each.
pub(crate) fn tensors(batch: &Batch, device: Device) -> Result<(Tensor, Tensor), ExecuteError> {
    let shape = [batch.rows() as i64, batch.seq_len() as i64];
    let tensor = |values: &[i64]| -> Result<Tensor, ExecuteError> {
        Ok(Tensor::f_from_slice(values)?.f_reshape(shape)?.f_to_device(device)?)
    };
    Ok((tensor(batch.inputs())?, tensor(batch.targets())?))
}

/// A tensor's elements, in row-major order.
pub(crate) fn values(tensor: &Tensor) -> Result<Vec<f32>, ExecuteError> {
    let tensor = tensor.f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?.f_contiguous()?;
    let count = tensor.numel();
    let mut values = vec![0.0f32; count];
    tensor.f_copy_data(&mut values, count)?;
    Ok(values)
}

fn from_bytes(slot: &Slot, bytes: &[u8], machine: Machine) -> Result<Tensor, ExecuteError> {
    let values: Vec<f32> = bytes
        .chunks_exact(4)
        .map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap_or_default()))
        .collect();
    let shape: Vec<i64> = slot.shape.iter().map(|dim| *dim as i64).collect();
    let tensor = Tensor::f_from_slice(&values)?.f_reshape(shape)?;
    Ok(tensor.f_to_kind(machine.kind)?.f_to_device(machine.device)?)
}

fn unbalanced(error: ReduceError) -> RunError {
    broken(&error.to_string())
}

fn broken(what: &str) -> RunError {
    let what = what.split("\nhelp: ").next().unwrap_or(what);
    RunError::machine(what, "this is a bug in canonc; please report it")
}
