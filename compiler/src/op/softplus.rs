//! `softplus(x)`: ln(1 + exp(x)), linear above 20 as in libtorch

use super::{
    Arity, Primitive, Time, pointwise_backward, pointwise_cost, pointwise_forward, pointwise_shape,
};
use crate::plan::Function;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "softplus",
    revision: 1,
    doc: "ln(1 + exp(x)), linear above 20 as in libtorch",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |l, call| pointwise_forward(l, call, Function::Softplus),
    backward: |l, call, made, dy| pointwise_backward(l, call, made, dy, Function::Softplus),
};
