//! What captions, heads and the methods paragraph claim of made-up runs.
//!
//! In: comparisons with a floor, several levels, diverged points, runs of several folders. Out: sentences and cells.
//! Must stay true: no sentence says more than the runs and the lock show.

use super::concludes::{NINE, diverge, of_losses, of_shares};
use super::tests::three_points;
use super::*;
use crate::overview::{self, Entry};
use crate::statistics::Effect;
use crate::statistics::questions::Asked;

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
    assert!(!said.contains(both) && said.contains("although its interval excludes zero"), "{said}");
    let said = summary(&of_losses(&NINE[..1])).caption;
    assert!(
        !said.contains(both) && said.contains("A row without an interval is undecided"),
        "{said}"
    );
    let mut equal = of_shares(&[0.5, 0.5, 0.5], &[0.75, 0.75, 0.75]);
    let loss = vec![(20, 1.5)];
    equal.arms[1].points[0][0].curves.metrics.insert(EVAL_LOSS.to_owned(), loss);
    let said = summary(&equal).caption;
    assert!(said.contains("are equal, so their spread") && !said.contains("ceiling, so"), "{said}");
}

/// If no point can be selected, the paragraph says so and names each point with a diverged run.
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
        assert!(comparison.other_machines().is_empty(), "another folder is no other machine");
        comparison.pairs()[0].row(STEP_TIME).unwrap().paired.len()
    };
    assert_eq!(ratios(["runs/own/a", "runs/own/b"]), 3);
    assert_eq!(ratios(["runs/other/a", "runs/other/b"]), 3);
    assert_eq!(ratios(["runs/other/a", "runs/own/b"]), 0);
    assert_eq!(ratios(["runs/a", "runs/b"]), 0, "runs that no comparison interleaved");
}

/// The lock fixes the number of tests: neither diverged points nor missing runs change it.
#[test]
fn the_family_is_the_declared_one_whatever_the_runs_gave() {
    let declare = |mut comparison: Comparison| {
        let family = [EVAL_LOSS, TOKEN_ACCURACY].map(str::to_owned).to_vec();
        comparison.proved.analysis =
            Some(Analysis { family, declared: true, ..analysis_of(&comparison) });
        comparison
    };
    let mut full = declare(three_points(true));
    // Seeds differ a little, so that differences have a variance.
    for run in full.arms[1].points.iter_mut().flatten() {
        for metric in [EVAL_LOSS, TOKEN_ACCURACY] {
            for (_, value) in run.curves.metrics.get_mut(metric).unwrap() {
                *value -= [0.0, 0.01, 0.03][run.seed];
            }
        }
    }
    let diverged = |arm: usize| {
        let mut comparison = full.clone();
        for run in comparison.arms[arm].points.iter_mut().flatten() {
            run.curves.diverged = Some(7);
        }
        comparison
    };
    let mut missing = full.clone();
    missing.arms.remove(1);
    assert!(full.family().iter().all(|member| member.judged.p_adjusted.is_some()));
    for comparison in [&diverged(1), &diverged(0), &missing] {
        let family = comparison.family();
        assert_eq!(family.len(), full.family().len());
        for member in &family {
            assert_eq!((member.arm.as_str(), member.points), ("canon", None));
            assert_eq!((member.judged.effect, member.judged.p_adjusted), (Effect::Undecided, None));
        }
        let said = summary(comparison).caption;
        assert!(said.contains("The family (declared) is 2 tests"), "{said}");
        assert!(said.contains("For canon no point could be selected"), "{said}");
        let entries = [Entry { task: "depo", comparison }; 2];
        let said = overview::caption(&entries);
        let has_lines = comparison.arms.len() == full.arms.len();
        assert!(said.starts_with("One family of 2 tests"), "{said}");
        assert_eq!(said.contains("a line for each point, and counts once"), has_lines, "{said}");
        let document = json([("c", String::new(), comparison)]);
        assert_eq!(document.together.len(), 1);
    }
    // A row that no run has is shown all the same.
    let mut nothing = diverged(1);
    nothing.arms[0] = diverged(0).arms[0].clone();
    nothing.arms.truncate(2);
    let section = &summary(&nothing).sections[0];
    let cells: Vec<&str> = section.table.rows[0].iter().map(String::as_str).collect();
    assert_eq!(cells[..3], [EVAL_LOSS, "3 of 3 diverged", "3 of 3 diverged"]);
    assert_eq!(section.table.effects, ["undecided", "undecided"]);
    let warning = &nothing.warnings()[0];
    assert!(warning.starts_with("Warning: 3 of 3 runs of llama (optimizer.lr 0.001)"), "{warning}");
    assert!(!warning.contains("the other runs"), "{warning}");
    // Rows of every point show that the declared test is undecided.
    let broken = diverged(1);
    for section in &summary(&broken).sections[..3] {
        assert_eq!(section.table.effects[1..3], ["undecided", "undecided"], "{}", section.title);
    }
    // A broken comparison does not change the adjustment of the others.
    let members = together(&[&full, &broken]);
    let alone = together(&[&full, &full]);
    assert_eq!((members[0].len(), members[1].len()), (1, 1));
    let adjusted = |of: &[Vec<Member>]| of[0][0].judged.p_adjusted.unwrap();
    let single = full.family()[0].judged.p_adjusted.unwrap();
    assert!(adjusted(&members) <= adjusted(&alone) && adjusted(&members) <= single, "{single}");
}

/// One pair of runs gives neither an interval nor a p value nor a statement about other seeds.
#[test]
fn one_seed_claims_nothing_of_other_seeds() {
    for (n, asked) in [
        (1, Some(Asked::Same)),
        (1, Some(Asked::Fresh)),
        (1, None),
        (2, Some(Asked::Same)),
        (2, Some(Asked::Fresh)),
    ] {
        let mut comparison = of_losses(&NINE[..n]);
        comparison.proved.questions = asked;
        let entries = [Entry { task: "depo", comparison: &comparison }];
        let summary = summary(&comparison);
        let methods = methods("c", "00", &comparison);
        for text in [&summary.caption, &methods, &overview::caption(&entries)] {
            for claim in [
                "p is that of",
                "P values are",
                "Intervals are",
                "intervals hold",
                "Holm's adjustment",
                "SE splits",
                "1 seeds",
                "1 pairs",
                "1 tests",
                "NaN",
            ] {
                assert!(!text.contains(claim), "n = {n}: {claim}: {text}");
            }
        }
        assert!(summary.caption.contains("No interval is shown: it needs 3 seeds"));
        assert!(summary.caption.contains("No row has a p value"), "{}", summary.caption);
        assert!(methods.contains("no test has a p value, so nothing is decided"), "{methods}");
        let alone = "nothing here shows how they would vary with other seeds";
        assert_eq!(summary.caption.contains(alone), n == 1, "{}", summary.caption);
        assert_eq!(methods.contains("of one seed"), n == 1, "{methods}");
        assert!(summary.secondary[0].table.rows.iter().all(|row| row[2] == "–" || n > 1));
    }
}
