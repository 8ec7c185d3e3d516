//! Turns questions into requests to a model, as text. Contexts are those of lm-evaluation-harness
//! (`lm_eval/api/task.py`, `fewshot_context` and `construct_requests`). A question that does not fit its task is an
//! error with its line.

use dsl::Problem;
use jinja::{Value, is_space};

use crate::questions::{Questions, SuiteQuestion};
use crate::shots::Shots;
use crate::suite::{Kind, Metric, Task};
use crate::template::{evaluate, render, texts};

/// A request to a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// The log-likelihood of each continuation after its context.
    Choose {
        /// (context, continuation)
        pairs: Vec<(String, String)>,
        /// Indices of the right choices, at least one.
        right: Vec<usize>,
        /// Characters of each choice.
        lengths: Vec<usize>,
    },
    /// The log-likelihood of one continuation.
    Continue {
        /// The text before the continuation.
        context: String,
        /// The text that is scored.
        continuation: String,
    },
    /// The log-likelihood of every token of a text.
    Document {
        /// The text.
        text: String,
        /// Number of words, for perplexity.
        words: usize,
        /// Number of bytes.
        bytes: usize,
    },
    /// A text that the model writes.
    Generate {
        /// The text before the answer.
        prompt: String,
        /// Right answers, at least one.
        expected: Vec<String>,
    },
}

/// The requests of a task, one for each question.
pub fn requests(
    task: &Task,
    questions: &Questions,
    examples: &Questions,
    limit: Option<usize>,
) -> Result<Vec<Request>, Problem> {
    let mut shots = Shots::new(task, examples)?;
    let asked = questions.all.iter().take(limit.unwrap_or(usize::MAX));
    asked.map(|question| request(task, questions, examples, question, &mut shots)).collect()
}

/// The parts of a question: the given text, and what can follow it.
struct QuestionParts {
    given: String,
    /// For choices, all of them with the right ones; otherwise empty.
    choices: Vec<String>,
    right: Vec<usize>,
    /// For other kinds, the expected texts.
    expected: Vec<String>,
    ending: Option<String>,
}

fn request(
    task: &Task,
    questions: &Questions,
    examples: &Questions,
    question: &SuiteQuestion,
    shots: &mut Shots<'_>,
) -> Result<Request, Problem> {
    let asked = AskedQuestion { task, questions, question };
    if task.kind == Kind::Document {
        return asked.document();
    }
    let mut context = asked.text("description", &task.description)?.unwrap_or_default();
    for example in shots.next(questions, question)? {
        let example = AskedQuestion { task, questions: examples, question: example };
        context += &shown_example(task, &example.parts()?);
    }
    let QuestionParts { given, choices, right, mut expected, ending } = asked.parts()?;
    let delimiter = task.delimiter();
    Ok(match task.kind {
        Kind::Choice => {
            let lengths = choices.iter().map(|choice| choice.chars().count()).collect();
            let pair = |choice: &String| match &ending {
                Some(ending) => {
                    (format!("{context}{given}{choice}"), format!("{delimiter}{ending}"))
                }
                None => (format!("{context}{given}"), format!("{delimiter}{choice}")),
            };
            Request::Choose { pairs: choices.iter().map(pair).collect(), right, lengths }
        }
        Kind::Generate => Request::Generate { prompt: context + &given, expected },
        Kind::Continuation | Kind::Document => Request::Continue {
            context: context + &given,
            continuation: expected.pop().unwrap_or_default(),
        },
    })
}

/// An example with its answer.
fn shown_example(task: &Task, parts: &QuestionParts) -> String {
    let QuestionParts { given, choices, right, expected, ending } = parts;
    let first = right.first().and_then(|index| choices.get(*index));
    let (given, answer) = match (first, ending) {
        (Some(choice), Some(ending)) => (format!("{given}{choice}"), ending.clone()),
        (Some(choice), None) => (given.clone(), choice.clone()),
        (None, _) => (given.clone(), expected.first().cloned().unwrap_or_default()),
    };
    match answer.is_empty() {
        true => given,
        false => format!("{given}{}{answer}{}", task.delimiter(), task.separator()),
    }
}

/// A question of a file, asked for a task.
struct AskedQuestion<'a> {
    task: &'a Task,
    questions: &'a Questions,
    question: &'a SuiteQuestion,
}

impl AskedQuestion<'_> {
    /// An error about a key of the task and this question.
    fn failure(&self, key: &str, reason: &str) -> Problem {
        Problem::in_file(
            self.questions.at(self.question),
            format!("`{key}` of task `{}`: {reason}", self.task.name),
            "change the question or the task; its keys are described in docs/evaluation.md",
        )
    }

    /// The text of a template, if the task has it.
    fn text(&self, key: &str, template: &Option<String>) -> Result<Option<String>, Problem> {
        let rendered = template.as_ref().map(|text| render(text, &self.question.fields));
        rendered.transpose().map_err(|reason| self.failure(key, &reason))
    }

    /// The value of an expression.
    fn value(&self, key: &str, expression: &Option<String>) -> Result<Value, Problem> {
        evaluate(expression.as_deref().unwrap_or_default(), &self.question.fields)
            .map_err(|reason| self.failure(key, &reason))
    }

    fn document(&self) -> Result<Request, Problem> {
        let text = self.text("text", &self.task.text)?.unwrap_or_default();
        let counted = self.text("counted", &self.task.counted)?;
        let counted = counted.unwrap_or_else(|| text.clone());
        if text.is_empty() || counted.is_empty() {
            return Err(self.failure("text", "the document is empty"));
        }
        Ok(Request::Document { text, words: words(&counted), bytes: counted.len() })
    }

    fn parts(&self) -> Result<QuestionParts, Problem> {
        let task = self.task;
        let given = self.text("prompt", &task.prompt)?.unwrap_or_default();
        let ending = self.text("ending", &task.ending)?;
        let answer = self.value("answer", &task.answer)?;
        let (mut choices, mut right, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        match task.kind {
            Kind::Choice => (choices, right) = self.choices(&answer)?,
            Kind::Continuation | Kind::Generate | Kind::Document => {
                expected = self.expected(&answer)?;
            }
        }
        Ok(QuestionParts { given, choices, right, expected, ending })
    }

    /// All choices, and the indices of those that the answer names.
    fn choices(&self, answer: &Value) -> Result<(Vec<String>, Vec<usize>), Problem> {
        let shown_answer = shown(answer);
        let value = self.value("choices", &self.task.choices)?;
        let shown_choices = shown(&value);
        let choices = value.elements().and_then(|items| texts(&items)).ok_or_else(|| {
            self.failure("choices", &format!("a list of texts is wanted, not {shown_choices}"))
        })?;
        if choices.len() < 2 || choices.iter().any(String::is_empty) {
            let reason =
                format!("at least two texts are wanted, none of them empty, not {shown_choices}");
            return Err(self.failure("choices", &reason));
        }
        let right = right_choices(answer, &choices).ok_or_else(|| {
            let reason = format!("{shown_answer} is none of the {} choices", choices.len());
            self.failure("answer", &reason)
        })?;
        Ok((choices, right))
    }

    /// The expected texts that the answer names.
    fn expected(&self, answer: &Value) -> Result<Vec<String>, Problem> {
        let kind = self.task.kind;
        let shown_answer = shown(answer);
        let expected = match answer.as_str() {
            Some(text) => vec![text.to_owned()],
            None if kind == Kind::Generate && is_number(answer) => vec![shown_answer.clone()],
            None => answer
                .elements()
                .and_then(|items| texts(&items))
                .filter(|_| kind == Kind::Generate)
                .unwrap_or_default(),
        };
        // Every text contains the empty one.
        let is_empty = match self.task.metrics.contains(&Metric::Contains) {
            true => expected.iter().any(String::is_empty),
            false => expected.iter().all(String::is_empty),
        };
        if is_empty || expected.is_empty() {
            let wanted = match kind {
                Kind::Generate => "a text that is not empty, or a list of such texts,",
                Kind::Choice | Kind::Continuation | Kind::Document => "a text that is not empty",
            };
            let reason = format!("{wanted} is wanted, not {shown_answer}");
            return Err(self.failure("answer", &reason));
        }
        Ok(expected)
    }
}

/// A value as Python shows it, for messages.
fn shown(value: &Value) -> String {
    value.repr().unwrap_or_else(|error| error)
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::Float(_))
}

/// The indices of the right choices. An answer is a number from 0, a text, or a list of either.
fn right_choices(answer: &Value, choices: &[String]) -> Option<Vec<usize>> {
    if let Some(items) = answer.elements() {
        let all: Option<Vec<Vec<usize>>> =
            items.iter().map(|item| right_choices(item, choices)).collect();
        return all.map(|all| all.concat()).filter(|all| !all.is_empty());
    }
    let index = match answer.as_str() {
        Some(text) => choices.iter().position(|choice| choice == text)?,
        None => usize::try_from(answer.as_int()?).ok()?,
    };
    (index < choices.len()).then(|| vec![index])
}

/// As Python's `len(re.split(r"\s+", text))`, which the harness counts.
fn words(text: &str) -> usize {
    let mut count = 1;
    let mut inside = false;
    for c in text.chars() {
        let space = is_space(c);
        count += usize::from(space && !inside);
        inside = space;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Suite;
    use serde_json::json;

    fn questions(all: &[serde_json::Value]) -> Questions {
        let all = all.iter().enumerate();
        Questions {
            file: "q.jsonl".to_owned(),
            all: all
                .map(|(n, fields)| SuiteQuestion { line: n + 1, fields: Value::from(fields) })
                .collect(),
            digest: blake3::hash(b""),
        }
    }

    fn task(text: &str) -> Task {
        let text = format!("[[task]]\nname = \"t\"\nfile = \"q.jsonl\"\n{text}");
        Suite::read("s.toml", &text).unwrap().tasks.remove(0)
    }

    #[test]
    fn examples_precede_the_question() {
        let task = task(
            "kind = \"choice\"\nprompt = \"Q: {{ q }}\\nA:\"\nchoices = \"c\"\nanswer = \"a\"\nshots = 1\n\
             shots_order = \"first\"\ndescription = \"About {{ q }}.\\n\"\n",
        );
        let all = questions(&[
            json!({"q": "one", "c": ["x", "yy"], "a": 1}),
            json!({"q": "two", "c": ["u", "v"], "a": "v"}),
        ]);
        let asked = requests(&task, &all, &all, None).unwrap();
        let Request::Choose { pairs, right, lengths } = &asked[1] else { panic!() };
        assert_eq!(pairs[0], ("About two.\nQ: one\nA: yy\n\nQ: two\nA:".into(), " u".into()));
        assert_eq!((right, lengths), (&vec![1], &vec![1, 1]));
        let Request::Choose { pairs, .. } = &asked[0] else { panic!() };
        assert_eq!(pairs[1], ("About one.\nQ: two\nA: v\n\nQ: one\nA:".into(), " yy".into()));
    }

    #[test]
    fn with_an_ending_each_choice_ends_the_context() {
        let task = task(
            "kind = \"choice\"\nchoices = \"[s.split('_')[0] ~ o1, s.split('_')[0] ~ o2]\"\nending = \"{{ s.split('_', 1)[1].strip() }}\"\nanswer = \"a | int - 1\"\n",
        );
        let all = questions(&[json!({"s": "The _ ran off.", "o1": "cat", "o2": "dog", "a": "2"})]);
        let Request::Choose { pairs, right, .. } = &requests(&task, &all, &all, None).unwrap()[0]
        else {
            panic!()
        };
        assert_eq!(pairs[0], ("The cat".into(), " ran off.".into()));
        assert_eq!(right, &[1]);
    }

    #[test]
    fn a_question_that_does_not_fit_is_an_error() {
        let choice =
            task("kind = \"choice\"\nprompt = \"{{ q }}\"\nchoices = \"c\"\nanswer = \"a\"\n");
        let cases = [
            (json!({"q": "", "c": ["x", "y"], "a": 2}), "2 is none of the 2 choices"),
            (json!({"q": "", "c": ["x", "y"], "a": -1}), "-1 is none"),
            (json!({"q": "", "c": ["x", "y"], "a": "z"}), "'z' is none"),
            (json!({"q": "", "c": ["x"], "a": 0}), "at least two texts"),
            (json!({"q": "", "c": ["x", ""], "a": 0}), "none of them empty"),
            (json!({"q": "", "c": "xy", "a": 0}), "a list of texts is wanted"),
            (json!({"c": ["x", "y"], "a": 0}), "has no `q`; its fields are `a`, `c`"),
            (json!({"q": "", "c": ["x", "y"]}), "has no `a`; its fields are `c`, `q`"),
        ];
        for (fields, says) in cases {
            let all = questions(&[fields]);
            let error = requests(&choice, &all, &all, None).unwrap_err().to_string();
            assert!(error.starts_with("q.jsonl:1: ") && error.contains(says), "{error}");
        }
    }

    #[test]
    fn too_few_examples_are_an_error() {
        let task = task(
            "kind = \"generate\"\nprompt = \"{{ q }}\"\nanswer = \"a\"\nuntil = [\"\\n\"]\nshots = 2\n",
        );
        let all = questions(&[json!({"q": "1", "a": "x"}), json!({"q": "2", "a": ["y", "z"]})]);
        let error = requests(&task, &all, &all, None).unwrap_err().to_string();
        assert!(
            error.contains("2 examples are wanted, but `q.jsonl` has 1 besides the question"),
            "{error}"
        );
    }

    #[test]
    fn words_are_counted_as_in_python() {
        for (text, count) in [("", 1), ("a", 1), ("a b", 2), (" a  b\n", 4), ("a\u{a0}b\u{1c}c", 3)]
        {
            assert_eq!(words(text), count, "{text:?}");
        }
    }
}
