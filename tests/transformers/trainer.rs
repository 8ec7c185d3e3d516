//! Locks trained by PyTorch's FSDP2 from exported folders, against `canonc run`: batches, learning rates, counts and initial
//! weights are equal, losses and norms agree to rounding, on one rank and two, and when a run goes on on another number.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::programs;

use super::{canonc, python, run};

/// Largest difference of a loss, and of a norm relative to it: about ten times what was measured over 60 steps.
const LOSS: f64 = 2e-6;
const NORM: f64 = 2e-5;

const DENSE: &str = "arch a { vocab 24  dim 16  norm_eps 1e-5  init lingua
  layers 2 of decoder { mixer attention { heads 2  kv_heads 1 } mlp swiglu { hidden 24 } }  canon A, B, C, D }";
const DROPS: &str = "arch a { vocab 24  dim 16  norm_eps 1e-5  init lingua
  layers 2 of dropout_decoder { mixer attention { heads 2 } mlp swiglu { hidden 24 } } }";
const AHEAD: &str = "arch a { vocab 24  dim 16  norm_eps 1e-5  init lingua
  head two_tokens { extra decoder { mixer attention { heads 2 } mlp swiglu { hidden 24 } } }
  layers 2 of decoder { mixer gated_deltanet { heads 2 } mlp swiglu { hidden 24 } } }";
const EXPERTS: &str = "arch a { vocab 24  dim 16  norm_eps 1e-5  init lingua
  layers 2 of decoder { mixer attention { heads 2 } mlp moe { count 4, active 2, hidden 16 } } }";

/// A recipe of 12 steps in two micro-batches of four sequences.
fn recipe(dir: &Path, arch: &str, optimizer: &str, more: &str) {
    fs::write(dir.join("a.canon"), arch).unwrap();
    let recipe = format!(
        "arch = \"a.canon\"\ndata = {{ depo = {{ N = 6, K = 1, mini_vocab = 10, min_tlen = 1, max_tlen = 1 }}, \
         seq_len = 32, ids = \"dense\", loss_on = \"answer\" }}\nbatch = {{ sequences = 4, micro_batches = 2 }}\n\
         [optimizer]\nlr = 0.01\nweight_decay = 0.1\n{optimizer}\n[schedule]\nkind = \"cosine\"\nwarmup = 3\n\
         lr_min_ratio = 0.1\n[budget]\nsteps = 12\n[evaluation]\nevery = 0\nwindows = 2\n[checkpoint]\nevery = 6\n\
         [platform]\nthreads = 1\n{more}"
    );
    let seeds = if more.contains("[seeds]") { "" } else { "[seeds]\ninit = 1\ndata = 1\n" };
    fs::write(dir.join("t.toml"), recipe + seeds).unwrap();
}

/// Its lock, the run that canonc trains, and the folder in which PyTorch trains it.
fn lock(dir: &Path, arch: &str, optimizer: &str, more: &str) {
    recipe(dir, arch, optimizer, more);
    canonc(dir, &["build", "t.toml", "-q"]);
    if more.contains("[init]") {
        canonc(dir, &["bind", "lockfiles/t.lock", "-q"]);
    }
    canonc(dir, &["run", "--lock", "lockfiles/t.lock", "--dir", "ours", "-q"]);
    export(dir);
}

fn export(dir: &Path) {
    canonc(dir, &["export", "lockfiles/t.lock", "--to", "trainer", "--out", "folder"]);
}

/// The plain lock with another value, exported.
fn exported(dir: &Path, from: &str, to: &str) {
    recipe(dir, DENSE, "", "");
    let text = fs::read_to_string(dir.join("t.toml")).unwrap();
    assert!(text.contains(from), "{from}");
    fs::write(dir.join("t.toml"), text.replace(from, to)).unwrap();
    canonc(dir, &["build", "t.toml", "-q"]);
    export(dir);
}

/// Trains the exported folder into `out` on so many ranks; returns its messages.
fn train(dir: &Path, ranks: u32, out: &str, more: &[&str], code: i32) -> String {
    let output = trainer(dir, ranks, out, more).output().unwrap();
    // torchrun says 1 for a rank's 75.
    let wanted = if ranks > 1 && code != 0 { 1 } else { code };
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(wanted), "{messages}");
    messages
}

fn trainer(dir: &Path, ranks: u32, out: &str, more: &[&str]) -> Command {
    let python = python();
    let script = dir.join("folder/train.py");
    let mut command = match ranks {
        1 => Command::new(&python),
        ranks => {
            let mut command = Command::new(&python);
            let ranks = ranks.to_string();
            command.args([
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                &ranks,
            ]);
            command
        }
    };
    command.arg(script).args(["--out", out, "--device", "cpu"]).args(more).current_dir(dir);
    command.env("CANONC", env!("CARGO_BIN_EXE_canonc")).env("OMP_NUM_THREADS", "1");
    command
}

fn log(dir: &Path, run: &str) -> Vec<Value> {
    let text = fs::read_to_string(dir.join(run).join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The log of `run` is that of canonc's run, up to rounding.
fn assert_agrees(dir: &Path, run: &str) {
    let (ours, theirs) = (log(dir, "ours"), log(dir, run));
    assert_eq!(
        (&theirs[0]["kind"], &ours[0]["initial"]),
        (&"external".into(), &theirs[0]["initial"])
    );
    let steps = |log: &[Value]| -> Vec<Value> {
        log.iter().filter(|line| line["kind"] == "step").cloned().collect()
    };
    let (ours, theirs) = (steps(&ours), steps(&theirs));
    assert_eq!((ours.len(), theirs.len()), (12, 12));
    for (a, b) in ours.iter().zip(&theirs) {
        for (name, value) in a.as_object().unwrap() {
            let number = |line: &Value| line[name].as_f64().unwrap_or(f64::NAN);
            let off = (number(a) - number(b)).abs();
            match name.as_str() {
                "chain" => {}
                "loss" | "balance" | "router_z" | "ahead_2" => {
                    assert!(off <= LOSS, "{run}, step {}: {name} is off by {off:e}", a["step"]);
                }
                "grad_norm" => {
                    assert!(off <= NORM * number(a), "{run}, step {}: {off:e}", a["step"])
                }
                _ if value.is_f64() => {
                    assert_eq!(number(a).to_bits(), number(b).to_bits(), "{name}")
                }
                _ => assert_eq!(*value, b[name], "{run}, step {}: {name}", a["step"]),
            }
        }
    }
}

fn agrees(arch: &str, optimizer: &str, more: &str) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    lock(dir, arch, optimizer, more);
    train(dir, 1, "one", &[], 0);
    assert_agrees(dir, "one");
    train(dir, 2, "two", &[], 0);
    assert_agrees(dir, "two");
}

#[test]
fn squares_and_decay_of_matrices_are_those_of_canonc() {
    agrees(DENSE, "decay = \"matrices\"", "[loss]\nz_loss = 0.001\nnll_square = 0.001\n");
}

#[test]
fn muon_groups_and_frozen_parameters_are_those_of_canonc() {
    let groups = "kind = \"muon\"\nlr_multipliers = [[\"layers.**:linear\", 0.25], [\":embed\", 2]]\n\
                  weight_decay_multipliers = [[\":norm\", 0]]\nfrozen = [\"layers.0.pre_mixer\"]";
    agrees(DENSE, groups, "");
}

#[test]
fn dropped_elements_are_those_of_canonc() {
    agrees(DROPS, "", "[seeds]\ninit = 1\ndata = 2\ndropout = 3\n");
}

#[test]
fn losses_of_later_tokens_are_those_of_canonc() {
    agrees(AHEAD, "", "[loss]\nahead = 0.3\n");
}

#[test]
fn losses_of_experts_are_those_of_canonc() {
    agrees(EXPERTS, "", "[loss]\nbalance = 0.01\nrouter_z = 0.001\n");
}

#[test]
fn a_stopped_run_goes_on_on_another_number_of_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    lock(dir, DENSE, "", "");
    train(dir, 2, "run", &["--until", "5"], 75);
    train(dir, 1, "run", &[], 0);
    let resumed = log(dir, "run").into_iter().find(|line| line["kind"] == "resumed").unwrap();
    assert_eq!((&resumed["step"], &resumed["changes"]["world"]), (&5.into(), &1.into()));
    assert_agrees(dir, "run");
    // Another engine is another run.
    let script = dir.join("folder/model.py");
    fs::write(&script, fs::read_to_string(&script).unwrap() + "\n").unwrap();
    let messages = train(dir, 1, "run", &[], 2);
    assert!(messages.contains("was begun with module = "), "{messages}");
}

#[test]
fn a_signal_stops_all_ranks_with_a_state() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    exported(dir, "steps = 12", "steps = 4000");
    let mut child = trainer(dir, 2, "run", &[]).spawn().unwrap();
    let begun = || {
        fs::read_to_string(dir.join("run/metrics.jsonl"))
            .is_ok_and(|log| log.contains("\"step\":3,"))
    };
    while !begun() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was stopped");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    run(Path::new("kill"), &["-TERM", &child.id().to_string()]).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(dir.join("run.states/stopped").exists());
    let done = log(dir, "run").last().unwrap()["step"].as_u64().unwrap();
    assert!(dir.join(format!("run.states/step-{done:010}")).is_dir(), "{done}");
    train(dir, 2, "run", &["--until", &(done + 2).to_string(), "--replicas", "2"], 75);
    assert_eq!(log(dir, "run").last().unwrap()["step"], done + 2);
}

#[test]
fn a_diverged_run_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    exported(dir, "lr = 0.01", "lr = 1e30\nclip = \"none\"");
    let messages = train(dir, 1, "run", &[], 1);
    assert!(messages.contains("error: training diverged at step "), "{messages}");
    canonc(dir, &["record", "run"]);
    let attested = fs::read_to_string(dir.join("run/attestation.toml")).unwrap();
    assert!(attested.contains("\ndiverged = "), "{attested}");
    canonc(dir, &["verify", "run"]);
}

#[test]
fn a_run_begins_from_the_weights_that_its_lock_names() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    lock(dir, &DENSE.replace("canon A, B, C, D ", ""), "", "");
    fs::rename(dir.join("ours"), dir.join("plain")).unwrap();
    fs::remove_dir_all(dir.join("folder")).unwrap();
    lock(dir, DENSE, "", "[init]\nweights = \"plain\"\nmissing = \"drawn\"\n");
    train(dir, 2, "two", &[], 0);
    assert_agrees(dir, "two");
    canonc(dir, &["record", "two"]);
    canonc(dir, &["verify", "two", "--replay", "8"]);
}

#[test]
fn a_bf16_lock_keeps_masters_and_its_f32_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    lock(dir, AHEAD, "", "[precision]\npolicy = \"bf16\"\n[loss]\nahead = 0.3\n");
    train(dir, 2, "two", &[], 0);
    let (ours, theirs) = (log(dir, "ours"), log(dir, "two"));
    assert_eq!(ours[0]["initial"], theirs[0]["initial"]);
    for (a, b) in ours[1..=12].iter().zip(&theirs[1..]) {
        let off = (a["loss"].as_f64().unwrap() - b["loss"].as_f64().unwrap()).abs();
        assert!(a["batch"] == b["batch"] && off < 2e-2, "step {}: {off}", a["step"]);
    }
}

/// Two arms of two seeds, from the comparison's lock to its page.
#[test]
fn a_comparison_trained_by_pytorch_is_recorded_verified_and_controlled() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    lock(dir, DENSE, "", "");
    let plain = DENSE.replace("canon A, B, C, D ", "").replace("arch a", "arch plain");
    fs::write(dir.join("plain.canon"), plain).unwrap();
    let recipe = fs::read_to_string(dir.join("t.toml")).unwrap();
    fs::write(dir.join("p.toml"), recipe.replace("\"a.canon\"", "\"plain.canon\"")).unwrap();
    let pair = "trainer = \"pytorch\"\nbase = \"plain\"\ntreatment = [\"canon\"]\n[arms]\nplain = \"p.toml\"\n\
                canon = \"t.toml\"\n[seeds]\ninit = [1, 2]\ndata = [1, 2]\neval = [0]\n";
    fs::write(dir.join("pair.toml"), pair).unwrap();
    canonc(dir, &["build", "pair.toml", "-q"]);
    canonc(dir, &["export", "lockfiles/pair.lock", "--to", "trainer", "--out", "arms"]);
    for run in ["plain-seed1", "plain-seed2", "canon-seed1", "canon-seed2"] {
        let (script, out) = (format!("arms/pair-{run}/train.py"), format!("runs/pair/pair-{run}"));
        let mut command = Command::new(python());
        command.args([&script, "--out", &out, "--device", "cpu"]).current_dir(dir);
        command.env("CANONC", env!("CARGO_BIN_EXE_canonc")).env("OMP_NUM_THREADS", "1");
        assert!(command.status().unwrap().success());
        canonc(dir, &["record", &out]);
    }
    canonc(dir, &["verify", "--replay", "runs/pair/pair-canon-seed2"]);
    canonc(dir, &["compare", "lockfiles/pair.lock"]);
    canonc(dir, &["verify", "runs/pair"]);
    let page = fs::read_to_string(dir.join("runs/pair/report.html")).unwrap();
    assert!(page.contains("both arms trained by pytorch 2.11"));
}

/// In Triton's interpreter, without a GPU.
#[test]
fn kernels_of_fla_are_the_generated_functions() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut words = vec![programs::root().join("tests/fla_kernels.py").display().to_string()];
    for arch in ["gla_demo", "gdn_demo", "mamba2_demo"] {
        let file = programs::root().join(format!("arch/{arch}.canon"));
        canonc(dir, &["export", file.to_str().unwrap(), "--to", "trainer", "--out", arch]);
        words.push(dir.join(arch).display().to_string());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let stdout = run(&python(), &words).unwrap_or_else(|error| panic!("{error}"));
    let lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5, "{stdout}");
    for line in lines {
        let off = |name: &str| line[name].as_f64().unwrap();
        assert!(line["kernel"].as_str().unwrap().starts_with("fla 0."), "{line}");
        assert!(off("results") < 5e-6 && off("gradients") < 2e-5, "{line}");
    }
}

/// The two blocks of Python of docs/trainer.md, word by word, on a small lock under the name that they have.
#[test]
fn the_documented_loops_run() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    lock(dir, DENSE, "", "");
    fs::copy(dir.join("lockfiles/t.lock"), dir.join("lockfiles/demo_llama.lock")).unwrap();
    canonc(dir, &["export", "ours", "--to", "hf", "--out", "demo_llama_hf"]);
    let page = fs::read_to_string(programs::root().join("docs/trainer.md")).unwrap();
    for (number, block) in page.split("```python\n").skip(1).enumerate() {
        let (code, _) = block.split_once("```").unwrap();
        let file = dir.join(format!("block{number}.py"));
        fs::write(&file, code).unwrap();
        let mut command = Command::new(python());
        command.arg(&file).current_dir(dir).env("CANONC", env!("CARGO_BIN_EXE_canonc"));
        let output = command.env("PYTHONPATH", programs::root().join("python")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_agrees(dir, "runs/demo_llama");
    let state = fs::read_to_string(dir.join("hf_run/checkpoint-12/trainer_state.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["global_step"], 12);
}
