//! Experiments as flat maps, read from tables, foreign files or locks.
//!
//! No key is dropped: one without a row is kept as unknown, and results are listed. If a key of Lingua is given under
//! two names, both values must agree.

use std::collections::{BTreeMap, BTreeSet};

use super::devices::Reading;
use super::launch;
use super::value::Value;
use super::vocabulary::{self, CANON, GENERIC, LINGUA, Topic, Vocabulary};
use crate::field::vocabularies::{self, Meaning};
use crate::verdict::{self, Outcome};
use compiler::canonical;
use compiler::digest::Digest;
use compiler::erase::erase_all;
use compiler::number::Ratio;

/// One experiment as its author wrote it, with our keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// The author's name for it.
    pub name: String,
    /// The file it was read from, with the line if there is one.
    pub source: String,
    /// Values by our key, or by the author's own where no row of a table has it.
    pub values: BTreeMap<String, Value>,
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
    pub fn of(vocabulary: &'static Vocabulary) -> Names {
        Names { vocabulary: Some(vocabulary), own: BTreeMap::new() }
    }

    /// The vocabulary of a file or table with these keys.
    pub(super) fn for_keys(&self, keys: &[&str], in_table: bool) -> &'static Vocabulary {
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
    pub(super) fn new(line: usize, message: String, help: impl Into<String>) -> BadInput {
        BadInput { line, message, help: help.into() }
    }

    pub(super) fn at(self, name: &str, line: usize) -> BadInput {
        BadInput { line, message: format!("`{name}`: {}", self.message), help: self.help }
    }
}

/// Digest of a lock's graph with every slot emptied. Twins share it.
pub(super) const BARE_GRAPH: &str = "arch.graph_without_slots";

/// Digest of the manifest of that graph: every parameter's path, shape, init rule and key.
pub(super) const BARE_MANIFEST: &str = "arch.manifest_without_slots";

/// Digest of a lock's graph with its slots but without their fills: shows where the slots are.
pub(super) const SLOT_PLACES: &str = "arch.slots_without_fills";

/// The fill of a slot that is not a Canon layer.
const FILL: &str = "arch.fill";

/// Digests, narrowest first: each covers everything that the one before it covers.
pub(super) const BARE: [&str; 3] = [BARE_GRAPH, BARE_MANIFEST, SLOT_PLACES];

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

    /// Reads dotted keys and scalars of a foreign file, as written there, each with its line.
    pub fn of_keys<'a>(
        name: &str,
        source: &str,
        names: &Names,
        keys: impl IntoIterator<Item = (usize, &'a str, &'a str)>,
    ) -> Result<Experiment, BadInput> {
        let mut keys: Vec<(usize, &str, &str)> = keys.into_iter().collect();
        let all: Vec<&str> = keys.iter().map(|(_, key, _)| *key).collect();
        let vocabulary = names.for_keys(&all, false);
        if has_synonyms(vocabulary) {
            keys.sort_by_key(|(_, key, _)| *key);
        }
        let origin = Origin::Configuration;
        let mut experiment = Experiment { origin, vocabulary, ..Experiment::new(name, source) };
        for (line, key, cell) in keys {
            experiment.write(key, cell, names).map_err(|bad| bad.at(name, line))?;
        }
        experiment.finish();
        Ok(experiment)
    }

    /// Adds one foreign key.
    pub fn write(&mut self, key: &str, cell: &str, names: &Names) -> Result<(), BadInput> {
        if key == "model.canon_set" || key == "canon_set" {
            let cell = if is_null(cell) { "" } else { cell };
            let (slots, conv) = canon_set(cell).ok_or_else(|| not_slots(key, cell))?;
            self.put(CANON, key, Value::text(slots))?;
            // Where no default is known, a file without the key says the same as one without the convolution.
            return match conv || *self.vocabulary == LINGUA {
                true => self.put("arch.mixer.short_conv", key, Value::Bool(conv)),
                false => Ok(()),
            };
        }
        if let Some(path) = names.own.get(key) {
            return match Value::parse(cell) {
                Some(value) => self.put(path, key, value),
                None => Ok(()),
            };
        }
        if *self.vocabulary != LINGUA {
            return self.write_foreign(key, cell);
        }
        if vocabulary::path_of(key).is_none() && self.is_result(key, cell) {
            return Ok(());
        }
        self.write_known(key, cell)
    }

    /// Adds a key of another trainer than Lingua: its values are not checked, and no other key follows from it.
    fn write_foreign(&mut self, key: &str, cell: &str) -> Result<(), BadInput> {
        let meaning = vocabulary::foreign(self.vocabulary, key);
        let decides = || vocabulary::known(key).is_some_and(|row| row.topic.decides());
        let known = vocabulary::is_shared(key) || (*self.vocabulary == GENERIC && decides());
        if meaning.is_none() && known {
            return self.write_known(key, cell);
        }
        if meaning.is_none() && self.is_result(key, cell) {
            return Ok(());
        }
        let default = meaning.and_then(|(_, default)| default).and_then(Value::parse);
        // No value, where the default is a number, is a setting of its own. So it is where nothing is known of the key.
        let nothing = is_null(cell) && self.origin == Origin::Configuration;
        let kept = nothing && (meaning.is_none() || matches!(default, Some(Value::Number(_))));
        let value = match is_null(cell) {
            true => kept.then(|| Value::text("null")),
            false if vocabulary::is_name(key) && !matches!(meaning, Some((Meaning::Is(_), _))) => {
                Value::named(cell)
            }
            false => match self.origin {
                // YAML 1.1, which most trainers read, has more words for true and false.
                Origin::Configuration => Value::parse(cell).map(Value::switched),
                Origin::Table | Origin::Lock => Value::parse(cell),
            },
        };
        let Some(value) = value else { return Ok(()) };
        match meaning {
            Some((Meaning::Is(path), _)) => {
                let ours = vocabulary::normal(path, value.clone());
                // A trainer may have two keys for one quantity, and read only one of them.
                if self.values.get(path).is_none_or(|before| *before == ours) {
                    return self.put(path, key, ours);
                }
                self.own.insert(key.to_owned(), vocabulary::class(path));
            }
            Some((Meaning::About(topic), _)) => {
                self.own.insert(key.to_owned(), topic);
            }
            Some((Meaning::Harmless(_), _)) => {
                self.own.insert(key.to_owned(), Topic::Setup);
            }
            None => {
                self.unknown.insert(key.to_owned());
            }
        }
        self.values.insert(key.to_owned(), value);
        Ok(())
    }

    /// Keeps a result or a count of parameters apart from the keys of rules.
    fn is_result(&mut self, key: &str, cell: &str) -> bool {
        if vocabulary::is_model_size(key) {
            if let Some(value) = Value::parse(&vocabulary::whole(cell)) {
                self.written_as.insert("arch.parameters".to_owned(), key.to_owned());
                self.values.insert("arch.parameters".to_owned(), value);
            }
            return true;
        }
        let result = vocabulary::is_result(key, cell, self.origin == Origin::Table);
        if result {
            self.results.insert(key.to_owned());
            let state = cell.trim().to_lowercase();
            if ["state", "status"].contains(&key.to_lowercase().as_str())
                && vocabularies::UNFINISHED.contains(&state.as_str())
            {
                self.unfinished = Some(state);
            }
        }
        result
    }

    /// Adds a key of the field table.
    fn write_known(&mut self, key: &str, cell: &str) -> Result<(), BadInput> {
        let lingua = *self.vocabulary == LINGUA;
        let checked = lingua || (*self.vocabulary == GENERIC && self.origin == Origin::Table);
        let known = vocabulary::path_of(key);
        let path = known.as_deref().unwrap_or(key);
        let row = known.as_deref().and_then(vocabulary::row);
        let words = row.is_some_and(vocabulary::is_list);
        // Python's and YAML's null becomes the key's own word for it, if it has one.
        let cell = match cell.trim() {
            _ if is_null(cell) && row.is_some_and(vocabulary::has_none) => "none",
            _ if is_null(cell) => "",
            cell => cell,
        };
        let value = match words {
            true => Value::words(cell),
            false if known.is_none() && vocabulary::is_name(key) => Value::named(cell),
            false => Value::parse(cell),
        };
        let null = self.origin == Origin::Configuration && known.is_none();
        let value = value.or_else(|| null.then(|| Value::text("null")));
        if known.is_none() && value.is_some() {
            self.unknown.insert(key.to_owned());
        }
        let Some(value) = value else {
            self.empty.insert(path.to_owned());
            return Ok(());
        };
        if launch::COUNTS.contains(&path) {
            self.launched(path, key, value);
            return Ok(());
        }
        if let Some(words) = vocabulary::numeric(path).filter(|_| checked) {
            // Lingua's switch loss.nll_square is a factor in a lock.
            let switch = matches!(value, Value::Bool(_)) && vocabulary::is_switch(path);
            let normal = vocabulary::normal(path, value.clone());
            let off = normal == Value::Bool(false) || Some(normal.to_string().as_str()) == words;
            if !switch && !off {
                held(key, cell, &value, words)?;
            }
        }
        if [CANON, "reported.canon"].contains(&path) && !says_slots(&value) {
            return Err(not_slots(key, cell));
        }
        // All words for none are one value.
        let value = if path == CANON && value.is_off() { Value::text("") } else { value };
        if key.ends_with(launch::COMMENT) {
            self.comments.insert(path.to_owned());
        }
        let value = if lingua { synonym(path, value) } else { value };
        self.put(path, key, value)
    }

    /// Derives values that need all keys: shares of sources, devices of a launch, and slots and family if
    /// no other key gives them.
    pub(super) fn finish(&mut self) {
        let shares: Vec<(String, Ratio)> = self
            .values
            .iter()
            .filter(|(path, _)| path.starts_with("data.sources."))
            .filter_map(|(path, value)| Some((path.clone(), value.number()?)))
            .collect();
        let zero = Ratio { num: 0, den: 1 };
        let sum = shares.iter().try_fold(zero, |sum, (_, share)| sum.add(*share));
        for (path, share) in &shares {
            // The trainer divides by the sum.
            if let Some(share) = sum.and_then(|sum| share.div(sum)) {
                self.values.insert(path.clone(), Value::Number(share));
            }
        }
        self.count_launch();
        // A table may record that there are Canon layers without recording where.
        let canon = self.values.get("reported.canon").cloned();
        let unsaid = self.origin == Origin::Table && !self.values.contains_key(CANON);
        if let Some(canon) = canon.filter(|_| unsaid) {
            let filled = if canon.is_off() { Value::text("") } else { canon };
            self.values.insert(CANON.to_owned(), filled);
            self.written_as.insert(CANON.to_owned(), "canon".to_owned());
        }
        let family = self.values.get("reported.family").cloned();
        let family = family.filter(|_| *self.vocabulary == LINGUA);
        if let Some(family) = family.filter(|_| !self.values.contains_key("arch.mixer")) {
            let ours = synonym("arch.mixer", family.clone());
            if ours != family {
                self.values.insert("arch.mixer".to_owned(), ours);
                self.written_as.insert("arch.mixer".to_owned(), "family".to_owned());
            }
        }
    }

    fn put(&mut self, path: &str, key: &str, value: Value) -> Result<(), BadInput> {
        let value = vocabulary::normal(path, value);
        if let Some(before) = self.values.get(path).filter(|before| **before != value) {
            let other = self.written_as.get(path).map_or(path, String::as_str);
            let message = format!("`{other}` is {before}, but `{key}`, the same key, is {value}");
            return Err(BadInput::new(0, message, "make the two agree"));
        }
        if path != key {
            self.written_as.insert(path.to_owned(), key.to_owned());
        }
        self.values.insert(path.to_owned(), value);
        Ok(())
    }

    /// The arms of a comparison. If the comparison declares that canonc runs every arm, keys that only another trainer
    /// reads have no effect.
    pub fn of_comparison(source: &str, lock: &crate::comparison::Comparison) -> Vec<Experiment> {
        let canonc_runs = (lock.trainer == verdict::Trainer::Canonc).then(|| source.to_owned());
        let arm = |arm: &crate::comparison::Arm| {
            let name = format!("{}/{}", lock.name, arm.name);
            let canonc_runs = canonc_runs.clone();
            let declared = declaration(lock, &arm.name).into_iter().collect();
            let experiment = Experiment::of_lock(&name, source, &arm.experiment);
            Experiment { canonc_runs, declared, ..experiment }
        };
        lock.arms.iter().map(arm).collect()
    }

    /// Reads a lock: every free field with its effective value, and the arch's own fields.
    pub fn of_lock(name: &str, source: &str, locked: &crate::experiment::Experiment) -> Experiment {
        let others: BTreeMap<String, verdict::Origin> = verdict::redefinitions(&locked.arch, "")
            .into_iter()
            .map(|own| (own.name, own.origin))
            .collect();
        let shown = |(name, (kind, digest)): (String, (&str, Digest))| {
            let origin = others.get(&name).map(verdict::Origin::to_string).unwrap_or_default();
            (name, format!("{kind} {}{origin}", digest.short()))
        };
        let definitions: BTreeMap<String, String> =
            verdict::definitions(&locked.arch).into_iter().map(shown).collect();
        let redefined = others.into_keys().collect();
        let experiment = Experiment::new(name, source);
        let mut experiment =
            Experiment { origin: Origin::Lock, definitions, redefined, ..experiment };
        let values = &mut experiment.values;
        let bound = crate::experiment::is_bound(&locked.fields);
        // The digest identifies the data, whatever its name.
        let named_only = |path: &str| bound && path == "data.source";
        for (path, field) in locked.fields.iter().filter(|(path, _)| !named_only(path)) {
            if path == "optimizer.betas"
                && let crate::field::FieldValue::List(pair) = field
            {
                for (path, beta) in ["optimizer.beta1", "optimizer.beta2"].iter().zip(pair) {
                    values.insert((*path).to_owned(), Value::from(beta));
                }
                continue;
            }
            values.insert(path.clone(), vocabulary::normal(path, Value::from(field)));
        }
        for path in ["batch.tokens_per_step", "budget.steps", "budget.tokens"] {
            if let Some(value) = locked.value(path) {
                values.insert(path.to_owned(), Value::from(value));
            }
        }
        arch(&locked.arch.compiled, &experiment.definitions, values);
        let bare = canonical::identify(&erase_all(&locked.arch.compiled.graph));
        values.insert(BARE_GRAPH.to_owned(), Value::text(bare.graph.to_string()));
        values.insert(BARE_MANIFEST.to_owned(), Value::text(bare.manifest.to_string()));
        if let Some(unfilled) = locked.arch.unfilled_form() {
            values.insert(SLOT_PLACES.to_owned(), Value::text(unfilled.to_string()));
        }
        experiment
    }
}

/// What a lock declares about an arm other than the base. Its verdict proves that nothing else differs.
fn declaration(lock: &crate::comparison::Comparison, arm: &str) -> Option<Declared> {
    let treatment = lock.treatment.get(arm)?.clone();
    let verdict = lock.verdicts.get(arm)?;
    let changes = || verdict.treatment.iter().flat_map(|entry| &entry.changes);
    let of_arch = |path: &str| path.starts_with("arch.");
    // What follows from it differs, too: tokens and FLOPs of another number of steps.
    let all = changes().chain(&verdict.consequences);
    let fields = all.map(|change| change.path.clone()).filter(|path| !of_arch(path));
    Some(Declared {
        base: format!("{}/{}", lock.name, lock.base),
        treatment,
        fields: fields.collect(),
        arch: changes().any(|change| of_arch(&change.path)),
        bundle: match verdict.outcome {
            Outcome::Bundle(_) if lock.is_compensated(arm) => Some(lock.headline(arm)),
            Outcome::Bundle(factors) => Some(format!(
                "{} are {factors} factors, declared as one treatment",
                lock.entries(arm).join(" and ")
            )),
            Outcome::Identical | Outcome::Controlled | Outcome::Confounded(_) => None,
        },
    })
}

/// Whether a vocabulary has several keys for one quantity. Of those that a file has, the first in the alphabet is taken for
/// it, whatever their order in the file.
pub(super) fn has_synonyms(vocabulary: &Vocabulary) -> bool {
    *vocabulary != LINGUA && *vocabulary != GENERIC
}

/// Checks that a numeric key holds a number or one of its words. Rules would skip anything else.
fn held(key: &str, cell: &str, value: &Value, word: Option<&str>) -> Result<(), BadInput> {
    if value.number().is_some() || word == Some(cell) {
        return Ok(());
    }
    // Exact numbers are bounded in size.
    let (what, help) = match dsl::Decimal::parse(cell) {
        Ok(_) => ("out of range", "write a value that a run could have"),
        Err(_) => ("not a finite number", "write a number, or leave it empty if the key is absent"),
    };
    Err(BadInput::new(0, format!("`{key}` is `{cell}`, which is {what}"), help))
}

/// Splits `bb` or `AbbCD` into the slots and whether the mixer has its own convolution. `None` for another word.
fn canon_set(cell: &str) -> Option<(String, bool)> {
    let cell = cell.trim();
    if cell.eq_ignore_ascii_case("none") {
        return Some((String::new(), false));
    }
    let mut slots: Vec<char> = cell.chars().filter(|c| *c != 'b').collect();
    slots.sort_unstable();
    slots.dedup();
    let letters = slots.iter().all(|slot| ('A'..='D').contains(slot));
    letters.then(|| (slots.into_iter().collect(), cell.contains('b')))
}

/// Whether a value says which slots are filled: the slots' names, or a word for all or none.
fn says_slots(value: &Value) -> bool {
    let named = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || "@._+/* ".contains(c);
    match value {
        Value::Text(text) => {
            let slots =
                text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(named);
            value.is_off() || value.is_on() || slots
        }
        Value::Bool(_) => true,
        Value::Number(n) => n.den == 1 && matches!(n.num, 0 | 1),
        Value::List(_) => false,
    }
}

fn not_slots(key: &str, cell: &str) -> BadInput {
    let message = format!("`{key}` is `{}`, which does not name slots", cell.trim());
    BadInput::new(
        0,
        message,
        "write the slots that Canon layers fill, such as `ABCD`, or `yes` or `no`",
    )
}

/// Python's and YAML's words for an absent value.
fn is_null(cell: &str) -> bool {
    matches!(cell.trim(), "None" | "NULL" | "Null" | "null" | "~")
}

/// Translates a foreign word into ours.
pub(super) fn synonym(path: &str, value: Value) -> Value {
    let text = value.to_string();
    let words = vocabulary::find(path).map_or(&[][..], |row| row.synonyms);
    let ours = words.iter().find(|(theirs, _)| theirs.eq_ignore_ascii_case(&text));
    ours.map_or(value, |(_, ours)| Value::text(*ours))
}

/// The fields of an arch. If all layers agree on a field, it is listed once, without a layer number.
fn arch(
    compiled: &compiler::program::Compiled,
    definitions: &BTreeMap<String, String>,
    values: &mut BTreeMap<String, Value>,
) {
    let fills = verdict::fills(&compiled.graph);
    let is_canon = |set: &str, slot: &str| {
        let first = set.split('.').next().and_then(|first| first.parse().ok()).unwrap_or(0);
        fills.get(&(first, slot.to_owned())).copied().unwrap_or(false)
    };
    // A name does not identify a fill.
    let named = |name: &str| match definitions.get(name) {
        Some(own) => Value::text(format!("{name} [{own}]")),
        None => Value::parse(name).unwrap_or_else(|| Value::text("")),
    };
    let lines = crate::experiment::field_lines(&compiled.fields);
    let sets: BTreeSet<&str> = lines.iter().filter_map(|line| layer_set(&line.path)).collect();
    let alike = sets.len() <= 1;
    let mut slots = String::new();
    for line in &lines {
        let value = Value::parse(&line.value).unwrap_or_else(|| Value::text(""));
        let Some(set) = layer_set(&line.path) else {
            let slot = line.path.rsplit_once(".slots.").filter(|(_, slot)| !slot.contains('.'));
            let value = if slot.is_some() { named(&line.value) } else { value };
            values.insert(format!("arch.{}", line.path), value);
            continue;
        };
        let rest = line.path.get("layers.".len() + set.len()..).unwrap_or("");
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        let at = if alike { String::new() } else { format!("@{set}") };
        if let Some(slot) = rest.strip_prefix("slots.") {
            match (slot.split_once('.'), line.value.as_str()) {
                (None, "empty") => {}
                (None, _) if is_canon(set, slot) => slots += &format!("{slot}{at}"),
                // A fill that is not Canon is not the treatment, whatever its name is.
                (None, fill) => {
                    values.insert(format!("{FILL}.{slot}{at}"), named(fill));
                }
                // Settings of a Canon layer belong to the treatment.
                (Some((slot, setting)), _) if is_canon(set, slot) => {
                    values.insert(format!("{CANON}.{setting}.{slot}{at}"), value);
                }
                (Some((slot, setting)), _) => {
                    values.insert(format!("{FILL}.{setting}.{slot}{at}"), value);
                }
            }
            continue;
        }
        let (path, value) = match (rest, alike) {
            ("", true) => ("arch.decoder".to_owned(), value),
            (_, true) => (format!("arch.{rest}"), value),
            (_, false) => (format!("arch.{}", line.path), value),
        };
        values.insert(path, value);
    }
    values.insert(CANON.to_owned(), Value::text(slots));
    if let Some(kind) = values.get("arch.mixer").map(Value::to_string) {
        values.entry("arch.mixer.short_conv".to_owned()).or_insert(Value::Bool(false));
        if kind != "attention" {
            values.entry("arch.mixer.qk_norm".to_owned()).or_insert(Value::Bool(false));
        }
    }
}

/// Returns `0..24` for `layers.0..24.mixer.heads`; `None` for `layers`.
fn layer_set(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("layers.")?;
    let end = rest.find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |at| at - 1);
    rest.get(..end)
}
