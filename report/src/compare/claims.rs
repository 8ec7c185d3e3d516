//! What captions, heads and the methods paragraph claim of made-up runs.
//!
//! In: comparisons with a floor, several levels, diverged points, runs of several folders. Out: sentences and cells.
//! Must stay true: no sentence says more than the runs and the lock show.

use super::concludes::{NINE, diverge, of_losses, of_shares};
use super::*;
use crate::overview::{self, Entry};

/// Noise that the table refuses is not claimed by the paragraph.
#[test]
fn noise_at_a_floor_was_not_estimated() {
    let text = methods("c", "00", &of_shares(&[0.0, 0.0, 0.0], &[0.5, 0.4, 0.6]));
    assert!(!text.contains("Noise was estimated"), "{text}");
    assert!(text.contains("The noise of the base was not estimated (6 of 6 at 0%)"), "{text}");
}

/// The level of an overview's intervals is that of all rows, or each row names its own.
#[test]
fn comparisons_of_several_levels_say_which() {
    let at = |share: f64| {
        let mut comparison = of_losses(&NINE);
        let confidence = crate::statistics::Confidence::new(share).unwrap();
        comparison.proved.analysis =
            Some(Analysis { confidence, declared: true, ..analysis_of(&comparison) });
        comparison
    };
    let (usual, strict) = (at(0.95), at(0.99));
    let entries = |of: [&'static str; 2]| -> Vec<Entry<'_>> {
        let which = |task: &'static str| if task == "usual" { &usual } else { &strict };
        of.map(|task| Entry { task, comparison: which(task) }).to_vec()
    };
    for order in [["usual", "strict"], ["strict", "usual"]] {
        let table = overview::table(&entries(order));
        let column = table.head.iter().position(|head| head.contains("interval")).unwrap();
        assert_eq!(table.head[column], "interval, at the level of its row");
        let ends: Vec<&str> =
            table.rows.iter().map(|row| row[column].rsplit_once(" (").unwrap().1).collect();
        assert_eq!(ends, ["99%)", "95%)"]);
        let caption = overview::caption(&entries(order));
        assert!(caption.contains("counts all lines at level 0.01."), "{caption}");
    }
    // Alike, the head names the level, and that its coverage was not measured.
    let table = overview::table(&entries(["strict", "strict"]));
    assert!(
        table.head.contains(&"99% t interval (coverage not measured at this level)".to_owned())
    );
    assert!(summary(&strict).caption.contains("coverage was not measured at this level"));
    assert!(methods("c", "00", &strict).contains("coverage was not measured at this level"));
}

/// What is said of undecided rows and of equal differences is true of them.
#[test]
fn captions_say_of_rows_what_is_so() {
    let both = "the data fit both an effect and none";
    assert!(summary(&of_losses(&[-0.3, 0.2, 0.1])).caption.contains(both));
    let mut lost = of_losses(&NINE);
    diverge(&mut lost, 1, &[4]);
    let said = summary(&lost).caption;
    assert!(!said.contains(both) && said.contains("whose interval excludes zero"), "{said}");
    let said = summary(&of_losses(&NINE[..1])).caption;
    assert!(
        !said.contains(both) && said.contains("A row without an interval is undecided"),
        "{said}"
    );
    let mut equal = of_shares(&[0.5, 0.5, 0.5], &[0.75, 0.75, 0.75]);
    let loss = vec![(20, 1.5)];
    equal.arms[1].points[0][0].curves.metrics.insert(HELD_OUT_LOSS.to_owned(), loss);
    let said = summary(&equal).caption;
    assert!(said.contains("are equal, so their spread") && !said.contains("ceiling, so"), "{said}");
}

/// Where no point can be selected the paragraph says so, and names each point of which a run diverged.
#[test]
fn no_selection_is_claimed_where_every_point_diverged() {
    let mut comparison = super::tests::three_points(true);
    for run in comparison.arms[1].points.iter_mut().flatten() {
        run.curves.diverged = Some(7);
    }
    let text = methods("c", "00", &comparison);
    assert!(!text.contains("and one was selected"), "{text}");
    assert!(text.contains("none was selected for canon"), "{text}");
    let points = comparison.points.clone();
    for point in points {
        assert_eq!(text.matches(&format!("differences of canon ({point})")).count(), 1, "{text}");
    }
}

/// A run that diverged trained on the tokens up to that step.
#[test]
fn tuning_counts_the_tokens_that_were_trained_on() {
    let mut comparison = of_losses(&NINE[..3]);
    let costs = Costs { tokens: Some(2000.0), steps: Some(20.0), ..Costs::default() };
    comparison.proved.costs = BTreeMap::from([("canon".to_owned(), costs)]);
    let tokens = |comparison: &Comparison| comparison.tuning(&comparison.arms[1]).tokens;
    assert_eq!(tokens(&comparison), Some(6000.0));
    diverge(&mut comparison, 1, &[1]);
    assert_eq!(tokens(&comparison), Some(4700.0));
}

/// Seconds are compared within the folder of one comparison, where runs were interleaved.
#[test]
fn times_of_other_sessions_are_not_compared() {
    let ratios = |places: [&str; 2]| {
        let mut comparison = of_losses(&NINE[..3]);
        for (arm, place) in comparison.arms.iter_mut().zip(places) {
            for run in arm.points.iter_mut().flatten() {
                run.curves.timed_in(Path::new(place), Path::new("runs/own"));
            }
        }
        comparison.pairs()[0].row(STEP_TIME).unwrap().paired.len()
    };
    assert_eq!(ratios(["runs/own/a", "runs/own/b"]), 3);
    assert_eq!(ratios(["runs/other/a", "runs/other/b"]), 3);
    assert_eq!(ratios(["runs/other/a", "runs/own/b"]), 0);
    assert_eq!(ratios(["runs/a", "runs/b"]), 0, "runs that no comparison interleaved");
}
