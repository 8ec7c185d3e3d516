//! Checks the code blocks of LANGUAGE.md and its table of bounds.

use dsl::{FileId, Sources, format_source, limits, parse, render};

const TEXT: &str = include_str!("../LANGUAGE.md");

/// The info string, the line and the contents of each fenced block.
fn blocks() -> Vec<(String, usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = TEXT.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```").filter(|info| !info.is_empty()) else { continue };
        let inside = lines.by_ref().take_while(|(_, line)| *line != "```");
        let text = inside.map(|(_, line)| format!("{line}\n")).collect();
        blocks.push((info.to_string(), number + 1, text));
    }
    blocks
}

#[test]
fn code_blocks_parse_or_fail_as_marked() {
    let (mut good, mut bad) = (0, 0);
    for (info, line, text) in blocks() {
        let mut sources = Sources::new();
        let file = sources.add(format!("LANGUAGE.md:{line}"), text.as_str());
        let (_, diagnostics) = parse(file, &text);
        match info.as_str() {
            "canon" => {
                assert!(diagnostics.is_empty(), "{}", render(&sources, &diagnostics));
                assert_eq!(format_source(file, &text).unwrap(), text, "line {line}: run fmt on it");
                good += 1;
            }
            "canon error" => {
                assert!(!diagnostics.is_empty(), "the block at line {line} is accepted");
                bad += 1;
            }
            _ => {}
        }
    }
    assert!(good >= 10 && bad >= 5, "found {good} valid blocks and {bad} invalid ones");
}

#[test]
fn bounds_are_listed() {
    for (name, value) in [
        ("MAX_SOURCE_BYTES", limits::MAX_SOURCE_BYTES),
        ("MAX_TOKENS", limits::MAX_TOKENS),
        ("MAX_NESTING", limits::MAX_NESTING),
        ("MAX_EXPRESSION_HEIGHT", limits::MAX_EXPRESSION_HEIGHT),
        ("MAX_ERRORS", limits::MAX_ERRORS),
    ] {
        let row = TEXT.lines().find(|line| line.contains(&format!("`{name}`")));
        let row = row.unwrap_or_else(|| panic!("{name} is not listed"));
        let digits: String = row.chars().filter(char::is_ascii_digit).collect();
        assert_eq!(digits, value.to_string(), "{row}");
    }
}

/// LANGUAGE.md lists every reserved word; each is tried as a name, to be accepted or refused.
#[test]
fn reserved_words_are_listed() {
    let line = |start: &str| {
        let line = TEXT.lines().find(|line| line.starts_with(start)).unwrap();
        line.split('`').skip(1).step_by(2).map(str::to_string).collect::<Vec<_>>()
    };
    let refused = |word: &str| {
        let (_, diagnostics) = parse(FileId(0), &format!("block f({word}) {{ {word} }}"));
        diagnostics.iter().any(|d| d.code == "reserved-word")
    };
    let (reserved, soft) = (line("Reserved: "), line("Keywords that are also names: "));
    assert_eq!((reserved.len(), soft.len()), (18, 8));
    assert!(reserved.iter().all(|word| refused(word)));
    assert!(soft.iter().all(|word| !refused(word)));
}
