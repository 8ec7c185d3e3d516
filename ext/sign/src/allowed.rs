//! A file of `allowed_signers`, as `ssh-keygen -Y verify -f` reads it, and the names it lists for a key.
//!
//! A line that is not understood is an error with its number, never skipped; a line with limits (to purposes, to a time)
//! counts only within them.

use std::collections::BTreeSet;

use ssh_key::PublicKey;
use ssh_key::public::KeyData;

use crate::signature::{NAMESPACE, Signer};

/// The lines of the file.
#[derive(Clone, Debug, Default)]
pub struct AllowedSigners {
    lines: Vec<SignerLine>,
}

#[derive(Clone, Debug)]
struct SignerLine {
    number: usize,
    /// Comma-separated patterns: `*` and `?` match other letters, `!` excludes.
    principals: String,
    key: KeyData,
    certificate_authority: bool,
    /// Patterns of purposes.
    namespaces: Option<String>,
    /// Seconds since 1970.
    valid_after: Option<i64>,
    valid_before: Option<i64>,
}

/// The file's verdict on a signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The names in the matching line.
    As(String),
    /// Why no line matches.
    No(String),
}

impl AllowedSigners {
    /// Reads the text of a file; an error gives the number of the line that is not understood, and the reason.
    pub fn parse(text: &str) -> Result<AllowedSigners, (usize, String)> {
        let mut lines = Vec::new();
        for (at, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            lines.push(parse_line(at + 1, text).map_err(|fault| (at + 1, fault))?);
        }
        Ok(AllowedSigners { lines })
    }

    /// Whether the file allows this signer at `now` (seconds since 1970), under the name `identity` if given.
    pub fn find(&self, signer: &Signer, identity: Option<&str>, now: i64) -> Listed {
        let mut refusal = format!("no line lists key {}", signer.fingerprint());
        for line in &self.lines {
            if line.key != signer.key {
                continue;
            }
            match line.refuses(identity, now) {
                None => return Listed::As(line.names(identity)),
                Some(limit) => refusal = format!("line {} lists the key, but {limit}", line.number),
            }
        }
        Listed::No(refusal)
    }
}

impl SignerLine {
    /// The patterns that accept names: not exclusions, and not excluded entirely by one.
    fn allowed(&self) -> impl Iterator<Item = &str> {
        let patterns = || self.principals.split(',').filter(|pattern| !pattern.is_empty());
        let excluded = move |name: &str| {
            patterns()
                .filter_map(|pattern| pattern.strip_prefix('!'))
                .any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
        };
        patterns().filter(|pattern| !pattern.starts_with('!')).filter(move |name| !excluded(name))
    }

    /// The signer's name, as far as the line gives it.
    fn names(&self, identity: Option<&str>) -> String {
        match identity {
            Some(identity) => identity.to_owned(),
            None => self.allowed().collect::<Vec<_>>().join(","),
        }
    }

    /// The reason why the line does not allow this name at this time.
    fn refuses(&self, identity: Option<&str>, now: i64) -> Option<String> {
        if self.certificate_authority {
            return Some("as a certificate authority, which canonc does not support".to_owned());
        }
        match identity {
            Some(identity) if !matches_list(&self.principals, identity) => {
                return Some(format!("as {}, not as {identity}", self.principals));
            }
            None if self.allowed().next().is_none() => {
                return Some(format!("for nobody: `{}` excludes every name", self.principals));
            }
            Some(_) | None => {}
        }
        if let Some(namespaces) = &self.namespaces
            && !matches_list(namespaces, NAMESPACE)
        {
            return Some(format!("for {namespaces} only, not for {NAMESPACE}"));
        }
        if self.valid_after.is_some_and(|after| now < after) {
            return Some("it is not valid yet".to_owned());
        }
        if self.valid_before.is_some_and(|before| now >= before) {
            return Some("it has expired".to_owned());
        }
        None
    }
}

/// Reads one line with a signer.
fn parse_line(number: usize, text: &str) -> Result<SignerLine, String> {
    let (principals, rest) = word(text)?;
    let mut line = SignerLine {
        number,
        principals: unquoted(principals).ok_or("its names contain a quote")?.to_owned(),
        key: KeyData::Ed25519(ssh_key::public::Ed25519PublicKey([0; 32])),
        certificate_authority: false,
        namespaces: None,
        valid_after: None,
        valid_before: None,
    };
    // Options are optional: if the next word is a type of key, there are none.
    let key = match PublicKey::from_openssh(rest) {
        Ok(key) => key,
        Err(without) => {
            let (options, rest) = word(rest)?;
            let key = PublicKey::from_openssh(rest).map_err(|with| {
                let first = rest.split_whitespace().next().unwrap_or_default();
                let error = if first.is_empty() { without } else { with };
                format!("its public key cannot be read ({error})")
            })?;
            let mut names = BTreeSet::new();
            for option in split_outside_quotes(options) {
                if !names.insert(line.apply(option)?) {
                    return Err(format!("`{option}`: an option is given twice"));
                }
            }
            key
        }
    };
    line.key = key.key_data().clone();
    Ok(line)
}

impl SignerLine {
    /// Sets an option, and returns its name.
    fn apply(&mut self, option: &str) -> Result<String, String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let name = name.to_ascii_lowercase();
        let value = match unquoted(value) {
            Some(inner) if value.is_empty() || inner != value => inner,
            Some(_) | None => return Err(format!("the value of `{name}` is not in quotes")),
        };
        match name.as_str() {
            "cert-authority" => self.certificate_authority = true,
            "namespaces" => self.namespaces = Some(value.to_owned()),
            "valid-after" => self.valid_after = Some(time(value)?),
            "valid-before" => self.valid_before = Some(time(value)?),
            _ => return Err(format!("`{name}` is not an option of this file")),
        }
        Ok(name)
    }
}

/// A text without the quotes around it; `None` if it has others.
fn unquoted(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    (!inner.contains('"')).then_some(inner)
}

/// The first word, quotes kept together, and the text after it.
fn word(text: &str) -> Result<(&str, &str), String> {
    let mut quoted = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            ' ' | '\t' if !quoted => {
                return Ok((
                    text.get(..at).unwrap_or_default(),
                    text.get(at..).unwrap_or_default().trim_start(),
                ));
            }
            _ => {}
        }
    }
    if quoted { Err("a quote is not closed".to_owned()) } else { Ok((text, "")) }
}

fn split_outside_quotes(text: &str) -> Vec<&str> {
    let mut quoted = false;
    text.split(|letter| {
        if letter == '"' {
            quoted = !quoted;
        }
        letter == ',' && !quoted
    })
    .collect()
}

/// Whether a list of patterns accepts a name: one matches, and none with `!` does.
fn matches_list(patterns: &str, name: &str) -> bool {
    let mut accepts = false;
    for pattern in patterns.split(',') {
        match pattern.strip_prefix('!') {
            Some(excluded) if matches(excluded.as_bytes(), name.as_bytes()) => return false,
            Some(_) => {}
            None => accepts |= matches(pattern.as_bytes(), name.as_bytes()),
        }
    }
    accepts
}

/// `*` matches any letters, `?` exactly one. Time is bounded by the product of both lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to continue if the text after the last `*` does not match.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(letter) if *letter == b'?' || name.get(n) == Some(letter) => {
                p += 1;
                n += 1;
            }
            Some(_) | None => match retry {
                Some((after, from)) => {
                    (p, n) = (after, from + 1);
                    retry = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|letter| *letter == b'*')
}

/// Seconds since 1970 for `YYYYMMDD`, optionally with `HHMM` or `HHMMSS` after it, and with `Z`.
fn time(text: &str) -> Result<i64, String> {
    let malformed = || format!("`{text}` is not a time of the form YYYYMMDD[HHMM[SS]]Z");
    let Some(digits) = text.strip_suffix(['Z', 'z']) else {
        return Err(match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => format!("`{text}` is a local time; write it in UTC, with a Z at its end"),
            false => malformed(),
        });
    };
    if !matches!(digits.len(), 8 | 12 | 14) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed());
    }
    let part = |from: usize, to: usize| -> i64 {
        digits.get(from..to).and_then(|part| part.parse().ok()).unwrap_or(0)
    };
    let (year, month, day) = (part(0, 4), part(4, 6), part(6, 8));
    let (hour, minute, second) = (part(8, 10), part(10, 12), part(12, 14));
    if year < 1970
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return Err(malformed());
    }
    Ok(days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970-01-01, counting years from March so that the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_ssh() {
        for (patterns, name, wanted) in [
            ("ada@x.org", "ada@x.org", true),
            ("ada@x.org", "ada@x.orgs", false),
            ("*@x.org", "ada@x.org", true),
            ("a?a@*", "ada@x.org", true),
            ("*,!ada*", "ada@x.org", false),
            ("bob,ada", "ada", true),
            ("", "ada", false),
            ("*a*b*a", "aaaabaaba", true),
            ("*a*b*c", "aaaabaaba", false),
        ] {
            assert_eq!(matches_list(patterns, name), wanted, "{patterns} {name}");
        }
        // A pattern that makes naive matchers take exponential time.
        assert!(!matches("*a".repeat(200).as_bytes(), "a".repeat(199).as_bytes()));
    }

    #[test]
    fn times_are_read_in_utc() {
        assert_eq!(time("19700101Z"), Ok(0));
        assert_eq!(time("20000229Z"), Ok(951_782_400));
        assert_eq!(time("20261122091114Z"), Ok(1_795_338_674));
        assert!(time("20261122").unwrap_err().contains("UTC"));
        for wrong in ["", "Z", "20261322Z", "2026112Z", "x", "20260101250000Z"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_that_is_not_understood_has_its_number() {
        let key =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJB1WK3fuEZ7SNpvwbgdyVZHfUIgeNtuHYJYvyL8ZvMt";
        let good = format!("# people\n\nada {key} a comment\n");
        assert_eq!(AllowedSigners::parse(&good).unwrap().lines.len(), 1);
        for (bad, part) in [
            ("ada", "its public key cannot be read"),
            ("ada ssh-ed25519 AAAA", "its public key cannot be read"),
            ("ada colour=\"red\" KEY", "`colour` is not an option"),
            ("ada namespaces=git KEY", "not in quotes"),
            ("ada valid-before=\"20200101Z\",valid-before=\"20990101Z\" KEY", "given twice"),
            ("a\"d\"a KEY", "contain a quote"),
            ("ada namespaces=\"x KEY", "a quote is not closed"),
            ("ada valid-after=\"20200101\" KEY", "UTC"),
        ] {
            let text = format!("{good}{}\n", bad.replace("KEY", key));
            let (number, fault) = AllowedSigners::parse(&text).unwrap_err();
            assert_eq!(number, 4);
            assert!(fault.contains(part), "{bad}: {fault}");
        }
    }
}
