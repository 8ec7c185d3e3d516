//! The sizes of a step's operands and results in a call.

use crate::value::{DType, Sizes, Value};

/// Operations of a function such as exp or sigmoid, for one element.
pub(super) const FUNCTION: i128 = 4;
/// x · sigmoid(x).
pub(super) const SILU: i128 = FUNCTION + 1;
/// dy f′ of silu, with f′ from the sigmoid.
pub(super) const SILU_SLOPE: i128 = FUNCTION + 4;

/// The operands and results of a step.
pub(crate) struct Shapes {
    pub(crate) inputs: Vec<Shape>,
    pub(crate) outputs: Vec<Shape>,
}

/// A value in a call.
pub(crate) struct Shape {
    dims: Vec<i128>,
    pub(crate) bytes: i128,
    pub(super) dtype: DType,
}

const NONE: &Shape = &Shape { dims: Vec::new(), bytes: 0, dtype: DType::F32 };

impl Shapes {
    /// An operand. One that is missing, which `Plan::check` reports, is a scalar.
    pub(super) fn input(&self, i: usize) -> &Shape {
        self.inputs.get(i).unwrap_or(NONE)
    }

    pub(super) fn output(&self, i: usize) -> &Shape {
        self.outputs.get(i).unwrap_or(NONE)
    }

    /// Elements of the first operand.
    pub(super) fn x(&self) -> i128 {
        self.input(0).elements()
    }

    /// Elements of the first result.
    pub(super) fn y(&self) -> i128 {
        self.output(0).elements()
    }

    /// Elements of the first operands.
    pub(super) fn first(&self, count: usize) -> i128 {
        self.inputs.iter().take(count).map(Shape::elements).sum()
    }
}

impl Shape {
    pub(crate) fn new(value: &Value, sizes: Sizes) -> Shape {
        let dims = value.dims.iter().map(|dim| i128::from(dim.at(sizes))).collect();
        Shape { dims, bytes: value.bytes(sizes), dtype: value.dtype }
    }

    pub(super) fn elements(&self) -> i128 {
        self.dims.iter().product()
    }

    /// The number of matrices of the last two axes, and their shorter and longer side.
    pub(super) fn matrices(&self) -> (i128, i128, i128) {
        let [ref outer @ .., rows, columns] = self.dims[..] else { return (0, 0, 0) };
        (outer.iter().product(), rows.min(columns), rows.max(columns))
    }

    /// The size of an axis; 0 if there is none.
    pub(super) fn at(&self, axis: usize) -> i128 {
        self.dims.get(axis).copied().unwrap_or(0)
    }

    pub(super) fn last(&self) -> i128 {
        self.dims.last().copied().unwrap_or(0)
    }

    /// Batch × time.
    pub(super) fn tokens(&self) -> i128 {
        self.at(0) * self.at(1)
    }
}
