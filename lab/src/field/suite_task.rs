//! A task of an evaluation suite as a lock names it, in one line of text. Two tasks with equal lines ask the same questions
//! in the same way, and a task has exactly one line.

use std::fmt;

use compiler::digest::Digest;
use tasks::metric::{self, Counted, OfSuites};
use toml::Spanned;
use toml::de::DeValue;

use super::value::FieldValue;
use super::written::{short, shown, string};

/// A task of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuiteTask {
    /// Its name in results.
    pub name: String,
    /// The words of its metrics, in order.
    pub metrics: Vec<String>,
    /// Number of questions.
    pub questions: u64,
    /// Digest of its settings in the suite.
    pub settings: Digest,
    /// Digest of its file of questions.
    pub asked: Digest,
    /// Digest of its file of examples, if it has examples.
    pub examples: Option<Digest>,
    /// The words and bytes of all documents, if a metric divides by them.
    pub counted: Option<Counted>,
}

impl SuiteTask {
    /// The names of its metrics in logs and comparisons: `piqa/acc`.
    pub fn metric_names(&self) -> impl Iterator<Item = String> {
        self.metrics.iter().map(|word| format!("{}/{word}", self.name))
    }

    /// Whether the model writes answers.
    pub fn writes(&self) -> bool {
        self.rows().any(|row| row.is_written)
    }

    fn rows(&self) -> impl Iterator<Item = &'static OfSuites> {
        self.metrics.iter().filter_map(|word| metric::of_word(word))
    }

    /// Whether a metric divides by the words or bytes of documents.
    fn counts(&self) -> bool {
        self.rows().any(|row| row.rule.counts())
    }

    /// Reads the line of a task.
    pub fn parse(text: &str) -> Option<SuiteTask> {
        let mut words = text.split(' ');
        let mut next = || words.next();
        let (name, metrics) = (next()?.to_owned(), next()?.split(',').map(str::to_owned).collect());
        let questions = next()?.parse().ok()?;
        let mut labelled = |label: &str| match next() {
            Some(word) if word == label => Digest::parse(next()?),
            Some(_) | None => None,
        };
        let (settings, asked) = (labelled("settings")?, labelled("questions")?);
        let rest: Vec<&str> = words.collect();
        let (examples, rest) = match &rest[..] {
            ["examples", digest, rest @ ..] => (Some(Digest::parse(digest)?), rest),
            rest => (None, rest),
        };
        let counted = match rest {
            [] => None,
            ["words", words, "bytes", bytes] => {
                Some(Counted { words: words.parse().ok()?, bytes: bytes.parse().ok()? })
            }
            _ => return None,
        };
        let task = SuiteTask { name, metrics, questions, settings, asked, examples, counted };
        let known = task.metric_names().all(|name| metric::of_suite(&name).is_some());
        let has_counts = task.counts() == counted.is_some();
        (known && has_counts && task.to_string() == text).then_some(task)
    }
}

impl fmt::Display for SuiteTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SuiteTask { name, metrics, questions, settings, asked, examples, counted } = self;
        let metrics = metrics.join(",");
        write!(f, "{name} {metrics} {questions} settings {settings} questions {asked}")?;
        if let Some(examples) = examples {
            write!(f, " examples {examples}")?;
        }
        match counted {
            Some(Counted { words, bytes }) => write!(f, " words {words} bytes {bytes}"),
            None => Ok(()),
        }
    }
}

/// Reads a list of tasks with different names.
pub(super) fn read(items: &[Spanned<DeValue<'_>>]) -> Result<FieldValue, String> {
    let mut tasks: Vec<SuiteTask> = Vec::new();
    for item in short(items)? {
        let item = item.get_ref();
        let Some(task) = string(item).and_then(SuiteTask::parse) else {
            return Err(format!(
                "{} is not a task of a suite, as `canonc build` writes it",
                shown(item)
            ));
        };
        if tasks.iter().any(|known| known.name == task.name) {
            return Err(format!("the task `{}` is given twice", task.name));
        }
        tasks.push(task);
    }
    Ok(FieldValue::List(tasks.iter().map(|task| FieldValue::text(task.to_string())).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_read_back_and_nothing_else_is() {
        let digest = |text: &str| Digest::of("test", text);
        let task = SuiteTask {
            name: "piqa".to_owned(),
            metrics: vec!["acc".to_owned(), "acc_norm".to_owned()],
            questions: 1838,
            settings: digest("s"),
            asked: digest("q"),
            examples: None,
            counted: None,
        };
        let with = SuiteTask { examples: Some(digest("e")), ..task.clone() };
        let documents = SuiteTask {
            metrics: vec!["bits_per_byte".to_owned()],
            counted: Some(Counted { words: 2, bytes: 12 }),
            ..task.clone()
        };
        for task in [task.clone(), with, documents.clone()] {
            assert_eq!(SuiteTask::parse(&task.to_string()), Some(task));
        }
        let text = task.to_string();
        for (from, to) in [
            ("acc,", "loss,"),
            ("1838", "01838"),
            ("settings", "setting"),
            ("piqa ", ""),
            (" questions", "  questions"),
        ] {
            assert_eq!(SuiteTask::parse(&text.replacen(from, to, 1)), None, "{from}");
        }
        for more in ["more", "words 2 bytes 12", "words 2"] {
            assert_eq!(SuiteTask::parse(&format!("{text} {more}")), None, "{more}");
        }
        let without = SuiteTask { counted: None, ..documents };
        assert_eq!(SuiteTask::parse(&without.to_string()), None);
        assert!(!task.writes());
        assert_eq!(task.metric_names().collect::<Vec<_>>(), ["piqa/acc", "piqa/acc_norm"]);
    }
}
