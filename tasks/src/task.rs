//! What every task has: a row of facts, and a generator of samples made from its parameters.

use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::Arc;

use serde::de::Deserializer;

use super::arguments::Arguments;
use super::cpython::Random;
use super::grammar::Grammar;
use super::metric::{EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY};
use super::parameter::Parameter;
use super::sample::{Mode, Tape};
use super::{DEFINITIONS, TaskError};

/// A task's row: what recipes, locks and help need to know before its parameters are given.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name that recipes use.
    pub name: &'static str,
    /// Raised when the same seed gives other samples, or packs the same samples into other windows.
    pub revision: i64,
    /// Its parameters, in the published order.
    pub parameters: &'static [Parameter],
    /// Its parameters as the help of `canonc data generate` lists them: those in brackets have a default.
    pub usage: &'static str,
    /// Parameters of a small task, as JSON. The tests of all tasks draw from it.
    pub example: &'static str,
    /// Whether its published parameters have `QA`, which is true for test mode.
    pub has_qa: bool,
    /// Whether samples label the tokens that are targets.
    pub labels: bool,
    /// Whether samples have a largest size.
    pub sized: bool,
    /// Whether tokens are the bytes of a text.
    pub is_text: bool,
    /// Whether a text ends with the answer to its one question.
    pub is_answered: bool,
    /// Whether a training window can start in the middle of a sample.
    pub cuts_anywhere: bool,
    /// Metrics that it can report, by name.
    pub metrics: &'static [&'static str],
    /// Metrics that it reports if a recipe does not say.
    pub usual_metrics: &'static [&'static str],
    /// Metrics that score generated text.
    pub written: &'static [&'static str],
    /// How its evaluation questions can occur in training.
    pub in_training: InTraining,
    pub(super) generator: fn(&Arguments) -> Result<Arc<dyn Generator>, TaskError>,
}

/// How evaluation questions can occur in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTraining {
    /// By chance, word for word.
    ByChance,
    /// By design: evaluation asks about what training said.
    ByDesign,
    /// There are no questions that could be the same, as in sentences of a grammar.
    Never,
}

/// The row of a task whose answers are scored, without labels and of any size.
pub(super) const fn definition<G: Generator + 'static>(
    name: &'static str,
    revision: i64,
    parameters: &'static [Parameter],
) -> Definition {
    Definition {
        name,
        revision,
        parameters,
        usage: "",
        example: "{}",
        has_qa: false,
        labels: false,
        sized: false,
        is_text: false,
        is_answered: false,
        cuts_anywhere: false,
        metrics: &[EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY],
        usual_metrics: &[EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY],
        written: &[],
        in_training: InTraining::ByChance,
        generator: generator::<G>,
    }
}

fn generator<G: Generator + 'static>(
    arguments: &Arguments,
) -> Result<Arc<dyn Generator>, TaskError> {
    Ok(Arc::new(G::new(arguments)?))
}

/// The names of all tasks, sorted.
pub fn names() -> Vec<&'static str> {
    names_where(|_| true)
}

/// The names of the tasks with a property, sorted.
pub fn names_where(has: impl Fn(&Definition) -> bool) -> Vec<&'static str> {
    let mut names: Vec<&str> =
        DEFINITIONS.iter().filter(|task| has(task)).map(|task| task.name).collect();
    names.sort_unstable();
    names
}

impl Definition {
    /// The task with this name.
    pub fn find(name: &str) -> Option<&'static Definition> {
        DEFINITIONS.into_iter().find(|task| task.name == name)
    }

    /// The parameters in recipes and locks, sorted by name.
    pub fn in_recipes(&self) -> Vec<&'static Parameter> {
        let mut parameters: Vec<&Parameter> =
            self.parameters.iter().filter(|parameter| parameter.in_recipes).collect();
        parameters.sort_unstable_by_key(|parameter| parameter.path);
        parameters
    }

    /// The names of the parameters without which there is no task, sorted.
    pub fn required(&self) -> Vec<&'static str> {
        let required = self.in_recipes().into_iter().filter(|parameter| parameter.is_required());
        required.map(Parameter::name).collect()
    }

    /// Whether a model writes the answers, each to a question of its own.
    pub fn writes_answers(&self) -> bool {
        self.written.contains(&EXACT_MATCH)
    }

    /// Reads its parameters.
    pub fn arguments<'de, D: Deserializer<'de>>(&self, written: D) -> Result<Arguments, TaskError> {
        Arguments::read(self.name, self.parameters, written)
    }

    /// Its task with these parameters.
    pub fn task<'de, D: Deserializer<'de>>(
        &'static self,
        parameters: D,
    ) -> Result<Task, TaskError> {
        let arguments = self.arguments(parameters)?;
        let generator = (self.generator)(&arguments)?;
        Ok(Task { definition: self, arguments: Arc::new(arguments), generator })
    }
}

/// A task's generator. Its draws come only from the `Random` that is given, in the published order: moving one draw
/// changes every later token.
pub trait Generator: Debug + Send + Sync {
    /// Checks bounds, and what the parameters must be together.
    fn new(arguments: &Arguments) -> Result<Self, TaskError>
    where
        Self: Sized;

    /// One more than the largest token.
    fn vocab(&self) -> u32;

    /// Every token that a window can contain, ascending.
    fn alphabet(&self) -> Vec<u32>;

    /// The token before each sample in a window. Tasks with labels have none.
    fn separator(&self) -> Option<u32> {
        None
    }

    /// Lower bound on the number of tokens in which a sample has its first complete answer. Without questions, a window
    /// is useful from its first target on.
    fn least_tokens(&self, _mode: Mode) -> u64 {
        2
    }

    /// Appends the next sample of `random` to `tape`.
    fn sample(&self, random: &mut Random, mode: Mode, scratch: &mut Scratch, tape: &mut Tape);

    /// Sorted lines that hold every parameter that affects a sample, if they are not the parameters as given: their
    /// digest keys the windows.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Describes a sample to a person: its structure, and whether its answers are right. `random` is the generator
    /// before the sample was drawn, if it is known.
    fn describe(&self, tape: &Tape, random: Option<&Random>) -> String;

    /// How evaluations score it.
    fn scoring(&self) -> Scoring<'_> {
        Scoring::Predicted
    }

    /// The generator and the seed of the published stream that is named by `seed`, if they are others.
    fn published(&self, _seed: u64) -> Option<(Arc<dyn Generator>, u64)> {
        None
    }

    /// Appends sample `number` of the published stream.
    fn sample_published(
        &self,
        _number: u64,
        random: &mut Random,
        mode: Mode,
        scratch: &mut Scratch,
        tape: &mut Tape,
    ) {
        self.sample(random, mode, scratch, tape);
    }

    /// Refuses windows in which its samples cannot be trained on or measured.
    fn check(&self, _packing: &Packing) -> Vec<Refusal> {
        Vec::new()
    }
}

/// How an experiment's windows are made and measured.
#[derive(Clone, Debug)]
pub struct Packing {
    /// Tokens of a window.
    pub seq_len: i64,
    /// Whether they are the published stream.
    pub is_published: bool,
    /// The metrics of evaluations.
    pub metrics: Vec<String>,
}

/// A field of an experiment that a task refuses.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Its path: `data.seq_len`.
    pub field: &'static str,
    /// What is wrong, on one line.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// How evaluations score a task, beside the loss and the predictions of answer tokens.
#[derive(Clone, Copy, Debug)]
pub enum Scoring<'a> {
    /// Nothing more: each token of an answer is predicted from the true ones before it.
    Predicted,
    /// The model writes answers, and several are right.
    Judged(&'a dyn Judge),
    /// The model writes sentences of a grammar, and its next-token probabilities are compared with the true ones.
    Sentences(&'a Grammar),
    /// What the model knows about this many people is measured in bits.
    Knowledge {
        /// Number of people.
        people: u64,
    },
}

/// Decides about answers that a model wrote.
pub trait Judge: Debug {
    /// The token after an answer.
    fn end(&self) -> u32;

    /// Whether `answer`, without the end token, is right for the tokens before it.
    fn is_right(&self, prompt: &[u32], answer: &[u32]) -> bool;
}

/// Buffers that a generator reuses between samples.
#[derive(Default)]
pub struct Scratch(Option<Box<dyn Any + Send + Sync>>);

impl Scratch {
    /// The buffers of a type, empty at first.
    pub(super) fn buffers<T: Any + Default + Send + Sync>(&mut self) -> &mut T {
        if !self.0.as_ref().is_some_and(|buffers| buffers.is::<T>()) {
            self.0 = Some(Box::<T>::default());
        }
        let buffers = self.0.as_mut().and_then(|buffers| buffers.downcast_mut());
        buffers.expect("stored above, with this type")
    }
}

impl Clone for Scratch {
    /// Buffers mean nothing between samples, so they are not copied.
    fn clone(&self) -> Scratch {
        Scratch::default()
    }
}

impl Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// A task with its parameters.
#[derive(Clone, Debug)]
pub struct Task {
    definition: &'static Definition,
    arguments: Arc<Arguments>,
    generator: Arc<dyn Generator>,
}

impl PartialEq for Task {
    /// Equal parameters make equal tasks.
    fn eq(&self, other: &Task) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Task {
    /// The task called `name`, with parameters from any serde format (a TOML table, a JSON object). Parameters have
    /// their published names (`N`, `K`, `mini_vocab`, ...).
    pub fn parse<'de, D: Deserializer<'de>>(name: &str, parameters: D) -> Result<Task, TaskError> {
        match Definition::find(name) {
            Some(definition) => definition.task(parameters),
            None => Err(TaskError::new(
                format!("`{name}` is not a task"),
                format!("write one of: {}", names().join(", ")),
            )),
        }
    }

    /// The name that recipes use.
    pub fn name(&self) -> &'static str {
        self.definition.name
    }

    /// Its row.
    pub fn definition(&self) -> &'static Definition {
        self.definition
    }

    /// One more than the largest token: the smallest vocabulary that an architecture needs.
    pub fn vocab(&self) -> u32 {
        self.generator.vocab()
    }

    /// Every token that a window can contain, ascending: the dense token i is the i-th of these.
    pub fn alphabet(&self) -> Vec<u32> {
        self.generator.alphabet()
    }

    /// The token before each sample in a window. Published samples do not contain it, and tasks with labels have none.
    pub fn separator(&self) -> Option<u32> {
        self.generator.separator()
    }

    /// Whether tokens are the bytes of a text.
    pub fn is_text(&self) -> bool {
        self.definition.is_text
    }

    /// Whether a training window can start in the middle of a sample.
    pub fn cuts_anywhere(&self) -> bool {
        self.definition.cuts_anywhere
    }

    /// Whether samples label the tokens that are targets.
    pub fn has_labels(&self) -> bool {
        self.definition.labels
    }

    /// Lower bound on the number of tokens in which a sample has its first complete answer.
    pub fn least_tokens(&self, mode: Mode) -> u64 {
        self.generator.least_tokens(mode)
    }

    /// Appends the next sample of `random` to `tape`.
    pub fn sample(&self, random: &mut Random, mode: Mode, scratch: &mut Scratch, tape: &mut Tape) {
        self.generator.sample(random, mode, scratch, tape);
    }

    /// The task and the seed of the published stream that is named by `seed`.
    pub fn published(self, seed: u64) -> (Task, u64) {
        match self.generator.published(seed) {
            Some((generator, seed)) => (Task { generator, ..self }, seed),
            None => (self, seed),
        }
    }

    /// Appends sample `number` of the published stream, whose draws are those of `random`.
    pub fn sample_published(
        &self,
        number: u64,
        random: &mut Random,
        mode: Mode,
        scratch: &mut Scratch,
        tape: &mut Tape,
    ) {
        self.generator.sample_published(number, random, mode, scratch, tape);
    }

    /// Describes a sample to a person. `random` is the generator before the sample was drawn, if it is known.
    pub fn describe(&self, tape: &Tape, random: Option<&Random>) -> String {
        self.generator.describe(tape, random)
    }

    /// How evaluations score it.
    pub fn scoring(&self) -> Scoring<'_> {
        self.generator.scoring()
    }

    /// Refuses windows in which its samples cannot be trained on or measured.
    pub fn check(&self, packing: &Packing) -> Vec<Refusal> {
        self.generator.check(packing)
    }

    /// Every parameter that affects a sample, one per line, sorted, after the task's name.
    pub fn canonical(&self) -> String {
        let Definition { name, revision, .. } = self.definition;
        let lines = self.generator.identity().unwrap_or_else(|| self.arguments.lines());
        // Revision 1 is not written, so that windows keep their keys.
        let revision = match revision {
            1 => String::new(),
            revision => format!("revision {revision}\n"),
        };
        format!("task {name}\n{revision}{lines}")
    }

    /// The identity of the task. Windows are keyed by it, and a lock binds it.
    pub fn digest(&self) -> blake3::Hash {
        blake3::Hasher::new_derive_key("canonc 1 data task")
            .update(self.canonical().as_bytes())
            .finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_task_is_known_by_its_name_and_has_an_example() {
        for definition in DEFINITIONS {
            let name = definition.name;
            let parameters: Value = serde_json::from_str(definition.example).unwrap();
            let task = Task::parse(name, parameters).unwrap();
            assert_eq!(task.name(), name);
            assert!(task.alphabet().is_sorted_by(|a, b| a < b), "{name}");
            assert!(task.alphabet().iter().all(|token| *token < task.vocab()), "{name}");
        }
        let table: toml::Value = toml::from_str("L = 4\nlens = [4]").unwrap();
        assert_eq!(Task::parse("mano", table).unwrap().least_tokens(Mode::Train), 13);
        let error = Task::parse("deop", json!({})).unwrap_err();
        let known = names().join(", ");
        assert_eq!(error.to_string(), format!("`deop` is not a task\nhelp: write one of: {known}"));
    }

    #[test]
    fn samples_are_made_of_the_alphabet_and_labelled_if_the_row_says_so() {
        for definition in DEFINITIONS {
            let name = definition.name;
            let parameters: Value = serde_json::from_str(definition.example).unwrap();
            let task = Task::parse(name, parameters).unwrap();
            let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
            for mode in [Mode::Train, Mode::Test] {
                task.sample(&mut Random::new(7), mode, &mut scratch, &mut tape);
            }
            let alphabet = task.alphabet();
            assert!(tape.tokens.iter().all(|token| alphabet.contains(token)), "{name}");
            assert_eq!(tape.labels.len(), if definition.labels { tape.tokens.len() } else { 0 });
            assert!(!definition.labels || task.separator().is_none(), "{name}");
            assert!(tape.tokens.len() as u64 >= task.least_tokens(Mode::Train), "{name}");
            assert!(!definition.is_answered || definition.is_text, "{name}");
        }
    }

    /// For each task, parameters, and another value of each that makes other samples.
    fn changes() -> BTreeMap<&'static str, (Value, Value)> {
        let grammar = json!({"depth": 1, "num_sym": 2, "sizes": [1, 2], "idx": [[6], [1, 2]],
            "all": [[{"id": 6, "children": [[0, 1]]}], [{"id": 1}, {"id": 2}]]});
        BTreeMap::from([
            (
                "depo",
                (
                    json!({"N": 12, "K": 2, "mini_vocab": 50, "min_tlen": 1, "max_tlen": 2, "M": 10,
                        "separator": false, "bos": 9999, "eos": null}),
                    json!({"N": 13, "K": 3, "mini_vocab": 51, "min_tlen": 2, "max_tlen": 3, "M": 9,
                        "separator": true, "bos": 9998, "eos": 9997}),
                ),
            ),
            (
                "brevo",
                (
                    json!({"N": 12, "multi": false, "bos": 9999, "query": 9997, "ans": 9998,
                        "eos": 9998, "leaves": "floor", "ask": "last"}),
                    json!({"N": 13, "multi": true, "bos": 9996, "query": 9995, "ans": 9994,
                        "eos": 9993, "leaves": "ceil", "ask": "last_quarter"}),
                ),
            ),
            (
                "capo",
                (
                    json!({"N": 12, "people_seed": 7, "permute": false, "order": 0,
                        "reverse_md": false, "pronoun": "parity"}),
                    json!({"N": 13, "people_seed": 8, "permute": true, "order": 1,
                        "reverse_md": true, "pronoun": "drawn"}),
                ),
            ),
            ("lano", (json!({"config": "cfg3j"}), json!({"config": "cfg3k", "grammar": grammar}))),
            (
                "multihop",
                (
                    json!({"N": 5, "hops": 2, "M": 20, "background": ["It rains.", "It snows."]}),
                    json!({"N": 6, "hops": 3, "M": 30,
                        "background": ["It rains.", "It snows again."]}),
                ),
            ),
            (
                "mano",
                (
                    json!({"L": 4, "ttype": "asm", "value_mod": 23, "knowledge_augment": true,
                        "lens": [1, 2], "qids": [1, 2], "bos": 9999}),
                    json!({"L": 5, "ttype": "as", "value_mod": 22, "knowledge_augment": false,
                        "lens": [1, 3], "qids": [1, 3], "bos": 9990}),
                ),
            ),
        ])
    }

    /// Parameters that no sample depends on: they repeat what a grammar says, or have one value only.
    const IDLE: [(&str, &str); 4] = [
        ("lano", "root"),
        ("lano", "vocab"),
        ("lano", "depth"),
        ("multihop", "background_lengths"),
    ];

    #[test]
    fn every_parameter_is_in_the_digest() {
        let mut changes = changes();
        for definition in DEFINITIONS {
            let name = definition.name;
            let Some((parameters, others)) = changes.remove(name) else {
                panic!("write two values of each parameter of `{name}` in `changes`")
            };
            let digest = Task::parse(name, parameters.clone()).unwrap().digest();
            let others = others.as_object().unwrap();
            for (key, value) in others {
                let mut other = parameters.clone();
                other[key] = value.clone();
                if key == "grammar" {
                    other["config"] = Value::Null;
                }
                assert_ne!(Task::parse(name, other).unwrap().digest(), digest, "{name} {key}");
            }
            let changed: BTreeSet<&str> = others.keys().map(String::as_str).collect();
            let idle = IDLE.into_iter().filter(|(task, _)| *task == name).map(|(_, idle)| idle);
            let listed: BTreeSet<&str> =
                definition.parameters.iter().map(Parameter::name).collect();
            assert_eq!(changed.into_iter().chain(idle).collect::<BTreeSet<_>>(), listed);
        }
    }

    #[test]
    fn unknown_parameters_are_refused() {
        let error = Task::parse("mano", json!({"L": 4, "length": 3})).unwrap_err();
        assert_eq!(error.message, "task `mano` has no parameter `length`");
        let error = Task::parse("mano", json!({"L": 4, "ttyp": "a"})).unwrap_err();
        assert_eq!(error.help, "did you mean `ttype`?");
        let error =
            Task::parse("mano", json!({"L": 4, "lens": [1, "x".repeat(9999)]})).unwrap_err();
        assert!(error.message.starts_with("task `mano`: `lens[1]` is \"xxx"), "{error}");
        let error = Task::parse("mano", json!({"L": "x"})).unwrap_err();
        assert_eq!(error.message, "task `mano`: `L` is \"x\", and must be a whole number");
        for (value, shown) in [
            (json!(1.5), "`1.5`"),
            (json!([1]), "a list"),
            (json!({}), "an object"),
            (json!(null), "null"),
        ] {
            let error = Task::parse("mano", json!({"L": value})).unwrap_err();
            assert_eq!(
                error.message,
                format!("task `mano`: `L` is {shown}, and must be a whole number")
            );
        }
        let error = Task::parse("mano", json!({"L": 4, "knowledge_augment": 3})).unwrap_err();
        assert_eq!(
            error.message,
            "task `mano`: `knowledge_augment` is `3`, and must be true or false"
        );
        let error = Task::parse("mano", json!({"L": "x".repeat(9999)})).unwrap_err();
        assert!(error.message.contains('…') && error.message.len() < 400, "{error}");
        let error = Task::parse("mano", json!({"L": 4.0})).unwrap_err();
        assert_eq!(error.help, "write 4");
    }

    #[test]
    fn definitions_are_consistent() {
        for task in DEFINITIONS {
            let prefix = format!("data.{}.", task.name);
            let paths: BTreeSet<&str> = task.parameters.iter().map(|p| p.path).collect();
            assert_eq!(paths.len(), task.parameters.len(), "{prefix}");
            for parameter in task.parameters {
                assert!(parameter.path.starts_with(&prefix) && parameter.doc.ends_with('.'));
                let mut words = task.usage.split([' ', '[', ']', '=', '\n']);
                assert!(words.any(|word| word == parameter.name()), "{}", parameter.path);
                if let crate::parameter::Default::Is(text) = parameter.default {
                    assert!(serde_json::from_str::<Value>(text).is_ok(), "{}", parameter.path);
                }
            }
            let metrics = [task.usual_metrics, task.written].concat();
            assert!(metrics.iter().all(|metric| task.metrics.contains(metric)), "{prefix}");
        }
    }

    #[test]
    fn the_required_parameters_are_those_without_a_default() {
        for definition in DEFINITIONS {
            let name = definition.name;
            let all: serde_json::Map<String, Value> =
                definition.required().iter().map(|key| ((*key).to_owned(), json!(1))).collect();
            for key in definition.required() {
                let mut without = all.clone();
                without.remove(key);
                let error = Task::parse(name, json!(without)).unwrap_err();
                assert_eq!(error.message, format!("task `{name}` needs the parameter `{key}`"));
            }
            let message =
                Task::parse(name, json!(all)).map_or_else(|error| error.message, |_| String::new());
            assert!(!message.contains("needs the parameter"), "{name}: {message}");
        }
    }
}
