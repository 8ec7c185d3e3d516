//! Every computation the runtime supports: a file for a kernel and its gradient, with all that the rest of the program
//! knows about them.
//!
//! A kernel is a struct whose fields are its settings. Its doc comment is the contract: operands in order with shapes,
//! results in order with shapes, meaning. Its row has what follows from the contract. Every result is overwritten,
//! never accumulated into, and is new memory unless `Facts::over` or [`Kernel::is_view`] says otherwise;
//! reductions run in one fixed order.
//!
//! Shapes: b batch, t time, c channels, h heads, d head width, `…` any leading axes ([b, t], [b, t, h],
//! or none for functions of parameters alone); [] is a scalar. In a plan in f32 everything is f32 unless stated otherwise.
//! In a plan in bf16 operands may be bf16: every kernel then computes in f32 and rounds its results once (matrix products
//! add in f32), and `results` gives the dtypes of the results: activations and their gradients are like the
//! operand, statistics, states of scans and gradients of parameters are f32.

/// A kernel: its contract, its settings, and its row.
///
/// The settings are in the text of a plan, which is hashed, in order. One with a value behind it is left out where it has
/// that value, so that the texts of earlier plans stay as they were. `facts` is what the rest of the program asks about it.
/// `results` has the types and names of the results; a wrong number of operands gives a wrong shape, which `Plan::check`
/// reports. `flops` counts floating-point operations by the contract, not by an implementation. A multiply-add is two. A
/// kernel with matrix products counts only these: what it does for each element is less than one in a hundred of them at
/// usual widths. Any other counts the operations of its formula. Comparisons, copies and integers count nothing; a gradient
/// counts what its contract makes it compute again. `value` has the results in f64, for tests.
macro_rules! kernel {
    (@definition $name:ident [$($field:ident $(= $usual:expr)?,)*]
        facts: $facts:expr,
        results: $results:expr,
        flops: $flops:expr,
        $(scratch: $scratch:expr,)?
        value: $value:expr,
    ) => {
        impl $crate::kernel::Definition for $name {
            fn facts(&self) -> Facts {
                let facts: fn(&Self) -> Facts = $facts;
                facts(self)
            }

            fn settings(&self) -> Vec<String> {
                let settings: &[(&str, bool, &dyn Setting)] = &[
                    $((stringify!($field), true $(&& self.$field != $usual)?, &self.$field),)*
                ];
                let written = settings.iter().filter(|(_, written, _)| *written);
                written.flat_map(|(name, _, setting)| setting.text(name)).collect()
            }

            fn results(&self, operands: OperandTypes<'_>) -> Vec<Value> {
                let results: fn(&Self, OperandTypes<'_>) -> Vec<Value> = $results;
                results(self, operands)
            }

            fn flops(&self, shapes: &Shapes) -> i128 {
                let flops: fn(&Self, &Shapes) -> i128 = $flops;
                flops(self, shapes)
            }

            $(fn scratch(&self, shapes: &Shapes, bf16: Bf16) -> i128 {
                let scratch: fn(&Self, &Shapes, Bf16) -> i128 = $scratch;
                scratch(self, shapes, bf16)
            })?

            #[cfg(test)]
            fn value(&self, operands: &[&Tensor], sizes: Sizes) -> Vec<Tensor> {
                let value: fn(&Self, &[&Tensor], Sizes) -> Vec<Tensor> = $value;
                value(self, operands, sizes)
            }
        }
    };
    ($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty $(= $usual:expr)?,)*
    } $($row:tt)*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        kernel! { @definition $name [$($field $(= $usual)?,)*] $($row)* }
    };
    ($(#[$doc:meta])* $name:ident $($row:tt)*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name;

        kernel! { @definition $name [] $($row)* }
    };
}

mod arithmetic;
mod arrange;
mod attention;
mod cache;
mod causal_conv;
mod channels;
mod conv_swiglu;
mod cross_entropy;
mod dropout;
mod embed;
mod expert_linear;
mod gated_rms_norm;
mod head_loss;
mod l2_norm;
mod linear;
mod mix_heads;
mod muon;
mod ngram;
mod pointwise;
mod repeat_heads;
mod rms_norm;
mod rope;
mod scan;
mod setting;
mod shapes;
mod shift;
mod softmax;
mod swiglu;
#[cfg(test)]
pub(crate) mod tensor;
mod tokens;
mod top_k;
mod types;
mod update;

pub(crate) use self::shapes::{Shape, Shapes};
#[cfg(test)]
use self::tensor::Tensor;
pub(crate) use self::types::OperandTypes;
#[cfg(test)]
use crate::value::Sizes;
use crate::value::Value;

pub use self::attention::{FEW_QUERIES, Scores};
pub use self::causal_conv::Activation;
pub use self::cross_entropy::IGNORED;
pub use self::gated_rms_norm::Gate;
pub use self::mix_heads::Mixed;
pub use self::muon::MuonScale;
pub use self::pointwise::PointwiseFunction;
pub use self::rope::{RopeLayout, RopeScaling};
pub use self::scan::Recurrence;
#[cfg(test)]
pub(crate) use self::scan::reference;

/// The list of kernels.
macro_rules! kernels {
    ($($file:ident: $($name:ident)*,)*) => {
        $(pub use self::$file::{$($name),*};)*

        /// Computations that the runtime has a kernel for.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Kernel {
            $($(
                #[doc = concat!("See [`", stringify!($name), "`](struct@", stringify!($name), ").")]
                $name($name),
            )*)*
        }

        impl Kernel {
            /// Everything about it.
            pub(crate) fn definition(&self) -> &dyn Definition {
                match self {
                    $($(Kernel::$name(kernel) => kernel,)*)*
                }
            }
        }

        $($(
            impl From<$name> for Kernel {
                fn from(kernel: $name) -> Kernel {
                    Kernel::$name(kernel)
                }
            }
        )*)*
    };
}

kernels! {
    arithmetic: Add Mul Scale Offset Accumulate,
    arrange: Reshape Concat Split Zeros Index Cast,
    attention: Attention AttentionGrad,
    cache: AppendTime LastTime,
    causal_conv: CausalConv CausalConvGrad CausalConvState,
    channels: SumChannels Spread,
    conv_swiglu: ConvSwiGlu ConvSwiGluGrad,
    cross_entropy: CrossEntropy CrossEntropyGrad Argmax,
    dropout: Dropout,
    embed: Embed EmbedGrad,
    expert_linear: ExpertLinear ExpertLinearGradInput ExpertLinearGradWeight ExpertSum,
    gated_rms_norm: GatedRmsNorm GatedRmsNormGrad,
    head_loss: HeadLoss HeadLossGrad,
    l2_norm: L2Norm L2NormGrad,
    linear: Linear LinearGradInput LinearGradWeight,
    mix_heads: MixHeads,
    muon: Muon,
    ngram: Ngram,
    pointwise: Pointwise PointwiseGrad,
    repeat_heads: RepeatHeads RepeatHeadsGrad,
    rms_norm: RmsNorm RmsNormGrad,
    rope: Rope,
    scan: Scan ScanGrad,
    shift: Shift ShiftGrad ShiftTargets,
    softmax: Softmax SoftmaxGrad,
    swiglu: SwiGlu SwiGluGrad,
    tokens: SumTokens MeanTokens MeanTokensGrad,
    top_k: TopK Scatter OneHot,
    update: GradNorm Clip AdamW,
}

setting::displayed!(Activation, Gate, Mixed, MuonScale, RopeLayout, RopeScaling);

/// What the files of kernels use.
mod prelude {
    pub(super) use dsl::Decimal;

    pub(super) use super::setting::Setting;
    pub(super) use super::shapes::{FUNCTION, SILU, SILU_SLOPE, Shapes};
    #[cfg(test)]
    pub(super) use super::tensor::{Tensor, concat, silu, silu_slope, zip};
    pub(super) use super::types::{
        OperandTypes, f32, last, outer, per_head, scalar, skip, take, value, width, with_last,
    };
    pub(super) use super::{Apart, Bf16, Class, Facts};
    pub(super) use crate::number::Root;
    #[cfg(test)]
    pub(super) use crate::value::Sizes;
    pub(super) use crate::value::{DType, Extent, Value, fixed};
}

/// Everything about a kernel.
pub(crate) trait Definition {
    fn facts(&self) -> Facts;
    /// Each as `name value`.
    fn settings(&self) -> Vec<String>;
    fn results(&self, operands: OperandTypes<'_>) -> Vec<Value>;
    fn flops(&self, shapes: &Shapes) -> i128;
    /// Bytes that it takes for itself while it runs, if that grows with the batch, the vocabulary or a parameter.
    fn scratch(&self, _: &Shapes, _: Bf16) -> i128 {
        0
    }
    #[cfg(test)]
    fn value(&self, operands: &[&Tensor], sizes: Sizes) -> Vec<Tensor>;
}

/// What the rest of the program asks about a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Its name in texts, tables and profiles.
    pub name: &'static str,
    /// What computes it.
    pub class: Class,
    /// Whether it costs a few operations for each number that it makes. `recompute` repeats such steps.
    pub cheap: bool,
    /// Whether it reads bf16 without a copy in f32: it moves elements, rounds a single operation, or is a matrix product.
    pub reads_bf16: bool,
    /// What of a batch is computed by itself, so that several sequences can be computed together.
    pub apart: Apart,
    /// Operands, the last ones, that are read as numbers on the CPU. They are the caller's: to read what a step has computed
    /// on a device would wait for it.
    pub host: usize,
    /// The operand that each result is written over, in order.
    pub over: &'static [usize],
    /// Whether libtorch rounds between its operations on bf16, so that also a GPU gets copies in f32.
    pub rounds_between: bool,
}

impl Facts {
    /// A kernel of which nothing else is special.
    fn new(name: &'static str, class: Class) -> Facts {
        Facts {
            name,
            class,
            cheap: false,
            reads_bf16: false,
            apart: Apart::Batch,
            host: 0,
            over: &[],
            rounds_between: false,
        }
    }

    fn cheap(self) -> Facts {
        Facts { cheap: true, ..self }
    }

    fn reads_bf16(self) -> Facts {
        Facts { reads_bf16: true, ..self }
    }

    fn apart(self, apart: Apart) -> Facts {
        Facts { apart, ..self }
    }

    fn host(self, host: usize) -> Facts {
        Facts { host, ..self }
    }

    fn over(self, over: &'static [usize]) -> Facts {
        Facts { over, ..self }
    }

    fn rounds_between(self, rounds_between: bool) -> Facts {
        Facts { rounds_between, ..self }
    }
}

/// What computes a kernel, apart from a plain form by libtorch that each has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Class {
    /// Nothing: its results are views of its operand's memory.
    View,
    /// Operations of libtorch.
    Library,
    /// libtorch on the CPU, our own kernel on a GPU.
    LibraryOnCpu,
    /// A function of one number, or its gradient: one operation of libtorch on a GPU.
    Function,
    /// Our own kernel.
    Ours,
    /// Our own kernel of a gated norm, for which a platform field can ask for the plain form.
    GatedNorm,
    /// Our own kernel of a convolution over time, for which a platform field can ask for the plain form.
    Convolution {
        /// Number of taps.
        taps: i64,
    },
    /// A matrix product.
    Product,
    /// Matrix products of chosen experts.
    Experts,
    /// Our own kernel around matrix products.
    Head,
    /// Attention.
    Attention {
        /// How keys are scored.
        scores: Scores,
        /// The place of q among the operands; k and v follow.
        first: usize,
    },
}

/// What of a batch a kernel computes by itself, with the same operations whatever is beside it. Of a kernel that adds
/// numbers up this is true of our own kernels, not of libtorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Each token.
    Tokens,
    /// Each sequence.
    Sequences,
    /// Nothing smaller, or it is not known.
    Batch,
}

/// Which kernels read bf16 as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bf16 {
    /// Those that move elements and matrix products; the others get copies in f32.
    Some,
    /// All but a few gradients of functions of single elements, as on a GPU.
    Most,
}

impl Kernel {
    /// What the rest of the program asks about it.
    pub fn facts(&self) -> Facts {
        self.definition().facts()
    }

    /// Its name in texts, tables and profiles.
    pub fn name(&self) -> &'static str {
        self.facts().name
    }

    /// Every setting as `name value`.
    pub fn attrs(&self) -> Vec<String> {
        self.definition().settings()
    }

    /// Whether the outputs share the memory of the first input.
    pub fn is_view(&self) -> bool {
        self.facts().class == Class::View
    }
}
