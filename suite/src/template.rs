//! In: a template or an expression, a question's fields. Out: text, or a value. Must stay true: as in the harness
//! (`lm_eval/utils.py`, `apply_template`), a missing field is an error and a trailing newline is kept; Python's methods
//! of strings work; a template cannot read files.

use std::sync::OnceLock;

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use regex::Regex;

/// Most steps of one template: a loop over a question is short.
const FUEL: u64 = 1_000_000;

fn environment() -> &'static Environment<'static> {
    static ENVIRONMENT: OnceLock<Environment<'static>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_keep_trailing_newline(true);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("regex_replace", regex_replace);
        environment.add_filter("index", index);
        environment.add_filter("literal", literal);
        environment
    })
}

/// The text of a template.
pub fn render(template: &str, fields: &serde_json::Value) -> Result<String, String> {
    let context = Value::from_serialize(fields);
    environment().render_str(template, context).map_err(|error| {
        let is_undefined = error.kind() == ErrorKind::UndefinedError;
        let lacks = if is_undefined { missing(template, fields) } else { None };
        lacks.unwrap_or_else(|| said(&error))
    })
}

/// The fields that a template names and the question lacks, beside those that it has.
fn missing(template: &str, fields: &serde_json::Value) -> Option<String> {
    let quoted = |names: &mut dyn Iterator<Item = &str>| {
        names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let has = fields.as_object()?;
    let used = environment().template_from_str(template).ok()?.undeclared_variables(false);
    let mut lacks: Vec<&str> = used.iter().map(String::as_str).collect();
    lacks.retain(|name| !has.contains_key(*name));
    lacks.sort_unstable();
    let (lacks, has) =
        (quoted(&mut lacks.into_iter()), quoted(&mut has.keys().map(String::as_str)));
    (!lacks.is_empty()).then(|| format!("the question has no {lacks}; its fields are {has}"))
}

/// The value of an expression.
pub fn evaluate(expression: &str, fields: &serde_json::Value) -> Result<Value, String> {
    let compiled = environment().compile_expression(expression).map_err(|error| said(&error))?;
    let value = compiled.eval(Value::from_serialize(fields)).map_err(|error| said(&error))?;
    match value.is_undefined() {
        true => Err(format!("`{expression}` is a field that the question does not have")),
        false => Ok(value),
    }
}

/// Whether a value is a list; a slice of one is another kind.
pub fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// The texts of a list.
pub fn texts(value: &Value) -> Option<Vec<String>> {
    if !is_list(value) {
        return None;
    }
    let items = value.try_iter().ok()?;
    items.map(|item| item.as_str().map(str::to_owned)).collect()
}

/// An error without the template's name, which is always the same.
fn said(error: &Error) -> String {
    let kind = error.kind();
    match error.detail() {
        Some(detail) => format!("{kind}: {detail}"),
        None => kind.to_string(),
    }
}

/// As the harness's filter of that name: Python's `re.sub(pattern, replacement, text)`, where `\1` is a group.
fn regex_replace(text: &str, pattern: &str, replacement: Option<&str>) -> Result<String, Error> {
    let compiled = Regex::new(pattern).map_err(|why| {
        let why = why.to_string();
        let why = why.lines().last().unwrap_or_default();
        Error::new(
            ErrorKind::InvalidOperation,
            format!("`{pattern}` is not a regular expression: {why}"),
        )
    })?;
    let groups = compiled.captures_len();
    let mut ours = String::new();
    let mut characters = replacement.unwrap_or_default().chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '$' => ours.push_str("$$"),
            '\\' => match characters.next() {
                Some('n') => ours.push('\n'),
                Some('t') => ours.push('\t'),
                Some('\\') => ours.push('\\'),
                // Python reads two digits as one group.
                Some(digit)
                    if digit
                        .to_digit(10)
                        .is_some_and(|group| (group as usize) < groups && group > 0)
                        && !characters.peek().is_some_and(char::is_ascii_digit) =>
                {
                    ours.push_str(&format!("${{{digit}}}"));
                }
                // As in Python, other signs keep their backslash.
                Some('$') => ours.push_str("\\$$"),
                Some(other) if other.is_ascii_punctuation() => ours.extend(['\\', other]),
                other => {
                    let what = other.map_or_else(String::new, String::from);
                    return Err(Error::new(
                        ErrorKind::InvalidOperation,
                        format!(
                            "`\\{what}` in the replacement `{}` is neither a group of `{pattern}` from \\1 to \\9 nor \\n, \\t or \\\\",
                            replacement.unwrap_or_default()
                        ),
                    ));
                }
            },
            other => ours.push(other),
        }
    }
    Ok(compiled.replace_all(text, ours.as_str()).into_owned())
}

/// The place of an item in a list, as Python's `list.index`.
fn index(list: &Value, item: &Value) -> Result<usize, Error> {
    let items = list.try_iter()?;
    items.enumerate().find(|(_, here)| here == item).map(|(place, _)| place).ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, format!("{item} is not in the list {list}"))
    })
}

/// The value of a text that is a Python literal of lists, dictionaries, strings and numbers, as `ast.literal_eval`.
fn literal(text: &str) -> Result<Value, Error> {
    let mut parser = Literal { rest: text.trim(), depth: 0 };
    let value = parser.value();
    match value {
        Some(value) if parser.rest.trim().is_empty() => Ok(Value::from_serialize(value)),
        Some(_) | None => {
            let at = text.len() - parser.rest.len();
            Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("the text is not a Python literal from byte {at} on"),
            ))
        }
    }
}

/// Deepest nesting of a literal.
const DEPTH: usize = 32;

struct Literal<'a> {
    rest: &'a str,
    depth: usize,
}

impl Literal<'_> {
    fn take(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self) -> Option<serde_json::Value> {
        self.depth += 1;
        let value = if self.depth > DEPTH { None } else { self.any() };
        self.depth -= 1;
        value
    }

    fn any(&mut self) -> Option<serde_json::Value> {
        for (open, close) in [('[', ']'), ('(', ')')] {
            if self.take(open) {
                let mut items = Vec::new();
                while !self.take(close) {
                    items.push(self.value()?);
                    if !self.take(',') {
                        return self.take(close).then(|| items.into());
                    }
                }
                return Some(items.into());
            }
        }
        if self.take('{') {
            let mut fields = serde_json::Map::new();
            while !self.take('}') {
                let key = self.string()?;
                if !self.take(':') {
                    return None;
                }
                fields.insert(key, self.value()?);
                if !self.take(',') {
                    return self.take('}').then(|| fields.into());
                }
            }
            return Some(fields.into());
        }
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(['\'', '"']) {
            return self.string().map(Into::into);
        }
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        match word {
            "True" => Some(true.into()),
            "False" => Some(false.into()),
            "None" => Some(serde_json::Value::Null),
            number => match number.parse::<i64>() {
                Ok(whole) => Some(whole.into()),
                Err(_) => number.parse::<f64>().ok().filter(|n| n.is_finite()).map(Into::into),
            },
        }
    }

    fn string(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        let mut characters = self.rest.chars();
        let quote = characters.next().filter(|c| ['\'', '"'].contains(c))?;
        let mut text = String::new();
        loop {
            match characters.next()? {
                c if c == quote => break,
                '\\' => match characters.next()? {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    letter @ ('x' | 'u' | 'U') => {
                        let digits = match letter {
                            'x' => 2,
                            'u' => 4,
                            _ => 8,
                        };
                        let mut code = 0;
                        for _ in 0..digits {
                            code = code * 16 + characters.next()?.to_digit(16)?;
                        }
                        text.push(char::from_u32(code)?);
                    }
                    c @ ('\'' | '"' | '\\') => text.push(c),
                    // Python keeps the backslash of an unknown escape.
                    c => text.extend(['\\', c]),
                },
                c => text.push(c),
            }
        }
        self.rest = characters.as_str();
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_that_is_not_there_is_named() {
        let said = render("{{ start }} {{ strat }}", &json!({"start": 1, "end": 2})).unwrap_err();
        assert_eq!(said, "the question has no `strat`; its fields are `end`, `start`");
        let said = render("{{ start.x.y }}", &json!({"start": {}})).unwrap_err();
        assert!(said.starts_with("undefined value"), "{said}");
    }

    #[test]
    fn templates_are_jinjas() {
        let fields = json!({"q": " a<b ", "list": ["x", "y"], "n": 3, "pick": "y"});
        assert_eq!(render("{{ q.strip() }}|{{ n }}\n", &fields).unwrap(), "a<b|3\n");
        assert_eq!(evaluate("list | index(pick)", &fields).unwrap(), Value::from(1));
        assert_eq!(
            texts(&evaluate("[q[1:], list[0] ~ '!']", &fields).unwrap()).unwrap(),
            ["a<b ", "x!"]
        );
        assert!(render("{{ missing }}", &fields).unwrap_err().contains("has no `missing`"));
        assert!(evaluate("missing", &fields).unwrap_err().contains("missing"));
        assert!(evaluate("list | index('z')", &fields).unwrap_err().contains("not in the list"));
        assert!(render("{% include 'x' %}", &fields).is_err());
    }

    #[test]
    fn patterns_are_replaced_as_in_python() {
        let fields = json!({"t": "a ( b ) [c] $1"});
        let text = r#"{{ t | regex_replace("\\(\\s*([^\\)]*?)\\s*\\)", "(\\1)") }}"#;
        assert_eq!(render(text, &fields).unwrap(), "a (b) [c] $1");
        assert_eq!(
            render(r#"{{ t | regex_replace("\\[.*?\\]", "$1") }}"#, &fields).unwrap(),
            "a ( b ) $1 $1"
        );
        assert!(
            render(r#"{{ t | regex_replace("(a)", "\\9") }}"#, &fields)
                .unwrap_err()
                .to_string()
                .contains("neither a group"),
        );
        assert!(
            render(r#"{{ t | regex_replace("(?=a)", "") }}"#, &fields)
                .unwrap_err()
                .contains("look-around")
        );
    }

    #[test]
    fn literals_of_python_are_read() {
        let fields = json!({"t": r#"[{'question': "it's", 'options': ['a\'b', "\u00e9"], 'n': -2, 'x': 1.5, 'y': None,}, (True,)]"#, "bad": "[1, f(x)]", "deep": "[".repeat(10_000)});
        let value = evaluate("t | literal", &fields).unwrap();
        let json = serde_json::to_value(&value).unwrap();
        assert_eq!(
            json,
            json!([{"question": "it's", "options": ["a'b", "é"], "n": -2, "x": 1.5, "y": null}, [true]])
        );
        assert!(evaluate("bad | literal", &fields).unwrap_err().contains("from byte 5"));
        assert!(evaluate("deep | literal", &fields).is_err());
    }

    #[test]
    fn an_endless_template_ends() {
        let text = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}x{% endfor %}{% endfor %}{% endfor %}";
        assert!(render(text, &json!({})).is_err());
    }
}
