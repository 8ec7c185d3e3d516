//! The parameters of an architecture as tensors: drawn, read from a file, or written to one.
//!
//! A drawn element depends only on (seed, path, index), so threads and ranks draw pieces with the same bits. Reading holds
//! the parameters and a piece of the file, never the whole file.

pub mod file;

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use compiler::graph::{Graph, Param, ParamId};
use dsl::Problem;
use tch::{Device, Kind, Tensor};

use crate::error::ExecuteError;
use crate::kernels::arrange::copy;
use crate::kernels::{Cut, parallel_cuts, slice_mut};
use records::init;
use records::weights::WeightSource;

/// Tensors by parameter, in the order of `graph.params()` and indexed by `ParamId`.
#[derive(Debug)]
pub struct Weights {
    pub paths: Vec<String>,
    pub tensors: Vec<Tensor>,
    /// The tensors in bf16: made when first asked for, or written by an update.
    rounded: RefCell<Vec<Option<Tensor>>>,
}

impl Weights {
    pub fn new(paths: Vec<String>, tensors: Vec<Tensor>) -> Self {
        let rounded = RefCell::new(tensors.iter().map(|_| None).collect());
        Self { paths, tensors, rounded }
    }

    /// A parameter rounded to bf16, computed once until [`Weights::changed`].
    pub fn rounded(&self, index: usize) -> Result<Tensor, ExecuteError> {
        let mut rounded = self.rounded.borrow_mut();
        let (Some(tensor), Some(known)) = (self.tensors.get(index), rounded.get_mut(index)) else {
            return Err(ExecuteError::new(format!(
                "parameter {index} is missing; there are {}",
                self.tensors.len()
            )));
        };
        match known {
            Some(known) => Ok(known.shallow_clone()),
            None => {
                let converted = tensor.f_to_kind(Kind::BFloat16)?;
                Ok(known.insert(converted).shallow_clone())
            }
        }
    }

    /// A parameter rounded to bf16, if that is known.
    pub(crate) fn known_rounded(&self, index: usize) -> Option<Tensor> {
        self.rounded.borrow().get(index)?.as_ref().map(Tensor::shallow_clone)
    }

    /// Forgets the rounded values, since the tensors were changed in place.
    pub fn changed(&mut self) {
        self.rounded.get_mut().fill_with(|| None);
    }

    /// Forgets all rounded values, before an update that writes these itself. Returns memory for them.
    pub(crate) fn take_rounded(
        &mut self,
        params: &[ParamId],
    ) -> Result<Vec<(ParamId, Tensor)>, ExecuteError> {
        let known = self.rounded.get_mut();
        let mut taken = Vec::with_capacity(params.len());
        for id in params {
            let (Some(tensor), Some(known)) =
                (self.tensors.get(id.0 as usize), known.get_mut(id.0 as usize))
            else {
                return Err(ExecuteError::new(format!("parameter {} is missing", id.0)));
            };
            let memory = match known.take() {
                Some(memory) => memory,
                None => Tensor::f_empty(tensor.size(), (Kind::BFloat16, tensor.device()))?,
            };
            taken.push((*id, memory));
        }
        self.changed();
        Ok(taken)
    }

    /// What an update has written into the memory of [`Weights::take_rounded`].
    pub(crate) fn set_rounded(&mut self, written: Vec<(ParamId, Tensor)>) {
        for (id, tensor) in written {
            if let Some(known) = self.rounded.get_mut().get_mut(id.0 as usize) {
                *known = Some(tensor);
            }
        }
    }

    /// The initial weights of a run: every parameter drawn in f32 by its rule, keyed by the seed and its manifest key.
    pub fn init(graph: &Graph, seed: u64) -> Result<Self, ExecuteError> {
        Self::init_by(graph, |_, param| drawn_whole(param, seed))
    }

    /// Like [`Weights::init`], where `make` gives each parameter, by index, or a part of it.
    pub(crate) fn init_by<E>(
        graph: &Graph,
        mut make: impl FnMut(usize, &Param) -> Result<Tensor, E>,
    ) -> Result<Self, E> {
        let (mut paths, mut tensors) = (Vec::new(), Vec::new());
        for (index, param) in graph.params().iter().enumerate() {
            paths.push(param.path.clone());
            tensors.push(make(index, param)?);
        }
        Ok(Self::new(paths, tensors))
    }

    /// Reads a file directly into tensors of that device and dtype, a piece of the file at a time.
    pub fn read(
        graph: &Graph,
        source: &dyn WeightSource,
        device: Device,
        kind: Kind,
    ) -> Result<Self, Problem> {
        let (mut paths, mut tensors) = (Vec::new(), Vec::new());
        for (index, param) in graph.params().iter().enumerate() {
            paths.push(param.path.clone());
            tensors.push(filled(source, index, param, device, kind)?);
        }
        Ok(Self::new(paths, tensors))
    }

    /// Saves a safetensors file, under our paths.
    pub fn save(&self, path: &Path) -> Result<(), Problem> {
        let named: Vec<(&str, &Tensor)> =
            self.paths.iter().map(String::as_str).zip(&self.tensors).collect();
        file::write(path, &named, None)
    }

    pub fn get(&self, path: &str) -> Option<&Tensor> {
        let index = self.paths.iter().position(|p| p == path)?;
        self.tensors.get(index)
    }

    /// A copy in newly allocated memory with that device and dtype.
    pub fn to(&self, device: Device, kind: Kind) -> Result<Self, ExecuteError> {
        let mut tensors = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            tensors.push(copy(&tensor.f_to_device(device)?.f_to_kind(kind)?)?);
        }
        Ok(Self::new(self.paths.clone(), tensors))
    }

    /// For reading only, with that device and dtype: matching tensors are shared, not copied.
    pub fn on(&self, device: Device, kind: Kind) -> Result<Self, ExecuteError> {
        let mut tensors = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            tensors.push(tensor.f_to_device(device)?.f_to_kind(kind)?);
        }
        Ok(Self::new(self.paths.clone(), tensors))
    }
}

/// The first values of a parameter, in f32 in memory: read from a file, or drawn if the file lacks it.
pub(crate) fn first_values(
    source: &dyn WeightSource,
    index: usize,
    param: &Param,
    seed: u64,
) -> Result<Tensor, Problem> {
    match source.has(index) {
        true => filled(source, index, param, Device::Cpu, Kind::Float),
        false => Ok(drawn_whole(param, seed)?),
    }
}

/// One parameter, read from a file.
fn filled(
    source: &dyn WeightSource,
    index: usize,
    param: &Param,
    device: Device,
    kind: Kind,
) -> Result<Tensor, Problem> {
    let count: i64 = param.shape.iter().product();
    let tensor = Tensor::f_empty([count], (kind, device)).map_err(ExecuteError::from)?;
    let (mut at, mut failed) = (0, None);
    let mut fill = |values: &[f32]| -> Result<(), tch::TchError> {
        let piece = values.len() as i64;
        tensor.f_narrow(0, at, piece)?.f_copy_(&Tensor::f_from_slice(values)?)?;
        at += piece;
        Ok(())
    };
    source.param(index, &mut |values| {
        if failed.is_none() {
            failed = fill(values).err();
        }
    })?;
    if let Some(error) = failed {
        return Err(ExecuteError::from(error).into());
    }
    Ok(tensor.f_reshape(&param.shape).map_err(ExecuteError::from)?)
}

/// The initial values of a parameter, in its shape.
pub(crate) fn drawn_whole(param: &Param, seed: u64) -> Result<Tensor, ExecuteError> {
    let count = param.shape.iter().product::<i64>() as u64;
    Ok(drawn(param, seed, 0..count)?.f_reshape(&param.shape)?)
}

/// A copy of some elements of a tensor, flattened.
pub(crate) fn piece_of(full: &Tensor, elements: Range<u64>) -> Result<Tensor, ExecuteError> {
    let (first, count) = (elements.start as i64, (elements.end - elements.start) as i64);
    Ok(copy(&full.f_flatten(0, -1)?.f_narrow(0, first, count)?)?)
}

/// Elements that a thread draws at a time.
const PIECE: usize = 1 << 14;

/// The initial values of some elements of a parameter, flattened, drawn by all threads of this process.
pub(crate) fn drawn(
    param: &Param,
    seed: u64,
    elements: Range<u64>,
) -> Result<Tensor, ExecuteError> {
    let count = elements.end.saturating_sub(elements.start);
    let mut values = Tensor::f_empty([count as i64], (Kind::Float, Device::Cpu))?;
    let out = slice_mut(&mut values, &[])?;
    let failed = OnceLock::new();
    let pieces = [Cut { data: out, chunk: PIECE }];
    parallel_cuts((count as usize).div_ceil(PIECE), 1, pieces, |piece, [out]| {
        let first = elements.start + (piece * PIECE) as u64;
        if let Err(why) = init::draw(param, seed, first, out) {
            // Every piece fails for the same reason.
            let _ = failed.set(why);
        }
    });
    match failed.into_inner() {
        None => Ok(values),
        Some(why) => Err(ExecuteError::new(format!("parameter {}: {why}", param.path))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selftest::models::{self, Family, Size};

    fn bits(tensor: &Tensor) -> Vec<u32> {
        let values = Vec::<f32>::try_from(&tensor.flatten(0, -1)).unwrap();
        values.into_iter().map(f32::to_bits).collect()
    }

    /// All elements by one thread, in order.
    fn in_order(param: &Param, seed: u64) -> Vec<u32> {
        let mut values = vec![0.0; param.shape.iter().product::<i64>() as usize];
        init::draw(param, seed, 0, &mut values).unwrap();
        values.into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn initial_values_do_not_depend_on_threads() {
        // Mamba2 and the delta rule have the rules that are no plain normal.
        for family in [Family::Mamba2, Family::GatedDeltaNet] {
            let graph = models::graph(family, Size::Small).unwrap();
            let wanted: Vec<Vec<u32>> =
                graph.params().iter().map(|param| in_order(param, 3)).collect();
            for threads in [1, 2, 5] {
                tch::set_num_threads(threads);
                let weights = Weights::init(&graph, 3).unwrap();
                let drawn: Vec<Vec<u32>> = weights.tensors.iter().map(bits).collect();
                assert!(drawn == wanted, "{} with {threads} threads", family.name());
            }
        }
    }

    #[test]
    fn some_elements_of_a_parameter_are_those_of_the_whole() {
        let graph = models::graph(Family::Llama, Size::Small).unwrap();
        let param = graph.params().iter().max_by_key(|p| p.shape.iter().product::<i64>()).unwrap();
        let full = in_order(param, 9);
        let (piece, count) = (PIECE, full.len());
        assert!(count > 2 * piece + 1, "{count}");
        for (first, last) in [
            (0, 0),
            (count, count),
            (0, 1),
            (7, 7 + piece),
            (piece - 1, 2 * piece + 1),
            (piece, 2 * piece),
            (count - 5, count),
        ] {
            let part = drawn(param, 9, first as u64..last as u64).unwrap();
            assert_eq!(part.size(), [(last - first) as i64]);
            assert!(bits(&part) == full[first..last], "{first}..{last} of {count}");
        }
    }
}
