//! The page of a comparison, driven through all its controls in a browser.

use std::collections::BTreeSet;

use lab::comparison::Role;
use serde_json::Value;

use super::super::super::canonc;
use super::browser::driven;
use super::{OTHER_DATA, SECONDS, STEPS, TOKENS_PER_STEP, assert_near, compared, exits, loss};

fn mean(value: impl Fn(u64) -> f64, steps: std::ops::RangeInclusive<u64>) -> f64 {
    let count = steps.clone().count() as f64;
    steps.map(value).sum::<f64>() / count
}

/// The runs of the page's table, as labels, roles and seeds.
const RUNS: [(&str, Role, usize); 5] = [
    ("plain #1", Role::Base, 0),
    ("plain #2", Role::Base, 1),
    ("treated #1", Role::Treatment, 0),
    ("treated #2", Role::Treatment, 1),
    ("plain replicate #1", Role::Replicate, 0),
];

/// The difference of a pair's losses.
fn gap(seed: usize, step: u64) -> f64 {
    loss(Role::Treatment, seed, step) - loss(Role::Base, seed, step)
}

#[test]
fn every_control_of_the_page_works() {
    let dir = compared();
    let words = ["report", "lockfiles/pair.lock", "--out", "out/page.html", "--published"];
    let ran = canonc(dir.path(), &[&words[..], &["GLA5*-1B-*lr0.003"]].concat());
    exits(0, &ran);
    assert!(ran.stderr.contains("page: out/page.html (5 runs"), "{}", ran.stderr);
    let Some(saw) = driven(&dir.path().join("out"), "page.html", &[]) else { return };
    check_first_view(&saw);
    check_smoothing_and_axes(&saw);
    check_ranges(&saw);
    check_differences_and_marks(&saw);
    check_hovering(&saw);
    check_filters_and_colours(&saw);
    check_selected_pair(&saw);
    check_exports(&saw);
    check_controls_and_printing(&saw);
}

/// The initial view: every run, and the two requested published models.
fn check_first_view(saw: &Value) {
    let labels = RUNS.map(|(label, ..)| label);
    let rows: Vec<&str> =
        saw["first"]["rows"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(rows[..5].iter().copied().collect::<BTreeSet<_>>(), labels.into());
    assert_eq!(rows[5..], ["GLA5conv-1B-lr0.003", "GLA5Canon-1B-lr0.003"]);
    assert_eq!(saw["first"]["smooth"], 1);
    assert_eq!(saw["first"]["x"], "share", "a thousand times as long, they share no other axis");
}

/// Smoothing, axes.
fn check_smoothing_and_axes(saw: &Value) {
    let at_end = |seen: &Value, x: f64, y: &dyn Fn(Role, usize) -> f64| {
        for (label, role, seed) in RUNS {
            assert_near(&seen[label]["x"], x);
            assert_near(&seen[label]["y"], y(role, seed));
            assert_eq!(seen[label]["points"], STEPS);
        }
    };
    at_end(&saw["raw"]["loss"], 60.0, &|role, seed| loss(role, seed, 60));
    at_end(&saw["smoothed"], 60.0, &|role, seed| mean(|step| loss(role, seed, step), 56..=60));
    at_end(&saw["tokens"]["loss"], 60.0 * TOKENS_PER_STEP, &|role, seed| loss(role, seed, 60));
    assert!(saw["tokens"]["label"].as_str().unwrap().starts_with("by training tokens"));
    at_end(&saw["time"], 60.0 * SECONDS, &|role, seed| loss(role, seed, 60));
    assert!(saw["time"].get("GLA5conv-1B-lr0.003").is_none(), "published runs have no seconds");
    assert_eq!(
        saw["timed"],
        "by seconds of training · 2 of 7 runs have no seconds of every step and are not drawn"
    );
    at_end(&saw["share"], 100.0, &|role, seed| loss(role, seed, 60));
    // The published log ends a little before the last step.
    let published = saw["share"]["GLA5conv-1B-lr0.003"]["x"].as_f64().unwrap();
    assert!((99.9..100.0).contains(&published), "{published}");
    at_end(&saw["steps"], 60.0, &|role, seed| loss(role, seed, 60));
    assert_eq!(saw["log"]["on"], serde_json::json!([3, 3, "true"]));
    assert_eq!(saw["log"]["off"], serde_json::json!([1, 1]));
    assert_eq!(saw["log"]["pair"], 1, "differences have no logarithm");
    let linear = saw["log"]["linear"].as_str().unwrap();
    assert!(linear.contains("y is linear here: differences have no logarithm"), "{linear}");
    assert_eq!(saw["range"], serde_json::json!([10, 20, true]));
    let full = saw["whole"].as_array().unwrap();
    assert!(full[0].as_f64().unwrap() <= 1.0 && full[1].as_f64().unwrap() >= 60.0, "{full:?}");
}

/// Dragged over a fifth to a half of the run, in every chart; a double click in another chart undoes it.
fn check_ranges(saw: &Value) {
    for (seen, wanted) in [("range", [20.0, 50.0]), ("other", [20.0, 50.0])] {
        for (edge, wanted) in saw["dragged"][seen].as_array().unwrap().iter().zip(wanted) {
            assert!((edge.as_f64().unwrap() - wanted).abs() < 0.5, "{}", saw["dragged"]);
        }
    }
    assert_eq!(saw["dragged"]["after"], serde_json::json!([null, null]));
    assert_eq!(saw["clicked"], serde_json::json!(["treated #1"]));
}

/// Paired differences, their mean and their noise band.
fn check_differences_and_marks(saw: &Value) {
    let pair = &saw["raw"]["pair"];
    assert_near(&pair["seed #1"]["y"], gap(0, 60));
    assert_near(&pair["seed #2"]["y"], gap(1, 60));
    assert_near(&pair["mean"]["y"], (gap(0, 60) + gap(1, 60)) / 2.0);
    assert_eq!(saw["band"]["band"], Value::Null, "one repetition does not measure noise");
    let note = saw["band"]["note"].as_str().unwrap();
    assert!(note.contains("A/A noise unknown (1 of 3 repetitions"), "{note}");
    let jitter = saw["jitter"].as_array().unwrap();
    assert_eq!(jitter[0], true, "published jitter has a shape of its own");
    assert!(jitter[1].as_str().unwrap().contains("dashed: "), "{jitter:?}");
    assert_near(&saw["metric"]["seed #2"]["y"], gap(1, 60));
    assert_eq!(saw["metric"]["seed #2"]["points"], 3);

    // Marks: one run's spike, and the first different batch, as prominent as in the list.
    let note = saw["marks"]["note"].as_str().unwrap();
    assert!(note.contains(&format!("⚑ batches differ from step {OTHER_DATA} on")), "{note}");
    assert_eq!(saw["marks"]["spikes"].as_array().unwrap()[..5], [0, 0, 1, 0, 0]);
    assert_eq!(saw["marks"]["data"].as_array().unwrap()[..5], [0, 1, 0, 3, 4]);
}

/// Hovering between steps 30 and 31 shows step 30 of every run, and the distance from its pair.
fn check_hovering(saw: &Value) {
    let cells = saw["hover"]["cells"].as_array().unwrap();
    assert!(saw["hover"]["where"].as_str().unwrap().starts_with("optimiser step 30"));
    for (label, role, seed) in RUNS {
        let row = cells.iter().find(|row| row[0] == label).unwrap();
        let value = row[1].as_str().unwrap().strip_suffix(" nats").expect("a unit");
        let value: f64 = value.parse().unwrap();
        assert!((value - loss(role, seed, 30)).abs() < 6e-4, "{row}");
        let delta = row[2].as_str().unwrap().replace('−', "-").replace(" nats", "");
        match role {
            Role::Treatment => {
                assert!((delta.parse::<f64>().unwrap() - gap(seed, 30)).abs() < 1e-4, "{row}");
            }
            Role::Base | Role::Replicate => assert_eq!(delta, ""),
        }
    }
}

/// Filters, text, boxes, colours.
fn check_filters_and_colours(saw: &Value) {
    assert_eq!(saw["filtered"]["rows"], serde_json::json!(["treated #1", "treated #2"]));
    assert_eq!(saw["filtered"]["lines"], serde_json::json!(["treated #1", "treated #2"]));
    assert_eq!(saw["filtered"]["after"], 7);
    assert_eq!(saw["searched"], serde_json::json!(["plain #2"]));
    let drawn = saw["hidden"].as_array().unwrap();
    assert!(drawn.len() == 6 && !drawn.contains(&"plain #2".into()), "{drawn:?}");
    assert_eq!(saw["coloured"]["before"], true);
    assert_eq!(saw["coloured"]["after"], false);
    let groups = saw["coloured"]["groups"].as_array().unwrap();
    assert!(["11", "12", "31"].iter().all(|seed| groups.contains(&(*seed).into())), "{groups:?}");
}

/// Two selected runs: the verdict of diff on their locks; both are highlighted everywhere.
fn check_selected_pair(saw: &Value) {
    let selected = &saw["selected"];
    assert_eq!(selected["verdict"], "design: controlled for canon");
    assert_eq!(selected["class"], "design", "a design is not coloured as success");
    assert_eq!(selected["exploratory"], Value::Null, "a declared pair");
    let differences = selected["differences"].as_array().unwrap();
    assert_eq!(differences[0][0], "arch.layers.0..2.slots.A");
    assert_eq!(differences[0][1], "treatment");
    assert!(differences.iter().any(|row| row[0] == "arch.parameters" && row[1] == "consequence"));
    assert!(selected["text"].as_str().unwrap().contains("the same batches at every step"));
    for line in selected["faint"].as_array().unwrap() {
        let chosen = line[0] == "plain #1" || line[0] == "treated #1";
        assert_eq!(line[1], !chosen, "{line}");
    }
    assert_eq!(selected["table"].as_array().unwrap().len(), 2);
    let verdict = saw["confounded"]["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("design: confounded: 3 differences"), "{verdict}");
    let exploratory = saw["confounded"]["exploratory"].as_str().unwrap();
    assert!(exploratory.contains("their comparison does not pair them"), "{exploratory}");
    assert!(saw["confounded"]["charts"].as_array().unwrap().contains(&"selected".into()));
    assert_eq!(saw["escaped"], serde_json::json!(["", 0]));
}

/// The export has the shown range of all lines, with the numbers as drawn.
fn check_exports(saw: &Value) {
    let csv = saw["csv"].as_str().unwrap();
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        lines[0],
        ["chart", "run", "arm", "source", "axis", "x", "raw", "shown", "smoothed_over", "mean_of"]
    );
    for (label, role, seed) in RUNS {
        let run_lines: Vec<&Vec<&str>> =
            lines.iter().filter(|line| line[0] == "training loss" && line[1] == label).collect();
        assert_eq!(run_lines.len(), 11, "{label}");
        for (line, step) in run_lines.iter().zip(10..) {
            assert_eq!((line[3], line[4], line[5]), ("own", "steps", step.to_string().as_str()));
            assert_near(&line[7].parse::<f64>().unwrap().into(), loss(role, seed, step));
        }
    }
    assert_eq!(saw["downloads"], serde_json::json!(["pair.csv"]));
    let cells = ["'=1+1", "'-x", "\"a,\"\"b\"\"\"", "0.5", ""];
    assert_eq!(saw["cells"], serde_json::json!(cells));
    let png = &saw["png"];
    assert!(png["start"].as_str().unwrap().starts_with("data:image/png;base64,iVBORw0KGg"));
    assert!(
        png["colours"].as_u64().unwrap() > 20 && png["height"].as_u64().unwrap() > 600,
        "{png}"
    );
}

/// Themes, keys, names of controls, paper; and nothing was loaded from outside.
fn check_controls_and_printing(saw: &Value) {
    let theme = saw["theme"].as_array().unwrap();
    assert_eq!(
        (&theme[0], &theme[1], &theme[2]),
        (&"auto".into(), &"rgb(255, 255, 255)".into(), &"dark".into())
    );
    assert_eq!(theme[3], "rgb(13, 17, 23)");
    assert_eq!(saw["help"][0], true);
    assert_eq!(saw["unnamed"], serde_json::json!([]));
    assert_eq!(saw["unreachable"], serde_json::json!([]));
    assert_eq!(
        saw["outside"],
        serde_json::json!({"requests": [], "images": 0, "hacked": false, "scripts": 3})
    );
    assert_eq!(saw["still"], serde_json::json!({"shown": "none", "pictures": 3, "paper": true}));
}
