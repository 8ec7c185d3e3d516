//! `reciprocal(x)`: 1 / x, element by element. `a / b` between tensors is a · (1 / b). No text can divide without it.

use super::{
    Arity, Drawn, Function, Primitive, Scalar, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "reciprocal",
    revision: 1,
    doc: "1 / x, element by element; `a / b` between tensors",
    why: "no text divides without it",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |l, call| pointwise_forward(l, call, Function::Reciprocal),
    backward: |l, call, made, dy| pointwise_backward(l, call, made, dy, Function::Reciprocal),
    drawn: Drawn::PLAIN,
    examples: &["2 / (1 + exp(linear b (x, 6)))", "linear a (x, 6) / (1 + exp(x))"],
};

pub(super) static FUNCTION: Scalar = Scalar {
    name: "reciprocal",
    keeps_result: true,
    #[cfg(test)]
    value: |x| 1.0 / x,
    #[cfg(test)]
    slope: |y| -y * y,
};
