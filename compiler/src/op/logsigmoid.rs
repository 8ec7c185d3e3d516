//! `logsigmoid(x)`: ln σ(x) = −softplus(−x), without overflow at either end

#[cfg(test)]
use super::logistic;
use super::{
    Arity, Drawn, Function, Primitive, Scalar, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "logsigmoid",
    revision: 1,
    doc: "ln σ(x) = −softplus(−x), without overflow at either end",
    why: "`log(sigmoid(x))` is −∞ where σ(x) underflows",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |l, call| pointwise_forward(l, call, Function::LogSigmoid),
    backward: |l, call, made, dy| pointwise_backward(l, call, made, dy, Function::LogSigmoid),
    drawn: Drawn::PLAIN,
    examples: &["logsigmoid(x)"],
};

pub(super) static FUNCTION: Scalar = Scalar {
    name: "logsigmoid",
    keeps_result: false,
    #[cfg(test)]
    value: |x| x.min(0.0) - libm::log1p(libm::exp(-x.abs())),
    #[cfg(test)]
    slope: |x| logistic(-x),
};
