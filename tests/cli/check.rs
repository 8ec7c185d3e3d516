//! `canonc check`.

use crate::{GOOD, canonc, folder, root};

#[test]
fn the_committed_archs_are_right() {
    let ran = canonc(&root(), &["check"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert!(ran.stderr.ends_with(": no errors\n"), "{}", ran.stderr);
}

const UNKNOWN: &str = "\
arch one {
  vocab 16   dim 8   norm_eps 1e-5
  init lingua
  layers 2 of decoder { mixer atention { heads 2 }  mlp swiglu { hidden 16 } }
}
";
const SHAPES: &str = "\
arch two {
  vocab 16   dim 9   norm_eps 1e-5
  init lingua
  layers 2 of decoder { mixer attention { heads 2 }  mlp swiglu { hidden 16 } }
}
";

#[test]
fn errors_of_all_files_in_one_run() {
    let dir = folder(&[
        ("arch/good.canon", GOOD),
        ("arch/one.canon", UNKNOWN),
        ("arch/sub/two.canon", SHAPES),
        ("arch/three.canon", "arch three = good with { canon A }\n"),
    ]);
    let ran = canonc(dir.path(), &["check"]);
    insta::assert_snapshot!(ran.text(dir.path()));
}

#[test]
fn a_warning_is_no_error() {
    let twin = "import good from \"good.canon\"\narch same = good with { vocab 16 }\n";
    let dir = folder(&[("good.canon", GOOD), ("same.canon", twin)]);
    insta::assert_snapshot!(canonc(dir.path(), &["check", "same.canon"]).text(dir.path()));
}

#[test]
fn errors_of_a_shared_import_are_reported_once() {
    let broken = "block half(x) {\n  y = silu(\n}\n";
    let importer = "import half from \"broken.canon\"\n";
    let dir = folder(&[("broken.canon", broken), ("a.canon", importer), ("b.canon", importer)]);
    let ran = canonc(dir.path(), &["check", "."]);
    assert_eq!(ran.stderr.matches("broken.canon:").count(), 1, "{}", ran.stderr);
    assert_eq!(ran.code, 2);
}

#[test]
fn json_with_places() {
    let dir = folder(&[("one.canon", UNKNOWN)]);
    let ran = canonc(dir.path(), &["check", "--json", "one.canon", "none.canon"]);
    insta::assert_snapshot!(ran.text(dir.path()));
}

#[test]
fn json_of_the_committed_archs_parses() {
    let ran = canonc(&root(), &["check", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["schema"], "canonc.check.v1");
    assert_eq!((&value["errors"], &value["diagnostics"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(ran.code, 0);
}

#[test]
fn colour_when_asked_for() {
    let dir = folder(&[("one.canon", UNKNOWN)]);
    let coloured = canonc(dir.path(), &["--color", "always", "check", "one.canon"]);
    let plain = canonc(dir.path(), &["check", "one.canon", "--color=never"]);
    assert!(coloured.stderr.contains('\u{1b}') && !plain.stderr.contains('\u{1b}'));
    let stripped = strip(&coloured.stderr);
    assert_eq!(stripped, plain.stderr);
}

/// Text without `ESC [ … m`.
fn strip(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        out += before;
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    out + rest
}

#[test]
fn nothing_to_check() {
    let dir = folder(&[("readme.txt", "")]);
    insta::assert_snapshot!("no_arch_folder", canonc(dir.path(), &["check"]).text(dir.path()));
    insta::assert_snapshot!("no_files", canonc(dir.path(), &["check", "."]).text(dir.path()));
}
