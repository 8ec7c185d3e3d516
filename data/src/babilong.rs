//! Babilong's prompts, read from a user's own checkout and filled as in the published experiments, and the rule by which an
//! answer is right. The prompts' words may not be distributed: only their digests are here, so a checkout of another
//! version is noticed.

mod python;

use std::collections::BTreeMap;

use dsl::Problem;
use sha2::{Digest, Sha256};

use python::{Literal, assignments};

/// A set of published prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Babilong's own prompts, qa1 to qa20.
    Default,
    /// The prompts of Part 4's experiments, qa1 to qa5.
    Part4,
}

/// The prompt layouts to try when the checkout gives none.
const LAYOUTS: [&str; 3] = [
    "{instruction}\n\n{examples}\n\n{post_prompt}\n\n<context>\n{context}\n</context>\n\nQuestion: {question}",
    "{instruction}\n\n{examples}\n\n{post_prompt}<context>\n{context}\n</context>\n\nQuestion: {question}\nAnswer: ",
    "{instruction}\n\n{examples}\n\n{post_prompt}\n<context>\n{context}\n</context>\n\nQuestion: {question}\nAnswer: ",
];

/// The text that fills each prompt before it is digested below.
const CONTEXT: &str = "  Mary moved to the bathroom. John went to the hallway.\n";
const QUESTION: &str = "Where is Mary?";

/// SHA-256 of each filled prompt of [`Set::Default`], then of [`Set::Part4`].
const PUBLISHED: [&str; 25] = [
    "656ac2cbd7f5f5da37dc4009f96a6ea55878f4b9fa331183218de9421761c087",
    "6f1cbf916a0d6190ff80378c6b18ac163d3f23bf2dfa42621112ec73fe875ea7",
    "8d9ce335d56633e3115ffb580c5fd13acc304c9706e0efa8041a4891804bae95",
    "ba560f8e30ce82510e5edb816ca3f94c5e691cc281142cbb03bd009314511909",
    "ca0bab4d1d0d2a723172e108b36847df79ba01c36d42420bd94d157e19375a13",
    "98e316d48c5b55af2eff40938795f7cdc72b5bbb0da808ffdfc0aa6c7e22d8a0",
    "68f79ca48dd1be6cebd0d312c7270459e37c762279e44dd8074826e6de29fb67",
    "9c195c2ce292070dcc06036b3dfeb58495e4fb0f985ffb00730e5f7376574551",
    "2836d9a7f1cd6a3e1d91c5c51b2626a24a54c74695b9972d16e25178384c9416",
    "0178fbd11a7fa76ebf4993a450c80cb1d77025d95d0fa15af4be1e931cab5324",
    "5cdea7229fa4e93c52952eb1dad4c52524cc7fe4241b0c06edc711769adce79a",
    "27705735c658e437d6a257386950ec5186067e1665aced7e9432558101fa4883",
    "c6ba735deb68c7b1322a80b7bb1be586513ccb4c00f011c4b664792f2844a663",
    "b57def96acf805b443dc087cdbedb81cabeffdcb921f84ebdb06598bfcd415e1",
    "044e453bc186079e7379b13bb6f4d5bc1726a604c3a7612f9b3da7d894dca083",
    "1fd681d890f3418b1c87a1753b0569dab013257de88b75d8858ee99b59bcf2d3",
    "2b3f1d8ef9ccd4c6b56f6739864dfc924170c24000570e4e6c5864427e95e299",
    "defc26cc57108d09e260e06a021ce5f493c08a7f46884e8de517ad1696951c79",
    "c9154e5251b389a5e21debb1c923d5b79716b2b47e23e6c61c8fdf56f1323983",
    "28195db2277f813f74934b962d45b9facb843f3ed99a7b8ee035176ffa6969d1",
    "59966e5fd11696947b14a4eef9a836697e807cb2a3543612c3d65f4f3d082792",
    "0cd29febd77ffa1a4ba18362c492b8ccd85fe148e67b40e66e3ff6c69c4a13dc",
    "c767599085aa3b09929258a3278f6f9a73a8b5e22cd12493728a445009900fc4",
    "072f8565d76c5b85da5f1cefd1c3418eba575d49fce990ff0c7f93458cc4c1b4",
    "af8b2939f498c951e49eed337ef47c4e4a8fbb81dbaa461c4dc3dcda3662ac04",
];

/// One task's unfilled prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Says what the task is.
    pub instruction: String,
    /// Solved examples of the task.
    pub examples: String,
    /// Text after the examples, which asks for the form of the answer.
    pub post_prompt: String,
    /// The layout, with placeholders such as `{instruction}` and `{context}`.
    pub layout: String,
}

/// The prompts of a checkout.
#[derive(Clone, Debug, Default)]
pub struct Prompts {
    /// The three texts, by dictionary name and task.
    sets: BTreeMap<String, BTreeMap<String, [String; 3]>>,
    layouts: BTreeMap<String, String>,
}

impl Prompts {
    /// Reads the text of Python files, usually only `prompts.py` of the checkout. Several files are read as one; later
    /// assignments replace earlier ones.
    pub fn read(sources: &[&str]) -> Result<Prompts, Problem> {
        let mut prompts = Prompts::default();
        for (name, value) in assignments(&sources.join("\n")) {
            match value {
                Literal::Text(text)
                    if text.contains("{context}") && text.contains("{question}") =>
                {
                    prompts.layouts.insert(name, text);
                }
                Literal::Text(_) => {}
                Literal::Dict(entries) => {
                    let tasks: BTreeMap<String, [String; 3]> = entries
                        .into_iter()
                        .filter_map(|(task, parts)| Some((task, texts(parts)?)))
                        .collect();
                    if !tasks.is_empty() {
                        prompts.sets.insert(name, tasks);
                    }
                }
            }
        }
        if prompts.sets.is_empty() {
            return Err(Problem::input(
                "babilong: the file has no dictionary of prompts with instruction, examples and post_prompt",
                "give the path of a checkout's prompts.py",
            ));
        }
        Ok(prompts)
    }

    /// The published prompt of task `number`: the text and layout of the checkout that have its digest.
    pub fn published(&self, set: Set, number: u32) -> Result<Prompt, Problem> {
        let (first, count, named) = match set {
            Set::Default => (0, 20, "Babilong's own prompts"),
            Set::Part4 => (20, 5, "the prompts of Part 4"),
        };
        if !(1..=count).contains(&number) {
            return Err(Problem::input(
                format!("babilong: {named} do not include task qa{number}"),
                format!("choose one of qa1 to qa{count}"),
            ));
        }
        let digest = PUBLISHED.get((first + number - 1) as usize).copied().unwrap_or_default();
        let layouts = || self.layouts.values().map(String::as_str).chain(LAYOUTS);
        self.sets
            .values()
            .filter_map(|tasks| tasks.get(&format!("qa{number}")))
            .flat_map(|texts| layouts().map(|layout| Prompt::new(texts, layout)))
            .find(|prompt| hex(&Sha256::digest(prompt.fill(CONTEXT, QUESTION))) == digest)
            .ok_or_else(|| {
                Problem::input(
                    format!("babilong: the checkout's prompt for qa{number} differs from that of the published \
                     experiments"),
                    format!(
                        "check out the commit that they name, or choose a prompt by name: {}",
                        self.sets.keys().cloned().collect::<Vec<_>>().join(", ")
                    ),
                )
            })
    }

    /// The checkout's prompt of task `number` under these names, with any wording. Without a layout name, uses
    /// Babilong's own layout.
    pub fn named(&self, set: &str, layout: Option<&str>, number: u32) -> Result<Prompt, Problem> {
        let missing = |what: &str, name: &str, names: Vec<&String>| {
            let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
            Problem::input(
                format!("babilong: the checkout has no {what} `{name}`"),
                format!("write one of: {}", names.join(", ")),
            )
        };
        let tasks = self
            .sets
            .get(set)
            .ok_or_else(|| missing("prompts", set, self.sets.keys().collect()))?;
        let task = format!("qa{number}");
        let texts =
            tasks.get(&task).ok_or_else(|| missing("task", &task, tasks.keys().collect()))?;
        let layout = match layout {
            None => LAYOUTS[0],
            Some(name) => self
                .layouts
                .get(name)
                .ok_or_else(|| missing("layout", name, self.layouts.keys().collect()))?,
        };
        Ok(Prompt::new(texts, layout))
    }
}

fn texts(parts: Literal) -> Option<[String; 3]> {
    let Literal::Dict(mut parts) = parts else { return None };
    let mut text = |name: &str| match parts.remove(name)? {
        Literal::Text(text) => Some(text),
        Literal::Dict(_) => None,
    };
    Some([text("instruction")?, text("examples")?, text("post_prompt")?])
}

impl Prompt {
    fn new([instruction, examples, post_prompt]: &[String; 3], layout: &str) -> Prompt {
        Prompt {
            instruction: instruction.clone(),
            examples: examples.clone(),
            post_prompt: post_prompt.clone(),
            layout: layout.to_owned(),
        }
    }

    /// The prompt for a model. White space around the context and around the whole prompt is removed.
    pub fn fill(&self, context: &str, question: &str) -> String {
        let mut filled_prompt = String::new();
        let mut rest = self.layout.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            filled_prompt.push_str(before);
            let filled = after.split_once('}').and_then(|(name, after)| {
                let text = match name {
                    "instruction" => &self.instruction,
                    "examples" => &self.examples,
                    "post_prompt" => &self.post_prompt,
                    "context" => context.trim(),
                    "question" => question,
                    _ => return None,
                };
                Some((text, after))
            });
            match filled {
                Some((text, after)) => {
                    filled_prompt.push_str(text);
                    rest = after;
                }
                None => {
                    filled_prompt.push('{');
                    rest = after;
                }
            }
        }
        filled_prompt.push_str(rest);
        filled_prompt.trim().to_owned()
    }

    /// The digest that identifies this prompt in an evaluation.
    pub fn digest(&self) -> blake3::Hash {
        let Prompt { instruction, examples, post_prompt, layout } = self;
        let mut hasher = blake3::Hasher::new_derive_key("canonc 1 data babilong prompt");
        for text in [instruction, examples, post_prompt, layout] {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        hasher.finalize()
    }
}

/// Whether a continuation gives the answer. No rule is published. Ours reads the first line up to its first full stop,
/// ignores case, and requires each comma-separated part of the answer as a separate word.
pub fn is_right(continuation: &str, answer: &str) -> bool {
    let line = continuation.trim_start().lines().next().unwrap_or("");
    let sentence = line.split('.').next().unwrap_or("").to_lowercase();
    let answer = answer.to_lowercase();
    let mut parts = answer.split(',').map(str::trim).filter(|part| !part.is_empty()).peekable();
    parts.peek().is_some() && parts.all(|part| has_word(&sentence, part))
}

fn has_word(text: &str, word: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(word).any(|(at, _)| {
        let (before, from) = text.split_at(at);
        edge(before.chars().next_back()) && edge(from.chars().nth(word.chars().count()))
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::golden;

    /// A file with the layout of the checkout's, in our own words.
    const FILE: &str = r#"
TASK = '{instruction}\n\n{examples}\n\n{post_prompt}'
DEFAULT_TEMPLATE = f'{TASK}\n\n<context>\n{context}\n</context>\n\nQuestion: {question}'
SHORT_TEMPLATE = '{instruction}{context}{question} {other}'

def get_formatted_input(context, question, examples, instruction, post_prompt, template=DEFAULT_TEMPLATE):
    # context - text to use
    formatted = template.format(instruction=instruction, context=context.strip())
    return formatted.strip()

PROMPTS = {
    'qa1': {
        'instruction':
            'Say where the person is. '
            'Use \'one\' word.',
        'examples': '<example>\n' 'A went home. Where is A?\n' "Answer: home\n" '</example>',
        'post_prompt': 'Nothing else. ',
    },
    'qa2': {'instruction': 'I', 'examples': 'E', 'post_prompt': ''},
}
OTHER = {'qa1': 'no prompt'}
"#;

    #[test]
    fn prompt_digests_equal_the_golden_ones() {
        let file = golden::read("playground/babilong");
        assert_eq!((&file["context"], &file["question"]), (&CONTEXT.into(), &QUESTION.into()));
        let digests: Vec<&str> = file["cases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|case| case["sha256"].as_str().unwrap())
            .collect();
        assert_eq!(digests, PUBLISHED);
        let ids = file["cases"].as_array().unwrap().iter().map(|case| case["id"].as_str().unwrap());
        let want =
            (1..=20).map(|n| format!("default-qa{n}")).chain((1..=5).map(|n| format!("plm-qa{n}")));
        assert!(ids.eq(want));
    }

    #[test]
    fn prompts_are_read_and_filled() {
        let prompts = Prompts::read(&[FILE]).unwrap();
        assert_eq!(prompts.sets.keys().collect::<Vec<_>>(), ["PROMPTS"]);
        assert_eq!(
            prompts.layouts.keys().collect::<Vec<_>>(),
            ["DEFAULT_TEMPLATE", "SHORT_TEMPLATE"]
        );
        assert_eq!(prompts.layouts["DEFAULT_TEMPLATE"], LAYOUTS[0]);
        let prompt = prompts.named("PROMPTS", Some("DEFAULT_TEMPLATE"), 1).unwrap();
        assert_eq!(prompt, prompts.named("PROMPTS", None, 1).unwrap());
        assert_eq!(
            prompt.fill(CONTEXT, QUESTION),
            "Say where the person is. Use 'one' word.\n\n<example>\nA went home. Where is A?\nAnswer: home\n\
             </example>\n\nNothing else. \n\n<context>\nMary moved to the bathroom. John went to the hallway.\n\
             </context>\n\nQuestion: Where is Mary?"
        );
        // Placeholders inside filled-in text are not filled.
        let short = prompts.named("PROMPTS", Some("SHORT_TEMPLATE"), 2).unwrap();
        assert_eq!(short.fill("{question}", "Q"), "I{question}Q {other}");
        assert_ne!(short.digest(), prompt.digest());
        let part4 = Prompt::new(&prompts.sets["PROMPTS"]["qa2"], LAYOUTS[1]);
        assert_eq!(
            part4.fill("C", "Q"),
            "I\n\nE\n\n<context>\nC\n</context>\n\nQuestion: Q\nAnswer:"
        );
    }

    #[test]
    fn a_missing_prompt_is_named() {
        let prompts = Prompts::read(&[FILE]).unwrap();
        let cases = [
            (prompts.published(Set::Default, 1), "prompt for qa1 differs"),
            (prompts.published(Set::Default, 21), "do not include task qa21"),
            (prompts.published(Set::Part4, 6), "do not include task qa6"),
            (prompts.published(Set::Part4, 0), "do not include task qa0"),
            (prompts.named("PROMPT", None, 1), "no prompts `PROMPT`"),
            (prompts.named("PROMPTS", None, 3), "no task `qa3`"),
            (prompts.named("PROMPTS", Some("LONG"), 1), "no layout `LONG`"),
        ];
        for (prompt, want) in cases {
            let error = prompt.unwrap_err();
            assert!(error.message.contains(want) && !error.help.is_empty(), "{error}");
        }
        for source in ["", "x = 1", "P = {'qa1': {'instruction': 'a'}}"] {
            assert!(
                Prompts::read(&[source]).unwrap_err().message.contains("no dictionary of prompts")
            );
        }
    }

    #[test]
    fn answers_are_words_of_the_first_sentence() {
        assert!(is_right(" The most recent location of Mary is Bathroom.", "bathroom"));
        assert!(is_right("apple, milk\nfootball", "milk,apple"));
        assert!(is_right("$yes$", "yes"));
        assert!(!is_right("bathrooms", "bathroom"));
        assert!(!is_right("hallway. Then bathroom", "bathroom"));
        assert!(!is_right("apple", "apple,milk"));
        assert!(!is_right("", "x") && !is_right("x", "") && !is_right("x", ","));
    }
}
