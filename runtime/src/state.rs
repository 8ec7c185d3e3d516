//! The training state: weights and moments after a number of updates, and the next update.
//!
//! The windows of step n are used in no other step. The loss is divided by the counted targets of the whole step, which
//! are known before any forward pass. Sums over micro-batches go up a fixed tree, in any order of arrival, in f32.

mod agree;
mod ahead;
#[cfg(test)]
mod recorded;
mod save;
mod all_ranks;

use std::sync::Arc;

use compiler::digest::Digest;
use compiler::plan::{MEANS, TERMS};
use dsl::Problem;
use lab::experiment::Shard;
use tch::{Device, Kind, Tensor};

use crate::execute::{Draws, ExecuteError, Machine, Moments, Sums, Trainer};
use crate::kernels::transfer::upload;
use crate::ranks::{Command, Member, Team};
use crate::weights::{Weights, drawn, drawn_whole, first_values, piece_of};
use data::batch::{Batch, digest_of_windows};
use records::checkpoint::{PARTS, Part, SavedCheckpoint, Slot, Store, TensorDigests};
use records::initial::Reading;
use records::job::Job;
use records::metrics::Step;
use records::run::digest_of;
use scale::reduce::{Order, ReduceError, Tree};
use scale::schedule::{Counts, Schedule};
use scale::shard::Shards;

pub(crate) use ahead::Ahead;
pub(crate) use all_ranks::{StepOutcome, Times};
pub(crate) use save::Written;

/// The spacing of f32 numbers, relative to their size.
const NUDGE: f64 = 1.0 / (1 << 23) as f64;

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
    /// What each rank holds only as flat pieces that it owns.
    pub(crate) shard: Shard,
    /// By parameter, the number of moments that the optimizer keeps.
    moments: Arc<[usize]>,
    /// For tests: this rank computes a wrong gradient in this step.
    wrong_in: Option<u64>,
}

impl State {
    /// The initial state of every run of the job.
    pub fn initial(job: &Job, machine: Machine) -> Result<State, Problem> {
        let Some(named) = &job.weights else { return State::drawn(job, machine) };
        let reading = named.read(&job.graph)?;
        let weights = Weights::init_by(&job.graph, |index, param| {
            first_values(&reading, index, param, job.init_seed)
        })?;
        reading.check()?;
        State::before_training(&weights, job, machine)
    }

    /// A first state with drawn weights, also for a job that begins from others: enough to measure times.
    pub(crate) fn drawn(job: &Job, machine: Machine) -> Result<State, Problem> {
        State::before_training(&Weights::init(&job.graph, job.init_seed)?, job, machine)
    }

    fn before_training(weights: &Weights, job: &Job, machine: Machine) -> Result<State, Problem> {
        let weights = weights.to(machine.device, machine.kind)?;
        let moments = Moments::zeros(&weights, &job.updates)?;
        Ok(State { step: 0, weights, moments, division: None })
    }

    /// Weights after a job's last step, without moments: they can be measured, not trained.
    pub fn to_measure(job: &Job, weights: Weights) -> State {
        let moments = Moments { first: Vec::new(), second: Vec::new() };
        State { step: job.steps, weights, moments, division: None }
    }

    /// The same of a rank, which draws only what it keeps of each parameter.
    pub(crate) fn initial_part(
        job: &Job,
        machine: Machine,
        division: Division,
    ) -> Result<State, Problem> {
        let (rank, shards) = (division.team.ranks.rank(), &division.team.schedule.shards);
        let mut moments = Moments { first: Vec::new(), second: Vec::new() };
        let reading = job.weights.as_ref().map(|named| named.read(&job.graph)).transpose()?;
        let weights = Weights::init_by(&job.graph, |index, param| {
            let range = shards.part(index, rank);
            let piece = [(range.end - range.start) as i64];
            for (part, tensors) in
                [(Part::FirstMoment, &mut moments.first), (Part::SecondMoment, &mut moments.second)]
            {
                let shape = match (division.keeps(part, index), division.holds_pieces_of(part)) {
                    (false, _) => &[0][..],
                    (true, true) => &piece,
                    (true, false) => &param.shape,
                };
                let zeros = Tensor::f_zeros(shape, (machine.kind, machine.device));
                tensors.push(zeros.map_err(ExecuteError::from)?);
            }
            let pieces = division.holds_pieces_of(Part::Weights);
            let kept = match (&reading, pieces) {
                (Some(reading), _) => {
                    let full = first_values(reading, index, param, job.init_seed)?;
                    if pieces { piece_of(&full, range)? } else { full }
                }
                (None, true) => drawn(param, job.init_seed, range)?,
                (None, false) => drawn_whole(param, job.init_seed)?,
            };
            let kept = kept.f_to_device(machine.device).map_err(ExecuteError::from)?;
            Ok::<_, Problem>(kept.f_to_kind(machine.kind).map_err(ExecuteError::from)?)
        })?;
        reading.map(Reading::check).transpose()?;
        Ok(State { step: 0, weights, moments, division: Some(division) })
    }

    /// The state in a checkpoint.
    pub fn load(
        job: &Job,
        machine: Machine,
        store: &Store,
        checkpoint: &SavedCheckpoint,
    ) -> Result<State, Problem> {
        State::load_by(job, machine, store, checkpoint, &mut |_, _, full| Ok(full))
    }

    /// Rank 0's part of the state in a checkpoint. The other ranks, which follow its commands, get theirs one tensor at
    /// a time.
    pub(crate) fn load_part(
        job: &Job,
        machine: Machine,
        store: &Store,
        checkpoint: &SavedCheckpoint,
        division: Division,
    ) -> Result<State, Problem> {
        let team = &division.team;
        let mut deal = |part, index, full: Tensor| {
            if !division.keeps(part, index) {
                return Ok(full);
            }
            Command::Take(part, index).give(&*team.ranks)?;
            if division.holds_pieces_of(part) {
                return Ok(team.deal_out(index, Some(&full))?);
            }
            let _same = team.broadcast(&full)?;
            Ok(full)
        };
        let mut state = State::load_by(job, machine, store, checkpoint, &mut deal)?;
        Command::Resume(state.step).give(&*team.ranks)?;
        state.division = Some(division);
        Ok(state)
    }

    /// The state in a checkpoint. `keep` gets each whole tensor and returns the part to hold.
    fn load_by(
        job: &Job,
        machine: Machine,
        store: &Store,
        checkpoint: &SavedCheckpoint,
        keep: &mut dyn FnMut(Part, usize, Tensor) -> Result<Tensor, Problem>,
    ) -> Result<State, Problem> {
        let slots = job.slots();
        let mut tensors: [Vec<Tensor>; 3] = Default::default();
        // An error of `keep` does not mean that the file is damaged.
        let mut not_kept = None;
        let loaded = store.load(checkpoint, &mut |part, index, bytes| {
            let slot = slots.get(index).ok_or_else(|| broken(&format!("no parameter {index}")))?;
            let full = from_bytes(&slot.in_part(part), bytes, machine)?;
            let kept =
                keep(part, index, full).inspect_err(|error| not_kept = Some(error.clone()))?;
            let position = PARTS.iter().position(|known| *known == part);
            if let Some(tensors) = position.and_then(|position| tensors.get_mut(position)) {
                tensors.push(kept);
            }
            Ok(())
        });
        match not_kept {
            Some(error) => return Err(error),
            None => loaded?,
        }
        let [weights, first, second] = tensors;
        let paths = slots.into_iter().map(|slot| slot.path).collect();
        Ok(State {
            step: checkpoint.manifest.step,
            weights: Weights::new(paths, weights),
            moments: Moments { first, second },
            division: None,
        })
    }

    /// Does one update and returns its record for the log.
    pub fn advance(&mut self, job: &mut Job, trainer: &Trainer) -> Result<Step, Problem> {
        let batches = job.batches(self.step)?;
        self.advance_on(&batches, job, trainer)
    }

    /// Does the update for these micro-batches, which must be the next step's.
    pub fn advance_on(
        &mut self,
        batches: &[Batch],
        job: &Job,
        trainer: &Trainer,
    ) -> Result<Step, Problem> {
        let counted: u64 = batches.iter().map(Batch::counted_targets).sum();
        let windows: Vec<blake3::Hash> = batches.iter().flat_map(Batch::window_digests).collect();
        let order: Vec<u64> = (0..batches.len() as u64).collect();
        let draws = |index| draws(job, self.step, index);
        let reduce = Order { count: batches.len() as u64, in_sequence: job.in_sequence };
        let sums = sum_gradients(trainer, &self.weights, batches, &order, reduce, counted, &draws)?;
        let lr = job.rate(self.step);
        let number = i64::try_from(self.step + 1).map_err(|_| broken("too many steps"))?;
        let State { step, weights, moments, division: _ } = self;
        // The device updates while its numbers arrive; the next step is launched behind the update.
        let logged = trainer.update_and_log(weights, moments, &sums, lr, number)?;
        let logged = logged.wait_for_all().map_err(ExecuteError::from)?;
        let [loss_sum, summed @ .., grad_norm] = logged.as_slice() else {
            return Err(broken("an update without loss and norm"));
        };
        let mut terms = [None; TERMS.len()];
        for (term, sum) in trainer.terms().zip(summed) {
            terms[term as usize] = Some(mean_term(term, *sum, job, counted));
        }
        *step += 1;
        Ok(Step {
            step: *step,
            loss: mean_loss(*loss_sum, counted),
            grad_norm: *grad_norm,
            lr,
            batch: Some(digest_of(digest_of_windows(&windows))),
            counted,
            terms,
        })
    }

    /// Moves each weight by a unit in the last place or less, up and down in turn: weights that rounding could have given.
    pub fn nudge(&mut self) -> Result<(), Problem> {
        let moved = |tensor: &Tensor| {
            let options = (Kind::Float, tensor.device());
            let count = i64::try_from(tensor.numel()).unwrap_or_default();
            let turns = Tensor::f_arange(count, options)?.f_remainder(2.0)?.f_mul_scalar(2.0)?;
            let factors = turns.f_add_scalar(-1.0)?.f_mul_scalar(NUDGE)?.f_add_scalar(1.0)?;
            tensor.f_mul(&factors.f_reshape(tensor.size())?)
        };
        let tensors: Result<Vec<Tensor>, _> = self.weights.tensors.iter().map(moved).collect();
        let tensors = tensors.map_err(ExecuteError::from)?;
        self.weights = Weights::new(self.weights.paths.clone(), tensors);
        Ok(())
    }

    /// The digest of all weights, as in a checkpoint of them.
    pub fn weights_digest(&self, job: &Job) -> Result<Digest, Problem> {
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
    pub fn read(&self, part: Part, index: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        let tensor = self.tensor(part, index)?;
        let values = match &self.division {
            Some(division) if division.keeps(part, index) && division.holds_pieces_of(part) => {
                Command::Send(part, index).give(&*division.team.ranks)?;
                let full = division.team.collect(index, tensor)?;
                division.team.settle()?;
                values(&full.ok_or_else(|| broken("only rank 0 reads the state"))?)?
            }
            Some(division) => {
                division.team.settle()?;
                values(tensor)?
            }
            None => values(tensor)?,
        };
        out.reserve(4 * values.len());
        for value in values {
            out.extend_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }
}

/// The exchanges of a job on this many ranks.
pub(crate) fn schedule(job: &Job, ranks: u64, shard: Shard, node: Option<u64>) -> Schedule {
    let shards = Shards::new(&job.graph, ranks);
    let counts =
        Counts { micro_batches: job.micro_batches, in_sequence: job.in_sequence, rows: job.rows };
    Schedule::new(shards, &job.plans.micro, shard, counts, node)
}

impl Division {
    pub(crate) fn new(job: &Job, member: &Member, device: Device) -> Division {
        let Member { ranks, shard, node, wrong_in } = member;
        let schedule = schedule(job, ranks.size(), *shard, *node);
        let shapes = job.graph.params().iter().map(|param| param.shape.clone()).collect();
        let team = Team::new(ranks.clone(), schedule, shapes, device);
        let moments = job.slots().iter().map(|slot| slot.moments).collect();
        Division { team, shard: *shard, moments, wrong_in: *wrong_in }
    }

    /// The plans of a rank's part of a step.
    pub(crate) fn trainer(&self, job: &Job, machine: Machine) -> Result<Trainer, ExecuteError> {
        let units = self.team.schedule.shards.units().iter();
        let units: Vec<&[usize]> = units.map(|unit| unit.params.as_slice()).collect();
        let updates = match self.shard {
            Shard::None => false,
            Shard::Optimizer | Shard::Full => true,
        };
        Trainer::divided(job.plans.clone(), machine, &self.team.parts(), &units, updates)
    }

    /// Whether the optimizer keeps this part of the state of a parameter.
    fn keeps(&self, part: Part, index: usize) -> bool {
        let moments = self.moments.get(index).copied().unwrap_or(0);
        match part {
            Part::Weights => true,
            Part::FirstMoment => moments > 0,
            Part::SecondMoment => moments > 1,
        }
    }

    fn holds_pieces_of(&self, part: Part) -> bool {
        match (self.shard, part) {
            (Shard::None, _) | (Shard::Optimizer, Part::Weights) => false,
            (Shard::Optimizer, Part::FirstMoment | Part::SecondMoment) | (Shard::Full, _) => true,
        }
    }
}

impl State {
    /// Takes over a tensor that rank 0 sends.
    pub(crate) fn take(&mut self, part: Part, index: usize) -> Result<(), Problem> {
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
    pub(crate) fn send(&self, part: Part, index: usize) -> Result<(), Problem> {
        self.division()?.team.collect(index, self.tensor(part, index)?)?;
        Ok(())
    }

    /// The other ranks, if there are any.
    pub(crate) fn team(&self) -> Option<&Team> {
        self.division.as_ref().map(|division| &division.team)
    }

    fn division(&self) -> Result<&Division, Problem> {
        self.division.as_ref().ok_or_else(|| broken("this run has one rank"))
    }

    fn tensor(&self, part: Part, index: usize) -> Result<&Tensor, Problem> {
        let tensors = match part {
            Part::Weights => &self.weights.tensors,
            Part::FirstMoment => &self.moments.first,
            Part::SecondMoment => &self.moments.second,
        };
        tensors.get(index).ok_or_else(|| broken(&format!("no parameter {index}")))
    }
}

/// An auxiliary loss of a step, from its sum over micro-batches: their mean, or for later tokens the mean over the
/// counted targets of the next ones.
fn mean_term(term: u32, sum: f64, job: &Job, counted: u64) -> f64 {
    let by = if (term as usize) < MEANS.len() { job.micro_batches } else { counted };
    sum / by as f64
}

/// A mean over no targets is undefined, and 0 would be the best possible loss.
fn mean_loss(sum: f64, counted: u64) -> Option<f64> {
    (counted > 0).then(|| sum / counted as f64)
}

/// The sum over micro-batches, computed in this order of arrival; `in_sequence` neighbours are added before the tree.
/// Dropout draws as in windows from 0 under the key 0.
pub fn gradients(
    trainer: &Trainer,
    weights: &Weights,
    batches: &[Batch],
    order: &[u64],
    in_sequence: u64,
    counted: u64,
) -> Result<Sums, Problem> {
    let rows = batches.first().map_or(0, Batch::rows) as u64;
    let draws = |index: u64| Draws { key: 0, window: index * rows };
    let reduce = Order { count: batches.len() as u64, in_sequence };
    sum_gradients(trainer, weights, batches, order, reduce, counted, &draws)
}

/// What dropout draws from in a micro-batch of the step after `step` updates.
pub(crate) fn draws(job: &Job, step: u64, index: u64) -> Draws {
    Draws { key: job.dropout_key, window: job.first_window(step, index) }
}

fn sum_gradients(
    trainer: &Trainer,
    weights: &Weights,
    batches: &[Batch],
    order: &[u64],
    reduce: Order,
    counted: u64,
    draws: &dyn Fn(u64) -> Draws,
) -> Result<Sums, Problem> {
    let scale = if counted == 0 { 0.0 } else { 1.0 / counted as f64 };
    let mut tree: Tree<Result<Sums, ExecuteError>> = Tree::new(reduce);
    let device = trainer.machine().device;
    let chosen = order.iter().filter_map(|index| Some((index, batches.get(*index as usize)?)));
    let mut uploads = chosen.map(|(index, batch)| (index, tensors(batch, device))).peekable();
    while let Some((index, ids)) = uploads.next() {
        // The next micro-batch is on its way before this one's kernels are queued.
        let _ahead = uploads.peek();
        let sums = ids.and_then(|(tokens, targets)| {
            trainer.micro_batch_drawn(weights, &tokens, &targets, scale, draws(*index))
        });
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
    Ok((upload(batch.inputs(), &shape, device)?, upload(batch.targets(), &shape, device)?))
}

/// The digest of all parameters in f32, which attestations and checkpoints call the weights' digest.
pub fn digest_of_weights(weights: &Weights) -> Result<Digest, ExecuteError> {
    let mut digests = TensorDigests::default();
    for (path, tensor) in weights.paths.iter().zip(&weights.tensors) {
        let shape = tensor.size().iter().map(|dim| usize::try_from(*dim).unwrap_or(0)).collect();
        let bytes: Vec<u8> = values(tensor)?.iter().flat_map(|value| value.to_le_bytes()).collect();
        digests.add(&Slot { path: path.clone(), shape, moments: 0 }, &bytes);
    }
    Ok(digests.finish())
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

fn unbalanced(error: ReduceError) -> Problem {
    broken(&error.to_string())
}

fn broken(what: &str) -> Problem {
    let what = what.split("\nhelp: ").next().unwrap_or(what);
    Problem::machine(what, "this is a bug in canonc; please report it")
}
