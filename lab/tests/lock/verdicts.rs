//! Verdicts without canonc: `docs/check_verdict.py`, which knows the format but not the compiler, reaches the verdicts
//! of `diff`, in both orders.
//!
//! If Python or its package is missing on a CI machine, the test fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use lab::field::{Class, Origin, TABLE};
use lab::lock::{ArchLock, Lock, read as read_lock, write};
use lab::verdict::{Outcome, controlled};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::ids::{in_ci, python, without_python};
use super::pairs::pair;
use support::programs::{compiled, files, read, root};
use support::scratch;
use tasks::task::{Definition, names_where};

/// Pairs of locks by name, each with a treatment.
#[derive(Default, serde::Serialize)]
struct Batch {
    locks: BTreeMap<String, String>,
    pairs: Vec<(String, String, Vec<String>)>,
}

#[derive(Debug, PartialEq, Eq, serde::Deserialize)]
struct ScriptVerdict {
    outcome: String,
    factors: usize,
    left: Vec<String>,
    assumed: Vec<String>,
}

pub(super) fn script() -> std::path::PathBuf {
    root().join("docs/check_verdict.py")
}

/// Printed with the test, whether it passes or fails.
fn print_line(line: &str) {
    let mut stderr = std::io::stderr();
    let _ = writeln!(stderr, "{line}");
}

/// `a`, `a and b`, `a, b and c`, each in backticks.
fn in_words(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        names => names.concat(),
    }
}

/// The lines below `evaluation` that follow from a task's row.
#[test]
fn the_script_and_the_page_say_how_each_task_is_measured() {
    let (script, page) = (read("docs/check_verdict.py"), read("docs/locks.md"));
    let is_written = |task: &Definition| !task.written.is_empty();
    for task in tasks::DEFINITIONS {
        let facts =
            [(task.sized, "mode"), (is_written(task), "samples"), (task.is_text, "suite_tasks?")];
        let lines: Vec<&str> =
            facts.into_iter().filter_map(|(has, line)| has.then_some(line)).collect();
        let start = format!("    \"{}\": (", task.name);
        let row = script.lines().find(|line| line.starts_with(&start));
        let end = format!(", \"{}\"),", lines.join(" "));
        assert!(row.is_some_and(|row| row.ends_with(&end)), "check_verdict.py: {start}…{end}");
    }
    for words in [
        format!("`evaluation.mode` for {}", in_words(&names_where(|task| task.sized))),
        format!("`evaluation.samples` for {}", in_words(&names_where(is_written))),
        format!(
            "for `{}` and text, `evaluation.suite_tasks`",
            names_where(|task| task.is_text).join("`, `")
        ),
    ] {
        assert!(page.contains(&words), "docs/locks.md: {words}");
    }
}

/// The script's verdicts; `None` without Python, which is a failure on CI.
fn by_script(name: &str, batch: &Batch) -> Option<Vec<ScriptVerdict>> {
    let python = match python() {
        Ok(python) => python,
        Err(reason) => {
            let note =
                without_python(&reason, in_ci()).unwrap_or_else(|failure| panic!("{failure}"));
            print_line(&format!("\nNOT RUN: {note}"));
            return None;
        }
    };
    let path = scratch!("verdicts").join(format!("{name}.json"));
    std::fs::write(&path, serde_json::to_string(batch).unwrap()).unwrap();
    let out = Command::new(python).arg(script()).arg("--batch").arg(path).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(serde_json::from_slice(&out.stdout).unwrap())
}

/// The verdict of `diff`, in the script's words.
pub(super) fn by_diff(
    a: &(Lock, String),
    b: &(Lock, String),
    treatment: &[String],
) -> (String, String, Vec<String>) {
    let (left, right) = (a.0.side("a", &a.1), b.0.side("b", &b.1));
    let (Ok(left), Ok(right)) = (left, right) else { return Default::default() };
    match controlled(&left, &right, treatment) {
        Err(refusal) => ("refused".to_owned(), refusal.message, Vec::new()),
        Ok(verdict) => {
            let outcome = match verdict.outcome {
                Outcome::Identical => "identical".to_owned(),
                Outcome::Controlled => "controlled".to_owned(),
                Outcome::Bundle(n) => format!("bundle of {n}"),
                Outcome::Confounded(_) => "confounded".to_owned(),
            };
            let paths = verdict.confounds.iter().map(|change| change.path.as_str());
            (outcome, paths.collect::<Vec<_>>().join(", "), verdict.assumed)
        }
    }
}

/// Compares the script with `diff` in both orders, and the script with itself. Returns the verdicts; `None` without
/// Python.
pub(super) fn compare(
    name: &str,
    locks: &BTreeMap<String, (Lock, String)>,
    pairs: &[(String, String, Vec<String>)],
) -> Option<Vec<String>> {
    let mut batch = Batch::default();
    for (name, (_, text)) in locks {
        batch.locks.insert(name.clone(), text.clone());
    }
    for (a, b, treatment) in pairs {
        batch.pairs.push((a.clone(), b.clone(), treatment.clone()));
        batch.pairs.push((b.clone(), a.clone(), treatment.clone()));
    }
    let answers = by_script(name, &batch)?;
    let mut verdicts = Vec::new();
    assert_eq!(answers.len(), batch.pairs.len());
    let (mut outcomes, mut wrong) = (BTreeMap::<String, usize>::new(), Vec::new());
    for ((a, b, treatment), both) in pairs.iter().zip(answers.chunks(2)) {
        let shown = |verdict: &ScriptVerdict| match verdict.outcome.as_str() {
            "bundle" => format!("bundle of {}", verdict.factors),
            outcome => outcome.to_owned(),
        };
        let [ours, reversed] = [shown(&both[0]), shown(&both[1])];
        let (ahead, reason, assumed) = by_diff(&locks[a], &locks[b], treatment);
        let (back, reason_back, _) = by_diff(&locks[b], &locks[a], treatment);
        for verdict in both {
            assert_eq!(verdict.assumed, assumed, "{a} {b} {treatment:?}");
        }
        *outcomes.entry(ahead.clone()).or_default() += 1;
        verdicts.push(ours.clone());
        if [&ours, &reversed, &back].iter().any(|outcome| **outcome != ahead) {
            wrong.push(format!(
                "{a} {b} {treatment:?}: script {ours} / {reversed} {:?}; diff {ahead} ({reason}) / {back} ({reason_back})",
                both[0].left.iter().take(3).collect::<Vec<_>>()
            ));
        }
    }
    print_line(&format!("{name}: {} pairs {outcomes:?}", pairs.len()));
    let shown = wrong.iter().take(25).cloned().collect::<Vec<_>>().join("\n");
    if !wrong.is_empty() {
        let folder = scratch!("verdicts");
        for line in wrong.iter().take(25) {
            for word in line.split(' ').take(2) {
                std::fs::write(folder.join(word.replace("lockfiles/", "")), &locks[word].1)
                    .unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ\n{shown}", wrong.len(), pairs.len());
    Some(verdicts)
}

fn random_pairs(name: &str, seed: u8, count: usize) {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut locks, mut pairs) = (BTreeMap::new(), Vec::new());
    while pairs.len() < count {
        let pair = pair().new_tree(&mut runner).unwrap().current();
        let Some(arms) = pair.compiled() else { continue };
        let treatment = pair.treatment(&arms);
        let names = ["a", "b"].map(|arm| format!("{name}-{}{arm}", pairs.len()));
        for (name, arm) in names.iter().zip(&arms) {
            let lock = Lock::Arch(ArchLock::new(name, "arch/x.canon", arm).unwrap());
            let text = write(&lock);
            locks.insert(name.clone(), (lock, text));
        }
        let [a, b] = names;
        pairs.push((a, b, treatment));
    }
    compare(name, &locks, &pairs);
}

/// How many pairs a test compares.
pub(super) fn cases() -> usize {
    support::cases(300) as usize
}

/// Five hundred pairs per seed.
#[test]
fn random_pairs_agree() {
    let mut left = cases();
    let mut seed = 0;
    while left > 0 {
        seed += 1;
        let count = left.min(500);
        random_pairs(&format!("random{seed}"), seed, count);
        left -= count;
    }
}

/// An arch of two layers with slots A to D, after its own definitions.
fn small(definitions: &str, edits: &str) -> String {
    format!(
        "{definitions}\narch x {{\n  vocab 64  dim 16  norm_eps 1e-5\n  init lingua\n  layers 2 of decoder {{ mixer \
         attention {{ heads 2 }}  mlp swiglu {{ hidden 16 }} }}\n}}\narch y = x with {{ {edits} }}\n"
    )
}

/// A pair of archs: its name, both texts, the treatment, and the outcome.
type HiddenPair = (&'static str, String, String, &'static str, &'static str);

/// Fills that differ in a default, and slots that are somewhere else.
fn hidden_behind_definitions() -> Vec<HiddenPair> {
    let moved = "block decoder(x; mixer, mlp) {\n  x = slot A(x)\n  h = x + mixer(rms_norm pre_mixer (x))\n  \
                 h + mlp(slot C(rms_norm pre_mlp (h)))\n}\n";
    let edit = |edits: &str| small("", edits);
    let fill = |name: &str, kernel: u8| {
        let definition =
            format!("mlp {name}(x; kernel = {kernel}) {{\n  canon filter (x, kernel)\n}}\n");
        small(&definition, &format!("fill A with {name}"))
    };
    vec![
        // The fills are equal except for the default of a setting.
        ("fill-default", fill("one", 3), fill("two", 4), "slots.A", "confounded"),
        ("fill-renamed", fill("one", 3), fill("two", 3), "slots.A", "refused"),
        (
            "moved-filled",
            edit("mixer.window 4"),
            small(moved, "canon A  mixer.window 4"),
            "canon",
            "confounded",
        ),
        (
            "moved-fill",
            small(moved, "mixer.window 4"),
            edit("canon A  mixer.window 4"),
            "slots.A",
            "confounded",
        ),
        (
            "moved-empty",
            edit("canon C"),
            small(moved, "mixer.window none  canon C"),
            "",
            "identical",
        ),
        (
            "moved-other",
            edit("norm_eps 1e-4"),
            small(moved, "norm_eps 1e-4  canon C"),
            "canon",
            "controlled",
        ),
    ]
}

/// Initial values, settings of fills, definitions that share a name with one of std, and layers.
fn hidden_behind_fills() -> Vec<HiddenPair> {
    let canon = "mlp canon(x; kernel = 4) {\n  linear up (silu(x), dim)\n}\n";
    let mine = "mlp mine(x; kernel = 3) {\n  canon filter (x, kernel)\n}\n";
    let edit = |edits: &str| small("", edits);
    vec![
        ("row", edit("init.canon zeros"), edit("canon A"), "canon", "confounded"),
        ("idle-row", edit("init.bias ones"), edit("canon A"), "canon", "controlled"),
        ("setting", edit("canon A { kernel 3 }"), edit("canon A"), "slots.A", "refused"),
        (
            "named-canon",
            edit("norm_eps 1e-4"),
            small(canon, "norm_eps 1e-4  fill A with canon"),
            "canon",
            "refused",
        ),
        (
            "fill",
            edit("norm_eps 1e-4"),
            small(canon, "norm_eps 1e-4  fill A with canon"),
            "slots.A",
            "controlled",
        ),
        (
            "other-fill",
            edit("canon A { kernel 3 }"),
            small(mine, "fill A with mine"),
            "slots.A",
            "controlled",
        ),
        ("other-kernel", edit("canon A"), small(mine, "fill A with mine"), "slots.A", "confounded"),
        (
            "one-layer",
            edit("canon A"),
            edit("canon layers[0].A"),
            "arch.layers.1.slots.A",
            "controlled",
        ),
        (
            "wrong-layer",
            edit("canon A"),
            edit("canon layers[0].A"),
            "arch.layers.0.slots.A",
            "refused",
        ),
    ]
}

/// Differences that erasure alone misses, and rewritings that are not differences.
#[test]
fn differences_behind_an_empty_slot() {
    let cases = [hidden_behind_definitions(), hidden_behind_fills()].concat();
    let (mut locks, mut pairs) = (BTreeMap::new(), Vec::new());
    for (name, a, b, treatment, _) in &cases {
        let names = [format!("{name}-a"), format!("{name}-b")];
        for (name, text) in names.iter().zip([a, b]) {
            let lock = Lock::Arch(ArchLock::new(name, "arch/x.canon", &compiled(text)).unwrap());
            let text = write(&lock);
            locks.insert(name.clone(), (lock, text));
        }
        let [a, b] = names;
        let treatment = treatment.split(' ').filter(|t| !t.is_empty()).map(str::to_owned);
        pairs.push((a, b, treatment.collect()));
    }
    let want: Vec<&str> = cases.iter().map(|case| case.4).collect();
    if let Some(outcomes) = compare("hidden", &locks, &pairs) {
        assert_eq!(outcomes, want);
    }
}

fn committed(kind: &str) -> BTreeMap<String, (Lock, String)> {
    let mut locks = BTreeMap::new();
    for name in files("lockfiles", ".lock") {
        let text = read(&name);
        if text.contains(&format!("\nkind = \"{kind}\"\n")) {
            locks.insert(name.clone(), (read_lock(&name, &text).unwrap(), text));
        }
    }
    locks
}

fn committed_pairs(name: &str, kind: &str, slots: &[&str], chosen: impl Fn(&str, &str) -> bool) {
    let locks = committed(kind);
    let mut pairs = Vec::new();
    for (i, a) in locks.keys().enumerate() {
        for b in locks.keys().skip(i + 1).filter(|b| chosen(a, b)) {
            for slot in slots {
                pairs.push((a.clone(), b.clone(), vec![(*slot).to_owned()]));
            }
        }
    }
    assert!(!pairs.is_empty());
    // Spread evenly over all of them.
    let every = pairs.len().div_ceil(cases());
    let pairs: Vec<_> = pairs.into_iter().step_by(every).collect();
    compare(name, &locks, &pairs);
}

const SLOTS: [&str; 5] = ["canon", "slots.A", "slots.B", "slots.C", "slots.D"];

#[test]
fn committed_archs_agree() {
    committed_pairs("archs", "arch", &SLOTS, |_, _| true);
}

/// Each published twin, and neighbours by name.
#[test]
fn committed_experiments_agree() {
    let twins = |a: &str, b: &str| {
        let bare =
            |name: &str| name.replace("Canon", "").replace("conv-", "-").replace("canon", "");
        bare(a) == bare(b)
    };
    committed_pairs("experiments", "experiment", &["canon", "slots.A"], twins);
}

#[test]
fn all_committed_experiments_agree() {
    committed_pairs("all-experiments", "experiment", &["canon"], |_, _| true);
}

/// The page and the script list the carried keys; both lists must equal the field table's.
#[test]
fn carried_keys_are_those_of_the_field_table() {
    let carried = TABLE.iter().filter(|def| def.class == Class::Carried);
    let carried: BTreeSet<&str> = carried.map(|def| def.path).collect();
    let script = std::fs::read_to_string(script()).unwrap();
    let (_, list) = script.split_once("\nCARRIED = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    let listed = list.split(',').map(|word| format!("lingua.{}", word.trim().trim_matches('"')));
    let listed: BTreeSet<String> = listed.collect();
    assert!(
        carried.iter().copied().eq(listed.iter().map(String::as_str)),
        "{carried:?} {listed:?}"
    );
    let (_, list) = script.split_once("\nRECORDS = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    let listed: Vec<&str> = list.split(',').map(|word| word.trim().trim_matches('"')).collect();
    let records = TABLE.iter().filter(|def| def.records_text).map(|def| def.path);
    assert_eq!(records.collect::<Vec<_>>(), listed);
    let page = read("docs/locks.md");
    let (_, section) = page.split_once("## 7.").unwrap();
    let named = section.split('`').filter(|word| word.starts_with("lingua."));
    assert_eq!(carried, named.collect::<BTreeSet<&str>>());
}

/// The page and the script list every line of a lock's sections.
#[test]
fn lines_are_those_of_the_field_table() {
    let (script, page) = (std::fs::read_to_string(script()).unwrap(), read("docs/locks.md"));
    let (_, section) = page.split_once("A lock that lacks one of the lines below").unwrap();
    let (section, _) = section.split_once("## 3.").unwrap();
    let words: BTreeSet<&str> =
        script.split(|c: char| !c.is_ascii_alphanumeric() && !"._".contains(c)).collect();
    let derived = |path: &str| {
        ["arch.graph", "arch.manifest", "data.task_digest", "optimizer.decayed", "optimizer.groups"]
            .contains(&path)
    };
    for def in TABLE.iter().filter(|def| def.origin != Origin::Derived || derived(def.path)) {
        // Of the two forms of a budget, locks list the steps.
        if def.path == "budget.tokens" {
            continue;
        }
        let short = def.path.split_once('.').map_or(def.path, |(_, short)| short);
        if let (Some((task, name)), true) = (short.split_once('.'), def.path.starts_with("data.")) {
            let listed = |text: &str, start: &str, end: char| {
                let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("{start}"));
                let names = rest.split(end).next().unwrap_or_default();
                names.split([',', ' ']).any(|word| word.trim() == name)
            };
            assert!(listed(section, &format!("for `{task}` "), ';'), "{}", def.path);
            assert!(listed(&script, &format!("\"{task}\": (\""), '"'), "{}", def.path);
            continue;
        }
        let named = def.path.strip_prefix("lingua.").unwrap_or(def.path);
        assert!(
            section.contains(&format!("`{named}`")) || section.contains(def.path),
            "{}",
            def.path
        );
        assert!(words.contains(def.path) || words.contains(short), "{}", def.path);
    }
}

/// Removes each line of a lock that affects the result, or moves it to a section without effect, and makes every digest fit.
const FORGE: &str = r##"
import functools, re, sys
sys.path.insert(0, sys.argv[1])
import check_verdict as cv

# What is forged here changes no graph.
cv.Graph.form = functools.cache(cv.Graph.form)
cv.Graph.decayed = functools.cache(cv.Graph.decayed)
cv.Graph = functools.cache(cv.Graph)

def sealed(text):
    lines = cv.sections(text)
    def put(text, name, value):
        return re.sub(rf'(?m)^{name} = "[0-9a-f]{{64}}"$', f'{name} = "{value}"', text, count=1)
    train = cv.digest("canonc.train.v1", lines["train"])
    text = text.replace(re.search(r'(?m)^train = "(\w+)"$', text)[1], train)
    lines = cv.sections(text)
    for name in ("eval", "platform"):
        text = put(text, name, cv.digest(f"canonc.{name}.v1", lines[name]))
    old = re.search(r'\ntext = "\w{64}"\n', text)[0]
    return text.replace(old, f'\ntext = "{cv.digest("canonc.lock.v1", text.replace(old, chr(10), 1))}"\n', 1)

def refused(text):
    try:
        cv.Lock(sealed(text))
    except (cv.Bad, KeyError) as why:
        return str(why)

def moved(text, line, name, to):
    text = text.replace(line, "", 1)
    held = cv.sections(text)[to]
    new = name + line[line.index(" = "):]
    return text.replace(f"[{to}]\n{held}", f"[{to}]\n" + "".join(sorted([*held.splitlines(True), new])), 1)

for path in sys.argv[2:]:
    text = open(path, newline="").read()
    assert refused(text) is None, (path, refused(text))
    for section in ("train", "eval"):
        for line in cv.sections(text)[section].splitlines(True):
            name = line.split(" = ")[0]
            if name in ("train", "data.shuffle"):
                continue
            assert refused(text.replace(line, "", 1)), f"{path}: {name} can be missing"
            for to in ("cosmetic", "platform", "derived"):
                for new in (name, "lingua.zz", "lingua.seed", "platform.zz", "log.zz", "checkpoint.zz"):
                    if to != "derived" or new == name:
                        assert refused(moved(text, line, new, to)), f"{path}: {name} as {new} in {to}"
    for more in ("zz = 1", "data.zz = 1", "revision.a.b = 1"):
        assert refused(text.replace("[train]\n", f"[train]\n{more}\n", 1)), more
    if 'data.digest = "unbound"' in text:
        line = re.search(r"(?m)^data\.source = .*\n", text)[0]
        assert refused(moved(text.replace('data.digest = "unbound"', 'data.digest = "mine"'), line, "data.source", "cosmetic"))
"##;

/// The shortest committed lock of an experiment for each list of lines that affect a result.
fn locks_with_each_list_of_lines() -> Vec<String> {
    let mut shortest = BTreeMap::<Vec<String>, (usize, String)>::new();
    for name in files("lockfiles", ".lock") {
        let text = read(&name);
        if !text.contains("\nkind = \"experiment\"\n") {
            continue;
        }
        let lines = ["train", "eval"].iter().flat_map(|section| {
            let (_, rest) = text.split_once(&format!("\n[{section}]\n")).unwrap();
            let lines = rest.lines().take_while(|line| !line.starts_with('['));
            lines.map(|line| line.split(" = ").next().unwrap().to_owned())
        });
        let lock = (text.len(), name);
        let known = shortest.entry(lines.collect()).or_insert_with(|| lock.clone());
        if lock < *known {
            *known = lock;
        }
    }
    shortest.into_values().map(|(_, name)| name).collect()
}

#[test]
fn locks_with_lines_missing_or_moved_are_refused() {
    let Ok(python) = python() else {
        let note = without_python("", in_ci()).unwrap_or_else(|failure| panic!("{failure}"));
        return print_line(&format!("\nNOT RUN: {note}"));
    };
    let locks = locks_with_each_list_of_lines();
    assert!(locks.len() > 1, "{locks:?}");
    let out = Command::new(&python)
        .args(["-c", FORGE])
        .arg(root().join("docs"))
        .args(locks.iter().map(|name| root().join(name)))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// The script's output without a verdict, and its exit code.
#[test]
fn locks_that_do_not_hold_are_refused() {
    let python = match python() {
        Ok(python) => python,
        Err(reason) => {
            let note =
                without_python(&reason, in_ci()).unwrap_or_else(|failure| panic!("{failure}"));
            return print_line(&format!("\nNOT RUN: {note}"));
        }
    };
    let run = |a: &Path, treatment: &str| {
        let b = root().join("lockfiles/llamacanon_tiny.lock");
        let out =
            Command::new(&python).arg(script()).arg(a).arg(b).arg(treatment).output().unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned(),
        )
    };
    let base = root().join("lockfiles/llama_tiny.lock");
    let (code, output) = run(&base, "canon");
    assert_eq!((code, output.as_str()), (Some(0), "controlled (canon)\n"));
    assert_eq!(run(&base, "slots.A").0, Some(1));
    for treatment in [
        "slots.Z",
        "mixer.heads",
        "slots",
        "arch.layers[0..2.slots.A",
        "arch.layers.0..2].slots.A",
        "arch.layers[0]slots.A",
        "arch.layers.0..2slots.A",
        "arch.layers.[0].slots.A",
    ] {
        assert_eq!(run(&base, treatment).0, Some(2), "{treatment}");
    }
    let named = "neither arm has a field `slots.Z`: write `canon`, or a slot by its path, such as `arch.layers.*.slots.A`";
    assert!(run(&base, "slots.Z").1.contains(named), "{}", run(&base, "slots.Z").1);
    assert_eq!(run(Path::new("no/such.lock"), "canon").0, Some(2));
    let text = std::fs::read_to_string(&base).unwrap();
    let changed = scratch!("verdicts").join("changed.lock");
    for (before, after) in [
        ("at pre_mixer", "at pre_mixes"),
        ("slot {A, at A, empty} (%2)", "slot {A, at A, empty} (%0)"),
        ("\"layers.0..2.slots.A\" = \"empty\"", "\"layers.0..2.slots.A\" = \"canon\""),
        ("embed [258,64]", "embed [258,65]"),
        ("version = 3", "version = 1"),
    ] {
        assert!(text.contains(before), "{before}");
        std::fs::write(&changed, text.replacen(before, after, 1)).unwrap();
        assert_eq!(run(&changed, "canon").0, Some(2), "{before}");
    }
}
