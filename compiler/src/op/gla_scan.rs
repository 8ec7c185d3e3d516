//! `gla_scan(q, k, v, g)`: gated linear attention (Yang et al. 2023, eq. 3). Per head with state
//! S `[Dk, Dv]`: `S ← diag(exp g_t) S + k_t v_tᵀ`, `o_t = Dk^(−1/2) Sᵀ q_t`, or another `scale`. g ≤ 0 has an entry per
//! key channel, or one per head (simple GLA), or is one constant per head (retention).

use super::{
    Arity, Attrs, Context, Cost, Drawn, Mismatch, Primitive, Recurrence, SCALE, Shaped, State,
    Time, Type, per_head, scan_backward, scan_cost, scan_forward, scanned,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "gla_scan",
    revision: 1,
    doc: "S ← diag(exp g) S + k vᵀ, o = Dk^(−1/2) Sᵀ q (Yang et al. 2023, eq. 3)",
    why: "state: a matrix per head",
    torch: None,
    tensors: Arity::Exactly(4),
    config: &[SCALE],
    time: Time::Stateful,
    shape,
    cost,
    forward: |plan, call| scan_forward(plan, call, &SCAN),
    backward: |plan, call, _, dy| scan_backward(plan, call, dy, &SCAN),
    drawn: Drawn::PER_HEAD,
    examples: &[
        "g = heads(logsigmoid(linear g (x, 6)), 2) \
         o = gla_scan(heads(linear q (x, 6), 2), heads(linear k (x, 6), 2), heads(linear v (x, 4), 2), g) \
         linear o (merge(o), 6)",
        // One gate per head; a gate that does not depend on the token, and a scale.
        "g = logsigmoid(linear g (x, 2)) \
         o = gla_scan(heads(linear q (x, 6), 2), heads(linear k (x, 6), 2), heads(linear v (x, 4), 2), g) \
         linear o (merge(o), 6)",
        "param rate [2] init ones  g = -exp(f32(rate)) \
         o = gla_scan(heads(linear q (x, 6), 2), heads(linear k (x, 6), 2), heads(linear v (x, 4), 2), g, \
           scale = 0.75) \
         linear o (merge(o), 6)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [q, k, v, g] = inputs else {
        return Err(Mismatch::new(
            "`gla_scan` takes q, k, v and g",
            "write `gla_scan(q, k, v, g)`",
        ));
    };
    let (heads, rows) = per_head("gla_scan", "q", q)?;
    let (value_heads, columns) = per_head("gla_scan", "v", v)?;
    let per_head = *g == Type::seq([heads]) || *g == Type::constant([heads]);
    if q != k || heads != value_heads || !(g == q || per_head) {
        return Err(Mismatch::new(
            format!("q {q}, k {k} and g {g} must be equal, and v {v} must have their heads"),
            "split all four into the same number of heads; g has one entry per key channel, or one per head",
        )
        .about(&["heads"]));
    }
    Ok(scanned(attrs, v.clone(), State::Matrix { heads, rows, columns }))
}

/// Decay, outer product and read-out: six operations per state element and token.
fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    scan_cost(&SCAN, inputs, outputs)
}

/// With dS the gradient of the state, from the last token to the first: dS += d^(−1/2) q_t dy_tᵀ,
/// dq_t = d^(−1/2) S_t dy_t, dk_t = dS v_t, dv_t = dSᵀ k_t, dg_t = rows of exp(g_t) S_{t−1} ⊙ dS summed,
/// dS ← diag(exp g_t) dS. States are recomputed.
pub(super) static SCAN: Recurrence = Recurrence {
    name: "gla_scan",
    gradient: "gla_scan_grad",
    operands: &["q", "k", "v", "g"],
    result: 2,
    rows: 0,
    columns: 2,
    flops: 6,
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
        let [q, k, v, g] = operands(x, at);
        let decay = exp(g);
        s.each(|i, _, x| *x *= decay[i % decay.len()]);
        s.add_outer(k, v);
        scaled(&s.transposed_times(q), read_out(q, at))
    }

    pub(super) fn back(x: &[&Tensor], back: &mut Back, at: At) {
        let [q, k, v, g] = operands(x, at);
        let out = scaled(back.dy, read_out(q, at));
        back.ds.add_outer(q, &out);
        back.add(0, at, &back.after.times(&out));
        back.add(1, at, &back.ds.times(v));
        back.add(2, at, &back.ds.transposed_times(k));
        let decay = exp(g);
        back.ds.each(|i, _, x| *x *= decay[i % decay.len()]);
        let rows = back.before.row_products(back.ds);
        back.add(3, at, &if g.len() == 1 { vec![rows.iter().sum()] } else { rows });
    }
}
