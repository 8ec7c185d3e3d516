//! `canonc` starts without libtorch, and says what is missing if a command needs it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use crate::{GOOD, folder};

/// The program alone in a folder, with or without the other one, and without library paths.
fn placed(dir: &Path, with_torch: bool) -> std::path::PathBuf {
    let program = dir.join("canonc");
    fs::copy(env!("CARGO_BIN_EXE_canonc"), &program).unwrap();
    if with_torch {
        fs::copy(env!("CARGO_BIN_EXE_canonc-torch"), dir.join("canonc-torch")).unwrap();
    }
    program
}

fn started(program: &Path, words: &[&str]) -> Output {
    let dir = program.parent().unwrap();
    Command::new(program)
        .args(words)
        .current_dir(dir)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The loader opens every library that the program needs; none belongs to libtorch.
#[test]
fn no_library_of_torch_is_loaded() {
    let output = Command::new(env!("CARGO_BIN_EXE_canonc"))
        .arg("--version")
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()
        .unwrap();
    let libraries = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(libraries.contains("libc.so"), "{libraries}");
    // Addresses are hexadecimal digits.
    assert!(!libraries.contains("libtorch") && !libraries.contains("libc10"), "{libraries}");
}

#[test]
fn the_program_alone_knows_its_version_and_the_language() {
    let dir = folder(&[("arch/good.canon", GOOD)]);
    let program = placed(dir.path(), false);
    let output = started(&program, &["--version"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("canonc "));
    let output = started(&program, &["check"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = started(&program, &["doctor", "--json"]);
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("canonc-torch")
    );
    let output = started(&program, &["run", "runs/none"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("`canonc-torch`, which computes with tensors, is missing"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_library_that_is_not_found_is_named() {
    let dir = folder(&[]);
    // Outside the clone, where no run path leads to the libraries.
    let program = placed(dir.path(), true);
    let torch_program = dir.path().join("canonc-torch");
    let bytes = fs::read(&torch_program).unwrap();
    // Another name of the same length that no machine has.
    let (name, no_machine_has) = (b"libtorch_cpu.so\0", b"libtorch_xyz.so\0");
    let positions = bytes.windows(name.len()).enumerate().filter(|(_, window)| window == name);
    let mut changed = bytes.clone();
    for (offset, _) in positions {
        changed[offset..offset + name.len()].copy_from_slice(no_machine_has);
    }
    assert_ne!(changed, bytes);
    fs::write(&torch_program, changed).unwrap();
    let output = started(&program, &["run", "x"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("does not find the library libtorch_xyz.so"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_link_to_the_program_finds_the_other_one() {
    let dir = folder(&[]);
    let link = dir.path().join("linked");
    symlink(env!("CARGO_BIN_EXE_canonc"), &link).unwrap();
    let output = started(&link, &["run", "no-such.lock"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(!stderr(&output).contains("canonc-torch"), "{}", stderr(&output));
}

/// `canonc` as the launcher of the Python package starts it.
fn launched(program: &Path, torch: Option<&Path>, words: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(words).current_dir(program.parent().unwrap()).env_remove("LD_LIBRARY_PATH");
    if let Some(torch) = torch {
        command.env("CANONC_TORCH", torch);
    }
    command.env("CANONC_PYTHON", "/env/bin/python").output().unwrap()
}

/// A folder like an installed `torch`, of a version, with libraries of no content.
fn torch(dir: &Path, version: &str) {
    fs::create_dir_all(dir.join("lib")).unwrap();
    fs::write(dir.join("lib/libtorch_cpu.so"), "").unwrap();
    fs::write(dir.join("version.py"), format!("__version__ = '{version}'\n")).unwrap();
}

#[test]
fn an_environment_without_pytorch_or_with_another_one_is_refused() {
    let dir = folder(&[("arch/good.canon", GOOD)]);
    let program = placed(dir.path(), true);
    let help = "`/env/bin/python -m pip install torch==2.11.0` installs it";
    let refused = |torch: Option<&Path>, reason: &str| {
        let output = launched(&program, torch, &["run", "runs/none"]);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(
            stderr(&output).contains(reason) && stderr(&output).contains(help),
            "{}",
            stderr(&output)
        );
        // The same words in the report of the machine, and nothing else needs PyTorch.
        let output = launched(&program, torch, &["doctor"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(reason) && text.contains(help), "{text}");
        let output = launched(&program, torch, &["check"]);
        assert!(output.status.success(), "{}", stderr(&output));
    };
    refused(None, "this command computes with PyTorch, and /env/bin/python has none");
    let installed = dir.path().join("other");
    torch(&installed, "2.12.1+cpu");
    refused(Some(&installed), "is 2.12.1+cpu, and this canonc works with 2.11");
    refused(Some(&dir.path().join("nothing")), "it has no lib/libtorch_cpu.so");
    fs::write(installed.join("version.py"), "").unwrap();
    refused(Some(&installed), "is of an unknown version, and this canonc works with 2.11");
}

/// The named PyTorch is loaded, and not that of the run path.
#[test]
fn the_named_pytorch_is_the_one_that_is_loaded() {
    let dir = folder(&[]);
    let named = dir.path().join("torch");
    fs::create_dir_all(&named).unwrap();
    let output = started(Path::new(env!("CARGO_BIN_EXE_canonc")), &["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let fact = |report: &serde_json::Value| {
        let facts = report["facts"].as_array().unwrap().clone();
        let entry = facts.into_iter().find(|fact| fact["name"] == "torch").unwrap();
        entry["value"].as_str().unwrap().to_owned()
    };
    let usual = fact(&report).split_once(", from ").unwrap().1.to_owned();
    symlink(&usual, named.join("lib")).unwrap();
    symlink(Path::new(&usual).join("../../nvidia"), dir.path().join("nvidia")).unwrap();
    fs::write(named.join("version.py"), "__version__ = '2.11.0+cpu'\n").unwrap();
    let output =
        launched(Path::new(env!("CARGO_BIN_EXE_canonc")), Some(&named), &["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let value = fact(&report);
    assert!(value.contains(&*named.join("lib").to_string_lossy()), "{value}, usually {usual}");
}

#[test]
fn doctor_says_whether_gpus_can_exchange_tensors() {
    let dir = folder(&[("libcanonc_nccl.so", "")]);
    for (name, state) in [("libcanonc_nccl.so", "has"), ("nothing.so", "lacks")] {
        let library = dir.path().join(name);
        let output = Command::new(env!("CARGO_BIN_EXE_canonc"))
            .args(["doctor", "--json"])
            .env("CANONC_NCCL", &library)
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let facts = report["facts"].as_array().unwrap();
        let fact = facts.iter().find(|fact| fact["name"] == "GPU ranks").unwrap();
        assert_eq!(fact["state"], state, "{fact}");
        let text = fact.to_string();
        assert!(text.contains(&*library.to_string_lossy()) || text.contains("nccl.sh"), "{text}");
    }
}
