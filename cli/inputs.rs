//! What a lock names beside its own text: prepared documents, and weights to begin from.

use std::path::Path;

use lab::experiment::Experiment;
use records::verify::Inputs;

use crate::fail::Failure;
use crate::{documents, initial_weights};

/// Where they are, if that is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct GivenPaths<'a> {
    /// The documents.
    pub data: Option<&'a Path>,
    /// The weights.
    pub weights: Option<&'a Path>,
}

impl<'a> GivenPaths<'a> {
    /// Those that an experiment reads: of several, some may read none.
    pub fn of(self, experiment: &Experiment) -> GivenPaths<'a> {
        GivenPaths {
            data: self.data.filter(|_| documents::trains_on(experiment)),
            weights: self.weights.filter(|_| initial_weights::begins_from_some(experiment)),
        }
    }

    /// The options that name them.
    pub fn options(self) -> impl Iterator<Item = (&'static str, &'a Path)> {
        let options = [("--data", self.data), ("--weights", self.weights)];
        options.into_iter().filter_map(|(option, path)| Some((option, path?)))
    }
}

/// Those that are given or at their usual paths; an unusable file is an error.
pub fn read_if_present(experiment: &Experiment, given: GivenPaths<'_>) -> Result<Inputs, Failure> {
    Ok(Inputs {
        documents: documents::read_if_present(experiment, given.data)?,
        weights: initial_weights::read_if_present(experiment, given.weights)?,
    })
}
