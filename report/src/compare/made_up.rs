//! Comparisons of made-up runs, for the tests of tables, sentences, pages and pictures.

use std::collections::BTreeMap;

use compiler::digest::Digest;
use lab::comparison::{Selection, SelectionMode};
use records::overlap::Share;

use super::metric::{EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY};
use super::question_scores::QuestionScores;
use super::*;
use crate::statistics::questions::Asked;

/// Twenty steps with one loss, and the final accuracy.
pub(crate) fn run(seed: usize, loss: f64, right: f64) -> ArmRun {
    let metrics = BTreeMap::from([
        (TOKEN_ACCURACY.to_owned(), vec![(10, 0.0), (20, right)]),
        (EVAL_LOSS.to_owned(), vec![(10, 9.0), (20, loss)]),
    ]);
    let curves = Curves {
        loss: (1..=20).map(|s| (s, loss)).collect(),
        metrics,
        asked: BTreeMap::from([(TOKEN_ACCURACY.to_owned(), 200), (EVAL_LOSS.to_owned(), 900)]),
        windows: None,
        samples: None,
        questions: BTreeMap::new(),
        peak_bytes: None,
        step_seconds: Some(0.01),
        timed_steps: Some(20),
        untimed: None,
        timed_on: Some("here".to_owned()),
        diverged: None,
        batches: Vec::new(),
        trainer: None,
        setting: lab::trainer::Setting::default(),
    };
    ArmRun { seed, curves, shown: None }
}

/// Lets the training of all runs together have shown this much of every evaluation.
pub(crate) fn show(comparison: &mut Comparison, overlap: Option<TrainingOverlap>) {
    let shown = overlap.map(|overlap| match overlap {
        TrainingOverlap::ByDesign => RunOverlap::ByDesign,
        TrainingOverlap::Questions { questions, shown, windows, of_windows } => {
            let share = Share { questions, shown };
            RunOverlap::Counted(Counted {
                of: "all".to_owned(),
                in_windows: share,
                answers: BTreeMap::from([(1, share)]),
                windows,
                of_windows,
            })
        }
    });
    for run in comparison.arms.iter_mut().flat_map(|arm| arm.points.iter_mut().flatten()) {
        run.shown = shown.clone();
    }
}

pub(crate) fn arm(name: &str, role: Role, points: Vec<Vec<ArmRun>>) -> Arm {
    Arm { name: name.to_owned(), role, points }
}

pub(crate) fn by(metric: &str, mode: SelectionMode, per_arm: bool) -> Selection {
    Selection { metric: metric.to_owned(), mode, per_arm }
}

/// Two seeds of a base and a treated arm; one of the replicate.
pub(crate) fn two_seeds() -> Comparison {
    Comparison {
        arms: vec![
            arm("llama", Role::Base, vec![vec![run(0, 2.0, 0.5), run(1, 3.0, 0.4)]]),
            arm("canon", Role::Treatment, vec![vec![run(0, 1.5, 0.75), run(1, 2.75, 0.7)]]),
            arm("llama replicate", Role::Replicate, vec![vec![run(0, 2.1, 0.5)]]),
        ],
        points: vec![String::new()],
        selection: by("eval_loss", SelectionMode::Min, true),
        proof: proof(&["canon"], &[]),
    }
}

/// Three arms at two points; they are best at different points.
pub(crate) fn grid(selection: Selection) -> Comparison {
    let points = |losses: [f64; 2]| losses.map(|loss| vec![run(0, loss, 1.0 / loss)]).to_vec();
    Comparison {
        arms: vec![
            arm("base", Role::Base, points([2.0, 3.0])),
            arm("left", Role::Treatment, points([4.0, 1.5])),
            arm("right", Role::Treatment, points([1.25, 4.5])),
            arm("base replicate", Role::Replicate, points([2.5, 1.0])),
        ],
        points: vec!["optimizer.lr 0.01".to_owned(), "optimizer.lr 0.02".to_owned()],
        selection,
        proof: proof(&["left", "right"], &[0.01, 0.02]),
    }
}

/// Arms that their lock proved controlled, on a grid of learning rates.
pub(crate) fn proof(arms: &[&str], rates: &[f64]) -> Proof {
    let claim = Claim {
        verdict: "controlled for canon".to_owned(),
        controlled: true,
        factors: 1,
        matched: None,
        compensated: false,
        equal_budget: true,
    };
    let values = rates.iter().copied().map(Some).collect();
    let axis = Axis { path: "optimizer.lr".to_owned(), values };
    Proof {
        claims: arms.iter().map(|arm| ((*arm).to_owned(), claim.clone())).collect(),
        axes: (!rates.is_empty()).then_some(axis).into_iter().collect(),
        varied: Varied { init: true, data: true },
        repeated: Vec::new(),
        questions: Some(Asked::Same),
        ..Proof::default()
    }
}

/// Three seeds at each of three points; the treated arm is best at the opposite end.
pub(crate) fn three_points(per_arm: bool) -> Comparison {
    let runs = |losses: [f64; 3]| {
        losses
            .map(|loss| (0..3).map(|seed| run(seed, loss + 0.1 * seed as f64, 0.5)).collect())
            .to_vec()
    };
    let rates = [0.001, 0.002, 0.004];
    Comparison {
        arms: vec![
            arm("llama", Role::Base, runs([3.0, 2.0, 2.5])),
            arm("canon", Role::Treatment, runs([2.5, 1.75, 1.5])),
            arm("llama replicate", Role::Replicate, runs([3.25, 2.5, 2.5])),
        ],
        points: rates.map(|rate| format!("optimizer.lr {rate}")).to_vec(),
        selection: by("eval_loss", SelectionMode::Min, per_arm),
        proof: proof(&["canon"], &rates),
    }
}

/// The same with a proof that a lock would never contain, but that a program might construct.
pub(crate) fn confounded(mut comparison: Comparison, arm: &str) -> Comparison {
    let claim = Claim {
        verdict: "confounded: 2 differences, beside canon".to_owned(),
        controlled: false,
        factors: 1,
        matched: None,
        compensated: false,
        equal_budget: true,
    };
    comparison.proof.claims.insert(arm.to_owned(), claim);
    comparison
}

/// Differences of nine seeds with a significant mean.
pub(crate) const NINE: [f64; 9] = [-0.3, -0.1, -0.25, -0.05, -0.2, -0.35, 0.05, -0.15, -0.25];

/// Of the losses of a base the treated arm differs by these; the repetitions of the base by 0.1 up and down.
pub(crate) fn of_losses(differences: &[f64]) -> Comparison {
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
        proof: proof(&["canon"], &[]),
    }
}

/// The shares of right answers of both arms.
pub(crate) fn of_shares(base: &[f64], treated: &[f64]) -> Comparison {
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
        proof: proof(&["canon"], &[]),
    }
}

/// Some runs of an arm diverged.
pub(crate) fn diverge(comparison: &mut Comparison, arm: usize, seeds: &[usize]) {
    for run in &mut comparison.arms[arm].points[0] {
        if seeds.contains(&run.seed) {
            run.curves.diverged = Some(7);
        }
    }
}

/// A comparison that stops as soon as its rule decides.
pub(crate) fn sequential(differences: &[f64], most: usize) -> Comparison {
    let mut comparison = of_losses(differences);
    let analysis = comparison.analysis();
    comparison.proof.analysis =
        Some(Analysis { max_seeds: Some(most), declared: true, ..analysis });
    comparison
}

/// A run with the given answers right.
pub(crate) fn answering(seed: usize, asked: &str, right: &[u8]) -> ArmRun {
    let scores: Vec<f64> = right.iter().map(|right| f64::from(*right)).collect();
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    let mut run = run(seed, 1.0, mean);
    let curves = &mut run.curves;
    curves.asked.insert(EXACT_MATCH.to_owned(), right.len() as u64);
    curves.metrics.insert(EXACT_MATCH.to_owned(), vec![(20, mean)]);
    let asked = Digest::of("test", asked);
    curves.questions.insert(EXACT_MATCH.to_owned(), QuestionScores { asked, scores });
    run
}

/// Three seeds of two arms that answer 40 questions; `asked` names the questions of a seed.
pub(crate) fn of_answers(asked: fn(usize) -> String) -> Comparison {
    let runs = |shift: usize| -> Vec<ArmRun> {
        let right = |seed: usize| -> Vec<u8> {
            (0..40).map(|q| u8::from((q * 7 + seed * 3) % 11 < 4 + shift)).collect()
        };
        (0..3).map(|seed| answering(seed, &asked(seed), &right(seed))).collect()
    };
    Comparison {
        arms: vec![arm("a", Role::Base, vec![runs(0)]), arm("b", Role::Treatment, vec![runs(3)])],
        points: vec![String::new()],
        selection: by("exact_match", SelectionMode::Max, true),
        proof: proof(&["b"], &[]),
    }
}
