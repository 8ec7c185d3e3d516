//! A plan as text, for `canonc graph --plan` and for the digest that a run records.
//!
//! In: a plan. Out: one line per input, step and output. Must stay true: everything that changes
//! the execution, or when memory is freed, changes the text; the source line of a step does
//! not.

use std::fmt::{self, Write as _};

use dsl::Decimal;

use crate::digest::Digest;
use crate::number::Root;

use super::{
    Activation, DType, Extent, Gate, Input, Kernel, Mixed, Muon, Output, Phase, Plan, RopeLayout,
    RopeScaling, Scores, StatePart, Step, TrainPlan, ValId,
};

const TAG: &str = "canonc.plan.v1";

impl Plan {
    /// One line for each input, step and output. Everything that changes the execution is in it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (input, id) in &self.inputs {
            let _ = write!(text, "{} = given {input}", self.typed(*id));
            // Identify a state by its number: its path is in no id, and this text is hashed.
            let path = match (input, self.value(*id)) {
                (
                    Input::Param(_)
                    | Input::Gradient(_)
                    | Input::FirstMoment(_)
                    | Input::SecondMoment(_),
                    Some(value),
                ) => format!(" {}", value.name),
                _ => String::new(),
            };
            let _ = writeln!(text, "{path}");
        }
        let mut place = None;
        for step in &self.steps {
            let here = (step.phase, step.source.as_ref().map(|s| s.layer));
            if place != Some(here) {
                place = Some(here);
                let _ = writeln!(text, "{}", heading(step));
            }
            let _ = writeln!(text, "{}", self.line(step));
        }
        for (output, id) in &self.outputs {
            let _ = writeln!(text, "give {output} = %{}", id.0);
        }
        text
    }

    /// Digest of the text.
    pub fn digest(&self) -> Digest {
        Digest::of(TAG, &self.text())
    }

    fn line(&self, step: &Step) -> String {
        let outputs: Vec<String> = step.outputs.iter().map(|id| self.typed(*id)).collect();
        let inputs: Vec<String> = step.inputs.iter().map(|id| format!("%{}", id.0)).collect();
        let attrs = step.kernel.attrs();
        let mut line = format!("{} = {}", outputs.join(", "), step.kernel.name());
        if !attrs.is_empty() {
            let _ = write!(line, " {{{}}}", attrs.join(", "));
        }
        let _ = write!(line, " ({})", inputs.join(", "));
        if !step.drop_after.is_empty() {
            let dropped: Vec<String> =
                step.drop_after.iter().map(|id| format!("%{}", id.0)).collect();
            let _ = write!(line, " drop {}", dropped.join(" "));
        }
        line
    }

    fn typed(&self, id: ValId) -> String {
        let Some(value) = self.value(id) else { return format!("%{}", id.0) };
        let dims: Vec<String> = value.dims.iter().map(Extent::to_string).collect();
        format!("%{} {}[{}]", id.0, value.dtype, dims.join(", "))
    }
}

impl TrainPlan {
    /// The texts of the three plans, each under its name.
    pub fn text(&self) -> String {
        let TrainPlan { micro, combine, update } = self;
        format!("micro\n{}combine\n{}update\n{}", micro.text(), combine.text(), update.text())
    }

    /// Digest of the text.
    pub fn digest(&self) -> Digest {
        Digest::of(TAG, &self.text())
    }
}

fn heading(step: &Step) -> String {
    match step.source.as_ref().map(|s| s.layer) {
        Some(Some(layer)) => format!("# {}, layer {layer}", step.phase),
        Some(None) => format!("# {}, embedding and head", step.phase),
        None => format!("# {}", step.phase),
    }
}

impl Kernel {
    /// The kernel's name in texts, tables and profiles.
    pub fn name(&self) -> &'static str {
        match self {
            Kernel::Embed => "embed",
            Kernel::EmbedGrad { .. } => "embed_grad",
            Kernel::Linear { .. } => "linear",
            Kernel::LinearGradInput => "linear_grad_input",
            Kernel::LinearGradWeight => "linear_grad_weight",
            Kernel::TopK { .. } => "top_k",
            Kernel::Scatter { .. } => "scatter",
            Kernel::OneHot { .. } => "one_hot",
            Kernel::ExpertLinear { .. } => "expert_linear",
            Kernel::ExpertLinearGradInput => "expert_linear_grad_input",
            Kernel::ExpertLinearGradWeight { .. } => "expert_linear_grad_weight",
            Kernel::ExpertSum { .. } => "expert_sum",
            Kernel::MeanTokens => "mean_tokens",
            Kernel::MeanTokensGrad => "mean_tokens_grad",
            Kernel::SumTokens => "sum_tokens",
            Kernel::RmsNorm { .. } => "rms_norm",
            Kernel::RmsNormGrad => "rms_norm_grad",
            Kernel::L2Norm { .. } => "l2_norm",
            Kernel::L2NormGrad => "l2_norm_grad",
            Kernel::Pointwise(_) => "pointwise",
            Kernel::PointwiseGrad(_) => "pointwise_grad",
            Kernel::Add => "add",
            Kernel::Mul => "mul",
            Kernel::Scale { .. } => "scale",
            Kernel::Offset { .. } => "offset",
            Kernel::Dropout { .. } => "dropout",
            Kernel::Softmax => "softmax",
            Kernel::SoftmaxGrad => "softmax_grad",
            Kernel::SumChannels { .. } => "sum_channels",
            Kernel::Spread { .. } => "spread",
            Kernel::Index { .. } => "index",
            Kernel::MixHeads { .. } => "mix_heads",
            Kernel::Ngram { .. } => "ngram",
            Kernel::Shift { .. } => "shift",
            Kernel::ShiftGrad => "shift_grad",
            Kernel::SwiGlu => "swiglu",
            Kernel::SwiGluGrad => "swiglu_grad",
            Kernel::GatedRmsNorm { .. } => "gated_rms_norm",
            Kernel::GatedRmsNormGrad { .. } => "gated_rms_norm_grad",
            Kernel::Reshape { .. } => "reshape",
            Kernel::Concat => "concat",
            Kernel::Split { .. } => "split",
            Kernel::Zeros { .. } => "zeros",
            Kernel::Cast { .. } => "cast",
            Kernel::RepeatHeads { .. } => "repeat_heads",
            Kernel::RepeatHeadsGrad { .. } => "repeat_heads_grad",
            Kernel::Rope { .. } => "rope",
            Kernel::Attention(_) => "attention",
            Kernel::AttentionGrad(_) => "attention_grad",
            Kernel::AppendTime => "append_time",
            Kernel::LastTime { .. } => "last_time",
            Kernel::CausalConv { .. } => "causal_conv",
            Kernel::CausalConvGrad { .. } => "causal_conv_grad",
            Kernel::CausalConvState { .. } => "causal_conv_state",
            Kernel::ConvSwiGlu { .. } => "conv_swiglu",
            Kernel::ConvSwiGluGrad { .. } => "conv_swiglu_grad",
            Kernel::Scan { scan, .. } => scan.definition().name,
            Kernel::ScanGrad { scan, .. } => scan.definition().gradient,
            Kernel::CrossEntropy { .. } => "cross_entropy",
            Kernel::ShiftTargets { .. } => "shift_targets",
            Kernel::CrossEntropyGrad { .. } => "cross_entropy_grad",
            Kernel::Argmax => "argmax",
            Kernel::HeadLoss { .. } => "head_loss",
            Kernel::HeadLossGrad { .. } => "head_loss_grad",
            Kernel::Accumulate => "accumulate",
            Kernel::GradNorm => "grad_norm",
            Kernel::Clip { .. } => "clip",
            Kernel::AdamW { .. } => "adamw",
            Kernel::Muon { .. } => "muon",
        }
    }

    /// Every field as `name value`.
    pub fn attrs(&self) -> Vec<String> {
        match self {
            Kernel::EmbedGrad { vocab } => vec![format!("vocab {vocab}")],
            Kernel::Linear { bias } | Kernel::ExpertLinear { bias } => {
                vec![format!("bias {bias}")]
            }
            Kernel::TopK { count, bias } => vec![format!("count {count}"), format!("bias {bias}")],
            Kernel::Scatter { width } | Kernel::OneHot { width } => vec![format!("width {width}")],
            Kernel::ExpertLinearGradWeight { experts } | Kernel::ExpertSum { experts } => {
                vec![format!("experts {experts}")]
            }
            Kernel::RmsNorm { eps } | Kernel::L2Norm { eps } => vec![format!("eps {eps}")],
            Kernel::Pointwise(f) | Kernel::PointwiseGrad(f) => vec![f.definition().name.to_owned()],
            Kernel::GatedRmsNorm { eps, gate } => {
                vec![format!("eps {eps}"), format!("gate {gate}")]
            }
            Kernel::GatedRmsNormGrad { gate } => vec![format!("gate {gate}")],
            Kernel::Scale { by } | Kernel::Offset { by } => vec![format!("by {by}")],
            Kernel::Dropout { rate, place } => {
                vec![format!("rate {rate}"), format!("place {place}")]
            }
            Kernel::SumChannels { keep } => vec![format!("keep {keep}")],
            Kernel::Spread { width, kept } => {
                vec![format!("width {width}"), format!("kept {kept}")]
            }
            Kernel::Index { count } => vec![format!("count {count}")],
            Kernel::MixHeads { part, one } => vec![format!("part {part}"), format!("one {one}")],
            Kernel::Ngram { order, rows, state } => {
                vec![format!("order {order}"), format!("rows {rows}"), format!("state {state}")]
            }
            Kernel::Shift { state } => vec![format!("state {state}")],
            Kernel::Reshape { dims } => vec![format!("dims {dims:?}")],
            Kernel::Split { widths } => vec![format!("widths {widths:?}")],
            Kernel::Zeros { dims } => {
                let dims: Vec<String> = dims.iter().map(Extent::to_string).collect();
                vec![format!("dims [{}]", dims.join(", "))]
            }
            Kernel::Cast { to } => vec![format!("to {to}")],
            Kernel::RepeatHeads { times } | Kernel::RepeatHeadsGrad { times } => {
                vec![format!("times {times}")]
            }
            Kernel::Rope { theta, dims, layout, inverse, scaling } => [
                format!("theta {theta}"),
                format!("dims {dims}"),
                format!("layout {layout}"),
                format!("inverse {inverse}"),
            ]
            .into_iter()
            // Only where it is set: the texts of earlier plans stay as they were.
            .chain((*scaling != RopeScaling::Unscaled).then(|| format!("scaling {scaling}")))
            .collect(),
            Kernel::Attention(scores) | Kernel::AttentionGrad(scores) => {
                let Scores { window, scale, softcap, sink, slopes } = scores;
                [format!("window {}", or_none(window))]
                    .into_iter()
                    .chain(scale.map(|scale| format!("scale {scale}")))
                    .chain(softcap.map(|softcap| format!("softcap {softcap}")))
                    .chain(sink.then(|| "sink".to_owned()))
                    .chain(slopes.then(|| "slopes".to_owned()))
                    .collect()
            }
            Kernel::LastTime { rows } => vec![format!("rows {rows}")],
            Kernel::CausalConv { kernel, residual, activation, parts, bias, state } => vec![
                format!("kernel {kernel}"),
                format!("residual {residual}"),
                format!("activation {activation}"),
                format!("parts {parts}"),
                format!("bias {bias}"),
                format!("state {state}"),
            ],
            Kernel::CausalConvGrad { kernel, residual, activation, parts, bias } => vec![
                format!("kernel {kernel}"),
                format!("residual {residual}"),
                format!("activation {activation}"),
                format!("parts {parts}"),
                format!("bias {bias}"),
            ],
            Kernel::CausalConvState { kernel, parts, state } => {
                vec![format!("kernel {kernel}"), format!("parts {parts}"), format!("state {state}")]
            }
            Kernel::ConvSwiGlu { kernel, residual, bias, state } => vec![
                format!("kernel {kernel}"),
                format!("residual {residual}"),
                format!("bias {bias}"),
                format!("state {state}"),
            ],
            Kernel::ConvSwiGluGrad { kernel, residual, bias } => vec![
                format!("kernel {kernel}"),
                format!("residual {residual}"),
                format!("bias {bias}"),
            ],
            Kernel::Scan { scan: _, state, scale, steps } => [format!("state {state}")]
                .into_iter()
                .chain(scan_settings(*scale, *steps))
                .collect(),
            Kernel::ScanGrad { scan: _, scale, steps } => scan_settings(*scale, *steps),
            Kernel::ShiftTargets { by } => vec![format!("by {by}")],
            Kernel::CrossEntropy { nll_square, z_loss } => {
                vec![format!("nll_square {nll_square}"), format!("z_loss {z_loss}")]
            }
            Kernel::CrossEntropyGrad { nll_square, z_loss, weight } => {
                [format!("nll_square {nll_square}"), format!("z_loss {z_loss}")]
                    .into_iter()
                    .chain(weighted(*weight))
                    .collect()
            }
            Kernel::HeadLoss { bias, nll_square, z_loss, rows } => vec![
                format!("bias {bias}"),
                format!("nll_square {nll_square}"),
                format!("z_loss {z_loss}"),
                format!("rows {rows}"),
            ],
            Kernel::HeadLossGrad { bias, nll_square, z_loss, rows, weight } => [
                format!("bias {bias}"),
                format!("nll_square {nll_square}"),
                format!("z_loss {z_loss}"),
                format!("rows {rows}"),
            ]
            .into_iter()
            .chain(weighted(*weight))
            .collect(),
            Kernel::Clip { max } => vec![format!("max {}", or_none(max))],
            Kernel::AdamW { beta1, beta2, eps, decay, rate } => [
                format!("beta1 {beta1}"),
                format!("beta2 {beta2}"),
                format!("eps {eps}"),
                format!("decay {decay}"),
            ]
            .into_iter()
            .chain((*rate != Decimal::ONE).then(|| format!("rate {rate}")))
            .collect(),
            Kernel::Muon { muon: Muon { momentum, nesterov, scale }, decay, rate } => vec![
                format!("momentum {momentum}"),
                format!("nesterov {nesterov}"),
                format!("scale {}", scale.name()),
                format!("decay {decay}"),
                format!("rate {rate}"),
            ],
            Kernel::Embed
            | Kernel::LinearGradInput
            | Kernel::LinearGradWeight
            | Kernel::ExpertLinearGradInput
            | Kernel::MeanTokens
            | Kernel::MeanTokensGrad
            | Kernel::SumTokens
            | Kernel::RmsNormGrad
            | Kernel::L2NormGrad
            | Kernel::Add
            | Kernel::Mul
            | Kernel::Softmax
            | Kernel::SoftmaxGrad
            | Kernel::ShiftGrad
            | Kernel::SwiGlu
            | Kernel::SwiGluGrad
            | Kernel::Concat
            | Kernel::AppendTime
            | Kernel::Argmax
            | Kernel::Accumulate
            | Kernel::GradNorm => Vec::new(),
        }
    }
}

/// What differs from a recurrence's usual read-out and its one update a token.
fn scan_settings(scale: Option<Root>, steps: i64) -> Vec<String> {
    let scale = scale.map(|scale| format!("scale {scale}"));
    scale.into_iter().chain((steps != 1).then(|| format!("steps {steps}"))).collect()
}

/// The factor of a loss that is one of several.
fn weighted(weight: Root) -> Option<String> {
    (weight != Root::ONE).then(|| format!("weight {weight}"))
}

fn or_none(value: &Option<impl fmt::Display>) -> String {
    value.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windowed = |f: &mut fmt::Formatter<'_>, word: &str, window: &Option<i64>| match window {
            Some(w) => write!(f, "{word}({w})"),
            None => f.write_str(word),
        };
        match self {
            Extent::Batch => f.write_str("b"),
            Extent::Time => f.write_str("t"),
            Extent::CacheLen(window) => windowed(f, "past", window),
            Extent::KvLen(window) => windowed(f, "seen", window),
            Extent::NewCacheLen(window) => write!(f, "kept({window})"),
            Extent::Fixed(n) => write!(f, "{n}"),
        }
    }
}

impl fmt::Display for Mixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mixed::Heads => "heads",
            Mixed::Input => "input",
            Mixed::Weights => "weights",
        })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::F64 => "f64",
            DType::I64 => "i64",
        })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Forward => "forward",
            Phase::Loss => "loss",
            Phase::Recompute => "recompute",
            Phase::Backward => "backward",
            Phase::Combine => "combine",
            Phase::Update => "update",
        })
    }
}

impl fmt::Display for StatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StatePart::Inputs => "inputs",
            StatePart::Tokens => "tokens",
            StatePart::Keys => "keys",
            StatePart::Values => "values",
            StatePart::Matrix => "matrix",
        })
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Tokens => write!(f, "tokens"),
            Input::Targets => write!(f, "targets"),
            Input::Position => write!(f, "position"),
            Input::GradScale => write!(f, "grad_scale"),
            Input::DropoutKey => write!(f, "dropout_key"),
            Input::Window => write!(f, "window"),
            Input::Param(id) => write!(f, "param {}", id.0),
            Input::Rounded(id) => write!(f, "rounded {}", id.0),
            Input::State(id, part) => write!(f, "state {} {part}", id.0),
            Input::Left(output) => write!(f, "left {output}"),
            Input::Right(output) => write!(f, "right {output}"),
            Input::Gradient(id) => write!(f, "gradient {}", id.0),
            Input::FirstMoment(id) => write!(f, "first_moment {}", id.0),
            Input::SecondMoment(id) => write!(f, "second_moment {}", id.0),
            Input::LearningRate => write!(f, "learning_rate"),
            Input::StepNumber => write!(f, "step_number"),
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Output::Logits => write!(f, "logits"),
            Output::Nll => write!(f, "nll"),
            Output::Loss => write!(f, "loss"),
            Output::Counted => write!(f, "counted"),
            Output::Term(n) => write!(f, "term {n}"),
            Output::Argmax => write!(f, "argmax"),
            Output::State(id, part) => write!(f, "state {} {part}", id.0),
            Output::Gradient(id) => write!(f, "gradient {}", id.0),
            Output::GradNorm => write!(f, "grad_norm"),
            Output::Param(id) => write!(f, "param {}", id.0),
            Output::FirstMoment(id) => write!(f, "first_moment {}", id.0),
            Output::SecondMoment(id) => write!(f, "second_moment {}", id.0),
        }
    }
}

impl fmt::Display for RopeLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RopeLayout::Interleaved => "interleaved",
            RopeLayout::Half => "half",
        })
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gate::Before => "before",
            Gate::After => "after",
        })
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Activation::Identity => "none",
            Activation::Silu => "silu",
        })
    }
}
