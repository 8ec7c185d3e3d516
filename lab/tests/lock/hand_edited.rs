//! Locks that were edited, truncated, or made with another canonc: each gives its own error, with its line.

use lab::error::LockError;
use lab::lock::{Lock, read, read_bytes, write};

use super::files::demo;
use support::locks::{DEPO, MANO, TEXT, arch_lock, experiment_of, small};

fn refused(text: &str) -> LockError {
    match read("lockfiles/test.lock", text) {
        Err(error) => error,
        Ok(lock) => panic!("accepted as {}", lock.kind()),
    }
}

fn cut(text: &str, at: &str) -> String {
    let end = text.find(at).unwrap_or_else(|| panic!("{at}"));
    text[..end].to_owned()
}

fn edit(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

type Damages = Vec<(&'static str, String)>;

/// Edited lines of an experiment's lock.
fn edited_values(experiment: &str) -> Damages {
    vec![
        ("nothing", String::new()),
        ("something else", "hello = 1\n".to_owned()),
        ("another version", edit(experiment, "version = 3", "version = 4")),
        (
            "another version, not understood",
            "# @generated\nversion = 7\nname = \"x\"\nlayout <new>\n".to_owned(),
        ),
        ("a version in quotes", edit(experiment, "version = 3", "version = \"3\"")),
        ("no version", edit(experiment, "version = 3\n", "")),
        ("an edited value", edit(experiment, "optimizer.lr = 0.003", "optimizer.lr = 0.004")),
        ("an edited cosmetic", edit(experiment, "log.every = 10", "log.every = 11")),
        (
            "an edited platform",
            edit(experiment, "platform.threads = \"any\"", "platform.threads = 4"),
        ),
        ("an edited name", edit(experiment, "name = \"test\"", "name = \"other\"")),
        ("an edited digest", edit(experiment, "train = \"", "train = \"0")),
        (
            "an edited derived value",
            edit(experiment, "budget.tokens = 2457600", "budget.tokens = 1"),
        ),
        ("an edited arch", edit(experiment, "heads 2", "heads 4")),
        ("an edited definition", edit(experiment, "h + mlp(", "mlp(")),
        ("an arch that does not compile", edit(experiment, "mlp swiglu {", "mlp swigl {")),
        (
            "an arch laid out otherwise",
            edit(experiment, "mixer attention {", "mixer   attention {"),
        ),
        (
            "an edited arch field",
            edit(experiment, "\"layers.0..2.mixer.heads\" = 2", "\"layers.0..2.mixer.heads\" = 4"),
        ),
        (
            "a value of another kind",
            edit(experiment, "batch.sequences = 32", "batch.sequences = \"many\""),
        ),
        (
            "a field that does not exist",
            edit(experiment, "[eval]", "optimizer.warmpu = 3\n\n[eval]"),
        ),
        ("a section that does not exist", edit(experiment, "[eval]", "[extra]\nx = 1\n\n[eval]")),
        ("a missing field", edit(experiment, "optimizer.lr = 0.003\n", "")),
    ]
}

/// Lines moved, added or cut off.
fn changed_layouts(experiment: &str, tiny: &str) -> Damages {
    vec![
        (
            "two swapped lines",
            edit(
                experiment,
                "batch.micro_batches = 1\nbatch.sequences = 32\n",
                "batch.sequences = 32\nbatch.micro_batches = 1\n",
            ),
        ),
        (
            "another order of keys",
            edit(
                experiment,
                "kind = \"experiment\"\nname = \"test\"",
                "name = \"test\"\nkind = \"experiment\"",
            ),
        ),
        ("a comment", edit(experiment, "[eval]", "# mine\n[eval]")),
        ("a trailing line", format!("{experiment}x = 1\n")),
        ("a trailing newline", format!("{experiment}\n")),
        ("Windows line ends", experiment.replace('\n', "\r\n")),
        ("cut between sections", cut(experiment, "\n[platform]")),
        ("cut in a line", cut(experiment, "er.lr = 0.003")),
        ("cut in the arch", cut(experiment, "mlp swiglu(")),
        ("cut at the last newline", experiment.trim_end().to_owned()),
        ("cut in the manifest", cut(tiny, "layers.1.mixer.wq")),
    ]
}

/// Edited graphs, manifests, revisions and verdicts.
fn edited_facts(experiment: &str, mano: &str, tiny: &str, comparison: &str) -> Damages {
    vec![
        ("an edited graph", edit(tiny, "%5 = linear@1 {} (%3 %4)", "%5 = linear@1 {} (%4 %3)")),
        ("an edited manifest", edit(tiny, "head.norm [64] ones", "head.norm [64] zeros")),
        ("an op of another revision", edit(tiny, "op.rope = 1", "op.rope = 2")),
        ("an op that does not exist", edit(tiny, "op.rope = 1", "op.ropes = 1")),
        ("a generator of another revision", edit(mano, "task.mano = 1", "task.mano = 2")),
        (
            "a rule of another revision",
            edit(experiment, "schedule.kind = ", "revision.schedule = 2\nschedule.kind = "),
        ),
        (
            "a rule that does not exist",
            edit(experiment, "schedule.kind = ", "revision.shedule = 2\nschedule.kind = "),
        ),
        (
            "a rule at its first revision, which is not written",
            edit(experiment, "schedule.kind = ", "revision.schedule = 1\nschedule.kind = "),
        ),
        (
            "a rule that this data does not have",
            edit(experiment, "schedule.kind = ", "revision.text = 1\nschedule.kind = "),
        ),
        ("a kind that does not exist", edit(tiny, "kind = \"arch\"", "kind = \"arc\"")),
        ("a kind of another lock", edit(tiny, "kind = \"arch\"", "kind = \"experiment\"")),
        ("an edited verdict", edit(comparison, "controlled for canon", "controlled for nothing")),
        ("an edited treatment", edit(comparison, "[\"canon\"]", "[\"canon\", \"optimizer.lr\"]")),
        (
            "an arm with another rate",
            edit(comparison, "optimizer.lr = 0.003", "optimizer.lr = 0.002"),
        ),
        ("a run left out", edit(comparison, "demo-llama-seed2 = ", "demo-llama-seed9 = ")),
        ("a base that is not an arm", edit(comparison, "base = \"llama\"", "base = \"x\"")),
    ]
}

#[test]
fn each_damage_has_its_own_error() {
    let arch = small();
    let experiment = write(&Lock::Experiment(experiment_of(DEPO, &arch)));
    let mano = write(&Lock::Experiment(experiment_of(MANO, &arch)));
    let tiny = write(&arch_lock("arch/llamacanon_tiny.canon"));
    let comparison = write(&demo());
    let damages = edited_values(&experiment)
        .into_iter()
        .chain(changed_layouts(&experiment, &tiny))
        .chain(edited_facts(&experiment, &mano, &tiny, &comparison));
    let mut snapshots: Vec<(String, String)> = Vec::new();
    for (name, text) in damages {
        let error = refused(&text);
        assert!(!error.message.ends_with('.') && !error.help.is_empty(), "{name}");
        snapshots.push((name.to_string(), format!("[{}] {error}", error.code)));
    }
    support::assert_cases!("tests/lock", "each_damage_has_its_own_error", snapshots);
    assert_eq!(read_bytes("x", b"version = 1\n\xff").unwrap_err().code, "lock-not-text");
    assert_eq!(read_bytes("x", &vec![b' '; (64 << 20) + 1]).unwrap_err().code, "lock-too-large");
}

#[test]
fn only_closed_experiments_run() {
    use lab::lock::{comparable, runnable};
    let arch = small();
    let open = Lock::Experiment(experiment_of(TEXT, &arch));
    let error = runnable(open).unwrap_err();
    assert_eq!(error.code, "lock-open");
    insta::assert_snapshot!(error.to_string(), @r#"
    `test` is open: data.source = "nemotron_cc" has no digest yet
    help: bind it to the data: `canonc bind lockfiles/test.lock --data PATH`
    "#);
    assert_eq!(runnable(demo()).unwrap_err().code, "lock-kind");
    assert_eq!(
        comparable(Lock::Experiment(experiment_of(DEPO, &arch))).unwrap_err().code,
        "lock-kind"
    );
    assert!(runnable(Lock::Experiment(experiment_of(DEPO, &arch))).is_ok());
    assert!(comparable(demo()).is_ok());
}
