//! A stopping rule: its interval holds at every look, and the first decisive look counts, whatever follows.

use super::{cell, document_of, of_losses, overview_of};
use crate::compare::made_up::{diverge, sequential};
use crate::compare::metric::EVAL_LOSS;
use crate::compare::{Comparison, Facts};
use crate::statistics::draws::Draws;
use crate::statistics::sequential::Decision;

const DIFFERENCES: [f64; 7] = [-0.3, -0.25, -0.35, -0.3, -0.31, 9.0, 9.0];

fn after(seeds: usize) -> Comparison {
    sequential(&DIFFERENCES[..seeds], 9)
}

/// The ends of the interval of the loss, and the number of its differences.
fn interval(comparison: &Comparison) -> (Option<(f64, f64)>, usize) {
    let row = comparison.pairs()[0].facts_of(EVAL_LOSS).unwrap();
    (row.ends(), row.paired.len())
}

#[test]
fn the_shown_interval_holds_at_every_look() {
    let head = "95% anytime-valid interval (covers 97% at all looks together, 87% if skewed)";
    assert_eq!(cell(&after(3), head), "n = 3: no interval");
    let (narrow, wide) =
        (interval(&of_losses(&DIFFERENCES[..4])).0.unwrap(), interval(&after(4)).0.unwrap());
    assert!(wide.0 < narrow.0 && narrow.1 < wide.1, "{wide:?} {narrow:?}");
    let text = Facts::new(&after(7)).summary().text();
    assert!(!text.contains("t interval") && !text.contains("sign-flip p"), "{text}");
    let (table, ..) = overview_of(&[&after(7)]);
    assert!(table.head.contains(&head.to_owned()));
}

#[test]
fn the_first_decisive_look_counts() {
    let decided = after(5).last_looks()[0].look;
    assert_eq!(decided.decision, Decision::Differs);
    for seeds in [6, 7] {
        assert_eq!(after(seeds).last_looks()[0].look, decided);
        assert_eq!(interval(&after(seeds)), interval(&after(decided.n)));
        assert_eq!(cell(&after(seeds), "effect"), "better");
        let later = format!("{} later seeds change nothing", seeds - decided.n);
        let caption = Facts::new(&after(seeds)).caption();
        assert!(caption.contains(&later), "{caption}");
    }
    let document = document_of(&after(7));
    let comparison = &document["comparisons"][0];
    let look = &comparison["looks"][0];
    assert_eq!((&look["decision"], &look["n"]), (&"differs".into(), &decided.n.into()));
    assert_eq!(comparison["pairs"][0]["rows"][1]["interval"]["anytime"], true);
    assert_eq!(comparison["analysis"]["max_seeds"], 9);
    assert_eq!((after(7).used_seeds(), after(3).used_seeds()), (Some(decided.n), Some(3)));
    assert_eq!(of_losses(&DIFFERENCES).used_seeds(), None);
}

/// A seed without a difference ends the looks; an earlier decision still counts.
#[test]
fn a_seed_that_diverges_takes_no_look_back() {
    let mut comparison = sequential(&[-0.3, -0.31, -0.29, -0.3, -0.31, -0.3], 9);
    let decided = comparison.last_looks()[0].look;
    assert_eq!((decided.n, decided.decision), (4, Decision::Differs));
    diverge(&mut comparison, 1, &[4]);
    assert_eq!(comparison.last_looks()[0].look, decided);
    assert_eq!(cell(&comparison, "effect"), "better");
    diverge(&mut comparison, 1, &[2]);
    assert_eq!(comparison.last_looks()[0].look.decision, Decision::Continue);
    assert_eq!(cell(&comparison, "effect"), "undecided (4 of 6, 2 diverged)");
}

/// Simulates a reader who looks after each seed and stops when the rule does.
#[test]
fn the_shown_interval_covers_however_often_one_looks() {
    let mut draws = Draws::new("test shown looks");
    let held = |mean: f64, draws: &mut Draws| {
        let values: Vec<f64> = (0..12).map(|_| mean + draws.normal()).collect();
        (1..=12).all(|n| {
            let (ends, _) = interval(&sequential(&values[..n], 12));
            ends.is_none_or(|(low, high)| low <= mean && mean <= high)
        })
    };
    for mean in [0.0, 1.0] {
        let count = (0..300).filter(|_| held(mean, &mut draws)).count();
        // 95%, minus two standard errors of 300 sequences.
        assert!(count >= 278, "{mean}: {count} of 300");
    }
}
