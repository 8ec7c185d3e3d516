//! `log(x)`: ln(x), element by element: decays that are given as factors, and roots. No text can invert `exp`.

use super::{
    Arity, Drawn, PointwiseFunction, Primitive, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "log",
    revision: 1,
    doc: "ln(x), element by element",
    why: "no text inverts `exp`",
    torch: Some("torch.log({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, &FUNCTION),
    backward: |plan, call, lowered, dy| pointwise_backward(plan, call, lowered, dy, &FUNCTION),
    drawn: Drawn::PLAIN,
    examples: &["log(1 + exp(linear w (x, 6)))"],
};

pub(super) static FUNCTION: PointwiseFunction = PointwiseFunction {
    name: "log",
    keeps_result: false,
    single_gradient: true,
    #[cfg(test)]
    value: libm::log,
    #[cfg(test)]
    slope: |x| 1.0 / x,
};
