//! `canonc bind`: closes a lock by the digest of the data it names.
//!
//! In: an open lock and the prepared documents. Out: the same lock, closed, under its new id. Must stay
//! true: other data than a lock is bound to is refused; binding again to the same changes nothing; what
//! data is, runtime says.

use std::path::Path;
use std::sync::Arc;

use compiler::digest::Digest;
use compiler::lock::{self, Bound, DataSource, Experiment, Lock};
use runtime::data::Split;
use runtime::data::text::index::TextIndex;
use runtime::data::text::tokenizer::{Info, Kind};
use runtime::data::text::{TextWindows, file, locked};

use crate::args::BindArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{files, locks, out, output};

pub(crate) fn bind(args: &BindArgs) -> Outcome {
    bind_with(args, &documents)
}

/// Reads what is at the path, as an experiment would.
type ReadData = dyn Fn(&Path, Option<&Experiment>) -> Result<Bound, Failure>;

fn bind_with(args: &BindArgs, data: &ReadData) -> Outcome {
    let (before, text) = locks::read(&args.lock)?;
    let experiment = match &before {
        Lock::Arch(_) => None,
        Lock::Experiment(experiment) => Some(experiment),
        Lock::Comparison(comparison) => comparison.arms.first().map(|arm| &arm.experiment),
    };
    let reads_text = experiment.is_some_and(|e| matches!(e.data.source, DataSource::Text { .. }));
    // A lock that reads no text is refused before any data is looked for.
    let bound = match reads_text {
        true => data(&args.data, experiment)?,
        false => Bound { digest: Digest::of("", ""), tokens: None, tokenizer: None },
    };
    let after = lock::bind(&before, bound).map_err(|error| {
        let drift = error.code == "data-drift";
        let failure = locks::refused(&args.lock, error);
        if drift { Failure { exit: Exit::Finding, ..failure } } else { failure }
    })?;
    let closed = lock::write(&after);
    let name = shown(&args.lock);
    if closed == text {
        output::note(&format!("{name}: bound to this data already"));
        return Ok(Exit::Fine);
    }
    out::put(&args.lock, out::Kind::Lock, &closed)?;
    output::note(&format!(
        "{name}: bound to data {}; {} {} is now {}",
        bound.digest.short(),
        after.kind(),
        before.id().short(),
        after.id().short()
    ));
    Ok(Exit::Fine)
}

/// The identity of prepared documents, and the training tokens of one pass over them.
fn documents(path: &Path, experiment: Option<&Experiment>) -> Result<Bound, Failure> {
    if !path.exists() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(files::missing(path, &error).help("`canonc data prepare` makes such a file"));
    }
    let wrong =
        |error: runtime::data::DataError| Failure::bad_input(error.message).help(error.help);
    let index = file::load(path).map_err(wrong)?;
    // A lock is bound to what is there, not to what a damaged file says of itself.
    index.check().map_err(wrong)?;
    let parsed = |hash: &str| {
        Digest::parse(hash).ok_or_else(|| Failure::machine("the digest of the data cannot be read"))
    };
    let digest = parsed(index.identity().to_hex().as_str())?;
    let Info { kind, digest: tokenizer, .. } = *index.tokenizer();
    let tokenizer = match kind {
        Kind::Bytes => None,
        Kind::Huggingface | Kind::Sentencepiece | Kind::Tiktoken => {
            Some(parsed(tokenizer.to_hex().as_str())?)
        }
    };
    let Some(experiment) = experiment else { return Ok(Bound { digest, tokens: None, tokenizer }) };
    let DataSource::Text { tokenizer: locked, .. } = &experiment.data.source else {
        return Ok(Bound { digest, tokens: None, tokenizer });
    };
    if let Some(differs) = locked::mismatch(locked, index.tokenizer()) {
        let failure = Failure::bad_input(differs).at(shown(path));
        return Err(failure.help("prepare them with the lock's tokenizer, or change the recipe"));
    }
    let tokens = windows(experiment, Arc::new(index))?.tokens();
    Ok(Bound { digest, tokens: i64::try_from(tokens).ok(), tokenizer })
}

/// The training windows of a lock on text.
pub(crate) fn windows(
    experiment: &Experiment,
    index: Arc<TextIndex>,
) -> Result<TextWindows, Failure> {
    let data = &experiment.data;
    let seq_len = usize::try_from(data.seq_len).unwrap_or(usize::MAX);
    let options = locked::options(&data.source, seq_len, Split::Train, experiment.seeds.data)
        .ok_or_else(|| Failure::bad_input(format!("`{}` reads no documents", experiment.name)))?;
    TextWindows::new(index, options)
        .map_err(|error| Failure::bad_input(error.message).help(error.help))
}
