//! The vocabularies of other trainers: what each of their keys means, as data.
//!
//! A key is one of our fields under another name, a setting that we have no field for, or harmless for a reason that
//! its row gives. A key without a row is unknown. A default is the trainer's own: it is never reported, and only
//! says that writing it out changes nothing.

mod axolotl;
mod common;
mod megatron;
mod nanogpt;
mod neox;
mod torchtitan;
mod transformers;

use lab::field::{TABLE, Topic};

use crate::foreign::FOREIGN;

pub(crate) use common::{
    HARMLESS, MODEL_SIZE, NAMES, REACHED, UNFINISHED, VERSIONS, is_metric, is_record, leaf, lower,
};

/// What a foreign key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// One of our fields.
    Is(&'static str),
    /// A setting without a field of ours.
    About(Topic),
    /// A setting that changes no loss and no weight, with the reason.
    Harmless(&'static str),
}

/// Keys of one meaning: `learning_rate`, with a default `learning_rate = 5e-5`, or a section `fsdp_config.*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// What they mean.
    pub meaning: Meaning,
    /// The keys, with their defaults.
    pub keys: &'static [&'static str],
}

const fn is(path: &'static str, keys: &'static [&'static str]) -> KeyRow {
    KeyRow { meaning: Meaning::Is(path), keys }
}

const fn about(topic: Topic, keys: &'static [&'static str]) -> KeyRow {
    KeyRow { meaning: Meaning::About(topic), keys }
}

const fn harmless(reason: &'static str, keys: &'static [&'static str]) -> KeyRow {
    KeyRow { meaning: Meaning::Harmless(reason), keys }
}

/// The keys of one trainer.
#[derive(Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// Its name after `--as`.
    pub name: &'static str,
    /// Which files it is for.
    pub title: &'static str,
    /// Keys that tell its files from others: two of them are enough.
    pub marks: &'static [&'static str],
    /// Its keys.
    pub rows: &'static [KeyRow],
}

/// Keys of no known trainer: compared as they are written.
pub static GENERIC: Vocabulary = Vocabulary {
    name: "generic",
    title: "keys of no known trainer, compared as they are written",
    marks: &[],
    rows: &[],
};

/// The names of canonc and Lingua, whose rows are those of the field table.
pub static LINGUA: Vocabulary = Vocabulary {
    name: "lingua",
    title: "canonc's own names and those of Lingua, with Lingua's defaults",
    marks: &[],
    rows: &[],
};

/// Every vocabulary, in the order in which a tie is decided.
pub static VOCABULARIES: [&Vocabulary; 8] = [
    &LINGUA,
    &axolotl::AXOLOTL,
    &neox::NEOX,
    &megatron::MEGATRON,
    &torchtitan::TORCHTITAN,
    &nanogpt::NANOGPT,
    &transformers::TRANSFORMERS,
    &GENERIC,
];

/// How many marks recognise a file.
const MARKS: usize = 2;

impl Vocabulary {
    /// The vocabulary with this name.
    pub fn named(name: &str) -> Option<&'static Vocabulary> {
        VOCABULARIES.into_iter().find(|vocabulary| vocabulary.name == name)
    }

    /// The vocabulary of a configuration with these keys, or of a table with these columns. A column with slots makes a
    /// table one of ours. A configuration with slots has the vocabulary of its twin without them.
    pub fn recognise(keys: &[&str], in_table: bool) -> &'static Vocabulary {
        if is_lingua(keys) {
            return &LINGUA;
        }
        let score = |vocabulary: &Vocabulary| {
            let has = |mark: &&&'static str| keys.iter().any(|key| covers(mark, &spelt(key)));
            vocabulary.marks.iter().filter(has).count()
        };
        let mut best = (MARKS - 1, &GENERIC);
        for vocabulary in VOCABULARIES {
            let score = score(vocabulary);
            if score > best.0 {
                best = (score, vocabulary);
            }
        }
        if !in_table || *best.1 != GENERIC || !keys.iter().any(|key| is_ours(key)) {
            return best.1;
        }
        // Whoever adds slots to another trainer's table writes one of our words in it.
        let theirs = VOCABULARIES.into_iter().find(|vocabulary| score(vocabulary) > 0);
        match keys.iter().any(|key| is_of_section(key)) {
            true => &LINGUA,
            false => theirs.unwrap_or(&LINGUA),
        }
    }

    /// What a key means, and its default: an exact row, or else the longest section.
    pub fn find(&self, key: &str) -> Option<(Meaning, Option<&'static str>)> {
        let key = spelt(key);
        let mut longest: Option<(usize, Meaning, Option<&'static str>)> = None;
        for row in self.rows {
            for entry in row.keys {
                let (name, default) = parts(entry);
                let length = if name.ends_with('*') { name.len() } else { usize::MAX };
                if covers(name, &key) && longest.is_none_or(|(best, ..)| best < length) {
                    longest = Some((length, row.meaning, default));
                }
            }
        }
        longest.map(|(_, meaning, default)| (meaning, default))
    }

    /// The default of one of our fields.
    pub fn default_of(&self, path: &str) -> Option<&'static str> {
        let is = |row: &&KeyRow| matches!(row.meaning, Meaning::Is(ours) if ours == path);
        let rows = self.rows.iter().filter(is);
        rows.flat_map(|row| row.keys).find_map(|entry| parts(entry).1)
    }

    /// Whether it has several keys for one quantity. Of those that a file has, the first in the alphabet is taken for it,
    /// whatever their order in the file.
    pub(crate) fn has_synonyms(&self) -> bool {
        *self != LINGUA && *self != GENERIC
    }

    /// Its keys, without sections.
    pub fn names(&'static self) -> impl Iterator<Item = &'static str> {
        let keys = self.rows.iter().flat_map(|row| row.keys);
        keys.map(|entry| parts(entry).0).filter(|name| !name.ends_with('*'))
    }
}

/// A row's key and its default.
pub(crate) fn parts(entry: &'static str) -> (&'static str, Option<&'static str>) {
    match entry.split_once(" = ") {
        Some((name, default)) => (name, Some(default)),
        None => (entry, None),
    }
}

/// A key with `_` between words: command lines write `-`.
fn spelt(key: &str) -> String {
    key.trim_start_matches("--").replace('-', "_")
}

/// Whether a row's key, or a section that ends in `.*`, covers a key.
fn covers(name: &str, key: &str) -> bool {
    match name.strip_suffix('*') {
        Some(start) => key.len() > start.len() && key.starts_with(start),
        None => name == key,
    }
}

/// Whether a key is canonc's own word.
fn is_ours(key: &str) -> bool {
    matches!(key, "canon_set" | "model.canon_set" | "arch.canon") || key.starts_with("arch.canon.")
}

/// Whether a key has a name of canonc or Lingua in a section.
fn is_of_section(key: &str) -> bool {
    let ours = FOREIGN.iter().chain(TABLE.iter());
    key.contains('.') && ours.into_iter().any(|row| row.path == key || row.foreign.contains(&key))
}

/// Whether keys are those of Lingua: a width under its name, and a setting of another section.
fn is_lingua(keys: &[&str]) -> bool {
    let lingua = |key: &str| {
        FOREIGN.iter().any(|row| row.foreign.contains(&key))
            || TABLE.iter().any(|row| row.foreign.contains(&key))
    };
    let has_key_of = |section: &str| keys.iter().any(|key| key.starts_with(section) && lingua(key));
    keys.contains(&"model.dim") && ["optim.", "data.", "distributed."].into_iter().any(has_key_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sound() {
        for vocabulary in VOCABULARIES {
            let mut known = std::collections::BTreeSet::new();
            for row in vocabulary.rows {
                if let Meaning::Is(path) = row.meaning {
                    let field = TABLE.iter().chain(FOREIGN).any(|field| field.path == path);
                    assert!(field, "{}: {path}", vocabulary.name);
                }
                for entry in row.keys {
                    let (name, _) = parts(entry);
                    assert!(known.insert(name), "{}: {name} twice", vocabulary.name);
                    assert_eq!(spelt(name), name, "{}", vocabulary.name);
                }
            }
            for mark in vocabulary.marks {
                assert!(vocabulary.find(mark).is_some(), "{}: {mark}", vocabulary.name);
            }
        }
    }

    #[test]
    fn files_are_recognised_by_their_keys() {
        for (keys, name) in [
            (&["model.dim", "model.n_layers", "optim.lr", "data.seq_len"] as &[&str], "lingua"),
            (&["canon_set", "optim.lr"], "lingua"),
            (&["canon_set", "lr"], "lingua"),
            (&["canon_set", "learning_rate", "per_device_train_batch_size"], "transformers"),
            (&["model.num_layers", "model.hidden", "optimizer.lr"], "generic"),
            (&["arch.depth", "arch.width", "optimizer.lr"], "generic"),
            (&["arch.layers", "arch.dim", "optim.lr"], "generic"),
            (&["model.n_layers", "model.d_model", "optim.lr", "data.seq_len"], "generic"),
            (&["model_type", "hidden_size", "num_hidden_layers"], "transformers"),
            (&["num_train_epochs", "per_device_train_batch_size"], "transformers"),
            (&["training.seq_len", "job.dump_folder", "optimizer.lr"], "torchtitan"),
            (&["--num-layers", "--micro-batch-size", "--train-iters"], "megatron"),
            (&["block_size", "n_embd", "max_iters", "decay_lr"], "nanogpt"),
            (&["pipe-parallel-size", "num-layers", "train_micro_batch_size_per_gpu"], "neox"),
            (&["base_model", "sequence_len", "micro_batch_size", "lr_scheduler"], "axolotl"),
            (&["lr", "steps"], "generic"),
        ] {
            assert_eq!(Vocabulary::recognise(keys, true).name, name, "{keys:?}");
        }
        for (keys, name) in [
            (&["canon_set", "train.loss.kd"] as &[&str], "generic"),
            (&["canon_set", "optim.lr"], "generic"),
            (&["canon_set", "learning_rate"], "generic"),
        ] {
            assert_eq!(Vocabulary::recognise(keys, false).name, name, "{keys:?}");
        }
    }
}
