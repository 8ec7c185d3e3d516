//! The README's first example: a layer of the reader's own, with and without, at equal size.

use std::fs;

use crate::{root, run_line};

/// The comparison that the example's arch stands in.
const COMPARISON: &str = "\
base = \"plain\"
recipe = \"depo_first.toml\"
treatment = [\"mixer\"]

[arms]
plain = \"../arch/first.canon\"
gated = \"../arch/gated.canon#gated\"

[match]
on = \"parameters\"
arms = [\"gated\"]
compensate = \"mlp.hidden\"

[seeds]
init = [1, 2, 3]
data = [1, 2, 3]

[replicate]
init = [11, 12, 13]
data = [11, 12, 13]
";

#[test]
fn the_first_example_is_the_lock_that_the_readme_shows() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let arch = readme.split("```canon\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run_line(folder.path(), "new mine").code, 0);
    let mine = folder.path().join("mine");
    fs::write(mine.join("arch/gated.canon"), arch).unwrap();
    fs::write(mine.join("recipes/gated.toml"), COMPARISON).unwrap();
    let built = run_line(&mine, "-q build recipes/gated.toml --json");
    assert_eq!(built.code, 0, "{}", built.stderr);
    let id = built.stdout.split("\"id\": \"").nth(1).unwrap();
    let shown = format!("lockfiles/gated.lock: wrote comparison {}\n", &id[..12]);
    assert!(readme.contains(&shown), "{shown}");
    let arms = ["arch/first.canon", "arch/gated.canon"].map(|arch| {
        let shown = run_line(&mine, &format!("show {arch}"));
        let line = shown.stdout.lines().find(|line| line.starts_with("parameters")).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    });
    let sizes = format!("{} and {} parameters", arms[0], arms[1]);
    assert!(readme.contains(&sizes), "{sizes}");
}
