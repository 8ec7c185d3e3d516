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
use runtime::data::text::file;
use runtime::data::text::{HeldOut, Marks, Options, TextWindows};

use crate::args::BindArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{files, locks, output};

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
    locks::write(&args.lock, &closed)?;
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
    let hex = index.identity().to_hex();
    let digest = Digest::parse(hex.as_str())
        .ok_or_else(|| Failure::machine("the digest of the data cannot be read"))?;
    let index = Arc::new(index);
    let tokens = match experiment.map(|e| (&e.data.source, e.data.seq_len)) {
        Some((
            DataSource::Text {
                add_bos, add_eos, held_out_per_million, held_out_seed, weights, ..
            },
            seq_len,
        )) => {
            let options = Options {
                seq_len: usize::try_from(seq_len).unwrap_or(usize::MAX),
                seed: 0,
                split: Split::Train,
                held_out: HeldOut { seed: *held_out_seed, per_million: *held_out_per_million },
                marks: Marks { bos: *add_bos, eos: *add_eos },
                weights: weights.clone(),
            };
            let windows = TextWindows::new(index, options).map_err(wrong)?;
            i64::try_from(windows.tokens()).ok()
        }
        Some((DataSource::Task { .. }, _)) | None => None,
    };
    Ok(Bound { digest, tokens, tokenizer: None })
}
