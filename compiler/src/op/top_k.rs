//! `w, e = top_k(s, n)`: the n largest of each token's scores, largest first, and their places as ids; equal scores in the
//! order of their places. `bias` is added to choose, but not to the result, and has no gradient (DeepSeek-V3,
//! 2412.19437, section 2.1.2). It is a primitive because its ids are integers, which no text computes.

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Primitive, Shaped, Time, Type, channels,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "top_k",
    revision: 1,
    doc: "the largest scores, and their places as ids, ties to the lower; `bias` is a tensor that only chooses (DeepSeek-V3 2024, section 2.1)",
    why: "its ids are integers, which no text computes",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[
        Config { name: "count", kind: ConfigKind::Int, default: Default::Required },
        Config { name: "bias", kind: ConfigKind::Tensor, default: Default::Absent },
    ],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &[
        "w, e = top_k(linear s (x, 5), 2)  linear o (w, 6)",
        "param b [4] init ones  w, e = top_k(linear s (x, 4), 3, bias = b)  y = linear o (w, 4) * b \
         linear p (y, 6)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [scores, extra @ ..] = inputs else {
        return Err(Mismatch::new("`top_k` takes one tensor", "write `w, e = top_k(scores, n)`"));
    };
    let width = channels("top_k", scores)?;
    let count = attrs.int("count");
    if !(1..=width).contains(&count) {
        return Err(Mismatch::new(
            format!("{count} of {width} scores cannot be chosen"),
            format!("choose at least 1 and at most {width}"),
        ));
    }
    if let [bias, ..] = extra
        && (bias.time || bias.tokens || bias.dims != [width])
    {
        return Err(Mismatch::new(
            format!("`bias` is {bias}, but there are {width} scores"),
            format!("give one number for each score: `param bias [{width}]`"),
        ));
    }
    let mut shaped = Shaped::plain(Type::seq([count]));
    shaped.outputs.push(Type::ids(count, width));
    shaped.attrs.insert("count", Attr::Int(count));
    if attrs.flag("bias") {
        shaped.attrs.insert("bias", Attr::Bool(true));
    }
    Ok(shaped)
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = inputs.iter().chain(outputs).map(Type::elements).sum();
    Cost { moved: n, saved: outputs.first().map_or(0, Type::elements), ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let (count, bias) = (call.attrs.int("count"), call.attrs.flag("bias"));
    let [values, ids] = plan.emit(kernel::TopK { count, bias }, &call.operands);
    Lowered { outputs: vec![values, ids], ..Lowered::default() }
}

/// A chosen score has its value's gradient, any other has none; nor has the bias.
fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    let width = plan.widths(call.operands[0]).last().copied().unwrap_or(0);
    let ids = lowered.outputs[1];
    vec![dy[0].map(|dy| plan.one(kernel::Scatter { width }, &[dy, ids])), None]
}
