//! Imports a foreign model or recipe: a folder with the arch, the recipe if the source has training keys, the weights if
//! it has them, and the origin of everything.
//!
//! Everything is checked before anything is written; the folder is written completely or not at all; the weights'
//! values are the source's, bit for bit, apart from changes that `import.toml` lists.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use compiler::graph::Param;
use compiler::program::Compiled;
use dsl::Problem;
use records::model_folder::{CONFIG, IMPORT, PARAMS};

use super::config::Keys;
use super::described::{Changed, Described};
use super::dtype::Dtype;
use super::folder::{
    DEFAULT, IMPORTED, INDEX, PTH, SINGLE, TORCH, TORCH_INDEX, file, imported_arch, like_weights,
    put, write_folder,
};
use super::lay::Target;
use super::names::GatedNorm;
use super::source::{ArchWeights, differing};
use super::store::{Planned, ReadFile, Store, bytes_of, write_safetensors};
use super::text_files::{self, CopiedFile, TextSettings};
use super::training::{self, Training};
use super::{LeftOut, arch, cannot_write, hf, json, lingua, recipe, shown, yaml};

/// The source of an import, and settings that its files lack.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// A file or a folder.
    pub source: &'a Path,
    /// The name of the arch.
    pub name: Option<&'a str>,
    /// Devices of the run; published recipes do not give them.
    pub devices: Option<i64>,
    /// Whether to import weights, if there are any.
    pub weights: bool,
}

/// A source that has been read and checked.
#[derive(Debug)]
pub struct Imported {
    /// The name of the arch.
    pub name: String,
    /// The model that the files describe.
    pub described: Described,
    /// The arch in the `.canon` language.
    pub text: String,
    /// The compiled arch.
    pub compiled: Compiled,
    /// The published training, if the files give it.
    pub training: Option<Training>,
    /// The weights, if they were asked for and found.
    pub weights: Option<ArchWeights>,
    /// Whether the source is a trainer's recipe, without weights.
    pub from_recipe: bool,
    /// Where weights were looked for and not found.
    pub looked_for: Vec<PathBuf>,
    /// Names of files beside the configuration that may hold weights and were not read.
    pub unread: Vec<String>,
    /// Entries of the checkpoint that are not parameters.
    pub left_out: Vec<LeftOut>,
    /// Every file that was read.
    pub files: Vec<ReadFile>,
    /// What the configuration says about texts.
    pub texts: TextSettings,
    /// The files of tokenizer, chat template and generation, which are copied.
    pub copied: Vec<CopiedFile>,
}

/// The kind of a source.
enum Kind {
    HuggingFace {
        config: PathBuf,
        weights: Option<PathBuf>,
    },
    Lingua {
        params: PathBuf,
        weights: Option<PathBuf>,
        /// A `config.json` of the same model in the parent folder, as in the release.
        config: Option<PathBuf>,
    },
    Recipe(PathBuf),
}

impl Kind {
    /// The program that wrote the files.
    fn target(&self) -> Target {
        match self {
            Kind::HuggingFace { .. } => Target::HuggingFace,
            Kind::Lingua { .. } | Kind::Recipe(_) => Target::Lingua,
        }
    }

    /// Where weights are looked for; nowhere for a recipe.
    fn usual_weights(&self) -> Vec<PathBuf> {
        match self {
            Kind::HuggingFace { config, .. } => vec![
                config.with_file_name(SINGLE),
                config.with_file_name(INDEX),
                config.with_file_name(TORCH),
                config.with_file_name(DEFAULT).join(PTH),
            ],
            Kind::Lingua { params, .. } => vec![params.with_file_name(PTH)],
            Kind::Recipe(_) => Vec::new(),
        }
    }
}

fn hugging_face_folder(folder: &Path) -> Option<Kind> {
    let config = file(folder.join(CONFIG))?;
    let names = [SINGLE, INDEX, TORCH, TORCH_INDEX];
    let weights = names.iter().find_map(|name| file(folder.join(name)));
    Some(Kind::HuggingFace { config, weights })
}

fn lingua_folder(folder: &Path) -> Option<Kind> {
    let params = file(folder.join(PARAMS))?;
    Some(Kind::Lingua { params, weights: file(folder.join(PTH)), config: None })
}

/// The kind of a folder. The release has its variants in subfolders, and a `config.json` without weights above them.
fn kind_of_folder(folder: &Path) -> Option<Kind> {
    let variant = || lingua_folder(&folder.join(DEFAULT));
    match hugging_face_folder(folder) {
        Some(Kind::HuggingFace { config, weights: None }) => {
            match lingua_folder(folder).or_else(variant) {
                Some(Kind::Lingua { params, weights: Some(weights), .. }) => {
                    Some(Kind::Lingua { params, weights: Some(weights), config: Some(config) })
                }
                Some(_) | None => Some(Kind::HuggingFace { config, weights: None }),
            }
        }
        Some(kind) => Some(kind),
        None => lingua_folder(folder).or_else(variant),
    }
}

/// Subfolders that hold a variant of a release.
fn variants(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut variants: Vec<String> = entries
        .filter(|entry| entry.path().join(PARAMS).is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    variants.sort();
    variants
}

fn kind(source: &Path) -> Result<Kind, Problem> {
    let refuse = |message: String, help: &str| Err(Problem::in_file(shown(source), message, help));
    if source.is_dir() {
        if let Some(kind) = kind_of_folder(source) {
            return Ok(kind);
        }
        let message = format!("this folder has no {CONFIG} and no {PARAMS}");
        return match variants(source).first() {
            Some(variant) => {
                let help =
                    format!("name a variant of the release: `{}`", shown(&source.join(variant)));
                refuse(message, &help)
            }
            None => refuse(
                message,
                "give a Hugging Face folder, a Lingua release, or one of its variants",
            ),
        };
    }
    let folder = source.parent().unwrap_or(Path::new(""));
    match source.file_name().and_then(|name| name.to_str()) {
        _ if !source.exists() => refuse("it does not exist".to_owned(), "name a folder or a file"),
        Some(CONFIG) => {
            kind_of_folder(folder).map_or_else(|| refuse("it is not a file".to_owned(), ""), Ok)
        }
        Some(PARAMS) => {
            lingua_folder(folder).map_or_else(|| refuse("it is not a file".to_owned(), ""), Ok)
        }
        Some(name) if name.ends_with(".yaml") || name.ends_with(".yml") => {
            Ok(Kind::Recipe(source.to_owned()))
        }
        Some(_) | None => refuse(
            "it is neither a folder, a config.json, a params.json nor a .yaml".to_owned(),
            "name the folder with the weights, or a recipe of Lingua's trainer",
        ),
    }
}

/// Compares a release's `config.json` with the model of its `params.json`. A configuration that is too short to
/// describe a model is left out.
fn check_above(config: &Path, described: &Described) -> Result<(ReadFile, LeftOut), Problem> {
    let file = shown(config);
    let (bytes, read) = bytes_of(config)?;
    let root = json::read(&file, &bytes)?;
    let above = Keys::new(&file, &root).and_then(|keys| hf::released(&keys));
    let reason = match above {
        Err(error) => format!("it does not describe a model: {}", error.message),
        Ok(above) => match differing(&above.model, &described.model) {
            None => format!("it describes the same model as {PARAMS}"),
            Some((has, wants)) => {
                let message = format!("it says `{has}`, but {PARAMS} says `{wants}`");
                let help = "name a release with files of one model, or the variant's folder";
                return Err(Problem::in_file(file, message, help));
            }
        },
    };
    Ok((read, LeftOut { name: CONFIG.to_owned(), reason }))
}

/// Reads and checks everything; writes nothing.
pub fn read(request: &Request<'_>) -> Result<Imported, Problem> {
    let kind = kind(request.source)?;
    let (config, weights) = match &kind {
        Kind::HuggingFace { config, weights } => (config, weights.as_ref()),
        Kind::Lingua { params, weights, config: _ } => (params, weights.as_ref()),
        Kind::Recipe(path) => (path, None),
    };
    let Configuration { described, training, texts, mut left_out, mut files } =
        Configuration::read(&kind, config, request.devices)?;
    let ArchText { name, text, compiled } = ArchText::compile(request, &kind, config, &described)?;
    if let Kind::Lingua { config: Some(above), .. } = &kind {
        let (read, idle) = check_above(above, &described)?;
        files.push(read);
        left_out.push(idle);
    }
    let looked_for = if weights.is_none() { kind.usual_weights() } else { Vec::new() };
    let weights = match weights.filter(|_| request.weights) {
        None => None,
        Some(path) => {
            let (store, idle) = Store::open(path)?;
            left_out.extend(idle);
            files.extend(store.index.iter().chain(&store.files).cloned());
            let params = compiled.graph.params();
            let source = ArchWeights::described(store, &described, kind.target(), params, path)?;
            left_out.extend(source.left_out.iter().cloned());
            Some(source)
        }
    };
    let from_recipe = matches!(kind, Kind::Recipe(_));
    let mut copied = Vec::new();
    if let (false, Some(folder)) = (from_recipe, folder_of_tokenizer(&kind, config)) {
        let (text_files, not_copied) = text_files::in_folder(folder)?;
        files.extend(text_files.iter().map(|file| file.read.clone()));
        left_out.extend(not_copied);
        copied = text_files;
    }
    let unread = match looked_for.is_empty() {
        true => Vec::new(),
        false => like_weights(config.parent().unwrap_or(Path::new(""))),
    };
    Ok(Imported {
        name,
        described,
        text,
        compiled,
        training,
        weights,
        from_recipe,
        looked_for,
        unread,
        left_out,
        files,
        texts,
        copied,
    })
}

/// What a configuration says.
struct Configuration {
    described: Described,
    training: Option<Training>,
    texts: TextSettings,
    left_out: Vec<LeftOut>,
    files: Vec<ReadFile>,
}

impl Configuration {
    fn read(kind: &Kind, config: &Path, devices: Option<i64>) -> Result<Configuration, Problem> {
        let file = shown(config);
        let (bytes, read) = bytes_of(config)?;
        let root = match kind {
            Kind::Recipe(_) => yaml::read(&file, &bytes)?,
            Kind::HuggingFace { .. } | Kind::Lingua { .. } => json::read(&file, &bytes)?,
        };
        let keys = Keys::new(&file, &root)?;
        let mut left_out = Vec::new();
        let (described, training) = match kind.target() {
            Target::HuggingFace if devices.is_some() => {
                let message = "a Hugging Face folder has no training settings";
                return Err(Problem::in_file(file, message, "remove --devices"));
            }
            Target::HuggingFace => (hf::read(&keys)?, None),
            Target::Lingua => lingua_keys(&keys, devices, &mut left_out)?,
        };
        left_out.extend(keys.neutrals());
        // A recipe has a field for it: platform.kernels.gated_norm.
        if described.norm == GatedNorm::Reference && training.is_none() {
            let reason =
                "it chooses a kernel for norms and gates, which only a recipe does".to_owned();
            left_out.push(LeftOut { name: "zeyuan_layernorm".to_owned(), reason });
        }
        let texts = TextSettings::from_keys(&keys, &file_name(config))?;
        Ok(Configuration { described, training, texts, left_out, files: vec![read] })
    }
}

/// Reads Lingua's keys: those of the model, and of its training if there are any.
fn lingua_keys(
    keys: &Keys<'_>,
    devices: Option<i64>,
    left_out: &mut Vec<LeftOut>,
) -> Result<(Described, Option<Training>), Problem> {
    let described = lingua::read(keys)?;
    let training = if training::has_training(keys) {
        let vocab = described.model.vocab;
        let (training, idle) = training::read(keys, vocab, described.norm, devices)?;
        left_out.extend(idle);
        Some(training)
    } else {
        // `data.seq_len` is for the published loader; an arch has no sequence length.
        keys.idle(&[
            "model.z_loss",
            "model.seed",
            "model.max_seqlen",
            "data.seq_len",
            "name",
            "dump_dir",
        ]);
        None
    };
    keys.finish(&["model.dim", "model.n_layers", "optim.lr", "data.batch_size"])?;
    Ok((described, training))
}

/// The arch of a model, under a name that the language allows.
struct ArchText {
    name: String,
    text: String,
    compiled: Compiled,
}

impl ArchText {
    fn compile(
        request: &Request<'_>,
        kind: &Kind,
        config: &Path,
        described: &Described,
    ) -> Result<ArchText, Problem> {
        let name = match request.name {
            Some(name) => name.to_owned(),
            None => identifier(&likely_name(request.source, kind)),
        };
        if identifier(&name) != name {
            let shown: String = name.chars().take(MAX_SHOWN).collect();
            let message = format!("{shown:?} cannot be the name of an arch");
            let help = "use letters, digits and `_`, starting with a letter";
            return Err(Problem::in_file("--name", message, help));
        }
        let doc = format!("Imported from {}.", file_name(request.source));
        let text = described.text(&name, &doc);
        let error = match arch::compile(&name, &text) {
            Ok(compiled) => return Ok(ArchText { name, text, compiled }),
            Err(error) => error,
        };
        // The name may be a keyword, or that of a definition that the text uses.
        let longer_name = format!("{name}_");
        let text = described.text(&longer_name, &doc);
        match (arch::compile(&longer_name, &text), request.name) {
            (Err(_), _) => Err(error.at(shown(config))),
            (Ok(_), Some(_)) => {
                let message =
                    format!("`{name}` cannot be the name of an arch: the language uses it");
                Err(Problem::in_file("--name", message, format!("write `--name {longer_name}`")))
            }
            (Ok(compiled), None) => Ok(ArchText { name: longer_name, text, compiled }),
        }
    }
}

/// The folder with the tokenizer: that of the configuration, or in a release the one above.
fn folder_of_tokenizer<'a>(kind: &'a Kind, config: &'a Path) -> Option<&'a Path> {
    match kind {
        Kind::Lingua { config: Some(above), .. } => above.parent(),
        Kind::HuggingFace { .. } | Kind::Lingua { .. } | Kind::Recipe(_) => config.parent(),
    }
}

/// The last meaningful part of a path.
fn file_name(path: &Path) -> String {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real.file_name()
        .map_or_else(|| "a folder".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// A likely name for a source: its folder or file, without the variant's name.
fn likely_name(source: &Path, kind: &Kind) -> String {
    let path = match kind {
        Kind::Recipe(path) => {
            return path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        }
        Kind::HuggingFace { .. } | Kind::Lingua { .. } if source.is_dir() => source.to_owned(),
        Kind::HuggingFace { .. } | Kind::Lingua { .. } => {
            source.parent().unwrap_or(Path::new("")).to_owned()
        }
    };
    let real = path.canonicalize().unwrap_or(path);
    let name = file_name(&real);
    match (name.as_str(), real.parent()) {
        ("default", Some(parent)) => file_name(parent),
        _ => name,
    }
}

/// Letters of a wrong name that an error shows.
const MAX_SHOWN: usize = 80;

/// A valid name of the `.canon` language that resembles this one.
pub fn identifier(name: &str) -> String {
    let kept = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let kept: String = kept.take(80).collect();
    match kept.chars().next() {
        Some(c) if c.is_ascii_digit() => format!("m_{kept}"),
        Some(_) => kept,
        None => "imported".to_owned(),
    }
}

impl Imported {
    /// The arch's parameters, in the order of the graph.
    pub fn params(&self) -> &[Param] {
        self.compiled.graph.params()
    }

    /// The tensors whose values are not those of the file.
    pub fn changed(&self) -> Vec<Changed> {
        match &self.weights {
            Some(_) => self.described.changed(self.params()),
            None => Vec::new(),
        }
    }

    /// The recipe, for a folder that also holds the arch.
    pub fn recipe(&self) -> Option<String> {
        let training = self.training.as_ref()?;
        let from = self.files.first().map_or_else(String::new, |file| file_name(&file.path));
        let comment = format!("Imported from {from}.");
        Some(recipe::text(&format!("../arch/{}.canon", self.name), &[comment], training))
    }

    /// Writes the folder, which must be absent or empty.
    pub fn write(&self, out: &Path) -> Result<(), Problem> {
        write_folder(out, &|folder| self.fill(folder))
    }

    fn fill(&self, folder: &Path) -> Result<(), Problem> {
        let name = &self.name;
        put(&imported_arch(folder, name), &self.text)?;
        if let Some(recipe) = self.recipe() {
            put(&folder.join("recipes").join(format!("{name}.toml")), &recipe)?;
        }
        if let Some(weights) = &self.weights {
            let planned: Vec<Planned> = self
                .params()
                .iter()
                .map(|p| Planned { name: p.path.clone(), shape: p.shape.clone() })
                .collect();
            let path = folder.join(IMPORTED);
            write_safetensors(&path, &planned, Dtype::F32, &[], |index, put| {
                weights.param(index, put)
            })?;
        }
        for CopiedFile { name, bytes, read: _ } in &self.copied {
            let path = folder.join(name);
            disk::replace(&path, bytes, || Ok(())).map_err(|e| cannot_write(&path, &e))?;
        }
        put(&folder.join(IMPORT), &self.provenance())
    }

    /// The origin of each file, and a list of everything left out.
    fn provenance(&self) -> String {
        let text = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut out = String::from("# What was imported; `canonc import` wrote it.\n");
        let identity = &self.compiled.identity;
        let _ = writeln!(out, "arch = {}", text(&self.name));
        let _ =
            writeln!(out, "graph = \"{}\"\nmanifest = \"{}\"", identity.graph, identity.manifest);
        out += &self.texts.lines();
        for ReadFile { path, bytes, digest } in &self.files {
            let name = text(&file_name(path));
            let _ =
                writeln!(out, "\n[[file]]\nname = {name}\nbytes = {bytes}\nblake3 = \"{digest}\"");
        }
        for Changed { name, how } in self.changed() {
            let _ = writeln!(out, "\n[[changed]]\nname = {}\nhow = {}", text(&name), text(how));
        }
        for LeftOut { name, reason } in &self.left_out {
            let _ = writeln!(out, "\n[[left_out]]\nname = {}\nwhy = {}", text(name), text(reason));
        }
        out
    }
}
