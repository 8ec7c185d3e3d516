//! Audits of locks: confounds put into every field, definitions and fills, and what comparisons declare.

use audit::keys::{self, CANON};
use audit::{AuditReport, Experiment as Audited, Findings, Rules, audit, subjects};
use lab::experiment::Experiment;
use lab::field::Class;
use support::locks::{DEPO, SMALL, compiled_text, experiment_of, locked};
use support::planted::{PAIR, Planted, bases_of, built, planted};

fn audited(set: &[Audited]) -> AuditReport {
    audit(&subjects(set), &Rules::default(), Findings::default())
}

fn of_locks(arms: [&Experiment; 2]) -> AuditReport {
    audited(&arms.map(|e| Audited::of_lock(&e.name, "lockfiles", e)))
}

#[test]
fn a_confound_in_any_field_spoils_the_pair() {
    for (def, Planted { base, arm, both }) in planted() {
        let report = of_locks([&base, &both[1]]);
        assert_eq!(of_locks([&base, &arm]).clean.len(), 1, "{}", def.path);
        match def.class {
            Class::Semantic | Class::Measured | Class::Carried => {
                assert!(report.fails() && report.clean.is_empty(), "{}", def.path);
            }
            Class::Platform | Class::Cosmetic => {
                let rounds = def.class == Class::Platform && !def.exact;
                assert_eq!(report.clean.is_empty(), rounds, "{}", def.path);
            }
        }
    }
}

#[test]
fn every_line_of_a_lock_has_a_row() {
    for arch in ["small", "smallcanon"] {
        for base in bases_of(&locked(&compiled_text(SMALL, arch))) {
            let audited = Audited::of_lock("a", "lockfiles", &base);
            for path in audited.values.keys() {
                assert!(keys::row(path).is_some(), "{path} has no row");
            }
            assert!(audited.unknown.is_empty());
        }
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
    let base = experiment_of(DEPO, &locked(&compiled_text(SMALL, "small")));
    let arm = experiment_of(DEPO, &locked(&compiled_text(&renamed, "smallcanon")));
    let report = audited(&[
        Audited::of_lock("run", "lockfiles", &base),
        Audited::of_lock("runcanon", "lockfiles", &arm),
    ]);
    assert!(report.fails() && report.clean.is_empty(), "{:?}", report.findings);
}

/// Two definitions with one name are reported with both digests, and are a confound if the graphs differ.
#[test]
fn audits_of_locks_distinguish_definitions_with_one_name() {
    let archs_with = |h: &str| {
        format!(
            "block decoder(x; mixer, mlp) {{\n  {h}\n  h + mlp(slot C(rms_norm pre_mlp (h)))\n}}\n{SMALL}"
        )
    };
    let normed = "h = x + mixer(slot A(rms_norm pre_mixer (x)))";
    let written = archs_with(&format!("y = x\n  {}", normed.replace("(x)))", "(y)))")));
    let moved = archs_with(
        &normed.replace("slot A(rms_norm pre_mixer (x))", "rms_norm pre_mixer (slot A(x))"),
    );
    let lock = |archs: &str, arch: &str, name: &str| {
        let arch = locked(&compiled_text(archs, arch));
        let experiment = experiment_of(DEPO, &arch);
        Audited::of_lock(name, &format!("lockfiles/{name}.lock"), &experiment)
    };
    let base = lock(SMALL, "small", "run");
    let rules = |archs: &str| {
        let report = audited(&[base.clone(), lock(archs, "smallcanon", "runcanon")]);
        let named = report.findings.iter().filter(|(_, f)| f.key == "definition decoder");
        (named.map(|(_, f)| f.rule.clone()).collect::<Vec<_>>(), report.fails())
    };
    assert_eq!(rules(SMALL), (vec![], false));
    assert_eq!(rules(&written), (vec!["definition".to_owned()], false));
    assert_eq!(rules(&moved), (vec!["twin-definition".to_owned()], true));
    let other =
        archs_with(&normed.replace("rms_norm pre_mixer (x)", "silu(rms_norm pre_mixer (x))"));
    assert_eq!(rules(&other), (vec!["twin-definition".to_owned()], true));
}

/// A fill is identified by its computation: an MLP called `canon` is not a Canon layer.
#[test]
fn audits_of_locks_tell_fills_by_their_graphs() {
    let archs_with = |body: &str| {
        format!(
            "mixer canon(x) {{\n  {body}\n}}\n{SMALL}\narch fake = small with {{ fill A with canon }}\n"
        )
    };
    let lock = |archs: &str, arch: &str, name: &str| {
        let arch = locked(&compiled_text(archs, arch));
        Audited::of_lock(name, "x.lock", &experiment_of(DEPO, &arch))
    };
    let fake = archs_with("linear down (silu(linear up (x, 16)), dim)");
    let fill = lock(&fake, "fake", "runcanon");
    assert_eq!(fill.values[CANON].to_string(), "", "{:?}", fill.values);
    let computation = fill.values["arch.fill.A"].to_string();
    assert!(
        computation.starts_with("canon [mixer ") && computation.contains("not the primitive"),
        "{computation}"
    );
    let report = audited(&[lock(SMALL, "smallcanon", "run"), fill]);
    assert!(report.clean.is_empty(), "{:?}", report.findings);
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
        Audited::of_lock(name, "x.lock", &experiment_of(DEPO, &arch))
    };
    let report = audited(&[lock(&text, "small", "run"), lock(&text, "smallcanon", "runcanon")]);
    let line = report.findings.iter().find(|(_, f)| f.key == "definition decoder").unwrap();
    assert!(line.1.message.contains("both use block") && line.1.rule == "definition");
    assert_eq!(report.clean.len(), 1);
}

/// Experiments that are not a pair may use one name for different definitions, too.
#[test]
fn audits_of_sets_distinguish_definitions_with_one_name() {
    let archs_with = |body: &str| {
        format!(
            "mlp mine(x) {{\n  {body}\n}}\n{}",
            SMALL.replace("mlp swiglu { hidden 16 }", "mlp mine")
        )
    };
    let lock = |body: &str, name: &str| {
        let arch = locked(&compiled_text(&archs_with(body), "small"));
        let experiment = experiment_of(DEPO, &arch);
        Audited::of_lock(name, &format!("lockfiles/{name}.lock"), &experiment)
    };
    assert!(archs_with("").contains("mlp mine"), "{SMALL}");
    let [one, other] =
        ["linear down (silu(linear up (x, 16)), dim)", "linear down (linear up (x, 16), dim)"];
    let definition_places = |set: &[Audited]| -> Vec<usize> {
        let report = audited(set);
        let named = report
            .findings
            .iter()
            .filter(|(_, f)| f.key == "definition mine" && f.rule == "definition");
        named.map(|(_, f)| f.occurrences.len()).collect()
    };
    assert_eq!(definition_places(&[lock(one, "a"), lock(other, "b"), lock(one, "c")]), [3]);
    assert!(definition_places(&[lock(one, "a"), lock(one, "b"), lock(one, "c")]).is_empty());
}

/// A key that only another trainer reads has no effect if the comparison declares that canonc runs both arms.
#[test]
fn audits_of_comparisons_know_the_trainer() {
    for (def, Planted { base, arm: _, both }) in planted() {
        if def.class != Class::Carried {
            continue;
        }
        let comparison =
            built(&format!("trainer = \"canonc\"\n{PAIR}"), [&base, &both[1]]).unwrap();
        let arms = Audited::of_comparison("x.lock", &comparison);
        let report = audited(&arms);
        assert!(!report.fails() && report.clean.len() == 1, "{}: {:?}", def.path, report.findings);
        assert!(report.findings.iter().any(|(_, f)| f.key == def.path), "{}", def.path);
        let other = arms.into_iter().map(|arm| Audited { canonc_runs: None, ..arm });
        assert!(audited(&other.collect::<Vec<_>>()).fails(), "{}", def.path);
    }
}
