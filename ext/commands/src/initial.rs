//! The weights that an experiment begins from, in any kind of file.

use std::path::Path;

use cli::extensions::WeightFiles;
use cli::fail::Failure;
use compiler::program::Compiled;
use interop::source::{ArchWeights, PartialWeights, as_sentence};
use lab::experiment::Missing;
use records::weights::WeightSource;

use crate::{foreign, weights};

/// How a list of faults names a parameter that a file lacks.
const LACKS: &str = "\n  missing: ";

/// Files of weights, for the commands of the core.
pub(crate) struct Files;

impl WeightFiles for Files {
    fn open(
        &self,
        compiled: &Compiled,
        path: &Path,
        missing: Missing,
    ) -> Result<Box<dyn WeightSource>, Failure> {
        let path = &weights::file(path)?;
        match missing {
            Missing::Refused => match ArchWeights::open(compiled, path).map_err(as_sentence) {
                Ok(weights) => Ok(Box::new(weights)),
                Err(problem) if problem.message.contains(LACKS) => Err(Failure::from(problem)
                    .help(
                        "or draw what is missing from seeds.init: missing = \"drawn\" under [init]",
                    )),
                Err(problem) => Err(problem.into()),
            },
            Missing::Drawn => Ok(Box::new(part(compiled, path)?)),
        }
    }

    fn of_another_graph(
        &self,
        compiled: &Compiled,
        path: &Path,
    ) -> Result<Option<String>, Failure> {
        weights::of_another_graph(&weights::file(path)?, compiled)
    }
}

/// Weights that may lack parameters of the arch. Names of another program are those of the model beside the file.
fn part(compiled: &Compiled, path: &Path) -> Result<PartialWeights, Failure> {
    if let Some(part) = PartialWeights::open(compiled, path).map_err(as_sentence)? {
        return Ok(part);
    }
    match foreign::open(disk::parent(path), None)? {
        Some(model) => {
            let own = ArchWeights::open(&model.compiled, path).map_err(as_sentence)?;
            Ok(PartialWeights::of_model(own, compiled, path).map_err(as_sentence)?)
        }
        // It says what it lacks.
        None => {
            let own = ArchWeights::open(compiled, path).map_err(as_sentence)?;
            Ok(PartialWeights::of_model(own, compiled, path).map_err(as_sentence)?)
        }
    }
}
