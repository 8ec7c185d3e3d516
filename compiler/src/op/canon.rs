//! `canon (x)`: a depthwise causal convolution over time, with a residual: what usually fills a
//! slot. `y_t = x_t + act(Σ_j w[·, j] ⊙ x_{t−(kernel−1)+j})`, zeros before the sequence (Physics of
//! Language Models, Part 4.1, section 3). The last tap multiplies the current token.

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Context, Cost, Default, Mismatch, Owned,
    Primitive, Shaped, State, Time, Type, channels,
};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "canon",
    revision: 1,
    doc: "x + act(depthwise causal convolution of x over time) (Physics of LMs 4.1, section 3)",
    tensors: Arity::Exactly(1),
    config: &[
        Config { name: "kernel", kind: ConfigKind::Int, default: Default::Int(4) },
        Config { name: "residual", kind: ConfigKind::Bool, default: Default::Bool(true) },
        Config {
            name: "activation",
            kind: ConfigKind::Word(&["none", "silu"]),
            default: Default::Word("none"),
        },
        Config { name: "weight", kind: ConfigKind::Weight, default: Default::Absent },
        Config { name: "init", kind: ConfigKind::Init, default: Default::Absent },
    ],
    time: Time::Stateful,
    shape,
    cost,
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x] = inputs else {
        return Err(Mismatch::new("`canon` takes one tensor", "write `canon name (x)`"));
    };
    let mut shaped = filter(attrs, x, "canon")?;
    shaped.attrs.insert("activation", Attr::Word(attrs.word("activation")));
    shaped.attrs.insert("residual", Attr::Bool(attrs.flag("residual")));
    Ok(shaped)
}

/// One filter of `kernel` taps per channel, and the last `kernel − 1` inputs as state.
pub(super) fn filter(attrs: &Attrs, x: &Type, op: &'static str) -> Result<Shaped, Mismatch> {
    let width = channels(op, x)?;
    let kernel = attrs.int("kernel");
    if !(1..=1024).contains(&kernel) {
        return Err(Mismatch::new(
            format!("a kernel of {kernel} taps is not possible"),
            "make `kernel` at least 1 and at most 1024; the published models use 4",
        ));
    }
    let role = if op == "canon" { "canon" } else { "short_conv" };
    let mut shaped = Shaped::plain(x.clone());
    shaped.params.push(Owned { suffix: "", role, shape: vec![width, kernel], fan_in: kernel });
    shaped.state = Some(State::Inputs { steps: kernel - 1, channels: width });
    shaped.attrs.insert("kernel", Attr::Int(kernel));
    Ok(shaped)
}

pub(super) fn cost(attrs: &Attrs, _: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: (2 * attrs.int("kernel") + 1) * n, moved: 2 * n, saved: n }
}
