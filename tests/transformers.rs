//! Tests of `canonc export` in real programs: any arch as a PyTorch module and in `transformers` 5 and 4, `.pth` files in
//! `torch.load`, and the README of an exported folder, followed word by word.
//!
//! The environment is made once, from that README, under the target folder, with packages of version 4 beside it; without
//! it these tests fail. There pip sees no index, but wheels that were fetched by hash (`tests/wheels.sh`).
//!
//! `cargo test` does not run these tests, since the environment takes five minutes and 6 GB; `make test-transformers` does,
//! in CI. CANONC_TRANSFORMERS_PYTHON names another Python for all tests but the README's.
#![cfg(feature = "torch")]
#![expect(clippy::print_stderr, reason = "says how far off numbers are")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use compiler::program::{Program, Std};
use runtime::weights::{Weights, file};

#[path = "transformers/matrix.rs"]
mod matrix;
#[path = "transformers/modules.rs"]
mod modules;
#[path = "transformers/package.rs"]
mod package;
#[path = "transformers/random.rs"]
mod random;
#[path = "transformers/folders.rs"]
mod folders;
#[path = "transformers/suites.rs"]
mod suites;
#[path = "transformers/trainer.rs"]
mod trainer;

const NEEDED: &str = "import torch, transformers, safetensors.numpy, numpy, lm_eval, peft, accelerate, importlib.util; importlib.util.find_spec(\"fla\").origin";
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/requirements.txt");
/// All packages of the environment with their hashes, and those of version 4.
const LOCKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/requirements.locked.txt");
const OLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/requirements-older.locked.txt");

/// Plain Llamas: both RoPE layouts, with and without grouped queries, a tied head, heads that together are wider
/// than the model with a larger RoPE base; and one that only the published code supports.
const ARCHS: &str = "
arch plain {
  vocab 97   dim 32   norm_eps 1e-6
  init lingua
  layers 2 of decoder {
    mixer attention { heads 4, rope { theta 10000, layout interleaved } }
    mlp swiglu { hidden 96 }
  }
}
arch grouped = plain with { mixer.kv_heads 2 }
arch halved = grouped with { mixer.rope.layout half }
arch tied_head = grouped with { head tied }
arch wide_heads = grouped with { mixer.head_dim 16   mixer.rope.theta 100000 }
arch canon = grouped with { canon A, B, C, D }
";

fn imports(python: &Path, what: &str) -> bool {
    let run = Command::new(python).args(["-c", what]).output();
    run.is_ok_and(|output| output.status.success())
}

fn run(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let output_text =
        String::from_utf8_lossy(&[output.stdout.clone(), output.stderr].concat()).into_owned();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(output_text),
    }
}

fn named() -> Option<PathBuf> {
    std::env::var_os("CANONC_TRANSFORMERS_PYTHON").map(PathBuf::from)
}

/// The Python for the tests of logits.
fn python() -> PathBuf {
    let Some(program) = named() else { return followed().clone() };
    assert!(
        imports(&program, NEEDED),
        "CANONC_TRANSFORMERS_PYTHON = {} lacks some of {REQUIREMENTS}",
        program.display()
    );
    program
}

/// A text's fenced block in a given language.
fn block<'a>(text: &'a str, language: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

/// The file that says that the packages of a list are installed in a folder.
fn mark(folder: &Path, list: &str) -> PathBuf {
    let digest = blake3::hash(&fs::read(list).unwrap()).to_hex();
    folder.join(format!("installed-{}", &digest[..16]))
}

/// The Python of an environment made by following the README of an exported folder.
fn followed() -> &'static PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
        fs::create_dir_all(&home).unwrap();
        let (wheels, installed) = (home.join("wheels"), mark(&home, LOCKED));
        if !installed.exists() {
            for older in [".venv", "transformers4"] {
                let _ = fs::remove_dir_all(home.join(older));
            }
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wheels.sh");
            run(Path::new("bash"), &[script, &wheels.to_string_lossy()]).unwrap_or_else(|error| {
                panic!(
                    "the packages of {LOCKED} could not be fetched: {error}\n\
                     help: install python3 with pip and venv, connect to a package index once and have 9 GB of room"
                )
            });
        }
        let dir = archs_folder();
        let words = ["export", "a.canon", "--arch", "plain", "--weights", "plain.safetensors"];
        canonc(dir.path(), &[words.as_slice(), &["--to", "hf", "--out", "plain"]].concat());
        for entry in fs::read_dir(dir.path().join("plain")).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, home.join(path.file_name().unwrap())).unwrap();
        }
        let readme = fs::read_to_string(home.join("README.md")).unwrap();
        fs::write(home.join("load.py"), block(&readme, "python")).unwrap();
        fs::write(home.join("follow.sh"), block(&readme, "sh")).unwrap();
        let mut follow = Command::new("sh");
        follow.args(["-e", "follow.sh"]).current_dir(&home);
        follow.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", &wheels);
        let output = follow.output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(
            output.status.success(),
            "the README could not be followed in {}: {stderr}\n\
             help: {REQUIREMENTS} has to have the versions that the README names",
            home.display()
        );
        assert_eq!(stdout.lines().last(), Some("[1, 3, 97]"), "{stdout}{stderr}");
        let python = home.join(".venv/bin/python");
        // Before any test uses the environment.
        if !installed.exists() {
            let links = wheels.to_string_lossy();
            let words = ["-m", "pip", "install", "--no-index", "--find-links", &links, "-r", REQUIREMENTS];
            run(&python, &words).unwrap_or_else(|error| panic!("{error}"));
            fs::remove_dir_all(&wheels).unwrap();
            fs::write(&installed, "").unwrap();
        }
        assert!(imports(&python, NEEDED), "{} lacks what the tests need", python.display());
        python
    })
}

/// A folder that turns the Python for the tests into one with the last `transformers` 4, as PYTHONPATH.
fn older() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme/transformers4");
        let installed = mark(&folder, OLDER);
        if !installed.exists() {
            let target = folder.to_string_lossy();
            let words = ["-m", "pip", "install", "--no-deps", "--upgrade", "--target", &target];
            let words = [words.as_slice(), &["--require-hashes", "-r", OLDER]].concat();
            run(&python(), &words).unwrap_or_else(|error| panic!("{error}"));
            fs::write(&installed, "").unwrap();
        }
        folder
    })
}

fn canonc(folder: &Path, words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_canonc"))
        .current_dir(folder)
        .args(words)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {stderr}");
}

fn floats(path: &Path, tensor: &str) -> Vec<f64> {
    Vec::try_from(file::read(path).unwrap()[tensor].reshape([-1])).unwrap()
}

/// A folder with the archs, their weights, and tokens.
fn archs_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.canon"), ARCHS).unwrap();
    let program = Program::new([("a.canon".to_owned(), ARCHS.to_owned())], Std::Embedded);
    for name in program.archs("a.canon") {
        let (compiled, diagnostics) = program.compile("a.canon", &name);
        let compiled = compiled.unwrap_or_else(|| panic!("{}", program.render(&diagnostics)));
        let weights = Weights::init(&compiled.graph, 7).unwrap();
        weights.save(&dir.path().join(format!("{name}.safetensors"))).unwrap();
    }
    let tokens = (0..2 * 37).map(|n: i64| (n * n * 31 + n * 7 + 5) % 97);
    let header = r#"{"tokens":{"dtype":"I64","shape":[2,37],"data_offsets":[0,592]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(tokens.flat_map(i64::to_le_bytes));
    fs::write(dir.path().join("t.safetensors"), bytes).unwrap();
    dir
}

#[test]
fn plain_llamas_give_their_logits_in_the_real_transformers() {
    let python = python();
    let dir = archs_folder();
    let root = dir.path();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transformers_logits.py");
    for name in ["plain", "grouped", "halved", "tied_head", "wide_heads"] {
        let weights = format!("{name}.safetensors");
        let ours = format!("{name}-ours.safetensors");
        let given = ["--arch", name, "--weights", &weights];
        let forward = ["forward", "a.canon", "--tokens", "t.safetensors", "--out", &ours];
        canonc(root, &[forward.as_slice(), &given].concat());
        canonc(
            root,
            &[["export", "a.canon", "--to", "hf", "--out", name].as_slice(), &given].concat(),
        );
        let theirs = root.join(format!("{name}-theirs.safetensors"));
        let paths = [&script, &root.join(name), &root.join("t.safetensors"), &theirs];
        let paths = paths.map(|path| path.to_string_lossy().into_owned());
        let stdout = run(&python, &paths.each_ref().map(String::as_str))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let (a, b) = (floats(&root.join(&ours), "logits"), floats(&theirs, "logits"));
        assert_eq!(a.len(), b.len());
        let largest = a.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let off = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        // Relative to the largest logit, allow a few units in the last place: sums of 96 products in another order.
        let allowed = 32.0 * f64::from(f32::EPSILON) * largest.max(1.0);
        assert!(off <= allowed, "{name}: {off:e}, and {allowed:e} is allowed: {stdout}");
        eprintln!("{name}: {off:.1e} of {largest:.1}, {}", stdout.trim());
    }
}

#[test]
fn pth_files_are_read_by_torch_load() {
    let python = python();
    let dir = archs_folder();
    let root = dir.path();
    let words = ["export", "a.canon", "--arch", "plain", "--weights", "plain.safetensors"];
    canonc(root, &[words.as_slice(), &["--to", "lingua", "--out", "release"]].concat());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transformers_logits.py");
    let (pth, out) = (root.join("release/default/consolidated.pth"), root.join("held.safetensors"));
    let [script, pth, out_text] =
        [&script, &pth, &out].map(|path| path.to_string_lossy().into_owned());
    run(&python, &[&script, "pth", &pth, &out_text]).unwrap_or_else(|error| panic!("{error}"));
    let (held, ours) =
        (file::read(&out).unwrap(), file::read(&root.join("plain.safetensors")).unwrap());
    assert_eq!(held.len(), ours.len());
    for (theirs, name) in
        [("layers.1.feed_forward.w3.weight", "layers.1.mlp.up"), ("output.weight", "head.output")]
    {
        assert_eq!(held[theirs], ours[name], "{theirs}");
    }
}

#[test]
fn the_readme_of_an_exported_folder_works_word_by_word() {
    let python = followed();
    let dir = archs_folder();
    let root = dir.path();
    // In another dtype; with the model's own code; and for an arch with a class published elsewhere: a fake of that class
    // shows that the README's own lines find it, pass its `from_pretrained` and read this folder.
    let stand_in = "from transformers import LlamaConfig, LlamaForCausalLM
class LlamaCanonConfig(LlamaConfig):
    model_type = 'LlamaCanon'
class LlamaCanonForCausalLM(LlamaForCausalLM):
    config_class = LlamaCanonConfig
    @classmethod
    def from_pretrained(cls, *given, **named):
        raise SystemExit('it looks for default/params.json')
";
    for (name, to) in [("plain", "hf"), ("canon", "release"), ("canon", "hf")] {
        let weights = format!("{name}.safetensors");
        let words = ["export", "a.canon", "--arch", name, "--weights", &weights];
        let out = format!("{name}-{to}");
        let to_words = ["--to", to, "--dtype", "bf16", "--out", &out];
        canonc(root, &[words.as_slice(), &to_words].concat());
        let folder = root.join(&out);
        let readme = fs::read_to_string(folder.join("README.md")).unwrap();
        fs::write(folder.join("load.py"), block(&readme, "python")).unwrap();
        if to == "release" {
            let shell = block(&readme, "sh");
            assert!(shell.contains("git clone") && shell.ends_with("load.py\n"), "{shell}");
            let code = folder.join("PhysicsLM4/huggingface");
            fs::create_dir_all(&code).unwrap();
            fs::write(code.join("modeling_llama_canon.py"), stand_in).unwrap();
        }
        let output = Command::new(python).arg("load.py").current_dir(&folder).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "[1, 3, 97]\n", "{out}: {stderr}");
    }
}
