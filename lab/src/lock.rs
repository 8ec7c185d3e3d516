//! Locks: one arch, experiment or comparison, resolved, hashed and self-contained.
//!
//! Every line of a lock can be derived again from its text alone, or the lock is refused with the first line that differs. Ids
//! are digests of human-readable text, and only closed locks run.

mod read;
pub mod text;

use std::collections::BTreeMap;
use std::rc::Rc;

use compiler::analyse::{self, analyse};
use compiler::digest::Digest;
use compiler::program::Compiled;
use toml::de::DeValue;

use crate::comparison::{Arm, Comparison};
use crate::error::{self, LockError};
use crate::experiment::{DataSource, Experiment, Init, LockedArch, Tokenizer, TokenizerKind};
use crate::field::{FieldDef, FieldValue, Fields};
use crate::verdict::{Refusal, Side, Trainer};

pub use crate::error::bind_options;
pub use read::{MAX_LOCK_BYTES, is_of_another_version, is_older, read, read_bytes, text_of};
pub use text::{Drift, VERSION, drift, source_of, write};

/// The sequence length for the costs in an arch lock.
pub const ARCH_SEQ_LEN: i64 = 4096;

/// One lock.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few of them, and none is moved in a loop")]
pub enum Lock {
    /// An architecture.
    Arch(ArchLock),
    /// An experiment, which can run.
    Experiment(Experiment),
    /// A comparison of experiments, with its verdicts.
    Comparison(Comparison),
}

/// A lock of an architecture.
#[derive(Clone, Debug)]
pub struct ArchLock {
    /// Name of the arch.
    pub name: String,
    /// The `.canon` file it was made from; in no digest.
    pub source: String,
    /// The architecture, compiled.
    pub arch: Rc<LockedArch>,
    /// At [`ARCH_SEQ_LEN`].
    pub analysis: analyse::Analysis,
}

impl ArchLock {
    /// Locks a compiled arch. Fails if its canonical text does not give the same graph again.
    pub fn new(
        name: impl Into<String>,
        source: impl Into<String>,
        compiled: &Compiled,
    ) -> Result<ArchLock, LockError> {
        let arch = Rc::new(LockedArch::new(compiled)?);
        Ok(ArchLock::from_parts(name.into(), source.into(), arch))
    }

    fn from_parts(name: String, source: String, arch: Rc<LockedArch>) -> ArchLock {
        let analysis = analyse(&arch.compiled.graph, ARCH_SEQ_LEN);
        ArchLock { name, source, arch, analysis }
    }
}

impl Lock {
    /// Name of what it locks.
    pub fn name(&self) -> &str {
        match self {
            Lock::Arch(lock) => &lock.name,
            Lock::Experiment(lock) => &lock.name,
            Lock::Comparison(lock) => &lock.name,
        }
    }

    /// The file the lock was made from.
    pub fn source(&self) -> &str {
        match self {
            Lock::Arch(lock) => &lock.source,
            Lock::Experiment(lock) => &lock.source,
            Lock::Comparison(lock) => &lock.source,
        }
    }

    /// `arch`, `experiment` or `comparison`.
    pub fn kind(&self) -> &'static str {
        match self {
            Lock::Arch(_) => "arch",
            Lock::Experiment(_) => "experiment",
            Lock::Comparison(_) => "comparison",
        }
    }

    /// The id of the arch, experiment or comparison.
    pub fn id(&self) -> Digest {
        match self {
            Lock::Arch(lock) => lock.arch.id(),
            Lock::Experiment(lock) => lock.id(),
            Lock::Comparison(lock) => lock.id(),
        }
    }

    /// Its experiments: one, or those of the arms.
    pub fn experiments(&self) -> Vec<&Experiment> {
        match self {
            Lock::Arch(_) => Vec::new(),
            Lock::Experiment(lock) => vec![lock],
            Lock::Comparison(lock) => lock.arms.iter().map(|arm| &arm.experiment).collect(),
        }
    }

    /// Named inputs without a digest, each once; empty for a closed lock.
    pub fn open_inputs(&self) -> Vec<String> {
        let mut inputs: Vec<String> =
            self.experiments().into_iter().flat_map(Experiment::open_inputs).collect();
        inputs.sort();
        inputs.dedup();
        inputs
    }

    /// This lock as one side of a comparison of two locks, with its text and file name.
    pub fn side<'a>(&'a self, file: &'a str, text: &'a str) -> Result<Side<'a>, Refusal> {
        let side = |arch: &'a LockedArch, experiment| Side {
            label: self.name(),
            arch,
            experiment,
            analysis: None,
            file: Some((file, text)),
            trainer: Trainer::Any,
        };
        match self {
            Lock::Arch(lock) => {
                Ok(Side { analysis: Some(&lock.analysis), ..side(&lock.arch, None) })
            }
            Lock::Experiment(lock) => Ok(side(&lock.arch, Some(lock))),
            Lock::Comparison(_) => Err(Refusal::comparison(self.name())),
        }
    }

    /// The lock's canonical text.
    pub fn text(&self) -> String {
        write(self)
    }
}

/// Returns the experiment of a lock that should run. Refuses other kinds of locks, and open ones.
pub fn runnable(lock: Lock) -> Result<Experiment, LockError> {
    let (name, kind, inputs) = (lock.name().to_owned(), lock.kind(), lock.open_inputs());
    match lock {
        Lock::Experiment(experiment) if inputs.is_empty() => Ok(experiment),
        Lock::Experiment(_) => Err(error::open(&name, &inputs)),
        Lock::Arch(_) | Lock::Comparison(_) => Err(error::other_kind(&name, kind, "experiment")),
    }
}

/// Returns the comparison of a lock that should run. Refuses other kinds of locks, and open ones.
pub fn comparable(lock: Lock) -> Result<Comparison, LockError> {
    let (name, kind, inputs) = (lock.name().to_owned(), lock.kind(), lock.open_inputs());
    match lock {
        Lock::Comparison(comparison) if inputs.is_empty() => Ok(comparison),
        Lock::Comparison(_) => Err(error::open(&name, &inputs)),
        Lock::Arch(_) | Lock::Experiment(_) => Err(error::other_kind(&name, kind, "comparison")),
    }
}

/// The facts about data that binding records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Digest of the prepared tokens.
    pub digest: Digest,
    /// The digest of the documents alone, which earlier versions recorded. Such a lock may be bound to the tokens.
    pub documents: Option<Digest>,
    /// Training tokens in one pass, if the reader of the data counts them.
    pub tokens: Option<i64>,
    /// The digest of the tokenizer; `None` for bytes.
    pub tokenizer: Option<Digest>,
}

/// Whether a lock can hold this value of a field: it is read back as it is.
pub fn holds(def: &FieldDef, value: &FieldValue) -> Result<(), String> {
    let text = value.to_string();
    let parsed = DeValue::parse(&text).map_err(|error| error.message().to_owned())?;
    match def.kind.read(parsed.get_ref())? {
        read if read == *value => Ok(()),
        read => Err(format!("in Unicode's composed form (NFC) it is {read}")),
    }
}

/// Closes a lock: sets the digest of the data that its source names, in every experiment. Binding to
/// the same data again changes nothing; binding to other data is refused.
pub fn bind(lock: &Lock, data: Bound) -> Result<Lock, LockError> {
    match lock {
        Lock::Arch(arch) => {
            Err(error::nothing_to_bind(&arch.name, "an architecture reads no data"))
        }
        Lock::Experiment(experiment) => Ok(Lock::Experiment(bind_one(experiment, data)?)),
        Lock::Comparison(comparison) => {
            let arms = comparison
                .arms
                .iter()
                .map(|arm| Ok(Arm { experiment: bind_one(&arm.experiment, data)?, ..arm.clone() }));
            let arms = arms.collect::<Result<Vec<Arm>, LockError>>()?;
            Ok(Lock::Comparison(comparison.with_arms(arms)?))
        }
    }
}

fn bind_one(experiment: &Experiment, data: Bound) -> Result<Experiment, LockError> {
    let name = &experiment.name;
    let (bound, tokenizer) = match &experiment.data.source {
        DataSource::Task { task, .. } => {
            let reason = format!("task `{}` is identified by its own digest", task.name());
            return Err(error::nothing_to_bind(name, &reason));
        }
        DataSource::Text { digest, tokenizer, .. } => (*digest, *tokenizer),
    };
    let known = [Some(data.digest), data.documents];
    if let Some(bound) = bound.filter(|bound| !known.contains(&Some(*bound))) {
        return Err(error::bound_otherwise(name, &bound.short(), &data.digest.short()));
    }
    let mut values = Fields::new();
    match (tokenizer, data.tokenizer) {
        (Tokenizer::Bytes, None) => {}
        (Tokenizer::File { digest: Some(had), .. }, Some(has)) if had != has => {
            return Err(error::tokenized_otherwise(name, &had.short(), &has.short()));
        }
        (Tokenizer::File { .. }, Some(has)) => {
            values.insert("data.tokenizer_digest".to_owned(), FieldValue::text(has.to_string()));
        }
        (Tokenizer::Bytes, Some(has)) => {
            return Err(error::tokenized_otherwise(name, "bytes", &has.short()));
        }
        (Tokenizer::File { kind, .. }, None) => {
            return Err(error::tokenized_otherwise(name, kind.name(), "bytes"));
        }
    }
    values.insert("data.digest".to_owned(), FieldValue::text(data.digest.to_string()));
    if let Some(tokens) = data.tokens.filter(|tokens| *tokens > 0) {
        values.insert("data.tokens".to_owned(), FieldValue::Int(tokens));
    }
    experiment.with(name.clone(), &values).map_err(error::first)
}

/// Closes a lock: sets the digest of the weights that its experiments name, by name; those with an unknown name stay open.
/// All arms of a comparison are bound at once, since arms with other weights are no longer controlled.
pub fn bind_weights(lock: &Lock, digests: &BTreeMap<String, Digest>) -> Result<Lock, LockError> {
    let drawn = || error::nothing_to_bind(lock.name(), "its initial weights are drawn from a seed");
    match lock {
        Lock::Arch(arch) => {
            Err(error::nothing_to_bind(&arch.name, "an architecture begins from no weights"))
        }
        Lock::Experiment(experiment) if experiment.init == Init::Drawn => Err(drawn()),
        Lock::Experiment(experiment) => {
            Ok(Lock::Experiment(bind_weights_of_one(experiment, digests)?))
        }
        Lock::Comparison(comparison) => {
            if comparison.arms.iter().all(|arm| arm.experiment.init == Init::Drawn) {
                return Err(drawn());
            }
            let arms = comparison.arms.iter().map(|arm| {
                let experiment = bind_weights_of_one(&arm.experiment, digests)?;
                Ok(Arm { experiment, ..arm.clone() })
            });
            let arms = arms.collect::<Result<Vec<Arm>, LockError>>()?;
            Ok(Lock::Comparison(comparison.with_arms(arms)?))
        }
    }
}

fn bind_weights_of_one(
    experiment: &Experiment,
    digests: &BTreeMap<String, Digest>,
) -> Result<Experiment, LockError> {
    let Init::Weights { name, digest, missing: _ } = &experiment.init else {
        return Ok(experiment.clone());
    };
    match (digest, digests.get(name)) {
        (Some(bound), Some(given)) if bound != given => {
            Err(error::other_weights(&experiment.name, &bound.short(), &given.short()))
        }
        (None, Some(given)) => {
            let value = FieldValue::text(given.to_string());
            let values = Fields::from([("init.digest".to_owned(), value)]);
            experiment.with(experiment.name.clone(), &values).map_err(error::first)
        }
        (Some(_), _) | (None, None) => Ok(experiment.clone()),
    }
}

/// Carries the bindings of a previous lock over to one rebuilt from the same recipe, so that rebuilding
/// keeps a closed lock closed.
pub fn keep_binding(built: &Lock, before: &Lock) -> Result<Option<Lock>, LockError> {
    let with_text = keep_text(built, before)?;
    let lock = with_text.as_ref().unwrap_or(built);
    let mut known = BTreeMap::new();
    for experiment in before.experiments() {
        if let Init::Weights { name, digest: Some(digest), .. } = &experiment.init {
            known.insert(name.clone(), *digest);
        }
    }
    let is_known = |experiment: &&Experiment| matches!(&experiment.init, Init::Weights { name, digest: None, .. } if known.contains_key(name));
    match lock.experiments().iter().any(is_known) {
        true => bind_weights(lock, &known).map(Some),
        false => Ok(with_text),
    }
}

fn keep_text(built: &Lock, before: &Lock) -> Result<Option<Lock>, LockError> {
    let (Some(new), Some(old)) = (text_source(built), text_source(before)) else { return Ok(None) };
    match (new, old) {
        (
            TextSource { name, digest: None, kind, .. },
            TextSource { name: same, digest: Some(digest), tokens, kind: before, tokenizer },
        ) if name == same && kind == before => {
            bind(built, Bound { digest, documents: None, tokens, tokenizer }).map(Some)
        }
        _ => Ok(None),
    }
}

/// The text that all experiments of a lock read, and its tokenization.
#[derive(Clone, PartialEq)]
struct TextSource {
    name: String,
    digest: Option<Digest>,
    tokens: Option<i64>,
    kind: Option<(TokenizerKind, u64)>,
    tokenizer: Option<Digest>,
}

fn text_source(lock: &Lock) -> Option<TextSource> {
    let one = |experiment: &Experiment| match &experiment.data.source {
        DataSource::Text { name, digest, tokenizer, .. } => {
            let tokens = match experiment.value("data.tokens") {
                Some(FieldValue::Int(n)) => Some(*n),
                Some(_) | None => None,
            };
            let (kind, tokenizer) = match tokenizer {
                Tokenizer::Bytes => (None, None),
                Tokenizer::File { kind, digest, vocab } => (Some((*kind, *vocab)), *digest),
            };
            Some(TextSource { name: name.clone(), digest: *digest, tokens, kind, tokenizer })
        }
        DataSource::Task { .. } => None,
    };
    match lock {
        Lock::Arch(_) => None,
        Lock::Experiment(experiment) => one(experiment),
        Lock::Comparison(comparison) => {
            let mut sources: Vec<_> =
                comparison.arms.iter().map(|arm| one(&arm.experiment)).collect();
            sources.dedup();
            match sources.as_slice() {
                [Some(only)] => Some(only.clone()),
                _ => None,
            }
        }
    }
}
