//! Experiments as flat maps, read from tables, foreign files or locks.
//!
//! In: rows of a table, keys of a foreign file, an experiment's lock. Out: [`Experiment`]s with the
//! vocabulary's keys. Must stay true: no key is dropped: one without a row is kept and listed as
//! unknown; if a key is given under two names, both values must agree; a value from a comment is marked.

use std::collections::{BTreeMap, BTreeSet};

use super::devices::Reading;
use super::launch;
use super::value::Value;
use super::vocabulary::{self, CANON, Topic};
use crate::verdict;
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

    fn at(self, name: &str, line: usize) -> BadInput {
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

/// Most columns and rows of a table.
const MAX_COLUMNS: usize = 1000;
const MAX_ROWS: usize = MAX_EXPERIMENTS;

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
        keys: impl IntoIterator<Item = (usize, &'a str, &'a str)>,
    ) -> Result<Experiment, BadInput> {
        let origin = Origin::Configuration;
        let mut experiment = Experiment { origin, ..Experiment::new(name, source) };
        for (line, key, cell) in keys {
            experiment.write(key, cell).map_err(|bad| bad.at(name, line))?;
        }
        experiment.finish();
        Ok(experiment)
    }

    /// Adds one foreign key.
    pub fn write(&mut self, key: &str, cell: &str) -> Result<(), BadInput> {
        if key == "model.canon_set" || key == "canon_set" {
            let cell = if is_null(cell) { "" } else { cell };
            let (slots, conv) = canon_set(cell).ok_or_else(|| not_slots(key, cell))?;
            self.put(CANON, key, Value::text(slots))?;
            return self.put("arch.mixer.short_conv", key, Value::Bool(conv));
        }
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
        let value = if words { Value::words(cell) } else { Value::parse(cell) };
        if known.is_none() && (value.is_some() || self.origin == Origin::Configuration) {
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
        if let Some(words) = vocabulary::numeric(path) {
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
        self.put(path, key, synonym(path, value))
    }

    /// Derives values that need all keys: shares of sources, devices of a launch, and slots and family if
    /// no other key gives them.
    fn finish(&mut self) {
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
            Experiment { canonc_runs, ..Experiment::of_lock(&name, source, &arm.experiment) }
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

/// Reads a table with a header line. Cells are separated by tabs, or by commas if the header has no tab.
pub fn table(source: &str, text: &str) -> Result<Vec<Experiment>, BadInput> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let Some((_, header)) = lines.next().filter(|(_, line)| !line.trim().is_empty()) else {
        let help = "the first line must name the columns: `model`, then keys such as `optim.lr`";
        return Err(BadInput::new(0, "the table is empty".to_owned(), help));
    };
    let separator = if header.contains('\t') { '\t' } else { ',' };
    let columns: Vec<String> = cells(header, separator)
        .map_err(|why| BadInput::new(1, why, QUOTES))?
        .iter()
        .map(|column| column.trim().to_owned())
        .collect();
    let name_at = columns.iter().position(|c| matches!(c.as_str(), "model" | "name"));
    let Some(name_at) = name_at else {
        let message =
            format!("no column is called `model` or `name`; the columns are {}", columns.len());
        return Err(BadInput::new(1, message, "name the experiments in a column `model`"));
    };
    if columns.len() > MAX_COLUMNS {
        let message = format!("the table has {} columns; at most {MAX_COLUMNS}", columns.len());
        return Err(BadInput::new(1, message, "leave out columns that no rule needs"));
    }
    for (at, column) in columns.iter().enumerate() {
        if columns.iter().take(at).any(|before| before == column) {
            let message = format!("two columns are called `{column}`");
            return Err(BadInput::new(1, message, "keep one of the two"));
        }
    }
    let mut experiments = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        if experiments.len() == MAX_ROWS {
            let message = format!("the table has more than {MAX_ROWS} rows");
            return Err(BadInput::new(number, message, "split it"));
        }
        let row = cells(line, separator).map_err(|why| BadInput::new(number, why, QUOTES))?;
        if row.len() != columns.len() {
            let message = format!(
                "the table has {}, but this row has {}",
                dsl::counted(columns.len(), "column"),
                dsl::counted(row.len(), "cell")
            );
            return Err(BadInput::new(
                number,
                message,
                "write one cell for each column, empty if the value is absent",
            ));
        }
        let name = row.get(name_at).map_or("", String::as_str);
        if name.trim().is_empty() {
            let help = "give every experiment a unique name";
            return Err(BadInput::new(number, "this row has no name".to_owned(), help));
        }
        let mut experiment = Experiment::new(name, format!("{source}:{number}"));
        for (column, cell) in columns.iter().zip(&row).filter(|(c, _)| *c != &columns[name_at]) {
            experiment.write(column, cell).map_err(|bad| bad.at(name, number))?;
        }
        experiment.finish();
        experiments.push(experiment);
    }
    if experiments.is_empty() {
        let help = "write one row for each experiment";
        return Err(BadInput::new(1, "the table has no rows".to_owned(), help));
    }
    Ok(experiments)
}

const QUOTES: &str = "close the quotation mark, and double one inside the quotes";

/// The cells of one line. Comma-separated cells may be quoted; tab-separated ones have no quoting.
fn cells(line: &str, separator: char) -> Result<Vec<String>, String> {
    if separator == '\t' {
        return Ok(line.split('\t').map(str::to_owned).collect());
    }
    let mut out = vec![String::new()];
    let mut quoted = false;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        let fresh = out.last().is_some_and(String::is_empty);
        match c {
            '"' if quoted && rest.peek() == Some(&'"') => {
                rest.next();
                out.last_mut().into_iter().for_each(|cell| cell.push('"'));
            }
            '"' if quoted || fresh => quoted = !quoted,
            ',' if !quoted => out.push(String::new()),
            c => out.last_mut().into_iter().for_each(|cell| cell.push(c)),
        }
    }
    if quoted { Err("a quotation mark is not closed".to_owned()) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_keys_become_ours() {
        let text = "model\tmodel.canon_set\toptim.lr\tmodel.model_name\tmine.key\tgpus_from_comment\n\
                    a\tAbbCD\t2e-3\tGLA5\tx\t128\n";
        let read = table("t.tsv", text).unwrap();
        let say = |path: &str| read[0].values.get(path).map(Value::to_string);
        assert_eq!(say("arch.canon").as_deref(), Some("ACD"));
        assert_eq!(say("arch.mixer.short_conv").as_deref(), Some("true"));
        assert_eq!(say("optimizer.lr").as_deref(), Some("0.002"));
        assert_eq!(say("arch.mixer").as_deref(), Some("gla"));
        assert_eq!(say("mine.key").as_deref(), Some("x"));
        assert!(read[0].unknown.iter().eq(["mine.key"]));
        assert!(read[0].comments.contains("platform.devices"));
        assert_eq!(read[0].source, "t.tsv:2");
    }

    #[test]
    fn invalid_tables() {
        for (text, want) in [
            ("", "the table is empty"),
            ("a\tb\n1\t2\n", "no column is called `model`"),
            ("model\ta\ta\n", "two columns are called `a`"),
            ("model\ta\nx\n", "the table has 2 columns, but this row has 1 cell"),
            ("model\ta\n\t1\n", "this row has no name"),
            ("model\ta\n", "the table has no rows"),
            ("model,a\nx,\"1\n", "a quotation mark is not closed"),
            (
                "model\toptimizer.lr\nx\tNaN\n",
                "`x`: `optimizer.lr` is `NaN`, which is not a finite number",
            ),
            (
                "model\toptim.weight_decay\nx\t1e400\n",
                "`optim.weight_decay` is `1e400`, which is out",
            ),
            ("model\tlr\tsteps\nx\tNaN\tinf\n", "`steps` is `inf`, which is not a finite number"),
            (
                "model\tseeds.data\nx\ttrue\n",
                "`seeds.data` is `true`, which is not a finite number",
            ),
            ("model\tarch.canon.kernel.A\nx\tNaN\n", "`arch.canon.kernel.A` is `NaN`"),
            ("model\tcanon\nx\tmaybe\n", "`x`: `canon` is `maybe`, which does not name slots"),
            ("model\tcanon\nx\twithout\n", "`canon` is `without`"),
            ("model\tcanon\nx\t0.5\n", "`canon` is `0.5`"),
            ("model\tarch.canon\nx\tperhaps\n", "`arch.canon` is `perhaps`"),
            ("model\tmodel.canon_set\nx\tmaybe\n", "`model.canon_set` is `maybe`"),
            ("model\tmodel.canon_set\nx\tabcd\n", "`model.canon_set` is `abcd`"),
            ("model\tmodel.canon_set\nx\tAZ\n", "`model.canon_set` is `AZ`"),
            ("model\tsteps\tbudget.steps\nx\t1\t2\n", "`steps` is 1, but `budget.steps`"),
        ] {
            let error = table("t", text).unwrap_err();
            assert!(error.message.contains(want), "{text:?}: {}", error.message);
        }
        let read = table("t", "model,a\nx,\"1,\"\"2\"\"\"\n").unwrap();
        assert_eq!(read[0].values["a"], Value::text("1,\"2\""));
    }
}
