//! A state's three sets of tensors, and their digests.

use std::fmt::Write as _;

use compiler::digest::Digest;
use compiler::graph::{Graph, Param};
use compiler::plan::ParamUpdate;
use dsl::Problem;

/// The three sets of tensors in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The parameters.
    Weights,
    /// AdamW's running mean of the gradients.
    FirstMoment,
    /// AdamW's running mean of the squared gradients.
    SecondMoment,
}

/// All parts, in the order of their files.
pub const PARTS: [Part; 3] = [Part::Weights, Part::FirstMoment, Part::SecondMoment];

impl Part {
    /// The name in manifests and messages, as `first_moment`.
    pub fn name(self) -> &'static str {
        match self {
            Part::Weights => "weights",
            Part::FirstMoment => "first_moment",
            Part::SecondMoment => "second_moment",
        }
    }

    /// The file's name in a checkpoint, as `first_moment.safetensors`.
    pub fn file(self) -> String {
        format!("{}.safetensors", self.name())
    }
}

/// Appends a tensor's little-endian f32 bytes.
pub type ReadTensor<'a> = dyn FnMut(Part, usize, &mut Vec<u8>) -> Result<(), Problem> + 'a;

/// Takes a tensor's little-endian f32 bytes.
pub type WriteTensor<'a> = dyn FnMut(Part, usize, &[u8]) -> Result<(), Problem> + 'a;

/// A parameter's entry in every file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The parameter's path.
    pub path: String,
    /// Its extents, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// The number of moments that the optimizer keeps for it.
    pub moments: usize,
}

impl Slot {
    /// The slot of a parameter of the graph, updated in this way.
    pub fn from_param(param: &Param, update: ParamUpdate) -> Slot {
        Slot {
            moments: update.moments(),
            path: param.path.clone(),
            shape: param.shape.iter().map(|dim| usize::try_from(*dim).unwrap_or(0)).collect(),
        }
    }

    /// The entry in the file of a part: a moment that the optimizer does not keep has no elements there.
    pub fn in_part(&self, part: Part) -> Slot {
        let kept = match part {
            Part::Weights => true,
            Part::FirstMoment => self.moments > 0,
            Part::SecondMoment => self.moments > 1,
        };
        let shape = if kept { self.shape.clone() } else { vec![0] };
        Slot { path: self.path.clone(), shape, moments: self.moments }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The digest of a set of tensors, from the path, shape and bytes of each, in order.
#[derive(Debug, Default)]
pub struct TensorDigests {
    text: String,
}

impl TensorDigests {
    /// Adds a tensor with the little-endian f32 bytes of its elements.
    pub fn add(&mut self, slot: &Slot, bytes: &[u8]) {
        self.push(slot, tensor_hasher().update(bytes).finalize());
    }

    /// Adds a tensor, given the digest of its bytes by a [`tensor_hasher`].
    pub(crate) fn push(&mut self, slot: &Slot, digest: blake3::Hash) {
        let _ = writeln!(self.text, "{} f32 {:?} {digest}", slot.path, slot.shape);
    }

    /// The digest of all tensors added.
    pub fn finish(self) -> Digest {
        Digest::of("canonc.tensors.v1", &self.text)
    }
}

/// A hasher for the bytes of one tensor.
pub(crate) fn tensor_hasher() -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"canonc.tensor.v1\n");
    hasher
}

/// Every parameter's path, shape and number of moments, in parameter order.
pub fn slots(graph: &Graph, updates: &[ParamUpdate]) -> Vec<Slot> {
    let params = graph.params().iter().enumerate();
    params.map(|(n, param)| Slot::from_param(param, ParamUpdate::for_param(updates, n))).collect()
}

/// The content of one of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Size of the file.
    pub bytes: u64,
    /// BLAKE3 of the file.
    pub file: Digest,
    /// Digest of the tensors' paths, shapes and digests; it does not depend on the file.
    pub tensors: Digest,
}
