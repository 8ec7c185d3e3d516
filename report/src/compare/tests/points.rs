//! Which points and runs are compared.

use lab::comparison::SelectionMode;

use crate::compare::made_up::{by, grid, run, two_seeds};
use crate::compare::metric::{EVAL_LOSS, STEP_TIME, TRAINING_LOSS};
use crate::compare::{Comparison, Facts, MetricFacts, Unit, measure_name};

fn points(comparison: &Comparison) -> Vec<(&str, usize, usize)> {
    let pairs = comparison.pairs();
    pairs.iter().map(|p| (p.arm.name.as_str(), p.arm_point, p.base_point)).collect()
}

fn first_pair(comparison: &Comparison) -> Vec<MetricFacts> {
    comparison.pairs()[0].facts_of_all()
}

#[test]
fn measures_have_names_units_and_can_be_judged_by() {
    let mut comparison = grid(by("bits", SelectionMode::Max, true));
    for (arm, bits) in comparison.arms.iter_mut().zip([10.0, 30.0, 20.0, 10.0]) {
        for (point, runs) in arm.points.iter_mut().enumerate() {
            let curves = &mut runs[0].curves;
            for (name, value) in [("bits", bits + point as f64), ("kl", 0.5), ("validity", 0.25)] {
                curves.metrics.insert(measure_name(name).to_owned(), vec![(20, value)]);
            }
        }
    }
    assert_eq!(comparison.judged_by(), "bits learned");
    assert_eq!(comparison.best(&comparison.arms[1]), Some(1));
    let rows = first_pair(&comparison);
    let row = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap();
    let bits = row("bits learned");
    assert_eq!((bits.unit, &bits.paired[..]), (Unit::Count, &[20.0][..]));
    assert_eq!(row("KL from the true distribution").unit, Unit::Nats);
    assert_eq!(row("valid sentences").unit, Unit::Share);
    assert_eq!(measure_name("something newer"), "something newer");
    let text = Facts::new(&comparison).summary().text();
    assert!(text.contains("31.0000") && text.contains("25.0%"), "{text}");
}

#[test]
fn differences_are_paired_by_seed() {
    let mut comparison = two_seeds();
    let rows = first_pair(&comparison);
    assert_eq!(rows[0].metric, TRAINING_LOSS);
    assert_eq!(rows[0].paired, [-0.5, -0.25]);
    assert_eq!(rows[0].values[2], [2.1]);
    assert_eq!((rows[2].values[0].len(), rows[2].mean(0)), (2, Some(0.45)));
    // The treated arm lost its first seed, so only the second is left.
    comparison.arms[1].points[0].remove(0);
    assert_eq!(first_pair(&comparison)[0].paired, [-0.25]);
}

#[test]
fn a_value_of_an_earlier_step_is_not_the_last_one() {
    let mut comparison = two_seeds();
    let metrics = &mut comparison.arms[1].points[0][0].curves.metrics;
    metrics.get_mut(EVAL_LOSS).unwrap().pop();
    let loss = comparison.pairs()[0].facts_of(EVAL_LOSS).unwrap();
    assert_eq!((&loss.values[1][..], &loss.paired[..]), (&[2.75][..], &[-0.25][..]));
}

#[test]
fn the_locked_rule_chooses_the_points() {
    let chosen = |metric, mode, per_arm| grid(by(metric, mode, per_arm));
    let each = [("left", 1, 0), ("right", 0, 0)];
    assert_eq!(points(&chosen("eval_loss", SelectionMode::Min, true)), each);
    assert_eq!(points(&chosen("token_accuracy", SelectionMode::Max, true)), each);
    let shared = [("left", 0, 0), ("right", 0, 0)];
    assert_eq!(points(&chosen("eval_loss", SelectionMode::Min, false)), shared);
    let worst = [("left", 0, 1), ("right", 1, 1)];
    assert_eq!(points(&chosen("eval_loss", SelectionMode::Max, true)), worst);
    // The replicate's best point is another one, but it is judged at the base's.
    let comparison = chosen("eval_loss", SelectionMode::Min, true);
    assert_eq!(first_pair(&comparison)[0].values[2], [2.5]);
    // No run has the rule's metric: compare at every point.
    let none = chosen("exact_match", SelectionMode::Max, true);
    let all = [("left", 0, 0), ("left", 1, 1), ("right", 0, 0), ("right", 1, 1)];
    assert_eq!(points(&none), all);
}

#[test]
fn a_point_that_lacks_a_value_is_not_chosen() {
    let mut comparison = grid(by("eval_loss", SelectionMode::Min, true));
    let best = &mut comparison.arms[1].points[1];
    let mut lacking = run(1, 0.5, 1.0);
    lacking.curves.metrics.clear();
    best.push(lacking);
    assert_eq!(points(&comparison)[0], ("left", 0, 0));
}

#[test]
fn seconds_are_compared_on_one_machine_only() {
    let time = |comparison: &Comparison| comparison.pairs()[0].facts_of(STEP_TIME).unwrap();
    let mut comparison = two_seeds();
    comparison.arms[1].points[0][0].curves.step_seconds = Some(0.02);
    assert_eq!(time(&comparison).paired, [2.0, 1.0]);
    for elsewhere in [Some("there".to_owned()), None] {
        comparison.arms[1].points[0][0].curves.timed_on = elsewhere;
        assert_eq!(time(&comparison).paired, [1.0]);
    }
}
