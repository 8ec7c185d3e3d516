//! Pictures of a graph: Graphviz' language, and SVG drawn here. Equal graphs give equal bytes; time and memory are
//! bounded by [`MAX_BOXES`].

mod diagram;
mod dot;
mod layout;
mod stack;
mod svg;

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::canonical::identify;
use crate::digest::Digest;
use crate::elaborate::Field;
use crate::graph::{Body, Graph, Param};

pub use dot::dot;
pub use svg::{escaped, svg};

/// The most boxes in one picture. A larger one would not be readable.
pub const MAX_BOXES: usize = 400;
/// The most kinds of layers drawn side by side.
pub const MAX_KINDS: usize = 6;

/// The subject of a picture.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The arch's name.
    pub name: &'a str,
    /// Its graph, in canonical order.
    pub graph: &'a Graph,
    /// Fields that name definitions: `layers.0`, `layers.0.mixer`.
    pub fields: &'a [Field],
}

/// The graph has more boxes than a picture may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Number of boxes that the picture would have.
    pub boxes: usize,
}

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
    let mut known: BTreeMap<*const Body, usize> = BTreeMap::new();
    let mut by_identity: BTreeMap<(Digest, Vec<String>), usize> = BTreeMap::new();
    for (index, body, ..) in graph.layers() {
        let kind = *known.entry(Rc::as_ptr(body)).or_insert_with(|| {
            let alone = Graph { top: body.as_ref().clone(), vocab: graph.vocab, dim: graph.dim };
            let paths = body.params.iter().map(|Param { path, .. }| path.clone()).collect();
            *by_identity.entry((identify(&alone).graph, paths)).or_insert_with(|| {
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

/// Ascending numbers as the language writes ranges, ends excluded: `0..3, 5, 8..10`.
pub fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &n in numbers {
        match parts.last_mut() {
            Some((_, end)) if *end == n => *end = n + 1,
            Some(_) | None => parts.push((n, n + 1)),
        }
    }
    let parts = parts.into_iter().map(|(start, end)| match end - start {
        1 => start.to_string(),
        _ => format!("{start}..{end}"),
    });
    parts.collect::<Vec<_>>().join(", ")
}

impl<'a> Subject<'a> {
    /// The value of a field, if it has one: `decoder` for `layers.0`.
    fn field(&self, path: &str) -> Option<&'a str> {
        self.fields.iter().find(|field| field.path == path).map(|field| field.value.as_str())
    }

    /// The name of a layer and its contents: `decoder`, `attention, swiglu`.
    fn layer_words(&self, layer: u32) -> (String, String) {
        let name = self.field(&format!("layers.{layer}")).unwrap_or("layer");
        let parts = ["mixer", "mlp"].iter();
        let parts = parts.filter_map(|part| self.field(&format!("layers.{layer}.{part}")));
        (name.to_owned(), parts.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::diagram::diagram;
    use super::layout::layout;
    use super::*;
    use crate::program::{Compiled, Program, Std};

    const LAYERS: &str = "
        block recurrent = decoder { mixer gated_deltanet { heads 4 }  mlp swiglu { hidden 128 } }
        block softmax = decoder { mixer attention { heads 4, qk_norm true }  mlp swiglu { hidden 128 } }
        arch a {
          vocab 64   dim 64   norm_eps 1e-5
          init flash_linear
          head tied
          layers [2 of [3 of recurrent, softmax], decoder { mixer mamba2 { heads 4 }  mlp swiglu }]
        }
        arch b = a with { canon A, C, D  canon layers[mixer is attention].B }
    ";

    fn compiled(text: &str, arch: &str) -> Compiled {
        let program = Program::new([("a.canon".to_owned(), text.to_owned())], Std::Embedded);
        let (compiled, found) = program.compile("a.canon", arch);
        compiled.unwrap_or_else(|| {
            panic!("{}", program.render(&[program.diagnostics.clone(), found].concat()))
        })
    }

    fn subject(compiled: &Compiled) -> Subject<'_> {
        Subject { name: &compiled.name, graph: &compiled.graph, fields: &compiled.fields }
    }

    #[test]
    fn equal_layers_are_one_kind() {
        let kinds = layer_kinds(&compiled(LAYERS, "b").graph);
        let layers: Vec<String> = kinds.iter().map(|kind| ranges(&kind.layers)).collect();
        assert_eq!(layers, ["0..3, 4..7", "3, 7", "8"]);
    }

    #[test]
    fn boxes_do_not_overlap_and_lines_go_down() {
        for arch in ["a", "b"] {
            for kind in layer_kinds(&compiled(LAYERS, arch).graph) {
                let diagram = diagram(&kind.body, "x", "y");
                let sizes = svg::sizes(&diagram);
                let made = layout(&diagram, &sizes);
                for (i, a) in made.places.iter().enumerate() {
                    assert!(a.x - a.size.width / 2.0 >= -0.01, "left of the picture");
                    for b in made.places.iter().skip(i + 1) {
                        let across = (a.size.width + b.size.width) / 2.0 - (a.x - b.x).abs();
                        let down = (a.size.height + b.size.height) / 2.0 - (a.y - b.y).abs();
                        assert!(across < 0.01 || down < 0.01, "{a:?} and {b:?}");
                    }
                }
                for (line, route) in diagram.lines.iter().zip(&made.routes) {
                    assert!(route.windows(2).all(|pair| pair[0].1 <= pair[1].1 + 0.01));
                    let (first, last) = (made.places[line.from.0], made.places[line.to.0]);
                    assert_eq!(route.first().unwrap().1, first.y + first.size.height / 2.0);
                    assert_eq!(route.last().unwrap().1, last.y - last.size.height / 2.0);
                }
            }
        }
    }

    #[test]
    fn long_lines_are_straight() {
        let kinds = layer_kinds(&compiled(LAYERS, "b").graph);
        let diagram = diagram(&kinds[0].body, "x", "y");
        let made = layout(&diagram, &svg::sizes(&diagram));
        for route in &made.routes {
            // A route leaves a box, passes others and enters a box: the middle part runs straight down.
            let between = &route[2..route.len() - 2];
            assert!(between.iter().all(|(x, _)| (x - between[0].0).abs() < 0.5), "{route:?}");
        }
    }

    #[test]
    fn equal_graphs_give_equal_bytes() {
        let (one, two) = (compiled(LAYERS, "b"), compiled(LAYERS, "b"));
        assert_eq!(svg(&subject(&one), None), svg(&subject(&two), None));
        assert_eq!(dot(&subject(&one), Some(3)), dot(&subject(&two), Some(3)));
        assert!(svg(&subject(&one), Some(8)).unwrap().contains("layer 8: decoder"));
    }

    #[test]
    fn ranges_end_excluded() {
        let cases: [(&[u32], &str); 4] =
            [(&[], ""), (&[4], "4"), (&[0, 1, 2], "0..3"), (&[0, 1, 3, 5, 6], "0..2, 3, 5..7")];
        for (numbers, text) in cases {
            assert_eq!(ranges(numbers), text);
        }
    }
}
