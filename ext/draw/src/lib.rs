//! Pictures of a compiled graph: Graphviz' language, and SVG drawn here.
//!
//! A picture is a function of the graph alone, so equal graphs give equal bytes. Equal layers are drawn once with their
//! numbers; every node and every filled slot of the drawn part appears.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod diagram;
mod stack;
mod dot;
mod layout;
mod svg;

use compiler::elaborate::Field;
use compiler::graph::Graph;

pub use dot::dot;
pub use svg::svg;

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
    use compiler::kinds::layer_kinds;
    use compiler::program::{Compiled, Program, Std};

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
        let (compiled, diagnostics) = program.compile("a.canon", arch);
        compiled.unwrap_or_else(|| {
            panic!("{}", program.render(&[program.diagnostics.clone(), diagnostics].concat()))
        })
    }

    fn subject(compiled: &Compiled) -> Subject<'_> {
        Subject { name: &compiled.name, graph: &compiled.graph, fields: &compiled.fields }
    }

    #[test]
    fn boxes_do_not_overlap_and_lines_go_down() {
        for arch in ["a", "b"] {
            for kind in layer_kinds(&compiled(LAYERS, arch).graph) {
                let diagram = diagram(&kind.body, "x", "y");
                let sizes = svg::sizes(&diagram);
                let layout = layout(&diagram, &sizes);
                for (i, a) in layout.bounds.iter().enumerate() {
                    assert!(a.x - a.size.width / 2.0 >= -0.01, "left of the picture");
                    for b in layout.bounds.iter().skip(i + 1) {
                        let across = (a.size.width + b.size.width) / 2.0 - (a.x - b.x).abs();
                        let down = (a.size.height + b.size.height) / 2.0 - (a.y - b.y).abs();
                        assert!(across < 0.01 || down < 0.01, "{a:?} and {b:?}");
                    }
                }
                for (edge, route) in diagram.edges.iter().zip(&layout.routes) {
                    assert!(route.windows(2).all(|pair| pair[0].1 <= pair[1].1 + 0.01));
                    let (first, last) = (layout.bounds[edge.from.0], layout.bounds[edge.to.0]);
                    assert_eq!(route.first().unwrap().1, first.bottom());
                    assert_eq!(route.last().unwrap().1, last.top());
                }
            }
        }
    }

    #[test]
    fn long_lines_are_straight() {
        let kinds = layer_kinds(&compiled(LAYERS, "b").graph);
        let diagram = diagram(&kinds[0].body, "x", "y");
        let layout = layout(&diagram, &svg::sizes(&diagram));
        for route in &layout.routes {
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
}
