//! `aux_loss(x, a, b, term)`: x unchanged; in training, the loss also has Σ ā ⊙ b̄ over channels, with the means ā and b̄ over
//! the tokens of a micro-batch, b = 1 if it is not given, times the recipe's weight of this term. Terms of one name are
//! added over calls and layers. It is a primitive because no other sees all tokens; its sum never meets the stream, so a
//! token's result still depends only on the tokens before it. The balance of Switch (2101.03961, section 2.2) and
//! the z-loss of routers (2202.08906, eq. 5) are such sums.

use super::{
    Arity, Attr, Attrs, AttrsExt, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Primitive, Shaped, Time, Type, channels,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::{MEANS, ValId};
use crate::value::Extent;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "aux_loss",
    revision: 1,
    doc: "x; adds weight · Σ mean(a) ⊙ mean(b), means over tokens, to the training loss (Fedus et al. 2021, section 2.2)",
    why: "nothing else sees all tokens; its sum never meets the stream",
    torch: Some("{0}"),
    tensors: Arity::UpTo(3),
    config: &[Config { name: "term", kind: ConfigKind::Word(&MEANS), default: Default::Required }],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn::PLAIN,
    examples: &[
        "p = linear a (x, 4)  y = linear b (p, 6)  aux_loss(aux_loss(y, p, p * p, balance), y, router_z)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let [x, means @ ..] = inputs else {
        return Err(Mismatch::new("`aux_loss` takes x and means", "write `aux_loss(x, a, term)`"));
    };
    for ty in inputs {
        channels("aux_loss", ty)?;
    }
    if let [a, b] = means
        && a != b
    {
        return Err(Mismatch::new(
            format!("`aux_loss` needs equal shapes of a and b, but these are {a} and {b}"),
            "reshape one of them with `heads` or `merge`",
        ));
    }
    let mut shaped = Shaped::plain(x.clone());
    shaped.attrs.insert("term", Attr::Word(attrs.word("term")));
    Ok(shaped)
}

/// The means are part of training alone.
fn cost(_: &Attrs, _: &[Type], _: &[Type], _: Context) -> Cost {
    Cost::default()
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let outputs = vec![call.operands[0]];
    let term = call.attrs.word("term");
    if plan.weight_of(term).is_none() {
        return Lowered { outputs, ..Lowered::default() };
    }
    let means: Vec<ValId> =
        call.operands[1..].iter().map(|a| plan.one(kernel::MeanTokens, &[*a])).collect();
    let product = match means[..] {
        [a, b] => plan.one(kernel::Mul, &[a, b]),
        _ => means[0],
    };
    let sum = plan.one(kernel::SumChannels { keep: false }, &[product]);
    plan.add_term(term, sum);
    Lowered { outputs, saved: means, state: Vec::new() }
}

/// x has the gradient that it has anyway. da = weight · b̄ / tokens for each token, and db likewise.
fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    _: &[Option<ValId>],
) -> Gradients {
    let term = call.attrs.word("term");
    let Some(by) = plan.weight_of(term) else { return Vec::new() };
    let operands = call.operands[1..].to_vec();
    let mut gradients = vec![None];
    match lowered.saved[..] {
        [a, b] => {
            for (operand, other) in operands.into_iter().zip([b, a]) {
                let weighted = plan.one(kernel::Scale { by }, &[other]);
                gradients.push(Some(plan.one(kernel::MeanTokensGrad, &[weighted, operand])));
            }
        }
        _ => {
            let dims = plan.widths(operands[0]).into_iter().map(Extent::Fixed).collect();
            let zeros = plan.one(kernel::Zeros { dims }, &[]);
            let weight = plan.one(kernel::Offset { by }, &[zeros]);
            gradients.push(Some(plan.one(kernel::MeanTokensGrad, &[weight, operands[0]])));
        }
    }
    gradients
}
