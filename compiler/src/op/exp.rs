//! `exp(x)`: exp(x), element by element

use super::{
    Arity, Drawn, Function, Primitive, Scalar, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "exp",
    revision: 1,
    doc: "exp(x), element by element",
    why: "no arithmetic gives it",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |l, call| pointwise_forward(l, call, Function::Exp),
    backward: |l, call, made, dy| pointwise_backward(l, call, made, dy, Function::Exp),
    drawn: Drawn::PLAIN,
    examples: &["exp(x)"],
};

pub(super) static FUNCTION: Scalar = Scalar {
    name: "exp",
    keeps_result: true,
    #[cfg(test)]
    value: libm::exp,
    #[cfg(test)]
    slope: |y| y,
};
