//! Patterns of parameters, by path, by role, or both: `layers.*.mixer.wq`, `**.A:canon`, `:embed`. `*` stays within one part
//! of a path. A pattern without `?` must match, so that a wrong name is noticed.

use std::collections::BTreeMap;

use compiler::graph::Param;
use dsl::Decimal;
use toml::Spanned;
use toml::de::DeValue;

use super::value::{Bounds, FieldValue};
use super::written::{MAX_NAME, real, row, short, shown, string};

/// A set of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The parts of its path, with `*` and `**`; empty for any path.
    parts: Vec<String>,
    /// The role, if one is named.
    role: Option<String>,
    /// Whether an arch without such parameters is fine.
    pub(crate) optional: bool,
}

/// Describes the accepted patterns to a user.
const DESCRIBED: &str = "a path such as \"layers.*.mixer.wq\", a role such as \":embed\", or both as in \"layers.**:linear\"";

impl Pattern {
    /// Reads a pattern.
    pub(crate) fn parse(text: &str) -> Option<Pattern> {
        let (rest, optional) = match text.strip_suffix('?') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (path, role) = match rest.split_once(':') {
            Some((path, role)) => (path, Some(role)),
            None => (rest, None),
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if role.is_some_and(|role| role.is_empty() || !role.chars().all(word)) {
            return None;
        }
        let parts: Vec<String> = match path {
            "" => Vec::new(),
            path => path.split('.').map(str::to_owned).collect(),
        };
        let fits = |part: &String| {
            let wild = part.matches('*').count();
            let letters = part.chars().all(|c| word(c) || c == '*');
            !part.is_empty() && letters && (part == "**" || wild < 2)
        };
        if !parts.iter().all(fits) || (parts.is_empty() && role.is_none()) {
            return None;
        }
        Some(Pattern { parts, role: role.map(str::to_owned), optional })
    }

    /// Whether it means this parameter.
    pub(crate) fn matches(&self, param: &Param) -> bool {
        let path: Vec<&str> = param.path.split('.').collect();
        let parts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        self.role.as_ref().is_none_or(|role| *role == param.role)
            && (parts.is_empty() || path_matches(&parts, &path))
    }

    /// The role, if one is named.
    pub(crate) fn role(&self) -> Option<&str> {
        self.role.as_deref()
    }

    /// Its path, if one is named.
    pub(crate) fn path(&self) -> Option<String> {
        (!self.parts.is_empty()).then(|| self.parts.join("."))
    }
}

/// Whether parts with wildcards match all parts of a path. Each part of a pattern is tried once per part of the path.
fn path_matches(parts: &[&str], path: &[&str]) -> bool {
    // For each number of parts of the path, whether the parts of the pattern so far match exactly those.
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for part in parts {
        let mut next = vec![false; path.len() + 1];
        for at in 0..=path.len() {
            next[at] = match (*part, at) {
                ("**", 0) => reached[0],
                ("**", at) => reached[at] || next[at - 1],
                (_, 0) => false,
                (part, at) => reached[at - 1] && part_matches(part, path[at - 1]),
            };
        }
        reached = next;
    }
    reached[path.len()]
}

/// Whether a part, with at most one `*`, matches a part of a path.
fn part_matches(part: &str, name: &str) -> bool {
    match part.split_once('*') {
        None => part == name,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

/// Reads a list of patterns, or of pairs of a pattern and a number in bounds. Their order has no meaning, so they are
/// sorted.
pub(super) fn read(
    items: &[Spanned<DeValue<'_>>],
    bounds: Option<Bounds>,
) -> Result<FieldValue, String> {
    let mut known = BTreeMap::new();
    for item in short(items)? {
        let (text, number) = match bounds {
            None => (pattern(item.get_ref())?, None),
            Some(bounds) => {
                let pair = row(item.get_ref(), 2);
                let Some([text, number]) = pair.as_deref() else {
                    return Err(format!(
                        "{} is not a pair such as [\":embed\", 0.1]",
                        shown(item.get_ref())
                    ));
                };
                let (text, x) = (pattern(text)?, real(number)?);
                if !bounds.hold(x) {
                    return Err(format!("{} is not {}", shown(number), bounds.words()));
                }
                (text, Some(x))
            }
        };
        if known.insert(text.clone(), number).is_some() {
            return Err(format!("\"{text}\" is given twice"));
        }
    }
    let value = |(text, number): (String, Option<Decimal>)| match number {
        None => FieldValue::Text(text),
        Some(x) => FieldValue::List(vec![FieldValue::Text(text), FieldValue::Real(x)]),
    };
    Ok(FieldValue::List(known.into_iter().map(value).collect()))
}

/// A pattern, as written.
fn pattern(value: &DeValue<'_>) -> Result<String, String> {
    let text = string(value).filter(|text| text.len() <= MAX_NAME);
    let text = text.filter(|text| Pattern::parse(text).is_some());
    text.map(str::to_owned).ok_or_else(|| {
        format!("{} is not a pattern of parameters: write {DESCRIBED}", shown(value))
    })
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use compiler::number::InitRule;

    use super::*;

    fn param(path: &str, role: &str) -> Param {
        let (path, role) = (path.to_owned(), role.to_owned());
        Param { path, shape: vec![1], init: InitRule::Ones, role, slot: None }
    }

    #[test]
    fn patterns_match_whole_paths_and_roles() {
        for (pattern, path, role, want) in [
            ("embed", "embed", "embed", true),
            ("embed", "layers.0.embed", "embed", false),
            (":embed", "layers.0.table", "embed", true),
            ("layers.*.mixer.wq", "layers.12.mixer.wq", "linear", true),
            ("layers.*.wq", "layers.12.mixer.wq", "linear", false),
            ("layers.**.wq", "layers.12.mixer.wq", "linear", true),
            ("**", "head", "linear", true),
            ("**.wq", "wq", "linear", true),
            ("layers.**:linear", "layers.0.mlp.up", "linear", true),
            ("layers.**:linear", "head", "linear", false),
            ("layers.**:linear", "layers.0.pre_mlp", "norm", false),
            ("layers.1*.mixer.w*", "layers.12.mixer.wq", "linear", true),
            ("layers.1*.mixer.w*", "layers.2.mixer.wq", "linear", false),
            ("layers.*.A?", "layers.3.A", "canon", true),
            ("**.B*", "layers.3.mixer.B", "canon", true),
        ] {
            let known = Pattern::parse(pattern).unwrap();
            assert_eq!(known.matches(&param(path, role)), want, "{pattern} {path} {role}");
        }
        assert!(Pattern::parse("a?").unwrap().optional && !Pattern::parse("a").unwrap().optional);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", "?", ":", "a:", "a..b", ".a", "a b", "a:b:c", "***", "a*b*", "a.**b", "é"]
        {
            assert_eq!(Pattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_pattern_with_many_wildcards_is_decided_at_once() {
        let pattern =
            Pattern::parse(&"**.".repeat(30).trim_end_matches('.').replace("**.**", "**.x.**"));
        let path = vec!["x"; 60].join(".");
        assert!(pattern.is_some_and(|pattern| pattern.matches(&param(&path, "linear"))));
    }

    #[test]
    fn groups_are_sets_of_patterns() {
        let read = |kind: Kind, text: &str| {
            let parsed = DeValue::parse(text).unwrap();
            kind.read(parsed.get_ref()).map(|value| value.to_string())
        };
        let patterns = Kind::Patterns;
        assert_eq!(
            read(patterns, "[\"head\", \":embed\"]"),
            Ok("[\":embed\", \"head\"]".to_owned())
        );
        assert!(read(patterns, "[\"a\", \"a\"]").unwrap_err().contains("given twice"));
        assert!(read(patterns, "[\"a b\"]").unwrap_err().contains("write a path such as"));
        let multipliers = Kind::Multipliers(Bounds::AtLeastZero);
        assert_eq!(
            read(multipliers, "[[\"head\", 0.50], [\"**.A?\", 2]]"),
            Ok("[[\"**.A?\", 2], [\"head\", 0.5]]".to_owned())
        );
        assert!(read(multipliers, "[\"head\"]").unwrap_err().contains("not a pair"));
        assert!(read(multipliers, "[[\"head\", -1]]").unwrap_err().contains("0 or more"));
    }
}
