//! `attention(q, k, v)`: `softmax(q kᵀ / sqrt(head_dim) + causal) v` per head (Vaswani et al. 2017,
//! eq. 1); query head j reads key-value head ⌊j·kv_heads/heads⌋ (Ainslie et al. 2023). With
//! `window w` a token sees itself and the w − 1 before it. Softmax in f32.

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Context, Cost, Default, Mismatch, Primitive,
    Shaped, State, Time, Type, per_head,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "attention",
    revision: 1,
    doc: "causal softmax attention, grouped queries, optional window (Vaswani et al. 2017, eq. 1)",
    tensors: Arity::Exactly(3),
    config: &[Config {
        name: "window",
        kind: ConfigKind::OptionalInt,
        default: Default::Absent,
    }],
    time: Time::Stateful,
    shape,
    cost,
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
            format!("{heads} query heads cannot share {kv_heads} key and {value_heads} value heads"),
            "make `kv_heads` equal for k and v and a divisor of `heads`",
        ));
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
    let per_step: i64 = inputs.first().map_or(0, Type::elements)
        + outputs.iter().map(Type::elements).sum::<i64>();
    // Each token sees half the sequence on average, or its window.
    let seen2 = attrs.optional_int("window").map_or(at.seq_len, |w| (2 * w).min(at.seq_len));
    Cost { flops: per_step * seen2, moved: n, saved: n }
}
