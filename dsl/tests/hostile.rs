//! Hostile inputs: huge, deep, endless or not text. Each gives one short diagnostic, or at most `MAX_ERRORS` and a last one.

use dsl::limits::*;
use dsl::{FileId, Sources, format_source, parse, parse_bytes, print, render};

/// The codes that this file tests instead of a case on disk.
pub(crate) const CODES: [&str; 3] = ["source-too-large", "too-many-tokens", "too-many-errors"];

const FILE: FileId = FileId(0);

/// The codes of a text's diagnostics. Checks that they are few and render short.
fn codes(text: &str) -> Vec<&'static str> {
    let (ast, diagnostics) = parse(FILE, text);
    assert!(diagnostics.len() <= MAX_ERRORS + 1);
    let mut sources = Sources::new();
    sources.add("hostile.canon", text);
    assert!(render(&sources, &diagnostics).len() < 2000 * (diagnostics.len() + 1));
    // Everything that parses can be printed.
    print(&ast);
    diagnostics.iter().map(|d| d.code).collect()
}

fn filled(unit: &str, before: &str) -> String {
    format!("{before}{}", unit.repeat((MAX_SOURCE_BYTES - before.len()) / unit.len()))
}

#[test]
fn a_hundred_megabytes_of_brackets_are_not_read() {
    let bytes = vec![b'('; 100 << 20];
    let (ast, diagnostics) = parse_bytes(FILE, &bytes);
    assert!(ast.items.is_empty());
    assert_eq!(diagnostics.iter().map(|d| d.code).collect::<Vec<_>>(), ["source-too-large"]);
    // The largest file that is read.
    assert_eq!(codes(&"\n".repeat(MAX_SOURCE_BYTES)), [""; 0]);
    assert_eq!(codes(&"\n".repeat(MAX_SOURCE_BYTES + 1)), ["source-too-large"]);
}

#[test]
fn a_file_full_of_brackets_is_refused_early() {
    for unit in ["(", "{", "[", "f(", "a {", "[a, ", "({["] {
        for before in ["", "arch a { x ", "block f(x) { y = ", "arch a { layers "] {
            assert_eq!(codes(&filled(unit, before)), ["nesting-too-deep"], "{before}{unit}…");
        }
    }
    for unit in [")", "}", "]", "})"] {
        let codes = codes(&filled(unit, "arch a { x 1"));
        assert!(codes.iter().all(|c| ["unmatched", "unclosed", "too-many-tokens"].contains(c)));
    }
}

#[test]
fn a_file_full_of_one_token_gives_a_short_diagnostic() {
    for (unit, before, code) in [
        ("-", "arch a { x ", "too-many-tokens"),
        ("- ", "arch a { x 1", "too-many-tokens"),
        ("-aaaaaaaaaaaaaaa", "arch a { x 1", "expression-too-tall"),
        ("+123456789012345", "arch a { x 1", "expression-too-tall"),
        (" and aaaaaaaaa", "arch a { x b", "expression-too-tall"),
        ("not     ", "arch a { x ", "nesting-too-deep"),
        ("-        ", "arch a { x ", "nesting-too-deep"),
        (" else if a_long_condition_name { }", "block f(x) { if a { }", "nesting-too-deep"),
        ("aaaaaaaa, ", "import ", "unexpected"),
        ("aaaaaaaa, ", "block f(", "unclosed"),
        ("aaaaaaaa, ", "block f(x) { ", "unexpected"),
        ("f aaaaaaaa (", "block f(x) { ", "nesting-too-deep"),
        ("x = aaaaaaaaaaaa\n", "block f(x) { ", "unclosed"),
        ("a.aaaaaaaaaaaaaa", "arch a { ", "missing-value"),
        ("x 1234567\n", "arch a {", "unclosed"),
        ("arch a { x ", "", "nesting-too-deep"),
        ("1234567 of ", "arch a { layers ", "reserved-word"),
        ("aaaaaaaa ", "", "unknown-definition"),
        ("\"aaaaaaa\n", "", "unterminated-string"),
        ("/* ", "", "block-comment"),
        ("é", "", "bad-character"),
        ("@aaaaaaa", "", "bad-character"),
        ("/// a\n", "", "dangling-doc"),
    ] {
        let codes = codes(&filled(unit, before));
        assert!(codes.contains(&code), "{before}{unit}… gave {codes:?}, not {code}");
    }
}

#[test]
fn a_file_full_of_comments_is_formatted() {
    let text = filled("// a\n", "");
    assert_eq!(codes(&text), [""; 0]);
    assert_eq!(format_source(FILE, &text).unwrap(), text.trim_end_matches("// ").to_string());
}

/// A tree of the largest allowed height and nesting overflows no function that walks it.
#[test]
fn the_deepest_trees_are_printed() {
    let chain = "+ 1 ".repeat(MAX_EXPRESSION_HEIGHT - 1);
    let nested = MAX_NESTING - 2;
    for text in [
        format!("arch a {{ x 1 {chain}}}"),
        format!("arch a {{ x {}1{} }}", "(".repeat(nested), ")".repeat(nested)),
        format!("arch a {{ {} {} }}", "a { ".repeat(nested), "}".repeat(nested)),
        format!(
            "arch a {{ layers [a, {}b{}] }}",
            "[a, ".repeat(nested - 1),
            "]".repeat(nested - 1)
        ),
        format!("block f(x) {{ {} x }}", "if a { ".repeat(nested) + &"}".repeat(nested)),
    ] {
        assert_eq!(codes(&text), [""; 0], "{}", &text[..60]);
        let once = format_source(FILE, &text).unwrap();
        assert_eq!(format_source(FILE, &once).unwrap(), once);
    }
}

#[test]
fn errors_are_limited_in_number() {
    let text = format!("arch a {{\n{}}}\n", "  x ]\n".repeat(10_000));
    let codes = codes(&text);
    assert_eq!(codes.len(), MAX_ERRORS + 1);
    assert_eq!(codes.last(), Some(&"too-many-errors"));
}

#[test]
fn bytes_that_are_not_utf8_are_refused_with_their_line() {
    for (bytes, line) in [(&b"\xff"[..], 1), (b"arch a {\n x \xc3", 2), (b"// \xe2\x82\n", 1)] {
        let (ast, diagnostics) = parse_bytes(FILE, bytes);
        assert!(ast.items.is_empty());
        let [only] = diagnostics.as_slice() else { panic!("one diagnostic") };
        assert_eq!(only.code, "invalid-utf8");
        assert!(only.message.contains(&format!("line {line}")), "{}", only.message);
    }
}

/// An editor shows the text after a lone carriage return on a new line; here it would still be part of the comment.
#[test]
fn characters_that_only_look_like_line_ends_are_refused() {
    let arch = |between: &str| {
        format!(
            "arch a {{{between}vocab 16 dim 8 norm_eps 1e-5 // sixteen{between}layers 1 of x }}"
        )
    };
    for fine in ["\n", "\r\n"] {
        assert!(!codes(&arch(fine)).contains(&"line-break"), "{fine:?}");
    }
    for broken in ["\r", "\n\r", "\u{b}", "\u{85}", "\u{2028}", "\u{2029}"] {
        assert_eq!(codes(&arch(broken)), ["line-break"], "{broken:?}");
    }
    assert_eq!(codes("// at the end\r"), ["line-break"]);
    assert_eq!(codes("// before a line feed\r\n"), [""; 0]);
}
