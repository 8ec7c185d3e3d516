//! The style of boxes: colours, sizes, words of the legend. No font is measured: widths are upper estimates for any common
//! sans-serif font. Colours only repeat information that is also in words.

use std::collections::BTreeSet;

use crate::diagram::{Class, Diagram, LayerRun, Vertex};
use crate::layout::Size;

/// Style sheet and arrow head.
pub(super) const HEAD: &str = r##"<style>
text { font: 600 12px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; text-anchor: middle }
.note { font-size: 10.5px; font-weight: 400; fill: #59636e }
.start { text-anchor: start }
.title { font-size: 14px }
.name { font-size: 16px }
.slots { font-size: 10.5px; fill: #bc4c00 }
.page { fill: #ffffff }
.frame { fill: #fbfcfd; stroke: #d1d9e0 }
.link { fill: #f0f3f6; opacity: 0.8 }
.line { fill: none; stroke: #7d8590; stroke-width: 1.3 }
.tip { fill: #7d8590 }
.lane { stroke: #afb8c1; stroke-width: 2; stroke-linecap: round }
.matrix { fill: #ddf4ff; stroke: #54aeff }
.norm { fill: #fff8c5; stroke: #d4a72c }
.plain { fill: #f6f8fa; stroke: #afb8c1 }
.time { fill: #dafbe1; stroke: #4ac26b }
.slot { fill: #ffe7d1; stroke: #e16f24; stroke-width: 2 }
.param { fill: #eff2f5; stroke: #afb8c1; stroke-dasharray: 3 2 }
.terminal { fill: none; stroke: none }
.run { fill: #ffffff; stroke: #8c959f }
.group { fill: none; stroke: #8c959f; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.note { fill: #9198a1 }
.slots { fill: #ffa657 }
.page { fill: #0d1117 }
.frame { fill: #12171e; stroke: #3d444d }
.link { fill: #1b222b }
.line { stroke: #7d8590 }
.lane { stroke: #57606a }
.matrix { fill: #0c2d4a; stroke: #1f6feb }
.norm { fill: #332a0b; stroke: #9e6a03 }
.plain { fill: #1b222b; stroke: #57606a }
.time { fill: #0f2f1a; stroke: #238636 }
.slot { fill: #4a2408; stroke: #f0883e }
.param { fill: #1b222b; stroke: #57606a }
.run { fill: #151b23; stroke: #7d8590 }
.group { stroke: #7d8590 }
}
</style>
<marker id="tip" viewBox="0 0 6 6" refX="5.4" refY="3" markerWidth="6" markerHeight="6" orient="auto"><path class="tip" d="M0 0L6 3L0 6z"/></marker>
"##;

/// Gap between runs of layers, and padding of a frame around some.
pub(super) const RUN_GAP: f64 = 8.0;
pub(super) const GROUP_PADDING: f64 = 10.0;
/// Space next to a frame for its number of repeats.
pub(super) const REPEAT_WIDTH: f64 = 34.0;

impl Class {
    /// The class name in the style sheet, and the legend's text; empty if the box explains itself.
    pub(super) fn style(self) -> (&'static str, &'static str) {
        match self {
            Class::Terminal => ("terminal", ""),
            Class::Matrix => ("matrix", "a matrix"),
            Class::Norm => ("norm", "a norm"),
            Class::Plain => ("plain", "one step, no parameters"),
            Class::Time => ("time", "sees position or past"),
            Class::Slot => ("slot", "a filled slot"),
            Class::Param => ("param", "a parameter"),
            Class::Stack => ("run", ""),
        }
    }
}

/// Style and legend text of each class in the picture.
pub(super) fn classes<'a>(
    diagrams: impl Iterator<Item = &'a Diagram>,
) -> Vec<(&'static str, &'static str)> {
    let present: BTreeSet<Class> =
        diagrams.flat_map(|diagram| &diagram.vertices).map(|vertex| vertex.class).collect();
    let styles = present.into_iter().map(Class::style);
    styles.filter(|(_, meaning)| !meaning.is_empty()).collect()
}

/// An upper estimate of a text's width at 12 pixels, bold.
fn width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_ascii_lowercase() { 7.5 } else { 8.2 }).sum()
}

/// The same at 10.5 pixels.
fn note_width(text: &str) -> f64 {
    width(text) * 0.84
}

/// The same for a heading.
pub(super) fn caption(text: &str) -> f64 {
    width(text) * 1.25
}

pub(super) fn vertex_size(vertex: &Vertex) -> Size {
    if vertex.class == Class::Stack {
        return stack_size(vertex);
    }
    let words = width(&vertex.title).max(note_width(&vertex.note));
    let ports = vertex.inputs.max(vertex.outputs) as f64;
    let small = vertex.class == Class::Plain && vertex.note.is_empty();
    let (padding, height) = match (small, vertex.note.is_empty()) {
        (true, _) => (16.0, 22.0),
        (false, true) => (20.0, 28.0),
        (false, false) => (20.0, 40.0),
    };
    Size { width: (words + padding).max(ports * 16.0).max(28.0), height }
}

pub(super) fn run_size(run: &LayerRun) -> Size {
    let title = width(&format!("{} × {}", run.count, run.title));
    let words = title.max(note_width(&run.note)).max(note_width(&run.slots));
    let lines = [&run.note, &run.slots].into_iter().filter(|s| !s.is_empty()).count();
    Size { width: (words + 28.0).max(150.0), height: 28.0 + 15.0 * lines as f64 }
}

/// The size of one card: its runs, and a frame around them if they repeat.
pub(super) fn card_size(repeats: usize, runs: &[LayerRun]) -> Size {
    let sizes = runs.iter().map(run_size);
    let width = sizes.clone().map(|size| size.width).fold(0.0, f64::max);
    let height: f64 = sizes.map(|size| size.height + RUN_GAP).sum::<f64>() - RUN_GAP;
    match repeats {
        ..=1 => Size { width, height },
        _ => Size {
            width: width + 2.0 * (GROUP_PADDING + REPEAT_WIDTH),
            height: height + 2.0 * GROUP_PADDING,
        },
    }
}

fn stack_size(vertex: &Vertex) -> Size {
    let sizes = vertex.cards.iter().map(|card| card_size(card.repeats, &card.runs));
    let width = sizes.clone().map(|size| size.width).fold(0.0, f64::max);
    let height: f64 = sizes.map(|size| size.height + RUN_GAP).sum::<f64>() - RUN_GAP;
    Size { width, height }
}

/// Formats a number with at most one decimal.
pub(super) fn number(x: f64) -> String {
    let text = format!("{x:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
