//! `canonc selftest` as a process, on the CPU: everything that it says it does, its JSON, and what it says if the device
//! or the published numbers are missing. No test needs a GPU, PyTorch or a network.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

fn selftest(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canonc"));
    command.current_dir(folder).arg("selftest").args(words);
    command.env("OMP_NUM_THREADS", "1").env("MKL_NUM_THREADS", "1").output().unwrap()
}

fn golden() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").to_string_lossy().into_owned()
}

/// Stands for a Python with PyTorch, which has fla's layers but Mamba2's kernels fail: prints what the scripts would, and
/// keeps what they were asked for, without the text of a script.
const PYTHON: &str = "#!/bin/sh
if [ \"$1\" = -c ]; then
  [ \"$2\" = 'import torch' ] && exit 0
  shift 2
  echo \"fla $*\" >> asked.txt
  case \"$2\" in mamba2) echo no kernel for this device >&2; exit 1 ;; esac
  echo '{\"step_s\": 0.5}'
else
  echo \"$*\" >> asked.txt
  echo a line of a compiler
  echo '{\"step_s\": 0.25, \"tokens_per_s\": 2048}'
fi
";

#[test]
fn everything_holds_on_this_machine_and_is_in_the_json() {
    let place = tempfile::tempdir().unwrap();
    let python = place.path().join("python");
    fs::write(&python, PYTHON).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(place.path().join("b.py"), "").unwrap();
    let words = ["--out", "out", "--goldens", &golden(), "--python", "./python", "--peer", "b.py"];
    let output = selftest(place.path(), &words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}\n{table}");
    assert!(table.contains("everything holds") && !table.contains("FAILS"), "{table}");

    let text = fs::read_to_string(place.path().join("out/selftest.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["schema"], "canonc.selftest.v1");
    assert_eq!(report["holds"], true);
    assert_eq!(report["device"], "cpu");
    assert!(report["machine"]["libtorch"].as_str().unwrap().starts_with("2."));
    let names = |part: &str| -> Vec<&str> {
        report[part].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
    };
    // Ten checkpoints and four scans.
    assert_eq!(names("goldens").len(), 14, "{:?}", names("goldens"));
    assert!(names("goldens").contains(&"hf_llamacanon"));
    for kernel in
        ["ssd_scan", "rms_norm", "adamw", "head_loss_grad", "causal_conv_grad", "attention_grad"]
    {
        let found = names("kernels").into_iter().any(|name| name == kernel);
        assert!(found, "{kernel} is not among {:?}", names("kernels"));
    }
    assert_eq!(names("runs"), ["equal bits twice", "killed and resumed"]);
    let memory = &report["memory"][0];
    assert!(memory["predicted"].as_u64().unwrap() > 0 && memory["measured"].as_u64().unwrap() > 0);
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 6);
    for step in steps {
        assert!(
            step["ms"].as_f64().unwrap() > 0.0 && step["mfu"].as_f64().unwrap() > 0.0,
            "{step}"
        );
        let model = step["model"].as_str().unwrap();
        let peer = model.starts_with("llama");
        assert_eq!(step["peer_ms"].as_f64(), peer.then_some(250.0), "{step}");
        let fla = model.starts_with("gla") || model.starts_with("gated deltanet");
        assert_eq!(step["fla_ms"].as_f64(), fla.then_some(500.0), "{step}");
        let failed = model.starts_with("mamba2").then_some("no kernel for this device");
        assert_eq!(step["fla_why"].as_str(), failed, "{step}");
    }
    assert!(table.contains("fla, mamba2 small: no kernel for this device"), "{table}");
    let asked = fs::read_to_string(place.path().join("asked.txt")).unwrap();
    assert_eq!(asked.lines().count(), 5, "{asked}");
    let fla = "fla --family gated deltanet --dim 128 --layers 2 --heads 2 --hidden 256 --vocab 258";
    assert!(asked.contains(fla), "{asked}");
    assert!(
        asked.contains("b.py --dim 128 --layers 2 --heads 2 --hidden 256 --vocab 258"),
        "{asked}"
    );
    // Its runs were in a folder that is gone; the same command writes over its own file.
    assert_eq!(fs::read_dir(place.path().join("out")).unwrap().count(), 1);
}

#[test]
fn what_is_missing_is_named_and_nothing_is_written() {
    let place = tempfile::tempdir().unwrap();
    let without = selftest(place.path(), &["--out", "out", "--goldens", "."]);
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert_eq!(without.status.code(), Some(3), "{said}");
    assert!(said.contains("this folder has no published numbers"), "{said}");
    if !runtime::kernels::library_folder().unwrap().join("libtorch_cuda.so").exists() {
        let without = selftest(place.path(), &["--device", "cuda", "--out", "out"]);
        let said = String::from_utf8_lossy(&without.stderr).into_owned();
        assert_eq!(without.status.code(), Some(3), "{said}");
        assert!(said.contains("this machine cannot use CUDA"), "{said}");
    }
    assert!(!place.path().join("out").exists());
}

#[test]
fn a_python_or_a_script_that_cannot_run_is_refused_before_the_tests() {
    let place = tempfile::tempdir().unwrap();
    let golden = golden();
    for (words, wanted) in [
        (["--python", "/nope"].as_slice(), "`--python /nope` is no Python with PyTorch"),
        (&["--python", "true", "--peer", "none.py"], "`--peer none.py` is not a file"),
    ] {
        let output =
            selftest(place.path(), &[&["--out", "out", "--goldens", &golden], words].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(wanted), "{said}");
        assert!(!place.path().join("out").exists());
    }
}
