//! `canonc run` and `canonc verify` as processes: killed, interrupted, refused, and resumed. A run that was killed
//! anywhere and resumed has the same bits as an uninterrupted run: weights, both moments, metrics. Every refusal has
//! its exit code and gives the next command to type. No test depends on elapsed time.
#![cfg(feature = "torch")]

mod run_cli {
    mod answer;
    mod compare;
    mod diverged;
    mod doors;
    mod eval;
    mod exported;
    mod folders;
    mod foreign;
    mod imported;
    mod names;
    mod peers;
    mod planned;
    mod policy;
    mod proof;
    mod ranks;
    mod selftest;
    mod serve;
    mod signals;
    mod slurm;
    mod stock;
    mod suites;
    mod tracking;
    mod uses;
    mod verify;
}

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;

use compiler::program::{Program, Std};
use lab::experiment::{Experiment, LockedArch};
use lab::field::{FieldValue, Fields};
use lab::lock::{self, ArchLock, Lock};
use lab::recipe;
use records::attest::Attestation;
use records::fault::POINTS;
use records::metrics::{self, Record, Step};
use records::verify::{Remake, verify};

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
    let (read, found) = recipe::read(&sources, file);
    let read = read.unwrap_or_else(|| panic!("{}", dsl::render(&sources, &found)));
    let compile = |wanted: &recipe::ArchRef| Some(Rc::new(arch_named(wanted.name.as_deref()?)));
    let (experiments, found) = read.experiments("small", "small.toml", &compile);
    assert!(found.is_empty(), "{}", dsl::render(&sources, &found));
    experiments.into_iter().next().unwrap()
}

fn arch_named(name: &str) -> LockedArch {
    let program = Program::new([("archs.canon".to_owned(), ARCH.to_owned())], Std::Embedded);
    let (compiled, found) = program.compile("archs.canon", name);
    LockedArch::new(&compiled.unwrap_or_else(|| panic!("{}", program.render(&found)))).unwrap()
}

/// A working folder, with a lock in `lockfiles/`.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new(experiment: &Experiment) -> Place {
        let place = Place::empty();
        place.lock("small", &Lock::Experiment(experiment.clone()));
        place
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
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{words}\n{said}");
        said
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
        let report = verify(&self.path(run), None, Remake::Spread).unwrap();
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

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn same(one: &BTreeMap<&str, Vec<u8>>, two: &BTreeMap<&str, Vec<u8>>, why: &str) {
    let differing: Vec<_> = one.keys().filter(|name| one.get(*name) != two.get(*name)).collect();
    assert!(differing.is_empty(), "{why}: {differing:?} differ");
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_run_finishes_is_verified_and_is_not_run_again() {
    let place = Place::new(&experiment("small_canon", DEPO, &[]));
    let said = place.exits(0, "run --lock");
    for what in [
        "small: 6 steps",
        "step 6/6",
        "exact_match",
        "finished: weights",
        "canonc verify runs/small",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert!(!said.contains('\r'), "a log has lines");
    let said = place.exits(0, "verify small");
    assert!(said.contains("attestation: seal") && !said.contains("BROKEN"), "{said}");
    let before = place.bits("runs/small", 6);
    let said = place.exits(0, "run --lock lockfiles/small.lock");
    assert!(said.contains("already finished: 6 steps"), "{said}");
    same(&before, &place.bits("runs/small", 6), "already finished");
    let kernels = place.attestation("runs/small").kernels;
    assert!(kernels["causal_conv"].iter().all(|path| path.contains("fused")), "{kernels:?}");
}

/// Breaks a run at each point of a family, resumes it, and compares it with an uninterrupted run.
fn broken_at(family: &dyn Fn(&str) -> bool, counts: &[u64]) {
    let place = Place::new(&experiment("small", DEPO, &[]));
    place.exits(0, "run --dir straight");
    let straight = place.bits("straight", 6);
    let points: Vec<_> = POINTS.into_iter().filter(|(_, name)| family(name)).collect();
    assert!(points.len() >= 4);
    for (point, name) in points {
        for count in counts {
            let run = format!("{name}-{count}");
            let output = place.type_in(&format!("run --dir {run} --fault {name}:{count}"));
            if point.fills_disk() {
                assert_eq!(output.status.code(), Some(3), "{run}: {}", said(&output));
                assert!(said(&output).contains("disk is full"), "{run}: {}", said(&output));
            } else {
                assert_eq!(output.status.code(), None, "{run} did not die: {}", said(&output));
            }
            let said = place.exits(0, &format!("run --dir {run}"));
            assert_eq!(
                said.contains("incomplete line"),
                ["metrics-torn", "metrics-full"].contains(&name)
            );
            same(&straight, &place.bits(&run, 6), &format!("{run}: {said}"));
            place.holds(&run);
        }
    }
}

#[test]
fn killed_at_every_point_of_the_log_and_gone_on_with_it_is_the_straight_run() {
    broken_at(&|name| name.starts_with("metrics"), &[1, 5]);
}

#[test]
fn killed_at_every_point_of_a_checkpoint_and_gone_on_with_it_is_the_straight_run() {
    broken_at(&|name| name.starts_with("checkpoint") || name.starts_with("pointer"), &[1, 2]);
}

#[test]
fn killed_at_any_other_point_and_gone_on_with_it_is_the_straight_run() {
    let other =
        |name: &str| ["folder", "prune", "attest"].iter().any(|word| name.starts_with(word));
    broken_at(&other, &[1]);
    let families = ["metrics", "checkpoint", "pointer", "folder", "prune", "attest"];
    assert!(POINTS.iter().all(|(_, name)| families.iter().any(|family| name.starts_with(family))));
}

#[test]
fn killed_at_ten_random_moments_and_gone_on_with_it_is_the_straight_run() {
    let place = Place::new(&experiment("small", DEPO, &[("steps = 6", "steps = 12")]));
    place.exits(0, "run --dir straight");
    let straight = place.bits("straight", 12);
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
            let (mut child, mut lines) = place.start(&format!("run --dir {run}"));
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
        let said = place.exits(0, &format!("run --dir {run}"));
        same(&straight, &place.bits(run, 12), &format!("{run}: {said}"));
        place.holds(run);
    }
}

#[test]
fn an_interrupt_finishes_the_step_and_leaves_a_checkpoint() {
    let place = Place::new(&experiment("small", DEPO, &[("steps = 6", "steps = 300")]));
    for name in ["-INT", "-TERM", "-HUP"] {
        let run = format!("run{name}");
        let (mut child, mut lines) = place.start(&format!("run --dir {run}"));
        let mut line = String::new();
        while !line.contains("step 2/300") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
        }
        signal(&child, name);
        let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(75), "{rest:?}");
        assert!(rest.last().unwrap().contains("the same command continues from there"), "{rest:?}");
        let done = place.steps(&run).len() as u64;
        place.bits(&run, done);
        // Resume for one more step, and compare with a run that was never killed.
        place.exits(75, &format!("run --dir {run} --stop-after-step {}", done + 1));
        place.exits(75, &format!("run --dir straight{name} --stop-after-step {}", done + 1));
        same(&place.bits(&format!("straight{name}"), done + 1), &place.bits(&run, done + 1), name);
    }
}

#[test]
fn a_second_interrupt_ends_at_once() {
    // A single step that takes minutes.
    let long = [("micro_batches = 2", "micro_batches = 100000"), ("steps = 6", "steps = 2")];
    let place = Place::new(&experiment("small", DEPO, &long));
    let (mut child, mut lines) = place.start("run");
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("2 steps"), "{line}");
    // The system merges two pending signals of one kind, so these are of two kinds.
    signal(&child, "-INT");
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn one_writer_at_a_time() {
    let place = Place::new(&experiment("small", DEPO, &[]));
    place.exits(75, "run --stop-after-step 1");
    let writer = fs::OpenOptions::new().write(true).open(place.path("runs/small/writer")).unwrap();
    writer.lock().unwrap();
    let said = place.exits(3, "run");
    assert!(said.contains("is in use by process") && said.contains("--dir"), "{said}");
    drop(writer);
    place.exits(0, "run");
}

#[test]
fn a_lock_is_found_or_the_list_is_shown() {
    let place = Place::empty();
    assert!(place.exits(2, "run").contains("contains no experiment lock"));
    let small = experiment("small", DEPO, &[]);
    place.lock("one", &Lock::Experiment(small.clone()));
    let arch = arch_named("small");
    let arch = ArchLock::new("small", "archs.canon", &arch.compiled).unwrap();
    place.lock("small", &Lock::Arch(arch));
    place.exits(75, "run --stop-after-step 1");
    place.lock("two", &Lock::Experiment(small));
    let said = place.exits(2, "run");
    for line in ["2 experiment locks", "canonc run --lock lockfiles/one.lock", "lockfiles/two.lock"]
    {
        assert!(said.contains(line), "{said}");
    }
    let said = place.exits(2, "run --lock lockfiles/small.lock");
    assert!(said.contains("kind arch, but an experiment is needed"), "{said}");
    // The recipes that use it.
    let recipe = include_str!("../recipes/demo_llama.toml");
    assert!(recipe.contains("\"../arch/llama_demo.canon\""), "{recipe}");
    let uses = recipe.replace("../arch/llama_demo.canon", "../archs.canon#small");
    fs::create_dir(place.path("recipes")).unwrap();
    fs::write(place.path("recipes/uses.toml"), uses).unwrap();
    fs::write(place.path("recipes/other.toml"), recipe).unwrap();
    let said = place.exits(2, "run --lock lockfiles/small.lock");
    assert!(said.contains("`recipes/uses.toml` trains it") && !said.contains("other"), "{said}");
    // By its path, by part of a name, by its source.
    place.exits(75, "run lockfiles/one.lock --dir named --stop-after-step 1");
    for name in ["one", "one.lock", "lockfiles/one", "lock/one.lock", "lockfiles/onne.lock"] {
        let said = place.exits(2, &format!("run {name}"));
        assert!(said.contains("did you mean `lockfiles/one.lock`?"), "{said}");
    }
    fs::write(place.path("r.toml"), "arch = \"a.canon\"\n").unwrap();
    fs::write(place.path("c.toml"), "[arms]\n").unwrap();
    for (file, then) in [("r", "canonc run --lock"), ("c", "canonc compare")] {
        let said = place.exits(2, &format!("run --lock {file}.toml"));
        let help = format!(
            "`canonc build {file}.toml` makes its lock; then `{then} lockfiles/{file}.lock`"
        );
        assert!(said.contains(&help), "{said}");
    }
    let said = place.exits(2, "compare lockfiles/one.lock");
    assert!(said.contains("canonc run --lock lockfiles/one.lock"), "{said}");
    // A run's file identifies its run.
    let weights = "named/checkpoints/step-0000000001/first_moment.safetensors";
    let said = place.exits(
        2,
        &format!(
            "generate lockfiles/one.lock --weights {weights} --prompt-tokens 1 --max-tokens 1"
        ),
    );
    assert!(said.contains("holds the optimiser's moments"), "{said}");
}

#[test]
fn a_dry_run_says_what_it_takes_and_writes_nothing() {
    let place = Place::new(&experiment("small", DEPO, &[]));
    let output = place.type_in("run --dry-run");
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
    assert!(!place.path("runs").exists());
}

#[test]
fn what_cannot_be_run_is_refused_with_its_code() {
    let small = experiment("small", DEPO, &[]);
    let place = Place::new(&small);
    let path = place.path("lockfiles/small.lock");
    let text = fs::read_to_string(&path).unwrap();
    let edited = text.replace("lr = 0.01", "lr = 0.02");
    assert_ne!(edited, text);
    for (content, what) in [
        (edited.as_str(), "small.lock"),
        (&text[..text.len() / 2], "small.lock"),
        (&text.replacen("version = 3", "version = 9", 1), "version 9"),
        ("", "small.lock"),
    ] {
        fs::write(&path, content).unwrap();
        let said = place.exits(2, "run --lock lockfiles/small.lock");
        assert!(said.contains(what) && said.contains("help: "), "{said}");
        assert!(!place.path("runs").exists(), "nothing is left half made");
        // Another version is not a finding about this lock.
        place.exits(if what == "version 9" { 2 } else { 1 }, "verify lockfiles/small.lock");
    }
    fs::write(&path, &text).unwrap();
    place.exits(0, "verify lockfiles/small.lock");
    assert!(place.exits(2, "run --lock lockfiles/smal.lock").contains("did you mean"));
    assert!(place.exits(2, "run --fault nowhere").contains("metrics-torn"));
    // No user may write there, not even root.
    let said = place.exits(3, "run --dir /proc/canonc");
    assert!(said.contains("/proc/canonc") && said.contains("--dir"), "{said}");
    let said = place.exits(2, "run --dir lockfiles");
    assert!(said.contains("is not a run's folder"), "{said}");
    if runtime::kernels::cuda_devices() == 0 {
        let said = place.exits(3, "run --device cuda");
        assert!(said.contains("this machine cannot") && said.contains("canonc doctor"), "{said}");
    }
}

#[test]
fn documents_are_found_bound_and_checked() {
    let task = DEPO.find("task").unwrap()..DEPO.find("seq_len").unwrap();
    let mut recipe = DEPO.to_owned();
    recipe.replace_range(task, "task = \"text\"\nsource = \"small\"\nheld_out = 0.25\n");
    let open = experiment("small_text", &recipe, &[]);
    let place = Place::new(&open);
    let said = place.exits(2, "run --lock lockfiles/small.lock");
    assert!(said.contains("open") && said.contains("canonc bind"), "{said}");

    let index = |count: usize| {
        let lines: String =
            (0..count).map(|i| format!("{{\"text\": \"document {i}\"}}\n")).collect();
        let files = vec![data::text::index::SourceFiles {
            name: "small".to_owned(),
            files: vec![("memory".to_owned(), std::io::Cursor::new(lines))],
        }];
        let bad = data::text::index::OnBadLine::Refuse;
        data::text::index::TextIndex::build(files, bad).unwrap().0
    };
    let documents = index(40);
    let digest = FieldValue::text(documents.identity().to_hex().to_string());
    let bound = open.with("small".to_owned(), &Fields::from([("data.digest".to_owned(), digest)]));
    place.lock("small", &Lock::Experiment(bound.unwrap()));
    assert!(place.exits(2, "run").contains("data/small.index"));
    fs::create_dir(place.path("data")).unwrap();
    data::text::file::save(&index(41), &place.path("data/small.index")).unwrap();
    let said = place.exits(1, "run");
    assert!(said.contains("are not those of the lock"), "{said}");
    data::text::file::save(&documents, &place.path("other.index")).unwrap();
    place.exits(0, "run --data other.index");
    let said = place.exits(0, "verify small --data other.index");
    assert!(said.contains("data of 6 of 6 steps: the same"), "{said}");
    // Unusable documents give another error than missing ones.
    let data = place.path("data/small.index");
    let said = place.exits(1, "verify small --data data/small.index");
    assert!(said.contains("are not those of the lock"), "{said}");
    let kernels = place.path("runs/small/kernels.txt");
    let written = fs::read_to_string(&kernels).unwrap();
    let not_recomputed = |why: &str| {
        let said = place.exits(0, "verify small");
        let trusted = said.split("taken on trust: ").nth(1).unwrap();
        assert!(trusted.contains(&format!("batches (not recomputed: {why})")), "{said}");
        // Steps that cannot be trained again do not hide other findings.
        let said = place.exits(3, "verify small --replay");
        assert!(
            said.contains("undecided  replay: ") && said.contains("taken on trust: "),
            "{said}"
        );
        fs::write(&kernels, format!("{written}# more\n")).unwrap();
        let said = place.exits(1, "verify small --replay");
        assert!(said.contains("undecided  replay: "), "{said}");
        assert!(said.contains("BROKEN     kernels.txt: line"), "{said}");
        fs::write(&kernels, &written).unwrap();
    };
    not_recomputed("these are other documents");
    fs::remove_file(&data).unwrap();
    not_recomputed("the documents are not available");
    let mut damaged = fs::read(place.path("other.index")).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&data, damaged).unwrap();
    // A damaged file is a finding, and hides no other.
    for (exit, command) in [(1, "verify small"), (2, "run --dir again")] {
        let said = place.exits(exit, command);
        assert!(said.contains("data/small.index is damaged"), "{command}: {said}");
    }
    let said = place.exits(1, "verify small");
    assert!(said.contains("recomputed lock"), "{said}");
    assert!(!place.path("again").exists());
}
