//! `canonc build`, `bind` and `diff`: files written and not written, and every exit code.

use std::path::Path;

use super::super::{Ran, canonc, folder, hex_replaced};

const ARCHS: &str = "\
arch small {
  vocab 300   dim 8   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 2 }
    mlp   swiglu { hidden 16 }
  }
}
arch smallcanon = small with { canon A, B, C, D }
";

const RECIPE: &str = "\
arch = \"../arch/small.canon#small\"
data = { task = \"depo\", seq_len = 64, depo.N = 6, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2, ids = \"dense\" }
batch = { sequences = 4 }
optimizer = { lr = 0.003, weight_decay = 0.1 }
schedule = { kind = \"cosine\", warmup = 10 }
budget = { steps = 100 }
seeds = { init = 1, data = 1 }
";

const COMPARISON: &str = "\
base = \"a\"
treatment = [\"canon\"]
[arms]
a = \"a.toml\"
b = \"b.toml\"
[seeds]
init = [1, 2]
data = [1, 2]
";

fn project() -> tempfile::TempDir {
    folder(&[
        ("arch/small.canon", ARCHS),
        ("recipes/a.toml", RECIPE),
        ("recipes/b.toml", &RECIPE.replace("#small", "#smallcanon")),
        ("recipes/pair.toml", COMPARISON),
    ])
}

fn shown(ran: &Ran, dir: &Path) -> String {
    hex_replaced(&ran.text(dir), 12, "[id]")
}

fn edit(dir: &Path, path: &str, from: &str, to: &str) {
    let path = dir.join(path);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

fn locks(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir.join("lockfiles")) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_built_is_named_and_not_written_twice() {
    let dir = project();
    let dir = dir.path();
    let all =
        ["build", "arch/small.canon", "recipes/a.toml", "recipes/b.toml", "recipes/pair.toml"];
    let missing = canonc(dir, &[&["build", "--check"], &all[1..]].concat());
    insta::assert_snapshot!("missing", shown(&missing, dir));
    assert_eq!(locks(dir), [""; 0]);
    insta::assert_snapshot!("built", shown(&canonc(dir, &all), dir));
    assert_eq!(locks(dir), ["a.lock", "b.lock", "pair.lock", "small.lock", "smallcanon.lock"]);
    let written = |name: &str| {
        std::fs::metadata(dir.join("lockfiles").join(name)).unwrap().modified().unwrap()
    };
    let before: Vec<_> = locks(dir).iter().map(|name| written(name)).collect();
    insta::assert_snapshot!("again", shown(&canonc(dir, &all), dir));
    let after: Vec<_> = locks(dir).iter().map(|name| written(name)).collect();
    assert_eq!(before, after);
    // Drift is listed fact by fact, and nothing is written.
    edit(dir, "recipes/a.toml", "lr = 0.003", "lr = 0.002");
    edit(dir, "arch/small.canon", "hidden 16", "hidden 24");
    insta::assert_snapshot!(
        "stale",
        shown(&canonc(dir, &["build", "--check", "arch/small.canon", "recipes/a.toml"]), dir)
    );
    let still: Vec<_> = locks(dir).iter().map(|name| written(name)).collect();
    assert_eq!(before, still);
}

#[test]
fn an_open_lock_says_that_it_is_open_and_what_closes_it() {
    let dir = project();
    let dir = dir.path();
    let data = "data = { task = \"text\", seq_len = 64, source = \"c4\" }";
    let lines = RECIPE.lines().map(|line| if line.starts_with("data") { data } else { line });
    let text = lines.collect::<Vec<_>>().join("\n");
    std::fs::write(dir.join("recipes/t.toml"), text).unwrap();
    assert_eq!(canonc(dir, &["build", "recipes/t.toml"]).code, 0);
    let ran = canonc(dir, &["verify", "lockfiles/t.lock"]);
    insta::assert_snapshot!("open", shown(&ran, dir));
}

#[test]
fn a_confounded_comparison_is_not_locked() {
    let dir = project();
    let dir = dir.path();
    edit(dir, "recipes/b.toml", "weight_decay = 0.1", "weight_decay = 0.2");
    let ran = canonc(dir, &["build", "recipes/pair.toml"]);
    insta::assert_snapshot!("confounded", shown(&ran, dir));
    assert_eq!((ran.code, locks(dir)), (1, vec![]));
}

#[test]
fn nothing_of_anyone_else_is_written_over() {
    let dir = project();
    let dir = dir.path();
    let mut snapshots: Vec<(String, String)> = Vec::new();
    let mut show = |what: &str, ran: Ran| {
        snapshots.push((what.to_string(), shown(&ran, dir)));
    };
    std::fs::create_dir(dir.join("lockfiles")).unwrap();
    std::fs::write(dir.join("lockfiles/a.lock"), "my own notes\n").unwrap();
    show("a file that is no lock", canonc(dir, &["build", "recipes/a.toml"]));
    std::fs::remove_file(dir.join("lockfiles/a.lock")).unwrap();
    assert_eq!(canonc(dir, &["build", "recipes/a.toml"]).code, 0);
    std::fs::create_dir(dir.join("other")).unwrap();
    std::fs::copy(dir.join("recipes/a.toml"), dir.join("other/a.toml")).unwrap();
    show("a lock of another recipe", canonc(dir, &["build", "other/a.toml"]));
    show(
        "two of one name",
        canonc(dir, &["build", "other/a.toml", "recipes/a.toml", "--out", "new"]),
    );
    std::fs::write(
        dir.join("arch/a.canon"),
        ARCHS
            .replace("arch smallcanon = small with { canon A, B, C, D }\n", "")
            .replace("arch small ", "arch a "),
    )
    .unwrap();
    show(
        "an arch and a recipe of one name, and the rest goes on",
        canonc(
            dir,
            &["build", "arch/a.canon", "recipes/a.toml", "recipes/b.toml", "--out", "third"],
        ),
    );
    show("a lock", canonc(dir, &["build", "lockfiles/a.lock"]));
    show("neither", canonc(dir, &["build", "recipes"]));
    show("missing", canonc(dir, &["build", "recipes/c.toml"]));
    edit(dir, "recipes/b.toml", "#smallcanon", "");
    show("which arch", canonc(dir, &["build", "recipes/b.toml"]));
    edit(dir, "recipes/b.toml", "small.canon", "smalll.canon");
    show("no such arch", canonc(dir, &["build", "recipes/b.toml"]));
    edit(dir, "recipes/pair.toml", "b.toml", "c.toml");
    show("no such arm", canonc(dir, &["build", "recipes/pair.toml"]));
    support::assert_cases!("tests/cli", "nothing_of_anyone_else_is_written_over", snapshots);
}

/// Whatever the file is called.
#[test]
fn the_lock_of_an_arch_has_its_name() {
    let small = ARCHS.replace("arch smallcanon = small with { canon A, B, C, D }\n", "");
    let dir = folder(&[("tensor.canon", &small)]);
    let built = canonc(dir.path(), &["build", "tensor.canon"]);
    assert_eq!(built.code, 0, "{}", built.stderr);
    assert_eq!(locks(dir.path()), ["small.lock"]);
}

#[test]
fn locks_that_nothing_makes_any_more_are_named() {
    let dir = project();
    let dir = dir.path();
    let sweep = "[sweep]\nseeds.eval = [1, 2, 3]\n";
    std::fs::write(dir.join("recipes/s.toml"), format!("{RECIPE}{sweep}")).unwrap();
    assert_eq!(canonc(dir, &["build", "recipes/s.toml"]).code, 0);
    assert_eq!(locks(dir), ["s-eval1.lock", "s-eval2.lock", "s-eval3.lock"]);
    edit(dir, "recipes/s.toml", "[1, 2, 3]", "[1, 2]");
    let built = canonc(dir, &["build", "recipes/s.toml"]);
    insta::assert_snapshot!("orphan", shown(&built, dir));
    assert_eq!(canonc(dir, &["build", "--check", "recipes/s.toml"]).code, 1);
    std::fs::remove_file(dir.join("lockfiles/s-eval3.lock")).unwrap();
    assert_eq!(canonc(dir, &["build", "--check", "recipes/s.toml"]).code, 0);
}

#[test]
fn what_differs_in_many_places_is_told_once_and_costs_name_their_length() {
    let dir = project();
    let dir = dir.path();
    let more = "arch deep = small with { layers 5 of decoder { mixer attention { heads 2 }  mlp swiglu { hidden 16 } } }\n\
                arch bare = deep with { layers[every 2].mixer.rope = nope }\n";
    std::fs::write(dir.join("arch/small.canon"), format!("{ARCHS}{more}")).unwrap();
    std::fs::write(dir.join("recipes/c.toml"), RECIPE.replace("seq_len = 64", "seq_len = 128"))
        .unwrap();
    let built = canonc(dir, &["build", "arch/small.canon", "recipes/a.toml", "recipes/c.toml"]);
    assert_eq!(built.code, 0, "{}", built.stderr);
    let mut snapshots: Vec<(String, String)> = Vec::new();
    for (a, b) in [("deep", "bare"), ("a", "c")] {
        let files = [a, b].map(|name| format!("lockfiles/{name}.lock"));
        let ran = canonc(dir, &["diff", &files[0], &files[1]]);
        snapshots.push((format!("{a} and {b}"), shown(&ran, dir)));
    }
    support::assert_cases!(
        "tests/cli",
        "what_differs_in_many_places_is_told_once_and_costs_name_their_length",
        snapshots
    );
}

#[test]
fn exit_codes_of_diff() {
    let dir = project();
    let dir = dir.path();
    assert_eq!(canonc(dir, &["build", "arch/small.canon", "recipes/a.toml"]).code, 0);
    let diff = |more: &[&str]| {
        let arguments = ["diff", "lockfiles/small.lock", "lockfiles/smallcanon.lock"];
        canonc(dir, &[&arguments[..], more].concat())
    };
    insta::assert_snapshot!("controlled", shown(&diff(&["--treatment", "canon"]), dir));
    assert_eq!(diff(&["--treatment", "canon"]).code, 0);
    assert_eq!(diff(&[]).code, 1);
    let json = diff(&["--treatment", "canon", "--json"]);
    assert!(
        json.stdout.starts_with("{\n  \"schema\": \"canonc.diff.v1\"") && json.stderr.is_empty()
    );
    let mut snapshots: Vec<(String, String)> = Vec::new();
    let mut show = |what: &str, ran: Ran| {
        assert_eq!(ran.code, 2, "{what}");
        snapshots.push((what.to_string(), shown(&ran, dir)));
    };
    show("a treatment of nothing", diff(&["--treatment", "rope.dims"]));
    show("another kind", canonc(dir, &["diff", "lockfiles/small.lock", "lockfiles/a.lock"]));
    show("no such lock", canonc(dir, &["diff", "lockfiles/small.lock", "lockfiles/smal.lock"]));
    show("a folder", canonc(dir, &["diff", "lockfiles/small.lock", "lockfiles"]));
    edit(dir, "lockfiles/small.lock", "heads 2", "heads 4");
    show("edited by hand", diff(&[]));
    edit(dir, "lockfiles/small.lock", "version = 3", "version = 9");
    show("another version", diff(&[]));
    std::fs::write(dir.join("lockfiles/small.lock"), b"\xff\xfe").unwrap();
    show("no text", diff(&[]));
    support::assert_cases!("tests/cli", "exit_codes_of_diff", snapshots);
}

fn index(dir: &Path, name: &str, documents: &str) {
    std::fs::write(dir.join("documents.jsonl"), documents).unwrap();
    let ran = canonc(dir, &["data", "prepare", "documents.jsonl", "--out", name]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
}

#[test]
fn binding_closes_a_lock_and_building_again_keeps_it() {
    let dir = project();
    let dir = dir.path();
    let text = "data = { task = \"text\", seq_len = 16, source = \"c4\", held_out = 0 }\nevaluation = { metrics = [] }";
    let recipe: Vec<&str> =
        RECIPE.lines().map(|l| if l.starts_with("data = ") { text } else { l }).collect();
    std::fs::write(dir.join("recipes/t.toml"), recipe.join("\n") + "\n").unwrap();
    index(dir, "c4.index", "{\"text\": \"hello, you\"}\n{\"text\": \"world\"}\n");
    index(dir, "other.index", "{\"text\": \"something else altogether\"}\n");
    let mut snapshots: Vec<(String, String)> = Vec::new();
    let mut show = |what: &str, ran: Ran| {
        snapshots.push((what.to_string(), shown(&ran, dir)));
    };
    show("open", canonc(dir, &["build", "recipes/t.toml"]));
    show("no data", canonc(dir, &["bind", "lockfiles/t.lock", "--data", "c5.index"]));
    show("no index", canonc(dir, &["bind", "lockfiles/t.lock", "--data", "recipes/t.toml"]));
    show("bound", canonc(dir, &["bind", "lockfiles/t.lock", "--data", "c4.index"]));
    show("bound again", canonc(dir, &["bind", "lockfiles/t.lock", "--data", "c4.index"]));
    show("built again", canonc(dir, &["build", "recipes/t.toml"]));
    show("other data", canonc(dir, &["bind", "lockfiles/t.lock", "--data", "other.index"]));
    edit(dir, "recipes/t.toml", "lr = 0.003", "lr = 0.002");
    show("built with another rate", canonc(dir, &["build", "recipes/t.toml"]));
    assert_eq!(canonc(dir, &["build", "recipes/a.toml"]).code, 0);
    show("nothing to bind", canonc(dir, &["bind", "lockfiles/a.lock", "--data", "c4.index"]));
    support::assert_cases!(
        "tests/cli",
        "binding_closes_a_lock_and_building_again_keeps_it",
        snapshots
    );
    // 100 steps of 4 windows of 16 tokens, over 19 tokens: two documents with their marks.
    let lock = std::fs::read_to_string(dir.join("lockfiles/t.lock")).unwrap();
    assert!(
        lock.contains("data.epochs = \"6400/19\"\n") && lock.contains("data.tokens = 19\n"),
        "{lock}"
    );
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_loses_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let dir = project();
    let dir = dir.path();
    assert_eq!(canonc(dir, &["build", "recipes/a.toml"]).code, 0);
    let before = std::fs::read(dir.join("lockfiles/a.lock")).unwrap();
    edit(dir, "recipes/a.toml", "lr = 0.003", "lr = 0.002");
    let permissions = |mode| {
        std::fs::set_permissions(dir.join("lockfiles"), std::fs::Permissions::from_mode(mode))
            .unwrap();
    };
    permissions(0o555);
    let ran = canonc(dir, &["build", "recipes/a.toml"]);
    permissions(0o755);
    insta::assert_snapshot!("read_only", shown(&ran, dir));
    assert_eq!((ran.code, std::fs::read(dir.join("lockfiles/a.lock")).unwrap()), (3, before));
    assert_eq!(locks(dir), ["a.lock"]);
}

/// CI's command: every committed lock equals a new build of its source.
#[test]
fn every_committed_lock_is_what_its_source_gives() {
    let ran = canonc(&super::super::root(), &["build", "--check"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert!(ran.stderr.lines().all(|line| line.ends_with(": up to date")), "{}", ran.stderr);
    let locks = ran.stderr.lines().filter(|line| line.contains("-1T-") || line.contains("-2T-"));
    assert_eq!(locks.count(), 64 + 32);
    // A lock without a recorded source does not pass.
    let dir = project();
    assert_eq!(canonc(dir.path(), &["build", "arch/small.canon", "recipes/a.toml"]).code, 0);
    assert_eq!(canonc(dir.path(), &["build", "--check"]).code, 0);
    for damage in ["", "# @generated by `canonc bui", "<<<<<<< HEAD\n"] {
        std::fs::write(dir.path().join("lockfiles/a.lock"), damage).unwrap();
        let ran = canonc(dir.path(), &["build", "--check"]);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("lockfiles/a.lock: damaged"), "{}", ran.stderr);
    }
    let nothing = folder(&[]);
    let empty = canonc(nothing.path(), &["build", "--check"]);
    insta::assert_snapshot!("nothing_to_check", empty.text(nothing.path()));
}

const SWEPT: &str = "\
\"name, arch\" = [[\"plain\", \"../arch/small.canon#small\"], [\"canon\", \"../arch/small.canon#smallcanon\"]]
\"name, optimizer.lr\" = [[\"slow\", 0.001], [\"fast\", 0.003]]
";

/// Comparisons between points of one sweep, several in one file.
#[test]
fn arms_can_be_points_of_a_sweep() {
    let dir = project();
    let dir = dir.path();
    let recipe = RECIPE.replace("arch = \"../arch/small.canon#small\"\n", "");
    let recipe = recipe.replace("lr = 0.003, ", "") + "[sweep]\n" + SWEPT;
    std::fs::write(dir.join("recipes/all.toml"), recipe).unwrap();
    let rows = "[sweep]\n\"name, arms.a, arms.b\" = [\n  \
        [\"twin-slow\", \"all.toml#plain-slow\", \"all.toml#canon-slow\"],\n  \
        [\"twin-fast\", \"all.toml#plain-fast\", \"all.toml#canon-fast\"],\n]\n";
    let twins = COMPARISON.replace("[arms]\na = \"a.toml\"\nb = \"b.toml\"\n", "") + rows;
    std::fs::write(dir.join("recipes/twins.toml"), &twins).unwrap();
    let built = canonc(dir, &["build", "recipes/all.toml", "recipes/twins.toml"]);
    insta::assert_snapshot!("points", shown(&built, dir));
    assert_eq!(canonc(dir, &["build", "--check"]).code, 0);
    // One wrong row is reported by name, and keeps its whole file from being locked.
    for (name, from, to) in [
        ("no_such_point", "#canon-fast", "#canon-fats"),
        ("many_points", "all.toml#canon-fast", "all.toml"),
        ("a_confounded_row", "#canon-fast", "#canon-slow"),
    ] {
        std::fs::write(dir.join("recipes/twins.toml"), twins.replace(from, to)).unwrap();
        insta::assert_snapshot!(name, shown(&canonc(dir, &["build", "recipes/twins.toml"]), dir));
    }
}
