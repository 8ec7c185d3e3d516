//! Scripts for Slurm: `canonc export RUN --to slurm` and `canonc compare --to slurm`.
//!
//! In: a lock or a run, or comparisons and the folder of their runs. Out: a script that launches canonc. Must stay true:
//! nothing that a machine of the cluster would refuse from the lock alone is written.

use std::path::{Path, PathBuf};

use interop::launch::{Array, Run};
use lab::comparison::Comparison;
use lab::experiment::{Device, Experiment};
use lab::lock::Lock;
use records::run::Paths;

use crate::args::{CompareArgs, ExportArgs};
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::found::Found;
use crate::import::failure;
use crate::{locks, looks, named, out, output, runs};

/// Writes the script and the lock of one run; returns the names of the files.
pub fn launch(args: &ExportArgs, folder: &Path) -> Result<Vec<String>, Failure> {
    let prompt = &args.prompt;
    for (given, option) in [
        (args.weights.is_some(), "--weights"),
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
    let source = named::run_or_path(&args.source)?;
    let lock = if source.is_dir() { Paths::new(&source).lock() } else { source.clone() };
    if source.is_dir() && !lock.is_file() {
        return Err(runs::not_a_run(&source).help("or name a lock"));
    }
    let (Lock::Experiment(experiment), text) = locks::read(&lock)? else {
        return Err(Failure::bad_input(format!(
            "`{}` is not the lock of an experiment",
            shown(&lock)
        ))
        .help("`canonc compare LOCK --to slurm` writes a script for the runs of a comparison"));
    };
    let dir = match source.is_dir() {
        true => source,
        false => out::named(Path::new(runs::FOLDER), &experiment.name, "")?,
    };
    let ranks = args.ranks.or(experiment.platform.devices).unwrap_or(1);
    enough_micro_batches(&experiment, ranks)?;
    runs::reads(&experiment, args.data.as_deref())?;
    let data = args.data.as_deref().map(utf8).transpose()?.unwrap_or_default();
    let run = Run {
        experiment: &experiment,
        lock: &text,
        dir: utf8(&dir)?,
        data,
        ranks,
        per_node: u32::try_from(args.gpus_per_node).unwrap_or(1),
    };
    let written = run.write(folder).map_err(failure)?;
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
    Ok(written)
}

/// Refuses more ranks than a step has micro-batches.
pub fn enough_micro_batches(experiment: &Experiment, ranks: u32) -> Result<(), Failure> {
    let most = experiment.batch.micro_batches;
    if u64::from(ranks) <= most {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "{ranks} ranks cannot share the {most} micro-batches of a step: each rank needs one"
    ))
    .help(format!("start at most {most} ranks, or lock more micro-batches of fewer sequences")))
}

/// Prints a script whose machines do the missing runs of these comparisons.
pub fn array(args: &CompareArgs, comparisons: &[Comparison]) -> Outcome {
    let (mut missing, mut gpu, mut threads) = (0, false, None);
    let found = Found::under(&args.dir);
    for comparison in comparisons {
        let folder = out::named(&args.dir, &comparison.name, "")?;
        let (due, _) = looks::due(comparison, &folder, &found)?;
        for run in due {
            let platform = &run.experiment.platform;
            if let Some(devices @ 2..) = platform.devices {
                return Err(Failure::bad_input(format!(
                    "`{}` has platform.devices = {devices}, but a machine of the array trains with one process",
                    run.experiment.name
                ))
                .help("write a script for each of its runs: `canonc export LOCK --to slurm`"));
            }
            let place = found.place(&folder, &run.experiment)?;
            if !Paths::new(&place).attestation().exists() {
                missing += 1;
                gpu |= platform.device == Device::Cuda;
                threads = threads.max(platform.threads);
            }
        }
    }
    let mut words = args.locks.iter().map(|lock| words_of(lock)).collect::<Result<Vec<_>, _>>()?;
    words.extend(["--dir".to_owned(), words_of(&args.dir)?]);
    words.extend(["--lease".to_owned(), args.lease.to_string()]);
    if let Some(data) = &args.data {
        words.extend(["--data".to_owned(), words_of(data)?]);
    }
    if missing == 0 {
        return Err(Failure::bad_input("no run is missing, so there is nothing for Slurm to do")
            .help(format!("`canonc compare {}` prints the results", shown(&args.locks[0]))));
    }
    let name = comparisons.first().map_or("compare", |comparison| comparison.name.as_str());
    let workers = args.workers.unwrap_or(missing).clamp(1, missing);
    let array = Array { name, missing, workers, words: &words, gpu, threads };
    output::exact(&array.script().map_err(failure)?)?;
    Ok(Exit::Fine)
}

fn words_of(path: &Path) -> Result<String, Failure> {
    // A path that begins with a hyphen would be read as an option.
    let path = if path.as_os_str().as_encoded_bytes().first() == Some(&b'-') {
        PathBuf::from(".").join(path)
    } else {
        path.to_owned()
    };
    utf8(&path).map(str::to_owned)
}

fn utf8(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::bad_input(format!("`{}` is not UTF-8, which a script needs", shown(path)))
            .help("rename it")
    })
}
