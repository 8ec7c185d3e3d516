//! `short_conv name (x)`: a depthwise causal convolution over time without residual, as owned by
//! linear mixers (the paper's `b`). Mamba2's has a bias.

use super::{
    Arity, Attrs, AttrsExt, Config, ConfigKind, Default, Drawn, Mismatch, Owned, Primitive, Shaped,
    Time, Type, canon,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel::Activation;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "short_conv",
    revision: 1,
    doc: "depthwise causal convolution over time (+ bias), no residual (Gu and Dao 2023, fig. 3)",
    why: "state: the last tokens",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[
        Config { name: "kernel", kind: ConfigKind::Int, default: Default::Int(4) },
        Config { name: "bias", kind: ConfigKind::Bool, default: Default::Bool(false) },
        Config { name: "weight", kind: ConfigKind::Weight, default: Default::Absent },
        Config { name: "init", kind: ConfigKind::Init, default: Default::Absent },
    ],
    time: Time::Stateful,
    shape,
    cost: canon::cost,
    forward,
    backward,
    drawn: Drawn::TIME,
    examples: &["short_conv s (x) + short_conv t (x, kernel = 3, bias = true)"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x] = inputs else {
        return Err(Mismatch::new("`short_conv` takes one tensor", "write `short_conv name (x)`"));
    };
    let mut shaped = canon::filter(attrs, x, "short_conv")?;
    if attrs.flag("bias") {
        shaped.params.push(Owned {
            suffix: ".bias",
            role: "short_conv_bias",
            shape: vec![x.elements()],
            fan_in: attrs.int("kernel"),
        });
    }
    Ok(shaped)
}

/// The convolution of `canon` without its residual. A third operand is the bias.
fn filter(call: &Call) -> canon::Filter {
    let (kernel, bias) = (call.attrs.int("kernel"), call.operands.len() == 3);
    canon::Filter { kernel, residual: false, activation: Activation::Identity, bias }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    filter(call).forward(plan, call)
}

fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    filter(call).backward(plan, &call.operands, dy)
}
