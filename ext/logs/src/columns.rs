//! Tables with a column of steps, as Weights & Biases exports a chart: `Step`, then `RUN - METRIC` with the least and the
//! greatest value of each point in `RUN - METRIC__MIN` and `RUN - METRIC__MAX`.

use std::collections::BTreeSet;

use crate::series::{Cell, Series, step_of};

/// Most columns of a table.
const MOST_COLUMNS: usize = 10_000;
/// Between a run and a metric in the name of a column.
const BETWEEN: &str = " - ";

/// A table's series.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) series: Series,
    /// The runs that the names of columns begin with.
    pub(crate) runs: BTreeSet<String>,
    /// The column of steps.
    pub(crate) step: String,
}

/// Reads a table. Errors have the line.
pub(crate) fn read(text: &str, steps: &[&str]) -> Result<Table, (usize, String)> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let (first, header) = lines.next().unwrap_or((1, ""));
    let separator = ['\t', ';', ','].into_iter().find(|c| header.contains(*c)).unwrap_or(',');
    let columns = cells(header, separator);
    if columns.len() > MOST_COLUMNS {
        return Err((first, format!("it has more than {MOST_COLUMNS} columns")));
    }
    let at = steps.iter().find_map(|name| columns.iter().position(|column| column == name));
    let at = at.ok_or_else(|| {
        let shown: Vec<String> =
            columns.iter().take(8).map(|column| format!("`{}`", brief(column))).collect();
        (first, format!("no column gives the step; it begins with {}", shown.join(", ")))
    })?;
    let step = columns.get(at).cloned().unwrap_or_default();
    let mut series = Series::default();
    for (line, content) in lines {
        let row = cells(content, separator);
        if row.len() != columns.len() {
            let counted = dsl::counted(row.len(), "cell");
            return Err((line, format!("{} columns, but {counted} in this line", columns.len())));
        }
        let number = row.get(at).map_or("", String::as_str);
        let number = number.parse().ok().and_then(step_of).ok_or_else(|| {
            (line, format!("`{step}` is `{}`, which is no number of steps", brief(number)))
        })?;
        for (at, _) in row.iter().enumerate().filter(|(column, _)| *column != at) {
            let (Some(name), Some(cell)) = (columns.get(at), row.get(at)) else { continue };
            series
                .put(name, number, Cell::of_text(cell), line)
                .map_err(|message| (line, message))?;
        }
    }
    let runs = columns.iter().filter_map(|column| Some(column.rsplit_once(BETWEEN)?.0.to_owned()));
    let mut table = Table { series, runs: runs.collect(), step };
    if table.runs.len() == 1 {
        table.series.rename(|name| metric(name).to_owned());
    }
    Ok(table)
}

/// The metric that a column is of.
pub(crate) fn metric(column: &str) -> &str {
    column.rsplit_once(BETWEEN).map_or(column, |(_, metric)| metric)
}

/// The cells of a line. In quotation marks, a separator is text and a doubled mark is one.
fn cells(line: &str, separator: char) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        if c == '"' && quoted && characters.peek() == Some(&'"') {
            characters.next();
        } else if c == '"' {
            quoted = !quoted;
            continue;
        } else if c == separator && !quoted {
            cells.push(String::new());
            continue;
        }
        if let Some(cell) = cells.last_mut() {
            cell.push(c);
        }
    }
    cells.into_iter().map(|cell| cell.trim().to_owned()).collect()
}

/// The beginning of a text that may be of any length.
pub(crate) fn brief(text: &str) -> String {
    const MOST: usize = 60;
    match text.chars().count() > MOST {
        true => text.chars().take(MOST).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
