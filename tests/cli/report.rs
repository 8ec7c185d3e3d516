//! `canonc report`: its page, driven in a browser; the event files; refused input.
//!
//! The logs of the runs are made up here, step by step, so that the test can compute every number on the page. The page
//! is the binary's, except for one added script element and its hash. Without Chromium the test reports that, and only
//! the library's own tests check the page; under CI it fails.

mod batches;
mod browser;
mod events;
mod many;
mod speed;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use compiler::digest::Digest;
use lab::comparison::Role;
use lab::experiment::Experiment;
use lab::lock::{self, Lock};
use records::attest::{Attestation, Circumstances};
use records::fault::Faults;
use records::metrics::{Evaluation, Log, Record, Score, Start, Step};
use records::run::Paths;
use serde_json::Value;

use super::super::{Ran, canonc, folder};
use browser::driven;

const ARCHS: &str = "\
arch small {
  vocab 300   dim 8   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer gla { heads 2 }
    mlp   swiglu { hidden 16 }
  }
}
arch smallcanon = small with { canon A, C, D }
";

const RECIPE: &str = "\
arch = \"../arch/small.canon#small\"
data = { task = \"depo\", seq_len = 64, depo.N = 6, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2, ids = \"dense\" }
batch = { sequences = 4 }
optimizer = { lr = 0.003, weight_decay = 0.1 }
schedule = { kind = \"cosine\", warmup = 10 }
budget = { steps = 60 }
seeds = { init = 1, data = 1 }
evaluation = { every = 20 }
";

const COMPARISON: &str = "\
base = \"plain\"
treatment = [\"canon\"]
[arms]
plain = \"a.toml\"
treated = \"b.toml\"
[seeds]
init = [11, 12]
data = [21, 22]
[replicate]
init = [31]
data = [41]
";

const STEPS: u64 = 60;
const TOKENS_PER_STEP: f64 = 256.0;
/// Duration of each step in seconds.
const SECONDS: f64 = 0.25;
/// The step of the first treated run's spike, and the first step with other batches in the second.
const SPIKE: u64 = 40;
const OTHER_DATA: u64 = 31;

fn project() -> tempfile::TempDir {
    folder(&[
        ("arch/small.canon", ARCHS),
        ("recipes/a.toml", RECIPE),
        ("recipes/b.toml", &RECIPE.replace("#small", "#smallcanon")),
        ("recipes/pair.toml", COMPARISON),
    ])
}

/// The made-up loss of a run at a step.
fn loss(role: Role, seed: usize, step: u64) -> f64 {
    let x = step as f64;
    let course = 2.0 + 3.0 / x + 0.1 * seed as f64 + 0.004 * ((step * 7919 % 11) as f64);
    match role {
        Role::Base => course,
        Role::Replicate => course + 0.02,
        Role::Treatment => {
            let spike = if seed == 0 && step == SPIKE { 1.5 } else { 0.0 };
            course - 0.2 * x / STEPS as f64 + spike
        }
    }
}

/// Special properties of a made-up run.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    /// Right answer tokens at the end, out of a thousand.
    right: Option<u64>,
    /// The step at which training diverged.
    diverged: Option<u64>,
}

/// Writes the folder of a finished run.
fn finish(folder: &Path, experiment: &Experiment, role: Role, seed: usize) {
    finish_as(folder, experiment, role, seed, Made::default(), &|step| loss(role, seed, step));
}

/// The same with other losses.
pub(super) fn finish_with(
    folder: &Path,
    experiment: &Experiment,
    role: Role,
    seed: usize,
    loss: &dyn Fn(u64) -> f64,
) {
    finish_as(folder, experiment, role, seed, Made::default(), loss);
}

fn finish_as(
    folder: &Path,
    experiment: &Experiment,
    role: Role,
    seed: usize,
    made: Made,
    loss: &dyn Fn(u64) -> f64,
) {
    fs::create_dir_all(folder).unwrap();
    let paths = Paths::new(folder);
    let text = lock::write(&Lock::Experiment(experiment.clone()));
    fs::write(paths.lock(), text).unwrap();
    let digests = experiment.digests;
    let mut log = Log::open(&paths.metrics()).unwrap();
    let mut append = |record| log.append(&record, &Faults::none()).map(drop).unwrap();
    let start = Start { lock: digests.train, eval: digests.eval, initial: digests.train };
    append(Record::Start(start));
    let rate = records::job::rates(experiment).unwrap();
    let mut timings = String::new();
    let last = made.diverged.unwrap_or(STEPS);
    for step in 1..=last {
        let stream = match role {
            // One comparison has a run that read other data.
            Role::Treatment
                if seed == 1 && step >= OTHER_DATA && experiment.name.starts_with("pair-") =>
            {
                "another order".to_owned()
            }
            Role::Base | Role::Treatment => format!("seed {seed}"),
            Role::Replicate => "replicate".to_owned(),
        };
        append(Record::Step(Step {
            step,
            loss: Some(if made.diverged == Some(step) { f64::INFINITY } else { loss(step) }),
            grad_norm: 1.0 / step as f64,
            lr: rate(step - 1),
            batch: Digest::of("batch", &format!("{stream} {step}")),
            counted: 10,
            terms: [None; compiler::plan::TERMS.len()],
        }));
        timings.push_str(&format!("{{\"step\":{step},\"seconds\":{SECONDS}}}\n"));
        if step % 20 == 0 {
            let line = format!("{{\"evaluation\":{step},\"evaluation_seconds\":{SECONDS}}}\n");
            timings.push_str(&line);
            append(Record::Evaluation(Evaluation {
                step,
                nll: Some(loss(step) + 0.5),
                counted: 10,
                tokens: match made.right {
                    None => Score { right: step, of: 100 },
                    Some(right) => Score { right, of: 1000 },
                },
                answers: BTreeMap::new(),
                measures: BTreeMap::new(),
                questions: None,
                suites: Vec::new(),
            }));
        }
    }
    fs::write(paths.timings(), timings).unwrap();
    let started = "{\"event\":\"started\",\"unix_time\":1000.5}\n";
    fs::write(paths.events(), started).unwrap();
    let any = digests.train;
    let attestation = Attestation {
        name: experiment.name.clone(),
        lock: digests.train,
        eval: digests.eval,
        platform: digests.platform,
        steps: last,
        diverged: made.diverged,
        counted: 10 * last,
        metrics: log.head().unwrap(),
        lines: log.lines(),
        weights: any,
        first_moment: any,
        second_moment: any,
        plan: any,
        kernels: BTreeMap::new(),
        machine: BTreeMap::new(),
        other_machines: Vec::new(),
    };
    attestation.write(&paths.attestation(), Circumstances::default(), &Faults::none()).unwrap();
}

/// A comparison with all its runs finished.
fn compared() -> tempfile::TempDir {
    compared_as(COMPARISON)
}

fn compared_as(declared: &str) -> tempfile::TempDir {
    let dir = project();
    run_all(dir.path(), "pair", declared, |_, _| Made::default());
    dir
}

/// Builds a comparison and makes up each of its runs from role and seed.
fn run_all(dir: &Path, name: &str, declared: &str, made: impl Fn(Role, usize) -> Made) {
    let recipe = format!("recipes/{name}.toml");
    fs::write(dir.join(&recipe), declared).unwrap();
    exits(0, &canonc(dir, &["build", &recipe]));
    let text = fs::read_to_string(dir.join(format!("lockfiles/{name}.lock"))).unwrap();
    let Lock::Comparison(comparison) = lock::read(name, &text).unwrap() else {
        panic!("not a comparison")
    };
    for run in comparison.runs() {
        let folder = dir.join("runs").join(name).join(&run.experiment.name);
        let (role, seed) = (run.role, run.seed);
        let loss = |step| loss(role, seed, step);
        finish_as(&folder, &run.experiment, role, seed, made(role, seed), &loss);
    }
}

fn exits(code: i32, ran: &Ran) {
    assert_eq!(ran.code, code, "{}\n{}", ran.stdout, ran.stderr);
}

/// Compares to the precision of a page.
fn near(found: &Value, wanted: f64) {
    let value = found.as_f64().unwrap_or_else(|| panic!("{found} is no number, wanted {wanted}"));
    assert!((value - wanted).abs() <= 2e-6 * wanted.abs().max(1.0), "{value}, not {wanted}");
}

fn mean(of: impl Fn(u64) -> f64, steps: std::ops::RangeInclusive<u64>) -> f64 {
    let count = steps.clone().count() as f64;
    steps.map(of).sum::<f64>() / count
}

#[test]
fn the_page_does_in_a_browser_what_it_says() {
    let dir = compared();
    let words = ["report", "lockfiles/pair.lock", "--out", "out/page.html", "--published"];
    let ran = canonc(dir.path(), &[&words[..], &["GLA5*-1B-*lr0.003"]].concat());
    exits(0, &ran);
    assert!(ran.stderr.contains("page: out/page.html (5 runs"), "{}", ran.stderr);
    let Some(saw) = driven(&dir.path().join("out"), "page.html", &[]) else { return };
    let labels = ["plain #1", "plain #2", "treated #1", "treated #2", "plain replicate #1"];
    let runs: Vec<(&str, Role, usize)> = labels
        .into_iter()
        .zip([
            (Role::Base, 0),
            (Role::Base, 1),
            (Role::Treatment, 0),
            (Role::Treatment, 1),
            (Role::Replicate, 0),
        ])
        .map(|(label, (role, seed))| (label, role, seed))
        .collect();
    let at_end = |seen: &Value, x: f64, y: &dyn Fn(Role, usize) -> f64| {
        for (label, role, seed) in &runs {
            near(&seen[*label]["x"], x);
            near(&seen[*label]["y"], y(*role, *seed));
            assert_eq!(seen[*label]["points"], STEPS);
        }
    };

    // The initial view: every run, and the two requested published models.
    let rows: Vec<&str> =
        saw["first"]["rows"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(rows[..5].iter().copied().collect::<std::collections::BTreeSet<_>>(), labels.into());
    assert_eq!(rows[5..], ["GLA5conv-1B-lr0.003", "GLA5Canon-1B-lr0.003"]);
    assert_eq!(saw["first"]["smooth"], 1);
    assert_eq!(saw["first"]["x"], "share", "a thousand times as long, they share no other axis");

    // Smoothing, axes.
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
    let whole = saw["whole"].as_array().unwrap();
    assert!(whole[0].as_f64().unwrap() <= 1.0 && whole[1].as_f64().unwrap() >= 60.0, "{whole:?}");

    // Dragged over a fifth to a half of the run, in every chart; a double click in another chart undoes it.
    for (seen, wanted) in [("range", [20.0, 50.0]), ("other", [20.0, 50.0])] {
        for (found, wanted) in saw["dragged"][seen].as_array().unwrap().iter().zip(wanted) {
            assert!((found.as_f64().unwrap() - wanted).abs() < 0.5, "{}", saw["dragged"]);
        }
    }
    assert_eq!(saw["dragged"]["after"], serde_json::json!([null, null]));
    assert_eq!(saw["clicked"], serde_json::json!(["treated #1"]));

    // Paired differences, their mean and their noise band.
    let gap = |seed: usize, step| loss(Role::Treatment, seed, step) - loss(Role::Base, seed, step);
    let pair = &saw["raw"]["pair"];
    near(&pair["seed #1"]["y"], gap(0, 60));
    near(&pair["seed #2"]["y"], gap(1, 60));
    near(&pair["mean"]["y"], (gap(0, 60) + gap(1, 60)) / 2.0);
    assert_eq!(saw["band"]["band"], Value::Null, "one repetition does not measure noise");
    let note = saw["band"]["note"].as_str().unwrap();
    assert!(note.contains("A/A noise unknown (1 of 3 repetitions"), "{note}");
    let jitter = saw["jitter"].as_array().unwrap();
    assert_eq!(jitter[0], true, "published jitter has a shape of its own");
    assert!(jitter[1].as_str().unwrap().contains("dashed: "), "{jitter:?}");
    near(&saw["metric"]["seed #2"]["y"], gap(1, 60));
    assert_eq!(saw["metric"]["seed #2"]["points"], 3);

    // Marks: one run's spike, and the first different batch, as prominent as in the list.
    let note = saw["marks"]["note"].as_str().unwrap();
    assert!(note.contains(&format!("⚑ batches differ from step {OTHER_DATA} on")), "{note}");
    assert_eq!(saw["marks"]["spikes"].as_array().unwrap()[..5], [0, 0, 1, 0, 0]);
    assert_eq!(saw["marks"]["data"].as_array().unwrap()[..5], [0, 1, 0, 3, 4]);

    // Hovering between steps 30 and 31 shows step 30 of every run, and the distance from its pair.
    let cells = saw["hover"]["cells"].as_array().unwrap();
    assert!(saw["hover"]["where"].as_str().unwrap().starts_with("optimiser step 30"));
    for (label, role, seed) in &runs {
        let row = cells.iter().find(|row| row[0] == *label).unwrap();
        let value = row[1].as_str().unwrap().strip_suffix(" nats").expect("a unit");
        let value: f64 = value.parse().unwrap();
        assert!((value - loss(*role, *seed, 30)).abs() < 6e-4, "{row}");
        let delta = row[2].as_str().unwrap().replace('−', "-").replace(" nats", "");
        match role {
            Role::Treatment => {
                assert!((delta.parse::<f64>().unwrap() - gap(*seed, 30)).abs() < 1e-4, "{row}");
            }
            Role::Base | Role::Replicate => assert_eq!(delta, ""),
        }
    }

    // Filters, text, boxes, colours.
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

    // Two selected runs: the verdict of diff on their locks; both are highlighted everywhere.
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

    // The export has the shown range of all lines, with the numbers as drawn.
    let csv = saw["csv"].as_str().unwrap();
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        lines[0],
        ["chart", "run", "arm", "source", "axis", "x", "raw", "shown", "smoothed_over", "mean_of"]
    );
    for (label, role, seed) in &runs {
        let own: Vec<&Vec<&str>> =
            lines.iter().filter(|line| line[0] == "training loss" && line[1] == *label).collect();
        assert_eq!(own.len(), 11, "{label}");
        for (line, step) in own.iter().zip(10..) {
            assert_eq!((line[3], line[4], line[5]), ("own", "steps", step.to_string().as_str()));
            near(&line[7].parse::<f64>().unwrap().into(), loss(*role, *seed, step));
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

    // Themes, keys, names of controls, paper; and nothing was loaded from outside.
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

/// Three replicates of the base measure its noise: the standard deviation of one difference, at every step.
#[test]
fn three_repetitions_are_drawn_as_noise() {
    let declared = COMPARISON
        .replace("init = [11, 12]\ndata = [21, 22]", "init = [11, 12, 13]\ndata = [21, 22, 23]")
        .replace("init = [31]\ndata = [41]", "init = [31, 32, 33]\ndata = [41, 42, 43]");
    let dir = compared_as(&declared);
    exits(0, &canonc(dir.path(), &["report", "pair"]));
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    // All differences between these seeds are equal, so their spread is unknown.
    assert!(page.contains("all equal: no interval"));
    let Some(saw) = driven(dir.path(), "report.html", &["band"]) else { return };
    near(&saw["band"]["band"]["y"], 0.02);
    assert_eq!(saw["band"]["band"]["points"], STEPS);
    let note = saw["band"]["note"].as_str().unwrap();
    assert!(
        note.contains("one standard deviation of a single A/A difference (3 repetitions)"),
        "{note}"
    );
}

#[test]
fn hostile_words_stay_words() {
    let hostile = "</script><img src=x onerror=hacked=1>' \\u2028 \\u003c{{ x }}<!--";
    let dir = project();
    let text = RECIPE
        .replace("data = { task = \"depo\", seq_len = 64, depo.N = 6, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2, ids = \"dense\" }", &format!(
            "data = {{ task = \"text\", seq_len = 64, source = \"{}\", digest = \"{}\" }}",
            hostile.replace("\\u003c", "\\\\u003c"),
            "ab".repeat(32)
        ));
    fs::write(dir.path().join("recipes/text.toml"), text).unwrap();
    exits(0, &canonc(dir.path(), &["build", "recipes/text.toml"]));
    let text = fs::read_to_string(dir.path().join("lockfiles/text.lock")).unwrap();
    let Lock::Experiment(experiment) = lock::read("text", &text).unwrap() else {
        panic!("no experiment")
    };
    finish(&dir.path().join("runs/text"), &experiment, Role::Base, 0);
    exits(0, &canonc(dir.path(), &["report", "text"]));
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(!page.contains("<img") && !page.contains('\u{2028}'));
    let Some(saw) = driven(dir.path(), "report.html", &["outside", "values"]) else { return };
    assert_eq!(
        saw["outside"],
        serde_json::json!({"requests": [], "images": 0, "hacked": false, "scripts": 3})
    );
    let wanted = hostile.replace("\\u2028", "\u{2028}");
    assert!(
        saw["values"].as_array().unwrap().contains(&wanted.as_str().into()),
        "{}",
        saw["values"]
    );
}

#[test]
fn what_is_not_finished_is_refused_by_name_and_left_out_of_a_folder() {
    let dir = compared();
    let whole = canonc(dir.path(), &["report", "pair"]);
    exits(0, &whole);
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("design: treated against plain: controlled for canon"));
    assert!(
        page.contains("Permission is hereby granted, free of charge"),
        "the chart library's licence"
    );
    let cut = dir.path().join("runs/pair/pair-treated-seed2/metrics.jsonl");
    let text = fs::read_to_string(&cut).unwrap();
    fs::write(&cut, text.lines().take(9).map(|line| format!("{line}\n")).collect::<String>())
        .unwrap();
    for what in ["pair", "lockfiles/pair.lock", "runs/pair/pair-treated-seed2"] {
        let ran = canonc(dir.path(), &["report", what]);
        exits(1, &ran);
        assert!(ran.stderr.contains("is not the finished run of its lock"), "{}", ran.stderr);
    }
    assert_eq!(fs::read_to_string(dir.path().join("report.html")).unwrap(), page);
    // A folder of runs that belong to no comparison.
    fs::rename(dir.path().join("runs/pair"), dir.path().join("some")).unwrap();
    let ran = canonc(dir.path(), &["report", "some"]);
    exits(0, &ran);
    assert!(ran.stderr.contains("(4 runs,") && ran.stderr.contains("left out: "), "{}", ran.stderr);
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("is not the finished run of its lock"));
}

/// As a shell writes out `runs/pair/*`.
#[test]
fn files_between_runs_are_named() {
    let dir = compared();
    let run = "runs/pair/pair-plain-seed1";
    let lock = format!("{run}.lock");
    fs::copy(dir.path().join(run).join("lock"), dir.path().join(&lock)).unwrap();
    fs::write(dir.path().join("runs/pair/report.html"), "<!doctype html>").unwrap();
    let help = "name the folder of all runs, `runs/pair`, or only folders: `runs/pair/*/`";
    for (file, what) in [
        (lock.as_str(), "is the lock of a run, not the run's folder"),
        ("runs/pair/report.html", "is a file between runs, not a run"),
    ] {
        let ran = canonc(dir.path(), &["report", run, file]);
        exits(2, &ran);
        assert!(ran.stderr.contains(&format!("`{file}` {what}")), "{}", ran.stderr);
        assert!(ran.stderr.contains(help), "{}", ran.stderr);
    }
}

#[test]
fn bad_input_says_what_to_type() {
    let dir = project();
    exits(0, &canonc(dir.path(), &["build", "recipes/a.toml", "arch/small.canon"]));
    fs::create_dir(dir.path().join("nothing")).unwrap();
    for (words, what, help) in [
        (&["report"][..], "required", "--help"),
        (
            &["report", "--published", "gla5conv"],
            "no published model matches `gla5conv`",
            "did you mean `GLA5",
        ),
        (&["report", "nothing"], "`nothing` contains no run", "canonc run"),
        (&["report", "lockfiles/small.lock"], "is the lock of an architecture", "canonc show"),
        (
            &["report", "lockfiles/b.lock"],
            "there is no lock `lockfiles/b.lock`",
            "lockfiles/a.lock",
        ),
    ] {
        let ran = canonc(dir.path(), words);
        exits(2, &ran);
        assert!(
            ran.stderr.contains(what) && ran.stderr.contains(help),
            "{words:?}: {}",
            ran.stderr
        );
    }
    let ran = canonc(dir.path(), &["report", "lockfiles/a.lock"]);
    exits(1, &ran);
    assert!(
        ran.stderr.contains("`canonc run --lock lockfiles/a.lock` trains it"),
        "{}",
        ran.stderr
    );
    assert!(!dir.path().join("report.html").exists());
}
