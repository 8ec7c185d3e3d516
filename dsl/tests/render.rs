//! Rendering arbitrary diagnostics: any spans over any texts.

use dsl::{Diagnostic, FileId, Sources, Span, render, render_coloured};
use proptest::prelude::*;

use crate::generate::repeatable;

proptest! {
    #![proptest_config(repeatable())]

    #[test]
    fn any_span_of_any_text(
        text in "(?s).{0,200}",
        spans in prop::collection::vec((0u32..2, any::<u32>(), any::<u32>(), 0u32..300, 0u32..300), 1..6),
    ) {
        let mut sources = Sources::new();
        let file = sources.add("a\u{1b}[31m.canon", text);
        let mut diagnostic: Option<Diagnostic> = None;
        for (other, a, b, c, d) in spans {
            // Half of the spans are near the text; some name a file that does not exist.
            let (start, end) = if a % 2 == 0 { (c, d) } else { (a, b) };
            let span = Span { file: FileId(file.0 + other), start, end };
            diagnostic = Some(match diagnostic {
                None => Diagnostic::error("some-code", span, "wrong\u{7}").here("here"),
                Some(diagnostic) => diagnostic.label(span, "and here"),
            });
        }
        let diagnostics = [diagnostic.unwrap().help("do it")];
        let text = render(&sources, &diagnostics);
        prop_assert!(text.contains("error[some-code]: wrong") && text.contains("help: do it"));
        prop_assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text:?}");
        prop_assert!(text.len() < 20_000);
        let plain = without_colour(&render_coloured(&sources, &diagnostics));
        let trimmed: String = plain.lines().map(|l| l.trim_end().to_string() + "\n").collect();
        prop_assert_eq!(trimmed, text);
    }
}

/// The text without `ESC [ … m`.
fn without_colour(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or("").to_string();
    parts.fold(first, |out, part| out + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn a_long_line_is_cut_around_its_place() {
    let mut sources = Sources::new();
    let text = format!("// short\n{}HERE{}\n", "a ".repeat(300_000), " b".repeat(200_000));
    let at = text.find("HERE").unwrap();
    let file = sources.add("long.canon", text);
    let error = Diagnostic::error("c", Span::new(file, at, at + 4), "m").here("this");
    insta::assert_snapshot!(render(&sources, &[error]), @r"
    error[c]: m
      --> long.canon:2:600001
      |
    2 | …a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a HERE b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b…
      |                                                              ^^^^ this
    ");
}

#[test]
fn labels_in_two_files_are_shown_with_the_lines_between_near_ones() {
    let mut sources = Sources::new();
    let a = sources.add("a.canon", "one\ntwo\nthree\nfour\nfive\nsix\n");
    let b = sources.add("b.canon", "\tseven é eight");
    let error = Diagnostic::warning("c", Span::new(a, 4, 7), "m")
        .here("here")
        .label(Span::new(a, 14, 18), "close")
        .label(Span::new(a, 24, 99), "far")
        .label(Span::new(b, 10, 15), "elsewhere")
        .help("first")
        .help("second");
    insta::assert_snapshot!(render(&sources, &[error]), @r"
    warning[c]: m
      --> a.canon:2:1
      |
    2 | two
      | ^^^ here
    3 | three
    4 | four
      | ---- close
    5 | five
    6 | six
      | --- far
      |
      --> b.canon:1:10
      |
    1 |   seven é eight
      |           ----- elsewhere
      |
      = help: first
      = help: second
    ");
}
