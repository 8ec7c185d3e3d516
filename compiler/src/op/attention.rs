//! `attention(q, k, v)`: `softmax(q kᵀ / sqrt(head_dim) + causal) v` per head (Vaswani et al. 2017,
//! eq. 1); query head j reads key-value head ⌊j·kv_heads/heads⌋ (Ainslie et al. 2023). With
//! `window w` a token sees itself and the w − 1 before it. Softmax in f32.
//!
//! Options, which compose: `scale` instead of 1 / sqrt(head_dim); `softcap` c bounds scores, c tanh(score / c) (Gemma 2,
//! 2408.00118); `sink` is a score of each head without a value (GPT-OSS); `slopes` lower the scores of each head by
//! distance (Press et al. 2021). They are options because they are inside the softmax, where no text reaches.

use super::{
    Arity, Attr, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn,
    Mismatch, Primitive, Shaped, State, Time, Type, per_head,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel::{self, Scores};
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "attention",
    revision: 1,
    doc: "causal softmax attention, grouped queries (Vaswani et al. 2017, eq. 1); `sink` and `slopes` are tensors `[heads]`",
    why: "state: keys and values; its options are inside the softmax, where no text reaches",
    torch: None,
    tensors: Arity::Exactly(3),
    config: &[
        Config { name: "window", kind: ConfigKind::OptionalInt, default: Default::Absent },
        Config { name: "scale", kind: ConfigKind::OptionalNumber, default: Default::Absent },
        Config { name: "softcap", kind: ConfigKind::OptionalDecimal, default: Default::Absent },
        Config { name: "sink", kind: ConfigKind::Tensor, default: Default::Absent },
        Config { name: "slopes", kind: ConfigKind::Tensor, default: Default::Absent },
    ],
    time: Time::Stateful,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn {
        colour: Colour::Time,
        label: |s| {
            let (title, note) = s.per_head();
            match s.attrs.optional_int("window") {
                Some(window) => (title, format!("{note}, window {window}")),
                None => (title, note),
            }
        },
    },
    examples: &[
        "q = heads(linear q (x, 8), 4)  k = heads(linear k (x, 4), 2)  v = heads(linear v (x, 6), 2) \
         linear o (merge(attention(q, k, v)), 6)",
        "q = heads(linear q (x, 8), 4)  k = heads(linear k (x, 2), 1)  v = heads(linear v (x, 3), 1) \
         linear o (merge(attention(q, k, v, window = 2)), 6)",
        "q = heads(linear q (x, 8), 4)  k = heads(linear k (x, 4), 2)  v = heads(linear v (x, 6), 2) \
         param s [4] init ones  param m [4] init ones \
         linear o (merge(attention(q, k, v, window = 3, scale = 0.4, softcap = 2, sink = s, slopes = m)), 6)",
        "q = heads(linear q (x, 4), 2)  k = heads(linear k (x, 4), 2)  v = heads(linear v (x, 6), 2) \
         param s [2] init ones \
         linear o (merge(attention(q, k, v, softcap = 1.5, sink = s)), 6)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [q, k, v, extra @ ..] = inputs else {
        return Err(Mismatch::new("`attention` takes q, k and v", "write `attention(q, k, v)`"));
    };
    let (heads, head_dim) = per_head("attention", "q", q)?;
    let (kv_heads, key_dim) = per_head("attention", "k", k)?;
    let (value_heads, value_dim) = per_head("attention", "v", v)?;
    if key_dim != head_dim {
        return Err(Mismatch::new(
            format!("queries are {head_dim} wide per head, keys {key_dim}"),
            "give q and k the same head_dim",
        ));
    }
    if kv_heads != value_heads || heads % kv_heads != 0 {
        return Err(Mismatch::new(
            format!(
                "{heads} query heads cannot share {kv_heads} key and {value_heads} value heads"
            ),
            "make `kv_heads` equal for k and v and a divisor of `heads`",
        )
        .about(&["heads"]));
    }
    let window = attrs.optional_int("window");
    if window.is_some_and(|w| w <= 0) {
        return Err(Mismatch::new(
            format!("a window of {} tokens sees nothing", window.unwrap_or(0)),
            "make `window` at least 1, or `none` for the whole past",
        ));
    }
    let named = ["sink", "slopes"].into_iter().filter(|name| attrs.flag(name));
    for (name, given) in named.zip(extra) {
        if given.time || given.tokens || given.dims != [heads] {
            return Err(Mismatch::new(
                format!("`{name}` is {given}, but there are {heads} query heads"),
                format!("give one number for each query head: `param {name} [{heads}]`"),
            ));
        }
    }
    let softcap = attrs.optional_decimal("softcap");
    if softcap.is_some_and(|cap| cap.is_negative() || cap.is_zero()) {
        return Err(Mismatch::new(
            format!("scores cannot be bounded by {}", attrs.decimal("softcap")),
            "make `softcap` positive, such as 50, or `none`",
        ));
    }
    let mut shaped = Shaped::plain(Type::seq([heads, value_dim]));
    shaped.state = Some(State::KeyValue { kv_heads, key_dim, value_dim, window });
    shaped.attrs.insert("window", window.map_or(Attr::None, Attr::Int));
    // Only where it is set: the text of every earlier graph stays as it was.
    for name in ["scale", "softcap", "sink", "slopes"] {
        let set = attrs.get(name).filter(|value| **value != Attr::None);
        shaped.attrs.extend(set.map(|value| (name, value.clone())));
    }
    Ok(shaped)
}

/// The configuration as the kernel reads it.
pub(super) fn scores(attrs: &Attrs) -> Scores {
    Scores {
        window: attrs.optional_int("window"),
        scale: attrs.optional_number("scale"),
        softcap: attrs.optional_decimal("softcap"),
        sink: attrs.flag("sink"),
        slopes: attrs.flag("slopes"),
    }
}

fn cost(attrs: &Attrs, inputs: &[Type], outputs: &[Type], at: Context) -> Cost {
    let n: i64 = inputs.iter().chain(outputs).map(Type::elements).sum();
    let per_step: i64 =
        inputs.first().map_or(0, Type::elements) + outputs.iter().map(Type::elements).sum::<i64>();
    // Each token sees half the sequence on average, or its window.
    let seen2 = attrs.optional_int("window").map_or(at.seq_len, |w| (2 * w).min(at.seq_len));
    Cost { flops: per_step * seen2, moved: n, saved: n, ..Cost::default() }
}

/// Past keys and values are placed before the new ones; a window keeps the last of both.
fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let window = call.attrs.optional_int("window");
    let (q, mut k, mut v) = (call.operands[0], call.operands[1], call.operands[2]);
    if let [keys, values] = call.past[..] {
        k = plan.one(kernel::AppendTime, &[keys, k]);
        v = plan.one(kernel::AppendTime, &[values, v]);
    }
    let mut operands = vec![q, k, v];
    operands.extend(&call.operands[3..]);
    let [y, lse] = plan.emit(kernel::Attention { scores: scores(&call.attrs) }, &operands);
    let mut state = Vec::new();
    if call.keeps_state {
        state = vec![k, v];
        if let Some(rows) = window {
            state = state.iter().map(|x| plan.one(kernel::LastTime { rows }, &[*x])).collect();
        }
    }
    Lowered { outputs: vec![y], saved: vec![lse], state }
}

/// From the saved log-sum-exp, as in FlashAttention-2 (Dao 2023, algorithm 2): P = exp(S − lse),
/// dV = Pᵀ dY, dS = P ⊙ (dY Vᵀ − Σ dY ⊙ Y), dQ = dS K / sqrt(d), dK = dSᵀ Q / sqrt(d). The sink has no value, so its
/// gradient is −Σ exp(sink − lse) Σ dY ⊙ Y; a slope's, −Σ dS ⊙ distance.
fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    let Some(dy) = dy[0] else { return Vec::new() };
    let (q, k, v) = (call.operands[0], call.operands[1], call.operands[2]);
    let mut operands = vec![dy, q, k, v, lowered.outputs[0], lowered.saved[0]];
    operands.extend(&call.operands[3..]);
    let gradients = plan.emit_all(kernel::AttentionGrad { scores: scores(&call.attrs) }, operands);
    gradients.into_iter().map(Some).collect()
}
