//! The document for programs has what the tables have.

use super::document_of;
use crate::compare::MatchedQuantity;
use crate::compare::made_up::{three_points, two_seeds};
use serde_json::{Value, json};

#[test]
fn numbers_are_whole_at_any_size() {
    let mut comparison = three_points(true);
    comparison.proof.claims.get_mut("canon").unwrap().matched = Some(MatchedQuantity {
        on: "parameters",
        path: "arch.parameters",
        within: "0.01".to_owned(),
        base: 1 << 70,
        arm: 1 << 70,
        apart: "equal".to_owned(),
    });
    let facts = crate::compare::Facts::new(&comparison);
    let document = crate::compare::document([("c", "00".to_owned(), &facts)]);
    let text = serde_json::to_string(&document).unwrap();
    assert!(text.contains("\"on\":\"parameters\""), "{text}");
    assert!(text.contains("\"base\":1180591620717411303424"), "{text}");
}

/// Each arm is at its own best point: at equal points they are controlled, but these are not equal.
#[test]
fn designs_are_those_of_the_compared_points() {
    let document = document_of(&three_points(true));
    let comparison = &document["comparisons"][0];
    for part in [&document, comparison, &comparison["pairs"][0], &comparison["best_per_arm"][0]] {
        assert_eq!((&part["controlled"], &part["attributable"]), (&false.into(), &false.into()));
    }
    assert_eq!(comparison["design"], "tuned");
    let pair = &comparison["pairs"][0];
    assert_eq!(pair["design"], "tuned");
    let verdict = pair["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("tuned: canon ("), "{verdict}");
    assert!(verdict.ends_with("at equal points controlled for canon"), "{verdict}");
    for list in ["paired_at_each_point", "best_of_base_for_all"] {
        for pair in comparison[list].as_array().unwrap() {
            let design = (&pair["design"], &pair["controlled"], &pair["verdict"]);
            assert_eq!(
                design,
                (&"controlled".into(), &true.into(), &"controlled for canon".into())
            );
        }
    }
    assert_eq!(comparison["arms"][1]["design"], "controlled", "of an arm, at equal points");
}

#[test]
fn lists_arms_and_rows_have_their_members() {
    let document = document_of(&three_points(true));
    let comparison = &document["comparisons"][0];
    let lists =
        ["arms", "points", "pairs", "paired_at_each_point", "best_per_arm", "best_of_base_for_all"];
    let counts = lists.map(|list| comparison[list].as_array().unwrap().len());
    assert_eq!(counts, [3, 3, 1, 3, 1, 1]);
    let row = &comparison["best_per_arm"][0]["rows"][0];
    assert!((row["difference"].as_f64().unwrap() + 0.5).abs() < 1e-12);
    assert_eq!(comparison["warnings"].as_array().unwrap().len(), 1);
    let [base, arm] = [&comparison["arms"][0], &comparison["arms"][1]];
    let selection = &comparison["selection"];
    for (value, wanted) in [
        (&selection["declared"], json!("best per arm")),
        (&selection["points"], json!(3)),
        (&selection["selected_on_reported"], json!(true)),
        (&comparison["interval"]["fewest"], json!(3)),
        (&arm["best_point"], json!(2)),
        (&arm["role"], json!("treated")),
        (&arm["at_the_edge"][0]["end"], json!("highest")),
        (&arm["factors"], json!(1)),
        (&base["factors"], Value::Null),
        (&row["metric"], json!("eval_loss")),
        (&row["n"], json!(3)),
        (&row["asked"], json!(900)),
        (&row["unit"], json!("nats")),
    ] {
        assert_eq!(*value, wanted);
    }
}

#[test]
fn without_a_grid_no_choice_is_shown() {
    let document = document_of(&two_seeds());
    let comparison = &document["comparisons"][0];
    assert_eq!(comparison["paired_at_each_point"], json!([]));
    assert_eq!(comparison["arms"][1]["best_point"], Value::Null);
}

#[test]
fn a_bundle_is_controlled_but_not_attributable() {
    let mut comparison = two_seeds();
    comparison.proof.claims.get_mut("canon").unwrap().factors = 2;
    let document = document_of(&comparison);
    assert_eq!((&document["controlled"], &document["attributable"]), (&true.into(), &false.into()));
    assert_eq!(document["comparisons"][0]["arms"][1]["attributable"], false);
    assert_eq!(document["comparisons"][0]["pairs"][0]["attributable"], false);
}
