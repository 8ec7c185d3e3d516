//! The values of fields, and their canonical text.
//!
//! In: a TOML value as written (numbers by their digits, never through a float). Out: a checked
//! [`FieldValue`]. Must stay true: equal values have equal texts, and the text reads back to the same
//! value; NaN, infinity and −0 are refused; strings are in Unicode's composed form (NFC).

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use dsl::Decimal;
use tasks::metric::{EVAL_LOSS, EXACT_MATCH};
use toml::de::DeValue;
use unicode_normalization::UnicodeNormalization;

use super::{pattern, suite_task};

/// Most significant digits of a real, so that products of two of them and a step count are exact.
pub(crate) const MAX_DIGITS: usize = 9;
/// Most entries of a list.
pub(crate) const MAX_LIST: usize = 1000;
/// Most bytes of a name.
pub(crate) const MAX_NAME: usize = 120;

/// A value of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// An integer.
    Int(i64),
    /// An integer beyond i63, written as a hexadecimal string: a seed, a count of operations.
    Big(u128),
    /// An exact decimal.
    Real(Decimal),
    /// `true` or `false`.
    Bool(bool),
    /// A word or name.
    Text(String),
    /// Several values, in order.
    List(Vec<FieldValue>),
}

/// The values that a field accepts.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An integer from the first bound to the second, both included.
    Int(i64, i64),
    /// An integer in bounds, or this word.
    IntOr(i64, i64, &'static str),
    /// A real in bounds.
    Real(Bounds),
    /// A real in bounds, or this word.
    RealOr(Bounds, &'static str),
    /// Two reals in bounds.
    Pair(Bounds),
    /// `true` or `false`.
    Bool,
    /// One of these words; words in the second list are reserved for the future.
    Word(&'static [&'static str], &'static [&'static str]),
    /// A set of these words.
    Words(&'static [&'static str]),
    /// A user-chosen name.
    Name,
    /// A list of distinct names, in order.
    Names,
    /// A subset of these letters.
    Letters(&'static str),
    /// 0 to 2^64 − 1.
    Seed,
    /// A list of integers, each within these bounds.
    Ints(i64, i64),
    /// 64 hexadecimal digits, or `unbound`.
    Digest,
    /// A set of patterns of parameters.
    Patterns,
    /// A set of patterns of parameters, each with a real in bounds.
    Multipliers(Bounds),
    /// A list of tasks of evaluation suites.
    Tasks,
}

/// The range of a real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// 0 < x
    Positive,
    /// 0 <= x
    AtLeastZero,
    /// 0 <= x <= 1
    Share,
    /// 0 < x <= 1
    PositiveShare,
    /// 0 <= x < 1
    BelowOne,
}

/// The word for data without a digest.
pub const UNBOUND: &str = "unbound";

impl Bounds {
    pub(super) fn hold(self, x: Decimal) -> bool {
        let positive = !x.is_negative() && !x.is_zero();
        let to_one = x.compare(Decimal::ONE);
        match self {
            Bounds::Positive => positive,
            Bounds::AtLeastZero => !x.is_negative(),
            Bounds::Share => !x.is_negative() && to_one != Ordering::Greater,
            Bounds::PositiveShare => positive && to_one != Ordering::Greater,
            Bounds::BelowOne => !x.is_negative() && to_one == Ordering::Less,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Bounds::Positive => "a number above 0",
            Bounds::AtLeastZero => "a number of 0 or more",
            Bounds::Share => "a number from 0 to 1",
            Bounds::PositiveShare => "a number above 0 and at most 1",
            Bounds::BelowOne => "a number from 0 and below 1",
        }
    }
}

impl Kind {
    /// Whether it is one of a field's words.
    pub fn has_word(&self, word: &str) -> bool {
        matches!(self, Kind::Word(words, _) if words.contains(&word))
    }

    /// Describes the accepted values to a user.
    pub fn describe(self) -> String {
        match self {
            Kind::Int(low, high) => format!("an integer from {low} to {high}"),
            Kind::IntOr(low, high, word) => {
                format!("an integer from {low} to {high}, or \"{word}\"")
            }
            Kind::Real(bounds) => bounds.words().to_owned(),
            Kind::RealOr(bounds, word) => format!("{}, or \"{word}\"", bounds.words()),
            Kind::Pair(bounds) => format!("a list of two numbers, each {}", bounds.words()),
            Kind::Bool => "true or false".to_owned(),
            Kind::Word([word], _) => format!("\"{word}\""),
            Kind::Word(words, _) => one_of(words),
            Kind::Words(words) => format!("a list of some of {}", quoted(words)),
            Kind::Name => format!("a name of 1 to {MAX_NAME} bytes without control characters"),
            Kind::Names => format!("a list of distinct names, each of 1 to {MAX_NAME} bytes"),
            Kind::Letters(letters) => format!("some of the letters \"{letters}\", each once"),
            Kind::Seed => {
                "an integer from 0 to 2^63 - 1, or a string like \"0xffff0123\" up to 64 bits"
                    .to_owned()
            }
            Kind::Ints(low, high) => format!("a list of integers from {low} to {high}"),
            Kind::Digest => format!("64 hexadecimal digits, or \"{UNBOUND}\""),
            Kind::Patterns => "a list of patterns of parameters".to_owned(),
            Kind::Multipliers(bounds) => {
                format!("a list of pairs of a pattern of parameters and {}", bounds.words())
            }
            Kind::Tasks => "a list of tasks of suites, as `canonc build` writes it".to_owned(),
        }
    }

    /// What to write instead of a float such as 2.0 where an integer is wanted.
    fn whole(self, value: &DeValue<'_>) -> String {
        match self {
            Kind::Int(..) | Kind::IntOr(..) | Kind::Seed => as_integer(value),
            Kind::Real(_)
            | Kind::RealOr(..)
            | Kind::Pair(_)
            | Kind::Bool
            | Kind::Word(..)
            | Kind::Words(_)
            | Kind::Name
            | Kind::Names
            | Kind::Letters(_)
            | Kind::Ints(..)
            | Kind::Digest
            | Kind::Patterns
            | Kind::Multipliers(_)
            | Kind::Tasks => String::new(),
        }
    }

    /// Reads a value from its text in TOML.
    pub fn parse(self, text: &str) -> Result<FieldValue, String> {
        let parsed = DeValue::parse(text).map_err(|error| error.message().to_owned())?;
        self.read(parsed.get_ref())
    }

    /// Reads a value as written; `Err` explains the problem.
    pub fn read(self, value: &DeValue<'_>) -> Result<FieldValue, String> {
        let wrong =
            || Err(format!("{} is not {}{}", shown(value), self.describe(), self.whole(value)));
        match (self, value) {
            (Kind::Int(low, high) | Kind::IntOr(low, high, _), DeValue::Integer(_)) => {
                match int(value)? {
                    n if (low..=high).contains(&n) => Ok(FieldValue::Int(n)),
                    _ => wrong(),
                }
            }
            (Kind::IntOr(_, _, word) | Kind::RealOr(_, word), DeValue::String(text))
                if text == word =>
            {
                Ok(FieldValue::Text(word.to_owned()))
            }
            (
                Kind::Real(bounds) | Kind::RealOr(bounds, _),
                DeValue::Integer(_) | DeValue::Float(_),
            ) => {
                let x = real(value)?;
                if bounds.hold(x) { Ok(FieldValue::Real(x)) } else { wrong() }
            }
            (Kind::Pair(bounds), DeValue::Array(items)) => {
                let mut pair = Vec::new();
                for item in items {
                    let x = real(item.get_ref())?;
                    if !bounds.hold(x) {
                        return wrong();
                    }
                    pair.push(FieldValue::Real(x));
                }
                if pair.len() == 2 { Ok(FieldValue::List(pair)) } else { wrong() }
            }
            (Kind::Bool, DeValue::Boolean(b)) => Ok(FieldValue::Bool(*b)),
            (Kind::Word(words, later), DeValue::String(text)) => {
                if words.contains(&text.as_ref()) {
                    return Ok(FieldValue::Text(text.to_string()));
                }
                if later.contains(&text.as_ref()) {
                    return Err(format!(
                        "\"{text}\" is not implemented yet; there is {}",
                        quoted(words)
                    ));
                }
                match dsl::suggest(text, words.iter().copied()) {
                    Some(near) => Err(format!(
                        "\"{text}\" is not {}; did you mean \"{near}\"?",
                        self.describe()
                    )),
                    None => wrong(),
                }
            }
            (Kind::Words(words), DeValue::Array(items)) => {
                let mut set = Vec::new();
                for item in items {
                    let word = string(item.get_ref()).filter(|text| words.contains(text));
                    let none = || match renamed(item.get_ref()) {
                        Some(renamed) => renamed,
                        None => {
                            format!("{} is not one of {}", shown(item.get_ref()), quoted(words))
                        }
                    };
                    set.push(word.ok_or_else(none)?.to_owned());
                }
                set.sort();
                set.dedup();
                Ok(FieldValue::List(set.into_iter().map(FieldValue::Text).collect()))
            }
            (Kind::Name, DeValue::String(text)) => name(text).map_or_else(wrong, Ok),
            (Kind::Names, DeValue::Array(items)) => {
                if items.len() > MAX_LIST {
                    return Err(format!("a list of {} is longer than {MAX_LIST}", items.len()));
                }
                let mut list = Vec::new();
                for item in items {
                    match string(item.get_ref()).and_then(name) {
                        Some(name) if list.contains(&name) => {
                            return Err(format!("{} is given twice", shown(item.get_ref())));
                        }
                        Some(name) => list.push(name),
                        None => {
                            return Err(format!("{} is not a valid name", shown(item.get_ref())));
                        }
                    }
                }
                Ok(FieldValue::List(list))
            }
            (Kind::Letters(letters), DeValue::String(text)) => {
                let once = text.chars().enumerate().all(|(i, c)| {
                    letters.contains(c) && text.chars().skip(i + 1).all(|other| other != c)
                });
                if once && !text.is_empty() {
                    Ok(FieldValue::Text(text.to_string()))
                } else {
                    wrong()
                }
            }
            (Kind::Seed, DeValue::Integer(_)) => match int(value)? {
                n if n >= 0 => Ok(FieldValue::Int(n)),
                _ => wrong(),
            },
            (Kind::Seed, DeValue::String(text)) => {
                let digits = text.strip_prefix("0x").filter(|d| (1..=16).contains(&d.len()));
                let digits = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
                match digits.and_then(|d| u64::from_str_radix(d, 16).ok()) {
                    Some(n) => Ok(FieldValue::count(i128::from(n))),
                    None => wrong(),
                }
            }
            (Kind::Ints(low, high), DeValue::Array(items)) => {
                if items.len() > MAX_LIST {
                    return Err(format!("a list of {} is longer than {MAX_LIST}", items.len()));
                }
                let mut list = Vec::new();
                for item in items {
                    match int(item.get_ref())? {
                        n if (low..=high).contains(&n) => list.push(FieldValue::Int(n)),
                        n => return Err(format!("{n} is not an integer from {low} to {high}")),
                    }
                }
                Ok(FieldValue::List(list))
            }
            (Kind::Patterns, DeValue::Array(items)) => pattern::read(items, None),
            (Kind::Multipliers(bounds), DeValue::Array(items)) => {
                pattern::read(items, Some(bounds))
            }
            (Kind::Tasks, DeValue::Array(items)) => suite_task::read(items),
            (Kind::Digest, DeValue::String(text)) => {
                let text = text.to_lowercase();
                if text == UNBOUND || compiler::digest::Digest::parse(&text).is_some() {
                    return Ok(FieldValue::Text(text));
                }
                wrong()
            }
            (
                Kind::Int(..)
                | Kind::IntOr(..)
                | Kind::Real(_)
                | Kind::RealOr(..)
                | Kind::Pair(_)
                | Kind::Bool
                | Kind::Word(..)
                | Kind::Words(_)
                | Kind::Name
                | Kind::Names
                | Kind::Letters(_)
                | Kind::Seed
                | Kind::Ints(..)
                | Kind::Digest
                | Kind::Patterns
                | Kind::Multipliers(_)
                | Kind::Tasks,
                _,
            ) => wrong(),
        }
    }
}

/// A name in its composed form.
fn name(text: &str) -> Option<FieldValue> {
    let text: String = text.nfc().collect();
    let fits = !text.trim().is_empty() && text.len() <= MAX_NAME;
    (fits && !text.chars().any(char::is_control)).then_some(FieldValue::Text(text))
}

/// `"a", "b"`
pub(crate) fn one_of(words: &[&str]) -> String {
    format!("one of {}", quoted(words))
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", ")
}

/// Metrics whose name has changed.
const RENAMED_METRICS: [(&str, &str); 2] = [("answer_accuracy", EXACT_MATCH), ("loss", EVAL_LOSS)];

/// Why an earlier name of a metric is refused.
pub(crate) fn renamed(value: &DeValue<'_>) -> Option<String> {
    let name = string(value)?;
    let (old, new) = RENAMED_METRICS.iter().find(|(old, _)| *old == name)?;
    Some(format!("\"{old}\" is now called \"{new}\""))
}

/// Formats a TOML value on one line.
pub(crate) fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => {
            let short: String = text.chars().take(60).collect();
            let more = if short.len() < text.len() { "…" } else { "" };
            quote(&format!("{short}{more}"))
        }
        DeValue::Integer(n) => n.to_string(),
        DeValue::Float(x) => x.to_string(),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(d) => format!("the date {d}"),
        DeValue::Array(items) => {
            let parts: Vec<String> = items.iter().take(6).map(|i| shown(i.get_ref())).collect();
            let more = if items.len() > parts.len() { ", …" } else { "" };
            format!("[{}{more}]", parts.join(", "))
        }
        DeValue::Table(_) => "a table".to_owned(),
    }
}

pub(crate) fn string<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    if let DeValue::String(text) = value { Some(text) } else { None }
}

/// One entry of an axis, as values of `fields` fields; `None` if their number differs.
pub(crate) fn row<'a, 'i>(value: &'a DeValue<'i>, fields: usize) -> Option<Vec<&'a DeValue<'i>>> {
    if fields == 1 {
        return Some(vec![value]);
    }
    let DeValue::Array(items) = value else { return None };
    (items.len() == fields).then(|| items.iter().map(toml::Spanned::get_ref).collect())
}

/// `: write 2` for the float 2.0.
fn as_integer(value: &DeValue<'_>) -> String {
    let DeValue::Float(written) = value else { return String::new() };
    let number = Decimal::parse(written.as_str()).ok().and_then(Decimal::to_int);
    number.map_or(String::new(), |n| format!(": write {n}"))
}

fn int(value: &DeValue<'_>) -> Result<i64, String> {
    let DeValue::Integer(written) = value else {
        return Err(format!("{} is not an integer{}", shown(value), as_integer(value)));
    };
    if written.as_str() == "-0" {
        return Err("-0 is not allowed: write 0".to_owned());
    }
    i64::from_str_radix(written.as_str(), written.radix())
        .map_err(|_| format!("{written} does not fit into 64 bits"))
}

/// The exact number with these digits.
pub(super) fn real(value: &DeValue<'_>) -> Result<Decimal, String> {
    let text = match value {
        DeValue::Integer(_) => int(value)?.to_string(),
        DeValue::Float(x) => x.as_str().to_owned(),
        DeValue::String(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => return Err(format!("{} is not a number", shown(value))),
    };
    let digits = text.trim_start_matches(['+', '-']);
    if digits.starts_with("inf") || digits.starts_with("nan") {
        return Err(format!("{text} is not allowed: write a finite number"));
    }
    let x = Decimal::parse(text.strip_prefix('+').unwrap_or(&text))
        .map_err(|_| format!("{text} cannot be stored exactly"))?;
    if x.is_zero() && text.starts_with('-') {
        return Err(format!("{text} is not allowed: write 0"));
    }
    let (mantissa, exponent) = x.parts();
    let digits = mantissa.unsigned_abs().to_string().len();
    if digits > MAX_DIGITS {
        return Err(format!(
            "{text} has {digits} significant digits; at most {MAX_DIGITS} are kept"
        ));
    }
    if !x.is_zero() && !(-40..=30).contains(&exponent) {
        return Err(format!("{text} is outside 1e-40 to 1e30"));
    }
    Ok(x)
}

/// A text as a basic TOML string.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl FieldValue {
    /// A word or name.
    pub fn text(text: impl Into<String>) -> FieldValue {
        FieldValue::Text(text.into())
    }

    /// A non-negative integer that may exceed i63.
    pub fn count(n: i128) -> FieldValue {
        match i64::try_from(n) {
            Ok(n) => FieldValue::Int(n),
            Err(_) => FieldValue::Big(n.unsigned_abs()),
        }
    }

    /// The value for display: as in a lock, but words without quotes and numbers in decimal.
    pub fn plain(&self) -> String {
        match self {
            FieldValue::Text(text) => text.clone(),
            FieldValue::Big(n) => n.to_string(),
            FieldValue::Int(_)
            | FieldValue::Real(_)
            | FieldValue::Bool(_)
            | FieldValue::List(_) => self.to_string(),
        }
    }
}

/// The text in a lock: valid TOML.
impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldValue::Int(n) => write!(f, "{n}"),
            FieldValue::Big(n) => write!(f, "\"0x{n:x}\""),
            FieldValue::Real(x) => write!(f, "{x}"),
            FieldValue::Bool(b) => write!(f, "{b}"),
            FieldValue::Text(text) => f.write_str(&quote(text)),
            FieldValue::List(items) => {
                let parts: Vec<String> = items.iter().map(FieldValue::to_string).collect();
                write!(f, "[{}]", parts.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, text: &str) -> Result<String, String> {
        let parsed = DeValue::parse(text).map_err(|e| e.message().to_owned())?;
        let value = kind.read(parsed.get_ref())?;
        // The text reads back to the same value.
        let text = value.to_string();
        let again = DeValue::parse(&text).map_err(|e| e.message().to_owned())?;
        assert_eq!(kind.read(again.get_ref()), Ok(value), "{text}");
        Ok(text)
    }

    #[test]
    fn reals_are_the_digits_written() {
        let real = Kind::Real(Bounds::AtLeastZero);
        for (written, kept) in [
            ("0.0133", "0.0133"),
            ("1e-5", "1e-5"),
            ("1E-05", "1e-5"),
            ("3.30", "3.3"),
            ("1_0.5", "10.5"),
            ("+2.0", "2"),
            ("7", "7"),
            ("0.0", "0"),
        ] {
            assert_eq!(read(real, written), Ok(kept.to_owned()), "{written}");
        }
        for (written, why) in [
            ("nan", "not allowed"),
            ("-inf", "not allowed"),
            ("-0.0", "not allowed: write 0"),
            ("-0", "not allowed: write 0"),
            ("0.1234567891", "10 significant digits"),
            ("1e-60", "outside"),
            ("-1.5", "is not a number of 0 or more"),
            ("\"1\"", "is not a number of 0 or more"),
        ] {
            let error = read(real, written).unwrap_err();
            assert!(error.contains(why), "{written}: {error}");
        }
    }

    #[test]
    fn seeds_beyond_63_bits_are_strings() {
        assert_eq!(read(Kind::Seed, "777"), Ok("777".to_owned()));
        assert_eq!(read(Kind::Seed, "\"0xff\""), Ok("255".to_owned()));
        let big = "\"0xffffffffffffffff\"";
        assert_eq!(read(Kind::Seed, big), Ok(big.to_owned()));
        assert!(read(Kind::Seed, "18446744073709551615").is_err());
        assert!(read(Kind::Seed, "\"0x10000000000000000\"").is_err());
        assert!(read(Kind::Seed, "-1").is_err());
    }

    #[test]
    fn names_are_composed() {
        assert_eq!(read(Kind::Name, "\"cafe\u{301}\""), Ok("\"caf\u{e9}\"".to_owned()));
        assert!(read(Kind::Name, "\"a\\nb\"").is_err());
    }

    #[test]
    fn words_are_known_or_promised() {
        let policy = Kind::Word(&["f32"], &["bf16"]);
        assert!(read(policy, "\"bf16\"").unwrap_err().contains("not implemented yet"));
        assert!(read(policy, "\"f33\"").unwrap_err().contains("did you mean \"f32\""));
        assert_eq!(
            read(Kind::Words(&["loss", "accuracy"]), "[\"loss\", \"accuracy\", \"loss\"]"),
            Ok("[\"accuracy\", \"loss\"]".to_owned())
        );
    }
}
