//! `[analysis]`: declarations made before the runs, their neutral values, and the order of the runs.

use std::collections::BTreeSet;

use dsl::Decimal;
use lab::comparison::{Comparison, Role, Stop};
use lab::lock::{Lock, read, write};

use support::locks::DEPO;
use support::planted::PAIR;

use super::comparison::compare;

const ARMS: [(&str, &str, &str); 2] = [("llama", "small", DEPO), ("canon", "smallcanon", DEPO)];

fn compared(more: &str) -> Comparison {
    compare(&format!("{PAIR}{more}"), &ARMS).unwrap()
}

fn reread(comparison: &Comparison) -> Comparison {
    let text = write(&Lock::Comparison(comparison.clone()));
    let Ok(Lock::Comparison(read)) = read("c.lock", &text) else { panic!("{text}") };
    assert_eq!(write(&Lock::Comparison(read.clone())), text);
    read
}

#[test]
fn neutral_values_change_no_id() {
    let plain = compared("");
    assert_eq!(plain.analysis.primary, "eval_loss");
    assert_eq!(plain.analysis.family, ["eval_loss"]);
    assert_eq!((plain.analysis.margin, plain.analysis.stop), (None, Stop::Fixed));
    let text = write(&Lock::Comparison(plain.clone()));
    assert!(!text.contains("analysis"), "{text}");
    let neutral = "[analysis]\nprimary = \"eval_loss\"\nfamily = [\"eval_loss\"]\nlevel = 0.05\nstop = \"fixed\"\ntime_bound = 1.05\n";
    assert_eq!(write(&Lock::Comparison(compared(neutral))), text);
    let mut ids = BTreeSet::from([plain.id()]);
    for declared in [
        "primary = \"exact_match\"",
        "family = [\"eval_loss\", \"token_accuracy\"]",
        "margin = 0.01",
        "level = 0.01",
        "time_bound = 1.02",
    ] {
        let declared = compared(&format!("[analysis]\n{declared}\n"));
        assert!(ids.insert(declared.id()), "{declared:?}");
        assert_eq!(reread(&declared).analysis, declared.analysis);
    }
    // The order of a family has no meaning.
    let id = |family: &str| compared(&format!("[analysis]\nfamily = {family}\n")).id();
    assert_eq!(
        id("[\"eval_loss\", \"token_accuracy\"]"),
        id("[\"token_accuracy\", \"eval_loss\"]")
    );
}

#[test]
fn a_stopping_rule_is_locked_with_its_limit() {
    let seeds = PAIR.replace("[1, 2]", "[1, 2, 3, 4]").replace("[5, 6]", "[5, 6, 7, 8]");
    let sequential =
        |more: &str| compare(&format!("{seeds}[analysis]\nstop = \"sequential\"\n{more}"), &ARMS);
    let all = sequential("").unwrap();
    assert_eq!(all.analysis.stop, Stop::Sequential { max_seeds: 4 });
    assert_eq!(sequential("max_seeds = 4\n").unwrap().id(), all.id());
    let three = sequential("max_seeds = 3\nmargin = 0.5\n").unwrap();
    assert_eq!(reread(&three).analysis.stop, Stop::Sequential { max_seeds: 3 });
    assert_eq!(three.analysis.margin, Decimal::new(5, -1).ok());
    // Looks come seed by seed.
    let order: Vec<usize> = all.run_order().iter().map(|run| run.seed).collect();
    assert!(order.is_sorted(), "{order:?}");
    for (more, what) in [
        ("max_seeds = 5\n", "max_seeds is 5, and [seeds] lists 4"),
        ("[grid]\n\"optimizer.lr\" = [0.001, 0.002]\n", "a sequential rule needs a single point"),
    ] {
        let error = sequential(more).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
    let error = compare(&format!("{PAIR}[analysis]\nstop = \"sequential\"\n"), &ARMS).unwrap_err();
    assert!(error.contains("at least 3 seeds, and [seeds] lists 2"), "{error}");
}

#[test]
fn invalid_analyses_are_refused_with_a_suggestion() {
    for (declared, what) in [
        ("primary = \"eval_lossy\"", "\"eval_lossy\" is not"),
        ("primary = \"kl\"", "does not have the metric kl; it has"),
        ("family = [\"eval_loss\", \"eval_loss\"]", "eval_loss is given twice"),
        ("family = []", "the list is empty"),
        ("family = \"eval_loss\"", "is not a list of metrics"),
        ("family = [\"exact_match\"]", "does not contain the primary metric eval_loss"),
        ("family = [\"eval_loss\", \"bits\"]", "does not have the metric bits"),
        ("margin = 0", "a number above 0"),
        ("margin = \"wide\"", "a number above 0"),
        ("primary = \"exact_match\"\nmargin = 2", "includes every difference"),
        ("level = 0.9", "at most 0.5"),
        ("level = nan", "at most 0.5"),
        ("stop = \"whenever\"", "\"fixed\" or \"sequential\""),
        ("max_seeds = 2", "a number of seeds from 3 on"),
        ("max_seeds = 9", "max_seeds = 9 has no effect"),
        ("marginn = 1", "analysis.margin"),
        ("time_bound = 1", "a ratio above 1"),
        ("time_bound = 10", "below 10"),
        ("time_bound = 5e-2", "a ratio above 1"),
    ] {
        let error = compare(&format!("{PAIR}[analysis]\n{declared}\n"), &ARMS).unwrap_err();
        assert!(error.contains(what) && error.contains("help:"), "{declared}: {error}");
    }
}

/// Questions are also a sample: with the same questions for all seeds, intervals hold for these questions only.
#[test]
fn each_seed_has_its_own_evaluation_unless_the_file_says_otherwise() {
    let evals = |file: &str| -> Vec<u64> {
        let comparison = compare(file, &ARMS).unwrap();
        assert_eq!(reread(&comparison).seeds, comparison.seeds);
        comparison.seeds.iter().map(|seeds| seeds.eval).collect()
    };
    let plain =
        PAIR.lines().filter(|line| !line.starts_with("eval")).collect::<Vec<_>>().join("\n");
    assert_eq!(evals(&plain), [0, 1]);
    let with = |eval: &str| plain.replace("[seeds]", &format!("[seeds]\neval = {eval}"));
    assert_eq!(evals(&with("[0]")), [0, 0]);
    assert_eq!(evals(&with("[7, 3]")), [7, 3]);
}

/// A lock edited by hand cannot declare more than a file can.
#[test]
fn a_lock_with_another_analysis_is_not_read() {
    let declared = compared("[analysis]\nmargin = 0.01\n");
    let text = write(&Lock::Comparison(declared));
    for (from, to) in
        [("analysis.margin = 0.01", "analysis.margin = 0.5"), ("analysis.margin = 0.01\n", "")]
    {
        assert!(text.contains(from));
        assert!(read("c.lock", &text.replace(from, to)).is_err(), "{to}");
    }
}

#[test]
fn runs_are_shuffled_by_the_lock_and_pairs_stay_together() {
    let seeds = PAIR
        .replace("[1, 2]", "[1, 2, 3, 4, 5, 6, 7, 8, 9]")
        .replace("[5, 6]", "[11, 12, 13, 14, 15, 16, 17, 18, 19]");
    let plain = compare(&seeds, &ARMS).unwrap();
    let with_margin = compare(&format!("{seeds}[analysis]\nmargin = 0.01\n"), &ARMS).unwrap();
    let names = |comparison: &Comparison| -> Vec<String> {
        comparison.run_order().iter().map(|run| run.experiment.name.clone()).collect()
    };
    let (first, second) = (names(&plain), names(&with_margin));
    assert_eq!(first, names(&plain));
    assert_ne!(first, second);
    let listed: Vec<String> = plain.runs().iter().map(|run| run.experiment.name.clone()).collect();
    assert_ne!(first, listed);
    let sorted = |names: &[String]| -> BTreeSet<String> { names.iter().cloned().collect() };
    assert_eq!((first.len(), sorted(&first)), (18, sorted(&listed)));
    // Both arms of a seed follow one another, and neither is always first.
    let order = plain.run_order();
    let pairs: Vec<_> = order.chunks(2).collect();
    assert!(pairs.iter().all(|pair| pair[0].seed == pair[1].seed));
    let base_first = pairs.iter().filter(|pair| pair[0].role == Role::Base).count();
    assert!((1..9).contains(&base_first), "{base_first}");
}
