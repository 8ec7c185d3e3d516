//! Writes the SVG of still charts, element by element.

use std::fmt::{Display, Write as _};

use dsl::escaped;

/// An SVG picture that is being drawn.
pub(crate) struct Svg(String);

/// Attributes of an element, in order.
pub(crate) type Attributes<'a> = &'a [(&'a str, &'a dyn Display)];

/// A length with one decimal.
pub(crate) struct Tenths(pub(crate) f64);

impl Display for Tenths {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:.1}", self.0)
    }
}

impl Svg {
    /// A picture of this size; attributes apply to all that is in it.
    pub(crate) fn new(width: f64, height: f64, attributes: Attributes<'_>) -> Svg {
        let mut svg = Svg(String::new());
        let view = format!("0 0 {width} {height}");
        let size: Attributes<'_> = &[("xmlns", &"http://www.w3.org/2000/svg"), ("viewBox", &view)];
        svg.open("svg", &[size, attributes].concat());
        svg
    }

    /// Begins an element that holds others.
    pub(crate) fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        self.tag(name, attributes, ">");
    }

    /// Ends an element that holds others.
    pub(crate) fn close(&mut self, name: &str) {
        let _ = write!(self.0, "</{name}>");
    }

    /// A shape.
    pub(crate) fn shape(&mut self, name: &str, attributes: Attributes<'_>) {
        self.tag(name, attributes, "/>");
    }

    /// Words at a place.
    pub(crate) fn text(&mut self, attributes: Attributes<'_>, words: &str) {
        self.open("text", attributes);
        self.0.push_str(&escaped(words));
        self.close("text");
    }

    /// A line break in the file.
    pub(crate) fn line_break(&mut self) {
        self.0.push('\n');
    }

    /// The finished picture.
    pub(crate) fn finish(mut self) -> String {
        self.close("svg");
        self.0
    }

    fn tag(&mut self, name: &str, attributes: Attributes<'_>, end: &str) {
        let _ = write!(self.0, "<{name}");
        for (name, value) in attributes {
            let _ = write!(self.0, " {name}=\"{}\"", escaped(&value.to_string()));
        }
        self.0.push_str(end);
    }
}
