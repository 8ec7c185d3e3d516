//! Numbers that Python's `json` and pandas write, and JSON does not have: `NaN`, `Infinity`, `-Infinity`.

use std::borrow::Cow;

/// Their words.
pub const WORDS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];

/// A text in which each of [`WORDS`] outside strings is what `replace` makes of it.
pub fn replace_words(text: &str, replace: impl Fn(&str) -> String) -> Cow<'_, str> {
    if !text.contains("NaN") && !text.contains("Infinity") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_string = false;
    while let Some(character) = rest.chars().next() {
        let word = WORDS.iter().find(|word| !in_string && rest.starts_with(**word));
        let length = match word {
            Some(word) => {
                out += &replace(word);
                word.len()
            }
            None => {
                in_string ^= character == '"';
                let escape = if in_string && character == '\\' { 2 } else { 1 };
                let length = rest.chars().take(escape).map(char::len_utf8).sum();
                out += rest.get(..length).unwrap_or_default();
                length
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::replace_words;

    #[test]
    fn words_in_strings_stay() {
        let null = |text| replace_words(text, |_| "null".to_owned()).into_owned();
        assert_eq!(
            null(r#"{"a": NaN, "b": [-Infinity,Infinity]}"#),
            r#"{"a": null, "b": [null,null]}"#
        );
        assert_eq!(
            null(r#"{"NaN": "Infinity \" NaN", "é\\": NaN}"#),
            r#"{"NaN": "Infinity \" NaN", "é\\": null}"#
        );
        assert_eq!(null(r#"{"a": 1}"#), r#"{"a": 1}"#);
    }
}
