//! `expert_linear w (x, e, out)`: for each of a token's ids e, the projection of that expert: `x W_eᵀ (+ b_e)`
//! with W `[experts, out, in]`: a matrix for each place that ids are chosen from. x is one vector for all ids, `[batch, time, in]`, or one for each, `[batch, time, k, in]`.
//! Every pair of a token and an id is computed, however many tokens an expert has; an expert without any has a gradient of
//! zeros. It is a primitive because a `linear` for each expert would compute all of them for every token.

use super::{
    Arity, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Owned, Primitive, Shaped, Shown, Time, Type, ids,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "expert_linear",
    revision: 1,
    doc: "x W_eᵀ (+ b_e) for each id e of a token, W [experts, out, in]: [batch, time, k, out]",
    why: "a `linear` for each expert would compute all of them for every token",
    torch: None,
    tensors: Arity::Exactly(2),
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
    examples: &[
        "w, e = top_k(linear s (x, 5), 2)  h = expert_linear a (x, e, 4) \
         mix_heads(expert_linear b (h, e, 6), w)",
        "w, e = top_k(linear s (x, 3), 2)  \
         mix_heads(expert_linear a (x, e, 6, bias = true), w)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x, e] = inputs else {
        return Err(Mismatch::new(
            "`expert_linear` takes x and ids",
            "write `expert_linear name (x, e, out)`",
        ));
    };
    let (count, experts) = ids("expert_linear", e)?;
    let fan_in = match (x.time && !x.tokens, x.dims.as_slice()) {
        (true, [width]) => *width,
        (true, [each, width]) if *each == count => *width,
        _ => {
            return Err(Mismatch::new(
                format!("x is {x}, but tokens have {count} ids"),
                format!("give one vector for each token, or `[batch, time, {count}, channels]`"),
            ));
        }
    };
    let out = attrs.int("out");
    if out <= 0 {
        return Err(Mismatch::new(
            format!("a projection to {out} channels is not possible"),
            "make the output width positive",
        ));
    }
    let mut shaped = Shaped::plain(Type::seq([count, out]));
    let weight = vec![experts, out, fan_in];
    shaped.params.push(Owned { suffix: "", role: "linear", shape: weight, fan_in });
    if attrs.flag("bias") {
        let bias = vec![experts, out];
        shaped.params.push(Owned { suffix: ".bias", role: "bias", shape: bias, fan_in });
    }
    Ok(shaped)
}

/// Each token's k products, and k of the parameters' rows.
fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    let m = inputs.first().map_or(0, Type::elements);
    let width = inputs.first().and_then(|x| x.dims.last()).copied().unwrap_or(0);
    let rows = inputs.get(1).and_then(|e| e.dims.first()).copied();
    Cost { flops: 2 * n * width, moved: n + m, saved: m, rows }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let mut operands = call.operands.clone();
    // The products take operands of one dtype.
    operands[0] = plan.cast(operands[0], plan.value(operands[2]).dtype);
    let y = plan.one(kernel::ExpertLinear { bias: operands.len() == 4 }, &operands);
    Lowered { outputs: vec![y], saved: vec![operands[0]], state: Vec::new() }
}

/// For each pair of a token and an id e: dx = dy W_e, summed over ids for an x of the token; dW_e = Σ dyᵀ x and
/// db_e = Σ dy over the tokens that have e.
fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    let Some(dy) = dy[0] else { return Vec::new() };
    let (x, e, weight) = (lowered.saved[0], call.operands[1], call.operands[2]);
    let experts = plan.widths(weight).first().copied().unwrap_or(0);
    let mut dx = plan.one(kernel::ExpertLinearGradInput, &[dy, e, weight]);
    if let [width] = plan.widths(x)[..] {
        let times = plan.widths(e).first().copied().unwrap_or(1);
        let one = plan.one(kernel::RepeatHeadsGrad { times }, &[dx]);
        dx = plan.one(kernel::Reshape { dims: vec![width] }, &[one]);
    }
    let dweight = plan.one(kernel::ExpertLinearGradWeight { experts }, &[dy, e, x]);
    let mut gradients = vec![Some(dx), None, Some(dweight)];
    if call.operands.len() == 4 {
        gradients.push(Some(plan.one(kernel::ExpertSum { experts }, &[dy, e])));
    }
    gradients
}
