//! The implementation of our kernels on a GPU: the compiled kernel, or the reason for the composed form. What is chosen here
//! is what the launch finds, since both ask `kernels::cuda`.

use compiler::kernel::{Gate, Kernel, Recurrence};
use compiler::op::ScanKind;
use compiler::plan::{DType, Value};
use gpu::{Launcher, Library};
use tch::Kind;

use crate::kernels::cuda::{canon, norm, rope, scan};
use crate::kernels::path::{Path, Reason};

/// The path of a kernel on a launcher's device; `None` if we have no kernel for GPUs.
pub(super) fn path(
    kernel: &Kernel,
    operands: &[&Value],
    kind: Kind,
    launcher: &Launcher,
) -> Option<Path> {
    let check = check(kernel, operands, launcher.library())?;
    Some(match check {
        _ if kind != Kind::Float => Path::Reference(Reason::Kind(kind)),
        Ok(()) => Path::Cuda(launcher.target()),
        Err(reason) => Path::Reference(reason),
    })
}

/// Whether libtorch has one operation for a function of one number, or its gradient, that reads these operands as they
/// are, computes in f32 and rounds once.
pub(super) fn is_single_operation(kernel: &Kernel, operands: &[&Value], kind: Kind) -> bool {
    let known = !matches!(kernel, Kernel::PointwiseGrad(k) if !k.function.single_gradient);
    let [first, rest @ ..] = operands else { return false };
    // An f32 operand widens the others.
    known && kind == Kind::Float && rest.iter().all(|operand| operand.dtype == first.dtype)
}

/// Whether our kernel was compiled for these operands; `None` if we have none.
fn check(kernel: &Kernel, operands: &[&Value], library: &Library) -> Option<Result<(), Reason>> {
    let types = OperandTypes { operands, library };
    let any = |count: usize| types.kind(count).map(|_| ());
    let convolution = |taps: i64| types.convolution(taps);
    #[expect(clippy::wildcard_enum_match_arm, reason = "names the kernels that are compiled")]
    let compiled = match kernel {
        Kernel::RmsNorm(_) => types.rms_norm(2, None, 0),
        Kernel::RmsNormGrad(_) => types.rms_norm(3, None, 1),
        Kernel::GatedRmsNorm(k) => types.rms_norm(3, Some(k.gate), 0),
        Kernel::GatedRmsNormGrad(k) => types.rms_norm(4, Some(k.gate), 1),
        Kernel::L2Norm(_) => types.l2_norm(1, 0),
        Kernel::L2NormGrad(_) => types.l2_norm(2, 1),
        Kernel::SwiGlu(_) | Kernel::HeadLoss(_) | Kernel::HeadLossGrad(_) => any(2),
        Kernel::SwiGluGrad(_) => any(3),
        Kernel::Rope(k) => types.kind(1).and_then(|kind| {
            let width = types.width(0);
            rope::tile(library, kind, k.layout, width).map(|_| ()).ok_or(Reason::Width(width))
        }),
        Kernel::CausalConv(k) => convolution(k.kernel),
        Kernel::CausalConvGrad(k) => convolution(k.kernel),
        Kernel::ConvSwiGlu(k) => convolution(k.kernel),
        Kernel::ConvSwiGluGrad(k) => convolution(k.kernel),
        Kernel::Scan(k) => types.scan(k.scan, 0),
        Kernel::ScanGrad(k) => types.scan(k.scan, 1),
        Kernel::SumTokens(_)
        | Kernel::EmbedGrad(_)
        | Kernel::CrossEntropy(_)
        | Kernel::CrossEntropyGrad(_) => any(1),
        Kernel::GradNorm(_) | Kernel::AdamW(_) => Ok(()),
        _ => return None,
    };
    Some(compiled)
}

fn kind_of(dtype: DType) -> Option<Kind> {
    match dtype {
        DType::F32 => Some(Kind::Float),
        DType::Bf16 => Some(Kind::BFloat16),
        DType::F64 | DType::I64 => None,
    }
}

/// The operands of a kernel, and the kernels that were compiled.
struct OperandTypes<'a> {
    operands: &'a [&'a Value],
    library: &'a Library,
}

impl OperandTypes<'_> {
    fn width(&self, i: usize) -> i64 {
        let last = self.operands.get(i).and_then(|value| value.dims.last());
        last.and_then(|dim| dim.fixed()).unwrap_or(0)
    }

    /// The dtype that the first `count` operands share.
    fn kind(&self, count: usize) -> Result<Kind, Reason> {
        let mut dtypes = self.operands.iter().take(count).map(|value| value.dtype);
        let first = dtypes.next().unwrap_or(DType::F32);
        if dtypes.any(|dtype| dtype != first) {
            return Err(Reason::Mixed);
        }
        kind_of(first).ok_or(Reason::Mixed)
    }

    fn rms_norm(&self, count: usize, gate: Option<Gate>, x: usize) -> Result<(), Reason> {
        let (kind, width) = (self.kind(count)?, self.width(x));
        let names = ["rms_norm_forward", "rms_norm_backward"];
        let is_compiled =
            names.iter().all(|name| norm::tile(self.library, name, kind, gate, width).is_some());
        if is_compiled { Ok(()) } else { Err(Reason::Width(width)) }
    }

    fn l2_norm(&self, count: usize, x: usize) -> Result<(), Reason> {
        let (kind, width) = (self.kind(count)?, self.width(x));
        let names = ["l2_norm_forward", "l2_norm_backward"];
        let is_compiled =
            names.iter().all(|name| norm::l2_tile(self.library, name, kind, width).is_some());
        if is_compiled { Ok(()) } else { Err(Reason::Width(width)) }
    }

    fn convolution(&self, taps: i64) -> Result<(), Reason> {
        let kind = self.kind(self.operands.len())?;
        if canon::is_compiled(self.library, kind, taps) { Ok(()) } else { Err(Reason::Taps(taps)) }
    }

    /// Of a scan whose operands begin at `first`.
    fn scan(&self, recurrence: &Recurrence, first: usize) -> Result<(), Reason> {
        let kinds = self.operands.iter().skip(first).take(recurrence.operands.len());
        let kinds: Option<Vec<Kind>> = kinds.map(|value| kind_of(value.dtype)).collect();
        let scan = ScanKind::from_definition(recurrence).ok_or(Reason::Scan)?;
        let kind = scan::kind(scan, &kinds.ok_or(Reason::Mixed)?);
        let (rows, columns) =
            (self.width(first + recurrence.rows), self.width(first + recurrence.columns));
        scan::check(self.library, scan, kind, rows, columns)
    }
}
