//! A graph as one self-contained SVG document, light or dark as the viewer prefers: the whole architecture as a column,
//! with each kind of layer next to it. No script, no external font or file.

mod style;
mod write;

use compiler::kinds::{LayerKind, layer_kinds};
use dsl::escaped;

use crate::diagram::{Class, Diagram, diagram};
use crate::layout::{Bounds, GAP, Layout, Size, layout};
use crate::{MAX_BOXES, MAX_KINDS, Subject, TooLarge, dot, stack};
use style::{HEAD, caption, classes, number, vertex_size};
use write::{Canvas, Lane};

/// Margin around everything, gap between panels, padding and header of a panel.
const MARGIN: f64 = 24.0;
const PANEL_GAP: f64 = 40.0;
const PANEL_PADDING: f64 = 18.0;
const HEADER: f64 = 46.0;
/// Height of one row of the legend.
const LEGEND_ROW: f64 = 20.0;
/// Width of a lane next to a panel's boxes, which holds the name of an instance.
const LANE: f64 = 24.0;

/// One diagram with its layout and heading.
struct Panel {
    title: String,
    subtitle: String,
    diagram: Diagram,
    layout: Layout,
    lanes: Vec<Lane>,
    /// Whether it has a frame: true for a layer, false for the whole.
    framed: bool,
}

/// The whole architecture, or the body of one layer.
pub fn svg(subject: &Subject, layer: Option<u32>) -> Result<String, TooLarge> {
    let kinds = layer_kinds(subject.graph);
    let mut panels = Vec::new();
    let shown: Vec<&LayerKind> = match layer {
        Some(layer) => kinds.iter().filter(|kind| kind.layers.contains(&layer)).collect(),
        None => {
            let diagram = stack::diagram(subject, &kinds);
            panels.push(panel(subject.name.to_owned(), String::new(), diagram, false)?);
            kinds.iter().take(MAX_KINDS).collect()
        }
    };
    let others = kinds.len() - shown.len();
    let linked = layer.is_none() && kinds.len() == 1;
    for kind in shown {
        let first = kind.layers.first().copied().unwrap_or(0);
        let (_, parts) = subject.layer_words(first);
        let title = dot::title(subject, kind);
        panels.push(panel(title, parts, diagram(&kind.body, "x", "y"), true)?);
    }
    Ok(compose(subject, &panels, linked, if layer.is_none() { others } else { 0 }))
}

fn panel(
    title: String,
    subtitle: String,
    diagram: Diagram,
    framed: bool,
) -> Result<Panel, TooLarge> {
    if diagram.vertices.len() > MAX_BOXES {
        return Err(TooLarge { boxes: diagram.vertices.len() });
    }
    let sizes = sizes(&diagram);
    let layout = layout(&diagram, &sizes);
    let lanes = lanes(&diagram, &layout);
    Ok(Panel { title, subtitle, diagram, layout, lanes, framed })
}

/// The size of each box, from its words and its connections.
pub(super) fn sizes(diagram: &Diagram) -> Vec<Size> {
    let mut sizes: Vec<Size> = diagram.vertices.iter().map(vertex_size).collect();
    let alone = sizes.clone();
    let width = |i: usize| alone.get(i).map_or(0.0, |size| size.width);
    for (i, vertex) in diagram.vertices.iter().enumerate() {
        if vertex.class != Class::Slot || vertex.outputs < 2 {
            continue;
        }
        // A slot with several tensors is as wide as its neighbours above or below, side by side.
        let beside = diagram.edges.iter().filter_map(|edge| match (edge.from.0, edge.to.0) {
            (from, to) if from == i => Some(width(to)),
            (from, to) if to == i => Some(width(from)),
            _ => None,
        });
        let widest = beside.fold(0.0, f64::max).min(180.0);
        let wide = (widest + GAP) * vertex.outputs as f64;
        sizes.iter_mut().skip(i).take(1).for_each(|size| size.width = size.width.max(wide));
    }
    sizes
}

/// For each instance (`mixer`, `mlp`) the rows of its boxes. Overlapping lanes are placed side by side.
fn lanes(diagram: &Diagram, layout: &Layout) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = Vec::new();
    for (vertex, bounds) in diagram.vertices.iter().zip(&layout.bounds) {
        let Some(region) = &vertex.region else { continue };
        let (top, bottom) = (bounds.top(), bounds.bottom());
        match lanes.iter_mut().find(|lane| lane.name == *region) {
            Some(lane) => {
                lane.top = lane.top.min(top);
                lane.bottom = lane.bottom.max(bottom);
            }
            None => lanes.push(Lane { name: region.clone(), top, bottom, column: 0 }),
        }
    }
    for i in 0..lanes.len() {
        let Some((before, [lane, ..])) = lanes.split_at_mut_checked(i) else { continue };
        let taken = |column: usize| {
            before.iter().any(|other| {
                other.column == column && other.top < lane.bottom && lane.top < other.bottom
            })
        };
        lane.column = (0..=before.len()).find(|column| !taken(*column)).unwrap_or(0);
    }
    lanes
}

impl Panel {
    fn lanes_width(&self) -> f64 {
        LANE * self.lanes.iter().map(|lane| lane.column + 1).max().unwrap_or(0) as f64
    }

    fn size(&self) -> Size {
        let text = caption(&self.title).max(caption(&self.subtitle));
        let boxes = self.layout.size.width + self.lanes_width();
        Size {
            width: boxes.max(text) + 2.0 * PANEL_PADDING,
            height: self.layout.size.height + HEADER + 2.0 * PANEL_PADDING,
        }
    }

    /// The origin of the boxes, given the panel's.
    fn origin(&self, x: f64, y: f64) -> (f64, f64) {
        let spare = self.size().width - self.layout.size.width - self.lanes_width();
        (x + self.lanes_width() + spare / 2.0, y + HEADER + PANEL_PADDING)
    }
}

fn compose(subject: &Subject, panels: &[Panel], linked: bool, others: usize) -> String {
    let mut xs = Vec::with_capacity(panels.len());
    let mut x = MARGIN;
    let mut height: f64 = 0.0;
    for (i, panel) in panels.iter().enumerate() {
        xs.push(x);
        let legend = if i == 0 { legend_height(panels) } else { 0.0 };
        height = height.max(panel.size().height + legend);
        x += panel.size().width + PANEL_GAP;
    }
    let size = Size { width: x - PANEL_GAP + MARGIN, height: height + 2.0 * MARGIN };
    let (width, tall) = (number(size.width), number(size.height));
    let mut canvas = Canvas::new();
    canvas.raw(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{tall}\" viewBox=\"0 0 {width} {tall}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(&format!("the architecture {}", subject.name)),
    ));
    canvas.raw(HEAD);
    canvas.raw("<rect class=\"page\" width=\"100%\" height=\"100%\" rx=\"10\"/>\n");
    if let (true, [column, layer]) = (linked, panels)
        && let [x, beside] = xs.as_slice()
    {
        link(&mut canvas, column, *x, layer, *beside);
    }
    for (panel, x) in panels.iter().zip(&xs) {
        draw(&mut canvas, panel, *x, MARGIN);
    }
    if let Some(first) = panels.first() {
        legend(&mut canvas, panels, MARGIN + PANEL_PADDING, MARGIN + first.size().height + 8.0);
    }
    if others > 0 {
        let text = format!("and {others} more kinds of layers: --layer N draws one");
        canvas.text(MARGIN, size.height - 8.0, "note start", &text);
    }
    canvas.raw("</svg>\n");
    canvas.finish()
}

/// Draws the polygon between the layers in the column and the panel that shows one of them.
fn link(canvas: &mut Canvas, column: &Panel, x: f64, layer: &Panel, beside: f64) {
    let mut vertices = column.diagram.vertices.iter().zip(&column.layout.bounds);
    let Some((_, bounds)) = vertices.find(|(vertex, _)| vertex.class == Class::Stack) else {
        return;
    };
    let (left, top) = column.origin(x, MARGIN);
    let stack = Bounds { x: bounds.x + left, y: bounds.y + top, ..*bounds };
    let right = stack.x + stack.size.width / 2.0;
    let (upper, lower) = (stack.top(), stack.bottom());
    let corners =
        [(right, upper), (beside, MARGIN), (beside, MARGIN + layer.size().height), (right, lower)];
    canvas.polygon("link", &corners);
}

fn draw(canvas: &mut Canvas, panel: &Panel, x: f64, y: f64) {
    let size = panel.size();
    if panel.framed {
        canvas.rect("frame", x, y, size, 10.0);
    }
    let middle = x + size.width / 2.0;
    let class = if panel.framed { "title" } else { "name" };
    let drop = if panel.subtitle.is_empty() { 34.0 } else { 26.0 };
    canvas.text(middle, y + drop, class, &panel.title);
    if !panel.subtitle.is_empty() {
        canvas.text(middle, y + 44.0, "note", &panel.subtitle);
    }
    let (left, top) = panel.origin(x, y);
    for lane in &panel.lanes {
        canvas.lane(lane, left - LANE * (lane.column as f64 + 1.0), top);
    }
    for route in &panel.layout.routes {
        canvas.route(route, left, top);
    }
    for (vertex, bounds) in panel.diagram.vertices.iter().zip(&panel.layout.bounds) {
        canvas.vertex(vertex, Bounds { x: bounds.x + left, y: bounds.y + top, ..*bounds });
    }
}

fn legend_height(panels: &[Panel]) -> f64 {
    LEGEND_ROW * classes(panels.iter().map(|panel| &panel.diagram)).len() as f64 + 8.0
}

fn legend(canvas: &mut Canvas, panels: &[Panel], x: f64, y: f64) {
    let present = classes(panels.iter().map(|panel| &panel.diagram));
    for (i, (class, meaning)) in present.into_iter().enumerate() {
        let y = y + LEGEND_ROW * i as f64;
        canvas.rect(class, x, y, Size { width: 18.0, height: 12.0 }, 4.0);
        canvas.text(x + 26.0, y + 10.0, "note start", meaning);
    }
}
