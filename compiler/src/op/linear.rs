//! `linear w (x, out)`: `x Wᵀ (+ b)` with W `[out, in]`, over the last axis.

use super::{
    Arity, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Owned, Primitive, Shaped, Shown, Time, Type, channels,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "linear",
    revision: 1,
    doc: "x Wᵀ (+ b), W [out, in]",
    why: "no other product with a matrix",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[
        Config { name: "out", kind: ConfigKind::Int, default: Default::Required },
        Config { name: "bias", kind: ConfigKind::Bool, default: Default::Bool(false) },
        Config { name: "weight", kind: ConfigKind::Weight, default: Default::Absent },
        Config { name: "init", kind: ConfigKind::Init, default: Default::Absent },
    ],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn {
        colour: Colour::Matrix,
        label: |s| {
            let (from, to) = (Shown::width(s.input), Shown::width(s.output));
            (s.name.to_owned(), format!("{from} → {to}"))
        },
    },
    examples: &["linear b (linear a (x, 5, bias = true), 6)"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let out = attrs.int("out");
    let [x] = inputs else {
        return Err(Mismatch::new("`linear` takes one tensor", "write `linear name (x, out)`"));
    };
    let fan_in = channels("linear", x)?;
    if out <= 0 {
        return Err(Mismatch::new(
            format!("a projection to {out} channels is not possible"),
            "make the output width positive",
        ));
    }
    let mut shaped = Shaped::plain(Type::seq([out]));
    shaped.params.push(Owned { suffix: "", role: "linear", shape: vec![out, fan_in], fan_in });
    if attrs.flag("bias") {
        shaped.params.push(Owned { suffix: ".bias", role: "bias", shape: vec![out], fan_in });
    }
    Ok(shaped)
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    let m = inputs.first().map_or(0, Type::elements);
    Cost { flops: 2 * n * m, moved: n + m, saved: m, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let mut operands = call.operands.clone();
    // The products take operands of one dtype.
    operands[0] = plan.cast(operands[0], plan.value(operands[1]).dtype);
    let y = plan.one(kernel::Linear { bias: operands.len() == 3 }, &operands);
    Lowered { outputs: vec![y], saved: vec![operands[0]], state: Vec::new() }
}

/// dx = dy W, dW = Σ dyᵀ x, db = Σ dy, with sums over batch and time.
fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    let Some(dy) = dy[0] else { return Vec::new() };
    let (x, weight) = (lowered.saved[0], call.operands[1]);
    let dx = plan.one(kernel::LinearGradInput, &[dy, weight]);
    let dweight = plan.one(kernel::LinearGradWeight, &[dy, x]);
    let mut gradients = vec![Some(dx), Some(dweight)];
    if call.operands.len() == 3 {
        gradients.push(Some(plan.one(kernel::SumTokens, &[dy])));
    }
    gradients
}
