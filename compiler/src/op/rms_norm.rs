//! `rms_norm w (x)`: `w ⊙ x / sqrt(mean(x²) + eps)` over the last axis (Zhang and Sennrich 2019,
//! eq. 4). Statistics and the product with w in f32, one cast at the end.

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Owned, Primitive, Shaped, Time, Type, last,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "rms_norm",
    revision: 1,
    doc: "w ⊙ x / sqrt(mean(x²) + eps) over the last axis (Zhang and Sennrich 2019, eq. 4)",
    why: "a text has roots only by `log` and `exp`, which round",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[
        Config { name: "eps", kind: ConfigKind::Decimal, default: Default::ArchField("norm_eps") },
        Config { name: "weight", kind: ConfigKind::Weight, default: Default::Absent },
        Config { name: "init", kind: ConfigKind::Init, default: Default::Absent },
    ],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::NORM,
    examples: &["rms_norm n (x)"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x] = inputs else {
        return Err(Mismatch::new("`rms_norm` takes one tensor", "write `rms_norm name (x)`"));
    };
    let width = last("rms_norm", x)?;
    let eps = attrs.decimal("eps");
    if eps.is_negative() {
        return Err(Mismatch::new(format!("eps is {eps}"), "make eps 0 or more, such as 1e-5"));
    }
    let mut shaped = Shaped::plain(x.clone());
    shaped.params.push(Owned { suffix: "", role: "norm", shape: vec![width], fan_in: width });
    shaped.attrs.insert("eps", Attr::Decimal(eps));
    Ok(shaped)
}

fn cost(_: &Attrs, _: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: 4 * n, moved: 2 * n, saved: n + 1, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let eps = call.attrs.decimal("eps");
    let [y, rstd] = plan.emit(kernel::RmsNorm { eps }, &call.operands);
    Lowered { outputs: vec![y], saved: vec![rstd], state: Vec::new() }
}

/// With r = 1/sqrt(mean x² + eps), n = r x and g = w ⊙ dy: dx = r (g − n mean(g ⊙ n)), dw = Σ dy ⊙ n.
fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    let Some(dy) = dy[0] else { return Vec::new() };
    let (x, weight, rstd) = (call.operands[0], call.operands[1], lowered.saved[0]);
    let [dx, dweight] = plan.emit(kernel::RmsNormGrad, &[dy, x, weight, rstd]);
    vec![Some(dx), Some(dweight)]
}
