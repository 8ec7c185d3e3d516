//! Random texts, made of the language's words, and good texts with a few words exchanged: no panic, no endless run, no
//! refusal without a message; a text that compiles also compiles from its canonical text, to the same identity.

use std::cell::RefCell;
use std::collections::BTreeSet;

use compiler::program::{Program, Std};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

use super::bounds::{LAYER, MEMORY, TIME, in_a_child, report, used};
use support::programs::{TEXT, all_diagnostics, program_of, read, with_layers};

/// A random text of the language's words: mostly wrong, often nearly right.
fn words() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        3 => select(vec![
            "block", "mixer", "arch", "init", "layers", "of", "share", "param", "carry", "slot", "fill",
            "canon", "empty", "with", "if", "else", "not", "and", "true", "none",
        ]),
        4 => select(vec!["(", ")", "{", "}", "[", "]", ",", ";", "=", ".", "\n", "\n", " "]),
        3 => select(vec!["+", "-", "*", "/", "==", "<", "1", "0", "16", "9_000_000_000", "0.5", "1e-5"]),
        5 => select(vec![
            "x", "y", "dim", "vocab", "layer", "a", "b", "l", "decoder", "attention", "swiglu", "linear",
            "heads", "merge", "silu", "rope", "rotary", "A", "B", "w", "normal", "lingua", "hidden",
        ]),
    ];
    proptest::collection::vec(word, 0..120).prop_map(|words| words.join(" "))
}

/// A good text with some words exchanged, removed or repeated.
fn mutated() -> impl Strategy<Value = String> {
    let sources = [
        "std/attention.canon",
        "std/mamba2.canon",
        "std/gla.canon",
        "arch/hybridcanon_tiny.canon",
        "tests/cases/hash/bases.canon",
        "tests/cases/hash/agree_refactored.canon",
        "tests/cases/hash/agree_shared.canon",
        "tests/cases/hash/agree_unrolled.canon",
    ];
    let texts: Vec<String> = sources
        .map(|file| {
            let text = read(file).replace("hybrid_tiny.canon", "arch/hybrid_tiny.canon");
            if text.contains("arch ") { text } else { with_layers(&text, &format!("2 of {LAYER}")) }
        })
        .into();
    let edit = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3u8);
    (select(texts), proptest::collection::vec(edit, 1..6)).prop_map(|(text, edits)| {
        let mut words: Vec<&str> = text.split_inclusive([' ', '\n', '(', ')', ',', '.']).collect();
        for (at, other, kind) in edits {
            let (at, word) = (at.index(words.len()), words[other.index(words.len())]);
            match kind {
                0 => words[at] = word,
                1 => words.insert(at, word),
                _ if words.len() > 1 => {
                    words.remove(at);
                }
                _ => {}
            }
        }
        words.concat()
    })
}

/// Runs in a child with limited memory: random texts, each within the time limit. None panics or
/// fails without a message, and a text that compiles also compiles from its canonical text.
#[test]
fn random_texts() {
    if std::env::var_os("CANONC_BOUNDS").is_none() {
        let (codes, _) = in_a_child("lang::fuzz::random_texts", "");
        assert!(codes.len() > 20, "the random texts only show {codes:?}");
        return;
    }
    crate::ALLOCATOR.set_limit(MEMORY).unwrap();
    let mut seen = BTreeSet::new();
    let config = ProptestConfig {
        cases: support::cases(1500),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    let seen_here = RefCell::new(&mut seen);
    runner
        .run(&prop_oneof![1 => words(), 4 => mutated()], |text| {
            let before = used();
            let program = program_of(&text);
            for diagnostic in all_diagnostics(&program, TEXT) {
                seen_here.borrow_mut().insert(diagnostic.code);
            }
            for arch in program.archs(TEXT) {
                if let (Some(compiled), _) = program.compile(TEXT, &arch) {
                    let alone =
                        Program::new([("lock".to_owned(), compiled.text.clone())], Std::None);
                    let (again, diagnostics) = alone.compile("lock", &arch);
                    let again = again.unwrap_or_else(|| panic!("{}", alone.render(&diagnostics)));
                    assert_eq!(again.identity, compiled.identity);
                }
            }
            assert!(used() - before <= 3 * TIME, "{text}");
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    report(&format!("SAID 0 {}", seen.into_iter().collect::<Vec<_>>().join(" ")));
}
