//! TOML as a list of facts, each with a dotted path, a value and a span.
//!
//! Numbers keep the digits that were written. Nested keys become one path, whether written as a table, dotted or quoted.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// One leaf.
#[derive(Debug)]
pub(crate) struct Fact<'a, 'i> {
    pub(crate) path: String,
    /// The span of the last key.
    pub(crate) key: Range<usize>,
    pub(crate) value: &'a DeValue<'i>,
    pub(crate) at: Range<usize>,
}

/// A TOML syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotToml {
    /// What is wrong, on one line.
    pub message: String,
    /// Its place in the text.
    pub at: Range<usize>,
}

/// Most errors shown for one file.
const MAX_ERRORS: usize = 20;

/// The whole text as a table.
pub fn parse(text: &str) -> Result<DeTable<'_>, Vec<NotToml>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let table = table.into_inner();
        let twice = given_twice(&table);
        return if twice.is_empty() { Ok(table) } else { Err(twice) };
    }
    let not = |error: &toml::de::Error| NotToml {
        message: error.message().lines().next().unwrap_or("not TOML").to_owned(),
        at: error.span().unwrap_or(text.len()..text.len()),
    };
    Err(errors.iter().take(MAX_ERRORS).map(not).collect())
}

/// Keys that TOML tells apart and a path does not: `"depo.N"` beside `depo.N`.
fn given_twice(table: &DeTable<'_>) -> Vec<NotToml> {
    let (facts, _) = leaves(table);
    let twice = facts.windows(2).filter_map(|pair| match pair {
        [one, other] if one.path == other.path => Some(NotToml {
            message: format!("`{}` is given twice, once with a dot in quotes", other.path),
            at: other.key.clone(),
        }),
        _ => None,
    });
    twice.take(MAX_ERRORS).collect()
}

/// Every leaf, and the span of every table.
pub(crate) fn leaves<'a, 'i>(
    table: &'a DeTable<'i>,
) -> (Vec<Fact<'a, 'i>>, Vec<(String, Range<usize>)>) {
    let (mut facts, mut tables) = (Vec::new(), Vec::new());
    // Tables nest no deeper than the parser allows, so recursion is bounded.
    walk(table, "", &mut facts, &mut tables);
    facts.sort_by(|a, b| a.path.cmp(&b.path).then(a.at.start.cmp(&b.at.start)));
    (facts, tables)
}

fn walk<'a, 'i>(
    table: &'a DeTable<'i>,
    prefix: &str,
    facts: &mut Vec<Fact<'a, 'i>>,
    tables: &mut Vec<(String, Range<usize>)>,
) {
    for (key, value) in table {
        let name = key.get_ref();
        let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        match value.get_ref() {
            DeValue::Table(inner) => {
                tables.push((path.clone(), key.span()));
                walk(inner, &path, facts, tables);
            }
            leaf @ (DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)) => {
                facts.push(Fact { path, key: key.span(), value: leaf, at: value.span() });
            }
        }
    }
}
