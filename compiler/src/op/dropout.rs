//! `dropout(x, rate)`: x; in training each element is 0 with this probability, and the others are x / (1 − rate)
//! (Srivastava et al. 2014, section 4). It is a primitive because it draws numbers, which no text can: an element's draw is
//! a function of seed, path of the call, window, position and channel, and of nothing else, so that neither micro-batches
//! and ranks nor recomputation change a bit. In every plan but a training plan it is the identity.

use std::rc::Rc;

use super::{
    Arity, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Primitive, Shaped, Time, Type,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "dropout",
    revision: 2,
    doc: "x; in training 0 with probability `rate`, else x / (1 − rate) (Srivastava et al. 2014, section 4)",
    why: "no text draws numbers",
    torch: Some("F.dropout({0}, {rate}, self.training)"),
    tensors: Arity::Exactly(1),
    config: &[Config { name: "rate", kind: ConfigKind::Decimal, default: Default::Required }],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn {
        colour: Colour::Plain,
        label: |s| (format!("dropout {}", s.attrs.decimal("rate")), String::new()),
    },
    examples: &[
        "dropout(linear w (x, 6), 0.25) + dropout(x, 0)",
        "merge(dropout(heads(x, 2), 0.5))",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x] = inputs else {
        return Err(Mismatch::new("`dropout` takes one tensor", "write `dropout(x, 0.1)`"));
    };
    if !x.time || x.tokens {
        return Err(Mismatch::new(
            format!("`dropout` takes numbers of each token, but this is {x}"),
            "drop what is computed from the tokens, not ids or parameters",
        ));
    }
    let rate = attrs.decimal("rate");
    if !(0.0..1.0).contains(&rate.to_f64()) {
        return Err(Mismatch::new(
            format!("the rate of `dropout` is a probability below 1, but this is {rate}"),
            "write the share of elements that become 0: `dropout(x, 0.1)`",
        ));
    }
    let mut shaped = Shaped::plain(x.clone());
    shaped.attrs.extend(attrs.get("rate").cloned().map(|rate| ("rate", rate)));
    Ok(shaped)
}

/// A comparison and a product for each element. The gradient draws again, so nothing is kept.
fn cost(_: &Attrs, _: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: n, moved: 2 * n, saved: 0, ..Cost::default() }
}

/// The kernel, if this plan drops anything here.
fn dropout(plan: &PlanBuilder, call: &Call) -> Option<kernel::Dropout> {
    let rate = call.attrs.decimal("rate");
    let draws: &Rc<str> = call.draws.as_ref().filter(|_| plan.drops && !rate.is_zero())?;
    Some(kernel::Dropout { rate, place: draws.clone() })
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(match dropout(plan, call) {
        Some(kernel) => draw(plan, kernel, call.operands[0]),
        None => call.operands[0],
    })
}

/// dx = dy with the same elements dropped. As the identity x has the gradient that it has anyway.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let Some(kernel) = dropout(plan, call) else { return Vec::new() };
    vec![dy[0].map(|dy| draw(plan, kernel, dy))]
}

fn draw(plan: &mut PlanBuilder, kernel: kernel::Dropout, x: ValId) -> ValId {
    let [key, window] = plan.draws();
    plan.one(kernel, &[x, key, window])
}
