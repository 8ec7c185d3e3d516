//! Templates rendered by Jinja2 (`tests/golden/jinja/make.py`), in the settings of `transformers` and of
//! lm-evaluation-harness: the same text, or an error where Python has one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jinja::{Arguments, Environment, Undefined, Value};

const CHAT: Environment = Environment {
    undefined: Undefined::Empty,
    trims_blocks: true,
    filters: &[],
    functions: &[("raise_exception", raise_exception), ("strftime_now", strftime_now)],
};

const HARNESS: Environment =
    Environment { undefined: Undefined::Error, trims_blocks: false, filters: &[], functions: &[] };

fn raise_exception(arguments: &Arguments) -> Result<Value, String> {
    Err(arguments.value().text()?)
}

/// On the day of `make.py`.
fn strftime_now(arguments: &Arguments) -> Result<Value, String> {
    let now: chrono::NaiveDateTime = "2026-03-05T07:08:09".parse().unwrap();
    let mut text = String::new();
    let Value::Str(format) = arguments.value() else { return Err("a str is needed".to_owned()) };
    write!(text, "{}", now.format(format)).map_err(|error| error.to_string())?;
    Ok(Value::from(text))
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    let Value::Map(entries) = value else { return None };
    entries
        .iter()
        .find(|(name, _)| name.as_str() == Some(key))
        .and_then(|(_, value)| value.as_str())
}

fn get(value: &Value, key: &str) -> Value {
    value.get(&Value::from(key)).unwrap_or(Value::None)
}

fn golden(name: &str) -> String {
    let path = format!("{}/../../tests/golden/jinja/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// How a rendering differs from Python's.
#[derive(Debug, Default)]
struct Differences {
    /// Another text.
    wrong: Vec<String>,
    /// An error where Python has a text: refused.
    refused: Vec<String>,
    /// A text where Python has an error.
    lax: Vec<String>,
}

impl Differences {
    fn add(
        &mut self,
        name: &str,
        setting: &Environment,
        template: &str,
        context: &Value,
        expected: Option<&str>,
    ) {
        match (setting.render(template, context), expected) {
            (Ok(text), Some(expected)) if text == expected => {}
            (Ok(text), Some(expected)) => {
                self.wrong.push(format!("{name}: {template}: {text:?}, not {expected:?}"));
            }
            (Err(error), Some(_)) => self.refused.push(format!("{name}: {template}: {error}")),
            (Ok(text), None) => self.lax.push(format!("{name}: {template}: {text:?}")),
            (Err(_), None) => {}
        }
    }
}

/// Expressions whose texts differ: a character that Python's Unicode does not have yet; a macro that reads a name which
/// the template sets after it; a file separator that `-` strips.
const KNOWN: [&str; 3] = ["U0001FAE8", "macro nn(x, y=n)", "\u{1c}"];

/// The lines of a file that canonc reads: of a number of more than 64 bits it would lose digits.
fn cases(name: &str) -> Vec<Value> {
    golden(name).lines().filter_map(|line| Value::from_json(line).ok()).collect()
}

#[test]
fn expressions_render_as_in_python() {
    let all = cases("expressions.jsonl");
    assert!(all.len() > 1000);
    let mut differences = Differences::default();
    for case in all.iter().skip(1) {
        let setting = if text(case, "setting") == Some("chat") { &CHAT } else { &HARNESS };
        let template = text(case, "template").unwrap();
        let context = get(case, "context");
        differences.add("expression", setting, template, &context, text(case, "text"));
    }
    let Differences { wrong, refused, lax } = differences;
    let unknown: Vec<&String> =
        wrong.iter().filter(|text| !KNOWN.iter().any(|known| text.contains(known))).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    // What Python prints of a function, a range or a `__class__`, and methods that change a list outside a sandbox.
    assert!(refused.len() <= 138, "{}: {refused:#?}", refused.len());
    assert!(lax.len() <= 10, "{}: {lax:#?}", lax.len());
}

#[test]
fn chat_templates_render_as_in_transformers() {
    let contexts = cases("contexts.jsonl");
    let all = cases("rendered.jsonl");
    assert!(all.len() > 1000);
    let mut differences = Differences::default();
    for case in &all {
        let (name, chat) = (text(case, "template").unwrap(), text(case, "chat").unwrap());
        let template = golden(&format!("templates/{name}.jinja"));
        let context = contexts.iter().find(|context| text(context, "chat") == Some(chat)).unwrap();
        let context = get(context, "context");
        differences.add(name, &CHAT, &template, &context, text(case, "text"));
    }
    let Differences { wrong, refused, lax } = differences;
    assert!(wrong.is_empty() && lax.is_empty(), "{wrong:#?} {lax:#?}");
    let names: BTreeSet<&str> =
        refused.iter().filter_map(|text| text.split_once(':')).map(|(name, _)| name).collect();
    // They use `joiner`, `wordwrap` and `e`.
    assert_eq!(names, BTreeSet::from(["alpaca", "functionary", "vicuna"]), "{refused:#?}");
}

/// Jinja2 reads a condition, and a generator, one element after another.
#[test]
fn loops_read_no_further_than_they_go() {
    let context = Value::from_json(r#"{"li": [3, 1, 2]}"#).unwrap();
    for (template, expected) in [
        (
            "{% set ns = namespace(n=0) %}{% for m in li if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ m }}{% endfor %}",
            "31",
        ),
        ("{% set g = li | map('int') %}{{ 3 in g }}{{ g | list }}", "True[1, 2]"),
        (
            "{% set g = li | map('int') %}{% for x in g %}{% break %}{% endfor %}{{ g | list }}",
            "[1, 2]",
        ),
        (
            "{% for x in li if x > 1 %}{{ loop.index }}{{ x }}{{ loop.length }} {% endfor %}",
            "132 222 ",
        ),
        ("{% for x in li if x > 9 %}{{ x }}{% else %}none{% endfor %}", "none"),
    ] {
        assert_eq!(CHAT.render(template, &context).as_deref(), Ok(expected), "{template}");
    }
}

/// A template of a stranger ends, and takes no more memory than it may.
#[test]
fn hostile_templates_end() {
    let context = Value::from_json("{}").unwrap();
    for template in [
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x={}) %}{% for i in range(99999) %}{% set n.x = {'a': n.x} %}{% endfor %}{{ n.x | tojson }}",
        "{{ 'a' * 99999999999 }}",
        "{{ [0] * 99999999999 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ 'a'.center(99999999999) }}",
        "{{ 'a' | center(99999999999) }}",
        "{{ ('a' * 9999999).replace('a', 'b' * 9999999) }}",
        "{{ ('a' * 9999999) | replace('', 'b' * 9999999) }}",
        "{{ (['a' * 9999999] * 9999) | join }}",
        "{{ [1] | batch(9999999999, 'x') | list | length }}",
        "{{ [1] | slice(9999999999) | list | length }}",
        "{{ 'a' | indent(9999999999) }}{{ ('a\n' * 999999) | indent(999999999) }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{{ range(100000) | list | sort | unique | list }}{% for i in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
        "{% set n = namespace(a=1) %}{% set n.x = n %}{{ n.x }}",
    ] {
        let result = CHAT.render(template, &context);
        assert!(result.is_err(), "{template}: {}", result.unwrap().len());
    }
    // Chains that the parser reads in a loop, and macros that are nested and call themselves.
    let ifs = format!("{}{{{{ m() }}}}{}", "{% if true %}".repeat(100), "{% endif %}".repeat(100));
    for template in [
        format!("{{{{ {}1 }}}}", "1+".repeat(100_000)),
        format!("{{{{ 'a'{} }}}}", "|trim".repeat(40_000)),
        format!("{{{{ x{} }}}}", "[0]".repeat(50_000)),
        format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(20_000)),
        format!("{{% macro m() %}}{ifs}{{% endmacro %}}{{{{ m() }}}}"),
        "{{ ('x' * 10000000).join(range(100000) | map('string')) }}".to_owned(),
        "{{ ('\\n' * 1000000) | indent('x' * 1000000, blank=true) }}".to_owned(),
        "{{ [[1]] | tojson(indent='x' * 10000000) }}".to_owned(),
        "{{ -(-170141183460469231731687303715884105727 - 1) }}".to_owned(),
        "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{{ s[0] }}{% endfor %}".to_owned(),
        "{{ ([[1]] * 90000) | sum(start=[]) }}".to_owned(),
    ] {
        let result = CHAT.render(&template, &context);
        assert!(result.is_err(), "{template:.80}: {}", result.unwrap().len());
    }
    let nested = "(".repeat(100_000);
    assert!(CHAT.render(&format!("{{{{ {nested} }}}}"), &context).is_err());
    assert!(Value::from_json(&"[".repeat(100_000)).is_err());
}
