//! `embed (tokens)`: row `token` of a `[vocab, dim]` table.

use super::{
    Arity, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn, Mismatch,
    Owned, Primitive, Shaped, Time, Type,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "embed",
    revision: 1,
    doc: "row `token` of a [vocab, dim] table",
    why: "computes with token ids",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[
        Config { name: "vocab", kind: ConfigKind::Int, default: Default::ArchField("vocab") },
        Config { name: "dim", kind: ConfigKind::Int, default: Default::ArchField("dim") },
        Config { name: "weight", kind: ConfigKind::Weight, default: Default::Absent },
        Config { name: "init", kind: ConfigKind::Init, default: Default::Absent },
    ],
    time: Time::Pointwise,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn {
        colour: Colour::Matrix,
        label: |s| {
            let to = s.output.map(Type::extents).unwrap_or_default();
            (s.name.to_owned(), format!("→ {to}"))
        },
    },
    examples: &["x"],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let (vocab, dim) = (attrs.int("vocab"), attrs.int("dim"));
    match inputs {
        [x] if x.tokens && vocab > 0 && dim > 0 => {
            let mut shaped = Shaped::plain(Type::seq([dim]));
            shaped.params =
                vec![Owned { suffix: "", role: "embed", shape: vec![vocab, dim], fan_in: dim }];
            Ok(shaped)
        }
        [x] if x.tokens => Err(Mismatch::new(
            format!("a table of {vocab} rows of {dim} is not possible"),
            "make `vocab` and `dim` positive",
        )),
        _ => Err(Mismatch::new("`embed` takes token ids", "apply it to the arch's tokens")),
    }
}

fn cost(_: &Attrs, _: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: 0, moved: 2 * n, saved: 1, ..Cost::default() }
}

fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    Lowered::one(plan.one(kernel::Embed, &call.operands))
}

/// Tokens have no gradient; row i of the table's gradient is the sum of dy at the positions of token i.
fn backward(plan: &mut PlanBuilder, call: &Call, _: &Lowered, dy: &[Option<ValId>]) -> Gradients {
    let tokens = call.operands[0];
    let vocab = plan.widths(call.operands[1]).first().copied().unwrap_or(0);
    vec![None, dy[0].map(|dy| plan.one(kernel::EmbedGrad { vocab }, &[dy, tokens]))]
}
