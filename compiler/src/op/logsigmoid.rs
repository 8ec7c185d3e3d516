//! `logsigmoid(x)`: ln σ(x) = −softplus(−x), without overflow at either end

use super::{
    Arity, Primitive, Time, pointwise_backward, pointwise_cost, pointwise_forward, pointwise_shape,
};
use crate::plan::Function;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "logsigmoid",
    revision: 1,
    doc: "ln σ(x) = −softplus(−x), without overflow at either end",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |l, call| pointwise_forward(l, call, Function::LogSigmoid),
    backward: |l, call, made, dy| pointwise_backward(l, call, made, dy, Function::LogSigmoid),
};
