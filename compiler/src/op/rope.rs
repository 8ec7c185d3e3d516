//! `rope(x)`: rotates the first `dims` channels of each head by `position · theta^(−2i/dims)`
//! (Su et al. 2021, eq. 34). `interleaved` pairs channels (2i, 2i+1), `half` pairs (i, i + dims/2);
//! the other channels are copied. Angles in f32, computed from `dims`, not from the head's width.

use super::{
    Arity, Attr, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn,
    Mismatch, Primitive, Shaped, Shown, Time, Type, per_head,
};
use crate::lower::{Call, Gradients, Lower, Lowered};
use crate::plan::{Kernel, RopeLayout, ValId};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "rope",
    revision: 1,
    doc: "rotary position embedding on the first `dims` channels (Su et al. 2021, eq. 34)",
    tensors: Arity::Exactly(1),
    config: &[
        Config { name: "theta", kind: ConfigKind::Decimal, default: Default::Int(10000) },
        Config {
            name: "layout",
            kind: ConfigKind::Word(&["interleaved", "half"]),
            default: Default::Word("interleaved"),
        },
        Config { name: "dims", kind: ConfigKind::OptionalInt, default: Default::Absent },
    ],
    time: Time::Positional,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn {
        colour: Colour::Time,
        label: |s| {
            let (dims, width) = (s.attrs.int("dims"), Shown::width(s.input));
            let part = match dims == width {
                true => format!("all {dims} channels"),
                false => format!("{dims} of {width} channels"),
            };
            (s.name.to_owned(), part)
        },
    },
    examples: &[
        "merge(rope(heads(x, 1))) * merge(rope(heads(linear w (x, 6), 1), theta = 100, layout = half, dims = 4))",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x] = inputs else {
        return Err(Mismatch::new("`rope` takes one tensor", "write `rope(x)`"));
    };
    let (_, head_dim) = per_head("rope", "x", x)?;
    let dims = attrs.optional_int("dims").unwrap_or(head_dim);
    let theta = attrs.decimal("theta");
    if dims > head_dim {
        return Err(Mismatch::new(
            format!("RoPE over {dims} channels is wider than the head, which has {head_dim}"),
            format!("set `dims` to at most {head_dim}"),
        ));
    }
    if dims <= 0 || dims % 2 != 0 {
        return Err(Mismatch::new(
            format!("RoPE turns pairs of channels, so {dims} is not possible"),
            "set `dims` to an even number above 0, or use `rope nope` for no positions at all",
        ));
    }
    if theta.is_negative() || theta.is_zero() {
        return Err(Mismatch::new(format!("theta is {theta}"), "make theta positive"));
    }
    let mut shaped = Shaped::plain(x.clone());
    shaped.attrs.insert("dims", Attr::Int(dims));
    shaped.attrs.insert("layout", Attr::Word(attrs.word("layout")));
    shaped.attrs.insert("theta", Attr::Decimal(theta));
    Ok(shaped)
}

fn cost(attrs: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    let heads = inputs.first().and_then(|x| x.dims.first()).copied().unwrap_or(0);
    Cost { flops: 3 * heads * attrs.int("dims"), moved: 2 * n, saved: 0 }
}

fn kernel(attrs: &Attrs, inverse: bool) -> Kernel {
    let layout = match attrs.word("layout") {
        "half" => RopeLayout::Half,
        _ => RopeLayout::Interleaved,
    };
    Kernel::Rope { theta: attrs.decimal("theta"), dims: attrs.int("dims"), layout, inverse }
}

fn forward(l: &mut Lower, call: &Call) -> Lowered {
    let position = l.position();
    Lowered::one(l.one(kernel(&call.attrs, false), &[call.operands[0], position]))
}

/// The transpose of a rotation is the rotation by the negative angle.
fn backward(l: &mut Lower, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let position = l.position();
    vec![dy[0].map(|dy| l.one(kernel(&call.attrs, true), &[dy, position]))]
}
