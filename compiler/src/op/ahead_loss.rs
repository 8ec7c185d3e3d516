//! `ahead_loss(x, y, ahead)`: x, the logits of the next token; in training, the loss also has the cross-entropy of the logits
//! y with the token that is `ahead` places on, 2 being the one after the next, times the recipe's `loss.ahead`, as a mean
//! over the arch's calls (Gloeckle et al. 2024, section 2; DeepSeek-V3 2024, eq. 24 and 25). It is a primitive because no
//! other sees targets. In every plan but a training plan it is the identity, and what only y needs is not computed.

use super::{
    Arity, Attrs, AttrsExt, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch, Primitive,
    Shaped, Time, Type, channels,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::{ValId, ahead_term};

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "ahead_loss",
    revision: 1,
    doc: "x; adds weight · cross-entropy of the logits y with the token `ahead` places on to the training loss (Gloeckle et al. 2024, section 2)",
    why: "nothing else sees targets",
    torch: Some("{0}"),
    tensors: Arity::Exactly(2),
    config: &[Config { name: "ahead", kind: ConfigKind::Int, default: Default::Required }],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    // Without a weight nothing depends on y alone, so it is a part of x here.
    examples: &["y = linear a (x, 6)  ahead_loss(ahead_loss(x * y, y, 2), y * y, 3)"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x, y] = inputs else {
        return Err(Mismatch::new(
            "`ahead_loss` takes two tensors of logits",
            "write `ahead_loss(logits, more, 2)`",
        ));
    };
    channels("ahead_loss", x)?;
    channels("ahead_loss", y)?;
    if x != y {
        return Err(Mismatch::new(
            format!("`ahead_loss` takes logits of one vocabulary, but these are {x} and {y}"),
            "make both with `linear … (…, vocab)`",
        ));
    }
    let ahead = attrs.int("ahead");
    if ahead_term(ahead).is_none() {
        return Err(Mismatch::new(
            format!("`ahead_loss` predicts 2 to 8 places on, but this is {ahead}"),
            "the arch's own logits predict the next token; write 2 for the one after it",
        ));
    }
    let mut shaped = Shaped::plain(x.clone());
    shaped.attrs.extend(attrs.get("ahead").cloned().map(|ahead| ("ahead", ahead)));
    Ok(shaped)
}

/// The loss is part of training alone.
fn cost(_: &Attrs, _: &[Type], _: &[Type], _: Context) -> Cost {
    Cost::default()
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let ahead = call.attrs.int("ahead");
    let term = ahead_term(ahead).filter(|term| plan.weight_of(term).is_some());
    let (Some(term), [x, y]) = (term, &call.operands[..]) else {
        return Lowered::one(call.operands[0]);
    };
    let targets = plan.targets();
    let targets = plan.one(kernel::ShiftTargets { by: ahead - 1 }, &[targets]);
    let kernel = plan.cross_entropy();
    let [nll, lse, sum, _counted] = plan.emit(kernel, &[*y, targets]);
    plan.add_term(term, sum);
    Lowered { outputs: vec![*x], saved: vec![targets, nll, lse], state: Vec::new() }
}

/// x has the gradient that it has anyway.
fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    _: &[Option<ValId>],
) -> Gradients {
    let weight = ahead_term(call.attrs.int("ahead")).and_then(|term| plan.weight_of(term));
    let (Some(weight), [targets, nll, lse]) = (weight, &lowered.saved[..]) else {
        return Vec::new();
    };
    let (kernel, scale) = (plan.cross_entropy_grad(weight), plan.grad_scale());
    let operands = [call.operands[1], *targets, *nll, *lse, scale];
    vec![None, Some(plan.one(kernel, &operands))]
}
