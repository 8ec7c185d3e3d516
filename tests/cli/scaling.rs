//! `canonc scaling`: the compute that a treatment saves across sizes, or the reason why there is no result. The logs
//! are made up and follow a known power law; the coverage of the interval is simulated in the tests of the method.

use std::fs;

use lab::comparison::Role;
use lab::lock::{self, Lock};
use serde_json::Value;

use super::super::{canonc, folder};
use super::report::finish_with;

const DEPO: &str = "task = \"depo\", seq_len = 64, depo.N = 6, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2";

/// Twelve questions, which training shows again and again.
const MANO: &str =
    "task = \"mano\", seq_len = 64, mano.L = 1, mano.value_mod = 2, mano.knowledge_augment = false";

const RECIPE: &str = "\
arch = \"archs.canon#small8\"
data = { DATA, ids = \"dense\" }
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
recipe = \"recipe.toml\"
[arms]
plain = \"../arch/archs.canon#smallN\"
treated = \"../arch/archs.canon#canonN\"
[seeds]
init = [11, 12, 13]
data = [21, 22, 23]
";

const WIDTHS: [u64; 4] = [8, 16, 32, 64];

/// Locks of four widths, and losses that fall with the training FLOPs; the treated arm needs `saves` times less.
fn sizes(saves: f64, exponent: f64) -> tempfile::TempDir {
    sizes_on(DEPO, saves, exponent)
}

fn sizes_on(data: &str, saves: f64, exponent: f64) -> tempfile::TempDir {
    let recipe = RECIPE.replace("DATA", data).replace("archs.canon", "../arch/archs.canon");
    let arch = |width: u64| {
        format!(
            "arch small{width} {{ vocab 300  dim {width}  norm_eps 1e-5  init lingua\n  layers 2 of decoder {{ mixer gla \
             {{ heads 2 }}  mlp swiglu {{ hidden {} }} }} }}\narch canon{width} = small{width} with {{ canon A, C, D }}\n",
            2 * width
        )
    };
    let archs: String = WIDTHS.iter().map(|width| arch(*width)).collect();
    let dir = folder(&[("arch/archs.canon", &archs), ("recipes/recipe.toml", &recipe)]);
    let files = WIDTHS.map(|width| format!("recipes/w{width}.toml"));
    for (width, file) in WIDTHS.iter().zip(&files) {
        fs::write(dir.path().join(file), COMPARISON.replace('N', &width.to_string())).unwrap();
    }
    let build = ["build", "-q"].into_iter().chain(files.iter().map(String::as_str));
    let ran = canonc(dir.path(), &build.collect::<Vec<_>>());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for width in WIDTHS {
        let text = fs::read_to_string(dir.path().join(format!("lockfiles/w{width}.lock"))).unwrap();
        let Ok(Lock::Comparison(locked)) = lock::read("w.lock", &text) else { panic!("{text}") };
        let of_base = locked.arms.iter().find(|arm| arm.name == "plain").unwrap();
        let size: f64 = of_base.experiment.value("budget.flops").unwrap().plain().parse().unwrap();
        for run in locked.runs() {
            let gain = if run.role == Role::Treatment { saves } else { 1.0 };
            // The effect of a seed on both arms, and its effect on one; each sums to zero over seeds.
            let arm_effect = [0.002, -0.002, 0.0][(run.seed + width.ilog2() as usize) % 3];
            let arm_effect = if run.role == Role::Treatment { arm_effect } else { 0.0 };
            let scatter = [0.004, -0.003, -0.001][run.seed] + arm_effect;
            let last = 30.0 * (size * gain / 1e9).powf(-exponent) * (1.0 + scatter);
            let run_folder = dir.path().join(format!("runs/w{width}/{}", run.experiment.name));
            // The stub adds a half to the evaluated loss.
            let loss = move |step: u64| last - 0.5 + 0.01 * (60 - step) as f64;
            finish_with(&run_folder, &run.experiment, run.role, run.seed, &loss);
        }
    }
    dir
}

fn locks() -> Vec<String> {
    WIDTHS.iter().map(|width| format!("lockfiles/w{width}.lock")).collect()
}

#[test]
fn a_known_gain_is_found_within_its_interval() {
    let dir = sizes(1.5, 0.2);
    let locks = locks();
    let mut words = vec!["scaling"];
    words.extend(locks.iter().map(String::as_str));
    let ran = canonc(dir.path(), &words);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    for what in ["compute ratio ×", "95% interval", "saves compute", "training FLOPs", "(C / "] {
        assert!(ran.stdout.contains(what), "{what}\n{}", ran.stdout);
    }
    words.push("--json");
    let ran = canonc(dir.path(), &words);
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&result["schema"], &result["controlled"]),
        (&"canonc.scaling.v1".into(), &true.into())
    );
    assert_eq!(result["sizes"].as_array().unwrap().len(), 4);
    let factors: f64 = result["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| size["treated_over_base"].as_f64().unwrap().ln() / 4.0)
        .sum();
    // The cost of the Canon layers is subtracted.
    let truth = 1.5 / factors.exp();
    let ratio = &result["compute_ratio"];
    let number = |name: &str| ratio[name].as_f64().unwrap();
    assert!(number("low") < truth && truth < number("high"), "{truth}: {ratio}");
    assert!((number("ratio") / truth - 1.0).abs() < 0.1, "{truth}: {ratio}");
    let exponent = result["fit"]["base"]["exponent"].as_f64().unwrap();
    assert!((exponent - 0.2).abs() < 0.02, "{exponent}");
    let saved = result["compute_saved"]["share"].as_f64().unwrap();
    assert!((saved - (1.0 - 1.0 / number("ratio"))).abs() < 1e-12);
    assert!(!dir.path().join("runs/w8/report.html").exists(), "nothing is written");
}

/// The loss has the label of a comparison's table: held-out only where training did not show the questions.
#[test]
fn a_loss_on_questions_that_training_showed_is_not_called_held_out() {
    let locks = locks();
    for (data, held_out) in [(DEPO, true), (MANO, false)] {
        let dir = sizes_on(data, 1.5, 0.2);
        let all: Vec<&str> =
            ["scaling"].into_iter().chain(locks.iter().map(String::as_str)).collect();
        let ran = canonc(dir.path(), &all);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        assert_eq!(!ran.stdout.contains("seen in training"), held_out, "{}", ran.stdout);
        let ran = canonc(dir.path(), &[&all[..], &["--json"]].concat());
        let result: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(result["metric"], "eval_loss");
        let label = result["label"].as_str().unwrap();
        let shown = "eval_loss, seen in training (100% of questions)";
        assert_eq!(label, if held_out { "eval_loss" } else { shown });
        assert!(!dir.path().join("runs/w8/overlap.jsonl").exists(), "nothing is written");
        // A loss of training steps needs no questions.
        let ran = canonc(dir.path(), &[&all[..], &["--loss", "training", "--json"]].concat());
        let result: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(result["label"], "training loss");
    }
}

/// Each size counts its own finished seeds, and a size without a pair is refused.
#[test]
fn each_size_counts_by_its_own_seeds() {
    let dir = sizes(1.5, 0.2);
    let locks = locks();
    let all: Vec<&str> = ["scaling"].into_iter().chain(locks.iter().map(String::as_str)).collect();
    let interval = || {
        let ran = canonc(dir.path(), &[&all[..], &["--json"]].concat());
        let result: Value = serde_json::from_str(&ran.stdout).unwrap();
        let number = |name: &str| result["compute_ratio"][name].as_f64().unwrap();
        (number("high") / number("low"), result)
    };
    let remove = |width: u64, seed: u64, arm: &str| {
        let folder = dir.path().join(format!("runs/w{width}/w{width}-{arm}-seed{seed}"));
        fs::remove_dir_all(folder).unwrap();
    };
    let (all_seeds, result) = interval();
    assert_eq!(result["fit"]["runs"], 12);
    // One run without its pair is not used.
    remove(64, 3, "treated");
    remove(64, 2, "plain");
    remove(16, 1, "plain");
    let (fewer, result) = interval();
    assert_eq!(result["fit"]["runs"], 9);
    let counts: Vec<usize> = result["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| size["base"].as_array().unwrap().len())
        .collect();
    assert_eq!(counts, [3, 2, 3, 1]);
    assert!(fewer > all_seeds, "{fewer} {all_seeds}");
    let ran = canonc(dir.path(), &all);
    assert!(ran.stdout.contains("1 of 3") && ran.stdout.contains("2 of 3"), "{}", ran.stdout);
    remove(64, 1, "plain");
    let ran = canonc(dir.path(), &all);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(
        ran.stderr.contains("has no seed with an evaluation loss of both arms"),
        "{}",
        ran.stderr
    );
}

#[test]
fn sizes_that_support_no_fit_give_a_reason_and_no_number() {
    let dir = sizes(1.5, 0.2);
    let locks = locks();
    let three: Vec<&str> =
        ["scaling"].into_iter().chain(locks.iter().take(3).map(String::as_str)).collect();
    let ran = canonc(dir.path(), &three);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(
        ran.stdout.contains("no compute ratio: 3 sizes; a fit needs at least 4"),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains("saved"), "{}", ran.stdout);
    let ran = canonc(dir.path(), &[&three[..], &["--json"]].concat());
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (ran.code, &result["fit"], &result["compute_ratio"]),
        (1, &Value::Null, &Value::Null)
    );
    // Giving the same size twice does not count as another size.
    let twice = [&three[..], &[locks[0].as_str()]].concat();
    let ran = canonc(dir.path(), &twice);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("given twice"), "{}", ran.stdout);
    // A gain beyond the range of sizes.
    let wide = sizes(1e6, 0.2);
    let all: Vec<&str> = ["scaling"].into_iter().chain(locks.iter().map(String::as_str)).collect();
    let ran = canonc(wide.path(), &all);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("no loss is reached by both arms"), "{}", ran.stdout);
    // A loss that does not fall.
    let flat = sizes(1.5, 0.0);
    let ran = canonc(flat.path(), &all);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("does not fall with size"), "{}", ran.stdout);
}

#[test]
fn what_is_no_sweep_over_sizes_is_refused() {
    let dir = sizes(1.5, 0.2);
    let fast = RECIPE.replace("DATA", &DEPO.replace("K = 2", "K = 1"));
    let fast = fast.replace("archs.canon", "../arch/archs.canon");
    fs::write(dir.path().join("recipes/fast.toml"), fast).unwrap();
    let data = COMPARISON.replace('N', "16").replace("recipe.toml", "fast.toml");
    fs::write(dir.path().join("recipes/data.toml"), data).unwrap();
    assert_eq!(canonc(dir.path(), &["build", "-q", "recipes/data.toml"]).code, 0);
    for (words, what) in [
        (&["lockfiles/w8.lock", "lockfiles/data.lock"][..], "data.task_digest"),
        (&["lockfiles/w8.lock", "--arm", "wide"], "has no treated arm `wide`"),
        (&["lockfiles/none.lock"], "none.lock"),
        (&[], "required"),
    ] {
        let ran = canonc(dir.path(), &[&["scaling"], words].concat());
        assert_eq!(ran.code, 2, "{words:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(what), "{words:?}: {}", ran.stderr);
    }
    // Missing runs are a finding.
    fs::remove_dir_all(dir.path().join("runs/w8")).unwrap();
    let ran = canonc(dir.path(), &["scaling", "lockfiles/w8.lock"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("canonc compare lockfiles/w8.lock"), "{}", ran.stderr);
}

/// Slots that are filled differently at another size are another treatment; another learning rate gives a warning.
#[test]
fn another_treatment_at_another_size_is_refused() {
    let dir = sizes(1.5, 0.2);
    let text = fs::read_to_string(dir.path().join("arch/archs.canon")).unwrap();
    let at = |width: u64| format!("arch canon{width} = small{width} with {{ canon A, C, D }}");
    let changed =
        text.replace(&at(WIDTHS[0]), &at(WIDTHS[0]).replace("A, C, D", "A, C, D { kernel 3 }"));
    assert_ne!(changed, text);
    fs::write(dir.path().join("arch/archs.canon"), changed).unwrap();
    let recipe = format!("recipes/w{}.toml", WIDTHS[0]);
    let ran = canonc(dir.path(), &["build", "-q", &recipe]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let locks = locks();
    let words: Vec<&str> =
        ["scaling"].into_iter().chain(locks.iter().map(String::as_str)).collect();
    let ran = canonc(dir.path(), &words);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    assert!(ran.stderr.contains("the treatment differs between"), "{}", ran.stderr);
    assert!(ran.stderr.contains("kernel"), "{}", ran.stderr);
}
