//! A model by one word: a run, a lock, a `.canon` file, or a folder of another program.
//!
//! In: the word, options. Out: arch, weights, tokenizer, the longest input. Must stay true: a foreign folder is read as
//! by `canonc import`, without writing anything; its tokens are those of its `tokenizer.json`.

use std::path::Path;

use compiler::program::Compiled;
use interop::import::{Request, read};
use runtime::execute::Machine;
use runtime::weights::Weights;
use serde_json::Value;

use crate::forward::{one_arch, weights};
use crate::prompts::Prompts;
use canonc::args::PromptArgs;
use canonc::fail::{Failure, shown};
use canonc::load::Found;
use canonc::{files, import, runs};

/// A model that can be asked.
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) compiled: Compiled,
    pub(crate) weights: Weights,
    pub(crate) prompts: Prompts,
    /// Tokens of a training sequence, or what the folder's configuration allows.
    pub(crate) longest: Option<usize>,
    /// The id of a run's lock.
    pub(crate) lock: Option<String>,
}

/// Where a model is.
pub(crate) struct Place<'a> {
    pub(crate) word: &'a Path,
    pub(crate) arch: Option<&'a str>,
    pub(crate) weights: Option<&'a Path>,
    pub(crate) prompts: &'a PromptArgs,
}

impl Model {
    pub(crate) fn open(place: &Place<'_>, machine: Machine) -> Result<Model, Failure> {
        match foreign(place.word) {
            true => Model::foreign(place, machine),
            false => Model::ours(place, machine),
        }
    }

    fn ours(place: &Place<'_>, machine: Machine) -> Result<Model, Failure> {
        let Place { word, arch, weights: given, prompts } = place;
        let Found { compiled, train, data } = one_arch(word, *arch)?;
        let prompts = Prompts::new(
            data.as_ref(),
            compiled.graph.vocab,
            prompts,
            "use a model with text tokens",
        )?;
        let weights = weights(&compiled, &runs::weights(word, *given)?, machine)?;
        let lock = runs::locked_in(word).map(|(experiment, _)| experiment.id().to_string());
        let longest = train.and_then(|train| usize::try_from(train.seq_len).ok());
        Ok(Model { name: compiled.name.clone(), compiled, weights, prompts, longest, lock })
    }

    fn foreign(place: &Place<'_>, machine: Machine) -> Result<Model, Failure> {
        let Place { word, arch, weights: given, prompts } = place;
        for (option, is_given) in [("--arch", arch.is_some()), ("--weights", given.is_some())] {
            if is_given {
                let message = format!(
                    "{option} is given, but `{}` is a folder with a model of its own",
                    shown(word)
                );
                return Err(Failure::bad_input(message).help(format!("remove {option}")));
            }
        }
        let request = Request { source: word, name: None, devices: None, weights: true };
        let imported = read(&request).map_err(import::failure)?;
        let Some(source) = &imported.weights else {
            return Err(Failure::bad_input(format!("`{}` has no weights", shown(word)))
                .help("add model.safetensors or consolidated.pth"));
        };
        let graph = &imported.compiled.graph;
        let weights =
            Weights::read(graph, source, machine.device, machine.kind).map_err(runs::failure)?;
        let tokenizer = match &prompts.tokenizer_file {
            Some(file) => file.clone(),
            None => word.join("tokenizer.json"),
        };
        std::fs::metadata(&tokenizer).map_err(|error| files::missing(&tokenizer, &error))?;
        let config = json(&word.join("tokenizer_config.json"))?;
        let named = |key: &str| config.as_ref().and_then(|config| named_mark(config, key));
        let marks = (
            prompts.bos.clone().or_else(|| named("bos_token")),
            prompts.eos.clone().or_else(|| named("eos_token")),
        );
        let prompts = Prompts::of_file(graph.vocab, &tokenizer, marks)?;
        let longest = json(&word.join("config.json"))?
            .and_then(|config| config.get("max_position_embeddings")?.as_u64())
            .and_then(|length| usize::try_from(length).ok());
        let name = imported.name.clone();
        Ok(Model { name, compiled: imported.compiled, weights, prompts, longest, lock: None })
    }
}

/// Whether a word is a folder of another program.
fn foreign(word: &Path) -> bool {
    let has = |name: &str| word.join(name).is_file();
    word.is_dir() && !has("lock") && (has("config.json") || has("params.json"))
}

/// A JSON file, if it is there.
fn json(path: &Path) -> Result<Option<Value>, Failure> {
    let text = match disk::read_text(path, disk::SMALL) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(files::missing(path, &error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        Failure::bad_input(format!("`{}` is not JSON: {error}", shown(path)))
            .help("restore the file; it names the tokens before and after a text")
    })
}

/// A mark's text in a `tokenizer_config.json`: a text, or an object with its `content`.
fn named_mark(config: &Value, key: &str) -> Option<String> {
    let mark = config.get(key)?;
    mark.as_str().or_else(|| mark.get("content")?.as_str()).map(str::to_owned)
}
