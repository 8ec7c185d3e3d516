//! `softplus(x)`: ln(1 + exp(x)), linear above 20 as in libtorch

use super::{
    Arity, Drawn, PointwiseFunction, Primitive, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};
#[cfg(test)]
use crate::kernel::tensor::logistic;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "softplus",
    revision: 1,
    doc: "ln(1 + exp(x)), linear above 20 as in libtorch",
    why: "`log(1 + exp(x))` overflows",
    torch: Some("F.softplus({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, &FUNCTION),
    backward: |plan, call, lowered, dy| pointwise_backward(plan, call, lowered, dy, &FUNCTION),
    drawn: Drawn::PLAIN,
    examples: &["softplus(x)"],
};

pub(super) static FUNCTION: PointwiseFunction = PointwiseFunction {
    name: "softplus",
    keeps_result: false,
    single_gradient: true,
    #[cfg(test)]
    value: |x| if x > 20.0 { x } else { libm::log1p(libm::exp(x)) },
    #[cfg(test)]
    slope: |x| if x > 20.0 { 1.0 } else { logistic(x) },
};
