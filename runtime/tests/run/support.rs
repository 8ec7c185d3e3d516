//! Experiments small enough to train in a moment, and runs of them.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use compiler::digest::Digest;
use compiler::program::{Program, Std};
use data::text::index::{OnBadLine, SourceFiles, TextIndex};
use dsl::Problem;
use lab::experiment::Experiment;
use lab::field::FieldValue;
use lab::lock::{self, Lock};
use records::attest::Attestation;
use records::fault::Faults;
use records::job::Job;
use records::metrics::{Evaluation, Record, Step, read};
use records::run::{Event, Paths};
use runtime::train::{Observer, Options, TrainOutcome, machine, train};
use support::experiments::experiments;

const ARCH: &str = "
arch small {
  vocab 16   dim 16   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 2 }
    mlp swiglu { hidden 32 }
  }
}
arch small_canon = small with { canon A, B, C, D }
arch small_text = small with { vocab 258 }
arch small_moe = small with { mlp = moe { count 4  active 2  hidden 16  shared 8 } }
arch wide = small with { vocab 10010 }
arch dropping {
  vocab 16   dim 16   norm_eps 1e-5
  init lingua
  layers 2 of dropout_decoder { dropout 0.25  mixer attention { heads 2 }  mlp swiglu { hidden 32 } }
}
arch ahead = small with { head = two_tokens { extra decoder { mixer attention { heads 2 }  mlp swiglu { hidden 32 } } } }
arch dropping_canon = dropping with { canon A, B, C, D }

block zero(x) { x + linear w (x, dim, init = zeros) }
block drop_zero(x; rate = 0.25) { x + dropout(linear w (x, dim, init = zeros), rate) }
block dropped(x; rate = 0.25) { x + dropout(linear w (x, dim), rate) }
arch zero_a = small with { fill A with zero  fill C with dropped }
arch drop_zero_a = small with { fill A with drop_zero  fill C with dropped }
arch zero_c = small with { fill C with zero  fill A with dropped }
arch drop_zero_c = small with { fill C with drop_zero  fill A with dropped }
mixer projected(x) { linear wo (silu(linear wv (x, dim)), dim) }
mixer idle_drop(x; rate = 0) { linear wo (dropout(silu(linear wv (x, dim)), rate), dim) }
arch mixed = dropping with { mixer = projected }
arch mixed_idle = dropping with { mixer = idle_drop }

block linear_attention = decoder { mixer gla { heads 2 }  mlp swiglu { hidden 32 } }
block delta = decoder { mixer gated_deltanet { heads 2 }  mlp swiglu { hidden 32 } }
block state_space = decoder { mixer mamba2 { heads 2  state 8 }  mlp swiglu { hidden 32 } }
block softmax = decoder { mixer attention { heads 2 }  mlp swiglu { hidden 32 } }
arch linear { vocab 16  dim 16  norm_eps 1e-5  init flash_linear  layers 2 of delta }
arch small_delta = linear with { canon A, B, C, D }
arch small_gla = linear with { layers 2 of linear_attention  canon A, C, D }
arch small_mamba = linear with { layers 2 of state_space  canon A, B, C, D }
arch wide_delta = small_delta with { vocab 4010 }
arch wide_gla = small_gla with { vocab 4010 }
arch wide_mamba = small_mamba with { vocab 4010 }
arch small_delta_hybrid = linear with {
  layers [3 of delta, softmax]
  canon A, C
  canon layers[mixer is attention].B
}
arch small_mamba_hybrid = linear with {
  layers [state_space, softmax, state_space]
  canon layers[mixer is mamba2].B, D
}
";

/// Depo with few letters: eight steps of 2 micro-batches of 2 windows, a checkpoint every three.
pub(crate) const DEPO: &str = r#"
[data]
task = "depo"
depo.N = 4
depo.K = 2
depo.mini_vocab = 4
depo.min_tlen = 1
depo.max_tlen = 2
ids = "dense"
seq_len = 32
[batch]
sequences = 2
micro_batches = 2
[budget]
steps = 8
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
every = 4
windows = 3
[checkpoint]
every = 3
[platform]
threads = 1
"#;

/// The same with a mixture of experts, whose auxiliary losses are weighed.
pub(crate) fn experts(changes: &[(&str, &str)]) -> Experiment {
    let recipe = format!("{DEPO}[loss]\nbalance = 0.01\nrouter_z = 0.001\n");
    experiment("small_moe", &recipe, changes)
}

/// The same with a second head, for the token after the next, whose loss has this weight.
pub(crate) fn ahead(weight: &str, changes: &[(&str, &str)]) -> Experiment {
    experiment("ahead", &format!("{DEPO}[loss]\nahead = {weight}\n"), changes)
}

/// The same with dropout.
pub(crate) fn dropping(arch: &str, changes: &[(&str, &str)]) -> Experiment {
    let recipe = DEPO.replace("data = 2\n", "data = 2\ndropout = 3\n");
    experiment(arch, &recipe, changes)
}

/// The same recipe with another task: its name and parameters, one per line.
pub(crate) fn recipe_of(task: &str) -> String {
    let lines = DEPO.find("task").unwrap()..DEPO.find("ids").unwrap();
    let mut text = DEPO.to_owned();
    text.replace_range(lines, &format!("{task}\n"));
    text
}

/// The recipe's experiment, with some lines changed.
pub(crate) fn experiment(arch: &str, recipe_text: &str, changes: &[(&str, &str)]) -> Experiment {
    let mut text = recipe_text.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    attempt(arch, &text).unwrap_or_else(|why| panic!("{why}"))
}

/// The recipe's experiment, or the error.
pub(crate) fn attempt(arch: &str, recipe_text: &str) -> Result<Experiment, String> {
    attempt_in(ARCH, arch, recipe_text)
}

/// Like [`attempt`], with an arch from another text.
pub(crate) fn attempt_in(archs: &str, arch: &str, recipe_text: &str) -> Result<Experiment, String> {
    let text = format!("arch = \"archs.canon#{arch}\"\n{recipe_text}");
    let program = Program::new([("archs.canon".to_owned(), archs.to_owned())], Std::Embedded);
    let experiments = experiments(&program, "small", "small.toml", &text)?;
    Ok(experiments.into_iter().next().unwrap())
}

pub(crate) fn depo(changes: &[(&str, &str)]) -> Experiment {
    experiment("small", DEPO, changes)
}

pub(crate) fn lock_text(experiment: &Experiment) -> String {
    lock::write(&Lock::Experiment(experiment.clone()))
}

/// Records everything reported to an observer.
#[derive(Debug, Default)]
pub(crate) struct RecordingObserver {
    pub(crate) steps: Vec<Step>,
    pub(crate) evaluations: Vec<Evaluation>,
    pub(crate) events: Vec<Event>,
}

impl Observer for RecordingObserver {
    fn step(&mut self, step: &Step, _: f64) {
        self.steps.push(step.clone());
    }

    fn evaluation(&mut self, evaluation: &Evaluation, _: f64) {
        self.evaluations.push(evaluation.clone());
    }

    fn event(&mut self, event: &Event) {
        self.events.push(event.clone());
    }
}

pub(crate) fn job(
    experiment: &Experiment,
    documents: Option<Arc<TextIndex>>,
) -> Result<Job, Problem> {
    Job::new(experiment, &lock_text(experiment), documents)
}

/// One thread, so that parallel tests do not wait for each other's threads.
pub(crate) fn one_thread() {
    tch::set_num_threads(1);
}

/// Documents of one source, as JSON lines.
pub(crate) fn index_of(source: &str, lines: String) -> Arc<TextIndex> {
    let files = vec![("memory".to_owned(), Cursor::new(lines))];
    let source = SourceFiles { name: source.to_owned(), files };
    Arc::new(TextIndex::build(vec![source], OnBadLine::Refuse).unwrap().0)
}

/// The value of `data.digest` that binds these documents.
pub(crate) fn digest_of(documents: &TextIndex) -> FieldValue {
    let digest = Digest::parse(&documents.identity().to_hex()).unwrap();
    FieldValue::text(digest.to_string())
}

/// A folder with a run in it.
pub(crate) struct Folder {
    root: tempfile::TempDir,
    pub(crate) documents: Option<Arc<TextIndex>>,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        one_thread();
        Folder { root: tempfile::tempdir().unwrap(), documents: None }
    }

    /// A finished run.
    pub(crate) fn finished(experiment: &Experiment) -> Folder {
        let folder = Folder::new();
        folder.finish(experiment);
        folder
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().join("run")
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths::new(self.path())
    }

    pub(crate) fn run(
        &self,
        experiment: &Experiment,
        stop_after: Option<u64>,
        fault: Option<&str>,
    ) -> (Result<TrainOutcome, Problem>, RecordingObserver) {
        let faults = fault.map_or_else(Faults::none, |fault| Faults::parse(fault).unwrap());
        let stop = AtomicBool::new(false);
        let options = Options { stop: &stop, stop_after, faults: &faults, ranks: None };
        let mut observer = RecordingObserver::default();
        let end = job(experiment, self.documents.clone()).and_then(|mut job| {
            let machine = machine(&experiment.platform)?;
            train(&mut job, &self.path(), machine, &options, &mut observer)
        });
        (end, observer)
    }

    pub(crate) fn finish(&self, experiment: &Experiment) -> Attestation {
        match self.run(experiment, None, None).0.unwrap() {
            TrainOutcome::Finished(attestation) => attestation,
            end @ (TrainOutcome::Already(_)
            | TrainOutcome::Diverged { .. }
            | TrainOutcome::Interrupted { .. }) => {
                panic!("{end:?}")
            }
        }
    }

    /// Trains to `step` and saves a checkpoint there.
    pub(crate) fn stop_at(&self, experiment: &Experiment, step: u64) {
        let (end, _) = self.run(experiment, Some(step), None);
        assert_eq!(end.unwrap(), TrainOutcome::Interrupted { step });
    }

    pub(crate) fn fails(&self, experiment: &Experiment) -> Problem {
        self.run(experiment, None, None).0.unwrap_err()
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        read(&self.paths().metrics()).unwrap().0
    }

    /// Every byte that must be equal in another run of the lock: metrics, and the last state's tensors.
    pub(crate) fn bits(&self, step: u64) -> BTreeMap<String, Vec<u8>> {
        let last = self.checkpoint(step);
        let mut bits = BTreeMap::new();
        for file in ["weights.safetensors", "first_moment.safetensors", "second_moment.safetensors"]
        {
            bits.insert(file.to_owned(), bytes(&last.join(file)));
        }
        bits.insert("metrics.jsonl".to_owned(), bytes(&self.paths().metrics()));
        bits.insert("checkpoint.toml".to_owned(), bytes(&last.join("checkpoint.toml")));
        bits
    }

    pub(crate) fn checkpoint(&self, step: u64) -> PathBuf {
        self.paths().checkpoints().join(format!("step-{step:010}"))
    }
}

pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the byte sets that differ.
pub(crate) fn differing(
    one: &BTreeMap<String, Vec<u8>>,
    two: &BTreeMap<String, Vec<u8>>,
) -> Vec<String> {
    one.keys().filter(|name| one.get(*name) != two.get(*name)).cloned().collect()
}

pub(crate) fn steps(records: &[Record]) -> Vec<Step> {
    let step = |record: &Record| match record {
        Record::Step(step) => Some(step.clone()),
        Record::Start(_) | Record::Evaluation(_) => None,
    };
    records.iter().filter_map(step).collect()
}
