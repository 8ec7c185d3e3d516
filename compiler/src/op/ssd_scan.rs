//! `ssd_scan(x, dt, a, b, c, d)`: the state-space dual recurrence of Mamba2 (Dao and Gu 2024,
//! eq. 1 and section 7). Per head with state S `[P, N]`: `S ← exp(dt_t a) S + dt_t x_t b_tᵀ`,
//! `y_t = S c_t + d x_t`; head j reads group ⌊j·groups/heads⌋ of b and c.

use super::{
    Arity, Attrs, Context, Cost, Mismatch, Primitive, Shaped, State, Time, Type, per_head,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "ssd_scan",
    revision: 1,
    doc: "S ← e^(dt a) S + dt x bᵀ, y = S c + d x (Dao and Gu 2024, section 7)",
    tensors: Arity::Exactly(6),
    config: &[],
    time: Time::Stateful,
    shape,
    cost,
};

fn shape(_: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x, dt, a, b, c, d] = inputs else {
        return Err(Mismatch::new(
            "`ssd_scan` takes x, dt, a, b, c and d",
            "write `ssd_scan(x, dt, a, b, c, d)`",
        ));
    };
    let (heads, rows) = per_head("ssd_scan", "x", x)?;
    let (groups, columns) = per_head("ssd_scan", "b", b)?;
    let per_head_constant = Type::constant([heads]);
    if *dt != Type::seq([heads]) || *a != per_head_constant || *d != per_head_constant {
        return Err(Mismatch::new(
            format!("x has {heads} heads, but dt is {dt}, a is {a} and d is {d}"),
            format!("dt is [batch, time, {heads}]; a and d are parameters of {heads} elements"),
        ));
    }
    if b != c || heads % groups != 0 {
        return Err(Mismatch::new(
            format!("b {b} and c {c} must be equal, with groups that divide {heads} heads"),
            "split b and c into the same number of groups, a divisor of the heads",
        ));
    }
    let mut shaped = Shaped::plain(x.clone());
    shaped.state = Some(State::Matrix { heads, rows, columns });
    Ok(shaped)
}

fn cost(_: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = inputs.iter().filter(|t| t.time).chain(outputs).map(Type::elements).sum();
    let columns = inputs.get(3).and_then(|b| b.dims.last()).copied().unwrap_or(0);
    let values: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: 6 * columns * values, moved: n, saved: n }
}
