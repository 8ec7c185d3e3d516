//! Checks names of locks, arms and runs. Every name from outside is checked here, since names become parts of paths,
//! lines of scripts and words of commands.

/// Most bytes of a name. With a file extension added, it still fits every file system.
pub const MAX_NAME: usize = 240;

/// Most bytes of an arm's name.
const MAX_ARM: usize = 40;

/// Checks that a text is a valid name for a lock or a run; `Err` gives the reason if it is not.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let reason = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > MAX_NAME {
        format!("it has {} bytes; at most {MAX_NAME} are allowed", name.len())
    } else if let Some(other) = name.chars().find(|c| !plain(*c)) {
        format!("it contains {other:?}")
    } else if name.starts_with(['.', '-']) {
        "it begins with `.` or `-`".to_owned()
    } else {
        return Ok(());
    };
    Err(format!(
        "{} is not a valid name: {reason}; use letters, digits, `_`, `-` and `.`",
        quoted(name)
    ))
}

/// The same check for an arm of a comparison.
pub(crate) fn check_arm(arm: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if (1..=MAX_ARM).contains(&arm.len()) && arm.chars().all(plain) {
        return Ok(());
    }
    Err(format!(
        "{} is not a valid name for an arm: use 1 to {MAX_ARM} letters, digits and `_`",
        quoted(arm)
    ))
}

/// The name as a Rust string literal, shortened, so that control characters do not reach a terminal.
fn quoted(name: &str) -> String {
    const SHOWN: usize = 60;
    match name.char_indices().nth(SHOWN) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}…", name.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_of_every_file_system() {
        for good in ["depo", "Llama-1B-Nemo-1T-lr0.002", "a_b.c-d", "7", &"x".repeat(MAX_NAME)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            ".hidden",
            "-rf",
            "../x",
            "a/b",
            "/etc/passwd",
            "a\\b",
            "C:x",
            "a b",
            "x\ntouch pwned #",
            "$(id)",
            "`id`",
            "a'b",
            "a\"b",
            "a;b",
            "\u{1b}[2J",
            "é",
            "a\u{202e}b",
            &"x".repeat(MAX_NAME + 1),
        ] {
            let reason = check_name(bad).unwrap_err();
            assert!(!reason.chars().any(char::is_control), "{reason}");
            assert!(check_arm(bad).is_err());
        }
        assert_eq!(check_arm("no_canon2"), Ok(()));
        assert!(check_arm("a-b").is_err() && check_arm(&"x".repeat(41)).is_err());
    }
}
