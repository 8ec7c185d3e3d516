//! The parameters of an architecture as tensors.
//!
//! In: a graph's manifest, and a seed or a safetensors file. Out: one tensor per parameter, in parameter order; a
//! file. Must stay true: paths and shapes are the manifest's; an element drawn depends on (seed, path, place) alone;
//! a file that does not fit is refused with every name at fault, ours and its own; loading executes nothing.

pub mod file;
pub mod fit;

use std::path::Path;

use compiler::graph::{Graph, Param};
use tch::{Device, Kind, Tensor};

use crate::execute::ExecuteError;
use crate::init;
use crate::kernels::arrange::copy;
use crate::run::RunError;

/// Tensors by parameter, in the order of `graph.params()`: what `ParamId` indexes.
#[derive(Debug)]
pub struct Weights {
    pub paths: Vec<String>,
    pub tensors: Vec<Tensor>,
}

impl Weights {
    /// As a run begins: every parameter drawn in f32 by its rule, keyed by the seed and its key in the manifest.
    pub fn init(graph: &Graph, seed: u64) -> Result<Self, ExecuteError> {
        let mut weights = Self { paths: Vec::new(), tensors: Vec::new() };
        for param in graph.params() {
            weights.paths.push(param.path.clone());
            weights.tensors.push(drawn(param, seed)?);
        }
        Ok(weights)
    }

    /// From a safetensors file with our paths, Hugging Face's names or Lingua's; in f32.
    pub fn load(graph: &Graph, path: &Path) -> Result<Self, RunError> {
        let tensors = file::read(path)?;
        fit::weights(graph, &tensors).map_err(|misfit| misfit.of(path))
    }

    /// To a safetensors file, under our paths.
    pub fn save(&self, path: &Path) -> Result<(), RunError> {
        let named: Vec<(&str, &Tensor)> =
            self.paths.iter().map(String::as_str).zip(&self.tensors).collect();
        file::write(path, &named, None)
    }

    pub fn get(&self, path: &str) -> Option<&Tensor> {
        let index = self.paths.iter().position(|p| p == path)?;
        self.tensors.get(index)
    }

    /// In memory of their own on that device and of that dtype.
    pub fn to(&self, device: Device, kind: Kind) -> Result<Self, ExecuteError> {
        let mut tensors = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            tensors.push(copy(&tensor.f_to_device(device)?.f_to_kind(kind)?)?);
        }
        Ok(Self { paths: self.paths.clone(), tensors })
    }
}

fn drawn(param: &Param, seed: u64) -> Result<Tensor, ExecuteError> {
    let count: i64 = param.shape.iter().product();
    let mut values = vec![0.0f32; count as usize];
    init::draw(param, seed, 0, &mut values)
        .map_err(|why| ExecuteError::new(format!("parameter {}: {why}", param.path)))?;
    Ok(Tensor::f_from_slice(&values)?.f_reshape(&param.shape)?)
}
