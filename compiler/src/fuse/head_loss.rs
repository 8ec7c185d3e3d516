//! The head's projection, cross-entropy and their backward, by chunks of tokens, so that the logits
//! [b, t, v] never exist as a whole (Wijmans et al. 2024, "Cut your losses"; Hsu et al. 2024, "Liger kernel").
//! In a training step the gradients of a chunk are computed while its logits exist.

use super::{Edits, Uses};
use crate::kernel::{self, CrossEntropy, CrossEntropyGrad, HeadLoss, HeadLossGrad, Kernel, Linear};
use crate::plan::{Plan, Processor, Step, ValId};
use crate::value::Extent;

/// Fewest tokens of a chunk: the matrix products of fewer would read the weights too often.
const LEAST: i64 = 128;

/// Tokens of a chunk.
///
/// On a CPU its logits are 16 MiB of f32, so that small vocabularies take one chunk. On a GPU they are 512 MiB of bf16: a
/// chunk writes and adds the whole gradient of the weight, and products of few rows leave most of the device idle. A power
/// of two there, so that every chunk begins at a multiple of 16 bytes in all operands.
fn rows(processor: Processor, vocab: i64) -> i64 {
    match processor {
        Processor::Cpu => ((1 << 22) / vocab).max(LEAST),
        Processor::Gpu => {
            let most = ((1 << 28) / vocab).max(LEAST);
            1 << most.ilog2()
        }
    }
}

pub(super) fn rule(plan: &Plan, uses: &Uses, at: usize, edits: &mut Edits) -> Option<()> {
    let step = plan.steps.get(at)?;
    let Kernel::CrossEntropy(CrossEntropy { nll_square, z_loss }) = step.kernel else {
        return None;
    };
    let ([logits, targets], [nll, lse, loss, counted]) = (&step.inputs[..], &step.outputs[..])
    else {
        return None;
    };
    let (before, linear) = uses.maker(plan, *logits)?;
    let Kernel::Linear(Linear { bias }) = linear.kernel else { return None };
    let [x, matrix, ..] = linear.inputs[..] else { return None };
    let Some(Extent::Fixed(vocab)) = plan.value(matrix)?.dims.first() else { return None };
    let rows = rows(edits.processor, (*vocab).max(1));
    let [first, second] = *uses.readers(*logits)? else { return None };
    if first != at {
        return None;
    }
    let reader = plan.steps.get(second)?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "a rule names the kernels that it fuses")]
    match &reader.kernel {
        Kernel::Argmax(_) if uses.readers(*lse)?.is_empty() => {
            let kernel = HeadLoss { bias, nll_square, z_loss, rows };
            let inputs = linear.inputs.iter().copied().chain([*targets]).collect();
            let argmax = *reader.outputs.first()?;
            edits.put(at, kernel, inputs, vec![*nll, *loss, *counted, argmax]);
            edits.remove.extend([before, second]);
        }
        Kernel::CrossEntropyGrad(CrossEntropyGrad { weight, .. }) => {
            if [*nll, *lse].iter().any(|id| uses.reader(*id) != Some(second)) {
                return None;
            }
            let ([.., scale], [seed]) = (&reader.inputs[..], &reader.outputs[..]) else {
                return None;
            };
            let backward = gradients(plan, uses, *seed, (x, matrix), bias)?;
            let kernel = HeadLossGrad { bias, nll_square, z_loss, rows, weight: *weight };
            let inputs = linear.inputs.iter().copied().chain([*targets, *scale]).collect();
            let outputs = [*loss, *counted].into_iter().chain(backward.iter().map(|(_, id)| *id));
            edits.put(at, kernel, inputs, outputs.collect());
            edits.remove.extend([before, second]);
            edits.remove.extend(backward.iter().map(|(step, _)| *step));
        }
        _ => return None,
    }
    Some(())
}

/// The steps that make dx, dweight and dbias of the head from the gradient of the logits, with their results; None if
/// anything else reads it.
fn gradients(
    plan: &Plan,
    uses: &Uses,
    seed: ValId,
    (x, weight): (ValId, ValId),
    bias: bool,
) -> Option<Vec<(usize, ValId)>> {
    let readers = uses.readers(seed)?;
    let find = |wanted: Kernel, inputs: &[ValId]| {
        let is = |step: &Step| step.kernel == wanted && step.inputs == inputs;
        let at = *readers.iter().find(|at| plan.steps.get(**at).is_some_and(is))?;
        Some((at, *plan.steps.get(at)?.outputs.first()?))
    };
    let mut gradients = vec![
        find(kernel::LinearGradInput.into(), &[seed, weight])?,
        find(kernel::LinearGradWeight.into(), &[seed, x])?,
    ];
    if bias {
        gradients.push(find(kernel::SumTokens.into(), &[seed])?);
    }
    (readers.len() == gradients.len()).then_some(gradients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_on_a_gpu_are_thousands_of_tokens_that_begin_aligned() {
        for (vocab, wanted) in [(32_000, 8192), (128_256, 2048), (258, 1 << 19), (1 << 30, 128)] {
            let rows = rows(Processor::Gpu, vocab);
            assert_eq!(rows, wanted, "{vocab}");
            // Targets are 8 bytes each.
            assert_eq!(rows * 8 % 16, 0);
        }
    }

    #[test]
    fn chunks_on_a_cpu_stay_in_its_caches() {
        for (vocab, wanted) in [(32_000, 131), (258, 16_256), (128_256, 128)] {
            assert_eq!(rows(Processor::Cpu, vocab), wanted, "{vocab}");
        }
    }
}
