//! The words that a primitive's meaning is written in: types, configuration, state, cost.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use dsl::Decimal;

use crate::number::{Ratio, Root};

/// An index into one body's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParamId(pub u32);

/// An index into one body's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(pub u32);

/// Operand counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// This many.
    Exactly(usize),
    /// This many, or one less.
    UpTo(usize),
    /// This many or more.
    AtLeast(usize),
}

/// Rule 13 of the language: every op is one of these, and only `Stateful` ops see other time steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Works on each time step by itself.
    Pointwise,
    /// Depends on the absolute position, not on other steps.
    Positional,
    /// Carries a [`State`].
    Stateful,
}

/// One configuration parameter of a primitive.
pub struct Config {
    /// Name in calls: `bias`, `eps`.
    pub name: &'static str,
    /// The values it accepts.
    pub kind: ConfigKind,
    /// Its value where a call does not give it.
    pub default: Default,
}

impl Config {
    /// The values that it accepts, for a person.
    pub fn accepts(&self) -> String {
        match self.kind {
            ConfigKind::Int => "an integer".to_owned(),
            ConfigKind::OptionalInt => "an integer, or `none`".to_owned(),
            ConfigKind::Decimal | ConfigKind::Number => "a number".to_owned(),
            ConfigKind::OptionalDecimal | ConfigKind::OptionalNumber => {
                "a number, or `none`".to_owned()
            }
            ConfigKind::Tensor => "a tensor".to_owned(),
            ConfigKind::Bool => "`true` or `false`".to_owned(),
            ConfigKind::Word(words) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
            }
            ConfigKind::Ints => "further integers".to_owned(),
            ConfigKind::Weight => "another call's weight, to share it".to_owned(),
            ConfigKind::Init => "an init rule".to_owned(),
        }
    }

    /// Its default, for a person.
    pub fn default_words(&self) -> String {
        match self.default_text() {
            None => "required".to_owned(),
            Some(text) => format!("{text} by default"),
        }
    }

    /// Its default in a few words; `None` if a call has to give it.
    pub fn default_text(&self) -> Option<String> {
        Some(match self.default {
            Default::Required => return None,
            Default::Int(n) => n.to_string(),
            Default::Decimal(mantissa, 0) => mantissa.to_string(),
            Default::Decimal(mantissa, exponent) => format!("{mantissa}e{exponent}"),
            Default::Bool(b) => b.to_string(),
            Default::Word(word) => word.to_owned(),
            Default::Absent => "absent".to_owned(),
            Default::ArchField(field) => format!("the arch's `{field}`"),
        })
    }
}

/// The values that a configuration parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// An integer.
    Int,
    /// An integer, or `none`.
    OptionalInt,
    /// An exact decimal.
    Decimal,
    /// An exact decimal, or `none`.
    OptionalDecimal,
    /// A decimal, a fraction or a root, all exact.
    Number,
    /// A number, or `none`.
    OptionalNumber,
    /// `true` or `false`.
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any further positional integers.
    Ints,
    /// A further tensor, given by name; it follows the others as an operand, and the attribute says that it is there.
    Tensor,
    /// Another instance's weight, to share it.
    Weight,
    /// The rule of an initial distribution.
    Init,
}

/// The value of a configuration parameter that a call does not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// None: a call has to give it.
    Required,
    /// This integer.
    Int(i64),
    /// Mantissa and exponent of an exact decimal.
    Decimal(i64, i32),
    /// This flag.
    Bool(bool),
    /// This word.
    Word(&'static str),
    /// Absent (`none`, no shared weight, the arch's own init).
    Absent,
    /// The arch's field of this name.
    ArchField(&'static str),
}

/// A primitive's resolved configuration. All of it is part of the graph's identity.
pub type Attrs = BTreeMap<&'static str, Attr>;

/// The value of a configuration parameter in the graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    /// An integer.
    Int(i64),
    /// An exact decimal.
    Decimal(Decimal),
    /// A number without a finite decimal form: `1/3`, `sqrt(2)`.
    Root(Root),
    /// A flag.
    Bool(bool),
    /// A word from the primitive's own list.
    Word(&'static str),
    /// The path of a call, from the layer down; empty for the layer's own.
    Path(Rc<str>),
    /// Integers, in order.
    Ints(Vec<i64>),
    /// Nothing (`none`).
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
            Attr::Path(path) if path.is_empty() => write!(f, "."),
            Attr::Path(path) => write!(f, "{path}"),
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
    /// An integer.
    fn int(&self, name: &str) -> i64;
    /// An integer; None for `none`.
    fn optional_int(&self, name: &str) -> Option<i64>;
    /// A decimal, or an integer as a decimal.
    fn decimal(&self, name: &str) -> Decimal;
    /// A decimal; None for `none`.
    fn optional_decimal(&self, name: &str) -> Option<Decimal>;
    /// Any exact number.
    fn number(&self, name: &str) -> Root;
    /// Any exact number; None for `none`.
    fn optional_number(&self, name: &str) -> Option<Root>;
    /// A boolean.
    fn flag(&self, name: &str) -> bool;
    /// A word from the primitive's own list.
    fn word(&self, name: &str) -> &'static str;
    /// The path of a call.
    fn path(&self, name: &str) -> Option<&Rc<str>>;
    /// A list of integers.
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
            _ => None,
        }
    }

    fn decimal(&self, name: &str) -> Decimal {
        match self.get(name) {
            Some(Attr::Decimal(d)) => *d,
            Some(Attr::Int(n)) => Decimal::from(*n),
            _ => Decimal::ZERO,
        }
    }

    fn optional_decimal(&self, name: &str) -> Option<Decimal> {
        self.get(name).filter(|value| **value != Attr::None).map(|_| self.decimal(name))
    }

    fn optional_number(&self, name: &str) -> Option<Root> {
        self.get(name).filter(|value| **value != Attr::None).map(|_| self.number(name))
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
            _ => "none",
        }
    }

    fn path(&self, name: &str) -> Option<&Rc<str>> {
        match self.get(name) {
            Some(Attr::Path(path)) => Some(path),
            _ => None,
        }
    }

    fn ints(&self, name: &str) -> &[i64] {
        match self.get(name) {
            Some(Attr::Ints(ns)) => ns,
            _ => &[],
        }
    }
}

/// The shape of a value: `[batch, time, dims…]`, or `dims…` for parameters and functions of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Whether the axes batch and time come first.
    pub time: bool,
    /// Sizes of the other axes.
    pub dims: Vec<i64>,
    /// Ids rather than numbers: tokens, or what `top_k` chose.
    pub tokens: bool,
    /// The number of places that ids are chosen from; 0 for tokens and numbers.
    pub places: i64,
}

impl Type {
    /// A sequence of tensors with these sizes.
    pub fn seq(dims: impl Into<Vec<i64>>) -> Type {
        Type { time: true, dims: dims.into(), tokens: false, places: 0 }
    }

    /// A tensor without batch and time.
    pub fn constant(dims: impl Into<Vec<i64>>) -> Type {
        Type { time: false, dims: dims.into(), tokens: false, places: 0 }
    }

    /// Token ids, one per position.
    pub fn tokens() -> Type {
        Type { time: true, dims: Vec::new(), tokens: true, places: 0 }
    }

    /// This many ids per position, each below `places`.
    pub fn ids(count: i64, places: i64) -> Type {
        Type { time: true, dims: vec![count], tokens: true, places }
    }

    /// The extents without batch and time: `32 × 64`.
    pub fn extents(&self) -> String {
        self.dims.iter().map(i64::to_string).collect::<Vec<_>>().join(" × ")
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
        if self.places > 0 {
            return write!(f, "ids [{}] of {}", parts.join(", "), self.places);
        }
        write!(f, "[{}]", parts.join(", "))
    }
}

/// The result of a shape rule.
#[derive(Clone, Debug)]
pub struct Shaped {
    /// Types of the results.
    pub outputs: Vec<Type>,
    /// Parameters that this call owns. They follow the tensors as operands, in this order.
    pub params: Vec<Owned>,
    /// The state that the call carries, if any.
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
    /// Sizes, outermost first.
    pub shape: Vec<i64>,
    /// The value of `fan_in` in its init rule.
    pub fan_in: i64,
}

/// The state carried from one chunk of time to the next; zero before the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The last `steps` inputs, each `channels` wide: `[batch, steps, channels]`.
    Inputs {
        /// Number of remembered time steps.
        steps: i64,
        /// Width of one input.
        channels: i64,
    },
    /// The last `count` token ids, each plus 1; 0 where there were none: `[batch, count]`.
    Tokens {
        /// Number of remembered tokens.
        count: i64,
    },
    /// Keys and values, one row per past token, or the last `window` of them.
    KeyValue {
        /// Heads of keys and values.
        kv_heads: i64,
        /// Channels of a key, per head.
        key_dim: i64,
        /// Channels of a value, per head.
        value_dim: i64,
        /// Maximum number of past tokens; None keeps all.
        window: Option<i64>,
    },
    /// A matrix per head, `[batch, heads, rows, columns]`, always f32.
    Matrix {
        /// Number of heads.
        heads: i64,
        /// Rows of a head's matrix.
        rows: i64,
        /// Columns of a head's matrix.
        columns: i64,
    },
}

impl State {
    /// Elements per sequence after `tokens` tokens.
    pub fn elements(&self, tokens: i64) -> i64 {
        match self {
            State::Inputs { steps, channels } => steps * channels,
            State::Tokens { count } => *count,
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
            State::Tokens { count } => write!(f, "tokens i64 [{count}]"),
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
    /// Tokens per sequence.
    pub seq_len: i64,
}

/// Per token: floating-point operations (a multiply-add counts as two), elements read and written,
/// and elements of its operands or results that its gradient rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cost {
    /// Floating-point operations per token.
    pub flops: i64,
    /// Elements read and written per token.
    pub moved: i64,
    /// Elements kept for the gradient rule, per token.
    pub saved: i64,
    /// The rows of its parameters that a token uses, where that is not all of them.
    pub rows: Option<i64>,
}

/// Why operands and configuration do not fit: the message and a suggestion.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// What does not fit, on one line.
    pub message: String,
    /// What to write instead.
    pub help: String,
    /// Settings that the sizes in it usually come from.
    pub about: &'static [&'static str],
}

impl Mismatch {
    /// A message and a suggestion.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Mismatch {
        Mismatch { message: message.into(), help: help.into(), about: &[] }
    }

    /// The same, about sizes that come from these settings.
    pub fn about(self, about: &'static [&'static str]) -> Mismatch {
        Mismatch { about, ..self }
    }
}

/// How a diagram shows a call.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    /// Colour of its box.
    pub colour: Colour,
    /// The title of its box, and a second, smaller line, which may be empty.
    pub label: fn(&Shown) -> (String, String),
}

/// The colour of a primitive's box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Owns a matrix.
    Matrix,
    /// Normalises.
    Norm,
    /// Works on each number separately, or only moves numbers.
    Plain,
    /// Depends on the position or on earlier time steps.
    Time,
}

/// What a label may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Name of the primitive.
    pub name: &'static str,
    /// Configuration of the call.
    pub attrs: &'a Attrs,
    /// The first operand and the first result.
    pub input: Option<&'a Type>,
    /// The first result.
    pub output: Option<&'a Type>,
}

impl Drawn {
    /// The name alone.
    pub const PLAIN: Drawn = Drawn { colour: Colour::Plain, label: |s| s.bare() };
    /// The name alone, in the colour of norms.
    pub const NORM: Drawn = Drawn { colour: Colour::Norm, label: |s| s.bare() };
    /// The name, and below it the configuration that is set.
    pub const TIME: Drawn = Drawn { colour: Colour::Time, label: |s| s.configured() };
    /// The name, and below it heads and their width: attention and scans.
    pub const PER_HEAD: Drawn = Drawn { colour: Colour::Time, label: |s| s.per_head() };
}

impl Shown<'_> {
    /// The name, without a second line.
    pub fn bare(&self) -> (String, String) {
        (self.name.to_owned(), String::new())
    }

    /// The name, and below it the configuration that is set.
    pub fn configured(&self) -> (String, String) {
        (self.name.to_owned(), set(self.attrs))
    }

    /// The name, and below it the heads and their width.
    pub fn per_head(&self) -> (String, String) {
        let out = self.output.map(Type::extents).unwrap_or_default();
        (self.name.to_owned(), format!("heads {out}"))
    }

    /// The last extent of a value, 0 without one.
    pub fn width(ty: Option<&Type>) -> i64 {
        ty.and_then(|ty| ty.dims.last()).copied().unwrap_or(0)
    }
}

/// The configuration that is set: `kernel 4, residual`.
pub(crate) fn set(attrs: &Attrs) -> String {
    let words = attrs.iter().filter_map(|(name, value)| match value {
        Attr::Bool(true) => Some((*name).to_owned()),
        Attr::Bool(false) | Attr::None | Attr::Path(_) | Attr::Word("none") => None,
        Attr::Int(_) | Attr::Decimal(_) | Attr::Root(_) | Attr::Word(_) | Attr::Ints(_) => {
            Some(format!("{name} {value}"))
        }
    });
    words.collect::<Vec<_>>().join(", ")
}
