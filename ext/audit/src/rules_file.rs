//! A user's rules, in TOML: the built-in ones with the file's changes and additions, or every error in the file.

use std::ops::Range as Span;

use compiler::number::Ratio;
use dsl::Decimal;
use lab::facts;
use lab::field::Topic;
use toml::de::{DeTable, DeValue};

use crate::keys::{self, measured_under};
use crate::quantity::Quantity;
use crate::rules::{Invariant, Pairs, Range, RuleDetails, Rules, Severity, TABLE};

/// One error in a rules file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRules {
    /// Line number from 1.
    pub line: usize,
    /// What is wrong, on one line.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// Largest size of a rules file in bytes, and most rules in it.
const MAX_BYTES: usize = 1 << 20;
const MAX_RULES: usize = 1000;

/// Reads a rules file.
pub fn rules(text: &str) -> Result<Rules, Vec<BadRules>> {
    let mut file = RulesFile { text, rules: Rules::default(), bad: Vec::new() };
    if text.len() > MAX_BYTES {
        let message = format!("the file has {}", dsl::over(text.len() as u64, MAX_BYTES as u64));
        file.bad(&(0..0), message, "a rules file is usually about a page long");
        return Err(file.bad);
    }
    match facts::parse(text) {
        Ok(table) => file.read(&table),
        Err(errors) => {
            for error in errors {
                let message = format!("this is not TOML: {}", error.message);
                file.bad(&error.at, message, "one fact a line: `key = value`, strings in quotes");
            }
        }
    }
    if file.bad.is_empty() { Ok(file.rules) } else { Err(file.bad) }
}

/// The field that was probably meant.
fn suggested(word: &str) -> Option<&'static str> {
    dsl::suggest(word, keys::rows().map(|row| row.path).filter(|path| !path.ends_with(".*")))
}

struct RulesFile<'t> {
    text: &'t str,
    rules: Rules,
    bad: Vec<BadRules>,
}

type At = Span<usize>;

/// The keys of one rule. Each is marked when it is read.
struct Section<'a, 'i> {
    table: &'a DeTable<'i>,
    at: At,
}

impl RulesFile<'_> {
    fn bad(&mut self, at: &At, message: String, help: impl Into<String>) {
        let before = self.text.get(..at.start.min(self.text.len())).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        self.bad.push(BadRules { line, message, help: help.into() });
    }

    fn read(&mut self, table: &DeTable<'_>) {
        let known = ["off", "severity", "keys", "pairs", "invariant", "range"];
        for (key, value) in table {
            let (at, name) = (key.span(), key.get_ref().as_ref());
            match (name, value.get_ref()) {
                ("off", _) => {
                    for (id, at) in self.strings("off", value) {
                        if self.exists(&id, &at) {
                            self.rules.off.insert(id);
                        }
                    }
                }
                ("severity", DeValue::Table(changes)) => self.severities(changes),
                ("keys", DeValue::Table(keys)) => self.keys(keys),
                ("pairs" | "invariant" | "range", DeValue::Array(entries)) => {
                    if entries.len() > MAX_RULES {
                        let message = format!("{} rules; at most {MAX_RULES}", entries.len());
                        self.bad(&at, message, "split the file");
                        continue;
                    }
                    for entry in entries {
                        let at = entry.span();
                        match entry.get_ref() {
                            DeValue::Table(table) => {
                                let entry = Section { table, at };
                                match name {
                                    "pairs" => self.pairs(&entry),
                                    "invariant" => self.invariant(&entry),
                                    _ => self.range(&entry),
                                }
                            }
                            DeValue::String(_)
                            | DeValue::Integer(_)
                            | DeValue::Float(_)
                            | DeValue::Boolean(_)
                            | DeValue::Datetime(_)
                            | DeValue::Array(_) => self.sections(&at, name),
                        }
                    }
                }
                ("pairs" | "invariant" | "range", _) => self.sections(&at, name),
                ("keys", _) => {
                    let help = "write `[keys]`, then `\"my.flag\" = \"training\"`";
                    self.bad(&at, "`keys` is not a section".to_owned(), help);
                }
                ("severity", _) => {
                    self.bad(
                        &at,
                        "`severity` is not a section".to_owned(),
                        "write `[severity]`, then `missing-twin = \"note\"`",
                    );
                }
                _ => self.unknown(&at, name, "a rules file", &known),
            }
        }
    }

    fn sections(&mut self, at: &At, name: &str) {
        let message = format!("`{name}` is not a list of sections");
        self.bad(at, message, format!("write one section `[[{name}]]` for each"));
    }

    fn unknown(&mut self, at: &At, name: &str, section: &str, known: &[&str]) {
        let help = match dsl::suggest(name, known.iter().copied()) {
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None => format!("the known ones are {}", known.join(", ")),
        };
        self.bad(at, format!("{section} has no `{name}`"), help);
    }

    /// Whether the rule exists. The file's own rules are read later, so only built-in ones count.
    fn exists(&mut self, id: &str, at: &At) -> bool {
        let ids: Vec<&str> = TABLE.iter().map(|rule| rule.id).collect();
        if ids.contains(&id) {
            return true;
        }
        let help = match dsl::suggest(id, ids.iter().copied()) {
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None => format!("the rules are {}", ids.join(", ")),
        };
        self.bad(at, format!("`{id}` is not a rule"), help);
        false
    }

    fn severities(&mut self, changes: &DeTable<'_>) {
        for (key, value) in changes {
            if !self.exists(key.get_ref(), &key.span()) {
                continue;
            }
            if let Some(severity) = self.severity(value) {
                self.rules.severity.insert(key.get_ref().to_string(), severity);
            }
        }
    }

    /// Reads what user-defined keys are: one of our fields, or a setting with a topic.
    fn keys(&mut self, keys: &DeTable<'_>) {
        for (key, value) in keys {
            let (name, at) = (key.get_ref().as_ref(), key.span());
            let word = value.get_ref().as_str().unwrap_or("");
            if let Some(field) = keys::find(word).filter(|field| field.path != name) {
                if keys::find(name).is_some() {
                    let message = format!("`{name}` is canonc's own name for another field");
                    self.bad(&at, message, "give our names only to keys of another program");
                } else if field.path.ends_with(".*") {
                    let message = format!("`{word}` is a section, not a field");
                    self.bad(&value.span(), message, "write the field's whole name");
                } else {
                    self.rules.is.insert(name.to_owned(), field.path.to_owned());
                }
                continue;
            }
            if let Some(row) = keys::known(name) {
                let message = format!("`{name}` is a known key, about {}", row.topic.word());
                self.bad(&at, message, "list only keys that no table has");
                continue;
            }
            let topics = Topic::ALL.into_iter().filter(|topic| *topic != Topic::Reported);
            match topics.clone().find(|topic| topic.word() == word) {
                Some(topic) => {
                    self.rules.keys.insert(name.to_owned(), topic);
                }
                None => {
                    let words: Vec<String> =
                        topics.map(|topic| format!("\"{}\"", topic.word())).collect();
                    let message =
                        format!("{} is neither a topic nor a field", written(value.get_ref()));
                    let help = match word.contains('.').then(|| suggested(word)).flatten() {
                        Some(suggestion) => format!("did you mean `{suggestion}`?"),
                        None => format!(
                            "write one of {}, or a field such as \"optimizer.lr\"",
                            words.join(", ")
                        ),
                    };
                    self.bad(&value.span(), message, help);
                }
            }
        }
    }

    fn severity(&mut self, value: &toml::Spanned<DeValue<'_>>) -> Option<Severity> {
        let word = value.get_ref().as_str().unwrap_or("");
        let severity = Severity::parse(word);
        if severity.is_none() {
            let words: Vec<String> =
                Severity::ALL.iter().map(|s| format!("\"{}\"", s.word())).collect();
            let message = format!("{} is not a severity", written(value.get_ref()));
            self.bad(&value.span(), message, format!("write one of {}", words.join(", ")));
        }
        severity
    }

    fn strings(&mut self, name: &str, value: &toml::Spanned<DeValue<'_>>) -> Vec<(String, At)> {
        let items = value.get_ref().as_array();
        let text = |item: &toml::Spanned<DeValue<'_>>| {
            Some((item.get_ref().as_str()?.to_owned(), item.span()))
        };
        let strings: Option<Vec<_>> = items.and_then(|items| items.iter().map(text).collect());
        strings.unwrap_or_else(|| {
            let message = format!("`{name}` is not a list of strings");
            self.bad(&value.span(), message, format!("write `{name} = [\"…\"]`"));
            Vec::new()
        })
    }

    fn check_names(&mut self, entry: &Section<'_, '_>, section: &str, known: &[&str]) {
        for key in entry.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            self.unknown(&key.span(), key.get_ref(), section, known);
        }
    }

    fn pairs(&mut self, entry: &Section<'_, '_>) {
        self.check_names(entry, "`[[pairs]]`", &["treatment", "ignore"]);
        let mut list = |name: &str| match entry.table.get(name) {
            Some(value) => self.strings(name, value),
            None => Vec::new(),
        };
        let (treatment, ignore) = (list("treatment"), list("ignore"));
        if treatment.is_empty() {
            let help = "list the keys that are meant to differ: `treatment = [\"arch.canon\"]`";
            self.bad(&entry.at, "`[[pairs]]` has no treatment".to_owned(), help);
        }
        for (path, at) in treatment.iter().chain(&ignore) {
            self.key(path, at);
        }
        for (path, at) in &treatment {
            let Some(measured) = measured_under(path) else { continue };
            let message = match measured == path {
                true => format!(
                    "`{path}` is how results are measured, and what is measured is no treatment"
                ),
                false => {
                    format!("`{path}` covers `{measured}`, and what is measured is no treatment")
                }
            };
            self.bad(at, message, "name what the experiments train differently");
        }
        let paths = |list: Vec<(String, At)>| list.into_iter().map(|(path, _)| path).collect();
        let (treatment, ignore) = (paths(treatment), paths(ignore));
        self.rules.pairs.push(Pairs { treatment, ignore, locked: None });
    }

    /// Checks that a foreign key is given by our name. Whether the set has the key is checked later.
    fn key(&mut self, path: &str, at: &At) {
        if let Some(key) = keys::known(path).filter(|key| key.path != path) {
            let help = format!("rules use canonc's names: write `{}`", key.path);
            self.bad(at, format!("`{path}` is another program's name for a key"), help);
        }
    }

    fn string(&mut self, entry: &Section<'_, '_>, name: &str) -> Option<(String, At)> {
        let value = entry.table.get(name)?;
        match value.get_ref().as_str() {
            Some(text) => Some((text.to_owned(), value.span())),
            None => {
                let message = format!("`{name}` is {}, not a string", written(value.get_ref()));
                self.bad(&value.span(), message, format!("write `{name} = \"…\"`"));
                None
            }
        }
    }

    fn number(&mut self, entry: &Section<'_, '_>, name: &str) -> Option<Ratio> {
        let value = entry.table.get(name)?;
        let digits = match value.get_ref() {
            DeValue::Integer(n) => n.to_string(),
            DeValue::Float(x) => x.to_string(),
            DeValue::String(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => String::new(),
        };
        let number = Decimal::parse(&digits).ok().and_then(Ratio::from_decimal);
        if number.is_none() {
            let message = format!("`{name}` is {}, not a number", written(value.get_ref()));
            self.bad(&value.span(), message, format!("write `{name} = 0.01`"));
        }
        number
    }

    /// Reads the fields that every user-defined rule has: its name, quantity, severity and texts.
    fn rule_head(&mut self, entry: &Section<'_, '_>, section: &str) -> Option<(String, Quantity)> {
        let id = self.string(entry, "id");
        let quantity = self.string(entry, "of");
        let severity = match entry.table.get("severity") {
            Some(value) => self.severity(value)?,
            None => Severity::Confound,
        };
        let reason = self.string(entry, "why").map_or(String::new(), |(text, _)| text);
        let help = self.string(entry, "help").map_or(String::new(), |(text, _)| text);
        let (Some((id, id_at)), Some((quantity, at))) = (id, quantity) else {
            let help = "write `id = \"my-rule\"` and `of = \"optimizer.lr * budget.steps\"`";
            self.bad(&entry.at, format!("{section} has no `id`, or no `of`"), help);
            return None;
        };
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if id.is_empty() || !id.chars().all(word) {
            let message = format!("`{id}` is not a valid name for a rule");
            self.bad(&id_at, message, "use small letters, digits and `-`");
            return None;
        }
        if TABLE.iter().any(|rule| rule.id == id) || self.rules.own.contains_key(&id) {
            let message = format!("a rule `{id}` already exists");
            self.bad(
                &id_at,
                message,
                "choose another name; to switch a built-in rule off, use `off`",
            );
            return None;
        }
        match Quantity::parse(&quantity) {
            Ok(quantity) => {
                for path in quantity.keys() {
                    self.key(path, &at);
                }
                self.rules.own.insert(id.clone(), RuleDetails { severity, reason, help });
                Some((id, quantity))
            }
            Err(message) => {
                self.bad(&at, message, "write keys and numbers with `*` and `/` between them");
                None
            }
        }
    }

    fn invariant(&mut self, entry: &Section<'_, '_>) {
        let known = ["id", "of", "within", "tolerance", "severity", "why", "help"];
        self.check_names(entry, "`[[invariant]]`", &known);
        let within = match entry.table.get("within") {
            Some(value) => self.strings("within", value),
            None => Vec::new(),
        };
        for (label, at) in &within {
            if !["task", "family", "size", "tokens"].contains(&label.as_str()) {
                self.key(label, at);
            }
        }
        let tolerance = self.number(entry, "tolerance").unwrap_or(Ratio { num: 1, den: 100 });
        if let Some((id, of)) = self.rule_head(entry, "`[[invariant]]`") {
            let within = within.into_iter().map(|(label, _)| label).collect();
            self.rules.invariants.push(Invariant { id, of, within, tolerance });
        }
    }

    fn range(&mut self, entry: &Section<'_, '_>) {
        let known = ["id", "of", "min", "max", "severity", "why", "help"];
        self.check_names(entry, "`[[range]]`", &known);
        let (least, most) = (self.number(entry, "min"), self.number(entry, "max"));
        if least.is_none() && most.is_none() {
            let help = "write `min = …`, `max = …` or both";
            self.bad(&entry.at, "`[[range]]` has no bounds".to_owned(), help);
        }
        if let (Some(low), Some(high)) = (least, most)
            && low.compare(high).is_gt()
        {
            let message = "`[[range]]` has a min above its max".to_owned();
            self.bad(&entry.at, message, "swap the two");
        }
        if let Some((id, of)) = self.rule_head(entry, "`[[range]]`") {
            self.rules.ranges.push(Range { id, of, least, most });
        }
    }
}

/// A value as it was written, or its type.
fn written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Integer(n) => n.to_string(),
        DeValue::Float(x) => x.to_string(),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a section".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_changes_and_adds() {
        let read = rules(
            "off = [\"twin-cosmetic\"]\n[severity]\nmissing-twin = \"error\"\n\
             [keys]\n\"my.flag\" = \"cadence\"\n\
             [[pairs]]\ntreatment = [\"arch.mixer.window\"]\n\
             [[invariant]]\nid = \"mine\"\nof = \"optimizer.lr * budget.steps\"\nwithin = [\"family\"]\n\
             tolerance = 0.05\nseverity = \"note\"\n\
             [[range]]\nid = \"lr-range\"\nof = \"optimizer.lr\"\nmin = 1e-4\nmax = 0.01\n",
        )
        .unwrap();
        assert_eq!(read.get("twin-cosmetic"), None);
        assert_eq!(read.get("missing-twin").unwrap().severity, Severity::Error);
        assert_eq!(read.get("mine").unwrap().severity, Severity::Note);
        assert_eq!(read.invariants.last().unwrap().tolerance, Ratio { num: 1, den: 20 });
        assert_eq!(read.ranges[0].least, Some(Ratio { num: 1, den: 10_000 }));
        assert_eq!(read.pairs.len(), 2);
        let changes = read.changes();
        assert_eq!(read.keys["my.flag"], Topic::Cadence);
        assert_eq!(changes.len(), 5, "{changes:?}");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line, want) in [
            ("off = [\"twin-kernels\"]", 1, "`twin-kernels` is not a rule"),
            ("\noff = 3", 2, "`off` is not a list of strings"),
            ("offf = []", 1, "a rules file has no `offf`"),
            ("[keys]\n\"my.flag\" = \"bad\"", 2, "\"bad\" is neither a topic nor a field"),
            ("[keys]\n\"optim.lr\" = \"setup\"", 2, "`optim.lr` is a known key"),
            ("keys = 3", 1, "`keys` is not a section"),
            ("[severity]\nmissing-twin = \"bad\"", 2, "\"bad\" is not a severity"),
            ("[[pairs]]\nignore = []", 1, "`[[pairs]]` has no treatment"),
            ("[[pairs]]\ntreatment = [\"evaluation\"]", 2, "`evaluation` covers `evaluation."),
            (
                "[[pairs]]\ntreatment = [\"seeds.eval\"]",
                2,
                "`seeds.eval` is how results are measured, and what is measured is no treatment",
            ),
            ("[[range]]\nid = \"a\"\nof = \"optimizer.lr\"", 1, "has no bounds"),
            ("[[range]]\nid = \"a\"\nof = \"optimizer.lr\"\nmin = 2\nmax = 1", 1, "above its max"),
            (
                "[[range]]\nid = \"a\"\nof = \"optim.lr\"\nmin = 2",
                3,
                "`optim.lr` is another program's name",
            ),
            (
                "[[invariant]]\nid = \"siblings\"\nof = \"a.b\"",
                2,
                "a rule `siblings` already exists",
            ),
            ("[[invariant]]\nid = \"a\"\nof = \"a +\"", 3, "neither a key nor a number"),
            ("[[invariant]]\nid = \"a\"", 1, "has no `id`, or no `of`"),
            ("[[invariant]]\nid = \"a\"\nof = \"a.b\"\nlax = 1", 4, "has no `lax`"),
            ("[[invariant]]\nid = \"a\"\nof = \"a.b\"\ntolerance = inf", 4, "not a number"),
            ("[pairs]\ntreatment = []", 1, "`pairs` is not a list of sections"),
            ("off = [", 1, "this is not TOML"),
        ] {
            let bad = rules(text).unwrap_err();
            let is_reported = bad.iter().any(|b| b.line == line && b.message.contains(want));
            assert!(is_reported, "{text}: {bad:?}");
        }
    }
}
