//! Seals the text of a small TOML file: its `[seal]` section holds the digest of everything above it, byte for byte. The text
//! below is outside the claim.

use compiler::digest::Digest;

const SECTION: &str = "\n[seal]\ndigest = \"";

/// `body`, then its digest. `tag` separates different kinds of files.
pub fn seal(tag: &str, body: &str) -> String {
    format!("{body}{SECTION}{}\"\n", Digest::of(tag, body))
}

/// The text above the seal, if its digest matches.
pub fn unseal<'a>(tag: &str, text: &'a str) -> Result<&'a str, String> {
    let Some((body, rest)) = text.split_once(SECTION) else {
        return Err("it has no seal: its end is missing".to_owned());
    };
    // Requires the line feed, since a file that ends sooner was truncated.
    let claimed = rest.split_once("\"\n").and_then(|(digits, _)| Digest::parse(digits));
    let actual = Digest::of(tag, body);
    match claimed {
        Some(claimed) if claimed == actual => Ok(body),
        Some(claimed) => {
            Err(format!("its seal is {}, but its text has {}", claimed.short(), actual.short()))
        }
        None => Err("its seal is not a digest".to_owned()),
    }
}

/// Refuses a text that says the same as `written`, canonc's own text, in other words, or that says more.
pub fn refuse_other_text(text: &str, written: &str) -> Result<(), String> {
    match first_difference(text, written) {
        None => Ok(()),
        Some(Difference { line, found, expected }) => {
            Err(format!("line {line} is {found}, but canonc writes {expected}"))
        }
    }
}

/// The first line in which two texts differ, with both lines quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of the line, from 1.
    pub line: usize,
    /// The line of the first text, in quotes.
    pub found: String,
    /// The line of the second text, in quotes.
    pub expected: String,
}

/// Compares two texts by lines, line ends included.
pub fn first_difference(text: &str, expected: &str) -> Option<Difference> {
    let quoted = |line: Option<&str>| {
        line.map_or_else(|| "nothing".to_owned(), |line| format!("`{}`", line.trim()))
    };
    let (mut lines, mut expected) = (text.split_inclusive('\n'), expected.split_inclusive('\n'));
    let mut line = 1;
    loop {
        match (lines.next(), expected.next()) {
            (None, None) => return None,
            (there, wanted) if there != wanted => {
                let (there, wanted) = match (there, wanted) {
                    // Only spaces or the line end differ, which a trimmed quote would hide.
                    (Some(there), Some(wanted)) if there.trim() == wanted.trim() => {
                        (format!("{there:?}"), format!("{wanted:?}"))
                    }
                    (there, wanted) => (quoted(there), quoted(wanted)),
                };
                return Some(Difference { line, found: there, expected: wanted });
            }
            (Some(_) | None, Some(_) | None) => line += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_other_line_is_named() {
        let text = "one\ntwo\n";
        assert_eq!(refuse_other_text(text, text), Ok(()));
        for (found, message) in [
            ("one\n2\n", "line 2 is `2`, but canonc writes `two`"),
            ("one\ntwo\nthree\n", "line 3 is `three`, but canonc writes nothing"),
            ("one\n", "line 2 is nothing, but canonc writes `two`"),
            ("one\ntwo", "line 2 is \"two\", but canonc writes \"two\\n\""),
            ("one\n\ntwo\n", "line 2 is ``, but canonc writes `two`"),
        ] {
            assert_eq!(refuse_other_text(found, text), Err(message.to_owned()));
        }
    }

    #[test]
    fn any_other_byte_breaks_the_seal() {
        let sealed = seal("tag", "version = 1\nstep = 2\n");
        assert_eq!(unseal("tag", &sealed), Ok("version = 1\nstep = 2\n"));
        assert!(unseal("other tag", &sealed).is_err());
        assert!(unseal("tag", &format!("{sealed}\n[more]\nx = 1\n")).is_ok());
        for at in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[at] ^= 1;
            let text = String::from_utf8(bytes).unwrap();
            assert!(unseal("tag", &text).is_err(), "{at}");
            assert!(unseal("tag", &sealed[..at]).is_err(), "{at}");
        }
    }
}
