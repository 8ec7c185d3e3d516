//! The reference vectors under `tests/golden`: their cases, and the digests that they use.

use serde_json::Value;
use sha2::{Digest, Sha256};

pub fn read(name: &str) -> Value {
    let path = format!("{}/../golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Names of the folders in one of them, such as the models in `stock`.
pub fn folders(name: &str) -> Vec<String> {
    let path = format!("{}/../golden/{name}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> =
        folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.len() > 7, "{names:?}");
    names
}

pub fn cases(name: &str) -> Vec<Value> {
    read(&format!("playground/{name}"))["cases"].as_array().unwrap().clone()
}

/// The case with this name.
pub fn case(name: &str, id: &str) -> Value {
    cases(name).into_iter().find(|case| case["id"] == id).unwrap()
}

pub fn tokens(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|item| item.as_u64().unwrap() as u32).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest of a stream of samples: the length and the items of each, all as u32 little-endian.
#[derive(Default)]
pub struct StreamDigest {
    hash: Sha256,
    samples: u64,
    items: u64,
}

impl StreamDigest {
    pub fn add(&mut self, items: impl ExactSizeIterator<Item = u32>) {
        self.samples += 1;
        self.items += items.len() as u64;
        self.hash.update((items.len() as u32).to_le_bytes());
        for item in items {
            self.hash.update(item.to_le_bytes());
        }
    }

    pub fn check(self, want: &Value) {
        assert_eq!(self.samples, want["samples"]);
        assert_eq!(self.items, want["items"]);
        assert_eq!(hex(&self.hash.finalize()), want["sha256"]);
    }
}
