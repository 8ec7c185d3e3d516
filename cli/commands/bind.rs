//! `canonc bind`: closes a lock with the digests of the data and the weights that it names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use compiler::digest::Digest;
use data::Split;
use data::text::index::TextIndex;
use data::text::tokenizer::{Info, Kind};
use data::text::{file, locked};
use dsl::Problem;
use lab::error::LockError;
use lab::experiment::{DataSource, Experiment, Init, Missing};
use lab::lock::{self, Bound, Lock};
use records::initial;
use records::run::if_readable;

use crate::extensions::weight_files;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::workspace::{self, refuse};
use crate::{documents, files, initial_weights, out, output};

/// Close an open lock: write the digests of its data and of its initial weights into it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc bind lockfiles/llama_1B_nemotron.lock --data nemotron_cc.index
  canonc bind lockfiles/*_nemotron.lock --data nemotron_cc.index    all of them, or none if one is refused
  canonc bind lockfiles/tuned.lock                                  what it names, at its usual paths
  canonc bind lockfiles/tuned.lock --weights runs/pretrained        initial weights from another place

The digest of weights is of their tensors in f32, under canonc's names, and not of a file: a run's last weights, an
export and an import of them have the same one. `canonc verify` prints that of a run's checkpoints.")]
pub struct BindArgs {
    /// The locks to close
    #[arg(value_name = "LOCK", required = true)]
    pub locks: Vec<PathBuf>,
    /// The prepared data that the lock names [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// The weights that the lock begins from: a run, an export, an import or a file [default: as named]
    #[arg(long, value_name = "PATH")]
    pub weights: Option<PathBuf>,
}

pub fn bind(args: &BindArgs) -> Outcome {
    workspace::refuse_repeated(&args.locks)?;
    // The documents are read once, however many locks are bound to them.
    let mut index = None;
    let closed = args
        .locks
        .iter()
        .map(|path| close(path, args, &mut index))
        .collect::<Result<Vec<_>, _>>()?;
    for Closed { path, text, lines } in closed {
        if let Some(text) = text {
            out::put(path, out::OutputKind::Lock, &text)?;
        }
        for line in lines {
            output::note(&line);
        }
    }
    Ok(Exit::Fine)
}

/// A lock that is bound but not yet written.
struct Closed<'a> {
    path: &'a Path,
    /// Its new text, if it changed.
    text: Option<String>,
    /// What is said of it.
    lines: Vec<String>,
}

fn close<'a>(
    path: &'a Path,
    args: &BindArgs,
    index: &mut Option<Arc<TextIndex>>,
) -> Result<Closed<'a>, Failure> {
    let (before, text) = workspace::read_lock(path)?;
    let mut bound = Vec::new();
    let with_data = bind_data(path, &before, args, index, &mut bound)?;
    let after = bind_weights(path, &with_data, args, &mut bound)?;
    let name = shown(path);
    if bound.is_empty() {
        return Err(nothing_found(path, &after));
    }
    let closed = lock::write(&after);
    let mut lines: Vec<String> = after
        .open_inputs()
        .into_iter()
        .map(|input| {
            let options = lock::bind_options(std::slice::from_ref(&input));
            format!("  open: {input} has no digest; close it with `canonc bind {name}{options}`")
        })
        .collect();
    let bound = bound.join(" and ");
    if closed == text {
        let inputs = if bound.contains("weights") { "these weights" } else { "this data" };
        lines.insert(0, format!("{name}: already bound to {inputs}"));
        return Ok(Closed { path, text: None, lines });
    }
    let ids = format!("{} {} is now {}", after.kind(), before.id().short(), after.id().short());
    lines.insert(0, format!("{name}: bound to {bound}; {ids}"));
    Ok(Closed { path, text: Some(closed), lines })
}

/// Refuses a lock of which nothing was named, and nothing is at its usual path.
fn nothing_found(path: &Path, lock: &Lock) -> Failure {
    let inputs = lock.open_inputs();
    let name = shown(path);
    if inputs.is_empty() {
        return Failure::bad_input(format!("`{name}` is not open: it has nothing to bind"))
            .help("run it; or compare it with what it is bound to: --data PATH or --weights PATH");
    }
    Failure::bad_input(format!(
        "`{name}` is open, and nothing is at the usual path of {}",
        inputs.join(", ")
    ))
    .help(format!("say where: `canonc bind {name}{}`", lock::bind_options(&inputs)))
}

/// The lock with the digest of its data, if that is given or at its usual path.
fn bind_data(
    path: &Path,
    before: &Lock,
    args: &BindArgs,
    index: &mut Option<Arc<TextIndex>>,
    bound: &mut Vec<String>,
) -> Result<Lock, Failure> {
    let experiments = before.experiments();
    let reads_text = |e: &&&Experiment| matches!(e.data.source, DataSource::Text { .. });
    let reader = experiments.iter().find(reads_text);
    let usual = || {
        let path = reader.and_then(|reader| documents::usual_path(reader).ok());
        Ok::<_, Problem>(match path {
            Some(path) => if_readable(&path, std::fs::metadata(&path))?.map(|_| path),
            None => None,
        })
    };
    let data = match (&args.data, reader) {
        (Some(data), Some(_)) => self::documents(data, index, &experiments)?,
        // A lock that reads no text is refused before any data is opened.
        (Some(_), None) => {
            Bound { digest: Digest::of("", ""), documents: None, tokens: None, tokenizer: None }
        }
        (None, _) => match usual()? {
            Some(data) => self::documents(&data, index, &experiments)?,
            None => return Ok(before.clone()),
        },
    };
    let after = lock::bind(before, data).map_err(|error| refused(path, error))?;
    bound.push(format!("data {}", data.digest.short()));
    Ok(after)
}

/// The lock with the digests of the weights that it begins from, if they are given or at their usual paths.
fn bind_weights(
    path: &Path,
    before: &Lock,
    args: &BindArgs,
    bound: &mut Vec<String>,
) -> Result<Lock, Failure> {
    let given = args.weights.as_deref();
    let mut digests: BTreeMap<String, Digest> = BTreeMap::new();
    for experiment in before.experiments() {
        let Init::Weights { name, missing, .. } = &experiment.init else { continue };
        if let (Some(path), false) = (given, digests.is_empty() || digests.contains_key(name)) {
            return Err(several_names(path, name, &digests));
        }
        let source = match given {
            Some(path) => Some(path.to_owned()),
            None => initial_weights::usual(name)?,
        };
        let Some(source) = source else { continue };
        let Some(weights) = initial_weights::open(experiment, Some(&source))? else { continue };
        let digest = initial::digest(&experiment.arch.compiled.graph, &*weights)?;
        let arch = &experiment.arch.compiled;
        match digests.insert(name.clone(), digest) {
            Some(other) if other != digest => return Err(two_digests(name, [other, digest])),
            Some(_) => continue,
            None => {}
        }
        let warning = match missing {
            Missing::Refused => weight_files().of_another_graph(arch, &source)?,
            // The arch has more than the weights were made for.
            Missing::Drawn => None,
        };
        if let Some(warning) = warning {
            output::note(&warning);
        }
    }
    if digests.is_empty() && given.is_none() {
        return Ok(before.clone());
    }
    let after = lock::bind_weights(before, &digests).map_err(|error| refused(path, error))?;
    bound.extend(digests.values().map(|digest| format!("weights {}", digest.short())));
    Ok(after)
}

fn several_names(path: &Path, name: &str, digests: &BTreeMap<String, Digest>) -> Failure {
    let other = digests.keys().next().map_or("", String::as_str);
    Failure::bad_input(format!(
        "the arms begin from several weights, \"{other}\" and \"{name}\", but `--weights {}` names one",
        shown(path)
    ))
    .help("leave --weights out: each arm's are read where it names them")
}

/// One file has two digests only if two archs order its tensors differently.
fn two_digests(name: &str, digests: [Digest; 2]) -> Failure {
    let [one, other] = digests.map(|digest| digest.short());
    Failure::bad_input(format!(
        "two arms read the weights \"{name}\" differently: as {one}, and as {other}"
    ))
    .help("one of the archs has a part of them, or the arms differ in the file's order: bind the arms' own locks")
}

/// Other inputs than those that a lock is bound to are a finding.
fn refused(path: &Path, error: LockError) -> Failure {
    let drift = ["data-drift", "weights-drift"].contains(&error.code);
    let failure = refuse::bad_lock(path, error);
    if drift { Failure { exit: Exit::Finding, ..failure } } else { failure }
}

/// The identity of prepared documents, and the training tokens of one pass over them. Data that an experiment can never
/// run on is refused here, rather than later, after a build, a copy and a wait in a queue.
fn documents(
    path: &Path,
    read: &mut Option<Arc<TextIndex>>,
    experiments: &[&Experiment],
) -> Result<Bound, Failure> {
    if let Err(error) = std::fs::metadata(path) {
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
