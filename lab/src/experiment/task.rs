//! Synthetic tasks in locks: the task of an experiment, the vocabulary it needs, and checks. Parameters that the task
//! refuses are refused here, before anything is locked.

use tasks::TaskError;
use tasks::metric;
use tasks::sample::Mode;
use tasks::task::{Definition, Packing, Refusal, Task};

use super::access::{as_toml, int, list, text};
use crate::error::FieldProblem;
use crate::field::{FieldValue, Fields, metrics_of};
use compiler::digest::Digest;

/// Vocabulary of the byte tokenizer.
const BYTES: i64 = tasks::BYTES as i64;

const TASK_TAG: &str = "canonc.task.v1";

/// The task's identity in a lock, which follows from the lock's own lines; `None` for text.
pub(super) fn digest(fields: &Fields) -> Option<Digest> {
    let name = text(fields, "data.task");
    let task = Definition::find(name)?;
    let mut lines = format!("task = \"{name}\"\nrevision = {}\n", task.revision);
    for parameter in task.in_recipes() {
        if let Some(value) = fields.get(parameter.path) {
            lines += &format!("{} = {value}\n", parameter.name());
        }
    }
    Some(Digest::of(TASK_TAG, &lines))
}

/// The synthetic task of an experiment; `None` for text.
pub(super) fn task(fields: &Fields) -> Option<Result<Task, TaskError>> {
    let name = text(fields, "data.task");
    let definition = Definition::find(name)?;
    let parameters: toml::Table = definition
        .in_recipes()
        .into_iter()
        .filter_map(|p| Some((p.name().to_owned(), as_toml(fields.get(p.path)?))))
        .collect();
    Some(definition.task(parameters))
}

/// The smallest vocabulary that an arch needs.
pub(super) fn vocab(fields: &Fields) -> i64 {
    if let Some(FieldValue::Int(vocab)) = fields.get("data.tokenizer_vocab") {
        return *vocab;
    }
    match (task(fields), text(fields, "data.ids")) {
        (Some(Ok(task)), "dense") => task.alphabet().len() as i64,
        (Some(Ok(task)), _) => i64::from(task.vocab()),
        (Some(Err(_)), _) => 0,
        (None, _) => BYTES,
    }
}

/// Reports parameters for which no sample can be generated.
pub(super) fn check(fields: &Fields, problems: &mut Vec<FieldProblem>) {
    let mut problem = |path: &str, message: String, help: &str| {
        problems.push(FieldProblem::new(path, "bad-task", message, help));
    };
    let name = text(fields, "data.task");
    match task(fields) {
        None => {}
        Some(Ok(task)) => {
            window(fields, &task, &mut problem);
            let metrics = list(fields, "evaluation.metrics").iter().map(FieldValue::plain);
            let packing = Packing {
                seq_len: int(fields, "data.seq_len"),
                is_published: text(fields, "data.order") == "published",
                metrics: metrics.collect(),
            };
            for Refusal { field, message, help } in task.check(&packing) {
                problem(field, message, &help);
            }
        }
        Some(Err(TaskError { cause: _, parameter, message, help })) => {
            let path = match parameter {
                Some(parameter) => format!("data.{name}.{parameter}"),
                None => "data.task".to_owned(),
            };
            problem(&path, message, &help);
        }
    }
    for metric in list(fields, "evaluation.metrics").iter().map(FieldValue::plain) {
        let names = metrics_of(name);
        if metric::NAMES.contains(&metric.as_str()) && !names.contains(&metric.as_str()) {
            let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            problem(
                "evaluation.metrics",
                format!("metrics lists \"{metric}\", but {name} does not have it"),
                &format!("choose from {}, or leave metrics out", names.join(", ")),
            );
        }
    }
}

/// Checks that a window can hold an answer.
fn window(fields: &Fields, task: &Task, problem: &mut impl FnMut(&str, String, &str)) {
    let (seq_len, name) = (int(fields, "data.seq_len"), task.name());
    let mode = if text(fields, "evaluation.mode") == "train" { Mode::Train } else { Mode::Test };
    let least = |mode| i64::try_from(task.least_tokens(mode)).unwrap_or(i64::MAX);
    let (trained, evaluated) = (least(Mode::Train), least(mode));
    if seq_len < trained.max(evaluated) - 1 {
        // The target of the last token of a window comes after it.
        let (which, least) = if seq_len < trained - 1 {
            ("", trained - 1)
        } else {
            (" at evaluation", evaluated - 1)
        };
        let drawn = if which.is_empty() {
            ""
        } else {
            ", or write mode = \"train\" under [evaluation], which draws sizes as training does"
        };
        problem(
            "data.seq_len",
            format!(
                "a window of {seq_len} tokens is too short for the first answer of any {name} sample{which}, which takes {least}"
            ),
            &format!(
                "set seq_len to {} or more, or make the task smaller{drawn}",
                trained.max(evaluated) - 1
            ),
        );
    }
    if text(fields, "data.loss_on") == "answer" && !task.has_labels() {
        problem(
            "data.loss_on",
            format!("loss_on is \"answer\", but {name} does not label its answers"),
            "write loss_on = \"all\", as published",
        );
    }
}
