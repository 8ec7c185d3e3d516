//! The digest of all initial values of an arch, which a run logs at its start. Tensors are never whole in memory, so any
//! machine can check any arch.

use compiler::digest::Digest;
use compiler::graph::{Graph, Param};
use compiler::plan::ParamUpdate;

use super::{BadRule, draw};
use crate::checkpoint::{Slot, TensorDigests, tensor_hasher};

/// Elements that one thread draws at a time.
const CHUNK: usize = 1 << 18;

/// The digest of every parameter's initial values in a run with this seed.
pub fn digest(graph: &Graph, seed: u64) -> Result<Digest, BadRule> {
    let mut digests = TensorDigests::default();
    for param in graph.params() {
        let slot = Slot::from_param(param, ParamUpdate::PLAIN);
        digests.push(&slot, tensor_digest(param, seed)?);
    }
    Ok(digests.finish())
}

/// The digest of a parameter's initial values, drawn by all threads of this machine.
pub(crate) fn tensor_digest(param: &Param, seed: u64) -> Result<blake3::Hash, BadRule> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut chunks: Vec<Vec<f32>> = vec![Vec::new(); threads];
    let mut bytes = Vec::new();
    let count = Slot::from_param(param, ParamUpdate::PLAIN).elements();
    let mut hasher = tensor_hasher();
    let mut at = 0;
    while at < count {
        let mut starts = Vec::with_capacity(threads);
        for chunk in &mut chunks {
            let length = CHUNK.min(count - at);
            chunk.resize(length, 0.0);
            starts.push(at as u64);
            at += length;
        }
        std::thread::scope(|scope| {
            let draws: Vec<_> = chunks
                .iter_mut()
                .zip(starts)
                .map(|(chunk, first)| scope.spawn(move || draw(param, seed, first, chunk)))
                .collect();
            draws.into_iter().try_for_each(|thread| match thread.join() {
                Ok(drawn) => drawn,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        for chunk in &chunks {
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|value| value.to_le_bytes()));
            hasher.update(&bytes);
        }
    }
    Ok(hasher.finalize())
}
