//! `[sweep]` of a comparison file: several comparisons that differ only in their arms.
//!
//! An example is `"name, arms.A, arms.B" = [["one", "a.toml#x", "b.toml#y"], …]`; arms outside the sweep are in every
//! row. Every row has the same arm names, so that base and treatment mean the same in each; the names of rows are
//! unique.

use dsl::{Diagnostic, Span};
use toml::de::DeValue;

use super::{ArmFile, ComparisonReader, diag};
use crate::facts::Fact;
use crate::field::{self, shown};
use crate::grid::is_word;

/// The arms of one comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparisonRow {
    /// The name of the lock; `None` if the file makes only one, which is named after the file.
    pub name: Option<String>,
    /// Arms, in the order written.
    pub arms: Vec<ArmFile>,
}

/// The index of each arm in a tuple, and of the name.
struct Columns<'k> {
    name: usize,
    arms: Vec<(usize, &'k str)>,
    count: usize,
}

impl ComparisonReader<'_> {
    pub(super) fn rows(
        &mut self,
        fixed: Vec<ArmFile>,
        leaves: &[Fact<'_, '_>],
        shared: Option<&str>,
    ) -> Vec<ComparisonRow> {
        let is_sweep = |fact: &&Fact<'_, '_>| fact.path.starts_with("sweep.");
        let mut swept = leaves.iter().filter(is_sweep);
        let Some(fact) = swept.next() else {
            return vec![ComparisonRow { name: None, arms: fixed }];
        };
        if let Some(second) = swept.next() {
            let at = self.span(&second.key);
            self.diagnostics.push(one_key(at));
        }
        let (key, at) = (self.span(&fact.key), self.span(&fact.at));
        let path = fact.path.strip_prefix("sweep.").unwrap_or(&fact.path);
        let none = vec![ComparisonRow { name: None, arms: fixed.clone() }];
        let Some(columns) = self.columns(path, &fixed, key) else { return none };
        let DeValue::Array(items) = fact.value else {
            self.diagnostics.push(diag::not_a_list(at, path, &shown(fact.value)));
            return none;
        };
        if items.is_empty() {
            self.diagnostics.push(diag::empty_list(at, path));
            return none;
        }
        let mut rows: Vec<ComparisonRow> = Vec::new();
        for item in items {
            let span = self.span(&item.span());
            let texts = field::row(item.get_ref(), columns.count)
                .and_then(|row| row.into_iter().map(field::string).collect::<Option<Vec<&str>>>());
            let Some(texts) = texts else {
                let got = shown(item.get_ref());
                self.diagnostics.push(diag::not_a_tuple(span, path, &got, columns.count));
                continue;
            };
            let text = |column: usize| texts.get(column).copied().unwrap_or("");
            let name = text(columns.name);
            if !is_word(name) {
                self.diagnostics.push(diag::bad_point_name(span, &field::quote(name)));
            }
            let same = |row: &ComparisonRow| {
                row.name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(name))
            };
            if rows.iter().any(same) {
                self.diagnostics.push(diag::name_twice(span, name));
            }
            let mut arms = fixed.clone();
            for (column, arm) in &columns.arms {
                self.arm(arm, text(*column), shared, (key, span), &mut arms);
            }
            self.spans.insert(format!("sweep.{name}"), span);
            rows.push(ComparisonRow { name: Some(name.to_owned()), arms });
        }
        if rows.is_empty() { none } else { rows }
    }

    fn columns<'k>(&mut self, path: &'k str, fixed: &[ArmFile], key: Span) -> Option<Columns<'k>> {
        let words: Vec<&str> = path.split(',').map(str::trim).collect();
        let mut columns = Columns { name: usize::MAX, arms: Vec::new(), count: words.len() };
        for (column, word) in words.into_iter().enumerate() {
            match word.strip_prefix("arms.") {
                Some(arm)
                    if fixed.iter().any(|known| known.name == arm)
                        || columns.arms.iter().any(|(_, known)| *known == arm) =>
                {
                    self.diagnostics.push(diag::bad_arm_name(key, arm));
                    return None;
                }
                Some(arm) => columns.arms.push((column, arm)),
                None if word == "name" && columns.name == usize::MAX => columns.name = column,
                None => {
                    self.diagnostics.push(bad_column(key, word));
                    return None;
                }
            }
        }
        if columns.name == usize::MAX || columns.arms.is_empty() {
            self.diagnostics.push(bad_column(key, path));
            return None;
        }
        Some(columns)
    }
}

fn one_key(at: Span) -> Diagnostic {
    Diagnostic::error("bad-sweep", at, "the sweep of a comparison has one key")
        .help("put everything that varies into one key: \"name, arms.base, arms.canon\" = [[…], …]")
}

fn bad_column(at: Span, word: &str) -> Diagnostic {
    let message = format!("`{word}` cannot be in the sweep of a comparison");
    Diagnostic::error("bad-sweep", at, message)
        .help("name each comparison and its arms: \"name, arms.base, arms.canon\" = [[…], …]")
        .help("values for every arm belong under [grid]")
}
