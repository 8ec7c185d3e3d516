//! What follows from an experiment's keys and from its name.
//!
//! In: an [`Experiment`]. Out: a [`Subject`]: every key with its effective value, derived quantities,
//! and what the name claims. Must stay true: derived values are exact; a default is filled in only
//! where the vocabulary says what an absent key means; a name decides nothing but what it is
//! compared with and whom it is paired with.

use std::collections::{BTreeMap, BTreeSet};

use dsl::Decimal;

use super::experiment::{Experiment, Origin};
use super::value::Value;
use super::vocabulary::{self, Absent, Topic};
use crate::value::Ratio;

pub(super) const TOKENS_PER_STEP: &str = "batch.tokens_per_step";
pub(super) const TOKENS: &str = "budget.tokens";
pub(super) const ROPE_SHARE: &str = "arch.mixer.rope.share";
pub(super) const ROPE_DIMS: &str = "arch.mixer.rope.dims";
pub(super) const DEVICES: &str = "platform.devices";

/// Derived here and nowhere written: no difference of their own.
const DERIVED: [&str; 3] = [ROPE_SHARE, "optimizer.lr_wd_steps", "schedule.warmup_share"];

/// An effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub value: Value,
    /// Else it is what an absent key means, or follows from others.
    pub written: bool,
}

/// An experiment, ready for the rules.
#[derive(Clone, Debug)]
pub struct Subject {
    pub name: String,
    pub source: String,
    pub facts: BTreeMap<String, Fact>,
    pub claims: Claims,
    /// What the author called a key.
    pub written_as: BTreeMap<String, String>,
    /// Tokens follow from the keys only with a number that stands in a comment.
    pub budget_in_comment: bool,
    pub comments: BTreeSet<String>,
    /// What it is sorted by: what mixes, and how large it is.
    pub family: String,
    pub size: String,
    pub origin: Origin,
    /// Keys that no table has a row for.
    pub unknown: BTreeSet<String>,
    /// What a rules file says of such keys.
    pub own: BTreeMap<String, Topic>,
}

/// What a name says of its experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The name without the words that tell arms apart.
    pub stem: String,
    pub canon: bool,
    /// `1B`
    pub size: Option<String>,
    /// `1T`, and the number that is.
    pub tokens: Option<(String, Ratio)>,
    /// Key, value, and the part of the name that says so.
    pub numbers: Vec<(&'static str, Ratio, String)>,
}

/// Words that tell arms apart, at the end or the beginning of a part of a name.
pub const ARM_WORDS: &[&str] = &["canon", "baseline", "base", "control", "conv", "plain", "twin"];

/// Parts of names that give a number, and of which key.
pub const NAME_WORDS: &[(&str, &str)] = &[
    ("ctx", "data.seq_len"),
    ("decay", "optimizer.weight_decay"),
    ("lr", "optimizer.lr"),
    ("steps", "budget.steps"),
    ("warmup", "schedule.warmup"),
    ("wd", "optimizer.weight_decay"),
];

impl Claims {
    pub fn of(name: &str) -> Claims {
        let mut claims = Claims::default();
        let mut stem: Vec<String> = Vec::new();
        for part in name.split(['-', '_', '/', ' ']).filter(|part| !part.is_empty()) {
            let lower = part.to_ascii_lowercase();
            claims.canon |= lower.contains("canon");
            if let Some((number, unit)) = quantity(part) {
                match unit {
                    'T' if claims.tokens.is_none() => {
                        let tera = Ratio { num: 1_000_000_000_000, den: 1 };
                        claims.tokens = number.mul(tera).map(|n| (part.to_owned(), n));
                    }
                    'B' if claims.size.is_some() && claims.tokens.is_none() => {
                        let giga = Ratio { num: 1_000_000_000, den: 1 };
                        claims.tokens = number.mul(giga).map(|n| (part.to_owned(), n));
                    }
                    'B' | 'M' if claims.size.is_none() => claims.size = Some(part.to_owned()),
                    _ => {}
                }
                stem.push(lower);
                continue;
            }
            let digits = lower.find(|c: char| c.is_ascii_digit()).unwrap_or(lower.len());
            let (word, number) = lower.split_at(digits);
            let path = NAME_WORDS.iter().find(|(known, _)| *known == word);
            let number = Decimal::parse(number).ok().and_then(Ratio::from_decimal);
            if let (Some((_, path)), Some(number)) = (path, number) {
                claims.numbers.push((path, number, part.to_owned()));
                stem.push(lower);
                continue;
            }
            let bare = without_arm(&lower);
            if !bare.is_empty() {
                stem.push(bare);
            }
        }
        claims.stem = stem.join("-");
        claims
    }
}

/// `1.3B`: a number and its unit, and nothing else.
pub(super) fn quantity(part: &str) -> Option<(Ratio, char)> {
    let unit = part.chars().next_back().filter(|c| matches!(c, 'T' | 'B' | 'M'))?;
    let digits = part.strip_suffix(unit)?;
    let plain = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number = Decimal::parse(digits).ok().filter(|_| plain).and_then(Ratio::from_decimal)?;
    Some((number, unit))
}

fn without_arm(part: &str) -> String {
    // `GDN2CanonAbCD`: the slots' letters go with the word.
    if let Some((before, after)) = part.split_once("canon")
        && after.chars().all(|c| matches!(c, 'a'..='d'))
    {
        return before.to_owned();
    }
    for word in ARM_WORDS {
        if let Some(bare) = part.strip_suffix(word).or_else(|| part.strip_prefix(word)) {
            return bare.to_owned();
        }
    }
    part.to_owned()
}

impl Subject {
    pub fn of(experiment: &Experiment) -> Subject {
        let Experiment { name, source, values, written_as, comments, unknown, empty, own, origin } =
            experiment;
        let written = values
            .iter()
            .map(|(path, value)| (path.clone(), Fact { value: value.clone(), written: true }));
        let mut facts: BTreeMap<String, Fact> = written.collect();
        let claims = Claims::of(name);
        let counted = facts.contains_key(TOKENS_PER_STEP);
        // What another trainer's default is for.
        let has_default = |path: &str| *origin == Origin::Configuration || empty.contains(path);
        derive(&mut facts, &has_default);
        let text = |path: &str| facts.get(path).map(|fact| fact.value.to_string());
        // Of layers that are not all alike, every mixer there is.
        let layers = facts.iter().filter(|(path, _)| path.ends_with(".mixer"));
        let mut mixers: Vec<String> = layers.map(|(_, fact)| fact.value.to_string()).collect();
        mixers.sort();
        mixers.dedup();
        let family = mixers.join("+");
        let size = claims
            .size
            .clone()
            .or_else(|| Some(format!("{}x{}", text("arch.layers")?, text("arch.dim")?)));
        let budget_in_comment =
            !counted && comments.contains(DEVICES) && facts.contains_key(TOKENS_PER_STEP);
        Subject {
            name: name.clone(),
            source: source.clone(),
            claims,
            written_as: written_as.clone(),
            budget_in_comment,
            comments: comments.clone(),
            family,
            origin: *origin,
            unknown: unknown.clone(),
            own: own.clone(),
            size: size.unwrap_or_else(|| "?".to_owned()),
            facts,
        }
    }

    /// What a difference in a key is about.
    pub fn topic(&self, path: &str) -> Topic {
        self.own.get(path).copied().unwrap_or_else(|| vocabulary::class(path))
    }

    pub fn value(&self, path: &str) -> Option<&Value> {
        self.facts.get(path).map(|fact| &fact.value)
    }

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

    /// What a set is sorted by: `task`, `family`, `size`, `tokens` (as the name has it), or any key.
    pub fn label(&self, label: &str) -> String {
        match label {
            "task" => self.value("data.task").map_or("text".to_owned(), Value::to_string),
            "family" => self.family.clone(),
            "size" => self.size.clone(),
            "tokens" => self.claims.tokens.as_ref().map_or_else(String::new, |(t, _)| t.clone()),
            path => self.shown(path),
        }
    }

    /// Keys whose difference is one of its own: written ones, and what an absent one means.
    pub fn compared(&self) -> impl Iterator<Item = &str> {
        self.facts
            .iter()
            .filter(|(path, fact)| {
                let follows = matches!(path.as_str(), TOKENS_PER_STEP | TOKENS) && !fact.written;
                let topic = self.topic(path);
                !follows && !DERIVED.contains(&path.as_str()) && topic != Topic::Reported
            })
            .map(|(path, _)| path.as_str())
    }

    /// Whether its tokens per step follow without the number of devices.
    pub(super) fn counts_its_step(&self) -> bool {
        self.facts.get(TOKENS_PER_STEP).is_some_and(|fact| fact.written)
            || self.facts.contains_key("batch.micro_batches")
    }

    /// What decides which tokens it reads, in which order and portions: equal texts, equal batches.
    pub fn reads(&self) -> String {
        let data = |path: &&str| self.topic(path) == Topic::Data;
        let line = |path: &str| format!("{path} = {}\n", self.shown(path));
        let mut text: String = self.compared().filter(data).map(line).collect();
        text += &line(TOKENS_PER_STEP);
        text
    }

    pub fn treated(&self, treatment: &[String]) -> bool {
        treatment.iter().any(|path| self.value(path).is_some_and(|value| !value.is_off()))
    }
}

/// Whether a key speaks of softmax attention only.
fn of_attention(path: &str) -> bool {
    path.starts_with("arch.mixer.rope.") || path == "arch.mixer.kv_heads"
}

/// Whether an absent key means something beside the others.
fn speaks(facts: &BTreeMap<String, Fact>, path: &str, by_layer: bool) -> bool {
    let mixer = facts.get("arch.mixer").map(|fact| &fact.value);
    let attention = matches!(mixer, Some(Value::Text(mixer)) if mixer == "attention");
    !(by_layer && path.starts_with("arch.m")) && (attention || !of_attention(path))
}

fn derive(facts: &mut BTreeMap<String, Fact>, has_default: &dyn Fn(&str) -> bool) {
    let number = |facts: &BTreeMap<String, Fact>, path: &str| facts.get(path)?.value.number();
    let put = |facts: &mut BTreeMap<String, Fact>, path: &str, value: Option<Value>| {
        if let Some(value) = value
            && !facts.contains_key(path)
        {
            facts.insert(path.to_owned(), Fact { value, written: false });
        }
    };
    let over = |a: Option<Ratio>, b: Option<Ratio>| Some(Value::Number(a?.div(b?)?));
    // Layers that are not all alike say themselves what they are.
    let by_layer = facts.keys().any(|path| path.starts_with("arch.layers."));
    for key in vocabulary::rows() {
        let value = match key.absent {
            // Empty is a value of its own: no slot is filled.
            Absent::Is(text) => Some(Value::parse(text).unwrap_or_else(|| Value::text(""))),
            Absent::Default(text) if has_default(key.path) => Value::parse(text),
            Absent::Default(_) | Absent::As(_) | Absent::Unknown => None,
        };
        if speaks(facts, key.path, by_layer) {
            put(facts, key.path, value);
        }
    }
    let head_dim = over(number(facts, "arch.dim"), number(facts, "arch.mixer.heads"));
    put(facts, "arch.mixer.head_dim", head_dim);
    for key in vocabulary::rows() {
        if let Absent::As(other) = key.absent
            && speaks(facts, key.path, by_layer)
        {
            let value = facts.get(other).map(|fact| fact.value.clone());
            put(facts, key.path, value);
        }
    }
    let share = over(number(facts, ROPE_DIMS), number(facts, "arch.mixer.head_dim"));
    put(facts, ROPE_SHARE, share);
    let many = number(facts, "batch.micro_batches").or_else(|| number(facts, DEVICES));
    let per_step = (|| {
        let rows = number(facts, "batch.sequences")?.mul(number(facts, "batch.accumulation")?)?;
        rows.mul(many?)?.mul(number(facts, "data.seq_len")?)
    })();
    put(facts, TOKENS_PER_STEP, per_step.map(Value::Number));
    let steps = number(facts, "budget.steps");
    let tokens = (|| number(facts, TOKENS_PER_STEP)?.mul(steps?))();
    put(facts, TOKENS, tokens.map(Value::Number));
    let product = (|| {
        number(facts, "optimizer.lr")?.mul(number(facts, "optimizer.weight_decay")?)?.mul(steps?)
    })();
    put(facts, "optimizer.lr_wd_steps", product.map(Value::Number));
    let share = over(number(facts, "schedule.warmup"), steps);
    put(facts, "schedule.warmup_share", share);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_claim() {
        let claims = Claims::of("GDN2Canon-1B-Nemo-1T-lr0.002");
        assert_eq!(claims.stem, "gdn2-1b-nemo-1t-lr0.002");
        assert!(claims.canon);
        assert_eq!(claims.size.as_deref(), Some("1B"));
        assert_eq!(claims.tokens.as_ref().unwrap().0, "1T");
        assert_eq!(claims.numbers[0].0, "optimizer.lr");
        for (a, b) in [
            ("GLA5conv-1B-Nemo-1T-lr0.002", "GLA5Canon-1B-Nemo-1T-lr0.002"),
            ("Llama-8B-Nemo-1T-lr0.003", "LlamaCanon-8B-Nemo-1T-lr0.003"),
            ("1.3B-GDN2-Nemo-1.0T-lr0.002", "1.3B-GDN2CanonAbCD-Nemo-1.0T-lr0.002"),
            ("demo/first", "demo/firstcanon"),
        ] {
            assert_eq!(Claims::of(a).stem, Claims::of(b).stem);
        }
        let claims = Claims::of("s-first-lr0.002-weight_decay0.15");
        let said: Vec<&str> = claims.numbers.iter().map(|(path, _, _)| *path).collect();
        assert_eq!(said, ["optimizer.lr", "optimizer.weight_decay"]);
    }
}
