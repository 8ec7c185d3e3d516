//! `atan(x)`: the angle whose tangent is x, element by element

use super::{
    Arity, Drawn, PointwiseFunction, Primitive, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "atan",
    revision: 1,
    doc: "atan(x), element by element",
    why: "no text inverts a tangent",
    torch: Some("torch.atan({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, &FUNCTION),
    backward: |plan, call, lowered, dy| pointwise_backward(plan, call, lowered, dy, &FUNCTION),
    drawn: Drawn::PLAIN,
    examples: &["atan(x)"],
};

pub(super) static FUNCTION: PointwiseFunction = PointwiseFunction {
    name: "atan",
    keeps_result: false,
    single_gradient: false,
    #[cfg(test)]
    value: libm::atan,
    #[cfg(test)]
    slope: |x| 1.0 / (1.0 + x * x),
};
