//! `repeat_heads(x, n)`: `[…, h, d]` to `[…, h·n, d]`; new head j copies old head ⌊j/n⌋, as in
//! grouped-query attention (Ainslie et al. 2023, section 2.2).

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Primitive, Shaped, Time, Type, per_head,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "repeat_heads",
    revision: 1,
    doc: "[…, h, d] to […, h·n, d]; new head j is old head ⌊j/n⌋",
    why: "only primitives reshape",
    torch: Some("{0}.repeat_interleave({times}, dim=-2)"),
    tensors: Arity::Exactly(1),
    config: &[Config { name: "times", kind: ConfigKind::Int, default: Default::Required }],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &[
        "linear o (merge(rms_norm n (repeat_heads(heads(x, 2), 3)) * heads(linear w (x, 18), 6)), 6)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let times = attrs.int("times");
    let [x] = inputs else {
        return Err(Mismatch::new("`repeat_heads` takes one tensor", "write `repeat_heads(x, n)`"));
    };
    let (h, d) = per_head("repeat_heads", "x", x)?;
    let repeated = h.checked_mul(times).filter(|_| times > 0).ok_or_else(|| {
        Mismatch::new(format!("heads cannot be repeated {times} times"), "repeat at least once")
            .about(&["heads"])
    })?;
    let mut shaped = Shaped::plain(Type::seq([repeated, d]));
    shaped.attrs.insert("times", Attr::Int(times));
    Ok(shaped)
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = inputs.iter().chain(outputs).map(Type::elements).sum();
    Cost { flops: 0, moved: n, saved: 0, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.one(kernel::RepeatHeads { times: call.attrs.int("times") }, &call.operands))
}

/// A head's gradient is the sum over its copies.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let times = call.attrs.int("times");
    vec![dy[0].map(|dy| plan.one(kernel::RepeatHeadsGrad { times }, &[dy]))]
}
