//! Tests of what comparisons of made-up runs show.

mod points;
mod words;
mod families;
mod stopping;
mod diverged;
mod held_out;
mod not_controlled;
mod tables;
mod document;
mod sentences;

use super::made_up::{NINE, of_losses};
use super::{Comparison, Facts, TextTable};
use crate::overview;

/// A cell of the primary row, found by the start of its column's head.
fn cell(comparison: &Comparison, column: &str) -> String {
    let facts = Facts::new(comparison);
    let table = facts.summary().sections.remove(0).table;
    let at = table.head.iter().position(|head| head.starts_with(column));
    let row = table.rows.iter().find(|row| row[0] == comparison.judged_by()).unwrap();
    at.map_or_else(|| format!("no column {column}"), |at| row[at].clone())
}

/// The overview of comparisons on one task.
fn overview_of(comparisons: &[&Comparison]) -> (TextTable, String, String) {
    let facts: Vec<Facts> = comparisons.iter().map(|comparison| Facts::new(comparison)).collect();
    let lines: Vec<overview::TaskComparison<'_>> =
        facts.iter().map(|facts| overview::TaskComparison { task: "depo", facts }).collect();
    (overview::table(&lines), overview::caption(&lines), overview::picture(&lines))
}

/// The document of one comparison, as programs read it.
fn document_of(comparison: &Comparison) -> serde_json::Value {
    let facts = Facts::new(comparison);
    serde_json::to_value(super::document([("c", "00".to_owned(), &facts)])).unwrap()
}
