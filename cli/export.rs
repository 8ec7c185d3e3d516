//! `canonc export`: writes a lock, a run or an arch for PyTorch, Hugging Face, Lingua or a cluster.
//!
//! In: a lock or an arch with optional weights, a finished run, or a folder of another program. Out: a folder that other
//! programs read. Must stay true: a run whose own weights are exported is checked against its lock and its attestation
//! first, and other weights against the lock; nothing is approximated.

mod tokenizer;

use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use compiler::program::Compiled;
use interop::dtype::Dtype;
use interop::export::{Origin, Request, To, write};
use interop::record::ImportRecord;
use lab::experiment::{DataSource, Experiment};
use lab::lock::Lock;
use records::checkpoint;
use records::finished;
use records::run::{Paths, read_experiment};
use serde::Serialize;

use crate::args::{ExportArgs, ExportDtype, ExportTo};
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::foreign::{self, Foreign};
use crate::import::failure;
use crate::{archs, beside, locks, named, out, output, runs, weights};

pub fn export(args: &ExportArgs) -> Outcome {
    let folder = out::real_folder(&args.out)?;
    if args.to == ExportTo::Slurm {
        return slurm(args, &folder);
    }
    if args.ranks.is_some() || args.data.is_some() {
        return Err(
            Failure::bad_input("--ranks and --data are only for `--to slurm`").help("remove them")
        );
    }
    let dtype = args.dtype.unwrap_or_default();
    let Source { compiled, record, experiment, weights, known } = source(args)?;
    let record = match (record, &experiment, &weights) {
        (None, None, Some(weights)) => foreign::beside(weights)?,
        (record, _, _) => record,
    };
    if let Some(file) = &weights
        && let Some(warning) = weights::of_another_graph(file, &compiled)?
    {
        output::note(&warning);
    }
    let vocab = compiled.graph.vocab;
    let (tokenizer, imported_text) = match &experiment {
        Some(experiment) => (tokenizer::tokenizer(args, experiment, vocab)?, None),
        None => {
            let tokenizer = tokenizer::of_arch(args, record.as_ref(), vocab)?;
            (tokenizer, Some(tokenizer::imported_text(args, record)?))
        }
    };
    let what = known.as_ref().map(|known| known.said(dtype));
    let request = Request {
        compiled: &compiled,
        experiment: experiment.as_ref(),
        weights: weights.as_deref(),
        to: match args.to {
            ExportTo::Hf => To::HuggingFace,
            ExportTo::Release => To::Release,
            ExportTo::Lingua => To::Lingua,
            ExportTo::LinguaSlurm | ExportTo::Slurm => To::LinguaSlurm,
            ExportTo::Card => To::Card,
            ExportTo::Torch => To::Torch,
        },
        dtype: match dtype {
            ExportDtype::F32 => Dtype::F32,
            ExportDtype::Bf16 => Dtype::Bf16,
        },
        gpus_per_node: args.gpus_per_node,
        origin: known.as_ref().zip(what.as_deref()).map(|(known, what)| Origin {
            what,
            step: known.step,
            file: known.attested,
        }),
        tokenizer: tokenizer.as_ref().map_err(String::as_str),
        imported_text: imported_text.as_ref(),
    };
    let written = write(&request, &folder).map_err(failure)?;
    let files: Vec<String> = written.iter().map(|name| shown(&args.out.join(name))).collect();
    if args.json {
        let arch = compiled.name.clone();
        let report = Report { schema: "canonc.export.v1", arch, files, weights: what };
        output::json(&report)?;
        return Ok(Exit::Fine);
    }
    for file in files {
        output::data(&format!("{file}\n"))?;
    }
    if let Some(what) = what {
        output::note(&format!("weights: {what}"));
    }
    if let (ExportTo::Hf, Err(why)) = (args.to, &tokenizer) {
        output::note(why);
    }
    let recipe = written.iter().any(|name| name == "recipe.yaml");
    if let (ExportTo::Lingua, Some(experiment), false) = (args.to, &experiment, recipe) {
        let why = match &experiment.data.source {
            DataSource::Task { task, .. } => {
                format!("it trains on text, but this run uses the task {}", task.name())
            }
            DataSource::Text { .. } => "it cannot express this recipe or arch".to_owned(),
        };
        output::note(&format!(
            "recipe.yaml is left out: Lingua's trainer cannot run it, because {why}"
        ));
    }
    Ok(Exit::Fine)
}

/// A script that launches canonc itself: no format of another program is involved.
fn slurm(args: &ExportArgs, folder: &Path) -> Outcome {
    let written = crate::slurm::launch(args, folder)?;
    let files: Vec<String> = written.iter().map(|name| shown(&args.out.join(name))).collect();
    if args.json {
        let (Lock::Experiment(experiment), _) = locks::read(&args.source)? else {
            return Err(Failure::bad_input("a run has the lock of an experiment"));
        };
        let arch = experiment.arch.compiled.name.clone();
        output::json(&Report { schema: "canonc.export.v1", arch, files, weights: None })?;
        return Ok(Exit::Fine);
    }
    for file in files {
        output::data(&format!("{file}\n"))?;
    }
    Ok(Exit::Fine)
}

/// The `--json` document; the schema is in `canonc export --help`.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    arch: String,
    files: Vec<String>,
    /// What is known about the weights.
    weights: Option<String>,
}

struct Source {
    compiled: Compiled,
    /// The folder of another program that it is from.
    record: Option<ImportRecord>,
    experiment: Option<Experiment>,
    weights: Option<PathBuf>,
    /// What is known about the weights, if there are any.
    known: Option<Known>,
}

/// What is known about weights.
struct Known {
    /// The step of the weights, in words; `None` if no file says so.
    of: Option<String>,
    /// The last step of the exported lock.
    step: Option<u64>,
    /// The digest of the weights file in a finished run's attestation.
    attested: Option<Digest>,
}

impl Known {
    /// What the checkpoint of a file says, if it is in one.
    fn of_file(weights: &Path) -> Known {
        let saved = checkpoint::saved_by(weights);
        let of = saved.map(|(lock, step)| format!("of step {step} of lock {}", lock.short()));
        Known { of, step: None, attested: None }
    }

    fn said(&self, dtype: ExportDtype) -> String {
        let Known { of, step: _, attested } = self;
        let of = match (of, attested) {
            (None, _) => "of unknown origin".to_owned(),
            (Some(of), None) => format!("{of}, not attested"),
            (Some(of), Some(_)) => format!("{of}, attested by the run"),
        };
        match (dtype, attested) {
            (ExportDtype::F32, _) => of,
            (ExportDtype::Bf16, Some(_)) => format!("rounded to bf16 from the f32 weights {of}"),
            (ExportDtype::Bf16, None) => format!("rounded to bf16 from weights {of}"),
        }
    }
}

fn source(args: &ExportArgs) -> Result<Source, Failure> {
    let path = &named::run_or_path(&args.source)?;
    if let Some(Foreign { compiled, record }) = foreign::open(path, args.arch.as_deref())? {
        let weights = match &args.weights {
            None if !interop::folder::has_weights(path) => None,
            given => Some(weights::file(given.as_deref().unwrap_or(path))?),
        };
        let known = weights.as_deref().map(Known::of_file);
        return Ok(Source { compiled, record: Some(record), experiment: None, weights, known });
    }
    let of_itself = |weights: &Path| named::run_or_path(weights).is_ok_and(|run| same(&run, path));
    let path = match (path.is_dir(), args.weights.as_deref()) {
        (true, None) => return run(path),
        (true, Some(weights)) if of_itself(weights) => return run(path),
        (true, Some(_)) => &run_of(path)?.lock(),
        (false, _) => path,
    };
    let weights = args.weights.as_deref().map(weights::file).transpose()?;
    if locks::is_lock(path)
        && let (Lock::Experiment(experiment), _) = locks::read(path)?
    {
        let known =
            weights.as_deref().map(|file| weights_of_lock(file, &experiment)).transpose()?;
        let compiled = experiment.arch.compiled.clone();
        return Ok(Source { compiled, record: None, experiment: Some(experiment), weights, known });
    }
    let compiled = archs::only(path, args.arch.as_deref())?.compiled;
    let known = weights.as_deref().map(Known::of_file);
    Ok(Source { compiled, record: None, experiment: None, weights, known })
}

/// Refuses a checkpoint of another lock: the model card would describe another training.
fn weights_of_lock(weights: &Path, experiment: &Experiment) -> Result<Known, Failure> {
    let Some((lock, step)) = checkpoint::saved_by(weights) else {
        return Ok(Known { of: None, step: None, attested: None });
    };
    if lock == experiment.id() {
        let steps = experiment.budget.steps;
        let of = Some(format!("of step {step} of {steps} of lock {}", lock.short()));
        return Ok(Known { of, step: Some(step), attested: None });
    }
    let failure = Failure::bad_input(format!(
        "these weights are of step {step} of a run of lock {}, and \"{}\" is lock {}",
        lock.short(),
        experiment.name,
        experiment.id().short()
    ));
    Err(Failure { exit: Exit::Finding, ..failure }
        .at(shown(weights))
        .help("name the lock that they were trained with, or the folder of their run"))
}

/// Whether two paths are of one folder.
fn same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// The run in a folder.
fn run_of(folder: &Path) -> Result<Paths, Failure> {
    let paths = Paths::new(folder);
    match paths.lock().is_file() {
        true => Ok(paths),
        false => Err(runs::not_a_run(folder).help("or name a lock")),
    }
}

/// A finished run, and the weights of its last checkpoint.
fn run(folder: &Path) -> Result<Source, Failure> {
    let paths = run_of(folder)?;
    beside::refuse_others(folder)?;
    let text = runs::read_text(&paths.lock())?;
    let experiment = read_experiment("lock", &text).map_err(runs::failure)?;
    let (attestation, _) = finished::read(&paths, (&experiment).into()).map_err(runs::failure)?;
    if let Some(step) = attestation.diverged {
        let failure = Failure::bad_input(format!("`{}` diverged at step {step}", shown(folder)));
        return Err(Failure { exit: Exit::Finding, ..failure }.help(
            "its weights are not finite numbers; name a run that reached its last step, or an earlier checkpoint's \
             weights.safetensors with --weights",
        ));
    }
    let latest = checkpoint::latest(&paths.checkpoints()).map_err(runs::failure)?;
    let Some(latest) = latest else {
        let failure = Failure::bad_input(format!("`{}` has no checkpoint", shown(folder)));
        return Err(Failure { exit: Exit::Finding, ..failure });
    };
    let place = paths.checkpoints().join(&latest);
    let slots = checkpoint::slots(&experiment.arch.compiled.graph, &experiment.updates);
    let manifest = checkpoint::verify(&place, &slots).map_err(|why| {
        Failure { exit: Exit::Finding, ..Failure::bad_input(why) }.at(shown(&place))
    })?;
    runs::holds_what_is_attested(&paths, &place, &manifest, &attestation)?;
    let weights = place.join(checkpoint::Part::Weights.file());
    Ok(Source {
        compiled: experiment.arch.compiled.clone(),
        known: Some(Known {
            of: Some(format!("of {latest}")),
            step: Some(manifest.step),
            attested: Some(manifest.weights.file),
        }),
        record: None,
        experiment: Some(experiment),
        weights: Some(weights),
    })
}
