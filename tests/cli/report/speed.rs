//! Speed, utilisation, bits per byte, samples and means of arms on the page, and a page in a narrow window, as text and in
//! a browser.

use std::fs;
use std::path::Path;

use lab::comparison::Role;
use lab::lock::{self, Lock};
use serde_json::Value;

use super::super::super::canonc;
use super::browser::{driven, driven_at};
use super::{
    RECIPE, SECONDS, TOKENS_PER_STEP, assert_near, compared, exits, finish, loss, project,
};

/// The run of a recipe on text, with made-up losses.
fn on_text(root: &Path, name: &str, data: &str) {
    let task = RECIPE.lines().find(|line| line.starts_with("data = ")).unwrap();
    let digest = "ab".repeat(32);
    let text = format!(
        "data = {{ task = \"text\", seq_len = 64, source = \"s\", digest = \"{digest}\"{data} }}"
    );
    fs::write(root.join(format!("recipes/{name}.toml")), RECIPE.replace(task, &text)).unwrap();
    exits(0, &canonc(root, &["build", "-q", &format!("recipes/{name}.toml")]));
    let text = fs::read_to_string(root.join(format!("lockfiles/{name}.lock"))).unwrap();
    let Lock::Experiment(experiment) = lock::read(name, &text).unwrap() else { panic!("{text}") };
    finish(&root.join("runs").join(name), &experiment, Role::Base, 0);
}

#[test]
fn speeds_are_shown_and_utilisation_only_of_a_given_peak() {
    let dir = compared();
    let root = dir.path();
    exits(0, &canonc(root, &["report", "pair"]));
    let page = fs::read_to_string(root.join("report.html")).unwrap();
    let tokens = TOKENS_PER_STEP / SECONDS;
    assert!(
        page.contains("id=\"speed\"") && page.contains("<td>1.02 k tokens&#x2f;s</td>"),
        "{tokens}"
    );
    assert!(!page.contains(">MFU<") && page.contains("so there is no MFU"));
    let lock = fs::read_to_string(root.join("runs/pair/pair-plain-seed1/lock")).unwrap();
    let flops = lock.lines().find_map(|line| line.strip_prefix("arch.train_flops_per_token = "));
    let achieved = tokens * flops.unwrap().parse::<f64>().unwrap();
    let peak = format!("{}", achieved * 4.0);
    exits(0, &canonc(root, &["report", "pair", "--peak-flops", &peak]));
    let page = fs::read_to_string(root.join("report.html")).unwrap();
    assert!(page.contains(">MFU<") && page.contains("<td>25.0%\n(of "), "{peak}");
    assert!(page.contains("FLOP&#x2f;s, given)"));
    for wrong in ["0", "-1", "much", "inf"] {
        let ran = canonc(root, &["report", "pair", "--peak-flops", wrong]);
        exits(2, &ran);
        assert!(ran.stderr.contains("is not a number above 0"), "{}", ran.stderr);
    }
}

#[test]
fn losses_of_text_are_also_bits_and_per_byte_only_where_the_bytes_are_known() {
    let dir = project();
    let root = dir.path();
    on_text(root, "plain", "");
    on_text(root, "unmarked", ", add_bos = false, add_eos = false");
    let tokenizer = |digest: &str| {
        let digest = digest.repeat(32);
        format!(
            ", tokenizer = \"tiktoken\", tokenizer_vocab = 300, tokenizer_digest = \"{digest}\""
        )
    };
    on_text(root, "trained", &tokenizer("cd"));
    on_text(root, "another", &tokenizer("ef"));
    let bits = |bytes: f64| {
        format!(
            "<td>{:.4} bits</td>",
            (loss(Role::Base, 0, 60) + 0.5) / std::f64::consts::LN_2 / bytes
        )
    };
    let page = |words: &[&str]| {
        exits(0, &canonc(root, &[&["report"], words].concat()));
        fs::read_to_string(root.join("report.html")).unwrap()
    };
    // A mark of a document is a target, but no byte of text.
    let plain = page(&["plain"]);
    assert!(plain.contains(&bits(1.0)) && plain.contains("bits per token"));
    assert!(!plain.contains("bits per byte"));
    let unmarked = page(&["unmarked"]);
    assert!(unmarked.contains(&bits(1.0)) && unmarked.contains("bits per byte"));
    assert!(!unmarked.contains("bits per token"));
    assert!(!page(&["trained"]).contains("bits per byte"));
    let both = page(&["plain", "trained", "--bytes-per-token", "4"]);
    assert!(both.contains(&bits(1.0)) && both.contains(&bits(4.0)));
    for (runs, message) in [
        (&["plain"][..], "no run is on text with a tokenizer other than `bytes`"),
        (&["trained", "another"], "is of one tokenizer, but the runs have 2"),
    ] {
        let ran = canonc(root, &[&["report"], runs, &["--bytes-per-token", "4"]].concat());
        exits(2, &ran);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
}

#[test]
fn samples_are_shown_as_the_file_has_them() {
    let dir = project();
    let root = dir.path();
    let sample = r#"{"schema": "canonc.generate.v1", "model": "runs/a", "prompt": "Once <b>", "temperature": 1.0,
        "seed": 3, "tokens": [1], "text": "</pre><script>hacked=1</script>", "state_bytes": 1, "kernels": []}"#;
    fs::write(root.join("a.json"), sample).unwrap();
    exits(0, &canonc(root, &["report", "--samples", "a.json"]));
    let page = fs::read_to_string(root.join("report.html")).unwrap();
    assert!(
        page.contains("runs&#x2f;a: temperature 1, seed 3")
            || page.contains("runs/a: temperature 1, seed 3")
    );
    assert!(page.contains("<b>Once &lt;b&gt;</b>&lt;") && !page.contains("<script>hacked"));
    fs::write(root.join("b.json"), "Once upon a time").unwrap();
    let ran = canonc(root, &["report", "--samples", "b.json"]);
    exits(2, &ran);
    assert!(ran.stderr.contains("is not a text of `canonc generate --json`"), "{}", ran.stderr);
}

#[test]
fn the_mean_of_each_arm_is_drawn_over_its_runs() {
    let dir = compared();
    exits(0, &canonc(dir.path(), &["report", "pair"]));
    let Some(saw) = driven(dir.path(), "report.html", &["means"]) else { return };
    let (means, speed) = (&saw["means"]["loss"], &saw["means"]["speed"]);
    for (arm, role) in [("plain", Role::Base), ("treated", Role::Treatment)] {
        let line = &means[format!("mean of 2: {arm}")];
        assert_near(&line["y"], (loss(role, 0, 60) + loss(role, 1, 60)) / 2.0);
        assert_eq!(line["points"], 60);
    }
    assert_eq!(
        saw["means"]["count"],
        serde_json::json!([7, 5]),
        "two means more than runs, then none"
    );
    assert_near(&speed["plain #1"]["y"], TOKENS_PER_STEP / SECONDS);
    // Runs lie under the means, and hovering still shows runs.
    assert_eq!(
        saw["means"]["faint"],
        serde_json::json!([[true, true, true, true, false], [false, false]])
    );
}

#[test]
fn a_narrow_window_scrolls_tables_and_not_the_page() {
    let dir = compared();
    let root = dir.path();
    let long = "word ".repeat(40) + &"w".repeat(300);
    let sample = format!(
        "{{\"schema\": \"canonc.generate.v1\", \"model\": \"runs/a\", \"prompt\": \"Once\", \"temperature\": 1.0, \
         \"seed\": 3, \"tokens\": [1], \"text\": \"{long}\"}}"
    );
    fs::write(root.join("a.json"), sample).unwrap();
    let words = ["report", "pair", "--samples", "a.json", "--peak-flops", "1e9"];
    exits(0, &canonc(root, &[&words[..], &["--published", "GLA5*-1B-*lr0.003"]].concat()));
    // No narrower window of Chromium opens without a screen.
    let Some(saw) = driven_at(root, "report.html", &["fits", "narrow"], 500) else { return };
    let fits = &saw["fits"];
    assert_eq!(fits["page"], Value::from(500), "the page scrolls sideways: {fits:#}");
    assert_eq!(saw["narrow"], serde_json::json!([500]), "wider than the window");
    assert_eq!(fits["charts"], serde_json::json!([]), "charts wider than the window");
    assert_eq!(fits["tables"], serde_json::json!([]), "tables outside of a box that scrolls");
    assert!(fits["drawn"].as_u64() > Some(2) && fits["least"].as_u64() >= Some(400), "{fits}");
}

/// A page of scores alone has no empty panel of curves, and its wide tables scroll in their own boxes.
#[test]
fn scores_alone_are_a_page_without_curves() {
    let dir = project();
    let root = dir.path();
    let tasks: Vec<Value> = (0..12)
        .map(|number| {
            serde_json::json!({
                "name": format!("a_task_with_a_long_name_{number}"), "kind": "choice", "task": "aa", "questions": "bb",
                "examples": null, "shots": 0, "count": 2,
                "metrics": [{"metric": "acc", "value": 0.5, "stderr": 0.5, "each": [0.0, 1.0]}],
            })
        })
        .collect();
    let scores = serde_json::json!({
        "schema": "canonc.eval.v1", "model": {"name": "a model with a name of many words ".repeat(4), "graph": "cc"},
        "settings": {"max_length": 9, "bos": null, "dtype": "f32", "limit": null}, "tasks": tasks,
    });
    fs::write(root.join("s.json"), scores.to_string()).unwrap();
    exits(0, &canonc(root, &["report", "--scores", "s.json"]));
    let page = fs::read_to_string(root.join("report.html")).unwrap();
    assert!(page.contains("<section class=\"live\" aria-labelledby=\"curves\" hidden>"));
    assert!(!page.contains("Skip to the curves") && !page.contains("Curves as pictures"));
    let Some(saw) = driven_at(root, "report.html", &["fits", "narrow"], 500) else { return };
    assert_eq!(saw["fits"]["page"], Value::from(500), "the page scrolls sideways: {saw:#}");
    assert_eq!(
        saw["fits"]["tables"],
        serde_json::json!([]),
        "tables outside of a box that scrolls"
    );
    assert_eq!(saw["narrow"], serde_json::json!([500]), "wider than the window");
}
