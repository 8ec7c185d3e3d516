//! The tokenizer of a lock, for a folder that `transformers` loads.
//!
//! In: a lock, and its tokenizer's file if it has one. Out: the tokenizer, or a sentence that says why there is none.
//! Must stay true: a file that is not the lock's tokenizer is refused.

use std::path::Path;

use data::text::locked;
use data::text::tokenizer::{Kind, MarkNames, Tokenizer, TokenizerKind};
use lab::experiment::{DataSource, Experiment};
use tasks::{BOS, BYTES, EOS};

use crate::args::{ExportArgs, ExportTo};
use crate::data as sources;
use crate::fail::{Failure, shown};
use crate::import::failure;

/// The tokenizer to write, or why there is none.
pub(super) fn tokenizer(
    args: &ExportArgs,
    experiment: Option<&Experiment>,
    vocab: i64,
) -> Result<Result<interop::tokenizer::Tokenizer, String>, Failure> {
    let path = args.prompt.tokenizer_file.as_deref();
    let given = path.is_some() || args.prompt.bos.is_some() || args.prompt.eos.is_some();
    let refuse = |message: &str| {
        let help = "remove --tokenizer-file, --bos and --eos";
        Err(Failure::bad_input(message).help(help))
    };
    if given && args.to != ExportTo::Hf {
        return refuse("only `--to hf` writes a tokenizer");
    }
    let Some(experiment) = experiment else {
        if given {
            return refuse(
                "an arch has no tokenizer: only a lock says which one the weights were trained with",
            );
        }
        return Ok(Err(
            "No tokenizer is in this folder: an arch does not say what its tokens are.".to_owned(),
        ));
    };
    let (kind, locked, begin) = match &experiment.data.source {
        DataSource::Text { tokenizer, add_bos, .. } => {
            (Kind::from(tokenizer), Some(tokenizer), Some(BOS).filter(|_| *add_bos))
        }
        DataSource::Task { task, .. } if task.is_text() => (Kind::Bytes, None, task.separator()),
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
            Ok(Ok(match begin {
                Some(EOS) => bytes.beginning_with_eos(),
                _ => bytes.beginning(begin.is_some()),
            }))
        }
        (Kind::File(kind), None) => Ok(Err(format!(
            "No tokenizer is in this folder: the lock's is a {} file, which `canonc export` did not get{}.",
            kind.name(),
            if kind == TokenizerKind::HuggingFace { " (`--tokenizer-file`)" } else { "" }
        ))),
        (Kind::File(TokenizerKind::HuggingFace), Some(path)) => {
            let marks = MarkNames { bos: args.prompt.bos.clone(), eos: args.prompt.eos.clone() };
            let found = sources::tokenizer(kind, Some(path), marks)?;
            read(path, &found, locked)
                .map(|read| read.map(|known| known.beginning(begin.is_some())))
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
) -> Result<Result<interop::tokenizer::Tokenizer, String>, Failure> {
    if let Some(differs) = locked.and_then(|locked| locked::mismatch(locked, found.info())) {
        return Err(Failure::bad_input(
            differs.replace("the documents were prepared with", "this file is"),
        )
        .at(shown(path))
        .help(
            "name the lock's tokenizer with --tokenizer-file, --bos and --eos as it was prepared",
        ));
    }
    let file = sources::tokenizer_file(path)?;
    let info = found.info();
    interop::tokenizer::Tokenizer::read(
        &shown(path),
        &String::from_utf8_lossy(&file),
        info.bos,
        info.eos,
    )
    .map(Ok)
    .map_err(failure)
}
