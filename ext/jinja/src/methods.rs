//! Methods of Python's strings, dictionaries, lists and tuples.

use std::sync::Arc;

use crate::arguments::Arguments;
use crate::entries::LARGEST;
use crate::format;
use crate::method_names::*;
use crate::text;
use crate::value::Value;

/// Calls a method.
pub(crate) fn call(value: &Value, name: &str, arguments: &Arguments) -> Result<Value, String> {
    if let Some((keyword, _)) = arguments.keywords().first()
        && !["format", "split", "rsplit", "splitlines"].contains(&name)
    {
        return Err(format!("{name}() takes no keyword arguments: '{keyword}'"));
    }
    if !arguments.positional().is_empty() && WITHOUT_ARGUMENTS.contains(&name) {
        return Err(format!("{name}() takes no arguments"));
    }
    match value {
        Value::Str(text) => StringCall { text, name, arguments }.run(),
        Value::Map(entries) => match name {
            "get" => {
                let [key, default] = arguments.bind(name, ["key", "default"])?;
                let key = key.ok_or("get expected at least 1 argument, got 0")?;
                key.hashable()?;
                Ok(value.get(&key).or(default).unwrap_or(Value::None))
            }
            "items" => {
                let pair =
                    |(key, value): &(Value, Value)| Value::tuple(vec![key.clone(), value.clone()]);
                Ok(Value::View("dict_items", Value::items(entries.iter().map(pair).collect())))
            }
            "keys" => {
                let keys = entries.iter().map(|(key, _)| key.clone()).collect();
                Ok(Value::View("dict_keys", Value::items(keys)))
            }
            "values" => {
                let values = entries.iter().map(|(_, value)| value.clone()).collect();
                Ok(Value::View("dict_values", Value::items(values)))
            }
            "copy" => Ok(value.clone()),
            name => Err(changes(value, name)),
        },
        Value::List(items) | Value::Tuple(items) => {
            let [wanted] = arguments.bind(name, ["value"])?;
            let is_wanted =
                |item: &&Value| wanted.as_ref().is_some_and(|wanted| item.equals(wanted));
            match name {
                "count" => Ok(Value::int(items.iter().filter(is_wanted).count())),
                "index" => {
                    let at = items.iter().position(|item| is_wanted(&item)).map(Value::int);
                    at.ok_or_else(|| {
                        let wanted = wanted.as_ref().and_then(|wanted| wanted.repr().ok());
                        format!("{} is not in the list", wanted.unwrap_or_default())
                    })
                }
                "copy" => Ok(value.clone()),
                name => Err(changes(value, name)),
            }
        }
        Value::Float(number) if name == "is_integer" => Ok(Value::Bool(number.fract() == 0.0)),
        Value::Int(_) | Value::Bool(_) if name == "is_integer" => Ok(Value::Bool(true)),
        Value::Markup(_) => Err(format!("`.{name}()` of a safe text is not supported by canonc")),
        other => Err(format!("'{}' object has no method '{name}'", other.type_name())),
    }
}

fn changes(value: &Value, name: &str) -> String {
    format!(
        "`.{name}()` changes a {}, which templates may not: make another with `+` or a filter",
        value.type_name()
    )
}

/// Python's `str.islower`.
pub(crate) fn is_lower(text: &str) -> bool {
    text.chars().any(text::is_cased)
        && !text.chars().any(|c| text::is_cased(c) && !c.is_lowercase())
}

/// Python's `str.isupper`.
pub(crate) fn is_upper(text: &str) -> bool {
    text.chars().any(text::is_cased)
        && !text.chars().any(|c| text::is_cased(c) && !c.is_uppercase())
}

/// Python's `str.capitalize`.
pub(crate) fn capitalize(text: &str) -> String {
    let Some(first) = text.chars().next() else { return String::new() };
    // A sigma at the end of a word depends on what is before it.
    let all = text.to_lowercase();
    let lowered: usize = first.to_lowercase().map(char::len_utf8).sum();
    text::title(first) + all.get(lowered..).unwrap_or_default()
}

/// Python's `str.center`: of an odd number of blanks, more stand on the left if the width is odd.
pub(crate) fn center(text: &str, width: i128, fill: &str) -> Result<String, String> {
    let length = text.chars().count();
    let missing = missing(length, width)?;
    let left = missing / 2 + (missing & (length + missing) & 1);
    Ok(format!("{}{text}{}", fill.repeat(left), fill.repeat(missing - left)))
}

fn missing(length: usize, width: i128) -> Result<usize, String> {
    let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
    match width <= LARGEST {
        true => Ok(width.saturating_sub(length)),
        false => Err(format!("a text of {width} characters; the limit is {LARGEST}")),
    }
}

fn titled(text: &str) -> String {
    let mut out = String::new();
    let mut after_cased = false;
    for c in text.chars() {
        if after_cased {
            out.extend(c.to_lowercase());
        } else {
            out += &text::title(c);
        }
        after_cased = text::is_cased(c);
    }
    out
}

fn wanted(value: Option<Value>, name: &str) -> Result<Arc<str>, String> {
    match value {
        Some(Value::Str(text)) => Ok(text),
        Some(Value::Undefined(message)) => Err(message.to_string()),
        Some(other) => Err(format!("{name}() needs a str, not {}", other.type_name())),
        None => Err(format!("{name}() needs an argument")),
    }
}

/// Letters that are numbers in Python: of Chinese, Japanese and Korean texts, and Roman numerals.
fn is_numeral(c: char) -> bool {
    matches!(c, '\u{2160}'..='\u{2188}' | '\u{3007}' | '\u{3021}'..='\u{3029}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

fn one_character(fill: Option<Value>, name: &str) -> Result<Arc<str>, String> {
    let fill = fill.map_or(Ok(Arc::from(" ")), |fill| wanted(Some(fill), name))?;
    match fill.chars().count() {
        1 => Ok(fill),
        _ => Err("The fill character must be exactly one character long".to_owned()),
    }
}

fn number(value: Option<Value>, default: i128) -> Result<i128, String> {
    match value {
        None | Some(Value::None) => Ok(default),
        Some(value) => value.as_int().ok_or_else(|| {
            format!("'{}' object cannot be interpreted as an integer", value.type_name())
        }),
    }
}

/// Most parts of a text, each of which is a value.
const PARTS: usize = 1 << 18;

fn list<'t>(parts: impl IntoIterator<Item = &'t str>) -> Result<Value, String> {
    let all: Vec<Value> = parts.into_iter().take(PARTS + 1).map(Value::from).collect();
    match all.len() <= PARTS {
        true => Ok(Value::from(all)),
        false => Err(format!("a text of more than {PARTS} parts")),
    }
}

/// The part of a text between two positions, and the characters before it.
fn part(text: &str, start: Option<Value>, end: Option<Value>) -> Result<(String, i128), String> {
    let length = i128::try_from(text.chars().count()).unwrap_or(i128::MAX);
    let bound = |at: i128| if at < 0 { (at + length).max(0) } else { at };
    let (start, end) = (bound(number(start, 0)?), bound(number(end, length)?));
    let skip = usize::try_from(start).unwrap_or(usize::MAX);
    let take = usize::try_from((end.min(length) - start).max(0)).unwrap_or(0);
    Ok((text.chars().skip(skip).take(take).collect(), start))
}

/// A call of a method of a text.
struct StringCall<'a> {
    text: &'a Arc<str>,
    name: &'a str,
    arguments: &'a Arguments,
}

impl StringCall<'_> {
    fn run(&self) -> Result<Value, String> {
        let StringCall { text, name, arguments } = *self;
        self.refuse_unknown_digits()?;
        match name {
            "capitalize" => Ok(Value::from(capitalize(text))),
            "casefold" if text.is_ascii() => Ok(Value::from(text.to_lowercase())),
            "center" => self.center(),
            "count" => self.count(),
            "endswith" => self.has_affix(true),
            "startswith" => self.has_affix(false),
            "find" => self.search(false, false),
            "rfind" => self.search(true, false),
            "index" => self.search(false, true),
            "rindex" => self.search(true, true),
            "format" => {
                let text = format::braces(text, arguments.positional(), arguments.keywords())?;
                Ok(Value::from(text))
            }
            "isalnum" => self.all(|c| text::is_letter(c) || c.is_numeric()),
            "isalpha" => self.all(text::is_letter),
            "isascii" => Ok(Value::Bool(text.is_ascii())),
            "isdecimal" => self.all(text::is_decimal),
            "isdigit" => self.all(|c| text::is_decimal(c) || "²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉".contains(c)),
            "islower" => Ok(Value::Bool(is_lower(text))),
            "isnumeric" => self.all(char::is_numeric),
            "isspace" => self.all(text::is_space),
            "istitle" => {
                Ok(Value::Bool(text.chars().any(text::is_cased) && titled(text) == **text))
            }
            "isupper" => Ok(Value::Bool(is_upper(text))),
            "join" => self.join(),
            "ljust" => self.pad(false),
            "rjust" => self.pad(true),
            "lower" => Ok(Value::from(text.to_lowercase())),
            "upper" => Ok(Value::from(text.to_uppercase())),
            "title" if text.contains('Σ') => {
                Err("`.title()` of a text with Σ is not supported by canonc".to_owned())
            }
            "title" => Ok(Value::from(titled(text))),
            "swapcase" => Ok(Value::from(swap_case(text))),
            "strip" => self.strip(true, true),
            "lstrip" => self.strip(true, false),
            "rstrip" => self.strip(false, true),
            "partition" => self.partition(false),
            "rpartition" => self.partition(true),
            "removeprefix" => self.remove_prefix(),
            "removesuffix" => self.remove_suffix(),
            "replace" => {
                let [old, new, count] = arguments.bind(name, ["old", "new", "count"])?;
                replace(text, &wanted(old, name)?, &wanted(new, name)?, number(count, -1)?)
            }
            "split" | "rsplit" => self.split(),
            "splitlines" => {
                let [keepends] = arguments.bind(name, ["keepends"])?;
                list(text::lines(text, keepends.is_some_and(|keep| keep.is_true())))
            }
            "zfill" => self.zero_fill(),
            name => Err(format!("the method `.{name}()` is not supported by canonc")),
        }
    }

    /// Refuses digits that Python may know and these functions do not.
    fn refuse_unknown_digits(&self) -> Result<(), String> {
        let StringCall { text, name, .. } = *self;
        // Other signs than these and letters may be digits in Python.
        let is_known =
            |c: char| c.is_ascii() || text::is_decimal(c) || "²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉½".contains(c);
        let are_known = text.chars().all(|c| is_known(c) || text::is_letter(c) && !is_numeral(c));
        if ["isdigit", "isnumeric", "isalnum"].contains(&name) && !are_known {
            return Err(format!("`.{name}()` of such characters is not supported by canonc"));
        }
        Ok(())
    }

    fn length(&self) -> i128 {
        i128::try_from(self.text.chars().count()).unwrap_or(i128::MAX)
    }

    fn all(&self, holds: fn(char) -> bool) -> Result<Value, String> {
        Ok(Value::Bool(!self.text.is_empty() && self.text.chars().all(holds)))
    }

    fn strip(&self, left: bool, right: bool) -> Result<Value, String> {
        let [characters] = self.arguments.bind(self.name, ["chars"])?;
        let characters = match characters {
            None | Some(Value::None) => None,
            some => Some(wanted(some, self.name)?),
        };
        Ok(Value::from(text::strip(self.text, characters.as_deref(), left, right)))
    }

    fn center(&self) -> Result<Value, String> {
        let [width, fill] = self.arguments.bind(self.name, ["width", "fillchar"])?;
        let fill = one_character(fill, self.name)?;
        Ok(Value::from(center(self.text, number(width, 0)?, &fill)?))
    }

    fn pad(&self, left: bool) -> Result<Value, String> {
        let [width, fill] = self.arguments.bind(self.name, ["width", "fillchar"])?;
        let fill = one_character(fill, self.name)?;
        let missing = missing(self.text.chars().count(), number(width, 0)?)?;
        let fill = fill.repeat(missing);
        Ok(Value::from(if left { fill + self.text } else { self.text.to_string() + &fill }))
    }

    fn zero_fill(&self) -> Result<Value, String> {
        let [width] = self.arguments.bind(self.name, ["width"])?;
        let missing = missing(self.text.chars().count(), number(width, 0)?)?;
        let (sign, digits) = match self.text.chars().next() {
            Some(sign @ ('+' | '-')) => (sign.to_string(), self.text.get(1..).unwrap_or_default()),
            _ => (String::new(), &**self.text),
        };
        Ok(Value::from(format!("{sign}{}{digits}", "0".repeat(missing))))
    }

    fn count(&self) -> Result<Value, String> {
        let [sub, start, end] = self.arguments.bind(self.name, ["sub", "start", "end"])?;
        let sub = wanted(sub, self.name)?;
        let (within, before) = part(self.text, start, end)?;
        Ok(Value::int(match sub.is_empty() {
            true if before > self.length() => 0,
            true => within.chars().count() + 1,
            false => within.matches(&*sub).count(),
        }))
    }

    /// `find` and its kin; `fails` if an absent part is an error.
    fn search(&self, from_end: bool, fails: bool) -> Result<Value, String> {
        let [sub, start, end] = self.arguments.bind(self.name, ["sub", "start", "end"])?;
        let sub = wanted(sub, self.name)?;
        let (within, before) = part(self.text, start, end)?;
        let at = if from_end { within.rfind(&*sub) } else { within.find(&*sub) };
        let at = at.filter(|_| before <= self.length());
        let at = at.map(|at| within.get(..at).unwrap_or_default().chars().count());
        match at {
            Some(at) => Ok(Value::Int(i128::try_from(at).unwrap_or(0) + before)),
            None if fails => Err("substring not found".to_owned()),
            None => Ok(Value::Int(-1)),
        }
    }

    fn has_affix(&self, at_end: bool) -> Result<Value, String> {
        let [affix, start, end] = self.arguments.bind(self.name, ["prefix", "start", "end"])?;
        let (within, before) = part(self.text, start, end)?;
        let is_inside = before <= self.length();
        let has = |affix: &str| {
            is_inside && if at_end { within.ends_with(affix) } else { within.starts_with(affix) }
        };
        match affix {
            Some(Value::Tuple(affixes)) => {
                let any = affixes.iter().filter_map(Value::as_str).any(has);
                Ok(Value::Bool(any))
            }
            affix => Ok(Value::Bool(has(&wanted(affix, self.name)?))),
        }
    }

    fn remove_prefix(&self) -> Result<Value, String> {
        let [prefix] = self.arguments.bind(self.name, ["prefix"])?;
        let prefix = wanted(prefix, self.name)?;
        Ok(Value::from(self.text.strip_prefix(&*prefix).unwrap_or(self.text)))
    }

    fn remove_suffix(&self) -> Result<Value, String> {
        let [suffix] = self.arguments.bind(self.name, ["suffix"])?;
        let suffix = wanted(suffix, self.name)?;
        Ok(Value::from(self.text.strip_suffix(&*suffix).unwrap_or(self.text)))
    }

    fn partition(&self, from_end: bool) -> Result<Value, String> {
        let [separator] = self.arguments.bind(self.name, ["sep"])?;
        let separator = wanted(separator, self.name)?;
        if separator.is_empty() {
            return Err("empty separator".to_owned());
        }
        let split = match from_end {
            true => self.text.rsplit_once(&*separator),
            false => self.text.split_once(&*separator),
        };
        let parts = match (split, from_end) {
            (Some((left, right)), _) => [left, &separator, right],
            (None, false) => [self.text, "", ""],
            (None, true) => ["", "", self.text],
        };
        Ok(Value::tuple(parts.map(Value::from).to_vec()))
    }

    fn split(&self) -> Result<Value, String> {
        let StringCall { text, name, arguments } = *self;
        let [separator, count] = arguments.bind(name, ["sep", "maxsplit"])?;
        let count = number(count, -1)?;
        let parts = usize::try_from(count).map_or(usize::MAX, |count| count.saturating_add(1));
        let separator = match separator {
            None | Some(Value::None) => {
                return list(split_blanks(text, parts, name == "rsplit"));
            }
            some => wanted(some, name)?,
        };
        if separator.is_empty() {
            return Err("empty separator".to_owned());
        }
        if name == "split" {
            return list(text.splitn(parts, &*separator));
        }
        let mut parts: Vec<&str> = text.rsplitn(parts, &*separator).take(PARTS + 1).collect();
        parts.reverse();
        list(parts)
    }

    fn join(&self) -> Result<Value, String> {
        let [items] = self.arguments.bind(self.name, ["iterable"])?;
        let items = items.ok_or("join() takes exactly one argument")?.iterate()?;
        let mut parts = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let part = item.as_str().ok_or_else(|| {
                format!("sequence item {at}: expected str instance, {} found", item.type_name())
            })?;
            parts.push(part);
        }
        let size: usize = parts.iter().map(|part| part.len() + self.text.len()).sum();
        match size <= LARGEST {
            true => Ok(Value::from(parts.join(self.text))),
            false => Err(format!("a text of {size} bytes; the limit is {LARGEST}")),
        }
    }
}

/// Python's `str.swapcase`.
fn swap_case(text: &str) -> String {
    let swapped = text.chars().flat_map(|c| {
        let swapped: Vec<char> = match c.is_uppercase() {
            true => c.to_lowercase().collect(),
            false => c.to_uppercase().collect(),
        };
        swapped
    });
    swapped.collect()
}

/// Python's `str.replace`; a negative count replaces all.
pub(crate) fn replace(text: &str, old: &str, new: &str, count: i128) -> Result<Value, String> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let matches = match old.is_empty() {
        true => text.chars().count() + 1,
        false => text.matches(old).count(),
    };
    let size = text.len().saturating_add(matches.min(count).saturating_mul(new.len()));
    match size <= LARGEST {
        true => Ok(Value::from(text.replacen(old, new, count))),
        false => Err(format!("a text of {size} bytes; the limit is {LARGEST}")),
    }
}

/// Python's `str.split` without a separator: between runs of white space, at most `parts` parts.
fn split_blanks(text: &str, parts: usize, from_end: bool) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text::strip(text, None, !from_end, from_end);
    if from_end {
        while !text::strip(rest, None, true, false).is_empty() {
            if pieces.len() + 1 >= parts {
                pieces.push(text::strip(rest, None, false, true));
                break;
            }
            let at = rest.rfind(text::is_space);
            let start = at.map_or(0, |at| {
                at + rest.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
            });
            pieces.push(rest.get(start..).unwrap_or_default());
            rest = text::strip(rest.get(..start).unwrap_or_default(), None, false, true);
        }
        pieces.reverse();
        return pieces;
    }
    while !rest.is_empty() {
        if pieces.len() + 1 >= parts {
            // The last part keeps the white space at the end.
            pieces.push(rest);
            break;
        }
        let end = rest.find(text::is_space).unwrap_or(rest.len());
        pieces.push(rest.get(..end).unwrap_or_default());
        rest = text::strip(rest.get(end..).unwrap_or_default(), None, true, false);
    }
    pieces
}
