//! `canonc bench peers` as a process, with a stand-in for Python that answers the protocol: its table and sentences, and
//! its errors if Python, PyTorch or a process fails. No test needs PyTorch or a network.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use compiler::program::{Program, Std};

/// Prints the version of torch, creates an environment that contains itself, or answers each request with five steps.
const PYTHON: &str = r#"#!/bin/sh
case "$*" in
  -c*) echo VERSION; exit ;;
  "-m venv --clear "*) mkdir -p "$4/bin" && cp MADE "$4/bin/python"; exit ;;
  "-m pip install "*) echo "$*" > pip.txt; exit ;;
  *DIES*) echo "line one" >&2; echo "MemoryError: too much" >&2; exit 1 ;;
  *"--arch llamacanon"*) parameters=10302720 ;;
  *) parameters=10235136 ;;
esac
echo "$GLIBC_TUNABLES$LD_PRELOAD" >> tunables.txt
echo "a warning that is no JSON"
echo '{"torch": "VERSION", "threads": 1, "parameters": '$parameters'}'
while read count; do echo '{"ms": [1000, 2000, 3000, 4000, 5000]}'; done
"#;

/// Cannot import torch.
const WITHOUT_TORCH: &str = "#!/bin/sh
echo \"ModuleNotFoundError: No module named 'torch'\" >&2
exit 1
";

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn python(version: &str, dies: &str) -> String {
    PYTHON.replace("VERSION", version).replace("DIES", dies)
}

/// The command in a folder that has `bin/` on PATH before the shell's own programs.
fn peers(dir: &Path, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_canonc"))
        .current_dir(dir)
        .args(["bench", "peers", "--batch", "1", "--seq-len", "8", "--rounds", "1"])
        .args(words.split_whitespace())
        .env("PATH", dir.join("bin"))
        .env("XDG_CACHE_HOME", dir.join("cache"))
        .env("LD_PRELOAD", "")
        .env("OMP_NUM_THREADS", "1")
        .env("MKL_NUM_THREADS", "1")
        .output()
        .unwrap()
}

fn refused(code: i32, dir: &Path, words: &str, parts: &[&str]) {
    let output = peers(dir, words);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words}: {message}");
    for part in parts {
        assert!(message.contains(part), "{words}: {part} in {message}");
    }
}

#[test]
fn the_table_has_both_programs_without_the_one_that_failed() {
    let dir = tempfile::tempdir().unwrap();
    // Another version than libtorch's, and a compiler that does not work.
    program(&dir.path().join("python"), &python("1.2.3", "compile"));
    let output = peers(dir.path(), "--python ./python");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{message}");
    for part in [
        "this measures PyTorch 1.2.3",
        "left out: PyTorch compile of llama ended with exit code 1; its last lines:",
        "MemoryError: too much",
        "round 1 of 1",
        "f32; PyTorch 1.2.3 and libtorch",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "  canonc ",
        "  PyTorch eager, conv1d ",
        "3000 ms  1000 ms  3000–3000",
        "llamacanon: PyTorch's fastest step as installed (PyTorch eager) takes",
        "Canon layers add",
        "head_loss_grad",
        "causal_conv_grad",
        "of copy",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }
    // Three processes as installed; two, on Linux, with other settings.
    let tunables = fs::read_to_string(dir.path().join("tunables.txt")).unwrap();
    let kept = tunables.lines().filter(|line| line.contains("glibc.malloc.mmap_max=0")).count();
    assert_eq!(tunables.lines().filter(|line| line.is_empty()).count(), 3, "{tunables}");
    assert_eq!(kept, if cfg!(target_os = "linux") { 2 } else { 0 }, "{tunables}");
}

#[test]
fn any_architecture_is_timed_against_its_export_to_pytorch() {
    let dir = tempfile::tempdir().unwrap();
    let arch = "arch a { vocab 50   dim 16   norm_eps 1e-5   init lingua
        layers 1 of decoder { mixer gla { heads 2 } mlp swiglu { hidden 24 } } }
        arch b = a with { canon A }";
    fs::write(dir.path().join("a.canon"), arch).unwrap();
    // It ends unless it gets an exported module.
    let python = r#"#!/bin/sh
case "$*" in
  -c*) echo 2.0; exit ;;
  *--module*) ;;
  *) exit 1 ;;
esac
while [ "$1" != --module ]; do shift; done
found=no
while read -r line; do case "$line" in "class Model(Parameters):") found=yes;; esac; done < "$2"
[ $found = yes ] || exit 1
echo '{"torch": "2.0", "threads": 1, "parameters": COUNT}'
while read count; do echo '{"ms": [1000, 2000, 3000, 4000, 5000]}'; done
"#;
    let archs = Program::new([("a.canon".to_owned(), arch.to_owned())], Std::Embedded);
    let compiled = archs.compile("a.canon", "b").0.unwrap();
    let params = compiled.graph.params();
    let count: i64 = params.iter().map(|param| param.shape.iter().product::<i64>()).sum();
    program(&dir.path().join("python"), &python.replace("COUNT", &count.to_string()));
    let output = peers(dir.path(), "a.canon --arch b --python ./python");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{message}");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "  PyTorch compile ",
        "b: PyTorch's fastest step as installed (PyTorch eager) takes",
        "canonc's step of b by kernel",
        "gla_scan",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }
    assert!(!table.contains("conv1d") && !table.contains("llama"), "{table}");
    refused(2, dir.path(), "a.canon --python ./python", &["has 2 archs: a, b", "--arch a"]);
}

#[test]
fn a_process_that_fails_is_reported_with_its_last_lines() {
    let dir = tempfile::tempdir().unwrap();
    program(&dir.path().join("python"), &python("2.0", "eager"));
    let message = ["PyTorch eager of llama ended with exit code 1", "line one", "MemoryError"];
    refused(3, dir.path(), "--python ./python", &message);
    let miscounting = python("2.0", "nothing").replace("10235136", "5");
    program(&dir.path().join("python"), &miscounting);
    let message = ["PyTorch eager of llama has 5 parameters", "they cannot be compared"];
    refused(3, dir.path(), "--python ./python", &message);
}

#[test]
fn python_comes_from_the_path_an_option_or_a_new_environment() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let help = ["--make-environment` downloads it once (about 5 GB)", "cache/canonc/peers-"];
    refused(3, dir, "", &["python3 is not on PATH", help[0], help[1]]);
    refused(3, dir, "--make-environment", &["python3 is not on PATH"]);
    program(&dir.join("bin/python3"), WITHOUT_TORCH);
    refused(3, dir, "", &["No module named 'torch'", help[0]]);
    refused(3, dir, "--python bin/python3", &["cannot import torch", "-m pip install torch=="]);
    program(&dir.join("bin/garbage"), &python("\\033[31mnone", "nothing"));
    refused(3, dir, "--python bin/garbage", &["its torch.__version__ is not a version"]);
    refused(2, dir, "--python none", &["`none` cannot be started: there is no such file"]);
    program(&dir.join("bin/python3"), &python("0.4.1", "nothing"));
    refused(3, dir, "", &["python3 has PyTorch 0.4.1, and canonc uses libtorch", help[0]]);

    // An environment is made with the version of libtorch, and used again.
    for (name, path) in [("mkdir", "/bin/mkdir"), ("cp", "/bin/cp")] {
        std::os::unix::fs::symlink(path, dir.join("bin").join(name)).unwrap();
    }
    let libtorch = runtime::observe::observe().torch.version;
    let inside = dir.join("inside");
    program(&inside, &python(&libtorch, "--arch"));
    let maker = python("0.4.1", "nothing").replace("MADE", inside.to_str().unwrap());
    program(&dir.join("bin/python3"), &maker);
    // It dies at the first architecture, so the benchmark ends here.
    let used = "PyTorch eager of llama ended with exit code 1";
    refused(3, dir, "--make-environment", &["making a Python environment with PyTorch", used]);
    let pip = fs::read_to_string(dir.join("pip.txt")).unwrap();
    let version = libtorch.split('+').next().unwrap();
    assert!(pip.contains(&format!("torch=={version} numpy")), "{pip}");
    refused(3, dir, "", &[used]);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (words, part) in [
        ("--arch a", "without a file trains its own two architectures"),
        ("a.canon b.canon", "races one architecture"),
        ("none.canon", "none.canon"),
        ("--dtype f64", "no f64"),
        ("--device cuda", "on the CPU"),
        ("--seq-len 8,16", "one sequence length"),
        ("--python p --make-environment", "cannot be used with"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_canonc"))
            .current_dir(dir.path())
            .args(["bench", "peers"])
            .args(words.split_whitespace())
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words}: {message}");
        assert!(message.contains(part), "{words}: {message}");
    }
}

#[test]
fn serve_refuses_bad_requests_and_benchmarks_that_cannot_serve() {
    let dir = tempfile::tempdir().unwrap();
    let arch = "arch a { vocab 50   dim 16   norm_eps 1e-5   init lingua
        layers 1 of decoder { mixer attention { heads 2 } mlp swiglu { hidden 24 } } }";
    std::fs::write(dir.path().join("a.canon"), arch).unwrap();
    let serve = |words: &[&str], input: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_canonc"))
            .current_dir(dir.path())
            .arg("bench")
            .args(words)
            .arg("--serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A process that refuses its options reads nothing.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (words, input, message) in [
        (&["step", "a.canon", "--seq-len", "8"][..], &b"1\n\xff\xfe\n"[..], "not UTF-8"),
        (&["step", "a.canon", "--seq-len", "8"], b"many\n", "give a number of steps"),
        (&["peers"], b"", "only `bench step`"),
        (&["step", "a.canon", "--seq-len", "8,16"], b"", "one length"),
    ] {
        let (code, text) = serve(words, input);
        assert!(code == Some(2) && text.contains(message), "{words:?}: {text}");
    }
}

#[test]
fn options_that_a_benchmark_would_ignore_are_refused() {
    for (words, message) in [
        ("step a.canon --python p", "takes no --python"),
        ("step a.canon --make-environment", "takes no --make-environment"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_canonc"))
            .arg("bench")
            .args(words.split_whitespace())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {text}");
        assert!(text.contains(message), "{words}: {text}");
    }
}
