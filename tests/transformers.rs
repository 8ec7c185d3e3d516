//! Plain Llamas that `canonc export` wrote, in the real `transformers`; and `.pth` files in the real `torch.load`.
//!
//! In: archs and weights made here. Out: nothing but a verdict. Must stay true: logits are equal to f32 rounding; the
//! Python is the one that CANONC_TRANSFORMERS_PYTHON names, or one of this machine that has what is needed, or an
//! environment made once under the target folder; where none can be made the test says what is missing and that nothing
//! was tested. It is no part of `cargo test`, since that environment takes a minute and 870 MB: `make
//! test-transformers`, which CI calls.
#![cfg(feature = "torch")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use compiler::program::{Program, Std};
use runtime::weights::{Weights, file};

/// What the environment holds: the release's own `transformers`, and a framework that PyPI has in a size for tests.
/// PyTorch from PyPI brings gigabytes of CUDA; where it is there already, it is used.
const PACKAGES: [&str; 6] = [
    "transformers==4.47.1",
    "flax==0.10.2",
    "jax==0.4.36",
    "jaxlib==0.4.36",
    "numpy==2.1.3",
    "safetensors==0.5.3",
];

const HAS_TORCH: &str = "import torch, transformers, safetensors.numpy, numpy";
const HAS_FLAX: &str = "import flax, jax, transformers, safetensors.numpy, numpy";

/// Plain Llamas of both RoPE layouts, with and without grouped queries, a tied head, heads that are wider together
/// than the model and turn more slowly; the last two are known to PyTorch's class alone.
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
";

struct Python {
    program: PathBuf,
    has_torch: bool,
}

fn imports(python: &Path, what: &str) -> bool {
    let run = Command::new(python).args(["-c", what]).output();
    run.is_ok_and(|output| output.status.success())
}

fn run(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let said =
        String::from_utf8_lossy(&[output.stdout.clone(), output.stderr].concat()).into_owned();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(said),
    }
}

#[expect(clippy::disallowed_methods, reason = "a person names a Python that has PyTorch")]
fn named() -> Option<PathBuf> {
    std::env::var_os("CANONC_TRANSFORMERS_PYTHON").map(PathBuf::from)
}

/// The Python of both tests, found or made once; `None` where none can be, which has been said.
fn python() -> Option<&'static Python> {
    static PYTHON: OnceLock<Option<Python>> = OnceLock::new();
    PYTHON.get_or_init(find_python).as_ref()
}

fn find_python() -> Option<Python> {
    if let Some(program) = named() {
        let has_torch = imports(&program, HAS_TORCH);
        assert!(
            has_torch || imports(&program, HAS_FLAX),
            "CANONC_TRANSFORMERS_PYTHON = {} has neither torch nor flax beside transformers, safetensors and numpy",
            program.display()
        );
        return Some(Python { program, has_torch });
    }
    let own = PathBuf::from("python3");
    if imports(&own, HAS_TORCH) {
        return Some(Python { program: own, has_torch: true });
    }
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("transformers-4.47.1");
    let program = home.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if !imports(&program, HAS_FLAX) {
        let made = run(&own, &["-m", "venv", "--clear", &home.to_string_lossy()]).and_then(|_| {
            let quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
            run(&program, &[quiet.as_slice(), &PACKAGES].concat())
        });
        if let Err(why) = made {
            eprintln!(
                "NOT TESTED: no Python with `transformers` could be made: {}\n\
                 help: install python3 with pip and venv and connect to a package index once, or name a Python \
                 that has transformers and torch: CANONC_TRANSFORMERS_PYTHON=/path/to/python",
                why.trim()
            );
            return None;
        }
        assert!(imports(&program, HAS_FLAX), "{} was made and cannot import flax", home.display());
    }
    Some(Python { program, has_torch: false })
}

fn canonc(folder: &Path, words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_canonc"))
        .current_dir(folder)
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
}

fn floats(path: &Path, tensor: &str) -> Vec<f64> {
    Vec::try_from(file::read(path).unwrap()[tensor].reshape([-1])).unwrap()
}

/// A folder with the archs, weights of each, and tokens.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.canon"), ARCHS).unwrap();
    let program = Program::new([("a.canon".to_owned(), ARCHS.to_owned())], Std::Embedded);
    for name in program.archs("a.canon") {
        let (compiled, found) = program.compile("a.canon", &name);
        let compiled = compiled.unwrap_or_else(|| panic!("{}", program.render(&found)));
        let weights = Weights::init(&compiled.graph, 7).unwrap();
        weights.save(&place.path().join(format!("{name}.safetensors"))).unwrap();
    }
    let tokens = (0..2 * 37).map(|n: i64| (n * n * 31 + n * 7 + 5) % 97);
    let header = r#"{"tokens":{"dtype":"I64","shape":[2,37],"data_offsets":[0,592]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(tokens.flat_map(i64::to_le_bytes));
    fs::write(place.path().join("t.safetensors"), bytes).unwrap();
    place
}

#[test]
fn plain_llamas_give_their_logits_in_the_real_transformers() {
    let Some(python) = python() else { return };
    let place = place();
    let root = place.path();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transformers_logits.py");
    let mut tested = BTreeMap::new();
    for name in ["plain", "grouped", "halved", "tied_head", "wide_heads"] {
        if ["tied_head", "wide_heads"].contains(&name) && !python.has_torch {
            eprintln!(
                "note: Flax's Llama knows no {name}, so that was not tested; torch would test it"
            );
            continue;
        }
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
        let said = run(&python.program, &paths.each_ref().map(String::as_str))
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        let (a, b) = (floats(&root.join(&ours), "logits"), floats(&theirs, "logits"));
        assert_eq!(a.len(), b.len());
        let largest = a.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let off = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        // A few units in the last place of the largest: sums of 96 products in another order.
        let allowed = 32.0 * f64::from(f32::EPSILON) * largest.max(1.0);
        assert!(off <= allowed, "{name}: {off:e}, and {allowed:e} is allowed: {said}");
        tested.insert(name, off);
        eprintln!("{name}: {off:.1e} of {largest:.1}, {}", said.trim());
    }
    assert!(tested.len() >= 3);
}

#[test]
fn pth_files_are_read_by_torch_load_where_there_is_one() {
    let Some(python) = python() else { return };
    if !python.has_torch {
        eprintln!(
            "note: no PyTorch on this machine, so torch.load did not read our .pth; \
             CANONC_TRANSFORMERS_PYTHON=/path/to/python names one that has it"
        );
        return;
    }
    let place = place();
    let root = place.path();
    let words = ["export", "a.canon", "--arch", "plain", "--weights", "plain.safetensors"];
    canonc(root, &[words.as_slice(), &["--to", "lingua", "--out", "release"]].concat());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transformers_logits.py");
    let (pth, out) = (root.join("release/consolidated.pth"), root.join("held.safetensors"));
    let [script, pth, out_text] =
        [&script, &pth, &out].map(|path| path.to_string_lossy().into_owned());
    run(&python.program, &[&script, "pth", &pth, &out_text]).unwrap_or_else(|why| panic!("{why}"));
    let (held, ours) =
        (file::read(&out).unwrap(), file::read(&root.join("plain.safetensors")).unwrap());
    assert_eq!(held.len(), ours.len());
    for (theirs, name) in
        [("layers.1.feed_forward.w3.weight", "layers.1.mlp.up"), ("output.weight", "head.output")]
    {
        assert_eq!(held[theirs], ours[name], "{theirs}");
    }
}
