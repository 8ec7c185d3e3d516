//! In: a `tokenizer.json`. Out: nothing, or which of its normalizers make too much of a text. Must stay true: a file of a
//! few bytes never makes gigabytes of one letter; no normalizer of a published tokenizer is refused.

use serde_json::Value;

/// How many times as long a text may become; a blank that becomes a mark of three bytes makes it 3.
const MOST: f64 = 64.0;

/// The most bytes that are put into a text in one place.
const MOST_BYTES: usize = 1 << 10;

/// Refuses a file whose normalizers, one after the other, can make a text more than [`MOST`] times as long.
pub(super) fn check(file: &[u8]) -> Result<(), String> {
    // What is not JSON is refused by the library, in its words.
    let Ok(root) = serde_json::from_slice::<Value>(file) else { return Ok(()) };
    let mut times = 1.0;
    for part in ["normalizer", "pre_tokenizer", "decoder"] {
        let mut of_part = 1.0;
        collect(root.get(part).unwrap_or(&Value::Null), &mut of_part)?;
        times = f64::max(times, of_part);
    }
    if times > MOST {
        return Err(format!(
            "its normalizers can make a text {times:.0} times as long, and at most {MOST:.0} times is taken"
        ));
    }
    Ok(())
}

/// Multiplies by what each `Replace` makes of its pattern; looks at what each other step puts in.
fn collect(value: &Value, times: &mut f64) -> Result<(), String> {
    match value {
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str);
            let put_in =
                text("content").or_else(|| text("prepend")).or_else(|| text("replacement"));
            if let Some(put_in) = put_in {
                if put_in.len() > MOST_BYTES {
                    return Err(format!(
                        "a normalizer puts {} bytes in one place, and at most {MOST_BYTES} are taken",
                        put_in.len()
                    ));
                }
                if text("type") == Some("Replace") {
                    *times *= growth(fields.get("pattern"), put_in.len());
                }
            }
            // `Precompiled` can make one letter many; a letter of its table is some bytes.
            fields.values().try_for_each(|value| collect(value, times))
        }
        Value::Array(items) => items.iter().try_for_each(|item| collect(item, times)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// How many times as long a text becomes where a pattern is everywhere in it.
fn growth(pattern: Option<&Value>, put_in: usize) -> f64 {
    let plain = pattern.and_then(|pattern| pattern.get("String")).and_then(Value::as_str);
    let growth = match plain {
        Some(plain) if !plain.is_empty() => put_in as f64 / plain.len() as f64,
        // An expression, or nothing at all, can be found before and after each byte.
        Some(_) | None => put_in as f64 + 1.0,
    };
    growth.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(normalizers: &[(&str, &str, &str)]) -> Result<(), String> {
        let list: Vec<Value> = normalizers
            .iter()
            .map(|(kind, pattern, content)| {
                serde_json::json!({"type": "Replace", "pattern": {*kind: pattern}, "content": content})
            })
            .collect();
        let file = serde_json::json!({"normalizer": {"type": "Sequence", "normalizers": list}});
        check(file.to_string().as_bytes())
    }

    #[test]
    fn replacements_are_multiplied() {
        assert_eq!(of(&[("String", " ", "▁")]), Ok(()));
        assert_eq!(
            of(&[("String", " ", "▁"), ("Regex", "[\n]+", " "), ("String", "``", "\"")]),
            Ok(())
        );
        let ten = "a".repeat(10);
        assert_eq!(of(&[("String", "a", &ten)]), Ok(()));
        for hostile in [
            vec![("String", "a", ten.as_str()); 4],
            vec![("Regex", "", ten.as_str()); 2],
            vec![("String", "", ten.as_str()); 2],
        ] {
            assert!(of(&hostile).unwrap_err().contains("times as long"), "{hostile:?}");
        }
        let long = "a".repeat(2000);
        assert!(of(&[("String", "a", &long)]).unwrap_err().contains("in one place"));
        assert_eq!(check(b"not json"), Ok(()));
    }
}
