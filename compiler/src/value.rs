//! The values of a plan: their types, and their sizes in a call.

use std::borrow::Cow;
use std::fmt;

/// The type and name of a value. A value without dims is a scalar.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// A parameter's path, an input's name, or the name of a kernel's result (`y`, `rstd`).
    pub name: Cow<'static, str>,
    /// Axes, outermost first.
    pub dims: Vec<Extent>,
    /// Element type.
    pub dtype: DType,
}

impl Value {
    /// Its size in bytes in a call of these sizes.
    pub fn bytes(&self, sizes: Sizes) -> i128 {
        let count: i128 = self.dims.iter().map(|dim| i128::from(dim.at(sizes))).product();
        count * i128::from(self.dtype.bytes())
    }
}

/// One axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extent {
    /// Sequences in this call.
    Batch,
    /// Tokens in this call.
    Time,
    /// Rows of an incoming key-value state: tokens so far, at most the window.
    CacheLen(Option<i64>),
    /// `Past` + `Time`.
    KvLen(Option<i64>),
    /// Rows of an outgoing windowed key-value state: `Seen`, at most the window.
    NewCacheLen(i64),
    /// This size in every call.
    Fixed(i64),
}

impl Extent {
    /// The size of the axis in such a call.
    pub fn at(self, sizes: Sizes) -> i64 {
        let past = |window: Option<i64>| window.map_or(sizes.past, |w| w.min(sizes.past));
        match self {
            Extent::Batch => sizes.batch,
            Extent::Time => sizes.time,
            Extent::CacheLen(window) => past(window),
            Extent::KvLen(window) => past(window) + sizes.time,
            Extent::NewCacheLen(window) => (past(Some(window)) + sizes.time).min(window),
            Extent::Fixed(n) => n,
        }
    }

    /// The size of the axis, if it is the same in every call.
    pub fn fixed(self) -> Option<i64> {
        if let Extent::Fixed(n) = self { Some(n) } else { None }
    }
}

/// Axes of these sizes.
pub(crate) fn fixed(dims: &[i64]) -> Vec<Extent> {
    dims.iter().map(|d| Extent::Fixed(*d)).collect()
}

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// Master parameters and their gradients, moments, statistics; activations in plans of this precision.
    F32,
    /// Activations, their gradients and rounded parameters in plans of this precision.
    Bf16,
    /// Only for sums and run-time scalars: losses, norms, learning rates.
    F64,
    /// Token ids, positions, counts.
    I64,
}

impl DType {
    /// Bytes of one element.
    pub fn bytes(self) -> i64 {
        match self {
            DType::Bf16 => 2,
            DType::F32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }
}

/// The run-time values of a plan's variable extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Sequences in the call.
    pub batch: i64,
    /// Tokens per sequence in the call.
    pub time: i64,
    /// Tokens before this call: the rows of a growing key-value state.
    pub past: i64,
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
