//! `attention(q, k, v)`: `softmax(q kᵀ / sqrt(head_dim) + causal) v` per head (Vaswani et al. 2017,
//! eq. 1); query head j reads key-value head ⌊j·kv_heads/heads⌋ (Ainslie et al. 2023). With
//! `window w` a token sees itself and the w − 1 before it. Softmax in f32.

use super::{
    Arity, Attr, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn,
    Mismatch, Primitive, Shaped, State, Time, Type, per_head,
};
use crate::lower::{Call, Gradients, Lower, Lowered};
use crate::plan::{Kernel, ValId};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "attention",
    revision: 1,
    doc: "causal softmax attention, grouped queries, optional window (Vaswani et al. 2017, eq. 1)",
    tensors: Arity::Exactly(3),
    config: &[Config { name: "window", kind: ConfigKind::OptionalInt, default: Default::Absent }],
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
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [q, k, v] = inputs else {
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
    let mut shaped = Shaped::plain(Type::seq([heads, value_dim]));
    shaped.state = Some(State::KeyValue { kv_heads, key_dim, value_dim, window });
    shaped.attrs.insert("window", window.map_or(Attr::None, Attr::Int));
    Ok(shaped)
}

fn cost(attrs: &Attrs, inputs: &[Type], outputs: &[Type], at: Context) -> Cost {
    let n: i64 = inputs.iter().chain(outputs).map(Type::elements).sum();
    let per_step: i64 =
        inputs.first().map_or(0, Type::elements) + outputs.iter().map(Type::elements).sum::<i64>();
    // Each token sees half the sequence on average, or its window.
    let seen2 = attrs.optional_int("window").map_or(at.seq_len, |w| (2 * w).min(at.seq_len));
    Cost { flops: per_step * seen2, moved: n, saved: n }
}

/// Past keys and values are placed before the new ones; a window keeps the last of both.
fn forward(l: &mut Lower, call: &Call) -> Lowered {
    let window = call.attrs.optional_int("window");
    let (q, mut k, mut v) = (call.operands[0], call.operands[1], call.operands[2]);
    if let [keys, values] = call.past[..] {
        k = l.one(Kernel::AppendTime, &[keys, k]);
        v = l.one(Kernel::AppendTime, &[values, v]);
    }
    let [y, lse] = l.emit(Kernel::Attention { window }, &[q, k, v]);
    let mut state = Vec::new();
    if call.keeps_state {
        state = vec![k, v];
        if let Some(rows) = window {
            state = state.iter().map(|x| l.one(Kernel::LastTime { rows }, &[*x])).collect();
        }
    }
    Lowered { outputs: vec![y], saved: vec![lse], state }
}

/// From the saved log-sum-exp, as in FlashAttention-2 (Dao 2023, algorithm 2): P = exp(S − lse),
/// dV = Pᵀ dY, dS = P ⊙ (dY Vᵀ − Σ dY ⊙ Y), dQ = dS K / sqrt(d), dK = dSᵀ Q / sqrt(d).
fn backward(l: &mut Lower, call: &Call, made: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let Some(dy) = dy[0] else { return Vec::new() };
    let window = call.attrs.optional_int("window");
    let (q, k, v) = (call.operands[0], call.operands[1], call.operands[2]);
    let (y, lse) = (made.outputs[0], made.saved[0]);
    let [dq, dk, dv] = l.emit(Kernel::AttentionGrad { window }, &[dy, q, k, v, y, lse]);
    vec![Some(dq), Some(dk), Some(dv)]
}
