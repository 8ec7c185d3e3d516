//! The primitives: the only operations a `.canon` text cannot define for itself.
//!
//! Each has a file of its name under `op/` with every fact about it: paper and equation, shapes, cost, lowering, gradient
//! rule, label, its value in PyTorch, examples for the tests, and a plain reference. A primitive exists only because it
//! needs state over time or a kernel, or because no text expresses it exactly, and says which; mixers, gates, MLPs and
//! decoders are not primitives. Changing what a primitive computes raises its `revision`, part of every graph hash.

mod add;
mod ahead_loss;
mod attention;
mod aux_loss;
mod canon;
mod channel_softmax;
mod concat;
mod delta_scan;
mod dplr_scan;
mod dropout;
mod embed;
mod exp;
mod expert_linear;
mod f32;
mod gelu;
mod gla_scan;
mod heads;
mod index;
mod l2_norm;
mod latent_attention;
mod linear;
mod log;
mod logsigmoid;
mod mean;
mod merge;
mod mix_heads;
mod mul;
mod ngram;
mod offset;
mod one_hot;
mod reciprocal;
mod relu;
mod repeat_heads;
mod rms_norm;
mod rope;
mod rwkv6_scan;
mod scale;
mod shift;
mod short_conv;
mod sigmoid;
mod silu;
mod softplus;
mod split;
mod spread;
mod ssd_scan;
mod sum;
mod tanh;
mod top_k;

use std::fmt;

use crate::builder::{Backward, Call, Forward, Gradients, Lowered, PlanBuilder};
use crate::kernel::{self, PointwiseFunction, Recurrence};
use crate::number::Root;
use crate::plan::ValId;

pub use self::rope::scaling as rope_scaling;
pub use crate::ir::{
    Arity, Attr, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn,
    Mismatch, Owned, Shaped, Shown, State, Time, Type,
};

/// Every primitive, by name. `param` is not among them: it is syntax, and has its own node in the graph.
pub static ALL: &[&Primitive] = &[
    &add::PRIMITIVE,
    &ahead_loss::PRIMITIVE,
    &attention::PRIMITIVE,
    &aux_loss::PRIMITIVE,
    &canon::PRIMITIVE,
    &channel_softmax::PRIMITIVE,
    &concat::PRIMITIVE,
    &delta_scan::PRIMITIVE,
    &dplr_scan::PRIMITIVE,
    &dropout::PRIMITIVE,
    &embed::PRIMITIVE,
    &exp::PRIMITIVE,
    &expert_linear::PRIMITIVE,
    &f32::PRIMITIVE,
    &gelu::PRIMITIVE,
    &gla_scan::PRIMITIVE,
    &heads::PRIMITIVE,
    &index::PRIMITIVE,
    &l2_norm::PRIMITIVE,
    &latent_attention::PRIMITIVE,
    &linear::PRIMITIVE,
    &log::PRIMITIVE,
    &logsigmoid::PRIMITIVE,
    &mean::PRIMITIVE,
    &merge::PRIMITIVE,
    &mix_heads::PRIMITIVE,
    &mul::PRIMITIVE,
    &ngram::PRIMITIVE,
    &offset::PRIMITIVE,
    &one_hot::PRIMITIVE,
    &reciprocal::PRIMITIVE,
    &relu::PRIMITIVE,
    &repeat_heads::PRIMITIVE,
    &rms_norm::PRIMITIVE,
    &rope::PRIMITIVE,
    &rwkv6_scan::PRIMITIVE,
    &scale::PRIMITIVE,
    &shift::PRIMITIVE,
    &short_conv::PRIMITIVE,
    &sigmoid::PRIMITIVE,
    &silu::PRIMITIVE,
    &softplus::PRIMITIVE,
    &split::PRIMITIVE,
    &spread::PRIMITIVE,
    &ssd_scan::PRIMITIVE,
    &sum::PRIMITIVE,
    &tanh::PRIMITIVE,
    &top_k::PRIMITIVE,
];

/// A list of definitions as an enum, so that a new one does not compile until the runtime has a kernel for it.
macro_rules! listed {
    ($(#[$doc:meta])* $name:ident: $kind:ty { $($variant:ident => $definition:path,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(
                #[doc = concat!("Defined by `", stringify!($definition), "`.")]
                $variant,
            )*
        }

        impl $name {
            /// All of them, in the order of the names.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The definition in the primitive's own file.
            pub fn definition(self) -> &'static $kind {
                match self {
                    $($name::$variant => &$definition,)*
                }
            }

            /// The one with this definition.
            pub fn from_definition(definition: &$kind) -> Option<$name> {
                Self::ALL.iter().copied().find(|listed| listed.definition() == definition)
            }
        }
    };
}

listed! {
    /// The primitives that are a function of one number.
    Function: PointwiseFunction {
        Exp => exp::FUNCTION,
        GeluErf => gelu::ERF,
        GeluTanh => gelu::TANH,
        Log => log::FUNCTION,
        LogSigmoid => logsigmoid::FUNCTION,
        Reciprocal => reciprocal::FUNCTION,
        Relu => relu::FUNCTION,
        Sigmoid => sigmoid::FUNCTION,
        Silu => silu::FUNCTION,
        Softplus => softplus::FUNCTION,
        Tanh => tanh::FUNCTION,
    }
}

listed! {
    /// The primitives that are a linear recurrence with a matrix per head.
    ScanKind: Recurrence {
        Delta => delta_scan::SCAN,
        Dplr => dplr_scan::SCAN,
        Gla => gla_scan::SCAN,
        Rwkv6 => rwkv6_scan::SCAN,
        Ssd => ssd_scan::SCAN,
    }
}

/// The primitive that predicts later tokens.
pub(crate) const AHEAD: &str = "ahead_loss";

/// The primitive that draws numbers.
pub(crate) const DROPOUT: &str = "dropout";

/// The attribute of `dropout` that keys its draws: the path of the call, from the layer down.
pub(crate) const DRAWN_AT: &str = "at";

/// The primitive with this name.
pub fn find(name: &str) -> Option<&'static Primitive> {
    ALL.iter().copied().find(|p| p.name == name)
}

/// Words that are configuration values; looked up after everything else.
pub const WORDS: [&str; 10] = [
    "interleaved",
    "half",
    "none",
    "silu",
    "interpolated",
    "ntk",
    "llama3",
    "yarn",
    "balance",
    "router_z",
];

/// The definition of one primitive: one file and one row of [`ALL`] each.
pub struct Primitive {
    /// Name in calls.
    pub name: &'static str,
    /// Raised when the mathematics changes; part of the structural hash.
    pub revision: u32,
    /// One line: the computation and its source.
    pub doc: &'static str,
    /// Why no text computes it, in a phrase.
    pub why: &'static str,
    /// Its value as an expression of PyTorch, with operands `{0}`, `{1}` and configuration `{name}`; `None` if it is a
    /// function of a file under `interop/torch/`.
    pub torch: Option<&'static str>,
    /// Number of tensor operands.
    pub tensors: Arity,
    /// Configuration parameters, in the order of positional arguments.
    pub config: &'static [Config],
    /// How it depends on other time steps.
    pub time: Time,
    /// Checks shapes; returns parameters, state and results.
    pub shape: fn(&Attrs, &[Type]) -> Result<Shaped, Mismatch>,
    /// Forward cost per token, given the shaped operands (tensors, then parameters).
    pub cost: fn(&Attrs, &[Type], &[Type], Context) -> Cost,
    /// Emits the steps of a call.
    pub forward: Forward,
    /// Emits the steps of its gradient.
    pub backward: Backward,
    /// Its label and colour in diagrams.
    pub drawn: Drawn,
    /// Bodies of a block `(x)` that call it in every way its rules distinguish, with x
    /// `[batch, time, 6]`, as their results are. The tests of gradients, streaming, shapes and kernels
    /// run all of them, so nothing else has to list the primitives.
    pub examples: &'static [&'static str],
}

impl Primitive {
    /// The shortest call of it in the examples of all primitives.
    pub fn example(&self) -> Option<&'static str> {
        let examples = ALL.iter().flat_map(|primitive| primitive.examples);
        let calls = examples.flat_map(|example| {
            let places = example.match_indices(self.name);
            places.filter_map(|(at, _)| {
                let before = example.get(..at)?.chars().next_back();
                let is_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
                let call = example.get(at..)?;
                let after = call.get(self.name.len()..)?.chars().next();
                if is_word || !matches!(after, Some(' ' | '(')) {
                    return None;
                }
                let mut open = 0;
                let end = call.char_indices().find_map(|(at, c)| {
                    open += i32::from(c == '(') - i32::from(c == ')');
                    (c == ')' && open == 0).then_some(at + 1)
                });
                call.get(..end?)
            })
        });
        calls.min_by_key(|call| call.len())
    }

    /// Its operands, for a person: `2 tensors`.
    pub fn takes(&self) -> String {
        match self.tensors {
            Arity::Exactly(n) => dsl::counted(n, "tensor"),
            Arity::UpTo(n) => format!("{} or {}", n - 1, dsl::counted(n, "tensor")),
            Arity::AtLeast(n) => format!("{} or more", dsl::counted(n, "tensor")),
        }
    }

    /// How it depends on other time steps, for a person.
    pub fn sees(&self) -> &'static str {
        match self.time {
            Time::Pointwise => "sees one time step",
            Time::Positional => "sees one time step and its position",
            Time::Stateful => "sees earlier time steps through a declared state",
        }
    }
}

impl fmt::Debug for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.revision)
    }
}

// Shared parts of shape and cost rules.

/// The channels of `[batch, time, channels]`, or an error.
fn channels(op: &str, x: &Type) -> Result<i64, Mismatch> {
    match (x.time && !x.tokens, x.dims.as_slice()) {
        (true, [c]) => Ok(*c),
        _ => Err(Mismatch::new(
            format!("`{op}` takes [batch, time, channels], but this is {x}"),
            "use `merge` to fold heads into channels",
        )),
    }
}

/// The heads and their width in `[batch, time, heads, head_dim]`, or an error.
fn per_head(op: &str, what: &str, x: &Type) -> Result<(i64, i64), Mismatch> {
    match (x.time && !x.tokens, x.dims.as_slice()) {
        (true, [h, d]) => Ok((*h, *d)),
        _ => Err(Mismatch::new(
            format!("`{op}` takes {what} as [batch, time, heads, head_dim], but this is {x}"),
            "use `heads(x, n)` to split channels into heads",
        )),
    }
}

/// The ids of each token, and the places that they are chosen from, or an error.
fn ids(op: &str, x: &Type) -> Result<(i64, i64), Mismatch> {
    match (x.tokens, x.dims.as_slice()) {
        (true, [k]) => Ok((*k, x.places)),
        _ => Err(Mismatch::new(
            format!("`{op}` takes ids, but this is {x}"),
            "give the second result of `top_k`",
        )),
    }
}

/// The last extent, or an error if there is none.
fn last(op: &str, x: &Type) -> Result<i64, Mismatch> {
    x.dims.last().copied().filter(|_| !x.tokens).ok_or_else(|| {
        Mismatch::new(
            format!("`{op}` needs a channel axis, but this is {x}"),
            "embed tokens first: `embed (tokens)`",
        )
    })
}

/// The shape of a pointwise function of one tensor.
fn pointwise_shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    match inputs {
        [x] if !x.tokens => Ok(Shaped::plain(x.clone())),
        _ => Err(Mismatch::new("this takes numbers, but these are tokens", "embed tokens first")),
    }
}

/// A few operations per element. The gradient reads the operand again.
fn pointwise_cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    let m: i64 = inputs.iter().map(Type::elements).sum();
    Cost { flops: 4 * n, moved: n + m, saved: m, ..Cost::default() }
}

/// The factor of a scan's queries.
const SCALE: Config = Config { name: "scale", kind: ConfigKind::Number, default: Default::Absent };

/// The factor, if a call gives one.
fn given_scale(attrs: &Attrs) -> Option<Root> {
    match attrs.get("scale") {
        None | Some(Attr::None) => None,
        Some(_) => Some(attrs.number("scale")),
    }
}

/// The updates of a scan's state for each token.
fn steps(attrs: &Attrs) -> i64 {
    attrs.optional_int("steps").unwrap_or(1)
}

/// A scan's result and state. Usual settings are not among its attributes, so that they change no identity.
fn scanned(attrs: &Attrs, y: Type, state: State) -> Shaped {
    let mut shaped = Shaped::plain(y);
    shaped.state = Some(state);
    if given_scale(attrs).is_some() {
        shaped.attrs.extend(attrs.get("scale").cloned().map(|scale| ("scale", scale)));
    }
    if steps(attrs) != 1 {
        shaped.attrs.insert("steps", Attr::Int(steps(attrs)));
    }
    shaped
}

/// A scan's operations on its state, for each token and element; its operands with a time axis are kept.
fn scan_cost(scan: &Recurrence, inputs: &[Type], outputs: &[Type]) -> Cost {
    let n: i64 = inputs.iter().filter(|t| t.time).chain(outputs).map(Type::elements).sum();
    // The state has the result's channels, and those of the operand along its other axis.
    let other_axis = if scan.result == scan.rows { scan.columns } else { scan.rows };
    let width = inputs.get(other_axis).and_then(|t| t.dims.last()).copied().unwrap_or(0);
    let values: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: scan.flops * width * values, moved: n, saved: n, ..Cost::default() }
}

/// A view or a copy: no computation, nothing kept.
fn reshape_cost(_: &Attrs, _: &[Type], _: &[Type], _: Context) -> Cost {
    Cost::default()
}

fn pointwise_forward(
    plan: &mut PlanBuilder,
    call: &Call,
    function: &'static PointwiseFunction,
) -> Lowered {
    Lowered::one(plan.one(kernel::Pointwise { function }, &call.operands))
}

/// dx = dy f′. f′ is computed from the operand, or from the result where that is simpler.
fn pointwise_backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
    function: &'static PointwiseFunction,
) -> Gradients {
    let saved = if function.keeps_result { lowered.outputs[0] } else { call.operands[0] };
    vec![dy[0].map(|dy| plan.one(kernel::PointwiseGrad { function }, &[dy, saved]))]
}

fn scan_forward(plan: &mut PlanBuilder, call: &Call, scan: &'static Recurrence) -> Lowered {
    let inputs: Vec<ValId> = call.operands.iter().chain(&call.past).copied().collect();
    let (scale, steps) = (given_scale(&call.attrs), steps(&call.attrs));
    let kernel = kernel::Scan { scan, state: !call.past.is_empty(), scale, steps };
    let [y, state] = plan.emit(kernel, &inputs);
    let state = if call.keeps_state { vec![state] } else { Vec::new() };
    Lowered { outputs: vec![y], saved: Vec::new(), state }
}

fn scan_backward(
    plan: &mut PlanBuilder,
    call: &Call,
    dy: &[Option<ValId>],
    scan: &'static Recurrence,
) -> Gradients {
    let inputs: Vec<ValId> = dy.iter().flatten().chain(&call.operands).copied().collect();
    let (scale, steps) = (given_scale(&call.attrs), steps(&call.attrs));
    let kernel = kernel::ScanGrad { scan, scale, steps };
    plan.emit_all(kernel, inputs).into_iter().map(Some).collect()
}
