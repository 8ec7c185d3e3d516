//! The list of tasks, and their common interface.
//!
//! In: a task's name and parameters. Out: the checked task, and its samples on a tape. Must stay true: the list of
//! tasks is closed and every match names each of them, so a new task cannot be added halfway; the canonical text holds
//! every parameter that affects a sample, since its digest keys the windows.

use serde::de::Deserializer;

use super::EOS;
use super::TaskError;
use super::brevo::{self, Brevo, BrevoParams};
use super::capo::{self, Biography, Capo, CapoParams};
use super::cpython::Random;
use super::depo::{self, Depo, DepoParams};
use super::lano::{self, Lano, LanoParams};
use super::mano::{self, Mano, ManoParams};
use super::metric::{BITS, EVAL_LOSS, EXACT_MATCH, KL, TOKEN_ACCURACY, VALIDITY};
use super::multihop::{self, Multihop, MultihopParams, Question};
use super::parameter::Parameter;
use super::read::read;
use super::sample::{Mode, Tape};

/// The synthetic tasks of the pretraining playground that have a generator here.
#[derive(Clone, Debug)]
pub enum Task {
    /// k-hop questions over a cycle of names.
    Depo(Depo),
    /// Ancestors of a vertex in a directed acyclic graph, in topological order.
    Brevo(Brevo),
    /// Biographies of made-up people.
    Capo(Capo),
    /// Modular arithmetic in prefix notation.
    Mano(Mano),
    /// Sentences of a context-free grammar.
    Lano(Lano),
    /// Multi-hop questions about people's birth years.
    Multihop(Multihop),
}

/// What recipes and locks need to know of a task before its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name, as the only item.
    pub names: &'static [&'static str],
    /// Raised when the same seed gives other samples, or packs the same samples into other windows.
    pub revision: i64,
    /// Parameters in the order that help texts list them.
    pub parameters: &'static [Parameter],
    /// Whether samples label the tokens that are targets.
    pub labels: bool,
    /// Whether samples have a largest size.
    pub sized: bool,
    /// Metrics that it can report, by name.
    pub metrics: &'static [&'static str],
    /// Metrics that it reports if a recipe does not say.
    pub usual_metrics: &'static [&'static str],
    /// Metrics that score generated text.
    pub written: &'static [&'static str],
    /// How its evaluation questions can occur in training.
    pub in_training: InTraining,
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

const BREVO: Definition = Definition {
    labels: true,
    sized: true,
    written: &[EXACT_MATCH],
    ..definition(&["brevo"], 1, brevo::PARAMETERS)
};

/// What it knows is measured in bits instead of right answers.
const CAPO: Definition = Definition {
    metrics: &[BITS, EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY],
    usual_metrics: &[BITS, EVAL_LOSS],
    in_training: InTraining::ByDesign,
    ..definition(&["capo"], 1, capo::PARAMETERS)
};

const DEPO: Definition =
    Definition { labels: true, sized: true, ..definition(&["depo"], 1, depo::PARAMETERS) };

const LANO: Definition = Definition {
    metrics: &[EVAL_LOSS, KL, VALIDITY],
    usual_metrics: &[EVAL_LOSS, KL, VALIDITY],
    written: &[KL, VALIDITY],
    in_training: InTraining::Never,
    ..definition(&["lano"], 1, lano::PARAMETERS)
};

const MANO: Definition = Definition { sized: true, ..definition(&["mano"], 1, mano::PARAMETERS) };

const MULTIHOP: Definition = definition(&["multihop"], 1, multihop::PARAMETERS);

/// THE list of tasks.
pub const DEFINITIONS: [Definition; 6] = [BREVO, CAPO, DEPO, LANO, MANO, MULTIHOP];

/// A task whose answers are scored, without labels and of any size.
const fn definition(
    names: &'static [&'static str],
    revision: i64,
    parameters: &'static [Parameter],
) -> Definition {
    Definition {
        names,
        revision,
        parameters,
        labels: false,
        sized: false,
        metrics: &[EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY],
        usual_metrics: &[EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY],
        written: &[],
        in_training: InTraining::ByChance,
    }
}

/// Tasks with a largest sample size.
pub const SIZED: &[&str] = &names::<{ count(Which::Sized) }>(Which::Sized);
/// Tasks with metrics that score generated text.
pub const WRITTEN: &[&str] = &names::<{ count(Which::Written) }>(Which::Written);

#[derive(Clone, Copy)]
enum Which {
    All,
    Sized,
    Written,
}

const fn is(task: &Definition, which: Which) -> bool {
    match which {
        Which::All => true,
        Which::Sized => task.sized,
        Which::Written => !task.written.is_empty(),
    }
}

const fn count(which: Which) -> usize {
    let (mut count, mut at) = (0, 0);
    while at < DEFINITIONS.len() {
        count += is(&DEFINITIONS[at], which) as usize;
        at += 1;
    }
    count
}

const fn names<const N: usize>(which: Which) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut count, mut at) = (0, 0);
    while at < DEFINITIONS.len() {
        if is(&DEFINITIONS[at], which) {
            names[count] = DEFINITIONS[at].names[0];
            count += 1;
        }
        at += 1;
    }
    names
}

/// The names that [`Task::parse`] accepts.
pub const TASKS: [&str; DEFINITIONS.len()] = names(Which::All);

impl Definition {
    /// The name that recipes use.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// The task with this name.
    pub fn find(name: &str) -> Option<&'static Definition> {
        const ALL: &[Definition] = &DEFINITIONS;
        ALL.iter().find(|task| task.name() == name)
    }
}

/// Buffers that generators reuse between samples.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    depo: depo::Scratch,
    brevo: brevo::Scratch,
    /// The biography written last.
    pub capo: Biography,
    multihop: Question,
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
    pub fn parse<'de, D: Deserializer<'de>>(name: &str, params: D) -> Result<Task, TaskError> {
        match name {
            "depo" => Depo::new(read::<DepoParams, _>(name, params)?).map(Task::Depo),
            "brevo" => Brevo::new(read::<BrevoParams, _>(name, params)?).map(Task::Brevo),
            "capo" => Capo::new(read::<CapoParams, _>(name, params)?).map(Task::Capo),
            "mano" => Mano::new(read::<ManoParams, _>(name, params)?).map(Task::Mano),
            "lano" => Lano::new(read::<LanoParams, _>(name, params)?).map(Task::Lano),
            "multihop" => {
                Multihop::new(read::<MultihopParams, _>(name, params)?).map(Task::Multihop)
            }
            _ => Err(TaskError::new(
                format!("`{name}` is not a task"),
                format!("write one of: {}", TASKS.join(", ")),
            )),
        }
    }

    /// The name that recipes use.
    pub fn name(&self) -> &'static str {
        self.definition().name()
    }

    /// One more than the largest token: the smallest vocabulary that an architecture needs.
    pub fn vocab(&self) -> u32 {
        match self {
            Task::Depo(depo) => depo.vocab(),
            Task::Brevo(brevo) => brevo.vocab(),
            Task::Capo(capo) => capo.vocab(),
            Task::Mano(mano) => mano.vocab(),
            Task::Lano(lano) => lano.vocab(),
            Task::Multihop(multihop) => multihop.vocab(),
        }
    }

    /// Every token that a sample can contain, ascending: the dense token i is the i-th of these.
    pub fn alphabet(&self) -> Vec<u32> {
        match self {
            Task::Depo(depo) => depo.alphabet(),
            Task::Brevo(brevo) => brevo.alphabet(),
            Task::Capo(capo) => capo.alphabet(),
            Task::Mano(mano) => mano.alphabet(),
            Task::Lano(lano) => lano.alphabet(),
            Task::Multihop(multihop) => multihop.alphabet(),
        }
    }

    /// The token before each sample in a window. Published samples do not contain it, and tasks with labels have none.
    pub fn separator(&self) -> Option<u32> {
        match self {
            Task::Depo(_) | Task::Brevo(_) | Task::Mano(_) => None,
            Task::Capo(_) | Task::Multihop(_) => Some(EOS),
            Task::Lano(lano) => Some(lano.grammar().end()),
        }
    }

    /// Whether tokens are the bytes of a text.
    pub fn is_text(&self) -> bool {
        match self {
            Task::Depo(_) | Task::Brevo(_) | Task::Mano(_) | Task::Lano(_) => false,
            Task::Capo(_) | Task::Multihop(_) => true,
        }
    }

    /// Whether a training window can start in the middle of a sample.
    pub fn cuts_anywhere(&self) -> bool {
        match self {
            Task::Capo(_) => true,
            Task::Depo(_) | Task::Brevo(_) | Task::Mano(_) | Task::Lano(_) | Task::Multihop(_) => {
                false
            }
        }
    }

    /// What is known of the task before its parameters.
    pub fn definition(&self) -> &'static Definition {
        match self {
            Task::Brevo(_) => &BREVO,
            Task::Capo(_) => &CAPO,
            Task::Depo(_) => &DEPO,
            Task::Lano(_) => &LANO,
            Task::Mano(_) => &MANO,
            Task::Multihop(_) => &MULTIHOP,
        }
    }

    /// Whether samples label the tokens that are targets.
    pub fn has_labels(&self) -> bool {
        self.definition().labels
    }

    /// Lower bound on the number of tokens in which a sample has its first complete answer.
    pub fn least_tokens(&self, mode: Mode) -> u64 {
        match self {
            Task::Depo(depo) => depo.least_tokens(mode),
            Task::Brevo(brevo) => brevo.least_tokens(mode),
            Task::Mano(mano) => mano.least_tokens(mode),
            // These tasks have no questions, so a window is useful from its first target on.
            Task::Capo(_) | Task::Lano(_) => 2,
            Task::Multihop(multihop) => multihop.least_tokens(),
        }
    }

    /// Appends the next sample of `random` to `tape`.
    pub fn sample(&self, random: &mut Random, mode: Mode, scratch: &mut Scratch, tape: &mut Tape) {
        match self {
            Task::Depo(depo) => depo.sample(random, mode, &mut scratch.depo, tape),
            Task::Brevo(brevo) => brevo.sample(random, mode, &mut scratch.brevo, tape),
            Task::Capo(capo) => capo.sample(random, &mut scratch.capo, tape),
            Task::Mano(mano) => mano.sample(random, mode, tape),
            Task::Lano(lano) => lano.sample(random, tape),
            Task::Multihop(multihop) => multihop.sample(random, &mut scratch.multihop, tape),
        }
    }

    /// Every parameter, one per line, sorted, after the task's name.
    pub fn canonical(&self) -> String {
        let lines = match self {
            Task::Depo(depo) => depo.canonical(),
            Task::Brevo(brevo) => brevo.canonical(),
            Task::Capo(capo) => capo.canonical(),
            Task::Mano(mano) => mano.canonical(),
            Task::Lano(lano) => lano.canonical(),
            Task::Multihop(multihop) => multihop.canonical(),
        };
        // Revision 1 is not written, so that windows keep their keys.
        let revision = match Definition::find(self.name()).map(|task| task.revision) {
            Some(1) | None => String::new(),
            Some(revision) => format!("revision {revision}\n"),
        };
        format!("task {}\n{revision}{lines}", self.name())
    }

    /// The identity of the task. Windows are keyed by it, and a lock binds it.
    pub fn digest(&self) -> blake3::Hash {
        blake3::Hasher::new_derive_key("canonc 1 data task")
            .update(self.canonical().as_bytes())
            .finalize()
    }
}

/// The parameters without a default, as a recipe or `--set` names them.
pub fn required(task: &str) -> Vec<&'static str> {
    let parameters = Definition::find(task).map_or(&[][..], |task| task.parameters);
    let needed = parameters.iter().filter(|parameter| parameter.is_required());
    // Lano takes a published grammar or the content of a grammar file.
    needed.map(Parameter::name).filter(|name| *name != "config").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_listed_tasks_are_the_known_ones() {
        let depo = json!({"N": 12, "K": 2, "mini_vocab": 50, "min_tlen": 1, "max_tlen": 2});
        let brevo = json!({"N": 12});
        let mano = json!({"L": 4});
        let lano = json!({"config": "cfg3f"});
        let capo = json!({"N": 12});
        let multihop = json!({"N": 5, "hops": 1});
        for (name, params) in TASKS.iter().zip([brevo, capo, depo, lano, mano, multihop]) {
            assert_eq!(Task::parse(name, params).unwrap().name(), *name);
        }
        let table: toml::Value = toml::from_str("L = 4\nlens = [4]").unwrap();
        assert_eq!(Task::parse("mano", table).unwrap().least_tokens(Mode::Train), 13);
        let error = Task::parse("deop", json!({})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`deop` is not a task\nhelp: write one of: brevo, capo, depo, lano, mano, multihop"
        );
    }

    #[test]
    fn every_parameter_is_in_the_digest() {
        let depo = json!({"N": 12, "K": 2, "mini_vocab": 50, "min_tlen": 1, "max_tlen": 2, "M": 10,
            "separator": false, "bos": 9999, "eos": null});
        let brevo = json!({"N": 12, "multi": false, "bos": 9999, "query": 9997, "ans": 9998, "eos": 9998,
            "leaves": "floor", "ask": "last"});
        let capo = json!({"N": 12, "people_seed": 7, "permute": false, "order": 0, "reverse_md": false,
            "pronoun": "parity"});
        let lano = json!({"config": "cfg3j"});
        let multihop =
            json!({"N": 5, "hops": 2, "M": 20, "background": ["It rains.", "It snows."]});
        let mano = json!({"L": 4, "ttype": "asm", "value_mod": 23, "knowledge_augment": true,
            "lens": [1, 2], "qids": [1, 2], "bos": 9999});
        let changed = [
            (
                "depo",
                &depo,
                vec![
                    ("N", json!(13)),
                    ("K", json!(3)),
                    ("mini_vocab", json!(51)),
                    ("min_tlen", json!(2)),
                    ("max_tlen", json!(3)),
                    ("M", json!(9)),
                    ("separator", json!(true)),
                    ("bos", json!(9998)),
                    ("eos", json!(9997)),
                ],
            ),
            (
                "brevo",
                &brevo,
                vec![
                    ("N", json!(13)),
                    ("multi", json!(true)),
                    ("bos", json!(9996)),
                    ("query", json!(9995)),
                    ("ans", json!(9994)),
                    ("eos", json!(9993)),
                    ("leaves", json!("ceil")),
                    ("ask", json!("last_quarter")),
                ],
            ),
            (
                "capo",
                &capo,
                vec![
                    ("N", json!(13)),
                    ("people_seed", json!(8)),
                    ("permute", json!(true)),
                    ("order", json!(1)),
                    ("reverse_md", json!(true)),
                    ("pronoun", json!("drawn")),
                ],
            ),
            ("lano", &lano, vec![("config", json!("cfg3k"))]),
            (
                "multihop",
                &multihop,
                vec![
                    ("N", json!(6)),
                    ("hops", json!(3)),
                    ("M", json!(30)),
                    ("background", json!(["It rains.", "It snows again."])),
                ],
            ),
            (
                "mano",
                &mano,
                vec![
                    ("L", json!(5)),
                    ("ttype", json!("as")),
                    ("value_mod", json!(22)),
                    ("knowledge_augment", json!(false)),
                    ("lens", json!([1, 3])),
                    ("qids", json!([1, 3])),
                    ("bos", json!(9990)),
                ],
            ),
        ];
        for (name, params, changes) in changed {
            assert_eq!(params.as_object().unwrap().len(), changes.len());
            let digest = Task::parse(name, params.clone()).unwrap().digest();
            for (key, value) in changes {
                let mut other = params.clone();
                other[key] = value;
                assert_ne!(Task::parse(name, other).unwrap().digest(), digest, "{name} {key}");
            }
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
        for (found, said) in [
            (json!(1.5), "`1.5`"),
            (json!([1]), "a list"),
            (json!({}), "an object"),
            (json!(null), "null"),
        ] {
            let error = Task::parse("mano", json!({"L": found})).unwrap_err();
            assert_eq!(
                error.message,
                format!("task `mano`: `L` is {said}, and must be a whole number")
            );
        }
        let error = Task::parse("mano", json!({"L": 4, "knowledge_augment": 3})).unwrap_err();
        assert_eq!(
            error.message,
            "task `mano`: `knowledge_augment` is `3`, and must be true or false"
        );
        let error = Task::parse("mano", json!({"L": "x".repeat(9999)})).unwrap_err();
        assert!(error.message.contains('…') && error.message.len() < 400, "{error}");
    }

    #[test]
    fn parameters_are_sorted_below_their_task() {
        for task in &DEFINITIONS {
            let prefix = format!("data.{}.", task.name());
            assert!(task.parameters.iter().all(|p| p.path.starts_with(&prefix)), "{prefix}");
            assert!(task.parameters.is_sorted_by_key(|p| p.path), "{prefix}");
            assert!(task.parameters.iter().all(|p| p.doc.ends_with('.')), "{prefix}");
        }
    }

    #[test]
    fn the_required_parameters_are_those_without_a_default() {
        for name in TASKS {
            let all: serde_json::Map<String, serde_json::Value> =
                required(name).iter().map(|key| ((*key).to_owned(), json!(1))).collect();
            for key in required(name) {
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
