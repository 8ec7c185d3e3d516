//! A run's checkpoints.
//!
//! `checkpoints/latest` names one of `checkpoints/step-0000000020/`, each with `weights.safetensors`,
//! `first_moment.safetensors`, `second_moment.safetensors` and `checkpoint.toml`. Loading one executes nothing.

mod state;
mod names;
mod files;
mod manifest;
mod inspect;
mod verify;
mod store;
mod rechain;
mod shared;
mod compare;
#[cfg(test)]
mod tests;

pub use compare::{StateDifference, TensorDifference, compare, compare_kept};
pub use files::saved_by;
pub use manifest::{FILE as MANIFEST, Manifest, read as manifest, read_of as manifest_of};
pub use names::{Pointer, latest, name_of, names, pointer, set_aside, step_of, was_set_aside};
pub use shared::Ranges;
pub(crate) use state::tensor_hasher;
pub use state::{Content, PARTS, Part, ReadTensor, Slot, TensorDigests, WriteTensor, slots};
pub use store::{Kept, Refused, SavedCheckpoint, Store};
pub use verify::{intact, verify, verify_of};
