//! `[sweep]`: lists of values, and the points of their product.
//!
//! In: one key (a field, several fields together, or `arch`) and its list. Out: points, each with
//! its values and a name. Must stay true: values have the type of their field; the order is that of
//! the keys, then of the lists; no two points have equal values or names that a file system could
//! confuse; the product is bounded before it is made.

use std::collections::BTreeSet;

use dsl::{Diagnostics, Span};
use toml::de::DeValue;

use super::{ArchRef, Recipe, arch_ref, diag};
use crate::field::{self, FieldValue, Fields, shown};

/// Locks that one file may make.
pub const MAX_POINTS: usize = 10_000;

/// One key of a sweep.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Fields that move together; usually one.
    pub paths: Vec<String>,
    /// For each place on the axis, a value for each path.
    pub values: Vec<Vec<FieldValue>>,
    pub span: Span,
}

/// One point: an arch and the written fields.
#[derive(Clone, Debug)]
pub struct Point {
    /// Into [`Recipe::archs`].
    pub arch: usize,
    pub fields: Fields,
    /// What tells this point from the others, as words of a name.
    pub words: Vec<String>,
}

impl Recipe {
    /// Reads one line of `[sweep]`.
    pub(super) fn axis(
        &mut self,
        importer: &str,
        path: &str,
        key: Span,
        value: &DeValue<'_>,
        at: Span,
        diagnostics: &mut Diagnostics,
    ) {
        let DeValue::Array(items) = value else {
            diagnostics.push(diag::not_a_list(at, path, &shown(value)));
            return;
        };
        if items.is_empty() {
            diagnostics.push(diag::empty_list(at, path));
            return;
        }
        let span = |item: &toml::Spanned<DeValue<'_>>| {
            Span::new(at.file, item.span().start, item.span().end)
        };
        if path == "arch" {
            for item in items {
                match arch_ref(importer, item.get_ref()) {
                    Some(arch) if self.archs.iter().any(|(known, _)| *known == arch) => {
                        diagnostics.push(diag::value_twice(
                            span(item),
                            path,
                            &shown(item.get_ref()),
                        ));
                    }
                    Some(arch) => self.archs.push((arch, span(item))),
                    None => diagnostics.push(diag::bad_arch(span(item), &shown(item.get_ref()))),
                }
            }
            match self.spans.get("arch") {
                Some(fixed) => diagnostics.push(diag::swept_and_fixed(at, path, *fixed)),
                None => {
                    self.spans.insert("arch".to_owned(), at);
                }
            }
            return;
        }
        let paths: Vec<String> = path.split(',').map(|p| p.trim().to_owned()).collect();
        let mut defs = Vec::new();
        for path in &paths {
            match field::find(path) {
                Some(def) if !def.is_writable() => {
                    diagnostics.push(diag::derived_key(key, def));
                }
                Some(def) => defs.push(def),
                None => diagnostics.push(diag::unknown_key(key, path, &["arch"])),
            }
        }
        if defs.len() < paths.len() {
            return;
        }
        let mut values: Vec<Vec<FieldValue>> = Vec::new();
        for item in items {
            let Some(row) = field::row(item.get_ref(), defs.len()) else {
                let got = shown(item.get_ref());
                diagnostics.push(diag::not_a_tuple(span(item), path, &got, defs.len()));
                continue;
            };
            let mut read = Vec::new();
            for (def, value) in defs.iter().zip(row) {
                match def.kind.read(value) {
                    Ok(value) => read.push(value),
                    Err(why) => diagnostics.push(diag::bad_value(span(item), def.path, &why)),
                }
            }
            if values.contains(&read) {
                diagnostics.push(diag::value_twice(span(item), path, &shown(item.get_ref())));
            }
            values.push(read);
        }
        self.axes.push(Axis { paths, values, span: key });
    }

    /// What only the whole file shows: fields both fixed and swept, or swept twice; too many points.
    pub(super) fn check_axes(&mut self, diagnostics: &mut Diagnostics) {
        let mut seen: Vec<(&str, Span)> = Vec::new();
        for axis in &self.axes {
            for path in &axis.paths {
                if self.written.contains_key(path) {
                    let fixed = self.place(path);
                    diagnostics.push(diag::swept_and_fixed(axis.span, path, fixed));
                }
                if let Some((_, before)) = seen.iter().find(|(known, _)| known == path) {
                    diagnostics.push(diag::swept_twice(axis.span, path, *before));
                }
                seen.push((path, axis.span));
            }
        }
        let sizes = self.axes.iter().map(|axis| axis.values.len());
        let points = sizes.fold(self.archs.len().max(1), usize::saturating_mul);
        if points > MAX_POINTS {
            let at = self.axes.first().map_or(self.place("sweep"), |axis| axis.span);
            diagnostics.push(diag::too_many_points(at, points, MAX_POINTS));
        }
        for axis in &self.axes {
            for path in &axis.paths {
                self.spans.entry(path.clone()).or_insert(axis.span);
            }
        }
    }
}

pub(super) fn points(recipe: &Recipe) -> Vec<Point> {
    let mut points = Vec::new();
    for (arch, (named, _)) in recipe.archs.iter().enumerate() {
        let words = if recipe.archs.len() > 1 { vec![arch_word(named)] } else { Vec::new() };
        points.push(Point { arch, fields: recipe.written.clone(), words });
    }
    for axis in &recipe.axes {
        points = along(&points, &axis.paths, &axis.values);
    }
    points
}

/// Every point at every place of an axis.
pub(crate) fn along(points: &[Point], paths: &[String], values: &[Vec<FieldValue>]) -> Vec<Point> {
    let mut out = Vec::with_capacity(points.len() * values.len());
    for point in points {
        for row in values {
            let mut point = point.clone();
            for (path, value) in paths.iter().zip(row) {
                let last = path.rsplit('.').next().unwrap_or(path);
                point.words.push(format!("{last}{}", file_word(&value.plain())));
                point.fields.insert(path.clone(), value.clone());
            }
            out.push(point);
        }
    }
    out
}

/// A name for each point: the stem and what tells it from the others.
pub(crate) fn names(stem: &str, points: &[Point]) -> Vec<String> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut out = Vec::with_capacity(points.len());
    for point in points {
        let name = [&[stem.to_owned()], point.words.as_slice()].concat().join("-");
        // Some file systems do not tell cases apart.
        let mut unique = name.clone();
        let mut number = 2;
        while !taken.insert(unique.to_lowercase()) {
            unique = format!("{name}-{number}");
            number += 1;
        }
        out.push(unique);
    }
    out
}

fn arch_word(arch: &ArchRef) -> String {
    let stem = arch.path.rsplit('/').next().unwrap_or("").trim_end_matches(".canon");
    file_word(arch.name.as_deref().unwrap_or(stem))
}

/// Only what every file system takes as it is.
pub(crate) fn file_word(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let word: String = text.chars().map(kept).take(60).collect();
    word.trim_matches('.').to_owned()
}
