//! All tables and sentences of a comparison, for a terminal and a page alike.

use super::facts::Facts;
use super::text_table::Section;

/// All tables and sentences of a comparison.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// The tables, in order.
    pub sections: Vec<Section>,
    /// Single differences and bootstrap intervals, only for a page.
    pub secondary: Vec<Section>,
    /// What the tables show, and how it was computed.
    pub caption: String,
    /// Important warnings: divergences, chosen seeds, edges of the grid.
    pub warnings: Vec<String>,
    /// Other facts: locks of the same arms.
    pub notes: Vec<String>,
}

impl Facts {
    /// All tables and sentences.
    pub fn summary(&self) -> Summary {
        Summary {
            sections: self.sections(),
            secondary: self.secondary_sections(),
            caption: self.caption(),
            warnings: self.warnings.clone(),
            notes: self.notes.clone(),
        }
    }
}

impl Summary {
    /// All sections, then the caption, the warnings and the notes.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Section { title, table } in &self.sections {
            if !title.is_empty() {
                text.push_str(&format!("{title}\n"));
            }
            text.push_str(&format!("{}\n", table.text()));
        }
        for line in std::iter::once(&self.caption).chain(&self.warnings).chain(&self.notes) {
            text.push_str(&format!("{line}\n"));
        }
        text
    }
}
