//! `a, b = split(x, m, n)`: the channels of x, or of each of its heads, in consecutive pieces of the given widths.

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Default, Drawn, Mismatch, Primitive, Shaped,
    Time, Type, last, reshape_cost,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "split",
    revision: 1,
    doc: "the channels, cut in order into pieces of the given widths",
    why: "only primitives reshape",
    torch: Some("torch.split({0}, {widths}, dim=-1)"),
    tensors: Arity::Exactly(1),
    config: &[Config { name: "widths", kind: ConfigKind::Ints, default: Default::Required }],
    time: Time::Pointwise,
    shape,
    cost: reshape_cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &["a, b, c = split(linear w (x, 9), 3, 4, 2)  linear o (concat(c, b), 6)"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let widths = attrs.ints("widths");
    let [x] = inputs else {
        return Err(Mismatch::new("`split` takes one tensor", "write `split(x, m, n)`"));
    };
    let c = last("split", x)?;
    if let Some(width) = widths.iter().find(|w| **w <= 0) {
        return Err(Mismatch::new(
            format!("a piece of {width} channels is not possible"),
            format!("make each width at least 1, and all of them add up to {c}"),
        ));
    }
    let sum = widths.iter().try_fold(0i64, |sum, w| sum.checked_add(*w));
    if sum != Some(c) {
        let shown: Vec<String> = widths.iter().map(i64::to_string).collect();
        let total = sum.map_or("too much".to_owned(), |s| s.to_string());
        return Err(Mismatch::new(
            format!(
                "the widths {} add up to {total}, but there are {c} channels",
                shown.join(" + ")
            ),
            format!("make the widths add up to {c}"),
        ));
    }
    let mut shaped = Shaped::plain(x.clone());
    let piece = |width: &i64| {
        let mut piece = x.clone();
        if let Some(last) = piece.dims.last_mut() {
            *last = *width;
        }
        piece
    };
    shaped.outputs = widths.iter().map(piece).collect();
    shaped.attrs.insert("widths", Attr::Ints(widths.to_vec()));
    Ok(shaped)
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let widths = call.attrs.ints("widths").to_vec();
    let outputs = plan.emit_all(kernel::Split { widths }, call.operands.clone());
    Lowered { outputs, ..Lowered::default() }
}

/// Concatenates the pieces' gradients; an unused piece contributes zeros.
fn backward(
    plan: &mut PlanBuilder,
    _: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    let pieces: Vec<ValId> = lowered
        .outputs
        .iter()
        .zip(dy)
        .map(|(output, dy)| match dy {
            Some(dy) => *dy,
            None => {
                let dims = plan.value(*output).dims.clone();
                plan.one(kernel::Zeros { dims }, &[])
            }
        })
        .collect();
    vec![Some(plan.one(kernel::Concat, &pieces))]
}
