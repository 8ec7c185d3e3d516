//! Every table, the document and the overview count diverged seeds, which never improve a word.

use super::{NINE, cell, document_of, of_losses, overview_of};
use crate::compare::Comparison;
use crate::compare::made_up::diverge;

fn with_diverged(differences: &[f64], arm: usize, seeds: &[usize]) -> Comparison {
    let mut comparison = of_losses(differences);
    diverge(&mut comparison, arm, seeds);
    comparison
}

#[test]
fn a_word_never_leaves_the_worst_results_out() {
    for (comparison, effect) in [
        (with_diverged(&NINE, 1, &[4]), "undecided (8 of 9, 1 diverged)"),
        // A diverged run is the worst result, so one in the base can only make the arm better.
        (with_diverged(&NINE, 0, &[4]), "better (8 of 9, 1 of the base diverged)"),
        (with_diverged(&NINE.map(|d| -d), 1, &[0, 4]), "worse (7 of 9, 2 diverged)"),
        // If all seeds diverged, the row has no difference, but the arm is still listed.
        (with_diverged(&NINE[..3], 1, &[0, 1, 2]), "undecided (0 of 3, 3 diverged)"),
    ] {
        assert_eq!(cell(&comparison, "effect"), effect);
    }
}

#[test]
fn every_output_counts_diverged_seeds() {
    let comparison = with_diverged(&NINE, 1, &[4]);
    assert!(cell(&comparison, "paired difference").ends_with(" (8 of 9, 1 diverged)"));
    let (table, _, picture) = overview_of(&[&comparison]);
    for cell in ["undecided (8 of 9, 1 diverged)", "2.2250 nats (8 of 9, 1 diverged)"] {
        assert!(table.rows[0].contains(&cell.to_owned()), "{cell}: {:?}", table.rows);
    }
    assert!(picture.contains("1 of 9 diverged"));
    let document = document_of(&comparison);
    let pair = &document["comparisons"][0]["pairs"][0];
    let seeds = serde_json::json!({ "pairs": 9, "base": 0, "treated": 1, "both": 0 });
    assert_eq!(pair["seeds"], seeds);
    let judged = &pair["rows"][1]["judged"];
    assert_eq!(
        (&judged["effect"], &judged["open"]["why"]),
        (&"undecided".into(), &"diverged".into())
    );
    assert_eq!(document["together"][0]["judged"]["effect"], "undecided");
}
