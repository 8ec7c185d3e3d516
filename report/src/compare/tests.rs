//! Tests of comparisons, on runs made by hand.
//!
//! In: curves given here. Out: points, differences, intervals, warnings. Must stay true: the functions that make runs
//! are shared with the tests of tables, pages and pictures.

use super::*;

/// Twenty steps with one loss, and the final accuracy.
pub(crate) fn run(seed: usize, loss: f64, right: f64) -> Run {
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
    };
    Run { seed, curves, shown: None }
}

/// Lets the training of all runs together have shown this much of every evaluation.
pub(crate) fn show(comparison: &mut Comparison, seen: Option<TrainingOverlap>) {
    let shown = seen.map(|seen| match seen {
        TrainingOverlap::ByDesign => RunOverlap::ByDesign,
        TrainingOverlap::Questions { questions, shown, windows, of_windows } => {
            let share = records::overlap::Share { questions, shown };
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

pub(crate) fn arm(name: &str, role: Role, points: Vec<Vec<Run>>) -> Arm {
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
        proved: proved(&["canon"], &[]),
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
        proved: proved(&["left", "right"], &[0.01, 0.02]),
    }
}

/// Arms that their lock proved controlled, on a grid of learning rates.
pub(crate) fn proved(arms: &[&str], rates: &[f64]) -> Proved {
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
    Proved {
        claims: arms.iter().map(|arm| ((*arm).to_owned(), claim.clone())).collect(),
        axes: (!rates.is_empty()).then_some(axis).into_iter().collect(),
        varied: Varied { init: true, data: true },
        repeated: Vec::new(),
        questions: Some(crate::statistics::questions::Asked::Same),
        ..Proved::default()
    }
}

#[test]
fn measures_have_names_units_and_can_be_judged_by() {
    let mut comparison = grid(by("bits", SelectionMode::Max, true));
    for (arm, bits) in comparison.arms.iter_mut().zip([10.0, 30.0, 20.0, 10.0]) {
        for (point, runs) in arm.points.iter_mut().enumerate() {
            let curves = &mut runs[0].curves;
            for (name, value) in [("bits", bits + point as f64), ("kl", 0.5), ("validity", 0.25)] {
                curves.metrics.insert(measured(name).to_owned(), vec![(20, value)]);
            }
        }
    }
    assert_eq!(comparison.judged_by(), "bits learned");
    assert_eq!(comparison.best(&comparison.arms[1]), Some(1));
    let rows = comparison.pairs()[0].rows();
    let row = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap();
    assert_eq!(
        (row("bits learned").unit, &row("bits learned").paired[..]),
        (Unit::Count, &[20.0][..])
    );
    assert_eq!(row("KL from the true distribution").unit, Unit::Nats);
    assert_eq!(row("valid sentences").unit, Unit::Share);
    assert_eq!(measured("something newer"), "something newer");
    let text = summary(&comparison).text();
    assert!(text.contains("31.0000") && text.contains("25.0%"), "{text}");
}

fn places(comparison: &Comparison) -> Vec<(&str, usize, usize)> {
    let pairs = comparison.pairs();
    pairs.iter().map(|p| (p.arm.name.as_str(), p.arm_point, p.base_point)).collect()
}

#[test]
fn differences_are_paired_by_seed() {
    let comparison = two_seeds();
    let rows = comparison.pairs()[0].rows();
    assert_eq!(rows[0].metric, TRAINING_LOSS);
    assert_eq!(rows[0].paired, [-0.5, -0.25]);
    assert_eq!(rows[0].itself_cell(), "unknown: 1 of 3 repetitions");
    assert_eq!(rows[0].means[2], Some(Mean { value: 2.1, runs: 1 }));
    assert_eq!(rows[2].means[0], Some(Mean { value: 0.45, runs: 2 }));
    // The treated arm lost its first seed, so only the second is left.
    let mut comparison = two_seeds();
    comparison.arms[1].points[0].remove(0);
    assert_eq!(comparison.pairs()[0].rows()[0].paired, [-0.25]);
}

#[test]
fn a_value_of_an_earlier_step_is_not_the_last_one() {
    let mut comparison = two_seeds();
    let metrics = &mut comparison.arms[1].points[0][0].curves.metrics;
    metrics.get_mut(EVAL_LOSS).unwrap().pop();
    let rows = comparison.pairs()[0].rows();
    let held_out = rows.iter().find(|row| row.metric == EVAL_LOSS).unwrap();
    assert_eq!(held_out.means[1], Some(Mean { value: 2.75, runs: 1 }));
    assert_eq!(held_out.paired, [-0.25]);
}

#[test]
fn the_locked_rule_chooses_the_points() {
    let chosen = |metric, mode, per_arm| grid(by(metric, mode, per_arm));
    let each = [("left", 1, 0), ("right", 0, 0)];
    assert_eq!(places(&chosen("eval_loss", SelectionMode::Min, true)), each);
    assert_eq!(places(&chosen("token_accuracy", SelectionMode::Max, true)), each);
    let shared = [("left", 0, 0), ("right", 0, 0)];
    assert_eq!(places(&chosen("eval_loss", SelectionMode::Min, false)), shared);
    let worst = [("left", 0, 1), ("right", 1, 1)];
    assert_eq!(places(&chosen("eval_loss", SelectionMode::Max, true)), worst);
    // The replicate's best point is another one, but it is judged at the base's.
    let comparison = chosen("eval_loss", SelectionMode::Min, true);
    let means = &comparison.pairs()[0].rows()[0].means;
    assert_eq!(means[2], Some(Mean { value: 2.5, runs: 1 }));
    // No run has the rule's metric: compare at every point.
    let none = chosen("exact_match", SelectionMode::Max, true);
    let all = [("left", 0, 0), ("left", 1, 1), ("right", 0, 0), ("right", 1, 1)];
    assert_eq!(places(&none), all);
}

#[test]
fn a_point_that_lacks_a_value_is_not_chosen() {
    let mut comparison = grid(by("eval_loss", SelectionMode::Min, true));
    let best = &mut comparison.arms[1].points[1];
    let mut lacking = run(1, 0.5, 1.0);
    lacking.curves.metrics.clear();
    best.push(lacking);
    assert_eq!(places(&comparison)[0], ("left", 0, 0));
}

#[test]
fn seconds_are_compared_on_one_machine_only() {
    let time = |comparison: &Comparison| comparison.pairs()[0].rows().pop().unwrap();
    let mut comparison = two_seeds();
    comparison.arms[1].points[0][0].curves.step_seconds = Some(0.02);
    comparison.arms[2].points[0][0].curves.step_seconds = Some(0.009);
    let row = time(&comparison);
    assert_eq!((row.metric.as_str(), row.paired), (STEP_TIME, vec![2.0, 1.0]));
    assert_eq!(time(&comparison).itself_cell(), "unknown: 1 of 3 repetitions");
    for elsewhere in [Some("there".to_owned()), None] {
        comparison.arms[1].points[0][0].curves.timed_on = elsewhere;
        assert_eq!(time(&comparison).paired, [1.0]);
    }
}

/// A proof that a lock would never contain, but that a program might construct.
fn confounded(mut comparison: Comparison, arm: &str) -> Comparison {
    let claim = Claim {
        verdict: "confounded: 2 differences, beside canon".to_owned(),
        controlled: false,
        factors: 1,
        matched: None,
        compensated: false,
        equal_budget: true,
    };
    comparison.proved.claims.insert(arm.to_owned(), claim);
    comparison
}

/// No output calls an arm controlled unless its lock proved it.
mod what_is_not_controlled_is_called_so {
    use super::*;
    use crate::overview::{self, Entry};
    use crate::page::{self, Heading};

    const SAID: &str = "NOT CONTROLLED: confounded: 2 differences, beside canon";

    /// One arm, one of several arms, and an arm without any proof.
    fn each() -> [(Comparison, &'static str, &'static str); 3] {
        let mut none = two_seeds();
        none.proved = Proved::default();
        [
            (confounded(two_seeds(), "canon"), "canon", SAID),
            (confounded(grid(by("eval_loss", SelectionMode::Min, true)), "left"), "left", SAID),
            (none, "canon", "NOT CONTROLLED: nothing proves how this arm differs"),
        ]
    }

    #[test]
    fn in_the_verdict() {
        for (comparison, arm, said) in each() {
            assert_eq!(comparison.not_controlled(), [arm]);
            assert!(!comparison.is_controlled(arm));
            assert!(comparison.verdict().contains(said), "{}", comparison.verdict());
        }
        assert_eq!(two_seeds().verdict(), "canon against llama: controlled for canon");
        // The lock's own statement, before any run.
        let mut comparison = confounded(two_seeds(), "canon");
        comparison.arms.truncate(1);
        assert_eq!(comparison.verdict(), format!("canon against llama: {SAID}"));
        assert_eq!(comparison.design(), Design::NotControlled);
        assert_eq!(two_seeds().design(), Design::Controlled);
    }

    #[test]
    fn in_the_table() {
        for (comparison, arm, _) in each() {
            let summary = summary(&comparison);
            let said =
                format!("NOT CONTROLLED: no difference of {arm} can be attributed to a treatment.");
            assert!(summary.caption.starts_with(&said), "{}", summary.caption);
            let title = &summary.sections[0].title;
            assert!(title.starts_with(arm) && title.ends_with(": NOT CONTROLLED"), "{title}");
            if let [_, other, ..] = &summary.sections[..] {
                assert!(!other.title.contains("NOT CONTROLLED"), "{}", other.title);
            }
        }
        assert!(!summary(&two_seeds()).text().contains("NOT CONTROLLED"));
    }

    #[test]
    fn in_the_page() {
        for (comparison, _, said) in each() {
            let heading = Heading {
                title: "c".to_owned(),
                verdict: comparison.verdict(),
                design: comparison.design(),
                lock_id: "00".to_owned(),
                notes: Vec::new(),
            };
            assert_eq!(heading.design, Design::NotControlled);
            let part = page::Part::new(heading, &comparison, BTreeMap::new(), Vec::new());
            let report = page::Report { parts: vec![part], ..page::Report::default() };
            let page = page::page(&report).unwrap();
            // In the heading, above the table, below it, and over the curve of differences.
            assert!(page.contains(said), "the heading");
            assert!(page.matches("NOT CONTROLLED").count() >= 4);
            assert!(page.contains("<p class=\"design bad\">design: "), "the design is marked");
        }
    }

    #[test]
    fn in_the_json() {
        for (comparison, arm, said) in each() {
            let document = json([("c", "00".to_owned(), &comparison)]);
            let text = serde_json::to_string(&document).unwrap();
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["schema"], "canonc.compare.v2");
            assert_eq!(value["controlled"], false);
            let one = &value["comparisons"][0];
            assert_eq!(one["controlled"], false);
            for list in ["arms", "pairs", "paired_at_each_point", "best_per_arm"] {
                for of in one[list].as_array().unwrap() {
                    let name = of.get("arm").or(of.get("name")).unwrap();
                    if name == arm {
                        assert_eq!(of["controlled"], false, "{list}");
                        assert_eq!(of["verdict"], said, "{list}");
                    } else {
                        assert_ne!(of["controlled"], false, "{list}");
                    }
                }
            }
            assert!(one["caption"].as_str().unwrap().starts_with("NOT CONTROLLED"));
        }
    }

    #[test]
    fn in_the_overview_and_its_picture() {
        for (comparison, arm, said) in each() {
            let good = two_seeds();
            let entries = [
                Entry { task: "depo", comparison: &comparison },
                Entry { task: "mano", comparison: &good },
            ];
            let table = overview::table(&entries);
            let verdict = table.head.iter().position(|head| head == "design").unwrap();
            for row in &table.rows {
                let bad = row[0] == "depo" && row[4].starts_with(arm);
                assert_eq!(row[verdict] == said, bad, "{row:?}");
            }
            let picture = overview::picture(&entries);
            assert_eq!(picture.matches(">NOT CONTROLLED<").count(), 1, "{picture}");
            assert_eq!(picture.matches("stroke-dasharray").count(), 2, "{picture}");
            assert!(picture.contains("dashed: not controlled"), "{picture}");
        }
        let good = two_seeds();
        let entries = [Entry { task: "depo", comparison: &good }];
        assert!(!overview::picture(&entries).to_lowercase().contains("not controlled"));
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
        proved: proved(&["canon"], &rates),
    }
}

#[test]
fn both_ways_of_judging_stand_beside_each_point() {
    for (per_arm, declared) in [(true, 0), (false, 1)] {
        let comparison = three_points(per_arm);
        let summary = summary(&comparison);
        let section = |title: &str| {
            let found = summary.sections.iter().find(|section| section.title.contains(title));
            &found.unwrap_or_else(|| panic!("{title}")).table
        };
        let each = section("paired at each point");
        // All differences of a point are equal here, so neither an interval nor a coverage is shown.
        let head =
            ["", "base", "treated", "paired difference", "95% t interval", "A/A: SE of mean"];
        assert_eq!(each.head, head);
        let noise = |row: usize| each.rows[row][5].as_str();
        let difference = |row: usize| each.rows[row][3].as_str();
        let all = ["-0.5000 nats", "-0.2500 nats", "-1.0000 nats"];
        assert_eq!([0, 1, 2].map(difference), all);
        // Each point uses the base's noise at that point: a mean of three of 0.25, and 0.5.
        let all = ["±0.1443 nats", "±0.2887 nats", "unknown: all equal"];
        assert_eq!([0, 1, 2].map(noise), all);
        let both = section("best per arm and best of the base for all");
        let cells = |row: usize| both.rows[row].iter().map(String::as_str).collect::<Vec<_>>();
        let [one, two] = [0, 1].map(cells);
        assert_eq!(one[1..3], ["optimizer.lr 0.002", "optimizer.lr 0.004"]);
        assert_eq!(two[1..3], ["optimizer.lr 0.002", "optimizer.lr 0.002"]);
        assert_eq!((one[5], two[5]), ("-0.5000 nats", "-0.2500 nats"));
        let noise = "±0.2887 nats";
        assert_eq!((one[7], two[7]), (noise, noise), "the base's point in both");
        for (row, name) in [(one, "canon: best per arm"), (two, "canon: best of the base for all")]
        {
            let is_declared = row[0] == format!("{name} (declared)");
            assert_eq!(
                is_declared,
                row[1] == both.rows[declared][1] && row[0] == both.rows[declared][0]
            );
        }
        let caption = &summary.caption;
        let said = summary.text();
        let name = ["best per arm", "best of the base for all"][declared];
        for what in [
            format!("the declared rule is \"{name}\""),
            "selected from 3 on the reported windows themselves".to_owned(),
            "the base was repeated 3 times with other init and data seeds".to_owned(),
            "Warning: the best point of canon (optimizer.lr 0.004) has the highest optimizer.lr of the grid".to_owned(),
        ] {
            assert!(said.contains(&what), "{what}: {said}");
        }
        assert_eq!(comparison.warnings().len(), 1, "the base's best is inside: {caption}");
        let elsewhere = caption.contains("It is measured at the base's point, not");
        assert_eq!(elsewhere, per_arm, "{caption}");
    }
}

#[test]
fn ends_of_axes_are_ends_of_numbers() {
    let mut comparison = three_points(true);
    assert_eq!(comparison.edges(1), []);
    let highest = Edge { path: "optimizer.lr".to_owned(), end: AxisEnd::Highest };
    assert_eq!(comparison.edges(2), [highest]);
    assert_eq!(comparison.edges(7), [], "no such point");
    // In any order; words have no ends, and neither has an axis with one value.
    for (values, ends) in [
        (vec![Some(2.0), Some(1.0), Some(3.0)], [0, 1, 1]),
        (vec![Some(1.0), Some(1.0), Some(2.0)], [1, 1, 1]),
        (vec![Some(1.0); 3], [0; 3]),
        (vec![None; 3], [0; 3]),
        (vec![], [0; 3]),
    ] {
        comparison.proved.axes[0].values = values;
        assert_eq!([0, 1, 2].map(|point| comparison.edges(point).len()), ends);
    }
}

#[test]
fn points_that_are_best_alike_are_told() {
    let mut comparison = three_points(true);
    comparison.selection = by("token_accuracy", SelectionMode::Max, true);
    let warnings = comparison.warnings();
    let wanted = "Warning: 3 of 3 points of llama have the same best token_accuracy; the first of them, \
                  optimizer.lr 0.001, is taken.";
    assert_eq!(warnings[0], wanted);
    assert_eq!(warnings.len(), 4, "{warnings:?}");
}

#[test]
fn the_document_has_what_the_tables_have() {
    let mut comparison = three_points(true);
    let equal = Equal {
        on: "parameters",
        path: "arch.parameters",
        within: "0.01".to_owned(),
        base: 1 << 70,
        arm: 1 << 70,
        apart: "equal".to_owned(),
    };
    comparison.proved.claims.get_mut("canon").unwrap().matched = Some(equal);
    let text = serde_json::to_string(&json([("c", "00".to_owned(), &comparison)])).unwrap();
    assert!(text.contains("\"base\":1180591620717411303424"), "{text}");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let one = &value["comparisons"][0];
    // Each arm is at its own best point: at equal points they are controlled, but these are not equal.
    let designs = [&value, one, &one["pairs"][0], &one["best_per_arm"][0]];
    for (part, controlled) in designs.iter().zip([false; 4]) {
        assert_eq!(
            (&part["controlled"], &part["attributable"]),
            (&controlled.into(), &false.into())
        );
    }
    assert_eq!((&one["design"], &one["pairs"][0]["design"]), (&"tuned".into(), &"tuned".into()));
    let verdict = one["pairs"][0]["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("tuned: canon (")
            && verdict.ends_with("at equal points controlled for canon")
    );
    for equal in ["paired_at_each_point", "best_of_base_for_all"] {
        for pair in one[equal].as_array().unwrap() {
            assert_eq!(
                (&pair["design"], &pair["controlled"]),
                (&"controlled".into(), &true.into())
            );
            assert_eq!(pair["verdict"], "controlled for canon");
        }
    }
    assert_eq!(one["arms"][1]["design"], "controlled", "of an arm, at equal points");
    let count = |list: &str| one[list].as_array().unwrap().len();
    assert_eq!(
        ["arms", "points", "pairs", "paired_at_each_point", "best_per_arm", "best_of_base_for_all"]
            .map(count),
        [3, 3, 1, 3, 1, 1]
    );
    assert_eq!(one["selection"]["declared"], "best per arm");
    assert_eq!(one["selection"]["points"], 3);
    assert_eq!(one["interval"]["fewest"], 3);
    assert_eq!(one["selection"]["selected_on_reported"], true);
    let arm = &one["arms"][1];
    assert_eq!((&arm["best_point"], &arm["role"]), (&2.into(), &"treated".into()));
    assert_eq!(arm["at_the_edge"][0]["end"], "highest");
    assert_eq!(arm["matched"]["on"], "parameters");
    assert_eq!(
        (&arm["factors"], &one["arms"][0]["factors"]),
        (&1.into(), &serde_json::Value::Null)
    );
    let row = &one["best_per_arm"][0]["rows"][0];
    assert_eq!(
        (&row["metric"], &row["n"], &row["asked"]),
        (&"eval_loss".into(), &3.into(), &900.into())
    );
    assert!((row["difference"].as_f64().unwrap() + 0.5).abs() < 1e-12);
    assert_eq!(row["unit"], "nats");
    assert_eq!(one["warnings"].as_array().unwrap().len(), 1);
    // Without a grid nothing is chosen, and no choice is shown.
    let value = serde_json::to_value(json([("c", String::new(), &two_seeds())])).unwrap();
    let one = &value["comparisons"][0];
    assert_eq!(one["paired_at_each_point"], serde_json::json!([]));
    assert_eq!(one["arms"][1]["best_point"], serde_json::Value::Null);
}

/// The output repeats the lock: verdicts, matched quantities, the values along the grid.
#[test]
fn what_is_said_is_what_the_lock_proved() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../lockfiles/demo_matched.lock");
    let text = std::fs::read_to_string(root).unwrap();
    let lab::lock::Lock::Comparison(locked) = lab::lock::read(root, &text).unwrap() else {
        panic!("no comparison")
    };
    let proved = Proved::from_lock(&locked);
    assert_eq!(proved.claims.keys().collect::<Vec<_>>(), ["gated_deltanet", "gla", "mamba2"]);
    for (arm, claim) in &proved.claims {
        assert!(claim.controlled && claim.factors == 2, "{arm}");
        assert!(text.contains(&format!("{arm} = \"{}\"\n", claim.verdict)), "{}", claim.verdict);
        let Equal { on, path, base, .. } = claim.matched.as_ref().unwrap();
        assert_eq!((*on, *path, *base), ("parameters", "arch.parameters", 120_128));
    }
    assert!(proved.axes.is_empty());
}
