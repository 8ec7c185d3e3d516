//! `canonc export`: writes a lock, a run or an arch for PyTorch, Hugging Face, Lingua or a cluster.
//!
//! A run whose own weights are exported is checked against its lock and its attestation first, and other weights
//! against the lock.

pub mod launch;
mod slurm;
mod tokenizer;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use compiler::digest::Digest;
use compiler::program::Compiled;
use dsl::Problem;
use interop::dtype::Dtype;
use interop::export::{Origin, Request, To, write};
use interop::folder::write_folder;
use interop::record::ImportRecord;
use lab::comparison::{Comparison, ComparisonRun};
use lab::experiment::{DataSource, Experiment};
use lab::lock::Lock;
use records::run::{Paths, experiment_from_text};
use records::{checkpoint, finished};
use serde::Serialize;

use crate::foreign::{self, Foreign};
use cli::fail::{Exit, Failure, Outcome, shown};
use cli::inputs::GivenPaths;
use cli::options::{PromptArgs, within};
use cli::workspace::{self, Target, refuse};
use cli::{archs, comparison_folder, initial_weights, out, output};

use crate::weights;

/// Export a lock, a finished run or an arch for PyTorch, Hugging Face, Lingua or Slurm
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc export runs/demo/demo-llama-seed1 --to hf --out llama     a folder that `transformers` loads
  canonc export arch/gla_demo.canon --to torch --out gla           model.py: the arch in plain PyTorch
  canonc export a.lock --weights w.safetensors --to lingua --out b
  canonc export lockfiles/llama_1B.lock --to card --out card
  canonc export lockfiles/llama_1B.lock --to trainer --out llama   PyTorch trains the lock there

Exit codes: 0 written, 1 the run is damaged or not finished, 2 the target format cannot express it, 3 this machine
cannot write it.",
    after_long_help = "\
Examples:
  canonc export runs/demo/demo-llama-seed1 --to hf --out llama     a folder that `transformers` loads
  canonc export arch/gla_demo.canon --to torch --out gla           model.py: the arch in plain PyTorch
  canonc export a.lock --weights w.safetensors --to lingua --out b
  canonc export lockfiles/llama_1B.lock --to card --out card
  canonc export lockfiles/depo_llama.lock --to slurm --ranks 16 --out job && sbatch job/launch.sh

hf      config.json, model.safetensors, generation_config.json, README.md. An arch that is one of
        {classes}
        (also with scaled RoPE) loads in the class of `transformers`, whatever its text calls its definitions. Any
        other arch brings its code, modeling_canonc.py: AutoModelForCausalLM loads it with trust_remote_code=True, and
        `generate` and lm-evaluation-harness use it. tokenizer.json and tokenizer_config.json if the lock's tokens are
        bytes, or its tokenizer is a tokenizer.json and --tokenizer-file names it; an imported arch has the imported
        one, or that of --tokenizer-file. Else README.md says why there is none.
torch   model.py: the arch in plain PyTorch, without canonc, with cached decoding and initial values; with
        weights, model.safetensors under the names of its modules.
release the files of hf, without tokenizer, for the classes published with the release; README.md says where
        to find their code. Only equal layers of Llama, GLA5, GDN2 or Mamba2.
lingua  recipe.yaml, default/params.json, and with weights default/consolidated.pth, as the published
        `from_pretrained` loads them. Settings that this loader ignores (a Llama kernel other than 4, a head_dim
        other than dim / heads, a tied head) are refused. The archs of release.
slurm   launch.sh and the lock: canonc trains the lock, or continues the run, with platform.devices ranks (or --ranks),
        any arch and task. Before its time is over the job stops with a checkpoint and queues itself again.
trainer README.md, launch.sh, job.sbatch, train.py and all that it reads: PyTorch trains the lock, on any number of GPUs and
        machines (docs/trainer.md); of a comparison's lock a folder for each run. Of an arch alone only model.py and params.toml.
lingua-slurm
        recipe.yaml and launch.sh, which launches Lingua's trainer on platform.devices GPUs. The archs of release.
card    README.md: a model card with numbers from the lock.

hf, torch, trainer, slurm and card take any arch. Every --weights reads the files of hf, torch, release and lingua: the same bits
(rounded with --dtype bf16; norms of Gemma 2 are stored less 1, so those below 1/2 may be off by one place of f32 at 1).
`canonc import` gives back the graph, manifest and recipe from the classes of `transformers`, release and lingua; for
other folders of hf, arch.canon beside the weights is the arch.

Exit codes: 0 written, 1 the run is damaged or not finished, 2 the target format cannot express it, 3 this machine
cannot write it.
Schema of --json: {schema: \"canonc.export.v1\", arch, files: [path], weights (their origin, as far as
  known; null without weights)}."
)]
pub struct ExportArgs {
    /// A finished run, a lock, a .canon file, or a folder: of Hugging Face or Lingua, or that canonc imported
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// The target format
    #[arg(long, value_enum, value_name = "TO")]
    pub to: ExportTo,
    /// The folder to create; it must be empty or missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The parameters, under our names, Hugging Face's or Lingua's: a file, a folder with one, or a run [default for a
    /// run: its last checkpoint; for a folder: its own]. For trainer, those that the run begins from, if its lock names some
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Dtype of the written weights [default: f32]
    #[arg(long, value_enum, value_name = "DTYPE")]
    pub dtype: Option<ExportDtype>,
    /// The arch, if the file or comparison has several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    #[command(flatten)]
    pub prompt: PromptArgs,
    /// GPUs, or ranks, per machine, for slurm, trainer and lingua-slurm
    #[arg(long, value_name = "N", default_value_t = 8, allow_negative_numbers = true, value_parser = within::<i64>(1, 1024))]
    pub gpus_per_node: i64,
    /// Ranks, for slurm and trainer [default: the lock's platform.devices, or 1; for trainer, as many of one machine as
    /// divide a step]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u32>(1, 1 << 20))]
    pub ranks: Option<u32>,
    /// Prepared documents on the cluster, for slurm, if the lock trains on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Print a summary as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportTo {
    /// Hugging Face's transformers
    Hf,
    /// A PyTorch module
    Torch,
    /// The classes published with the release
    Release,
    /// Lingua's trainer and loader
    Lingua,
    /// A Slurm script that launches canonc
    Slurm,
    /// A folder in which PyTorch trains
    Trainer,
    /// A Slurm script that launches Lingua's trainer
    LinguaSlurm,
    /// A model card
    Card,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportDtype {
    #[default]
    F32,
    Bf16,
}

impl From<ExportTo> for To {
    fn from(to: ExportTo) -> To {
        match to {
            ExportTo::Hf => To::HuggingFace,
            ExportTo::Release => To::Release,
            ExportTo::Lingua => To::Lingua,
            ExportTo::LinguaSlurm | ExportTo::Slurm => To::LinguaSlurm,
            ExportTo::Card => To::Card,
            ExportTo::Torch => To::Torch,
            ExportTo::Trainer => To::Trainer,
        }
    }
}

impl From<ExportDtype> for Dtype {
    fn from(dtype: ExportDtype) -> Dtype {
        match dtype {
            ExportDtype::F32 => Dtype::F32,
            ExportDtype::Bf16 => Dtype::Bf16,
        }
    }
}

pub fn export(args: &ExportArgs) -> Outcome {
    let folder = out::real_folder(&args.out)?;
    if args.to == ExportTo::Slurm {
        return slurm(args, &folder);
    }
    if args.ranks.is_some() && args.to != ExportTo::Trainer || args.data.is_some() {
        let message =
            "--ranks is only for `--to slurm` and `--to trainer`, and --data for `--to slurm`";
        return Err(Failure::bad_input(message).help("remove them"));
    }
    if args.to == ExportTo::Trainer && args.dtype.is_some() {
        let message = "--dtype is for exported weights, but a trainer keeps f32";
        return Err(Failure::bad_input(message).help("remove it"));
    }
    if args.to == ExportTo::Trainer
        && let Some(comparison) = comparison(&args.source)?
    {
        return runs_of(args, &comparison, &folder);
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
    let initial = match (args.to, &experiment) {
        (ExportTo::Trainer, Some(experiment)) => {
            initial_weights::named(experiment, args.weights.as_deref())?
        }
        (_, _) => None,
    };
    let request = Request {
        compiled: &compiled,
        experiment: experiment.as_ref(),
        weights: weights.as_deref(),
        initial: initial.as_ref(),
        to: args.to.into(),
        dtype: dtype.into(),
        gpus_per_node: args.gpus_per_node,
        ranks: args.ranks.or_else(|| experiment.as_ref().and_then(|e| e.platform.devices)),
        comparison: None,
        origin: known.as_ref().zip(what.as_deref()).map(|(known, what)| Origin {
            what,
            step: known.step,
            file: known.attested,
        }),
        tokenizer: tokenizer.as_ref().map_err(String::as_str),
        imported_text: imported_text.as_ref(),
    };
    let written = write(&request, &folder)?;
    show(args, &written, &compiled.name, what.clone())?;
    if args.json {
        return Ok(Exit::Fine);
    }
    if let Some(what) = what {
        output::note(&format!("weights: {what}"));
    }
    if let (ExportTo::Hf, Err(why)) = (args.to, &tokenizer) {
        output::note(why);
    }
    let recipe = written.iter().any(|name| name == "recipe.yaml");
    if let (ExportTo::Lingua, Some(experiment), false) = (args.to, &experiment, recipe) {
        let reason = match &experiment.data.source {
            DataSource::Task { task, .. } => {
                format!("it trains on text, but this run uses the task {}", task.name())
            }
            DataSource::Text { .. } => "it cannot express this recipe or arch".to_owned(),
        };
        output::note(&format!(
            "recipe.yaml is left out: Lingua's trainer cannot run it, because {reason}"
        ));
    }
    Ok(Exit::Fine)
}

/// The comparison that a lock is of.
fn comparison(source: &Path) -> Result<Option<Comparison>, Failure> {
    let (Target::Lock(path) | Target::File(path)) = workspace::resolve(source)? else {
        return Ok(None);
    };
    if !workspace::is_lock(&path) {
        return Ok(None);
    }
    Ok(match workspace::read_lock(&path)?.0 {
        Lock::Comparison(comparison) => Some(comparison),
        Lock::Arch(_) | Lock::Experiment(_) => None,
    })
}

/// A folder for each run of a comparison, in which PyTorch trains it.
fn runs_of(args: &ExportArgs, comparison: &Comparison, folder: &Path) -> Outcome {
    let files = RefCell::new(Vec::new());
    let runs = comparison.runs();
    let given = GivenPaths { data: None, weights: args.weights.as_deref() };
    // Arms that draw their weights have no use for the others'.
    let of_run = |run: &&ComparisonRun| given.of(&run.experiment).weights;
    if let (Some(run), None) = (runs.first(), runs.iter().find_map(of_run)) {
        initial_weights::refuse_unused(&run.experiment, given.weights)?;
    }
    let initial = runs.iter().map(|run| initial_weights::named(&run.experiment, of_run(run)));
    let initial = initial.collect::<Result<Vec<_>, Failure>>()?;
    write_folder(folder, &|parent| {
        for (run, initial) in runs.iter().zip(&initial) {
            let experiment = &run.experiment;
            let request = Request {
                compiled: &experiment.arch.compiled,
                experiment: Some(experiment),
                weights: None,
                initial: initial.as_ref(),
                to: To::Trainer,
                dtype: Dtype::F32,
                gpus_per_node: args.gpus_per_node,
                ranks: args.ranks.or(experiment.platform.devices),
                comparison: Some(&comparison.name),
                origin: None,
                tokenizer: Err(""),
                imported_text: None,
            };
            let written = write(&request, &parent.join(&experiment.name))?;
            let named = written.iter().map(|name| format!("{}/{name}", experiment.name));
            files.borrow_mut().extend(named);
        }
        Ok(())
    })?;
    show(args, &files.into_inner(), &comparison.name, None)?;
    Ok(Exit::Fine)
}

/// A script that launches canonc itself: no format of another program is involved.
fn slurm(args: &ExportArgs, folder: &Path) -> Outcome {
    let (written, arch) = slurm::launch(args, folder)?;
    show(args, &written, &arch, None)?;
    Ok(Exit::Fine)
}

/// Lists the written files.
fn show(
    args: &ExportArgs,
    written: &[String],
    arch: &str,
    weights: Option<String>,
) -> Result<(), Failure> {
    let files: Vec<String> = written.iter().map(|name| shown(&args.out.join(name))).collect();
    if args.json {
        let arch = arch.to_owned();
        return output::json(&Report { schema: "canonc.export.v1", arch, files, weights });
    }
    files.iter().try_for_each(|file| output::data(&format!("{file}\n")))
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
    fn of_file(weights: &Path) -> Result<Known, Failure> {
        let saved = checkpoint::saved_by(weights)?;
        let of = saved.map(|(lock, step)| format!("of step {step} of lock {}", lock.short()));
        Ok(Known { of, step: None, attested: None })
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
    let path = match workspace::resolve(&args.source)? {
        Target::Model(folder) => return model(args, &folder),
        Target::Run(folder) if args.to == ExportTo::Trainer => Paths::new(&folder).lock(),
        Target::Run(folder) | Target::Folder(folder) => {
            let is_own =
                |weights: &Path| workspace::path(weights).is_ok_and(|run| same(&run, &folder));
            match args.weights.as_deref() {
                Some(weights) if !is_own(weights) => run_of(&folder)?.lock(),
                Some(_) | None => return run(&folder),
            }
        }
        Target::Lock(path) | Target::File(path) | Target::Missing(path) => path,
    };
    // Those that a run begins from are of another lock, and read apart.
    let exported = args.weights.as_deref().filter(|_| args.to != ExportTo::Trainer);
    let weights = exported.map(weights::file).transpose()?;
    if workspace::is_lock(&path)
        && let (Lock::Experiment(experiment), _) = workspace::read_lock(&path)?
    {
        let known =
            weights.as_deref().map(|file| weights_of_lock(file, &experiment)).transpose()?;
        let compiled = experiment.arch.compiled.clone();
        return Ok(Source { compiled, record: None, experiment: Some(experiment), weights, known });
    }
    let compiled = archs::only(&path, args.arch.as_deref())?.compiled;
    if let (ExportTo::Trainer, Some(weights)) = (args.to, &args.weights) {
        let message = format!(
            "`--weights {}` is for the lock of a run that begins from weights, and this is an arch alone",
            shown(weights)
        );
        return Err(Failure::bad_input(message).help("remove it"));
    }
    let known = weights.as_deref().map(Known::of_file).transpose()?;
    Ok(Source { compiled, record: None, experiment: None, weights, known })
}

/// A folder of another program, or one that canonc exported or imported.
fn model(args: &ExportArgs, folder: &Path) -> Result<Source, Failure> {
    let Some(Foreign { compiled, record }) = foreign::open(folder, args.arch.as_deref())? else {
        return Err(refuse::not_a_run(folder));
    };
    let weights = match &args.weights {
        None if !interop::folder::has_weights(folder) => None,
        given => Some(weights::file(given.as_deref().unwrap_or(folder))?),
    };
    let known = weights.as_deref().map(Known::of_file).transpose()?;
    Ok(Source { compiled, record: Some(record), experiment: None, weights, known })
}

/// Refuses a checkpoint of another lock: the model card would describe another training.
fn weights_of_lock(weights: &Path, experiment: &Experiment) -> Result<Known, Failure> {
    let Some((lock, step)) = checkpoint::saved_by(weights)? else {
        return Ok(Known { of: None, step: None, attested: None });
    };
    if lock == experiment.id() {
        let steps = experiment.budget.steps;
        let of = Some(format!("of step {step} of {steps} of lock {}", lock.short()));
        return Ok(Known { of, step: Some(step), attested: None });
    }
    let failure = Failure::finding(format!(
        "these weights are of step {step} of a run of lock {}, and \"{}\" is lock {}",
        lock.short(),
        experiment.name,
        experiment.id().short()
    ));
    Err(failure
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
        false => Err(refuse::not_a_run(folder).help("or name a lock")),
    }
}

/// A finished run, and the weights of its last checkpoint.
fn run(folder: &Path) -> Result<Source, Failure> {
    let paths = run_of(folder)?;
    comparison_folder::refuse_others(folder)?;
    let text = workspace::read_lock_text(&paths.lock())?;
    let experiment = experiment_from_text("lock", &text)?;
    let (attestation, _) = finished::read(&paths, (&experiment).into())?;
    if let Some(step) = attestation.diverged {
        let failure = Failure::finding(format!("`{}` diverged at step {step}", shown(folder)));
        return Err(failure.help(
            "its weights are not finite numbers; name a run that reached its last step, or an earlier checkpoint's \
             weights.safetensors with --weights",
        ));
    }
    let latest = checkpoint::latest(&paths.checkpoints())?;
    let Some(latest) = latest else {
        let failure = Failure::finding(format!("`{}` has no checkpoint", shown(folder)));
        return Err(failure);
    };
    let place = paths.checkpoints().join(&latest);
    let slots = checkpoint::slots(&experiment.arch.compiled.graph, &experiment.updates);
    let manifest = checkpoint::verify_of(&place, &slots, attestation.trainer_digest())
        .map_err(|refusal| refusal.problem(|why| Problem::finding(why, "").at(shown(&place))))?;
    weights::refuse_unattested(&paths, &place, &manifest, &attestation)?;
    let weights = place.join(checkpoint::Part::Weights.file());
    let by = attestation.trainer.as_ref();
    let by = by.map_or_else(String::new, |one| format!(", trained elsewhere by {}", one.words()));
    Ok(Source {
        compiled: experiment.arch.compiled.clone(),
        known: Some(Known {
            of: Some(format!("of {latest}{by}")),
            step: Some(manifest.step),
            attested: Some(manifest.weights.file),
        }),
        record: None,
        experiment: Some(experiment),
        weights: Some(weights),
    })
}
