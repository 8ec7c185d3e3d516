//! `sigmoid(x)`: σ(x) = 1 / (1 + exp(−x))

#[cfg(test)]
use super::logistic;
use super::{
    Arity, Drawn, Function, Primitive, Scalar, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "sigmoid",
    revision: 1,
    doc: "σ(x) = 1 / (1 + exp(−x))",
    why: "`1 / (1 + exp(-x))` has no gradient where `exp` overflows",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |l, call| pointwise_forward(l, call, Function::Sigmoid),
    backward: |l, call, made, dy| pointwise_backward(l, call, made, dy, Function::Sigmoid),
    drawn: Drawn::PLAIN,
    examples: &["sigmoid(x)"],
};

pub(super) static FUNCTION: Scalar = Scalar {
    name: "sigmoid",
    keeps_result: true,
    #[cfg(test)]
    value: logistic,
    #[cfg(test)]
    slope: |y| y * (1.0 - y),
};
