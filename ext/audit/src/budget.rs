//! Checks that the keys determine the budget, that it matches the name, and that the number of devices is known.
//!
//! A number that only a comment gives counts towards the total, and a finding says so.

use std::collections::BTreeMap;

use compiler::number::Ratio;

use crate::finding::{Findings, Occurrence, Scope};
use crate::keys::{DEVICES, NODE_DEVICES, NODE_TASKS, NODES, TOKENS, TOKENS_PER_STEP};
use crate::subject::Subject;
use crate::value::within_share;

/// Tolerance for a name's `1T`: budgets are whole steps of round batches.
pub(crate) const NAMED: Ratio = Ratio { num: 2, den: 100 };

pub(crate) fn budgets(subjects: &[Subject], findings: &mut Findings) {
    for subject in subjects {
        in_comment(subject, findings);
        named(subject, findings);
        devices(subject, findings);
    }
    ambiguous(subjects, findings);
}

fn in_comment(subject: &Subject, findings: &mut Findings) {
    if subject.budget_in_comment {
        let message = "tokens per step depend on the number of devices, which no key gives";
        let observation = format!(
            "{} devices in a comment, {} tokens per step",
            subject.shown(DEVICES),
            subject.shown(TOKENS_PER_STEP)
        );
        findings.add(
            "budget-in-comment",
            Scope::Set,
            DEVICES,
            message,
            Occurrence::in_experiment(&subject.name, observation),
        );
    }
}

fn named(subject: &Subject, findings: &mut Findings) {
    let (Some((word, claimed)), Some(tokens)) = (&subject.claims.tokens, subject.number(TOKENS))
    else {
        return;
    };
    if !within_share(tokens, *claimed, NAMED) {
        let message =
            format!("the name says {word}, the keys make {} tokens", subject.shown(TOKENS));
        let observation = format!(
            "budget.steps {} x {} tokens per step",
            subject.shown("budget.steps"),
            subject.shown(TOKENS_PER_STEP)
        );
        findings.add(
            "name-tokens",
            Scope::Set,
            TOKENS,
            message,
            Occurrence::in_experiment(&subject.name, observation),
        );
    }
}

/// Finds experiments with equal keys but different tokens.
fn ambiguous(subjects: &[Subject], findings: &mut Findings) {
    let mut files: BTreeMap<Vec<String>, Vec<&Subject>> = BTreeMap::new();
    for subject in subjects {
        let key = |path: &&str| subject.topic(path).decides() && !subject.comments.contains(*path);
        let keys = subject.compared().filter(key);
        let text = keys.map(|path| format!("{path} = {}", subject.shown(path))).collect();
        files.entry(text).or_default().push(subject);
    }
    for members in files.values() {
        let claims = |s: &Subject| {
            let claimed = s.claims.tokens.as_ref().map(|(word, _)| word.clone());
            (s.shown(TOKENS), claimed)
        };
        let mut values: Vec<_> = members.iter().map(|s| claims(s)).collect();
        values.sort();
        values.dedup();
        if values.len() < 2 {
            continue;
        }
        let Some((first, rest)) = members.split_first() else { continue };
        for other in rest.iter().filter(|other| claims(other) != claims(first)) {
            let observation = format!(
                "{} | {} tokens; devices in a comment {} | {}",
                first.shown(TOKENS),
                other.shown(TOKENS),
                first.shown(DEVICES),
                other.shown(DEVICES)
            );
            let pair = Occurrence::between(&first.name, &other.name, observation);
            let message = "equal keys, but different tokens";
            findings.add("budget-ambiguous", Scope::Set, TOKENS, message, pair);
        }
    }
}

/// Numbers of devices that disagree, and launches whose number of devices is not known.
fn devices(subject: &Subject, findings: &mut Findings) {
    let mut add = |rule: &str, scope: Scope, message: &str, observation: String| {
        findings.add(
            rule,
            scope,
            DEVICES,
            message,
            Occurrence::in_experiment(&subject.name, observation),
        );
    };
    if !subject.devices.disagree.is_empty() {
        let observation = subject.devices.disagree.join(", ");
        add(
            "devices-disagree",
            Scope::Run,
            "the file gives different numbers of devices",
            observation,
        );
    }
    let has = |path: &str| subject.facts.contains_key(path);
    let given = [NODES, NODE_DEVICES, NODE_TASKS].into_iter().find(|path| has(path));
    if let Some(path) = given.filter(|_| !has(DEVICES) && !subject.counts_its_step()) {
        let missing = match path {
            NODES => "the number of devices per node is not given",
            _ => "the number of nodes is not given",
        };
        let name = subject.written_as.get(path).map_or(path, String::as_str);
        let observation = format!("{name} = {} ({missing})", subject.shown(path));
        let message = "keys give only part of the launch, so the budget may be different";
        add("devices-unread", Scope::Run, message, observation);
    }
    // If keys give the tokens per step, devices do not affect the budget.
    let (scope, message) = match subject.counts_its_step() {
        true => (Scope::Set, "not understood; keys give the tokens per step"),
        false => (Scope::Run, "not understood, so the budget may be different"),
    };
    for (key, reason) in &subject.devices.keys {
        add("devices-unread", scope, message, format!("{key} ({reason})"));
    }
    for (line, text, reason) in &subject.devices.unread {
        add("devices-unread", scope, message, format!("line {line}: `# {text}` ({reason})"));
    }
}
