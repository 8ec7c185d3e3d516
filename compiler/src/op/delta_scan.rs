//! `delta_scan(q, k, v, beta, g)`: the gated delta rule (Yang et al. 2024, eq. 10). Per head with
//! state S `[Dk, Dv]`: decay `S ← exp(g_t) S`, correct `S ← S + k_t β_t (v_t − Sᵀ k_t)ᵀ`, read
//! `o_t = Dk^(−1/2) Sᵀ q_t`.

use super::{
    Arity, Attrs, Context, Cost, Mismatch, Primitive, Shaped, State, Time, Type, gla_scan, per_head,
};
use crate::lower::{Call, Gradients, Lower, Lowered};
use crate::plan::{Kernel, ValId};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "delta_scan",
    revision: 1,
    doc: "S ← e^g S, S ← S + k β (v − Sᵀ k)ᵀ, o = Dk^(−1/2) Sᵀ q (Yang et al. 2024, eq. 10)",
    tensors: Arity::Exactly(5),
    config: &[],
    time: Time::Stateful,
    shape,
    cost,
    forward,
    backward,
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
        ));
    }
    let mut shaped = Shaped::plain(v.clone());
    shaped.state = Some(State::Matrix { heads, rows, columns });
    Ok(shaped)
}

fn cost(attrs: &Attrs, inputs: &[Type], outputs: &[Type], at: Context) -> Cost {
    // One more product than GLA: the error of the decayed state.
    let base = gla_scan::cost(attrs, inputs, outputs, at);
    Cost { flops: base.flops / 3 * 4, ..base }
}

fn forward(l: &mut Lower, call: &Call) -> Lowered {
    let inputs: Vec<ValId> = call.operands.iter().chain(&call.past).copied().collect();
    let [y, state] = l.emit(Kernel::DeltaScan { state: !call.past.is_empty() }, &inputs);
    let state = if call.keeps_state { vec![state] } else { Vec::new() };
    Lowered { outputs: vec![y], saved: Vec::new(), state }
}

/// With S′ = exp(g_t) S_{t−1}, u = v_t − S′ᵀ k_t and dS the gradient of S_t (+ d^(−1/2) q_t dy_tᵀ):
/// dβ = (dSᵀ k)·u, e = β dSᵀ k, dv = e, dk = β dS u − S′ e, dS′ = dS − k eᵀ, dg = Σ dS′ ⊙ S′,
/// dS_{t−1} = exp(g_t) dS′. States are recomputed.
fn backward(l: &mut Lower, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let inputs: Vec<ValId> = dy.iter().flatten().chain(&call.operands).copied().collect();
    l.emit_all(Kernel::DeltaScanGrad, inputs).into_iter().map(Some).collect()
}
