//! Memory that a kernel takes while it runs, besides its operands and results.
//!
//! In: a plan, a step, sizes. Out: bytes. Must stay true: counted from the contract in `kernel.rs`; only what grows with
//! the batch or the vocabulary counts, not buffers of a few rows for each thread.

use super::{DType, Kernel, Plan, Sizes, Step, ValId};

impl Plan {
    /// Bytes that a step of this plan takes while it runs, in a call of these sizes.
    pub(super) fn scratch(&self, step: &Step, sizes: Sizes) -> i128 {
        self.own(step, sizes) + self.widened(step, sizes)
    }

    /// The logits of a chunk of tokens; for the gradient also x's, which is joined from that of chunks.
    fn own(&self, step: &Step, sizes: Sizes) -> i128 {
        let (rows, joined) = if let Kernel::HeadLoss { rows, .. } = &step.kernel {
            (*rows, 0)
        } else if let Kernel::HeadLossGrad { rows, .. } = &step.kernel {
            (*rows, step.inputs.first().map_or(0, |x| self.bytes(*x, sizes)))
        } else {
            return 0;
        };
        let Some(weight) = step.inputs.get(1).and_then(|id| self.value(*id)) else { return 0 };
        let vocab = weight.dims.first().map_or(0, |dim| dim.at(sizes));
        let rows = i128::from(rows.min(sizes.batch * sizes.time));
        // bf16 logits, then the same in f32.
        let bytes = if weight.dtype == DType::Bf16 { 6 } else { 4 };
        rows * i128::from(vocab) * bytes + joined
    }

    /// f32 copies of bf16 operands, and f32 results before they are rounded.
    fn widened(&self, step: &Step, sizes: Sizes) -> i128 {
        let dtype = |id: &ValId| self.value(*id).map(|value| value.dtype);
        let any = |wanted| step.inputs.iter().any(|id| dtype(id) == Some(wanted));
        if !any(DType::Bf16) || (step.kernel.reads_bf16() && !any(DType::F32)) {
            return 0;
        }
        let narrow = step.inputs.iter().chain(&step.outputs);
        let narrow = narrow.filter(|id| dtype(id) == Some(DType::Bf16));
        narrow.map(|id| 2 * self.bytes(*id, sizes)).sum()
    }

    /// Bytes of a value.
    pub(super) fn bytes(&self, id: ValId, sizes: Sizes) -> i128 {
        self.value(id).map_or(0, |value| {
            let count: i128 = value.dims.iter().map(|dim| i128::from(dim.at(sizes))).product();
            count * i128::from(value.dtype.bytes())
        })
    }
}
