//! `canonc show LOCK --ranks N`: what a training step costs on many devices, by `scale::predict`.

mod table;

use std::path::Path;

use ::scale::device::{self, Device};
use ::scale::memory::Held;
use ::scale::predict::{Prediction, Question, Seconds, predict};
use ::scale::schedule::Received;
use compiler::plan::{ParamUpdate, Recompute, UpdateRule};
use compiler::plans;
use lab::experiment::{Experiment, Shard};
use lab::lock::Lock;
use records::progress::bytes;
use records::run::Paths;
use serde::Serialize;

use super::{Ranks, ShowArgs};
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::ranks::enough_micro_batches;
use crate::{output, workspace};

pub(super) fn show(what: &Path, ranks: Ranks, args: &ShowArgs) -> Outcome {
    if what.is_dir() && !Paths::new(what).lock().is_file() {
        if args.json {
            return Err(Failure::bad_input("`--json` is for one lock, but a folder is named")
                .help("name one of the locks in it"));
        }
        output::data(&table::of(what, ranks, args)?)?;
        return Ok(Exit::Fine);
    }
    let (Lock::Experiment(experiment), _) = workspace::read_lock(what)? else {
        return Err(Failure::bad_input(format!(
            "`{}` is not the lock of an experiment, but `--ranks` is about one",
            shown(what)
        ))
        .help("name the lock of an experiment, or a folder of locks for a table"));
    };
    let asked = match ranks {
        Ranks::Count(count) => count,
        Ranks::Locked => experiment.platform.devices.map(u64::from).ok_or_else(|| {
            Failure::bad_input(format!("`{}` does not say platform.devices", shown(what)))
                .help("give a number: `--ranks N`")
        })?,
    };
    let question = question(&experiment, asked, args)?;
    let prediction = predicted(&experiment, &question, args)?;
    if args.json {
        output::json(&json(&experiment, &question, &prediction))?;
    } else {
        output::data(&text(&experiment, &question, &prediction))?;
    }
    Ok(Exit::Fine)
}

fn predicted(
    experiment: &Experiment,
    question: &Question,
    args: &ShowArgs,
) -> Result<Prediction, Failure> {
    let mut options = experiment.train_options();
    if let Some(word) = &args.recompute {
        options.recompute = match word.as_str() {
            "nothing" => Recompute::Nothing,
            "layers" => Recompute::Layers,
            "selective" => Recompute::Selective,
            _ => {
                let what = format!("`{word}` is not something that the backward pass recomputes");
                return Err(Failure::bad_input(what).help("give one of nothing, layers, selective"));
            }
        };
    }
    options.common.processor = question.device.processor;
    let plans = plans::train(&experiment.arch.compiled.graph, &options);
    Ok(predict(experiment, &plans, question))
}

fn question(experiment: &Experiment, ranks: u64, args: &ShowArgs) -> Result<Question, Failure> {
    let asked = u32::try_from(ranks).unwrap_or(u32::MAX);
    enough_micro_batches(experiment, asked)?;
    let device = Device::named(&args.device).ok_or_else(|| {
        let names: Vec<&str> = device::ALL.iter().map(|device| device.name).collect();
        Failure::bad_input(format!("there are no figures for the device `{}`", args.device))
            .help(format!("known devices: {}", names.join(", ")))
    })?;
    let shard = match &args.shard {
        None => experiment.platform.shard,
        Some(word) => Shard::named(word).ok_or_else(|| {
            Failure::bad_input(format!("`{word}` is not something that ranks divide"))
                .help(format!("give one of {}", Shard::ALL.map(Shard::name).join(", ")))
        })?,
    };
    let by_muon = |update: &ParamUpdate| matches!(update.rule, UpdateRule::Muon(_));
    if shard != Shard::None && experiment.updates.iter().any(by_muon) {
        return Err(Failure::bad_input(format!(
            "--shard is {} and the lock's optimizer.kind is muon, which needs whole matrices",
            shard.name()
        ))
        .help("give --shard none"));
    }
    let local = args.gpus_per_node.unwrap_or(device.machine).min(ranks);
    if args.by_node && !ranks.is_multiple_of(local) {
        return Err(Failure::bad_input(format!(
            "`--by-node` needs machines of equal size, but {ranks} ranks are not a multiple of {local} a machine"
        ))
        .help("give a number of ranks or `--gpus-per-node` that divides, or leave `--by-node` out"));
    }
    Ok(Question { ranks, shard, local, by_node: args.by_node, device })
}

fn text(experiment: &Experiment, question: &Question, prediction: &Prediction) -> String {
    let Question { ranks, shard, local, by_node, device } = question;
    let Prediction { memory, received, received_by_all, exchanges, seconds, .. } = prediction;
    let size = |n: i128| bytes(u64::try_from(n).unwrap_or(0));
    let Held { weights, moments, gathered, values, gradients, sums, buffers, windows } =
        memory.held;
    let held = [
        ("weights", weights),
        ("moments", moments),
        ("gathered parameters", gathered),
        ("activations", values),
        ("gradients", gradients),
        ("sums of gradients", sums),
        ("buffers of exchanges", buffers),
        ("windows", windows),
    ];
    let held: String =
        held.iter().map(|(what, n)| format!("  {what:<22}{:>12}\n", size(*n))).collect();
    let fits =
        if memory.held.total() as f64 > device.bytes { ", more than the device has" } else { "" };
    let Seconds { compute, near, far, latency, update, overlapped } = *seconds;
    let parts = [
        ("forward, backward", compute),
        ("exchanges in machines", near),
        ("exchanges between", far),
        ("latency", latency),
        ("update", update),
    ];
    let parts: String =
        parts.iter().map(|(what, n)| format!("  {what:<22}{:>12}\n", milliseconds(*n))).collect();
    let way = if *by_node { "by machine" } else { "flat" };
    format!(
        "{}: {} on {} with {local} a machine, shard {}, sums {way}\n\n\
         memory of a rank{:>20} at its peak{fits}\n{held}\n\
         a rank receives{:>21} a step in {exchanges} exchanges, exactly\n\
         {:<22}{:>14}\n{:<22}{:>14}\n{:<22}{:>14}\n\n\
         seconds of a step, from stated figures (docs/scale.md)\n{parts}\
         {:<24}{:>12}  MFU {}\n{:<24}{:>12}  MFU {}\n",
        experiment.name,
        output::counted(*ranks, "rank"),
        device.name,
        shard.name(),
        size(memory.held.total()),
        bytes(received.total()),
        "  in its machine",
        bytes(received.near),
        "  from other machines",
        bytes(received.far),
        "  all ranks",
        bytes(received_by_all.total()),
        "one after another",
        milliseconds(seconds.total()),
        percent(prediction.mfu),
        "overlapped",
        milliseconds(overlapped),
        percent(prediction.mfu_overlapped),
    )
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", 1000.0 * seconds)
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// The `--json` document; the schema is in `canonc show --help`.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    name: String,
    id: String,
    ranks: u64,
    device: &'static str,
    shard: &'static str,
    ranks_per_machine: u64,
    by_node: bool,
    memory: Memory,
    received: Bytes,
    received_by_all: Bytes,
    exchanges: u64,
    seconds: Times,
    mfu: f64,
    mfu_overlapped: f64,
}

#[derive(Serialize)]
struct Memory {
    total: i128,
    weights: i128,
    moments: i128,
    gathered: i128,
    values: i128,
    gradients: i128,
    sums: i128,
    buffers: i128,
    windows: i128,
}

#[derive(Serialize)]
struct Bytes {
    near: u64,
    far: u64,
}

impl From<Received> for Bytes {
    fn from(Received { near, far }: Received) -> Bytes {
        Bytes { near, far }
    }
}

#[derive(Serialize)]
struct Times {
    compute: f64,
    near: f64,
    far: f64,
    latency: f64,
    update: f64,
    total: f64,
    overlapped: f64,
}

fn json(experiment: &Experiment, question: &Question, prediction: &Prediction) -> Report {
    let Question { ranks, shard, local, by_node, device } = *question;
    let held = prediction.memory.held;
    let Held { weights, moments, gathered, values, gradients, sums, buffers, windows } = held;
    let seconds = prediction.seconds;
    let Seconds { compute, near, far, latency, update, overlapped } = seconds;
    Report {
        schema: "canonc.show.scale.v1",
        name: experiment.name.clone(),
        id: experiment.id().to_string(),
        ranks,
        device: device.name,
        shard: shard.name(),
        ranks_per_machine: local,
        by_node,
        memory: Memory {
            total: held.total(),
            weights,
            moments,
            gathered,
            values,
            gradients,
            sums,
            buffers,
            windows,
        },
        received: prediction.received.into(),
        received_by_all: prediction.received_by_all.into(),
        exchanges: prediction.exchanges,
        seconds: Times { compute, near, far, latency, update, total: seconds.total(), overlapped },
        mfu: prediction.mfu,
        mfu_overlapped: prediction.mfu_overlapped,
    }
}
