//! In: the text of a small TOML file. Out: the same with a `[seal]` section that holds its digest, and the check of
//! one read. Must stay true: everything above the section is covered, byte for byte, so that no field can be
//! forgotten; what stands below is outside the claim.

use compiler::digest::Digest;

const SECTION: &str = "\n[seal]\ndigest = \"";

/// `body` with its digest below it. `tag` tells one kind of file from another.
pub(crate) fn seal(tag: &str, body: &str) -> String {
    format!("{body}{SECTION}{}\"\n", Digest::of(tag, body))
}

/// The text above the seal, if it is what was sealed.
pub(crate) fn unseal<'a>(tag: &str, text: &'a str) -> Result<&'a str, String> {
    let Some((body, rest)) = text.split_once(SECTION) else {
        return Err("it has no seal: its end is missing".to_owned());
    };
    // Whole to its line feed: a file that ends sooner was cut.
    let claimed = rest.split_once("\"\n").and_then(|(digits, _)| Digest::parse(digits));
    let found = Digest::of(tag, body);
    match claimed {
        Some(claimed) if claimed == found => Ok(body),
        Some(claimed) => {
            Err(format!("its seal is {} and its text has {}", claimed.short(), found.short()))
        }
        None => Err("its seal is no digest".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
