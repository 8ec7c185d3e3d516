//! `logsigmoid(x)`: ln σ(x) = −softplus(−x), without overflow at either end

use super::{
    Arity, Drawn, PointwiseFunction, Primitive, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};
#[cfg(test)]
use crate::kernel::tensor::logistic;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "logsigmoid",
    revision: 1,
    doc: "ln σ(x) = −softplus(−x), without overflow at either end",
    why: "`log(sigmoid(x))` is −∞ where σ(x) underflows",
    torch: Some("F.logsigmoid({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, &FUNCTION),
    backward: |plan, call, lowered, dy| pointwise_backward(plan, call, lowered, dy, &FUNCTION),
    drawn: Drawn::PLAIN,
    examples: &["logsigmoid(x)"],
};

pub(super) static FUNCTION: PointwiseFunction = PointwiseFunction {
    name: "logsigmoid",
    keeps_result: false,
    single_gradient: true,
    #[cfg(test)]
    value: |x| x.min(0.0) - libm::log1p(libm::exp(-x.abs())),
    #[cfg(test)]
    slope: |x| logistic(-x),
};
