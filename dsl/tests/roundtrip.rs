//! Printing, parsing and formatting are inverse to one another, on random trees and texts.

use dsl::{Ast, FileId, Sources, format_source, parse, parse_bytes, print, print_expr, render};
use proptest::prelude::*;

use crate::generate::{ast, expr, random_pieces, random_tokens, repeatable, sprinkle};
use crate::outline::erased;

const FILE: FileId = FileId(0);

fn parsed(text: &str) -> Ast {
    let (ast, diagnostics) = parse(FILE, text);
    let mut sources = Sources::new();
    sources.add("text.canon", text);
    assert!(diagnostics.is_empty(), "{}\n{text}", render(&sources, &diagnostics));
    ast
}

fn comments(ast: &Ast) -> Vec<&str> {
    ast.comments.iter().map(|comment| comment.text.as_str()).collect()
}

/// Checks that formatting a good text keeps its tree and comments, and that formatting again changes nothing.
fn check_format(text: &str) {
    let before = parsed(text);
    let once = format_source(FILE, text).unwrap();
    let after = parsed(&once);
    assert_eq!(erased(&before), erased(&after), "the tree changed\n{text}\n=>\n{once}");
    assert_eq!(comments(&before), comments(&after), "comments changed\n{text}\n=>\n{once}");
    let twice = format_source(FILE, &once).unwrap();
    assert_eq!(once, twice, "not idempotent\n{text}");
    assert!(once.lines().all(|line| line.trim_end() == line), "trailing spaces\n{once:?}");
    let printed = print(&before);
    let again = parsed(&printed);
    assert_eq!(erased(&before), erased(&again), "print changed the tree\n{text}\n=>\n{printed}");
    assert_eq!(
        comments(&before),
        comments(&again),
        "print changed comments\n{text}\n=>\n{printed}"
    );
}

proptest! {
    #![proptest_config(repeatable())]

    #[test]
    fn printed_trees_parse_to_themselves(tree in ast()) {
        let text = print(&tree);
        let back = parsed(&text);
        prop_assert_eq!(erased(&tree), erased(&back), "{}", text);
        prop_assert_eq!(print(&back), text.as_str());
        check_format(&text);
    }

    #[test]
    fn printed_expressions_parse_to_themselves(value in expr()) {
        let text = print_expr(&value);
        let file = parsed(&format!("arch a {{ x = {text} }}"));
        let dsl::Item::Arch(arch) = &file.items[0] else { panic!("an arch") };
        let dsl::ArchBody::Fields(fields) = &arch.body else { panic!("fields") };
        let dsl::Entry::Replace { value, .. } = &fields[0] else { panic!("one field") };
        prop_assert_eq!(print_expr(value), text);
    }

    #[test]
    fn formatting_keeps_comments(tree in ast(), picks in prop::collection::vec(any::<u8>(), 1..40)) {
        check_format(&sprinkle(&print(&tree), &picks));
    }

    #[test]
    fn formatting_is_idempotent_on_valid_texts(text in random_pieces(), picks in prop::collection::vec(any::<u8>(), 1..40)) {
        check_format(&text);
        check_format(&sprinkle(&text, &picks));
    }

    #[test]
    fn random_tokens_do_not_panic(text in random_tokens()) {
        survives(text.as_bytes());
    }

    #[test]
    fn any_text_does_not_panic(text in "(?s).{0,300}") {
        survives(text.as_bytes());
    }

    #[test]
    fn any_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        survives(&bytes);
    }

    /// Good texts with a piece removed or doubled: errors in likely places.
    #[test]
    fn damaged_texts_do_not_panic(text in random_pieces(), at in any::<prop::sample::Index>(), length in 1usize..12, twice: bool) {
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len() + 1);
        let end = (at + length).min(chars.len());
        let wound: Vec<char> = if twice {
            [&chars[..end], &chars[at..]].concat()
        } else {
            [&chars[..at], &chars[end..]].concat()
        };
        survives(wound.into_iter().collect::<String>().as_bytes());
    }
}

fn survives(bytes: &[u8]) {
    let mut sources = Sources::new();
    let file = sources.add("soup.canon", String::from_utf8_lossy(bytes));
    let (ast, diagnostics) = parse_bytes(file, bytes);
    print(&ast);
    render(&sources, &diagnostics);
    for diagnostic in &diagnostics {
        for label in &diagnostic.labels {
            assert!(label.span.start <= label.span.end && label.span.end as usize <= bytes.len());
        }
    }
    if diagnostics.is_empty() {
        check_format(sources.text(file));
    }
}
