//! `mix_heads(x, w)`: sums of heads with weights: `[…, n, d]` and `[n, m]` to `[…, m, d]`, or `[n]` to `[…, d]`. Streams of
//! hyper-connections (Zhu et al. 2024, section 2) are heads; so are those of talking-heads attention. The weights are a
//! parameter, or differ for each token. It is a primitive because no text sums over heads.

use super::{
    Arity, Attr, Attrs, AttrsExt, Context, Cost, Drawn, Mismatch, Primitive, Shaped, Time, Type,
    per_head,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel::{self, Mixed};
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "mix_heads",
    revision: 1,
    doc: "[…, n, d] and weights [n, m] to […, m, d], or [n] to […, d]: head j is Σ w_ij x_i (Zhu et al. 2024, section 2)",
    why: "nothing else sums over heads",
    torch: None,
    tensors: Arity::Exactly(2),
    config: &[],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &[
        "param w [3, 2] init normal(1)  linear o (merge(mix_heads(heads(x, 3), w)), 6)",
        "param w [2] init normal(1)  linear o (mix_heads(heads(linear i (x, 6), 2), w), 6)",
        "w = heads(linear v (x, 6), 3)  linear o (merge(mix_heads(heads(x, 3), w)), 6)",
        "linear o (mix_heads(heads(x, 2), linear v (x, 2)), 6)",
    ],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x, w] = inputs else {
        return Err(Mismatch::new("`mix_heads` takes two tensors", "write `mix_heads(x, w)`"));
    };
    let (heads, width) = per_head("mix_heads", "x", x)?;
    let (dims, one) = match w.dims.as_slice() {
        [n] if *n == heads => (vec![width], true),
        [n, mixed] if *n == heads => (vec![*mixed, width], false),
        _ => {
            return Err(Mismatch::new(
                format!("{w} are not weights for the {heads} heads of {x}"),
                format!("give them as [{heads}, n] for n sums, or as [{heads}] for one"),
            ));
        }
    };
    if w.tokens {
        return Err(Mismatch::new("`mix_heads` takes numbers as weights", "embed tokens first"));
    }
    let mut shaped = Shaped::plain(Type::seq(dims));
    shaped.attrs.insert("one", Attr::Bool(one));
    Ok(shaped)
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = inputs.iter().filter(|x| x.time).map(Type::elements).sum();
    let y: i64 = outputs.iter().map(Type::elements).sum();
    let heads = inputs.first().and_then(|x| x.dims.first()).copied().unwrap_or(0);
    Cost { flops: 2 * heads * y, moved: n + y, saved: n, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let kernel = kernel::MixHeads { part: Mixed::Heads, one: call.attrs.flag("one") };
    Lowered::one(plan.one(kernel, &call.operands))
}

/// dx_i = Σ_j w_ij dy_j; dw_ij = dy_j · x_i for each token.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let [Some(dy)] = dy else { return vec![None, None] };
    let [x, w] = call.operands[..] else { return vec![None, None] };
    let one = call.attrs.flag("one");
    let dx = plan.one(kernel::MixHeads { part: Mixed::Input, one }, &[*dy, w]);
    let dw = plan.one(kernel::MixHeads { part: Mixed::Weights, one }, &[*dy, x]);
    vec![Some(dx), Some(plan.unspread(dw, w))]
}
