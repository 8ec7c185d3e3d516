//! The work of each step: floating-point operations, and bytes read and written.
//!
//! In: a plan, sizes. Out: [`Work`] of a step, of each kernel, of the whole plan. Must stay true: counts follow from the
//! contract in `kernel.rs` and the shapes, not from an implementation; adding a kernel does not compile without a
//! count.
//!
//! A multiply-add is two operations. A kernel with matrix products counts only these: what it does for each element is
//! less than one in a hundred of them at usual widths. Any other kernel counts the operations of its formula, with
//! [`FUNCTION`] for exp, sigmoid and the like. Comparisons and copies count nothing. A gradient kernel counts what its
//! contract makes it compute again (attention's scores, the states of scans).

use super::{Activation, Extent, Gate, Kernel, Mixed, Plan, Scores, Sizes, Step, ValId};

/// Operations of a function such as exp or sigmoid, for one element.
const FUNCTION: i128 = 4;
/// Operations of AdamW for one element of a parameter: clipping 1, decay 1, mean 3, mean of squares 4, step 7.
const ADAMW: i128 = 16;
/// Elementwise operations of Muon for each element: the mean, the norm, five sums, the update.
const MUON: i128 = 24;

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
        let shapes = |ids: &[ValId]| -> Vec<Shape> {
            ids.iter().map(|id| Shape::of(self, *id, sizes)).collect()
        };
        let (inputs, outputs) = (shapes(&step.inputs), shapes(&step.outputs));
        let all = |shapes: &[Shape]| shapes.iter().map(|shape| shape.bytes).sum::<i128>();
        let bytes = if step.kernel.is_view() {
            0
        } else if matches!(step.kernel, Kernel::Embed) {
            inputs.first().map_or(0, |ids| ids.bytes) + 2 * all(&outputs)
        } else {
            all(&inputs) + all(&outputs)
        };
        Work { flops: flops(&step.kernel, &inputs, &outputs), bytes }
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

/// The extents of a value in a call.
struct Shape {
    dims: Vec<i128>,
    bytes: i128,
}

impl Shape {
    fn of(plan: &Plan, id: ValId, sizes: Sizes) -> Shape {
        let Some(value) = plan.value(id) else { return Shape { dims: Vec::new(), bytes: 0 } };
        let extent = |dim: &Extent| i128::from(dim.at(sizes));
        let dims: Vec<i128> = value.dims.iter().map(extent).collect();
        Shape { dims, bytes: plan.bytes(id, sizes) }
    }

    fn elements(&self) -> i128 {
        self.dims.iter().product()
    }

    /// The number of matrices of the last two axes, and their shorter and longer side.
    fn matrices(&self) -> (i128, i128, i128) {
        let [ref outer @ .., rows, columns] = self.dims[..] else { return (0, 0, 0) };
        (outer.iter().product(), rows.min(columns), rows.max(columns))
    }

    /// The extent of an axis; 0 if there is none, which `Plan::check` reports.
    fn at(&self, axis: usize) -> i128 {
        self.dims.get(axis).copied().unwrap_or(0)
    }

    fn last(&self) -> i128 {
        self.dims.last().copied().unwrap_or(0)
    }

    /// Batch × time.
    fn tokens(&self) -> i128 {
        self.at(0) * self.at(1)
    }
}

fn flops(kernel: &Kernel, inputs: &[Shape], outputs: &[Shape]) -> i128 {
    const NONE: &Shape = &Shape { dims: Vec::new(), bytes: 0 };
    let input = |i: usize| inputs.get(i).unwrap_or(NONE);
    // Elements of the first operand and of the first result.
    let x = input(0).elements();
    let y = outputs.first().map_or(0, Shape::elements);
    let silu = FUNCTION + 1;
    // f′ from the function's value, times dy.
    let silu_slope = FUNCTION + 4;
    match kernel {
        Kernel::Embed => 0,
        Kernel::EmbedGrad { vocab: _ } | Kernel::SumTokens => x,
        Kernel::Linear { bias: _ } => 2 * y * input(0).last(),
        Kernel::LinearGradInput => 2 * x * input(1).last(),
        Kernel::LinearGradWeight => 2 * input(0).tokens() * y,
        Kernel::TopK { count: _, bias: true } => x,
        Kernel::TopK { count: _, bias: false }
        | Kernel::Scatter { width: _ }
        | Kernel::OneHot { width: _ } => 0,
        Kernel::ExpertLinear { bias: _ } => 2 * y * input(0).last(),
        Kernel::ExpertLinearGradInput => 2 * y * input(0).last(),
        Kernel::ExpertLinearGradWeight { experts: _ } => 2 * x * input(2).last(),
        Kernel::ExpertSum { experts: _ } | Kernel::MeanTokens => x,
        Kernel::MeanTokensGrad => 0,
        // Square, add; times rstd, times weight.
        Kernel::RmsNorm { eps: _ } => 4 * x,
        // n, g, the mean's products and sums, g − n mean, times rstd; dy ⊙ n and its sum.
        Kernel::RmsNormGrad => 9 * x,
        // Square, add; times rnorm.
        Kernel::L2Norm { eps: _ } => 3 * x,
        // y, the sum's products and sums, dy − y sum, times rnorm.
        Kernel::L2NormGrad => 6 * x,
        Kernel::Pointwise(_) => FUNCTION * x,
        Kernel::PointwiseGrad(_) => (FUNCTION + 1) * x,
        Kernel::Add | Kernel::Mul | Kernel::Scale { by: _ } | Kernel::Offset { by: _ } => y,
        // Integers of the draws are not counted.
        Kernel::Dropout { rate: _, place: _ } => y,
        // Subtract the maximum, exp, add, divide.
        Kernel::Softmax => (FUNCTION + 3) * x,
        // The sum's products and sums, dy − sum, times y.
        Kernel::SoftmaxGrad => 4 * x,
        Kernel::SumChannels { keep: _ } => x,
        // A multiply-add for each head, sum and channel.
        Kernel::MixHeads { part: Mixed::Heads, one: _ } => 2 * y * input(0).at(2),
        Kernel::MixHeads { part: Mixed::Input, one } => {
            2 * y * if *one { 1 } else { input(0).at(2) }
        }
        Kernel::MixHeads { part: Mixed::Weights, one: _ } => 2 * y * input(0).last(),
        Kernel::SwiGlu => (silu + 1) * x,
        // dup = dy ⊙ silu(gate); dgate = dy ⊙ up ⊙ silu′(gate).
        Kernel::SwiGluGrad => (silu_slope + 3) * x,
        Kernel::GatedRmsNorm { eps: _, gate: Gate::Before | Gate::After } => (4 + silu + 1) * x,
        Kernel::GatedRmsNormGrad { gate: Gate::Before | Gate::After } => (9 + silu_slope + 3) * x,
        Kernel::Reshape { dims: _ }
        | Kernel::Concat
        | Kernel::Split { widths: _ }
        | Kernel::Zeros { dims: _ }
        | Kernel::Cast { to: _ }
        | Kernel::Spread { width: _, kept: _ }
        | Kernel::Index { count: _ }
        | Kernel::Ngram { order: _, rows: _, state: _ }
        | Kernel::Shift { state: _ }
        | Kernel::ShiftGrad
        | Kernel::ShiftTargets { by: _ }
        | Kernel::RepeatHeads { times: _ }
        | Kernel::AppendTime
        | Kernel::LastTime { rows: _ }
        | Kernel::CausalConvState { kernel: _, parts: _, state: _ }
        | Kernel::Argmax => 0,
        Kernel::RepeatHeadsGrad { times: _ } => x,
        // Four products and two sums for a pair.
        Kernel::Rope { theta: _, dims, layout: _, inverse: _, scaling: _ } => {
            3 * input(0).tokens() * input(0).at(2) * i128::from(*dims)
        }
        // q kᵀ, then p v, for each query and each key that it sees.
        Kernel::Attention(Scores { window, .. }) => {
            let (q, k, v) = (input(0), input(1), input(2));
            let pairs = visible(q.at(1), k.at(1), *window) * q.at(0) * q.at(2);
            pairs * 2 * (q.at(3) + v.at(3))
        }
        // The scores again, dq and dk; dp and dv.
        Kernel::AttentionGrad(Scores { window, .. }) => {
            let (q, k, v) = (input(1), input(2), input(3));
            let pairs = visible(q.at(1), k.at(1), *window) * q.at(0) * q.at(2);
            pairs * (6 * q.at(3) + 4 * v.at(3))
        }
        Kernel::CausalConv { kernel, residual, activation, parts, bias, state: _ } => {
            let act = match activation {
                Activation::Identity => 0,
                Activation::Silu => silu,
            };
            let each = 2 * i128::from(*kernel) + i128::from(*bias) + i128::from(*residual) + act;
            each * elements(inputs, 0..*parts)
        }
        Kernel::CausalConvGrad { kernel, residual, activation, parts, bias } => {
            let taps = 2 * i128::from(*kernel);
            let act = match activation {
                Activation::Identity => 0,
                // The convolution again.
                Activation::Silu => taps + i128::from(*bias) + silu_slope,
            };
            // dx and dweight.
            let each = 2 * taps + i128::from(*bias) + i128::from(*residual) + act;
            each * elements(inputs, 0..*parts)
        }
        Kernel::ConvSwiGlu { kernel, residual, bias, state: _ } => {
            let conv = 2 * i128::from(*kernel) + i128::from(*bias) + i128::from(*residual);
            (2 * conv + silu + 1) * y
        }
        // The convolution again, silu's slope, dx and dweight.
        Kernel::ConvSwiGluGrad { kernel, residual, bias } => {
            let taps = 2 * i128::from(*kernel);
            let conv = 3 * taps + 2 * (i128::from(*bias) + i128::from(*residual));
            (2 * conv + silu_slope + 3) * y
        }
        Kernel::Scan { scan, state: _, scale: _, steps } => {
            let state = outputs.get(1).map_or(0, Shape::elements);
            i128::from(scan.definition().flops) * i128::from(*steps) * input(0).at(1) * state
        }
        // The states again; then twice the forward, for the operands and for the state.
        Kernel::ScanGrad { scan, scale: _, steps } => {
            let definition = scan.definition();
            let (rows, columns) = (input(definition.rows + 1), input(definition.columns + 1));
            let heads = input(0).at(2);
            3 * i128::from(definition.flops)
                * i128::from(*steps)
                * input(0).tokens()
                * heads
                * rows.last()
                * columns.last()
        }
        // Subtract the maximum, exp, add.
        Kernel::CrossEntropy { nll_square: _, z_loss: _ } => (FUNCTION + 2) * x,
        // Subtract lse, exp, scale.
        Kernel::CrossEntropyGrad { nll_square: _, z_loss: _, weight: _ } => (FUNCTION + 2) * x,
        Kernel::HeadLoss { bias: _, nll_square: _, z_loss: _, rows: _ } => {
            2 * input(0).tokens() * input(1).elements()
        }
        // Logits, dx, dweight.
        Kernel::HeadLossGrad { bias: _, nll_square: _, z_loss: _, rows: _, weight: _ } => {
            6 * input(0).tokens() * input(1).elements()
        }
        Kernel::Accumulate => y,
        Kernel::GradNorm => 2 * elements(inputs, 0..inputs.len()),
        Kernel::Clip { max: _ } => 0,
        Kernel::AdamW { beta1: _, beta2: _, eps: _, decay: _, rate: _ } => ADAMW * x,
        // Five times three products, of which one is of two square matrices; the rest is elementwise.
        Kernel::Muon { muon: _, decay: _, rate: _ } => {
            let (matrices, short, long) = input(0).matrices();
            5 * matrices * (4 * short * short * long + 2 * short * short * short) + MUON * x
        }
    }
}

/// Elements of several operands.
fn elements(inputs: &[Shape], range: std::ops::Range<usize>) -> i128 {
    inputs.get(range).unwrap_or(&[]).iter().map(Shape::elements).sum()
}

/// Pairs of a query and a key that it sees: of the last `queries` of `keys` tokens, each sees itself and all before
/// it, with a window at most that many.
fn visible(queries: i128, keys: i128, window: Option<i64>) -> i128 {
    // The first and the last query see so many keys without a window.
    let (first, last) = (keys - queries + 1, keys);
    let all = queries * (first + last) / 2;
    let hidden = window.map_or(0, |window| {
        // Queries that would see more than the window: the last of them `most` more, each before it one less.
        let most = (last - i128::from(window)).max(0);
        let least = (first - i128::from(window)).max(1);
        if most < least { 0 } else { (most - least + 1) * (least + most) / 2 }
    });
    all - hidden
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Scan;
    use crate::plan::{
        DType, Decays, Loss, Muon, MuonScale, Optimizer, Options, Recompute, TrainOptions, Value,
    };
    use crate::plans;
    use crate::program::{Program, Std};
    use dsl::Decimal;

    /// The work of one step of a kernel with operands and results of these shapes, f32.
    fn work(kernel: Kernel, inputs: &[&[i64]], outputs: &[&[i64]]) -> Work {
        let mut plan = Plan::default();
        let mut give = |dims: &&[i64]| {
            let dims = dims.iter().map(|d| Extent::Fixed(*d)).collect();
            plan.values.push(Value { name: "x".into(), dims, dtype: DType::F32 });
            ValId(plan.values.len() as u32 - 1)
        };
        let inputs = inputs.iter().map(&mut give).collect();
        let outputs = outputs.iter().map(&mut give).collect();
        let phase = crate::plan::Phase::Forward;
        let step = Step { kernel, inputs, outputs, drop_after: Vec::new(), phase, source: None };
        plan.work(&step, Sizes { batch: 1, time: 1, past: 0 })
    }

    #[test]
    fn products_count_two_for_each_multiply_add() {
        let (x, w, y): (&[i64], &[i64], &[i64]) = (&[2, 3, 5], &[7, 5], &[2, 3, 7]);
        let product = 2 * 2 * 3 * 5 * 7;
        let bytes = 4 * (30 + 35 + 42);
        for (kernel, inputs, output) in [
            (Kernel::Linear { bias: false }, [x, w], y),
            (Kernel::LinearGradInput, [y, w], x),
            (Kernel::LinearGradWeight, [y, x], w),
        ] {
            assert_eq!(work(kernel, &inputs, &[output]), Work { flops: product, bytes });
        }
        let head = |rows| Kernel::HeadLossGrad {
            bias: false,
            nll_square: Decimal::ZERO,
            z_loss: Decimal::ZERO,
            rows,
            weight: crate::number::Root::ONE,
        };
        let made = work(head(4), &[x, w, &[2, 3], &[]], &[&[], &[], x, w]);
        // The two ids and the three scalars have four bytes each here.
        assert_eq!(made, Work { flops: 3 * product, bytes: 4 * (30 + 35 + 6 + 3 + 30 + 35) });
    }

    #[test]
    fn attention_counts_the_keys_that_a_query_sees() {
        // Five queries see 1 + 2 + 3 + 4 + 5 keys; at most 2 with a window.
        assert_eq!(
            [visible(5, 5, None), visible(5, 5, Some(2)), visible(5, 5, Some(9))],
            [15, 9, 15]
        );
        // The last two of five tokens.
        assert_eq!(
            [visible(2, 5, None), visible(2, 5, Some(4)), visible(2, 5, Some(1))],
            [9, 8, 2]
        );
        let (q, v): (&[i64], &[i64]) = (&[2, 5, 3, 4], &[2, 5, 3, 6]);
        let lse: &[i64] = &[2, 3, 5];
        let made = work(Kernel::Attention(Scores::PLAIN), &[q, q, v], &[v, lse]);
        assert_eq!(made.flops, 15 * 2 * 3 * (2 * 4 + 2 * 6));
        let kernel = Kernel::AttentionGrad(Scores::PLAIN);
        let made = work(kernel, &[v, q, q, v, v, lse], &[q, q, v]);
        assert_eq!(made.flops, 15 * 2 * 3 * (3 * 2 * 4 + 2 * 2 * 6));
        assert_eq!(made.bytes, 4 * (4 * 2 * 5 * 3 * 4 + 4 * 2 * 5 * 3 * 6 + 30));
    }

    #[test]
    fn convolutions_and_scans_count_their_formulas() {
        let x: &[i64] = &[2, 3, 5];
        let conv = Kernel::CausalConv {
            kernel: 4,
            residual: true,
            activation: Activation::Identity,
            parts: 2,
            bias: false,
            state: false,
        };
        // Two parts of 30 elements: four multiply-adds and the residual each.
        let made = work(conv, &[x, x, &[10, 4]], &[x, x]);
        assert_eq!(made, Work { flops: 60 * 9, bytes: 4 * (120 + 40) });
        let grad = Kernel::CausalConvGrad {
            kernel: 4,
            residual: true,
            activation: Activation::Silu,
            parts: 1,
            bias: true,
        };
        // dx and dweight 16, dbias and residual 2; the convolution again 9, silu's slope 8.
        let made = work(grad, &[x, x, &[5, 4], &[5]], &[x, &[5, 4], &[5]]);
        assert_eq!(made.flops, 30 * (16 + 2 + 9 + 8));
        // Two convolutions and the gated unit; backward, each convolution three times.
        let (residual, bias) = (true, false);
        let gated = Kernel::ConvSwiGlu { kernel: 4, residual, bias, state: false };
        let made = work(gated, &[x, x, &[10, 4]], &[x]);
        assert_eq!(made, Work { flops: 30 * (2 * 9 + 6), bytes: 4 * (90 + 40) });
        let grad = Kernel::ConvSwiGluGrad { kernel: 4, residual, bias };
        let made = work(grad, &[x, x, x, &[10, 4]], &[x, x, &[10, 4]]);
        assert_eq!(made, Work { flops: 30 * (2 * 26 + 11), bytes: 4 * (150 + 80) });
        // Keys of 4 and values of 6 in 3 heads: a state of 24 numbers a head.
        let (q, v, s): (&[i64], &[i64], &[i64]) = (&[2, 5, 3, 4], &[2, 5, 3, 6], &[2, 3, 4, 6]);
        let scan = Kernel::Scan { scan: Scan::Gla, state: false, scale: None, steps: 1 };
        let forward = 6 * 24 * 2 * 5 * 3;
        assert_eq!(work(scan, &[q, q, v, q], &[v, s]).flops, forward);
        let grad = Kernel::ScanGrad { scan: Scan::Gla, scale: None, steps: 1 };
        assert_eq!(work(grad, &[v, q, q, v, q], &[q, q, v, q]).flops, 3 * forward);
    }

    #[test]
    fn memory_traffic_leaves_out_views_and_unread_rows() {
        let dims = vec![5];
        let made = work(Kernel::Reshape { dims }, &[&[2, 3, 5]], &[&[2, 3, 5]]);
        assert_eq!(made, Work::default());
        // Six ids, six rows read and written; not the table of a thousand rows.
        let made = work(Kernel::Embed, &[&[2, 3], &[1000, 5]], &[&[2, 3, 5]]);
        assert_eq!(made, Work { flops: 0, bytes: 4 * (6 + 2 * 30) });
        let p: &[i64] = &[7, 5];
        let zero = Decimal::ZERO;
        let adam = Kernel::AdamW { beta1: zero, beta2: zero, eps: zero, decay: zero, rate: zero };
        let made = work(adam, &[p, p, p, p, &[], &[], &[]], &[p, p, p]);
        assert_eq!(made, Work { flops: 16 * 35, bytes: 4 * (7 * 35 + 3) });
    }

    #[test]
    fn muon_counts_its_products() {
        let muon = Muon { momentum: Decimal::ZERO, nesterov: true, scale: MuonScale::Keller };
        let kernel = Kernel::Muon { muon, decay: Decimal::ZERO, rate: Decimal::ONE };
        let p: &[i64] = &[2, 7, 5];
        let made = work(kernel, &[p, p, p, &[], &[]], &[p, p]);
        // For each of two matrices, five times 5 x 7 by 7 x 5, 5 x 5 by 5 x 5 and 5 x 5 by 5 x 7.
        let products = 2 * 5 * 2 * (5 * 5 * 7 + 5 * 5 * 5 + 5 * 5 * 7);
        assert_eq!(made, Work { flops: products + 24 * 70, bytes: 4 * (5 * 70 + 2) });
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
