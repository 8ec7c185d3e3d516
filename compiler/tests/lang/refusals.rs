//! Every error of an architecture, as the user sees it: each constructor of `compiler/src/diag` has its file
//! `tests/cases/elaborate/err_*.canon` and its own code; files that begin with the same words show its forms.

use std::collections::BTreeSet;

use dsl::Diagnostic;

use support::programs::{TEXT, all_diagnostics, files, program, program_of, read, with_layers};

const CASES: &str = "tests/cases/elaborate";

#[test]
fn cases() {
    insta::glob!("../../../tests/cases/elaborate", "err_*.canon", |path| {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut settings = insta::Settings::clone_current();
        settings
            .set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cases/elaborate"));
        settings.set_prepend_module_to_snapshot(false);
        settings.remove_snapshot_suffix();
        settings.set_omit_expression(true);
        settings.remove_input_file();
        settings.bind(|| insta::assert_snapshot!(stem.as_str(), shown(&stem)));
    });
}

fn shown(stem: &str) -> String {
    let file = format!("{CASES}/{stem}.canon");
    let program = program(&file);
    let all = all_diagnostics(&program, &file);
    assert!(!all.is_empty(), "{stem} is accepted");
    all.iter().for_each(check_words);
    let code = stem.trim_start_matches("err_").replace('_', "-");
    let known = codes().contains(&code);
    assert!(!known || all.iter().any(|d| d.code == code), "{stem} does not show {code}");
    program.render(&all)
}

fn check_words(d: &Diagnostic) {
    assert!(!d.help.is_empty(), "{}: no help", d.code);
    for text in d.help.iter().chain([&d.message]) {
        assert!(!text.ends_with('.'), "{}: trailing period: {text}", d.code);
        assert!(!text.trim().is_empty(), "{}: empty label", d.code);
    }
}

/// The codes of the factory, by constructor.
fn constructors() -> Vec<(String, String)> {
    let factory = read("compiler/src/diag.rs") + &read("compiler/src/diag/elaborate.rs");
    let mut codes = Vec::new();
    for part in factory.split("pub(crate) fn ").skip(1) {
        let name = part.split(['(', '<']).next().unwrap().to_owned();
        let call =
            part.split_once("Diagnostic::error(").or(part.split_once("Diagnostic::warning("));
        if let Some((_, rest)) = call {
            codes.push((name, rest.split('"').nth(1).unwrap().to_owned()));
        }
    }
    codes
}

fn codes() -> BTreeSet<String> {
    constructors().into_iter().map(|(_, code)| code).collect()
}

#[test]
fn every_constructor_has_a_case() {
    let constructors = constructors();
    assert!(constructors.len() > 60);
    assert_eq!(codes().len(), constructors.len(), "one code per constructor");
    let cases: BTreeSet<String> = files(CASES, ".canon")
        .iter()
        .map(|file| file.trim_start_matches(&format!("{CASES}/err_")).trim_end_matches(".canon"))
        .map(|stem| stem.replace('_', "-"))
        .collect();
    let elsewhere = BTreeSet::from(ELSEWHERE.map(str::to_owned));
    let missing: Vec<String> =
        codes().into_iter().filter(|c| !cases.contains(c) && !elsewhere.contains(c)).collect();
    assert!(missing.is_empty(), "no case in {CASES} for {missing:?}");
    for file in files(CASES, ".snap") {
        let case = file.replace(".snap", ".canon");
        assert!(support::programs::root().join(&case).exists(), "{file} has no case");
    }
}

/// Codes that no text can show: a missing arch, and a text that is too large to keep.
const ELSEWHERE: [&str; 2] = ["no-such-arch", "text-too-large"];

#[test]
fn a_missing_arch_is_answered_with_those_of_the_file() {
    let program = program_of(&with_layers("", "2 of nope"));
    let (compiled, diagnostics) = program.compile(TEXT, "b");
    assert!(compiled.is_none());
    assert_eq!(
        program.render(&diagnostics).trim_end(),
        "error[no-such-arch]: this file does not define an arch `b`\n  --> test.canon:1:1\n  |\n1 |\n  | ^\n  |\n  = help: it defines `a`"
    );
    let empty = program_of("");
    let (_, diagnostics) = empty.compile(TEXT, "b");
    assert!(empty.render(&diagnostics).contains("= help: define one: `arch b { … }`"));
}
