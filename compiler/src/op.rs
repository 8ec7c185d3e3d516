//! The primitives: the only operations a `.canon` text cannot define for itself.
//!
//! In: nothing. Out: one table, [`ALL`], with each primitive's arguments, parameters, computation and
//! cost. Each has a file of its name under `op/` with its paper and equation. Must stay true: a primitive
//! exists only because it needs state over time or a kernel; mixers, gates, MLPs and decoders are not
//! primitives; changing what a primitive computes raises its `revision`, part of every graph hash.

mod add;
mod attention;
mod canon;
mod concat;
mod delta_scan;
mod embed;
mod exp;
mod f32;
mod gla_scan;
mod heads;
mod l2_norm;
mod linear;
mod logsigmoid;
mod merge;
mod mul;
mod repeat_heads;
mod rms_norm;
mod rope;
mod scale;
mod short_conv;
mod sigmoid;
mod silu;
mod softplus;
mod split;
mod ssd_scan;

use std::collections::BTreeMap;
use std::fmt;

use dsl::Decimal;

use crate::lower::{Backward, Call, Forward, Gradients, Lower, Lowered};
use crate::plan::{Function, Kernel, ValId};
use crate::value::{Ratio, Root};

/// Every primitive, by name. `param` is the 26th: it is syntax, and has its own node in the graph.
pub static ALL: [&Primitive; 25] = [
    &add::PRIMITIVE,
    &attention::PRIMITIVE,
    &canon::PRIMITIVE,
    &concat::PRIMITIVE,
    &delta_scan::PRIMITIVE,
    &embed::PRIMITIVE,
    &exp::PRIMITIVE,
    &f32::PRIMITIVE,
    &gla_scan::PRIMITIVE,
    &heads::PRIMITIVE,
    &l2_norm::PRIMITIVE,
    &linear::PRIMITIVE,
    &logsigmoid::PRIMITIVE,
    &merge::PRIMITIVE,
    &mul::PRIMITIVE,
    &repeat_heads::PRIMITIVE,
    &rms_norm::PRIMITIVE,
    &rope::PRIMITIVE,
    &scale::PRIMITIVE,
    &short_conv::PRIMITIVE,
    &sigmoid::PRIMITIVE,
    &silu::PRIMITIVE,
    &softplus::PRIMITIVE,
    &split::PRIMITIVE,
    &ssd_scan::PRIMITIVE,
];

pub fn find(name: &str) -> Option<&'static Primitive> {
    ALL.iter().copied().find(|p| p.name == name)
}

/// Words that are configuration values; looked up after everything else.
pub const WORDS: [&str; 4] = ["interleaved", "half", "none", "silu"];

/// The definition of one primitive: one file and one row of [`ALL`] each.
pub struct Primitive {
    pub name: &'static str,
    /// Raised when the mathematics changes; part of the structural hash.
    pub revision: u32,
    /// One line: the computation and its source.
    pub doc: &'static str,
    pub tensors: Arity,
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
}

impl fmt::Debug for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.revision)
    }
}

/// Operand counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    Exactly(usize),
    AtLeast(usize),
}

/// Rule 13 of the language: every op is one of these, and only `Stateful` ops see other time steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    Pointwise,
    /// Depends on the absolute position, not on other steps.
    Positional,
    /// Carries a [`State`].
    Stateful,
}

/// One configuration parameter of a primitive.
pub struct Config {
    pub name: &'static str,
    pub kind: ConfigKind,
    pub default: Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    Int,
    /// An integer, or `none`.
    OptionalInt,
    Decimal,
    /// A decimal, a fraction or a root, all exact.
    Number,
    Bool,
    Word(&'static [&'static str]),
    /// Any further positional integers.
    Ints,
    /// Another instance's weight, to share it.
    Weight,
    Init,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    Required,
    Int(i64),
    /// Mantissa and exponent of an exact decimal.
    Decimal(i64, i32),
    Bool(bool),
    Word(&'static str),
    /// Absent (`none`, no shared weight, the arch's own init).
    Absent,
    /// The arch's field of this name.
    ArchField(&'static str),
}

/// A primitive's resolved configuration. All of it is part of the graph's identity.
pub type Attrs = BTreeMap<&'static str, Attr>;

#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    Int(i64),
    Decimal(Decimal),
    /// A number without a finite decimal form: `1/3`, `sqrt(2)`.
    Root(Root),
    Bool(bool),
    Word(&'static str),
    Ints(Vec<i64>),
    None,
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Int(n) => write!(f, "{n}"),
            Attr::Decimal(d) => write!(f, "{d}"),
            Attr::Root(root) => write!(f, "{root}"),
            Attr::Bool(b) => write!(f, "{b}"),
            Attr::Word(w) => write!(f, "{w}"),
            Attr::Ints(ns) => {
                write!(f, "[")?;
                for (i, n) in ns.iter().enumerate() {
                    write!(f, "{}{n}", if i == 0 { "" } else { ", " })?;
                }
                write!(f, "]")
            }
            Attr::None => write!(f, "none"),
        }
    }
}

/// Accessors of [`Attrs`]. A missing name is a bug in the op's own file, which its tests would find.
pub trait AttrsExt {
    fn int(&self, name: &str) -> i64;
    fn optional_int(&self, name: &str) -> Option<i64>;
    fn decimal(&self, name: &str) -> Decimal;
    fn number(&self, name: &str) -> Root;
    fn flag(&self, name: &str) -> bool;
    fn word(&self, name: &str) -> &'static str;
    fn ints(&self, name: &str) -> &[i64];
}

impl AttrsExt for Attrs {
    fn int(&self, name: &str) -> i64 {
        self.optional_int(name).unwrap_or(0)
    }

    fn optional_int(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Attr::Int(n)) => Some(*n),
            Some(Attr::Decimal(d)) => d.to_int(),
            Some(Attr::Root(_) | Attr::Bool(_) | Attr::Word(_) | Attr::Ints(_) | Attr::None)
            | None => None,
        }
    }

    fn decimal(&self, name: &str) -> Decimal {
        match self.get(name) {
            Some(Attr::Decimal(d)) => *d,
            Some(Attr::Int(n)) => Decimal::from(*n),
            Some(Attr::Root(_) | Attr::Bool(_) | Attr::Word(_) | Attr::Ints(_) | Attr::None)
            | None => Decimal::ZERO,
        }
    }

    fn number(&self, name: &str) -> Root {
        match self.get(name) {
            Some(Attr::Root(root)) => *root,
            _ => Root::rational(
                Ratio::from_decimal(self.decimal(name)).unwrap_or(Ratio { num: 0, den: 1 }),
            ),
        }
    }

    fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(&Attr::Bool(true))
    }

    fn word(&self, name: &str) -> &'static str {
        match self.get(name) {
            Some(Attr::Word(w)) => w,
            Some(
                Attr::Int(_)
                | Attr::Decimal(_)
                | Attr::Root(_)
                | Attr::Bool(_)
                | Attr::Ints(_)
                | Attr::None,
            )
            | None => "none",
        }
    }

    fn ints(&self, name: &str) -> &[i64] {
        match self.get(name) {
            Some(Attr::Ints(ns)) => ns,
            Some(
                Attr::Int(_)
                | Attr::Decimal(_)
                | Attr::Root(_)
                | Attr::Bool(_)
                | Attr::Word(_)
                | Attr::None,
            )
            | None => &[],
        }
    }
}

/// The shape of a value: `[batch, time, dims…]`, or `dims…` for parameters and functions of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    pub time: bool,
    pub dims: Vec<i64>,
    /// Token ids rather than numbers.
    pub tokens: bool,
}

impl Type {
    pub fn seq(dims: impl Into<Vec<i64>>) -> Type {
        Type { time: true, dims: dims.into(), tokens: false }
    }

    pub fn constant(dims: impl Into<Vec<i64>>) -> Type {
        Type { time: false, dims: dims.into(), tokens: false }
    }

    pub fn tokens() -> Type {
        Type { time: true, dims: Vec::new(), tokens: true }
    }

    /// Elements per token, or in all for a constant.
    pub fn elements(&self) -> i64 {
        self.dims.iter().product()
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        if self.time {
            parts.extend(["batch".to_owned(), "time".to_owned()]);
        }
        parts.extend(self.dims.iter().map(i64::to_string));
        write!(f, "[{}]", parts.join(", "))
    }
}

/// The result of a shape rule.
#[derive(Clone, Debug)]
pub struct Shaped {
    pub outputs: Vec<Type>,
    /// Parameters that this call owns. They follow the tensors as operands, in this order.
    pub params: Vec<Owned>,
    pub state: Option<State>,
    /// The configuration that identifies the node (beyond shapes and operand counts).
    pub attrs: Attrs,
}

impl Shaped {
    /// A result without parameters, state or configuration.
    pub fn plain(output: Type) -> Shaped {
        Shaped { outputs: vec![output], params: Vec::new(), state: None, attrs: Attrs::new() }
    }
}

/// A parameter that a call owns.
#[derive(Clone, Debug)]
pub struct Owned {
    /// The suffix after the instance name: empty, or `.bias`.
    pub suffix: &'static str,
    /// The row of the arch's init table.
    pub role: &'static str,
    pub shape: Vec<i64>,
    /// The value of `fan_in` in its init rule.
    pub fan_in: i64,
}

/// The state carried from one chunk of time to the next; zero before the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The last `steps` inputs, each `channels` wide: `[batch, steps, channels]`.
    Inputs { steps: i64, channels: i64 },
    /// Keys and values, one row per past token, or the last `window` of them.
    KeyValue { kv_heads: i64, key_dim: i64, value_dim: i64, window: Option<i64> },
    /// A matrix per head, `[batch, heads, rows, columns]`, always f32.
    Matrix { heads: i64, rows: i64, columns: i64 },
}

impl State {
    /// Elements per sequence after `tokens` tokens.
    pub fn elements(&self, tokens: i64) -> i64 {
        match self {
            State::Inputs { steps, channels } => steps * channels,
            State::KeyValue { kv_heads, key_dim, value_dim, window } => {
                kv_heads * (key_dim + value_dim) * window.map_or(tokens, |w| w.min(tokens))
            }
            State::Matrix { heads, rows, columns } => heads * rows * columns,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Inputs { steps, channels } => write!(f, "inputs [{steps}, {channels}]"),
            State::KeyValue { kv_heads, key_dim, value_dim, window } => {
                let length = window.map_or("time".to_owned(), |w| w.to_string());
                write!(f, "keys_values [{length}, {kv_heads}, {key_dim}+{value_dim}]")
            }
            State::Matrix { heads, rows, columns } => {
                write!(f, "matrix f32 [{heads}, {rows}, {columns}]")
            }
        }
    }
}

/// What a cost depends on besides shapes.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    pub seq_len: i64,
}

/// Per token: floating-point operations (a multiply-add counts as two), elements read and written,
/// and elements of its operands or results that its gradient rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cost {
    pub flops: i64,
    pub moved: i64,
    pub saved: i64,
}

/// Why operands and configuration do not fit: the message and a suggestion.
#[derive(Clone, Debug)]
pub struct Mismatch {
    pub message: String,
    pub help: String,
}

impl Mismatch {
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Mismatch {
        Mismatch { message: message.into(), help: help.into() }
    }
}

// Shared parts of shape and cost rules.

/// The channels of `[batch, time, channels]`, or an error.
fn channels(op: &str, x: &Type) -> Result<i64, Mismatch> {
    match (x.time, x.dims.as_slice()) {
        (true, [c]) => Ok(*c),
        _ => Err(Mismatch::new(
            format!("`{op}` takes [batch, time, channels], but this is {x}"),
            "use `merge` to fold heads into channels",
        )),
    }
}

/// The heads and their width in `[batch, time, heads, head_dim]`, or an error.
fn per_head(op: &str, what: &str, x: &Type) -> Result<(i64, i64), Mismatch> {
    match (x.time, x.dims.as_slice()) {
        (true, [h, d]) => Ok((*h, *d)),
        _ => Err(Mismatch::new(
            format!("`{op}` takes {what} as [batch, time, heads, head_dim], but this is {x}"),
            "use `heads(x, n)` to split channels into heads",
        )),
    }
}

/// The last extent, or an error if there is none.
fn last(op: &str, x: &Type) -> Result<i64, Mismatch> {
    x.dims.last().copied().ok_or_else(|| {
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
    Cost { flops: 4 * n, moved: n + m, saved: m }
}

/// A view or a copy: no computation, nothing kept.
fn reshape_cost(_: &Attrs, _: &[Type], _: &[Type], _: Context) -> Cost {
    Cost::default()
}

fn pointwise_forward(l: &mut Lower, call: &Call, f: Function) -> Lowered {
    Lowered::one(l.one(Kernel::Pointwise(f), &call.operands))
}

/// dx = dy f′. f′ is computed from the operand, or from the result where that is simpler.
fn pointwise_backward(
    l: &mut Lower,
    call: &Call,
    made: &Lowered,
    dy: &[Option<ValId>],
    f: Function,
) -> Gradients {
    let saved = if f.keeps_result() { made.outputs[0] } else { call.operands[0] };
    vec![dy[0].map(|dy| l.one(Kernel::PointwiseGrad(f), &[dy, saved]))]
}
