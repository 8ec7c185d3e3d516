//! `logsigmoid(x)`: ln σ(x) = −softplus(−x), without overflow at either end

use super::{Arity, Primitive, Time, pointwise_cost, pointwise_shape};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "logsigmoid",
    revision: 1,
    doc: "ln σ(x) = −softplus(−x), without overflow at either end",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: pointwise_cost,
};
