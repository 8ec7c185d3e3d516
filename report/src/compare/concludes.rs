//! Tests of the conclusions that a table, a document and an overview draw from made-up runs.
//!
//! In: a base and a treated arm of one to nine seeds, with values given here. Out: intervals, p values, words
//! and sentences. Must stay true: zero variance, a floor and too few seeds give a reason instead of a number; more
//! seeds find more; every member of a family counts.

use super::tests::{arm, by, proved, run, two_seeds};
use super::*;
use crate::overview::{self, Entry};
use crate::statistics::Effect;
use crate::statistics::draws::Draws;
use crate::statistics::equivalence::{Margin, Open};
use crate::statistics::sequential::Decision;

/// Differences of nine seeds with a significant mean.
pub(super) const NINE: [f64; 9] = [-0.3, -0.1, -0.25, -0.05, -0.2, -0.35, 0.05, -0.15, -0.25];

/// Of the losses of a base the treated arm differs by these; the repetitions of the base by 0.1 up and down.
pub(super) fn of_losses(differences: &[f64]) -> Comparison {
    let n = differences.len();
    let base = |seed: usize| 2.0 + 0.1 * seed as f64;
    let treated =
        differences.iter().enumerate().map(|(seed, d)| run(seed, base(seed) + d, 0.5)).collect();
    let sign = |seed: usize| if seed.is_multiple_of(2) { 0.1 } else { -0.1 };
    Comparison {
        arms: vec![
            arm("llama", Role::Base, vec![(0..n).map(|s| run(s, base(s), 0.5)).collect()]),
            arm("canon", Role::Treatment, vec![treated]),
            arm(
                "llama replicate",
                Role::Replicate,
                vec![(0..n).map(|s| run(s, base(s) + sign(s), 0.5)).collect()],
            ),
        ],
        points: vec![String::new()],
        selection: by("eval_loss", SelectionMode::Min, true),
        proved: proved(&["canon"], &[]),
    }
}

/// The shares of right answers of both arms.
pub(super) fn of_shares(base: &[f64], treated: &[f64]) -> Comparison {
    let runs = |shares: &[f64]| {
        shares.iter().enumerate().map(|(seed, right)| run(seed, 2.0, *right)).collect()
    };
    Comparison {
        arms: vec![
            arm("llama", Role::Base, vec![runs(base)]),
            arm("canon", Role::Treatment, vec![runs(treated)]),
            arm("llama replicate", Role::Replicate, vec![runs(base)]),
        ],
        points: vec![String::new()],
        selection: by("token_accuracy", SelectionMode::Max, true),
        proved: proved(&["canon"], &[]),
    }
}

/// A cell of the primary row, found by the start of its column's head.
fn cell(comparison: &Comparison, column: &str) -> String {
    let table = summary(comparison).sections.remove(0).table;
    let at = table.head.iter().position(|head| head.starts_with(column));
    let row = table.rows.iter().find(|row| row[0] == comparison.judged_by()).unwrap();
    at.map_or_else(|| format!("no column {column}"), |at| row[at].clone())
}

#[test]
fn each_number_of_seeds_has_what_it_supports() {
    let seeds = |n: usize| of_losses(&NINE[..n]);
    for n in [1, 2] {
        assert_eq!(cell(&seeds(n), "95% t interval"), format!("n = {n}: no interval"));
        assert_eq!(cell(&seeds(n), "effect"), "undecided");
        assert_eq!(cell(&seeds(n), "p, Holm"), "–");
        assert_eq!(cell(&seeds(n), "A/A"), format!("unknown: {n} of 3 repetitions"));
    }
    for (n, interval, effect) in [
        (3, "-0.4752 … +0.0419 nats", "undecided"),
        (6, "-0.3299 … -0.0868 nats", "better"),
        (9, "-0.2760 … -0.0796 nats", "better"),
    ] {
        assert_eq!(cell(&seeds(n), "95% t interval"), interval);
        assert_eq!(cell(&seeds(n), "effect"), effect, "n = {n}");
        let flips = cell(&seeds(n), "sign-flip p");
        assert_eq!(flips.starts_with("no column"), n < 6, "{flips}");
        let head = &summary(&seeds(n)).sections[0].table.head;
        let skewed = if n == 9 { 89 } else { 88 };
        let reached = format!("95% t interval (covers 95% at n = {n}, {skewed}% if skewed)");
        assert!(head.contains(&reached), "{head:?}");
    }
    // All six differences have one sign: 2 of 64.
    assert_eq!(cell(&seeds(6), "sign-flip p"), "0.0312");
}

/// An earlier, wrong rule compared the mean of nine with the largest of nine single A/A distances.
#[test]
fn nine_seeds_find_what_single_runs_hide() {
    let comparison = of_losses(&NINE);
    let pairs = comparison.pairs();
    let row = pairs[0].row(EVAL_LOSS).unwrap();
    assert!(row.result.unwrap().p < 0.01);
    // Each A/A distance is 0.1; the noise of a mean of nine is a third of it.
    assert_eq!(row.itself_cell(), "±0.0333 nats");
    let text = summary(&comparison).text();
    assert!(!text.contains("nothing here") && !text.contains("says nothing"), "{text}");
    assert!(text.contains("other init and data seeds"), "{text}");
    // If only one kind of seed differs, the noise does not describe independent runs.
    for (init, data, same) in [
        (true, false, "data seeds"),
        (false, true, "init seeds"),
        (false, false, "init and data seeds"),
    ] {
        let mut comparison = of_losses(&NINE);
        comparison.proved.varied = Varied { init, data };
        assert_eq!(cell(&comparison, "A/A"), format!("unknown: same {same}"));
        assert!(
            summary(&comparison)
                .caption
                .contains(&format!("replicates share {same} with the base"))
        );
    }
}

#[test]
fn a_floor_a_ceiling_and_no_variance_give_no_number() {
    for (base, treated, interval, noise) in [
        ([0.0; 3], [0.0; 3], "all equal: no interval", "unknown: 6 of 6 at 0%"),
        ([1.0; 3], [1.0; 3], "all equal: no interval", "unknown: 6 of 6 at 100%"),
        ([0.5; 3], [0.75; 3], "all equal: no interval", "unknown: all equal"),
        ([0.0, 0.0, 0.25], [0.5, 0.25, 1.0], "-12.1 … +112.1 pp", "unknown: 4 of 6 at 0%"),
    ] {
        let comparison = of_shares(&base, &treated);
        assert_eq!(cell(&comparison, "95% t interval"), interval, "{base:?}");
        assert_eq!(cell(&comparison, "A/A"), noise, "{base:?}");
        assert_eq!(cell(&comparison, "effect"), "undecided");
        let text = summary(&comparison).text();
        assert!(!text.contains("±0.0 ") && !text.contains("NaN"), "{text}");
        let document = json([("c", "00".to_owned(), &comparison)]);
        let row = &document.comparisons[0].pairs[0].rows;
        let row = row.iter().find(|row| row.metric == TOKEN_ACCURACY).unwrap();
        assert_eq!(row.interval.is_none(), row.no_interval.is_some());
        assert!(row.noise.is_none() && row.no_noise.is_some());
    }
}

#[test]
fn better_goes_by_the_metric_s_direction() {
    assert_eq!(cell(&of_losses(&NINE), "effect"), "better");
    assert_eq!(cell(&of_losses(&NINE.map(|d| -d)), "effect"), "worse");
    let (low, high) = ([0.1, 0.2, 0.15, 0.12], [0.5, 0.63, 0.52, 0.5]);
    assert_eq!(cell(&of_shares(&low, &high), "effect"), "better");
    assert_eq!(cell(&of_shares(&high, &low), "effect"), "worse");
    for (metric, direction) in [
        (TRAINING_LOSS, Better::Less),
        (EVAL_LOSS, Better::Less),
        (STEP_TIME, Better::Less),
        ("KL from the true distribution", Better::Less),
        (TOKEN_ACCURACY, Better::More),
        (EXACT_MATCH, Better::More),
        ("bits learned", Better::More),
        ("valid sentences", Better::More),
    ] {
        assert_eq!(better(metric), direction, "{metric}");
    }
}

#[test]
fn equivalent_needs_a_declared_margin() {
    let near = [0.01, -0.02, 0.015, 0.0, -0.01];
    let mut comparison = of_losses(&near);
    assert_eq!(cell(&comparison, "effect"), "undecided");
    assert!(summary(&comparison).caption.contains("No margin is declared"));
    let declare = |comparison: &mut Comparison, size: f64| {
        let margin = Margin::new(size);
        comparison.proved.analysis =
            Some(Analysis { margin, declared: true, ..analysis_of(comparison) });
    };
    declare(&mut comparison, 0.1);
    assert_eq!(cell(&comparison, "effect"), "equivalent");
    declare(&mut comparison, 0.005);
    let judged = comparison.family()[0].judged;
    assert_eq!((judged.effect, judged.open), (Effect::Undecided, Some(Open::TooUncertain)));
    // A significant but small difference is "better", and is marked as small.
    let mut comparison = of_losses(&near.map(|d| d - 0.05));
    declare(&mut comparison, 0.1);
    assert_eq!(cell(&comparison, "effect"), "better, within the margin");
}

/// A declared metric that no run has still counts as a test of the family.
#[test]
fn a_declared_row_without_data_counts() {
    let mut comparison = of_losses(&NINE);
    let alone = comparison.family()[0].judged.p_adjusted.unwrap();
    let family = [EVAL_LOSS, EXACT_MATCH, TRAINING_LOSS].map(str::to_owned).to_vec();
    comparison.proved.analysis =
        Some(Analysis { family, declared: true, ..analysis_of(&comparison) });
    let members = comparison.family();
    assert_eq!(members.len(), 3);
    assert!((members[0].judged.p_adjusted.unwrap() - 3.0 * alone).abs() < 1e-12);
    assert_eq!(members[1].judged.effect, Effect::Undecided);
    assert!(summary(&comparison).caption.contains("The family (declared) is 3 tests"));
}

#[test]
fn twelve_rows_are_one_family() {
    let (one, other) = (of_losses(&NINE[..6]), of_losses(&[0.1, -0.1, 0.2, -0.15, 0.05, -0.12]));
    let entry = |comparison| Entry { task: "depo", comparison };
    let alone = overview::table(&[entry(&one)]);
    let at = |name: &str| alone.head.iter().position(|head| head == name).unwrap();
    let (adjusted, effect) = (at("p, Holm"), at("effect"));
    assert_eq!(
        (alone.rows[0][adjusted].as_str(), alone.rows[0][effect].as_str()),
        ("0.0070", "better")
    );
    let mut entries = vec![entry(&one)];
    entries.extend([entry(&other); 11]);
    let table = overview::table(&entries);
    assert_eq!(table.rows.len(), 12);
    // 12 × 0.0070 is above the level.
    let row = &table.rows[0];
    assert_eq!((row[adjusted].as_str(), row[effect].as_str()), ("0.0838", "undecided"));
    assert!(overview::caption(&entries).contains("One family of 12 tests"));
    let document = json(entries.iter().map(|entry| ("c", String::new(), entry.comparison)));
    assert_eq!(document.together.len(), 12);
    assert_eq!(document.together[0].judged.effect, Effect::Undecided);
    let alone = &document.comparisons[0].pairs[0].rows[1];
    assert_eq!(alone.judged.unwrap().effect, Effect::Better, "its own family is one test");
}

#[test]
fn a_time_needs_a_steady_machine() {
    let timed = |treated: [f64; 3], replicate: [f64; 3]| {
        let mut comparison = of_losses(&NINE[..3]);
        for (at, seconds) in [(1, treated), (2, replicate)] {
            for (run, seconds) in comparison.arms[at].points[0].iter_mut().zip(seconds) {
                run.curves.step_seconds = Some(seconds);
            }
        }
        comparison.pairs()[0].row(STEP_TIME).unwrap()
    };
    let row = timed([0.012, 0.0121, 0.0119], [0.0101, 0.0099, 0.01]);
    assert_eq!(row.interval_cell(), "×1.18 … ×1.23");
    assert_eq!(row.itself_cell(), "×1.01 (A/A)");
    let row = timed([0.012, 0.0121, 0.0119], [0.014, 0.008, 0.01]);
    assert_eq!(row.interval_cell(), "unsteady, A/A ×1.26: no interval");
    // A ratio and its inverse lead to the same conclusion.
    let row = timed([0.02, 0.005, 0.01], [0.0101, 0.0099, 0.01]);
    assert_eq!(
        row.difference_cell(DivergedSeeds { pairs: 3, ..DivergedSeeds::default() }),
        "×1.00"
    );
    let row = two_seeds().pairs()[0].row(STEP_TIME).unwrap();
    assert_eq!(row.interval_cell(), "A/A timed 1 of 3 times: no interval");
}

#[test]
fn a_bundle_and_a_loose_match_are_said() {
    let mut comparison = two_seeds();
    let claim = comparison.proved.claims.get_mut("canon").unwrap();
    claim.factors = 2;
    claim.matched = Some(Equal {
        on: "parameters",
        path: "arch.parameters",
        within: "0.1".to_owned(),
        base: 100,
        arm: 108,
        apart: "+8%".to_owned(),
    });
    let text = summary(&comparison).text();
    assert!(text.contains("a difference of canon cannot be attributed to one of them"), "{text}");
    assert!(
        text.contains("Warning: [match] allows canon 0.1 of the base's parameters (+8%)"),
        "{text}"
    );
    let value = serde_json::to_value(json([("c", String::new(), &comparison)])).unwrap();
    assert_eq!((&value["controlled"], &value["attributable"]), (&true.into(), &false.into()));
    assert_eq!(value["comparisons"][0]["arms"][1]["attributable"], false);
    assert_eq!(value["comparisons"][0]["pairs"][0]["attributable"], false);
    let within = |share: &str| {
        let mut comparison = comparison.clone();
        let claim = comparison.proved.claims.get_mut("canon").unwrap();
        claim.matched.as_mut().unwrap().within = share.to_owned();
        comparison.warnings().len()
    };
    assert_eq!([within("0.05"), within("0.051")], [0, 1]);
}

#[test]
fn each_arm_has_its_costs_and_its_tuning() {
    let mut comparison = super::tests::three_points(true);
    let costs = Costs {
        parameters: Some(120_128.0),
        flops: Some(1.94e12),
        activations: Some(4000.0),
        tokens: Some(2_457_600.0),
        steps: Some(20.0),
    };
    for name in ["llama", "canon"] {
        comparison.proved.costs.insert(name.to_owned(), costs);
    }
    for (seed, mebibytes) in [(0, 300), (1, 299)] {
        comparison.arms[2].points[0][seed].curves.peak_bytes = Some(mebibytes << 20);
    }
    // Timings of two machines have no mean.
    comparison.arms[1].points[0][0].curves.timed_on = Some("elsewhere".to_owned());
    let summary = summary(&comparison);
    let section = summary.sections.last().unwrap();
    assert!(section.title.starts_with("size, cost and tuning"), "{}", section.title);
    let size = ["120128", "1.94e12", "4000"];
    let tuning = ["3", "9", "2.21e7"];
    let [_, canon, replicate] = section.table.rows.as_slice() else { panic!() };
    for (row, name, measured) in
        [(canon, "canon", ["–", "–"]), (replicate, "llama replicate", ["10.0 ms", "300 MiB"])]
    {
        assert_eq!(
            (row[0].as_str(), &row[1..4], &row[4..6]),
            (name, &size.map(str::to_owned)[..], &measured.map(str::to_owned)[..])
        );
        assert_eq!(row[6..], tuning);
    }
    let document = json([("name", "id".to_owned(), &comparison)]);
    let [_, canon, replicate] = document.comparisons[0].arms.as_slice() else { panic!() };
    assert_eq!(replicate.measured.peak_memory_bytes, Some(300 << 20));
    assert_eq!(
        replicate.measured.step_seconds.map(|seconds| (seconds * 1e6).round()),
        Some(10_000.0)
    );
    assert_eq!((canon.measured.step_seconds, canon.measured.peak_memory_bytes), (None, None));
    assert_eq!((canon.tuning.points, canon.tuning.runs), (3, 9));
}

#[test]
fn the_methods_paragraph_names_the_lock_and_what_was_done() {
    let text = methods("demo", "abc123", &of_losses(&NINE));
    for what in [
        "demo (lock abc123) compares canon with llama; design: canon against llama: controlled for canon.",
        "paired by seed (9 pairs a row)",
        "The primary metric is eval_loss (that of the selection, which is the default)",
        "at n = 9 they cover 95% for normal and 89% for exponentially skewed",
        "Holm's method over 1 test (",
        "No equivalence margin was declared",
        "9 repetitions of the base with other init and data seeds",
        "Each value was measured on 900 targets, the same for all seeds",
    ] {
        assert!(text.contains(what), "{what}: {text}");
    }
    let text = methods("demo", "abc123", &two_seeds());
    assert!(text.contains("No intervals are shown: they need 3 seeds"), "{text}");
    assert!(text.contains("The noise of the base was not estimated"), "{text}");
}

/// NaN is shown, and gives neither an interval nor a word.
#[test]
fn what_is_not_a_number_is_not_passed_over() {
    let comparison = of_losses(&[-0.1, f64::NAN, -0.2, -0.3]);
    assert_eq!(cell(&comparison, "95% t interval"), "not all numbers: no interval");
    assert_eq!(cell(&comparison, "paired difference"), "NaN nats");
    assert_eq!(cell(&comparison, "effect"), "undecided");
    // A seed with a missing value is counted.
    let mut comparison = of_losses(&NINE[..3]);
    comparison.arms[1].points[0][2].curves.metrics.remove(EVAL_LOSS);
    assert_eq!(cell(&comparison, "95% t interval"), "n = 2: no interval");
    assert!(cell(&comparison, "paired difference").ends_with("(2 of 3)"));
}

/// Some runs of an arm diverged.
pub(super) fn diverge(comparison: &mut Comparison, arm: usize, seeds: &[usize]) {
    for run in &mut comparison.arms[arm].points[0] {
        if seeds.contains(&run.seed) {
            run.curves.diverged = Some(7);
        }
    }
}

/// Every table, the document and the methods paragraph count the diverged seeds, which never improve a word.
#[test]
fn a_diverged_seed_is_in_every_word() {
    let mut comparison = of_losses(&NINE);
    assert_eq!(cell(&comparison, "effect"), "better");
    diverge(&mut comparison, 1, &[4]);
    assert_eq!(cell(&comparison, "effect"), "undecided (8 of 9, 1 diverged)");
    assert!(cell(&comparison, "paired difference").ends_with(" (8 of 9, 1 diverged)"));
    let entries = [Entry { task: "depo", comparison: &comparison }];
    let table = overview::table(&entries);
    for what in ["undecided (8 of 9, 1 diverged)", "2.2250 nats (8 of 9, 1 diverged)"] {
        assert!(table.rows[0].contains(&what.to_owned()), "{what}: {:?}", table.rows);
    }
    assert!(overview::picture(&entries).contains("1 of 9 diverged"));
    let value = serde_json::to_value(json([("c", String::new(), &comparison)])).unwrap();
    let pair = &value["comparisons"][0]["pairs"][0];
    let lost = serde_json::json!({ "pairs": 9, "base": 0, "treated": 1, "both": 0 });
    assert_eq!(pair["seeds"], lost);
    let judged = &pair["rows"][1]["judged"];
    assert_eq!(
        (&judged["effect"], &judged["open"]["why"]),
        (&"undecided".into(), &"diverged".into())
    );
    assert_eq!(value["together"][0]["judged"]["effect"], "undecided");
    assert!(methods("c", "00", &comparison).contains("8 of 9, 1 diverged"));
    // A diverged run is the worst result, so one in the base can only make the arm better.
    let mut comparison = of_losses(&NINE);
    diverge(&mut comparison, 0, &[4]);
    assert_eq!(cell(&comparison, "effect"), "better (8 of 9, 1 of the base diverged)");
    // The worse arm stays worse.
    let mut comparison = of_losses(&NINE.map(|d| -d));
    diverge(&mut comparison, 1, &[0, 4]);
    assert_eq!(cell(&comparison, "effect"), "worse (7 of 9, 2 diverged)");
    // If all seeds diverged, the row is absent, but the arm is still listed.
    let mut comparison = of_losses(&NINE[..3]);
    diverge(&mut comparison, 1, &[0, 1, 2]);
    assert_eq!(cell(&comparison, "effect"), "undecided (0 of 3, 3 diverged)");
}

/// Under a stopping rule a seed without a difference ends the looks; an earlier decision still counts.
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

/// A comparison that stops as soon as its rule decides.
fn sequential(differences: &[f64], most: usize) -> Comparison {
    let mut comparison = of_losses(differences);
    let analysis = analysis_of(&comparison);
    comparison.proved.analysis =
        Some(Analysis { max_seeds: Some(most), declared: true, ..analysis });
    comparison
}

#[test]
fn a_stopping_rule_shows_the_interval_that_holds_at_every_look() {
    let differences = [-0.3, -0.25, -0.35, -0.3, -0.31, 9.0, 9.0];
    let fixed = of_losses(&differences[..4]);
    let shown = |n: usize| sequential(&differences[..n], 9);
    let head = "95% anytime-valid interval (covers 97% at all looks together, 87% if skewed)";
    assert!(summary(&shown(3)).sections[0].table.head.contains(&head.to_owned()));
    assert_eq!(cell(&shown(3), "95% anytime"), "n = 3: no interval");
    let ends = |comparison: &Comparison| {
        let row = comparison.pairs()[0].row(EVAL_LOSS).unwrap();
        (row.ends(), row.paired.len())
    };
    let ((narrow, _), (wide, _)) = (ends(&fixed), ends(&shown(4)));
    let (narrow, wide) = (narrow.unwrap(), wide.unwrap());
    assert!(wide.0 < narrow.0 && narrow.1 < wide.1, "{wide:?} {narrow:?}");
    // The first decisive look counts, whatever follows.
    let decided = shown(5).last_looks()[0].look;
    assert_eq!(decided.decision, Decision::Differs);
    for n in [6, 7] {
        assert_eq!(shown(n).last_looks()[0].look, decided);
        assert_eq!(ends(&shown(n)), ends(&shown(decided.n)));
        assert_eq!(cell(&shown(n), "effect"), "better");
        let later = format!("{} later seeds change nothing", n - decided.n);
        assert!(summary(&shown(n)).caption.contains(&later), "{}", summary(&shown(n)).caption);
    }
    let text = summary(&shown(7)).text();
    assert!(!text.contains("t interval") && !text.contains("sign-flip p"), "{text}");
    let value = serde_json::to_value(json([("c", String::new(), &shown(7))])).unwrap();
    let one = &value["comparisons"][0];
    assert_eq!(
        (&one["looks"][0]["decision"], &one["looks"][0]["n"]),
        (&"differs".into(), &decided.n.into())
    );
    assert_eq!(one["pairs"][0]["rows"][1]["interval"]["anytime"], true);
    assert_eq!(one["analysis"]["max_seeds"], 9);
    let entries = [Entry { task: "depo", comparison: &shown(7) }];
    assert!(overview::table(&entries).head.contains(&head.to_owned()));
    // A lock can be written after the runs, so the paragraph does not say that it was not.
    let text = methods("c", "00", &shown(7));
    assert!(!text.contains("declared before the runs") && !text.contains("were run one after"));
    assert!(text.contains("does not prove that it did so before the runs"), "{text}");
    let mut chosen = shown(7);
    assert_eq!(chosen.used_seeds(), Some(decided.n));
    chosen.proved.siblings.taken = vec!["runs/fixed/a".into(), "runs/fixed/b".into()];
    let text = methods("c", "00", &chosen);
    assert!(text.contains("2 of the runs were taken from other comparisons"), "{text}");
    assert!(summary(&chosen).warnings.iter().any(|said| said.contains("may have been chosen")));
    assert_eq!((shown(3).used_seeds(), fixed.used_seeds()), (Some(3), None));
    // One seed is not "1 seeds", and what training showed is not called held-out.
    let mut one = shown(1);
    super::tests::show(&mut one, Some(TrainingOverlap::ByDesign));
    let text = methods("c", "00", &one);
    assert!(text.contains("after 1 seed the rule") && !text.contains("held-out"), "{text}");
}

/// Simulates a reader who looks after each seed and stops when the rule does.
#[test]
fn the_shown_interval_covers_however_often_one_looks() {
    let mut draws = Draws::new("test shown looks");
    let held = |mean: f64, draws: &mut Draws| {
        let values: Vec<f64> = (0..12).map(|_| mean + draws.normal()).collect();
        (1..=12).all(|n| {
            let comparison = sequential(&values[..n], 12);
            let row = comparison.pairs()[0].row(EVAL_LOSS).unwrap();
            row.ends().is_none_or(|(low, high)| low <= mean && mean <= high)
        })
    };
    for mean in [0.0, 1.0] {
        let count = (0..300).filter(|_| held(mean, &mut draws)).count();
        // 95%, minus two standard errors of 300 sequences.
        assert!(count >= 278, "{mean}: {count} of 300");
    }
}
