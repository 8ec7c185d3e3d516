//! `exp(x)`: exp(x), element by element

use super::{Arity, Primitive, Time, pointwise_cost, pointwise_shape};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "exp",
    revision: 1,
    doc: "exp(x), element by element",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
};
