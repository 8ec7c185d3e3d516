//! `latent_attention w (q, c, k)`: attention whose keys and values are projections of a latent c, so that only c and the
//! rotated part k of the keys are kept (DeepSeek-V2, 2405.04434, section 2.1). W gives each head `nope` channels of keys,
//! then `value_dim` of values; k follows the keys of every head. It is a primitive because its state is not keys and
//! values.

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Owned, Primitive, Shaped, State, Time, Type, channels, per_head,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel::{self, Scores};
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "latent_attention",
    revision: 1,
    doc: "attention with k, v = c Wᵀ for each head and a rotated key for all; keeps c (DeepSeek-V2 2024, section 2.1)",
    why: "state: the latent, instead of keys and values",
    torch: None,
    tensors: Arity::Exactly(3),
    config: &[
        Config { name: "value_dim", kind: ConfigKind::Int, default: Default::Required },
        Config { name: "scale", kind: ConfigKind::OptionalNumber, default: Default::Absent },
        Config { name: "weight", kind: ConfigKind::Weight, default: Default::Absent },
        Config { name: "init", kind: ConfigKind::Init, default: Default::Absent },
    ],
    time: Time::Stateful,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::PER_HEAD,
    examples: &[
        "q = heads(linear q (x, 10), 2)  c = linear c (x, 4)  k = heads(linear k (x, 2), 1) \
         linear o (merge(latent_attention w (q, c, k, 3)), 6)",
        "q = heads(linear q (x, 6), 2)  c = linear c (x, 4)  k = heads(linear k (x, 2), 1) \
         linear o (merge(latent_attention w (q, c, k, 3, scale = 0.7)), 6)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [q, c, k] = inputs else {
        return Err(Mismatch::new(
            "`latent_attention` takes q, c and k",
            "write `latent_attention name (q, c, k, value_dim)`",
        ));
    };
    let (heads, width) = per_head("latent_attention", "q", q)?;
    let rank = channels("latent_attention", c)?;
    let (one, rotated) = per_head("latent_attention", "k", k)?;
    if one != 1 || rotated >= width {
        return Err(Mismatch::new(
            format!("the rotated keys are {k}, but queries have {width} channels for each head"),
            "give one head that is narrower than a query: `heads(k, 1)`",
        ));
    }
    let value_dim = attrs.int("value_dim");
    if value_dim <= 0 {
        return Err(Mismatch::new(
            format!("values of {value_dim} channels are not possible"),
            "make `value_dim` at least 1",
        ));
    }
    let rows = (width - rotated).checked_add(value_dim).and_then(|each| each.checked_mul(heads));
    let rows = rows.ok_or_else(|| Mismatch::new("`value_dim` is too large", "make it smaller"))?;
    let mut shaped = Shaped::plain(Type::seq([heads, value_dim]));
    shaped.params =
        vec![Owned { suffix: "", role: "linear", shape: vec![rows, rank], fan_in: rank }];
    // c as one head's keys, k as its values.
    shaped.state =
        Some(State::KeyValue { kv_heads: 1, key_dim: rank, value_dim: rotated, window: None });
    shaped.attrs.insert("value_dim", Attr::Int(value_dim));
    let scale = attrs.get("scale").filter(|value| **value != Attr::None);
    shaped.attrs.extend(scale.map(|value| ("scale", value.clone())));
    Ok(shaped)
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], at: Context) -> Cost {
    let n: i64 = inputs.iter().chain(outputs).map(Type::elements).sum();
    let weight = inputs.get(3).map_or(0, Type::elements);
    let per_step: i64 =
        inputs.first().map_or(0, Type::elements) + outputs.iter().map(Type::elements).sum::<i64>();
    Cost { flops: 2 * weight + per_step * at.seq_len, moved: n, saved: n, ..Cost::default() }
}

/// Sizes of a call, from its operands.
struct Sizes {
    heads: i64,
    nope: i64,
    rotated: i64,
    value_dim: i64,
    rank: i64,
}

impl Sizes {
    fn new(plan: &PlanBuilder, call: &Call) -> Sizes {
        let last = |at: usize| plan.widths(call.operands[at]).last().copied().unwrap_or(0);
        let heads = plan.widths(call.operands[0]).first().copied().unwrap_or(0);
        let (width, rank, rotated) = (last(0), last(1), last(2));
        let value_dim = call.attrs.int("value_dim");
        Sizes { heads, nope: width - rotated, rotated, value_dim, rank }
    }

    fn kinds(&self) -> Vec<i64> {
        vec![self.nope, self.value_dim]
    }
}

fn scores(call: &Call) -> Scores {
    Scores { scale: call.attrs.optional_number("scale"), ..Scores::PLAIN }
}

/// Expands all latents to keys and values of every head.
fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let sizes = Sizes::new(plan, call);
    let (q, weight) = (call.operands[0], call.operands[3]);
    let mut c = plan.one(kernel::Reshape { dims: vec![1, sizes.rank] }, &[call.operands[1]]);
    let mut k = call.operands[2];
    if let [latents, rotated] = call.past[..] {
        c = plan.one(kernel::AppendTime, &[latents, c]);
        k = plan.one(kernel::AppendTime, &[rotated, k]);
    }
    let state = if call.keeps_state { vec![c, k] } else { Vec::new() };
    let flat = plan.one(kernel::Reshape { dims: vec![sizes.rank] }, &[c]);
    // The products take operands of one dtype.
    let flat = plan.cast(flat, plan.value(weight).dtype);
    let expanded = plan.one(kernel::Linear { bias: false }, &[flat, weight]);
    let dims = vec![sizes.heads, sizes.nope + sizes.value_dim];
    let expanded = plan.one(kernel::Reshape { dims }, &[expanded]);
    let [nope, values] = plan.emit(kernel::Split { widths: sizes.kinds() }, &[expanded]);
    let shared = plan.one(kernel::RepeatHeads { times: sizes.heads }, &[k]);
    let keys = plan.one(kernel::Concat, &[nope, shared]);
    let [y, lse] = plan.emit(kernel::Attention { scores: scores(call) }, &[q, keys, values]);
    Lowered { outputs: vec![y], saved: vec![lse, keys, values, flat], state }
}

/// The steps of the forward pass in reverse.
fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    let Some(dy) = dy[0] else { return Vec::new() };
    let sizes = Sizes::new(plan, call);
    let (q, weight, y) = (call.operands[0], call.operands[3], lowered.outputs[0]);
    let [lse, keys, values, flat] = [0, 1, 2, 3].map(|at| lowered.saved[at]);
    let operands = [dy, q, keys, values, y, lse];
    let [dq, dkeys, dvalues] = plan.emit(kernel::AttentionGrad { scores: scores(call) }, &operands);
    let widths = vec![sizes.nope, sizes.rotated];
    let [dnope, dshared] = plan.emit(kernel::Split { widths }, &[dkeys]);
    let dk = plan.one(kernel::RepeatHeadsGrad { times: sizes.heads }, &[dshared]);
    let dexpanded = plan.one(kernel::Concat, &[dnope, dvalues]);
    let dims = vec![sizes.heads * (sizes.nope + sizes.value_dim)];
    let dexpanded = plan.one(kernel::Reshape { dims }, &[dexpanded]);
    let dc = plan.one(kernel::LinearGradInput, &[dexpanded, weight]);
    let dweight = plan.one(kernel::LinearGradWeight, &[dexpanded, flat]);
    vec![Some(dq), Some(dc), Some(dk), Some(dweight)]
}
