//! The decoder with softmax attention that a graph resembles, read from its nodes, shapes and paths of parameters.
//!
//! Names of definitions are not read. The sizes are those of the first layer, so a caller compiles the model's text and
//! compares graphs.

use compiler::graph::{Body, Graph, Node, NodeKind};
use compiler::number::{Ratio, Root};
use compiler::op::{Attrs, AttrsExt, rope_scaling};
use compiler::program::Compiled;

use super::init::Init;
use super::model::{
    Attention, AttentionOptions, BlockNorms, Canon, Mixer, Model, ModelOptions, QkNorm, RopeLayout,
};

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

/// The decoder that an arch resembles. Norms of queries and keys, if it has any, are of this kind.
pub(crate) fn model(compiled: &Compiled, qk_norm: QkNorm) -> Option<Model> {
    let graph = &compiled.graph;
    let bodies: Vec<&Body> = graph.layers().map(|(_, body, ..)| body.as_ref()).collect();
    // A first layer without parameters only changes the tokens' vectors.
    let first = bodies.iter().take_while(|body| body.params.is_empty()).count();
    let bodies = bodies.get(first..)?;
    let body = *bodies.first()?;
    let in_layer = |path: &str| shape(graph, &format!("layers.{first}.{path}"));
    let has = |path: &str| in_layer(path).is_some();
    let gates = ["silu", "gelu"].map(|name| calls(body, name).next().is_some());
    let qk_norm = if has("mixer.q_norm") { qk_norm } else { QkNorm::None };
    let attention = attention(body, qk_norm, has("mixer.wq.bias"))?;
    let window = |body: &&Body| Some(calls(body, "attention").next()?.1.optional_int("window"));
    let mut windows = bodies.iter().map(window).collect::<Option<Vec<_>>>()?;
    let layers = windows.len() as i64;
    if windows.iter().all(Option::is_none) {
        windows.clear();
    }
    let (_, norm) = calls(&graph.top, "rms_norm").next()?;
    Some(Model {
        vocab: graph.vocab,
        dim: graph.dim,
        layers,
        norm_eps: norm.decimal("eps"),
        mixer: Mixer::Attention(attention),
        hidden: Some(*in_layer("mlp.gate")?.first()?),
        tied: shape(graph, "head.output").is_none(),
        canon: Canon::NONE,
        init: Init::from_compiled(compiled),
        options: ModelOptions {
            norms: match (has("pre_mixer"), has("post_mixer")) {
                (true, true) => BlockNorms::Around,
                (false, true) => BlockNorms::After,
                (_, false) => BlockNorms::Before,
            },
            windows,
            scaled_embedding: first > 0,
            gelu: match gates {
                [true, false] => false,
                [false, true] => true,
                _ => return None,
            },
            // The factor after `tanh` is the bound.
            logit_cap: calls(&graph.top, "tanh")
                .next()
                .and_then(|_| Some(calls(&graph.top, "scale").last()?.1.decimal("by"))),
        },
    })
}

/// The shape of a parameter.
fn shape<'a>(graph: &'a Graph, path: &str) -> Option<&'a [i64]> {
    let param = graph.params().iter().find(|param| param.path == path)?;
    Some(param.shape.as_slice())
}

/// The attention of a layer.
fn attention(body: &Body, qk_norm: QkNorm, bias: bool) -> Option<Attention> {
    let (node, attention) = calls(body, "attention").next()?;
    let per_head = |index: usize| match body.ty(*node.inputs.get(index)?).dims.as_slice() {
        [heads, width] => Some((*heads, *width)),
        _ => None,
    };
    let ((heads, head_dim), (kv_heads, _)) = (per_head(0)?, per_head(1)?);
    let (_, rope) = calls(body, "rope").next()?;
    Some(Attention {
        heads,
        kv_heads,
        head_dim,
        qk_norm,
        theta: rope.decimal("theta"),
        layout: match rope.word("layout") {
            "half" => RopeLayout::Half,
            _ => RopeLayout::Interleaved,
        },
        rope_dims: rope.int("dims"),
        options: AttentionOptions {
            scaling: rope_scaling(rope),
            bias,
            // 0, which does not compile, for any other scale.
            score: attention.optional_number("scale").map(|n| inverse_square(n).unwrap_or(0)),
            softcap: attention.optional_decimal("softcap"),
        },
    })
}

/// The whole number n for which this is 1 / sqrt(n).
fn inverse_square(scale: Root) -> Option<i64> {
    let square = scale.mul(scale)?;
    let Ratio { num, den } = Ratio::new(1, 1)?.div(square.radicand)?;
    let is_integer = square.degree == 1 && den == 1 && num > 0 && scale.radicand.num > 0;
    i64::try_from(num).ok().filter(|_| is_integer)
}
