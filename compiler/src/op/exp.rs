//! `exp(x)`: exp(x), element by element

use super::{
    Arity, Drawn, PointwiseFunction, Primitive, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "exp",
    revision: 1,
    doc: "exp(x), element by element",
    why: "no arithmetic gives it",
    torch: Some("torch.exp({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, &FUNCTION),
    backward: |plan, call, lowered, dy| pointwise_backward(plan, call, lowered, dy, &FUNCTION),
    drawn: Drawn::PLAIN,
    examples: &["exp(x)"],
};

pub(super) static FUNCTION: PointwiseFunction = PointwiseFunction {
    name: "exp",
    keeps_result: true,
    single_gradient: true,
    #[cfg(test)]
    value: libm::exp,
    #[cfg(test)]
    slope: |y| y,
};
