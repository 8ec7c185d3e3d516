//! Whether a run with a trainer record can be one of a lock, and one that a comparison declares.

use compiler::graph::Graph;
use compiler::plan::{Precision, UpdateRule};

use super::{ADAMW, CANONC, TrainerRecord, TrainerValue};
use crate::experiment::Experiment;
use crate::verdict::Trainer;

/// The class with canonc's formula of Muon.
const MUON: &str = "canonc.torch.Muon";

/// What the keys of kernels begin with.
const PREFIX: &str = "kernels.";

/// The functions whose kernels a record names, and the primitives that call them.
const KERNELS: [(&str, &[&str]); 5] = [
    ("kernels.attention", &["attention"]),
    ("kernels.causal_conv", &["canon", "short_conv"]),
    ("kernels.delta_scan", &["delta_scan"]),
    ("kernels.gla_scan", &["gla_scan"]),
    ("kernels.ssd_scan", &["ssd_scan"]),
];

/// The keys that name kernels in the record of a run of this arch.
pub fn kernel_keys(graph: &Graph) -> Vec<&'static str> {
    let calls = |primitives: &[&str]| primitives.iter().any(|name| graph.calls(name));
    KERNELS.iter().filter(|(_, primitives)| calls(primitives)).map(|(key, _)| *key).collect()
}

/// Why a run with this record is not a run of the lock; empty if it can be one.
///
/// A record has exactly the keys of what its lock has, so that a key of one arm alone is of something that the other arm's
/// lock does not have.
pub fn refusals(record: &TrainerRecord, experiment: &Experiment) -> Vec<String> {
    let updates = &experiment.updates;
    let any = |is: fn(&UpdateRule) -> bool| updates.iter().any(|update| is(&update.rule));
    let muon = any(|rule| matches!(rule, UpdateRule::Muon(_)));
    // Without rules for some parameters, all of them have AdamW.
    let adamw = updates.is_empty() || any(|rule| matches!(rule, UpdateRule::AdamW));
    let drops = experiment.dropout.is_some() && experiment.arch.compiled.graph.has_dropout();
    let f32 = experiment.precision == Precision::F32;
    let compute = if f32 { "f32" } else { "bf16" };
    let of = |key: &'static str, is_there: bool, values: &[&str], why: &str| match is_there {
        true => wants(record, key, values, why),
        false => unwanted(record, key),
    };
    let mut refusals = vec![
        wants(record, "loss.terms", &[CANONC], "every term of the lock's loss belongs to it"),
        of("loss.dropout", drops, &[CANONC], "the lock's seed gives the masks"),
        of("optimizer.muon", muon, &[MUON], "the lock has canonc's Muon"),
        of("optimizer.adamw", adamw, &ADAMW, "the lock has AdamW"),
        wants(record, "precision.compute", &[compute], "the lock computes in that"),
        wants(record, "precision.master", &["f32"], "weights and moments are kept in that"),
        wants(record, "precision.loss", &["f32"], "the loss is computed in that"),
        never(record, "precision.reduce", "f32", "gradients are added up in that"),
        never(record, "precision.autocast", "none", "the lock's precision says what is rounded"),
    ];
    if f32 {
        let why = "TF32 rounds what an f32 lock does not";
        refusals.push(never(record, "precision.tf32", "false", why));
    }
    refusals.extend(kernels(record, experiment));
    refusals.into_iter().flatten().collect()
}

/// A value other than these.
fn wants(record: &TrainerRecord, key: &str, values: &[&str], why: &str) -> Option<String> {
    let written = record.fields.get(key).map(TrainerValue::to_string);
    if written.as_deref().is_some_and(|written| values.contains(&written)) {
        return None;
    }
    let says = match written {
        Some(written) => format!("says {key} = \"{written}\""),
        None => format!("has no {key}"),
    };
    let values = values.join("\" or \"");
    Some(format!("trainer.toml {says}, but {why}: \"{values}\" is needed"))
}

/// The same where a record that leaves the key out says nothing against it.
fn never(record: &TrainerRecord, key: &str, value: &str, why: &str) -> Option<String> {
    record.fields.contains_key(key).then(|| wants(record, key, &[value], why)).flatten()
}

/// A key of what the lock does not have.
fn unwanted(record: &TrainerRecord, key: &str) -> Option<String> {
    let written = record.fields.get(key)?;
    Some(format!("trainer.toml says {key} = \"{written}\", but the lock has nothing of that"))
}

/// Kernels that are missing, and those of what the arch does not have.
fn kernels(record: &TrainerRecord, experiment: &Experiment) -> Vec<Option<String>> {
    let keys = kernel_keys(&experiment.arch.compiled.graph);
    let missing = keys.iter().filter(|key| record.text(key).is_none()).map(|key| {
        let function = key.trim_start_matches(PREFIX);
        Some(format!("trainer.toml does not say what computed {function}: `{key}` is needed"))
    });
    let written = record.fields.keys().filter(|key| key.starts_with(PREFIX));
    let other = written.filter(|key| !keys.contains(&key.as_str()));
    missing.chain(other.map(|key| unwanted(record, key))).collect()
}

/// Whether a run of this trainer is one that a comparison with this declaration accepts.
pub fn is_declared(declared: Trainer, record: Option<&TrainerRecord>) -> bool {
    let engine = record.map_or(CANONC, TrainerRecord::engine);
    declared.word().is_none_or(|word| word == engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_trainer_is_the_engine() {
        let text = "version = 1\ndata.windows = \"canonc\"\nengine = \"pytorch\"\nengine_version = \"2.11.0\"\n\
                    loss.terms = \"canonc\"\nprecision.compute = \"f32\"\nprecision.loss = \"f32\"\n\
                    precision.master = \"f32\"\n";
        let record = TrainerRecord::parse(text).unwrap();
        for (declared, of_canonc, of_pytorch) in [
            (Trainer::Any, true, true),
            (Trainer::Canonc, true, false),
            (Trainer::Pytorch, false, true),
        ] {
            assert_eq!(is_declared(declared, None), of_canonc);
            assert_eq!(is_declared(declared, Some(&record)), of_pytorch);
        }
    }
}
