//! `concat(a, b, …)`: channels side by side, in operand order; of each head, if there are heads.

use super::{Arity, Attrs, Drawn, Mismatch, Primitive, Shaped, Time, Type, last, reshape_cost};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "concat",
    revision: 1,
    doc: "channels side by side, in operand order",
    why: "only primitives reshape",
    torch: None,
    tensors: Arity::AtLeast(2),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost: reshape_cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &[
        "concat(linear a (x, 2), linear b (x, 4))",
        "a, b = split(heads(x, 2), 1, 2)  param p [2] init ones  param q [4] init ones \
         y = merge(concat(b, a)) * concat(q, p)  y",
    ],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let mut joined = inputs.first().cloned().unwrap_or_else(|| Type::seq([]));
    let mut total = 0i64;
    for x in inputs {
        let width = last("concat", x)?;
        if (x.time, x.dims.len(), x.dims.split_last().map(|(_, outer)| outer))
            != (joined.time, joined.dims.len(), joined.dims.split_last().map(|(_, outer)| outer))
        {
            return Err(Mismatch::new(
                format!(
                    "`concat` needs equal shapes up to the channels, but these are {joined} and {x}"
                ),
                "use `heads` or `merge` on one of them",
            ));
        }
        total = total.checked_add(width).ok_or_else(|| {
            Mismatch::new("the concatenated width overflows", "make the operands narrower")
        })?;
    }
    if let Some(width) = joined.dims.last_mut() {
        *width = total;
    }
    Ok(Shaped::plain(joined))
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.one(kernel::Concat, &call.operands))
}

/// Each operand's gradient is its piece of dy.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let Some(dy) = dy[0] else { return Vec::new() };
    let last = |id: &ValId| plan.widths(*id).last().copied().unwrap_or(0);
    let widths = call.operands.iter().map(last).collect();
    plan.emit_all(kernel::Split { widths }, vec![dy]).into_iter().map(Some).collect()
}
