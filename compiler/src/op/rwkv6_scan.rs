//! `rwkv6_scan(r, k, v, g, u)`: the WKV recurrence of RWKV-6 (Peng et al. 2024, section 4). Per head with
//! state S `[D, E]`: read before writing, with a bonus u for the present token,
//! `o_t = (S + diag(u) k_t v_tᵀ)ᵀ r_t`, then `S ← diag(exp g_t) S + k_t v_tᵀ`, g ≤ 0 per key channel.

use super::{
    Arity, Attrs, Context, Cost, Drawn, Mismatch, Primitive, Recurrence, Shaped, State, Time, Type,
    per_head, scan_backward, scan_cost, scan_forward,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "rwkv6_scan",
    revision: 1,
    doc: "o = (S + diag(u) k vᵀ)ᵀ r, then S ← diag(exp g) S + k vᵀ (Peng et al. 2024, section 4)",
    why: "state: a matrix per head, read before it is written",
    torch: None,
    tensors: Arity::Exactly(5),
    config: &[],
    time: Time::Stateful,
    shape,
    cost,
    forward: |plan, call| scan_forward(plan, call, &SCAN),
    backward: |plan, call, _, dy| scan_backward(plan, call, dy, &SCAN),
    drawn: Drawn::PER_HEAD,
    examples: &["param u [2, 3] init ones  g = -exp(heads(linear g (x, 6), 2))
      r = heads(linear r (x, 6), 2)  k = heads(linear k (x, 6), 2)  v = heads(linear v (x, 4), 2)
      linear o (merge(rwkv6_scan(r, k, v, g, f32(u))), 6)"],
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [r, k, v, g, u] = inputs else {
        return Err(Mismatch::new(
            "`rwkv6_scan` takes r, k, v, g and u",
            "write `rwkv6_scan(r, k, v, g, u)`",
        ));
    };
    let (heads, rows) = per_head("rwkv6_scan", "r", r)?;
    let (value_heads, columns) = per_head("rwkv6_scan", "v", v)?;
    if r != k || r != g || heads != value_heads {
        return Err(Mismatch::new(
            format!("r {r}, k {k} and g {g} must be equal, and v {v} must have their heads"),
            "split all four into the same number of heads; g has one entry per key channel",
        )
        .about(&["heads"]));
    }
    if *u != Type::constant([heads, rows]) {
        return Err(Mismatch::new(
            format!("r has {heads} heads of {rows} channels, but u is {u}"),
            format!("u is a parameter of that shape: `param u [{heads}, {rows}] init ones`"),
        )
        .about(&["heads"]));
    }
    let mut shaped = Shaped::plain(v.clone());
    shaped.state = Some(State::Matrix { heads, rows, columns });
    Ok(shaped)
}

/// Read-out, decay and outer product: six operations per state element and token; and the bonus: three
/// per key channel, two per value channel.
fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let scan = scan_cost(&SCAN, inputs, outputs);
    let keys = inputs.first().map_or(0, Type::elements);
    let values: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: scan.flops + 3 * keys + 2 * values, ..scan }
}

/// With s_t = Σ r u k, c_t = dy_t · v_t and dS the gradient of S_t, from the last token to the first:
/// dr = S_{t−1} dy + c u ⊙ k, dk = dS v + c u ⊙ r, dv = dSᵀ k + s dy, du = Σ c r ⊙ k,
/// dg = rows of exp(g) S_{t−1} ⊙ dS summed, dS ← diag(exp g) dS + r dyᵀ. States are recomputed.
pub(super) static SCAN: Recurrence = Recurrence {
    name: "rwkv6_scan",
    gradient: "rwkv6_scan_grad",
    operands: &["r", "k", "v", "g", "u"],
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
    use crate::kernel::reference::{At, Back, Matrix, dot, exp, operands, scaled};
    use crate::kernel::tensor::Tensor;

    fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
        a.iter().zip(b).map(|(a, b)| a * b).collect()
    }

    /// One token: changes the state, returns the result.
    pub(super) fn step(x: &[&Tensor], s: &mut Matrix, at: At) -> Vec<f64> {
        let [r, k, v, g, u] = operands(x, at);
        let bonus = dot(r, &product(u, k));
        let y = s.transposed_times(r).iter().zip(v).map(|(y, v)| y + bonus * v).collect();
        let decay = exp(g);
        s.each(|i, _, x| *x *= decay[i]);
        s.add_outer(k, v);
        y
    }

    pub(super) fn back(x: &[&Tensor], back: &mut Back, at: At) {
        let [r, k, v, g, u] = operands(x, at);
        let (bonus, through) = (dot(r, &product(u, k)), dot(back.dy, v));
        back.add(0, at, &back.before.times(back.dy));
        back.add(0, at, &scaled(&product(u, k), through));
        back.add(1, at, &back.ds.times(v));
        back.add(1, at, &scaled(&product(u, r), through));
        back.add(2, at, &back.ds.transposed_times(k));
        back.add(2, at, &scaled(back.dy, bonus));
        back.add(4, at, &scaled(&product(r, k), through));
        let decay = exp(g);
        back.ds.each(|i, _, x| *x *= decay[i]);
        back.add(3, at, &back.before.row_products(back.ds));
        back.ds.add_outer(r, back.dy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bonus_has_the_shape_of_a_heads_keys() {
        let (keys, values) = (Type::seq([2, 3]), Type::seq([2, 5]));
        let shaped_with = |g: &Type, u: Type| {
            let inputs = [keys.clone(), keys.clone(), values.clone(), g.clone(), u];
            shape(&Attrs::new(), &inputs)
        };
        let shaped = shaped_with(&keys, Type::constant([2, 3])).unwrap();
        assert_eq!(shaped.outputs, std::slice::from_ref(&values));
        assert_eq!(shaped.state, Some(State::Matrix { heads: 2, rows: 3, columns: 5 }));
        for u in [Type::constant([6]), Type::constant([3, 2]), Type::seq([2, 3])] {
            let wrong = shaped_with(&keys, u).unwrap_err();
            assert!(wrong.message.starts_with("r has 2 heads of 3 channels"), "{}", wrong.message);
        }
        assert!(
            shaped_with(&values, Type::constant([2, 3]))
                .unwrap_err()
                .message
                .contains("must be equal")
        );
    }
}
