//! `canonc selftest` as a process, on the CPU: its checks, its file, and its errors if the device or the published
//! numbers are missing. No test needs a GPU, PyTorch or a network.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canonc"));
    command.current_dir(folder).arg("selftest").args(words);
    command.env("OMP_NUM_THREADS", "1").env("MKL_NUM_THREADS", "1");
    command
}

fn selftest(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
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

/// The results in the file. Each line of it is complete.
fn read_results(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("out/selftest.jsonl")).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_part<'a>(results: &'a [Value], part: &str) -> Vec<&'a Value> {
    results.iter().filter(|result| result["part"] == part).collect()
}

/// A script that stands for a Python with PyTorch.
fn python(folder: &Path, script: &str) {
    let path = folder.join("python");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("b.py"), "").unwrap();
}

#[test]
fn everything_holds_on_this_machine_and_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    python(folder.path(), PYTHON);
    let words = ["--out", "out", "--goldens", &golden(), "--python", "./python", "--peer", "b.py"];
    let output = selftest(folder.path(), &words);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}\n{table}");
    assert!(table.contains("everything holds") && !table.contains("FAILS"), "{table}");

    let results = read_results(folder.path());
    let (first, last) = (&results[0], results.last().unwrap());
    assert_eq!(
        (&first["part"], &first["schema"]),
        (&"machine".into(), &"canonc.selftest.v2".into())
    );
    assert!(first["facts"]["libtorch"].as_str().unwrap().starts_with("2."));
    assert_eq!((&last["part"], &last["holds"]), (&"end".into(), &true.into()));
    assert_every_part_has_results(&results);
    // What failed is named; another program's failure is no finding about this machine.
    let failed: Vec<_> = of_part(&results, "process")
        .into_iter()
        .filter(|process| !process["failure"].is_null())
        .collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["name"], "peers/mamba2 small fla");
    assert_eq!(failed[0]["failure"], "no kernel for this device");
    assert!(table.contains("peers/mamba2 small fla"), "{table}");
    let asked = fs::read_to_string(folder.path().join("asked.txt")).unwrap();
    assert_eq!(asked.lines().count(), 5, "{asked}");
    let fla = "fla --family gated deltanet --dim 128 --layers 2 --heads 2 --hidden 256 --vocab 258";
    assert!(asked.contains(fla), "{asked}");
    assert!(
        asked.contains("b.py --dim 128 --layers 2 --heads 2 --hidden 256 --vocab 258"),
        "{asked}"
    );
    // Its runs were in a folder that is gone; the same command writes over its own file.
    assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 1);
}

fn assert_every_part_has_results(results: &[Value]) {
    let names = |part: &str| -> Vec<&str> {
        of_part(results, part).into_iter().map(|result| result["name"].as_str().unwrap()).collect()
    };
    assert!(names("golden").contains(&"hf_llamacanon"));
    assert!(names("golden").iter().any(|name| name.starts_with("gla_scan")));
    for kernel in
        ["ssd_scan", "rms_norm", "adamw", "head_loss_grad", "causal_conv_grad", "attention_grad"]
    {
        assert!(names("kernel").contains(&kernel), "{kernel} is not among {:?}", names("kernel"));
    }
    assert_eq!(names("run"), ["equal bits twice", "killed and resumed"]);
    let memory = of_part(results, "memory")[0];
    assert!(memory["predicted"].as_u64().unwrap() > 0 && memory["measured"].as_u64().unwrap() > 0);
    let steps = of_part(results, "step");
    assert_eq!(steps.len(), 6);
    for step in steps {
        assert!(
            step["ms"].as_f64().unwrap() > 0.0 && step["mfu"].as_f64().unwrap() > 0.0,
            "{step}"
        );
    }
    let peer = |program: &str| -> Vec<&str> {
        let peers = of_part(results, "peer").into_iter().filter(|peer| peer["program"] == program);
        peers.map(|peer| peer["model"].as_str().unwrap()).collect()
    };
    assert_eq!(peer("PyTorch"), ["llama small", "llamacanon small"]);
    assert_eq!(peer("fla"), ["gla small", "gated deltanet small"]);
}

#[test]
fn a_process_that_is_lost_or_hangs_costs_only_its_own_results() {
    let folder = tempfile::tempdir().unwrap();
    let hangs = "sleep 1000 & wait";
    let script = format!(
        "#!/bin/sh\n[ \"$2\" = 'import torch' ] && exit 0\ncase \"$*\" in\n*'--canon ABCD'*) {hangs} ;;\n\
         *--canon*) kill -9 $PPID ;;\n*) echo '{{\"step_s\": 0.5}}' ;;\nesac\n"
    );
    python(folder.path(), &script);
    let words = ["--out", "out", "--goldens", &golden(), "--python", "./python", "--peer", "b.py"];
    let words = [&words[..], &["--parts", "peers", "--limit", "8"]].concat();
    let output = selftest(folder.path(), &words);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let results = read_results(folder.path());
    let failure = |name: &str| {
        let processes = of_part(&results, "process");
        let process = processes.into_iter().find(|process| process["name"] == name).unwrap();
        process["failure"].as_str().unwrap_or("none").to_owned()
    };
    assert!(failure("peers/llama small PyTorch").starts_with("ended by signal 9"));
    assert!(failure("peers/llamacanon small PyTorch").starts_with("ended at its limit of "));
    // It took all the time that there was.
    assert_eq!(failure("peers/gla small fla"), "not begun: no time was left");
    assert_eq!(results.last().unwrap()["part"], "end");
}

#[test]
fn a_killed_selftest_leaves_the_results_of_finished_processes() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path(), &["--out", "out", "--goldens", &golden()]);
    command.args(["--parts", "goldens"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let file = folder.path().join("out/selftest.jsonl");
    let finished_processes = || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.lines().filter(|line| line.contains("\"part\":\"process\"")).count()
    };
    while finished_processes() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let results = read_results(folder.path());
    assert!(
        of_part(&results, "process").len() >= 2 && of_part(&results, "golden").len() >= 2,
        "{results:?}"
    );
    assert!(of_part(&results, "end").is_empty());
}

#[test]
fn missing_goldens_or_cuda_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = selftest(folder.path(), &["--out", "out", "--goldens", "."]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("this folder has no published numbers"), "{stderr}");
    if !runtime::kernels::library_folder().unwrap().join("libtorch_cuda.so").exists() {
        let output = selftest(folder.path(), &["--device", "cuda", "--out", "out"]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("this machine cannot use CUDA"), "{stderr}");
    }
    assert!(!folder.path().join("out").exists());
}

#[test]
fn a_python_or_a_script_that_cannot_run_is_refused_before_the_tests() {
    let folder = tempfile::tempdir().unwrap();
    let golden = golden();
    for (words, wanted) in [
        (["--python", "/nope"].as_slice(), "`--python /nope` is no Python with PyTorch"),
        (&["--python", "true", "--peer", "none.py"], "`--peer none.py` is not a file"),
        (&["--parts", "runs,peers"], "`--parts peers` needs a Python with PyTorch"),
    ] {
        let output =
            selftest(folder.path(), &[&["--out", "out", "--goldens", &golden], words].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(wanted), "{stderr}");
        assert!(!folder.path().join("out").exists());
    }
}
