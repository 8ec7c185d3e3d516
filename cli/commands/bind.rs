//! `canonc bind`: closes a lock with the digest of the data it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use compiler::digest::Digest;
use data::Split;
use data::text::index::TextIndex;
use data::text::tokenizer::{Info, Kind};
use data::text::{file, locked};
use lab::experiment::{DataSource, Experiment};
use lab::lock::{self, Bound, Lock};

use crate::fail::{Exit, Failure, Outcome, shown};
use crate::workspace::{self, refuse};
use crate::{documents, files, out, output};

/// Close an open lock: write the digest of its data into it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc bind lockfiles/llama_1B_nemotron.lock --data nemotron_cc.index
  canonc bind lockfiles/*_nemotron.lock --data nemotron_cc.index    all of them, or none if one is refused")]
pub struct BindArgs {
    /// The locks to close
    #[arg(value_name = "LOCK", required = true)]
    pub locks: Vec<PathBuf>,
    /// The prepared data that the lock names
    #[arg(long, value_name = "PATH")]
    pub data: PathBuf,
}

pub fn bind(args: &BindArgs) -> Outcome {
    workspace::refuse_repeated(&args.locks)?;
    // The documents are read once, however many locks are bound to them.
    let mut index = None;
    let closed = args
        .locks
        .iter()
        .map(|path| close(path, &args.data, &mut index))
        .collect::<Result<Vec<_>, _>>()?;
    for Closed { path, text, said } in closed {
        if let Some(text) = text {
            out::put(path, out::OutputKind::Lock, &text)?;
        }
        output::note(&said);
    }
    Ok(Exit::Fine)
}

/// A lock that is bound but not yet written.
struct Closed<'a> {
    path: &'a Path,
    /// Its new text, if it changed.
    text: Option<String>,
    said: String,
}

fn close<'a>(
    path: &'a Path,
    data: &Path,
    index: &mut Option<Arc<TextIndex>>,
) -> Result<Closed<'a>, Failure> {
    let (before, text) = workspace::read_lock(path)?;
    let experiments: Vec<&Experiment> = match &before {
        Lock::Arch(_) => Vec::new(),
        Lock::Experiment(experiment) => vec![experiment],
        Lock::Comparison(comparison) => comparison.arms.iter().map(|arm| &arm.experiment).collect(),
    };
    let reads_text = experiments.iter().any(|e| matches!(e.data.source, DataSource::Text { .. }));
    // A lock that reads no text is refused before any data is opened.
    let bound = match reads_text {
        true => documents(data, index, &experiments)?,
        false => {
            Bound { digest: Digest::of("", ""), documents: None, tokens: None, tokenizer: None }
        }
    };
    let after = lock::bind(&before, bound).map_err(|error| {
        let drift = error.code == "data-drift";
        let failure = refuse::bad_lock(path, error);
        if drift { Failure { exit: Exit::Finding, ..failure } } else { failure }
    })?;
    let closed = lock::write(&after);
    let name = shown(path);
    if closed == text {
        let said = format!("{name}: already bound to this data");
        return Ok(Closed { path, text: None, said });
    }
    let said = format!(
        "{name}: bound to data {}; {} {} is now {}",
        bound.digest.short(),
        after.kind(),
        before.id().short(),
        after.id().short()
    );
    Ok(Closed { path, text: Some(closed), said })
}

/// The identity of prepared documents, and the training tokens of one pass over them. Data that an experiment can never
/// run on is refused here, rather than later, after a build, a copy and a wait in a queue.
fn documents(
    path: &Path,
    read: &mut Option<Arc<TextIndex>>,
    experiments: &[&Experiment],
) -> Result<Bound, Failure> {
    if !path.exists() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(files::missing(path, &error).help("make it with `canonc data prepare`"));
    }
    let index = match read {
        Some(index) => index.clone(),
        None => {
            let index = Arc::new(file::load(path)?);
            // Bind the lock to the actual data, not to the digest that a damaged file claims.
            index.check()?;
            read.insert(index).clone()
        }
    };
    let parsed = |hash: &str| {
        Digest::parse(hash).ok_or_else(|| Failure::machine("the digest of the data cannot be read"))
    };
    let digest = parsed(index.identity().to_hex().as_str())?;
    let documents = Some(parsed(index.documents_digest().to_hex().as_str())?);
    let Info { kind, digest: tokenizer, .. } = *index.tokenizer();
    let tokenizer = match kind {
        Kind::Bytes => None,
        Kind::File(_) => Some(parsed(tokenizer.to_hex().as_str())?),
    };
    let mut tokens = None;
    for experiment in experiments {
        let DataSource::Text { tokenizer: locked, .. } = &experiment.data.source else { continue };
        if let Some(differs) = locked::mismatch(locked, index.tokenizer()) {
            let failure = Failure::bad_input(differs).at(shown(path));
            return Err(
                failure.help("prepare them with the lock's tokenizer, or change the recipe")
            );
        }
        let train = documents::windows(experiment, index.clone(), Split::Train)?;
        fills_a_window(experiment, train.tokens(), "to train on")?;
        // Without metrics, no documents need to be held out.
        if !experiment.evaluation.metrics.is_empty() {
            let held_out = documents::windows(experiment, index.clone(), Split::HeldOut)?;
            fills_a_window(experiment, held_out.tokens(), "held out")?;
        }
        tokens = tokens.or_else(|| i64::try_from(train.tokens()).ok());
    }
    Ok(Bound { digest, documents, tokens, tokenizer })
}

/// Refuses documents so few that one window would repeat them.
fn fills_a_window(experiment: &Experiment, tokens: u64, which: &str) -> Result<(), Failure> {
    let window = experiment.data.seq_len + 1;
    if tokens >= window {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "the documents {which} have {}, but one window of `{}` needs {window}",
        output::counted(tokens, "token"),
        experiment.name
    ))
    .help("prepare more documents, change data.held_out, or lower data.seq_len"))
}
