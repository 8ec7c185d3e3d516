//! `canonc run` and `canonc verify` as processes: killed, interrupted, refused, and resumed. A run that was killed
//! anywhere and resumed has the same bits as an uninterrupted run: weights, both moments, metrics. Every refusal has
//! its exit code and gives the next command to type. No test depends on elapsed time.
#![cfg(feature = "torch")]

mod run_cli {
    #[cfg(feature = "models")]
    mod answer;
    mod compare;
    mod diverged;
    mod elsewhere;
    mod refusals;
    #[cfg(feature = "models")]
    mod eval;
    #[cfg(feature = "models")]
    mod exported;
    mod faults;
    mod folders;
    #[cfg(feature = "models")]
    mod foreign;
    #[cfg(feature = "models")]
    mod imported;
    #[cfg(feature = "models")]
    mod initial;
    mod names;
    #[cfg(feature = "models")]
    mod peers;
    mod planned;
    mod policy;
    mod proof;
    mod ranks;
    mod rows;
    #[cfg(feature = "models")]
    mod selftest;
    #[cfg(feature = "models")]
    mod serve;
    mod signals;
    #[cfg(feature = "ext")]
    mod signed;
    mod slurm;
    #[cfg(feature = "models")]
    mod stock;
    #[cfg(feature = "models")]
    mod suites;
    mod tracking;
    #[cfg(feature = "models")]
    mod uses;
    mod verify;
}

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Cursor};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;

use compiler::program::{Program, Std};
use data::text::file;
use data::text::index::{OnBadLine, SourceFiles, TextIndex};
use lab::experiment::{Experiment, LockedArch};
use lab::field::{FieldValue, Fields};
use lab::lock::{self, ArchLock, Lock};
use lab::recipe;
use records::attest::Attestation;
use records::fault::POINTS;
use records::metrics::{self, Record, Step};
use records::verify::{Inputs, Remake, verify};

const ARCH: &str = "
arch small {
  vocab 16   dim 16   norm_eps 1e-5
  init lingua
  layers 1 of decoder {
    mixer attention { heads 2 }
    mlp swiglu { hidden 32 }
  }
}
arch small_canon = small with { canon A, B, C, D }
arch small_text = small with { vocab 258 }
arch wide = small with { vocab 10010 }
arch broad = small with { mlp.hidden 8192 }
arch large {
  vocab 10010   dim 256   norm_eps 1e-5
  init lingua
  layers 6 of decoder {
    mixer attention { heads 4 }
    mlp swiglu { hidden 1024 }
  }
}
arch small_gdn = small with { mixer = gated_deltanet { heads 2 } }
";

const DEPO: &str = r#"
[data]
task = "depo"
depo.N = 4
depo.K = 1
depo.mini_vocab = 4
depo.min_tlen = 1
depo.max_tlen = 2
ids = "dense"
seq_len = 24
[batch]
sequences = 2
micro_batches = 2
[budget]
steps = 6
[optimizer]
lr = 0.01
weight_decay = 0.1
[schedule]
kind = "cosine"
warmup = 2
[seeds]
init = 1
data = 2
[evaluation]
every = 3
windows = 2
[checkpoint]
every = 2
[log]
every = 1
[platform]
threads = 1
"#;

fn experiment(arch: &str, recipe_text: &str, changes: &[(&str, &str)]) -> Experiment {
    let mut text = format!("arch = \"archs.canon#{arch}\"\n{recipe_text}");
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let mut sources = dsl::Sources::new();
    let file = sources.add("small.toml", &text);
    let (parsed, diagnostics) = recipe::read(&sources, file);
    let parsed = parsed.unwrap_or_else(|| panic!("{}", dsl::render(&sources, &diagnostics)));
    let compile = |wanted: &recipe::ArchRef| Some(Rc::new(arch_named(wanted.name.as_deref()?)));
    let (experiments, diagnostics) = parsed.experiments("small", "small.toml", &compile);
    assert!(diagnostics.is_empty(), "{}", dsl::render(&sources, &diagnostics));
    experiments.into_iter().next().unwrap()
}

fn arch_named(name: &str) -> LockedArch {
    let program = Program::new([("archs.canon".to_owned(), ARCH.to_owned())], Std::Embedded);
    let (compiled, diagnostics) = program.compile("archs.canon", name);
    let compiled = compiled.unwrap_or_else(|| panic!("{}", program.render(&diagnostics)));
    LockedArch::new(&compiled).unwrap()
}

/// A temporary working folder with locks in `lockfiles/`, in which the command runs.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new(experiment: &Experiment) -> Place {
        let workspace = Place::empty();
        workspace.lock("small", &Lock::Experiment(experiment.clone()));
        workspace
    }

    fn empty() -> Place {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("lockfiles")).unwrap();
        Place { root }
    }

    fn lock(&self, name: &str, lock: &Lock) {
        fs::write(self.path(&format!("lockfiles/{name}.lock")), lock::write(lock)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The command, in the environment that a lock for one thread requires.
    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_canonc"));
        command.current_dir(self.root.path()).args(words.split_whitespace());
        for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(name, "1");
        }
        for name in ["OMP_DYNAMIC", "MKL_DYNAMIC"] {
            command.env(name, "FALSE");
        }
        command
    }

    fn type_in(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    /// Checks the exit code; returns the text of both streams.
    fn exits(&self, code: i32, words: &str) -> String {
        let output = self.type_in(words);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(code), "{words}\n{text}");
        text
    }

    fn start(&self, words: &str) -> (Child, BufReader<std::process::ChildStderr>) {
        let mut child =
            self.command(words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        (child, lines)
    }

    /// The files that must be identical in every run of a lock.
    fn bits(&self, run: &str, step: u64) -> BTreeMap<&'static str, Vec<u8>> {
        let checkpoint = format!("{run}/checkpoints/step-{step:010}");
        let read = |path: String| {
            fs::read(self.path(&path)).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let files =
            ["weights.safetensors", "first_moment.safetensors", "second_moment.safetensors"];
        let mut bits: BTreeMap<_, _> =
            files.into_iter().map(|file| (file, read(format!("{checkpoint}/{file}")))).collect();
        bits.insert("metrics", read(format!("{run}/metrics.jsonl")));
        bits
    }

    /// Verifies every claim of a finished run.
    fn holds(&self, run: &str) {
        let report = verify(&self.path(run), Inputs::default(), Remake::Spread).unwrap();
        assert_eq!(report.broken, Vec::<String>::new(), "{run}");
        let attested = report.checked.iter().any(|claim| claim.text.contains("attestation: seal"));
        assert!(attested, "{run}: {report:?}");
    }

    fn attestation(&self, run: &str) -> Attestation {
        let text = fs::read_to_string(self.path(&format!("{run}/attestation.toml"))).unwrap();
        Attestation::parse(&text).unwrap()
    }

    fn steps(&self, run: &str) -> Vec<Step> {
        let (records, _) = metrics::read(&self.path(&format!("{run}/metrics.jsonl"))).unwrap();
        let step = |record| match record {
            Record::Step(step) => Some(step),
            Record::Start(_) | Record::Evaluation(_) => None,
        };
        records.into_iter().filter_map(step).collect()
    }
}

/// Whether this build has the command of a line: without `ext/` some are missing.
fn has(line: &str) -> bool {
    let command = line.split(' ').next().unwrap();
    let help = || said(&Place::empty().type_in(&format!("help {command}")));
    cfg!(feature = "ext") || !help().contains(&format!("`{command}` is not a command"))
}

/// Standard output, then standard error.
fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn same(expected: &BTreeMap<&str, Vec<u8>>, actual: &BTreeMap<&str, Vec<u8>>, context: &str) {
    let differing: Vec<_> =
        expected.keys().filter(|name| expected.get(*name) != actual.get(*name)).collect();
    assert!(differing.is_empty(), "{context}: {differing:?} differ");
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_run_finishes_is_verified_and_is_not_run_again() {
    let workspace = Place::new(&experiment("small_canon", DEPO, &[]));
    let output = workspace.exits(0, "run --lock");
    for expected in [
        "small: 6 steps",
        "step 6/6",
        "exact_match",
        "finished: weights",
        "canonc verify runs/small",
    ] {
        assert!(output.contains(expected), "{expected}: {output}");
    }
    assert!(!output.contains('\r'), "a log has lines");
    let output = workspace.exits(0, "verify small");
    assert!(output.contains("attestation: seal") && !output.contains("BROKEN"), "{output}");
    let before = workspace.bits("runs/small", 6);
    let output = workspace.exits(0, "run --lock lockfiles/small.lock");
    assert!(output.contains("already finished: 6 steps"), "{output}");
    same(&before, &workspace.bits("runs/small", 6), "already finished");
    let kernels = workspace.attestation("runs/small").kernels;
    assert!(kernels["causal_conv"].iter().all(|path| path.contains("fused")), "{kernels:?}");
}

/// Breaks a run at each fault point that `family` accepts, resumes it, and compares it with an uninterrupted run.
fn check_resume_after_faults(family: &dyn Fn(&str) -> bool, counts: &[u64]) {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run --dir straight");
    let straight = workspace.bits("straight", 6);
    let points: Vec<_> = POINTS.into_iter().filter(|(_, name)| family(name)).collect();
    assert!(points.len() >= 4);
    for (point, name) in points {
        for count in counts {
            let run = format!("{name}-{count}");
            let output = workspace.type_in(&format!("run --dir {run} --fault {name}:{count}"));
            if point.fills_disk() {
                assert_eq!(output.status.code(), Some(3), "{run}: {}", said(&output));
                assert!(said(&output).contains("disk is full"), "{run}: {}", said(&output));
            } else {
                assert_eq!(output.status.code(), None, "{run} did not die: {}", said(&output));
            }
            let resumed = workspace.exits(0, &format!("run --dir {run}"));
            assert_eq!(
                resumed.contains("incomplete line"),
                ["metrics-torn", "metrics-full"].contains(&name)
            );
            same(&straight, &workspace.bits(&run, 6), &format!("{run}: {resumed}"));
            workspace.holds(&run);
        }
    }
}

#[test]
fn a_run_killed_at_any_point_of_the_log_resumes_to_the_same_bits() {
    check_resume_after_faults(&|name| name.starts_with("metrics"), &[1, 5]);
}

#[test]
fn a_run_killed_at_any_point_of_a_checkpoint_resumes_to_the_same_bits() {
    check_resume_after_faults(
        &|name| name.starts_with("checkpoint") || name.starts_with("pointer"),
        &[1, 2],
    );
}

#[test]
fn a_run_killed_at_any_other_point_resumes_to_the_same_bits() {
    let is_other =
        |name: &str| ["folder", "prune", "attest"].iter().any(|word| name.starts_with(word));
    check_resume_after_faults(&is_other, &[1]);
    let families = ["metrics", "checkpoint", "pointer", "folder", "prune", "attest"];
    assert!(POINTS.iter().all(|(_, name)| families.iter().any(|family| name.starts_with(family))));
}

#[test]
fn a_run_killed_at_random_moments_resumes_to_the_same_bits() {
    let workspace = Place::new(&experiment("small", DEPO, &[("steps = 6", "steps = 12")]));
    workspace.exits(0, "run --dir straight");
    let straight = workspace.bits("straight", 12);
    // Marsaglia's xorshift: interrupts at about the same moments in every run of this test.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    for run in ["one", "two", "three", "four", "five"] {
        for _ in 0..2 {
            let (mut child, mut lines) = workspace.start(&format!("run --dir {run}"));
            for _ in 0..below(14) {
                let mut line = String::new();
                lines.read_line(&mut line).unwrap();
            }
            // Wait a varying time, to stop somewhere inside the next step.
            for _ in 0..below(4_000_000) {
                std::hint::spin_loop();
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let output = workspace.exits(0, &format!("run --dir {run}"));
        same(&straight, &workspace.bits(run, 12), &format!("{run}: {output}"));
        workspace.holds(run);
    }
}

#[test]
fn an_interrupt_finishes_the_step_and_leaves_a_checkpoint() {
    let workspace = Place::new(&experiment("small", DEPO, &[("steps = 6", "steps = 300")]));
    for name in ["-INT", "-TERM", "-HUP"] {
        let run = format!("run{name}");
        let (mut child, mut lines) = workspace.start(&format!("run --dir {run}"));
        let mut line = String::new();
        while !line.contains("step 2/300") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
        }
        signal(&child, name);
        let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(75), "{rest:?}");
        assert!(rest.last().unwrap().contains("the same command continues from there"), "{rest:?}");
        let done = workspace.steps(&run).len() as u64;
        workspace.bits(&run, done);
        // Resume for one more step, and compare with a run that was never killed.
        workspace.exits(75, &format!("run --dir {run} --stop-after-step {}", done + 1));
        workspace.exits(75, &format!("run --dir straight{name} --stop-after-step {}", done + 1));
        same(
            &workspace.bits(&format!("straight{name}"), done + 1),
            &workspace.bits(&run, done + 1),
            name,
        );
    }
}

#[test]
fn a_second_interrupt_ends_at_once() {
    // A single step that takes minutes.
    let long = [("micro_batches = 2", "micro_batches = 100000"), ("steps = 6", "steps = 2")];
    let workspace = Place::new(&experiment("small", DEPO, &long));
    let (mut child, mut lines) = workspace.start("run");
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("2 steps"), "{line}");
    // The system merges two pending signals of one kind, so these are of two kinds.
    signal(&child, "-INT");
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_run_in_use_by_another_process_is_refused() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(75, "run --stop-after-step 1");
    let writer =
        fs::OpenOptions::new().write(true).open(workspace.path("runs/small/writer")).unwrap();
    writer.lock().unwrap();
    let output = workspace.exits(3, "run");
    assert!(output.contains("is in use by process") && output.contains("--dir"), "{output}");
    drop(writer);
    workspace.exits(0, "run");
}

#[test]
fn a_lock_is_found_or_the_list_is_shown() {
    let workspace = Place::empty();
    assert!(workspace.exits(2, "run").contains("contains no experiment lock"));
    let small = experiment("small", DEPO, &[]);
    workspace.lock("one", &Lock::Experiment(small.clone()));
    let arch = arch_named("small");
    let arch = ArchLock::new("small", "archs.canon", &arch.compiled).unwrap();
    workspace.lock("small", &Lock::Arch(arch));
    workspace.exits(75, "run --stop-after-step 1");
    workspace.lock("two", &Lock::Experiment(small));
    let output = workspace.exits(2, "run");
    for line in ["2 experiment locks", "canonc run --lock lockfiles/one.lock", "lockfiles/two.lock"]
    {
        assert!(output.contains(line), "{output}");
    }
    let output = workspace.exits(2, "run --lock lockfiles/small.lock");
    assert!(output.contains("kind arch, but an experiment is needed"), "{output}");
    // The recipes that use it.
    let recipe = include_str!("../recipes/demo_llama.toml");
    assert!(recipe.contains("\"../arch/llama_demo.canon\""), "{recipe}");
    let uses = recipe.replace("../arch/llama_demo.canon", "../archs.canon#small");
    fs::create_dir(workspace.path("recipes")).unwrap();
    fs::write(workspace.path("recipes/uses.toml"), uses).unwrap();
    fs::write(workspace.path("recipes/other.toml"), recipe).unwrap();
    let output = workspace.exits(2, "run --lock lockfiles/small.lock");
    assert!(
        output.contains("`recipes/uses.toml` trains it") && !output.contains("other"),
        "{output}"
    );
    // By its path, by part of its name, by its source.
    let output =
        workspace.exits(75, "run lockfiles/one.lock --dir named --stop-after-step 1 --json");
    assert!(output.contains("\"state\": \"interrupted\",\n  \"steps\": 1\n"), "{output}");
    for name in ["one", "one.lock", "lockfiles/one", "lock/one.lock", "lockfiles/onne.lock"] {
        let output = workspace.exits(2, &format!("run {name}"));
        assert!(output.contains("did you mean `lockfiles/one.lock`?"), "{output}");
    }
    fs::write(workspace.path("r.toml"), "arch = \"a.canon\"\n").unwrap();
    fs::write(workspace.path("c.toml"), "[arms]\n").unwrap();
    for (file, command) in [("r", "canonc run --lock"), ("c", "canonc compare")] {
        let output = workspace.exits(2, &format!("run --lock {file}.toml"));
        let help = format!(
            "`canonc build {file}.toml` makes its lock; then `{command} lockfiles/{file}.lock`"
        );
        assert!(output.contains(&help), "{output}");
    }
    let output = workspace.exits(2, "compare lockfiles/one.lock");
    assert!(output.contains("canonc run --lock lockfiles/one.lock"), "{output}");
    if !has("generate") {
        return;
    }
    // A run's file identifies its run.
    let weights = "named/checkpoints/step-0000000001/first_moment.safetensors";
    let output = workspace.exits(
        2,
        &format!(
            "generate lockfiles/one.lock --weights {weights} --prompt-tokens 1 --max-tokens 1"
        ),
    );
    assert!(output.contains("holds the optimiser's moments"), "{output}");
}

#[test]
fn a_dry_run_says_what_it_takes_and_writes_nothing() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    let output = workspace.type_in("run --dry-run");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    for row in [
        "parameters",
        "memory",
        "disk",
        "time",
        "epochs",
        "tokens",
        "from micro-batches timed just now",
    ] {
        assert!(table.contains(row), "{row}: {table}");
    }
    // 6 steps of 2 x 2 windows of 24.
    assert!(
        table.lines().any(|line| line.starts_with("tokens") && line.ends_with(" 576")),
        "{table}"
    );
    assert!(!workspace.path("runs").exists());
}

#[test]
fn what_cannot_be_run_is_refused_with_its_code() {
    let small = experiment("small", DEPO, &[]);
    let workspace = Place::new(&small);
    let path = workspace.path("lockfiles/small.lock");
    let text = fs::read_to_string(&path).unwrap();
    let edited = text.replace("lr = 0.01", "lr = 0.02");
    assert_ne!(edited, text);
    for (content, expected) in [
        (edited.as_str(), "small.lock"),
        (&text[..text.len() / 2], "small.lock"),
        (&text.replacen("version = 3", "version = 9", 1), "version 9"),
        ("", "small.lock"),
    ] {
        fs::write(&path, content).unwrap();
        let output = workspace.exits(2, "run --lock lockfiles/small.lock");
        assert!(output.contains(expected) && output.contains("help: "), "{output}");
        assert!(!workspace.path("runs").exists(), "nothing is left half made");
        // Another version is not a finding about this lock.
        workspace.exits(if expected == "version 9" { 2 } else { 1 }, "verify lockfiles/small.lock");
    }
    fs::write(&path, &text).unwrap();
    workspace.exits(0, "verify lockfiles/small.lock");
    assert!(workspace.exits(2, "run --lock lockfiles/smal.lock").contains("did you mean"));
    assert!(workspace.exits(2, "run --fault nowhere").contains("metrics-torn"));
    // No user may write there, not even root.
    let output = workspace.exits(3, "run --dir /proc/canonc");
    assert!(output.contains("/proc/canonc") && output.contains("--dir"), "{output}");
    let output = workspace.exits(2, "run --dir lockfiles");
    assert!(output.contains("is not a run's folder"), "{output}");
    if runtime::kernels::cuda_devices() == 0 {
        let output = workspace.exits(3, "run --device cuda");
        assert!(
            output.contains("this machine cannot") && output.contains("canonc doctor"),
            "{output}"
        );
    }
}

/// An index of a number of short texts, under the source `small`.
fn text_index(count: usize) -> TextIndex {
    let lines: String = (0..count).map(|i| format!("{{\"text\": \"document {i}\"}}\n")).collect();
    let source = SourceFiles {
        name: "small".to_owned(),
        files: vec![("memory".to_owned(), Cursor::new(lines))],
    };
    TextIndex::build(vec![source], OnBadLine::Refuse).unwrap().0
}

/// Verifies the run `small` without usable documents: its batches are trusted, and other findings are still reported.
fn check_batches_are_trusted(workspace: &Place, reason: &str) {
    let output = workspace.exits(0, "verify small");
    let trusted = output.split("taken on trust: ").nth(1).unwrap();
    assert!(trusted.contains(&format!("batches (not recomputed: {reason})")), "{output}");
    // Steps that cannot be trained again do not hide other findings.
    let output = workspace.exits(3, "verify small --replay");
    assert!(
        output.contains("undecided  replay: ") && output.contains("taken on trust: "),
        "{output}"
    );
    let kernels = workspace.path("runs/small/kernels.txt");
    let written = fs::read_to_string(&kernels).unwrap();
    fs::write(&kernels, format!("{written}# more\n")).unwrap();
    let output = workspace.exits(1, "verify small --replay");
    assert!(output.contains("undecided  replay: "), "{output}");
    assert!(output.contains("BROKEN     kernels.txt: line"), "{output}");
    fs::write(&kernels, &written).unwrap();
}

#[test]
fn documents_are_found_bound_and_checked() {
    let task = DEPO.find("task").unwrap()..DEPO.find("seq_len").unwrap();
    let mut recipe = DEPO.to_owned();
    recipe.replace_range(task, "task = \"text\"\nsource = \"small\"\nheld_out = 0.25\n");
    let open = experiment("small_text", &recipe, &[]);
    let workspace = Place::new(&open);
    let output = workspace.exits(2, "run --lock lockfiles/small.lock");
    assert!(output.contains("open") && output.contains("canonc bind"), "{output}");

    let documents = text_index(40);
    let digest = FieldValue::text(documents.identity().to_hex().to_string());
    let bound = open.with("small".to_owned(), &Fields::from([("data.digest".to_owned(), digest)]));
    workspace.lock("small", &Lock::Experiment(bound.unwrap()));
    assert!(workspace.exits(2, "run").contains("data/small.index"));
    fs::create_dir(workspace.path("data")).unwrap();
    file::save(&text_index(41), &workspace.path("data/small.index")).unwrap();
    let output = workspace.exits(1, "run");
    assert!(output.contains("are not those of the lock"), "{output}");
    file::save(&documents, &workspace.path("other.index")).unwrap();
    workspace.exits(0, "run --data other.index");
    let output = workspace.exits(0, "verify small --data other.index");
    assert!(output.contains("data of 6 of 6 steps: the same"), "{output}");
    // Unusable documents give another error than missing ones.
    let data = workspace.path("data/small.index");
    let output = workspace.exits(1, "verify small --data data/small.index");
    assert!(output.contains("are not those of the lock"), "{output}");
    check_batches_are_trusted(&workspace, "these are other documents");
    fs::remove_file(&data).unwrap();
    check_batches_are_trusted(&workspace, "the documents are not available");
    let mut damaged = fs::read(workspace.path("other.index")).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&data, damaged).unwrap();
    // A damaged file is a finding, and hides no other.
    for (exit, command) in [(1, "verify small"), (2, "run --dir again")] {
        let output = workspace.exits(exit, command);
        assert!(output.contains("data/small.index is damaged"), "{command}: {output}");
    }
    let output = workspace.exits(1, "verify small");
    assert!(output.contains("recomputed lock"), "{output}");
    assert!(!workspace.path("again").exists());
}
