//! Ranks check each other: each repeats a micro-batch of the next one.
//!
//! In: the gradients of a rank's own first micro-batch, and of the next rank's. Out: which ranks do not compute the same,
//! and of which parameter. Must stay true: every rank finds the same; only digests are sent, 8 bytes for each gradient.

use tch::Tensor;

use super::values;
use crate::execute::ExecuteError;
use crate::ranks::{Announced, Team, checked_by};
use data::batch::Batch;
use records::job::Job;
use records::run::RunError;

/// The check of one step.
#[derive(Debug)]
pub(super) struct Check {
    /// The first micro-batch of the next rank.
    pub(super) batch: Batch,
    /// Whether that one is computed now.
    pub(super) repeats: bool,
    /// By parameter, digests of this rank's gradients.
    own: Vec<i64>,
    /// The same of the next rank's micro-batch.
    again: Vec<i64>,
}

impl Check {
    /// A check with the first micro-batch of the next rank, whose windows must be those that it announced.
    pub(super) fn new(
        team: &Team,
        job: &Job,
        step: u64,
        batch: Batch,
        announced: &Announced,
    ) -> Result<Check, RunError> {
        let (rank, other) = (team.ranks.rank(), team.checked());
        let rows = job.rows as usize;
        let theirs = announced.windows.iter().skip(other as usize * rows).take(rows);
        if !batch.window_digests().iter().eq(theirs) {
            return Err(RunError::machine(
                format!(
                    "ranks {rank} and {other} read different windows for micro-batch {other} of step {}",
                    step + 1
                ),
                "make the same files readable on every machine, and test the disks of these two",
            ));
        }
        let count = job.graph.params().len();
        Ok(Check { batch, repeats: false, own: vec![0; count], again: vec![0; count] })
    }

    /// Notes gradients of these parameters.
    pub(super) fn note(
        &mut self,
        params: &[usize],
        gradients: &[Tensor],
    ) -> Result<(), ExecuteError> {
        for (param, gradient) in params.iter().zip(gradients) {
            let mut hasher = blake3::Hasher::new();
            for value in values(gradient)? {
                hasher.update(&value.to_le_bytes());
            }
            let mut start = [0; 8];
            start.copy_from_slice(
                hasher.finalize().as_bytes().first_chunk::<8>().unwrap_or(&[0; 8]),
            );
            let digests = if self.repeats { &mut self.again } else { &mut self.own };
            if let Some(digest) = digests.get_mut(*param) {
                *digest = i64::from_le_bytes(start);
            }
        }
        Ok(())
    }

    /// Compares the digests of all ranks. Returns what differs, in words.
    pub(super) fn agree(
        self,
        team: &Team,
        step: u64,
        path: &dyn Fn(usize) -> String,
    ) -> Result<Option<String>, ExecuteError> {
        let (ranks, count) = (team.ranks.size(), self.own.len());
        let all = team.gather_numbers(&[self.own, self.again].concat())?;
        let of = |rank: u64| {
            let at = rank as usize * 2 * count;
            all.get(at..at + 2 * count).unwrap_or_default().split_at(count)
        };
        let differing = |rank: u64| -> Vec<usize> {
            let (theirs, _) = of(checked_by(rank, ranks));
            let (_, again) = of(rank);
            (0..count).filter(|param| theirs.get(*param) != again.get(*param)).collect()
        };
        let found: Vec<(u64, Vec<usize>)> = (0..ranks)
            .map(|rank| (rank, differing(rank)))
            .filter(|(_, found)| !found.is_empty())
            .collect();
        let Some((rank, params)) = found.first() else { return Ok(None) };
        let other = checked_by(*rank, ranks);
        let first = params.first().map_or_else(String::new, |param| path(*param));
        let more = match params.len() {
            0 | 1 => String::new(),
            several => format!(" and {} other parameters", several - 1),
        };
        let pairs = found
            .iter()
            .skip(1)
            .map(|(rank, _)| format!("{rank} and {}", checked_by(*rank, ranks)));
        let pairs: Vec<String> = pairs.collect();
        let also = match pairs.is_empty() {
            true => String::new(),
            false => format!("; so do ranks {}", pairs.join(", and ")),
        };
        Ok(Some(format!(
            "ranks {rank} and {other} compute different gradients of {first}{more} for micro-batch {other} of step {step}{also}"
        )))
    }
}
