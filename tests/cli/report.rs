//! `canonc report`: its page, driven in a browser; the event files; refused input.
//!
//! The logs of the runs are made up here, step by step, so that the test can compute every number on the page. The page
//! is the binary's, except for one added script element and its hash. Without Chromium the test reports that, and only
//! the library's own tests check the page; under CI it fails.

mod batches;
mod browser;
mod events;
#[cfg(feature = "ext")]
mod logs;
mod many;
mod page;
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
struct Outcome {
    /// Right answer tokens at the end, out of a thousand.
    right: Option<u64>,
    /// The step at which training diverged.
    diverged: Option<u64>,
}

/// Writes the folder of a finished run.
fn finish(folder: &Path, experiment: &Experiment, role: Role, seed: usize) {
    finish_as(folder, experiment, role, seed, Outcome::default(), &|step| loss(role, seed, step));
}

/// The same with other losses.
pub(super) fn finish_with(
    folder: &Path,
    experiment: &Experiment,
    role: Role,
    seed: usize,
    loss: &dyn Fn(u64) -> f64,
) {
    finish_as(folder, experiment, role, seed, Outcome::default(), loss);
}

fn finish_as(
    folder: &Path,
    experiment: &Experiment,
    role: Role,
    seed: usize,
    outcome: Outcome,
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
    let last = outcome.diverged.unwrap_or(STEPS);
    for step in 1..=last {
        let stream = stream(&experiment.name, role, seed, step);
        append(Record::Step(Step {
            step,
            loss: Some(if outcome.diverged == Some(step) { f64::INFINITY } else { loss(step) }),
            grad_norm: 1.0 / step as f64,
            lr: rate(step - 1),
            batch: Some(Digest::of("batch", &format!("{stream} {step}"))),
            counted: 10,
            terms: [None; compiler::plan::TERMS.len()],
        }));
        timings.push_str(&format!("{{\"step\":{step},\"seconds\":{SECONDS}}}\n"));
        if step % 20 == 0 {
            let line = format!("{{\"evaluation\":{step},\"evaluation_seconds\":{SECONDS}}}\n");
            timings.push_str(&line);
            append(Record::Evaluation(evaluation(step, loss(step) + 0.5, outcome)));
        }
    }
    fs::write(paths.timings(), timings).unwrap();
    let started = "{\"event\":\"started\",\"unix_time\":1000.5}\n";
    fs::write(paths.events(), started).unwrap();
    let attestation = attestation(experiment, last, outcome, &log);
    attestation.write(&paths.attestation(), Circumstances::default(), &Faults::none()).unwrap();
}

/// The name of the data that a run reads at a step. One comparison has a run that read other data.
fn stream(experiment: &str, role: Role, seed: usize, step: u64) -> String {
    match role {
        Role::Treatment if seed == 1 && step >= OTHER_DATA && experiment.starts_with("pair-") => {
            "another order".to_owned()
        }
        Role::Base | Role::Treatment => format!("seed {seed}"),
        Role::Replicate => "replicate".to_owned(),
    }
}

fn evaluation(step: u64, nll: f64, outcome: Outcome) -> Evaluation {
    Evaluation {
        step,
        nll: Some(nll),
        counted: 10,
        tokens: match outcome.right {
            None => Score { right: step, of: 100 },
            Some(right) => Score { right, of: 1000 },
        },
        answers: BTreeMap::new(),
        measures: BTreeMap::new(),
        questions: None,
        suites: Vec::new(),
    }
}

fn attestation(experiment: &Experiment, last: u64, outcome: Outcome, log: &Log) -> Attestation {
    let digests = experiment.digests;
    let any = digests.train;
    Attestation {
        name: experiment.name.clone(),
        lock: digests.train,
        eval: digests.eval,
        platform: digests.platform,
        steps: last,
        diverged: outcome.diverged,
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
    }
}

/// A comparison with all its runs finished.
fn compared() -> tempfile::TempDir {
    compared_as(COMPARISON)
}

fn compared_as(declared: &str) -> tempfile::TempDir {
    let dir = project();
    run_all(dir.path(), "pair", declared, |_, _| Outcome::default());
    dir
}

/// Builds a comparison and makes up each of its runs from role and seed.
fn run_all(dir: &Path, name: &str, declared: &str, outcome: impl Fn(Role, usize) -> Outcome) {
    let recipe = format!("recipes/{name}.toml");
    fs::write(dir.join(&recipe), declared).unwrap();
    exits(0, &canonc(dir, &["build", "-q", &recipe]));
    let text = fs::read_to_string(dir.join(format!("lockfiles/{name}.lock"))).unwrap();
    let Lock::Comparison(comparison) = lock::read(name, &text).unwrap() else {
        panic!("not a comparison")
    };
    for run in comparison.runs() {
        let folder = dir.join("runs").join(name).join(&run.experiment.name);
        let (role, seed) = (run.role, run.seed);
        let loss = |step| loss(role, seed, step);
        finish_as(&folder, &run.experiment, role, seed, outcome(role, seed), &loss);
    }
}

fn exits(code: i32, ran: &Ran) {
    assert_eq!(ran.code, code, "{}\n{}", ran.stdout, ran.stderr);
}

/// Compares to the precision of a page.
fn assert_near(actual: &Value, wanted: f64) {
    let value = actual.as_f64().unwrap_or_else(|| panic!("{actual} is no number, wanted {wanted}"));
    assert!((value - wanted).abs() <= 2e-6 * wanted.abs().max(1.0), "{value}, not {wanted}");
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
    assert_near(&saw["band"]["band"]["y"], 0.02);
    assert_eq!(saw["band"]["band"]["points"], STEPS);
    let note = saw["band"]["note"].as_str().unwrap();
    assert!(
        note.contains("one standard deviation of a single A/A difference (3 repetitions)"),
        "{note}"
    );
}

#[test]
fn hostile_text_is_escaped_on_the_page() {
    let hostile = "</script><img src=x onerror=hacked=1>' \\u2028 \\u003c{{ x }}<!--";
    let dir = project();
    let text = RECIPE
        .replace("data = { task = \"depo\", seq_len = 64, depo.N = 6, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2, ids = \"dense\" }", &format!(
            "data = {{ task = \"text\", seq_len = 64, source = \"{}\", digest = \"{}\" }}",
            hostile.replace("\\u003c", "\\\\u003c"),
            "ab".repeat(32)
        ));
    fs::write(dir.path().join("recipes/text.toml"), text).unwrap();
    exits(0, &canonc(dir.path(), &["build", "-q", "recipes/text.toml"]));
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
    let ran = canonc(dir.path(), &["report", "pair"]);
    exits(0, &ran);
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
    exits(0, &canonc(dir.path(), &["build", "-q", "recipes/a.toml", "arch/small.canon"]));
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
