//! Reads questions from a JSON lines file. Every line that is not blank is a question; a line that is not a JSON object
//! is an error with its line number.

use std::path::Path;

use dsl::Problem;
use jinja::Value;

/// The questions of a file.
#[derive(Clone, Debug)]
pub struct Questions {
    /// The file, as shown in messages.
    pub file: String,
    /// In the order of the file.
    pub all: Vec<SuiteQuestion>,
    /// Digest of the file's bytes.
    pub digest: blake3::Hash,
}

/// One question.
#[derive(Clone, Debug)]
pub struct SuiteQuestion {
    /// Its line, from 1.
    pub line: usize,
    /// Its fields, an object.
    pub fields: Value,
}

impl Questions {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Questions, Problem> {
        let file = shown(path);
        let text = disk::read_text(path, disk::TEXT).map_err(|error| {
            disk::cannot_read(
                &error,
                format!("the questions cannot be read: {error}"),
                "name the folder of your copies with --data; docs/evaluation.md lists where each task's data comes from",
            )
            .at(file.clone())
        })?;
        Questions::parse(file, &text)
    }

    fn parse(file: String, text: &str) -> Result<Questions, Problem> {
        let mut all = Vec::new();
        for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let line_number = number + 1;
            let wrong = |what: String| {
                Problem::in_file(
                    format!("{file}:{line_number}"),
                    what,
                    "a line is one JSON object, such as `{\"question\": \"…\", \"answer\": 0}`",
                )
            };
            let fields: Value =
                Value::from_json(line).map_err(|error| wrong(format!("not JSON: {error}")))?;
            if fields.entries().is_none() {
                return Err(wrong("the line is not an object".to_owned()));
            }
            all.push(SuiteQuestion { line: line_number, fields });
        }
        if all.is_empty() {
            let help = "write one JSON object a line";
            return Err(Problem::in_file(file, "it has no questions", help));
        }
        Ok(Questions { file, all, digest: blake3::hash(text.as_bytes()) })
    }

    /// The file and line of a question.
    pub fn at(&self, question: &SuiteQuestion) -> String {
        format!("{}:{}", self.file, question.line)
    }
}

pub(crate) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "/");
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_checked() {
        let read = |text: &str| Questions::parse("q.jsonl".to_owned(), text);
        let questions = read("\u{feff}{\"a\": 1}\n\n  {\"a\": 2}\n").unwrap();
        assert_eq!(questions.all.iter().map(|q| q.line).collect::<Vec<_>>(), [1, 3]);
        assert!(
            read("{\"a\": 1}\n[]\n")
                .unwrap_err()
                .to_string()
                .starts_with("q.jsonl:2: the line is not")
        );
        assert!(read("{\"a\": \n").unwrap_err().to_string().starts_with("q.jsonl:1: not JSON"));
        assert!(read(" \n").unwrap_err().to_string().contains("no questions"));
    }
}
