//! Tests of `canonc serve` with other people's clients: the `openai` package and lm-evaluation-harness, which must have
//! the same scores over HTTP as with the exported folder in `transformers`.
//!
//! `cargo test` does not run these tests, since their Python environment takes five minutes and 6 GB; `make test-serve`
//! does, in CI. If the environment of `make test-transformers` exists, these packages are added to it.
//! CANONC_SERVE_PYTHON names another Python that has them.
#![cfg(feature = "torch")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use compiler::program::{Program, Std};
use interop::dtype::Dtype;
use interop::export::{Request, To, write};
use interop::tokenizer::Tokenizer;
use runtime::weights::Weights;

/// The packages that the clients need, with versions; torch and transformers as in the README of an exported folder.
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/requirements.txt");
/// Fetches them, and all that they need, by hash.
const FETCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wheels.sh");
const NEEDED: &str = "import openai, lm_eval, tenacity, aiohttp, torch, transformers";

/// The machine may be shared, and idle threads of a pool spin.
const ONE_THREAD: [(&str, &str); 2] = [("OMP_NUM_THREADS", "1"), ("MKL_NUM_THREADS", "1")];

const ARCH: &str = "arch llama { vocab 258  dim 48  norm_eps 1e-5  init lingua
  layers 2 of decoder { mixer attention { heads 4, kv_heads 2, rope { theta 10000, layout half } }  mlp swiglu { hidden 96 } } }";

/// The Python in CANONC_SERVE_PYTHON.
fn named() -> Option<PathBuf> {
    let mut variables = std::env::vars_os();
    let python = variables.find(|(name, _)| name == "CANONC_SERVE_PYTHON");
    python.map(|(_, value)| PathBuf::from(value))
}

/// Shows what a script prints.
fn show(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

fn imports(python: &Path) -> bool {
    Command::new(python).args(["-c", NEEDED]).output().is_ok_and(|output| output.status.success())
}

fn python() -> &'static PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        if let Some(program) = named() {
            assert!(imports(&program), "{} lacks some of {REQUIREMENTS}", program.display());
            return program;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let shared = folder.join("readme/.venv");
        let home = if shared.exists() { shared } else { folder.join("clients") };
        let python = home.join("bin/python");
        if !imports(&python) {
            if !python.exists() {
                let created = Command::new("python3").args(["-m", "venv"]).arg(&home).status();
                assert!(
                    created.is_ok_and(|status| status.success()),
                    "python3 -m venv does not work"
                );
            }
            let wheels = folder.join("clients-wheels");
            let fetched = Command::new("bash").arg(FETCH).arg(&wheels).status();
            assert!(fetched.is_ok_and(|status| status.success()), "{FETCH} does not work");
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip", "install", "--quiet", "--no-index", "-r", REQUIREMENTS]);
            let got = pip.arg("--find-links").arg(&wheels).status();
            assert!(got.is_ok_and(|status| status.success()), "pip cannot install {REQUIREMENTS}");
            fs::remove_dir_all(&wheels).unwrap();
        }
        python
    })
}

/// The exported folder, a server with the same weights, and its address.
struct Served {
    dir: tempfile::TempDir,
    child: Child,
    address: String,
}

impl Served {
    fn start() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::write(root.join("a.canon"), ARCH).unwrap();
        let program = Program::new([("a.canon".to_owned(), ARCH.to_owned())], Std::Embedded);
        let compiled = program.compile("a.canon", "llama").0.unwrap();
        let weights = root.join("w.safetensors");
        Weights::init(&compiled.graph, 7).unwrap().save(&weights).unwrap();
        let bytes = Tokenizer::bytes(256, 257);
        let request = Request {
            compiled: &compiled,
            experiment: None,
            weights: Some(&weights),
            to: To::HuggingFace,
            dtype: Dtype::F32,
            gpus_per_node: 1,
            ranks: None,
            comparison: None,
            origin: None,
            tokenizer: Ok(&bytes),
            imported_text: None,
            initial: None,
        };
        write(&request, &root.join("llama")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_canonc"))
            .current_dir(root)
            .args(["serve", "llama", "--port", "0"])
            .envs(ONE_THREAD)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_once(" at ").unwrap().1.trim().to_owned();
        Served { dir, child, address }
    }

    /// Runs one of the scripts; returns what it prints.
    fn run(&self, script: &str, more: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
        let output = Command::new(python())
            .arg(script)
            .arg(&self.address)
            .args(more)
            .current_dir(self.dir.path())
            .envs([
                ("HF_HUB_OFFLINE", "1"),
                ("HF_DATASETS_OFFLINE", "1"),
                ("TOKENIZERS_PARALLELISM", "false"),
            ])
            .envs(ONE_THREAD)
            .env("HF_HOME", self.dir.path().join("cache"))
            .output()
            .unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{stdout}{stderr}");
        stdout.into_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_openai_client_works() {
    let served = Served::start();
    let stdout = served.run("openai_client.py", &[]);
    assert_eq!(stdout.trim(), "all right", "{stdout}");
}

#[test]
fn the_harness_has_the_same_scores_by_http_as_with_the_folder() {
    let served = Served::start();
    let folder = served.dir.path().join("llama");
    let stdout = served.run("harness.py", &[folder.to_str().unwrap()]);
    show(&stdout);
    assert!(stdout.trim().ends_with(" texts equal"), "{stdout}");
}

#[test]
fn a_short_load_leaves_no_error() {
    let served = Served::start();
    let stdout = served.run("load.py", &["--clients", "8", "--requests", "60", "--seed", "1"]);
    show(&stdout);
    assert!(stdout.contains("errors") && stdout.trim().ends_with("no error"), "{stdout}");
}
