//! Writes elements of an SVG document: every word is escaped, every coordinate has one decimal.

use std::fmt::Write as _;

use dsl::escaped;

use super::style::{GROUP_PADDING, REPEAT_WIDTH, RUN_GAP, card_size, number, run_size};
use crate::diagram::{Card, Class, LayerRun, Vertex};
use crate::layout::{Bounds, Size};

/// The rows an instance spans.
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) top: f64,
    pub(super) bottom: f64,
    pub(super) column: usize,
}

pub(super) struct Canvas {
    text: String,
}

impl Canvas {
    pub(super) fn new() -> Canvas {
        Canvas { text: String::new() }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    pub(super) fn raw(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(super) fn rect(&mut self, class: &str, x: f64, y: f64, size: Size, round: f64) {
        let Size { width, height } = size;
        let [x, y, width, height, round] = [x, y, width, height, round].map(number);
        let _ = writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{round}\"/>"
        );
    }

    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let (x, y, text) = (number(x), number(y), escaped(text));
        let _ = writeln!(self.text, "<text{class} x=\"{x}\" y=\"{y}\">{text}</text>");
    }

    pub(super) fn polygon(&mut self, class: &str, corners: &[(f64, f64)]) {
        let points = corners.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y)));
        let points = points.collect::<Vec<_>>().join(" ");
        let _ = writeln!(self.text, "<polygon class=\"{class}\" points=\"{points}\"/>");
    }

    /// Draws a bar along the rows of an instance, with its name next to it, reading upwards.
    pub(super) fn lane(&mut self, lane: &Lane, x: f64, top: f64) {
        let (from, to) = (top + lane.top, top + lane.bottom);
        let middle = (from + to) / 2.0;
        let [bar, from, to] = [x + 12.0, from, to].map(number);
        let _ = writeln!(
            self.text,
            "<line class=\"lane\" x1=\"{bar}\" x2=\"{bar}\" y1=\"{from}\" y2=\"{to}\"/>"
        );
        let [x, y] = [x + 5.0, middle].map(number);
        let _ = writeln!(
            self.text,
            "<text class=\"note\" x=\"{x}\" y=\"{y}\" transform=\"rotate(-90 {x} {y})\">{}</text>",
            escaped(&lane.name)
        );
    }

    /// Draws a line that runs straight down past boxes and curves between ranks.
    pub(super) fn route(&mut self, points: &[(f64, f64)], left: f64, top: f64) {
        let mut path = String::new();
        let mut at: Option<(f64, f64)> = None;
        for (x, y) in points.iter().map(|(x, y)| (x + left, y + top)) {
            match at {
                None => {
                    let _ = write!(path, "M{} {}", number(x), number(y));
                }
                Some((before, above)) if (before - x).abs() < 0.05 => {
                    if y > above {
                        let _ = write!(path, "V{}", number(y));
                    }
                }
                Some((before, above)) => {
                    let middle = number((above + y) / 2.0);
                    let (from, to, end) = (number(before), number(x), number(y));
                    let _ = write!(path, "C{from} {middle} {to} {middle} {to} {end}");
                }
            }
            at = Some((x, y));
        }
        let _ = writeln!(self.text, "<path class=\"line\" marker-end=\"url(#tip)\" d=\"{path}\"/>");
    }

    pub(super) fn vertex(&mut self, vertex: &Vertex, bounds: Bounds) {
        let Bounds { x, y, size } = bounds;
        let (left, top) = (x - size.width / 2.0, bounds.top());
        if vertex.class == Class::Stack && !vertex.cards.is_empty() {
            return self.cards(&vertex.cards, x, top);
        }
        let (class, _) = vertex.class.style();
        if !vertex.details.is_empty() {
            let _ = writeln!(self.text, "<g><title>{}</title>", escaped(vertex.details.trim_end()));
        }
        let round = if vertex.class == Class::Plain { size.height / 2.0 } else { 7.0 };
        if vertex.class != Class::Terminal {
            self.rect(class, left, top, size, round);
        }
        if vertex.note.is_empty() {
            self.text(x, y + 4.0, "", &vertex.title);
        } else {
            self.text(x, y - 3.0, "", &vertex.title);
            self.text(x, y + 12.0, "note", &vertex.note);
        }
        if !vertex.details.is_empty() {
            self.raw("</g>\n");
        }
    }

    fn cards(&mut self, cards: &[Card], x: f64, top: f64) {
        let mut y = top;
        for Card { repeats, runs } in cards {
            let size = card_size(*repeats, runs);
            let mut inner = y;
            if *repeats > 1 {
                let frame = Size { width: size.width - 2.0 * REPEAT_WIDTH, ..size };
                self.rect("group", x - frame.width / 2.0, y, frame, 10.0);
                let beside = x + frame.width / 2.0 + REPEAT_WIDTH / 2.0;
                self.text(beside, y + size.height / 2.0 + 4.0, "", &format!("{repeats} ×"));
                inner += GROUP_PADDING;
            }
            for run in runs {
                self.run(run, x, inner);
                inner += run_size(run).height + RUN_GAP;
            }
            y += size.height + RUN_GAP;
        }
    }

    fn run(&mut self, run: &LayerRun, x: f64, top: f64) {
        let LayerRun { count, title, note, slots } = run;
        let size = run_size(run);
        self.rect("run", x - size.width / 2.0, top, size, 8.0);
        let title = if *count > 1 { format!("{count} × {title}") } else { title.clone() };
        self.text(x, top + 18.0, "", &title);
        let mut y = top + 18.0;
        if !note.is_empty() {
            y += 15.0;
            self.text(x, y, "note", note);
        }
        if !slots.is_empty() {
            let word = if slots.contains(' ') { "slots" } else { "slot" };
            self.text(x, y + 15.0, "slots", &format!("{word} {slots}"));
        }
    }
}
