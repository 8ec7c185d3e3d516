//! The README's first example: a layer of the reader's own, with and without, at equal size.

use std::fs;

use crate::{root, run_line};

/// The text of a block of code in the README: the first in a language.
fn block<'a>(readme: &'a str, language: &str) -> &'a str {
    let text = readme.split(&format!("\n```{language}\n")).nth(1).unwrap();
    text.split("```").next().unwrap()
}

#[test]
fn the_first_example_gives_the_lock_and_the_verdict_that_the_readme_shows() {
    let readme = &fs::read_to_string(root().join("README.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run_line(folder.path(), "new mine").code, 0);
    let mine = folder.path().join("mine");
    fs::write(mine.join("arch/gated.canon"), block(readme, "canon")).unwrap();
    fs::write(mine.join("recipes/gated.toml"), block(readme, "toml")).unwrap();
    let (_, output) = readme.split_once("`canonc build recipes/gated.toml` ").unwrap();
    let (shown, _) = output.split_once("\n```\n").unwrap().1.split_once("…\n```").unwrap();
    let built = run_line(&mine, "build recipes/gated.toml");
    let printed = built.stdout + &built.stderr;
    assert!(built.code == 0 && printed.starts_with(shown), "{shown}\n{printed}");
}
