//! The kinds of values that fields accept: each reads a value as TOML writes it, and describes itself to a user. Strings
//! are stored in Unicode's composed form (NFC).

use tasks::metric::{EVAL_LOSS, EXACT_MATCH};
use toml::Spanned;
use toml::de::DeValue;
use unicode_normalization::UnicodeNormalization;

use super::value::{Bounds, FieldValue};
use super::written::{MAX_NAME, as_integer, int, real, short, shown, string};
use super::{pattern, suite_task};

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

/// The word for data without a digest.
pub const UNBOUND: &str = "unbound";

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

    /// Reads a value from its text in TOML.
    pub fn parse(self, text: &str) -> Result<FieldValue, String> {
        let parsed = DeValue::parse(text).map_err(|error| error.message().to_owned())?;
        self.read(parsed.get_ref())
    }

    /// Reads a value as written; `Err` explains the problem.
    pub fn read(self, value: &DeValue<'_>) -> Result<FieldValue, String> {
        let accepted = match self {
            Kind::Int(low, high) => integer(value, low, high)?,
            Kind::IntOr(_, _, word) | Kind::RealOr(_, word) if string(value) == Some(word) => {
                Some(FieldValue::text(word))
            }
            Kind::IntOr(low, high, _) => integer(value, low, high)?,
            Kind::Real(bounds) | Kind::RealOr(bounds, _) => number(value, bounds)?,
            Kind::Pair(bounds) => pair(value, bounds)?,
            Kind::Bool => value.as_bool().map(FieldValue::Bool),
            Kind::Word(words, later) => self.word(value, words, later)?,
            Kind::Words(words) => set_of(value, words)?,
            Kind::Name => string(value).and_then(name),
            Kind::Names => names(value)?,
            Kind::Letters(letters) => some_letters(value, letters),
            Kind::Seed => seed(value)?,
            Kind::Ints(low, high) => integers(value, low, high)?,
            Kind::Digest => digest(value),
            Kind::Patterns => read_list(value, |items| pattern::read(items, None))?,
            Kind::Multipliers(bounds) => {
                read_list(value, |items| pattern::read(items, Some(bounds)))?
            }
            Kind::Tasks => read_list(value, suite_task::read)?,
        };
        accepted.ok_or_else(|| {
            let is_whole = matches!(self, Kind::Int(..) | Kind::IntOr(..) | Kind::Seed);
            let instead = if is_whole { as_integer(value) } else { String::new() };
            format!("{} is not {}{instead}", shown(value), self.describe())
        })
    }

    fn word(self, value: &DeValue<'_>, words: &[&str], later: &[&str]) -> Accepted {
        let Some(text) = string(value) else { return Ok(None) };
        if words.contains(&text) {
            return Ok(Some(FieldValue::text(text)));
        }
        if later.contains(&text) {
            return Err(format!("\"{text}\" is not implemented yet; there is {}", quoted(words)));
        }
        match dsl::suggest(text, words.iter().copied()) {
            Some(nearest) => {
                Err(format!("\"{text}\" is not {}; did you mean \"{nearest}\"?", self.describe()))
            }
            None => Ok(None),
        }
    }
}

/// A value, or `None` for one of another kind or out of bounds. `Err` explains a problem in other words.
type Accepted = Result<Option<FieldValue>, String>;

type Items<'a> = [Spanned<DeValue<'a>>];

fn integer(value: &DeValue<'_>, low: i64, high: i64) -> Accepted {
    if !matches!(value, DeValue::Integer(_)) {
        return Ok(None);
    }
    let n = int(value)?;
    Ok((low..=high).contains(&n).then_some(FieldValue::Int(n)))
}

fn number(value: &DeValue<'_>, bounds: Bounds) -> Accepted {
    if !matches!(value, DeValue::Integer(_) | DeValue::Float(_)) {
        return Ok(None);
    }
    let x = real(value)?;
    Ok(bounds.hold(x).then_some(FieldValue::Real(x)))
}

fn pair(value: &DeValue<'_>, bounds: Bounds) -> Accepted {
    let Some(items) = value.as_array() else { return Ok(None) };
    let mut pair = Vec::new();
    for item in items {
        let x = real(item.get_ref())?;
        if !bounds.hold(x) {
            return Ok(None);
        }
        pair.push(FieldValue::Real(x));
    }
    Ok((pair.len() == 2).then_some(FieldValue::List(pair)))
}

fn set_of(value: &DeValue<'_>, words: &[&str]) -> Accepted {
    let Some(items) = value.as_array() else { return Ok(None) };
    let mut set = Vec::new();
    for item in items.iter().map(Spanned::get_ref) {
        let word = string(item).filter(|text| words.contains(text));
        let other = || {
            renamed(item)
                .unwrap_or_else(|| format!("{} is not one of {}", shown(item), quoted(words)))
        };
        set.push(word.ok_or_else(other)?.to_owned());
    }
    set.sort();
    set.dedup();
    Ok(Some(FieldValue::List(set.into_iter().map(FieldValue::Text).collect())))
}

fn names(value: &DeValue<'_>) -> Accepted {
    read_list(value, |items| {
        let mut list = Vec::new();
        for item in short(items)?.iter().map(Spanned::get_ref) {
            match string(item).and_then(name) {
                Some(name) if list.contains(&name) => {
                    return Err(format!("{} is given twice", shown(item)));
                }
                Some(name) => list.push(name),
                None => return Err(format!("{} is not a valid name", shown(item))),
            }
        }
        Ok(FieldValue::List(list))
    })
}

fn some_letters(value: &DeValue<'_>, letters: &str) -> Option<FieldValue> {
    let text = string(value)?;
    let once = text
        .chars()
        .enumerate()
        .all(|(i, c)| letters.contains(c) && text.chars().skip(i + 1).all(|other| other != c));
    (once && !text.is_empty()).then(|| FieldValue::text(text))
}

fn seed(value: &DeValue<'_>) -> Accepted {
    let Some(text) = string(value) else { return integer(value, 0, i64::MAX) };
    let digits = text.strip_prefix("0x").filter(|d| (1..=16).contains(&d.len()));
    let digits = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
    let seed = digits.and_then(|d| u64::from_str_radix(d, 16).ok());
    Ok(seed.map(|n| FieldValue::count(i128::from(n))))
}

fn integers(value: &DeValue<'_>, low: i64, high: i64) -> Accepted {
    read_list(value, |items| {
        let mut list = Vec::new();
        for item in short(items)? {
            match int(item.get_ref())? {
                n if (low..=high).contains(&n) => list.push(FieldValue::Int(n)),
                n => return Err(format!("{n} is not an integer from {low} to {high}")),
            }
        }
        Ok(FieldValue::List(list))
    })
}

fn digest(value: &DeValue<'_>) -> Option<FieldValue> {
    let text = string(value)?.to_lowercase();
    let is_digest = text == UNBOUND || compiler::digest::Digest::parse(&text).is_some();
    is_digest.then_some(FieldValue::Text(text))
}

fn read_list(
    value: &DeValue<'_>,
    read: impl FnOnce(&Items<'_>) -> Result<FieldValue, String>,
) -> Accepted {
    value.as_array().map(|items| read(items)).transpose()
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
        for (written, expected) in [
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
            assert!(error.contains(expected), "{written}: {error}");
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
    fn names_are_normalised_to_composed_characters() {
        assert_eq!(read(Kind::Name, "\"cafe\u{301}\""), Ok("\"caf\u{e9}\"".to_owned()));
        assert!(read(Kind::Name, "\"a\\nb\"").is_err());
    }

    #[test]
    fn unknown_words_are_refused_with_a_hint() {
        let policy = Kind::Word(&["f32"], &["bf16"]);
        assert!(read(policy, "\"bf16\"").unwrap_err().contains("not implemented yet"));
        assert!(read(policy, "\"f33\"").unwrap_err().contains("did you mean \"f32\""));
        assert_eq!(
            read(Kind::Words(&["loss", "accuracy"]), "[\"loss\", \"accuracy\", \"loss\"]"),
            Ok("[\"accuracy\", \"loss\"]".to_owned())
        );
    }
}
