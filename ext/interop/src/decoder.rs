//! A decoder with softmax attention, as far as its graph shows it.
//!
//! In: a graph. Out: the sizes and settings of its layers, read from nodes, shapes and paths of parameters. Must stay
//! true: names of definitions are never read; these are facts about the first layer, so a caller that takes them for the
//! whole arch compiles its own text and compares graphs.

use compiler::graph::{Body, Graph, Node, NodeKind};
use compiler::number::Root;
use compiler::op::{Attrs, AttrsExt, rope_scaling};
use compiler::plan::{RopeLayout, RopeScaling};
use dsl::Decimal;

/// What the graph of such a decoder shows.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    pub(crate) heads: i64,
    pub(crate) kv_heads: i64,
    pub(crate) head_dim: i64,
    pub(crate) hidden: i64,
    /// Whether the MLP's gate is gelu instead of silu.
    pub(crate) gelu: bool,
    pub(crate) norm_eps: Decimal,
    pub(crate) theta: Decimal,
    pub(crate) scaling: RopeScaling,
    pub(crate) layout: RopeLayout,
    pub(crate) rope_dims: i64,
    /// The window of each layer.
    pub(crate) windows: Vec<Option<i64>>,
    /// The factor of scores, if it is not that of the heads' width.
    pub(crate) scale: Option<Root>,
    /// The bound of scores.
    pub(crate) softcap: Option<Decimal>,
    /// The bound of logits.
    pub(crate) cap: Option<Decimal>,
    pub(crate) tied: bool,
    /// Whether attention has biases.
    pub(crate) bias: bool,
    /// Whether queries and keys have norms.
    pub(crate) qk_norm: bool,
    /// Whether norms come before, and after, the mixer.
    pub(crate) norms: (bool, bool),
}

/// The calls of a primitive in a body.
fn calls<'a>(body: &'a Body, name: &'a str) -> impl Iterator<Item = (&'a Node, &'a Attrs)> {
    body.nodes.iter().filter_map(move |node| match &node.kind {
        NodeKind::Op { primitive, attrs, .. } if primitive.name == name => Some((node, attrs)),
        NodeKind::Input(_)
        | NodeKind::Param(_)
        | NodeKind::Op { .. }
        | NodeKind::Slot { .. }
        | NodeKind::Layer { .. } => None,
    })
}

impl Decoder {
    /// The decoder that a graph resembles.
    pub(crate) fn of(graph: &Graph) -> Option<Decoder> {
        let bodies: Vec<&Body> = graph.layers().map(|(_, body, ..)| body.as_ref()).collect();
        // A first layer without parameters only changes the tokens' vectors.
        let start = bodies.iter().take_while(|body| body.params.is_empty()).count();
        let bodies = bodies.get(start..)?;
        let body = *bodies.first()?;
        let shape = |path: &str| {
            let path = format!("layers.{start}.{path}");
            let param = graph.params().iter().find(|param| param.path == path)?;
            Some(param.shape.as_slice())
        };
        let has = |path: &str| shape(path).is_some();
        let (node, attention) = calls(body, "attention").next()?;
        let per_head = |index: usize| match body.ty(*node.inputs.get(index)?).dims.as_slice() {
            [heads, width] => Some((*heads, *width)),
            _ => None,
        };
        let ((heads, head_dim), (kv_heads, _)) = (per_head(0)?, per_head(1)?);
        let window = |body: &&Body| Some(calls(body, "attention").next()?.1.optional_int("window"));
        let (_, rope) = calls(body, "rope").next()?;
        let (_, norm) = calls(&graph.top, "rms_norm").next()?;
        let gates = ["silu", "gelu"].map(|name| calls(body, name).next().is_some());
        Some(Decoder {
            heads,
            kv_heads,
            head_dim,
            hidden: *shape("mlp.gate")?.first()?,
            gelu: match gates {
                [true, false] => false,
                [false, true] => true,
                _ => return None,
            },
            norm_eps: norm.decimal("eps"),
            theta: rope.decimal("theta"),
            scaling: rope_scaling(rope),
            layout: match rope.word("layout") {
                "half" => RopeLayout::Half,
                _ => RopeLayout::Interleaved,
            },
            rope_dims: rope.int("dims"),
            windows: bodies.iter().map(window).collect::<Option<_>>()?,
            scale: attention.optional_number("scale"),
            softcap: attention.optional_decimal("softcap"),
            // The factor after `tanh` is the bound.
            cap: calls(&graph.top, "tanh")
                .next()
                .and_then(|_| Some(calls(&graph.top, "scale").last()?.1.decimal("by"))),
            tied: !graph.params().iter().any(|param| param.path == "head.output"),
            bias: has("mixer.wq.bias"),
            qk_norm: has("mixer.q_norm"),
            norms: (has("pre_mixer"), has("post_mixer")),
        })
    }
}
