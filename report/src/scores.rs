//! Results of `canonc eval`: beside the published ones, and two of them question by question.
//!
//! Scores are compared only if both results are of the same questions, asked the same way, by their digests. An interval
//! over questions says nothing about other seeds, and its caption says so.

use std::collections::BTreeMap;

use serde::Deserialize;
use tasks::metric::{OfSuites, of_word};

use crate::compare::{TextTable, Unit, unit};
use crate::statistics::Confidence;
use crate::statistics::paired::Paired;

/// The schema of the documents.
pub const SCHEMA: &str = "canonc.eval.v1";

/// A result of `canonc eval`; members that no table shows are not read.
#[derive(Clone, Debug, Deserialize)]
pub struct Scores {
    schema: String,
    model: Model,
    settings: Settings,
    tasks: Vec<Task>,
}

#[derive(Clone, Debug, Deserialize)]
struct Model {
    name: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Settings {
    max_length: u64,
    bos: Option<i64>,
    dtype: String,
    limit: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Task {
    name: String,
    task: String,
    questions: String,
    examples: Option<String>,
    shots: usize,
    count: u64,
    metrics: Vec<Score>,
    /// Whether it is a task of the published suite, asked of every question as there.
    #[serde(skip)]
    is_published: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct Score {
    metric: String,
    value: f64,
    stderr: Option<f64>,
    each: Vec<f64>,
}

const ACC: &str = "acc";
const ACC_NORM: &str = "acc_norm";

/// The columns of the published tables: task and metrics of the suite `release`.
const COLUMNS: [(&str, &str, &[&str]); 15] = [
    ("LMB", "lambada_openai", &[ACC]),
    ("PIQA", "piqa", &[ACC, ACC_NORM]),
    ("Hella", "hellaswag", &[ACC, ACC_NORM]),
    ("Wino", "winogrande", &[ACC]),
    ("ARC-e", "arc_easy", &[ACC, ACC_NORM]),
    ("ARC-c", "arc_challenge", &[ACC, ACC_NORM]),
    ("SIQA", "social_iqa", &[ACC]),
    ("BoolQ", "boolq", &[ACC]),
    ("COPA", "copa", &[ACC]),
    ("OBQA", "openbookqa", &[ACC, ACC_NORM]),
    ("RACE", "race", &[ACC]),
    ("CSQA", "commonsense_qa", &[ACC]),
    ("MMLU", "mmlu", &[ACC]),
    ("Wiki_ppl", "wikitext", &["word_perplexity"]),
    ("LMB_ppl", "lambada_openai", &["perplexity"]),
];

/// What the table of published scores leaves open.
pub const CAPTION: &str = "Accuracies in percent, perplexities as they are. The release does not say which of its columns \
     are acc and which acc_norm: where a task has both, your cell is “acc / acc_norm”. Harness versions, examples in front \
     of questions and bos change scores by points, and the open models' rows were published elsewhere.";

impl Scores {
    /// Reads a document. `published` is the digest of a task of the suite `release`, with as many examples in front of a
    /// question.
    pub fn parse(
        text: &str,
        published: &dyn Fn(&str, usize) -> Option<String>,
    ) -> Result<Scores, String> {
        let mut scores: Scores = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if scores.schema != SCHEMA {
            return Err(format!("its schema is \"{}\", not \"{SCHEMA}\"", scores.schema));
        }
        for task in &mut scores.tasks {
            let digest = published(&task.name, task.shots);
            let is_same = digest.is_some_and(|digest| digest == task.task);
            task.is_published = is_same && scores.settings.limit.is_none();
        }
        Ok(scores)
    }

    /// A task of the suite `release`, asked as there with any number of examples, and every question of it.
    fn published(&self, name: &str) -> Option<&Task> {
        self.tasks.iter().find(|task| task.name == name).filter(|task| task.is_published)
    }

    fn row(&self) -> Vec<String> {
        let mut row = vec![self.model.name.clone(), "yours".to_owned()];
        for (_, task, metrics) in COLUMNS {
            let scores = self.published(task).map_or(&[][..], |task| &task.metrics);
            let cells: Vec<String> = scores
                .iter()
                .filter(|score| metrics.contains(&score.metric.as_str()))
                .map(|score| score_cell(&score.metric, score.value))
                .collect();
            row.push(cells.join(" / "));
        }
        row
    }
}

/// A share in percent, anything else as it is.
fn score_cell(metric: &str, value: f64) -> String {
    match is_share(metric) {
        true => format!("{:.1}", 100.0 * value),
        false => format!("{value:.2}"),
    }
}

/// Whether a metric of a suite, or of a lock's own evaluation, is a share.
fn is_share(metric: &str) -> bool {
    of_word(metric).is_some_and(OfSuites::is_share) || unit(metric) == Unit::Share
}

/// The user's results above those of the release's 64 models and of open models; no rows if no result has a task of theirs,
/// asked as in the suite `release`.
pub fn beside_published(results: &[Scores]) -> TextTable {
    let mut head = vec!["model".to_owned(), "from".to_owned()];
    head.extend(COLUMNS.map(|(name, ..)| name.to_owned()));
    let of_results = results.iter().map(Scores::row);
    let mut rows: Vec<Vec<String>> =
        of_results.filter(|row| row.iter().skip(2).any(|cell| !cell.is_empty())).collect();
    if rows.is_empty() {
        return TextTable::plain(head, rows);
    }
    for (from, text) in
        [("the release", published::HARNESS), ("open models", published::OPEN_MODELS)]
    {
        let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let names = lines.next().unwrap_or_default();
        for line in lines {
            let cells: BTreeMap<&str, &str> = names.iter().copied().zip(line).collect();
            let cell = |name: &str| cells.get(name).copied().unwrap_or_default().to_owned();
            let about = match (cell("tokens"), cell("date")) {
                (tokens, date) if !tokens.is_empty() => format!("{from}: {tokens} tokens, {date}"),
                _ => from.to_owned(),
            };
            let first = [cell("model"), about];
            rows.push(first.into_iter().chain(COLUMNS.map(|(name, ..)| cell(name))).collect());
        }
    }
    TextTable::plain(head, rows)
}

/// Every number of the user's results.
pub fn all(results: &[Scores]) -> TextTable {
    let head = ["model", "task", "questions", "metric", "value", "standard error"];
    let mut rows = Vec::new();
    for Scores { model, tasks, .. } in results {
        for task in tasks {
            rows.extend(task.metrics.iter().map(|Score { metric, value, stderr, .. }| {
                let stderr = match stderr {
                    None => String::new(),
                    Some(0.0) => "unknown: all equal".to_owned(),
                    Some(error) => format!("±{:.1}", 100.0 * error),
                };
                vec![
                    model.name.clone(),
                    task.name.clone(),
                    task.count.to_string(),
                    metric.clone(),
                    score_cell(metric, *value),
                    stderr,
                ]
            }));
        }
    }
    TextTable::plain(head.map(str::to_owned).to_vec(), rows)
}

const DIFFERENCE_HEAD: [&str; 8] = [
    "task",
    "metric",
    "questions",
    "before",
    "after",
    "difference",
    "95% interval over questions",
    "p",
];

/// Two results of the same questions, as differences `later - earlier`, and what cannot be compared.
pub fn against(earlier: &Scores, later: &Scores) -> (TextTable, Vec<String>) {
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    let table = |rows| TextTable::plain(DIFFERENCE_HEAD.map(str::to_owned).to_vec(), rows);
    if earlier.settings != later.settings {
        left_out.push(format!(
            "all tasks: the settings differ: {} and {}",
            earlier.settings.text(),
            later.settings.text()
        ));
        return (table(rows), left_out);
    }
    for task in &earlier.tasks {
        if !later.tasks.iter().any(|other| other.name == task.name) {
            left_out.push(format!("{}: only the earlier result has it", task.name));
        }
    }
    for task in &later.tasks {
        match earlier.tasks.iter().find(|other| other.name == task.name) {
            None => left_out.push(format!("{}: the earlier result does not have it", task.name)),
            Some(before) if !before.is_asked_as(task) => left_out
                .push(format!("{}: other questions, examples or settings of the task", task.name)),
            Some(before) => rows.extend(before.differences(task)),
        }
    }
    (table(rows), left_out)
}

impl Task {
    /// Whether the questions and the way they are asked are the same.
    fn is_asked_as(&self, other: &Task) -> bool {
        (&self.task, &self.questions, &self.examples, self.count)
            == (&other.task, &other.questions, &other.examples, other.count)
    }

    /// The rows of a later result of the same questions.
    fn differences(&self, later: &Task) -> impl Iterator<Item = Vec<String>> {
        later.metrics.iter().filter_map(|score| {
            let before = self.metrics.iter().find(|before| before.metric == score.metric)?;
            let is_paired = !score.each.is_empty() && before.each.len() == score.each.len();
            if !is_share(&score.metric) || !is_paired {
                return None;
            }
            let [interval, p] = score.interval_and_p(before);
            Some(vec![
                later.name.clone(),
                score.metric.clone(),
                later.count.to_string(),
                format!("{:.1}%", 100.0 * before.value),
                format!("{:.1}%", 100.0 * score.value),
                format!("{:+.1} pp", 100.0 * (score.value - before.value)),
                interval,
                p,
            ])
        })
    }
}

impl Score {
    /// Of the mean difference from an earlier score of the same questions.
    fn interval_and_p(&self, before: &Score) -> [String; 2] {
        let differences: Vec<f64> =
            self.each.iter().zip(&before.each).map(|(after, before)| after - before).collect();
        if differences.iter().all(|difference| *difference == 0.0) {
            return ["no question differs".to_owned(), String::new()];
        }
        match Paired::from_differences(&differences, Confidence::NINETY_FIVE) {
            Ok(Paired { low, high, p, .. }) => {
                [format!("{:+.1} … {:+.1} pp", 100.0 * low, 100.0 * high), format!("{p:.2}")]
            }
            Err(_) => ["unknown: too few questions differ".to_owned(), String::new()],
        }
    }
}

impl Settings {
    fn text(&self) -> String {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        format!(
            "max_length {}, bos {}, {}, limit {}",
            self.max_length,
            or_none(self.bos.map(|id| id.to_string())),
            self.dtype,
            or_none(self.limit.map(|limit| limit.to_string()))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn digest(task: &str, shots: usize) -> Option<String> {
        (task == "piqa").then(|| format!("{task} {shots}"))
    }

    fn scores(name: &str, each: &[f64], questions: &str, max_length: u64) -> Scores {
        let task = digest("piqa", 0).unwrap();
        document(name, each, (&task, questions), max_length, None)
    }

    /// A result on a task with this digest, and on questions with that.
    fn document(
        name: &str,
        each: &[f64],
        (task, questions): (&str, &str),
        max_length: u64,
        limit: Option<u64>,
    ) -> Scores {
        let value = each.iter().sum::<f64>() / each.len() as f64;
        let document = json!({
            "schema": SCHEMA, "model": {"name": name, "graph": "g"},
            "settings": {"max_length": max_length, "bos": null, "dtype": "f32", "limit": limit},
            "tasks": [{"name": "piqa", "task": task, "questions": questions, "examples": null, "shots": 0, "count": each.len(),
                "metrics": [{"metric": "acc", "value": value, "stderr": 0.1, "each": each}]}],
        });
        Scores::parse(&document.to_string(), &digest).unwrap()
    }

    #[test]
    fn own_rows_stand_above_published_ones() {
        let table = beside_published(&[scores("mine", &[1.0, 0.0, 1.0, 1.0], "q", 9)]);
        assert_eq!(table.rows.len(), 1 + 64 + 18);
        assert_eq!(table.rows[0][..4], ["mine", "yours", "", "75.0"]);
        let named = |name: &str| table.rows.iter().find(|row| row[0] == name).unwrap();
        assert_eq!(named("GDN2conv-1B-Nemo-1T-lr0.002")[2..5], ["57", "77", "68.5"]);
        assert_eq!(
            named("Meta/Llama-3.2-1B")[1..4],
            ["open models: 9T tokens, 2024.9", "62.2", "74.5"]
        );
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        assert_eq!(beside_published(&[]).rows.len(), 0);
        // Another prompt, or the first questions only, are no column of theirs.
        let other = document("mine", &[1.0, 0.0], ("another", "q"), 9, None);
        assert_eq!(beside_published(&[other]).rows.len(), 0);
        let task = digest("piqa", 0).unwrap();
        let first = document("mine", &[1.0, 0.0], (&task, "q"), 9, Some(2));
        assert_eq!(beside_published(&[first]).rows.len(), 0);
    }

    #[test]
    fn results_are_paired_by_question() {
        let earlier = scores("a", &[0.0, 0.0, 1.0, 0.0], "q", 9);
        let (table, left_out) = against(&earlier, &scores("b", &[1.0, 0.0, 1.0, 1.0], "q", 9));
        assert_eq!(table.rows[0][3..6], ["25.0%", "75.0%", "+50.0 pp"]);
        // Differences 1, 0, 0, 1: mean 0.5, standard error 0.2887, t(3) = 3.182.
        assert_eq!(table.rows[0][6], "-41.9 … +141.9 pp");
        assert!(left_out.is_empty());
        let (table, left_out) = against(&earlier, &scores("b", &[1.0, 0.0, 1.0, 1.0], "other", 9));
        assert!(table.rows.is_empty() && left_out[0].contains("other questions"), "{left_out:?}");
        let (_, left_out) = against(&earlier, &scores("b", &[1.0; 4], "q", 8));
        assert!(
            left_out[0].contains("max_length 9") && left_out[0].contains("max_length 8"),
            "{left_out:?}"
        );
        let (table, _) = against(&earlier, &earlier);
        assert_eq!(table.rows[0][6], "no question differs");
        assert!(Scores::parse("{}", &digest).is_err());
    }
}
