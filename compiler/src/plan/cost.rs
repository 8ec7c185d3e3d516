//! The work of each step: floating-point operations, and bytes read and written.

use super::{Kernel, Plan, Sizes, Step, ValId};
use crate::kernel::{Shape, Shapes};

/// Operations and memory traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Work {
    /// Floating-point operations.
    pub flops: i128,
    /// Sizes of all operands and results in bytes: the traffic if each is read or written once and nothing else leaves
    /// the caches. A view has none. Of an embedding table, only the rows that are looked up count.
    pub bytes: i128,
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.flops += other.flops;
        self.bytes += other.bytes;
    }
}

impl std::iter::Sum for Work {
    fn sum<I: Iterator<Item = Work>>(steps: I) -> Work {
        steps.fold(Work::default(), |mut sum, work| {
            sum += work;
            sum
        })
    }
}

impl Plan {
    /// The work of a step of this plan in a call of these sizes.
    pub fn work(&self, step: &Step, sizes: Sizes) -> Work {
        let shapes = self.shapes(step, sizes);
        let bytes_of = |shapes: &[Shape]| shapes.iter().map(|shape| shape.bytes).sum::<i128>();
        let bytes = if step.kernel.is_view() {
            0
        } else if matches!(step.kernel, Kernel::Embed(_)) {
            shapes.inputs.first().map_or(0, |ids| ids.bytes) + 2 * bytes_of(&shapes.outputs)
        } else {
            bytes_of(&shapes.inputs) + bytes_of(&shapes.outputs)
        };
        Work { flops: step.kernel.definition().flops(&shapes), bytes }
    }

    /// The sizes of a step's operands and results.
    pub(super) fn shapes(&self, step: &Step, sizes: Sizes) -> Shapes {
        let shapes = |ids: &[ValId]| {
            let values = ids.iter().filter_map(|id| self.value(*id));
            values.map(|value| Shape::new(value, sizes)).collect()
        };
        Shapes { inputs: shapes(&step.inputs), outputs: shapes(&step.outputs) }
    }

    /// The work of all steps in a call of these sizes.
    pub fn total_work(&self, sizes: Sizes) -> Work {
        self.steps.iter().map(|step| self.work(step, sizes)).sum()
    }

    /// The work of all steps of each kernel, by the kernel's name.
    pub fn work_by_kernel(&self, sizes: Sizes) -> std::collections::BTreeMap<&'static str, Work> {
        let mut sums = std::collections::BTreeMap::<_, Work>::new();
        for step in &self.steps {
            *sums.entry(step.kernel.name()).or_default() += self.work(step, sizes);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{self, Activation, MuonScale, Scores};
    use crate::op::ScanKind;
    use crate::plan::{
        DType, Decays, Extent, Loss, Optimizer, Options, Recompute, TrainOptions, Value,
    };
    use crate::plans;
    use crate::program::{Program, Std};
    use dsl::Decimal;

    /// The work of one step of a kernel with operands and results of these shapes, f32.
    fn work(kernel: impl Into<Kernel>, inputs: &[&[i64]], outputs: &[&[i64]]) -> Work {
        let mut plan = Plan::default();
        let mut give = |dims: &&[i64]| {
            let dims = dims.iter().map(|d| Extent::Fixed(*d)).collect();
            plan.values.push(Value { name: "x".into(), dims, dtype: DType::F32 });
            ValId(plan.values.len() as u32 - 1)
        };
        let inputs = inputs.iter().map(&mut give).collect();
        let outputs = outputs.iter().map(&mut give).collect();
        let phase = crate::plan::Phase::Forward;
        let step = Step {
            kernel: kernel.into(),
            inputs,
            outputs,
            drop_after: Vec::new(),
            phase,
            source: None,
        };
        plan.work(&step, Sizes { batch: 1, time: 1, past: 0 })
    }

    #[test]
    fn products_count_two_for_each_multiply_add() {
        let (x, w, y): (&[i64], &[i64], &[i64]) = (&[2, 3, 5], &[7, 5], &[2, 3, 7]);
        let product = 2 * 2 * 3 * 5 * 7;
        let bytes = 4 * (30 + 35 + 42);
        let products: [(Kernel, _, _); 3] = [
            (kernel::Linear { bias: false }.into(), [x, w], y),
            (kernel::LinearGradInput.into(), [y, w], x),
            (kernel::LinearGradWeight.into(), [y, x], w),
        ];
        for (kernel, inputs, output) in products {
            assert_eq!(work(kernel, &inputs, &[output]), Work { flops: product, bytes });
        }
        let head = |rows| kernel::HeadLossGrad {
            bias: false,
            nll_square: Decimal::ZERO,
            z_loss: Decimal::ZERO,
            rows,
            weight: crate::number::Root::ONE,
        };
        let cost = work(head(4), &[x, w, &[2, 3], &[]], &[&[], &[], x, w]);
        // The two ids and the three scalars have four bytes each here.
        assert_eq!(cost, Work { flops: 3 * product, bytes: 4 * (30 + 35 + 6 + 3 + 30 + 35) });
    }

    #[test]
    fn attention_counts_the_keys_that_a_query_sees() {
        let (q, v): (&[i64], &[i64]) = (&[2, 5, 3, 4], &[2, 5, 3, 6]);
        let lse: &[i64] = &[2, 3, 5];
        let cost = work(kernel::Attention { scores: Scores::PLAIN }, &[q, q, v], &[v, lse]);
        assert_eq!(cost.flops, 15 * 2 * 3 * (2 * 4 + 2 * 6));
        let kernel = kernel::AttentionGrad { scores: Scores::PLAIN };
        let cost = work(kernel, &[v, q, q, v, v, lse], &[q, q, v]);
        assert_eq!(cost.flops, 15 * 2 * 3 * (3 * 2 * 4 + 2 * 2 * 6));
        assert_eq!(cost.bytes, 4 * (4 * 2 * 5 * 3 * 4 + 4 * 2 * 5 * 3 * 6 + 30));
    }

    #[test]
    fn convolutions_and_scans_count_their_formulas() {
        let x: &[i64] = &[2, 3, 5];
        let conv = kernel::CausalConv {
            kernel: 4,
            residual: true,
            activation: Activation::Identity,
            parts: 2,
            bias: false,
            state: false,
        };
        // Two parts of 30 elements: four multiply-adds and the residual each.
        let cost = work(conv, &[x, x, &[10, 4]], &[x, x]);
        assert_eq!(cost, Work { flops: 60 * 9, bytes: 4 * (120 + 40) });
        let grad = kernel::CausalConvGrad {
            kernel: 4,
            residual: true,
            activation: Activation::Silu,
            parts: 1,
            bias: true,
        };
        // dx and dweight 16, dbias and residual 2; the convolution again 9, silu's slope 8.
        let cost = work(grad, &[x, x, &[5, 4], &[5]], &[x, &[5, 4], &[5]]);
        assert_eq!(cost.flops, 30 * (16 + 2 + 9 + 8));
        // Two convolutions and the gated unit; backward, each convolution three times.
        let (residual, bias) = (true, false);
        let gated = kernel::ConvSwiGlu { kernel: 4, residual, bias, state: false };
        let cost = work(gated, &[x, x, &[10, 4]], &[x]);
        assert_eq!(cost, Work { flops: 30 * (2 * 9 + 6), bytes: 4 * (90 + 40) });
        let grad = kernel::ConvSwiGluGrad { kernel: 4, residual, bias };
        let cost = work(grad, &[x, x, x, &[10, 4]], &[x, x, &[10, 4]]);
        assert_eq!(cost, Work { flops: 30 * (2 * 26 + 11), bytes: 4 * (150 + 80) });
        // Keys of 4 and values of 6 in 3 heads: a state of 24 numbers a head.
        let (q, v, s): (&[i64], &[i64], &[i64]) = (&[2, 5, 3, 4], &[2, 5, 3, 6], &[2, 3, 4, 6]);
        let scan =
            kernel::Scan { scan: ScanKind::Gla.definition(), state: false, scale: None, steps: 1 };
        let forward = 6 * 24 * 2 * 5 * 3;
        assert_eq!(work(scan, &[q, q, v, q], &[v, s]).flops, forward);
        let grad = kernel::ScanGrad { scan: ScanKind::Gla.definition(), scale: None, steps: 1 };
        assert_eq!(work(grad, &[v, q, q, v, q], &[q, q, v, q]).flops, 3 * forward);
    }

    #[test]
    fn memory_traffic_leaves_out_views_and_unread_rows() {
        let dims = vec![5];
        let cost = work(kernel::Reshape { dims }, &[&[2, 3, 5]], &[&[2, 3, 5]]);
        assert_eq!(cost, Work::default());
        // Six ids, six rows read and written; not the table of a thousand rows.
        let cost = work(kernel::Embed, &[&[2, 3], &[1000, 5]], &[&[2, 3, 5]]);
        assert_eq!(cost, Work { flops: 0, bytes: 4 * (6 + 2 * 30) });
        let p: &[i64] = &[7, 5];
        let zero = Decimal::ZERO;
        let adam = kernel::AdamW { beta1: zero, beta2: zero, eps: zero, decay: zero, rate: zero };
        let cost = work(adam, &[p, p, p, p, &[], &[], &[]], &[p, p, p]);
        assert_eq!(cost, Work { flops: 16 * 35, bytes: 4 * (7 * 35 + 3) });
    }

    #[test]
    fn muon_counts_its_products() {
        let kernel = kernel::Muon {
            momentum: Decimal::ZERO,
            nesterov: true,
            scale: MuonScale::Keller,
            decay: Decimal::ZERO,
            rate: Decimal::ONE,
        };
        let p: &[i64] = &[2, 7, 5];
        let cost = work(kernel, &[p, p, p, &[], &[]], &[p, p]);
        // For each of two matrices, five times 5 x 7 by 7 x 5, 5 x 5 by 5 x 5 and 5 x 5 by 5 x 7.
        let products = 2 * 5 * 2 * (5 * 5 * 7 + 5 * 5 * 5 + 5 * 5 * 7);
        assert_eq!(cost, Work { flops: products + 24 * 70, bytes: 4 * (5 * 70 + 2) });
    }

    /// A Llama: six operations for each weight of a product and token, and attention.
    #[test]
    fn a_training_plan_counts_what_its_formula_says() {
        let text = "arch tiny { vocab 100  dim 8  norm_eps 1e-5  init lingua
            layers 2 of decoder { mixer attention { heads 2 }  mlp swiglu { hidden 16 } } }";
        let program = Program::new([("tiny.canon".to_owned(), text.to_owned())], Std::Embedded);
        let graph = program.compile("tiny.canon", "tiny").0.unwrap().graph;
        let one = Decimal::ONE;
        let optimizer = Optimizer {
            beta1: one,
            beta2: one,
            eps: one,
            weight_decay: one,
            decays: Decays::All,
            clip: None,
        };
        let options = TrainOptions {
            common: Options::default(),
            loss: Loss::CROSS_ENTROPY,
            optimizer,
            updates: Vec::new(),
            recompute: Recompute::Nothing,
            dropout: false,
        };
        let (batch, time) = (3, 10);
        let sizes = Sizes { batch, time, past: 0 };
        let plan = plans::train(&graph, &options);
        let by_kernel = plan.micro.work_by_kernel(sizes);
        let sum = |names: &[&str]| names.iter().map(|name| by_kernel[name].flops).sum::<i128>();
        let tokens = i128::from(batch * time);
        let layer = 4 * 8 * 8 + 3 * 8 * 16;
        assert_eq!(
            sum(&["linear", "linear_grad_input", "linear_grad_weight"]),
            6 * tokens * 2 * layer
        );
        assert_eq!(sum(&["head_loss_grad"]), 6 * tokens * 8 * 100);
        // Per layer, sequence and head of 4: 55 pairs, seven products.
        assert_eq!(sum(&["attention", "attention_grad"]), 2 * 3 * 2 * 55 * 7 * 2 * 4);
        assert_eq!(sum(&["swiglu"]), 6 * 2 * tokens * 16);
        assert_eq!(by_kernel.values().copied().sum::<Work>(), plan.micro.total_work(sizes));
        let parameters: i64 =
            graph.top.params.iter().map(|p| p.shape.iter().product::<i64>()).sum();
        // AdamW and the norm of the gradients.
        assert_eq!(plan.update.total_work(sizes).flops, i128::from(parameters) * (16 + 2));
    }
}
