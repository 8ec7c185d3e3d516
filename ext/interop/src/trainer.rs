//! What an engine of PyTorch needs of a lock besides its module: the recipe's values, and a row for each parameter.

use compiler::graph::Param;
use compiler::number::{InitRule, Root};
use compiler::plan::{MuonScale, ParamUpdate, Precision, Recompute, UpdateRule};
use compiler::plans::decayed;
use compiler::program::Compiled;
use dsl::Problem;
use lab::experiment::Experiment;
use lab::trainer::MAY_CHANGE;
use records::initial::NamedWeights;
use records::weights::WeightSource;
use records::{dropout, init, job};
use serde::Serialize;

use super::torch::{kept_in_f32, tensor_names};

/// The tag of the digest of `model.py`.
pub(super) const MODULE: &str = "canonc.module.v1";

/// Seconds before the end of a job at which Slurm asks for a checkpoint.
pub(super) const NOTICE: u32 = 180;

/// A file of the Python package `canonc.torch`.
macro_rules! engine {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../python/canonc/torch/", $name)))),*]
    };
}

/// The files of the Python package `canonc.torch`, which needs nothing of the packages around it.
pub(super) const ENGINE: [(&str, &str); 9] = engine![
    "__init__.py",
    "_data.py",
    "_draws.py",
    "_hash.py",
    "_kernels.py",
    "_lock.py",
    "_model.py",
    "_optim.py",
    "_record.py"
];

/// The weights that a run begins from.
pub(super) const INITIAL: &str = "initial.safetensors";

/// The rule of parameters that are in that file.
const FROM_FILE: &str = "file";

/// The loop, which imports the engine.
const LOOP: &str = include_str!("../../../python/canonc/torch/loop.py");

/// The loop as a script beside the engine's folder.
pub(super) fn loop_beside_the_engine() -> String {
    LOOP.replace("\nfrom . import ", "\nfrom canonc_torch import ")
}

/// The learning rates of all steps, as little-endian f64.
pub(super) fn rates(experiment: &Experiment) -> Result<Vec<u8>, Problem> {
    let rate = job::rates(experiment)?;
    Ok((0..experiment.budget.steps).flat_map(|step| rate(step).to_le_bytes()).collect())
}

/// Most initial values whose digest an export computes: a few seconds' work.
const MAX_DRAWN: i64 = 1 << 28;

/// `params.toml`.
#[derive(Debug, Serialize)]
struct Parameters<'a> {
    version: u32,
    arch: Arch<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    training: Option<Training<'a>>,
    param: Vec<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Arch<'a> {
    name: &'a str,
    graph: String,
    /// The digest of `model.py`.
    module: String,
    vocab: i64,
}

/// The values of a lock.
#[derive(Debug, Serialize)]
struct Training<'a> {
    name: &'a str,
    lock: String,
    eval: String,
    steps: u64,
    micro_batches: u64,
    sequences: u64,
    seq_len: u64,
    precision: &'static str,
    recompute: &'static str,
    seed: u64,
    /// The digest of all initial values, if there are few to draw.
    #[serde(skip_serializing_if = "Option::is_none")]
    initial: Option<String>,
    /// The key of dropout's draws, a u64, if the arch drops elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropout_key: Option<String>,
    checkpoint_every: u64,
    checkpoint_keep: u64,
    log_every: u64,
    /// The keys of the trainer record that may differ between the processes of one run.
    may_change: &'static [&'static str],
    loss: Loss,
    optimizer: Optimizer,
}

/// Weights of the parts of the loss. Those of means are of one micro-batch; 0 is not computed.
#[derive(Debug, Serialize)]
struct Loss {
    nll_square: f64,
    z_loss: f64,
    balance: f64,
    router_z: f64,
    /// Of each later token's loss.
    ahead: f64,
}

#[derive(Debug, Serialize)]
struct Optimizer {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    clip: Option<f64>,
}

/// A parameter, in the manifest's order.
#[derive(Debug, Serialize)]
struct Row<'a> {
    path: &'a str,
    /// Its name in the module.
    name: String,
    shape: &'a [i64],
    /// Whether it keeps f32 where the recipe computes in bf16: only `f32(…)` reads it.
    f32: bool,
    /// The rule of its initial values and the rule's numbers.
    init: &'static str,
    numbers: Vec<f64>,
    update: &'static str,
    /// The factor of the learning rate, and the decay relative to it.
    lr: f64,
    weight_decay: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    muon: Option<Muon>,
}

#[derive(Debug, Serialize)]
struct Muon {
    momentum: f64,
    nesterov: bool,
    /// The factor of an update, for the matrix's shape.
    scale: f64,
}

/// The text of `params.toml`. An arch without a lock has plain updates.
pub(super) fn parameters(
    compiled: &Compiled,
    experiment: Option<&Experiment>,
    module: String,
    initial: Option<&NamedWeights>,
) -> Result<String, Problem> {
    let graph = &compiled.graph;
    let file = initial.map(|named| named.read(graph)).transpose()?;
    let kept = kept_in_f32(graph);
    let names = tensor_names(graph.params());
    let rows = graph.params().iter().zip(names).enumerate();
    let param = rows
        .map(|(number, (param, name))| {
            let (init, numbers) = match file.as_ref().is_some_and(|file| file.has(number)) {
                true => (FROM_FILE, Vec::new()),
                false => rule(&param.init),
            };
            let update = match experiment {
                Some(experiment) => ParamUpdate::for_param(&experiment.updates, number),
                None => ParamUpdate::PLAIN,
            };
            Row {
                path: &param.path,
                name,
                shape: &param.shape,
                f32: kept.get(number).copied().unwrap_or_default(),
                init,
                numbers,
                update: match update.rule {
                    UpdateRule::AdamW => "adamw",
                    UpdateRule::Muon(_) => "muon",
                    UpdateRule::Frozen => "frozen",
                },
                lr: update.lr_factor.to_f64(),
                weight_decay: experiment.map_or(0.0, |e| decay(e, param, update)),
                muon: muon(update.rule, &param.shape),
            }
        })
        .collect();
    let identity = &compiled.identity;
    let arch = Arch {
        name: &compiled.name,
        graph: identity.graph.to_string(),
        module,
        vocab: graph.vocab,
    };
    let training = experiment.map(|experiment| training(experiment, initial)).transpose()?;
    let parameters = Parameters { version: 1, arch, training, param };
    let text = toml::to_string(&parameters)
        .map_err(|error| Problem::in_file("params.toml", error.to_string(), "report this"))?;
    Ok(format!(
        "# @generated by `canonc export`: what the engine reads of the lock. {SHAPES}\n{text}"
    ))
}

const SHAPES: &str = "Rows are in the order of digests and checkpoints.";

fn training<'a>(
    experiment: &'a Experiment,
    initial: Option<&NamedWeights>,
) -> Result<Training<'a>, Problem> {
    let Experiment { loss, optimizer, batch, seeds, .. } = experiment;
    let graph = &experiment.arch.compiled.graph;
    let few =
        graph.params().iter().map(|p| p.shape.iter().product::<i64>()).sum::<i64>() <= MAX_DRAWN;
    let first = match initial {
        Some(named) => Some(named.initial(graph, seeds.init)?),
        None => few.then(|| init::digest(graph, seeds.init)).transpose().map_err(|error| {
            Problem::in_file(&experiment.name, error.to_string(), "correct the rule in the arch")
        })?,
    };
    let weight = |root: Option<Root>| root.map_or(0.0, |root| root.to_f64());
    let heads = f64::from(graph.ahead_heads().max(1));
    let key = |seed| dropout::key(seed, seeds.data).to_string();
    Ok(Training {
        name: &experiment.name,
        lock: experiment.digests.train.to_string(),
        eval: experiment.digests.eval.to_string(),
        steps: experiment.budget.steps,
        micro_batches: batch.micro_batches,
        sequences: batch.sequences,
        seq_len: experiment.data.seq_len,
        precision: match experiment.precision {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        },
        recompute: match experiment.platform.recompute {
            Recompute::Nothing => "nothing",
            Recompute::Layers => "layers",
            Recompute::Selective => "selective",
        },
        seed: seeds.init,
        initial: first.map(|digest| digest.to_string()),
        dropout_key: experiment.dropout.filter(|_| graph.has_dropout()).map(key),
        checkpoint_every: experiment.checkpoint.every,
        checkpoint_keep: experiment.checkpoint.keep,
        log_every: experiment.log_every,
        may_change: &MAY_CHANGE,
        loss: Loss {
            nll_square: loss.nll_square.to_f64(),
            z_loss: loss.z_loss.to_f64(),
            balance: weight(loss.balance),
            router_z: weight(loss.router_z),
            ahead: weight(loss.ahead) / heads,
        },
        optimizer: Optimizer {
            lr: experiment.lr.to_f64(),
            beta1: optimizer.beta1.to_f64(),
            beta2: optimizer.beta2.to_f64(),
            eps: optimizer.eps.to_f64(),
            clip: optimizer.clip.map(|clip| clip.to_f64()),
        },
    })
}

/// A parameter's decay, relative to its learning rate.
fn decay(experiment: &Experiment, param: &Param, update: ParamUpdate) -> f64 {
    let optimizer = &experiment.optimizer;
    match decayed(param, optimizer.decays) {
        true => optimizer.weight_decay.to_f64() * update.decay_factor.to_f64(),
        false => 0.0,
    }
}

fn muon(rule: UpdateRule, shape: &[i64]) -> Option<Muon> {
    let UpdateRule::Muon(muon) = rule else { return None };
    let [.., rows, columns] = shape else { return None };
    let scale: MuonScale = muon.scale;
    Some(Muon {
        momentum: muon.momentum.to_f64(),
        nesterov: muon.nesterov,
        scale: scale.factor(*rows, *columns),
    })
}

/// An initial distribution's name and numbers.
fn rule(rule: &InitRule<Root>) -> (&'static str, Vec<f64>) {
    match rule.to_f64() {
        InitRule::Ones => ("constant", vec![1.0]),
        InitRule::Zeros => ("constant", vec![0.0]),
        InitRule::Constant(value) => ("constant", vec![value]),
        InitRule::Normal { std } => ("normal", vec![std]),
        InitRule::TruncNormal { std, bound } => ("trunc_normal", vec![std, bound]),
        InitRule::Uniform { limit } => ("uniform", vec![limit]),
        InitRule::LogUniform { lo, hi } => ("log_uniform", vec![lo, hi]),
        InitRule::TimeStep { lo, hi, floor } => ("time_step", vec![lo, hi, floor]),
    }
}
