//! Confounds put into every field, and seen by every reader: `diff`, the build of a comparison, and the reading of its
//! lock (as `compare` and `run` do). A field without a row fails here.

use std::collections::BTreeSet;

use lab::comparison::NoComparison;
use lab::experiment::Experiment;
use lab::field::Class;
use lab::lock::{Lock, read, write};
use lab::verdict::{Trainer, Verdict};
use support::locks::judge_by;
use support::planted::{PAIR, Planted, built, planted};

fn diff(a: &Experiment, b: &Experiment, trainer: Trainer) -> Verdict {
    let locks = [a, b].map(|experiment| Lock::Experiment(experiment.clone()));
    judge_by(&locks[0], &locks[1], &["canon"], trainer).unwrap()
}

/// The lock of one comparison with an arm of another one.
fn spliced(text: &str, other_text: &str, arm: &str) -> String {
    let sections = |text: &str| -> Vec<(bool, String)> {
        let parts: Vec<&str> = text.split("\n[").collect();
        parts.iter().map(|p| (p.starts_with(&format!("arm.{arm}.")), (*p).to_owned())).collect()
    };
    let theirs: Vec<String> = sections(other_text)
        .into_iter()
        .filter(|(is_arm, _)| *is_arm)
        .map(|(_, part)| part)
        .collect();
    let mut theirs = Some(theirs);
    let mut out: Vec<String> = Vec::new();
    for (is_arm, part) in sections(text) {
        match is_arm {
            true => out.extend(theirs.take().unwrap_or_default()),
            false => out.push(part),
        }
    }
    out.join("\n[")
}

#[test]
fn a_confound_in_any_field_is_seen_by_every_reader_of_locks() {
    let mut seen = BTreeSet::new();
    for (def, Planted { base, arm, both }) in planted() {
        let path = def.path;
        let changed = &both[1];
        let verdict = diff(&base, changed, Trainer::Any);
        let back = diff(changed, &base, Trainer::Any);
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
                if let Some(result) = locked(PAIR, [&base, changed]) {
                    assert!(matches!(result, Err(NoComparison::Confounded(..))), "{path}");
                    let lawful = [[&base, &arm], [&both[0], &both[1]]].map(|arms| {
                        let comparison =
                            built(PAIR, arms).unwrap_or_else(|e| panic!("{path}: {e:?}"));
                        write(&Lock::Comparison(comparison))
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
                if let Some(result) = locked(PAIR, [&base, changed]) {
                    assert!(result.is_ok(), "{path}");
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
            let comparison =
                built(&format!("trainer = \"canonc\"\n{PAIR}"), [&base, changed]).unwrap();
            let text = write(&Lock::Comparison(comparison.clone()));
            assert!(text.contains("\ntrainer = \"canonc\"\n"), "{path}");
            assert!(comparison.headline("canon").contains("canonc runs both arms"), "{path}");
            let again = read("lockfiles/c.lock", &text).unwrap();
            assert_eq!(write(&again), text, "{path}");
        }
        seen.insert(def.class);
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}
