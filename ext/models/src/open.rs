//! Opens a model by one word: a run, a lock, a `.canon` file, or a folder of another program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use compiler::plan::Options;
use compiler::program::Compiled;
use data::text::tokenizer::{Kind, MarkNames, Tokenizer, TokenizerKind};
use interop::text_files::{GENERATION, TEMPLATE, TOKENIZER, TOKENIZER_CONFIG, TextSettings};
use lab::experiment::DataSource;
use records::run::Paths;
use serde_json::Value;
use serve::model::{Special, Specials};

use crate::prompts::Prompts;
use cli::archs::{self, NamedArch};
use cli::fail::{Failure, shown};
use cli::options::PromptArgs;
use cli::{files, output, tokenizer, workspace};
use commands::foreign::{self, Foreign};
use commands::weights;

/// The model that a person named.
pub(crate) struct Asked<'a> {
    pub(crate) model: &'a Path,
    pub(crate) arch: Option<&'a str>,
    pub(crate) weights: Option<&'a Path>,
    pub(crate) prompts: &'a PromptArgs,
    /// Whether texts are tokenized, for which a lock's trained tokenizer needs its file.
    pub(crate) reads_text: bool,
    /// What else can be given where texts cannot be tokenized: "give token ids".
    pub(crate) instead: &'a str,
}

/// What the files of a model say.
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) compiled: Compiled,
    /// Where its weights are.
    pub(crate) weights: PathBuf,
    /// The id of a run's lock.
    pub(crate) lock: Option<String>,
    /// Tokens of a training sequence, or what the folder's configuration allows.
    pub(crate) longest: Option<usize>,
    /// The options of its lock's plans.
    pub(crate) options: Option<Options>,
    /// The tokenizer, or why texts cannot be tokenized.
    pub(crate) text: Result<Prompts, Failure>,
    /// Where a chat template was found, and its text.
    pub(crate) template: Option<(PathBuf, String)>,
    /// Texts of marks that the template may name.
    pub(crate) marks: BTreeMap<String, String>,
}

impl Asked<'_> {
    /// The model, without its weights.
    pub(crate) fn describe(&self) -> Result<Described, Failure> {
        if let Some(described) = self.other()? {
            return Ok(described);
        }
        let NamedArch { compiled, train, data } = archs::only(self.model, self.arch)?;
        let weights = weights::of(self.model, self.weights)?;
        let text = self.text(data.as_ref(), &compiled)?;
        let beside = self.prompts.tokenizer_file.as_deref().and_then(Path::parent);
        let (template, marks) = match beside {
            Some(folder) => template(folder)?,
            None => (None, BTreeMap::new()),
        };
        let run = workspace::path(self.model)?;
        let folder = run.file_name().filter(|_| run.is_dir());
        let name = folder.map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| compiled.name.clone());
        let locked = workspace::experiment_of_run(&run)?.map(|(experiment, _)| experiment);
        if let (Some(experiment), None, false) =
            (&locked, self.weights, Paths::new(&run).is_attested()?)
        {
            let checkpoint = weights.parent().and_then(Path::file_name).unwrap_or_default();
            output::note(&format!(
                "warning: `{}` is not finished; the weights are those of {}, of {}",
                shown(&run),
                checkpoint.to_string_lossy(),
                output::counted(experiment.budget.steps, "step")
            ));
        }
        let lock = locked.map(|experiment| experiment.id().to_string());
        let options = train.as_ref().map(|train| train.options.common);
        let longest = train.and_then(|train| usize::try_from(train.seq_len).ok());
        Ok(Described { name, compiled, weights, lock, longest, options, text, template, marks })
    }

    /// The tokenizer of a lock's data, or why its tokens are not text.
    fn text(
        &self,
        data: Option<&DataSource>,
        compiled: &Compiled,
    ) -> Result<Result<Prompts, Failure>, Failure> {
        let given = self.prompts.tokenizer_file.as_deref();
        let vocab = compiled.graph.vocab;
        let found = Prompts::new(data, vocab, self.prompts, self.instead);
        match (found, data) {
            (Ok(prompts), _) => {
                let specials = match given {
                    Some(path) if prompts.is_hugging_face() => specials(path)?,
                    Some(_) | None => Specials::default(),
                };
                Ok(Ok(prompts.with_specials(specials)))
            }
            // A tokenizer that was asked for, or that the lock names, must be right.
            (Err(failure), data)
                if given.is_some()
                    || self.reads_text && matches!(data, Some(DataSource::Text { .. })) =>
            {
                Err(failure)
            }
            (Err(failure), _) => Ok(Err(failure)),
        }
    }

    /// A model of another program: its folder, or an arch with weights that were imported; `None` if it is neither.
    fn other(&self) -> Result<Option<Described>, Failure> {
        match self.folder()? {
            Some(described) => Ok(Some(described)),
            None => self.imported(),
        }
    }

    /// A folder of another program, or one that `canonc export` or `canonc import` wrote.
    fn folder(&self) -> Result<Option<Described>, Failure> {
        let folder = self.model;
        let Some(Foreign { compiled, record }) = foreign::open(folder, self.arch)? else {
            return Ok(None);
        };
        let weights = self.weights.unwrap_or(folder).to_owned();
        let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let name = real.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| compiled.name.clone());
        self.beside(name, compiled, weights, folder, &record.texts).map(Some)
    }

    /// An arch with a named `tokenizer.json`, or with weights from a folder that has one.
    fn imported(&self) -> Result<Option<Described>, Failure> {
        let record = self.weights.map(foreign::beside).transpose()?.flatten();
        let named = self.prompts.tokenizer_file.as_deref();
        let named = named.filter(|path| path.extension().is_some_and(|end| end == "json"));
        let (folder, texts) = match (&record, named.and_then(Path::parent)) {
            (Some(record), _) => (record.folder.clone(), record.texts.clone()),
            (None, Some(folder)) => (folder.to_owned(), TextSettings::default()),
            (None, None) => return Ok(None),
        };
        let NamedArch { compiled, train, data } = archs::only(self.model, self.arch)?;
        if train.is_some() || data.is_some() {
            // A lock has its own data.
            return Ok(None);
        }
        let (name, weights) = (compiled.name.clone(), weights::of(self.model, self.weights)?);
        let described = self.beside(name, compiled, weights, &folder, &texts)?;
        if named.is_some() || folder.join(TOKENIZER).is_file() {
            return Ok(Some(described));
        }
        // An arch's tokens may be bytes, which need no file.
        let bytes = self.text(None, &described.compiled)?;
        let text = bytes.or(described.text);
        Ok(Some(Described { text, ..described }))
    }

    /// A model with the tokenizer and the chat template of a folder.
    fn beside(
        &self,
        name: String,
        compiled: Compiled,
        weights: PathBuf,
        folder: &Path,
        texts: &TextSettings,
    ) -> Result<Described, Failure> {
        let given = self.prompts.tokenizer_file.clone();
        let file = given.or_else(|| Some(folder.join(TOKENIZER)).filter(|path| path.is_file()));
        let (mut found, mut marks) = template(folder)?;
        if let Some(other) = self.prompts.tokenizer_file.as_deref().and_then(Path::parent) {
            let (theirs, names) = template(other)?;
            found = found.or(theirs);
            // The names of a tokenizer's marks are beside it.
            if !names.is_empty() {
                marks = names;
            }
        }
        let text = match file {
            None => {
                let place = shown(folder);
                let message =
                    format!("`{place}` has no {TOKENIZER}; name one with --tokenizer-file");
                Err(Failure::bad_input(message).help(self.instead))
            }
            Some(file) => {
                let text = self.folders_text(folder, &file, &marks, texts, compiled.graph.vocab);
                match text {
                    // Without texts, only a tokenizer that was asked for must be right.
                    Err(failure) if !self.reads_text && self.prompts.tokenizer_file.is_none() => {
                        Err(failure)
                    }
                    text => Ok(text?),
                }
            }
        };
        let length = texts.context.as_ref().map(|(length, _)| *length);
        let longest = length.and_then(|length| usize::try_from(length).ok());
        let template = found;
        Ok(Described {
            name,
            compiled,
            weights,
            lock: None,
            longest,
            options: None,
            text,
            template,
            marks,
        })
    }

    fn folders_text(
        &self,
        folder: &Path,
        file: &Path,
        marks: &BTreeMap<String, String>,
        texts: &TextSettings,
        vocab: i64,
    ) -> Result<Prompts, Failure> {
        let names = MarkNames { bos: self.prompts.bos.clone(), eos: self.prompts.eos.clone() };
        let kind = Kind::File(TokenizerKind::HuggingFace);
        let tokenizer = Tokenizer::read(kind, &tokenizer::bytes_of(file)?, &shown(file), &names);
        let tokenizer =
            tokenizer.map_err(|error| Failure::bad_input(error.message).help(error.help))?;
        if let Some(note) = tokenizer.note() {
            output::note(&format!("note: {note}"));
        }
        let has = i64::from(tokenizer.text_vocab());
        if has > vocab {
            let message = format!("`{}` has {has} tokens, but the model has {vocab}", shown(file));
            return Err(
                Failure::bad_input(message).help("name the model's own with --tokenizer-file")
            );
        }
        let specials = specials(file)?;
        let mut ends = ends(folder, texts)?;
        let named = |key: &str| {
            let mark = marks.get(key)?;
            Some(specials.iter().find(|special| special.text == *mark)?.id)
        };
        let (begin, end) = (named("bos_token"), named("eos_token"));
        ends.extend(end);
        if self.prompts.eos.is_some() {
            ends = tokenizer.info().eos.into_iter().collect();
        }
        ends.sort_unstable();
        ends.dedup();
        Ok(Prompts::of_folder(tokenizer, begin.or(end), ends, specials))
    }
}

/// A small JSON file, if it is there.
fn json(path: &Path) -> Result<Option<Value>, Failure> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = disk::read_text(path, disk::TEXT).map_err(|error| files::missing(path, &error))?;
    let value = serde_json::from_str(&text);
    value
        .map(Some)
        .map_err(|error| Failure::bad_input(format!("it is not JSON: {error}")).at(shown(path)))
}

/// The special tokens of a `tokenizer.json`.
fn specials(path: &Path) -> Result<Specials, Failure> {
    let file = tokenizer::bytes_of(path)?;
    let root: Value = serde_json::from_slice(&file).unwrap_or_default();
    let added = root.get("added_tokens").and_then(Value::as_array).into_iter().flatten();
    let special = |token: &Value| {
        let id = u32::try_from(token.get("id")?.as_u64()?).ok()?;
        let text = token.get("content")?.as_str().filter(|text| !text.is_empty())?;
        let is_special = token.get("special").and_then(Value::as_bool) == Some(true);
        is_special.then(|| Special { text: text.to_owned(), id })
    };
    Specials::new(added.filter_map(special).collect())
        .map_err(|why| Failure::bad_input(why).at(shown(path)))
}

/// The tokens that end a text, as `transformers` reads them: those of `generation_config.json`, or of the configuration.
fn ends(folder: &Path, texts: &TextSettings) -> Result<Vec<u32>, Failure> {
    let own = foreign::config_texts(&folder.join(GENERATION))?.ends;
    Ok(if own.is_empty() { texts.ends.clone() } else { own })
}

type Chat = (Option<(PathBuf, String)>, BTreeMap<String, String>);

/// The chat template of a folder, and the texts of its marks.
fn template(folder: &Path) -> Result<Chat, Failure> {
    let path = folder.join(TOKENIZER_CONFIG);
    let config = json(&path)?.unwrap_or_default();
    let mut marks = BTreeMap::new();
    for name in ["bos_token", "eos_token", "unk_token", "pad_token"] {
        let value = config.get(name);
        let text =
            value.and_then(|value| value.as_str().or_else(|| value.get("content")?.as_str()));
        if let Some(text) = text {
            marks.insert(name.to_owned(), text.to_owned());
        }
    }
    let file = folder.join(TEMPLATE);
    if file.is_file() {
        let text =
            disk::read_text(&file, disk::TEXT).map_err(|error| files::missing(&file, &error))?;
        return Ok((Some((file, text)), marks));
    }
    let text = match config.get("chat_template") {
        Some(Value::String(text)) => Some(text.clone()),
        // Several, by name.
        Some(Value::Array(list)) => {
            let usual =
                list.iter().find(|one| one.get("name").is_some_and(|name| name == "default"));
            usual.and_then(|one| Some(one.get("template")?.as_str()?.to_owned()))
        }
        Some(_) | None => None,
    };
    Ok((text.map(|text| (path, text)), marks))
}
