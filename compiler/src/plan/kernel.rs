//! Every computation the runtime supports, as one closed enum.
//!
//! In: nothing. Out: [`Kernel`]. Its fields are attributes, and its doc comments are the contract:
//! inputs in order with shapes, outputs in order with shapes, meaning. Must stay true: every output
//! is overwritten, never accumulated into, and is new memory unless [`Kernel::writes_over`] or
//! [`Kernel::is_view`] says otherwise; reductions run in one fixed order.
//!
//! Shapes: b batch, t time, c channels, h heads, d head width, `…` any leading axes ([b, t], [b, t, h],
//! or none for functions of parameters alone); [] is a scalar. Under [`super::Precision::F32`] everything is f32 unless
//! stated otherwise. Under `Bf16` operands may be bf16: every kernel then computes in f32 and rounds its results once
//! (matrix products add in f32), and `super::infer` gives the dtypes of the results: activations and their gradients are
//! like the operand, statistics, states of scans and gradients of parameters are f32.

use std::rc::Rc;

use dsl::Decimal;

use super::rope::RopeScaling;
use super::{Activation, DType, Extent, Gate, Mixed, Muon, RopeLayout, Scores};
use crate::number::Root;
use crate::op::{Function, Scan};

/// Computations that the runtime has a kernel for. b is batch, t is time; each variant gives operands, results and
/// formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    // Tables and projections.
    /// In: tokens [b, t] i64, table [v, c]. Out: y [b, t, c] = table\[tokens\].
    Embed,
    /// In: dy [b, t, c], tokens [b, t] i64. Out: dtable [v, c]: row i sums dy where tokens = i, in
    /// (b, t) order; zeros elsewhere.
    EmbedGrad {
        /// Rows of the table.
        vocab: i64,
    },
    /// In: x [b, t, i], weight [o, i], and if `bias` bias \[o\]. Out: y [b, t, o] = x weightᵀ (+ bias).
    Linear {
        /// Whether a bias is added.
        bias: bool,
    },
    /// In: dy [b, t, o], weight [o, i]. Out: dx [b, t, i] = dy weight.
    LinearGradInput,
    /// In: dy [b, t, o], x [b, t, i]. Out: dweight [o, i] = Σ_{b,t} dyᵀ x.
    LinearGradWeight,
    /// In: scores [b, t, n]; if `bias` bias \[n\]. Out: y [b, t, count], ids [b, t, count] i64: the places of the
    /// largest scores + bias, largest first, equal ones by place, and the scores there.
    TopK {
        /// Scores that are chosen.
        count: i64,
        /// Whether a bias takes part in the choice.
        bias: bool,
    },
    /// In: dy [b, t, k], ids [b, t, k] i64. Out: [b, t, width]: dy at the ids, zeros elsewhere.
    Scatter {
        /// Channels of the result.
        width: i64,
    },
    /// In: ids [b, t, k] i64. Out: [b, t, width] f32: 1 at the ids, 0 elsewhere.
    OneHot {
        /// Channels of the result.
        width: i64,
    },
    /// In: x [b, t, i] or [b, t, k, i], ids [b, t, k] i64, weight [e, o, i], if `bias` bias [e, o]. Out: y [b, t, k, o] =
    /// x weight\[id\]ᵀ (+ bias\[id\]).
    ExpertLinear {
        /// Whether a bias is added.
        bias: bool,
    },
    /// In: dy [b, t, k, o], ids [b, t, k] i64, weight [e, o, i]. Out: dx [b, t, k, i] = dy weight\[id\].
    ExpertLinearGradInput,
    /// In: dy [b, t, k, o], ids [b, t, k] i64, x [b, t, i] or [b, t, k, i]. Out: dweight [e, o, i]: Σ dyᵀ x where ids = e,
    /// in (b, t) order; zeros where there are none.
    ExpertLinearGradWeight {
        /// Matrices of the weight.
        experts: i64,
    },
    /// In: dy [b, t, k, o], ids [b, t, k] i64. Out: dbias [e, o]: Σ dy where ids = e, in (b, t) order.
    ExpertSum {
        /// Rows of the bias.
        experts: i64,
    },
    /// In: dy [b, t, dims…]. Out: [dims…] = Σ_{b,t} dy: gradients of biases and of parameters that
    /// were broadcast over batch and time.
    SumTokens,

    // Norms, over the last axis c. Statistics in f32.
    /// In: x […, c], weight \[c\]. Out: y […, c] = weight ⊙ x · rstd, rstd […] = 1/sqrt(mean x² + eps).
    RmsNorm {
        /// Added to the mean of squares.
        eps: Decimal,
    },
    /// In: dy […, c], x […, c], weight \[c\], rstd […]. Out: dx […, c], dweight \[c\].
    /// With n = x · rstd, g = dy ⊙ weight: dx = rstd (g − n mean(g ⊙ n)), dweight = Σ… dy ⊙ n.
    RmsNormGrad,
    /// In: x […, c]. Out: y […, c] = x · rnorm, rnorm […] = 1/sqrt(Σ x² + eps).
    L2Norm {
        /// Added to the sum of squares.
        eps: Decimal,
    },
    /// In: dy […, c], x […, c], rnorm […]. Out: dx […, c] = rnorm (dy − y Σ(dy ⊙ y)) with y = x · rnorm.
    L2NormGrad,

    // Element by element.
    /// In: x […]. Out: y […] = f(x).
    Pointwise(Function),
    /// In: dy […], and s […]: the operand x, or the result y if the function's definition
    /// `keeps_result`. Out: dx […] = dy f′.
    PointwiseGrad(Function),
    /// In: a, b, with equal trailing dims; if only one has [b, t] in front, the other is broadcast.
    /// Out: y = a + b.
    Add,
    /// In: as `Add`. Out: y = a ⊙ b.
    Mul,
    /// In: x […]. Out: y […] = by · x, with `by` rounded once, to the nearest f64.
    Scale {
        /// The factor.
        by: Root,
    },
    /// In: x […]. Out: y […] = x + by, with `by` rounded once, to the nearest f64.
    Offset {
        /// The number that is added.
        by: Root,
    },
    /// In: x [b, t, …], key [] i64, window [] i64. Out: y [b, t, …] = x / (1 − rate) where it is kept, else 0, with
    /// 1 / (1 − rate) rounded once. Let row r be row r of the batch, and e the number of an element in it, in (t, …)
    /// order. It is kept if word e mod 4 of block ⌊e / 4⌋ of Philox4x32-10 is at least round(rate · 2³²). The generator's
    /// key is of `key` and `place` (`records/src/dropout.rs`); the upper half of its counter is `window` + r. This is its
    /// own gradient rule: dx from dy.
    Dropout {
        /// The probability of 0.
        rate: Decimal,
        /// Name of the call in its graph.
        place: Rc<str>,
    },
    /// In: x […, c]. Out: y […, c] = exp(x − m) / Σ exp(x − m) over the last axis, m its maximum.
    Softmax,
    /// In: dy […, c], y […, c]. Out: dx […, c] = y (dy − Σ dy ⊙ y).
    SoftmaxGrad,
    /// In: x [b, t, c]. Out: \[c\] f32: the mean over b and t.
    MeanTokens,
    /// In: dmean \[c\], x [b, t, c]. Out: dx [b, t, c] = dmean / (b t).
    MeanTokensGrad,
    /// In: x […, c]. Out: Σ x over the last axis: […, 1], or […] without `keep`.
    SumChannels {
        /// Whether the axis stays, with an extent of 1.
        keep: bool,
    },
    /// In: x […, 1], or […] if not `kept`. Out: […, width], copies along the last axis.
    Spread {
        /// Channels of the result.
        width: i64,
        /// Whether x has the axis, with an extent of 1.
        kept: bool,
    },
    /// In: gate […], up […]. Out: y […] = silu(gate) ⊙ up. Created by `fuse`.
    SwiGlu,
    /// In: dy […], gate […], up […]. Out: dgate […], dup […].
    SwiGluGrad,
    /// In: x […, c], gate […, c], weight \[c\]. Out: y […, c], rstd […]. Created by `fuse`. With gate
    /// `After` the norm: y = weight ⊙ x · rstd ⊙ silu(gate), rstd = 1/sqrt(mean x² + eps). With gate
    /// `Before`: u = x ⊙ silu(gate), y = weight ⊙ u · rstd, rstd = 1/sqrt(mean u² + eps).
    GatedRmsNorm {
        /// Added to the mean of squares.
        eps: Decimal,
        /// Position of the gate.
        gate: Gate,
    },
    /// In: dy […, c], x […, c], gate […, c], weight \[c\], rstd […]. Out: dx […, c], dgate […, c],
    /// dweight \[c\].
    GatedRmsNormGrad {
        /// Position of the gate.
        gate: Gate,
    },

    /// Sums of heads with weights w, [n, m] or [b, t, n, m]; with `one` without the axis m. By `part`:
    /// heads: in x [b, t, n, d], w; out y [b, t, m, d], y_j = Σ_i w_ij x_i, in the order of i.
    /// input: in dy [b, t, m, d], w; out dx [b, t, n, d], dx_i = Σ_j w_ij dy_j, in the order of j.
    /// weights: in dy [b, t, m, d], x [b, t, n, d]; out [b, t, n, m], Σ over d of x_i ⊙ dy_j.
    MixHeads {
        /// What is computed.
        part: Mixed,
        /// Whether there is one sum, whose axis is left out.
        one: bool,
    },
    /// In: tokens [b, t] i64, and if `state` past [b, order − 1] i64, ids plus 1, 0 for none. Out: rows [b, t] i64, whole
    /// [b, t], the next past. The row of the last `order` tokens by the hash in `op/ngram.rs`, with whole = 1; where there
    /// are fewer, both are 0.
    Ngram {
        /// Tokens of an n-gram.
        order: i64,
        /// Rows of the table.
        rows: i64,
        /// Whether it goes on after earlier tokens.
        state: bool,
    },

    // Rearrangements.
    /// In: x [b, t, …]. Out: the same elements as [b, t, dims…]. A view.
    Reshape {
        /// Axes after batch and time.
        dims: Vec<i64>,
    },
    /// In: n tensors [b, t, c_i]. Out: [b, t, Σ c_i], in operand order.
    Concat,
    /// In: x [b, t, Σ widths]. Out: one [b, t, w] for each of `widths`, in order. Views.
    Split {
        /// Channels of each result.
        widths: Vec<i64>,
    },
    /// In: none. Out: zeros of these dims: the gradient of an unused result, the gates of a recurrence without any.
    Zeros {
        /// All axes.
        dims: Vec<Extent>,
    },
    /// In: none. Out: \[count\] = 0, 1, …, count − 1.
    Index {
        /// Numbers.
        count: i64,
    },
    /// In: x […]. Out: y […] = x in this dtype, rounded to the nearest, ties to even.
    Cast {
        /// The dtype of y.
        to: DType,
    },
    /// In: x [b, t, h, d]. Out: y [b, t, h·times, d]; head j is head ⌊j/times⌋ of x.
    RepeatHeads {
        /// Copies of each head.
        times: i64,
    },
    /// In: dy [b, t, h·times, d]. Out: dx [b, t, h, d], summed over each head's copies.
    RepeatHeadsGrad {
        /// Copies of each head.
        times: i64,
    },

    // Positions and time.
    /// In: x [b, t, h, d], position [] i64 of the first token. Out: y [b, t, h, d]: the first `dims`
    /// channels of each head rotated by the angle (position + t) · theta^(−2i/dims) of pair i, or by the frequency of
    /// `scaling` and times its factor, in f32; the rest copied. `inverse` rotates by the negative angle, which is the
    /// gradient rule.
    Rope {
        /// Base of the frequencies.
        theta: Decimal,
        /// Rotated channels of each head.
        dims: i64,
        /// Which channels make a pair.
        layout: RopeLayout,
        /// Whether to rotate backwards.
        inverse: bool,
        /// Changes of the frequencies.
        scaling: RopeScaling,
    },
    /// In: q [b, t, h, d], k [b, s, kv, d], v [b, s, kv, e], s ≥ t; if `sink` sink \[h\]; if `slopes` slopes \[h\]. Out:
    /// y [b, t, h, e], lse [b, h, t] = ln (Σ_j exp(score) + exp(sink)). score = scale · q kᵀ, then softcap ·
    /// tanh(score / softcap), then less slopes · distance; query i sees keys j at distances 0 ≤ (s − t + i) − j, and with
    /// `window` also < window; query head j reads kv head ⌊j·kv/h⌋. y = Σ_j exp(score − lse) v_j. Softmax in f32.
    Attention(Scores),
    /// In: dy [b, t, h, e], q [b, t, h, d], k [b, t, kv, d], v [b, t, kv, e], y [b, t, h, e], lse
    /// [b, h, t], sink and slopes as in `Attention`. Out: dq, dk, dv, dsink, dslopes, each shaped like its operand.
    AttentionGrad(Scores),
    /// In: past [b, p, …], x [b, t, …]. Out: [b, p + t, …].
    AppendTime,
    /// In: x [b, s, …]. Out: the last min(rows, s) along time, in its own memory.
    LastTime {
        /// Largest number of rows to keep.
        rows: i64,
    },
    /// Canon layers and short convolutions: depthwise and causal over time.
    /// In: `parts` tensors x_i [b, t, c_i], read as one x with c = Σ c_i channels without concatenating
    /// them; weight [c, kernel], with the last tap for the current token; if `bias` bias \[c\]; if `state`
    /// past [b, kernel − 1, c], else zeros. Out: `parts` tensors y_i [b, t, c_i] of
    /// y = act(conv(x) + bias), plus x if `residual`.
    CausalConv {
        /// Number of taps.
        kernel: i64,
        /// Whether x is added to the result.
        residual: bool,
        /// Function of the convolution and bias.
        activation: Activation,
        /// Number of operands x_i.
        parts: usize,
        /// Whether a bias is added.
        bias: bool,
        /// Whether a past is given.
        state: bool,
    },
    /// In: `parts` tensors dy_i [b, t, c_i], `parts` tensors x_i [b, t, c_i], weight [c, kernel], if
    /// `bias` bias \[c\]; zeros before the start. Out: `parts` tensors dx_i [b, t, c_i], dweight
    /// [c, kernel], if `bias` dbias \[c\].
    CausalConvGrad {
        /// Number of taps.
        kernel: i64,
        /// Whether x was added to the result.
        residual: bool,
        /// Function of the convolution and bias.
        activation: Activation,
        /// Number of operands x_i.
        parts: usize,
        /// Whether a bias was added.
        bias: bool,
    },
    /// In: `parts` tensors x_i [b, t, c_i]; if `state` past [b, kernel − 1, c]. Out: [b, kernel − 1,
    /// c]: the last kernel − 1 rows of past (or zeros) followed by x, parts concatenated, in its own
    /// memory.
    CausalConvState {
        /// Number of taps.
        kernel: i64,
        /// Number of operands x_i.
        parts: usize,
        /// Whether a past is given.
        state: bool,
    },
    /// `CausalConv` of gate and up, then `SwiGlu`. In: gate [b, t, c], up [b, t, c], weight [2c, kernel], if `bias`
    /// bias \[2c\], if `state` past [b, kernel − 1, 2c]. Out: y [b, t, c] = silu(g) ⊙ u with g, u the convolution's
    /// results. Created by `fuse`.
    ConvSwiGlu {
        /// Number of taps.
        kernel: i64,
        /// Whether gate and up are added to the convolution's results.
        residual: bool,
        /// Whether a bias is added.
        bias: bool,
        /// Whether a past is given.
        state: bool,
    },
    /// In: dy [b, t, c], gate [b, t, c], up [b, t, c], weight [2c, kernel], if `bias` bias \[2c\]; zeros before the
    /// start. Out: dgate [b, t, c], dup [b, t, c], dweight [2c, kernel], if `bias` dbias \[2c\]; g and u are computed
    /// again.
    ConvSwiGluGrad {
        /// Number of taps.
        kernel: i64,
        /// Whether gate and up were added to the convolution's results.
        residual: bool,
        /// Whether a bias was added.
        bias: bool,
    },
    /// In: x [b, t, c]; if `state` past [b, 1, c], else zeros. Out: y [b, t, c]: past, then x without its last step.
    Shift {
        /// Whether a past is given.
        state: bool,
    },
    /// In: dy [b, t, c]. Out: dx [b, t, c]: dy without its first step, then zeros.
    ShiftGrad,
    /// A linear recurrence, with the equations of its definition. In: its operands; if `state` S
    /// [b, h, rows, columns], else zeros. Out: y [b, t, h, …], S after the last token.
    Scan {
        /// The recurrence.
        scan: Scan,
        /// Whether an initial state is given.
        state: bool,
        /// The factor of q; none for the inverse root of its width, or if the recurrence has no such factor.
        scale: Option<Root>,
        /// Updates of the state for each token: operands that are written have as many times the heads of y, those
        /// of the first update before those of the second.
        steps: i64,
    },
    /// In: dy [b, t, h, …], the operands of `Scan`; zero state. Out: a gradient for each operand, shaped
    /// like it.
    ScanGrad {
        /// The recurrence.
        scan: Scan,
        /// As in `Scan`.
        scale: Option<Root>,
        /// As in `Scan`.
        steps: i64,
    },

    // Loss.
    /// In: logits [b, t, v], targets [b, t] i64. Out: nll [b, t] = lse − logits\[target\], 0 where
    /// ignored; lse [b, t] = ln Σ exp(logits); loss [] f64 = Σ over counted targets of
    /// nll + nll_square · nll² + z_loss · lse²; counted [] i64.
    CrossEntropy {
        /// Factor of the squared loss of each target.
        nll_square: Decimal,
        /// Factor of the squared lse of each target.
        z_loss: Decimal,
    },
    /// In: targets [b, t] i64. Out: [b, t] i64: the target `by` places later in the row, ignored where there is none.
    ShiftTargets {
        /// Places.
        by: i64,
    },
    /// In: logits [b, t, v], targets [b, t] i64, nll [b, t], lse [b, t], scale [] f64. Out: dlogits
    /// [b, t, v] = weight · scale · ((1 + 2 nll_square nll)(p − onehot(target)) + 2 z_loss lse p) with
    /// p = exp(logits − lse); 0 where ignored. May overwrite logits if they are dropped.
    CrossEntropyGrad {
        /// As in `CrossEntropy`.
        nll_square: Decimal,
        /// As in `CrossEntropy`.
        z_loss: Decimal,
        /// Factor of this loss among others.
        weight: Root,
    },
    /// In: logits [b, t, v]. Out: [b, t] i64, the lowest index of the maximum.
    Argmax,
    /// `Linear`, `CrossEntropy` and `Argmax` for `rows` tokens at a time, so that memory does not grow with tokens ×
    /// vocabulary. In: x [b, t, i], weight [v, i], if `bias` bias \[v\], targets [b, t] i64. Out: nll [b, t],
    /// loss [] f64, counted [] i64, argmax [b, t] i64, as in those kernels; losses of chunks are added in order.
    /// Created by `fuse`.
    HeadLoss {
        /// Whether a bias is added.
        bias: bool,
        /// As in `CrossEntropy`.
        nll_square: Decimal,
        /// As in `CrossEntropy`.
        z_loss: Decimal,
        /// Tokens of a chunk, in (batch, time) order; the last chunk may have fewer.
        rows: i64,
    },
    /// `HeadLoss` with gradients. In: x [b, t, i], weight [v, i], if `bias` bias \[v\], targets [b, t] i64,
    /// scale [] f64. Out: loss [] f64, counted [] i64, dx [b, t, i], dweight [v, i], if `bias` dbias \[v\]: those of
    /// `CrossEntropyGrad`, `LinearGradInput`, `LinearGradWeight` and `SumTokens`. Sums over tokens add the chunks in
    /// order. Created by `fuse`.
    HeadLossGrad {
        /// As in `HeadLoss`.
        bias: bool,
        /// As in `CrossEntropy`.
        nll_square: Decimal,
        /// As in `CrossEntropy`.
        z_loss: Decimal,
        /// As in `HeadLoss`.
        rows: i64,
        /// As in `CrossEntropyGrad`.
        weight: Root,
    },

    // Update.
    /// In: a, b with one shape and dtype. Out: a + b, written over a.
    Accumulate,
    /// In: every gradient, in parameter order. Out: norm [] f64: the square root of the sum, in
    /// that order, of each gradient's sum of squares.
    GradNorm,
    /// In: norm [] f64. Out: coefficient [] f64 = min(1, max / (norm + 1e-6)), or 1 without `max`.
    Clip {
        /// Largest norm that is left as it is; None clips nothing.
        max: Option<Decimal>,
    },
    /// In: parameter p, gradient g, moments m and v, all with one shape; coefficient [] f64, learning
    /// rate lr [] f64, step number n [] i64 from 1. Out: p, m, v, written over their inputs. lr ← rate · lr;
    /// g ← coefficient · g; p ← p (1 − lr · decay); m ← β1 m + (1 − β1) g; v ← β2 v + (1 − β2) g²;
    /// p ← p − lr · (m / (1 − β1ⁿ)) / (sqrt(v) / sqrt(1 − β2ⁿ) + eps) (Loshchilov and Hutter 2019,
    /// algorithm 2).
    AdamW {
        /// Decay of the running mean.
        beta1: Decimal,
        /// Decay of the running mean of squares.
        beta2: Decimal,
        /// Added to the denominator.
        eps: Decimal,
        /// Weight decay; 0 for parameters without.
        decay: Decimal,
        /// Factor of the learning rate.
        rate: Decimal,
    },
    /// In: parameter p, gradient g, momentum m, all \[…, rows, columns\] with one shape; coefficient \[\] f64, learning rate
    /// lr \[\] f64. Out: p, m, written over their inputs. lr ← rate · lr; g ← coefficient · g; m ← μ m + (1 − μ) g;
    /// u = (1 − μ) g + μ m with nesterov, else m; for each matrix X = u / (‖u‖ + 1e-7), transposed if it has more rows than
    /// columns, and five times A = X Xᵀ, X ← 3.4445 X + (−4.775 A + 2.0315 A²) X; p ← p (1 − lr · decay) − lr · c · X,
    /// with the factor c of the scale (Jordan 2024; Liu et al. 2025, 2502.16982).
    Muon {
        /// μ, whether to look ahead, and the scale.
        muon: Muon,
        /// Weight decay; 0 for parameters without.
        decay: Decimal,
        /// Factor of the learning rate.
        rate: Decimal,
    },
}

impl Kernel {
    /// (output, input) pairs that share memory: the step changes what the caller passed in.
    pub fn writes_over(&self) -> &'static [(usize, usize)] {
        if matches!(self, Kernel::Accumulate) {
            &[(0, 0)]
        } else if matches!(self, Kernel::AdamW { .. }) {
            &[(0, 0), (1, 2), (2, 3)]
        } else if matches!(self, Kernel::Muon { .. }) {
            &[(0, 0), (1, 2)]
        } else {
            &[]
        }
    }

    /// Whether the outputs share the memory of the first input.
    pub fn is_view(&self) -> bool {
        matches!(self, Kernel::Reshape { .. } | Kernel::Split { .. })
    }

    /// Operands that are read as numbers on the CPU. They are the caller's: to read what a step has computed on a device
    /// would wait for it.
    pub fn host_numbers(&self) -> &'static [usize] {
        if matches!(self, Kernel::Rope { .. }) {
            &[1]
        } else if matches!(self, Kernel::Dropout { .. }) {
            &[1, 2]
        } else if matches!(
            self,
            Kernel::CrossEntropyGrad { .. } | Kernel::HeadLossGrad { bias: true, .. }
        ) {
            &[4]
        } else if matches!(self, Kernel::HeadLossGrad { bias: false, .. }) {
            &[3]
        } else if matches!(self, Kernel::AdamW { .. }) {
            &[5, 6]
        } else if matches!(self, Kernel::Muon { .. }) {
            &[4]
        } else {
            &[]
        }
    }

    /// Whether it reads bf16 without a copy in f32: it moves elements, rounds a single operation, or is a matrix product.
    pub fn reads_bf16(&self) -> bool {
        match self {
            Kernel::Embed
            | Kernel::Linear { .. }
            | Kernel::LinearGradInput
            | Kernel::LinearGradWeight
            | Kernel::OneHot { .. }
            | Kernel::Scatter { .. }
            | Kernel::ExpertLinear { .. }
            | Kernel::ExpertLinearGradInput
            | Kernel::ExpertLinearGradWeight { .. }
            | Kernel::Add
            | Kernel::Mul
            | Kernel::Scale { .. }
            | Kernel::Offset { .. }
            | Kernel::Spread { .. }
            | Kernel::Index { .. }
            | Kernel::Shift { .. }
            | Kernel::ShiftGrad
            | Kernel::ShiftTargets { .. }
            | Kernel::Ngram { .. }
            | Kernel::Cast { .. }
            | Kernel::Reshape { .. }
            | Kernel::Concat
            | Kernel::Split { .. }
            | Kernel::Zeros { .. }
            | Kernel::RepeatHeads { .. }
            | Kernel::AppendTime
            | Kernel::LastTime { .. }
            | Kernel::CausalConvState { .. }
            | Kernel::Argmax
            | Kernel::HeadLoss { .. }
            | Kernel::HeadLossGrad { .. } => true,
            Kernel::EmbedGrad { .. }
            | Kernel::SumTokens
            | Kernel::TopK { .. }
            | Kernel::ExpertSum { .. }
            | Kernel::MeanTokens
            | Kernel::MeanTokensGrad
            | Kernel::RmsNorm { .. }
            | Kernel::RmsNormGrad
            | Kernel::L2Norm { .. }
            | Kernel::L2NormGrad
            | Kernel::Pointwise(_)
            | Kernel::PointwiseGrad(_)
            | Kernel::Dropout { .. }
            | Kernel::Softmax
            | Kernel::SoftmaxGrad
            | Kernel::SumChannels { .. }
            | Kernel::MixHeads { .. }
            | Kernel::SwiGlu
            | Kernel::SwiGluGrad
            | Kernel::GatedRmsNorm { .. }
            | Kernel::GatedRmsNormGrad { .. }
            | Kernel::RepeatHeadsGrad { .. }
            | Kernel::Rope { .. }
            | Kernel::Attention(_)
            | Kernel::AttentionGrad(_)
            | Kernel::CausalConv { .. }
            | Kernel::CausalConvGrad { .. }
            | Kernel::ConvSwiGlu { .. }
            | Kernel::ConvSwiGluGrad { .. }
            | Kernel::Scan { .. }
            | Kernel::ScanGrad { .. }
            | Kernel::CrossEntropy { .. }
            | Kernel::CrossEntropyGrad { .. }
            | Kernel::Accumulate
            | Kernel::GradNorm
            | Kernel::Clip { .. }
            | Kernel::AdamW { .. }
            | Kernel::Muon { .. } => false,
        }
    }
}
