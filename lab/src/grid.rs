//! The points of a sweep or grid: archs and written fields, and the product with another axis.

use crate::field::{FieldValue, Fields};

/// Most locks from one file.
pub const MAX_POINTS: usize = 10_000;

/// One point: an arch and the written fields.
#[derive(Clone, Debug)]
pub struct Point {
    /// Index into the archs of the recipe.
    pub arch: usize,
    /// Written fields, with the values of this point.
    pub fields: Fields,
    /// The values that distinguish this point, as words for its name.
    pub words: Vec<String>,
}

/// Sets values at their paths, and adds them to the words.
pub(crate) fn set(point: &mut Point, paths: &[String], values: &[FieldValue]) {
    for (path, value) in paths.iter().zip(values) {
        let last = path.rsplit('.').next().unwrap_or(path);
        point.words.push(format!("{last}{}", file_word(&value.plain())));
        point.fields.insert(path.clone(), value.clone());
    }
}

/// Combines every point with every entry of an axis.
pub(crate) fn along(points: &[Point], paths: &[String], values: &[Vec<FieldValue>]) -> Vec<Point> {
    let mut out = Vec::with_capacity(points.len() * values.len());
    for point in points {
        for row in values {
            let mut point = point.clone();
            set(&mut point, paths, row);
            out.push(point);
        }
    }
    out
}

/// Whether a text is valid in file names on every system.
pub(crate) fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=80).contains(&text.len()) && !text.starts_with('.') && text.chars().all(plain)
}

/// Replaces characters and shortens the text, so that every file system accepts it.
pub(crate) fn file_word(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let word: String = text.chars().map(kept).take(60).collect();
    word.trim_matches('.').to_owned()
}
