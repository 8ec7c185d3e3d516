//! The key and the generator of an indexed window, from the task's digest, the window's options and its number.
//!
//! Different splits, modes, seeds and numbers have different keys, and nothing else affects a key. A change here
//! changes every indexed sample.

use super::Options;
use crate::Split;
use tasks::cpython::Random;
use tasks::sample::Mode;

/// The generator of an indexed window.
pub(super) fn generator(task: &blake3::Hash, options: &Options, number: u64) -> Random {
    let Options { split, mode, seed, .. } = *options;
    Random::from_key(window_key(task, split, mode, seed, number).as_bytes())
}

/// The key of an indexed window. Its generator is Python's `random.Random(int.from_bytes(key, "little"))`. The window's
/// length does not affect it: a shorter window is the beginning of a longer one.
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
