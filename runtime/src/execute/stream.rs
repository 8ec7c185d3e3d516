//! Runs a plan over a sequence in pieces: (tokens, position, state) → (logits, state).
//!
//! Any division of a sequence into pieces gives the same logits up to rounding. A state is never changed, so keeping
//! one is enough to return to it.

pub(super) mod cache;

use std::collections::BTreeMap;

use compiler::graph::StateId;
use compiler::plan::{Extent, Input, Output, Plan, StatePart};
use tch::{Kind, Tensor};

use self::cache::Room;
use super::train::{at, unknown};
use super::{ExecuteError, Executor, Machine, Paths};
use crate::weights::Weights;

/// A streaming plan bound to a machine.
#[derive(Debug)]
pub struct Streamer {
    executor: Executor,
}

/// A sequence's state, for its next piece.
#[derive(Debug)]
pub struct Carried {
    /// Number of tokens so far.
    pub position: i64,
    states: BTreeMap<(StateId, StatePart), Tensor>,
    /// The buffers of states that grow and have room for more rows.
    rooms: BTreeMap<(StateId, StatePart), Room>,
}

impl Carried {
    /// The tensors, in the order of the graph's states and their parts.
    pub fn states(&self) -> impl Iterator<Item = &Tensor> {
        self.states.values()
    }

    pub(super) fn room(&self, state: (StateId, StatePart)) -> Option<&Room> {
        self.rooms.get(&state)
    }

    pub(super) fn keep_room(&mut self, state: (StateId, StatePart), room: Room) {
        self.rooms.insert(state, room);
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.states.values().map(|t| t.numel() * t.kind().elt_size_in_bytes()).sum()
    }
}

impl Streamer {
    pub fn new(plan: Plan, machine: Machine) -> Result<Self, ExecuteError> {
        Ok(Self { executor: Executor::new(plan, machine)? })
    }

    pub fn paths(&self) -> Paths {
        self.executor.paths()
    }

    /// The state before the first token of `batch` sequences.
    pub fn start(&self, batch: i64) -> Result<Carried, ExecuteError> {
        let plan = self.executor.plan();
        let device = self.executor.machine().device;
        let mut states = BTreeMap::new();
        for (input, id) in &plan.inputs {
            let (Input::State(state, part), Some(value)) = (input, plan.value(*id)) else {
                continue;
            };
            let dims: Vec<i64> = value
                .dims
                .iter()
                .map(|extent| match extent {
                    Extent::Batch => batch,
                    Extent::Fixed(n) => *n,
                    // No tokens yet.
                    Extent::Time
                    | Extent::CacheLen(_)
                    | Extent::KvLen(_)
                    | Extent::NewCacheLen(_) => 0,
                })
                .collect();
            let kind = self.executor.machine().kind_of(value.dtype);
            states.insert((*state, *part), Tensor::f_zeros(dims, (kind, device))?);
        }
        Ok(Carried { position: 0, states, rooms: BTreeMap::new() })
    }

    /// The state of the given sequences, in the given order.
    pub fn keep(&self, carried: &Carried, rows: &[i64]) -> Result<Carried, ExecuteError> {
        let plan = self.executor.plan();
        let rows = Tensor::f_from_slice(rows)?.f_to_device(self.executor.machine().device)?;
        let mut states = BTreeMap::new();
        for (input, id) in &plan.inputs {
            let (Input::State(state, part), Some(value)) = (input, plan.value(*id)) else {
                continue;
            };
            let Some(held) = carried.states.get(&(*state, *part)) else {
                return Err(unknown(*input));
            };
            let batch = value.dims.iter().position(|extent| matches!(extent, Extent::Batch));
            let kept = match batch {
                Some(axis) => held.f_index_select(axis as i64, &rows)?,
                None => held.shallow_clone(),
            };
            states.insert((*state, *part), kept);
        }
        Ok(Carried { position: carried.position, states, rooms: BTreeMap::new() })
    }

    /// Logits [batch, time, vocab] of the next `tokens` [batch, time], and the state after them.
    pub fn forward(
        &self,
        weights: &Weights,
        tokens: &Tensor,
        carried: &Carried,
    ) -> Result<(Tensor, Carried), ExecuteError> {
        let results = self.executor.run(|input| piece_input(input, weights, tokens, carried))?;
        let (logits, after) = outputs(results, tokens.size().get(1).copied().unwrap_or(0), carried);
        let logits =
            logits.ok_or_else(|| ExecuteError::new("the streaming plan gives no logits"))?;
        Ok((logits, after))
    }

    pub(super) fn executor(&self) -> &Executor {
        &self.executor
    }

    /// One row of ids as tokens [1, time].
    pub fn row(ids: &[i64]) -> Result<Tensor, ExecuteError> {
        let tokens = Tensor::f_from_slice(ids)?.f_to_kind(Kind::Int64)?;
        Ok(tokens.f_reshape([1, ids.len() as i64])?)
    }
}

/// An input of a streaming plan: the next tokens of a sequence, its state, or a weight.
pub(super) fn piece_input(
    input: Input,
    weights: &Weights,
    tokens: &Tensor,
    carried: &Carried,
) -> Result<Tensor, ExecuteError> {
    match input {
        Input::Tokens => Ok(tokens.shallow_clone()),
        Input::Position => Ok(Tensor::from(carried.position)),
        Input::Param(id) => at(&weights.tensors, id.0, "parameter"),
        Input::Rounded(id) => weights.rounded(id.0 as usize),
        Input::State(id, part) => match carried.states.get(&(id, part)) {
            Some(state) => Ok(state.shallow_clone()),
            None => Err(unknown(input)),
        },
        Input::Targets
        | Input::GradScale
        | Input::DropoutKey
        | Input::Window
        | Input::Left(_)
        | Input::Right(_)
        | Input::Gradient(_)
        | Input::FirstMoment(_)
        | Input::SecondMoment(_)
        | Input::LearningRate
        | Input::StepNumber => Err(unknown(input)),
    }
}

/// The logits among a plan's outputs, and the state `time` tokens after `carried`.
pub(super) fn outputs(
    results: Vec<(Output, Tensor)>,
    time: i64,
    carried: &Carried,
) -> (Option<Tensor>, Carried) {
    let position = carried.position + time;
    let mut after = Carried { position, states: BTreeMap::new(), rooms: BTreeMap::new() };
    let mut logits = None;
    for (output, tensor) in results {
        match output {
            Output::Logits => logits = Some(tensor),
            Output::State(id, part) => {
                after.states.insert((id, part), tensor);
            }
            Output::Nll
            | Output::Loss
            | Output::Counted
            | Output::Term(_)
            | Output::Argmax
            | Output::Gradient(_)
            | Output::GradNorm
            | Output::Param(_)
            | Output::FirstMoment(_)
            | Output::SecondMoment(_) => {}
        }
    }
    (logits, after)
}
