//! `sigmoid(x)`: σ(x) = 1 / (1 + exp(−x))

use super::{
    Arity, Primitive, Time, pointwise_backward, pointwise_cost, pointwise_forward, pointwise_shape,
};
use crate::plan::Function;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "sigmoid",
    revision: 1,
    doc: "σ(x) = 1 / (1 + exp(−x))",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |l, call| pointwise_forward(l, call, Function::Sigmoid),
    backward: |l, call, made, dy| pointwise_backward(l, call, made, dy, Function::Sigmoid),
};
