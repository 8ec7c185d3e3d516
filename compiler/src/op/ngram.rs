//! `ngram (tokens, order, rows)`: a row of a `[rows, dim]` table for the last `order` tokens, chosen by their hash; zeros
//! where there are fewer. Akin to over-encoding (Huang et al. 2025, section 3). It is a primitive because it computes with
//! token ids, and sees other time steps.
//!
//! The hash is FNV-1a over whole tokens, oldest first, in 64 bits that wrap: h = 0xcbf29ce484222325 xor order; for each
//! token h = (h xor token) · 0x100000001b3; at last h = h xor (h >> 32), without a sign. The row is h mod rows.

use super::{
    Arity, Attr, Attrs, AttrsExt, Colour, Config, ConfigKind, Context, Cost, Default, Drawn,
    Mismatch, Owned, Primitive, Shaped, State, Time, Type,
};
use crate::builder::{Call, Gradients, Lowered, PlanBuilder};
use crate::kernel;
use crate::plan::ValId;

/// The most tokens of one hash.
const MAX_ORDER: i64 = 64;

pub(super) static PRIMITIVE: Primitive = Primitive {
    name: "ngram",
    revision: 1,
    doc: "row hash(last `order` tokens) of a [rows, dim] table, zeros where there are fewer (Huang et al. 2025, section 3)",
    why: "computes with token ids; state: the last of them",
    torch: None,
    tensors: Arity::Exactly(1),
    config: &[
        Config { name: "order", kind: ConfigKind::Int, default: Default::Required },
        Config { name: "rows", kind: ConfigKind::Int, default: Default::Required },
        Config { name: "dim", kind: ConfigKind::Int, default: Default::ArchField("dim") },
        Config { name: "weight", kind: ConfigKind::Weight, default: Default::Absent },
        Config { name: "init", kind: ConfigKind::Init, default: Default::Absent },
    ],
    time: Time::Stateful,
    shape,
    cost,
    forward,
    backward,
    drawn: Drawn {
        colour: Colour::Matrix,
        label: |s| {
            let to = s.output.map(Type::extents).unwrap_or_default();
            (format!("{} tokens", s.attrs.int("order")), format!("→ {to}"))
        },
    },
    examples: &[
        "linear w (x, 6) + ngram pairs (tokens, order = 2, rows = 3)",
        "linear w (x, 6) * ngram triples (tokens, 3, 4) + ngram pairs (tokens, 2, 4)",
    ],
};

fn shape(attrs: &Attrs, inputs: &[Type]) -> Result<Shaped, Mismatch> {
    let (order, rows, dim) = (attrs.int("order"), attrs.int("rows"), attrs.int("dim"));
    if !matches!(inputs, [x] if x.tokens) {
        return Err(Mismatch::new("`ngram` takes token ids", "apply it to `tokens`"));
    }
    if !(2..=MAX_ORDER).contains(&order) {
        return Err(Mismatch::new(
            format!("an n-gram of {order} tokens is not possible"),
            format!("choose an order between 2 and {MAX_ORDER}; `embed (tokens)` sees one token"),
        )
        .about(&["order"]));
    }
    if rows <= 0 || dim <= 0 {
        return Err(Mismatch::new(
            format!("a table of {rows} rows of {dim} is not possible"),
            "make `rows` and `dim` positive",
        ));
    }
    let mut shaped = Shaped::plain(Type::seq([dim]));
    shaped.params = vec![Owned { suffix: "", role: "embed", shape: vec![rows, dim], fan_in: dim }];
    shaped.state = Some(State::Tokens { count: order - 1 });
    // Rows and dim are the shape of the table.
    shaped.attrs.insert("order", Attr::Int(order));
    Ok(shaped)
}

fn cost(_: &Attrs, _: &[Type], outputs: &[Type], _: Context) -> Cost {
    let n: i64 = outputs.iter().map(Type::elements).sum();
    Cost { flops: 0, moved: 2 * n, saved: 1, ..Cost::default() }
}

/// The rows of whole n-grams; others are row 0, times 0.
fn forward(plan: &mut PlanBuilder, call: &Call) -> Lowered {
    let (tokens, table) = (call.operands[0], call.operands[1]);
    let order = call.attrs.int("order");
    let widths = plan.widths(table);
    let (rows, width) = (widths.first().copied(), widths.last().copied());
    let kernel = kernel::Ngram { order, rows: rows.unwrap_or(1), state: !call.past.is_empty() };
    let inputs: Vec<ValId> = [tokens].iter().chain(&call.past).copied().collect();
    let [ids, complete, state] = plan.emit(kernel, &inputs);
    let compute = plan.precision.compute();
    let complete = plan.cast(complete, compute);
    let spread = kernel::Spread { width: width.unwrap_or(1), kept: false };
    let complete = plan.one(spread, &[complete]);
    let embedded = plan.one(kernel::Embed, &[ids, table]);
    let y = plan.one(kernel::Mul, &[embedded, complete]);
    let state = if call.keeps_state { vec![state] } else { Vec::new() };
    Lowered { outputs: vec![y], saved: vec![ids, complete], state }
}

/// Tokens have no gradient; row i of the table's is the sum of dy where the whole n-gram has row i.
fn backward(
    plan: &mut PlanBuilder,
    call: &Call,
    lowered: &Lowered,
    dy: &[Option<ValId>],
) -> Gradients {
    let vocab = plan.widths(call.operands[1]).first().copied().unwrap_or(0);
    let gradient = dy[0].map(|dy| {
        let dy = plan.one(kernel::Mul, &[dy, lowered.saved[1]]);
        plan.one(kernel::EmbedGrad { vocab }, &[dy, lowered.saved[0]])
    });
    vec![None, gradient]
}
