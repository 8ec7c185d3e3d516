//! `l2_norm(x)`: `x / sqrt(Σ x² + eps)` over the last axis, with eps added to the sum inside the
//! root: the query and key normalisation of Gated DeltaNet (Yang et al. 2024, section 3.3).

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Primitive, Shaped, Time, Type, last,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "l2_norm",
    revision: 1,
    doc: "x / sqrt(Σ x² + eps) over the last axis (Yang et al. 2024, section 3.3)",
    why: "a text has roots only by `log` and `exp`, which round",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[Config { name: "eps", kind: ConfigKind::Decimal, default: Default::Decimal(1, -6) }],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::NORM,
    examples: &["l2_norm(x)"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x] = inputs else {
        return Err(Mismatch::new("`l2_norm` takes one tensor", "write `l2_norm(x)`"));
    };
    last("l2_norm", x)?;
    let eps = attrs.decimal("eps");
    if eps.is_negative() {
        return Err(Mismatch::new(format!("eps is {eps}"), "make eps 0 or more, such as 1e-6"));
    }
    let mut shaped = Shaped::plain(x.clone());
    shaped.attrs.insert("eps", Attr::Decimal(eps));
    Ok(shaped)
}

fn cost(_: &Attrs, _: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: 3 * n, moved: 2 * n, saved: n + 1, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let eps = call.attrs.decimal("eps");
    let [y, rnorm] = plan.emit(kernel::L2Norm { eps }, &call.operands);
    Lowered { outputs: vec![y], saved: vec![rnorm], state: Vec::new() }
}

/// With r = 1/sqrt(Σ x² + eps) and y = r x: dx = r (dy − y Σ(dy ⊙ y)).
fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    vec![dy[0].map(|dy| plan.one(kernel::L2NormGrad, &[dy, call.operands[0], lowered.saved[0]]))]
}
