//! The types of a kernel's results, from those of its operands.

use std::ops::Range;

use crate::value::{DType, Extent, Value};

/// The operands of a kernel. One that is missing is a scalar in f32.
#[derive(Clone, Copy)]
pub(crate) struct OperandTypes<'a>(pub(crate) &'a [&'a Value]);

impl<'a> OperandTypes<'a> {
    pub(super) fn count(self) -> usize {
        self.0.len()
    }

    pub(super) fn dims(self, i: usize) -> &'a [Extent] {
        self.0.get(i).map_or(&[], |v| v.dims.as_slice())
    }

    pub(super) fn dtype(self, i: usize) -> DType {
        self.0.get(i).map_or(DType::F32, |v| v.dtype)
    }

    /// A value with the i-th operand's shape and dtype, and another name.
    pub(super) fn like(self, name: &'static str, i: usize) -> Value {
        value(name, self.dims(i), self.dtype(i))
    }

    /// A value in f32 with the i-th operand's shape.
    pub(super) fn f32_like(self, name: &'static str, i: usize) -> Value {
        f32(name, self.dims(i))
    }

    /// The widest dtype among some operands.
    pub(super) fn widest(self, mut operands: Range<usize>) -> DType {
        match operands.any(|i| self.dtype(i) != DType::Bf16) {
            true => DType::F32,
            false => DType::Bf16,
        }
    }
}

pub(super) fn value(name: &'static str, dims: impl Into<Vec<Extent>>, dtype: DType) -> Value {
    Value { name: name.into(), dims: dims.into(), dtype }
}

pub(super) fn f32(name: &'static str, dims: impl Into<Vec<Extent>>) -> Value {
    value(name, dims, DType::F32)
}

pub(super) fn scalar(name: &'static str, dtype: DType) -> Value {
    value(name, [], dtype)
}

/// All axes but the first `n`.
pub(super) fn skip(dims: &[Extent], n: usize) -> &[Extent] {
    dims.get(n..).unwrap_or(&[])
}

/// The first `n` axes.
pub(super) fn take(dims: &[Extent], n: usize) -> &[Extent] {
    dims.get(..n).unwrap_or(dims)
}

/// All axes but the last.
pub(super) fn outer(dims: &[Extent]) -> &[Extent] {
    take(dims, dims.len().saturating_sub(1))
}

/// The last axis, if there is one.
pub(super) fn last(dims: &[Extent]) -> &[Extent] {
    skip(dims, dims.len().saturating_sub(1))
}

/// Axes with another last one, of this size.
pub(super) fn with_last(dims: &[Extent], size: i64) -> Vec<Extent> {
    [outer(dims), &[Extent::Fixed(size)]].concat()
}

/// The size of the last axis.
pub(super) fn width(dims: &[Extent]) -> i64 {
    dims.last().and_then(|dim| dim.fixed()).unwrap_or(0)
}

/// [b, t, h, …] with another number of heads.
pub(super) fn per_head(dims: &[Extent], heads: impl Fn(i64) -> i64) -> Vec<Extent> {
    let mut dims = dims.to_vec();
    if let Some(h) = dims.get_mut(2) {
        *h = Extent::Fixed(heads(h.fixed().unwrap_or(0)));
    }
    dims
}
