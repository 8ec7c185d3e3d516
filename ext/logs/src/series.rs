//! The numbers of a file by name and step, before it is known which of them matter.

use std::collections::{BTreeMap, BTreeSet};

/// Values by step, ascending.
pub type Points = Vec<(u64, f64)>;

/// Most names of one file. Trainers write a few dozen; each name costs memory that the size of a file does not bound.
const MOST_NAMES: usize = 10_000;
/// Steps above this are not exact in the numbers of JSON and CSV.
const MOST_STEPS: f64 = 9_007_199_254_740_992.0;

/// What a cell of a file holds, as far as it may be a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A number; NaN and infinities are numbers.
    Number(f64),
    /// Another text.
    Text(String),
    /// Nothing, a list, or another value that is no number.
    None,
}

impl Cell {
    /// The cell of a text: a number if it reads as one.
    pub(crate) fn of_text(text: &str) -> Cell {
        match text.trim() {
            "" => Cell::None,
            text => text.parse().map_or_else(|_| Cell::Text(text.to_owned()), Cell::Number),
        }
    }
}

/// All series of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    numbers: BTreeMap<String, Points>,
    /// The first text in place of a number, with its line or row.
    texts: BTreeMap<String, (usize, String)>,
    /// Names of steps that occur.
    pub(crate) step_names: BTreeSet<String>,
    /// Rows without a step, and rows of parts of a step.
    pub(crate) left_out: usize,
}

impl Series {
    /// Adds a value after a step. Errors are sentences.
    pub(crate) fn put(
        &mut self,
        name: &str,
        step: u64,
        cell: Cell,
        row: usize,
    ) -> Result<(), String> {
        match cell {
            Cell::Number(value) => {
                if let Some(points) = self.numbers.get_mut(name) {
                    points.push((step, value));
                    return Ok(());
                }
                if self.numbers.len() == MOST_NAMES {
                    return Err(format!("it has more than {MOST_NAMES} names"));
                }
                self.numbers.insert(name.to_owned(), vec![(step, value)]);
            }
            Cell::Text(text) => {
                if self.texts.len() < MOST_NAMES && !self.texts.contains_key(name) {
                    self.texts.insert(name.to_owned(), (row, text));
                }
            }
            Cell::None => {}
        }
        Ok(())
    }

    /// Adds a row: cells by name, one of which is the step. A row without a step, or of a part of a step, has no values.
    pub(crate) fn add_row(
        &mut self,
        cells: Vec<(String, Cell)>,
        steps: &[&str],
        row: usize,
    ) -> Result<(), String> {
        let named = |name: &str| cells.iter().find(|(key, _)| key == name).map(|(_, cell)| cell);
        let part = matches!(named(PART), Some(Cell::Number(part)) if *part != 0.0);
        let step = steps.iter().find_map(|name| match named(name)? {
            Cell::Number(step) => Some((*name, *step)),
            Cell::Text(_) | Cell::None => None,
        });
        let Some((name, number)) = step.filter(|_| !part) else {
            self.left_out += 1;
            return Ok(());
        };
        let step = step_of(number)
            .ok_or_else(|| format!("the step `{name}` is {number}, which is no number of steps"))?;
        self.step_names.insert(name.to_owned());
        for (key, cell) in cells {
            if key != name {
                self.put(&key, step, cell, row)?;
            }
        }
        Ok(())
    }

    /// Names with numbers, and how many.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, usize)> {
        self.numbers.iter().map(|(name, points)| (name.as_str(), points.len()))
    }

    /// The points of a name, as in the file.
    pub(crate) fn get(&self, name: &str) -> Option<&Points> {
        self.numbers.get(name)
    }

    /// The row and the text that stands in place of a number of this name.
    pub(crate) fn text(&self, name: &str) -> Option<&(usize, String)> {
        self.texts.get(name)
    }

    /// Renames every series.
    pub(crate) fn rename(&mut self, new: impl Fn(&str) -> String) {
        self.numbers =
            std::mem::take(&mut self.numbers).into_iter().map(|(k, v)| (new(&k), v)).collect();
        self.texts =
            std::mem::take(&mut self.texts).into_iter().map(|(k, v)| (new(&k), v)).collect();
    }
}

/// Lingua numbers the micro-batches of a step, from 0 at its end.
const PART: &str = "acc_step";

/// The step that a number is.
pub(crate) fn step_of(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..MOST_STEPS).contains(&number)).then_some(number as u64)
}

/// Points in order. Where steps occur again, the last ones count if `appended`: a program that continues a run computes
/// the steps after its checkpoint again. Returns the first such place.
pub(crate) fn ascending(points: &[(u64, f64)], appended: bool) -> Result<Ordered, (u64, u64)> {
    let mut ordered = Ordered { points: Vec::with_capacity(points.len()), again: None };
    for (step, value) in points {
        let last = ordered.points.last().copied();
        match last {
            Some((before, same)) if before == *step && same.to_bits() == value.to_bits() => {
                continue;
            }
            Some((before, _)) if before >= *step => {
                if !appended {
                    return Err((before, *step));
                }
                ordered.again = ordered.again.or(Some((before, *step)));
                let kept = ordered.points.partition_point(|(earlier, _)| earlier < step);
                ordered.points.truncate(kept);
            }
            Some(_) | None => {}
        }
        ordered.points.push((*step, *value));
    }
    Ok(ordered)
}

/// Points in order of their steps.
pub(crate) struct Ordered {
    pub(crate) points: Points,
    /// The step before the first one that is computed again, and that one.
    pub(crate) again: Option<(u64, u64)>,
}
