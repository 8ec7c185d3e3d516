//! `concat(a, b, …)`: channels side by side, in operand order.

use super::{
    Arity, Attrs, Mismatch, Primitive, Shaped, Time, Type, channels, reshape_cost,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "concat",
    revision: 1,
    doc: "channels side by side, in operand order",
    tensors: Arity::AtLeast(2),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost: reshape_cost,
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let mut total = 0i64;
    for x in inputs {
        total = total.checked_add(channels("concat", x)?).ok_or_else(|| {
            Mismatch::new("the concatenated width overflows", "make the operands narrower")
        })?;
    }
    Ok(Shaped::plain(Type::seq([total])))
}
