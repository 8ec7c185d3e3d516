//! Confounds put into every field, and seen by every reader: `diff`, the build of a comparison, the reading of its lock
//! (as `compare` and `run` do), and audits of locks, of configurations and of tables.
//!
//! In: the rows of the field table. Out: properties. Must stay true: a field without a row fails here.

use std::collections::BTreeSet;

use dsl::Sources;
use lab::audit::vocabulary::{self, Absent, CANON, Topic};
use lab::audit::{Experiment as Audited, Findings, Report, Rules, audit, subjects, table};
use lab::comparison::{Comparison, NoComparison};
use lab::experiment::Experiment;
use lab::field::{Class, FieldDef, Fields, Kind, Origin, TABLE};
use lab::lock::{Lock, read, write};
use lab::recipe;
use lab::verdict::{Trainer, Verdict};

use super::comparison::PAIR;
use super::fields::{DECIDING, bases_of, has, other, settle};
use super::support::{SMALL, compiled_text, judge_by, locked};

/// Both arms unchanged, and the second with another value of the field.
struct Planted {
    base: Experiment,
    arm: Experiment,
    both: [Experiment; 2],
}

fn planted() -> Vec<(&'static FieldDef, Planted)> {
    let [bases, arms] =
        ["small", "smallcanon"].map(|arch| bases_of(&locked(&compiled_text(SMALL, arch))));
    let mut all = Vec::new();
    for def in TABLE.iter().filter(|def| def.origin != Origin::Derived) {
        let place = bases.iter().position(|base| has(base, def));
        let place = place.unwrap_or_else(|| panic!("no base has {}", def.path));
        let (base, arm) = (&bases[place], &arms[place]);
        let Some(value) =
            other(def, base.value(def.path)).filter(|_| !DECIDING.contains(&def.path))
        else {
            continue;
        };
        let mut values = Fields::from([(def.path.to_owned(), value)]);
        settle(def, base, &mut values);
        let changed = |of: &Experiment, name: &str| of.with(name.to_owned(), &values).unwrap();
        let named = |of: &Experiment, name: &str| of.with(name.to_owned(), &Fields::new()).unwrap();
        let both = [changed(base, "run"), changed(arm, "runcanon")];
        all.push((def, Planted { base: named(base, "run"), arm: named(arm, "runcanon"), both }));
    }
    all
}

fn diff(a: &Experiment, b: &Experiment, trainer: Trainer) -> Verdict {
    let locks = [a, b].map(|experiment| Lock::Experiment(experiment.clone()));
    judge_by(&locks[0], &locks[1], &["canon"], trainer).unwrap()
}

fn built(file: &str, arms: [&Experiment; 2]) -> Result<Comparison, NoComparison> {
    let mut sources = Sources::new();
    let id = sources.add("recipes/c.toml", file);
    let (read, found) = recipe::comparison::read(&sources, id);
    let read = read.unwrap_or_else(|| panic!("{}", dsl::render(&sources, &found)));
    let names = ["llama", "canon"].into_iter().zip(arms);
    read.comparison("c", "recipes/c.toml", names.map(|(n, e)| (n.to_owned(), e.clone())).collect())
}

/// The lock of one comparison with an arm of another one.
fn spliced(text: &str, other: &str, arm: &str) -> String {
    let sections = |text: &str| -> Vec<(bool, String)> {
        let parts: Vec<&str> = text.split("\n[").collect();
        parts.iter().map(|p| (p.starts_with(&format!("arm.{arm}.")), (*p).to_owned())).collect()
    };
    let theirs: Vec<String> =
        sections(other).into_iter().filter(|(own, _)| *own).map(|(_, part)| part).collect();
    let mut theirs = Some(theirs);
    let mut out: Vec<String> = Vec::new();
    for (own, part) in sections(text) {
        match own {
            true => out.extend(theirs.take().unwrap_or_default()),
            false => out.push(part),
        }
    }
    out.join("\n[")
}

fn report(set: &[Audited]) -> Report {
    audit(&subjects(set), &Rules::default(), Findings::default())
}

fn of_locks(arms: [&Experiment; 2]) -> Report {
    report(&arms.map(|e| Audited::of_lock(&e.name, "lockfiles", e)))
}

#[test]
fn a_confound_in_any_field_is_seen_by_every_reader_of_locks() {
    let mut seen = BTreeSet::new();
    for (def, Planted { base, arm, both }) in planted() {
        let path = def.path;
        let changed = &both[1];
        let verdict = diff(&base, changed, Trainer::Any);
        let back = diff(changed, &base, Trainer::Any);
        let audited = of_locks([&base, changed]);
        assert_eq!(of_locks([&base, &arm]).clean.len(), 1, "{path}");
        let confounds: Vec<&str> = verdict.confounds.iter().map(|c| c.path.as_str()).collect();
        let named = |changes: &[lab::verdict::Change]| changes.iter().any(|c| c.path == path);
        // The budget may be named by its other form.
        let named_confound = named(&verdict.confounds) || path.starts_with("budget.");
        // The comparison sets the seeds, for every arm alike.
        let locked = |file: &str, arms| (!path.starts_with("seeds.")).then(|| built(file, arms));
        match def.class {
            Class::Semantic | Class::Measured | Class::Carried => {
                assert!(!verdict.is_controlled() && named_confound, "{path}: {confounds:?}");
                assert!(!back.is_controlled(), "{path}, the other way round");
                assert!(audited.fails() && audited.clean.is_empty(), "{path}");
                if let Some(made) = locked(PAIR, [&base, changed]) {
                    assert!(matches!(made, Err(NoComparison::Confounded(..))), "{path}");
                    let lawful = [[&base, &arm], [&both[0], &both[1]]].map(|arms| {
                        let made = built(PAIR, arms).unwrap_or_else(|e| panic!("{path}: {e:?}"));
                        write(&Lock::Comparison(made))
                    });
                    let text = spliced(&lawful[0], &lawful[1], "canon");
                    let refused = read("lockfiles/c.lock", &text).unwrap_err().to_string();
                    assert!(refused.contains("confounded: "), "{path}: {refused}");
                }
            }
            Class::Platform | Class::Cosmetic => {
                let listed = if def.class == Class::Platform {
                    &verdict.platform
                } else {
                    &verdict.cosmetic
                };
                assert!(verdict.is_controlled() && named(listed), "{path}: {confounds:?}");
                assert!(back.is_controlled(), "{path}, the other way round");
                let rounds = def.class == Class::Platform && !def.exact;
                assert_eq!(audited.clean.is_empty(), rounds, "{path}");
                if let Some(made) = locked(PAIR, [&base, changed]) {
                    assert!(made.is_ok(), "{path}");
                }
            }
        }
        // If canonc is declared to run both arms, keys that only other trainers read do not count.
        let ours = diff(&base, changed, Trainer::Canonc);
        let excused = def.class == Class::Carried;
        assert_eq!(ours.is_controlled(), verdict.is_controlled() || excused, "{path}");
        if excused {
            assert!(ours.headline().ends_with("; canonc runs both arms"), "{}", ours.headline());
            assert!(named(&ours.cosmetic), "{path}");
            let made = built(&format!("trainer = \"canonc\"\n{PAIR}"), [&base, changed]).unwrap();
            let text = write(&Lock::Comparison(made.clone()));
            assert!(text.contains("\ntrainer = \"canonc\"\n"), "{path}");
            assert!(made.headline("canon").contains("canonc runs both arms"), "{path}");
            let again = read("lockfiles/c.lock", &text).unwrap();
            assert_eq!(write(&again), text, "{path}");
        }
        seen.insert(def.class);
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

#[test]
fn every_line_of_a_lock_has_a_row() {
    for arch in ["small", "smallcanon"] {
        for base in bases_of(&locked(&compiled_text(SMALL, arch))) {
            let audited = Audited::of_lock("a", "lockfiles", &base);
            for path in audited.values.keys() {
                assert!(vocabulary::row(path).is_some(), "{path} has no row");
            }
            assert!(audited.unknown.is_empty());
        }
    }
}

/// A configuration such as the release's, without what a test plants.
const KEYS: &[(&str, &str)] = &[
    ("steps", "240000"),
    ("grad_acc_steps", "1"),
    ("seed", "777"),
    ("model.dim", "2048"),
    ("model.n_layers", "24"),
    ("model.n_heads", "32"),
    ("optim.lr", "0.002"),
    ("optim.weight_decay", "0.02"),
    ("optim.warmup", "8000"),
    ("data.batch_size", "8"),
    ("data.seq_len", "4096"),
    ("data.sources.books", "0.5"),
    ("data.sources.web", "0.5"),
    ("data.tokenizer.name", "sp"),
    ("gpus_from_comment", "128"),
];

/// A value that differs from every default and every key above.
fn planted_value(row: &FieldDef) -> &'static str {
    match (row.kind, row.absent) {
        (_, Absent::Is("true") | Absent::Default("true")) => "false",
        (Kind::Bool, _) | (_, Absent::Is("false")) => "true",
        (Kind::Int(..) | Kind::Real(_) | Kind::IntOr(..) | Kind::RealOr(..) | Kind::Seed, _) => "3",
        _ if ["arch.canon", "reported.canon"].contains(&row.path) => "AB",
        _ => "another",
    }
}

/// The names under which a file may write a row.
fn names(row: &FieldDef) -> Vec<String> {
    let all = row.foreign.iter().copied().chain([row.path]);
    let mut names: Vec<String> = all
        .filter(|name| !name.starts_with("lingua.") || !name.ends_with('*'))
        .map(|name| name.strip_suffix('*').map_or(name.to_owned(), |start| format!("{start}any")))
        .collect();
    if names.is_empty() {
        names.push(row.path.to_owned());
    }
    names
}

fn lingua() -> lab::audit::Names {
    lab::audit::Names::of(&vocabulary::LINGUA)
}

fn as_configuration(name: &str, keys: &[(&str, &str)]) -> Audited {
    Audited::of_keys(name, "x.yaml", &lingua(), keys.iter().map(|(key, value)| (1, *key, *value)))
        .unwrap()
}

/// Both arms as rows of one table.
fn as_table(arms: [&[(&str, &str)]; 2]) -> Vec<Audited> {
    let columns: BTreeSet<&str> =
        arms.iter().flat_map(|keys| keys.iter().map(|(key, _)| *key)).collect();
    let mut text = format!("model\t{}\n", columns.iter().copied().collect::<Vec<_>>().join("\t"));
    for (name, keys) in ["run", "runcanon"].into_iter().zip(arms) {
        let cell =
            |column: &&str| keys.iter().find(|(key, _)| key == column).map_or("", |(_, v)| *v);
        text += &format!("{name}\t{}\n", columns.iter().map(cell).collect::<Vec<_>>().join("\t"));
    }
    table("x.tsv", &text).unwrap()
}

#[test]
fn a_confound_in_any_key_is_seen_in_configurations_and_tables() {
    let canon = ("model.canon_set", "ABCD");
    let mut asked = 0;
    for row in vocabulary::rows() {
        let derived = row.origin == Origin::Derived && row.instead.is_none();
        let idle =
            row.only.is_some_and(|(on, words)| on == "schedule.kind" && !words.contains(&"cosine"));
        if derived || idle || row.path.starts_with(CANON) || row.path.starts_with("arch.canon") {
            continue;
        }
        // `model.canon_set` gives both.
        let canon = if row.path == "arch.mixer.short_conv" { (CANON, "ABCD") } else { canon };
        for key in names(row) {
            let value = planted_value(row);
            let without = |k: &&(&str, &str)| {
                vocabulary::known(k.0).is_none_or(|known| known.path != row.path)
            };
            let plain: Vec<_> = KEYS.iter().filter(without).copied().collect();
            // The key in one arm only; then two different values.
            let second = if value == "3" { "5" } else { "something" };
            let mut cases = vec![(plain.clone(), value)];
            // Shares are relative to their sum, so one source has one share.
            if (value == "3" || value == "another") && row.path != "data.sources.*" {
                let mut with = plain.clone();
                with.push((key.as_str(), second));
                cases.push((with, value));
            }
            for (first, value) in cases {
                let mut arm = plain.clone();
                arm.extend([(key.as_str(), value), canon]);
                let configurations =
                    vec![as_configuration("run", &first), as_configuration("runcanon", &arm)];
                let rows = as_table([&first, &arm]);
                for (kind, set) in [("configuration", configurations), ("table", rows)] {
                    let found = report(&set);
                    let what = format!("{key} = {value} in a {kind}: {:?}", found.findings);
                    assert_eq!(found.pairs.len(), 1, "{what}");
                    // Columns are checked against the keys, or against the other arm's if those are missing.
                    if row.topic != Topic::Reported {
                        // Where no digest identifies the data, the number of its tokens does.
                        let decides = row.topic.decides()
                            || row.class == Class::Measured
                            || row.path == "data.tokens";
                        let spoilt = decides || row.topic == Topic::Revision;
                        assert_eq!(found.clean.is_empty(), spoilt, "{what}");
                        assert_eq!(found.fails(), decides, "{what}");
                    }
                    asked += 1;
                }
            }
        }
    }
    assert!(asked > 600, "{asked}");
}

#[test]
fn differences_in_unknown_keys_are_reported_and_equal_values_are_not() {
    for key in ["my.flag", "optim.lrr", "data.shuffle_seed", "env.NVIDIA_TF32_OVERRIDE", "remark"] {
        let mut first = KEYS.to_vec();
        first.push((key, "x"));
        let mut arm = first.clone();
        arm.push(("model.canon_set", "ABCD"));
        let equal = report(&as_table([&first, &arm]));
        assert!(!equal.fails() && equal.clean.len() == 1 && equal.unknown.len() == 1, "{key}");
        let last = arm.len() - 2;
        arm[last].1 = "y";
        for set in [
            vec![as_configuration("run", &first), as_configuration("runcanon", &arm)],
            as_table([&first, &arm]),
        ] {
            let found = report(&set);
            let rules: Vec<&str> = found.findings.iter().map(|(_, f)| f.rule.as_str()).collect();
            assert!(
                rules.contains(&"unknown-key") && found.fails() && found.clean.is_empty(),
                "{key}"
            );
            // A rule can declare the key's topic.
            let rules = lab::audit::rules(&format!("[keys]\n\"{key}\" = \"setup\"\n")).unwrap();
            let mut set = set;
            set.iter_mut().for_each(|experiment| experiment.declare(&rules.keys));
            let found = audit(&subjects(&set), &rules, Findings::default());
            assert!(!found.fails() && found.clean.len() == 1, "{key}: {:?}", found.findings);
        }
    }
    // A null value is not ignored.
    let null = as_configuration("run", &[("my.flag", "null")]);
    assert!(null.unknown.contains("my.flag"));
    assert_eq!(null.values["my.flag"], lab::audit::Value::text("null"));
}

#[test]
fn columns_that_repeat_a_key_replace_a_missing_key() {
    let canon = ("model.canon_set", "ABCD");
    for (key, one, two) in [
        ("seqs_per_step", "128", "256"),
        ("warmup_tokens_B", "25.17", "33.55"),
        ("warmup_tokens_M", "25", "33"),
        ("tokens_total", "1000", "2000"),
        ("tokens_per_step", "1000", "2000"),
        ("lr_x_wd", "4e-5", "2e-5"),
        ("size", "1B", "3B"),
        ("family", "MyNet", "YourNet"),
        ("rope_fraction", "1.0", "0.25"),
        ("head_dim_derived", "64", "128"),
    ] {
        let found = report(&as_table([&[(key, one)], &[(key, two), canon]]));
        assert!(found.fails() && found.clean.is_empty(), "{key}: {:?}", found.findings);
        let same = report(&as_table([&[(key, one)], &[(key, one), canon]]));
        assert!(!same.fails() && same.clean.len() == 1, "{key}: {:?}", same.findings);
    }
    // A value that does not follow from the keys is an error, in one arm or in both.
    for (key, lie) in [
        ("seqs_per_step", "7"),
        ("warmup_tokens_B", "7"),
        ("tokens_total_T", "7"),
        ("tokens_claim", "7T"),
        ("lr_claim", "0.7"),
        ("n_evals", "7"),
        ("canon", "1"),
        ("family", "GLA5"),
        ("checkpoint_every_tokens_B", "7"),
    ] {
        let keys: Vec<_> = KEYS
            .iter()
            .copied()
            .chain([("checkpoint.dump.every", "1000"), ("checkpoint.eval.every", "1000")])
            .chain([("model.model_name", "Llama"), (key, lie)])
            .collect();
        let arm = keys.iter().map(|(k, v)| (*k, if *k == "canon" { "0" } else { *v }));
        let arm: Vec<_> = arm.chain([canon]).collect();
        let found = report(&as_table([&keys, &arm]));
        let errors =
            found.findings.iter().filter(|(_, f)| f.rule == "reported" && f.places.len() == 2);
        let twice = if key == "canon" {
            found.findings.iter().filter(|(_, f)| f.rule == "reported").count() == 2
        } else {
            errors.count() == 1
        };
        assert!(twice, "{key}: {:?}", found.findings);
    }
}

/// The graph is the same, and a parameter differs: only the manifest shows it.
#[test]
fn audits_of_locks_compare_manifests() {
    let renamed = SMALL.replace("layers 2 of decoder", "layers 2 of mine").replace(
        "arch smallcanon",
        "
        block mine(x; mixer, mlp) {
          h = x + mixer(slot A(rms_norm first (x)))
          h + mlp(slot C(rms_norm second (h)))
        }
        arch smallcanon",
    );
    let base = super::support::experiment_of(
        super::support::DEPO,
        &locked(&compiled_text(SMALL, "small")),
    );
    let arm = super::support::experiment_of(
        super::support::DEPO,
        &locked(&compiled_text(&renamed, "smallcanon")),
    );
    let found = report(&[
        Audited::of_lock("run", "lockfiles", &base),
        Audited::of_lock("runcanon", "lockfiles", &arm),
    ]);
    assert!(found.fails() && found.clean.is_empty(), "{:?}", found.findings);
}

/// Two definitions with one name are reported with both digests, and are a confound if the graphs differ.
#[test]
fn audits_of_locks_distinguish_definitions_with_one_name() {
    let own = |h: &str| {
        format!(
            "block decoder(x; mixer, mlp) {{\n  {h}\n  h + mlp(slot C(rms_norm pre_mlp (h)))\n}}\n{SMALL}"
        )
    };
    let normed = "h = x + mixer(slot A(rms_norm pre_mixer (x)))";
    let written = own(&format!("y = x\n  {}", normed.replace("(x)))", "(y)))")));
    let moved =
        own(&normed.replace("slot A(rms_norm pre_mixer (x))", "rms_norm pre_mixer (slot A(x))"));
    let lock = |archs: &str, arch: &str, name: &str| {
        let arch = locked(&compiled_text(archs, arch));
        let made = super::support::experiment_of(super::support::DEPO, &arch);
        Audited::of_lock(name, &format!("lockfiles/{name}.lock"), &made)
    };
    let base = lock(SMALL, "small", "run");
    let rules = |archs: &str| {
        let found = report(&[base.clone(), lock(archs, "smallcanon", "runcanon")]);
        let named = found.findings.iter().filter(|(_, f)| f.key == "definition decoder");
        (named.map(|(_, f)| f.rule.clone()).collect::<Vec<_>>(), found.fails())
    };
    assert_eq!(rules(SMALL), (vec![], false));
    assert_eq!(rules(&written), (vec!["definition".to_owned()], false));
    assert_eq!(rules(&moved), (vec!["twin-definition".to_owned()], true));
    let other = own(&normed.replace("rms_norm pre_mixer (x)", "silu(rms_norm pre_mixer (x))"));
    assert_eq!(rules(&other), (vec!["twin-definition".to_owned()], true));
}

/// A fill is identified by its computation: an MLP called `canon` is not a Canon layer.
#[test]
fn audits_of_locks_tell_fills_by_their_graphs() {
    let own = |body: &str| {
        format!(
            "mixer canon(x) {{\n  {body}\n}}\n{SMALL}\narch fake = small with {{ fill A with canon }}\n"
        )
    };
    let lock = |archs: &str, arch: &str, name: &str| {
        let arch = locked(&compiled_text(archs, arch));
        Audited::of_lock(
            name,
            "x.lock",
            &super::support::experiment_of(super::support::DEPO, &arch),
        )
    };
    let fake = own("linear down (silu(linear up (x, 16)), dim)");
    let fill = lock(&fake, "fake", "runcanon");
    assert_eq!(fill.values[CANON].to_string(), "", "{:?}", fill.values);
    let said = fill.values["arch.fill.A"].to_string();
    assert!(said.starts_with("canon [mixer ") && said.contains("not the primitive"), "{said}");
    let found = report(&[lock(SMALL, "smallcanon", "run"), fill]);
    assert!(found.clean.is_empty(), "{:?}", found.findings);
}

/// Names with another meaning than in canonc are reported, in one arm or in both.
#[test]
fn audits_of_locks_tell_redefinitions() {
    let text = format!(
        "block decoder(x; mixer, mlp) {{\n  y = x\n  h = x + mixer(slot A(rms_norm pre_mixer (y)))\n  \
         h + mlp(slot C(rms_norm pre_mlp (h)))\n}}\n{SMALL}"
    );
    let lock = |archs: &str, arch: &str, name: &str| {
        let arch = locked(&compiled_text(archs, arch));
        Audited::of_lock(
            name,
            "x.lock",
            &super::support::experiment_of(super::support::DEPO, &arch),
        )
    };
    let found = report(&[lock(&text, "small", "run"), lock(&text, "smallcanon", "runcanon")]);
    let line = found.findings.iter().find(|(_, f)| f.key == "definition decoder").unwrap();
    assert!(line.1.message.contains("both use block") && line.1.rule == "definition");
    assert_eq!(found.clean.len(), 1);
}

/// Experiments that are not a pair may use one name for different definitions, too.
#[test]
fn audits_of_sets_distinguish_definitions_with_one_name() {
    let own = |body: &str| {
        format!(
            "mlp mine(x) {{\n  {body}\n}}\n{}",
            SMALL.replace("mlp swiglu { hidden 16 }", "mlp mine")
        )
    };
    let lock = |body: &str, name: &str| {
        let arch = locked(&compiled_text(&own(body), "small"));
        let made = super::support::experiment_of(super::support::DEPO, &arch);
        Audited::of_lock(name, &format!("lockfiles/{name}.lock"), &made)
    };
    assert!(own("").contains("mlp mine"), "{SMALL}");
    let [one, other] =
        ["linear down (silu(linear up (x, 16)), dim)", "linear down (linear up (x, 16), dim)"];
    let said = |set: &[Audited]| -> Vec<usize> {
        let found = report(set);
        let named = found
            .findings
            .iter()
            .filter(|(_, f)| f.key == "definition mine" && f.rule == "definition");
        named.map(|(_, f)| f.places.len()).collect()
    };
    assert_eq!(said(&[lock(one, "a"), lock(other, "b"), lock(one, "c")]), [3]);
    assert!(said(&[lock(one, "a"), lock(one, "b"), lock(one, "c")]).is_empty());
}

/// A key that only another trainer reads has no effect if the comparison declares that canonc runs both arms.
#[test]
fn audits_of_comparisons_know_the_trainer() {
    for (def, Planted { base, arm: _, both }) in planted() {
        if def.class != Class::Carried {
            continue;
        }
        let made = built(&format!("trainer = \"canonc\"\n{PAIR}"), [&base, &both[1]]).unwrap();
        let arms = Audited::of_comparison("x.lock", &made);
        let found = report(&arms);
        assert!(!found.fails() && found.clean.len() == 1, "{}: {:?}", def.path, found.findings);
        assert!(found.findings.iter().any(|(_, f)| f.key == def.path), "{}", def.path);
        let other = arms.into_iter().map(|arm| Audited { canonc_runs: None, ..arm });
        assert!(report(&other.collect::<Vec<_>>()).fails(), "{}", def.path);
    }
}
