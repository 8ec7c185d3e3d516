//! The keys of a TOML file, flat: `training.seq_len`, with their lines.

use lab::facts;
use toml::de::{DeTable, DeValue};

use crate::experiment::BadInput;

/// A key, its value as a cell, and its line.
pub(crate) type Key = (usize, String, String);

/// Reads every key of a TOML file. A list of values is one cell; a list of tables has a key for each.
pub fn toml_keys(text: &str) -> Result<Vec<(usize, String, String)>, BadInput> {
    let line = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
    let table = facts::parse(text).map_err(|errors| {
        let first = errors.into_iter().next();
        let (at, message) = first.map_or((0, String::new()), |e| (e.at.start, e.message));
        let help = "one fact a line: `key = value`, strings in quotes";
        BadInput::new(line(at), format!("this is not TOML: {message}"), help)
    })?;
    let mut keys = Vec::new();
    walk("", &table, &line, &mut keys);
    Ok(keys)
}

fn walk(prefix: &str, table: &DeTable<'_>, line: &dyn Fn(usize) -> usize, keys: &mut Vec<Key>) {
    for (key, value) in table {
        let dot = if prefix.is_empty() { "" } else { "." };
        let path = format!("{prefix}{dot}{}", key.get_ref());
        leaf(&path, value.get_ref(), line(key.span().start), line, keys);
    }
}

fn leaf(
    path: &str,
    value: &DeValue<'_>,
    at: usize,
    line: &dyn Fn(usize) -> usize,
    keys: &mut Vec<Key>,
) {
    match value {
        DeValue::Table(table) => walk(path, table, line, keys),
        DeValue::Array(items) if items.iter().any(|item| is_nested(item.get_ref())) => {
            for (number, item) in items.iter().enumerate() {
                leaf(&format!("{path}.{number}"), item.get_ref(), at, line, keys);
            }
        }
        DeValue::Array(items) => {
            let cells: Vec<String> = items.iter().map(|item| cell(item.get_ref())).collect();
            keys.push((at, path.to_owned(), cells.join(",")));
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => keys.push((at, path.to_owned(), cell(value))),
    }
}

fn is_nested(value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::Table(_) | DeValue::Array(_))
}

fn cell(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(n) => n.to_string(),
        DeValue::Float(x) => x.to_string(),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_flat_and_have_lines() {
        let text =
            "a = 3e-4\n[training]\nseq_len = 8192\nnames = [\"x\", \"y\"]\n[[runs]]\nb = true\n";
        let keys = toml_keys(text).unwrap();
        let keys: Vec<(usize, &str, &str)> =
            keys.iter().map(|(at, key, cell)| (*at, key.as_str(), cell.as_str())).collect();
        assert_eq!(
            keys,
            [
                (1, "a", "3e-4"),
                (6, "runs.0.b", "true"),
                (4, "training.names", "x,y"),
                (3, "training.seq_len", "8192"),
            ]
        );
        assert_eq!(toml_keys("a = 1\nb =\n").unwrap_err().line, 2);
    }
}
