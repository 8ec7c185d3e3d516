//! `concat(a, b, …)`: channels side by side, in operand order.

use super::{Arity, Attrs, Drawn, Mismatch, Primitive, Shaped, Time, Type, channels, reshape_cost};
use crate::lower::{Call, Gradients, Lower, Lowered};
use crate::plan::{Kernel, ValId};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "concat",
    revision: 1,
    doc: "channels side by side, in operand order",
    tensors: Arity::AtLeast(2),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost: reshape_cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &["concat(linear a (x, 2), linear b (x, 4))"],
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

fn forward(l: &mut Lower, call: &Call) -> Lowered {
    Lowered::one(l.one(Kernel::Concat, &call.operands))
}

/// Each operand's gradient is its piece of dy.
fn backward(l: &mut Lower, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let Some(dy) = dy[0] else { return Vec::new() };
    let widths = call.operands.iter().map(|id| l.widths(*id).iter().sum()).collect();
    l.emit_all(Kernel::Split { widths }, vec![dy]).into_iter().map(Some).collect()
}
