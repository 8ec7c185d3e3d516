//! `delta_scan(q, k, v, beta, g)`: the gated delta rule (Yang et al. 2024, eq. 10). Per head with
//! state S `[Dk, Dv]`: decay `S ← exp(g_t) S`, correct `S ← S + k_t β_t (v_t − Sᵀ k_t)ᵀ`, read
//! `o_t = Dk^(−1/2) Sᵀ q_t`.

use super::{
    Arity, Attrs, Context, Cost, Drawn, Mismatch, Primitive, Recurrence, Scan, Shaped, State, Time,
    Type, per_head, scan_backward, scan_cost, scan_forward,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "delta_scan",
    revision: 1,
    doc: "S ← e^g S, S ← S + k β (v − Sᵀ k)ᵀ, o = Dk^(−1/2) Sᵀ q (Yang et al. 2024, eq. 10)",
    tensors: Arity::Exactly(5),
    config: &[],
    time: Time::Stateful,
    shape,
    cost,
    forward: |l, call| scan_forward(l, call, Scan::Delta),
    backward: |l, call, _, dy| scan_backward(l, call, dy, Scan::Delta),
    drawn: Drawn::PER_HEAD,
    examples: &["q = l2_norm(heads(linear q (x, 6), 2))  k = l2_norm(heads(linear k (x, 6), 2)) \
         beta = sigmoid(linear b (x, 2))  g = logsigmoid(linear g (x, 2)) \
         linear o (merge(delta_scan(q, k, heads(linear v (x, 8), 2), beta, g)), 6)"],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [q, k, v, beta, g] = inputs else {
        return Err(Mismatch::new(
            "`delta_scan` takes q, k, v, beta and g",
            "write `delta_scan(q, k, v, beta, g)`",
        ));
    };
    let (heads, rows) = per_head("delta_scan", "q", q)?;
    let (value_heads, columns) = per_head("delta_scan", "v", v)?;
    let gates = Type::seq([heads]);
    if q != k || heads != value_heads || *beta != gates || *g != gates {
        return Err(Mismatch::new(
            format!(
                "q {q} and k {k} must be equal, v {v} must have their heads, and beta {beta} and g {g} one entry per head"
            ),
            format!("q has {heads} heads: project beta and g to {heads} channels"),
        ).about(&["heads"]));
    }
    let mut shaped = Shaped::plain(v.clone());
    shaped.state = Some(State::Matrix { heads, rows, columns });
    Ok(shaped)
}

/// GLA's operations, and one more product: the error of the decayed state.
fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    scan_cost(&SCAN, inputs, outputs)
}

/// With S′ = exp(g_t) S_{t−1}, u = v_t − S′ᵀ k_t and dS the gradient of S_t (+ d^(−1/2) q_t dy_tᵀ):
/// dβ = (dSᵀ k)·u, e = β dSᵀ k, dv = e, dk = β dS u − S′ e, dS′ = dS − k eᵀ, dg = Σ dS′ ⊙ S′,
/// dS_{t−1} = exp(g_t) dS′. States are recomputed.
pub(super) static SCAN: Recurrence = Recurrence {
    name: "delta_scan",
    gradient: "delta_scan_grad",
    operands: &["q", "k", "v", "beta", "g"],
    result: 2,
    rows: 0,
    columns: 2,
    flops: 8,
    #[cfg(test)]
    step: reference::step,
    #[cfg(test)]
    back: reference::back,
};

/// One head, token by token: what every kernel of it is compared to.
#[cfg(test)]
mod reference {
    use crate::plan::tests::scans::{At, Back, Matrix, dot, operands, read_out, scaled};
    use crate::plan::tests::tensor::Tensor;

    /// One token: changes the state, returns the result.
    pub(super) fn step(x: &[&Tensor], s: &mut Matrix, at: At) -> Vec<f64> {
        let [q, k, v, beta, g] = operands(x, at);
        let decay = libm::exp(g[0]);
        s.each(|_, _, x| *x *= decay);
        let known = s.transposed_times(k);
        let error: Vec<f64> = v.iter().zip(known).map(|(v, s)| v - s).collect();
        s.add_outer(k, &scaled(&error, beta[0]));
        scaled(&s.transposed_times(q), read_out(q))
    }

    pub(super) fn back(x: &[&Tensor], back: &mut Back, at: At) {
        let [q, k, v, beta, g] = operands(x, at);
        let out = scaled(back.dy, read_out(q));
        back.ds.add_outer(q, &out);
        back.add(0, at, &back.after.times(&out));
        let decay = libm::exp(g[0]);
        let mut decayed = back.before.clone();
        decayed.each(|_, _, x| *x *= decay);
        let known = decayed.transposed_times(k);
        let u: Vec<f64> = v.iter().zip(known).map(|(v, s)| v - s).collect();
        let through = back.ds.transposed_times(k);
        back.add(3, at, &[dot(&through, &u)]);
        let e = scaled(&through, beta[0]);
        back.add(2, at, &e);
        back.add(1, at, &scaled(&back.ds.times(&u), beta[0]));
        back.add(1, at, &scaled(&decayed.times(&e), -1.0));
        back.ds.add_outer(&scaled(k, -1.0), &e);
        back.add(4, at, &[back.ds.dot(&decayed)]);
        back.ds.each(|_, _, x| *x *= decay);
    }
}
