//! Templates rendered by Jinja2 (`tests/golden/jinja/make.py`), in the settings of `transformers` and of
//! lm-evaluation-harness: the same text, or an error where Python has one.

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
    Ok(Value::from(now.format(&arguments.value().text()?).to_string()))
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    let Value::Map(entries) = value else { return None };
    entries.iter().find(|(name, _)| name.as_str() == Some(key)).and_then(|(_, value)| value.as_str())
}

fn get(value: &Value, key: &str) -> Value {
    value.get(&Value::from(key)).unwrap_or(Value::None)
}

fn golden(name: &str) -> String {
    let path = format!("{}/../tests/golden/jinja/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Cases that Python renders and canonc refuses by name, with a part of the refusal.
const REFUSED: &[&str] = &["is not supported by canonc", "canonc supports neither", "larger than canonc computes", "more than 64 bits", "prints elements"];

fn compare(name: &str, template: &str, setting: &Environment, context: &Value, expected: Option<&str>) -> Option<String> {
    match (setting.render(template, context), expected) {
        (Ok(text), Some(expected)) if text == expected => None,
        (Err(_), None) => None,
        (Err(error), Some(_)) if REFUSED.iter().any(|part| error.contains(part)) => {
            Some(format!("refused {name}: {error}"))
        }
        (result, expected) => Some(format!("{name}:\n  {template:.300}\n  {result:?}\n  {expected:?}")),
    }
}

fn report(differences: &[String], refused_at_most: usize, compared: usize) {
    let (refused, wrong): (Vec<&String>, Vec<&String>) =
        differences.iter().partition(|text| text.starts_with("refused"));
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.iter().map(|text| format!("{text}\n")).collect::<String>());
    assert!(refused.len() <= refused_at_most, "{} refused: {refused:#?}", refused.len());
}

#[test]
fn expressions_render_as_in_python() {
    let cases = Value::from_json(&golden("cases.json")).unwrap();
    let mut differences = Vec::new();
    let all = get(&cases, "expressions").iterate().unwrap();
    for case in &all {
        let setting = if text(case, "setting") == Some("chat") { &CHAT } else { &HARNESS };
        let template = text(case, "template").unwrap();
        differences.extend(compare("expression", template, setting, &get(case, "context"), text(case, "text")));
    }
    report(&differences, 40, all.len());
}

#[test]
fn chat_templates_render_as_in_transformers() {
    let cases = Value::from_json(&golden("cases.json")).unwrap();
    let contexts = get(&cases, "contexts");
    let mut differences = Vec::new();
    let all = get(&cases, "chats").iterate().unwrap();
    for case in &all {
        let (name, chat) = (text(case, "template").unwrap(), text(case, "chat").unwrap());
        let template = golden(&format!("templates/{name}.jinja"));
        let context = get(&contexts, chat);
        differences.extend(compare(&format!("{name}, {chat}"), &template, &CHAT, &context, text(case, "text")));
    }
    report(&differences, 0, all.len());
}
