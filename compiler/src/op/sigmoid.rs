//! `sigmoid(x)`: σ(x) = 1 / (1 + exp(−x))

use super::{Arity, Primitive, Time, pointwise_cost, pointwise_shape};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "sigmoid",
    revision: 1,
    doc: "σ(x) = 1 / (1 + exp(−x))",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
};
