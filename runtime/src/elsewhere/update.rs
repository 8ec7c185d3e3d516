//! The change of a state in one step, by another engine and by canonc: how far apart, tensor by tensor.

use dsl::Problem;
use records::checkpoint::{PARTS, Part, SavedCheckpoint, Slot, Store};

use super::bounds::Bounds;
use crate::state::State;

/// The spacing of f32 numbers, relative to their size: an update of a large weight is rounded to it.
const SPACING: f64 = 1.2e-7;

/// The tensors of a state, as bytes, by part and parameter.
pub(super) struct Tensors(Vec<Vec<Vec<u8>>>);

impl Tensors {
    /// Copies a state.
    pub(super) fn of_state(state: &State, slots: &[Slot]) -> Result<Tensors, Problem> {
        let mut parts = Vec::new();
        for part in PARTS {
            let mut tensors = Vec::new();
            for index in 0..slots.len() {
                let mut bytes = Vec::new();
                state.read(part, index, &mut bytes)?;
                tensors.push(bytes);
            }
            parts.push(tensors);
        }
        Ok(Tensors(parts))
    }

    fn get(&self, part: Part, index: usize) -> &[u8] {
        let at = PARTS.iter().position(|known| *known == part).unwrap_or(0);
        self.0.get(at).and_then(|tensors| tensors.get(index)).map_or(&[], Vec::as_slice)
    }
}

/// The tensor whose change differs most.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UpdateDifference {
    /// The part that it belongs to.
    pub(super) part: Part,
    /// The parameter's number and path.
    index: usize,
    pub(super) path: String,
    /// How far apart the two changes are, relative to the engine's, beyond the spacing of the numbers.
    pub(super) relative: f64,
}

impl UpdateDifference {
    /// How far this tensor's changes in two other states are apart.
    pub(super) fn between(&self, before: &Tensors, one: &Tensors, other: &Tensors) -> f64 {
        let [before, one, other] =
            [before, one, other].map(|state| state.get(self.part, self.index));
        relative(before, one, other)
    }
}

/// Compares the change from `before` to a kept checkpoint with that from `before` to `after`, canonc's own. Returns the
/// tensor whose difference is the largest share of its bound.
pub(super) fn compare(
    store: &Store,
    kept: &SavedCheckpoint,
    slots: &[Slot],
    before: &Tensors,
    after: &Tensors,
    bounds: &Bounds,
) -> Result<Option<UpdateDifference>, Problem> {
    let mut worst: Option<UpdateDifference> = None;
    let share = |part, relative: f64| relative / bounds.update(part);
    store.load(kept, &mut |part, index, theirs| {
        let relative = relative(before.get(part, index), after.get(part, index), theirs);
        let is_worse = |known: &UpdateDifference| {
            share(part, relative) > share(known.part, known.relative) || relative.is_nan()
        };
        if worst.as_ref().is_none_or(is_worse) {
            let path = slots.get(index).map_or_else(String::new, |slot| slot.path.clone());
            worst = Some(UpdateDifference { part, index, path, relative });
        }
        Ok(())
    })?;
    Ok(worst)
}

/// How far apart two changes of a tensor are, relative to the second; 0 if nothing but the spacing of its numbers separates
/// them.
fn relative(before: &[u8], ours: &[u8], theirs: &[u8]) -> f64 {
    let values = |bytes: &[u8]| -> Vec<f64> {
        let value =
            |chunk: &[u8]| f64::from(f32::from_le_bytes(chunk.try_into().unwrap_or_default()));
        bytes.chunks_exact(4).map(value).collect()
    };
    // Where both have overflowed, they agree.
    let values = values(before).into_iter().zip(values(ours).into_iter().zip(values(theirs)));
    let values = values.filter(|(_, (ours, theirs))| ours.is_finite() || theirs.is_finite());
    let (mut apart, mut change, mut size) = (0.0, 0.0, 0.0);
    for (before, (ours, theirs)) in values {
        apart += (ours - theirs) * (ours - theirs);
        change += (before - theirs) * (before - theirs);
        size += theirs * theirs;
    }
    let [apart, change, size] = [apart, change, size].map(libm::sqrt);
    let beyond = apart - SPACING * size;
    // Not a number counts as a difference.
    if beyond <= 0.0 {
        0.0
    } else if change == 0.0 {
        f64::INFINITY
    } else {
        beyond / change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn a_difference_is_relative_to_the_change_and_beyond_the_spacing() {
        let before = bytes(&[1.0, 2.0]);
        let theirs = bytes(&[1.1, 2.1]);
        assert_eq!(relative(&before, &theirs, &theirs), 0.0);
        // One unit in the last place of the larger number.
        let next = bytes(&[1.1, f32::from_bits(2.1_f32.to_bits() + 1)]);
        assert_eq!(relative(&before, &next, &theirs), 0.0);
        let other = relative(&before, &bytes(&[1.11, 2.1]), &theirs);
        assert!((0.06..0.08).contains(&other), "{other}");
        // A frozen tensor.
        assert_eq!(relative(&before, &before, &before), 0.0);
        assert_eq!(relative(&before, &theirs, &before), f64::INFINITY);
        assert_eq!(relative(&[], &[], &[]), 0.0);
        assert!(relative(&before, &bytes(&[f32::NAN, 2.0]), &theirs).is_nan());
        // Both have overflowed.
        let [one, other] = [f32::INFINITY, f32::NAN].map(|value| bytes(&[value, 2.1]));
        assert_eq!(relative(&before, &one, &other), 0.0);
    }
}
