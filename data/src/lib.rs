//! In: the data section of a lock (a synthetic task with its parameters, or a prepared text file) and a seed. Out:
//! windows of tokens by number, as plain integers. This crate uses no tensors, clock or threads. Must stay true: window
//! `w` is a function of (data identity, seed, `w`), so resuming and sharding are arithmetic, and equal data is always
//! checked by digest.
//!
//! `cpython` makes the draws; `depo`, `brevo`, `capo`, `mano`, `lano` and `multihop` use it to write samples; `task` is
//! the closed list of them. `window` packs samples, `text` packs documents, and both fill a `batch`; `babilong` fills
//! prompts. `stream` gives samples one by one, and `write`, `inspect` and `stats` show them.

pub mod babilong;
pub mod batch;
pub mod brevo;
pub mod capo;
pub mod cpython;
pub mod depo;
pub mod inspect;
pub mod lano;
pub mod mano;
pub mod multihop;
pub mod settings;
pub mod stats;
pub mod stream;
pub mod task;
pub mod text;
pub mod window;
mod words;
pub mod write;

use std::fmt;
use std::ops::Range;

use batch::Batch;
use text::TextWindows;
use window::TaskWindows;

/// An error in data or its parameters, with advice on what to type next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataError {
    pub message: String,
    pub help: String,
}

impl DataError {
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> DataError {
        DataError { message: message.into(), help: help.into() }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhelp: {}", self.message, self.help)
    }
}

impl std::error::Error for DataError {}

/// A set of documents or windows: for training, or held out from training by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    Train,
    HeldOut,
}

impl Split {
    /// The word used in keys. It must never change, since it decides the data.
    fn key(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::HeldOut => "eval",
        }
    }
}

/// A numbered sequence of windows of any kind.
#[derive(Clone, Debug)]
pub enum Windows {
    Task(TaskWindows),
    Text(TextWindows),
}

impl Windows {
    /// Fills `batch` with the windows of these numbers, one per row. Its row count becomes the range's length.
    pub fn fill(&mut self, numbers: Range<u64>, batch: &mut Batch) -> Result<(), DataError> {
        match self {
            Windows::Task(windows) => windows.fill(numbers, batch),
            Windows::Text(windows) => windows.fill(numbers, batch),
        }
    }
}

/// The reference vectors under `tests/golden`, for this crate's tests.
#[cfg(test)]
pub(crate) mod golden {
    use serde_json::Value;
    use sha2::{Digest, Sha256};

    pub(crate) fn read(name: &str) -> Value {
        let path = format!("{}/../tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    pub(crate) fn cases(name: &str) -> Vec<Value> {
        read(&format!("playground/{name}"))["cases"].as_array().unwrap().clone()
    }

    /// The case with this name.
    pub(crate) fn case(name: &str, id: &str) -> Value {
        cases(name).into_iter().find(|case| case["id"] == id).unwrap()
    }

    pub(crate) fn tokens(list: &Value) -> Vec<u32> {
        list.as_array().unwrap().iter().map(|item| item.as_u64().unwrap() as u32).collect()
    }

    pub(crate) fn sha256(bytes: &[u8]) -> String {
        hex(&Sha256::digest(bytes))
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The digest of a stream of samples: the length and the items of each, all as u32 little-endian.
    #[derive(Default)]
    pub(crate) struct StreamDigest {
        hash: Sha256,
        samples: u64,
        items: u64,
    }

    impl StreamDigest {
        pub(crate) fn add(&mut self, items: impl ExactSizeIterator<Item = u32>) {
            self.samples += 1;
            self.items += items.len() as u64;
            self.hash.update((items.len() as u32).to_le_bytes());
            for item in items {
                self.hash.update(item.to_le_bytes());
            }
        }

        pub(crate) fn check(self, want: &Value) {
            assert_eq!(self.samples, want["samples"]);
            assert_eq!(self.items, want["items"]);
            assert_eq!(hex(&self.hash.finalize()), want["sha256"]);
        }
    }
}
