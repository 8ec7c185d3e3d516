//! A graph in Graphviz' language. Its size is not bounded, since Graphviz does the layout.

use std::fmt::Write as _;

use compiler::kinds::{LayerKind, layer_kinds, numbered};

use crate::diagram::{Class, Diagram, Vertex, diagram};
use crate::{Subject, stack};

/// The whole architecture with a cluster for each kind of layer, or the body of one layer.
pub fn dot(subject: &Subject, layer: Option<u32>) -> String {
    let kinds = layer_kinds(subject.graph);
    let mut text = String::from("digraph {\n");
    let _ = writeln!(text, "  label={}", quoted(subject.name));
    text.push_str("  labelloc=t\n  rankdir=TB\n  fontname=\"Helvetica\"\n");
    text.push_str("  node [fontname=\"Helvetica\", fontsize=11, shape=box, style=\"rounded,filled\", fillcolor=white]\n");
    text.push_str("  edge [color=\"#57606a\", arrowsize=0.6]\n");
    match layer {
        Some(layer) => {
            if let Some(kind) = kinds.iter().find(|kind| kind.layers.contains(&layer)) {
                body(&mut text, "  ", "n", &diagram(&kind.body, "x", "y"));
            }
        }
        None => {
            body(&mut text, "  ", "top", &stack::diagram(subject, &kinds));
            for (i, kind) in kinds.iter().enumerate() {
                let _ = writeln!(text, "  subgraph cluster_{i} {{");
                let _ = writeln!(text, "    label={}", quoted(&title(subject, kind)));
                text.push_str("    style=rounded\n    color=\"#8c959f\"\n");
                body(&mut text, "    ", &format!("k{i}_"), &diagram(&kind.body, "x", "y"));
                text.push_str("  }\n");
            }
        }
    }
    text.push_str("}\n");
    text
}

/// `layers 0..24: decoder`
pub(super) fn title(subject: &Subject, kind: &LayerKind) -> String {
    let first = kind.layers.first().copied().unwrap_or(0);
    format!("{}: {}", numbered(&kind.layers), subject.layer_words(first).0)
}

fn body(text: &mut String, indent: &str, prefix: &str, diagram: &Diagram) {
    for (i, vertex) in diagram.vertices.iter().enumerate() {
        let colour = match vertex.class {
            Class::Terminal => "#f6f8fa",
            Class::Matrix => "#ddf4ff",
            Class::Norm => "#fff8c5",
            Class::Plain | Class::Stack => "#ffffff",
            Class::Time => "#dafbe1",
            Class::Slot => "#ffd8b5",
            Class::Param => "#eaeef2",
        };
        let label = quoted(&label(vertex));
        let _ = writeln!(text, "{indent}{prefix}{i} [label={label}, fillcolor=\"{colour}\"]");
    }
    for edge in &diagram.edges {
        let ((from, out), (to, _)) = (edge.from, edge.to);
        let many = diagram.vertices.get(from).is_some_and(|vertex| vertex.outputs > 1);
        let tail = if many { format!(" [taillabel=\"{out}\", fontsize=8]") } else { String::new() };
        let _ = writeln!(text, "{indent}{prefix}{from} -> {prefix}{to}{tail}");
    }
}

fn label(vertex: &Vertex) -> String {
    let mut lines: Vec<String> = Vec::new();
    for card in &vertex.cards {
        let times = if card.repeats > 1 { format!("{} × ", card.repeats) } else { String::new() };
        let runs = card.runs.iter().map(|run| format!("{} × {}", run.count, run.title));
        let runs = runs.collect::<Vec<_>>().join(", ");
        lines.push(if times.is_empty() { runs } else { format!("{times}[{runs}]") });
    }
    lines.extend([&vertex.title, &vertex.note].into_iter().filter(|s| !s.is_empty()).cloned());
    lines.join("\n")
}

/// A Graphviz string: quotes and backslashes escaped, newlines as `\n`.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
