//! `sigmoid(x)`: σ(x) = 1 / (1 + exp(−x))

use super::{
    Arity, Drawn, PointwiseFunction, Primitive, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};
#[cfg(test)]
use crate::kernel::tensor::logistic;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "sigmoid",
    revision: 1,
    doc: "σ(x) = 1 / (1 + exp(−x))",
    why: "`1 / (1 + exp(-x))` has no gradient where `exp` overflows",
    torch: Some("torch.sigmoid({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, &FUNCTION),
    backward: |plan, call, lowered, dy| pointwise_backward(plan, call, lowered, dy, &FUNCTION),
    drawn: Drawn::PLAIN,
    examples: &["sigmoid(x)"],
};

pub(super) static FUNCTION: PointwiseFunction = PointwiseFunction {
    name: "sigmoid",
    keeps_result: true,
    single_gradient: false,
    #[cfg(test)]
    value: logistic,
    #[cfg(test)]
    slope: |y| y * (1.0 - y),
};
