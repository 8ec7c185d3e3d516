//! Exports our models and recipes to other programs: a folder for Hugging Face, a Lingua release and recipe, a Slurm
//! script for its trainer, a module of PyTorch, a model card.
//!
//! Whatever the other format cannot express of the arch or the training is refused, never approximated: importing the
//! output gives the same graph, manifest, recipe and bits, but for norms of Gemma 2 ([`ArchWeights::theirs`]). The folder
//! is written completely or not at all.

mod card;

use std::cell::RefCell;
use std::path::Path;

use compiler::digest::Digest;
use compiler::program::Compiled;
use dsl::{Problem, quote};
use lab::experiment::Experiment;
use lab::field::FieldValue;
use lab::lock::{ARCH_SEQ_LEN, Lock};
use minijinja::{Environment, UndefinedBehavior, context};
use records::initial::{NamedWeights, Reading};
use records::model_folder::{ARCH, CONFIG};
use records::run::digest_of;
use records::weights::WeightSource;

use super::described::Described;
use super::dtype::Dtype;
use super::folder::{put, put_bytes, write_folder};
use super::lay::{self, Target};
use super::model::{Family, Model, RopeLayout};
use super::names::GatedNorm;
use super::node::{Node, NodeValue};
use super::source::ArchWeights;
use super::store::{Planned, Store, write_safetensors};
use super::text_files::{GENERATION, ImportedText, TEMPLATE, TOKENIZER, TOKENIZER_CONFIG};
use super::tokenizer::{self, Mark, Tokenizer};
use super::training;
use super::{arch, hf, json, lingua, pth, shown, torch, trainer, yaml};

/// The format to export to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// A folder that `transformers` loads: with one of its own classes, or with the code of the model beside it.
    HuggingFace,
    /// A folder for the classes published with the release.
    Release,
    /// A checkpoint and configuration of Lingua.
    Lingua,
    /// A Slurm script that trains the lock with Lingua.
    LinguaSlurm,
    /// A model card alone.
    Card,
    /// One file of plain PyTorch, with weights beside it if there are any.
    Torch,
    /// A folder in which PyTorch trains the lock; of an arch alone its module.
    Trainer,
}

/// The inputs of an export.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The arch.
    pub compiled: &'a Compiled,
    /// The lock, for its recipe and tokenizer.
    pub experiment: Option<&'a Experiment>,
    /// A file or folder of weights: ours, Hugging Face's or Lingua's.
    pub weights: Option<&'a Path>,
    /// The weights that a run of the lock begins from, if it names some, for a trainer.
    pub initial: Option<&'a NamedWeights>,
    /// The format.
    pub to: To,
    /// The storage type of the weights.
    pub dtype: Dtype,
    /// GPUs of one machine, for a Slurm script.
    pub gpus_per_node: i64,
    /// GPUs of a job, if known.
    pub ranks: Option<u32>,
    /// The comparison that the lock is a run of.
    pub comparison: Option<&'a str>,
    /// The known training of these weights.
    pub origin: Option<Origin<'a>>,
    /// The tokenizer of the training, or a sentence that says why there is none.
    pub tokenizer: Result<&'a Tokenizer, &'a str>,
    /// What an import brought along with the weights.
    pub imported_text: Option<&'a ImportedText>,
}

/// The origin of weights, as far as known.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// A description for the model card.
    pub what: &'a str,
    /// The step of the experiment's lock that the weights were saved at; `None` if unknown.
    pub step: Option<u64>,
    /// BLAKE3 of the weights' file if a run attests it. The exported file must match.
    pub file: Option<Digest>,
}

const TEMPLATES: [(&str, &str); 11] = [
    ("recipe.yaml", include_str!("../templates/lingua.yaml.j2")),
    ("launch.sh", include_str!("../templates/lingua.sh.j2")),
    ("README.md", include_str!("../templates/card.md.j2")),
    ("generation_config.json", include_str!("../templates/generation_config.json.j2")),
    ("config.json", include_str!("../templates/config.json.j2")),
    ("model.py", include_str!("../templates/model.py.j2")),
    ("modeling.py", include_str!("../templates/modeling.py.j2")),
    ("training.py", include_str!("../templates/training.py.j2")),
    ("trainer.sh", include_str!("../templates/trainer.sh.j2")),
    ("trainer.sbatch", include_str!("../templates/trainer.sbatch.j2")),
    ("trainer.md", include_str!("../templates/trainer.md.j2")),
];

/// Everything computed before writing starts.
struct Plan<'a> {
    request: &'a Request<'a>,
    weights: Option<ArchWeights>,
    seq_len: i64,
    written: RefCell<Vec<String>>,
}

/// Writes the folder; returns the names of its files.
pub fn write(request: &Request<'_>, out: &Path) -> Result<Vec<String>, Problem> {
    let norm = match request.experiment.and_then(|e| e.value("platform.kernels.gated_norm")) {
        Some(value) if value.plain() == "reference" => GatedNorm::Reference,
        Some(_) | None => GatedNorm::Fused,
    };
    let described = match (arch::model(request.compiled), request.to) {
        (Ok(model), _) => Some(Described::of_released(model, norm)),
        (Err(_), To::Card | To::HuggingFace) => Described::recognised(request.compiled),
        (Err(_), To::Torch | To::Trainer) => None,
        // These formats know only the released families.
        (Err(error), To::Release | To::Lingua | To::LinguaSlurm) => return Err(error),
    };
    let known = described.as_ref();
    let weights = match request.weights {
        None => None,
        Some(path) => {
            let source = ArchWeights::open(request.compiled, path)?;
            check_attested(request.origin, &source.store)?;
            Some(source)
        }
    };
    let name = &request.compiled.name;
    match (request.to, known) {
        (To::Release, Some(known)) => hf::check_class(name, &known.model)?,
        // Without weights the export is for the trainer, which honours every key.
        (To::Lingua, Some(known)) if weights.is_some() => {
            lingua::check_loader(name, &known.model)?;
        }
        (
            To::HuggingFace
            | To::Release
            | To::Lingua
            | To::LinguaSlurm
            | To::Card
            | To::Torch
            | To::Trainer,
            _,
        ) => {}
    }
    let context = request.imported_text.and_then(|text| text.settings.context.as_ref());
    let seq_len = match (request.experiment.and_then(|e| e.value("data.seq_len")), context) {
        (Some(FieldValue::Int(n)), _) => *n,
        (Some(_) | None, Some((length, _))) => i64::try_from(*length).unwrap_or(ARCH_SEQ_LEN),
        (Some(_) | None, None) => ARCH_SEQ_LEN,
    };
    let plan = Plan { request, weights, seq_len, written: RefCell::default() };
    write_folder(out, &|folder| match (request.to, known) {
        (To::HuggingFace, Some(known)) if known.class.code.is_none() => plan.class(folder, known),
        (To::HuggingFace, known) => plan.own_class(folder, known),
        (To::Release, Some(known)) => plan.class(folder, known),
        (To::Lingua, Some(known)) => plan.lingua(folder, known),
        (To::LinguaSlurm, Some(known)) => plan.slurm(folder, known),
        (To::Card, known) => plan.card(folder, known),
        (To::Torch, _) => plan.torch(folder),
        (To::Trainer, _) => plan.trainer(folder),
        (To::Release | To::Lingua | To::LinguaSlurm, None) => Ok(()),
    })?;
    Ok(plan.written.into_inner())
}

/// Checks the exported bytes against the verified ones; the file may have changed in between.
fn check_attested(origin: Option<Origin<'_>>, store: &Store) -> Result<(), Problem> {
    let wanted = origin.and_then(|origin| origin.file);
    let (Some(wanted), Some(file)) = (wanted, store.files.first()) else {
        return Ok(());
    };
    let digest = digest_of(file.digest);
    if digest == wanted {
        return Ok(());
    }
    Err(Problem::in_file(
        shown(&file.path),
        format!(
            "its digest is {}, but the run's checkpoint has {}",
            digest.short(),
            wanted.short()
        ),
        "restore the file; `canonc verify` checks everything in the run's folder",
    ))
}

/// An environment for templates. Its filters: `sh`, a word of a POSIX shell; `word`, a word that needs no quotes; `line`,
/// one line; `docstring`, a line of a Python text in triple quotes.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_keep_trailing_newline(true);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.add_filter("sh", |text: String| quote::sh(&text));
    environment.add_filter("word", |text: String| quote::word(&text));
    environment.add_filter("line", |text: String| quote::line(&text));
    environment.add_filter("docstring", |text: String| quote::docstring(&text));
    environment
}

impl Plan<'_> {
    fn put(&self, folder: &Path, name: &str, text: &str) -> Result<(), Problem> {
        self.written.borrow_mut().push(name.to_owned());
        put(&folder.join(name), text)
    }

    fn render(&self, template: &str, values: minijinja::Value) -> Result<String, Problem> {
        let mut environment = environment();
        let rendered = || {
            for (name, text) in TEMPLATES {
                environment.add_template(name, text)?;
            }
            environment.get_template(template)?.render(values)
        };
        rendered().map_err(|error| {
            Problem::in_file(
                template,
                format!("its template is broken: {error}"),
                "this is a bug in canonc",
            )
        })
    }

    fn needed_weights(&self) -> Result<&ArchWeights, Problem> {
        self.weights.as_ref().ok_or_else(|| {
            let help = "add --weights FILE, or name a finished run instead of its lock";
            Problem::in_file(self.name(), "a Hugging Face folder needs weights", help)
        })
    }

    /// The code of the model, and what `transformers` needs to find it there.
    fn own_class(&self, folder: &Path, known: Option<&Described>) -> Result<(), Problem> {
        let weights = self.needed_weights()?;
        let Request { compiled, dtype, .. } = self.request;
        let module = torch::module(compiled, torch::Form::Decoding, self.request.experiment)?;
        let text = self.render("modeling.py", minijinja::Value::from_serialize(&module))?;
        self.put(folder, &format!("{}.py", torch::CLASSES.file), &text)?;
        let [bos, eos] = self.marks();
        let classes = torch::CLASSES;
        let config = self.render(
            "config.json",
            context! {
                file => classes.file,
                config => classes.config,
                model => classes.model,
                model_type => torch::MODEL_TYPE,
                vocab => compiled.graph.vocab,
                dim => compiled.graph.dim,
                depth => compiled.graph.layers().count(),
                seq_len => self.seq_len,
                dtype => dtype.torch(),
                bos,
                eos,
                pad => self.pad(),
            },
        )?;
        self.put(folder, CONFIG, &config)?;
        self.generation(folder)?;
        self.put(folder, ARCH, &compiled.text)?;
        self.module_weights(folder, weights, torch::CLASSES.prefix)?;
        self.card(folder, known)
    }

    /// `generation_config.json`, and the tokenizer's files if there is one.
    fn generation(&self, folder: &Path) -> Result<(), Problem> {
        let imported = |name| self.request.imported_text.and_then(|text| text.file(name));
        let generation = match imported(GENERATION) {
            Some(text) => text.to_owned(),
            None => {
                let [bos, eos] = self.marks();
                self.render(GENERATION, context! { bos, eos, pad => self.pad() })?
            }
        };
        self.put(folder, GENERATION, &generation)?;
        if let Some(tokenizer) = self.tokenizer() {
            self.put(folder, TOKENIZER, &tokenizer.json)?;
            let config = imported(TOKENIZER_CONFIG).map(tokenizer::portable);
            let config = config.unwrap_or_else(|| tokenizer.config(self.seq_len));
            self.put(folder, TOKENIZER_CONFIG, &config)?;
            if let Some(template) = imported(TEMPLATE) {
                self.put(folder, TEMPLATE, template)?;
            }
        }
        Ok(())
    }

    /// The tokenizer that goes into the folder. The published classes have their own.
    fn tokenizer(&self) -> Option<&Tokenizer> {
        self.request.tokenizer.ok().filter(|_| self.request.to == To::HuggingFace)
    }

    /// The ids of bos and eos, as JSON. Imported weights have those of their configuration.
    fn marks(&self) -> [String; 2] {
        let id = |mark: Option<&Mark>| mark.map_or("null".to_owned(), |mark| mark.id.to_string());
        let tokenizer = self.tokenizer();
        let bos = id(tokenizer.and_then(|t| t.bos.as_ref()));
        let eos = id(tokenizer.and_then(|t| t.eos.as_ref()));
        let imported = self.request.imported_text.map(|text| text.settings.clone());
        let texts = imported.unwrap_or_default();
        let ends: Vec<String> = texts.ends.iter().map(u32::to_string).collect();
        let eos = match ends.as_slice() {
            [] => eos,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        [texts.bos.map_or(bos, |id| id.to_string()), eos]
    }

    /// The id of the token that fills rows, as JSON, unless the tokenizer has its own configuration.
    fn pad(&self) -> String {
        let imported = self.request.imported_text.and_then(|text| text.file(TOKENIZER_CONFIG));
        let tokenizer = self.tokenizer().filter(|_| imported.is_none());
        let pad = tokenizer.and_then(Tokenizer::pad);
        pad.map_or("null".to_owned(), |mark| mark.id.to_string())
    }

    /// The configuration, weights and card of a class that the folder does not hold.
    fn class(&self, folder: &Path, described: &Described) -> Result<(), Problem> {
        let weights = self.needed_weights()?;
        // The classes of `transformers` pair the channels of a head's halves.
        let turned = described.class.code.is_none() && !is_half(&described.model);
        let described = Described { turned, ..described.clone() };
        self.class_files(folder, weights, &described)?;
        self.card(folder, Some(&described))
    }

    fn class_files(
        &self,
        folder: &Path,
        weights: &ArchWeights,
        described: &Described,
    ) -> Result<(), Problem> {
        let entries = described.entries(Target::HuggingFace, self.request.compiled.graph.params());
        let mut config = hf::write(described, self.seq_len, self.request.dtype.torch());
        if let NodeValue::Map(keys) = &mut config {
            let known = ["bos_token_id", "eos_token_id"].into_iter().zip(self.marks());
            for (name, id) in known.filter(|(_, id)| id != "null") {
                // A list of ids is written as it is.
                let value = Node { value: NodeValue::Number(id), line: 0 };
                if let Some((_, node)) = keys.iter_mut().find(|(key, _)| key == name) {
                    *node = value;
                }
            }
        }
        self.put(folder, CONFIG, &json::write(&config))?;
        self.generation(folder)?;
        let planned = lay::planned(&entries, false);
        let names: Vec<Planned> = planned.iter().map(|(planned, _)| planned.clone()).collect();
        self.written.borrow_mut().push("model.safetensors".to_owned());
        let path = folder.join("model.safetensors");
        let dtype = self.request.dtype;
        write_safetensors(&path, &names, dtype, &[("format", "pt")], |index, put| {
            planned.get(index).map_or(Ok(()), |(_, entry)| weights.theirs(entry, put))
        })
    }

    /// `model.py`, and `model.safetensors` under the names of its modules.
    fn torch(&self, folder: &Path) -> Result<(), Problem> {
        let module =
            torch::module(self.request.compiled, torch::Form::Decoding, self.request.experiment)?;
        let text = self.render("model.py", minijinja::Value::from_serialize(&module))?;
        self.put(folder, "model.py", &text)?;
        match &self.weights {
            Some(weights) => self.module_weights(folder, weights, ""),
            None => Ok(()),
        }
    }

    /// The module in its training form and the values of the lock; with a lock also the loop, the engine and its scripts.
    fn trainer(&self, folder: &Path) -> Result<(), Problem> {
        let Request { compiled, experiment, gpus_per_node, ranks, comparison, initial, .. } =
            *self.request;
        let module = torch::module(compiled, torch::Form::Training, experiment)?;
        let text = self.render("training.py", minijinja::Value::from_serialize(&module))?;
        self.put(folder, "model.py", &text)?;
        let digest = Digest::of(trainer::MODULE, &text).to_string();
        let parameters = trainer::parameters(compiled, experiment, digest, initial)?;
        self.put(folder, "params.toml", &parameters)?;
        let Some(experiment) = experiment else { return Ok(()) };
        if let Some(initial) = initial {
            self.initial_weights(folder, initial.read(&compiled.graph)?)?;
        }
        self.put(folder, "lock", &Lock::Experiment(experiment.clone()).text())?;
        self.written.borrow_mut().push("rates.f64".to_owned());
        put_bytes(&folder.join("rates.f64"), &trainer::rates(experiment)?)?;
        for (name, text) in trainer::ENGINE {
            self.put(folder, &format!("canonc_torch/{name}"), text)?;
        }
        self.put(folder, "train.py", &trainer::loop_beside_the_engine())?;
        let divides = |ranks: i64| experiment.divided(ranks.unsigned_abs());
        // Of one machine, if nobody says: as many as divide a step.
        let usual = || (1..=gpus_per_node).rev().find(|ranks| divides(*ranks).is_ok()).unwrap_or(1);
        let ranks = ranks.map_or_else(usual, i64::from);
        divides(ranks)
            .map_err(|why| Problem::in_file(experiment.name.clone(), why.message, why.help))?;
        let per_node = gpus_per_node.min(ranks);
        if ranks % per_node != 0 {
            let message =
                format!("{ranks} ranks do not fill machines of {per_node}: each must have as many");
            let help = "give the number of ranks on a machine: `--gpus-per-node N`";
            return Err(Problem::in_file(experiment.name.clone(), message, help));
        }
        let values = context! {
            name => experiment.name,
            id => experiment.id().to_string(),
            out => match comparison {
                Some(comparison) => format!("runs/{comparison}/{}", experiment.name),
                None => format!("runs/{}", experiment.name),
            },
            per_node,
            nodes => ranks / per_node,
            threads => 1,
            cores => 2 * per_node,
            notice => trainer::NOTICE,
            micro_batches => experiment.batch.micro_batches,
            sequences => experiment.batch.sequences,
            initial => initial.is_some(),
            means => module.has_means(),
            drops => compiled.graph.has_dropout(),
        };
        for (name, template) in [
            ("launch.sh", "trainer.sh"),
            ("job.sbatch", "trainer.sbatch"),
            ("README.md", "trainer.md"),
        ] {
            let text = self.render(template, values.clone())?;
            self.put(folder, name, &text)?;
        }
        Ok(())
    }

    /// The weights that the run begins from, under the paths of parameters. Those that are drawn are not in it.
    fn initial_weights(&self, folder: &Path, reading: Reading<'_>) -> Result<(), Problem> {
        let params = self.request.compiled.graph.params().iter().enumerate();
        let (numbers, planned): (Vec<usize>, Vec<Planned>) = params
            .filter(|(number, _)| reading.has(*number))
            .map(|(number, param)| {
                (number, Planned { name: param.path.clone(), shape: param.shape.clone() })
            })
            .unzip();
        self.written.borrow_mut().push(trainer::INITIAL.to_owned());
        let path = folder.join(trainer::INITIAL);
        write_safetensors(&path, &planned, Dtype::F32, &[("format", "pt")], |index, put| {
            let (Some(number), mut written) = (numbers.get(index), Ok(())) else { return Ok(()) };
            reading.param(*number, &mut |values| {
                if written.is_ok() {
                    written = put(values);
                }
            })?;
            written
        })?;
        reading.check()
    }

    /// `model.safetensors` with the names of a generated module's tensors.
    fn module_weights(
        &self,
        folder: &Path,
        weights: &ArchWeights,
        prefix: &str,
    ) -> Result<(), Problem> {
        let params = self.request.compiled.graph.params();
        let named = torch::tensor_names(params).into_iter().zip(params);
        let planned: Vec<Planned> = named
            .map(|(name, param)| Planned {
                name: format!("{prefix}{name}"),
                shape: param.shape.clone(),
            })
            .collect();
        self.written.borrow_mut().push("model.safetensors".to_owned());
        let path = folder.join("model.safetensors");
        let dtype = self.request.dtype;
        write_safetensors(&path, &planned, dtype, &[("format", "pt")], |index, put| {
            weights.param(index, put)
        })
    }

    fn lingua(&self, folder: &Path, described: &Described) -> Result<(), Problem> {
        let training = match self.request.experiment {
            None => None,
            // Weights are worth exporting even if Lingua cannot train the model.
            Some(experiment) => match training::write(experiment) {
                Ok((root, _)) => Some(root),
                Err(_) if self.weights.is_some() => None,
                Err(error) => return Err(error),
            },
        };
        if training.is_none() && self.weights.is_none() {
            let help = "name the lock of an experiment on text, or add --weights FILE";
            return Err(Problem::in_file(
                self.name(),
                "it has neither training nor weights to write",
                help,
            ));
        }
        let trains = training.is_some() && self.trains(described).is_ok();
        if trains {
            self.recipe(folder, described)?;
        } else if self.weights.is_none() {
            self.trains(described)?;
        }
        let mut root = training.unwrap_or_default();
        self.model_keys(&mut root, described);
        let turned = is_half(&described.model);
        let described = Described { turned, ..described.clone() };
        if let Some(ours) = lingua::ours(&described.model) {
            training::put(&mut root, "canonc", ours);
        }
        // The published loader reads these keys in addition to `model`.
        if !root.iter().any(|(key, _)| key == "data") {
            let length = NodeValue::Number(self.seq_len.to_string());
            training::put(&mut root, "data.seq_len", length);
        }
        self.put(folder, "default/params.json", &json::write(&NodeValue::Map(root)))?;
        if let Some(weights) = &self.weights {
            let params = self.request.compiled.graph.params();
            let entries = described.entries(Target::Lingua, params);
            // The linear families' loader expects the tied table under both names.
            let linear = described.model.family() != Family::Llama;
            let planned = lay::planned(&entries, linear);
            let names: Vec<Planned> = planned.iter().map(|(planned, _)| planned.clone()).collect();
            let name = "default/consolidated.pth";
            self.written.borrow_mut().push(name.to_owned());
            pth::write(&folder.join(name), &names, self.request.dtype, |index, put| {
                planned.get(index).map_or(Ok(()), |(_, entry)| weights.theirs(entry, put))
            })?;
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.request.experiment.map_or(self.request.compiled.name.clone(), |e| e.name.clone())
    }

    /// Adds the keys `name` and `model` to the training keys.
    fn model_keys(&self, root: &mut Vec<(String, Node)>, described: &Described) {
        let experiment = self.request.experiment;
        let seed = experiment.map_or("42".to_owned(), |e| e.seeds.init.to_string());
        let z_loss = experiment.is_some_and(|e| !e.loss.nll_square.is_zero());
        let model = lingua::write(described, z_loss, &seed, self.seq_len);
        root.insert(0, ("name".to_owned(), Node { value: NodeValue::Text(self.name()), line: 0 }));
        training::put(root, "model", model);
    }

    /// Checks that Lingua would train this arch from the same initial distribution.
    fn trains(&self, described: &Described) -> Result<(), Problem> {
        let model = &described.model;
        let init = lingua::init_of(model.family());
        let refuse = |message: String| {
            let help = "change the arch, or train it with canonc";
            Err(Problem::in_file(self.name(), message, help))
        };
        if model.init != init {
            let (has, wants) =
                (model.init.name().unwrap_or("of its own"), init.name().unwrap_or(""));
            return refuse(format!(
                "its init table is {has}, but Lingua's trainer starts with {wants}"
            ));
        }
        if is_half(model) {
            return refuse("its RoPE layout is half, but Lingua's is interleaved".to_owned());
        }
        match model.family() {
            Family::Llama => Ok(()),
            // The trainer of the linear families builds them as the loader does.
            Family::Gla5 | Family::Gdn2 | Family::Mamba2 => {
                lingua::check_loader(&self.name(), model)
            }
        }
    }

    fn recipe(&self, folder: &Path, described: &Described) -> Result<(), Problem> {
        let Some(experiment) = self.request.experiment else {
            let help = "name the lock of an experiment";
            return Err(Problem::in_file(
                self.name(),
                "an arch alone has no training settings",
                help,
            ));
        };
        self.trains(described)?;
        let (mut root, devices) = training::write(experiment)?;
        self.model_keys(&mut root, described);
        let dump = format!("runs/{}", experiment.name);
        root.insert(1, ("dump_dir".to_owned(), Node { value: NodeValue::Text(dump), line: 0 }));
        let text = self.render(
            "recipe.yaml",
            context! {
                name => experiment.name,
                id => experiment.id().to_string(),
                devices,
                accumulate => experiment.batch.micro_batches / devices.max(1) as u64,
                sequences => experiment.batch.sequences,
                seq_len => self.seq_len,
                tokens => experiment.batch.tokens_per_step,
                total => experiment.budget.tokens,
                body => yaml::write(&NodeValue::Map(root)),
            },
        )?;
        self.put(folder, "recipe.yaml", &text)
    }

    fn slurm(&self, folder: &Path, described: &Described) -> Result<(), Problem> {
        self.recipe(folder, described)?;
        let Some(experiment) = self.request.experiment else { return Ok(()) };
        let (_, devices) = training::write(experiment)?;
        let per_node = self.request.gpus_per_node.min(devices);
        if devices % per_node != 0 {
            let message = format!(
                "`platform.devices` is {devices}, which is not a multiple of the {per_node} GPUs of a machine"
            );
            let help = "give the number of GPUs per machine: `--gpus-per-node N`";
            return Err(Problem::in_file(experiment.name.clone(), message, help));
        }
        let text = self.render(
            "launch.sh",
            context! {
                name => experiment.name,
                id => experiment.id().to_string(),
                devices,
                per_node,
                nodes => devices / per_node,
            },
        )?;
        self.put(folder, "launch.sh", &text)
    }
}

/// Whether RoPE pairs the channels of a head's halves.
fn is_half(model: &Model) -> bool {
    model.attention().is_some_and(|attention| attention.layout == RopeLayout::Half)
}

#[cfg(all(test, unix))]
mod tests {
    use minijinja::context;

    use super::*;

    #[test]
    fn a_hostile_name_in_a_script_runs_nothing() {
        let template = include_str!("../templates/lingua.sh.j2");
        let environment = environment();
        let folder = tempfile::tempdir().unwrap();
        for name in support::HOSTILE {
            let values = context! { name, id => "0", devices => 8, per_node => 8, nodes => 1 };
            let script = environment.render_str(template, values).unwrap();
            assert_eq!(script.lines().count(), template.lines().count(), "{script}");
            let path = folder.path().join("launch.sh");
            std::fs::write(&path, &script).unwrap();
            let sh = |arguments: &[&str]| {
                let mut command = std::process::Command::new("sh");
                command.args(arguments).arg(&path).current_dir(folder.path());
                command.output().unwrap()
            };
            assert!(sh(&["-n"]).status.success(), "{script}");
            // Outside a job the script stops at its first check; nothing before that may run.
            sh(&[]);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{script}");
        }
    }
}
