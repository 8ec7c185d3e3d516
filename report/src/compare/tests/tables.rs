//! The heads, titles and cells of tables.

use lab::comparison::SelectionMode;

use crate::compare::made_up::{arm, by, grid, proof, run, three_points, two_seeds};
use crate::compare::{Comparison, Costs, Facts, Role, TextTable};

#[test]
fn two_arms_are_one_table() {
    let summary = Facts::new(&two_seeds()).summary();
    let text = summary.text();
    assert_eq!(summary.sections.len(), 1);
    let head = [
        "",
        "llama",
        "canon",
        "llama replicate",
        "paired difference",
        "95% t interval",
        "A/A: SE of mean",
        "p",
        "p, Holm",
        "effect",
        "measured on",
        "SE: seeds and questions",
    ];
    assert_eq!(summary.sections[0].table.head[..], head);
    assert!(text.contains("n = 2: no interval") && !text.contains("bootstrap"), "{text}");
    assert_eq!(summary.secondary[0].table.rows[2][1], "+25.0 … +30.0 pp");
    for cell in
        ["-0.3750 nats", "+27.5 pp", "×1.00", "200 tokens", "900 targets", "2 steps at the end"]
    {
        assert!(text.contains(cell), "{cell}\n{text}");
    }
}

#[test]
fn columns_that_nothing_fills_are_left_out() {
    let mut comparison = two_seeds();
    comparison.arms.pop();
    for arm in &mut comparison.arms {
        arm.points[0].pop();
    }
    let TextTable { head, rows, .. } = &Facts::new(&comparison).sections()[0].table;
    assert_eq!(head.len(), 10);
    let first = ["2.0000 nats", "1.5000 nats", "-0.5000 nats", "n = 1: no interval", "–", "–"];
    assert_eq!(rows[0][1..7], first);
    assert_eq!((rows[0][7].as_str(), rows[1][7].as_str()), ("exploratory", "undecided"));
}

#[test]
fn a_mean_over_fewer_runs_says_so() {
    let mut comparison = two_seeds();
    comparison.arms[1].points[0][0].curves.metrics.clear();
    let text = Facts::new(&comparison).summary().text();
    for cell in ["2.7500 nats (1 of 2)", "-0.2500 nats (1 of 2)"] {
        assert!(text.contains(cell), "{cell}\n{text}");
    }
}

#[test]
fn every_arm_has_its_difference_at_its_named_point() {
    let sections = Facts::new(&grid(by("eval_loss", SelectionMode::Min, true))).sections();
    let titles: Vec<&str> = sections.iter().map(|section| section.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "left (optimizer.lr 0.02) against base (optimizer.lr 0.01): tuned",
            "right (optimizer.lr 0.01) against base (optimizer.lr 0.01)",
            "eval_loss, paired at each point of the grid",
            "eval_loss, best per arm and best of the base for all",
            "eval_loss at every point of the grid",
        ]
    );
    let difference = |section: usize| sections[section].table.rows[1][4].as_str();
    assert_eq!((difference(0), difference(1)), ("-0.5000 nats", "-0.7500 nats"));
    let TextTable { head, rows, .. } = &sections[4].table;
    assert_eq!(head[1..], ["base", "left", "right", "base replicate"]);
    let first = ["2.0000 nats *", "4.0000 nats", "1.2500 nats *", "2.5000 nats *"];
    assert_eq!(rows[0][1..], first);
    let second = ["3.0000 nats", "1.5000 nats *", "4.5000 nats", "1.0000 nats"];
    assert_eq!(rows[1][1..], second);
    // A rule that cannot choose marks no point.
    let summary = Facts::new(&grid(by("exact_match", SelectionMode::Max, true))).summary();
    assert_eq!(summary.sections.len(), 6);
    assert!(!summary.text().contains('*'));
}

#[test]
fn both_rules_are_shown_beside_each_point() {
    for (per_arm, declared) in [(true, 0), (false, 1)] {
        let sections = Facts::new(&three_points(per_arm)).sections();
        let table = |title: &str| {
            &sections.iter().find(|section| section.title.contains(title)).unwrap().table
        };
        let each = table("paired at each point");
        // All differences of a point are equal here, so neither an interval nor a coverage is shown.
        let head =
            ["", "base", "treated", "paired difference", "95% t interval", "A/A: SE of mean"];
        assert_eq!(each.head, head);
        let column = |at: usize| each.rows.iter().map(move |row| row[at].as_str());
        assert!(column(3).eq(["-0.5000 nats", "-0.2500 nats", "-1.0000 nats"]));
        // Each point uses the base's noise at that point: a mean of three of 0.25, and 0.5.
        assert!(column(5).eq(["±0.1443 nats", "±0.2887 nats", "unknown: all equal"]));
        let both = table("best per arm and best of the base for all");
        let mut names =
            ["canon: best per arm", "canon: best of the base for all"].map(str::to_owned);
        names[declared] += " (declared)";
        // The noise is that of the base's point in both.
        let points = [
            ["optimizer.lr 0.002", "optimizer.lr 0.004", "-0.5000 nats", "±0.2887 nats"],
            ["optimizer.lr 0.002", "optimizer.lr 0.002", "-0.2500 nats", "±0.2887 nats"],
        ];
        for ((row, name), wanted) in both.rows.iter().zip(names).zip(points) {
            assert_eq!(row[0], name);
            assert_eq!([1, 2, 5, 7].map(|at| row[at].as_str()), wanted);
        }
    }
}

#[test]
fn seconds_of_two_machines_are_not_compared() {
    let mut treated = run(0, 1.0, 0.5);
    treated.curves.timed_on = Some("there".to_owned());
    let comparison = Comparison {
        arms: vec![
            arm("a", Role::Base, vec![vec![run(0, 2.0, 0.5)]]),
            arm("b", Role::Treatment, vec![vec![treated]]),
        ],
        points: vec![String::new()],
        selection: by("eval_loss", SelectionMode::Min, true),
        proof: proof(&["b"], &[]),
    };
    let summary = Facts::new(&comparison).summary();
    let row = summary.sections[0].table.rows.last().unwrap();
    assert_eq!(row[..5], ["step time", "10.0 ms", "10.0 ms", "–", "–"]);
    assert!(summary.caption.contains("Step times are compared only"), "{}", summary.caption);
}

#[test]
fn each_arm_has_its_costs_and_its_tuning() {
    let mut comparison = three_points(true);
    let costs = Costs {
        parameters: Some(120_128.0),
        flops: Some(1.94e12),
        activations: Some(4000.0),
        tokens: Some(2_457_600.0),
        steps: Some(20.0),
    };
    for name in ["llama", "canon"] {
        comparison.proof.costs.insert(name.to_owned(), costs);
    }
    for (seed, mebibytes) in [(0, 300), (1, 299)] {
        comparison.arms[2].points[0][seed].curves.peak_bytes = Some(mebibytes << 20);
    }
    // Timings of two machines have no mean.
    comparison.arms[1].points[0][0].curves.timed_on = Some("elsewhere".to_owned());
    let sections = Facts::new(&comparison).sections();
    let section = sections.last().unwrap();
    assert_eq!(section.title, "size, cost and tuning of each arm");
    let [_, canon, replicate] = section.table.rows.as_slice() else { panic!() };
    assert_eq!(canon[..], ["canon", "120128", "1.94e12", "4000", "–", "–", "3", "9", "2.21e7"]);
    let of_replicate =
        ["llama replicate", "120128", "1.94e12", "4000", "10.0 ms", "300 MiB", "3", "9", "2.21e7"];
    assert_eq!(replicate[..], of_replicate);
    let document = super::document_of(&comparison);
    let [_, canon, replicate] = &document["comparisons"][0]["arms"].as_array().unwrap()[..] else {
        panic!()
    };
    assert_eq!(replicate["measured"]["peak_memory_bytes"], 300 << 20);
    let seconds = replicate["measured"]["step_seconds"].as_f64().unwrap();
    assert!((seconds - 0.01).abs() < 1e-9);
    let unmeasured = serde_json::json!({ "step_seconds": null, "peak_memory_bytes": null });
    assert_eq!(canon["measured"], unmeasured);
    assert_eq!((&canon["tuning"]["points"], &canon["tuning"]["runs"]), (&3.into(), &9.into()));
}
