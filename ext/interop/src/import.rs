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

use super::beside::{self, Copied, RECORD, Texts};
use super::config::Keys;
use super::dtype::Dtype;
use super::hf::{Changed, Described, Released};
use super::lay::{LeftOut, Target};
use super::names::GatedNorm;
use super::source::{Source, differing};
use super::store::{Planned, ReadFile, Store, bytes_of, write_safetensors};
use super::training::{self, Training};
use super::{ForeignError, arch, hf, json, lingua, recipe, shown, yaml};

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
    pub weights: Option<Source>,
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
    pub texts: Texts,
    /// The files of tokenizer, chat template and generation, which are copied.
    pub copied: Vec<Copied>,
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

const CONFIG: &str = "config.json";
const PARAMS: &str = "params.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const TORCH: &str = "pytorch_model.bin";
const TORCH_INDEX: &str = "pytorch_model.bin.index.json";
const PTH: &str = "consolidated.pth";
/// The weights that an import writes.
pub(super) const IMPORTED: &str = "weights.safetensors";
/// The variant that the release's own loader reads.
const DEFAULT: &str = "default";
/// Names of weight files in a folder, ours first.
pub const WEIGHTS: [&str; 7] =
    [IMPORTED, SINGLE, INDEX, TORCH, TORCH_INDEX, PTH, "default/consolidated.pth"];
/// Endings of files that may hold weights.
const LIKE_WEIGHTS: [&str; 9] =
    [".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".gguf", ".msgpack", ".h5", ".index.json"];

/// Whether a folder has files that may hold weights.
pub fn has_weights(folder: &Path) -> bool {
    !like_weights(folder).is_empty()
}

/// Names of the files in a folder that may hold weights, eight at most.
pub(super) fn like_weights(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| LIKE_WEIGHTS.iter().any(|end| name.ends_with(end)))
        .filter(|name| name != "training_args.bin")
        .collect();
    names.sort();
    names.truncate(8);
    names
}

fn there(path: PathBuf) -> Option<PathBuf> {
    Some(path).filter(|path| path.is_file())
}

fn hugging(folder: &Path) -> Option<Kind> {
    let config = there(folder.join(CONFIG))?;
    let names = [SINGLE, INDEX, TORCH, TORCH_INDEX];
    let weights = names.iter().find_map(|name| there(folder.join(name)));
    Some(Kind::HuggingFace { config, weights })
}

fn released(folder: &Path) -> Option<Kind> {
    let params = there(folder.join(PARAMS))?;
    Some(Kind::Lingua { params, weights: there(folder.join(PTH)), config: None })
}

/// The kind of a folder. The release has its variants in subfolders, and a `config.json` without weights above them.
fn of_folder(folder: &Path) -> Option<Kind> {
    let variant = || released(&folder.join(DEFAULT));
    match hugging(folder) {
        Some(Kind::HuggingFace { config, weights: None }) => {
            match released(folder).or_else(variant) {
                Some(Kind::Lingua { params, weights: Some(weights), .. }) => {
                    Some(Kind::Lingua { params, weights: Some(weights), config: Some(config) })
                }
                Some(_) | None => Some(Kind::HuggingFace { config, weights: None }),
            }
        }
        Some(found) => Some(found),
        None => released(folder).or_else(variant),
    }
}

/// Subfolders that hold a variant of a release.
fn variants(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .filter(|entry| entry.path().join(PARAMS).is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}

fn kind(source: &Path) -> Result<Kind, ForeignError> {
    let refuse = |message: String, help: &str| Err(ForeignError::new(shown(source), message, help));
    if source.is_dir() {
        if let Some(found) = of_folder(source) {
            return Ok(found);
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
            of_folder(folder).map_or_else(|| refuse("it is not a file".to_owned(), ""), Ok)
        }
        Some(PARAMS) => {
            released(folder).map_or_else(|| refuse("it is not a file".to_owned(), ""), Ok)
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

/// The model described by a configuration in the same folder as a file of weights, if there is one. For weights that
/// are used directly, without an import.
pub(super) fn described_beside(
    weights: &Path,
    whose: Target,
) -> Result<Option<(PathBuf, Described)>, ForeignError> {
    let name = match whose {
        Target::HuggingFace => CONFIG,
        Target::Lingua => PARAMS,
    };
    let folder = weights.parent().unwrap_or(Path::new(""));
    let Some(path) = there(folder.join(name)) else { return Ok(None) };
    let place = shown(&path);
    let root = json::read(&place, &bytes_of(&path)?.0)?;
    let keys = Keys::new(&place, &root)?;
    let described = match whose {
        Target::HuggingFace => hf::read(&keys)?,
        Target::Lingua => Described::Released(lingua::read(&keys)?),
    };
    Ok(Some((path, described)))
}

/// Compares a release's `config.json` with the model of its `params.json`. A configuration that is too short to
/// describe a model is left out.
fn check_above(config: &Path, described: &Released) -> Result<(ReadFile, LeftOut), ForeignError> {
    let place = shown(config);
    let (bytes, read) = bytes_of(config)?;
    let root = json::read(&place, &bytes)?;
    let above = Keys::new(&place, &root).and_then(|keys| hf::released(&keys));
    let why = match above {
        Err(error) => format!("it does not describe a model: {}", error.message),
        Ok(above) => match differing(&above.model, &described.model) {
            None => format!("it describes the same model as {PARAMS}"),
            Some((has, wants)) => {
                let message = format!("it says `{has}`, but {PARAMS} says `{wants}`");
                let help = "name a release with files of one model, or the variant's folder";
                return Err(ForeignError::new(place, message, help));
            }
        },
    };
    Ok((read, LeftOut { name: CONFIG.to_owned(), why }))
}

/// Reads and checks everything; writes nothing.
pub fn read(request: &Request<'_>) -> Result<Imported, ForeignError> {
    let kind = kind(request.source)?;
    let (config, weights, whose) = match &kind {
        Kind::HuggingFace { config, weights } => (config, weights.as_ref(), Target::HuggingFace),
        Kind::Lingua { params, weights, config: _ } => (params, weights.as_ref(), Target::Lingua),
        Kind::Recipe(path) => (path, None, Target::Lingua),
    };
    let place = shown(config);
    let (bytes, config_read) = bytes_of(config)?;
    let root = match &kind {
        Kind::Recipe(_) => yaml::read(&place, &bytes)?,
        Kind::HuggingFace { .. } | Kind::Lingua { .. } => json::read(&place, &bytes)?,
    };
    let keys = Keys::new(&place, &root)?;
    let mut left_out = Vec::new();
    let mut norm = GatedNorm::Fused;
    let (described, training) = match whose {
        Target::HuggingFace => {
            if request.devices.is_some() {
                let help = "remove --devices";
                return Err(ForeignError::new(
                    place,
                    "a Hugging Face folder has no training settings",
                    help,
                ));
            }
            let described = hf::read(&keys)?;
            if let Described::Released(released) = &described {
                norm = released.norm;
            }
            (described, None)
        }
        Target::Lingua => {
            let described = lingua::read(&keys)?;
            let training = if training::is_there(&keys) {
                let vocab = described.model.vocab;
                let (read, idle) = training::read(&keys, vocab, described.norm, request.devices)?;
                left_out.extend(idle);
                Some(read)
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
            norm = described.norm;
            (Described::Released(described), training)
        }
    };
    left_out.extend(keys.neutrals());
    // A recipe has a field for it: platform.kernels.gated_norm.
    if norm == GatedNorm::Reference && training.is_none() {
        let why = "it chooses a kernel for norms and gates, which only a recipe does".to_owned();
        left_out.push(LeftOut { name: "zeyuan_layernorm".to_owned(), why });
    }
    let texts = Texts::of(&keys, &file_name(config))?;
    let mut name = match request.name {
        Some(name) => name.to_owned(),
        None => identifier(&named(request.source, &kind)),
    };
    if identifier(&name) != name {
        let shown: String = name.chars().take(MAX_SHOWN).collect();
        let message = format!("{shown:?} cannot be the name of an arch");
        let help = "use letters, digits and `_`, starting with a letter";
        return Err(ForeignError::new("--name", message, help));
    }
    let doc = format!("Imported from {}.", file_name(request.source));
    let mut text = described.text(&name, &doc);
    let compiled = match arch::compile(&name, &text) {
        Ok(compiled) => compiled,
        Err(error) => {
            // The name may be a keyword, or that of a definition that the text uses.
            let other = format!("{name}_");
            let other_text = described.text(&other, &doc);
            let Ok(compiled) = arch::compile(&other, &other_text) else {
                return Err(ForeignError { place: place.clone(), ..error });
            };
            if request.name.is_some() {
                let message =
                    format!("`{name}` cannot be the name of an arch: the language uses it");
                return Err(ForeignError::new(
                    "--name",
                    message,
                    format!("write `--name {other}`"),
                ));
            }
            (name, text) = (other, other_text);
            compiled
        }
    };
    let mut files = vec![config_read];
    if let (Kind::Lingua { config: Some(above), .. }, Described::Released(described)) =
        (&kind, &described)
    {
        let (read, idle) = check_above(above, described)?;
        files.push(read);
        left_out.push(idle);
    }
    let looked_for = match (&kind, weights) {
        (Kind::HuggingFace { config, .. }, None) => vec![
            config.with_file_name(SINGLE),
            config.with_file_name(INDEX),
            config.with_file_name(TORCH),
            config.with_file_name(DEFAULT).join(PTH),
        ],
        (Kind::Lingua { params, .. }, None) => vec![params.with_file_name(PTH)],
        (Kind::HuggingFace { .. } | Kind::Lingua { .. }, Some(_)) | (Kind::Recipe(_), _) => {
            Vec::new()
        }
    };
    let weights = match weights.filter(|_| request.weights) {
        None => None,
        Some(path) => {
            let (store, idle) = Store::open(path)?;
            left_out.extend(idle);
            files.extend(store.index.iter().chain(&store.files).cloned());
            let params = compiled.graph.params();
            let source = Source::described(store, &described, whose, params, path)?;
            left_out.extend(source.left_out.iter().cloned());
            Some(source)
        }
    };
    let from_recipe = matches!(kind, Kind::Recipe(_));
    let mut copied = Vec::new();
    if let (false, Some(folder)) = (from_recipe, texts_of(&kind, config)) {
        let (found, left) = beside::of_folder(folder)?;
        files.extend(found.iter().map(|file| file.read.clone()));
        left_out.extend(left);
        copied = found;
    }
    Ok(Imported {
        name,
        described,
        text,
        compiled,
        training,
        weights,
        from_recipe,
        unread: match looked_for.is_empty() {
            true => Vec::new(),
            false => like_weights(config.parent().unwrap_or(Path::new(""))),
        },
        looked_for,
        left_out,
        files,
        texts,
        copied,
    })
}

/// The folder with the tokenizer: that of the configuration, or in a release the one above.
fn texts_of<'a>(kind: &'a Kind, config: &'a Path) -> Option<&'a Path> {
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
fn named(source: &Path, kind: &Kind) -> String {
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
    let own = file_name(&real);
    match (own.as_str(), real.parent()) {
        ("default", Some(parent)) => file_name(parent),
        _ => own,
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
        match (&self.described, &self.weights) {
            (Described::Stock(stock), Some(_)) => stock.changed(self.params()),
            (Described::Stock(_) | Described::Released(_), _) => Vec::new(),
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
    pub fn write(&self, out: &Path) -> Result<(), ForeignError> {
        whole(out, &|folder| self.fill(folder))
    }

    fn fill(&self, folder: &Path) -> Result<(), ForeignError> {
        let name = &self.name;
        put(&arch_of(folder, name), &self.text)?;
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
        for Copied { name, bytes, read: _ } in &self.copied {
            let path = folder.join(name);
            disk::replace(&path, bytes, || Ok(())).map_err(|e| ForeignError::write(&path, &e))?;
        }
        put(&folder.join(RECORD), &self.provenance())
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
        for LeftOut { name, why } in &self.left_out {
            let _ = writeln!(out, "\n[[left_out]]\nname = {}\nwhy = {}", text(name), text(why));
        }
        out
    }
}

/// The arch of that name in the folder of an import.
pub(super) fn arch_of(folder: &Path, name: &str) -> PathBuf {
    folder.join("arch").join(format!("{name}.canon"))
}

/// Writes a file, creating its folder.
pub(super) fn put(path: &Path, text: &str) -> Result<(), ForeignError> {
    let failed = |error: std::io::Error| ForeignError::write(path, &error);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    disk::replace(path, text.as_bytes(), || Ok(())).map_err(failed)
}

/// Fills a temporary folder next to `out` and renames it to `out`: completely or not at all.
pub(super) fn whole(
    out: &Path,
    fill: &dyn Fn(&Path) -> Result<(), ForeignError>,
) -> Result<(), ForeignError> {
    let failed = |error: std::io::Error| ForeignError::write(out, &error);
    let taken = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(_) => true,
    };
    if taken {
        let help = "name a new or empty folder";
        return Err(ForeignError::new(shown(out), "it already exists", help));
    }
    let parent = disk::parent(out);
    fs::create_dir_all(parent).map_err(failed)?;
    let name = out.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let beside = parent.join(format!(".{name}.{}.partial", std::process::id()));
    let _ = fs::remove_dir_all(&beside);
    fs::create_dir(&beside).map_err(failed)?;
    let done = fill(&beside).and_then(|()| {
        // An empty folder at `out` is replaced.
        if out.is_dir() {
            fs::remove_dir(out).map_err(failed)?;
        }
        fs::rename(&beside, out).and_then(|()| disk::sync_folder(parent)).map_err(failed)
    });
    if done.is_err() {
        let _ = fs::remove_dir_all(&beside);
    }
    done
}
