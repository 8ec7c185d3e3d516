//! `[sweep]` of a recipe: lists of values, and the points of their product. A key is one field, or several together,
//! which may include `arch` and a point's name.
//!
//! Points are ordered by key, then by position in the list. No two points have equal values, or names that a file
//! system could confuse. The product is checked against its bound before it is built.

use std::collections::BTreeSet;

use dsl::{Diagnostics, Span};
use toml::de::DeValue;

use super::{ArchRef, Recipe, arch_ref, diag};
use crate::field::{self, FieldDef, FieldValue, shown};
use crate::grid::{MAX_POINTS, Point, file_word, is_word, set};

/// One key of a sweep.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Fields that vary together; usually one, and none if only archs or names are listed.
    pub paths: Vec<String>,
    /// Entries, in the order written.
    pub places: Vec<AxisEntry>,
    /// Place of the axis in the file.
    pub span: Span,
}

/// One entry of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisEntry {
    /// One value for each path of the axis.
    pub values: Vec<FieldValue>,
    /// Index into [`Recipe::archs`], if the axis lists archs.
    pub arch: Option<usize>,
    /// The entry's name, if the axis gives one.
    pub name: Option<String>,
}

/// The kind of a column of an axis.
enum Column {
    Arch,
    Name,
    Field(&'static FieldDef),
}

/// Sweep keys that are not fields.
pub(super) const OTHERS: [&str; 2] = ["arch", "name"];

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
        let Some(columns) = self.columns(path, key, at, diagnostics) else { return };
        let mut places: Vec<AxisEntry> = Vec::new();
        for item in items {
            let span = Span::new(at.file, item.span().start, item.span().end);
            let Some(row) = field::row(item.get_ref(), columns.len()) else {
                let got = shown(item.get_ref());
                diagnostics.push(diag::not_a_tuple(span, path, &got, columns.len()));
                continue;
            };
            let mut entry = AxisEntry { values: Vec::new(), arch: None, name: None };
            for (column, value) in columns.iter().zip(row) {
                match column {
                    Column::Arch => match arch_ref(importer, value) {
                        Some(arch) => entry.arch = Some(self.arch(arch, span)),
                        None => diagnostics.push(diag::bad_arch(span, &shown(value))),
                    },
                    Column::Name => match field::string(value).filter(|name| is_word(name)) {
                        Some(name) => entry.name = Some(name.to_owned()),
                        None => diagnostics.push(diag::bad_point_name(span, &shown(value))),
                    },
                    Column::Field(def) => match def.kind.read(value) {
                        Ok(value) => entry.values.push(field::canonical(def, value)),
                        Err(reason) => diagnostics.push(diag::bad_value(span, def.path, &reason)),
                    },
                }
            }
            // Points that differ only in their name are duplicates.
            let twin = |known: &AxisEntry| {
                let same = known.values == entry.values && known.arch == entry.arch;
                same || (known.name.is_some() && known.name == entry.name)
            };
            if places.iter().any(twin) {
                diagnostics.push(diag::value_twice(span, path, &shown(item.get_ref())));
            }
            places.push(entry);
        }
        let path_of = |column: &Column| match column {
            Column::Field(def) => Some(def.path.to_owned()),
            Column::Arch | Column::Name => None,
        };
        let paths = columns.iter().filter_map(path_of).collect();
        self.axes.push(Axis { paths, places, span: key });
    }

    /// The columns in a key of `[sweep]`, separated by commas.
    fn columns(
        &mut self,
        path: &str,
        key: Span,
        at: Span,
        diagnostics: &mut Diagnostics,
    ) -> Option<Vec<Column>> {
        let words: Vec<&str> = path.split(',').map(str::trim).collect();
        let mut columns = Vec::new();
        for word in &words {
            match (*word, field::find(word)) {
                ("arch", _) => {
                    match self.spans.get("arch") {
                        Some(fixed) => diagnostics.push(diag::swept_and_fixed(at, word, *fixed)),
                        None => {
                            self.spans.insert("arch".to_owned(), at);
                        }
                    }
                    columns.push(Column::Arch);
                }
                ("name", _) => columns.push(Column::Name),
                (_, Some(def)) if !def.is_writable() => {
                    diagnostics.push(diag::derived_key(key, def));
                }
                (_, Some(def)) => columns.push(Column::Field(def)),
                (_, None) => diagnostics.push(diag::unknown_key(key, word, &OTHERS)),
            }
        }
        let says = columns.iter().any(|column| !matches!(column, Column::Name));
        if columns.len() == words.len() && !says {
            diagnostics.push(diag::names_alone(key));
            return None;
        }
        (columns.len() == words.len()).then_some(columns)
    }

    /// The index of an arch. Several points may use the same arch.
    fn arch(&mut self, arch: ArchRef, at: Span) -> usize {
        let known = self.archs.iter().position(|(known, _)| *known == arch);
        known.unwrap_or_else(|| {
            self.archs.push((arch, at));
            self.archs.len() - 1
        })
    }

    /// Checks that need the whole file: fields both fixed and swept, or swept twice; too many points.
    pub(super) fn check_axes(&mut self, diagnostics: &mut Diagnostics) {
        let mut seen: Vec<(&str, Span)> = Vec::new();
        for axis in &self.axes {
            for path in &axis.paths {
                if self.written.contains_key(path) {
                    let fixed = self.span_of(path);
                    diagnostics.push(diag::swept_and_fixed(axis.span, path, fixed));
                }
                if let Some((_, before)) = seen.iter().find(|(known, _)| known == path) {
                    diagnostics.push(diag::swept_twice(axis.span, path, *before));
                }
                seen.push((path, axis.span));
            }
        }
        let sizes = self.axes.iter().map(|axis| axis.places.len());
        let points = sizes.fold(1, usize::saturating_mul);
        if points > MAX_POINTS {
            let at = self.axes.first().map_or(self.span_of("sweep"), |axis| axis.span);
            diagnostics.push(diag::too_many_points(at, points, MAX_POINTS));
        }
        for axis in &self.axes {
            for path in &axis.paths {
                self.spans.entry(path.clone()).or_insert(axis.span);
            }
        }
        if points <= MAX_POINTS && self.is_named() {
            let mut taken = BTreeSet::new();
            for point in self.points() {
                let name = point.words.join("-");
                if !taken.insert(name.to_lowercase()) {
                    diagnostics.push(diag::name_twice(self.span_of("sweep"), &name));
                    break;
                }
            }
        }
    }

    /// Whether the points have their own names, so that the file's name is not added.
    fn is_named(&self) -> bool {
        self.axes.iter().flat_map(|axis| &axis.places).any(|place| place.name.is_some())
    }
}

pub(super) fn points(recipe: &Recipe) -> Vec<Point> {
    let mut points = vec![Point { arch: 0, fields: recipe.written.clone(), words: Vec::new() }];
    for Axis { paths, places, span: _ } in &recipe.axes {
        let mut out = Vec::with_capacity(points.len() * places.len());
        for point in &points {
            for AxisEntry { values, arch, name } in places {
                let mut next = point.clone();
                next.arch = arch.unwrap_or(point.arch);
                let named = recipe.archs.get(next.arch).filter(|_| arch.is_some());
                let several = places.len() > 1;
                next.words.extend(named.filter(|_| several).map(|(arch, _)| arch_word(arch)));
                set(&mut next, paths, values);
                if let Some(name) = name {
                    next.words.truncate(point.words.len());
                    next.words.push(name.clone());
                }
                out.push(next);
            }
        }
        points = out;
    }
    points
}

/// A name for each point: the stem with the point's words, or the point's own name.
pub(super) fn names(recipe: &Recipe, stem: &str, points: &[Point]) -> Vec<String> {
    let stem: &[String] = if recipe.is_named() { &[] } else { &[stem.to_owned()] };
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut out = Vec::with_capacity(points.len());
    for point in points {
        let name = [stem, point.words.as_slice()].concat().join("-");
        // Some file systems ignore case.
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
