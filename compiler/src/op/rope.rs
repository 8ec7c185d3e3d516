//! `rope(x)`: rotates the first `dims` channels of each head by `position · theta^(−2i/dims)`
//! (Su et al. 2021, eq. 34). `interleaved` pairs channels (2i, 2i+1), `half` pairs (i, i + dims/2);
//! the other channels are copied. Angles in f32, computed from `dims`, not from the head's width. `scaling` changes the
//! frequencies for longer sequences; see [`RopeScaling`].

use super::{
    Arity, Attr, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn,
    Mismatch, Primitive, Shaped, Shown, Time, Type, per_head,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel::{self, RopeLayout, RopeScaling};
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "rope",
    revision: 1,
    doc: "rotary position embedding on the first `dims` channels (Su et al. 2021, eq. 34)",
    why: "sees the position",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[
        Config { name: "theta", kind: ConfigKind::Decimal, default: Default::Int(10000) },
        Config {
            name: "layout",
            kind: ConfigKind::Word(&["interleaved", "half"]),
            default: Default::Word("interleaved"),
        },
        Config { name: "dims", kind: ConfigKind::OptionalInt, default: Default::Absent },
        Config {
            name: "scaling",
            kind: ConfigKind::Word(&["none", "interpolated", "ntk", "llama3", "yarn"]),
            default: Default::Word("none"),
        },
        Config { name: "factor", kind: ConfigKind::Decimal, default: Default::Int(1) },
        Config { name: "original", kind: ConfigKind::OptionalInt, default: Default::Absent },
        Config { name: "length", kind: ConfigKind::OptionalInt, default: Default::Absent },
        Config { name: "low", kind: ConfigKind::Decimal, default: Default::Int(1) },
        Config { name: "high", kind: ConfigKind::Decimal, default: Default::Int(4) },
        Config { name: "truncate", kind: ConfigKind::Bool, default: Default::Bool(true) },
        Config { name: "mscale", kind: ConfigKind::Decimal, default: Default::Int(1) },
        Config { name: "mscale_all", kind: ConfigKind::Decimal, default: Default::Int(0) },
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
        "merge(rope(heads(linear w (x, 6), 1), scaling = yarn, theta = 100, factor = 4, original = 8)) + x",
        "merge(rope(heads(linear w (x, 6), 1), scaling = llama3, theta = 100, factor = 4, original = 16)) + x",
        "merge(rope(heads(linear w (x, 6), 1), scaling = interpolated, factor = 2)) + x",
        "merge(rope(heads(linear w (x, 6), 1), scaling = ntk, factor = 2, original = 4, length = 12)) + x",
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
    scaled(attrs, dims, &mut shaped.attrs)?;
    Ok(shaped)
}

/// The settings that each kind of scaling reads. `none` reads none, so that the text of every earlier graph stays as it
/// was.
fn settings(scaling: &str) -> &'static [&'static str] {
    match scaling {
        "interpolated" => &["factor"],
        "ntk" => &["factor", "original", "length"],
        "llama3" => &["factor", "original", "low", "high"],
        "yarn" => &["factor", "original", "truncate", "mscale", "mscale_all"],
        _ => &[],
    }
}

fn scaled(attrs: &Attrs, dims: i64, into: &mut Attrs) -> Result<(), Mismatch> {
    let scaling = attrs.word("scaling");
    let read = settings(scaling);
    for config in PRIMITIVE.config.iter().skip(4) {
        let default = match config.default {
            Default::Int(n) => Attr::Decimal(n.into()),
            Default::Bool(flag) => Attr::Bool(flag),
            Default::Required
            | Default::Decimal(..)
            | Default::Word(_)
            | Default::Absent
            | Default::ArchField(_) => Attr::None,
        };
        if let Some(value) = attrs.get(config.name)
            && !read.contains(&config.name)
            && *value != default
        {
            let readers = ["interpolated", "ntk", "llama3", "yarn"].into_iter();
            let readers: Vec<&str> =
                readers.filter(|scaling| settings(scaling).contains(&config.name)).collect();
            return Err(Mismatch::new(
                format!("`{}` has no effect on RoPE with scaling {scaling}", config.name),
                format!("leave it out, or set `scaling` to {}", readers.join(" or ")),
            ));
        }
    }
    for name in ["factor", "original", "length", "low", "high"] {
        let missing = attrs.get(name).is_none_or(|value| *value == Attr::None);
        let value = attrs.decimal(name);
        let below = value.is_negative() || value.is_zero();
        if read.contains(&name) && (missing || below) {
            let got = if missing { "missing".to_owned() } else { value.to_string() };
            return Err(Mismatch::new(
                format!("`{name}` of RoPE with scaling {scaling} is {got}"),
                format!("give a positive number: `{name} = …`"),
            ));
        }
    }
    if scaling == "llama3" && attrs.decimal("low") == attrs.decimal("high") {
        return Err(Mismatch::new("`low` and `high` are equal", "make `high` larger than `low`"));
    }
    if scaling == "ntk" && dims == 2 {
        return Err(Mismatch::new(
            "a single pair of channels has no base to change",
            "rotate 4 channels or more",
        ));
    }
    if scaling != "none" {
        into.insert("scaling", Attr::Word(scaling));
        into.extend(read.iter().filter_map(|name| Some((*name, attrs.get(name)?.clone()))));
    }
    Ok(())
}

/// The frequencies' scaling that a call has.
pub fn scaling(attrs: &Attrs) -> RopeScaling {
    let (factor, original) = (attrs.decimal("factor"), attrs.int("original"));
    match attrs.word("scaling") {
        "interpolated" => RopeScaling::Interpolated { factor },
        "ntk" => RopeScaling::Ntk { factor, original, length: attrs.int("length") },
        "llama3" => {
            let (low, high) = (attrs.decimal("low"), attrs.decimal("high"));
            RopeScaling::Llama3 { factor, original, low, high }
        }
        "yarn" => RopeScaling::Yarn {
            factor,
            original,
            truncate: attrs.flag("truncate"),
            mscale: attrs.decimal("mscale"),
            mscale_all: attrs.decimal("mscale_all"),
        },
        _ => RopeScaling::Unscaled,
    }
}

fn cost(attrs: &Attrs, inputs: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    let heads = inputs.first().and_then(|x| x.dims.first()).copied().unwrap_or(0);
    Cost { flops: 3 * heads * attrs.int("dims"), moved: 2 * n, saved: 0, ..Cost::default() }
}

fn kernel(attrs: &Attrs, inverse: bool) -> kernel::Rope {
    let layout = match attrs.word("layout") {
        "half" => RopeLayout::Half,
        _ => RopeLayout::Interleaved,
    };
    let (theta, dims) = (attrs.decimal("theta"), attrs.int("dims"));
    kernel::Rope { theta, dims, layout, inverse, scaling: scaling(attrs) }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let position = plan.position();
    Lowered::one(plan.one(kernel(&call.attrs, false), &[call.operands[0], position]))
}

/// The transpose of a rotation is the rotation by the negative angle; a factor stays.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let position = plan.position();
    vec![dy[0].map(|dy| plan.one(kernel(&call.attrs, true), &[dy, position]))]
}
