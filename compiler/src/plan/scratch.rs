//! Memory that a kernel takes while it runs, besides its operands and results.
//!
//! In: a plan, a step, sizes. Out: bytes. Must stay true: counted from the contract in `kernel.rs`; only what grows with
//! the batch, the vocabulary or a parameter counts, not buffers of a few rows for each thread.

use super::{DType, Function, Kernel, Plan, Sizes, Step, ValId};

/// Which kernels read bf16 as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bf16 {
    /// Those that move elements and matrix products; the others get copies in f32.
    Some,
    /// All but a few gradients of functions of single elements, as on a GPU.
    Most,
}

/// The most queries for which attention on a CPU copies neither keys nor values.
pub const FEW_QUERIES: i64 = 4;

impl Plan {
    /// Bytes that a step of this plan takes while it runs, in a call of these sizes.
    pub(super) fn scratch(&self, step: &Step, sizes: Sizes) -> i128 {
        self.scratch_with(step, sizes, Bf16::Some)
    }

    pub(super) fn scratch_with(&self, step: &Step, sizes: Sizes, bf16: Bf16) -> i128 {
        let dtype = |id: &ValId| self.value(*id).map(|value| value.dtype);
        let first = step.inputs.first().and_then(dtype);
        let mixed = step.inputs.iter().any(|id| dtype(id) != first);
        let function = matches!(step.kernel, Kernel::Pointwise(_) | Kernel::PointwiseGrad(_));
        let copied = (function && mixed)
            || matches!(
                step.kernel,
                // libtorch would round between the operations of these gradients (runtime/src/kernels/pointwise.rs).
                Kernel::PointwiseGrad(Function::Sigmoid | Function::Tanh | Function::Reciprocal)
                    | Kernel::RepeatHeadsGrad { .. }
            );
        let widened = if bf16 == Bf16::Some || copied { self.widened(step, sizes) } else { 0 };
        self.own(step, sizes, bf16) + widened
    }

    /// The logits of a chunk of tokens; in f32 the weight, rearranged for its product; for the gradient of several chunks
    /// also that of x, which is joined from theirs, and in bf16 the gradient of the weight from one chunk.
    fn own(&self, step: &Step, sizes: Sizes, read: Bf16) -> i128 {
        if matches!(step.kernel, Kernel::Muon { .. }) {
            return self.of_muon(step, sizes);
        }
        let (rows, gradient) = if let Kernel::HeadLoss { rows, .. } = &step.kernel {
            (*rows, false)
        } else if let Kernel::HeadLossGrad { rows, .. } = &step.kernel {
            (*rows, true)
        } else {
            return 0;
        };
        let (Some(x), Some(id)) = (step.inputs.first(), step.inputs.get(1)) else { return 0 };
        let Some(weight) = self.value(*id) else { return 0 };
        let vocab = weight.dims.first().map_or(0, |dim| dim.at(sizes));
        let tokens = sizes.batch * sizes.time;
        let bf16 = weight.dtype == DType::Bf16;
        // In bf16 there are both, the product's result and the same in f32, unless the kernel reads the former.
        let each = match (bf16, read) {
            (false, _) => 4,
            (true, Bf16::Some) => 6,
            (true, Bf16::Most) => 2,
        };
        let logits = i128::from(rows.min(tokens)) * i128::from(vocab) * each;
        let rearranged = if bf16 || read == Bf16::Most { 0 } else { self.bytes(*id, sizes) };
        let several = gradient && rows < tokens;
        let joined = if several { self.bytes(*x, sizes) } else { 0 };
        // A GPU's product is in f32 at once.
        let copies = if read == Bf16::Most { 2 } else { 3 };
        let of_a_chunk = if several && bf16 { copies * self.bytes(*id, sizes) } else { 0 };
        logits + rearranged + joined + of_a_chunk
    }

    /// The gradient and the update in f32, and for one matrix at a time X, its next value and a product, and three square
    /// matrices of its shorter side.
    fn of_muon(&self, step: &Step, sizes: Sizes) -> i128 {
        let Some(p) = step.inputs.first().and_then(|id| self.value(*id)) else { return 0 };
        let dims: Vec<i128> = p.dims.iter().map(|dim| i128::from(dim.at(sizes))).collect();
        let [.., rows, columns] = dims[..] else { return 0 };
        let all: i128 = dims.iter().product();
        let short = rows.min(columns);
        4 * (2 * all + 3 * rows * columns + 3 * short * short)
    }

    /// f32 copies of bf16 operands, and f32 results before they are rounded.
    fn widened(&self, step: &Step, sizes: Sizes) -> i128 {
        let dtype = |id: &ValId| self.value(*id).map(|value| value.dtype);
        let any = |wanted| step.inputs.iter().any(|id| dtype(id) == Some(wanted));
        if !any(DType::Bf16) || (step.kernel.reads_bf16() && !any(DType::F32)) {
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
    use crate::number::Root;
    use crate::plan::{Extent, Phase, Scores, Value};

    /// A plan of one step, whose values have these shapes and dtypes; the last ones are its results.
    fn scratch(kernel: Kernel, values: &[(&[Extent], DType)], results: usize) -> i128 {
        scratch_at(kernel, values, results, 100)
    }

    fn scratch_at(
        kernel: Kernel,
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
            kernel,
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
            false => Kernel::HeadLoss { bias, nll_square, z_loss, rows },
            true => Kernel::HeadLossGrad { bias, nll_square, z_loss, rows, weight: Root::ONE },
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
        let swiglu = |dtype| scratch(Kernel::SwiGlu, &[(X, dtype), (X, dtype), (X, dtype)], 1);
        assert_eq!(swiglu(DType::F32), 0);
        assert_eq!(swiglu(DType::Bf16), 3 * 300 * 4 * 4);
        // q, k, v; y and lse. All are copied for 100 queries.
        let row = 12 * 4;
        let attention = |time| {
            let q: &[Extent] = &[Extent::Batch, Extent::Fixed(time), Extent::Fixed(4)];
            let values = [(q, DType::Bf16), (X, DType::Bf16), (X, DType::Bf16), (q, DType::Bf16)];
            scratch_at(Kernel::Attention(Scores::PLAIN), &values, 1, time)
        };
        assert_eq!(attention(100), 4 * 100 * row);
        assert_eq!(attention(4), 2 * 4 * row);
        let add = |b| scratch(Kernel::Add, &[(X, DType::Bf16), (X, b), (X, b)], 1);
        assert_eq!(add(DType::Bf16), 0);
        assert_eq!(add(DType::F32), 300 * 4 * 4);
    }
}
