//! Training steps of the 1 B models at their real sizes, for their shapes alone: every launch on a driver that records, every
//! operation of libtorch on memory that nothing touches.
//!
//! `gpu/steps.tsv` and `gpu/ranks.tsv` list what they launch. `gpu/tests/launches.jsonl` has the largest launches with their
//! arguments, for the interpreter, which runs their last programs. CANONC_UPDATE_GPU_STEPS=1 writes all three.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use compiler::graph::Graph;
use compiler::plan::Work;
use compiler::program::{Program, Std};
use gpu::{Constant, ParamType};
use lab::experiment::{Experiment, Shard};
use lab::lock::{self, Lock};
use records::job::Job;
use support::experiments::experiments;

use super::*;
use crate::kernels::cuda::recorder::{Extent, Recorder};
use crate::kernels::ffi::shapes::Performed;
use crate::ranks::Member;
use crate::ranks::simulated::with_ranks;
use crate::state::{Ahead, Division, State, StepOutcome};

const MODELS: [&str; 5] = ["llama_1B", "llamacanon_1B", "gla5_1B", "gdn2_1B", "mamba2_1B"];
const BATCHES: [i64; 2] = [4, 8];
const SEQ_LEN: i64 = 4096;
const RANKS: u64 = 8;

/// The choices of a GPU. Its tensors are made on the CPU.
const GPU: Machine =
    Machine { device: Device::Cuda(0), kind: Kind::Float, kernels: KernelRequest::FASTEST };

const COLUMNS: &str =
    "launch\tlaunches\tgrid\timage\tbytes\tlargest 32-bit integer\telements of the largest operand";

/// What a step launches, and its largest operands.
#[derive(Debug, Default)]
struct Seen {
    launched: Vec<(Launched, Vec<Extent>)>,
    performed: Vec<Performed>,
}

/// Runs a step for its shapes.
fn seen(work: impl FnOnce()) -> Seen {
    let recorder = Recorder::new(9, 0);
    work();
    let performed = recorder.performed();
    Seen { launched: with_extents(recorder.take(), recorder.operands()), performed }
}

/// Each launch with the extents of its operands, which were noted in the order of the launches. Those of a launch of no
/// programs, which the driver never sees, are passed over.
fn with_extents(launched: Vec<Launched>, operands: Vec<Extent>) -> Vec<(Launched, Vec<Extent>)> {
    let mut rest = &operands[..];
    let extents = |one: Launched| {
        let addresses = one.values.iter().filter_map(|value| match value {
            Value::Address(address @ 1..) => Some(*address),
            Value::Address(0) | Value::I32(_) | Value::I64(_) | Value::F32(_) | Value::F64(_) => {
                None
            }
        });
        let addresses: Vec<u64> = addresses.collect();
        let is_its = |operands: &[Extent]| {
            operands.iter().map(|(at, _)| at).collect::<BTreeSet<_>>() == addresses.iter().collect()
        };
        let first = rest.windows(addresses.len()).position(is_its);
        let first = first.unwrap_or_else(|| panic!("operands of {} were not noted", one.kernel));
        let (own, after) = rest[first..].split_at(addresses.len());
        rest = after;
        (one, own.to_vec())
    };
    launched.into_iter().map(extents).collect()
}

/// A launch's arguments by name, without the scratch that no kernel asks for.
fn arguments(
    (one, extents): &(Launched, Vec<Extent>),
) -> impl Iterator<Item = (&str, ParamType, Value, u64)> {
    one.compiled.params.iter().zip(&one.values).filter_map(|(param, value)| {
        let bytes = match value {
            Value::Address(address) => {
                extents.iter().find(|(known, _)| known == address).map_or(0, |(_, bytes)| *bytes)
            }
            Value::I32(_) | Value::I64(_) | Value::F32(_) | Value::F64(_) => 0,
        };
        let named = (param.name.as_str(), param.ty, *value, bytes);
        (param.ty != ParamType::Scratch).then_some(named)
    })
}

fn described(one: &Launched) -> String {
    one.compiled.describe()
}

/// What must not be so in a step of a published model.
fn problems(seen: &Seen) -> Vec<String> {
    let mut problems = Vec::new();
    for launch in &seen.launched {
        let (one, _) = launch;
        let name = described(one);
        let plain_only = !one.compiled.images.iter().any(|image| image.aligned);
        if !one.aligned && !plain_only {
            let odd = arguments(launch).filter_map(|(name, _, value, _)| {
                let number = match value {
                    Value::Address(address) => address as i64,
                    Value::I32(value) => value.into(),
                    Value::I64(value) => value,
                    Value::F32(_) | Value::F64(_) => 0,
                };
                let param = one.compiled.params.iter().find(|param| param.name == name)?;
                (number % param.divisible as i64 != 0)
                    .then(|| format!("{name} = {number} is no multiple of {}", param.divisible))
            });
            let odd: Vec<String> = odd.collect();
            problems.push(format!("{name} takes the plain image: {}", odd.join(", ")));
        }
        let [x, y, z] = one.grid;
        if x > i32::MAX as u32 || y > 65_535 || z > 65_535 || x == 0 || y == 0 || z == 0 {
            problems.push(format!("{name} has a grid of {x} × {y} × {z}"));
        }
    }
    problems.dedup();
    problems
}

/// The steps of a plan that run neither by a kernel of ours nor by one of libtorch that was chosen by name.
fn composed(paths: &crate::execute::Paths) -> Vec<String> {
    let chosen = |path: &str| {
        ["fused/cuda/sm_90a", "libtorch", "libtorch flash", "view"].contains(&path)
            || path == "fused/cuda/sm_90a, products libtorch"
    };
    let composed = paths.iter().filter(|(_, path, _)| !chosen(path));
    composed.map(|(kernel, path, _)| format!("{kernel} by {path}")).collect()
}

fn arch_texts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../arch");
    let text = |model: &&str| {
        let file = format!("{model}.canon");
        let text = std::fs::read_to_string(folder.join(&file)).unwrap();
        (file, text)
    };
    MODELS.iter().map(text).collect()
}

fn graph(model: &str) -> Graph {
    let program = Program::new(arch_texts(), Std::Embedded);
    let (compiled, diagnostics) = program.compile(&format!("{model}.canon"), model);
    compiled.unwrap_or_else(|| panic!("{}", program.render(&diagnostics))).graph
}

/// Weights that nothing has drawn.
fn untouched(graph: &Graph, lengths: Option<&[i64]>) -> Weights {
    let kind = (Kind::Float, Device::Cpu);
    let tensors = graph.params().iter().enumerate().map(|(n, param)| match lengths {
        None => Tensor::empty(param.shape.as_slice(), kind),
        Some(lengths) => Tensor::empty([lengths[n]], kind),
    });
    Weights::new(graph.params().iter().map(|param| param.path.clone()).collect(), tensors.collect())
}

/// What one kernel of a plan does in a micro-batch.
#[derive(Debug, Default)]
struct Share {
    steps: usize,
    work: Work,
}

/// Two micro-batches and an update on one GPU: what they launch; the share of each kernel of a micro-batch's plan, with its
/// path.
fn alone(model: &str, batch: i64) -> (Seen, BTreeMap<(String, String), Share>) {
    let graph = graph(model);
    let plans = plans::train(&graph, &models::options(Precision::Bf16, Processor::Gpu));
    let sizes = Sizes { batch, time: SEQ_LEN, past: 0 };
    let mut shares: BTreeMap<&'static str, Share> = BTreeMap::new();
    for step in &plans.micro.steps {
        let share = shares.entry(step.kernel.name()).or_default();
        share.steps += 1;
        share.work += plans.micro.work(step, sizes);
    }
    let mut paths = None;
    let seen = seen(|| {
        let trainer = Trainer::new(plans, GPU).unwrap();
        let mut weights = untouched(&graph, None);
        let mut moments = Moments::zeros(&weights, &[]).unwrap();
        let ids = || Tensor::zeros([batch, SEQ_LEN], (Kind::Int64, Device::Cpu));
        let micro_batch =
            |weights: &Weights| trainer.micro_batch(weights, &ids(), &ids(), 1e-4).unwrap();
        let sums = trainer.combine(micro_batch(&weights), micro_batch(&weights)).unwrap();
        trainer.update_and_log(&mut weights, &mut moments, &sums, 1e-3, 1).unwrap();
        paths = Some(trainer.paths());
    });
    let paths = paths.unwrap();
    assert_eq!(composed(&paths), Vec::<String>::new(), "{model}");
    let with_path = |(kernel, share): (&'static str, Share)| {
        let all: Vec<&str> =
            paths.iter().filter(|(name, ..)| *name == kernel).map(|(_, path, _)| path).collect();
        ((kernel.to_owned(), all.join("; ")), share)
    };
    (seen, shares.into_iter().map(with_path).collect())
}

const RECIPE: &str = r#"
[data]
task = "depo"
depo.N = 12
depo.K = 2
depo.mini_vocab = 50
depo.min_tlen = 1
depo.max_tlen = 2
ids = "dense"
seq_len = 4096
[budget]
steps = 2
[optimizer]
lr = 0.003
weight_decay = 0.03
[schedule]
kind = "constant"
[precision]
policy = "bf16"
[seeds]
init = 1
data = 1
[evaluation]
every = 2
windows = 4
[checkpoint]
every = 2
"#;

/// The experiment of a model in which each rank has two micro-batches of so many sequences.
fn experiment(model: &str, batch: i64, shard: &str) -> Experiment {
    let text = format!(
        "arch = \"{model}.canon#{model}\"\n{RECIPE}[batch]\nsequences = {batch}\nmicro_batches = {}\n[platform]\n\
         device = \"cuda\"\ndevices = {RANKS}\nshard = \"{shard}\"\n",
        2 * RANKS
    );
    let program = Program::new(arch_texts(), Std::Embedded);
    let experiments = experiments(&program, "step", "step.toml", &text);
    experiments.unwrap_or_else(|findings| panic!("{findings}")).remove(0)
}

/// The first step of each of eight ranks.
fn together(model: &str, batch: i64, shard: Shard) -> Vec<Seen> {
    with_ranks(RANKS, |ranks| {
        let experiment = experiment(model, batch, shard.name());
        let text = lock::write(&Lock::Experiment(experiment.clone()));
        let mut job = Job::new(&experiment, &text, None).unwrap();
        seen(|| {
            let member = Member { ranks: Rc::new(ranks), shard, node: None, wrong_in: None };
            let division = Division::new(&job, &member, Device::Cpu);
            let trainer = division.trainer(&job, GPU).unwrap();
            let parts = division.team.parts();
            let weights = untouched(&job.graph, (shard == Shard::Full).then_some(&parts[..]));
            let moment = || parts.iter().map(|n| Tensor::empty([*n], (Kind::Float, Device::Cpu)));
            let moments = Moments { first: moment().collect(), second: moment().collect() };
            let local = division.team.micro_batches(job.micro_batches).collect();
            let mut ahead = Ahead::new(&job, local, None);
            let mut state = State { step: 0, weights, moments, division: Some(division) };
            let stop = AtomicBool::new(false);
            let outcome = state.advance_together(&mut job, &trainer, &mut ahead, &stop).unwrap();
            assert!(matches!(outcome, StepOutcome::Done { .. }), "{outcome:?}");
            assert_eq!(composed(&trainer.paths()), Vec::<String>::new(), "{model}");
        })
    })
}

/// One row for each kind of launch, then one for each operation of libtorch.
fn rows(seen: &Seen) -> Vec<String> {
    #[derive(Default)]
    struct Kind {
        launches: usize,
        grids: Vec<[u32; 3]>,
        plain: usize,
        bytes: u64,
        largest_integer: i64,
        largest_operand: u64,
    }
    let mut ours: BTreeMap<String, Kind> = BTreeMap::new();
    for launch in &seen.launched {
        let (one, extents) = launch;
        let kind = ours.entry(described(one)).or_default();
        kind.launches += 1;
        kind.grids.push(one.grid);
        kind.plain += usize::from(!one.aligned);
        let operands: BTreeMap<u64, u64> = extents.iter().copied().collect();
        kind.bytes += operands.values().sum::<u64>();
        for (_, ty, value, bytes) in arguments(launch) {
            if let Value::I32(value) = value {
                kind.largest_integer = kind.largest_integer.max(value.into());
            }
            if let ParamType::Pointer(element) = ty {
                kind.largest_operand = kind.largest_operand.max(bytes / size_of(element));
            }
        }
    }
    let grid = |[x, y, z]: &[u32; 3]| format!("{x} × {y} × {z}");
    let launch = |(name, kind): (String, Kind)| {
        let (least, most) = (kind.grids.iter().min().unwrap(), kind.grids.iter().max().unwrap());
        let grids =
            if least == most { grid(most) } else { format!("{} to {}", grid(least), grid(most)) };
        let image = match kind.plain {
            0 => "aligned".to_owned(),
            all if all == kind.launches => "plain".to_owned(),
            some => format!("{some} plain"),
        };
        let Kind { launches, bytes, largest_integer, largest_operand, .. } = kind;
        format!(
            "{name}\t{launches}\t{grids}\t{image}\t{bytes}\t{largest_integer}\t{largest_operand}"
        )
    };
    let mut theirs: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for one in &seen.performed {
        let entry = theirs.entry(&one.name).or_default();
        entry.0 += 1;
        entry.1 += one.bytes;
    }
    let operation = |(name, (calls, bytes)): (&str, (usize, u64))| {
        format!("libtorch {name}\t{calls}\t\t\t{bytes}\t\t")
    };
    ours.into_iter().map(launch).chain(theirs.into_iter().map(operation)).collect()
}

/// A number in JSON, which has no infinity.
fn number(value: f64) -> serde_json::Value {
    if value.is_finite() { value.into() } else { value.to_string().into() }
}

fn size_of(element: Element) -> u64 {
    match element {
        Element::Bf16 => 2,
        Element::F32 | Element::I32 => 4,
        Element::F64 | Element::I64 => 8,
    }
}

/// The largest launch of each kernel, as lines of JSON: that of most programs, and that of most bytes, if it is another one.
#[derive(Default)]
struct Largest(BTreeMap<(String, bool, &'static str), (u64, String)>);

impl Largest {
    fn add(&mut self, step: &str, seen: &Seen) {
        for launch in &seen.launched {
            let (one, extents) = launch;
            let programs: u64 = one.grid.iter().map(|count| u64::from(*count)).product();
            let bytes: u64 = extents.iter().map(|(_, bytes)| bytes).sum();
            let mut text = None;
            for (measure, size) in [("programs", programs), ("bytes", bytes)] {
                let key = (described(one), one.aligned, measure);
                if self.0.get(&key).is_none_or(|(known, _)| size > *known) {
                    let text = text.get_or_insert_with(|| Self::line(step, launch));
                    self.0.insert(key, (size, text.clone()));
                }
            }
        }
    }

    fn line(step: &str, launch: &(Launched, Vec<Extent>)) -> String {
        let (one, _) = launch;
        let argument = |(name, ty, value, bytes): (&str, ParamType, Value, u64)| {
            let mut object = serde_json::json!({ "name": name, "type": ty.to_string() });
            match value {
                Value::Address(_) => object["bytes"] = bytes.into(),
                Value::I32(value) => object["value"] = value.into(),
                Value::I64(value) => object["value"] = value.into(),
                Value::F32(value) => object["value"] = number(value.into()),
                Value::F64(value) => object["value"] = number(value),
            }
            object
        };
        let constants = one.compiled.constants.iter().map(|(name, constant)| {
            let constant = match constant {
                Constant::Int(value) => (*value).into(),
                Constant::Text(text) => serde_json::Value::from(text.as_str()),
            };
            (name.clone(), constant)
        });
        serde_json::json!({
            "step": step,
            "kernel": one.kernel,
            "constants": constants.collect::<serde_json::Map<_, _>>(),
            "grid": one.grid,
            "aligned": one.aligned,
            "arguments": arguments(launch).map(argument).collect::<Vec<_>>(),
        })
        .to_string()
    }

    fn lines(self) -> String {
        let lines: BTreeSet<String> = self.0.into_values().map(|(_, line)| line + "\n").collect();
        lines.into_iter().collect()
    }
}

const UPDATE: &str = "CANONC_UPDATE_GPU_STEPS";

/// Compares with a committed file, or writes it if that is asked for.
fn committed(file: &str, text: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu").join(file);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines = known.lines().zip(text.lines()).zip(1..);
    if let Some(((known, new), line)) = lines.find(|((known, new), _)| known != new) {
        panic!("line {line} of gpu/{file} is\n{known}\nnot\n{new}\n{UPDATE}=1 writes it");
    }
    assert_eq!(
        known.len(),
        text.len(),
        "gpu/{file} has other lines at its end; {UPDATE}=1 writes it"
    );
}

/// A comment, and what the columns are.
fn section(text: &mut String, title: &str, columns: &str) {
    writeln!(text, "\n# {title}\n{columns}").unwrap();
}

#[test]
fn steps_on_one_gpu_launch_what_is_committed() {
    let mut text = String::from(
        "# What training steps of 1 B models launch in bf16 on sm_90a: the kernels of a micro-batch's plan, then every launch\n\
         # of two micro-batches and an update. A test writes it: runtime/src/kernels/cuda/tests/steps.rs.\n",
    );
    let mut largest = Largest::default();
    for (model, batch) in MODELS.into_iter().flat_map(|model| BATCHES.map(|batch| (model, batch))) {
        let (seen, shares) = alone(model, batch);
        assert_eq!(problems(&seen), Vec::<String>::new(), "{model}, batch {batch}");
        let step = format!("{model} {batch}x{SEQ_LEN}");
        section(
            &mut text,
            &format!("{step}, the plan of a micro-batch"),
            "kernel\tpath\tsteps\tbytes\tfloating-point operations",
        );
        for ((kernel, path), Share { steps, work: Work { bytes, flops } }) in shares {
            writeln!(text, "{kernel}\t{path}\t{steps}\t{bytes}\t{flops}").unwrap();
        }
        let (launches, operations) = (seen.launched.len(), seen.performed.len());
        let title = format!("{step}: {launches} launches, {operations} operations of libtorch");
        section(&mut text, &title, COLUMNS);
        text.extend(rows(&seen).into_iter().map(|row| row + "\n"));
        largest.add(&step, &seen);
    }
    committed("steps.tsv", &text);
    committed("tests/launches.jsonl", &largest.lines());
}

#[test]
fn steps_of_eight_ranks_launch_what_is_committed() {
    let mut text = String::from(
        "# What the first rank of eight launches in a step of two micro-batches, with platform.shard = \"full\"; as steps.tsv.\n",
    );
    for (model, batch) in MODELS.into_iter().flat_map(|model| BATCHES.map(|batch| (model, batch))) {
        let step = format!("{model} {batch}x{SEQ_LEN}");
        let ranks = together(model, batch, Shard::Full);
        for (rank, seen) in (0..).zip(&ranks) {
            assert_eq!(problems(seen), Vec::<String>::new(), "{step}, rank {rank}");
        }
        let seen = &ranks[0];
        let (launches, operations) = (seen.launched.len(), seen.performed.len());
        let title = format!("{step}: {launches} launches, {operations} operations of libtorch");
        section(&mut text, &title, COLUMNS);
        text.extend(rows(seen).into_iter().map(|row| row + "\n"));
    }
    committed("ranks.tsv", &text);
}

#[test]
fn a_misaligned_operand_is_found() {
    let weight = Tensor::zeros([2048], (Kind::BFloat16, Device::Cpu));
    let rows_from =
        |first| Tensor::zeros([2, 64, 4096], (Kind::BFloat16, Device::Cpu)).narrow(2, first, 2048);
    for (first, wanted) in [(8, 0), (4, 1)] {
        let seen = seen(|| {
            let _ = norm::forward(
                launcher(Device::Cpu).unwrap(),
                &rows_from(first),
                None,
                &weight,
                1e-5,
            )
            .unwrap();
        });
        let problems = problems(&seen);
        assert_eq!(problems.len(), wanted, "{problems:?}");
        assert!(problems.iter().all(|problem| problem.contains("takes the plain image: x = ")));
    }
}

#[test]
fn a_grid_that_no_gpu_has_is_found() {
    let weight = Tensor::zeros([2048], (Kind::BFloat16, Device::Cpu));
    let x = Tensor::zeros([2, 64, 2048], (Kind::BFloat16, Device::Cpu));
    for (grid, wanted) in [([1, 65_535, 1], 0), ([1, 65_536, 1], 1), ([1 << 31, 1, 1], 1)] {
        let mut seen = seen(|| {
            let _ = norm::forward(launcher(Device::Cpu).unwrap(), &x, None, &weight, 1e-5).unwrap();
        });
        seen.launched[0].0.grid = grid;
        assert_eq!(problems(&seen).len(), wanted, "{grid:?}");
    }
}

#[test]
fn nothing_large_is_computed_or_touched() {
    let elements = 1 << 31; // 8 GiB
    let seen = seen(|| {
        let x = Tensor::empty([elements], (Kind::Float, Device::Cpu));
        let y = &x * 2.0 + &x;
        assert_eq!(y.size(), [elements]);
    });
    let names: Vec<&str> = seen.performed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["mul", "add"]);
    assert!(seen.performed.iter().all(|one| !one.computed), "{:?}", seen.performed);
}
