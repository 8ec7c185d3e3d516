//! The implementation of each kernel of a plan on a machine, and a tally of them that a run saves.
//!
//! A choice depends only on types and is made before anything runs; if the fastest is unavailable, the choice says why.

mod on_gpu;

use std::collections::BTreeMap;
use std::fmt;

use compiler::kernel::{Class, Kernel, Scores};
use compiler::plan::{DType, Extent, Value};
use tch::Device;

use super::{KernelRequest, Machine};
use crate::kernels::linear::Product;
use crate::kernels::path::{self, Path, Reason};
use crate::kernels::{attention, canon as convolution, cuda, experts};

/// The implementation of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// No computation: its results are views of its operand's memory.
    View,
    /// libtorch's own operation.
    Library,
    /// One operation of libtorch on a GPU, which reads bf16 as it is, computes in f32 and rounds once.
    SingleOperation,
    /// A matrix product.
    Product(Product),
    /// Our kernel, by this path.
    Ours(Path),
    /// Our kernel around matrix products.
    Head(Path, Product),
    Attention(attention::Path),
    /// Products of chosen experts.
    Experts(experts::Form),
}

impl Choice {
    /// Whether it reads and writes bf16 itself, where the kernel's other implementations get copies in f32.
    pub(super) fn takes_bf16(self) -> bool {
        match self {
            Choice::SingleOperation
            | Choice::Ours(Path::Cuda(_))
            | Choice::Head(Path::Cuda(_), _)
            | Choice::Attention(attention::Path::Flash | attention::Path::Fused(_)) => true,
            Choice::Ours(Path::Fused(_) | Path::Reference(_))
            | Choice::Attention(attention::Path::Reference(_))
            | Choice::View
            | Choice::Library
            | Choice::Head(..)
            | Choice::Experts(..)
            | Choice::Product(_) => false,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::View => f.write_str("view"),
            Choice::Library | Choice::SingleOperation => f.write_str("libtorch"),
            Choice::Product(product) => product.fmt(f),
            Choice::Ours(path) => path.fmt(f),
            Choice::Head(path @ Path::Fused(_), Product::Library) => {
                write!(f, "{path}, products libtorch")
            }
            Choice::Head(path, _) => path.fmt(f),
            Choice::Attention(path) => path.fmt(f),
            Choice::Experts(form) => form.fmt(f),
        }
    }
}

/// The choice for `kernel` on `machine`. `pieces`: in a plan that continues from a state, so a call may have a single
/// token.
pub fn choose(kernel: &Kernel, operands: &[&Value], machine: Machine, pieces: bool) -> Choice {
    let Machine { device, kind, kernels } = machine;
    let KernelRequest { all: asked, canon, gated_norm } = kernels;
    // Where our compiled CUDA kernels run.
    let launcher = cuda::launcher(device).ok();
    let composed = || path::choose(kind, device);
    let path_unless = |asked: bool| match (asked, launcher) {
        (true, _) => Path::Reference(Reason::Asked),
        (false, Some(launcher)) => {
            on_gpu::path(kernel, operands, kind, launcher).unwrap_or_else(composed)
        }
        (false, None) => composed(),
    };
    let bf16 = operands.iter().any(|operand| operand.dtype == DType::Bf16);
    match kernel.facts().class {
        Class::View => Choice::View,
        Class::Library => Choice::Library,
        Class::LibraryOnCpu => match path_unless(asked || launcher.is_none()) {
            Path::Reference(_) => Choice::Library,
            path @ (Path::Fused(_) | Path::Cuda(_)) => Choice::Ours(path),
        },
        Class::Function => {
            let on_gpu = launcher.is_some() || matches!(device, Device::Cuda(_));
            match on_gpu && on_gpu::is_single_operation(kernel, operands, kind) {
                true => Choice::SingleOperation,
                false => Choice::Library,
            }
        }
        Class::Ours => Choice::Ours(path_unless(asked)),
        Class::GatedNorm => Choice::Ours(path_unless(asked || gated_norm)),
        Class::Convolution { taps } => Choice::Ours(match (asked || canon, launcher) {
            (false, None) => convolution::choose(taps, kind, device),
            (asked, _) => path_unless(asked),
        }),
        Class::Product if asked => Choice::Product(Product::Library),
        Class::Product => {
            Choice::Product(product(pieces && matches!(kernel, Kernel::Linear(_)), bf16, machine))
        }
        Class::Experts => {
            let few = pieces && !bf16 && matches!(kernel, Kernel::ExpertLinear(_));
            Choice::Experts(experts_form(few, bf16, machine))
        }
        Class::Head => {
            let path = path_unless(asked);
            // With an operand in f32, all are widened.
            let bf16 = bf16 && !operands.iter().any(|operand| operand.dtype == DType::F32);
            Choice::Head(path, if bf16 { Product::Library } else { Product::by(path) })
        }
        Class::Attention { scores, first } => Choice::Attention(match asked {
            true => attention::Path::Reference(attention::Reason::Asked),
            false => attend(&scores, operands.get(first..).unwrap_or(&[]), machine),
        }),
    }
}

/// A matrix product; `few`: of few rows.
fn product(few: bool, bf16: bool, Machine { device, kind, .. }: Machine) -> Product {
    match (few, bf16) {
        (true, _) => Product::choose_few(kind, device, bf16),
        (false, true) => Product::Library,
        (false, false) => Product::choose(kind, device),
    }
}

fn experts_form(few: bool, bf16: bool, machine: Machine) -> experts::Form {
    match (machine.kernels.all, machine.device) {
        (true, _) => experts::Form::Dense(Reason::Asked),
        // To sort pairs by expert would wait for the device.
        (false, device @ (Device::Cuda(_) | Device::Mps | Device::Vulkan)) => {
            experts::Form::Dense(Reason::Device(device))
        }
        (false, Device::Cpu) => experts::Form::Sorted(product(few, bf16, machine)),
    }
}

/// The path of attention with q, k and v among the first of these operands.
fn attend(scores: &Scores, operands: &[&Value], machine: Machine) -> attention::Path {
    let width = |i: usize| operands.get(i).and_then(|value| value.dims.last()).copied();
    let even = width(1) == width(2);
    // Under bf16 the flash kernel of a GPU takes the operands as they are; the CPU's computes in f32.
    let kind = match (machine.device, operands.first()) {
        (Device::Cuda(_), Some(q)) => machine.kind_of(q.dtype),
        (_, _) => machine.kind,
    };
    let width = width(0).and_then(Extent::fixed).unwrap_or(0);
    attention::choose(scores, even, width, machine.device, kind)
}

/// How often each kernel took each path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths {
    counts: BTreeMap<(&'static str, String), u64>,
}

impl Paths {
    /// `plain` of `times` launched a plain image of our CUDA kernels.
    pub(super) fn add(&mut self, kernel: &'static str, choice: Choice, times: u64, plain: u64) {
        let mut count = |path: String, times: u64| {
            if times > 0 {
                *self.counts.entry((kernel, path)).or_default() += times;
            }
        };
        count(choice.to_string(), times - plain.min(times));
        count(format!("{choice}, plain image"), plain.min(times));
    }

    pub fn merge(&mut self, other: &Paths) {
        for ((kernel, path), times) in &other.counts {
            *self.counts.entry((kernel, path.clone())).or_default() += times;
        }
    }

    /// Each kernel, path and count, ordered by kernel, then path.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, u64)> {
        self.counts.iter().map(|((kernel, path), times)| (*kernel, path.as_str(), *times))
    }
}

#[cfg(test)]
mod tests {
    use compiler::kernel::{self, Activation};
    use compiler::op::ScanKind;
    use dsl::Decimal;
    use tch::Kind;

    use super::*;
    use crate::kernels::Isa;
    use crate::kernels::linear::blas_is_faster;

    fn path(kernel: impl Into<Kernel>, operands: &[&Value], machine: Machine) -> String {
        choose(&kernel.into(), operands, machine, false).to_string()
    }

    fn heads(time: Extent, width: i64) -> Value {
        let dims = vec![Extent::Batch, time, Extent::Fixed(2), Extent::Fixed(width)];
        Value { name: "x".into(), dims, dtype: DType::F32 }
    }

    #[test]
    fn what_cannot_be_fast_says_why_before_it_runs() {
        let fast =
            Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };
        let cuda = Machine { device: Device::Cuda(0), ..fast };
        let double = Machine { kind: Kind::Double, ..fast };
        let plain = Machine { kernels: KernelRequest::REFERENCE, ..fast };
        let swiglu = |machine| path(kernel::SwiGlu, &[], machine);
        assert!(swiglu(fast).starts_with("fused/"));
        assert_eq!(swiglu(cuda), "reference (on Cuda(0))");
        assert_eq!(swiglu(double), "reference (Double)");
        assert_eq!(swiglu(plain), "reference (asked for)");
        for scan in ScanKind::ALL {
            let grad = kernel::ScanGrad { scan: scan.definition(), scale: None, steps: 1 };
            assert!(path(grad.clone(), &[], fast).starts_with("fused/"));
            assert_eq!(path(grad, &[], double), "reference (Double)");
        }
        assert_eq!(path(kernel::Concat, &[], plain), "libtorch");
        assert_eq!(path(kernel::Reshape { dims: vec![] }, &[], fast), "view");
    }

    #[test]
    fn a_single_token_is_a_product_of_our_own() {
        let fast =
            Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };
        let linear = kernel::Linear { bias: false }.into();
        let path = |machine, pieces| choose(&linear, &[], machine, pieces).to_string();
        assert!(path(fast, true).starts_with("libtorch, fused/"));
        assert!(path(fast, true).ends_with(" up to 64 rows"));
        assert_eq!(path(Machine { kernels: KernelRequest::REFERENCE, ..fast }, true), "libtorch");
        assert_eq!(path(Machine { kind: Kind::Double, ..fast }, true), "libtorch");
    }

    #[test]
    fn products_in_f32_are_ours_except_on_intel() {
        let fast =
            Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };
        let plain = Machine { kernels: KernelRequest::REFERENCE, ..fast };
        let x = |dtype| Value { dtype, ..heads(Extent::Time, 8) };
        let (f32, bf16) = (x(DType::F32), x(DType::Bf16));
        let products: [Kernel; 3] = [
            kernel::Linear { bias: false }.into(),
            kernel::LinearGradInput.into(),
            kernel::LinearGradWeight.into(),
        ];
        for kernel in products {
            let path = |operands: &[&Value], machine| {
                choose(&kernel, operands, machine, false).to_string()
            };
            let fused = Isa::of_process() != Isa::Portable && !blas_is_faster();
            assert_eq!(path(&[&f32, &f32], fast).starts_with("fused/"), fused);
            assert_eq!(path(&[&f32, &bf16], fast), "libtorch");
            assert_eq!(path(&[&f32, &f32], plain), "libtorch");
            let double = Machine { kind: Kind::Double, ..fast };
            assert_eq!(path(&[&f32, &f32], double), "libtorch");
        }
    }

    #[test]
    fn every_choice_is_a_path_that_a_record_may_have() {
        let mut paths = Paths::default();
        for choice in choices() {
            // With a plain image, if there are images.
            let images =
                matches!(choice, Choice::Ours(Path::Cuda(_)) | Choice::Head(Path::Cuda(_), _));
            paths.add("kernel", choice, 2, u64::from(images));
        }
        assert!(paths.iter().any(|(_, path, _)| path == "fused/cuda/ptx_80, plain image"));
        for (_, path, _) in paths.iter() {
            assert!(records::run::is_path(path), "{path}");
        }
    }

    /// At least one of every kind of choice.
    fn choices() -> Vec<Choice> {
        use crate::kernels::path::Reason;
        let (cpu, gpu) = (Device::Cpu, Device::Cuda(3));
        let ours = [
            Reason::Device(gpu),
            Reason::Kind(Kind::BFloat16),
            Reason::KernelSize(9),
            Reason::Width(48),
            Reason::Taps(9),
            Reason::Mixed,
            Reason::State(48, 96),
            Reason::Scan,
            Reason::Asked,
        ]
        .map(Path::Reference);
        let isas = [Isa::Avx512, Isa::Avx2, Isa::Portable];
        let fused = isas.map(Path::Fused).into_iter().chain(gpu::Target::ALL.map(Path::Cuda));
        let widths = [(false, 8), (true, 12), (true, 8)];
        let mut choices = vec![
            Choice::View,
            Choice::Library,
            Choice::SingleOperation,
            Choice::Product(Product::Library),
        ];
        choices.extend(isas.map(|isa| Choice::Product(Product::FewRows(isa, 4))));
        choices.extend(isas.map(|isa| Choice::Product(Product::Tiles(isa))));
        for path in ours.into_iter().chain(fused) {
            choices.push(Choice::Ours(path));
            choices.push(Choice::Head(path, Product::by(path)));
            choices.push(Choice::Head(path, Product::Library));
        }
        for (device, kind) in [cpu, gpu].into_iter().flat_map(|device| {
            [Kind::Float, Kind::Double, Kind::BFloat16].map(|kind| (device, kind))
        }) {
            let with = [
                Scores::PLAIN,
                Scores { softcap: Some(dsl::Decimal::ZERO), ..Scores::PLAIN },
                Scores { sink: true, ..Scores::PLAIN },
                Scores { slopes: true, ..Scores::PLAIN },
            ];
            choices.extend(with.iter().flat_map(|scores| {
                widths.map(|(even, width)| {
                    Choice::Attention(attention::choose(scores, even, width, device, kind))
                })
            }));
        }
        choices.push(Choice::Attention(attention::Path::Reference(attention::Reason::Asked)));
        for product in
            isas.into_iter().flat_map(|isa| [Product::Tiles(isa), Product::FewRows(isa, 64)])
        {
            choices.push(Choice::Experts(experts::Form::Sorted(product)));
        }
        choices.push(Choice::Experts(experts::Form::Sorted(Product::Library)));
        choices.push(Choice::Experts(experts::Form::Dense(Reason::Device(gpu))));
        choices.push(Choice::Experts(experts::Form::Dense(Reason::Asked)));
        choices
    }

    #[test]
    fn the_products_of_the_head_are_named() {
        let fast =
            Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };
        let x = |dtype| Value { dtype, ..heads(Extent::Time, 8) };
        let (f32, bf16) = (x(DType::F32), x(DType::Bf16));
        let none = dsl::Decimal::ZERO;
        let kernel =
            Kernel::from(kernel::HeadLoss { bias: false, nll_square: none, z_loss: none, rows: 8 });
        let path =
            |operands: &[&Value], machine| choose(&kernel, operands, machine, false).to_string();
        let isa = Isa::of_process();
        let ours = !blas_is_faster() && isa != Isa::Portable;
        let (tiles, library) = (format!("fused/{isa}"), format!("fused/{isa}, products libtorch"));
        assert_eq!(path(&[&f32, &f32], fast), if ours { &*tiles } else { &*library });
        assert_eq!(path(&[&f32, &bf16], fast), if ours { &*tiles } else { &*library });
        assert_eq!(path(&[&bf16, &bf16], fast), library);
        let plain = Machine { kernels: KernelRequest::REFERENCE, ..fast };
        assert_eq!(path(&[&f32, &f32], plain), "reference (asked for)");
    }

    #[test]
    fn a_plain_canon_leaves_the_others_fast() {
        let machine = Machine {
            device: Device::Cpu,
            kind: Kind::Float,
            kernels: KernelRequest { canon: true, ..KernelRequest::FASTEST },
        };
        let canon = kernel::CausalConv {
            kernel: 4,
            residual: true,
            activation: Activation::Identity,
            parts: 1,
            bias: false,
            state: false,
        };
        assert_eq!(path(canon, &[], machine), "reference (asked for)");
        assert!(path(kernel::SwiGlu, &[], machine).starts_with("fused/"));
    }

    #[test]
    fn the_path_of_attention_depends_on_its_operands() {
        let fast =
            Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };
        let (now, wide) = (heads(Extent::Time, 8), heads(Extent::Time, 16));
        let seen = heads(Extent::KvLen(None), 8);
        let chosen = |window, k: &Value, v: &Value, machine| {
            let scores = Scores { window, ..Scores::PLAIN };
            path(kernel::Attention { scores }, &[&now, k, v], machine)
        };
        for (window, v) in [(None, &now), (Some(4), &now), (None, &wide)] {
            assert!(chosen(window, &now, v, fast).starts_with("fused/"));
        }
        assert!(chosen(None, &seen, &heads(Extent::KvLen(None), 16), fast).starts_with("fused/"));
        let cuda = Machine { device: Device::Cuda(1), ..fast };
        assert_eq!(chosen(None, &now, &now, cuda), "reference (Float)");
        let half = |x: &Value| Value { dtype: DType::Bf16, ..x.clone() };
        let (half_now, half_wide) = (half(&now), half(&wide));
        let flash = |window, q: &Value, v: &Value| {
            let scores = Scores { window, ..Scores::PLAIN };
            path(kernel::Attention { scores }, &[q, q, v], cuda)
        };
        assert_eq!(flash(Some(4), &half_now, &half_now), "libtorch flash");
        assert_eq!(flash(None, &half_now, &half_wide), "reference (value width is not key width)");
        let odd = half(&heads(Extent::Time, 12));
        assert_eq!(flash(None, &odd, &odd), "reference (no flash attention for heads of 12)");
        let grad = kernel::AttentionGrad { scores: Scores::PLAIN };
        assert!(path(grad, &[&now, &now, &now, &wide], fast).starts_with("fused/"));
        // What is inside the softmax: our kernel bounds scores and has sinks, libtorch's has neither.
        let sink = Scores { sink: true, softcap: Some(Decimal::ONE), ..Scores::PLAIN };
        let chosen =
            |scores, k: &Value, machine| path(kernel::Attention { scores }, &[&now, k, k], machine);
        assert!(chosen(sink, &now, fast).starts_with("fused/"));
        assert!(chosen(sink, &seen, fast).starts_with("fused/"));
        assert_eq!(chosen(sink, &now, cuda), "reference (libtorch's flash kernel has no softcap)");
        let slopes = Scores { slopes: true, ..Scores::PLAIN };
        assert_eq!(chosen(slopes, &now, fast), "reference (the fused kernel has no slopes)");
    }
}
