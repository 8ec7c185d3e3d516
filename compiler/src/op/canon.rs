//! `canon (x)`: a depthwise causal convolution over time with a residual, the usual fill of a slot.
//! `y_t = x_t + act(Σ_j w[·, j] ⊙ x_{t−(kernel−1)+j})`, zeros before the sequence (Physics of
//! Language Models, Part 4.1, section 3). The last tap multiplies the current token.

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Owned, Primitive, Shaped, State, Time, Type, channels,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel::{self, Activation};
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "canon",
    revision: 1,
    doc: "x + act(depthwise causal convolution of x over time) (Physics of LMs 4.1, section 3)",
    why: "state: the last tokens; one kernel with the residual, for every slot",
    torch: None,
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
    forward,
    backward,
    drawn: Drawn::TIME,
    examples: &[
        "canon c (x)",
        "canon c (x, kernel = 3, residual = false, activation = silu)",
        "canon c (x, kernel = 1)",
    ],
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
    Cost { flops: (2 * attrs.int("kernel") + 1) * n, moved: 2 * n, saved: n, ..Cost::default() }
}

fn options(attrs: &Attrs) -> Filter {
    let activation = match attrs.word("activation") {
        "silu" => Activation::Silu,
        _ => Activation::Identity,
    };
    let (kernel, residual) = (attrs.int("kernel"), attrs.flag("residual"));
    Filter { kernel, residual, activation, bias: false }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    options(&call.attrs).forward(plan, call)
}

fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    options(&call.attrs).backward(plan, &call.operands, dy)
}

/// A causal convolution over one or several tensors side by side.
pub(super) struct Filter {
    pub(super) kernel: i64,
    pub(super) residual: bool,
    pub(super) activation: Activation,
    pub(super) bias: bool,
}

impl Filter {
    /// The number of tensors among these operands; the weight and any bias come after them.
    fn parts(&self, operands: &[ValId]) -> usize {
        operands.len() - 1 - usize::from(self.bias)
    }

    pub(super) fn forward(&self, plan: &mut PlanBuilder, call: &Call) -> Lowered {
        let Filter { kernel, residual, activation, bias } = *self;
        let operands = &call.operands;
        let parts = self.parts(operands);
        let state = !call.past.is_empty();
        let mut inputs = operands.clone();
        inputs.extend(&call.past);
        let kind = kernel::CausalConv { kernel, residual, activation, parts, bias, state };
        let outputs = plan.emit_all(kind, inputs);
        let mut after = Vec::new();
        if call.keeps_state {
            let mut inputs = operands[..parts].to_vec();
            inputs.extend(&call.past);
            after.push(plan.one(kernel::CausalConvState { kernel, parts, state }, &inputs));
        }
        Lowered { outputs, saved: Vec::new(), state: after }
    }

    /// With c = conv(x) + bias and dc = dy ⊙ act′(c): dx_s = Σ_j w_j ⊙ dc_{s+(kernel−1)−j} (+ dy_s),
    /// dw_j = Σ_t dc_t ⊙ x_{t−(kernel−1)+j}, dbias = Σ_t dc_t; c is recomputed from x.
    pub(super) fn backward(
        &self,
        plan: &mut PlanBuilder,
        operands: &[ValId],
        dy: &[Option<ValId>],
    ) -> Gradients {
        let Filter { kernel, residual, activation, bias } = *self;
        let parts = self.parts(operands);
        let mut inputs = Vec::with_capacity(2 * parts + 2);
        for (operand, dy) in operands.iter().zip(dy) {
            inputs.push(match dy {
                Some(dy) => *dy,
                // Nothing uses this part, so its filter gets a zero gradient.
                None => {
                    let dims = plan.value(*operand).dims.clone();
                    plan.one(kernel::Zeros { dims }, &[])
                }
            });
        }
        inputs.extend(operands);
        let kind = kernel::CausalConvGrad { kernel, residual, activation, parts, bias };
        plan.emit_all(kind, inputs).into_iter().map(Some).collect()
    }
}
