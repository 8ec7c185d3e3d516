//! Locks as files: each has one text, reads back unchanged, and stays small and fast for any number of layers.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use lab::experiment::{Experiment, LockedArch};
use lab::lock::{Lock, drift, read, write};
use lab::recipe::comparison::ArmFile;
use lab::recipe::{self, ArchRef};
use proptest::prelude::*;

use support::locks::{
    DEPO, MANO, TEXT, arch_lock, arch_text_lock, compiled_of, experiment_of, experiments_of,
    locked, small,
};

thread_local! {
    /// Each arch is compiled once and each recipe resolved once: many comparisons share them.
    static ARCHS: RefCell<BTreeMap<ArchRef, Rc<LockedArch>>> = RefCell::default();
    static RECIPES: RefCell<BTreeMap<RecipeKey, Vec<Experiment>>> = RefCell::default();
}

/// A recipe, and the arch to read it with, if not its own.
type RecipeKey = (String, Option<ArchRef>);

fn arch_of(named: &ArchRef) -> Rc<LockedArch> {
    let known = ARCHS.with_borrow(|archs| archs.get(named).cloned());
    known.unwrap_or_else(|| {
        let arch = locked(&compiled_of(&named.path, named.name.as_deref()));
        ARCHS.with_borrow_mut(|archs| archs.insert(named.clone(), arch.clone()));
        arch
    })
}

/// The experiments of a committed recipe, for its own archs or the given one.
fn committed(path: &str, arch: Option<&ArchRef>) -> Vec<Experiment> {
    let key = (path.to_owned(), arch.cloned());
    if let Some(known) = RECIPES.with_borrow(|recipes| recipes.get(&key).cloned()) {
        return known;
    }
    let experiments = resolved(path, arch);
    RECIPES.with_borrow_mut(|recipes| recipes.insert(key, experiments.clone()));
    experiments
}

fn resolved(path: &str, arch: Option<&ArchRef>) -> Vec<Experiment> {
    let mut sources = dsl::Sources::new();
    let id = sources.add(path, support::programs::read(path));
    let (read, diagnostics) = recipe::read(&sources, id);
    let mut read = read.unwrap_or_else(|| panic!("{}", dsl::render(&sources, &diagnostics)));
    if let Some(arch) = arch {
        read.use_arch(arch);
    }
    let stem = path.rsplit('/').next().unwrap().trim_end_matches(".toml");
    let (experiments, diagnostics) = read.experiments(stem, path, &|arch| Some(arch_of(arch)));
    assert!(diagnostics.is_empty(), "{}", dsl::render(&sources, &diagnostics));
    experiments
}

fn demo_arms() -> Vec<Lock> {
    let arms =
        ["llama", "llamacanon"].map(|arm| committed(&format!("recipes/demo_{arm}.toml"), None));
    arms.into_iter().flatten().map(Lock::Experiment).collect()
}

/// The committed comparison with this name.
fn comparison(path: &str, wanted: &str) -> Lock {
    let mut sources = dsl::Sources::new();
    let id = sources.add(path, support::programs::read(path));
    let (read, diagnostics) = recipe::comparison::read(&sources, id);
    let read = read.unwrap_or_else(|| panic!("{}", dsl::render(&sources, &diagnostics)));
    let stem = path.rsplit('/').next().unwrap().trim_end_matches(".toml");
    let row = read.rows.iter().find(|row| row.name.as_deref().unwrap_or(stem) == wanted);
    let row = row.unwrap_or_else(|| panic!("{path} makes no `{wanted}`"));
    let arms = row.arms.iter().map(|ArmFile { name, recipe, arch, point }| {
        let mut experiments = committed(recipe, arch.as_ref());
        if let Some(point) = point {
            experiments.retain(|experiment| experiment.name == *point);
        }
        assert_eq!(experiments.len(), 1, "{recipe}");
        (name.clone(), experiments.remove(0))
    });
    Lock::Comparison(read.comparison(wanted, path, arms.collect()).unwrap())
}

pub(super) fn demo() -> Lock {
    comparison("recipes/demo.toml", "demo")
}

/// Locks of every kind.
pub(super) fn some_locks() -> Vec<Lock> {
    let arch = small();
    let mut locks: Vec<Lock> = [DEPO, MANO, TEXT]
        .iter()
        .map(|text| Lock::Experiment(experiment_of(text, &arch)))
        .collect();
    locks.extend([arch_lock("arch/hybridcanon_tiny.canon"), arch_lock("arch/mamba2_tiny.canon")]);
    locks.extend(demo_arms());
    locks.push(demo());
    locks
}

#[test]
fn written_locks_are_read_back() {
    for lock in some_locks() {
        let text = write(&lock);
        let again = read(lock.name(), &text).unwrap_or_else(|e| panic!("{}: {e}", lock.name()));
        assert_eq!(write(&again), text);
        assert_eq!(again.id(), lock.id());
        assert_eq!(
            (again.kind(), again.name(), again.source()),
            (lock.kind(), lock.name(), lock.source())
        );
        // Valid TOML, LF only, one newline at the end.
        let _: toml::Table = text.parse().unwrap();
        assert!(!text.contains('\r') && text.ends_with('\n') && !text.ends_with("\n\n"));
        assert_eq!(drift(&text, &text), []);
    }
}

#[test]
fn every_committed_arch_locks() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../arch");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let lock = arch_lock(&format!("arch/{name}"));
        let text = write(&lock);
        assert_eq!(write(&read(&name, &text).unwrap()), text, "{name}");
        count += 1;
    }
    assert!(count >= 37, "{count}");
}

/// Every task has a recipe with the paper's settings and one that two cores can run; all their points lock.
#[test]
fn every_task_has_recipes_that_build() {
    for (name, points) in [
        ("playground_depo1", 24),
        ("playground_depo2", 24),
        ("playground_brevo1", 24),
        ("playground_brevo2", 24),
        ("playground_mano", 48),
        ("playground_lano", 24),
        ("playground_capo", 24),
        ("cpu_brevo", 1),
        ("cpu_capo", 1),
        ("cpu_depo", 1),
        ("cpu_lano", 1),
        ("cpu_mano", 1),
        ("cpu_multihop", 1),
    ] {
        let experiments = committed(&format!("recipes/{name}.toml"), None);
        assert_eq!(experiments.len(), points, "{name}");
        let ids: BTreeSet<_> = experiments.iter().map(|experiment| experiment.id()).collect();
        assert_eq!(ids.len(), points, "{name}");
        let open = experiments.iter().any(|experiment| !experiment.open_inputs().is_empty());
        assert!(!open, "{name} is generated, so nothing is left to bind");
    }
}

/// Locks of the release and their twins are read in `published`, the others here.
#[test]
fn committed_locks_equal_the_locks_of_their_sources() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../lockfiles");
    let mut kinds = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = support::programs::read(&format!("lockfiles/{name}"));
        if !name.contains("-Nemo-") {
            read(&name, &text).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let [kind, locked, source] = ["kind", "name", "source"].map(|key| {
            let start = format!("{key} = \"");
            let value = text.lines().find_map(|line| line.strip_prefix(&start));
            value.unwrap_or_else(|| panic!("{name} has no {key}")).trim_end_matches('"')
        });
        assert_eq!(format!("{locked}.lock"), name);
        let fresh = match kind {
            "arch" => arch_lock(source),
            "experiment" => {
                let mut experiments = committed(source, None).into_iter();
                let same = experiments.find(|candidate| candidate.name == locked);
                Lock::Experiment(same.unwrap_or_else(|| panic!("{name}: not in its source")))
            }
            "comparison" => comparison(source, locked),
            kind => panic!("{name}: {kind}"),
        };
        let fresh = write(&fresh);
        let stale = || drift(&text, &fresh);
        assert!(text == fresh, "{name}: `canonc build {source}` again: {:?}", stale());
        kinds.insert(kind.to_owned());
    }
    assert_eq!(kinds, ["arch", "comparison", "experiment"].map(str::to_owned).into());
}

#[test]
fn texts_of_each_kind_of_lock() {
    let [experiment, comparison] = [demo_arms().remove(1), demo()].map(|lock| write(&lock));
    insta::assert_snapshot!("experiment", experiment);
    insta::assert_snapshot!("comparison", comparison);
    insta::assert_snapshot!("arch", write(&arch_lock("arch/hybridcanon_tiny.canon")));
}

#[test]
fn ten_thousand_layers_of_a_few_kinds_are_a_few_lines() {
    let text = "block even = decoder { mixer attention { heads 2 }  mlp swiglu { hidden 16 } }\n\
         block odd = decoder { mixer attention { heads 1 }  mlp swiglu { hidden 16 } }\n\
         arch deep { vocab 300  dim 8  norm_eps 1e-5  init lingua  layers 2500 of [3 of even, odd] }\n\
         arch deepcanon = deep with { canon layers[every 4 from 3].A }";
    let lock = arch_text_lock(text, "deepcanon");
    let text = write(&lock);
    let fields = text.split("\n[arch.free]\n").nth(1).unwrap().split("\n[open]\n").next().unwrap();
    assert!(fields.lines().count() < 150, "{}", fields.lines().count());
    assert!(fields.contains("\"layers.3..10000/4.slots.A\" = \"canon\""));
    assert_eq!(write(&read("deep", &text).unwrap()), text);
}

#[test]
fn drift_lists_each_fact() {
    let arch = small();
    let text = |recipe: &str| write(&Lock::Experiment(experiment_of(recipe, &arch)));
    let before = text(DEPO);
    let after = text(&DEPO.replace("lr = 0.003", "lr = 0.002").replace("init = 1", "init = 2"));
    let listed: Vec<String> = drift(&before, &after)
        .into_iter()
        .map(|d| format!("{}: {} -> {}", d.key, d.before.unwrap(), d.after.unwrap()))
        .collect();
    assert_eq!(
        listed,
        [
            "train.optimizer.lr: 0.003 -> 0.002",
            "train.seeds.init: 1 -> 2",
            "derived.optimizer.lr_wd_steps: 0.02394 -> 0.01596"
        ]
    );
    let missing = before.replace("optimizer.lr = 0.003\n", "");
    let changes = drift(&missing, &before);
    assert_eq!(changes[0].key, "train.optimizer.lr");
    assert_eq!((changes[0].before.as_deref(), changes[0].after.as_deref()), (None, Some("0.003")));
}

fn edited()
-> impl Strategy<Value = (usize, Vec<(u8, prop::sample::Index, prop::sample::Index, String)>)> {
    let word = prop_oneof![
        "[a-z_.]{1,6} = [0-9]{1,3}\n",
        "[\\x20-\\x7e\n]{0,6}",
        Just("'''".to_owned()),
        Just("\u{0}é\"".to_owned()),
    ];
    let edit = (0u8..6, any::<prop::sample::Index>(), any::<prop::sample::Index>(), word);
    (0usize..8, prop::collection::vec(edit, 1..4))
}

/// One random damage to a text, on character boundaries or not at all.
fn damage(
    text: &str,
    kind: u8,
    from: prop::sample::Index,
    to: prop::sample::Index,
    word: &str,
) -> String {
    let mut cuts: Vec<usize> = text.char_indices().map(|(i, _)| i).collect();
    cuts.push(text.len());
    let (mut a, mut b) = (cuts[from.index(cuts.len())], cuts[to.index(cuts.len())]);
    if a > b {
        (a, b) = (b, a);
    }
    match kind {
        0 => text[..a].to_owned(),
        1 => text[..a].to_owned() + &text[b.min(a + 40).max(a)..],
        2 => format!("{}{word}{}", &text[..a], &text[a..]),
        3 => {
            let mut lines: Vec<&str> = text.lines().collect();
            let (i, j) = (from.index(lines.len()), to.index(lines.len()));
            lines.swap(i, j);
            lines.join("\n") + "\n"
        }
        4 => {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.remove(from.index(lines.len()));
            lines.join("\n") + "\n"
        }
        _ => {
            let digit = |c: char| if c.is_ascii_digit() { '7' } else { c };
            let (head, tail) = text.split_at(a);
            let mut chars = tail.chars();
            let first = chars.next().map_or(String::new(), |c| digit(c).to_string());
            format!("{head}{first}{}", chars.as_str())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::cases(400)))]

    #[test]
    fn no_damaged_lock_is_accepted((which, edits) in edited()) {
        thread_local! {
            static TEXTS: Vec<String> = some_locks().iter().map(write).collect();
        }
        let original = TEXTS.with(|texts| texts[which % texts.len()].clone());
        let mut text = original.clone();
        for (kind, from, to, word) in &edits {
            if !text.is_empty() && text.lines().next().is_some() {
                text = damage(&text, *kind, *from, *to, word);
            }
        }
        match read("damaged", &text) {
            Ok(lock) => {
                prop_assert_eq!(write(&lock), text.clone());
                prop_assert_eq!(text, original);
            }
            Err(error) => {
                prop_assert!(!error.message.is_empty() && !error.help.is_empty());
                prop_assert!(!error.message.ends_with('.'), "{}", error.message);
            }
        }
    }

    #[test]
    fn no_text_at_all_makes_the_readers_panic(text in "\\PC{0,200}") {
        prop_assert!(read("random", &text).is_err());
        let arch = small();
        let _ = experiments_of("recipes/random.toml", &text, &arch);
        let mut sources = dsl::Sources::new();
        let id = sources.add("recipes/random.toml", format!("[arms]\n{text}"));
        let _ = recipe::comparison::read(&sources, id);
    }
}

/// A lock in the first version of the format. Its manifest had keys, so all its ids were different.
#[test]
fn a_lock_of_the_first_version_says_how_to_go_on() {
    let old = support::programs::read("tests/cases/locks/version_1.lock");
    let error = read("old.lock", &old).unwrap_err();
    assert_eq!(error.code, "lock-version");
    assert!(
        error.message.contains("version 1") && error.help.contains("canonc build"),
        "{error:?}"
    );
    assert!(lab::lock::is_older(&old));
    let text = write(&arch_lock("arch/llama_tiny.canon"));
    assert!(!lab::lock::is_older(&text) && text.contains("\nversion = 3\n"));
    assert!(!lab::lock::is_older(&text.replace("version = 3", "version = 4")));
}

#[test]
fn an_open_form_that_is_not_the_archs_is_refused() {
    let text = write(&arch_lock("arch/llamacanon_tiny.canon"));
    let moved = text.replacen("at A, ", "at B, ", 1);
    assert_ne!(moved, text);
    assert!(read("moved", &moved).is_err());
}
