//! The layers of a graph, grouped by what they compute.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::canonical::identify;
use crate::digest::Digest;
use crate::graph::{Body, Graph, Param};

/// Layers with the same computation and the same parameter names.
#[derive(Clone, Debug)]
pub struct LayerKind {
    /// Their numbers, ascending.
    pub layers: Vec<u32>,
    /// Their common body.
    pub body: Rc<Body>,
}

/// The kinds of a graph's layers, in order of first appearance.
pub fn layer_kinds(graph: &Graph) -> Vec<LayerKind> {
    let mut kinds: Vec<LayerKind> = Vec::new();
    let mut by_body: BTreeMap<*const Body, usize> = BTreeMap::new();
    let mut by_identity: BTreeMap<(Digest, Vec<String>), usize> = BTreeMap::new();
    for (index, body, ..) in graph.layers() {
        let kind = *by_body.entry(Rc::as_ptr(body)).or_insert_with(|| {
            let layer = Graph { top: body.as_ref().clone(), vocab: graph.vocab, dim: graph.dim };
            let paths = body.params.iter().map(|Param { path, .. }| path.clone()).collect();
            *by_identity.entry((identify(&layer).graph, paths)).or_insert_with(|| {
                kinds.push(LayerKind { layers: Vec::new(), body: body.clone() });
                kinds.len() - 1
            })
        });
        if let Some(kind) = kinds.get_mut(kind) {
            kind.layers.push(index);
        }
    }
    kinds
}

/// Layers by their numbers: `layer 8`, `layers 0..3, 5`.
pub fn numbered(layers: &[u32]) -> String {
    let word = if layers.len() == 1 { "layer" } else { "layers" };
    format!("{word} {}", dsl::ranges(layers.iter().copied()).join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Program, Std};

    #[test]
    fn equal_layers_are_one_kind() {
        let text = "
            block recurrent = decoder { mixer gated_deltanet { heads 4 }  mlp swiglu { hidden 128 } }
            block softmax = decoder { mixer attention { heads 4, qk_norm true }  mlp swiglu { hidden 128 } }
            arch a {
              vocab 64   dim 64   norm_eps 1e-5
              init flash_linear
              head tied
              layers [2 of [3 of recurrent, softmax], decoder { mixer mamba2 { heads 4 }  mlp swiglu }]
            }
            arch b = a with { canon A, C, D  canon layers[mixer is attention].B }";
        let program = Program::new([("a.canon".to_owned(), text.to_owned())], Std::Embedded);
        let kinds = layer_kinds(&program.compile("a.canon", "b").0.unwrap().graph);
        let layers: Vec<String> = kinds.iter().map(|kind| numbered(&kind.layers)).collect();
        assert_eq!(layers, ["layers 0..3, 4..7", "layers 3, 7", "layer 8"]);
    }
}
