//! Ranks check each other: each repeats the first micro-batch of the next rank and compares its gradients.
//!
//! Every rank reaches the same result. Only digests are sent, 8 bytes for each gradient; they are computed where the
//! gradients are, and leave the device in one copy.

use dsl::Problem;
use tch::{Device, Kind, Tensor};

use crate::execute::ExecuteError;
use crate::ranks::{Announced, Team, checked_by};
use data::batch::Batch;
use records::job::Job;

/// The check of one step.
#[derive(Debug)]
pub(super) struct Check {
    /// The first micro-batch of the next rank.
    pub(super) batch: Batch,
    /// Whether that one is computed now.
    pub(super) repeats: bool,
    /// By parameter, digests of this rank's gradients.
    own: Vec<Tensor>,
    /// The same of the next rank's micro-batch.
    again: Vec<Tensor>,
}

impl Check {
    /// A check with the first micro-batch of the next rank, whose windows must be those that it announced.
    pub(super) fn new(
        team: &Team,
        job: &Job,
        step: u64,
        batch: Batch,
        announced: &Announced,
        device: Device,
    ) -> Result<Check, Problem> {
        let (rank, other) = (team.ranks.rank(), team.checked());
        let rows = job.rows as usize;
        let theirs = announced.windows.iter().skip(other as usize * rows).take(rows);
        if !batch.window_digests().iter().eq(theirs) {
            return Err(Problem::machine(
                format!(
                    "ranks {rank} and {other} read different windows for micro-batch {other} of step {}",
                    step + 1
                ),
                "make the same files readable on every machine, and test the disks of these two",
            ));
        }
        let none = Tensor::f_zeros([0i64; 0].as_slice(), (Kind::Int64, device));
        let none = none.map_err(ExecuteError::from)?;
        let none = || job.graph.params().iter().map(|_| none.shallow_clone()).collect();
        Ok(Check { batch, repeats: false, own: none(), again: none() })
    }

    /// Notes gradients of these parameters.
    pub(super) fn note(
        &mut self,
        params: &[usize],
        gradients: &[Tensor],
    ) -> Result<(), ExecuteError> {
        for (param, gradient) in params.iter().zip(gradients) {
            let digests = if self.repeats { &mut self.again } else { &mut self.own };
            if let Some(known) = digests.get_mut(*param) {
                *known = digest(gradient)?;
            }
        }
        Ok(())
    }

    /// Compares the digests of all ranks. Returns a sentence about what differs; `None` if nothing does.
    pub(super) fn agree(
        self,
        team: &Team,
        step: u64,
        path: &dyn Fn(usize) -> String,
    ) -> Result<Option<String>, ExecuteError> {
        let (ranks, count) = (team.ranks.size(), self.own.len());
        team.settle()?;
        let digests: Vec<Tensor> = self.own.into_iter().chain(self.again).collect();
        let digests = Tensor::f_stack(&digests, 0)?.f_to_device(Device::Cpu)?; // [2 · count]
        let all = team.gather_numbers(&Vec::<i64>::try_from(&digests)?)?;
        let digests_of = |rank: u64| {
            let at = rank as usize * 2 * count;
            all.get(at..at + 2 * count).unwrap_or_default().split_at(count)
        };
        let differing = |rank: u64| -> Vec<usize> {
            let (theirs, _) = digests_of(checked_by(rank, ranks));
            let (_, again) = digests_of(rank);
            (0..count).filter(|param| theirs.get(*param) != again.get(*param)).collect()
        };
        let mismatches: Vec<(u64, Vec<usize>)> = (0..ranks)
            .map(|rank| (rank, differing(rank)))
            .filter(|(_, params)| !params.is_empty())
            .collect();
        let Some((rank, params)) = mismatches.first() else { return Ok(None) };
        let other = checked_by(*rank, ranks);
        let first = params.first().map_or_else(String::new, |param| path(*param));
        let more = match params.len() {
            0 | 1 => String::new(),
            several => format!(" and {} other parameters", several - 1),
        };
        let pairs = mismatches
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

/// Elements that are digested at a time, for which the device needs 24 MiB.
const PIECE: i64 = 1 << 20;

/// Σ weight(i) · bits(gradient[i]) modulo 2⁶⁴, [] i64 on the gradient's device, with weight(i) = 1 + 2 i (2 A i + B).
///
/// Sums of integers do not depend on their order. Weights are odd, so no change of one element cancels; and weights of
/// two elements, up to the 2³²th, differ modulo 2³³, so no exchange of two elements does, whose bits differ below the
/// 32nd.
fn digest(gradient: &Tensor) -> Result<Tensor, ExecuteError> {
    const A: i64 = 0x1f83_d9ab_fb41_bd6b;
    const B: i64 = 0x5be0_cd19_137e_2179;
    let flat = gradient.f_to_kind(Kind::Float)?.f_contiguous()?.f_view([-1])?;
    let bits = flat.f_view_dtype(Kind::Int)?; // [n] i32
    let kind = (Kind::Int64, gradient.device());
    let mut sum = Tensor::f_zeros([0i64; 0].as_slice(), kind)?;
    let count = bits.numel() as i64;
    for first in (0..count).step_by(PIECE as usize) {
        let piece = PIECE.min(count - first);
        let index = Tensor::f_arange_start(first, first + piece, kind)?; // [piece]
        let mut weighed = index.f_mul_scalar(A.wrapping_mul(2))?;
        let _ = weighed.f_add_scalar_(B)?.f_mul_(&index)?.f_mul_scalar_(2)?.f_add_scalar_(1)?;
        let _ = weighed.f_mul_(&bits.f_narrow(0, first, piece)?)?;
        let _ = sum.f_add_(&weighed.f_sum(Kind::Int64)?)?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [n] f32 of any bits, with a sign, an exponent and a fraction.
    fn gradient(n: i64) -> Tensor {
        tch::manual_seed(5);
        Tensor::randn([n], (Kind::Float, Device::Cpu))
    }

    fn number(gradient: &Tensor) -> i64 {
        digest(gradient).unwrap().int64_value(&[])
    }

    /// The formula, an element after the other.
    fn by_formula(gradient: &Tensor) -> i64 {
        let values = Vec::<f32>::try_from(gradient).unwrap();
        let (a, b) = (0x1f83_d9ab_fb41_bd6b_i64, 0x5be0_cd19_137e_2179_i64);
        values.iter().zip(0i64..).fold(0, |sum, (value, i)| {
            let inner = a.wrapping_mul(2).wrapping_mul(i).wrapping_add(b);
            let weight = inner.wrapping_mul(i).wrapping_mul(2).wrapping_add(1);
            let bits = i64::from(value.to_bits().cast_signed());
            sum.wrapping_add(weight.wrapping_mul(bits))
        })
    }

    #[test]
    fn a_digest_follows_its_formula_over_several_pieces() {
        for n in [0, 1, 1000, PIECE - 1, PIECE + 3, 2 * PIECE] {
            let gradient = gradient(n);
            assert_eq!(number(&gradient), by_formula(&gradient), "{n}");
        }
    }

    #[test]
    fn a_digest_depends_on_values_and_order_alone() {
        let gradient = gradient(PIECE + 6).view([2, -1]);
        let wanted = number(&gradient);
        for threads in [1, 3] {
            tch::set_num_threads(threads);
            assert_eq!(number(&gradient), wanted);
        }
        assert_eq!(number(&gradient.transpose(0, 1).contiguous().transpose(0, 1)), wanted);
        assert_ne!(number(&gradient.transpose(0, 1)), wanted);
    }

    #[test]
    fn any_flipped_bit_changes_a_digest() {
        let gradient = gradient(PIECE + 5);
        let wanted = number(&gradient);
        for at in [0, 1, 2, 777, PIECE - 1, PIECE, PIECE + 4] {
            for bit in 0..32 {
                let changed = gradient.copy();
                let mut element = changed.view_dtype(Kind::Int).narrow(0, at, 1);
                let flipped = element.int64_value(&[0]) ^ i64::from((1u32 << bit).cast_signed());
                let _ = element.fill_(flipped);
                assert_ne!(number(&changed), wanted, "bit {bit} of element {at}");
            }
        }
    }

    #[test]
    fn swapped_elements_change_a_digest() {
        let gradient = gradient(PIECE + 5);
        // Opposite numbers differ in one bit, the highest.
        gradient.narrow(0, 9, 1).copy_(&-gradient.narrow(0, 8, 1));
        gradient.narrow(0, PIECE, 1).copy_(&-gradient.narrow(0, 0, 1));
        let wanted = number(&gradient);
        for (one, other) in [(8, 9), (0, PIECE), (0, 1), (5, PIECE + 4), (1 << 10, 1 << 19)] {
            let changed = gradient.copy();
            changed.narrow(0, one, 1).copy_(&gradient.narrow(0, other, 1));
            changed.narrow(0, other, 1).copy_(&gradient.narrow(0, one, 1));
            assert_ne!(number(&changed), wanted, "elements {one} and {other}");
        }
    }
}
