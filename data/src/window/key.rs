//! In: a task's digest, what decides its windows, and a number. Out: the key and the generator of that window. Must
//! stay true: no two of split, mode, seed and number share a key, and nothing else is in it; a change here changes
//! every indexed sample.

use super::Options;
use crate::Split;
use crate::cpython::Random;
use crate::task::Mode;

/// The generator of an indexed window.
pub(super) fn generator(task: &blake3::Hash, options: &Options, number: u64) -> Random {
    let Options { split, mode, seed, .. } = *options;
    Random::from_key(window_key(task, split, mode, seed, number).as_bytes())
}

/// The key of an indexed window. Its generator is Python's `random.Random(int.from_bytes(key, "little"))`. The length
/// of a window is no part of it: a shorter window is the beginning of the longer one.
pub(crate) fn window_key(
    task: &blake3::Hash,
    split: Split,
    mode: Mode,
    seed: u64,
    number: u64,
) -> blake3::Hash {
    let mode: &str = match mode {
        Mode::Train => "train",
        Mode::Test => "test",
    };
    let text =
        format!("task {task}\nsplit {}\nmode {mode}\nseed {seed}\nwindow {number}\n", split.key());
    blake3::Hasher::new_derive_key("canonc 1 data task window").update(text.as_bytes()).finalize()
}
