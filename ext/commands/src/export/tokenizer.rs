//! The tokenizer of a lock or of imported weights, for a folder that `transformers` loads.

use std::path::Path;

use data::text::locked::{self, around};
use data::text::tokenizer::{Kind, MarkNames, Tokenizer, TokenizerKind};
use interop::record::ImportRecord;
use interop::text_files::{
    GENERATION, ImportedText, TEMPLATE, TOKENIZER, TOKENIZER_CONFIG, TextSettings,
};
use lab::experiment::{DataSource, Experiment};
use tasks::{BOS, BYTES, EOS};

use super::{ExportArgs, ExportTo};
use cli::fail::{Failure, shown};
use cli::files;
use cli::options::PromptArgs;
use cli::tokenizer::{bytes_of, read as read_tokenizer};

/// The tokenizer to write, or why there is none.
type Written = Result<interop::tokenizer::Tokenizer, String>;

fn refuse<T>(message: &str) -> Result<T, Failure> {
    Err(Failure::bad_input(message).help("remove --tokenizer-file, --bos and --eos"))
}

/// Whether a tokenizer is named, if the format has one.
fn given(args: &ExportArgs) -> Result<bool, Failure> {
    let PromptArgs { tokenizer_file, bos, eos } = &args.prompt;
    let given = tokenizer_file.is_some() || bos.is_some() || eos.is_some();
    if given && args.to != ExportTo::Hf {
        return refuse("only `--to hf` writes a tokenizer");
    }
    Ok(given)
}

/// The tokenizer of an arch: the named one, or the one that was imported with its weights.
pub(super) fn of_arch(
    args: &ExportArgs,
    record: Option<&ImportRecord>,
    vocab: i64,
) -> Result<Written, Failure> {
    given(args)?;
    let imported = record.map(|record| record.folder.join(TOKENIZER)).filter(|path| path.is_file());
    let named = args.prompt.tokenizer_file.clone();
    let (Some(path), ExportTo::Hf) = (named.or(imported), args.to) else {
        return Ok(Err(
            "No tokenizer is in this folder: an arch does not say what its tokens are \
             (`canonc export --tokenizer-file` does)."
                .to_owned(),
        ));
    };
    let kind = Kind::File(TokenizerKind::HuggingFace);
    let PromptArgs { bos, eos, .. } = &args.prompt;
    let marks = MarkNames { bos: bos.clone(), eos: eos.clone() };
    let found = read_tokenizer(kind, Some(&path), marks)?;
    let has = i64::from(found.info().vocab);
    if has > vocab {
        let message = format!("it has {has} tokens, but the arch has {vocab}");
        return Err(Failure::bad_input(message)
            .at(shown(&path))
            .help("name the tokenizer of these weights with --tokenizer-file"));
    }
    let read = read(&path, &found, None)?;
    // Without --bos, its own post-processor says how a text begins.
    Ok(read.map(|known| if bos.is_some() { known.beginning(true) } else { known }))
}

/// What an export of an arch takes from the folder of its imported weights, or of the named tokenizer.
pub(super) fn imported_text(
    args: &ExportArgs,
    record: Option<ImportRecord>,
) -> Result<ImportedText, Failure> {
    let PromptArgs { tokenizer_file, bos, eos } = &args.prompt;
    let named = tokenizer_file.as_deref().and_then(Path::parent).map(Path::to_owned);
    let imported = record.as_ref().map(|record| record.folder.clone());
    let of_tokenizer = named.or_else(|| imported.clone());
    let settings = record.map(|record| record.texts).unwrap_or_default();
    let places =
        [(GENERATION, &imported), (TOKENIZER_CONFIG, &of_tokenizer), (TEMPLATE, &of_tokenizer)];
    // Named marks would contradict the files' own.
    let renamed = bos.is_some() || eos.is_some();
    let mut files = Vec::new();
    for (name, folder) in places {
        let path = folder.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file());
        if let (Some(path), true) = (path, name == TEMPLATE || !renamed) {
            let text = disk::read_text(&path, disk::SMALL);
            files.push((name, text.map_err(|error| files::missing(&path, &error))?));
        }
    }
    let settings = match renamed {
        true => TextSettings { bos: None, ends: Vec::new(), ..settings },
        false => settings,
    };
    Ok(ImportedText { settings, files })
}

/// The tokenizer of a lock, or why there is none.
pub(super) fn tokenizer(
    args: &ExportArgs,
    experiment: &Experiment,
    vocab: i64,
) -> Result<Written, Failure> {
    let path = args.prompt.tokenizer_file.as_deref();
    let given = given(args)?;
    let source = &experiment.data.source;
    let begin = |tokenizer: &Tokenizer| around(Some(source), tokenizer.info()).before;
    let (kind, locked) = match source {
        DataSource::Text { tokenizer, .. } => (Kind::from(tokenizer), Some(tokenizer)),
        DataSource::Task { task, .. } if task.is_text() => (Kind::Bytes, None),
        DataSource::Task { task, .. } => {
            let name = task.name();
            if given {
                return refuse(&format!("the tokens of the task {name} are not text"));
            }
            return Ok(Err(format!(
                "No tokenizer is in this folder: the tokens of the task {name} are not text."
            )));
        }
    };
    match (kind, path) {
        (Kind::Bytes, _) if given => refuse("the lock's tokens are bytes"),
        (Kind::Bytes, _) if vocab < i64::from(BYTES) => Ok(Err(format!(
            "No tokenizer is in this folder: tokens are bytes, but this arch has only {vocab} of the {BYTES}."
        ))),
        (Kind::Bytes, _) => {
            let bytes = interop::tokenizer::Tokenizer::bytes(BOS, EOS);
            Ok(Ok(match begin(&Tokenizer::bytes()) {
                Some(EOS) => bytes.beginning_with_eos(),
                mark => bytes.beginning(mark.is_some()),
            }))
        }
        (Kind::File(kind), None) => Ok(Err(format!(
            "No tokenizer is in this folder: the lock's is a {} file, which `canonc export` did not get{}.",
            kind.name(),
            if kind == TokenizerKind::HuggingFace { " (`--tokenizer-file`)" } else { "" }
        ))),
        (Kind::File(TokenizerKind::HuggingFace), Some(path)) => {
            let marks = MarkNames { bos: args.prompt.bos.clone(), eos: args.prompt.eos.clone() };
            let found = read_tokenizer(kind, Some(path), marks)?;
            let with_bos = begin(&found).is_some();
            Ok(read(path, &found, locked)?.map(|known| known.beginning(with_bos)))
        }
        (Kind::File(_), Some(path)) => {
            let message = format!(
                "`{}` is a {} file, for which canonc has no form that `transformers` loads",
                shown(path),
                kind.name()
            );
            Err(Failure::bad_input(message)
                .help("remove --tokenizer-file, and load the file with its own library"))
        }
    }
}

fn read(
    path: &Path,
    found: &Tokenizer,
    locked: Option<&lab::experiment::Tokenizer>,
) -> Result<Written, Failure> {
    if let Some(differs) = locked.and_then(|locked| locked::mismatch(locked, found.info())) {
        return Err(Failure::bad_input(
            differs.replace("the documents were prepared with", "this file is"),
        )
        .at(shown(path))
        .help(
            "name the lock's tokenizer with --tokenizer-file, --bos and --eos as it was prepared",
        ));
    }
    let file = bytes_of(path)?;
    let info = found.info();
    interop::tokenizer::Tokenizer::read(
        &shown(path),
        &String::from_utf8_lossy(&file),
        info.bos,
        info.eos,
    )
    .map(Ok)
    .map_err(Failure::from)
}
