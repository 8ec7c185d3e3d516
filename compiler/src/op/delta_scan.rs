//! `delta_scan(q, k, v, beta, g)`: the gated delta rule (Yang et al. 2024, "Gated Delta Networks", eq. 10).
//! Per head with state S `[Dk, Dv]`: `S ← exp(g_t) S`, `S ← S + k_t β_t (v_t − Sᵀ k_t)ᵀ`,
//! `o_t = Dk^(−1/2) Sᵀ q_t`, or another `scale`; g ≤ 0 and β one number per head, S of the second step being decayed.
//! Without g nothing decays. With `steps` n, k, v and beta have n times the heads: the second step is made n times,
//! with the heads of each in order, between one decay and one read (Siems et al. 2025, section 3).

use super::{
    Arity, Attrs, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch, Primitive,
    Recurrence, SCALE, Shaped, State, Time, Type, per_head, scan_backward, scan_cost, scan_forward,
    scanned, steps,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;
use crate::value::Extent;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "delta_scan",
    revision: 1,
    doc: "S ← e^g S, S ← S + k β (v − Sᵀ k)ᵀ, o = Dk^(−1/2) Sᵀ q (Yang et al. 2024, eq. 10)",
    why: "state: a matrix per head; a faster kernel than `dplr_scan`",
    torch: None,
    tensors: Arity::UpTo(5),
    config: &[Config { name: "steps", kind: ConfigKind::Int, default: Default::Int(1) }, SCALE],
    time: Time::Stateful,
    shape,
    cost,
    forward: |plan, call| {
        let call = with_gates(plan, call);
        scan_forward(plan, &call, &SCAN)
    },
    backward,
    drawn: Drawn::PER_HEAD,
    examples: &[
        "q = l2_norm(heads(linear q (x, 6), 2))  k = l2_norm(heads(linear k (x, 6), 2)) \
         beta = sigmoid(linear b (x, 2))  g = logsigmoid(linear g (x, 2)) \
         linear o (merge(delta_scan(q, k, heads(linear v (x, 8), 2), beta, g)), 6)",
        // Two updates a token; no gate.
        "q = l2_norm(heads(linear q (x, 6), 2))  k = l2_norm(heads(linear k (x, 12), 4)) \
         beta = sigmoid(linear b (x, 4))  g = logsigmoid(linear g (x, 2)) \
         linear o (merge(delta_scan(q, k, heads(linear v (x, 16), 4), beta, g, steps = 2)), 6)",
        "q = l2_norm(heads(linear q (x, 6), 2))  k = l2_norm(heads(linear k (x, 6), 2)) \
         linear o (merge(delta_scan(q, k, heads(linear v (x, 8), 2), sigmoid(linear b (x, 2)), scale = 1)), 6)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [q, k, v, beta, gates @ ..] = inputs else {
        return Err(Mismatch::new(
            "`delta_scan` takes q, k, v, beta and g",
            "write `delta_scan(q, k, v, beta, g)`, or leave out g",
        ));
    };
    let (heads, rows) = per_head("delta_scan", "q", q)?;
    let (value_heads, columns) = per_head("delta_scan", "v", v)?;
    let steps = steps(attrs);
    let Some(written) = heads.checked_mul(steps).filter(|written| *written >= heads) else {
        return Err(Mismatch::new(
            format!("{steps} steps for each token"),
            "make `steps` at least 1, the updates of the state for each token",
        ));
    };
    let beta_fits = *beta == Type::seq([written]);
    let gates_fit = gates.iter().all(|g| *g == Type::seq([heads]));
    if *k != Type::seq([written, rows]) || value_heads != written || !beta_fits || !gates_fit {
        let gate = gates.first();
        let (message, help) = match steps {
            1 => (
                format!(
                    "q {q} and k {k} must be equal, v {v} must have their heads, and beta {beta}{} one entry per head",
                    gate.map(|g| format!(" and g {g}")).unwrap_or_default()
                ),
                format!("q has {heads} heads: project beta and g to {heads} channels"),
            ),
            _ => (
                format!(
                    "with {steps} steps, k {k} and v {v} must have {written} heads, {steps} times those of q {q}, and beta {beta} one entry for each{}",
                    gate.map(|g| format!("; g {g} has one for each of q")).unwrap_or_default()
                ),
                format!(
                    "split k and v into {written} heads and project beta to {written} channels, those of the first step in front"
                ),
            ),
        };
        return Err(Mismatch::new(message, help).about(&["heads"]));
    }
    Ok(scanned(attrs, Type::seq([heads, columns]), State::Matrix { heads, rows, columns }))
}

/// GLA's operations, and one more product: the error of the decayed state.
fn cost(attrs: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let once = scan_cost(&SCAN, inputs, outputs);
    Cost { flops: once.flops * steps(attrs), ..once }
}

/// The call with a gate: zeros if it has none.
fn with_gates<'g>(plan: &mut PlanBuilder, call: &Call<'g>) -> Call<'g> {
    let mut call = call.clone();
    if let [q, _, _, _] = call.operands[..] {
        let heads = plan.widths(q).first().copied().unwrap_or(1);
        let dims = vec![Extent::Batch, Extent::Time, Extent::Fixed(heads)];
        call.operands.push(plan.one(kernel::Zeros { dims }, &[]));
    }
    call
}

fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let gated = with_gates(plan, call);
    let mut gradients = scan_backward(plan, &gated, dy, &SCAN);
    gradients.truncate(call.operands.len());
    gradients
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
    use crate::kernel::reference::{At, Back, Matrix, dot, operands, read_out, scaled};
    use crate::kernel::tensor::Tensor;

    /// One token: changes the state, returns the result.
    pub(super) fn step(x: &[&Tensor], s: &mut Matrix, at: At) -> Vec<f64> {
        let [q, k, v, beta, g] = operands(x, at);
        let decay = libm::exp(g[0]);
        s.each(|_, _, x| *x *= decay);
        let known = s.transposed_times(k);
        let error: Vec<f64> = v.iter().zip(known).map(|(v, s)| v - s).collect();
        s.add_outer(k, &scaled(&error, beta[0]));
        scaled(&s.transposed_times(q), read_out(q, at))
    }

    pub(super) fn back(x: &[&Tensor], back: &mut Back, at: At) {
        let [q, k, v, beta, g] = operands(x, at);
        let out = scaled(back.dy, read_out(q, at));
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
