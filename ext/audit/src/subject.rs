//! An experiment with everything that follows from its keys, and the claims of its name.
//!
//! Derived values are exact. A default is filled in only if the vocabulary gives the meaning of an absent key.

use std::collections::{BTreeMap, BTreeSet};

use compiler::number::Ratio;
use lab::field::{Absent, FieldDef, Topic};

use crate::claims::Claims;
use crate::devices::Reading;
use crate::experiment::{Declared, Experiment, Origin};
use crate::keys::{
    self, DEVICES, NODE_DEVICES, NODE_TASKS, NODES, ROPE_DIMS, ROPE_SHARE, TOKENS, TOKENS_PER_STEP,
};
use crate::value::KeyValue;
use crate::vocabularies::{LINGUA, Vocabulary};

/// Derived keys. If nobody wrote them, a difference in one is not listed separately.
const DERIVED: [&str; 3] = [ROPE_SHARE, "optimizer.lr_wd_steps", "schedule.warmup_share"];

/// An effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub value: KeyValue,
    /// If false, the value is the meaning of an absent key, or follows from other keys.
    pub written: bool,
}

/// An experiment, ready for the rules.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The author's name for it.
    pub name: String,
    /// The file it was read from, with the line if there is one.
    pub source: String,
    /// Effective values by key, each with its origin.
    pub facts: BTreeMap<String, Fact>,
    /// What its name and description say about it.
    pub claims: Claims,
    /// The author's names for keys.
    pub written_as: BTreeMap<String, String>,
    /// The number of tokens depends on a number that only a comment gives.
    pub budget_in_comment: bool,
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
    /// The mixers, joined by `+`. A set is grouped by family and size.
    pub family: String,
    /// Its size as its name gives it (`1B`); `?` if unknown.
    pub size: String,
    /// The kind of file it was read from.
    pub origin: Origin,
    /// Keys without a row in any table.
    pub unknown: BTreeSet<String>,
    /// Topics that a rules file or another vocabulary gives to keys without a field of ours.
    pub own: BTreeMap<String, Topic>,
    /// Whose names its keys are.
    pub vocabulary: &'static Vocabulary,
    /// Keys that hold results.
    pub results: BTreeSet<String>,
    /// The state of a run that did not reach its end.
    pub unfinished: Option<String>,
    /// Comparisons that declare it as an arm.
    pub declared: Vec<Declared>,
}

impl Subject {
    /// Derives the facts and claims of an experiment.
    pub fn new(experiment: &Experiment) -> Subject {
        let Experiment {
            name,
            source,
            values,
            written_as,
            comments,
            devices,
            definitions,
            redefined,
            canonc_runs,
            unknown,
            empty,
            own,
            origin,
            vocabulary,
            results,
            unfinished,
            declared,
        } = experiment;
        let written = |(path, value): (&String, &KeyValue)| {
            (path.clone(), Fact { value: value.clone(), written: true })
        };
        let mut facts: BTreeMap<String, Fact> = values.iter().map(written).collect();
        // A lock's arm is called `comparison/arm`.
        let claims = Claims::read(name, *origin == Origin::Lock && name.contains('/'));
        let counted = facts.contains_key(TOKENS_PER_STEP);
        // Keys for which another trainer's default applies.
        let has_default = |path: &str| *origin == Origin::Configuration || empty.contains(path);
        derive(&mut facts, *vocabulary == &LINGUA, &has_default);
        let size = claims.size.clone().or_else(|| size_of(&facts));
        let budget_in_comment =
            !counted && comments.contains(DEVICES) && facts.contains_key(TOKENS_PER_STEP);
        Subject {
            name: name.clone(),
            source: source.clone(),
            claims,
            written_as: written_as.clone(),
            budget_in_comment,
            comments: comments.clone(),
            devices: devices.clone(),
            definitions: definitions.clone(),
            redefined: redefined.clone(),
            canonc_runs: canonc_runs.clone(),
            family: family_of(&facts),
            origin: *origin,
            unknown: unknown.clone(),
            own: own.clone(),
            vocabulary,
            results: results.clone(),
            unfinished: unfinished.clone(),
            declared: declared.clone(),
            size: size.unwrap_or_else(|| "?".to_owned()),
            facts,
        }
    }

    /// The topic of a difference in a key.
    pub fn topic(&self, path: &str) -> Topic {
        self.own.get(path).copied().unwrap_or_else(|| keys::class(path))
    }

    /// The effective value of a key.
    pub fn value(&self, path: &str) -> Option<&KeyValue> {
        self.facts.get(path).map(|fact| &fact.value)
    }

    /// Whether two experiments have one value at a key. A documented default is the same as no value.
    pub(crate) fn agrees(&self, other: &Subject, path: &str) -> bool {
        match (self.value(path), other.value(path)) {
            (None, Some(value)) => self.default_of(path).as_ref() == Some(value),
            (Some(value), None) => other.default_of(path).as_ref() == Some(value),
            (one, two) => one == two,
        }
    }

    /// Another trainer's default, which no report shows.
    fn default_of(&self, path: &str) -> Option<KeyValue> {
        let of_key = || self.vocabulary.find(path).and_then(|(_, default)| default);
        let text = self.vocabulary.default_of(path).or_else(of_key)?;
        KeyValue::parse(text).map(|value| keys::normal(path, value))
    }

    /// The effective value of a key, if it is a number.
    pub fn number(&self, path: &str) -> Option<Ratio> {
        self.value(path)?.number()
    }

    /// A value as text; `absent` where there is none.
    pub fn shown(&self, path: &str) -> String {
        self.value(path).map_or_else(
            || "absent".to_owned(),
            |value| match value.to_string() {
                empty if empty.is_empty() => "none".to_owned(),
                text => text,
            },
        )
    }

    /// A label to group by: `task`, `family`, `size`, `tokens` (as in the name), or any key.
    pub fn label(&self, label: &str) -> String {
        match label {
            "task" => self.value("data.task").map_or("text".to_owned(), KeyValue::to_string),
            "family" => self.family.clone(),
            "size" => self.size.clone(),
            "tokens" => self.claims.tokens.as_ref().map_or_else(String::new, |(t, _)| t.clone()),
            path => self.shown(path),
        }
    }

    /// Keys to compare: written ones, and absent ones with a defined meaning.
    pub fn compared(&self) -> impl Iterator<Item = &str> {
        self.facts
            .iter()
            .filter(|(path, fact)| {
                let derived = [TOKENS_PER_STEP, TOKENS].iter().chain(&DERIVED);
                let follows = !fact.written && derived.into_iter().any(|known| known == path);
                !follows && self.topic(path) != Topic::Reported
            })
            .map(|(path, _)| path.as_str())
    }

    /// Whether tokens per step follow from the keys without the number of devices.
    pub(crate) fn counts_its_step(&self) -> bool {
        self.facts.get(TOKENS_PER_STEP).is_some_and(|fact| fact.written)
            || self.facts.contains_key("batch.micro_batches")
    }

    /// Whether the keys give both the nodes of the launch and the devices per node, so that the product counts devices.
    pub(crate) fn counts_its_launch(&self) -> bool {
        let each = [NODE_DEVICES, NODE_TASKS].iter().any(|path| self.facts.contains_key(*path));
        each && self.facts.contains_key(NODES)
    }

    /// The keys that determine the tokens, their order and their batches: equal texts mean equal batches.
    pub fn reads(&self) -> String {
        let data = |path: &&str| self.topic(path) == Topic::Data;
        let line = |path: &str| format!("{path} = {}\n", self.shown(path));
        let mut text: String = self.compared().filter(data).map(line).collect();
        text += &line(TOKENS_PER_STEP);
        text
    }

    /// Whether any key of the treatment is set to something other than off.
    pub fn treated(&self, treatment: &[String]) -> bool {
        treatment.iter().any(|path| self.value(path).is_some_and(|value| !value.is_off()))
    }
}

/// The mixers, all of them if layers differ.
fn family_of(facts: &BTreeMap<String, Fact>) -> String {
    let mixers = facts.iter().filter(|(path, _)| path.ends_with(".mixer"));
    let mixers: BTreeSet<String> = mixers.map(|(_, fact)| fact.value.to_string()).collect();
    mixers.into_iter().collect::<Vec<_>>().join("+")
}

/// Layers x width.
fn size_of(facts: &BTreeMap<String, Fact>) -> Option<String> {
    let text = |path: &str| facts.get(path).map(|fact| fact.value.to_string());
    Some(format!("{}x{}", text("arch.layers")?, text("arch.dim")?))
}

/// Whether a key applies to softmax attention only.
fn of_attention(path: &str) -> bool {
    path.starts_with("arch.mixer.rope.") || path == "arch.mixer.kv_heads"
}

/// Whether an absent key has a meaning, given the other keys.
fn has_meaning(facts: &BTreeMap<String, Fact>, path: &str, by_layer: bool) -> bool {
    let mixer = facts.get("arch.mixer").map(|fact| &fact.value);
    let attention = matches!(mixer, Some(KeyValue::Text(mixer)) if mixer == "attention");
    !(by_layer && path.starts_with("arch.m")) && (attention || !of_attention(path))
}

/// Removes written defaults of keys that the mixer does not read: they mean the same as absent keys.
fn drop_unread(facts: &mut BTreeMap<String, Fact>, by_layer: bool) {
    let unread =
        |path: &str| facts.contains_key("arch.mixer") && !has_meaning(facts, path, by_layer);
    let usual = |key: &FieldDef| match key.absent {
        Absent::Is(text) | Absent::Default(text) => {
            Some(keys::normal(key.path, KeyValue::parse(text)?))
        }
        Absent::As(other) => facts.get(other).map(|fact| fact.value.clone()),
        Absent::Unknown => None,
    };
    let idle = |key: &&FieldDef| {
        let value = facts.get(key.path).map(|fact| &fact.value);
        of_attention(key.path)
            && unread(key.path)
            && value.is_some()
            && value == usual(key).as_ref()
    };
    let idle: Vec<&'static str> = keys::rows().filter(idle).map(|key| key.path).collect();
    for path in idle {
        facts.remove(path);
    }
}

/// Adds what follows from the keys. `ours`: keys of canonc or Lingua, where an absent key has a meaning.
fn derive(facts: &mut BTreeMap<String, Fact>, ours: bool, has_default: &dyn Fn(&str) -> bool) {
    let number = |facts: &BTreeMap<String, Fact>, path: &str| facts.get(path)?.value.number();
    let add = |facts: &mut BTreeMap<String, Fact>, path: &str, value: Option<KeyValue>| {
        if let Some(value) = value
            && !facts.contains_key(path)
        {
            facts.insert(path.to_owned(), Fact { value, written: false });
        }
    };
    let quotient = |a: Option<Ratio>, b: Option<Ratio>| Some(KeyValue::Number(a?.div(b?)?));
    // If layers differ, each one has its own keys.
    let by_layer = facts.keys().any(|path| path.starts_with("arch.layers."));
    for key in keys::rows().filter(|_| ours) {
        let value = match key.absent {
            // The empty text is a value: no slot is filled.
            Absent::Is(text) => {
                let value = KeyValue::parse(text).unwrap_or_else(|| KeyValue::text(""));
                Some(keys::normal(key.path, value))
            }
            Absent::Default(text) if has_default(key.path) => {
                KeyValue::parse(text).map(|value| keys::normal(key.path, value))
            }
            Absent::Default(_) | Absent::As(_) | Absent::Unknown => None,
        };
        if has_meaning(facts, key.path, by_layer) {
            add(facts, key.path, value);
        }
    }
    let head_dim = quotient(number(facts, "arch.dim"), number(facts, "arch.mixer.heads"));
    add(facts, "arch.mixer.head_dim", head_dim.filter(|_| ours));
    for key in keys::rows().filter(|_| ours) {
        if let Absent::As(other) = key.absent
            && has_meaning(facts, key.path, by_layer)
        {
            let value = facts.get(other).map(|fact| fact.value.clone());
            add(facts, key.path, value);
        }
    }
    if ours {
        drop_unread(facts, by_layer);
    }
    let share = quotient(number(facts, ROPE_DIMS), number(facts, "arch.mixer.head_dim"));
    add(facts, ROPE_SHARE, share);
    let many = number(facts, "batch.micro_batches").or_else(|| number(facts, DEVICES));
    let per_step = (|| {
        let rows = number(facts, "batch.sequences")?.mul(number(facts, "batch.accumulation")?)?;
        rows.mul(many?)?.mul(number(facts, "data.seq_len")?)
    })();
    add(facts, TOKENS_PER_STEP, per_step.map(KeyValue::Number));
    let steps = number(facts, "budget.steps");
    let tokens = (|| number(facts, TOKENS_PER_STEP)?.mul(steps?))();
    add(facts, TOKENS, tokens.map(KeyValue::Number));
    let product = (|| {
        number(facts, "optimizer.lr")?.mul(number(facts, "optimizer.weight_decay")?)?.mul(steps?)
    })();
    add(facts, "optimizer.lr_wd_steps", product.map(KeyValue::Number));
    let share = quotient(number(facts, "schedule.warmup"), steps);
    add(facts, "schedule.warmup_share", share);
}
