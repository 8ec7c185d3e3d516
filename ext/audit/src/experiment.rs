//! One experiment of an audit: values by key, read from a table, a foreign file or a lock.
//!
//! No key is dropped: one without a row is kept as unknown, and results are listed.

use std::collections::{BTreeMap, BTreeSet};

use lab::field::Topic;

use crate::devices::Reading;
use crate::value::KeyValue;
use crate::vocabularies::{LINGUA, Vocabulary};

/// One experiment as its author wrote it, with our keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// The author's name for it.
    pub name: String,
    /// The file it was read from, with the line if there is one.
    pub source: String,
    /// Values by our key, or by the author's own where no row of a table has it.
    pub values: BTreeMap<String, KeyValue>,
    /// The author's names for keys, where they differ from ours.
    pub written_as: BTreeMap<String, String>,
    /// Keys that come from a comment, which no program reads.
    pub comments: BTreeSet<String>,
    /// The number of devices according to comments.
    pub devices: Reading,
    /// Definitions of a lock's arch by name: kind and digest.
    pub definitions: BTreeMap<String, String>,
    /// Names in `definitions` that mean something else in canonc.
    pub redefined: BTreeSet<String>,
    /// The comparison that declares that canonc runs every arm, if any.
    pub canonc_runs: Option<String>,
    /// Keys without a row in any table, as their author wrote them.
    pub unknown: BTreeSet<String>,
    /// Known keys with an empty cell: the trainer's default applies.
    pub empty: BTreeSet<String>,
    /// Topics that a rules file gives to unknown keys.
    pub own: BTreeMap<String, Topic>,
    /// The kind of file it was read from.
    pub origin: Origin,
    /// Whose names its keys are. Only Lingua's have defaults that are filled in.
    pub vocabulary: &'static Vocabulary,
    /// Keys that hold results, which no rule compares.
    pub results: BTreeSet<String>,
    /// The state of a run that did not reach its end.
    pub unfinished: Option<String>,
    /// Comparisons that declare it as an arm.
    pub declared: Vec<Declared>,
}

/// What a comparison's lock declares about one of its arms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Name of the experiment that the arm is compared with.
    pub base: String,
    /// The treatment as declared: `canon`, `mlp.hidden`.
    pub treatment: Vec<String>,
    /// The fields that it covers.
    pub fields: Vec<String>,
    /// Whether it covers any part of the arch.
    pub arch: bool,
    /// Why its effect cannot be attributed to one factor alone, if so.
    pub bundle: Option<String>,
}

/// Names for the keys of files and tables.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The vocabulary; None to recognise it by the keys.
    pub vocabulary: Option<&'static Vocabulary>,
    /// Our names for keys of a user's own: `train.lr` is `optimizer.lr`.
    pub own: BTreeMap<String, String>,
}

impl Names {
    /// The names of one vocabulary.
    pub fn of_vocabulary(vocabulary: &'static Vocabulary) -> Names {
        Names { vocabulary: Some(vocabulary), own: BTreeMap::new() }
    }

    /// The vocabulary of a file or table with these keys.
    pub(crate) fn for_keys(&self, keys: &[&str], in_table: bool) -> &'static Vocabulary {
        self.vocabulary.unwrap_or_else(|| Vocabulary::recognise(keys, in_table))
    }
}

/// Where an experiment was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A row of a table, which may also contain results of the run.
    Table,
    /// A whole configuration of another trainer: a missing key has its default.
    Configuration,
    /// A lock: keys only, no results.
    Lock,
}

/// Why a table or one of its rows cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadInput {
    /// Line number from 1; 0 for the whole file.
    pub line: usize,
    /// What is wrong, on one line.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl BadInput {
    pub(crate) fn new(line: usize, message: String, help: impl Into<String>) -> BadInput {
        BadInput { line, message, help: help.into() }
    }

    pub(crate) fn at(self, name: &str, line: usize) -> BadInput {
        BadInput { line, message: format!("`{name}`: {}", self.message), help: self.help }
    }
}

/// Most experiments in one set.
pub const MAX_EXPERIMENTS: usize = 10_000;

impl Experiment {
    /// An experiment without values, read from a row of a table.
    pub fn new(name: impl Into<String>, source: impl Into<String>) -> Experiment {
        Experiment {
            name: name.into(),
            source: source.into(),
            values: BTreeMap::new(),
            written_as: BTreeMap::new(),
            comments: BTreeSet::new(),
            devices: Reading::default(),
            definitions: BTreeMap::new(),
            redefined: BTreeSet::new(),
            canonc_runs: None,
            unknown: BTreeSet::new(),
            empty: BTreeSet::new(),
            own: BTreeMap::new(),
            origin: Origin::Table,
            vocabulary: &LINGUA,
            results: BTreeSet::new(),
            unfinished: None,
            declared: Vec::new(),
        }
    }

    /// Makes a user's own keys known, with the topics from a rules file.
    pub fn declare(&mut self, keys: &BTreeMap<String, Topic>) {
        for (key, topic) in keys {
            if self.unknown.remove(key) {
                self.own.insert(key.clone(), *topic);
            }
        }
    }
}
