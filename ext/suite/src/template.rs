//! The prompts of suites: templates and expressions over a question's fields, as the harness renders them
//! (`lm_eval/utils.py`, `apply_template`). A missing field is an error, and a trailing newline is kept.

use jinja::{Arguments, Environment, Undefined, Value};
use regex::Regex;

const ENVIRONMENT: Environment = Environment {
    undefined: Undefined::Error,
    trims_blocks: false,
    filters: &[("regex_replace", regex_replace), ("index", index), ("literal", literal)],
    functions: &[],
};

/// The text of a template.
pub fn render(template: &str, fields: &Value) -> Result<String, String> {
    ENVIRONMENT.render(template, fields).map_err(|error| missing(&error, fields).unwrap_or(error))
}

/// The field that a template names and the question lacks, beside those that it has.
fn missing(error: &str, fields: &Value) -> Option<String> {
    let name = error.strip_prefix('\'')?.strip_suffix("' is undefined")?;
    let has = fields.entries()?.iter().filter_map(|(key, _)| Some(format!("`{}`", key.as_str()?)));
    let has = has.collect::<Vec<_>>().join(", ");
    Some(format!("the question has no `{name}`; its fields are {has}"))
}

/// The value of an expression.
pub fn evaluate(expression: &str, fields: &Value) -> Result<Value, String> {
    ENVIRONMENT
        .evaluate(expression, fields)
        .map_err(|error| missing(&error, fields).unwrap_or(error))
}

/// The texts of a list.
pub fn texts(items: &[Value]) -> Option<Vec<String>> {
    items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

/// As the harness's filter of that name: Python's `re.sub(pattern, replacement, text)`, where `\1` is a group.
fn regex_replace(arguments: &Arguments) -> Result<Value, String> {
    let [text, pattern, replacement] =
        arguments.bind("regex_replace", ["string", "pattern", "repl"])?;
    let text_of = |value: Option<Value>| value.map_or(Ok(String::new()), |value| value.text());
    let (text, pattern, replacement) = (text_of(text)?, text_of(pattern)?, text_of(replacement)?);
    let compiled = Regex::new(&pattern).map_err(|error| {
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or_default();
        format!("`{pattern}` is not a regular expression: {reason}")
    })?;
    let groups = compiled.captures_len();
    let mut translated = String::new();
    let mut characters = replacement.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '$' => translated.push_str("$$"),
            '\\' => match characters.next() {
                Some('n') => translated.push('\n'),
                Some('t') => translated.push('\t'),
                Some('\\') => translated.push('\\'),
                // Python reads two digits as one group.
                Some(digit)
                    if digit
                        .to_digit(10)
                        .is_some_and(|group| (group as usize) < groups && group > 0)
                        && !characters.peek().is_some_and(char::is_ascii_digit) =>
                {
                    translated.push_str(&format!("${{{digit}}}"));
                }
                // As in Python, other signs keep their backslash.
                Some('$') => translated.push_str("\\$$"),
                Some(sign) if sign.is_ascii_punctuation() => translated.extend(['\\', sign]),
                sign => {
                    let what = sign.map_or_else(String::new, String::from);
                    return Err(format!(
                        "`\\{what}` in the replacement `{replacement}` is neither a group of `{pattern}` from \\1 to \\9 nor \\n, \\t or \\\\"
                    ));
                }
            },
            sign => translated.push(sign),
        }
    }
    Ok(Value::from(compiled.replace_all(&text, translated.as_str()).into_owned()))
}

/// The index of an item in a list, as Python's `list.index`.
fn index(arguments: &Arguments) -> Result<Value, String> {
    let [all, item] = arguments.bind("index", ["list", "item"])?;
    let (all, item) = (all.unwrap_or(Value::None), item.unwrap_or(Value::None));
    let at = all.iterate()?.iter().position(|element| element.equals(&item));
    match at.and_then(|at| i128::try_from(at).ok()) {
        Some(at) => Ok(Value::Int(at)),
        None => Err(format!("{} is not in the list {}", item.repr()?, all.repr()?)),
    }
}

/// The value of a text that is a Python literal of lists, dictionaries, strings and numbers, as `ast.literal_eval`.
fn literal(arguments: &Arguments) -> Result<Value, String> {
    let [text] = arguments.bind("literal", ["text"])?;
    let text = text.unwrap_or(Value::None).text()?;
    let mut parser = Literal { rest: text.trim(), depth: 0 };
    match parser.value() {
        Some(value) if parser.rest.trim().is_empty() => Ok(value),
        Some(_) | None => {
            let at = text.len() - parser.rest.len();
            Err(format!("the text is not a Python literal from byte {at} on"))
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

    fn value(&mut self) -> Option<Value> {
        self.depth += 1;
        let value = if self.depth > DEPTH { None } else { self.any() };
        self.depth -= 1;
        value
    }

    fn any(&mut self) -> Option<Value> {
        for (open, close) in [('[', ']'), ('(', ')')] {
            if self.take(open) {
                let mut items = Vec::new();
                let mut is_tuple = open == '(';
                while !self.take(close) {
                    items.push(self.value()?);
                    if !self.take(',') {
                        // One value in parentheses is that value.
                        is_tuple &= items.len() > 1;
                        self.take(close).then_some(())?;
                        break;
                    }
                }
                return match (open, is_tuple) {
                    ('[', _) => Some(Value::from(items)),
                    (_, true) => Some(Value::tuple(items)),
                    (_, false) => items.pop(),
                };
            }
        }
        if self.take('{') {
            let mut fields = Vec::new();
            while !self.take('}') {
                let key = self.string()?;
                if !self.take(':') {
                    return None;
                }
                fields.push((key, self.value()?));
                if !self.take(',') {
                    return self.take('}').then(|| fields.into_iter().collect());
                }
            }
            return Some(fields.into_iter().collect());
        }
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(['\'', '"']) {
            return self.string().map(Value::from);
        }
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        match word {
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            "None" => Some(Value::None),
            number => match number.parse::<i128>() {
                Ok(integer) => Some(Value::Int(integer)),
                Err(_) => number.parse().ok().filter(|n: &f64| n.is_finite()).map(Value::Float),
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

    fn render(template: &str, fields: &serde_json::Value) -> Result<String, String> {
        super::render(template, &Value::from(fields))
    }

    fn evaluate(expression: &str, fields: &serde_json::Value) -> Result<String, String> {
        super::evaluate(expression, &Value::from(fields))?.repr()
    }

    #[test]
    fn a_field_that_is_not_there_is_named() {
        let error = render("{{ start }} {{ strat }}", &json!({"start": 1, "end": 2})).unwrap_err();
        assert_eq!(error, "the question has no `strat`; its fields are `end`, `start`");
        let error = render("{{ start.x.y }}", &json!({"start": {}})).unwrap_err();
        assert_eq!(error, "'dict object' has no attribute 'x'");
    }

    #[test]
    fn templates_are_jinjas() {
        let fields = json!({"q": " a<b ", "list": ["x", "y"], "n": 3, "pick": "y"});
        assert_eq!(render("{{ q.strip() }}|{{ n }}\n", &fields).unwrap(), "a<b|3\n");
        assert_eq!(evaluate("list | index(pick)", &fields).unwrap(), "1");
        assert_eq!(evaluate("[q[1:], list[0] ~ '!']", &fields).unwrap(), "['a<b ', 'x!']");
        assert_eq!(
            render("{{ list }} {{ n == 3 }} {{ none }}", &fields).unwrap(),
            "['x', 'y'] True None"
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
        assert_eq!(
            evaluate("t | literal", &fields).unwrap(),
            r#"[{'question': "it's", 'options': ["a'b", 'é'], 'n': -2, 'x': 1.5, 'y': None}, (True,)]"#
        );
        assert!(evaluate("bad | literal", &fields).unwrap_err().contains("from byte 5"));
        assert!(evaluate("deep | literal", &fields).is_err());
    }

    #[test]
    fn an_endless_template_is_an_error() {
        let text = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}x{% endfor %}{% endfor %}{% endfor %}";
        assert!(render(text, &json!({})).is_err());
    }
}
