//! Text from files never commands a terminal.

use cli::printable::{clean, disturbs, escaped, inline};

#[test]
fn nothing_that_a_file_says_commands_a_terminal() {
    let hostile = "a\u{1b}]0;title\u{7}\u{9b}2J\r\u{8}\u{7f}\u{202e}b\n\tc";
    let cleaned = clean(hostile);
    assert!(!cleaned.contains(disturbs), "{cleaned:?}");
    assert!(cleaned.starts_with('a') && cleaned.ends_with("b\n\tc"));
    assert_eq!(clean("as it is: é 漢 ✓\n"), "as it is: é 漢 ✓\n");
    assert_eq!(inline("a\nerror: b\u{1b}"), "a\n    error: b\u{fffd}");
    let json = serde_json::to_string(hostile).unwrap();
    let written = escaped(&json);
    assert!(!written.contains(disturbs), "{written:?}");
    assert_eq!(serde_json::from_str::<String>(&written).unwrap(), hostile);
}
