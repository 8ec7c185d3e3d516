//! `reciprocal(x)`: 1 / x, element by element. `a / b` between tensors is a · (1 / b). No text can divide without it.

use super::{
    Arity, Drawn, PointwiseFunction, Primitive, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "reciprocal",
    revision: 1,
    doc: "1 / x, element by element; `a / b` between tensors",
    why: "no text divides without it",
    torch: Some("torch.reciprocal({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, &FUNCTION),
    backward: |plan, call, lowered, dy| pointwise_backward(plan, call, lowered, dy, &FUNCTION),
    drawn: Drawn::PLAIN,
    examples: &["2 / (1 + exp(linear b (x, 6)))", "linear a (x, 6) / (1 + exp(x))"],
};

pub(super) static FUNCTION: PointwiseFunction = PointwiseFunction {
    name: "reciprocal",
    keeps_result: true,
    single_gradient: false,
    #[cfg(test)]
    value: |x| 1.0 / x,
    #[cfg(test)]
    slope: |y| -y * y,
};
