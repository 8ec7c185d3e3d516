//! Pages, texts and documents of many runs: 84 on one page, three chosen seeds of nine, a seed that diverged. Every fact
//! that weakens a number is on the page, in the document and in the text alike.

use std::fs;
use std::path::Path;

use lab::comparison::Role;
use serde_json::Value;

use super::super::super::canonc;
use super::browser::{driven, driven_at};
use super::{COMPARISON, Outcome, RECIPE, exits, project, run_all};

/// A comparison of two arms with these seeds, and with replicates of the base.
fn declared(seeds: &[u64], again: usize, metric: &str) -> String {
    let list = |add: u64, count: usize| {
        let all: Vec<String> = seeds.iter().take(count).map(|n| (n + add).to_string()).collect();
        all.join(", ")
    };
    let n = seeds.len();
    COMPARISON
        .replace("init = [11, 12]", &format!("init = [{}]", list(0, n)))
        .replace("data = [21, 22]", &format!("data = [{}]", list(100, n)))
        .replace("init = [31]", &format!("init = [{}]", list(1000, again)))
        .replace("data = [41]", &format!("data = [{}]", list(1100, again)))
        + &format!("[selection]\nmetric = \"{metric}\"\n")
}

/// Differences of nine seeds in thousandths; the second, the fifth and the seventh look favourable.
const NINE: [i64; 9] = [-79, 20, -79, -79, 14, -79, 8, -79, -79];
const CHOSEN: [usize; 3] = [1, 4, 6];

fn right(role: Role, difference: i64) -> Outcome {
    let right = 500 + if role == Role::Treatment { difference } else { 0 };
    Outcome { right: u64::try_from(right).ok(), diverged: None }
}

#[test]
fn three_chosen_seeds_of_nine_warn_wherever_they_are_read() {
    let dir = project();
    let root = dir.path();
    let nine: Vec<u64> = (1..=9).collect();
    let three: Vec<u64> = CHOSEN.iter().map(|at| nine[*at]).collect();
    let declaration = |seeds: &[u64]| declared(seeds, 1, "token_accuracy");
    run_all(root, "nine", &declaration(&nine), |role, seed| right(role, NINE[seed]));
    run_all(root, "three", &declaration(&three), |role, seed| right(role, NINE[CHOSEN[seed]]));
    let left = "Warning: this lock compares 3 of 9 seeds of these arms that finished; it leaves out init 1 data 101, \
                init 3 data 103, init 4 data 104, init 6 data 106, init 8 data 108, init 9 data 109.";
    let note = "nine.lock compares the same arms with 9 seeds.";
    let page = |name: &str| {
        let lock = format!("lockfiles/{name}.lock");
        exits(0, &canonc(root, &["report", &lock, "--out", "page.html"]));
        fs::read_to_string(root.join("page.html")).unwrap()
    };
    let all = page("nine");
    assert!(all.contains("<td>-4.8 pp</td>") && !all.contains("leaves out"), "{all}");
    let some = page("three");
    assert!(some.contains("<td>+1.4 pp</td>"), "{some}");
    assert!(some.contains(&format!("<li>{left}</li>")) && some.contains(note), "{some}");
    if let Some(saw) = driven(root, "page.html", &["warned"]) {
        let shown = saw["warned"].as_array().unwrap();
        assert!(shown[0]["text"] == left && shown[0]["shown"] == true, "{shown:?}");
    }
    if cfg!(feature = "torch") {
        let ran = canonc(root, &["compare", "lockfiles/three.lock"]);
        exits(0, &ran);
        for what in ["+1.4 pp", left, note] {
            assert!(ran.stdout.contains(what), "{what}: {}", ran.stdout);
        }
        let ran = canonc(root, &["compare", "lockfiles/three.lock", "--json"]);
        let value: Value = serde_json::from_str(&ran.stdout).unwrap();
        let comparison = &value["comparisons"][0];
        assert_eq!(comparison["warnings"][0], left);
        assert_eq!(comparison["siblings"]["left_out"].as_array().unwrap().len(), 6);
    }
}

/// 84 runs of two comparisons; one run diverged.
fn many(root: &Path) {
    fs::write(root.join("recipes/c.toml"), RECIPE.replace("lr = 0.003", "lr = 0.001")).unwrap();
    let treated = RECIPE.replace("lr = 0.003", "lr = 0.001").replace("#small", "#smallcanon");
    fs::write(root.join("recipes/d.toml"), treated).unwrap();
    let seeds: Vec<u64> = (1..=14).collect();
    let first = declared(&seeds, 14, "token_accuracy");
    let second = first.replace("\"a.toml\"", "\"c.toml\"").replace("\"b.toml\"", "\"d.toml\"");
    let noise = |seed: usize| (seed * 7 % 5) as i64 * 4;
    run_all(root, "first", &first, |role, seed| right(role, 60 + noise(seed)));
    run_all(root, "second", &second, |role, seed| Outcome {
        diverged: (role == Role::Treatment && seed == 3).then_some(25),
        ..right(role, 40 + noise(seed))
    });
}

#[test]
fn eighty_four_runs_are_judged_and_marked() {
    let dir = project();
    let root = dir.path();
    many(root);
    let words = ["report", "lockfiles/first.lock", "lockfiles/second.lock", "--out", "page.html"];
    let ran = canonc(root, &[&words[..], &["--published", "GLA5*-1B-*"]].concat());
    exits(0, &ran);
    assert!(ran.stderr.contains("page: page.html (84 runs"), "{}", ran.stderr);
    let page = fs::read_to_string(root.join("page.html")).unwrap();
    // The better arm is better; the arm with a diverged seed does not get the word of its other seeds.
    assert!(page.contains("<td>undecided\n(13 of 14, 1 diverged)</td>"), "{page}");
    assert!(
        page.contains("diverged at step 25") && page.contains("Warning: 1 of 14 runs of treated")
    );
    for name in ["first", "second"] {
        let lock = fs::read_to_string(root.join(format!("lockfiles/{name}.lock"))).unwrap();
        let id = lock.lines().find_map(|line| line.strip_prefix("comparison = \"")).unwrap();
        let methods = format!("The comparison {name} (lock {}) compares", id.trim_matches('"'));
        assert!(page.contains(&methods), "{methods}");
    }
    let steps = ["crossed", "declared", "units", "words", "logged", "titles"];
    let Some(saw) = driven(root, "page.html", &steps) else { return };
    // A declared pair has its verdict, however many runs there are.
    assert_eq!(saw["declared"]["verdict"], "design: controlled for canon");
    assert_eq!(saw["declared"]["exploratory"], Value::Null);
    assert_eq!(saw["declared"]["unjudged"], 0);
    // A pair selected by hand from two comparisons.
    let exploratory = saw["crossed"]["exploratory"].as_str().unwrap();
    assert!(exploratory.contains("exploratory: selected by hand; no comparison holds both runs"));
    assert!(saw["crossed"]["verdict"].as_str().unwrap().starts_with("Not judged here"));
    assert!(saw["crossed"]["note"].as_str().unwrap().starts_with("exploratory"));
    assert_eq!(saw["units"], serde_json::json!([]), "numbers without a unit");
    // Each chart of a comparison is named after it.
    let titles = saw["titles"].to_string();
    for what in ["first: treated against plain", "second: treated against plain"] {
        assert!(titles.contains(what), "{what}: {titles}");
    }
    assert!(titles.contains("1 of 14 seeds diverged: their differences end there"), "{titles}");
    assert!(titles.contains("published jitter of logged points, which is not noise between seeds"));
    // Words and signs as well as colours.
    let words = saw["words"].as_array().unwrap();
    let has = |class: &str, sign: &str| {
        words.iter().any(|row| row[0] == class && row[1].as_str().is_some_and(|s| s.contains(sign)))
    };
    assert!(has("better", "▲ better") && has("undecided", "? undecided"), "{words:?}");
    assert!(words.iter().all(|row| row[2] == true), "the word is beside the name: {words:?}");
    // A chart that stays linear under a logarithmic axis says so.
    for chart in saw["logged"].as_array().unwrap() {
        let linear = chart["distr"] != 3;
        assert_eq!(chart["note"].as_str().unwrap().contains("y is linear here"), linear, "{chart}");
    }
    for width in [1100, 500] {
        let Some(saw) = driven_at(root, "page.html", &["narrow"], width) else { return };
        assert_eq!(saw["narrow"], serde_json::json!([width]), "wider than the window");
    }
}
