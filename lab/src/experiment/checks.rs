//! Checks of fields that depend on one another. Each contradiction is a problem with both values; an experiment that
//! passes can be trained on the machines that its fields require.

use super::access::{int, list, real, text};
use super::{LockedArch, task};
use crate::error::FieldProblem;
use crate::field::{FieldValue, Fields};
use compiler::number::Ratio;
use compiler::plan::MEANS;

/// The largest denominator of a weight: divided by micro-batches and heads, it still fits.
const FINEST: i128 = 10i128.pow(24);

/// Whether the arch can read the data.
pub(super) fn fits(arch: &LockedArch, fields: &Fields, problems: &mut Vec<FieldProblem>) {
    let (has, wants) = (arch.compiled.graph.vocab, task::vocab(fields));
    if has < wants {
        let dense = text(fields, "data.ids") == "published";
        let hint = if dense { ", or write ids = \"dense\" under [data]" } else { "" };
        problems.push(FieldProblem::new(
            "arch",
            "vocab-too-small",
            format!("arch `{}` has vocab {has}, but this data needs {wants}", arch.name),
            format!("use an arch with `vocab {wants}` or more{hint}"),
        ));
    }
}

/// Counts that must divide one another.
pub(super) fn divides(fields: &Fields, problems: &mut Vec<FieldProblem>) {
    let (run, all) = (int(fields, "batch.in_sequence"), int(fields, "batch.micro_batches"));
    if run > all {
        problems.push(FieldProblem::new(
            "batch.in_sequence",
            "too-many-in-sequence",
            format!("batch.in_sequence is {run}, but a step has {all} micro-batches"),
            format!("write in_sequence = {all} to add all of them in sequence"),
        ));
    }
    let number = |path: &str| match fields.get(path) {
        Some(FieldValue::Int(n)) => Some(*n),
        Some(_) | None => None,
    };
    let devices = (number("platform.devices"), number("platform.devices_per_node"));
    if let (Some(all), Some(each)) = devices
        && all % each != 0
    {
        problems.push(FieldProblem::new(
            "platform.devices_per_node",
            "unequal-machines",
            format!(
                "platform.devices is {all}, which is not a multiple of devices_per_node, {each}"
            ),
            "write a number that divides platform.devices, or leave it out",
        ));
    }
}

/// Suites, and the fields that they need.
pub(super) fn suites(arch: &LockedArch, fields: &Fields, problems: &mut Vec<FieldProblem>) {
    let suites = list(fields, "evaluation.suites");
    if suites.is_empty() {
        for (path, neutral) in
            [("evaluation.suite_data", "beside"), ("evaluation.tokenizer_file", "none")]
        {
            if !["", neutral].contains(&text(fields, path)) {
                let message = format!("`{path}` has no effect without suites");
                let help = "leave it out, or list suites under [evaluation]";
                problems.push(FieldProblem::new(path, "idle-field", message, help));
            }
        }
        return;
    }
    if text(fields, "evaluation.tokenizer_file") == "none" {
        problems.push(FieldProblem::new(
            "evaluation.suites",
            "suite-needs-text",
            format!(
                "suites ask in text, but the file of the {} tokenizer is not named",
                text(fields, "data.tokenizer")
            ),
            "name it: tokenizer_file = \"tokenizer.json\" under [evaluation]",
        ));
    }
    let bytes = text(fields, "data.task") != "text" || text(fields, "data.tokenizer") == "bytes";
    let (has, wants) = (arch.compiled.graph.vocab, i64::from(tasks::BYTES));
    if bytes && has < wants {
        problems.push(FieldProblem::new(
            "evaluation.suites",
            "suite-needs-text",
            format!(
                "suites ask in text, whose bytes need vocab {wants}, but arch `{}` has {has}",
                arch.name
            ),
            format!("use an arch with `vocab {wants}` or more, or remove suites"),
        ));
    }
}

/// Fields about parts that an arch may lack.
pub(super) fn has_effect(arch: &LockedArch, fields: &Fields, problems: &mut Vec<FieldProblem>) {
    auxiliary_losses(arch, fields, problems);
    exact_weights(fields, problems);
    dropout(arch, fields, problems);
}

/// Weights of auxiliary losses that the arch does not have.
fn auxiliary_losses(arch: &LockedArch, fields: &Fields, problems: &mut Vec<FieldProblem>) {
    let graph = &arch.compiled.graph;
    let mut lacks = |path: &str, what: String, with: String| {
        let weight = real(fields, path);
        if !weight.is_zero() {
            problems.push(FieldProblem::new(
                path,
                "no-such-loss",
                format!("{path} is {weight}, but arch `{}` has {what}", arch.name),
                format!("remove it, or use an arch with {with}"),
            ));
        }
    };
    for term in MEANS.into_iter().filter(|term| !graph.has_term(term)) {
        lacks(
            &format!("loss.{term}"),
            format!("no auxiliary loss `{term}`"),
            format!("one, as `mlp moe` has, or `aux_loss(y, a, {term})`"),
        );
    }
    if graph.ahead_heads() == 0 {
        lacks(
            "loss.ahead",
            "no head that predicts later tokens".to_owned(),
            "one, such as `head two_tokens`, or `ahead_loss(logits, more, 2)`".to_owned(),
        );
    }
    // Each head's loss has an equal share, so a head in a layer or a fill would change the share of all others.
    if graph.ahead_heads_below() > 0 {
        lacks(
            "loss.ahead",
            "`ahead_loss` inside a layer or the fill of a slot".to_owned(),
            "it in the arch's head alone".to_owned(),
        );
    }
    if real(fields, "loss.ahead").is_zero() {
        let hidden = |term: &str| graph.has_term(term) && !graph.has_term_without_heads(term);
        for term in MEANS.into_iter().filter(|term| hidden(term)) {
            lacks(
                &format!("loss.{term}"),
                format!(
                    "its auxiliary loss `{term}` in a head of later tokens, and loss.ahead is 0"
                ),
                format!("`{term}` in its layers, or give loss.ahead a weight"),
            );
        }
    }
}

/// Weights of auxiliary losses that cannot be multiplied exactly.
fn exact_weights(fields: &Fields, problems: &mut Vec<FieldProblem>) {
    for path in ["loss.ahead", "loss.balance", "loss.router_z"] {
        let weight = real(fields, path);
        let exact = Ratio::from_decimal(weight).filter(|ratio| ratio.den <= FINEST);
        if exact.is_none() {
            problems.push(FieldProblem::new(
                path,
                "too-many-digits",
                format!("{path} is {weight}, which has too many digits to be multiplied exactly"),
                "write at most 24 digits after the point",
            ));
        }
    }
}

/// The seed of dropout is given if the arch has dropout, and only then.
fn dropout(arch: &LockedArch, fields: &Fields, problems: &mut Vec<FieldProblem>) {
    match (fields.get("seeds.dropout"), arch.compiled.graph.has_dropout()) {
        (Some(FieldValue::Int(seed)), false) => problems.push(FieldProblem::new(
            "seeds.dropout",
            "no-dropout",
            format!("seeds.dropout is {seed}, but arch `{}` has no dropout", arch.name),
            "remove it, or use an arch with `dropout`, such as one of layers `dropout_decoder`",
        )),
        (Some(FieldValue::Int(_)), true) | (_, false) => {}
        (_, true) => problems.push(FieldProblem::new(
            "seeds.dropout",
            "no-dropout-seed",
            format!("arch `{}` has dropout, but seeds.dropout is not given", arch.name),
            "write `dropout = 1` under [seeds], or another number",
        )),
    }
}
