//! Refuses a `tokenizer.json` whose normalizers make a text too long.
//!
//! A small file never makes gigabytes from one letter. The tokenizers that we know have at most 4 (`tests/golden/tokenizers`).

use serde_json::Value;

/// Maximum factor by which a text may grow. Replacing a blank with a mark of three bytes already makes it 3.
const MOST: f64 = 12.0;

/// Most steps of normalizers, pre-tokenizers and decoders.
const MOST_STEPS: usize = 64;

/// Maximum bytes inserted at one place.
const MOST_BYTES: usize = 1 << 10;

/// Refuses a file if its normalizers together can make a text more than [`MOST`] times as long.
pub(super) fn check(file: &[u8]) -> Result<(), String> {
    // The library refuses a file that is not JSON, with its own message.
    let Ok(root) = serde_json::from_slice::<Value>(file) else { return Ok(()) };
    let mut times = 1.0;
    for part in ["normalizer", "pre_tokenizer", "decoder"] {
        let mut of_part = 1.0;
        collect(root.get(part).unwrap_or(&Value::Null), &mut of_part)?;
        times = f64::max(times, of_part);
    }
    let parts = ["normalizer", "pre_tokenizer", "decoder"];
    let count: usize = parts.iter().map(|part| steps(root.get(*part))).sum();
    if count > MOST_STEPS {
        return Err(format!("it takes {count} steps for a text; the limit is {MOST_STEPS}"));
    }
    if times > MOST {
        return Err(format!(
            "its normalizers can make a text {times:.0} times as long; the limit is {MOST:.0} times"
        ));
    }
    Ok(())
}

/// The steps of a part of the file, each of which goes through the whole text.
fn steps(value: Option<&Value>) -> usize {
    match value {
        Some(Value::Object(fields)) => {
            let of_this = usize::from(fields.contains_key("type"));
            of_this + fields.values().map(|value| steps(Some(value))).sum::<usize>()
        }
        Some(Value::Array(items)) => items.iter().map(|item| steps(Some(item))).sum(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => 0,
    }
}

/// Multiplies `times` by the growth of each `Replace`, and checks what every other step inserts.
fn collect(value: &Value, times: &mut f64) -> Result<(), String> {
    match value {
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str);
            let put_in =
                text("content").or_else(|| text("prepend")).or_else(|| text("replacement"));
            if let Some(put_in) = put_in {
                if put_in.len() > MOST_BYTES {
                    return Err(format!(
                        "a normalizer inserts {} bytes in one place; the limit is {MOST_BYTES}",
                        put_in.len()
                    ));
                }
                if text("type") == Some("Replace") {
                    *times *= growth(fields.get("pattern"), put_in.len());
                }
            }
            // `Precompiled` can turn one letter into many, but each letter takes some bytes of its table.
            fields.values().try_for_each(|value| collect(value, times))
        }
        Value::Array(items) => items.iter().try_for_each(|item| collect(item, times)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// The factor by which a text grows if the pattern matches everywhere.
fn growth(pattern: Option<&Value>, put_in: usize) -> f64 {
    let plain = pattern.and_then(|pattern| pattern.get("String")).and_then(Value::as_str);
    let growth = match plain {
        Some(plain) if !plain.is_empty() => put_in as f64 / plain.len() as f64,
        // A regular expression or an empty pattern can match before and after each byte.
        Some(_) | None => put_in as f64 + 1.0,
    };
    growth.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(normalizers: &[(&str, &str, &str)]) -> Result<(), String> {
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
    fn expansions_of_successive_replacements_multiply() {
        assert_eq!(checked(&[("String", " ", "▁")]), Ok(()));
        assert_eq!(
            checked(&[("String", " ", "▁"), ("Regex", "[\n]+", " "), ("String", "``", "\"")]),
            Ok(())
        );
        let ten = "a".repeat(10);
        assert_eq!(checked(&[("String", "a", &ten)]), Ok(()));
        for hostile in [
            vec![("String", "a", ten.as_str()); 4],
            vec![("Regex", "", ten.as_str()); 2],
            vec![("String", "", ten.as_str()); 2],
        ] {
            assert!(checked(&hostile).unwrap_err().contains("times as long"), "{hostile:?}");
        }
        let long = "a".repeat(2000);
        assert!(checked(&[("String", "a", &long)]).unwrap_err().contains("in one place"));
        assert_eq!(check(b"not json"), Ok(()));
    }
}
