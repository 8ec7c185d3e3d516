//! `heads(x, n)`: `[…, n·d]` to `[…, n, d]`; head j is channels `j·d .. (j+1)·d`.

use super::{
    Arity, Attr, Attrs, AttrsExt, Colour, Config, ConfigKind, Default, Drawn, Mismatch, Primitive,
    Shaped, Time, Type, reshape_cost,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "heads",
    revision: 1,
    doc: "[…, n·d] to […, n, d]",
    why: "only primitives reshape",
    torch: Some("{0}.unflatten(-1, ({count}, -1))"),
    tensors: Arity::Exactly(1),
    config: &[Config { name: "count", kind: ConfigKind::Int, default: Default::Required }],
    time: Time::Pointwise,
    shape,
    cost: reshape_cost,
    forward,
    backward,
    drawn: Drawn {
        colour: Colour::Plain,
        label: |s| (format!("heads {}", s.attrs.int("count")), String::new()),
    },
    examples: &["linear o (merge(rms_norm n (heads(x, 3))), 6)"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let count = attrs.int("count");
    match inputs {
        [x] if x.time && !x.tokens && x.dims.len() == 1 && count > 0 && x.dims[0] % count == 0 => {
            let mut shaped = Shaped::plain(Type::seq([count, x.dims[0] / count]));
            shaped.attrs.insert("count", Attr::Int(count));
            Ok(shaped)
        }
        [x] => Err(Mismatch::new(
            format!("{count} heads do not divide {x}"),
            "choose a number of heads that divides the channels exactly",
        )
        .about(&["heads"])),
        _ => Err(Mismatch::new("`heads` takes one tensor", "write `heads(x, n)`")),
    }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let dims = call.results[0].dims.clone();
    Lowered::one(plan.one(kernel::Reshape { dims }, &call.operands))
}

/// The inverse view.
pub(super) fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    _: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    let dims = plan.widths(call.operands[0]);
    vec![dy[0].map(|dy| plan.one(kernel::Reshape { dims }, &[dy]))]
}
