//! Lists the fields of an arch compactly: equal layers share lines, with the set of layers in the path, as `layers.7`,
//! `layers.0..24` (24 excluded) or `layers.3..24/4` (every fourth). Expanding the lines gives back every field.

use std::collections::BTreeMap;

use compiler::elaborate::Field;

/// Largest step to try between the layers of one set, as in `layers[every 4 from 3]`.
const MAX_STEP: usize = 32;

/// One field of a set of equal layers, or of the arch itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldLine {
    /// Path below the layer or the arch.
    pub path: String,
    /// The value as the language writes it.
    pub value: String,
    /// Whether it was written; otherwise it is a default.
    pub written: bool,
}

/// `3` and `mixer.heads` of `layers.3.mixer.heads`.
pub(crate) fn split(path: &str) -> Option<(usize, &str)> {
    let rest = path.strip_prefix("layers.")?;
    let (number, rest) = rest.split_once('.').unwrap_or((rest, ""));
    Some((number.parse().ok()?, rest))
}

/// Sorted lines of all fields.
pub fn lines(fields: &[Field]) -> Vec<FieldLine> {
    let mut lines = Vec::new();
    let mut layers: BTreeMap<usize, Vec<&Field>> = BTreeMap::new();
    for field in fields {
        match split(&field.path) {
            Some((layer, _)) => layers.entry(layer).or_default().push(field),
            None => lines.push(FieldLine {
                path: field.path.clone(),
                value: field.value.clone(),
                written: field.written,
            }),
        }
    }
    // Group layers by content, ignoring their numbers.
    let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (layer, fields) in &layers {
        let mut kind = String::new();
        for field in fields {
            let rest = split(&field.path).map_or("", |(_, rest)| rest);
            for part in [rest, "\u{0}", &field.value, if field.written { "\u{1}" } else { "\u{2}" }]
            {
                kind.push_str(part);
            }
        }
        kinds.entry(kind).or_default().push(*layer);
    }
    for members in kinds.values() {
        let Some(fields) = members.first().and_then(|first| layers.get(first)) else { continue };
        for set in sets(members) {
            for field in fields {
                let rest = split(&field.path).map_or("", |(_, rest)| rest);
                let dot = if rest.is_empty() { "" } else { "." };
                lines.push(FieldLine {
                    path: format!("layers.{set}{dot}{rest}"),
                    value: field.value.clone(),
                    written: field.written,
                });
            }
        }
    }
    lines.sort();
    lines
}

/// Covers ascending numbers with few progressions, each as text; greedy from the smallest.
pub fn sets(numbers: &[usize]) -> Vec<String> {
    let mut left: std::collections::BTreeSet<usize> = numbers.iter().copied().collect();
    let mut out = Vec::new();
    while let Some(first) = left.first().copied() {
        let run = |step: usize| (0..).take_while(|i| left.contains(&(first + i * step))).count();
        let (mut step, mut length) = (1, run(1));
        // Use a longer progression even with a step; otherwise a contiguous run is easier to read.
        for wider in 2..=MAX_STEP.min(numbers.len()) {
            let count = run(wider);
            if count > length && count > 2 {
                (step, length) = (wider, count);
            }
        }
        let end = first + (length - 1) * step + 1;
        out.push(match (length, step) {
            (1, _) => first.to_string(),
            (_, 1) => format!("{first}..{end}"),
            (_, step) => format!("{first}..{end}/{step}"),
        });
        for i in 0..length {
            left.remove(&(first + i * step));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_few_sets() {
        let every = |from: usize, step: usize, below: usize| (from..below).step_by(step);
        for (numbers, want) in [
            ((0..24).collect::<Vec<_>>(), "0..24"),
            (vec![3], "3"),
            (every(3, 4, 24).collect(), "3..24/4"),
            (vec![0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14], "0..15/2 1..14/4"),
            (vec![0, 1, 5], "0..2 5"),
            (vec![], ""),
        ] {
            assert_eq!(sets(&numbers).join(" "), want, "{numbers:?}");
        }
    }
}
