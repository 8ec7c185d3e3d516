//! The exchanges between ranks in a training step.
//!
//! The exchanges and their sizes are those of the schedule. A message holds a unit's parameters one after another, each
//! flattened, so that a rank's part is one piece of it.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use dsl::Problem;
use tch::{Kind, Tensor};

use super::{Collectives, UnderWay};
use crate::error::ExecuteError;
use crate::kernels::arrange::copy;
use data::batch::Batch;
use scale::reduce::Node;
use scale::schedule::{DIGEST, Exchange, Schedule, Transfer, Way};
use scale::shard::{BLOCK, Shards};

/// This process among all ranks of a run.
#[derive(Clone, Debug)]
pub(crate) struct Team {
    pub(crate) ranks: Rc<dyn Collectives>,
    pub(crate) schedule: Rc<Schedule>,
    /// The shape of each parameter.
    shapes: Rc<Vec<Vec<i64>>>,
    /// Where the state is, and gradients.
    device: tch::Device,
}

/// What every rank knows about a step's micro-batches before it computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// Counted targets of all micro-batches.
    pub(crate) counted: u64,
    /// The digest of each window, in order.
    pub(crate) windows: Vec<blake3::Hash>,
    /// The first rank without its data, and why.
    pub(crate) failed: Option<(u64, String)>,
}

/// What a rank reports about its micro-batch of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Computed {
    /// The sum of its losses.
    pub(crate) loss: f64,
    /// Counted targets.
    pub(crate) counted: i64,
    /// How long the rank computed.
    pub(crate) took: Duration,
    /// Whether the rank was asked to stop after this step.
    pub(crate) stop: bool,
}

/// Numbers in the digest of a window.
const DIGESTS: usize = DIGEST as usize;
/// Bytes of a rank's reason for failing.
const REASON: usize = 512;

/// The rank that `rank` checks, among this many.
pub(crate) fn checked_by(rank: u64, ranks: u64) -> u64 {
    (rank + 1) % ranks.max(1)
}

/// A sum over micro-batches, and what a rank owns of its gradients.
type Arrived = Vec<(Node, Vec<Tensor>)>;

impl Team {
    pub(crate) fn new(
        ranks: Rc<dyn Collectives>,
        schedule: Schedule,
        shapes: Vec<Vec<i64>>,
        device: tch::Device,
    ) -> Team {
        Team { ranks, schedule: Rc::new(schedule), shapes: Rc::new(shapes), device }
    }

    /// A tensor to receive what is on the device of the state.
    fn room(&self, elements: i64, kind: Kind) -> Result<Tensor, ExecuteError> {
        Ok(Tensor::f_empty([elements], (kind, self.device))?)
    }

    /// Tensors, one after another, flattened. A single one is not copied.
    fn flat(&self, tensors: Option<Vec<Tensor>>) -> Result<Tensor, ExecuteError> {
        let flat = tensors.iter().flatten().map(|tensor| tensor.f_reshape([-1]));
        self.joined(&flat.collect::<Result<Vec<_>, _>>()?)
    }

    pub(crate) fn leads(&self) -> bool {
        self.ranks.rank() == 0
    }

    fn shards(&self) -> &Shards {
        &self.schedule.shards
    }

    /// The micro-batches that this rank computes, of `count`.
    pub(crate) fn micro_batches(&self, count: u64) -> impl Iterator<Item = u64> + use<> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        (rank..count).step_by(usize::try_from(size).unwrap_or(usize::MAX))
    }

    /// The rank whose first micro-batch this rank repeats in a check.
    pub(crate) fn checked(&self) -> u64 {
        checked_by(self.ranks.rank(), self.ranks.size())
    }

    /// Parameters of a unit, in order.
    pub(crate) fn params_of(&self, unit: usize) -> &[usize] {
        self.shards().units().get(unit).map_or(&[], |unit| &unit.params)
    }

    /// A parameter's shape.
    pub(crate) fn shape(&self, param: usize) -> &[i64] {
        self.shapes.get(param).map_or(&[], Vec::as_slice)
    }

    /// The elements of each parameter that this rank owns, in parameter order.
    pub(crate) fn parts(&self) -> Vec<i64> {
        (0..self.shards().params()).map(|param| self.length(param, self.ranks.rank())).collect()
    }

    fn length(&self, param: usize, rank: u64) -> i64 {
        self.shards().length(param, rank) as i64
    }

    /// Begins to announce this rank's micro-batches of a step to all ranks, with `rows` windows each.
    pub(crate) fn begin_announcing(
        &self,
        batches: Result<&[Batch], &Problem>,
        rows: u64,
    ) -> Result<UnderWay, ExecuteError> {
        let each = 1 + DIGESTS * rows as usize;
        let mut message = vec![0i64; 1 + self.schedule.rounds() as usize * each];
        message[0] = i64::from(batches.is_err());
        for (round, batch) in batches.unwrap_or_default().iter().enumerate() {
            let section = &mut message[1 + round * each..][..each];
            section[0] = batch.counted_targets() as i64;
            let digests = batch.window_digests();
            for (into, digest) in section[1..].chunks_exact_mut(DIGESTS).zip(&digests) {
                for (number, bytes) in into.iter_mut().zip(digest.as_bytes().chunks_exact(8)) {
                    *number = i64::from_le_bytes(bytes.try_into().unwrap_or_default());
                }
            }
        }
        let count = message.len() * self.ranks.size() as usize;
        let room = empty(count as i64, Kind::Int64)?;
        self.ranks.begin_all_gather(room, Tensor::f_from_slice(&message)?)
    }

    /// What all ranks announced for a step with `count` micro-batches. `failed` is why this rank has no data, if so.
    pub(crate) fn end_announcing(
        &self,
        exchange: UnderWay,
        failed: Option<&Problem>,
        count: u64,
        rows: u64,
    ) -> Result<Announced, ExecuteError> {
        let size = self.ranks.size() as usize;
        let each = 1 + DIGESTS * rows as usize;
        let all = numbers(&self.wait(exchange)?)?;
        let length = all.len() / size.max(1);
        let message_of = |rank: usize| &all[rank * length..][..length];
        let failed = match (0..size).find(|rank| message_of(*rank)[0] != 0) {
            None => None,
            Some(rank) => Some((rank as u64, self.reason(rank, failed)?)),
        };
        let (mut counted, mut windows) = (0, Vec::new());
        for index in 0..count as usize {
            let section = &message_of(index % size)[1 + index / size * each..][..each];
            counted += section[0] as u64;
            for digest in section[1..].chunks_exact(DIGESTS) {
                let mut bytes = [0u8; 32];
                for (into, number) in bytes.chunks_exact_mut(8).zip(digest) {
                    into.copy_from_slice(&number.to_le_bytes());
                }
                windows.push(blake3::Hash::from_bytes(bytes));
            }
        }
        Ok(Announced { counted, windows, failed })
    }

    /// Why a rank failed, in its own words.
    pub(crate) fn reason(
        &self,
        rank: usize,
        error: Option<&Problem>,
    ) -> Result<String, ExecuteError> {
        let mut bytes = error.map(|error| error.message.clone().into_bytes()).unwrap_or_default();
        bytes.resize(REASON, 0);
        let numbers: Vec<i64> = bytes
            .chunks_exact(8)
            .map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap_or_default()))
            .collect();
        let all = self.gather_numbers(&numbers)?;
        let bytes: Vec<u8> = all[rank * numbers.len()..][..numbers.len()]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits for an exchange that has begun.
    pub(crate) fn wait(&self, begun: UnderWay) -> Result<Tensor, ExecuteError> {
        self.ranks.wait(begun)
    }

    /// Waits until all exchanges are done. Called before anything is read from the device.
    pub(crate) fn settle(&self) -> Result<(), ExecuteError> {
        self.ranks.settle()
    }

    /// Begins to send each rank what it owns of this rank's gradients of a unit. A rank without a micro-batch in the
    /// last round passes `None`.
    pub(crate) fn begin_scatter(
        &self,
        tensors: Option<Vec<Tensor>>,
        round: u64,
        unit: usize,
    ) -> Result<UnderWay, ExecuteError> {
        self.begin_all_to_all(self.flat(tensors)?, round, unit, Way::Flat)
    }

    /// What this rank owns of the gradients of all ranks, which have `arrived`.
    pub(crate) fn scattered(
        &self,
        arrived: &Tensor,
        round: u64,
        unit: usize,
    ) -> Result<Arrived, ExecuteError> {
        let first = round * self.ranks.size();
        let leaf = |from| Node { start: first + from, level: 0 };
        self.pieces((0..self.schedule.active(round)).map(leaf), unit, arrived)
    }

    /// What this rank owns of a unit, of each of these sums in turn.
    fn pieces(
        &self,
        sums: impl Iterator<Item = Node>,
        unit: usize,
        all: &Tensor,
    ) -> Result<Arrived, ExecuteError> {
        let mut at = 0;
        let rank = self.ranks.rank();
        sums.map(|node| {
            let mut pieces = Vec::new();
            for param in self.params_of(unit) {
                let length = self.length(*param, rank);
                pieces.push(all.f_narrow(0, at, length)?);
                at += length;
            }
            Ok((node, pieces))
        })
        .collect()
    }

    fn begin_all_to_all(
        &self,
        input: Tensor,
        round: u64,
        unit: usize,
        way: Way,
    ) -> Result<UnderWay, ExecuteError> {
        let transfer = Transfer::Scatter { round, unit, way };
        let Some(Exchange::AllToAll { sent, received, .. }) =
            self.schedule.transfer(transfer, self.ranks.rank())
        else {
            return Err(ExecuteError::new(format!("{transfer:?} sends nothing")));
        };
        let counts = |counts: Vec<u64>| counts.iter().map(|count| *count as i64).collect();
        let (sent, received): (Vec<i64>, Vec<i64>) = (counts(sent), counts(received));
        let output = self.room(received.iter().sum(), Kind::Float)?;
        self.ranks.begin_all_to_all(output, input, &received, &sent)
    }

    /// Begins to send this rank's gradients of a unit inside its machine, each element to the local rank that its owner
    /// has on its own machine.
    pub(crate) fn begin_scatter_inside(
        &self,
        tensors: Option<Vec<Tensor>>,
        round: u64,
        unit: usize,
    ) -> Result<UnderWay, ExecuteError> {
        let ranks = self.ranks.size();
        let local = self.schedule.node.unwrap_or(1);
        let flat = self.flat(tensors)?;
        let mut sorted = Vec::new();
        if flat.numel() > 0 {
            let owned = |rank| self.shards().owned(unit, rank) as i64;
            let starts: Vec<i64> = (0..ranks)
                .scan(0, |at, rank| Some(std::mem::replace(at, *at + owned(rank))))
                .collect();
            for owner in (0..local).flat_map(|at| (at..ranks).step_by(local as usize)) {
                let start = starts.get(owner as usize).copied().unwrap_or(0);
                sorted.push(flat.f_narrow(0, start, owned(owner))?);
            }
        }
        self.begin_all_to_all(self.joined(&sorted)?, round, unit, Way::Inside)
    }

    /// Sums over the machine's micro-batches, whose gradients have `arrived`.
    pub(crate) fn scattered_inside(
        &self,
        arrived: &Tensor,
        round: u64,
    ) -> Result<Vec<(Node, Tensor)>, ExecuteError> {
        let schedule = &self.schedule;
        let (rank, ranks) = (self.ranks.rank(), self.ranks.size());
        let local = schedule.node.unwrap_or(1);
        let start = rank / local * local;
        let there = start..(start + local).min(schedule.active(round)).max(start);
        let count = there.end - there.start;
        let each = if count == 0 { 0 } else { arrived.numel() as i64 / count as i64 };
        let range = round * ranks + there.start..round * ranks + there.end;
        let leaves = (0..count as i64).map(|n| Ok(arrived.f_narrow(0, n * each, each)?));
        let add = |left: Result<Tensor, ExecuteError>, right: Result<Tensor, ExecuteError>| {
            Ok(left?.f_add_(&right?)?)
        };
        let sums = schedule.order().partial(range, leaves, add);
        sums.into_iter().map(|(node, sum)| Ok((node, sum?))).collect()
    }

    /// Begins to send sums over this machine's micro-batches to their owners on other machines.
    pub(crate) fn begin_scatter_across(
        &self,
        inside: &[(Node, Tensor)],
        round: u64,
        unit: usize,
    ) -> Result<UnderWay, ExecuteError> {
        let (rank, ranks) = (self.ranks.rank(), self.ranks.size());
        let local = self.schedule.node.unwrap_or(1);
        let mut sorted = Vec::new();
        let mut at = 0;
        for owner in (rank % local..ranks).step_by(local as usize) {
            let length = self.shards().owned(unit, owner) as i64;
            for (_, sum) in inside {
                sorted.push(sum.f_narrow(0, at, length)?);
            }
            at += length;
        }
        self.begin_all_to_all(self.joined(&sorted)?, round, unit, Way::Across)
    }

    /// What this rank owns of the sums of all machines, which have `arrived`.
    pub(crate) fn scattered_across(
        &self,
        arrived: &Tensor,
        round: u64,
        unit: usize,
    ) -> Result<Arrived, ExecuteError> {
        let machines = 0..self.ranks.size() / self.schedule.node.unwrap_or(1);
        let sums = machines.flat_map(|machine| self.schedule.parts(round, machine));
        self.pieces(sums, unit, arrived)
    }

    /// A message of these pieces, [n] each. A single one is not copied.
    fn joined(&self, pieces: &[Tensor]) -> Result<Tensor, ExecuteError> {
        match pieces {
            [] => self.room(0, Kind::Float),
            [one] => Ok(one.f_contiguous()?),
            several => Ok(Tensor::f_cat(several, 0)?),
        }
    }

    /// What all ranks report about their micro-batches of a round.
    pub(crate) fn losses(&self, computed: Computed) -> Result<Vec<Computed>, ExecuteError> {
        let Computed { loss, counted, took, stop } = computed;
        let took = took.as_secs_f64().to_bits() as i64;
        let all = [loss.to_bits() as i64, counted, took, i64::from(stop)];
        let decode = |numbers: &[i64]| match numbers {
            [loss, counted, took, stop] => Some(Computed {
                loss: f64::from_bits(*loss as u64),
                counted: *counted,
                took: Duration::try_from_secs_f64(f64::from_bits(*took as u64)).ok()?,
                stop: *stop != 0,
            }),
            _ => None,
        };
        let all = self.gather_numbers(&all)?;
        all.chunks_exact(4)
            .map(|numbers| {
                decode(numbers).ok_or_else(|| ExecuteError::new("a rank's time is no time"))
            })
            .collect()
    }

    /// The auxiliary losses of all ranks' micro-batches of a round. A step without any exchanges nothing.
    pub(crate) fn terms(&self, local: &[f64]) -> Result<Vec<Vec<f64>>, ExecuteError> {
        let bits: Vec<i64> = local.iter().map(|term| term.to_bits() as i64).collect();
        let all = self.gather_numbers(&bits)?;
        let decode = |bits: &[i64]| bits.iter().map(|bits| f64::from_bits(*bits as u64)).collect();
        Ok(all.chunks_exact(bits.len().max(1)).map(decode).collect())
    }

    /// Gathers these parameters of a unit whole, flattened. Every rank sends what it owns.
    pub(crate) fn gather(
        &self,
        params: &[usize],
        parts: &[Tensor],
    ) -> Result<Vec<Tensor>, ExecuteError> {
        let kind = parts.first().map_or(Kind::Float, Tensor::kind);
        self.gathered(params, &self.wait(self.begin_gather(params, parts, kind)?)?)
    }

    /// Begins to gather these parameters of a unit in this dtype. Every rank sends what it owns. A part that is the
    /// whole message is not copied, so it must not change before it has arrived.
    pub(crate) fn begin_gather(
        &self,
        params: &[usize],
        parts: &[Tensor],
        kind: Kind,
    ) -> Result<UnderWay, ExecuteError> {
        let most = self.most(params);
        let message = match parts {
            [one] if one.numel() as i64 == most && one.kind() == kind => one.f_reshape([-1])?,
            _ => {
                let message = self.room(most, kind)?;
                let mut at = 0;
                for part in parts {
                    let length = part.numel() as i64;
                    message.f_narrow(0, at, length)?.f_copy_(&part.f_view([-1])?)?;
                    at += length;
                }
                // The other ranks do not read the rest.
                let _ = message.f_narrow(0, at, most - at)?.f_zero_()?;
                message
            }
        };
        self.ranks.begin_all_gather(self.room(most * self.ranks.size() as i64, kind)?, message)
    }

    /// The most elements of these parameters that any rank owns.
    fn most(&self, params: &[usize]) -> i64 {
        let length_of = |rank| params.iter().map(|param| self.length(*param, rank)).sum::<i64>();
        (0..self.ranks.size()).map(length_of).max().unwrap_or(0)
    }

    /// Whole tensors, flattened, of these parameters of a unit, once the parts of all ranks have `arrived`. They are
    /// views of what arrived if each is in one piece there, else copies.
    pub(crate) fn gathered(
        &self,
        params: &[usize],
        arrived: &Tensor,
    ) -> Result<Vec<Tensor>, ExecuteError> {
        let most = self.most(params);
        // By parameter, first element and length of the pieces that are not empty.
        let mut pieces: Vec<Vec<(i64, i64)>> = params.iter().map(|_| Vec::new()).collect();
        for rank in 0..self.ranks.size() {
            let mut at = rank as i64 * most;
            for (param, pieces) in params.iter().zip(&mut pieces) {
                let length = self.length(*param, rank);
                if length > 0 {
                    pieces.push((at, length));
                }
                at += length;
            }
        }
        // Copying some and viewing others would hold everything twice.
        if let Some(whole) =
            pieces.iter().map(|pieces| adjacent(pieces)).collect::<Option<Vec<_>>>()
        {
            let views = whole.iter().map(|(first, length)| arrived.f_narrow(0, *first, *length));
            return Ok(views.collect::<Result<_, _>>()?);
        }
        let joined = |pieces: &Vec<(i64, i64)>| -> Result<Tensor, ExecuteError> {
            let pieces = pieces.iter().map(|(first, length)| arrived.f_narrow(0, *first, *length));
            Ok(Tensor::f_cat(&pieces.collect::<Result<Vec<_>, _>>()?, 0)?)
        };
        pieces.iter().map(joined).collect()
    }

    /// One parameter's whole tensor, flattened, on rank 0; `None` on the others. `own` is what this rank owns of it.
    pub(crate) fn collect(
        &self,
        param: usize,
        part: &Tensor,
    ) -> Result<Option<Tensor>, ExecuteError> {
        let size = self.ranks.size();
        let mut send = vec![0; size as usize];
        let mut receive = vec![0; size as usize];
        send[0] = part.numel() as i64;
        if self.leads() {
            receive = (0..size).map(|rank| self.length(param, rank)).collect();
        }
        let output = self.room(receive.iter().sum(), part.kind())?;
        let output = self.ranks.all_to_all(output, part.shallow_clone(), &receive, &send)?;
        Ok(self.leads().then_some(output))
    }

    /// What this rank owns of a parameter, flattened; rank 0 has the `whole`.
    pub(crate) fn deal_out(
        &self,
        param: usize,
        tensor: Option<&Tensor>,
    ) -> Result<Tensor, ExecuteError> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        let mut receive = vec![0; size as usize];
        receive[0] = self.length(param, rank);
        let (input, send) = match tensor {
            Some(tensor) => {
                let lengths = (0..size).map(|rank| self.length(param, rank)).collect();
                (tensor.f_reshape([-1])?, lengths)
            }
            None => (self.room(0, Kind::Float)?, vec![0; size as usize]),
        };
        let output = self.room(receive.iter().sum(), Kind::Float)?;
        self.ranks.all_to_all(output, input, &receive, &send)
    }

    /// The tensor of rank 0, on every rank.
    pub(crate) fn broadcast(&self, tensor: &Tensor) -> Result<Tensor, ExecuteError> {
        let mut flat = copy(&tensor.f_reshape([-1])?)?;
        self.ranks.broadcast(&mut flat)?;
        Ok(flat.f_reshape(tensor.size())?)
    }

    /// This rank's part of a parameter, as a view.
    pub(crate) fn part(&self, param: usize, tensor: &Tensor) -> Result<Tensor, ExecuteError> {
        let part = self.shards().part(param, self.ranks.rank());
        let flat = tensor.f_view([-1])?;
        Ok(flat.f_narrow(0, part.start as i64, (part.end - part.start) as i64)?)
    }

    /// Gathers the sums of squares of each parameter's blocks, in order. Each rank sends those of the blocks it owns.
    pub(crate) fn gather_blocks(&self, local: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, ExecuteError> {
        let most = (0..self.ranks.size())
            .map(|rank| (0..local.len()).map(|param| self.blocks(param, rank)).sum::<usize>())
            .max()
            .unwrap_or(0);
        let mut message: Vec<i64> =
            local.iter().flatten().map(|sum| sum.to_bits() as i64).collect();
        message.resize(most, 0);
        let all = self.gather_numbers(&message)?;
        let mut sums: Vec<Vec<f64>> = local.iter().map(|_| Vec::new()).collect();
        for rank in 0..self.ranks.size() {
            let mut at = rank as usize * most;
            for (param, sums) in sums.iter_mut().enumerate() {
                let count = self.blocks(param, rank);
                sums.extend(all[at..at + count].iter().map(|bits| f64::from_bits(*bits as u64)));
                at += count;
            }
        }
        Ok(sums)
    }

    fn blocks(&self, param: usize, rank: u64) -> usize {
        self.shards().length(param, rank).div_ceil(BLOCK) as usize
    }

    /// Sends the numbers of each rank to rank 0; their counts may differ.
    pub(crate) fn lists_to_first(&self, local: &[i64], stop: bool) -> Result<Lists, ExecuteError> {
        let headers = self.gather_numbers(&[local.len() as i64, i64::from(stop)])?;
        let (pairs, _) = headers.as_chunks::<2>();
        if pairs.iter().any(|[_, stop]| *stop != 0) {
            return Ok(ControlFlow::Break(()));
        }
        let counts: Vec<i64> = pairs.iter().map(|[count, _]| *count).collect();
        let mut send = vec![0; counts.len()];
        send[0] = local.len() as i64;
        let receive = if self.leads() { counts } else { vec![0; send.len()] };
        let input = Tensor::f_from_slice(local)?;
        let output = empty(receive.iter().sum(), Kind::Int64)?;
        let output = self.ranks.all_to_all(output, input, &receive, &send)?;
        if !self.leads() {
            return Ok(ControlFlow::Continue(None));
        }
        let numbers = numbers(&output)?;
        let mut rest = numbers.as_slice();
        let mut lists = Vec::new();
        for count in receive {
            let (list, after) = rest.split_at_checked(count as usize).unwrap_or_default();
            lists.push(list.to_vec());
            rest = after;
        }
        Ok(ControlFlow::Continue(Some(lists)))
    }

    /// The numbers of all ranks, one after another.
    pub(crate) fn gather_numbers(&self, local: &[i64]) -> Result<Vec<i64>, ExecuteError> {
        let input = Tensor::f_from_slice(local)?;
        let count = local.len() * self.ranks.size() as usize;
        numbers(&self.ranks.all_gather(empty(count as i64, Kind::Int64)?, input)?)
    }
}

/// These pieces as one, if each begins where the one before it ends, and the first one where any kernel reads fast.
fn adjacent(pieces: &[(i64, i64)]) -> Option<(i64, i64)> {
    /// Elements of 2 bytes in 64, where libtorch's own allocations begin on a CPU.
    const ALIGNED: i64 = 32;
    let first = pieces.first().map_or(0, |(first, _)| *first);
    let mut end = first;
    for (at, length) in pieces {
        if *at != end {
            return None;
        }
        end += length;
    }
    (first % ALIGNED == 0).then_some((first, end - first))
}

/// The lists of all ranks on rank 0, nothing on the others; `Break` if a rank was asked to stop.
pub(crate) type Lists = ControlFlow<(), Option<Vec<Vec<i64>>>>;

fn numbers(tensor: &Tensor) -> Result<Vec<i64>, ExecuteError> {
    let mut numbers = vec![0i64; tensor.numel()];
    let count = numbers.len();
    tensor.f_copy_data(&mut numbers, count)?;
    Ok(numbers)
}

/// A tensor to receive numbers, which stay on the CPU.
fn empty(elements: i64, kind: Kind) -> Result<Tensor, ExecuteError> {
    Ok(Tensor::f_empty([elements], (kind, tch::Device::Cpu))?)
}

#[cfg(test)]
mod tests {
    use compiler::plan::{Precision, Processor};
    use compiler::plans;
    use lab::experiment::Shard;
    use scale::schedule::Counts;
    use tch::Device;

    use super::*;
    use crate::ranks::simulated::{Simulated, with_ranks};
    use crate::selftest::models::{self, Family, Size};

    const BLOCK: i64 = scale::shard::BLOCK as i64;

    /// Ranks that exchange parameters of these sizes, which are one unit if `layer` is.
    fn team(ranks: Simulated, layer: Option<u64>, sizes: &[i64]) -> Team {
        let params: Vec<_> = sizes.iter().map(|size| (layer, *size as u64)).collect();
        let ranks = Rc::new(ranks);
        let shards = Shards::from_sizes(&params, ranks.size());
        // The schedule needs a plan, but its exchanges are not used.
        let graph = models::graph(Family::Llama, Size::Small).unwrap();
        let micro = plans::train(&graph, &models::options(Precision::F32, Processor::Cpu)).micro;
        let counts = Counts { micro_batches: ranks.size(), in_sequence: 1, rows: 1 };
        let schedule = Schedule::new(shards, &micro, Shard::Full, counts, None);
        let shapes = sizes.iter().map(|size| vec![*size]).collect();
        Team::new(ranks, schedule, shapes, Device::Cpu)
    }

    /// A parameter, the same on all ranks.
    fn full(size: i64) -> Tensor {
        Tensor::arange(size, (Kind::Float, Device::Cpu)) + 0.25
    }

    #[test]
    fn parts_of_all_ranks_are_gathered_in_either_dtype() {
        let layers: [&[i64]; 5] = [
            &[5],
            &[4 * BLOCK],
            &[4 * BLOCK + 1],
            &[7, 3 * BLOCK + 5, 40, BLOCK],
            &[16, 2 * BLOCK, 2 * BLOCK],
        ];
        for (ranks, sizes) in [1, 2, 3, 5].into_iter().flat_map(|n| layers.map(|s| (n, s))) {
            with_ranks(ranks, |simulated| {
                let team = team(simulated, Some(0), sizes);
                for kind in [Kind::Float, Kind::BFloat16] {
                    let params: Vec<usize> = (0..sizes.len()).collect();
                    let parts: Vec<Tensor> = params
                        .iter()
                        .map(|param| team.part(*param, &full(sizes[*param])).unwrap())
                        .collect();
                    let begun = team.begin_gather(&params, &parts, kind).unwrap();
                    let arrived = team.wait(begun).unwrap();
                    let gathered = team.gathered(&params, &arrived).unwrap();
                    for (got, size) in gathered.iter().zip(sizes) {
                        let wanted = full(*size).to_kind(kind);
                        assert!(got.equal(&wanted), "{sizes:?} of {ranks} ranks in {kind:?}");
                    }
                }
            });
        }
    }

    #[test]
    fn what_arrives_in_one_piece_is_not_copied() {
        // By ranks, whether whole parameters are views of what arrived.
        let cases: [(u64, &[i64], bool); 6] = [
            (1, &[16, BLOCK], false), // in bf16 the second one would begin between 64 bytes
            (1, &[32, BLOCK], true),
            (2, &[4 * BLOCK], true),
            (2, &[4 * BLOCK - 3], true), // the last rank's part is shorter
            (3, &[4 * BLOCK], false),    // one block, one block, two blocks
            (2, &[BLOCK, BLOCK], true),
        ];
        for (ranks, sizes, views) in cases {
            with_ranks(ranks, |simulated| {
                let team = team(simulated, Some(0), sizes);
                let params: Vec<usize> = (0..sizes.len()).collect();
                let elements = team.most(&params) * ranks as i64;
                let arrived = Tensor::zeros([elements], (Kind::Float, Device::Cpu));
                let within = arrived.data_ptr() as usize
                    ..arrived.data_ptr() as usize + 4 * elements as usize;
                for got in team.gathered(&params, &arrived).unwrap() {
                    let inside = within.contains(&(got.data_ptr() as usize));
                    assert_eq!(inside, views, "{sizes:?} of {ranks} ranks");
                }
            });
        }
    }

    #[test]
    fn a_message_of_one_tensor_is_not_copied() {
        with_ranks(1, |simulated| {
            let team = team(simulated, Some(0), &[8]);
            let (one, other) = (full(8).view([2, 4]), full(4));
            let sent = team.flat(Some(vec![one.shallow_clone()])).unwrap();
            assert_eq!((sent.data_ptr(), sent.size()), (one.data_ptr(), vec![8]));
            let turned = team.flat(Some(vec![one.transpose(0, 1)])).unwrap();
            assert!(turned.equal(&one.transpose(0, 1).reshape([-1])) && turned.is_contiguous());
            let sent = team.flat(Some(vec![one, other])).unwrap();
            assert!(sent.equal(&Tensor::cat(&[full(8), full(4)], 0)));
            assert_eq!(team.flat(None).unwrap().size(), [0]);
        });
    }
}
