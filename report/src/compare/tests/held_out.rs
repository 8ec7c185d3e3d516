//! No output calls an evaluation held-out if training showed its questions, or if that is unknown.

use std::collections::BTreeMap;

use records::overlap::Share;

use super::{document_of, overview_of};
use crate::compare::made_up::{show, two_seeds};
use crate::compare::metric::{
    EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY, TRAINING_LOSS, exact_match_of,
};
use crate::compare::{Counted, Facts, RunOverlap, TrainingOverlap, label};

fn counted(shown: u64, windows: u64) -> TrainingOverlap {
    TrainingOverlap::Questions { questions: 1000, shown, windows, of_windows: 50 }
}

#[test]
fn questions_that_training_showed_are_not_called_held_out() {
    for (overlap, label_of_loss) in [
        (None, "eval_loss"),
        (Some(counted(10, 50)), "eval_loss"),
        (Some(counted(11, 50)), "eval_loss, seen in training (1.1% of questions)"),
        (Some(counted(380, 50)), "eval_loss, seen in training (38% of questions)"),
        (Some(counted(380, 9)), "eval_loss, seen in training (at least 38% of questions)"),
        (Some(counted(0, 9)), "eval_loss, overlap with training not known"),
        (Some(TrainingOverlap::ByDesign), "eval_loss, of people seen in training"),
    ] {
        let mut comparison = two_seeds();
        show(&mut comparison, overlap);
        let label_of = |metric: &str| label(metric, comparison.overlap(metric));
        assert_eq!(label_of(EVAL_LOSS), label_of_loss);
        assert_eq!(label_of(TRAINING_LOSS), TRAINING_LOSS);
        let marked = label_of_loss != EVAL_LOSS;
        assert_eq!(label_of(TOKEN_ACCURACY) != TOKEN_ACCURACY, marked);
        let (table, _, picture) = overview_of(&[&comparison]);
        for text in [Facts::new(&comparison).summary().text(), table.text()] {
            assert!(text.contains(label_of_loss), "{overlap:?}\n{text}");
            assert!(marked || !text.contains("eval_loss, "), "{overlap:?}\n{text}");
        }
        assert_eq!(picture.contains("eval_loss (not held out)"), marked, "{overlap:?}\n{picture}");
        // Programs find the metric by its name; the label is separate.
        let document = document_of(&comparison);
        let comparison = &document["comparisons"][0];
        let row = &comparison["pairs"][0]["rows"][1];
        assert_eq!((&row["metric"], &row["label"]), (&EVAL_LOSS.into(), &label_of_loss.into()));
        let seen = serde_json::to_value(overlap).unwrap();
        assert_eq!((&comparison["seen"], &row["seen"]), (&seen, &seen));
    }
}

/// A level that training showed is renamed, and the other level is not.
#[test]
fn each_level_has_its_own_share() {
    let mut comparison = two_seeds();
    let share = |questions, shown| Share { questions, shown };
    for run in comparison.arms.iter_mut().flat_map(|arm| arm.points.iter_mut().flatten()) {
        for level in [1, 2] {
            run.curves.metrics.insert(exact_match_of(level), vec![(20, 0.5)]);
        }
        run.curves.metrics.insert(EXACT_MATCH.to_owned(), vec![(20, 0.5)]);
        run.shown = Some(RunOverlap::Counted(Counted {
            of: run.seed.to_string(),
            in_windows: share(1000, 2),
            answers: BTreeMap::from([(1, share(50, 40)), (2, share(150, 0))]),
            windows: 9,
            of_windows: 9,
        }));
    }
    let facts = Facts::new(&comparison);
    let labels: Vec<String> = facts.pairs[0].metrics.iter().map(|row| row.label()).collect();
    assert_eq!(
        labels[1..6],
        [
            EVAL_LOSS,
            TOKEN_ACCURACY,
            "exact_match, seen in training (20% of questions)",
            "exact_match, level 1, seen in training (80% of questions)",
            "exact_match, level 2"
        ]
    );
    // Two seeds have two evaluations; runs of one seed share theirs.
    let pooled = |questions, shown| {
        Some(TrainingOverlap::Questions { questions, shown, windows: 18, of_windows: 18 })
    };
    let overlap = |metric: &str| facts.pairs[0].metric(metric).unwrap().overlap;
    assert_eq!(overlap("exact_match, level 1"), pooled(100, 80));
    assert_eq!(overlap("exact_match, level 2"), pooled(300, 0));
    assert_eq!(overlap(EVAL_LOSS), pooled(2000, 4));
    assert_eq!(overlap(TRAINING_LOSS), None);
    let caption = facts.caption();
    assert!(caption.contains("4 of 2000 questions (0.2%)"), "{caption}");
    assert!(caption.contains("shares differ between rows"), "{caption}");
}

/// A row of one arm is not labelled by the questions of another arm.
#[test]
fn each_pair_has_its_own_share() {
    let mut comparison = two_seeds();
    let mut other = comparison.arms[1].clone();
    other.name = "longer".to_owned();
    show(&mut comparison, Some(counted(0, 50)));
    for run in other.points.iter_mut().flatten() {
        run.shown = Some(RunOverlap::Counted(Counted {
            of: "longer".to_owned(),
            in_windows: Share { questions: 1000, shown: 900 },
            windows: 90,
            of_windows: 90,
            ..Counted::default()
        }));
    }
    comparison.arms.push(other);
    let facts = Facts::new(&comparison);
    let labels: Vec<String> =
        facts.pairs.iter().map(|pair| pair.metric(EVAL_LOSS).unwrap().label()).collect();
    assert_eq!(labels, [EVAL_LOSS, "eval_loss, seen in training (45% of questions)"]);
}
