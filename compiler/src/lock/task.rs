//! Synthetic tasks in locks: identity, vocabulary and checks.
//!
//! In: the data fields of an experiment. Out: the task's digest, the tokens it uses, and problems.
//! Must stay true: the digest covers every parameter that affects a sample, and the revision of the
//! generator; a task that the generator would refuse is refused here, before anything is locked.

use std::collections::BTreeSet;

use super::Problem;
use super::experiment::{int, list, text, truth};
use crate::digest::Digest;
use crate::field::{FieldValue, Fields, GENERATORS, GRAMMARS, METRICS, TABLE};

mod brevo;
mod mano;
mod people;

const TASK_TAG: &str = "canonc.task.v1";

/// Fields of `[data]` about the use of samples rather than their content.
const USES: [&str; 5] = ["data.ids", "data.loss_on", "data.order", "data.seq_len", "data.task"];

/// The task's parameters under their published names.
pub(super) fn params(fields: &Fields) -> impl Iterator<Item = (&'static str, &FieldValue)> {
    TABLE
        .iter()
        .filter(|def| def.section() == "data" && !USES.contains(&def.path))
        .filter_map(|def| Some((def.path.strip_prefix("data.")?, fields.get(def.path)?)))
}

pub(super) fn revision(task: &str) -> Option<i64> {
    GENERATORS.iter().find(|(name, _)| *name == task).map(|(_, revision)| *revision)
}

/// The identity of a synthetic task.
pub(super) fn digest(fields: &Fields) -> Digest {
    let task = text(fields, "data.task");
    let mut lines = String::new();
    for (name, value) in params(fields) {
        lines += &format!("{name} = {value}\n");
    }
    let revision = revision(task).unwrap_or(0);
    Digest::of(TASK_TAG, &format!("task = \"{task}\"\nrevision = {revision}\n{lines}"))
}

/// The published tokens that samples can contain (data spec, sections 2, 3 and 5); for text, its
/// bytes and two special tokens.
fn alphabet(fields: &Fields) -> BTreeSet<i64> {
    let mut tokens = BTreeSet::new();
    let bos = int(fields, "data.bos");
    match text(fields, "data.task") {
        "depo" => {
            tokens.extend(1..=2 * int(fields, "data.mini_vocab"));
            tokens.extend(9001..=9000 + int(fields, "data.K"));
            tokens.extend([9500, bos]);
            tokens.extend(truth(fields, "data.separator").then_some(9700));
        }
        "brevo" => tokens.extend(brevo::tokens(fields)),
        "capo" | "multihop" => tokens.extend(0..people::bytes(fields)),
        // The grammar's tokens, and the separator between sentences.
        "lano" => tokens.extend(1..=1 + symbols(text(fields, "data.config"))),
        "mano" => {
            let second = i64::from(truth(fields, "data.knowledge_augment"));
            tokens.extend(5000..5000 + int(fields, "data.value_mod"));
            tokens.extend(bos - second..=bos);
            for (letter, token) in [('a', 1), ('s', 2), ('m', 3), ('d', 4)] {
                if text(fields, "data.ttype").contains(letter) {
                    tokens.extend([token, token + 4 * second]);
                }
            }
            let longest = FieldValue::Int(int(fields, "data.L"));
            for id in list(fields, "data.qids").iter().chain([&longest]) {
                let FieldValue::Int(id) = id else { continue };
                for first in [10 * id, 10 * id + 4] {
                    tokens.extend(first..=first + second);
                }
            }
        }
        _ => tokens.extend(0..258),
    }
    tokens
}

/// The number of tokens of a published grammar.
fn symbols(config: &str) -> i64 {
    GRAMMARS.iter().find(|(name, _)| *name == config).map_or(0, |(_, tokens)| *tokens)
}

/// The smallest vocabulary that an arch needs.
pub(super) fn vocab(fields: &Fields) -> i64 {
    if let Some(FieldValue::Int(vocab)) = fields.get("data.tokenizer_vocab") {
        return *vocab;
    }
    let tokens = alphabet(fields);
    match text(fields, "data.ids") {
        "dense" => tokens.len() as i64,
        _ => tokens.last().map_or(0, |last| last + 1),
    }
}

/// Tokens up to the end of the first answer in the shortest possible sample, for training or for
/// evaluation. This is a lower bound: each of Depo's names is in two edges, and the number of short names
/// is limited.
fn least_tokens(fields: &Fields, evaluated: bool) -> i64 {
    let largest = evaluated && text(fields, "evaluation.mode") != "train";
    match text(fields, "data.task") {
        "depo" => {
            let names = if largest { int(fields, "data.N") } else { 3 };
            let letters = int(fields, "data.mini_vocab");
            let (least, most) = (int(fields, "data.min_tlen"), int(fields, "data.max_tlen"));
            let (mut left, mut tokens) = (names, 0);
            for len in least..=most {
                let some = letters.saturating_pow(len as u32).min(left);
                tokens += some * len;
                left -= some;
            }
            let separators = if truth(fields, "data.separator") { names } else { 0 };
            1 + 2 * tokens + separators + 1 + least + 1 + least
        }
        "brevo" => brevo::least_tokens(fields, largest),
        // These tasks ask no question: a window is useful from its first target on.
        "capo" | "lano" => 2,
        "multihop" => people::least_tokens(fields),
        "mano" => {
            let operations = list(fields, "data.lens").iter().filter_map(|len| match len {
                FieldValue::Int(len) => Some(*len),
                FieldValue::Big(_)
                | FieldValue::Real(_)
                | FieldValue::Bool(_)
                | FieldValue::Text(_)
                | FieldValue::List(_) => None,
            });
            let most = int(fields, "data.L");
            2 * if largest { most } else { operations.min().unwrap_or(1) } + 5
        }
        _ => 1,
    }
}

/// Whether samples label which tokens are targets.
fn has_labels(task: &str) -> bool {
    ["brevo", "depo"].contains(&task)
}

/// Reports parameters for which no sample can be generated.
pub(super) fn check(fields: &Fields, problems: &mut Vec<Problem>) {
    let mut problem = |path: &str, message: String, help: &str| {
        problems.push(Problem::new(path, "bad-task", message, help));
    };
    let seq_len = int(fields, "data.seq_len");
    let task = text(fields, "data.task");
    match task {
        "brevo" => brevo::check(fields, &mut problem),
        "capo" => people::check_biographies(fields, &mut problem),
        "multihop" => people::check_groups(fields, &mut problem),
        "depo" => {
            let (n, letters) = (int(fields, "data.N"), int(fields, "data.mini_vocab"));
            let (least, most) = (int(fields, "data.min_tlen"), int(fields, "data.max_tlen"));
            let bos = int(fields, "data.bos");
            if !(3..=65_536).contains(&n) {
                problem(
                    "data.N",
                    format!("N is {n}, but a cycle has 3 to 65536 names"),
                    "set N to a value from 3 to 65536",
                );
            }
            if most < least {
                problem(
                    "data.max_tlen",
                    format!("max_tlen is {most}, but min_tlen is {least}"),
                    "set max_tlen to min_tlen or more",
                );
            }
            // More letters or longer names allow more distinct names.
            let names = (least..=most)
                .map(|len| i128::from(letters).saturating_pow(len as u32))
                .fold(0i128, i128::saturating_add);
            if most >= least && i128::from(n) > names {
                problem(
                    "data.N",
                    format!(
                        "N is {n}, but there are only {names} names of {least} to {most} tokens over {letters} letters"
                    ),
                    "lower N, or raise mini_vocab or max_tlen",
                );
            }
            let used = (1..=2 * letters).contains(&bos)
                || (9001..=9000 + int(fields, "data.K")).contains(&bos)
                || [9500, 9700].contains(&bos);
            if used {
                problem(
                    "data.bos",
                    format!("bos is {bos}, which a name or a marker already uses"),
                    "leave bos out: it is 9999, as published",
                );
            }
        }
        "mano" => mano::check(fields, &mut problem),
        _ => {}
    }
    let (trained, evaluated) = (least_tokens(fields, false), least_tokens(fields, true));
    if seq_len < trained.max(evaluated) - 1 {
        let (which, least) =
            if seq_len < trained - 1 { ("", trained) } else { (" that is evaluated", evaluated) };
        let drawn = if which.is_empty() {
            ""
        } else {
            ", or write mode = \"train\" under [evaluation], which draws sizes as training does"
        };
        problem(
            "data.seq_len",
            format!(
                "a window of {seq_len} ends before the first answer of any {task} sample{which}, which takes {least} tokens"
            ),
            &format!(
                "set seq_len to {} or more, or make the task smaller{drawn}",
                trained.max(evaluated) - 1
            ),
        );
    }
    for metric in list(fields, "evaluation.metrics").iter().map(FieldValue::plain) {
        let of = METRICS.iter().find(|(name, _)| *name == metric).and_then(|(_, of)| *of);
        if of.is_some_and(|of| !of.contains(&task)) {
            let own = METRICS.iter().filter(|(_, of)| of.is_none_or(|of| of.contains(&task)));
            let own: Vec<String> = own.map(|(name, _)| format!("\"{name}\"")).collect();
            problem(
                "evaluation.metrics",
                format!("metrics has \"{metric}\", which {task} is not measured by"),
                &format!("choose among {}, or leave metrics out", own.join(", ")),
            );
        }
    }
    if text(fields, "data.loss_on") == "answer" && !has_labels(task) {
        problem(
            "data.loss_on",
            format!("loss_on is \"answer\", but {task} does not label its answers"),
            "write loss_on = \"all\", as published",
        );
    }
}
