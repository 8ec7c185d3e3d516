//! `canonc export --to slurm`: a script that launches canonc, and the lock.

use std::path::Path;

use lab::experiment::{Device, Experiment};
use lab::lock::Lock;
use records::run::Paths;

use super::ExportArgs;
use super::launch::Run;
use cli::fail::{Failure, shown};
use cli::ranks::{enough_micro_batches, utf8};
use cli::workspace::{self, Target, refuse};
use cli::{documents, initial_weights, out, output};

/// Writes the script and the lock of one run; returns the names of the files, and that of the arch.
pub(super) fn launch(args: &ExportArgs, folder: &Path) -> Result<(Vec<String>, String), Failure> {
    let prompt = &args.prompt;
    for (given, option) in [
        (args.dtype.is_some(), "--dtype"),
        (args.arch.is_some(), "--arch"),
        (prompt.tokenizer_file.is_some(), "--tokenizer-file"),
        (prompt.bos.is_some(), "--bos"),
        (prompt.eos.is_some(), "--eos"),
    ] {
        if given {
            return Err(Failure::bad_input(format!(
                "{option} is for exported weights, but a run starts from its lock alone"
            ))
            .help(format!("remove {option}")));
        }
    }
    let (lock, run) = match workspace::resolve(&args.source)? {
        Target::Run(folder) => (Paths::new(&folder).lock(), Some(folder)),
        Target::Model(folder) | Target::Folder(folder) => {
            return Err(refuse::not_a_run(&folder).help("or name a lock"));
        }
        Target::Lock(path) | Target::File(path) | Target::Missing(path) => (path, None),
    };
    let (Lock::Experiment(experiment), text) = workspace::read_lock(&lock)? else {
        return Err(Failure::bad_input(format!(
            "`{}` is not the lock of an experiment",
            shown(&lock)
        ))
        .help("`canonc compare LOCK --to slurm` writes a script for the runs of a comparison"));
    };
    let dir = match run {
        Some(folder) => folder,
        None => out::named(Path::new(workspace::RUNS), &experiment.name, "")?,
    };
    let ranks = args.ranks.or(experiment.platform.devices).unwrap_or(1);
    enough_micro_batches(&experiment, ranks)?;
    documents::refuse_unused(&experiment, args.data.as_deref())?;
    let data = args.data.as_deref().map(utf8).transpose()?.unwrap_or_default();
    let run = Run {
        experiment: &experiment,
        lock: &text,
        dir: utf8(&dir)?,
        data,
        weights: weights(args, &experiment)?,
        ranks,
        per_node: u32::try_from(args.gpus_per_node).unwrap_or(1),
    };
    let written = run.write(folder)?;
    for input in experiment.open_inputs() {
        output::note(&format!(
            "warning: the lock is open: {input} has no digest; close it with `canonc bind` before the run"
        ));
    }
    if experiment.platform.device == Device::Cuda && ranks > 1 {
        output::note(
            "warning: several ranks on GPUs need NCCL, with which canonc has never been run (docs/scale.md)",
        );
    }
    Ok((written, experiment.arch.compiled.name.clone()))
}

/// The weights on the cluster that a run begins from; empty for those that its lock names.
fn weights<'a>(args: &'a ExportArgs, experiment: &Experiment) -> Result<Option<&'a str>, Failure> {
    initial_weights::refuse_unused(experiment, args.weights.as_deref())?;
    let path = args.weights.as_deref().map(utf8).transpose()?.unwrap_or_default();
    Ok(initial_weights::begins_from_some(experiment).then_some(path))
}
