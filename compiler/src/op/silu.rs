//! `silu(x)`: x · σ(x) (Elfwing et al. 2018, eq. 3)

use super::{
    Arity, Primitive, Time, pointwise_backward, pointwise_cost, pointwise_forward, pointwise_shape,
};
use crate::plan::Function;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "silu",
    revision: 1,
    doc: "x · σ(x) (Elfwing et al. 2018, eq. 3)",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
    forward: |l, call| pointwise_forward(l, call, Function::Silu),
    backward: |l, call, made, dy| pointwise_backward(l, call, made, dy, Function::Silu),
};
