//! Each sentence of `sentences.txt` is in the texts of runs that it follows from, and not in those of others.

use lab::comparison::SelectionMode;
use tasks::metric::of_suite;

use super::{NINE, of_losses, overview_of};
use crate::compare::made_up::{
    by, diverge, grid, of_answers, of_shares, sequential, show, three_points, two_seeds,
};
use crate::compare::metric::{EVAL_LOSS, EXACT_MATCH};
use crate::compare::{Comparison, EarlierReport, Facts, QuestionScores, TrainingOverlap, Varied};
use crate::statistics::Confidence;
use crate::statistics::equivalence::Margin;
use crate::statistics::questions::Asked;
use compiler::digest::Digest;

fn edited(mut comparison: Comparison, edit: impl FnOnce(&mut Comparison)) -> Comparison {
    edit(&mut comparison);
    comparison
}

fn without_replicate(comparison: &mut Comparison) {
    comparison.arms.pop();
}

fn at_99_percent(comparison: &mut Comparison) {
    let mut analysis = comparison.analysis();
    analysis.confidence = Confidence::new(0.99).unwrap();
    comparison.proof.analysis = Some(analysis);
}

fn all_treated_diverged(comparison: &mut Comparison) {
    for run in comparison.arms[1].points.iter_mut().flatten() {
        run.curves.diverged = Some(7);
    }
}

fn declared_with_margin(comparison: &mut Comparison) {
    let mut analysis = comparison.analysis();
    analysis.family = vec![EVAL_LOSS.to_owned(), EXACT_MATCH.to_owned()];
    (analysis.declared, analysis.margin) = (true, Margin::new(0.1));
    comparison.proof.analysis = Some(analysis);
}

fn one_lower_loss(comparison: &mut Comparison) {
    let metrics = &mut comparison.arms[1].points[0][0].curves.metrics;
    metrics.insert(EVAL_LOSS.to_owned(), vec![(20, 1.5)]);
}

fn bundle(comparison: &mut Comparison) {
    comparison.proof.claims.get_mut("canon").unwrap().factors = 2;
}

fn shown_before(comparison: &mut Comparison, added: &[(u64, u64)]) {
    let report = EarlierReport { lock: "00".to_owned(), seeds: 2, added: added.to_vec() };
    comparison.proof.other_records.earlier_reports = vec![report];
}

fn taken(comparison: &mut Comparison) {
    let runs = ["runs/fixed/a".into(), "runs/fixed/b".into()];
    comparison.proof.other_records.taken = runs.to_vec();
}

/// Seeds of the treated arm differ a little, so that their differences have a variance.
fn uneven(mut comparison: Comparison) -> Comparison {
    for run in comparison.arms[1].points.iter_mut().flatten() {
        for (_, loss) in run.curves.metrics.get_mut(EVAL_LOSS).unwrap() {
            *loss -= [0.0, 0.01, 0.03][run.seed];
        }
    }
    comparison
}

/// A suite with the answers of the windows.
fn with_suite(mut comparison: Comparison) -> Comparison {
    for run in comparison.arms.iter_mut().flat_map(|arm| arm.points.iter_mut().flatten()) {
        let curves = &mut run.curves;
        let metric = "piqa/acc".to_owned();
        let QuestionScores { scores, .. } = curves.questions[EXACT_MATCH].clone();
        let asked = Digest::of("test", "piqa");
        curves.asked.insert(metric.clone(), scores.len() as u64);
        curves.metrics.insert(metric.clone(), curves.metrics[EXACT_MATCH].clone());
        curves.questions.insert(metric, QuestionScores { asked, scores });
    }
    comparison
}

fn only_suites(comparison: &mut Comparison) {
    for run in comparison.arms.iter_mut().flat_map(|arm| arm.points.iter_mut().flatten()) {
        run.curves.asked.retain(|metric, _| of_suite(metric).is_some());
    }
    comparison.selection.metric = "piqa/acc".to_owned();
}

/// Answers to other windows for each seed.
fn fresh_answers() -> Comparison {
    edited(of_answers(|seed| seed.to_string()), |c| c.proof.questions = Some(Asked::Fresh))
}

/// The runs that the sentences are about, by name.
fn runs(name: &str) -> Comparison {
    let nine = || of_losses(&NINE);
    let shared = |init, data| edited(nine(), |c| c.proof.varied = Varied { init, data });
    let asked = |asked| edited(nine(), |c| c.proof.questions = asked);
    let shown = |overlap| edited(two_seeds(), |c| show(c, Some(overlap)));
    let questions = |count, windows| {
        let (questions, of_windows) = (1000, 50);
        shown(TrainingOverlap::Questions { questions, shown: count, windows, of_windows })
    };
    match name {
        "one seed" => of_losses(&NINE[..1]),
        "one seed without a replicate" => edited(of_losses(&NINE[..1]), without_replicate),
        "two seeds" => two_seeds(),
        "two seeds without a replicate" => edited(two_seeds(), without_replicate),
        "two pairs" => of_losses(&NINE[..2]),
        "nine seeds" => nine(),
        "99%" => edited(nine(), at_99_percent),
        "a declared family with a margin" => edited(nine(), declared_with_margin),
        "differences around zero" => of_losses(&[-0.3, 0.2, 0.1]),
        "equal differences" => edited(of_shares(&[0.5; 3], &[0.75; 3]), one_lower_loss),
        "a base at a floor" => of_shares(&[0.0, 0.0, 0.0], &[0.5, 0.4, 0.6]),
        "a diverged run" => edited(nine(), |c| diverge(c, 1, &[4])),
        "a bundle" => edited(two_seeds(), bundle),
        "a grid" => three_points(true),
        "a grid, best per arm" => uneven(three_points(true)),
        "a grid, best of the base" => uneven(three_points(false)),
        "a grid where all treated runs diverged" => {
            edited(three_points(true), all_treated_diverged)
        }
        "a grid without the metric of its rule" => {
            grid(by("exact_match", SelectionMode::Max, true))
        }
        "replicates with the same data seeds" => shared(true, false),
        "replicates with the same init seeds" => shared(false, true),
        "replicates with the same seeds" => shared(false, false),
        "other windows for each seed" => asked(Some(Asked::Fresh)),
        "windows of unknown seeds" => asked(None),
        "answers to other questions for each seed" => fresh_answers(),
        "answers and a suite" => with_suite(fresh_answers()),
        "a suite alone" => edited(with_suite(fresh_answers()), only_suites),
        "training with 10 of 1000 questions" => questions(10, 50),
        "training with 380 of 1000 questions" => questions(380, 50),
        "training inspected in part" => questions(0, 9),
        "people seen in training" => shown(TrainingOverlap::ByDesign),
        "results shown before" => edited(nine(), |c| shown_before(c, &[])),
        "results shown before a seed was added" => edited(nine(), |c| shown_before(c, &[(3, 3)])),
        "a stopping rule" => sequential(&NINE, 9),
        "a stopping rule with runs of other comparisons" => edited(sequential(&NINE, 9), taken),
        "a stopping rule after one seed" => {
            edited(sequential(&NINE[..1], 9), |c| show(c, Some(TrainingOverlap::ByDesign)))
        }
        _ => panic!("no runs have the name `{name}`"),
    }
}

#[test]
fn each_sentence_follows_from_the_runs() {
    for case in include_str!("sentences.txt").split("\n\n").skip(1) {
        let (head, sentences) = case.split_once('\n').unwrap();
        let (kind, name) = head.split_once(" of ").unwrap();
        let facts = Facts::new(&runs(name));
        let text = match kind {
            "caption" => facts.caption(),
            "methods" => facts.methods("demo", "abc123"),
            _ => panic!("{head}"),
        };
        for line in sentences.lines() {
            let (sign, sentence) = line.split_once(' ').unwrap();
            assert_eq!(text.contains(sentence), sign == "+", "{head}: {sentence}\n{text}");
        }
    }
}

/// Few runs give neither an interval nor a p value nor a statement about other seeds.
#[test]
fn one_or_two_seeds_claim_nothing_of_other_seeds() {
    let asked = [Some(Asked::Same), Some(Asked::Fresh), None];
    for (seeds, asked) in [1, 2].into_iter().flat_map(|n| asked.map(|asked| (n, asked))) {
        let mut comparison = of_losses(&NINE[..seeds]);
        comparison.proof.questions = asked;
        let (_, of_overview, _) = overview_of(&[&comparison]);
        let facts = Facts::new(&comparison);
        for text in [facts.caption(), facts.methods("demo", "abc123"), of_overview] {
            for claim in [
                "p is that of",
                "P values come",
                "Intervals are",
                "intervals hold",
                "Holm's adjustment",
                "SE splits",
                "1 seeds",
                "1 pairs",
                "1 tests",
                "NaN",
            ] {
                assert!(!text.contains(claim), "n = {seeds}: {claim}: {text}");
            }
        }
        let secondary = &facts.secondary_sections()[0];
        assert!(secondary.table.rows.iter().all(|row| row[2] == "–"));
    }
}
