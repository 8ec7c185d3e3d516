//! Foreign keys and their cells become values of an experiment.
//!
//! If a key of Lingua is given under two names, both values must agree.

use compiler::number::Ratio;
use lab::field::Topic;

use crate::experiment::{BadInput, Experiment, Names, Origin};
use crate::keys::{self, CANON, COMMENT, COUNTS, synonym};
use crate::value::KeyValue;
use crate::vocabularies::{self, GENERIC, LINGUA, Meaning};

impl Experiment {
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
        if vocabulary.has_synonyms() {
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
            self.put(CANON, key, KeyValue::text(slots))?;
            // Where no default is known, a file without the key says the same as one without the convolution.
            return match conv || *self.vocabulary == LINGUA {
                true => self.put("arch.mixer.short_conv", key, KeyValue::Bool(conv)),
                false => Ok(()),
            };
        }
        if let Some(path) = names.own.get(key) {
            return match KeyValue::parse(cell) {
                Some(value) => self.put(path, key, value),
                None => Ok(()),
            };
        }
        if *self.vocabulary != LINGUA {
            return self.write_foreign(key, cell);
        }
        if keys::path_of(key).is_none() && self.is_result(key, cell) {
            return Ok(());
        }
        self.write_known(key, cell)
    }

    /// Adds a key of another trainer than Lingua: its values are not checked, and no other key follows from it.
    fn write_foreign(&mut self, key: &str, cell: &str) -> Result<(), BadInput> {
        let meaning = keys::foreign(self.vocabulary, key);
        let decides = || keys::known(key).is_some_and(|row| row.topic.decides());
        let known = keys::is_shared(key) || (*self.vocabulary == GENERIC && decides());
        if meaning.is_none() && known {
            return self.write_known(key, cell);
        }
        if meaning.is_none() && self.is_result(key, cell) {
            return Ok(());
        }
        let default = meaning.and_then(|(_, default)| default).and_then(KeyValue::parse);
        // No value, where the default is a number, is a setting of its own. So it is where nothing is known of the key.
        let nothing = is_null(cell) && self.origin == Origin::Configuration;
        let kept = nothing && (meaning.is_none() || matches!(default, Some(KeyValue::Number(_))));
        let value = match is_null(cell) {
            true => kept.then(|| KeyValue::text("null")),
            false if keys::is_name(key) && !matches!(meaning, Some((Meaning::Is(_), _))) => {
                KeyValue::named(cell)
            }
            false => match self.origin {
                // YAML 1.1, which most trainers read, has more words for true and false.
                Origin::Configuration => KeyValue::parse(cell).map(KeyValue::switched),
                Origin::Table | Origin::Lock => KeyValue::parse(cell),
            },
        };
        let Some(value) = value else { return Ok(()) };
        match meaning {
            Some((Meaning::Is(path), _)) => {
                let ours = keys::normal(path, value.clone());
                // A trainer may have two keys for one quantity, and read only one of them.
                if self.values.get(path).is_none_or(|before| *before == ours) {
                    return self.put(path, key, ours);
                }
                self.own.insert(key.to_owned(), keys::class(path));
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
        if keys::is_model_size(key) {
            if let Some(value) = KeyValue::parse(&keys::count_of(cell)) {
                self.written_as.insert("arch.parameters".to_owned(), key.to_owned());
                self.values.insert("arch.parameters".to_owned(), value);
            }
            return true;
        }
        let result = keys::is_result(key, cell, self.origin == Origin::Table);
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
        let known = keys::path_of(key);
        let path = known.as_deref().unwrap_or(key);
        let row = known.as_deref().and_then(keys::row);
        let words = row.is_some_and(keys::is_list);
        // Python's and YAML's null becomes the key's own word for it, if it has one.
        let cell = match cell.trim() {
            _ if is_null(cell) && row.is_some_and(keys::has_none) => "none",
            _ if is_null(cell) => "",
            cell => cell,
        };
        let value = match words {
            true => KeyValue::words(cell),
            false if known.is_none() && keys::is_name(key) => KeyValue::named(cell),
            false => KeyValue::parse(cell),
        };
        let null = self.origin == Origin::Configuration && known.is_none();
        let value = value.or_else(|| null.then(|| KeyValue::text("null")));
        if known.is_none() && value.is_some() {
            self.unknown.insert(key.to_owned());
        }
        let Some(value) = value else {
            self.empty.insert(path.to_owned());
            return Ok(());
        };
        if COUNTS.contains(&path) {
            self.launched(path, key, value);
            return Ok(());
        }
        if let Some(words) = keys::numeric(path).filter(|_| checked) {
            // Lingua's switch loss.nll_square is a factor in a lock.
            let switch = matches!(value, KeyValue::Bool(_)) && keys::is_switch(path);
            let normal = keys::normal(path, value.clone());
            let off = normal == KeyValue::Bool(false) || Some(normal.to_string().as_str()) == words;
            if !switch && !off {
                check_number(key, cell, &value, words)?;
            }
        }
        if [CANON, "reported.canon"].contains(&path) && !says_slots(&value) {
            return Err(not_slots(key, cell));
        }
        // All words for none are one value.
        let value = if path == CANON && value.is_off() { KeyValue::text("") } else { value };
        if key.ends_with(COMMENT) {
            self.comments.insert(path.to_owned());
        }
        let value = if lingua { synonym(path, value) } else { value };
        self.put(path, key, value)
    }

    /// Derives values that need all keys: shares of sources, devices of a launch, and slots and family if
    /// no other key gives them.
    pub(crate) fn finish(&mut self) {
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
                self.values.insert(path.clone(), KeyValue::Number(share));
            }
        }
        self.count_launch();
        // A table may record that there are Canon layers without recording where.
        let canon = self.values.get("reported.canon").cloned();
        let unsaid = self.origin == Origin::Table && !self.values.contains_key(CANON);
        if let Some(canon) = canon.filter(|_| unsaid) {
            let filled = if canon.is_off() { KeyValue::text("") } else { canon };
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

    fn put(&mut self, path: &str, key: &str, value: KeyValue) -> Result<(), BadInput> {
        let value = keys::normal(path, value);
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
}

/// Checks that a numeric key holds a number or one of its words. Rules would skip anything else.
fn check_number(
    key: &str,
    cell: &str,
    value: &KeyValue,
    word: Option<&str>,
) -> Result<(), BadInput> {
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
fn says_slots(value: &KeyValue) -> bool {
    let named = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || "@._+/* ".contains(c);
    match value {
        KeyValue::Text(text) => {
            let slots =
                text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(named);
            value.is_off() || value.is_on() || slots
        }
        KeyValue::Bool(_) => true,
        KeyValue::Number(n) => n.den == 1 && matches!(n.num, 0 | 1),
        KeyValue::List(_) => false,
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
