//! Tables of text, for a terminal and a page alike.

/// A table's cells.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TextTable {
    /// The heads of the columns.
    pub head: Vec<String>,
    /// The cells of each row, as many as there are columns.
    pub rows: Vec<Vec<String>>,
    /// For each row `better`, `worse`, `equivalent` or `undecided`; empty for a row that is not judged.
    pub effects: Vec<&'static str>,
}

/// A titled table; a comparison of two arms needs no title.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Section {
    /// The title; empty if none is needed.
    pub title: String,
    /// The cells.
    pub table: TextTable,
}

impl TextTable {
    /// A table without judged rows.
    pub(crate) fn plain(head: Vec<String>, rows: Vec<Vec<String>>) -> TextTable {
        let effects = vec![""; rows.len()];
        TextTable { head, rows, effects }
    }

    /// The table as text, with columns aligned for a terminal.
    pub fn text(&self) -> String {
        let lines: Vec<&Vec<String>> = std::iter::once(&self.head).chain(&self.rows).collect();
        let columns = lines.iter().map(|line| line.len()).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for line in lines {
            let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                let pad = " ".repeat(width - cell.chars().count());
                if column == 0 { format!("{cell}{pad}") } else { format!("  {pad}{cell}") }
            });
            text.push_str(cells.collect::<String>().trim_end());
            text.push('\n');
        }
        text
    }
}
