//! `f32(x)`: marks an f32 island; every other dtype comes from the recipe's precision.

use super::{Arity, Primitive, Time, pointwise_shape, reshape_cost};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "f32",
    revision: 1,
    doc: "x in f32 whatever the recipe's precision: decay rates and other small exponents",
    tensors: Arity::Exactly(1),
    config: &[],
    time: Time::Pointwise,
    shape: pointwise_shape,
    cost: reshape_cost,
};
