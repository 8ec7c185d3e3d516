//! `canonc import` and `canonc export` as processes: the reference's checkpoints to the reference's logits, finished
//! runs to other programs, refusals with their exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use runtime::weights::file;

use crate::{DEPO, experiment};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/checkpoints")
}

fn type_in(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canonc"));
    command.current_dir(folder).args(words);
    for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
        command.env(name, "1");
    }
    command.output().unwrap()
}

/// What stands on standard output, of a command that works.
fn works(folder: &Path, words: &[&str]) -> String {
    let output = type_in(folder, words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(folder: &Path, code: i32, words: &[&str]) -> String {
    let output = type_in(folder, words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    said
}

fn floats(path: &Path, tensor: &str) -> Vec<f64> {
    let tensors = file::read(path).unwrap();
    Vec::try_from(tensors[tensor].reshape([-1])).unwrap()
}

/// Logits of an imported folder on a golden case's tokens.
fn logits(place: &Path, folder: &str, name: &str) -> Vec<f64> {
    let case = golden().join(name).join("golden.safetensors");
    let tokens = place.join("t.safetensors");
    file::write(&tokens, &[("tokens", &file::read(&case).unwrap()["in/tokens"])], None).unwrap();
    let arch = format!("{folder}/arch/model.canon");
    let weights = format!("{folder}/weights.safetensors");
    let out = format!("{folder}-logits.safetensors");
    let words =
        ["forward", &arch, "--weights", &weights, "--tokens", "t.safetensors", "--out", &out];
    works(place, &words);
    floats(&place.join(out), "logits")
}

fn furthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn every_golden_checkpoint_imports_to_its_logits_and_goes_out_and_comes_back() {
    let index = fs::read_to_string(golden().join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let cases = index["checkpoints"].as_array().unwrap();
    assert_eq!(cases.len(), 10);
    for case in cases {
        let name = case["dir"].as_str().unwrap();
        let tolerance = case["logits_atol"].as_f64().unwrap();
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let source = golden().join(name).to_string_lossy().into_owned();
        let listed = works(place, &["import", &source, "--out", "in", "--name", "model"]);
        assert!(listed.starts_with("in/arch/model.canon\n"), "{listed}");
        let wanted = floats(&golden().join(name).join("golden.safetensors"), "out/logits");
        let has = logits(place, "in", name);
        let off = furthest(&has, &wanted);
        assert!(off <= tolerance, "{name}: {off:e}, and {tolerance:e} is allowed");
        for to in ["hf", "lingua"] {
            let weights = "in/weights.safetensors";
            let out = format!("{to}-out");
            works(
                place,
                &["export", "in/arch/model.canon", "--weights", weights, "--to", to, "--out", &out],
            );
            let back = format!("{to}-back");
            works(place, &["import", &out, "--out", &back, "--name", "model"]);
            let bytes =
                |folder: &str| fs::read(place.join(folder).join("weights.safetensors")).unwrap();
            assert!(bytes("in") == bytes(&back), "{name} by way of {to}");
            let arch = |folder: &str| {
                fs::read_to_string(place.join(folder).join("arch/model.canon")).unwrap()
            };
            let [a, b] =
                [arch("in"), arch(&back)].map(|text| text.split_once('\n').unwrap().1.to_owned());
            assert_eq!(a, b, "{name} by way of {to}");
        }
    }
}

#[test]
fn a_finished_run_is_exported_and_an_unfinished_one_is_not() {
    let place = crate::Place::new(&experiment("small", DEPO, &[]));
    let root = place.root.path();
    place.exits(0, "run --lock lockfiles/small.lock");
    let listed = works(root, &["export", "runs/small", "--to", "hf", "--out", "hf"]);
    assert_eq!(
        listed,
        "hf/config.json\nhf/generation_config.json\nhf/model.safetensors\nhf/README.md\n"
    );
    let config = fs::read_to_string(root.join("hf/config.json")).unwrap();
    assert!(config.contains("\"LlamaForCausalLM\"") && !config.contains("auto_map"), "{config}");
    let card = fs::read_to_string(root.join("hf/README.md")).unwrap();
    assert!(card.contains("attested by the run") && card.contains("step-0000000006"), "{card}");
    works(root, &["import", "hf", "--out", "back", "--name", "small"]);
    let ours = fs::read_dir(root.join("runs/small/checkpoints")).unwrap();
    assert!(ours.count() > 0);
    let trained = root.join("runs/small/checkpoints/step-0000000006/weights.safetensors");
    let (a, b) = (
        file::read(&trained).unwrap(),
        file::read(&root.join("back/weights.safetensors")).unwrap(),
    );
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, tensor) in &a {
        assert_eq!(*tensor, b[name], "{name}");
    }
    // A step that was logged and is another now: the run is held against its attestation first.
    let metrics = root.join("runs/small/metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, text.lines().take(3).map(|l| format!("{l}\n")).collect::<String>())
        .unwrap();
    let said = String::from_utf8(
        type_in(root, &["export", "runs/small", "--to", "hf", "--out", "no"]).stderr,
    )
    .unwrap();
    assert!(said.contains("runs/small"), "{said}");
    assert!(!root.join("no").exists());
    // Lingua trains on text: its recipe is refused by the field, its checkpoint is not.
    let said =
        refused(root, 2, &["export", "lockfiles/small.lock", "--to", "slurm", "--out", "no"]);
    assert!(
        said.contains("`data.task` is \"depo\"") && said.contains("Lingua trains on text"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_is_said_with_its_file_and_nothing_is_left_behind() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let hf = golden().join("hf_llama").to_string_lossy().into_owned();
    fs::create_dir(place.join("full")).unwrap();
    fs::write(place.join("full/x"), "x").unwrap();
    let said = refused(place, 2, &["import", &hf, "--out", "full"]);
    assert!(said.contains("something is there already"), "{said}");
    let said = refused(place, 2, &["import", "nowhere", "--out", "o"]);
    assert!(said.contains("it is not there"), "{said}");
    let said = refused(place, 2, &["import", "full", "--out", "o"]);
    assert!(said.contains("no config.json and no params.json"), "{said}");
    let said = refused(place, 2, &["import", &hf, "--devices", "8", "--out", "o"]);
    assert!(said.contains("says nothing of training"), "{said}");
    fs::write(place.join("r.yaml"), "model: &m\n  dim: 64\n").unwrap();
    let said = refused(place, 2, &["import", "r.yaml", "--out", "o"]);
    assert!(said.contains("an anchor") && said.contains("r.yaml:1"), "{said}");
    // A budget that contradicts its keys.
    let text = "model:\n  dim: 64\n  n_heads: 4\nsteps: 10\noptim:\n  warmup: 20\n";
    fs::write(place.join("r.yaml"), text).unwrap();
    let said = refused(place, 2, &["import", "r.yaml", "--devices", "2", "--out", "o"]);
    assert!(said.contains("warmup takes 20 steps, but the run has 10"), "{said}");
    // An arch that nobody else has.
    fs::write(
        place.join("a.canon"),
        "arch a { vocab 16 dim 16 norm_eps 1e-5 init lingua layers 1 of decoder { mixer attention { heads 2, window 4 } mlp swiglu { hidden 32 } } }",
    )
    .unwrap();
    let said = refused(place, 2, &["export", "a.canon", "--to", "card", "--out", "o"]);
    assert!(said.contains("none of the released families") && said.contains("window"), "{said}");
    assert!(!place.join("o").exists());
    let left = fs::read_dir(place).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert!(!left.into_iter().any(|name| name.contains("partial")));
}
