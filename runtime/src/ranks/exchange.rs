//! The exchanges of a training step.
//!
//! In: what one rank computed. Out: what it owns of the sum, or what all own. Must stay true: micro-batch i is
//! computed by rank i mod R; a rank adds only what it owns, by the tree over micro-batch indices; a message holds a
//! unit's parameters one after another, each flattened, so that a rank's part is one piece of it.

use std::rc::Rc;

use tch::{Kind, Tensor};

use super::Collectives;
use crate::error::ExecuteError;
use crate::execute::Sums;
use crate::kernels::arrange::copy;
use data::batch::Batch;
use records::run::RunError;
use records::shard::{Shards, Unit};

/// This process among all ranks of a run.
#[derive(Clone, Debug)]
pub(crate) struct Team {
    pub(crate) ranks: Rc<dyn Collectives>,
    pub(crate) shards: Rc<Shards>,
}

/// What every rank knows about a step's micro-batches before it computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// Counted targets of all micro-batches.
    pub(crate) counted: u64,
    /// The digest of each window, in order.
    pub(crate) windows: Vec<blake3::Hash>,
    /// Whether a rank was asked to stop.
    pub(crate) stop: bool,
    /// The first rank without its data, and why.
    pub(crate) failed: Option<(u64, String)>,
}

/// What a model predicts for a batch, [rows, seq_len] in row-major order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Predicted {
    /// −ln p(target); 0 where ignored.
    pub(crate) losses: Vec<f32>,
    /// The likeliest next token.
    pub(crate) guesses: Vec<i64>,
}

/// Numbers in the digest of a window.
const DIGEST: usize = 4;
/// Bytes of a rank's reason for having no data.
const REASON: usize = 512;

impl Team {
    pub(crate) fn new(ranks: Rc<dyn Collectives>, shards: Shards) -> Team {
        Team { ranks, shards: Rc::new(shards) }
    }

    pub(crate) fn leads(&self) -> bool {
        self.ranks.rank() == 0
    }

    /// The micro-batches that this rank computes, of `count`.
    pub(crate) fn own(&self, count: u64) -> impl Iterator<Item = u64> + use<> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        (rank..count).step_by(usize::try_from(size).unwrap_or(usize::MAX))
    }

    /// Rounds in which each rank computes at most one micro-batch.
    pub(crate) fn rounds(&self, count: u64) -> u64 {
        count.div_ceil(self.ranks.size())
    }

    /// The elements of each parameter that this rank owns, in parameter order.
    pub(crate) fn parts(&self, params: usize) -> Vec<i64> {
        let rank = self.ranks.rank();
        (0..params).map(|param| length(&self.shards, param, rank)).collect()
    }

    /// Tells all ranks about this rank's micro-batches (of `count`, with `rows` windows each).
    pub(crate) fn announce(
        &self,
        own: Result<&[Batch], &RunError>,
        count: u64,
        rows: u64,
        stop: bool,
    ) -> Result<Announced, ExecuteError> {
        let (size, rounds) = (self.ranks.size() as usize, self.rounds(count) as usize);
        let each = 1 + DIGEST * rows as usize;
        let mut message = vec![0i64; 2 + rounds * each];
        message[0] = i64::from(stop);
        message[1] = i64::from(own.is_err());
        for (round, batch) in own.unwrap_or_default().iter().enumerate() {
            let place = &mut message[2 + round * each..][..each];
            place[0] = batch.counted_targets() as i64;
            let digests = batch.window_digests();
            for (into, digest) in place[1..].chunks_exact_mut(DIGEST).zip(&digests) {
                for (number, bytes) in into.iter_mut().zip(digest.as_bytes().chunks_exact(8)) {
                    *number = i64::from_le_bytes(bytes.try_into().unwrap_or_default());
                }
            }
        }
        let all = self.gather_numbers(&message)?;
        let of = |rank: usize| &all[rank * message.len()..][..message.len()];
        let failed = (0..size).find(|rank| of(*rank)[1] != 0);
        let failed = match failed {
            None => None,
            Some(rank) => Some((rank as u64, self.reason(rank, own.err())?)),
        };
        let (mut counted, mut windows) = (0, Vec::new());
        for index in 0..count as usize {
            let place = &of(index % size)[2 + index / size * each..][..each];
            counted += place[0] as u64;
            for digest in place[1..].chunks_exact(DIGEST) {
                let mut bytes = [0u8; 32];
                for (into, number) in bytes.chunks_exact_mut(8).zip(digest) {
                    into.copy_from_slice(&number.to_le_bytes());
                }
                windows.push(blake3::Hash::from_bytes(bytes));
            }
        }
        let stop = (0..size).any(|rank| of(rank)[0] != 0);
        Ok(Announced { counted, windows, stop, failed })
    }

    /// Why a rank has no data, in its own words.
    fn reason(&self, rank: usize, own: Option<&RunError>) -> Result<String, ExecuteError> {
        let mut bytes = own.map(|error| error.message.clone().into_bytes()).unwrap_or_default();
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

    /// Sends each rank what it owns of this rank's sums of round `round`, and returns what this rank owns of all sums of
    /// the round, by micro-batch. A rank without a micro-batch in the last round gives `None`.
    pub(crate) fn scatter(
        &self,
        own: Option<&Sums>,
        round: u64,
        count: u64,
        params: usize,
    ) -> Result<Vec<(u64, Sums)>, ExecuteError> {
        let size = self.ranks.size();
        let active = size.min(count - round * size);
        let mut received: Vec<Vec<Option<Tensor>>> =
            (0..active).map(|_| (0..params).map(|_| None).collect()).collect();
        for unit in self.shards.units() {
            let mine = self.shards.owned(unit, self.ranks.rank()) as i64;
            let (input, input_counts) = match own {
                Some(sums) => {
                    let flat: Vec<Tensor> = unit
                        .params
                        .iter()
                        .map(|param| sums.gradients[*param].f_reshape([-1]))
                        .collect::<Result<_, _>>()?;
                    (Tensor::f_cat(&flat, 0)?, self.lengths(unit))
                }
                None => (empty(0, Kind::Float)?, vec![0; size as usize]),
            };
            let counts: Vec<i64> =
                (0..size).map(|rank| if rank < active { mine } else { 0 }).collect();
            let mut output = empty(mine * active as i64, Kind::Float)?;
            self.ranks.all_to_all(&mut output, &input, &counts, &input_counts)?;
            for (from, parts) in received.iter_mut().enumerate() {
                let mut at = from as i64 * mine;
                for param in &unit.params {
                    let length = length(&self.shards, *param, self.ranks.rank());
                    parts[*param] = Some(output.f_narrow(0, at, length)?);
                    at += length;
                }
            }
        }
        let numbers = self.losses(own)?;
        let mut all = Vec::new();
        for (from, parts) in received.into_iter().enumerate() {
            let gradients: Option<Vec<Tensor>> = parts.into_iter().collect();
            let gradients =
                gradients.ok_or_else(|| ExecuteError::new("a parameter belongs to no unit"))?;
            let (loss, counted) = numbers[from];
            all.push((round * size + from as u64, Sums::new(loss, counted, gradients)));
        }
        Ok(all)
    }

    /// The loss and the number of counted targets of each rank's micro-batch.
    fn losses(&self, own: Option<&Sums>) -> Result<Vec<(f64, i64)>, ExecuteError> {
        let (loss, counted) = match own {
            Some(sums) => (sums.loss_sum()?, sums.counted()?),
            None => (0.0, 0),
        };
        let all = self.gather_numbers(&[loss.to_bits() as i64, counted])?;
        Ok(all.chunks_exact(2).map(|pair| (f64::from_bits(pair[0] as u64), pair[1])).collect())
    }

    /// Whole tensors of all parameters, of which every rank gives what it owns.
    pub(crate) fn gather(&self, parts: &[Tensor]) -> Result<Vec<Tensor>, ExecuteError> {
        let mut whole: Vec<Option<Tensor>> = parts.iter().map(|_| None).collect();
        for unit in self.shards.units() {
            let flat: Vec<&Tensor> = unit.params.iter().map(|param| &parts[*param]).collect();
            let pieces = self.gather_unit(unit, &Tensor::f_cat(&flat, 0)?)?;
            for (param, piece) in unit.params.iter().zip(pieces) {
                whole[*param] = Some(piece);
            }
        }
        whole
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| ExecuteError::new("a parameter belongs to no unit"))
    }

    /// Each parameter of a unit, flattened, from what every rank owns of it.
    fn gather_unit(&self, unit: &Unit, own: &Tensor) -> Result<Vec<Tensor>, ExecuteError> {
        let lengths = self.lengths(unit);
        let most = lengths.iter().copied().max().unwrap_or(0);
        let padded = Tensor::f_zeros([most], (own.kind(), own.device()))?;
        padded.f_narrow(0, 0, own.numel() as i64)?.f_copy_(own)?;
        let mut all = empty(most * lengths.len() as i64, own.kind())?;
        self.ranks.all_gather(&mut all, &padded)?;
        let mut pieces: Vec<Vec<Tensor>> = unit.params.iter().map(|_| Vec::new()).collect();
        for rank in 0..lengths.len() {
            let mut at = rank as i64 * most;
            for (param, pieces) in unit.params.iter().zip(&mut pieces) {
                let length = length(&self.shards, *param, rank as u64);
                pieces.push(all.f_narrow(0, at, length)?);
                at += length;
            }
        }
        Ok(pieces.iter().map(|pieces| Tensor::f_cat(pieces, 0)).collect::<Result<_, _>>()?)
    }

    /// One parameter's whole tensor, flattened, on rank 0; `None` on the others. `own` is what this rank owns of it.
    pub(crate) fn collect(
        &self,
        param: usize,
        own: &Tensor,
    ) -> Result<Option<Tensor>, ExecuteError> {
        let size = self.ranks.size();
        let mut send = vec![0; size as usize];
        let mut receive = vec![0; size as usize];
        send[0] = own.numel() as i64;
        if self.leads() {
            receive = (0..size).map(|rank| length(&self.shards, param, rank)).collect();
        }
        let mut output = empty(receive.iter().sum(), own.kind())?;
        self.ranks.all_to_all(&mut output, own, &receive, &send)?;
        Ok(self.leads().then_some(output))
    }

    /// What this rank owns of a parameter, flattened; rank 0 has the `whole`.
    pub(crate) fn deal_out(
        &self,
        param: usize,
        whole: Option<&Tensor>,
    ) -> Result<Tensor, ExecuteError> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        let mut receive = vec![0; size as usize];
        receive[0] = length(&self.shards, param, rank);
        let (input, send) = match whole {
            Some(whole) => {
                let lengths = (0..size).map(|rank| length(&self.shards, param, rank)).collect();
                (whole.f_reshape([-1])?, lengths)
            }
            None => (empty(0, Kind::Float)?, vec![0; size as usize]),
        };
        let mut output = empty(receive.iter().sum(), Kind::Float)?;
        self.ranks.all_to_all(&mut output, &input, &receive, &send)?;
        Ok(output)
    }

    /// The tensor of rank 0, on every rank.
    pub(crate) fn broadcast(&self, tensor: &Tensor) -> Result<Tensor, ExecuteError> {
        let mut flat = copy(&tensor.f_reshape([-1])?)?;
        self.ranks.broadcast(&mut flat)?;
        Ok(flat.f_reshape(tensor.size())?)
    }

    /// This rank's part of a parameter, as a view.
    pub(crate) fn part(&self, param: usize, whole: &Tensor) -> Result<Tensor, ExecuteError> {
        let part = self.shards.part(param, self.ranks.rank());
        let flat = whole.f_view([-1])?;
        Ok(flat.f_narrow(0, part.start as i64, (part.end - part.start) as i64)?)
    }

    /// The sums of squares of each parameter's blocks, in order, of which each rank gives those it owns.
    pub(crate) fn gather_blocks(&self, own: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, ExecuteError> {
        let most = (0..self.ranks.size())
            .map(|rank| (0..own.len()).map(|param| self.blocks(param, rank)).sum::<usize>())
            .max()
            .unwrap_or(0);
        let mut message: Vec<i64> = own.iter().flatten().map(|sum| sum.to_bits() as i64).collect();
        message.resize(most, 0);
        let all = self.gather_numbers(&message)?;
        let mut sums: Vec<Vec<f64>> = own.iter().map(|_| Vec::new()).collect();
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
        let part = self.shards.part(param, rank);
        (part.end - part.start).div_ceil(records::shard::BLOCK) as usize
    }

    fn lengths(&self, unit: &Unit) -> Vec<i64> {
        (0..self.ranks.size()).map(|rank| self.shards.owned(unit, rank) as i64).collect()
    }

    /// The predictions of the first ranks, of these numbers of tokens.
    pub(crate) fn gather_predictions(
        &self,
        own: Predicted,
        sizes: &[usize],
    ) -> Result<Vec<Predicted>, ExecuteError> {
        let most = sizes.iter().copied().max().unwrap_or(0);
        let Predicted { mut losses, mut guesses } = own;
        losses.resize(most, 0.0);
        guesses.resize(most, 0);
        let count = most * self.ranks.size() as usize;
        let mut output = empty(count as i64, Kind::Float)?;
        self.ranks.all_gather(&mut output, &Tensor::f_from_slice(&losses)?)?;
        let mut all = vec![0f32; count];
        output.f_copy_data(&mut all, count)?;
        let guesses = self.gather_numbers(&guesses)?;
        let of = sizes.iter().enumerate().map(|(rank, size)| Predicted {
            losses: all[rank * most..][..*size].to_vec(),
            guesses: guesses[rank * most..][..*size].to_vec(),
        });
        Ok(of.collect())
    }

    /// The numbers of all ranks, one after another.
    fn gather_numbers(&self, own: &[i64]) -> Result<Vec<i64>, ExecuteError> {
        let input = Tensor::f_from_slice(own)?;
        let count = own.len() * self.ranks.size() as usize;
        let mut output = empty(count as i64, Kind::Int64)?;
        self.ranks.all_gather(&mut output, &input)?;
        let mut numbers = vec![0i64; count];
        output.f_copy_data(&mut numbers, count)?;
        Ok(numbers)
    }
}

fn length(shards: &Shards, param: usize, rank: u64) -> i64 {
    let part = shards.part(param, rank);
    (part.end - part.start) as i64
}

fn empty(elements: i64, kind: Kind) -> Result<Tensor, ExecuteError> {
    Ok(Tensor::f_empty([elements], (kind, tch::Device::Cpu))?)
}
