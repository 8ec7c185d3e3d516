//! `silu(x)`: x · σ(x) (Elfwing et al. 2018, eq. 3)

use super::{
    Arity, Drawn, PointwiseFunction, Primitive, Time, pointwise_backward, pointwise_cost,
    pointwise_forward, pointwise_shape,
};
#[cfg(test)]
use crate::kernel::tensor::logistic;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "silu",
    revision: 1,
    doc: "x · σ(x) (Elfwing et al. 2018, eq. 3)",
    why: "needs a kernel: `x * sigmoid(x)` is two passes in every gated MLP",
    torch: Some("F.silu({0})"),
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |plan, call| pointwise_forward(plan, call, &FUNCTION),
    backward: |plan, call, lowered, dy| pointwise_backward(plan, call, lowered, dy, &FUNCTION),
    drawn: Drawn::PLAIN,
    examples: &["silu(x) + silu(linear g (x, 6)) * linear u (x, 6)"],
};

pub(super) static FUNCTION: PointwiseFunction = PointwiseFunction {
    name: "silu",
    keeps_result: false,
    single_gradient: true,
    #[cfg(test)]
    value: |x| x * logistic(x),
    #[cfg(test)]
    slope: |x| logistic(x) * (1.0 + x * (1.0 - logistic(x))),
};
