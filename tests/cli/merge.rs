//! `canonc merge` as git's merge driver, in real repositories.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::{canonc, folder};

const ARCH: &str = "\
arch good {
  vocab 300   dim 8   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 2 }
    mlp swiglu { hidden 16 }
  }
}
";

const RECIPE: &str = "\
arch = \"../arch/good.canon\"

[data]
seq_len = 64
ids = \"dense\"

[data.depo]
N = 6
K = 2
mini_vocab = 50
min_tlen = 1
max_tlen = 2

[batch]
sequences = 4

[budget]
steps = 100

[optimizer]
lr = 0.003
weight_decay = 0.1

[schedule]
kind = \"cosine\"
warmup = 10

[seeds]
init = 1
data = 1
";

const LOCK: &str = "lockfiles/r.lock";

/// git as nobody has configured it, with this `canonc` on PATH.
fn git(dir: &Path, words: &[&str]) -> Output {
    let bin = Path::new(env!("CARGO_BIN_EXE_canonc")).parent().unwrap().to_owned();
    let path = std::env::vars_os().find(|(name, _)| name == "PATH").map(|(_, path)| path);
    let others = path.iter().flat_map(std::env::split_paths);
    let path = std::env::join_paths(std::iter::once(bin).chain(others)).unwrap();
    let mut command = Command::new("git");
    command.args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]).args(words);
    command.env("PATH", path).env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", dir);
    command.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE").env_remove("GIT_WORK_TREE");
    command.current_dir(dir).stdin(Stdio::null()).output().expect("these tests need git")
}

fn git_succeeds(dir: &Path, words: &[&str]) -> String {
    let output = git(dir, words);
    let both = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "git {words:?}: {both:?}");
    both.concat()
}

/// Whether git did it without a conflict, and what it and the driver printed.
fn try_git(dir: &Path, words: &[&str]) -> (bool, String) {
    let output = git(dir, words);
    let both = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.success(), both.concat())
}

fn edit(dir: &Path, file: &str, from: &str, to: &str) {
    let text = fs::read_to_string(dir.join(file)).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(dir.join(file), text.replace(from, to)).unwrap();
}

/// A repository with a project in a folder of it, the driver set up as `canonc merge --help` says, and a lock.
fn repository(project: &str) -> tempfile::TempDir {
    let files = [("arch/good.canon", ARCH), ("recipes/r.toml", RECIPE)];
    let files = files.map(|(name, text)| (Path::new(project).join(name), text));
    let dir = folder(&files.each_ref().map(|(name, text)| (name.to_str().unwrap(), *text)));
    let root = dir.path();
    git_succeeds(root, &["init", "--quiet", "--initial-branch", "main"]);
    git_succeeds(root, &["config", "merge.canonc.driver", "canonc merge %O %A %B %P"]);
    git_succeeds(root, &["config", "merge.canonc.recursive", "binary"]);
    fs::write(root.join(".gitattributes"), "**/lockfiles/*.lock merge=canonc\n").unwrap();
    commit(root, project, "start");
    dir
}

/// Builds the lock, and commits everything.
fn commit(root: &Path, project: &str, message: &str) {
    let ran = canonc(&root.join(project), &["build", "-q", "recipes/r.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    git_succeeds(root, &["add", "--all"]);
    git_succeeds(root, &["commit", "--quiet", "--message", message]);
}

/// Two branches from the same commit, each with edits and a lock built from them.
fn branches(root: &Path, project: &str, ours: [&str; 3], theirs: [&str; 3]) {
    for (branch, [file, from, to]) in [("theirs", theirs), ("ours", ours)] {
        git_succeeds(root, &["checkout", "--quiet", "-b", branch, "main"]);
        edit(&root.join(project), file, from, to);
        commit(root, project, branch);
    }
}

const RATE: [&str; 3] = ["recipes/r.toml", "lr = 0.003", "lr = 0.001"];
const WARMUP: [&str; 3] = ["recipes/r.toml", "warmup = 10", "warmup = 20"];

#[test]
fn a_lock_of_two_changes_is_that_of_the_merged_recipe() {
    for project in ["", "experiments/one"] {
        let dir = repository(project);
        let (root, home) = (dir.path(), dir.path().join(project));
        branches(root, project, RATE, WARMUP);
        let output = git_succeeds(root, &["merge", "--no-edit", "theirs"]);
        assert!(output.contains("built again from the merged `recipes/r.toml`"), "{output}");
        let lock = fs::read_to_string(home.join(LOCK)).unwrap();
        assert!(lock.contains("optimizer.lr = 0.001") && lock.contains("schedule.warmup = 20"));
        let ran = canonc(&home, &["build", "--check"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(git_succeeds(root, &["status", "--porcelain"]), "");
    }
}

/// The lock depends on two files, and each branch changes another one.
#[test]
fn changes_of_the_arch_and_of_the_recipe_are_merged() {
    let dir = repository("");
    let root = dir.path();
    branches(root, "", ["arch/good.canon", "hidden 16", "hidden 24"], WARMUP);
    git_succeeds(root, &["merge", "--no-edit", "theirs"]);
    let lock = fs::read_to_string(root.join(LOCK)).unwrap();
    assert!(lock.contains("swiglu { hidden 24 }") && lock.contains("schedule.warmup = 20"));
    assert_eq!(canonc(root, &["build", "--check"]).code, 0);
}

/// The text at the lock's name is no lock, and building replaces it once the conflict is resolved.
fn unmerged(root: &Path, output: &str, reason: &str) {
    assert!(output.contains(reason), "{output}");
    assert!(git_succeeds(root, &["status", "--porcelain"]).contains("UU lockfiles/r.lock"));
    let text = fs::read_to_string(root.join(LOCK)).unwrap();
    assert!(text.contains("<<<<<<< not a lock") && text.contains("canonc build recipes/r.toml"));
    assert_eq!(canonc(root, &["diff", LOCK, LOCK]).code, 2);
}

#[test]
fn a_conflict_in_the_recipe_is_one_in_the_lock() {
    let dir = repository("");
    let root = dir.path();
    branches(root, "", RATE, ["recipes/r.toml", "lr = 0.003", "lr = 0.002"]);
    let (merged, output) = try_git(root, &["merge", "--no-edit", "theirs"]);
    assert!(!merged, "{output}");
    unmerged(root, &output, "`lockfiles/r.lock` is not merged: recipes/r.toml has conflicts");
    fs::write(root.join("recipes/r.toml"), RECIPE.replace("lr = 0.003", "lr = 0.0015")).unwrap();
    let ran = canonc(root, &["build", "--check"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    commit(root, "", "merged");
    assert!(fs::read_to_string(root.join(LOCK)).unwrap().contains("optimizer.lr = 0.0015"));
    assert_eq!(git_succeeds(root, &["status", "--porcelain"]), "");
}

/// A recipe that merges line by line and means nothing.
#[test]
fn a_merged_recipe_that_cannot_be_built_is_a_conflict() {
    let dir = repository("");
    let root = dir.path();
    branches(root, "", ["recipes/r.toml", "steps = 100", "steps = 15"], WARMUP);
    let (merged, output) = try_git(root, &["merge", "--no-edit", "theirs"]);
    assert!(!merged, "{output}");
    unmerged(root, &output, "the merged recipes/r.toml cannot be built");
}

/// git does not say which commits a rebase merges.
#[test]
fn a_rebase_leaves_a_conflict_with_the_command_that_ends_it() {
    let dir = repository("");
    let root = dir.path();
    branches(root, "", RATE, WARMUP);
    let (merged, output) = try_git(root, &["rebase", "theirs"]);
    assert!(!merged, "{output}");
    unmerged(root, &output, "only `git merge` of one branch says which commits are merged");
    assert_eq!(canonc(root, &["build", "-q", "recipes/r.toml"]).code, 0);
    git_succeeds(root, &["add", LOCK]);
    git_succeeds(root, &["-c", "core.editor=true", "rebase", "--continue"]);
    let lock = fs::read_to_string(root.join(LOCK)).unwrap();
    assert!(lock.contains("optimizer.lr = 0.001") && lock.contains("schedule.warmup = 20"));
}

/// Data that one branch bound stays bound.
#[test]
fn a_binding_survives_the_other_branch() {
    let dir = repository("");
    let root = dir.path();
    let text = RECIPE.split("[data]").next().unwrap().to_owned()
        + "[data]\ntask = \"text\"\nseq_len = 16\nsource = \"c4\"\nheld_out = 0\n\n[evaluation]\nmetrics = []\n\n[batch]"
        + RECIPE.split("[batch]").nth(1).unwrap();
    fs::write(root.join("recipes/r.toml"), text).unwrap();
    fs::write(root.join("c4.jsonl"), "{\"text\": \"hello, you\"}\n{\"text\": \"world\"}\n")
        .unwrap();
    commit(root, "", "text");
    let words = ["data", "prepare", "c4.jsonl", "--out", "c4.index"];
    let ran = canonc(root, &words);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    fs::write(root.join(".gitignore"), "*.index\n").unwrap();
    git_succeeds(root, &["checkout", "--quiet", "-b", "theirs"]);
    edit(root, "recipes/r.toml", "warmup = 10", "warmup = 20");
    commit(root, "", "theirs");
    git_succeeds(root, &["checkout", "--quiet", "-b", "ours", "main"]);
    assert_eq!(canonc(root, &["bind", LOCK, "--data", "c4.index"]).code, 0);
    commit(root, "", "ours");
    git_succeeds(root, &["merge", "--no-edit", "theirs"]);
    let lock = fs::read_to_string(root.join(LOCK)).unwrap();
    assert!(lock.contains("data.tokens = ") && lock.contains("schedule.warmup = 20"), "{lock}");
    assert_eq!(canonc(root, &["build", "--check"]).code, 0);
}

/// A lock with suites is made from their questions too, if those are committed.
#[cfg(feature = "ext")]
#[test]
fn questions_of_suites_are_merged_as_they_are_committed() {
    for is_committed in [true, false] {
        let dir = repository("");
        let root = dir.path();
        let depo = RECIPE.split("[data]").nth(1).unwrap().split("[batch]").next().unwrap();
        let text = RECIPE.replace(depo, "\nmultihop.N = 2\nmultihop.hops = 1\nseq_len = 96\n\n")
            + "\n[evaluation]\nsuites = [\"s.toml\"]\nsuite_data = \"copies\"\n";
        fs::write(root.join("recipes/r.toml"), text).unwrap();
        let suite = "[[task]]\nname = \"next\"\nkind = \"continuation\"\nfile = \"q.jsonl\"\n\
                     prompt = \"{{ a }}\"\nanswer = \"b\"\n";
        fs::write(root.join("recipes/s.toml"), suite).unwrap();
        fs::create_dir(root.join("recipes/copies")).unwrap();
        fs::write(root.join("recipes/copies/q.jsonl"), "{\"a\": \"one\", \"b\": \" two\"}\n")
            .unwrap();
        if !is_committed {
            fs::write(root.join(".gitignore"), "copies\n").unwrap();
        }
        commit(root, "", "suites");
        branches(root, "", RATE, WARMUP);
        let (merged, output) = try_git(root, &["merge", "--no-edit", "theirs"]);
        assert_eq!(merged, is_committed, "{output}");
        if is_committed {
            let lock = fs::read_to_string(root.join(LOCK)).unwrap();
            assert!(
                lock.contains("lr = 0.001") && lock.contains("suite_tasks = [\"next acc,"),
                "{lock}"
            );
        } else {
            unmerged(root, &output, "recipes/copies/q.jsonl");
            assert!(output.contains("only committed files are there"), "{output}");
        }
        assert_eq!(canonc(root, &["build", "-q", "recipes/r.toml"]).code, 0);
        assert_eq!(canonc(root, &["build", "--check"]).code, 0);
    }
}

#[test]
fn built_locks_as_json() {
    let dir = folder(&[("arch/good.canon", ARCH), ("recipes/r.toml", RECIPE)]);
    let states = |words: &[&str]| {
        let ran = canonc(dir.path(), &[&["build", "--json", "recipes/r.toml"], words].concat());
        let answer: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(answer["schema"], "canonc.build.v1");
        let lock = answer["locks"][0].clone();
        assert_eq!([&lock["path"], &lock["kind"]], [LOCK, "experiment"]);
        assert_eq!(lock["id"].as_str().unwrap().len(), 64);
        (ran.code, lock["state"].as_str().unwrap().to_owned())
    };
    assert_eq!(states(&["--check"]), (1, "missing".to_owned()));
    assert_eq!(states(&[]), (0, "wrote".to_owned()));
    assert_eq!(states(&[]), (0, "up to date".to_owned()));
    edit(dir.path(), "recipes/r.toml", "lr = 0.003", "lr = 0.001");
    assert_eq!(states(&["--check"]), (1, "stale".to_owned()));
}

const COMPARISON: &str = "base = \"a\"\ntreatment = [\"canon\"]\n[seeds]\ninit = [1]\ndata = [1]\n\
                          [arms]\na = \"r.toml\"\nb = \"s.toml\"\n";

#[test]
fn what_check_finds_is_in_the_json() {
    let treated = RECIPE.replace("lr = 0.003", "lr = 0.001").replace("good.canon", "canon.canon");
    let canon = "import good from \"good.canon\"\narch canon = good with { canon A }\n";
    let dir = folder(&[
        ("arch/good.canon", ARCH),
        ("recipes/r.toml", RECIPE),
        ("arch/canon.canon", canon),
        ("recipes/s.toml", &treated),
        ("recipes/both.toml", COMPARISON),
        ("lockfiles/odd.lock", "odd"),
    ]);
    let json = |words: &[&str]| -> (i32, serde_json::Value, String) {
        let ran = canonc(dir.path(), &[&["build", "--json"], words].concat());
        (ran.code, serde_json::from_str(&ran.stdout).unwrap(), ran.stderr)
    };
    let (code, answer, stderr) = json(&["recipes/r.toml", "recipes/both.toml"]);
    assert_eq!((code, &answer["locks"][0]["state"]), (1, &"wrote".into()), "{stderr}");
    assert_eq!(answer["failed"][0]["source"], "recipes/both.toml");
    assert_eq!(answer["failed"][0]["state"], "confounded");
    fs::rename(dir.path().join(LOCK), dir.path().join("lockfiles/old.lock")).unwrap();
    let (code, answer, _) = json(&["--check"]);
    assert_eq!(code, 1);
    let state = |name: &str| {
        let path = format!("lockfiles/{name}.lock");
        let mut locks = answer["locks"].as_array().unwrap().iter();
        let lock = locks.find(|lock| lock["path"] == path.as_str()).unwrap();
        (lock["state"].as_str().unwrap().to_owned(), lock["kind"].clone())
    };
    assert_eq!(state("r"), ("missing".to_owned(), "experiment".into()));
    assert_eq!(state("old"), ("orphan".to_owned(), "experiment".into()));
    assert_eq!(state("odd"), ("unreadable".to_owned(), serde_json::Value::Null));
}

/// The next command works as it is typed, in a folder with a space too.
#[test]
fn the_command_after_a_conflict_names_the_project_s_folder() {
    let dir = repository("my exp");
    let root = dir.path();
    branches(root, "my exp", RATE, ["recipes/r.toml", "lr = 0.003", "lr = 0.002"]);
    let (merged, output) = try_git(root, &["merge", "--no-edit", "theirs"]);
    assert!(!merged, "{output}");
    let next = "cd 'my exp' && canonc build recipes/r.toml && git add lockfiles/r.lock";
    assert!(output.contains(next), "{output}");
}

/// A lock that only one branch added is taken as it is, without the other branch's change.
#[test]
fn locks_of_one_branch_that_go_stale_are_named() {
    let dir = repository("");
    let root = dir.path();
    let swept = RECIPE.replace("lr = 0.003\n", "").replace(
        "[schedule]",
        "[sweep]\n\"name, optimizer.lr\" = [[\"x\", 0.003], [\"y\", 0.001]]\n\n[schedule]",
    );
    fs::write(root.join("recipes/r.toml"), &swept).unwrap();
    fs::remove_file(root.join(LOCK)).unwrap();
    commit(root, "", "sweep");
    let schedule = "[\"y\", 0.001]]\n\n[schedule]\nkind = \"cosine\"\nwarmup = 10";
    let third = schedule.replace("]]", "], [\"z\", 0.002]]").replace("10", "20");
    let ours = ["recipes/r.toml", schedule, &third];
    branches(root, "", ours, ["recipes/r.toml", "steps = 100", "steps = 120"]);
    // Both branches changed the other two locks, so git runs the driver for them.
    let (_, output) = try_git(root, &["merge", "--no-edit", "theirs"]);
    let check = canonc(root, &["build", "--check"]);
    assert_eq!(check.code, 1, "{}", check.stderr);
    assert!(check.stderr.contains("lockfiles/z.lock: stale"), "{}", check.stderr);
    assert!(output.contains("lockfiles/z.lock: stale after this merge"), "{output}");
}

/// A source that is not in the repository is not merged by git.
#[test]
fn a_source_behind_a_link_out_of_the_repository_is_not_taken_for_the_merged_one() {
    let dir = repository("");
    let root = dir.path();
    let outside = tempfile::tempdir().unwrap();
    let real = outside.path().join("r.toml");
    fs::rename(root.join("recipes/r.toml"), &real).unwrap();
    std::os::unix::fs::symlink(&real, root.join("recipes/r.toml")).unwrap();
    commit(root, "", "link");
    for (branch, lr) in [("theirs", "0.002"), ("ours", "0.001")] {
        git_succeeds(root, &["checkout", "--quiet", "-b", branch, "main"]);
        fs::write(&real, RECIPE.replace("0.003", lr)).unwrap();
        let ran = canonc(root, &["build", "-q", "recipes/r.toml"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        git_succeeds(root, &["commit", "--quiet", "--all", "--message", branch]);
    }
    let (merged, output) = try_git(root, &["merge", "--no-edit", "theirs"]);
    assert!(!merged, "{output}");
}
