//! Experiments of locks: every free field with its effective value, the arch's own fields, and what comparisons declare.

use std::collections::{BTreeMap, BTreeSet};

use compiler::canonical;
use compiler::digest::Digest;
use compiler::erase::erase_all;
use compiler::program::Compiled;
use lab::comparison::{Arm, Comparison};
use lab::experiment::field_lines;
use lab::field::FieldValue;
use lab::verdict::{self, Outcome};

use crate::experiment::{Declared, Experiment, Origin};
use crate::keys::{self, BARE_GRAPH, BARE_MANIFEST, CANON, SLOT_PLACES};
use crate::value::KeyValue;

/// The fill of a slot that is not a Canon layer.
const FILL: &str = "arch.fill";

impl Experiment {
    /// The arms of a comparison. If the comparison declares that canonc runs every arm, keys that only another trainer
    /// reads have no effect.
    pub fn of_comparison(source: &str, lock: &Comparison) -> Vec<Experiment> {
        let canonc_runs = (lock.trainer == verdict::Trainer::Canonc).then(|| source.to_owned());
        let arm = |arm: &Arm| {
            let name = format!("{}/{}", lock.name, arm.name);
            let canonc_runs = canonc_runs.clone();
            let declared = declaration(lock, &arm.name).into_iter().collect();
            let experiment = Experiment::of_lock(&name, source, &arm.experiment);
            Experiment { canonc_runs, declared, ..experiment }
        };
        lock.arms.iter().map(arm).collect()
    }

    /// Reads a lock: every free field with its effective value, and the arch's own fields.
    pub fn of_lock(name: &str, source: &str, locked: &lab::experiment::Experiment) -> Experiment {
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
        // A digest identifies an input, whatever its name.
        for (path, field) in locked.fields().iter().filter(|(path, _)| !locked.is_idle(path)) {
            if path == "optimizer.betas"
                && let FieldValue::List(pair) = field
            {
                for (path, beta) in ["optimizer.beta1", "optimizer.beta2"].iter().zip(pair) {
                    values.insert((*path).to_owned(), KeyValue::from(beta));
                }
                continue;
            }
            values.insert(path.clone(), keys::normal(path, KeyValue::from(field)));
        }
        for path in ["batch.tokens_per_step", "budget.steps", "budget.tokens"] {
            if let Some(value) = locked.value(path) {
                values.insert(path.to_owned(), KeyValue::from(value));
            }
        }
        arch(&locked.arch.compiled, &experiment.definitions, values);
        let bare = canonical::identify(&erase_all(&locked.arch.compiled.graph));
        values.insert(BARE_GRAPH.to_owned(), KeyValue::text(bare.graph.to_string()));
        values.insert(BARE_MANIFEST.to_owned(), KeyValue::text(bare.manifest.to_string()));
        if let Some(unfilled) = locked.arch.unfilled_form() {
            values.insert(SLOT_PLACES.to_owned(), KeyValue::text(unfilled.to_string()));
        }
        experiment
    }
}

/// What a lock declares about an arm other than the base. Its verdict proves that nothing else differs.
fn declaration(lock: &Comparison, arm: &str) -> Option<Declared> {
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

/// The fields of an arch. If all layers agree on a field, it is listed once, without a layer number.
fn arch(
    compiled: &Compiled,
    definitions: &BTreeMap<String, String>,
    values: &mut BTreeMap<String, KeyValue>,
) {
    let fills = verdict::fills(&compiled.graph);
    let is_canon = |set: &str, slot: &str| {
        let first = set.split('.').next().and_then(|first| first.parse().ok()).unwrap_or(0);
        fills.get(&(first, slot.to_owned())).copied().unwrap_or(false)
    };
    // A name does not identify a fill.
    let fill_of = |name: &str| match definitions.get(name) {
        Some(definition) => KeyValue::text(format!("{name} [{definition}]")),
        None => KeyValue::parse(name).unwrap_or_else(|| KeyValue::text("")),
    };
    let lines = field_lines(&compiled.fields);
    let sets: BTreeSet<&str> = lines.iter().filter_map(|line| layer_set(&line.path)).collect();
    let alike = sets.len() <= 1;
    let mut canon_slots = String::new();
    for line in &lines {
        let value = KeyValue::parse(&line.value).unwrap_or_else(|| KeyValue::text(""));
        let Some(set) = layer_set(&line.path) else {
            let slot = line.path.rsplit_once(".slots.").filter(|(_, slot)| !slot.contains('.'));
            let value = if slot.is_some() { fill_of(&line.value) } else { value };
            values.insert(format!("arch.{}", line.path), value);
            continue;
        };
        let rest = line.path.get("layers.".len() + set.len()..).unwrap_or("");
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        let (path, value) = match rest.strip_prefix("slots.") {
            Some(slot) => {
                let (slot, setting) =
                    slot.split_once('.').map_or((slot, None), |(slot, field)| (slot, Some(field)));
                let layers = if alike { String::new() } else { format!("@{set}") };
                match (setting, is_canon(set, slot)) {
                    (None, _) if line.value == "empty" => continue,
                    (None, true) => {
                        canon_slots += &format!("{slot}{layers}");
                        continue;
                    }
                    // A fill that is not Canon is not the treatment, whatever its name is.
                    (None, false) => (format!("{FILL}.{slot}{layers}"), fill_of(&line.value)),
                    // Settings of a Canon layer belong to the treatment.
                    (Some(setting), true) => (format!("{CANON}.{setting}.{slot}{layers}"), value),
                    (Some(setting), false) => (format!("{FILL}.{setting}.{slot}{layers}"), value),
                }
            }
            None if alike && rest.is_empty() => ("arch.decoder".to_owned(), value),
            None if alike => (format!("arch.{rest}"), value),
            None => (format!("arch.{}", line.path), value),
        };
        values.insert(path, value);
    }
    values.insert(CANON.to_owned(), KeyValue::text(canon_slots));
    if let Some(kind) = values.get("arch.mixer").map(KeyValue::to_string) {
        values.entry("arch.mixer.short_conv".to_owned()).or_insert(KeyValue::Bool(false));
        if kind != "attention" {
            values.entry("arch.mixer.qk_norm".to_owned()).or_insert(KeyValue::Bool(false));
        }
    }
}

/// Returns `0..24` for `layers.0..24.mixer.heads`; `None` for `layers`.
fn layer_set(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("layers.")?;
    let end = rest.find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |at| at - 1);
    rest.get(..end)
}
