//! The numbers and words of a row: zero variance, a floor and too few seeds give a reason instead of a number; more seeds
//! find more.

use super::{NINE, cell, of_losses};
use crate::compare::made_up::{of_shares, two_seeds};
use crate::compare::metric::{EVAL_LOSS, STEP_TIME};
use crate::compare::{Comparison, DivergedSeeds, Facts, Varied};
use crate::statistics::Effect;
use crate::statistics::equivalence::{Margin, Open};

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
        let skewed = if n == 9 { 89 } else { 88 };
        let head = format!("95% t interval (covers 95% at n = {n}, {skewed}% if skewed)");
        assert_eq!(cell(&seeds(n), &head), interval);
        assert_eq!(cell(&seeds(n), "effect"), effect, "n = {n}");
        let flips = cell(&seeds(n), "sign-flip p");
        assert_eq!(flips.starts_with("no column"), n < 6, "{flips}");
    }
    // All six differences have one sign: 2 of 64.
    assert_eq!(cell(&seeds(6), "sign-flip p"), "0.0312");
}

/// An earlier, wrong rule compared the mean of nine with the largest of nine single A/A distances.
#[test]
fn nine_seeds_find_what_single_runs_hide() {
    let mut comparison = of_losses(&NINE);
    let row = comparison.pairs()[0].facts_of(EVAL_LOSS).unwrap();
    assert!(row.interval.unwrap().p < 0.01);
    // Each A/A distance is 0.1; the noise of a mean of nine is a third of it.
    assert_eq!(row.noise_cell(), "±0.0333 nats");
    // If only one kind of seed differs, the noise does not describe independent runs.
    for (init, data, same) in [
        (true, false, "data seeds"),
        (false, true, "init seeds"),
        (false, false, "init and data seeds"),
    ] {
        comparison.proof.varied = Varied { init, data };
        assert_eq!(cell(&comparison, "A/A"), format!("unknown: same {same}"));
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
        let text = Facts::new(&comparison).summary().text();
        assert!(!text.contains("±0.0 ") && !text.contains("NaN"), "{text}");
        let document = super::document_of(&comparison);
        let rows = document["comparisons"][0]["pairs"][0]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["metric"] == "token_accuracy").unwrap();
        assert_eq!(row["interval"].is_null(), !row["no_interval"].is_null());
        assert!(row["noise"].is_null() && !row["no_noise"].is_null());
    }
}

#[test]
fn better_goes_by_the_metric_s_direction() {
    assert_eq!(cell(&of_losses(&NINE.map(|d| -d)), "effect"), "worse");
    let (low, high) = ([0.1, 0.2, 0.15, 0.12], [0.5, 0.63, 0.52, 0.5]);
    assert_eq!(cell(&of_shares(&low, &high), "effect"), "better");
    assert_eq!(cell(&of_shares(&high, &low), "effect"), "worse");
}

fn with_margin(differences: &[f64], size: f64) -> Comparison {
    let mut comparison = of_losses(differences);
    let mut analysis = comparison.analysis();
    analysis.margin = Margin::new(size);
    comparison.proof.analysis = Some(analysis);
    comparison
}

#[test]
fn equivalent_needs_a_declared_margin() {
    let small = [0.01, -0.02, 0.015, 0.0, -0.01];
    assert_eq!(cell(&of_losses(&small), "effect"), "undecided");
    assert_eq!(cell(&with_margin(&small, 0.1), "effect"), "equivalent");
    let judged = Facts::new(&with_margin(&small, 0.005)).family[0].judged;
    assert_eq!((judged.effect, judged.open), (Effect::Undecided, Some(Open::TooUncertain)));
    // A significant but small difference is "better", and is marked as small.
    let significant = with_margin(&small.map(|d| d - 0.05), 0.1);
    assert_eq!(cell(&significant, "effect"), "better, within the margin");
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
        comparison.pairs()[0].facts_of(STEP_TIME).unwrap()
    };
    let row = timed([0.012, 0.0121, 0.0119], [0.0101, 0.0099, 0.01]);
    assert_eq!(row.interval_cell(), "×1.18 … ×1.23");
    assert_eq!(row.noise_cell(), "×1.01 (A/A)");
    let row = timed([0.012, 0.0121, 0.0119], [0.014, 0.008, 0.01]);
    assert_eq!(row.interval_cell(), "unsteady, A/A ×1.26: no interval");
    // A ratio and its inverse lead to the same conclusion.
    let row = timed([0.02, 0.005, 0.01], [0.0101, 0.0099, 0.01]);
    let seeds = DivergedSeeds { pairs: 3, ..DivergedSeeds::default() };
    assert_eq!(row.difference_cell(seeds), "×1.00");
    let row = two_seeds().pairs()[0].facts_of(STEP_TIME).unwrap();
    assert_eq!(row.interval_cell(), "A/A timed 1 of 3 times: no interval");
}

#[test]
fn nan_is_shown_and_gives_neither_an_interval_nor_a_word() {
    let mut comparison = of_losses(&[-0.1, f64::NAN, -0.2, -0.3]);
    assert_eq!(cell(&comparison, "95% t interval"), "not all numbers: no interval");
    assert_eq!(cell(&comparison, "paired difference"), "NaN nats");
    assert_eq!(cell(&comparison, "effect"), "undecided");
    // A seed with a missing value is counted.
    comparison = of_losses(&NINE[..3]);
    comparison.arms[1].points[0][2].curves.metrics.remove(EVAL_LOSS);
    assert_eq!(cell(&comparison, "95% t interval"), "n = 2: no interval");
    assert!(cell(&comparison, "paired difference").ends_with("(2 of 3)"));
}
