//! `exp(x)`: exp(x), element by element

use super::{
    Arity, Primitive, Time, pointwise_backward, pointwise_cost, pointwise_forward, pointwise_shape,
};
use crate::plan::Function;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "exp",
    revision: 1,
    doc: "exp(x), element by element",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |l, call| pointwise_forward(l, call, Function::Exp),
    backward: |l, call, made, dy| pointwise_backward(l, call, made, dy, Function::Exp),
};
