//! `softplus(x)`: ln(1 + exp(x)), linear above 20 as in libtorch

#[cfg(test)]
use super::logistic;
use super::{
    Arity, Drawn, Function, Primitive, Scalar, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "softplus",
    revision: 1,
    doc: "ln(1 + exp(x)), linear above 20 as in libtorch",
    why: "`log(1 + exp(x))` overflows",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |l, call| pointwise_forward(l, call, Function::Softplus),
    backward: |l, call, made, dy| pointwise_backward(l, call, made, dy, Function::Softplus),
    drawn: Drawn::PLAIN,
    examples: &["softplus(x)"],
};

pub(super) static FUNCTION: Scalar = Scalar {
    name: "softplus",
    keeps_result: false,
    #[cfg(test)]
    value: |x| if x > 20.0 { x } else { libm::log1p(libm::exp(x)) },
    #[cfg(test)]
    slope: |x| if x > 20.0 { 1.0 } else { logistic(x) },
};
