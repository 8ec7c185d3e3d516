//! `dplr_scan(q, k, v, a, b, g)`: the delta rule with a transition that is diagonal plus low rank (Peng et al. 2025,
//! "RWKV-7", section 3). Per head with state S `[Dk, Dv]`: `S ← diag(exp g_t) S + b_t (Sᵀ a_t)ᵀ + k_t v_tᵀ`, where both
//! S on the right are the one before the token, `o_t = Dk^(−1/2) Sᵀ q_t`, or another `scale`; g ≤ 0 per key channel.
//!
//! It is a primitive since it has state over time that no other scan has: `a = −κ`, `b = κ ⊙ η` is RWKV-7, and
//! `a = −exp g ⊙ k`, `b = β k` with β k for k is Kimi delta attention, the gated delta rule with a decay per channel.

use super::{
    Arity, Attrs, Context, Cost, Drawn, Mismatch, Primitive, Recurrence, SCALE, Shaped, State,
    Time, Type, per_head, scan_backward, scan_cost, scan_forward, scanned,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "dplr_scan",
    revision: 1,
    doc: "S ← diag(exp g) S + b (Sᵀ a)ᵀ + k vᵀ, o = Dk^(−1/2) Sᵀ q (Peng et al. 2025, section 3)",
    why: "state: a matrix per head, with a transition that no other scan has",
    torch: None,
    tensors: Arity::Exactly(6),
    config: &[SCALE],
    time: Time::Stateful,
    shape,
    cost,
    forward: |plan, call| scan_forward(plan, call, &SCAN),
    backward: |plan, call, _, dy| scan_backward(plan, call, dy, &SCAN),
    drawn: Drawn::PER_HEAD,
    examples: &[
        "q = heads(linear q (x, 6), 2)  k = heads(linear k (x, 6), 2)  v = heads(linear v (x, 4), 2) \
         a = l2_norm(heads(linear a (x, 6), 2))  g = logsigmoid(heads(linear g (x, 6), 2)) \
         b = -(a * sigmoid(heads(linear b (x, 6), 2))) \
         linear o (merge(dplr_scan(q, k, v, a, b, g)), 6)",
        "q = heads(linear q (x, 4), 2)  k = l2_norm(heads(linear k (x, 4), 2))  v = heads(linear v (x, 6), 2) \
         g = logsigmoid(heads(linear g (x, 4), 2)) \
         linear o (merge(dplr_scan(q, k, v, -(exp(g) * k), k, g, scale = 1)), 6)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [q, k, v, a, b, g] = inputs else {
        return Err(Mismatch::new(
            "`dplr_scan` takes q, k, v, a, b and g",
            "write `dplr_scan(q, k, v, a, b, g)`",
        ));
    };
    let (heads, rows) = per_head("dplr_scan", "q", q)?;
    let (value_heads, columns) = per_head("dplr_scan", "v", v)?;
    if [k, a, b, g].iter().any(|x| *x != q) || heads != value_heads {
        return Err(Mismatch::new(
            format!(
                "q {q}, k {k}, a {a}, b {b} and g {g} must be equal, and v {v} must have their heads"
            ),
            "split all six into the same number of heads; g has one entry per key channel",
        )
        .about(&["heads"]));
    }
    Ok(scanned(attrs, v.clone(), State::Matrix { heads, rows, columns }))
}

/// Per state element and token: read-out, decay and outer product as for GLA, the product with a, and the second
/// outer product.
fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    scan_cost(&SCAN, inputs, outputs)
}

/// With w_t = S_{t−1}ᵀ a_t and dS the gradient of S_t (+ scale q_t dy_tᵀ): dq = scale S_t dy, dk = dS v, dv = dSᵀ k,
/// db = dS w, dw = dSᵀ b, da = S_{t−1} dw, dg = rows of exp(g) S_{t−1} ⊙ dS summed,
/// dS_{t−1} = diag(exp g) dS + a dwᵀ. States are recomputed.
pub(super) static SCAN: Recurrence = Recurrence {
    name: "dplr_scan",
    gradient: "dplr_scan_grad",
    operands: &["q", "k", "v", "a", "b", "g"],
    result: 2,
    rows: 0,
    columns: 2,
    flops: 10,
    #[cfg(test)]
    step: reference::step,
    #[cfg(test)]
    back: reference::back,
};

/// One head, token by token: what every kernel of it is compared to.
#[cfg(test)]
mod reference {
    use crate::kernel::reference::{At, Back, Matrix, exp, operands, read_out, scaled};
    use crate::kernel::tensor::Tensor;

    /// One token: changes the state, returns the result.
    pub(super) fn step(x: &[&Tensor], s: &mut Matrix, at: At) -> Vec<f64> {
        let [q, k, v, a, b, g] = operands(x, at);
        let (through, decay) = (s.transposed_times(a), exp(g));
        s.each(|i, _, x| *x *= decay[i]);
        s.add_outer(b, &through);
        s.add_outer(k, v);
        scaled(&s.transposed_times(q), read_out(q, at))
    }

    pub(super) fn back(x: &[&Tensor], back: &mut Back, at: At) {
        let [q, k, v, a, b, g] = operands(x, at);
        let out = scaled(back.dy, read_out(q, at));
        back.ds.add_outer(q, &out);
        back.add(0, at, &back.after.times(&out));
        back.add(1, at, &back.ds.times(v));
        back.add(2, at, &back.ds.transposed_times(k));
        let through = back.before.transposed_times(a);
        back.add(4, at, &back.ds.times(&through));
        let dthrough = back.ds.transposed_times(b);
        back.add(3, at, &back.before.times(&dthrough));
        let decay = exp(g);
        back.ds.each(|i, _, x| *x *= decay[i]);
        back.add(5, at, &back.before.row_products(back.ds));
        back.ds.add_outer(a, &dthrough);
    }
}
