//! Every id follows from the text it covers, in two implementations that share no code with the compiler.
//!
//! If Python or its package is missing, the test fails on CI and prints a note elsewhere; the implementation in Rust always
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use compiler::canonical::Identity;
use compiler::op;
use compiler::program::Compiled;
use lab::experiment::LockedArch;
use lab::lock::{ArchLock, Lock, write};

use support::programs::{TEXT, compiled_file, compiled_in, files, program_of, read, root};
use support::scratch;

/// An arch may have the name of anything that its text calls, such as `canon` or `uniform`.
#[test]
fn the_name_of_an_arch_has_no_effect() {
    let text = |name: &str| {
        format!(
            "arch {name} {{ vocab 300 dim 8 norm_eps 1e-5 init lingua canon A, B layers 2 of decoder \
             {{ mixer attention {{ heads 2 }} mlp swiglu {{ hidden 16 }} }} }}"
        )
    };
    let wanted = compiled_in(&program_of(&text("plain")), TEXT, "plain").identity;
    let others =
        ["uniform", "trunc_normal", "zeros", "decoder", "attention", "lingua", "rsqrt", "ceil_to"];
    let mut locked = 0;
    for name in op::ALL.iter().map(|primitive| primitive.name).chain(others) {
        let program = program_of(&text(name));
        // Some names are keywords.
        let (Some(compiled), _) = program.compile(TEXT, name) else { continue };
        assert_eq!(compiled.identity, wanted, "{name}");
        LockedArch::new(&compiled).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let derived = format!("{}\narch other = {name} with {{ canon C }}\n", text(name));
        let program = program_of(&derived);
        let with_canon = compiled_in(&program, TEXT, "other");
        assert_ne!(with_canon.identity, wanted, "{name}");
        LockedArch::new(&with_canon).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        locked += 1;
    }
    assert!(locked > 40, "{locked}");
}

fn digest(tag: &str, text: &str) -> String {
    blake3::hash(format!("{tag}\n{text}").as_bytes()).to_hex().to_string()
}

/// The blocks of a graph's text: (`body` or `graph`, its name, its lines).
fn blocks(text: &str) -> Vec<(&str, &str, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let (kind, name) = line.split_once(' ').unwrap();
        let inside = lines.by_ref().take_while(|line| *line != "end");
        blocks.push((kind, name, inside.map(|line| format!("{line}\n")).collect()));
    }
    blocks
}

/// The text between `{` and the last `}` of a line, and the text after it.
fn braces(line: &str) -> (&str, &str) {
    let (_, rest) = line.split_once('{').unwrap();
    rest.rsplit_once('}').unwrap()
}

/// The numbers after a word: `params 3 1 4 states 1`.
fn numbers(rest: &str, word: &str) -> Vec<usize> {
    let words: Vec<&str> = rest.split(' ').collect();
    let from = words.iter().position(|w| *w == word).map_or(words.len(), |at| at + 1);
    words.iter().skip(from).map_while(|w| w.parse().ok()).collect()
}

/// Reads a body's lines: nodes are numbered and only name earlier ones; parameters and states are
/// numbered by first use. Returns `(init, shape)` for each parameter.
fn read_body(text: &str, bodies: &BTreeMap<&str, Vec<String>>) -> Vec<String> {
    let mut params: Vec<String> = Vec::new();
    let mut states = 0;
    let lines: Vec<&str> = text.lines().collect();
    let (last, nodes) = lines.split_last().unwrap();
    assert!(last.starts_with("return %"), "{last}");
    for (number, line) in nodes.iter().enumerate() {
        let (name, node) = line.split_once(" = ").unwrap();
        assert_eq!(name, format!("%{number}"), "{line}");
        for used in operands(node) {
            assert!(used.parse::<usize>().unwrap() < number, "{line}");
        }
        let mut use_param = |index: usize, declared: String| {
            if index == params.len() {
                params.push(declared);
            } else {
                assert_eq!(
                    params[index], declared,
                    "{line}: one parameter has two shapes or init rules"
                );
            }
        };
        match node.split([' ', '@']).next().unwrap() {
            "param" => {
                let index = node.split(' ').nth(1).unwrap().parse().unwrap();
                use_param(index, braces(node).0.to_owned());
            }
            "state" => {
                assert_eq!(node.split(' ').nth(1).unwrap().parse(), Ok(states), "{line}");
                states += 1;
            }
            "slot" | "layer" => {
                let (inside, rest) = braces(node);
                let body = inside.rsplit(' ').next().unwrap();
                let inner = bodies.get(body).unwrap_or_else(|| panic!("no body {body}"));
                let used = numbers(rest, "params");
                assert_eq!(used.len(), inner.len(), "{line}");
                used.iter()
                    .zip(inner)
                    .for_each(|(index, declared)| use_param(*index, declared.clone()));
                for state in numbers(rest, "states") {
                    assert_eq!(state, states, "{line}");
                    states += 1;
                }
            }
            _ => {}
        }
    }
    params
}

/// The numbers of the nodes a node uses.
fn operands(node: &str) -> impl Iterator<Item = &str> {
    let inside = node.rsplit_once(" (").map_or("", |(_, rest)| rest);
    inside.split(['%', ' ', ')', '.']).filter(|part| !part.is_empty()).scan(true, |on, part| {
        *on &= part.chars().all(|c| c.is_ascii_digit());
        on.then_some(part)
    })
}

/// Recomputes all ids; returns their number.
fn recomputed(name: &str, identity: &Identity) -> usize {
    let mut bodies: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let blocks = blocks(&identity.graph_text);
    let (graph_block, inner) = blocks.split_last().unwrap();
    // Fills before the layers that hold them, in whatever order their digests are listed.
    let mut waiting: Vec<_> = inner.iter().collect();
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain(|(kind, digest_of, text)| {
            let fills = text.split("fill ").skip(1).map(|rest| &rest[..64]);
            if !fills.into_iter().all(|fill| bodies.contains_key(fill)) {
                return true;
            }
            assert_eq!(*kind, "body");
            assert_eq!(*digest_of, digest("canonc.body.v1", text), "{name}");
            let params = read_body(text, &bodies);
            assert!(bodies.insert(digest_of, params).is_none(), "{name}: {digest_of} twice");
            false
        });
        assert!(
            waiting.len() < before,
            "{name}: bodies use each other in a circle, or one is missing"
        );
    }
    let (kind, claimed, text) = graph_block;
    assert_eq!((*kind, digest("canonc.graph.v1", text)), ("graph", claimed.to_string()), "{name}");
    assert_eq!(identity.graph.to_string(), *claimed, "{name}");

    assert_eq!(
        identity.manifest.to_string(),
        digest("canonc.manifest.v1", &identity.manifest_text),
        "{name}"
    );
    let params = read_body(text, &bodies);
    let mut paths = BTreeSet::new();
    let lines: Vec<&str> = identity.manifest_text.lines().collect();
    assert_eq!(lines.len(), params.len(), "{name}: the manifest lists what the graph uses");
    for (line, declared) in lines.iter().zip(&params) {
        let (path, rest) = line.split_once(' ').unwrap();
        let (shape, init) = rest.split_once(' ').unwrap();
        assert_eq!(*declared, format!("init {init}, shape {shape}"), "{name}: {path}");
        assert!(paths.insert(path), "{name}: {path} twice");
    }
    inner.len() + lines.len() + 2
}

fn committed() -> Vec<(String, Compiled)> {
    let mut all = Vec::new();
    for file in files("arch", ".canon") {
        all.extend(compiled_file(&file).into_iter().map(|compiled| (file.clone(), compiled)));
    }
    all
}

#[test]
fn texts_give_their_digests() {
    let mut count = 0;
    for (file, compiled) in committed() {
        count += recomputed(&format!("{file} {}", compiled.name), &compiled.identity);
    }
    for file in files("tests/cases/hash", ".canon") {
        for compiled in compiled_file(&file) {
            count += recomputed(&format!("{file} {}", compiled.name), &compiled.identity);
        }
    }
    assert!(count > 10_000, "{count} ids");
}

/// A Python with the package: the machine's own, or one in a virtual environment under the target
/// folder.
pub(crate) fn python() -> Result<PathBuf, String> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PYTHON.get_or_init(python_with_packages).clone()
}

fn python_with_packages() -> Result<PathBuf, String> {
    let has_packages = |python: &Path| {
        Command::new(python)
            .args(["-c", "import blake3, tomllib"])
            .output()
            .is_ok_and(|out| out.status.success())
    };
    let system = PathBuf::from("python3");
    if has_packages(&system) {
        return Ok(system);
    }
    let home = scratch!("verify-ids");
    let python = home.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if has_packages(&python) {
        return Ok(python);
    }
    let run = |program: &Path, args: &[&str]| -> Result<(), String> {
        let out = Command::new(program)
            .args(args)
            .output()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let output = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        out.status.success().then_some(()).ok_or(output)
    };
    run(&system, &["-m", "venv", home.to_str().unwrap()])?;
    let locked = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/requirements.locked.txt");
    let quietly = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(&python, &[quietly.as_slice(), &["--require-hashes", "-r", locked]].concat())?;
    has_packages(&python).then_some(python).ok_or("Python is older than 3.11".to_owned())
}

/// How to handle a machine on which the script cannot run: `Ok` is a note for its user, `Err` a failure. On an
/// unattended machine nobody reads notes, so the test fails.
pub(crate) fn without_python(reason: &str, unattended: bool) -> Result<String, String> {
    let missing = ["No such file", "not found", "ensurepip", "No module named", "older than"];
    let offline = ["Could not find a version", "Temporary failure", "Connection", "Network"];
    let excused = missing.iter().chain(&offline).any(|word| reason.contains(word));
    let message = format!(
        "tests/verify_ids.py, which recomputes every id from its text, cannot run here: {}\n\
         help: install python3 (3.11 or newer) with pip and venv and connect to the network once, or type \
         `python3 -m pip install blake3==1.0.5`; then repeat `cargo test -p compiler --test lang ids`",
        reason.trim()
    );
    if excused && !unattended { Ok(message) } else { Err(message) }
}

/// `.ci/run` sets the variable, and so do other CI systems.
#[expect(clippy::disallowed_methods, reason = "the test behaves differently on CI")]
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !["", "0", "false"].map(Into::into).contains(&value))
}

#[test]
fn in_ci_a_missing_python_is_a_failure() {
    for reason in [
        "python3: No such file or directory",
        "ensurepip is not available",
        "Network is unreachable",
    ] {
        let failure = without_python(reason, true).unwrap_err();
        let note = without_python(reason, false).unwrap();
        assert_eq!(failure, note);
        assert!(failure.contains(reason) && failure.contains("help: install python3"), "{failure}");
    }
    // An error of the script or the package is always a failure.
    without_python("SyntaxError: invalid syntax", false).unwrap_err();
    assert!(read(".ci/run").lines().any(|line| line == "export CI=true"));
}

/// Writes every committed arch's identity and the locks of the small ones; returns the identities, and the paths of all
/// locks and of the identities.
fn written_identities(folder: &Path) -> (Vec<serde_json::Value>, Vec<PathBuf>) {
    let mut identities = Vec::new();
    let mut paths: Vec<PathBuf> = Vec::new();
    for (file, compiled) in committed() {
        let identity = &compiled.identity;
        identities.push(serde_json::json!({
            "name": compiled.name,
            "graph_text": identity.graph_text,
            "graph": identity.graph.to_string(),
            "manifest_text": identity.manifest_text,
            "manifest": identity.manifest.to_string(),
        }));
        if compiled.name.ends_with("_tiny") {
            let lock = ArchLock::new(&compiled.name, &file, &compiled).unwrap();
            let path = folder.join(format!("{}.lock", compiled.name));
            std::fs::write(&path, write(&Lock::Arch(lock))).unwrap();
            paths.push(path);
        }
    }
    let path = folder.join("identities.json");
    std::fs::write(&path, serde_json::to_string(&identities).unwrap()).unwrap();
    paths.push(path);
    if root().join("lockfiles").is_dir() {
        paths.extend(files("lockfiles", ".lock").into_iter().map(|name| root().join(name)));
    }
    (identities, paths)
}

#[test]
fn the_python_script_recomputes_every_id() {
    let folder = scratch!("ids");
    let (identities, paths) = written_identities(&folder);
    let python = match python() {
        Ok(python) => python,
        Err(reason) => {
            let note =
                without_python(&reason, in_ci()).unwrap_or_else(|failure| panic!("{failure}"));
            // Written to stderr directly, since the test harness hides the output of a passing test.
            writeln!(std::io::stderr(), "\nNOT RUN: {note}").unwrap();
            return;
        }
    };
    let verify = |paths: &[PathBuf]| {
        let script = root().join("tests/verify_ids.py");
        let out = Command::new(&python).arg(script).args(paths).output().unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned(),
        )
    };
    let (code, output) = verify(&paths);
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(output.lines().count(), paths.len(), "{output}");

    // A change of any byte is found.
    let text = std::fs::read_to_string(&paths[0]).unwrap();
    for (before, after) in [
        ("source = \"arch/", "source = \"arcs/"),
        ("(%0 ", "(%1 "),
        ("embed [258,64]", "embed [258,65]"),
        ("silu@1", "silu@2"),
        ("vocab = 258", "vocab = 259"),
    ] {
        assert!(text.contains(before), "{before} is not in the lock");
        let changed = folder.join("changed.lock");
        std::fs::write(&changed, text.replacen(before, after, 1)).unwrap();
        let (code, output) = verify(&[changed]);
        assert_eq!(code, Some(1), "{before} → {after}: {output}");
        assert!(output.contains("Wrong: "), "{output}");
    }
    let changed = folder.join("changed.json");
    std::fs::write(
        &changed,
        serde_json::to_string(&identities).unwrap().replacen("@1 {", "@2 {", 1),
    )
    .unwrap();
    assert_eq!(verify(&[changed]).0, Some(1));
}
