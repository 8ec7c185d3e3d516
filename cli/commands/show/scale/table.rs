//! `canonc show FOLDER --ranks locked`: what a step of each lock costs, as a table.

use std::collections::BTreeMap;
use std::path::Path;

use ::scale::predict::{Prediction, Question};
use compiler::digest::Digest;
use lab::experiment::{Batch, Experiment};
use lab::lock::Lock;
use records::progress::bytes;

use super::{milliseconds, percent, predicted, question};
use crate::commands::show::{Ranks, ShowArgs};
use crate::fail::{Failure, shown};
use crate::workspace;

/// What decides a prediction: the graph, the platform, the options of the plan, the batch, and the number of ranks.
type Key = (Digest, Digest, String, Batch, u64, u64);

/// The locks of a row: by model, how many.
type Rows = BTreeMap<Vec<String>, BTreeMap<String, usize>>;

pub(super) fn of(folder: &Path, ranks: Ranks, args: &ShowArgs) -> Result<String, Failure> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| Failure::cannot_read(folder, &error))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| workspace::is_lock(path));
    paths.sort();
    let mut known: Vec<(Key, Vec<String>)> = Vec::new();
    let mut rows = Rows::new();
    for path in paths {
        let (Lock::Experiment(experiment), _) = workspace::read_lock(&path)? else { continue };
        let count = match (ranks, experiment.platform.devices) {
            (Ranks::Count(count), _) => count,
            (Ranks::Locked, Some(devices @ 2..)) => u64::from(devices),
            (Ranks::Locked, Some(_) | None) => continue,
        };
        if count > experiment.batch.micro_batches {
            continue;
        }
        let graph = experiment.arch.compiled.identity.graph;
        let platform = experiment.digests.platform;
        let options = format!("{:?}", experiment.train_options());
        let key = (graph, platform, options, experiment.batch, experiment.data.seq_len, count);
        let row = match known.iter().find(|(known, _)| *known == key) {
            Some((_, row)) => row.clone(),
            None => {
                let question = question(&experiment, count, args)?;
                let prediction = predicted(&experiment, &question, args)?;
                let row = cells(&experiment, &question, &prediction);
                known.push((key, row.clone()));
                row
            }
        };
        *rows.entry(row).or_default().entry(model(&experiment)).or_default() += 1;
    }
    if rows.is_empty() {
        return Err(Failure::bad_input(format!(
            "`{}` has no lock of an experiment with so many micro-batches, or with platform.devices",
            shown(folder)
        ))
        .help("name another folder, or give a number: `--ranks N`"));
    }
    Ok(text(rows))
}

/// The name of a lock without its budget, rate and seed.
fn model(experiment: &Experiment) -> String {
    let name = experiment.name.split("-Nemo-").next().unwrap_or_default();
    name.to_owned()
}

fn cells(experiment: &Experiment, question: &Question, prediction: &Prediction) -> Vec<String> {
    let Prediction { memory, received, seconds, .. } = prediction;
    let size = |count: i128| bytes(u64::try_from(count).unwrap_or(0));
    let held = memory.held;
    let total = held.total();
    let fits = if total as f64 > question.device.bytes { " (too much)" } else { "" };
    let batch = &experiment.batch;
    vec![
        question.ranks.to_string(),
        format!("{} x {}", batch.sequences, experiment.data.seq_len),
        batch.micro_batches.div_ceil(question.ranks).to_string(),
        format!("{}{fits}", size(total)),
        size(held.values),
        bytes(received.near),
        bytes(received.far),
        milliseconds(seconds.compute),
        milliseconds(seconds.near + seconds.far + seconds.latency),
        milliseconds(seconds.update),
        milliseconds(seconds.overlapped),
        percent(prediction.mfu_overlapped),
        percent(prediction.mfu),
    ]
}

fn text(rows: Rows) -> String {
    let mut text = "| model (locks) | devices | micro-batch | rounds | memory | of it activations | received in machine | \
                    from others | compute | exchange | update | step | MFU | not overlapped |\n\
                    |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut lines: Vec<String> = rows
        .into_iter()
        .map(|(cells, models)| {
            let models: Vec<String> =
                models.into_iter().map(|(model, count)| format!("{model} ({count})")).collect();
            format!("| {} | {} |\n", models.join(", "), cells.join(" | "))
        })
        .collect();
    lines.sort();
    text.extend(lines);
    text
}
