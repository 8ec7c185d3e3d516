//! The weights that an experiment begins from, where its lock names some.

use std::path::{Path, PathBuf};

use lab::experiment::{Experiment, Init};
use records::initial::{self, NamedWeights};
use records::run::if_readable;
use records::weights::WeightSource;

use crate::extensions::weight_files;
use crate::fail::{Exit, Failure, shown};
use crate::{output, workspace};

/// The weights of a lock that names some, if they are the locked ones.
pub fn read(
    experiment: &Experiment,
    given: Option<&Path>,
) -> Result<Option<Box<dyn WeightSource>>, Failure> {
    let Some(source) = open(experiment, given)? else { return Ok(None) };
    initial::check(experiment, &*source)?;
    Ok(Some(source))
}

/// The same with the lock's words for them.
pub fn named(
    experiment: &Experiment,
    given: Option<&Path>,
) -> Result<Option<NamedWeights>, Failure> {
    let source = read(experiment, given)?;
    Ok(NamedWeights::of(experiment).map(|named| named.with_source(source)))
}

/// The same, whatever their digest: to bind an open lock.
pub fn open(
    experiment: &Experiment,
    given: Option<&Path>,
) -> Result<Option<Box<dyn WeightSource>>, Failure> {
    refuse_unused(experiment, given)?;
    let Init::Weights { name, digest: _, missing } = &experiment.init else { return Ok(None) };
    let path = match given {
        Some(path) => path.to_owned(),
        None => usual(name)?.ok_or_else(|| {
            Failure::bad_input(format!("the weights \"{name}\" are not at `{name}`"))
                .help("name a run, an export, an import or a file of weights with --weights PATH")
        })?,
    };
    output::detail(|| format!("weights: {}", shown(&path)));
    weight_files().open(&experiment.arch.compiled, &path, *missing).map(Some)
}

/// The weights that are given, or those at their usual path if they are there.
pub fn read_if_present(
    experiment: &Experiment,
    given: Option<&Path>,
) -> Result<Option<Box<dyn WeightSource>>, Failure> {
    refuse_unused(experiment, given)?;
    let Init::Weights { name, .. } = &experiment.init else { return Ok(None) };
    match given.is_some() || usual(name)?.is_some() {
        true => read(experiment, given),
        false => Ok(None),
    }
}

/// Where the weights of that name are, if they are there.
pub fn usual(name: &str) -> Result<Option<PathBuf>, Failure> {
    let path = match workspace::path(Path::new(name)) {
        Ok(path) => path,
        Err(failure) if failure.exit == Exit::Machine => return Err(failure),
        Err(_) => PathBuf::from(name),
    };
    Ok(if_readable(&path, std::fs::metadata(&path))?.map(|_| path))
}

/// Whether an experiment begins from weights.
pub fn begins_from_some(experiment: &Experiment) -> bool {
    experiment.init != Init::Drawn
}

/// Refuses weights for an experiment that draws its own.
pub fn refuse_unused(experiment: &Experiment, given: Option<&Path>) -> Result<(), Failure> {
    match (&experiment.init, given) {
        (Init::Drawn, Some(path)) => Err(Failure::bad_input(format!(
            "`{}` draws its initial weights from seeds.init, but `--weights {}` names some",
            experiment.name,
            shown(path)
        ))
        .help("remove --weights; a recipe names weights to begin from under [init]")),
        (Init::Drawn | Init::Weights { .. }, _) => Ok(()),
    }
}
