//! Families of tests: the lock fixes their number, whatever the runs gave.

use super::{NINE, cell, of_losses, overview_of};
use crate::compare::facts::judged_together;
use crate::compare::family::JudgedTest;
use crate::compare::made_up::three_points;
use crate::compare::metric::{EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY, TRAINING_LOSS};
use crate::compare::{Comparison, Facts, document};
use crate::statistics::{Confidence, Effect};

/// Declares that a family has these metrics.
fn declare(comparison: &mut Comparison, family: &[&str]) {
    let mut analysis = comparison.analysis();
    analysis.family = family.iter().map(|metric| (*metric).to_owned()).collect();
    analysis.declared = true;
    comparison.proof.analysis = Some(analysis);
}

/// Three points with a family of two tests; seeds differ a little, so that differences have a variance.
fn two_tests() -> Comparison {
    let mut comparison = three_points(true);
    declare(&mut comparison, &[EVAL_LOSS, TOKEN_ACCURACY]);
    for run in comparison.arms[1].points.iter_mut().flatten() {
        for metric in [EVAL_LOSS, TOKEN_ACCURACY] {
            for (_, value) in run.curves.metrics.get_mut(metric).unwrap() {
                *value -= [0.0, 0.01, 0.03][run.seed];
            }
        }
    }
    comparison
}

fn all_diverged(mut comparison: Comparison, arm: usize) -> Comparison {
    for run in comparison.arms[arm].points.iter_mut().flatten() {
        run.curves.diverged = Some(7);
    }
    comparison
}

#[test]
fn a_declared_metric_without_data_counts() {
    let mut comparison = of_losses(&NINE);
    let alone = Facts::new(&comparison).family[0].judged.p_adjusted.unwrap();
    declare(&mut comparison, &[EVAL_LOSS, EXACT_MATCH, TRAINING_LOSS]);
    let family = Facts::new(&comparison).family;
    assert_eq!(family.len(), 3);
    assert!((family[0].judged.p_adjusted.unwrap() - 3.0 * alone).abs() < 1e-12);
    assert_eq!(family[1].judged.effect, Effect::Undecided);
}

#[test]
fn neither_diverged_points_nor_missing_runs_change_the_number_of_tests() {
    let full = two_tests();
    let declared = Facts::new(&full).family;
    assert!(declared.iter().all(|test| test.judged.p_adjusted.is_some()));
    let mut missing = full.clone();
    missing.arms.remove(1);
    for (comparison, has_lines) in
        [(all_diverged(full.clone(), 1), true), (all_diverged(full, 0), true), (missing, false)]
    {
        let facts = Facts::new(&comparison);
        assert_eq!(facts.family.len(), declared.len());
        for test in &facts.family {
            assert_eq!((test.arm.as_str(), test.points), ("canon", None));
            assert_eq!((test.judged.effect, test.judged.p_adjusted), (Effect::Undecided, None));
        }
        let (_, caption, _) = overview_of(&[&comparison, &comparison]);
        assert!(caption.starts_with("One family of 2 tests"), "{caption}");
        assert_eq!(caption.contains("a line for each point, and counts once"), has_lines);
        assert_eq!(document([("c", String::new(), &facts)]).together.len(), 1);
    }
}

#[test]
fn a_row_that_no_run_has_is_shown_and_undecided() {
    let mut nothing = all_diverged(all_diverged(two_tests(), 1), 0);
    nothing.arms.truncate(2);
    let section = &Facts::new(&nothing).sections()[0];
    let cells: Vec<&str> = section.table.rows[0].iter().map(String::as_str).collect();
    assert_eq!(cells[..3], [EVAL_LOSS, "3 of 3 diverged", "3 of 3 diverged"]);
    assert_eq!(section.table.effects, ["undecided", "undecided"]);
    // Rows of every point show that the declared test is undecided.
    for section in &Facts::new(&all_diverged(two_tests(), 1)).sections()[..3] {
        assert_eq!(section.table.effects[1..3], ["undecided", "undecided"], "{}", section.title);
    }
}

#[test]
fn a_broken_comparison_does_not_change_the_adjustment_of_others() {
    let (full, broken) = (Facts::new(&two_tests()), Facts::new(&all_diverged(two_tests(), 1)));
    let with_broken = judged_together(&[&full, &broken]);
    assert_eq!((with_broken[0].len(), with_broken[1].len()), (1, 1));
    let adjusted = |tests: &[Vec<JudgedTest>]| tests[0][0].judged.p_adjusted.unwrap();
    let single = full.family[0].judged.p_adjusted.unwrap();
    assert!(adjusted(&with_broken) <= adjusted(&judged_together(&[&full, &full])));
    assert!(adjusted(&with_broken) <= single);
}

#[test]
fn twelve_rows_are_one_family() {
    let (one, other) = (of_losses(&NINE[..6]), of_losses(&[0.1, -0.1, 0.2, -0.15, 0.05, -0.12]));
    assert_eq!(cell(&one, "p, Holm"), "0.0070");
    assert_eq!(cell(&one, "effect"), "better", "its own family is one test");
    let mut comparisons = vec![&one];
    comparisons.extend([&other; 11]);
    let (table, ..) = overview_of(&comparisons);
    assert_eq!(table.rows.len(), 12);
    // 12 × 0.0070 is above the level.
    let at = |name: &str| table.head.iter().position(|head| head == name).unwrap();
    let row = &table.rows[0];
    assert_eq!((row[at("p, Holm")].as_str(), row[at("effect")].as_str()), ("0.0838", "undecided"));
    let facts: Vec<Facts> = comparisons.iter().map(|comparison| Facts::new(comparison)).collect();
    let document = document(facts.iter().map(|facts| ("c", String::new(), facts)));
    assert_eq!(document.together.len(), 12);
    assert_eq!(document.together[0].judged.effect, Effect::Undecided);
}

/// The level of an overview's intervals is that of all rows, or each row names its own.
#[test]
fn comparisons_of_several_levels_say_which() {
    let at = |share: f64| {
        let mut comparison = of_losses(&NINE);
        declare(&mut comparison, &[EVAL_LOSS]);
        comparison.proof.analysis.as_mut().unwrap().confidence = Confidence::new(share).unwrap();
        comparison
    };
    let (usual, strict) = (at(0.95), at(0.99));
    for (order, levels) in
        [([&usual, &strict], ["95%)", "99%)"]), ([&strict, &usual], ["99%)", "95%)"])]
    {
        let (table, caption, _) = overview_of(&order);
        let column = table.head.iter().position(|head| head.contains("interval")).unwrap();
        assert_eq!(table.head[column], "interval, at the level of its row");
        let ends: Vec<&str> =
            table.rows.iter().map(|row| row[column].rsplit_once(" (").unwrap().1).collect();
        assert_eq!(ends, levels);
        assert!(caption.contains("counts all lines at level 0.01."), "{caption}");
    }
    // Alike, the head names the level, and that its coverage was not measured.
    let (table, ..) = overview_of(&[&strict, &strict]);
    let head = "99% t interval (coverage not measured at this level)";
    assert!(table.head.contains(&head.to_owned()));
}
