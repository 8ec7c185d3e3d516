//! `tests/cases/parse`: good files with their outline and formatted text, `err_` files with their
//! diagnostics. A test checks that every diagnostic of the parser has such a file.

use std::collections::BTreeSet;

use dsl::{Sources, format_source, parse_bytes, print, render};

use crate::outline::{erased, outline};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cases/parse");

#[test]
fn each_case_gives_its_snapshot() {
    insta::glob!("../../tests/cases/parse", "*.canon", |path| {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_string();
        let bytes = std::fs::read(path).unwrap();
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(CASES);
        settings.set_prepend_module_to_snapshot(false);
        settings.remove_snapshot_suffix();
        settings.set_omit_expression(true);
        settings.remove_input_file();
        settings.bind(|| insta::assert_snapshot!(stem.as_str(), shown(&stem, &bytes)));
    });
}

fn shown(stem: &str, bytes: &[u8]) -> String {
    let mut sources = Sources::new();
    let name = format!("{stem}.canon");
    let file = sources.add(name, String::from_utf8_lossy(bytes));
    let (ast, diagnostics) = parse_bytes(file, bytes);
    assert_eq!(stem.starts_with("err_"), !diagnostics.is_empty(), "{stem}");
    if !diagnostics.is_empty() {
        assert!(diagnostics.iter().all(|d| !d.message.ends_with('.')), "{stem}: trailing period");
        assert!(diagnostics.iter().all(|d| !d.help.is_empty()), "{stem}");
        return render(&sources, &diagnostics);
    }
    let formatted = format_source(file, sources.text(file)).unwrap();
    assert_eq!(format_source(file, &formatted).unwrap(), formatted, "{stem}: not idempotent");
    let (again, errors) = dsl::parse(file, &formatted);
    assert!(errors.is_empty(), "{stem}: the formatted text does not parse");
    assert_eq!(erased(&again), erased(&ast), "{stem}: formatting changed the tree");
    let (printed, errors) = dsl::parse(file, &print(&ast));
    assert!(errors.is_empty(), "{stem}: the printed text does not parse");
    assert_eq!(erased(&printed), erased(&ast), "{stem}: printing changed the tree");
    format!("{}=== formatted ===\n{formatted}", outline(&ast))
}

/// Compares the codes in `diag/syntax.rs` with those in the snapshots.
#[test]
fn every_diagnostic_has_a_case() {
    let factory = include_str!("../src/diag/syntax.rs");
    let mut codes = BTreeSet::new();
    for call in factory.split("Diagnostic::error(").skip(1) {
        codes.insert(call.split('"').nth(1).unwrap());
    }
    let constructors = factory.matches("pub(crate) fn ").count();
    assert_eq!(codes.len(), constructors, "one code per constructor");
    let mut shown = BTreeSet::new();
    for entry in std::fs::read_dir(CASES).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "snap") {
            let text = std::fs::read_to_string(&path).unwrap();
            shown.extend(codes.iter().copied().filter(|c| text.contains(&format!("error[{c}]"))));
        }
    }
    // These texts are too large to keep as files: `hostile.rs` makes them.
    shown.extend(crate::hostile::CODES);
    let missing: Vec<_> = codes.difference(&shown).collect();
    assert!(missing.is_empty(), "no case in {CASES} for {missing:?}");
}
