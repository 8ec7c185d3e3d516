//! The implementation of our kernels on a GPU.
//!
//! In: a kernel of the plan, its operands' types, what was compiled. Out: our compiled kernel, or the reason for the
//! composed form. Must stay true: what is chosen here is what the launch finds, since both ask `kernels::cuda`.

use compiler::plan::{DType, Extent, Gate, Kernel, Value};
use gpu::{Launcher, Library};
use tch::Kind;

use crate::kernels::cuda::{canon, norm, rope, scan};
use crate::kernels::path::{Path, Reason};
use crate::kernels::pointwise;

/// The path of a kernel that is ours, on a launcher's device.
pub(super) fn path(kernel: &Kernel, operands: &[&Value], kind: Kind, launcher: &Launcher) -> Path {
    if kind != Kind::Float {
        return Path::Reference(Reason::Kind(kind));
    }
    match check(kernel, operands, launcher.library()) {
        Ok(()) => Path::Cuda(launcher.target()),
        Err(reason) => Path::Reference(reason),
    }
}

/// Whether libtorch has one operation for a function of one number, or its gradient, that reads these operands as they
/// are, computes in f32 and rounds once.
pub(super) fn is_single_operation(kernel: &Kernel, operands: &[&Value], kind: Kind) -> bool {
    let known = if let Kernel::PointwiseGrad(function) = kernel {
        pointwise::single_gradient(*function).is_some()
    } else {
        matches!(kernel, Kernel::Pointwise(_))
    };
    let [first, rest @ ..] = operands else { return false };
    // An f32 operand widens the others.
    known && kind == Kind::Float && rest.iter().all(|operand| operand.dtype == first.dtype)
}

fn check(kernel: &Kernel, operands: &[&Value], library: &Library) -> Result<(), Reason> {
    let width = |i: usize| match operands.get(i).and_then(|value| value.dims.last()) {
        Some(Extent::Fixed(width)) => *width,
        Some(
            Extent::Batch
            | Extent::Time
            | Extent::CacheLen(_)
            | Extent::KvLen(_)
            | Extent::NewCacheLen(_),
        )
        | None => 0,
    };
    // The dtype that the first `count` operands share.
    let shared = |count: usize| {
        let mut dtypes = operands.iter().take(count).map(|value| value.dtype);
        let first = dtypes.next().unwrap_or(DType::F32);
        if dtypes.any(|dtype| dtype != first) {
            return Err(Reason::Mixed);
        }
        kind_of(first).ok_or(Reason::Mixed)
    };
    let normed = |names: [&str; 2], count: usize, gate: Option<Gate>, x: usize| {
        let (kind, width) = (shared(count)?, width(x));
        let found = names.iter().all(|name| norm::tile(library, name, kind, gate, width).is_some());
        if found { Ok(()) } else { Err(Reason::Width(width)) }
    };
    const RMS: [&str; 2] = ["rms_norm_forward", "rms_norm_backward"];
    let l2 = |count: usize, x: usize| {
        let (kind, width) = (shared(count)?, width(x));
        let names = ["l2_norm_forward", "l2_norm_backward"];
        let found = names.iter().all(|name| norm::l2_tile(library, name, kind, width).is_some());
        if found { Ok(()) } else { Err(Reason::Width(width)) }
    };
    let convolved = |taps: i64| {
        let kind = shared(operands.len())?;
        if canon::is_compiled(library, kind, taps) { Ok(()) } else { Err(Reason::Taps(taps)) }
    };
    let scanned = |which: compiler::plan::Scan, first: usize| {
        let definition = which.definition();
        let own = operands.iter().skip(first).take(definition.operands.len());
        let kinds: Option<Vec<Kind>> = own.map(|value| kind_of(value.dtype)).collect();
        let kind = scan::kind(which, &kinds.ok_or(Reason::Mixed)?);
        let (rows, columns) = (width(first + definition.rows), width(first + definition.columns));
        scan::check(library, which, kind, rows, columns)
    };
    match kernel {
        Kernel::RmsNorm { eps: _ } => normed(RMS, 2, None, 0),
        Kernel::RmsNormGrad => normed(RMS, 3, None, 1),
        Kernel::GatedRmsNorm { eps: _, gate } => normed(RMS, 3, Some(*gate), 0),
        Kernel::GatedRmsNormGrad { gate } => normed(RMS, 4, Some(*gate), 1),
        Kernel::L2Norm { eps: _ } => l2(1, 0),
        Kernel::L2NormGrad => l2(2, 1),
        Kernel::SwiGlu => shared(2).map(|_| ()),
        Kernel::SwiGluGrad => shared(3).map(|_| ()),
        Kernel::Rope { layout, theta: _, dims: _, inverse: _, scaling: _ } => {
            let (kind, width) = (shared(1)?, width(0));
            rope::tile(library, kind, *layout, width).map(|_| ()).ok_or(Reason::Width(width))
        }
        Kernel::CausalConv { kernel, .. }
        | Kernel::CausalConvGrad { kernel, .. }
        | Kernel::ConvSwiGlu { kernel, .. }
        | Kernel::ConvSwiGluGrad { kernel, .. } => convolved(*kernel),
        Kernel::Scan { scan, state: _, scale: _, steps: _ } => scanned(*scan, 0),
        Kernel::ScanGrad { scan, scale: _, steps: _ } => scanned(*scan, 1),
        Kernel::SumTokens
        | Kernel::EmbedGrad { .. }
        | Kernel::CrossEntropy { .. }
        | Kernel::CrossEntropyGrad { .. } => shared(1).map(|_| ()),
        Kernel::HeadLoss { .. } | Kernel::HeadLossGrad { .. } => shared(2).map(|_| ()),
        Kernel::GradNorm | Kernel::AdamW { .. } => Ok(()),
        Kernel::Embed
        | Kernel::Linear { .. }
        | Kernel::LinearGradInput
        | Kernel::LinearGradWeight
        | Kernel::TopK { .. }
        | Kernel::Scatter { .. }
        | Kernel::OneHot { .. }
        | Kernel::ExpertLinear { .. }
        | Kernel::ExpertLinearGradInput
        | Kernel::ExpertLinearGradWeight { .. }
        | Kernel::ExpertSum { .. }
        | Kernel::MeanTokens
        | Kernel::MeanTokensGrad
        | Kernel::Pointwise(_)
        | Kernel::PointwiseGrad(_)
        | Kernel::Dropout { .. }
        | Kernel::Add
        | Kernel::Mul
        | Kernel::Scale { .. }
        | Kernel::Offset { .. }
        | Kernel::Softmax
        | Kernel::SoftmaxGrad
        | Kernel::SumChannels { .. }
        | Kernel::MixHeads { .. }
        | Kernel::Ngram { .. }
        | Kernel::Spread { .. }
        | Kernel::Index { .. }
        | Kernel::Shift { .. }
        | Kernel::ShiftGrad
        | Kernel::ShiftTargets { .. }
        | Kernel::Reshape { .. }
        | Kernel::Concat
        | Kernel::Split { .. }
        | Kernel::Zeros { .. }
        | Kernel::Cast { .. }
        | Kernel::RepeatHeads { .. }
        | Kernel::RepeatHeadsGrad { .. }
        | Kernel::Attention(_)
        | Kernel::AttentionGrad(_)
        | Kernel::AppendTime
        | Kernel::LastTime { .. }
        | Kernel::CausalConvState { .. }
        | Kernel::Argmax
        | Kernel::Accumulate
        | Kernel::Clip { .. }
        | Kernel::Muon { .. } => Err(Reason::Asked),
    }
}

fn kind_of(dtype: DType) -> Option<Kind> {
    match dtype {
        DType::F32 => Some(Kind::Float),
        DType::Bf16 => Some(Kind::BFloat16),
        DType::F64 | DType::I64 => None,
    }
}
