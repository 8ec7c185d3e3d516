//! `tanh(x)`: tanh(x), element by element. 2σ(2x) − 1 would lose its digits near 0.

use super::{
    Arity, Drawn, PointwiseFunction, Primitive, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "tanh",
    revision: 1,
    doc: "tanh(x), element by element",
    why: "`2σ(2x) − 1` loses its digits near 0",
    torch: Some("torch.tanh({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, &FUNCTION),
    backward: |plan, call, lowered, dy| pointwise_backward(plan, call, lowered, dy, &FUNCTION),
    drawn: Drawn::PLAIN,
    examples: &["tanh(linear w (x, 6)) * x"],
};

pub(super) static FUNCTION: PointwiseFunction = PointwiseFunction {
    name: "tanh",
    keeps_result: true,
    single_gradient: false,
    #[cfg(test)]
    value: libm::tanh,
    #[cfg(test)]
    slope: |y| 1.0 - y * y,
};
