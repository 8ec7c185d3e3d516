//! Jinja2's filters: `value | name(arguments)`.

use std::sync::Arc;

use crate::arguments::Arguments;
use crate::entries::LARGEST;
use crate::json;
use crate::lookup;
use crate::methods;
use crate::operators;
use crate::text;
use crate::value::Value;

/// What filters need of the evaluation that calls them.
pub(crate) trait Evaluation {
    /// Counts steps; an error beyond the limit.
    fn spend(&self, steps: usize) -> Result<(), String>;
    /// What an undefined variable is.
    fn undefined(&self) -> crate::Undefined;
    /// The truth of a value, an error if it is undefined and that is one.
    fn is_true(&self, value: &Value) -> Result<bool, String>;
    /// Another filter, by name.
    fn filter(&self, name: &str, arguments: &Arguments) -> Result<Value, String>;
    /// A test, by name.
    fn test(&self, name: &str, arguments: &Arguments) -> Result<bool, String>;
}

/// Jinja2's filters that are refused: their results depend on Python's memory or chance, or are for HTML.
const REFUSED: &[&str] = &[
    "attr",
    "e",
    "escape",
    "filesizeformat",
    "forceescape",
    "pprint",
    "random",
    "striptags",
    "urlize",
    "wordwrap",
    "xmlattr",
];

const WITHOUT_ARGUMENTS: &[&str] = &[
    "abs",
    "capitalize",
    "count",
    "first",
    "items",
    "last",
    "length",
    "list",
    "lower",
    "reverse",
    "safe",
    "string",
    "title",
    "upper",
    "urlencode",
    "wordcount",
];

fn truth(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

fn integer(value: Option<Value>, default: i128, name: &str) -> Result<i128, String> {
    match value {
        None => Ok(default),
        Some(value) => value
            .as_int()
            .ok_or_else(|| format!("`{name}` needs an integer, not {}", value.type_name())),
    }
}

fn lowered(value: Value) -> Value {
    match &value {
        Value::Str(text) => Value::from(text.to_lowercase()),
        _ => value,
    }
}

/// Values sorted by a key; equal ones keep their order, also in reverse.
fn sorted(
    items: Vec<Value>,
    keys: Vec<Value>,
    reverse: bool,
) -> Result<Vec<(Value, Value)>, String> {
    let mut pairs: Vec<(Value, Value)> = keys.into_iter().zip(items).collect();
    let mut failure = None;
    pairs.sort_by(|(a, _), (b, _)| {
        let order = a.order(b).unwrap_or_else(|error| {
            failure.get_or_insert(error);
            None
        });
        let order = order.unwrap_or(std::cmp::Ordering::Equal);
        if reverse { order.reverse() } else { order }
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(pairs),
    }
}

/// `environment.getitem` along a path with dots.
fn along(item: &Value, path: &Value, default: Option<&Value>) -> Result<Value, String> {
    let parts: Vec<Value> = match path {
        Value::None => Vec::new(),
        Value::Str(path) => path
            .split('.')
            .map(|part| match part.parse::<i128>() {
                Ok(index) if part.chars().all(|c| c.is_ascii_digit()) => Value::Int(index),
                _ => Value::from(part),
            })
            .collect(),
        other => vec![other.clone()],
    };
    let mut value = item.clone();
    for part in parts {
        value = lookup::item(&value, &part)?;
        if let Some(default) = default.filter(|_| value.is_undefined()) {
            value = default.clone();
        }
    }
    Ok(value)
}

fn keys(
    items: &[Value],
    attribute: Option<&Value>,
    case_sensitive: bool,
) -> Result<Vec<Value>, String> {
    let path = attribute.unwrap_or(&Value::None);
    let key = |item: &Value| {
        let key = along(item, path, None)?;
        Ok(if case_sensitive { key } else { lowered(key) })
    };
    items.iter().map(key).collect()
}

/// The result of a filter, or `None` if there is none of this name.
pub(crate) fn filter(
    run: &dyn Evaluation,
    name: &str,
    arguments: &Arguments,
) -> Result<Option<Value>, String> {
    let value = arguments.value();
    if WITHOUT_ARGUMENTS.contains(&name) {
        arguments.bind(name, ["value"])?;
    }
    Ok(Some(match name {
        "default" | "d" => default(name, arguments)?,
        "abs" => abs(arguments)?,
        "count" | "length" => Value::int(value.len()?),
        "string" => match value {
            Value::Markup(_) => value.clone(),
            value => Value::from(value.text()?),
        },
        "safe" => Value::Markup(Arc::from(value.text()?)),
        "lower" => Value::from(value.text()?.to_lowercase()),
        "upper" => Value::from(value.text()?.to_uppercase()),
        "capitalize" => Value::from(methods::capitalize(&value.text()?)),
        "title" => Value::from(text::title_words(&value.text()?)),
        "trim" => trim(arguments)?,
        "center" => center(arguments)?,
        "replace" => replace(arguments)?,
        "format" => format(arguments)?,
        "indent" => indent(arguments)?,
        "truncate" => truncate(arguments)?,
        "wordcount" => word_count(arguments)?,
        "urlencode" if value.as_str().is_some() => url_encode(arguments)?,
        "int" => int(arguments)?,
        "float" => float(arguments)?,
        "round" => round(arguments)?,
        "first" => first(arguments)?,
        "last" => last(arguments)?,
        "list" => Value::from(value.iterate()?),
        "reverse" => match value {
            Value::Str(text) => Value::from(text.chars().rev().collect::<String>()),
            value => Value::generator(value.iterate()?.into_iter().rev()),
        },
        "items" => items(arguments)?,
        "join" => join(arguments)?,
        "sum" => sum(run, arguments)?,
        "min" | "max" => extreme(name, arguments)?,
        "sort" => sort(arguments)?,
        "dictsort" => dict_sort(arguments)?,
        "unique" => unique(run, arguments)?,
        "groupby" => group_by(arguments)?,
        "batch" => batch(arguments)?,
        "slice" => slice(arguments)?,
        "map" => map(run, arguments)?,
        "select" | "reject" | "selectattr" | "rejectattr" => select(run, name, arguments)?,
        "tojson" if run.undefined() == crate::Undefined::Empty => to_json(arguments)?,
        "tojson" => to_json_for_html(arguments)?,
        name if name == "urlencode" || REFUSED.contains(&name) => {
            return Err(format!("the filter `{name}` is not supported by canonc"));
        }
        _ => return Ok(None),
    }))
}

fn default(name: &str, arguments: &Arguments) -> Result<Value, String> {
    let [value, default, boolean] = arguments.bind(name, ["value", "default_value", "boolean"])?;
    let value = value.unwrap_or(Value::None);
    Ok(match value.is_undefined() || (truth(boolean) && !value.is_true()) {
        true => default.unwrap_or_else(|| Value::from("")),
        false => value,
    })
}

fn abs(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    match (value.as_int(), value) {
        (Some(number), _) => {
            let size = number.checked_abs().map(Value::Int);
            size.ok_or_else(|| format!("abs({number}) is larger than canonc computes"))
        }
        (_, Value::Float(number)) => Ok(Value::Float(number.abs())),
        _ => Err(format!("bad operand type for abs(): '{}'", value.type_name())),
    }
}

fn trim(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, characters] = arguments.bind("trim", ["value", "chars"])?;
    let characters = match characters {
        None | Some(Value::None) => None,
        Some(characters) => Some(characters.text()?),
    };
    Ok(Value::from(text::strip(&value.text()?, characters.as_deref(), true, true)))
}

fn center(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, width] = arguments.bind("center", ["value", "width"])?;
    methods::center(&value.text()?, integer(width, 80, "center")?, " ").map(Value::from)
}

fn replace(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, old, new, count] = arguments.bind("replace", ["value", "old", "new", "count"])?;
    let part = |part: Option<Value>| {
        part.ok_or_else(|| "replace() needs a text and another".to_owned())?.text()
    };
    let count = count.filter(|count| !matches!(count, Value::None));
    methods::replace(&value.text()?, &part(old)?, &part(new)?, integer(count, -1, "replace")?)
}

fn format(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    if arguments.positional.len() > 1 && !arguments.keywords.is_empty() {
        return Err("can't handle positional and keyword arguments at the same time".to_owned());
    }
    let (_, rest) = arguments.positional.split_first().unwrap_or((&Value::None, &[]));
    let values = match arguments.keywords.is_empty() {
        true => Value::tuple(rest.to_vec()),
        false => arguments.keywords.iter().cloned().collect(),
    };
    crate::format::percent(&value.text()?, &values).map(Value::from)
}

fn indent(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, width, first, blank] =
        arguments.bind("indent", ["value", "width", "first", "blank"])?;
    let indent = match width {
        Some(Value::Str(indent)) => indent.to_string(),
        width => {
            let width = integer(width, 4, "indent")?.clamp(0, 1 << 10);
            " ".repeat(usize::try_from(width).unwrap_or(0))
        }
    };
    let Value::Str(all) = value else {
        return Err(format!("indent needs a str, not {}", value.type_name()));
    };
    let all = all.to_string() + "\n";
    let blank = truth(blank);
    let lines = all.matches(['\n', '\r']).count() + 2;
    if indent.len().saturating_mul(lines) > LARGEST {
        return Err(format!("a text of more than {LARGEST} bytes"));
    }
    let lines = text::lines(&all, false);
    let lines = lines.into_iter().enumerate().map(|(at, line)| {
        match at > 0 && (blank || !line.is_empty()) {
            true => format!("{indent}{line}"),
            false => line.to_owned(),
        }
    });
    let lines = lines.collect::<Vec<_>>().join("\n");
    Ok(Value::from(if truth(first) { indent + &lines } else { lines }))
}

fn truncate(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, length, killwords, end, leeway] =
        arguments.bind("truncate", ["value", "length", "killwords", "end", "leeway"])?;
    let Value::Str(all) = value else {
        return Err(format!("truncate needs a str, not {}", value.type_name()));
    };
    let all = all.to_string();
    let length = integer(length, 255, "truncate")?;
    let end = end.map_or(Ok("...".to_owned()), |end| end.text())?;
    let kept = length - i128::try_from(end.chars().count()).unwrap_or(0);
    let kept = usize::try_from(kept)
        .map_err(|_| "truncate: the length is less than the end's".to_owned())?;
    let count = i128::try_from(all.chars().count()).unwrap_or(i128::MAX);
    if count <= length + integer(leeway, 5, "truncate")? {
        return Ok(Value::from(all));
    }
    let cut: String = all.chars().take(kept).collect();
    let cut = match truth(killwords) {
        true => cut.as_str(),
        false => cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words),
    };
    Ok(Value::from(cut.to_owned() + &end))
}

fn word_count(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let all = value.text()?;
    let words = all.split(|c: char| !(text::is_letter(c) || c.is_numeric() || c == '_'));
    Ok(Value::int(words.filter(|word| !word.is_empty()).count()))
}

fn url_encode(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let mut out = String::new();
    for byte in value.text()?.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            byte => out += &format!("%{byte:02X}"),
        }
    }
    Ok(Value::from(out))
}

fn int(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, default, base] = arguments.bind("int", ["value", "default", "base"])?;
    if base.is_some_and(|base| !base.equals(&Value::Int(10))) {
        return Err("`int` of another base is not supported by canonc".to_owned());
    }
    let default = default.unwrap_or(Value::Int(0));
    let of_float = |number: f64| match number.is_finite() && number.abs() < 1e38 {
        true => Ok(Value::Int(number.trunc() as i128)),
        false if number.is_finite() => Err(format!("{number} is larger than canonc computes")),
        false => Err("cannot convert float infinity or NaN to integer".to_owned()),
    };
    ascii_digits(value)?;
    match value {
        Value::Undefined(message) => Err(message.to_string()),
        Value::Float(number) => of_float(*number),
        Value::Str(text) => match (parse_int(text), parse_float(text)) {
            (Some(number), _) => Ok(Value::Int(number)),
            (None, Some(number)) if number.is_finite() => of_float(number),
            (None, _) => Ok(default),
        },
        other => Ok(other.as_int().map_or(default, Value::Int)),
    }
}

fn float(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, default] = arguments.bind("float", ["value", "default"])?;
    let default = default.unwrap_or(Value::Float(0.0));
    ascii_digits(value)?;
    match value {
        Value::Undefined(message) => Err(message.to_string()),
        Value::Str(text) => Ok(parse_float(text).map_or(default, Value::Float)),
        other => Ok(other.as_float().map_or(default, Value::Float)),
    }
}

/// The first element, which a generator loses.
fn first(arguments: &Arguments) -> Result<Value, String> {
    let first = match arguments.value() {
        Value::Generator(generator) => {
            generator.items.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front()
        }
        value => value.iterate()?.into_iter().next(),
    };
    Ok(first.unwrap_or_else(|| Value::undefined("No first item, sequence was empty.")))
}

fn last(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    match value {
        Value::Generator(_) => Err("'generator' object is not reversible".to_owned()),
        value => {
            let last = value.iterate()?.pop();
            Ok(last.unwrap_or_else(|| Value::undefined("No last item, sequence was empty.")))
        }
    }
}

fn items(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    match value {
        Value::Undefined(_) => Ok(Value::generator([])),
        Value::Map(_) => {
            let pairs = methods::call(value, "items", &Arguments::default())?;
            Ok(Value::generator(pairs.iterate()?))
        }
        _ => Err("Can only get item pairs from a mapping.".to_owned()),
    }
}

fn join(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, separator, attribute] = arguments.bind("join", ["value", "d", "attribute"])?;
    let separator = separator.map_or(Ok(String::new()), |separator| separator.text())?;
    let mut out = String::new();
    for (at, item) in value.iterate()?.iter().enumerate() {
        if at > 0 {
            out += &separator;
        }
        out += &along(item, attribute.as_ref().unwrap_or(&Value::None), None)?.text()?;
        if out.len() > LARGEST {
            return Err(format!("a text of more than {LARGEST} bytes"));
        }
    }
    Ok(Value::from(out))
}

fn sum(run: &dyn Evaluation, arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, attribute, start] = arguments.bind("sum", ["iterable", "attribute", "start"])?;
    let mut sum = start.unwrap_or(Value::Int(0));
    if sum.as_str().is_some() {
        return Err("sum() can't sum strings [use ''.join(seq) instead]".to_owned());
    }
    for item in value.iterate()? {
        let item = along(&item, attribute.as_ref().unwrap_or(&Value::None), None)?;
        run.spend(sum.len().unwrap_or(0) / 16)?;
        sum = operators::add(&sum, &item)?;
    }
    Ok(sum)
}

/// `min` or `max`.
fn extreme(name: &str, arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, case_sensitive, attribute] =
        arguments.bind(name, ["value", "case_sensitive", "attribute"])?;
    let items = value.iterate()?;
    let keys = keys(&items, attribute.as_ref(), truth(case_sensitive))?;
    let mut best: Option<(Value, Value)> = None;
    for (key, item) in keys.into_iter().zip(items) {
        let is_better = match &best {
            None => true,
            Some((other, _)) => {
                let order = key.order(other)?;
                order.is_some_and(|order| if name == "min" { order.is_lt() } else { order.is_gt() })
            }
        };
        if is_better {
            best = Some((key, item));
        }
    }
    let undefined = || Value::undefined("No aggregated item, sequence was empty.");
    Ok(best.map_or_else(undefined, |(_, item)| item))
}

fn sort(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, reverse, case_sensitive, attribute] =
        arguments.bind("sort", ["value", "reverse", "case_sensitive", "attribute"])?;
    if attribute.as_ref().and_then(Value::as_str).is_some_and(|path| path.contains(',')) {
        return Err("`sort` by several attributes is not supported by canonc".to_owned());
    }
    let items = value.iterate()?;
    let keys = keys(&items, attribute.as_ref(), truth(case_sensitive))?;
    let sorted = sorted(items, keys, truth(reverse))?;
    Ok(Value::from(sorted.into_iter().map(|(_, item)| item).collect::<Vec<_>>()))
}

fn dict_sort(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, case_sensitive, by, reverse] =
        arguments.bind("dictsort", ["value", "case_sensitive", "by", "reverse"])?;
    let items = methods::call(value, "items", &Arguments::default())?.iterate()?;
    let at = match by.as_ref().and_then(Value::as_str) {
        None | Some("key") => 0,
        Some("value") => 1,
        Some(_) => {
            return Err("You can only sort by either \"key\" or \"value\"".to_owned());
        }
    };
    let keys = keys(&items, Some(&Value::Int(at)), truth(case_sensitive))?;
    let sorted = sorted(items, keys, truth(reverse))?;
    Ok(Value::from(sorted.into_iter().map(|(_, item)| item).collect::<Vec<_>>()))
}

fn unique(run: &dyn Evaluation, arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, case_sensitive, attribute] =
        arguments.bind("unique", ["value", "case_sensitive", "attribute"])?;
    let items = value.iterate()?;
    let keys = keys(&items, attribute.as_ref(), truth(case_sensitive))?;
    let mut seen: Vec<Value> = Vec::new();
    let mut unique = Vec::new();
    for (key, item) in keys.into_iter().zip(items) {
        run.spend(seen.len())?;
        key.hashable()?;
        if !seen.iter().any(|other| other.equals(&key)) {
            seen.push(key);
            unique.push(item);
        }
    }
    Ok(Value::generator(unique))
}

fn group_by(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, attribute, default, case_sensitive] =
        arguments.bind("groupby", ["value", "attribute", "default", "case_sensitive"])?;
    let path = attribute.ok_or("groupby() needs an attribute")?;
    let items = value.iterate()?;
    let key = |item: &Value| along(item, &path, default.as_ref());
    let originals = items.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    let sensitive = truth(case_sensitive);
    let compared: Vec<Value> = originals
        .iter()
        .map(|key| if sensitive { key.clone() } else { lowered(key.clone()) })
        .collect();
    let pairs = originals.into_iter().zip(items);
    let pairs = pairs.map(|(key, item)| Value::tuple(vec![key, item])).collect();
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for (key, pair) in sorted(pairs, compared, false)? {
        let Value::Tuple(pair) = pair else { continue };
        let [original, item] = &pair[..] else { continue };
        match groups.last_mut().filter(|(other, ..)| other.equals(&key)) {
            Some((_, _, items)) => items.push(item.clone()),
            None => groups.push((key, original.clone(), vec![item.clone()])),
        }
    }
    let group = |(_, original, items)| Value::tuple(vec![original, Value::from(items)]);
    Ok(Value::from(groups.into_iter().map(group).collect::<Vec<_>>()))
}

fn batch(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, count, fill] = arguments.bind("batch", ["value", "linecount", "fill_with"])?;
    let count = usize::try_from(integer(count, 0, "batch")?).unwrap_or(0).max(1);
    let items = value.iterate()?;
    if fill.is_some() && count > LARGEST / size_of::<Value>() {
        return Err(format!("batches of {count} are too large"));
    }
    let batch = |batch: &[Value]| {
        let mut batch = batch.to_vec();
        if let Some(fill) = fill.as_ref().filter(|fill| !matches!(fill, Value::None)) {
            batch.resize(count, fill.clone());
        }
        Value::from(batch)
    };
    Ok(Value::generator(items.chunks(count).map(batch).collect::<Vec<_>>()))
}

fn slice(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, count, fill] = arguments.bind("slice", ["value", "slices", "fill_with"])?;
    let count = usize::try_from(integer(count, 0, "slice")?)
        .ok()
        .filter(|count| (1..=100_000).contains(count));
    let count = count.ok_or("slice needs a positive number of slices")?;
    let items = value.iterate()?;
    let (each, more) = (items.len() / count, items.len() % count);
    let mut rest = items.as_slice();
    let mut slices = Vec::new();
    for number in 0..count {
        let (slice, after) = rest.split_at(each + usize::from(number < more));
        rest = after;
        let mut slice = slice.to_vec();
        if number >= more {
            slice.extend(fill.clone().filter(|fill| !matches!(fill, Value::None)));
        }
        slices.push(Value::from(slice));
    }
    Ok(Value::generator(slices))
}

/// The harness's `tojson`, with the options of Python's `json.dumps`.
fn to_json(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, ascii, indent, separators, sort_keys] =
        arguments.bind("tojson", ["x", "ensure_ascii", "indent", "separators", "sort_keys"])?;
    let separators = match separators {
        None | Some(Value::None) => None,
        Some(pair) => match pair.as_list().unwrap_or_default() {
            [between, after] => Some((between.text()?, after.text()?)),
            _ => return Err("tojson: separators are two texts".to_owned()),
        },
    };
    let style =
        json::style(truth(ascii), &indent.unwrap_or(Value::None), separators, truth(sort_keys))?;
    json::dumps(value, &style).map(Value::from)
}

/// Jinja2's own `tojson`, which is for HTML: its signs are escaped and its keys sorted.
fn to_json_for_html(arguments: &Arguments) -> Result<Value, String> {
    let value = arguments.value();
    let [_, indent] = arguments.bind("tojson", ["value", "indent"])?;
    let style = json::style(true, &indent.unwrap_or(Value::None), None, true)?;
    let mut text = json::dumps(value, &style)?;
    for (sign, escaped) in [("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("'", "\\u0027")]
    {
        text = text.replace(sign, escaped);
    }
    Ok(Value::Markup(Arc::from(text)))
}

fn round(arguments: &Arguments) -> Result<Value, String> {
    let [_, precision, method] = arguments.bind("round", ["value", "precision", "method"])?;
    let precision = integer(precision, 0, "round")?;
    let method = method.as_ref().and_then(Value::as_str).unwrap_or("common");
    rounded(arguments.value(), precision, method)
}

fn map(run: &dyn Evaluation, arguments: &Arguments) -> Result<Value, String> {
    let items = arguments.value().iterate()?;
    let mut results = Vec::with_capacity(items.len());
    match arguments.positional.get(1) {
        None => {
            let keywords =
                Arguments { positional: Vec::new(), keywords: arguments.keywords.clone() };
            let [attribute, default] = keywords.bind("map", ["attribute", "default"])?;
            let path = attribute.ok_or("map requires a filter argument")?;
            let default = default.filter(|default| !matches!(default, Value::None));
            for item in &items {
                results.push(along(item, &path, default.as_ref())?);
            }
        }
        Some(name) => {
            let name = name.as_str().ok_or("map needs the name of a filter")?;
            for item in items {
                results.push(run.filter(name, &with(item, arguments, 2))?);
            }
        }
    }
    Ok(Value::generator(results))
}

/// A call's arguments from a position on, with another value before them.
fn with(item: Value, arguments: &Arguments, from: usize) -> Arguments {
    let rest = arguments.positional.get(from..).unwrap_or_default();
    let positional = std::iter::once(item).chain(rest.iter().cloned()).collect();
    Arguments { positional, keywords: arguments.keywords.clone() }
}

fn select(run: &dyn Evaluation, name: &str, arguments: &Arguments) -> Result<Value, String> {
    let by_attribute = name.ends_with("attr");
    let path = match by_attribute {
        true => Some(arguments.at(1).ok_or("Missing parameter for attribute name")?),
        false => None,
    };
    let at = if by_attribute { 2 } else { 1 };
    let mut kept = Vec::new();
    for item in arguments.value().iterate()? {
        let tested = along(&item, path.unwrap_or(&Value::None), None)?;
        let holds = match arguments.at(at) {
            None => run.is_true(&tested)?,
            Some(test) => {
                let test = test.as_str().ok_or("a test is named by a text")?;
                run.test(test, &with(tested, arguments, at + 1))?
            }
        };
        if holds == name.starts_with("select") {
            kept.push(item);
        }
    }
    Ok(Value::generator(kept))
}

/// Refuses digits of other scripts, which Python's numbers may have.
fn ascii_digits(value: &Value) -> Result<(), String> {
    let text = value.as_str().unwrap_or_default();
    match text.chars().any(|c| !c.is_ascii() && text::is_decimal(c)) {
        true => Err("a number with digits of another script is not supported by canonc".to_owned()),
        false => Ok(()),
    }
}

/// Digits in groups, as Python's numbers in texts have them.
fn is_grouped(digits: &str) -> bool {
    digits.split('_').all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
}

/// Python's `int(text)`.
fn parse_int(text: &str) -> Option<i128> {
    let text = text::strip(text, None, true, true);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    is_grouped(digits).then(|| text.replace('_', "").parse().ok()).flatten()
}

/// Python's `float(text)`.
fn parse_float(text: &str) -> Option<f64> {
    let text = text::strip(text, None, true, true).to_ascii_lowercase();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(&text);
    if ["inf", "infinity", "nan"].contains(&unsigned) {
        return text.parse().ok();
    }
    let (number, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_part = |digits: &str| digits.is_empty() || is_grouped(digits);
    let is_number = is_part(whole)
        && is_part(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && is_grouped(exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
    is_number.then(|| text.replace('_', "").parse().ok()).flatten()
}

/// Rounds a half to the even neighbour, as Python's `round`.
fn rounded(value: &Value, precision: i128, method: &str) -> Result<Value, String> {
    let precision = i32::try_from(precision.clamp(-400, 400)).unwrap_or(0);
    let number = value.as_float().ok_or_else(|| match value {
        Value::Undefined(message) => message.to_string(),
        other => format!("type {} doesn't define __round__ method", other.type_name()),
    })?;
    if method == "common" {
        if let Some(whole) = value.as_int() {
            if precision >= 0 {
                return Ok(Value::Int(whole));
            }
            let unit = 10i128.checked_pow(precision.unsigned_abs());
            return Ok(Value::Int(unit.map_or(0, |unit| {
                let (down, rest) = (whole.div_euclid(unit), whole.rem_euclid(unit));
                let up = rest * 2 > unit || (rest * 2 == unit && down % 2 != 0);
                (down + i128::from(up)) * unit
            })));
        }
        let rounded = match usize::try_from(precision) {
            // Exact decimal digits, a half to the even one.
            Ok(digits) => format!("{number:.digits$}").parse().unwrap_or(number),
            Err(_) => {
                let unit = 10f64.powi(-precision);
                (number / unit).round_ties_even() * unit
            }
        };
        return Ok(Value::Float(rounded));
    }
    let scale = 10f64.powi(precision);
    let scaled = number * scale;
    if !scaled.is_finite() {
        return Err("cannot convert float infinity or NaN to integer".to_owned());
    }
    match method {
        "ceil" => Ok(Value::Float(scaled.ceil() / scale)),
        "floor" => Ok(Value::Float(scaled.floor() / scale)),
        _ => Err("method must be common, ceil or floor".to_owned()),
    }
}
