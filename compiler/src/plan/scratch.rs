//! Memory that a kernel takes while it runs, besides its operands and results.

use super::{Bf16, DType, FEW_QUERIES, Kernel, Plan, Sizes, Step, ValId};
use crate::kernel::Class;

impl Plan {
    /// Bytes that a step of this plan takes while it runs, in a call of these sizes.
    pub(super) fn scratch(&self, step: &Step, sizes: Sizes) -> i128 {
        self.scratch_with(step, sizes, Bf16::Some)
    }

    pub(super) fn scratch_with(&self, step: &Step, sizes: Sizes, bf16: Bf16) -> i128 {
        let dtype = |id: &ValId| self.value(*id).map(|value| value.dtype);
        let first = step.inputs.first().and_then(dtype);
        let mixed = step.inputs.iter().any(|id| dtype(id) != first);
        let facts = step.kernel.facts();
        let copied = (facts.class == Class::Function && mixed) || facts.rounds_between;
        let widened = if bf16 == Bf16::Some || copied { self.widened(step, sizes) } else { 0 };
        step.kernel.definition().scratch(&self.shapes(step, sizes), bf16) + widened
    }

    /// f32 copies of bf16 operands, and f32 results before they are rounded.
    fn widened(&self, step: &Step, sizes: Sizes) -> i128 {
        let dtype = |id: &ValId| self.value(*id).map(|value| value.dtype);
        let any = |wanted| step.inputs.iter().any(|id| dtype(id) == Some(wanted));
        if !any(DType::Bf16) || (step.kernel.facts().reads_bf16 && !any(DType::F32)) {
            return 0;
        }
        // Of a few queries, as in decoding, keys and values are read as they are.
        let few = matches!(step.kernel, Kernel::Attention(_)) && sizes.time <= FEW_QUERIES;
        let as_they_are = if few { 1..3 } else { 0..0 };
        let copied = step.inputs.iter().enumerate().filter(|(at, _)| !as_they_are.contains(at));
        let narrow = copied.map(|(_, id)| id).chain(&step.outputs);
        let narrow = narrow.filter(|id| dtype(id) == Some(DType::Bf16));
        narrow.map(|id| 2 * self.bytes(*id, sizes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use dsl::Decimal;

    use super::*;
    use crate::kernel::{self, Scores};
    use crate::number::Root;
    use crate::plan::{Extent, Phase, Value};

    /// A plan of one step, whose values have these shapes and dtypes; the last ones are its results.
    fn scratch(kernel: impl Into<Kernel>, values: &[(&[Extent], DType)], results: usize) -> i128 {
        scratch_at(kernel, values, results, 100)
    }

    fn scratch_at(
        kernel: impl Into<Kernel>,
        values: &[(&[Extent], DType)],
        results: usize,
        time: i64,
    ) -> i128 {
        let value = |(dims, dtype): &(&[Extent], DType)| Value {
            name: "x".into(),
            dims: dims.to_vec(),
            dtype: *dtype,
        };
        let ids: Vec<ValId> = (0..values.len() as u32).map(ValId).collect();
        let (inputs, outputs) = ids.split_at(values.len() - results);
        let step = Step {
            kernel: kernel.into(),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            drop_after: Vec::new(),
            phase: Phase::Forward,
            source: None,
        };
        let plan = Plan { values: values.iter().map(value).collect(), ..Plan::default() };
        plan.scratch(&step, Sizes { batch: 3, time, past: 0 })
    }

    const X: &[Extent] = &[Extent::Batch, Extent::Time, Extent::Fixed(4)];
    const WEIGHT: &[Extent] = &[Extent::Fixed(10), Extent::Fixed(4)];
    const TARGETS: &[Extent] = &[Extent::Batch, Extent::Time];

    fn head(gradient: bool, rows: i64, dtype: DType) -> i128 {
        let (bias, nll_square, z_loss) = (false, Decimal::ZERO, Decimal::ZERO);
        let kernel = match gradient {
            false => Kernel::from(kernel::HeadLoss { bias, nll_square, z_loss, rows }),
            true => {
                kernel::HeadLossGrad { bias, nll_square, z_loss, rows, weight: Root::ONE }.into()
            }
        };
        scratch(kernel, &[(X, dtype), (WEIGHT, dtype), (TARGETS, DType::I64)], 0)
    }

    #[test]
    fn a_head_holds_the_logits_of_a_chunk() {
        let weight = 10 * 4 * 4;
        assert_eq!(head(false, 128, DType::F32), 128 * 10 * 4 + weight);
        // The last chunk is the only one.
        assert_eq!(head(false, 4096, DType::F32), 300 * 10 * 4 + weight);
        assert_eq!(head(true, 4096, DType::F32), 300 * 10 * 4 + weight);
        assert_eq!(head(true, 128, DType::F32), 128 * 10 * 4 + weight + 300 * 4 * 4);
        assert_eq!(head(false, 128, DType::Bf16), 128 * 10 * 6);
        assert_eq!(head(true, 128, DType::Bf16), 128 * 10 * 6 + 300 * 4 * 2 + 10 * 4 * 6);
    }

    #[test]
    fn bf16_operands_of_an_f32_kernel_are_copied() {
        let swiglu = |dtype| scratch(kernel::SwiGlu, &[(X, dtype), (X, dtype), (X, dtype)], 1);
        assert_eq!(swiglu(DType::F32), 0);
        assert_eq!(swiglu(DType::Bf16), 3 * 300 * 4 * 4);
        // q, k, v; y and lse. All are copied for 100 queries.
        let row = 12 * 4;
        let attention = |time| {
            let q: &[Extent] = &[Extent::Batch, Extent::Fixed(time), Extent::Fixed(4)];
            let values = [(q, DType::Bf16), (X, DType::Bf16), (X, DType::Bf16), (q, DType::Bf16)];
            scratch_at(kernel::Attention { scores: Scores::PLAIN }, &values, 1, time)
        };
        assert_eq!(attention(100), 4 * 100 * row);
        assert_eq!(attention(4), 2 * 4 * row);
        let add = |b| scratch(kernel::Add, &[(X, DType::Bf16), (X, b), (X, b)], 1);
        assert_eq!(add(DType::Bf16), 0);
        assert_eq!(add(DType::F32), 300 * 4 * 4);
    }
}
