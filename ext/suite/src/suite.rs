//! Reads suites from TOML and checks their tasks. An unknown key is an error, and so is a key that its kind of task
//! does not read, so no setting is silently ignored. Everything that decides a score is in [`Task::digest`].

use std::collections::BTreeSet;

use dsl::Problem;
use serde::{Deserialize, Serialize};
use tasks::metric::MetricRule;

/// Some tasks under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// The file, as shown in messages.
    pub file: String,
    /// Its tasks, in the order of the file.
    pub tasks: Vec<Task>,
}

/// The kind of a task: what it requests, and how the reply is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Several choices; the likeliest is the answer.
    Choice,
    /// One continuation; how likely it is, and whether greedy decoding writes it.
    Continuation,
    /// Every token of a text.
    Document,
    /// The model writes an answer.
    Generate,
}

/// A number that a task reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Share of questions whose likeliest choice is the answer; for a continuation, share that is written greedily.
    Acc,
    /// As `acc`, with each log-likelihood divided by the choice's number of characters.
    AccNorm,
    /// exp of the mean negative log-likelihood of a continuation.
    Perplexity,
    /// exp of the negative log-likelihood of all documents, divided by their words.
    WordPerplexity,
    /// The same, divided by their bytes.
    BytePerplexity,
    /// The negative log-likelihood of all documents in bits, divided by their bytes.
    BitsPerByte,
    /// Share of generated answers that equal an expected one.
    ExactMatch,
    /// Share of generated answers that contain an expected one, ignoring case.
    Contains,
}

/// The order in which examples are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShotOrder {
    /// Drawn for each question, as by Python's `random.Random(1234).sample`.
    #[default]
    Random,
    /// The first ones of the file.
    First,
}

/// A step between the generated text and its comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Filter {
    /// Removes one space from the front.
    RemoveWhitespace,
    /// Converts to lower case.
    Lowercase,
    /// Converts to upper case.
    Uppercase,
    /// Replaces the text by a match of a regular expression.
    Regex {
        /// The expression; with groups, the first group that is not empty.
        pattern: String,
        /// Which match counts; -1 is the last.
        #[serde(default)]
        select: i64,
        /// The answer if nothing is found.
        #[serde(default = "invalid")]
        fallback: String,
    },
}

fn invalid() -> String {
    "[invalid]".to_owned()
}

/// Default text between a prompt and its answer.
const DELIMITER: &str = " ";
/// Default text after each example.
const SEPARATOR: &str = "\n\n";
/// Default maximum number of tokens of a generated answer, as in the harness.
const MAX_TOKENS: usize = 256;

// Serde passes references to the values of fields.
fn is_default_delimiter(value: &Option<String>) -> bool {
    value.as_deref().is_none_or(|value| value == DELIMITER)
}

fn is_default_separator(value: &Option<String>) -> bool {
    value.as_deref().is_none_or(|value| value == SEPARATOR)
}

fn is_default_order(value: &Option<ShotOrder>) -> bool {
    value.is_none_or(|value| value == ShotOrder::default())
}

fn is_default_length(value: &Option<usize>) -> bool {
    value.is_none_or(|value| value == MAX_TOKENS)
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

/// The revision of the rules by which a task's text becomes requests and replies become scores. Add 1 with every change
/// to the rules: it changes the digest, so older locks are not measured by the new rules.
const REVISION: u32 = 1;

/// A task: how its questions become text, and what is scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Name in results.
    pub name: String,
    /// What it requests, and how the reply is scored.
    pub kind: Kind,
    /// The questions: a JSON lines file, next to the suite or in the folder given on the command line.
    pub file: String,
    /// Template: text before everything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Template: the text before the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Expression: a list of texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<String>,
    /// Expression: for choices, the number of the right one, its text, or a list of these; otherwise the expected text
    /// or a list of texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Template: with it, a choice ends the prompt, and this text is what is scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<String>,
    /// Template: a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Template: the text whose words and bytes are counted, if not `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<String>,
    /// Between a prompt and its answer.
    #[serde(skip_serializing_if = "is_default_delimiter")]
    pub delimiter: Option<String>,
    /// Between two examples.
    #[serde(skip_serializing_if = "is_default_separator")]
    pub separator: Option<String>,
    /// Number of examples in front of a question; `canonc eval --shots` changes it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shots: usize,
    /// The file of examples; without it, other questions of the same file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shots_file: Option<String>,
    /// Which examples are taken.
    #[serde(skip_serializing_if = "is_default_order")]
    pub shots_order: Option<ShotOrder>,
    /// A field: only examples in which it has the question's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shots_by: Option<String>,
    /// Texts that end a generated answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub until: Vec<String>,
    /// Maximum number of tokens of a generated answer.
    #[serde(skip_serializing_if = "is_default_length")]
    pub max_tokens: Option<usize>,
    /// Steps before a generated answer is compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
    /// Regular expressions whose matches are removed from both texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// Compare without case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_case: bool,
    /// Compare without ASCII punctuation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_punctuation: bool,
    /// Compare without ASCII digits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_numbers: bool,
    /// The metrics to report.
    #[serde(default)]
    pub metrics: Vec<Metric>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuiteFile {
    task: Vec<Task>,
}

impl Kind {
    /// The word in a suite.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Choice => "choice",
            Kind::Continuation => "continuation",
            Kind::Document => "document",
            Kind::Generate => "generate",
        }
    }

    /// The metrics that it can report, and how many of the first are reported by default.
    fn metrics(self) -> (&'static [Metric], usize) {
        use Metric::{
            Acc, AccNorm, BitsPerByte, BytePerplexity, Contains, ExactMatch, Perplexity,
            WordPerplexity,
        };
        match self {
            Kind::Choice => (&[Acc, AccNorm], 2),
            Kind::Continuation => (&[Acc, Perplexity], 2),
            Kind::Document => (&[WordPerplexity, BytePerplexity, BitsPerByte], 3),
            Kind::Generate => (&[ExactMatch, Contains], 1),
        }
    }
}

impl Metric {
    /// The word in a suite and in results.
    pub fn word(self) -> &'static str {
        match self {
            Metric::Acc => "acc",
            Metric::AccNorm => "acc_norm",
            Metric::Perplexity => "perplexity",
            Metric::WordPerplexity => "word_perplexity",
            Metric::BytePerplexity => "byte_perplexity",
            Metric::BitsPerByte => "bits_per_byte",
            Metric::ExactMatch => "exact_match",
            Metric::Contains => "contains",
        }
    }

    /// Whether it is a share of questions.
    pub fn is_share(self) -> bool {
        self.rule() == Some(MetricRule::Share)
    }

    /// How it follows from the values of the questions; every metric has a rule.
    pub fn rule(self) -> Option<MetricRule> {
        tasks::metric::of_word(self.word()).map(|known| known.rule)
    }
}

impl Suite {
    /// Reads a suite.
    pub fn read(file: &str, text: &str) -> Result<Suite, Problem> {
        let SuiteFile { task: mut tasks } = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| {
                let before = text.get(..span.start).unwrap_or_default();
                before.matches('\n').count() + 1
            });
            let location = line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"));
            let message = error.message().lines().next().unwrap_or_default().to_owned();
            Problem::in_file(location, message, "`canonc eval --help` has an example of a suite")
        })?;
        if tasks.is_empty() {
            return Err(Problem::in_file(file, "it has no task", "write a first one: `[[task]]`"));
        }
        let mut names = BTreeSet::new();
        for task in &mut tasks {
            task.check(file)?;
            if !names.insert(task.name.clone()) {
                let message = format!("two tasks have the name `{}`", task.name);
                return Err(Problem::in_file(file, message, "rename one of them"));
            }
        }
        Ok(Suite { file: file.to_owned(), tasks })
    }
}

/// Longest name of a task.
const NAME: usize = 64;

/// What is wrong with a task, and what to do.
type Refusal = (String, String);

impl Task {
    /// Checks that the task is complete and sets nothing that its kind ignores; fills in the default metrics.
    fn check(&mut self, file: &str) -> Result<(), Problem> {
        let problem = |(message, help): Refusal| Problem::in_file(file, message, help);
        self.check_name().map_err(problem)?;
        self.check_keys().map_err(problem)?;
        self.check_metrics().map_err(problem)?;
        self.check_comparison().map_err(problem)?;
        self.check_patterns().map_err(problem)
    }

    fn check_name(&self) -> Result<(), Refusal> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if self.name.is_empty() || self.name.len() > NAME || !self.name.chars().all(is_plain) {
            return Err((
                format!("the name of a task is {:?}", self.name),
                "use letters, digits, `_`, `-` and `.`, at most 64 of them".to_owned(),
            ));
        }
        Ok(())
    }

    /// Checks that the keys are those of the kind.
    fn check_keys(&self) -> Result<(), Refusal> {
        let (kind, name) = (self.kind, &self.name);
        let choice = kind == Kind::Choice;
        let generate = kind == Kind::Generate;
        let document = kind == Kind::Document;
        // For each key: whether the kind needs it, whether it may have it, whether it is present.
        let keys: [(&str, bool, bool, bool); 20] = [
            ("prompt", !document && self.ending.is_none(), !document, self.prompt.is_some()),
            ("choices", choice, choice, self.choices.is_some()),
            ("answer", !document, !document, self.answer.is_some()),
            ("ending", false, choice, self.ending.is_some()),
            ("text", document, document, self.text.is_some()),
            ("counted", false, document, self.counted.is_some()),
            ("description", false, !document, self.description.is_some()),
            ("shots", false, !document, self.shots > 0),
            ("shots_file", false, !document, self.shots_file.is_some()),
            ("shots_order", false, !document, self.shots_order.is_some()),
            ("delimiter", false, !document, self.delimiter.is_some()),
            ("separator", false, !document, self.separator.is_some()),
            ("shots_by", false, !document, self.shots_by.is_some()),
            ("until", generate, generate, !self.until.is_empty()),
            ("max_tokens", false, generate, self.max_tokens.is_some()),
            ("filters", false, generate, !self.filters.is_empty()),
            ("ignore", false, generate, !self.ignore.is_empty()),
            ("ignore_case", false, generate, self.ignore_case),
            ("ignore_punctuation", false, generate, self.ignore_punctuation),
            ("ignore_numbers", false, generate, self.ignore_numbers),
        ];
        for (key, needed, allowed, present) in keys {
            if needed && !present {
                return Err((
                    format!("task `{name}`: kind `{}` needs `{key}`", kind.word()),
                    "add it; docs/evaluation.md describes each key".to_owned(),
                ));
            }
            if present && !allowed {
                return Err((
                    format!("task `{name}`: kind `{}` does not read `{key}`", kind.word()),
                    "remove it, or choose another kind".to_owned(),
                ));
            }
        }
        if self.until.iter().any(String::is_empty) {
            return Err((
                format!("task `{name}`: a text of `until` is empty"),
                "remove it".to_owned(),
            ));
        }
        Ok(())
    }

    /// Fills in the kind's default metrics if there are none, and checks that the kind has all of them.
    fn check_metrics(&mut self) -> Result<(), Refusal> {
        let (kind, name) = (self.kind, &self.name);
        let (possible, defaults) = kind.metrics();
        if self.metrics.is_empty() {
            self.metrics = possible.iter().take(defaults).copied().collect();
        }
        for (index, metric) in self.metrics.iter().enumerate() {
            let known: Vec<&str> = possible.iter().map(|metric| metric.word()).collect();
            let word = metric.word();
            if !possible.contains(metric) {
                return Err((
                    format!("task `{name}`: kind `{}` has no `{word}`", kind.word()),
                    format!("it has {}", known.join(", ")),
                ));
            }
            if self.metrics.iter().take(index).any(|earlier| earlier == metric) {
                return Err((
                    format!("task `{name}`: `{word}` is listed twice"),
                    "list it once".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Checks that a metric reads the settings of comparison.
    fn check_comparison(&self) -> Result<(), Refusal> {
        let compares = self.metrics.contains(&Metric::ExactMatch);
        for (key, present) in [
            ("ignore", !self.ignore.is_empty()),
            ("ignore_case", self.ignore_case),
            ("ignore_punctuation", self.ignore_punctuation),
            ("ignore_numbers", self.ignore_numbers),
        ] {
            if present && !compares {
                return Err((
                    format!(
                        "task `{}`: only `exact_match` reads `{key}`, and it is not among the metrics",
                        self.name
                    ),
                    "add exact_match to the metrics, or remove the key".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Checks that every pattern compiles.
    fn check_patterns(&self) -> Result<(), Refusal> {
        for pattern in self.ignore.iter().chain(self.filters.iter().filter_map(Filter::pattern)) {
            if let Err(error) = regex::Regex::new(pattern) {
                let error = error.to_string();
                let reason = error.lines().last().unwrap_or_default();
                return Err((
                    format!(
                        "task `{}`: `{pattern}` is not a regular expression: {reason}",
                        self.name
                    ),
                    "the syntax is that of Rust's crate regex: no look-around, no back-references"
                        .to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Between a prompt and its answer: a space by default.
    pub fn delimiter(&self) -> &str {
        self.delimiter.as_deref().unwrap_or(DELIMITER)
    }

    /// After each example: a blank line by default.
    pub fn separator(&self) -> &str {
        self.separator.as_deref().unwrap_or(SEPARATOR)
    }

    /// Maximum number of tokens of a generated answer; by default that of the harness.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens.unwrap_or(MAX_TOKENS)
    }

    /// A digest of everything in the suite that decides a score, and of the rules' revision. Default values are not in
    /// it, so that a later key changes no digest of a task without it.
    pub fn digest(&self) -> blake3::Hash {
        blake3::hash(self.hashed().as_bytes())
    }

    fn hashed(&self) -> String {
        // A struct of texts, numbers and lists always has a JSON form.
        let settings = serde_json::to_string(self).unwrap_or_default();
        format!("canonc.suite.task.v1\nrevision = {REVISION}\n{settings}\n")
    }
}

impl Filter {
    fn pattern(&self) -> Option<&String> {
        match self {
            Filter::Regex { pattern, .. } => Some(pattern),
            Filter::RemoveWhitespace | Filter::Lowercase | Filter::Uppercase => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIQA: &str = "[[task]]\nname = \"piqa\"\nkind = \"choice\"\nfile = \"piqa.jsonl\"\n\
                        prompt = \"Question: {{ goal }}\\nAnswer:\"\nchoices = \"[sol1, sol2]\"\nanswer = \"label\"\n";

    fn wrong(text: &str) -> String {
        Suite::read("s.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn a_task_has_the_usual_metrics() {
        let suite = Suite::read("s.toml", PIQA).unwrap();
        assert_eq!(suite.tasks[0].metrics, [Metric::Acc, Metric::AccNorm]);
        assert_eq!(suite.tasks[0].delimiter(), " ");
        for kind in [Kind::Choice, Kind::Continuation, Kind::Document, Kind::Generate] {
            for metric in kind.metrics().0 {
                let known = tasks::metric::of_word(metric.word()).unwrap();
                assert_eq!(known.rule.counts(), kind == Kind::Document, "{metric:?}");
                assert_eq!(known.is_written, kind == Kind::Generate, "{metric:?}");
            }
        }
    }

    #[test]
    fn what_a_kind_does_not_read_is_refused() {
        let document = "[[task]]\nname = \"t\"\nkind = \"document\"\nfile = \"q\"\ntext = \"t\"\n";
        for key in ["delimiter = \":\"", "separator = \"#\"", "shots_order = \"first\""] {
            assert!(wrong(&format!("{document}{key}\n")).contains("does not read"), "{key}");
        }
        let contains = "[[task]]\nname = \"t\"\nkind = \"generate\"\nfile = \"q\"\nprompt = \"p\"\nanswer = \"a\"\n\
                        until = [\".\"]\nmetrics = [\"contains\"]\nignore_case = true\n";
        assert!(wrong(contains).contains("only `exact_match` reads `ignore_case`"));
        let cases = [
            ("until = [\"x\"]\n", "kind `choice` does not read `until`"),
            ("text = \"x\"\n", "kind `choice` does not read `text`"),
            ("metrics = [\"perplexity\"]\n", "kind `choice` has no `perplexity`"),
            ("metrics = [\"acc\", \"acc\"]\n", "`acc` is listed twice"),
            ("colour = 1\n", "s.toml:8: unknown field `colour`"),
        ];
        for (more, says) in cases {
            let error = wrong(&format!("{PIQA}{more}"));
            assert!(error.contains(says), "{error}");
        }
        assert!(wrong(&PIQA.replace("answer = \"label\"\n", "")).contains("needs `answer`"));
        assert!(wrong(&format!("{PIQA}{PIQA}")).contains("two tasks have the name `piqa`"));
        assert!(wrong(&PIQA.replace("\"piqa\"", "\"a/b\"")).contains("the name of a task"));
        assert!(wrong("task = []").contains("it has no task"));
    }

    #[test]
    fn every_key_is_in_the_digest() {
        let digest = |text: &str| Suite::read("s.toml", text).unwrap().tasks[0].digest();
        let base = digest(PIQA);
        for more in
            ["delimiter = \"\"\n", "shots = 1\n", "metrics = [\"acc\"]\n", "separator = \"\\n\"\n"]
        {
            assert_ne!(digest(&format!("{PIQA}{more}")), base, "{more}");
        }
        for default in [
            "delimiter = \" \"\n",
            "shots = 0\n",
            "separator = \"\\n\\n\"\n",
            "shots_order = \"random\"\n",
        ] {
            assert_eq!(digest(&format!("{PIQA}{default}")), base, "{default}");
        }
    }

    #[test]
    fn the_digest_is_over_settings_that_are_not_defaults() {
        let hashed = |text: &str| Suite::read("s.toml", text).unwrap().tasks[0].hashed();
        let wanted = concat!(
            "canonc.suite.task.v1\nrevision = 1\n",
            r#"{"name":"piqa","kind":"choice","file":"piqa.jsonl","prompt":"Question: {{ goal }}\nAnswer:","#,
            r#""choices":"[sol1, sol2]","answer":"label","metrics":["acc","acc_norm"]}"#,
            "\n"
        );
        assert_eq!(hashed(PIQA), wanted);
        let write = "[[task]]\nname = \"t\"\nkind = \"generate\"\nfile = \"q\"\nprompt = \"p\"\nanswer = \"a\"\n\
                     until = [\".\"]\n";
        assert_eq!(
            hashed(write),
            hashed(&format!("{write}max_tokens = 256\nignore_case = false\n"))
        );
        assert_ne!(hashed(write), hashed(&format!("{write}max_tokens = 255\n")));
        let regex = "filters = [{ regex = { pattern = \"x\" } }]\n";
        let explicit =
            "filters = [{ regex = { pattern = \"x\", select = 0, fallback = \"[invalid]\" } }]\n";
        assert_eq!(hashed(&format!("{write}{regex}")), hashed(&format!("{write}{explicit}")));
    }
}
