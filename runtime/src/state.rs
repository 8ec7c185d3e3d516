//! In: a job and the number of updates done. Out: weights and moments, and the next update. Must stay true: the windows
//! of step n are used in no other step; the loss is divided by the counted targets of the whole step, known before any
//! forward pass; sums of micro-batches go up the fixed tree, in any order of arrival; everything is in f32.

use compiler::digest::Digest;
use tch::{Device, Kind, Tensor};

use crate::execute::{ExecuteError, Machine, Moments, Sums, Trainer};
use crate::kernels::Isa;
use crate::kernels::arrange::copy;
use crate::kernels::update::{block_sums, norm_of_blocks};
use crate::ranks::{Announced, Command, Member, Team};
use crate::weights::Weights;
use data::batch::{Batch, digest_of_windows};
use records::checkpoint::{PARTS, Part, SavedCheckpoint, Slot, Store, TensorDigests};
use records::job::Job;
use records::metrics::Step;
use records::reduce::{ReduceError, Tree};
use records::run::{RunError, digest_of};
use records::shard::Shards;

/// Weights and moments after `step` updates.
#[derive(Debug)]
pub struct State {
    pub step: u64,
    pub weights: Weights,
    pub moments: Moments,
    /// How the state is divided among ranks, if there are several.
    pub(crate) division: Option<Division>,
}

/// How a state is divided among ranks.
#[derive(Clone, Debug)]
pub(crate) struct Division {
    pub(crate) team: Team,
    /// Whether each rank holds only the moments that it owns, as flat pieces.
    pub(crate) moments: bool,
}

/// What came of a step that all ranks tried.
#[derive(Debug)]
pub(crate) enum Together {
    /// It is done; `stop` if a rank was asked to stop.
    Done { step: Step, stop: bool },
    /// A rank has no data for it, and nothing was changed.
    NoData { rank: u64, why: String },
}

impl State {
    /// The initial state of every run of the job.
    pub fn initial(job: &Job, machine: Machine) -> Result<State, RunError> {
        let weights = Weights::init(&job.graph, job.init_seed)?;
        let weights = weights.to(machine.device, machine.kind)?;
        let moments = Moments::zeros(&weights)?;
        Ok(State { step: 0, weights, moments, division: None })
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
            division: None,
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
        let State { step, weights, moments, division: _ } = self;
        let grad_norm = trainer.update(weights, moments, &sums.gradients, lr, number)?;
        let loss_sum = sums.loss_sum()?;
        *step += 1;
        Ok(Step {
            step: *step,
            loss: mean_loss(loss_sum, counted),
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
        let tensor = self.tensor(part, index)?;
        let values = match &self.division {
            Some(division) if division.holds_pieces_of(part) => {
                Command::Send(part, index).give(&*division.team.ranks)?;
                let whole = division.team.collect(index, tensor)?;
                values(&whole.ok_or_else(|| broken("only rank 0 reads the state"))?)?
            }
            Some(_) | None => values(tensor)?,
        };
        out.reserve(4 * values.len());
        for value in values {
            out.extend_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }
}

impl Division {
    pub(crate) fn new(job: &Job, member: &Member) -> Division {
        let Member { ranks, divide_moments } = member;
        let shards = Shards::new(&job.graph, ranks.size());
        Division { team: Team::new(ranks.clone(), shards), moments: *divide_moments }
    }

    /// The plans of a rank's part of a step.
    pub(crate) fn trainer(&self, job: &Job, machine: Machine) -> Result<Trainer, ExecuteError> {
        let lengths = self.team.parts(job.graph.params().len());
        Trainer::divided(job.plans.clone(), machine, &lengths, self.moments)
    }

    fn holds_pieces_of(&self, part: Part) -> bool {
        match part {
            Part::Weights => false,
            Part::FirstMoment | Part::SecondMoment => self.moments,
        }
    }
}

impl State {
    /// Divides a state that every rank holds.
    pub(crate) fn divide(&mut self, division: Division) -> Result<(), ExecuteError> {
        if division.moments {
            for moments in [&mut self.moments.first, &mut self.moments.second] {
                for (param, moment) in moments.iter_mut().enumerate() {
                    *moment = copy(&division.team.part(param, moment)?)?;
                }
            }
        }
        self.division = Some(division);
        Ok(())
    }

    /// Sends rank 0's whole state to the others, which follow its commands.
    pub(crate) fn give(&self, division: &Division) -> Result<(), RunError> {
        let Division { team, .. } = division;
        for part in PARTS {
            for index in 0..self.weights.tensors.len() {
                let tensor = self.tensor(part, index)?;
                Command::Take(part, index).give(&*team.ranks)?;
                if division.holds_pieces_of(part) {
                    let _own = team.deal_out(index, Some(tensor))?;
                } else {
                    let _same = team.broadcast(tensor)?;
                }
            }
        }
        Ok(Command::Resume(self.step).give(&*team.ranks)?)
    }

    /// Takes over a tensor that rank 0 sends.
    pub(crate) fn take(&mut self, part: Part, index: usize) -> Result<(), RunError> {
        let division = self.division()?.clone();
        let mine = self.tensor(part, index)?;
        let theirs = match division.holds_pieces_of(part) {
            true => division.team.deal_out(index, None)?,
            false => division.team.broadcast(mine)?,
        };
        mine.shallow_clone().f_copy_(&theirs).map_err(ExecuteError::from)?;
        self.weights.changed();
        Ok(())
    }

    /// Sends what this rank owns of a tensor to rank 0.
    pub(crate) fn send(&self, part: Part, index: usize) -> Result<(), RunError> {
        self.division()?.team.collect(index, self.tensor(part, index)?)?;
        Ok(())
    }

    /// This rank's part of the next update. Every rank calls it, and returns the same.
    pub(crate) fn advance_together(
        &mut self,
        job: &mut Job,
        trainer: &Trainer,
        stop: bool,
    ) -> Result<Together, RunError> {
        let Division { team, moments: divided } = self.division()?.clone();
        let count = job.micro_batches;
        let own: Result<Vec<Batch>, RunError> =
            team.own(count).map(|index| job.batch(self.step, index)).collect();
        let Announced { counted, windows, stop, failed } =
            team.announce(own.as_deref(), count, job.rows, stop)?;
        if let Some((rank, why)) = failed {
            return Ok(Together::NoData { rank, why });
        }
        let batches = own?;
        let scale = if counted == 0 { 0.0 } else { 1.0 / counted as f64 };
        let mut tree: Tree<Result<Sums, ExecuteError>> = Tree::new(count);
        for round in 0..team.rounds(count) {
            let own = match batches.get(round as usize) {
                None => None,
                Some(batch) => {
                    let (tokens, targets) = tensors(batch, trainer.machine().device)?;
                    Some(trainer.micro_batch(&self.weights, &tokens, &targets, scale)?)
                }
            };
            let params = self.weights.tensors.len();
            for (index, sums) in team.scatter(own.as_ref(), round, count, params)? {
                let add =
                    |left: Result<Sums, _>, right: Result<Sums, _>| trainer.combine(left?, right?);
                tree.push(index, Ok(sums), add).map_err(unbalanced)?;
            }
        }
        let sums = match tree.finish().map_err(unbalanced)? {
            Some(sums) => sums?,
            None => return Err(broken("a step without micro-batches")),
        };
        let lr = job.rate(self.step);
        let number = i64::try_from(self.step + 1).map_err(|_| broken("too many steps"))?;
        let grad_norm = match divided {
            true => self.update_owned(&team, trainer, &sums.gradients, lr, number)?,
            false => {
                let mut whole = team.gather(&sums.gradients)?;
                for (gradient, weight) in whole.iter_mut().zip(&self.weights.tensors) {
                    *gradient = gradient.f_reshape(weight.size()).map_err(ExecuteError::from)?;
                }
                trainer.update(&mut self.weights, &mut self.moments, &whole, lr, number)?
            }
        };
        self.step += 1;
        let step = Step {
            step: self.step,
            loss: mean_loss(sums.loss_sum()?, counted),
            grad_norm,
            lr,
            batch: digest_of(digest_of_windows(&windows)),
            counted,
        };
        Ok(Together::Done { step, stop })
    }

    /// Updates what this rank owns, then exchanges it. Returns the norm of all gradients.
    fn update_owned(
        &mut self,
        team: &Team,
        trainer: &Trainer,
        gradients: &[Tensor],
        lr: f64,
        number: i64,
    ) -> Result<f64, ExecuteError> {
        let blocks: Vec<Vec<f64>> = gradients
            .iter()
            .map(|gradient| block_sums(Isa::of_process(), gradient))
            .collect::<Result<_, _>>()?;
        let norm = norm_of_blocks(&team.gather_blocks(&blocks)?);
        let pieces: Vec<Tensor> = self
            .weights
            .tensors
            .iter()
            .enumerate()
            .map(|(param, weight)| team.part(param, weight))
            .collect::<Result<_, _>>()?;
        let moments = &mut self.moments;
        trainer.update_parts(&pieces, moments, gradients, Some(norm), lr, number)?;
        for (weight, whole) in self.weights.tensors.iter().zip(team.gather(&pieces)?) {
            weight.f_view([-1])?.f_copy_(&whole)?;
        }
        self.weights.changed();
        Ok(norm)
    }

    /// The other ranks, if there are any.
    pub(crate) fn team(&self) -> Option<&Team> {
        self.division.as_ref().map(|division| &division.team)
    }

    fn division(&self) -> Result<&Division, RunError> {
        self.division.as_ref().ok_or_else(|| broken("this run has one rank"))
    }

    fn tensor(&self, part: Part, index: usize) -> Result<&Tensor, RunError> {
        let tensors = match part {
            Part::Weights => &self.weights.tensors,
            Part::FirstMoment => &self.moments.first,
            Part::SecondMoment => &self.moments.second,
        };
        tensors.get(index).ok_or_else(|| broken(&format!("no parameter {index}")))
    }
}

/// A mean over no targets is undefined, and 0 would be the best possible loss.
fn mean_loss(sum: f64, counted: u64) -> Option<f64> {
    (counted > 0).then(|| sum / counted as f64)
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
