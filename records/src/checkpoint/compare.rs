//! The tensors in which a kept checkpoint differs from the same state elsewhere: computed again, or kept by another run.
//!
//! Tensors are compared in parameter order, weights first, so the first difference is always the same one.

use super::state::{PARTS, Part, ReadTensor};
use super::store::{SavedCheckpoint, Store};
use dsl::Problem;

/// The first tensor that differs, and the number that differ in each part.
#[derive(Clone, Debug, PartialEq)]
pub struct StateDifference {
    /// The first tensor that differs: by part, then in parameter order.
    pub first: TensorDifference,
    /// Number of parameters that differ.
    pub weights: usize,
    /// Number of first moments that differ.
    pub first_moment: usize,
    /// Number of second moments that differ.
    pub second_moment: usize,
    /// Number of tensors in each part.
    pub of: usize,
}

/// How two states differ in one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorDifference {
    /// The part that the tensor belongs to.
    pub part: Part,
    /// The parameter's path.
    pub path: String,
    /// Number of elements that differ in any bit.
    pub elements: usize,
    /// Number of elements of the tensor.
    pub of: usize,
    /// Index of the first element that differs, in row-major order.
    pub at: usize,
    /// The value in the saved state.
    pub kept: f32,
    /// The value in the other state.
    pub other: f32,
}

impl StateDifference {
    /// The difference as a sentence.
    pub fn text(&self) -> String {
        let StateDifference { first, weights, first_moment, second_moment, of } = self;
        let TensorDifference { part, path, elements, of: all, at, kept, other } = first;
        format!(
            "the first tensor that differs is {path} of {} ({elements} of {all} elements, the first at {at}: {kept:?} and \
             {other:?}); of {of} tensors {weights} weights, {first_moment} first moments and {second_moment} second \
             moments differ",
            part.name()
        )
    }
}

/// Compares a kept checkpoint with the tensors that `other` returns, as little-endian f32 bytes.
pub fn compare(
    store: &Store,
    kept: &SavedCheckpoint,
    other: &mut ReadTensor<'_>,
) -> Result<Option<StateDifference>, Problem> {
    let mut difference = None;
    for part in PARTS {
        compare_part(store, kept, part, other, &mut difference)?;
    }
    Ok(difference)
}

/// Compares two kept checkpoints. At most two parts are in memory: one of each.
pub fn compare_kept(
    one: (&Store, &SavedCheckpoint),
    other: (&Store, &SavedCheckpoint),
) -> Result<Option<StateDifference>, Problem> {
    let mut difference = None;
    for part in PARTS {
        // Both digests are of bytes that were read when the checkpoint was verified.
        if one.1.manifest.content(part).tensors == other.1.manifest.content(part).tensors {
            continue;
        }
        let mut tensors = Vec::new();
        other.0.load_part(other.1, part, &mut |_, _, bytes| {
            tensors.push(bytes.to_vec());
            Ok(())
        })?;
        let mut theirs = |_: Part, index: usize, out: &mut Vec<u8>| {
            out.extend_from_slice(tensors.get(index).map_or(&[][..], Vec::as_slice));
            Ok(())
        };
        compare_part(one.0, one.1, part, &mut theirs, &mut difference)?;
    }
    Ok(difference)
}

fn compare_part(
    store: &Store,
    kept: &SavedCheckpoint,
    part: Part,
    other: &mut ReadTensor<'_>,
    difference: &mut Option<StateDifference>,
) -> Result<(), Problem> {
    let mut theirs = Vec::new();
    store.load_part(kept, part, &mut |part, index, bytes| {
        theirs.clear();
        other(part, index, &mut theirs)?;
        if bytes == theirs {
            return Ok(());
        }
        let path = store.slots.get(index).map_or_else(String::new, |slot| slot.path.clone());
        let entry = difference.get_or_insert_with(|| StateDifference {
            first: tensor(part, path, bytes, &theirs),
            weights: 0,
            first_moment: 0,
            second_moment: 0,
            of: store.slots.len(),
        });
        match part {
            Part::Weights => entry.weights += 1,
            Part::FirstMoment => entry.first_moment += 1,
            Part::SecondMoment => entry.second_moment += 1,
        }
        Ok(())
    })
}

fn tensor(part: Part, path: String, kept: &[u8], other: &[u8]) -> TensorDifference {
    let element = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap_or_default());
    let pairs = || kept.chunks_exact(4).zip(other.chunks_exact(4));
    let differing = || pairs().enumerate().filter(|(_, (kept, other))| kept != other);
    let (at, values) = differing()
        .next()
        .map_or((0, (0.0, 0.0)), |(at, (kept, other))| (at, (element(kept), element(other))));
    TensorDifference {
        part,
        path,
        elements: differing().count(),
        of: kept.len() / 4,
        at,
        kept: values.0,
        other: values.1,
    }
}
