//! The weights that a run begins from, where its lock names some: their digest, and the first state that follows.
//!
//! The digest is that of a checkpoint's `tensors`, so a run's last weights, an export and an import of them have the same
//! one. Parameters that the file lacks are drawn, if the lock says so, and are not in it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use blake3::Hash;
use compiler::digest::Digest;
use compiler::erase::erase;
use compiler::graph::{Graph, Param};
use compiler::plan::ParamUpdate;
use dsl::Problem;
use lab::experiment::{Experiment, Init, Missing};

use crate::checkpoint::{Slot, TensorDigests, tensor_hasher};
use crate::init;
use crate::weights::WeightSource;

/// The weights that a lock names.
#[derive(Debug)]
pub struct NamedWeights {
    name: String,
    digest: Option<Digest>,
    missing: Missing,
    source: Option<Box<dyn WeightSource>>,
}

impl NamedWeights {
    /// Those of an experiment; `None` if its weights are drawn.
    pub fn of(experiment: &Experiment) -> Option<NamedWeights> {
        let Init::Weights { name, digest, missing } = &experiment.init else { return None };
        Some(NamedWeights { name: name.clone(), digest: *digest, missing: *missing, source: None })
    }

    /// The same with the file that holds them.
    pub fn with_source(self, source: Option<Box<dyn WeightSource>>) -> NamedWeights {
        NamedWeights { source, ..self }
    }

    /// Starts to read the file: what is read is digested.
    pub fn read<'a>(&'a self, graph: &'a Graph) -> Result<Reading<'a>, Problem> {
        let Some(source) = &self.source else {
            return Err(Problem::input(
                format!("the lock begins from the weights \"{}\", but none are given", self.name),
                "name them with --weights PATH",
            ));
        };
        Ok(Reading { named: self, graph, source: &**source, hashes: RefCell::default() })
    }

    /// The digest of the first state: of the file's parameters, and of those that are drawn.
    pub fn initial(&self, graph: &Graph, seed: u64) -> Result<Digest, Problem> {
        // All of them are in the file, and the lock has its digest.
        if let (Missing::Refused, Some(digest)) = (self.missing, self.digest) {
            return Ok(digest);
        }
        let reading = self.read(graph)?;
        let mut digests = TensorDigests::default();
        for (index, param) in graph.params().iter().enumerate() {
            let hash = match reading.has(index) {
                true => reading.hash(index)?,
                false => init::tensor_digest(param, seed)
                    .map_err(|error| Problem::input(error.to_string(), "correct the arch"))?,
            };
            digests.push(&slot(param), hash);
        }
        reading.check()?;
        Ok(digests.finish())
    }
}

/// A file of weights while it is read. It must be read to its end once, and then checked.
#[derive(Debug)]
pub struct Reading<'a> {
    named: &'a NamedWeights,
    graph: &'a Graph,
    source: &'a dyn WeightSource,
    /// By parameter, the digest of what was read.
    hashes: RefCell<Vec<Option<Hash>>>,
}

impl Reading<'_> {
    /// Reads a parameter only for its digest.
    fn hash(&self, index: usize) -> Result<Hash, Problem> {
        self.param(index, &mut |_| {})?;
        let hashes = self.hashes.borrow();
        let hash = hashes.get(index).copied().flatten();
        hash.ok_or_else(|| Problem::input("a parameter was not read", "this is a bug in canonc"))
    }

    /// Refuses what was read if it is not what the lock names.
    pub fn check(self) -> Result<(), Problem> {
        let hashes = self.hashes.take();
        let digest = assembled(self.graph, &|index| self.has(index), &hashes);
        self.named.agree(digest)
    }
}

impl WeightSource for Reading<'_> {
    fn param(&self, index: usize, put: &mut dyn FnMut(&[f32])) -> Result<(), Problem> {
        let hash = hashed(self.source, index, put)?;
        let mut hashes = self.hashes.borrow_mut();
        if hashes.len() <= index {
            hashes.resize(index + 1, None);
        }
        if let Some(known) = hashes.get_mut(index) {
            *known = Some(hash);
        }
        Ok(())
    }

    fn has(&self, index: usize) -> bool {
        // Of what is refused if it is missing, nothing may be drawn.
        self.named.missing == Missing::Refused || self.source.has(index)
    }
}

impl NamedWeights {
    fn agree(&self, digest: Digest) -> Result<(), Problem> {
        let Some(locked) = self.digest.filter(|locked| *locked != digest) else { return Ok(()) };
        Err(Problem::finding(
            format!(
                "the weights \"{}\" are not those of the lock: their digest is {}, the lock has {}",
                self.name,
                digest.short(),
                locked.short()
            ),
            "name the weights that were bound with --weights PATH, or restore them; other weights need another lock",
        ))
    }
}

/// Refuses weights that are not those of an experiment's lock.
pub fn check(experiment: &Experiment, source: &dyn WeightSource) -> Result<(), Problem> {
    let Some(named) = NamedWeights::of(experiment) else { return Ok(()) };
    named.agree(digest(&experiment.arch.compiled.graph, source)?)
}

/// The digest of the parameters of an arch that a file has.
pub fn digest(graph: &Graph, source: &dyn WeightSource) -> Result<Digest, Problem> {
    let mut hashes = Vec::new();
    for index in 0..graph.params().len() {
        let hash = source.has(index).then(|| hashed(source, index, &mut |_| {}));
        hashes.push(hash.transpose()?);
    }
    Ok(assembled(graph, &|index| source.has(index), &hashes))
}

/// Passes a parameter on, and returns the digest of its values.
fn hashed(
    source: &dyn WeightSource,
    index: usize,
    put: &mut dyn FnMut(&[f32]),
) -> Result<Hash, Problem> {
    let (mut hasher, mut bytes) = (tensor_hasher(), Vec::new());
    source.param(index, &mut |values| {
        bytes.clear();
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        hasher.update(&bytes);
        put(values);
    })?;
    Ok(hasher.finalize())
}

fn assembled(graph: &Graph, has: &dyn Fn(usize) -> bool, hashes: &[Option<Hash>]) -> Digest {
    let mut digests = TensorDigests::default();
    for index in order(graph, has) {
        if let (Some(param), Some(Some(hash))) = (graph.params().get(index), hashes.get(index)) {
            digests.push(&slot(param), *hash);
        }
    }
    digests.finish()
}

fn slot(param: &Param) -> Slot {
    Slot::from_param(param, ParamUpdate::PLAIN)
}

/// The parameters that a file has, in the order of the arch without the fills that it lacks parameters of. So the digest is
/// that of the arch that the file was made for, whatever a fill changes in the order.
fn order(graph: &Graph, has: &dyn Fn(usize) -> bool) -> Vec<usize> {
    let params = graph.params();
    let all: Vec<usize> = (0..params.len()).filter(|index| has(*index)).collect();
    if all.len() == params.len() {
        return all;
    }
    let slot_of = |index: usize| {
        params.get(index).filter(|_| !has(index)).and_then(|param| param.slot.clone())
    };
    let (mut lacking, mut in_layers) = (BTreeSet::new(), BTreeSet::new());
    for (layer, _, ids, _) in graph.layers() {
        for index in ids.iter().map(|id| id.0 as usize) {
            in_layers.insert(index);
            lacking.extend(slot_of(index).map(|slot| (Some(layer), slot)));
        }
    }
    let outside = (0..params.len()).filter(|index| !in_layers.contains(index));
    lacking.extend(outside.filter_map(|index| Some((None, slot_of(index)?))));
    let bare = erase(graph, &|layer, slot| lacking.contains(&(layer, slot.to_owned())));
    let numbers: BTreeMap<&str, usize> =
        params.iter().enumerate().map(|(index, param)| (param.path.as_str(), index)).collect();
    let kept = bare.params().iter().filter_map(|param| numbers.get(param.path.as_str()).copied());
    let mut order: Vec<usize> = kept.filter(|index| has(*index)).collect();
    // Of a fill that the file has in part, the rest follows.
    let listed: BTreeSet<usize> = order.iter().copied().collect();
    order.extend(all.into_iter().filter(|index| !listed.contains(index)));
    order
}
