//! Runs pieces of several sequences together, at any positions. Weights, which are most of the memory that a token
//! reads, are read once for all sequences.
//!
//! Each sequence gets the bits that [`Streamer::forward_each`] gives for it alone. So a step runs for all rows
//! together, or for all sequences with one token as a batch, only if its kernel computes each row or item by itself, in
//! an order of sums that does not depend on their number. What depends only on parameters is computed once; every other
//! step runs for one sequence after another.

mod rows;

use std::collections::{BTreeMap, BTreeSet};

use compiler::graph::StateId;
use compiler::kernel::{Apart, Kernel};
use compiler::plan::{Extent, Input, Output, Sizes, StatePart, Step, ValId};
use tch::Tensor;

use self::rows::{Layout, Shared};
use super::choose::Choice;
use super::stream::cache::Room;
use super::stream::{Carried, Streamer, outputs, piece_input};
use super::{ExecuteError, Executor, dispatch, sizes_of};
use crate::kernels::arrange::copy;
use crate::kernels::attention;
use crate::kernels::linear::Product;
use crate::kernels::path::Path;
use crate::weights::Weights;

/// The next tokens of a sequence.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// At least one.
    pub tokens: &'a [i64],
    /// The state before them.
    pub state: &'a Carried,
    /// Number of its last tokens whose logits are computed.
    pub logits: usize,
}

/// Whether a step computes each token, or each sequence, by itself, with the same operations for any number of others.
/// `most` is the largest number of tokens of a sequence.
fn is_apart(kernel: &Kernel, choice: Choice, apart: Apart, most: usize) -> bool {
    kernel.facts().apart == apart
        && match choice {
            // libtorch's product sums in an order that depends on the number of rows.
            Choice::Product(Product::FewRows(_, few)) => most <= few,
            Choice::Ours(Path::Fused(_)) | Choice::View | Choice::Library => true,
            Choice::Product(Product::Library | Product::ByRow(_) | Product::Tiles(_))
            | Choice::Ours(Path::Cuda(_) | Path::Reference(_))
            | Choice::SingleOperation
            | Choice::Head(..)
            | Choice::Attention(_)
            | Choice::Experts(_) => false,
        }
}

/// How a step is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Once, since it depends on parameters alone.
    Once,
    /// For all rows together.
    Joined,
    /// For all rows whose logits are computed, together.
    Kept,
    /// Appends new rows to a sequence's own.
    Appended,
    /// For one query of each sequence, together; each reads its sequence's own keys and values.
    Attended,
    /// For all sequences with one token, as items of a batch.
    Batched,
    /// Sequence by sequence.
    Split,
}

impl Streamer {
    /// For each piece, the logits [1, `logits`, vocab] of its last tokens, if `logits` is not 0, and the state after
    /// it.
    pub fn forward_each(
        &self,
        weights: &Weights,
        pieces: &[Piece<'_>],
    ) -> Result<Vec<(Option<Tensor>, Carried)>, ExecuteError> {
        if let Some(at) = pieces.iter().position(|piece| piece.tokens.is_empty()) {
            return Err(ExecuteError::new(format!("sequence {at} has no next token")));
        }
        let _guard = tch::no_grad_guard();
        let executor = self.executor();
        let few = executor.choices.iter().filter_map(|choice| {
            let Choice::Product(Product::FewRows(_, few)) = choice else { return None };
            Some(*few)
        });
        let few = few.min().unwrap_or(usize::MAX);
        let mut results: Vec<Option<(Option<Tensor>, Carried)>> =
            pieces.iter().map(|_| None).collect();
        // Longer pieces use libtorch's products, which are as fast for one piece at a time.
        let (short, long): (Vec<usize>, Vec<usize>) = (0..pieces.len())
            .partition(|at| pieces.get(*at).is_some_and(|p| p.tokens.len() <= few));
        let groups = long.into_iter().map(|at| vec![at]).chain([short]);
        for group in groups.filter(|group| !group.is_empty()) {
            let some: Vec<Piece<'_>> =
                group.iter().filter_map(|at| pieces.get(*at).copied()).collect();
            let mut sequences = SeveralSequences::new(executor, weights, &some)?;
            for n in 0..executor.plan.steps.len() {
                sequences.step(n)?;
            }
            for (at, result) in group.into_iter().zip(sequences.end()?) {
                if let Some(slot) = results.get_mut(at) {
                    *slot = Some(result);
                }
            }
        }
        let missing = || ExecuteError::new("a sequence has no result");
        results.into_iter().map(|result| result.ok_or_else(missing)).collect()
    }
}

struct SeveralSequences<'a> {
    executor: &'a Executor,
    pieces: &'a [Piece<'a>],
    values: Vec<Option<Shared>>,
    /// The extents of each sequence.
    sizes: Vec<Sizes>,
    /// The position of each sequence's first row, and how many it has.
    positions: Vec<(i64, i64)>,
    /// The rows of each sequence among all rows.
    rows: Layout,
    /// The rows of each sequence among those whose logits are computed.
    kept: Layout,
    /// Parameters, and values that depend on nothing else.
    constants: BTreeSet<ValId>,
    /// The states among the plan's inputs, by value.
    states: BTreeMap<ValId, (StateId, StatePart)>,
    /// The buffers of values that grow, by sequence.
    rooms: BTreeMap<ValId, Vec<Room>>,
    ways: Vec<Way>,
}

impl<'a> SeveralSequences<'a> {
    fn new(
        executor: &'a Executor,
        weights: &Weights,
        pieces: &'a [Piece<'a>],
    ) -> Result<Self, ExecuteError> {
        let plan = &executor.plan;
        let tokens = pieces.iter().map(|piece| Streamer::row(piece.tokens));
        let tokens: Vec<Tensor> = tokens.collect::<Result<_, _>>()?;
        let mut given: Vec<Vec<(Input, ValId, Tensor)>> = pieces.iter().map(|_| vec![]).collect();
        let mut shared = Vec::new();
        let mut states = BTreeMap::new();
        for (input, id) in &plan.inputs {
            if matches!(input, Input::Param(_) | Input::Rounded(_)) {
                let (Some(tokens), Some(piece)) = (tokens.first(), pieces.first()) else {
                    return Err(ExecuteError::new("no sequence is given"));
                };
                shared.push((*input, *id, piece_input(*input, weights, tokens, piece.state)?));
                continue;
            }
            if let Input::State(state, part) = input {
                states.insert(*id, (*state, *part));
            }
            for ((given, tokens), piece) in given.iter_mut().zip(&tokens).zip(pieces) {
                given.push((*input, *id, piece_input(*input, weights, tokens, piece.state)?));
            }
        }
        let position = |piece: &Piece<'_>| (piece.state.position, piece.tokens.len() as i64);
        let kept = |piece: &Piece<'_>| piece.logits.min(piece.tokens.len());
        let mut sequences = SeveralSequences {
            executor,
            pieces,
            values: plan.values.iter().map(|_| None).collect(),
            sizes: given.iter().map(|given| sizes_of(given)).collect(),
            positions: pieces.iter().map(position).collect(),
            rows: Layout::new(pieces.iter().map(|piece| piece.tokens.len())),
            kept: Layout::new(pieces.iter().map(kept)),
            constants: shared.iter().map(|(_, id, _)| *id).collect(),
            states,
            rooms: BTreeMap::new(),
            ways: Vec::new(),
        };
        sequences.find_constants();
        sequences.ways = sequences.ways();
        sequences.set_inputs(shared, given)?;
        Ok(sequences)
    }

    /// Binds the inputs that all sequences share, and each sequence's own.
    fn set_inputs(
        &mut self,
        shared: Vec<(Input, ValId, Tensor)>,
        given: Vec<Vec<(Input, ValId, Tensor)>>,
    ) -> Result<(), ExecuteError> {
        let executor = self.executor;
        let some = self.sizes.first().copied().unwrap_or(Sizes { batch: 1, time: 1, past: 0 });
        for (input, id, tensor) in shared {
            let tensor = executor.fitted(input, id, tensor, some)?;
            self.put(id, Shared::One(tensor));
        }
        let mut split: Vec<(ValId, Vec<Tensor>)> = Vec::new();
        for (given, sizes) in given.into_iter().zip(self.sizes.clone()) {
            for (at, (input, id, tensor)) in given.into_iter().enumerate() {
                let tensor = executor.fitted(input, id, tensor, sizes)?;
                match split.get_mut(at) {
                    Some((_, tensors)) => tensors.push(tensor),
                    None => split.push((id, vec![tensor])),
                }
            }
        }
        for (id, tensors) in split {
            self.put(id, Shared::Split(tensors));
        }
        Ok(())
    }

    /// Adds the values that depend on constants alone.
    fn find_constants(&mut self) {
        let plan = &self.executor.plan;
        for step in &plan.steps {
            let is_fixed = |id: &ValId| {
                let value = plan.value(*id);
                value.is_some_and(|v| v.dims.iter().all(|dim| matches!(dim, Extent::Fixed(_))))
            };
            if step.inputs.iter().all(|id| self.is_one(*id)) && step.outputs.iter().all(is_fixed) {
                self.constants.extend(&step.outputs);
            }
        }
    }

    /// How each step is done.
    fn ways(&self) -> Vec<Way> {
        let plan = &self.executor.plan;
        let grows = |id: &ValId| {
            plan.outputs.iter().any(|(output, of)| of == id && matches!(output, Output::State(..)))
        };
        let way = |(step, choice): (&Step, &Choice)| {
            let most = self.rows.most();
            let is_apart = |apart| is_apart(&step.kernel, *choice, apart, most);
            match (&step.kernel, choice) {
                (_, _) if step.outputs.iter().all(|id| self.is_one(*id)) => Way::Once,
                (_, _) if is_apart(Apart::Tokens) && self.is_of_rows(step) => Way::Joined,
                (_, _) if is_apart(Apart::Sequences) && self.is_of_items(step) => Way::Batched,
                (Kernel::Rope(_), Choice::Ours(Path::Fused(_))) if self.turns(step) => Way::Joined,
                (Kernel::AppendTime(_), _) if step.outputs.iter().all(grows) => Way::Appended,
                (Kernel::Attention(_), Choice::Attention(attention::Path::Fused(_)))
                    if step.outputs.iter().skip(1).all(|id| step.drop_after.contains(id)) =>
                {
                    Way::Attended
                }
                (_, _) => Way::Split,
            }
        };
        let mut ways: Vec<Way> = plan.steps.iter().zip(&self.executor.choices).map(way).collect();
        if self.kept.total() < self.rows.total() {
            self.keep_few(&mut ways);
        }
        ways
    }

    /// Whether a step's values, apart from parameters, all have one row for each token.
    fn is_of_rows(&self, step: &Step) -> bool {
        step.inputs.iter().all(|id| self.has_rows(*id) || self.is_one(*id))
            && step.outputs.iter().all(|id| self.has_rows(*id))
    }

    /// Whether a step's values, apart from parameters, all have one item for each sequence.
    fn is_of_items(&self, step: &Step) -> bool {
        let has_items = |id: &ValId| {
            let dims = self.executor.plan.value(*id).map(|value| value.dims.as_slice());
            match dims {
                Some([Extent::Batch, Extent::Time, rest @ ..] | [Extent::Batch, rest @ ..]) => {
                    rest.iter().all(|dim| matches!(dim, Extent::Fixed(_)))
                }
                _ => false,
            }
        };
        step.inputs.iter().all(|id| has_items(id) || self.is_one(*id))
            && step.outputs.iter().all(has_items)
    }

    /// Whether a rotation's operands are rows and the position of the first row.
    fn turns(&self, step: &Step) -> bool {
        let inputs = &self.executor.plan.inputs;
        let is_position = |id: &ValId| inputs.contains(&(Input::Position, *id));
        matches!(step.inputs.as_slice(), [x, position] if self.has_rows(*x) && is_position(position))
    }

    /// Limits the last steps, on which only the logits depend, to the rows whose logits are computed.
    fn keep_few(&self, ways: &mut [Way]) {
        let plan = &self.executor.plan;
        let mut few: Vec<bool> = plan.values.iter().map(|_| true).collect();
        for (output, id) in &plan.outputs {
            if let Some(few) = few.get_mut(id.0 as usize) {
                *few &= *output == Output::Logits;
            }
        }
        let steps = plan.steps.iter().zip(&self.executor.choices).zip(ways).rev();
        for ((step, choice), way) in steps {
            let is_few = |id: &ValId| few.get(id.0 as usize).copied().unwrap_or(false);
            if is_apart(&step.kernel, *choice, Apart::Tokens, self.kept.most())
                && self.is_of_rows(step)
                && step.outputs.iter().all(is_few)
            {
                *way = Way::Kept;
                continue;
            }
            for id in &step.inputs {
                if let Some(few) = few.get_mut(id.0 as usize) {
                    *few = false;
                }
            }
        }
    }

    fn put(&mut self, id: ValId, value: Shared) {
        if let Some(slot) = self.values.get_mut(id.0 as usize) {
            *slot = Some(value);
        }
    }

    /// Whether a value has one row for each token.
    fn has_rows(&self, id: ValId) -> bool {
        let dims = self.executor.plan.value(id).map(|value| value.dims.as_slice());
        matches!(dims, Some([Extent::Batch, Extent::Time, ..]))
    }

    /// Whether a value is the same for all sequences, as a parameter is.
    fn is_one(&self, id: ValId) -> bool {
        self.constants.contains(&id)
    }
}

/// Steps.
impl SeveralSequences<'_> {
    fn step(&mut self, n: usize) -> Result<(), ExecuteError> {
        let plan = &self.executor.plan;
        let (Some(step), Some(choice), Some(way)) =
            (plan.steps.get(n), self.executor.choices.get(n), self.ways.get(n))
        else {
            return Err(self.missing(n));
        };
        match way {
            Way::Once => self.once(n, step, *choice)?,
            Way::Joined => self.joined(n, step, *choice)?,
            Way::Kept => self.kept(n, step, *choice)?,
            Way::Appended => self.appended(n, step)?,
            Way::Attended => self.attended(n, step, *choice)?,
            Way::Batched => self.batched(n, step, *choice)?,
            Way::Split => self.split(n, step, *choice)?,
        }
        for id in &step.drop_after {
            if let Some(value) = self.values.get_mut(id.0 as usize) {
                *value = None;
            }
        }
        Ok(())
    }

    fn missing(&self, n: usize) -> ExecuteError {
        self.executor.broken(n, "an operand is missing")
    }

    fn value(&self, n: usize, id: ValId) -> Result<&Shared, ExecuteError> {
        self.values.get(id.0 as usize).and_then(Option::as_ref).ok_or_else(|| self.missing(n))
    }

    /// All rows of a value.
    fn all_rows(&self, n: usize, id: ValId) -> Result<Tensor, ExecuteError> {
        match self.value(n, id)? {
            Shared::One(tensor) | Shared::Joined(tensor) => Ok(tensor.shallow_clone()),
            Shared::Split(tensors) => Ok(Tensor::f_cat(tensors, 1)?),
            Shared::Kept(_) => Err(self.missing(n)),
        }
    }

    /// A value of one sequence.
    fn of_sequence(&self, n: usize, id: ValId, sequence: usize) -> Result<Tensor, ExecuteError> {
        match self.value(n, id)? {
            Shared::One(tensor) => Ok(tensor.shallow_clone()),
            Shared::Joined(all) => Ok(self.rows.one(all, sequence)?),
            Shared::Split(tensors) => {
                tensors.get(sequence).map(Tensor::shallow_clone).ok_or_else(|| self.missing(n))
            }
            Shared::Kept(_) => Err(self.missing(n)),
        }
    }

    /// The rows of a value for the sequences `ones`, which have one token each.
    fn rows_of(&self, n: usize, id: ValId, ones: &[usize]) -> Result<Tensor, ExecuteError> {
        match self.value(n, id)? {
            Shared::Split(tensors) => {
                let rows = ones.iter().filter_map(|at| tensors.get(*at));
                Ok(Tensor::f_cat(&rows.collect::<Vec<_>>(), 1)?)
            }
            Shared::Joined(all) if ones.len() == self.pieces.len() => Ok(all.shallow_clone()),
            Shared::Joined(all) => {
                let rows = ones.iter().map(|at| self.rows.one(all, *at));
                Ok(Tensor::f_cat(&rows.collect::<Result<Vec<_>, _>>()?, 1)?)
            }
            Shared::One(_) | Shared::Kept(_) => Err(self.missing(n)),
        }
    }

    /// The sequences with one token, and the others.
    fn parted(&self) -> (Vec<usize>, Vec<usize>) {
        let single = |piece: &Piece<'_>| piece.tokens.len() == 1;
        (0..self.pieces.len()).partition(|at| self.pieces.get(*at).is_some_and(single))
    }

    /// Joins the values of some sequences and of the others, in the order of the sequences.
    fn in_order(
        &self,
        n: usize,
        parts: impl Iterator<Item = Result<(usize, Tensor), ExecuteError>>,
    ) -> Result<Shared, ExecuteError> {
        let parts = parts.collect::<Result<BTreeMap<usize, Tensor>, _>>()?;
        match parts.len() == self.pieces.len() {
            true => Ok(Shared::Split(parts.into_values().collect())),
            false => Err(self.missing(n)),
        }
    }

    /// A value with rows, from [1, rows, …] for the sequences with one token and a tensor for each other one.
    fn with_rows(
        &self,
        n: usize,
        (ones, of_ones): (&[usize], Tensor),
        of_others: Vec<(usize, Tensor)>,
    ) -> Result<Shared, ExecuteError> {
        if of_others.is_empty() {
            return Ok(Shared::Joined(of_ones));
        }
        // Copied, since libtorch's products depend on where rows begin in memory.
        let row = |row: i64| copy(&of_ones.f_narrow(1, row, 1)?);
        let of_ones = ones.iter().zip(0..).map(|(at, n)| Ok((*at, row(n)?)));
        self.in_order(n, of_ones.chain(of_others.into_iter().map(Ok)))
    }

    fn once(&mut self, n: usize, step: &Step, choice: Choice) -> Result<(), ExecuteError> {
        let results = self.alone(n, step, choice, 0)?;
        for (id, result) in step.outputs.iter().zip(results) {
            self.put(*id, Shared::One(result));
        }
        Ok(())
    }

    fn joined(&mut self, n: usize, step: &Step, choice: Choice) -> Result<(), ExecuteError> {
        let mut operands = Vec::new();
        for id in &step.inputs {
            operands.push(match self.has_rows(*id) || self.is_one(*id) {
                true => self.all_rows(n, *id)?,
                // One number for each sequence, which is also in `positions`.
                false => self.of_sequence(n, *id, 0)?,
            });
        }
        let each = dispatch::Each { positions: &self.positions, keys: &[], values: &[] };
        let results = self.compute(n, step, by_row(choice), &operands, self.rows.total(), each)?;
        for (id, result) in step.outputs.iter().zip(results) {
            self.put(*id, Shared::Joined(result));
        }
        Ok(())
    }

    fn kept(&mut self, n: usize, step: &Step, choice: Choice) -> Result<(), ExecuteError> {
        if self.kept.total() == 0 {
            return Ok(());
        }
        let mut operands = Vec::new();
        for id in &step.inputs {
            operands.push(match self.value(n, *id)? {
                Shared::One(tensor) | Shared::Kept(tensor) => tensor.shallow_clone(),
                Shared::Joined(_) | Shared::Split(_) => {
                    self.rows.last(&self.all_rows(n, *id)?, &self.kept)?
                }
            });
        }
        let each = dispatch::Each::default();
        let results = self.compute(n, step, by_row(choice), &operands, self.kept.total(), each)?;
        for (id, result) in step.outputs.iter().zip(results) {
            self.put(*id, Shared::Kept(result));
        }
        Ok(())
    }

    fn appended(&mut self, n: usize, step: &Step) -> Result<(), ExecuteError> {
        let ([past, new], [result]) = (step.inputs.as_slice(), step.outputs.as_slice()) else {
            return Err(self.missing(n));
        };
        let state = self.states.get(past);
        let (mut tensors, mut rooms) = (Vec::new(), Vec::new());
        for (sequence, piece) in self.pieces.iter().enumerate() {
            let room = state.and_then(|state| piece.state.room(*state));
            let (past, new) =
                (self.of_sequence(n, *past, sequence)?, self.of_sequence(n, *new, sequence)?);
            let (tensor, room) = Room::append(room, &past, &new)?;
            tensors.push(tensor);
            rooms.push(room);
        }
        self.put(*result, Shared::Split(tensors));
        self.rooms.insert(*result, rooms);
        Ok(())
    }

    fn attended(&mut self, n: usize, step: &Step, choice: Choice) -> Result<(), ExecuteError> {
        let ([q, k, v, ..], [y, ..]) = (step.inputs.as_slice(), step.outputs.as_slice()) else {
            return Err(self.missing(n));
        };
        let (ones, others) = self.parted();
        if ones.is_empty() {
            return self.split(n, step, choice);
        }
        let caches = |id: ValId| -> Result<Vec<Tensor>, ExecuteError> {
            ones.iter().map(|at| self.of_sequence(n, id, *at)).collect()
        };
        let (keys, values): (Vec<Tensor>, Vec<Tensor>) = (caches(*k)?, caches(*v)?);
        let (Some(first), Some(of_first)) = (keys.first(), values.first()) else {
            return Err(self.missing(n));
        };
        let mut operands = vec![
            self.rows_of(n, *q, &ones)?, // [1, rows, h, d]
            first.shallow_clone(),
            of_first.shallow_clone(),
        ];
        for id in step.inputs.iter().skip(3) {
            operands.push(self.of_sequence(n, *id, 0)?);
        }
        let keys: Vec<&Tensor> = keys.iter().collect();
        let values: Vec<&Tensor> = values.iter().collect();
        let each = dispatch::Each { positions: &[], keys: &keys, values: &values };
        let results = self.compute(n, step, choice, &operands, ones.len() as i64, each)?;
        let Some(of_ones) = results.into_iter().next() else { return Err(self.missing(n)) };
        let of_others = self.each_alone(n, step, choice, &others)?;
        let Some(of_others) = of_others.into_iter().next() else { return Err(self.missing(n)) };
        let value = self.with_rows(n, (&ones, of_ones), of_others)?;
        self.put(*y, value);
        Ok(())
    }

    fn batched(&mut self, n: usize, step: &Step, choice: Choice) -> Result<(), ExecuteError> {
        let (ones, others) = self.parted();
        if ones.len() < 2 {
            return self.split(n, step, choice);
        }
        let mut operands = Vec::new();
        for id in &step.inputs {
            operands.push(if self.is_one(*id) {
                self.of_sequence(n, *id, 0)?
            } else if self.has_rows(*id) {
                self.rows_of(n, *id, &ones)?.f_transpose(0, 1)? // [rows, 1, …]
            } else {
                let items = ones.iter().map(|at| self.of_sequence(n, *id, *at));
                Tensor::f_cat(&items.collect::<Result<Vec<_>, _>>()?, 0)?
            });
        }
        let sizes = Sizes { batch: ones.len() as i64, time: 1, past: 0 };
        let of_ones = self.run(n, step, choice, &operands, sizes, None)?;
        let of_others = self.each_alone(n, step, choice, &others)?;
        for ((id, of_ones), of_others) in step.outputs.iter().zip(of_ones).zip(of_others) {
            let value = if self.has_rows(*id) {
                self.with_rows(n, (&ones, of_ones.f_transpose(0, 1)?), of_others)?
            } else {
                // Copied, so that a state does not keep the other sequences' memory.
                let item = |item: i64| copy(&of_ones.f_narrow(0, item, 1)?);
                let of_ones = ones.iter().zip(0..).map(|(at, n)| Ok((*at, item(n)?)));
                self.in_order(n, of_ones.chain(of_others.into_iter().map(Ok)))?
            };
            self.put(*id, value);
        }
        Ok(())
    }

    fn split(&mut self, n: usize, step: &Step, choice: Choice) -> Result<(), ExecuteError> {
        let all: Vec<usize> = (0..self.pieces.len()).collect();
        let results = self.each_alone(n, step, choice, &all)?;
        for (id, results) in step.outputs.iter().zip(results) {
            let value = self.in_order(n, results.into_iter().map(Ok))?;
            self.put(*id, value);
        }
        Ok(())
    }

    /// Runs a step for each of some sequences alone. For each output, returns the sequences with their values.
    fn each_alone(
        &self,
        n: usize,
        step: &Step,
        choice: Choice,
        sequences: &[usize],
    ) -> Result<Vec<Vec<(usize, Tensor)>>, ExecuteError> {
        let mut results: Vec<Vec<(usize, Tensor)>> =
            step.outputs.iter().map(|_| Vec::new()).collect();
        for at in sequences {
            for (results, result) in results.iter_mut().zip(self.alone(n, step, choice, *at)?) {
                results.push((*at, result));
            }
        }
        Ok(results)
    }

    /// Runs a step for one sequence.
    fn alone(
        &self,
        n: usize,
        step: &Step,
        choice: Choice,
        sequence: usize,
    ) -> Result<Vec<Tensor>, ExecuteError> {
        let ours = matches!(choice, Choice::View | Choice::Ours(Path::Fused(_)));
        let mut operands = Vec::new();
        for id in &step.inputs {
            let operand = self.of_sequence(n, *id, sequence)?;
            // libtorch's products depend on where dense rows begin in memory, and on their stride.
            let moves = !ours
                && operand.is_contiguous()
                && matches!(self.value(n, *id)?, Shared::Joined(_));
            operands.push(if moves { copy(&operand)? } else { operand });
        }
        let sizes = self.sizes.get(sequence).copied().ok_or_else(|| self.missing(n))?;
        self.run(n, step, choice, &operands, sizes, None)
    }

    /// Runs a step for rows of several sequences.
    fn compute(
        &self,
        n: usize,
        step: &Step,
        choice: Choice,
        operands: &[Tensor],
        rows: i64,
        each: dispatch::Each<'_>,
    ) -> Result<Vec<Tensor>, ExecuteError> {
        self.run(n, step, choice, operands, Sizes { batch: 1, time: rows, past: 0 }, Some(each))
    }

    fn run(
        &self,
        n: usize,
        step: &Step,
        choice: Choice,
        operands: &[Tensor],
        sizes: Sizes,
        each: Option<dispatch::Each<'_>>,
    ) -> Result<Vec<Tensor>, ExecuteError> {
        let context = dispatch::Context {
            machine: self.executor.machine,
            sizes,
            // A row may be a view of all rows.
            consumes_first: false,
            copy: None,
            tables: &self.executor.tables,
            each,
        };
        let operands: Vec<&Tensor> = operands.iter().collect();
        let results = self.executor.compute(n, &step.kernel, choice, &operands, &context)?;
        if results.len() != step.outputs.len() {
            return Err(self.executor.broken(n, "its kernel returned a wrong number of results"));
        }
        Ok(results)
    }

    /// The logits and the state of each sequence.
    fn end(mut self) -> Result<Vec<(Option<Tensor>, Carried)>, ExecuteError> {
        let plan = &self.executor.plan;
        let count = self.pieces.len();
        let mut results: Vec<Vec<(Output, Tensor)>> = (0..count).map(|_| Vec::new()).collect();
        for (output, id) in &plan.outputs {
            let value = self.values.get(id.0 as usize).and_then(Option::as_ref);
            let logits = *output == Output::Logits;
            if logits && self.kept.total() == 0 {
                continue;
            }
            let value = value
                .ok_or_else(|| ExecuteError::new(format!("the plan does not compute {output}")))?;
            for (sequence, results) in results.iter_mut().enumerate() {
                let tensor = match value {
                    Shared::One(tensor) => tensor.shallow_clone(),
                    Shared::Split(tensors) => {
                        let tensor = tensors.get(sequence).map(Tensor::shallow_clone);
                        let missing =
                            || ExecuteError::new(format!("sequence {sequence} has no {output}"));
                        tensor.ok_or_else(missing)?
                    }
                    // Copied, so that a state does not keep the other rows' memory.
                    Shared::Joined(all) => copy(&self.rows.one(all, sequence)?)?,
                    Shared::Kept(all) => self.kept.one(all, sequence)?,
                };
                let kept = self.kept.count(sequence);
                match tensor.size().get(1) {
                    Some(rows) if logits && *rows != kept => {
                        results.push((*output, tensor.f_narrow(1, rows - kept, kept)?));
                    }
                    _ => results.push((*output, tensor)),
                }
            }
        }
        self.executor.runs.set(self.executor.runs.get() + 1);
        let mut ended = Vec::new();
        for (sequence, (results, piece)) in results.into_iter().zip(self.pieces).enumerate() {
            let (logits, mut after) = outputs(results, piece.tokens.len() as i64, piece.state);
            for (output, id) in &plan.outputs {
                if let (Output::State(state, part), Some(rooms)) = (output, self.rooms.get_mut(id))
                    && let Some(room) = rooms.get(sequence)
                {
                    after.keep_room((*state, *part), room.share());
                }
            }
            let logits = logits.filter(|_| self.kept.count(sequence) > 0);
            ended.push((logits, after));
        }
        Ok(ended)
    }
}

/// The same product, for any number of rows.
fn by_row(choice: Choice) -> Choice {
    if let Choice::Product(Product::FewRows(isa, _)) = choice {
        return Choice::Product(Product::ByRow(isa));
    }
    choice
}
