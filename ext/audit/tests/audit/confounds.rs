//! An additional confound never removes a finding.

use std::collections::BTreeSet;

use audit::{AuditReport, Experiment, Findings, KeyValue, Rules, Scope, audit, subjects};
use proptest::prelude::*;

/// Keys of every class that affect a result; their values are all different.
const KEYS: [&str; 16] = [
    "arch.dim",
    "arch.layers",
    "arch.mixer.qk_norm",
    "arch.mlp.hidden",
    "arch.norm_eps",
    "batch.sequences",
    "budget.steps",
    "data.seq_len",
    "data.source",
    "data.tokenizer",
    "loss.nll_square",
    "optimizer.clip",
    "optimizer.lr",
    "precision.policy",
    "schedule.warmup",
    "seeds.data",
];

/// How the names of twins are related.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Named {
    /// Equal apart from the word for the arm.
    Twins,
    /// They share a word.
    Alike,
    Anyhow,
}

/// One arm of one pair; the pairs of a set differ in their learning rate.
fn experiment(pair: usize, treated: bool, named: Named, order: usize) -> Experiment {
    let arm = if treated { "canon" } else { "base" };
    // The order is unrelated to the pairs.
    let number = (pair * 37 + order * 11) % 101;
    let name = match named {
        Named::Twins => format!("run{pair}-{arm}"),
        Named::Alike => format!("x{number:03}-{arm}-{}", usize::from(treated)),
        Named::Anyhow => format!("x{:03}", (number * 2 + usize::from(treated) * 55) % 211),
    };
    let mut experiment = Experiment::new(name, "set");
    for (at, key) in KEYS.iter().enumerate() {
        let value = KeyValue::int(64 + at as i64);
        experiment.values.insert((*key).to_owned(), value);
    }
    let lr = KeyValue::int(1000 + pair as i64);
    experiment.values.insert("optimizer.lr".to_owned(), lr);
    let slots = if treated { "ABCD" } else { "" };
    experiment.values.insert("arch.canon".to_owned(), KeyValue::text(slots));
    experiment
}

fn report(set: &[Experiment]) -> AuditReport {
    audit(&subjects(set), &Rules::default(), Findings::default())
}

/// Findings about pairs: rule, key and both experiments.
fn of_pairs(report: &AuditReport) -> BTreeSet<(String, String, String, String)> {
    let findings = report.findings.iter().map(|(_, finding)| finding);
    findings
        .filter(|finding| finding.scope != Scope::Set && finding.rule != "twin-unclear")
        .flat_map(|finding| {
            finding.occurrences.iter().map(|place| {
                let against = place.against.clone().unwrap_or_default();
                (finding.rule.clone(), finding.key.clone(), place.experiment.clone(), against)
            })
        })
        .collect()
}

fn set_of(pairs: usize, named: Named, order: usize) -> Vec<Experiment> {
    (0..pairs)
        .flat_map(|pair| [false, true].map(|treated| experiment(pair, treated, named, order)))
        .collect()
}

#[test]
fn a_set_of_two_is_a_pair_even_with_unrelated_names() {
    let mut set = set_of(1, Named::Anyhow, 0);
    set[0].name = "one".to_owned();
    set[1].name = "other".to_owned();
    let mut before = of_pairs(&report(&set));
    assert!(before.is_empty());
    for (at, key) in KEYS.iter().enumerate() {
        set[1].values.insert((*key).to_owned(), KeyValue::int(90_000 + at as i64));
        let report = report(&set);
        assert!(report.fails(), "{key}");
        assert_eq!((report.pairs.len(), report.clean.len()), (1, 0), "{key}");
        let after = of_pairs(&report);
        assert!(before.is_subset(&after) && after.len() > before.len(), "{key}: {after:?}");
        before = after;
    }
    assert_eq!(before.len(), KEYS.len());
}

#[test]
fn an_experiment_without_a_twin_names_the_nearest() {
    let mut set = set_of(2, Named::Twins, 0);
    set.pop();
    let report = report(&set);
    let (_, missing) = report.findings.iter().find(|(_, f)| f.rule == "missing-twin").unwrap();
    assert_eq!(missing.occurrences[0].experiment, "run1-base");
    let says = "most similar: run0-canon, which differs in optimizer.lr";
    assert_eq!(missing.occurrences[0].observation, says);
}

/// Two bases at the same distance, with names that do not help.
#[test]
fn an_ambiguous_twin_is_a_finding() {
    let mut set = set_of(2, Named::Anyhow, 0);
    for (experiment, name) in set.iter_mut().zip(["p", "q", "r", "s"]) {
        experiment.name = name.to_owned();
    }
    for at in [1, 3] {
        set[at].values.insert("optimizer.lr".to_owned(), KeyValue::int(7 + at as i64));
    }
    let report = report(&set);
    assert_eq!((report.pairs.len(), report.clean.len()), (2, 0));
    let (own, unclear) = report.findings.iter().find(|(_, f)| f.rule == "twin-unclear").unwrap();
    assert_eq!(own.severity.word(), "warning");
    assert_eq!(unclear.occurrences.len(), 1, "{:?}", unclear.occurrences);
    assert!(
        unclear.occurrences[0].observation.contains("equally similar: r (optimizer.lr)"),
        "{:?}",
        unclear.occurrences
    );
}

#[test]
fn two_thousand_unlike_experiments_are_all_paired() {
    let mut set = set_of(1000, Named::Anyhow, 3);
    for (at, experiment) in set.iter_mut().enumerate() {
        experiment.name = format!("e{at}");
        for (key, name) in KEYS.iter().enumerate().filter(|(_, name)| **name != "optimizer.lr") {
            let value = KeyValue::int(((at * 7919 + key * 104_729) % 5003) as i64);
            experiment.values.insert((*name).to_owned(), value);
        }
    }
    let report = report(&set);
    assert_eq!(report.pairs.len(), 1000);
    assert!(report.clean.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: support::cases(200),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_confound_more_is_no_finding_less(
        pairs in 1..6usize,
        named in prop::sample::select(vec![Named::Twins, Named::Alike, Named::Anyhow]),
        order in 0..50usize,
        extra in 0..3usize,
        confounds in prop::collection::vec((0..6usize, any::<bool>(), 0..KEYS.len()), 1..24),
    ) {
        let mut set = set_of(pairs, named, order);
        // Without helpful names, another control may become the nearest.
        let extra = if named == Named::Anyhow { 0 } else { extra };
        for lonely in 0..extra {
            let mut more = experiment(50 + lonely, false, Named::Twins, order);
            more.values.insert("data.source".to_owned(), KeyValue::text("elsewhere"));
            set.push(more);
        }
        let mut changed = BTreeSet::new();
        let mut before = report(&set);
        for (step, (pair, treated, key)) in confounds.into_iter().enumerate() {
            let pair = pair % pairs;
            // A key that already differs is not changed again.
            if !changed.insert((pair, key)) {
                continue;
            }
            let who = set.get_mut(2 * pair + usize::from(treated)).unwrap();
            who.values.insert(KEYS[key].to_owned(), KeyValue::int(10_000 + step as i64));
            let after = report(&set);
            prop_assert!(after.fails());
            prop_assert!(after.pairs.len() >= before.pairs.len());
            prop_assert!(after.clean.len() <= before.clean.len());
            // Without helpful names, several confounded pairs may change partners.
            let keeps_partners = named != Named::Anyhow || pairs == 1;
            if keeps_partners {
                let (before, after) = (of_pairs(&before), of_pairs(&after));
                let gone: Vec<_> = before.difference(&after).collect();
                prop_assert!(gone.is_empty(), "{gone:?}");
            }
            before = after;
        }
    }
}
