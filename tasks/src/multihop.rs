//! The multi-hop task: birth years, found by following several hops.
//!
//! In: a number of people and of hops, background sentences and a generator. Out: texts with hidden birth years, each
//! with a question and the year as answer, byte for byte those of the published probe. Must stay true: the order of
//! draws. The paper is "Physics of Language Models: Part 4.1", the tasks (5, 1) and (3, 2).

use std::sync::OnceLock;

use serde::Deserialize;

use super::TaskError;
use super::capo::fields::Fields;
use super::cpython::Random;
use super::parameter::Default::Required;
use super::parameter::Values::Int;
use super::parameter::bounded;
use super::parameter::{Parameter, bounds, parameter};
use super::sample::{Span, Tape};
use super::{BYTES, EOS};

/// The parameters of multi-hop questions in recipes.
#[rustfmt::skip]
pub const PARAMETERS: &[Parameter] = &[
    parameter("data.multihop.N", Int(1, YEARS as i64), Required, "People per group. Only those in the first group have a stated year.").also(&["n_max", "n"]),
    parameter("data.multihop.hops", Int(1, MOST_PEOPLE as i64), Required, "Groups of people, and so hops from the question to a year.").also(&["k"]),
];

/// The probe's parameters, under their published names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MultihopParams {
    /// People per group. Only those in the first group have a stated year.
    #[serde(rename = "N")]
    pub n: i64,
    /// Number of groups, and so the number of hops from the question to a year.
    #[serde(alias = "k")]
    pub hops: i64,
    /// Background sentences are added while they have fewer words than this.
    #[serde(rename = "M", default)]
    pub m: i64,
    /// The background sentences, in order. Statements are hidden among them.
    #[serde(default)]
    pub background: Vec<String>,
    /// How background length is measured. Counting words is the only way that needs no tokenizer.
    #[serde(default)]
    pub background_lengths: BackgroundLengths,
}

/// How the length of the background is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum BackgroundLengths {
    /// In words, separated by spaces.
    #[default]
    #[serde(rename = "space separated words")]
    Words,
}

const FIRST_YEAR: u32 = 1950;
const YEARS: u32 = 60;
/// With more people, the text would have more names than fit in any window.
const MOST_PEOPLE: u32 = 1000;

/// A checked multi-hop task.
#[derive(Clone, Debug)]
pub struct Multihop {
    group: u32,
    groups: u32,
    most_words: u64,
    background: Vec<String>,
}

/// A text with its question at the end, and the answer. Its buffers are reused from text to text.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Statements among background sentences, then the question.
    pub text: String,
    /// The expected continuation.
    pub answer: String,
    names: Vec<[u16; 3]>,
    years: Vec<u32>,
    indices: Vec<u32>,
    /// For each position in the text, whether it holds a statement.
    stated: Vec<bool>,
    statements: Vec<String>,
}

/// The published strings, split at their placeholders.
struct Strings {
    instruction: String,
    direct: [String; 3],
    link: [String; 3],
    head: [String; 2],
}

#[derive(Deserialize)]
struct StringFile {
    instruction_k_ge_2: String,
    statement_direct: String,
    statement_link: String,
    question_head: String,
}

impl Strings {
    fn get() -> &'static Strings {
        static STRINGS: OnceLock<Strings> = OnceLock::new();
        STRINGS.get_or_init(|| {
            let StringFile { instruction_k_ge_2, statement_direct, statement_link, question_head } =
                serde_json::from_str(include_str!("../fields/extracted/multihop_strings.json"))
                    .expect("the tests read the same embedded file");
            let cut = |text: &str, first: &str, second: &str| {
                let (before, rest) = text.split_once(first).unwrap_or((text, ""));
                let (middle, after) = rest.split_once(second).unwrap_or((rest, ""));
                [before, middle, after].map(str::to_owned)
            };
            let [before, after, _] = cut(&question_head, "{name}", "{}");
            Strings {
                instruction: instruction_k_ge_2,
                direct: cut(&statement_direct, "{name}", "{year}"),
                link: cut(&statement_link, "{name}", "{other}"),
                head: [before, after],
            }
        })
    }
}

impl Multihop {
    /// Checks the parameters. Fails where a bound is broken, or without background sentences where M asks for some.
    pub fn new(params: MultihopParams) -> Result<Multihop, TaskError> {
        let MultihopParams { n, hops, m, background, background_lengths: BackgroundLengths::Words } =
            params;
        let why = "each of the N people has a different year, out of 60";
        let group = bounded("multihop", "N", n, bounds(PARAMETERS, "N"), why)?;
        let most = i64::from(MOST_PEOPLE / group);
        let why = "a text names N * hops people, at most 1000";
        let groups = bounded("multihop", "hops", hops, (1, most), why)?;
        let most_words =
            bounded("multihop", "M", m, (0, 1 << 20), "background has 0 to 1048576 words")?;
        if most_words > 0 && background.is_empty() {
            return Err(TaskError::new(
                format!("multihop: M is {m}, but there are no background sentences"),
                "give background, a list of sentences, or set M to 0",
            ));
        }
        if let Some(place) = background.iter().position(|sentence| words(sentence) == 0) {
            return Err(TaskError::new(
                format!("multihop: background sentence {place} is empty"),
                "take it out of the list",
            ));
        }
        Ok(Multihop { group, groups, most_words: u64::from(most_words), background })
    }

    /// Probability that a guess among the text's years is right.
    pub fn chance(&self) -> f64 {
        1.0 / f64::from(self.group)
    }

    pub(super) fn vocab(&self) -> u32 {
        BYTES
    }

    /// Every token that a window can contain, ascending.
    pub(super) fn alphabet(&self) -> Vec<u32> {
        let Strings { instruction, direct, link, head } = Strings::get();
        let strings =
            [instruction].into_iter().chain(direct).chain(link).chain(head).chain(&self.background);
        let mut bytes: Vec<u8> = strings.flat_map(|text| text.bytes()).collect();
        bytes.extend(Fields::get().bytes());
        bytes.extend(b" 0123456789<context></context>");
        bytes.sort_unstable();
        bytes.dedup();
        bytes.into_iter().map(u32::from).chain([EOS]).collect()
    }

    /// Minimum text length: the text contains at least its statements.
    pub(super) fn least_tokens(&self) -> u64 {
        let [before, middle, after] = &Strings::get().direct;
        let statement = before.len() + middle.len() + after.len() + "A B C 1950 ".len();
        u64::from(self.group * self.groups) * statement as u64
    }

    pub(super) fn canonical(&self) -> String {
        let Multihop { group, groups, most_words, background } = self;
        let mut hasher = blake3::Hasher::new_derive_key("canonc 1 data multihop background");
        for sentence in background {
            hasher.update(sentence.as_bytes()).update(b"\0");
        }
        let background = hasher.finalize();
        let fields = Fields::get().digest();
        format!("M {most_words}\nN {group}\nbackground {background}\nfields {fields}\nk {groups}\n")
    }

    pub(super) fn sample(&self, random: &mut Random, scratch: &mut Question, tape: &mut Tape) {
        self.ask(random, scratch);
        let Tape { tokens, labels: _, answers } = tape;
        tokens.extend(scratch.text.bytes().map(u32::from));
        answers.push(Span { start: tokens.len(), len: scratch.answer.len(), level: self.groups });
        tokens.extend(scratch.answer.bytes().map(u32::from));
    }

    /// Draws a text and its question.
    pub fn ask(&self, random: &mut Random, to: &mut Question) {
        let Strings { instruction, direct, link, head } = Strings::get();
        let Question { text, answer, names, years, indices, stated, statements } = to;
        let fields = Fields::get();
        let people = self.group * self.groups;
        names.clear();
        while names.len() < people as usize {
            let name = [&fields.first_names, &fields.middle_names, &fields.last_names]
                .map(|list| random.index(list.len()) as u16);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let name = |person: u32, to: &mut String| {
            let [first, middle, last] = names[person as usize].map(usize::from);
            for (i, part) in
                [fields.first_names[first], fields.middle_names[middle], fields.last_names[last]]
                    .iter()
                    .enumerate()
            {
                if i > 0 {
                    to.push(' ');
                }
                to.push_str(fields.text(*part));
            }
        };
        random.sample(YEARS, self.group, years);
        statements.resize_with(people as usize, String::new);
        for person in 0..self.group {
            let year = FIRST_YEAR + years[person as usize];
            years.push(year);
            fill(
                &mut statements[person as usize],
                direct,
                |to| name(person, to),
                |to| to.push_str(&year.to_string()),
            );
        }
        // From here on, `years[i]` is the year of person i.
        years.drain(..self.group as usize);
        for group in 1..self.groups {
            indices.clear();
            indices.extend(0..self.group);
            random.shuffle(indices);
            for (place, &index) in indices.iter().enumerate() {
                let (person, other) =
                    (group * self.group + place as u32, (group - 1) * self.group + index);
                years.push(years[other as usize]);
                fill(
                    &mut statements[person as usize],
                    link,
                    |to| name(person, to),
                    |to| name(other, to),
                );
            }
        }
        let asked = people - self.group;
        answer.clear();
        answer.push_str(&years[asked as usize].to_string());

        let background = self.take_background(random);
        let places = people + background.len() as u32;
        random.sample(places, people, indices);
        stated.clear();
        stated.resize(places as usize, false);
        indices.iter().for_each(|&place| stated[place as usize] = true);
        text.clear();
        if self.groups > 1 {
            text.push_str(instruction);
            text.push_str("<context>");
        }
        let (mut statements, mut background) = (statements.iter(), background.iter());
        for (place, &stated) in stated.iter().enumerate() {
            if place > 0 {
                text.push(' ');
            }
            let sentence = if stated { statements.next() } else { background.next() };
            text.push_str(sentence.map_or("", String::as_str));
        }
        text.push_str(if self.groups > 1 { "</context>" } else { " " });
        let [before, after] = head;
        text.push_str(before);
        name(asked, text);
        text.push_str(after);
    }

    /// Consecutive sentences from a drawn one on, while they have fewer words than M and sentences remain.
    fn take_background(&self, random: &mut Random) -> &[String] {
        if self.most_words == 0 {
            return &[];
        }
        let rest = self.background.get(random.index(self.background.len())..).unwrap_or_default();
        let mut taken = 0;
        let count = rest.iter().take_while(|sentence| {
            taken += words(sentence);
            taken < self.most_words
        });
        let count = count.count();
        rest.get(..count).unwrap_or_default()
    }
}

/// Whether a continuation answers the question, that is, starts with the year.
pub fn is_right(continuation: &str, answer: &str) -> bool {
    continuation.starts_with(answer)
}

fn words(sentence: &str) -> u64 {
    sentence.split_whitespace().count() as u64
}

fn fill(
    to: &mut String,
    parts: &[String; 3],
    first: impl Fn(&mut String),
    second: impl Fn(&mut String),
) {
    let [before, middle, after] = parts;
    to.clear();
    to.push_str(before);
    first(to);
    to.push_str(middle);
    second(to);
    to.push_str(after);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Mode;
    use crate::task::{Scratch, Task};
    use serde_json::json;
    use support::golden::{self, StreamDigest};

    #[test]
    fn texts_equal_the_published_ones() {
        let file = golden::read("playground/multihop");
        let cases = file["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 10);
        for case in cases {
            let mut params = case["params"].clone();
            params["background"] = file["background"].clone();
            let task = Task::parse("multihop", params).unwrap();
            let mut random = Random::new(case["seed"].as_u64().unwrap());
            let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
            let mut digest = StreamDigest::default();
            for number in 0..200 {
                tape.clear();
                task.sample(&mut random, Mode::Train, &mut scratch, &mut tape);
                let [span] = tape.answers[..] else { panic!("one answer per sample") };
                assert_eq!((span.start + 4, span.len), (tape.tokens.len(), 4));
                assert_eq!(case["params"]["k"], span.level);
                assert!(tape.tokens.len() as u64 >= task.least_tokens(Mode::Train));
                let (text, answer) = tape.tokens.split_at(span.start);
                if let Some(want) = case["samples"].get(number) {
                    let bytes = |tokens: &[u32]| {
                        tokens.iter().map(|&token| token as u8).collect::<Vec<_>>()
                    };
                    assert_eq!(
                        String::from_utf8(bytes(text)).unwrap(),
                        want["text"].as_str().unwrap()
                    );
                    assert_eq!(
                        String::from_utf8(bytes(answer)).unwrap(),
                        want["answer"].as_str().unwrap()
                    );
                }
                digest.add([text, &[0], answer].concat().into_iter());
            }
            digest.check(&case["digest_text_nul_answer_utf8"]);
            assert_eq!(random.next_u32(), case["next_u32_after"], "{}", case["id"]);
            let alphabet = task.alphabet();
            assert!(alphabet.is_sorted_by(|a, b| a < b));
            assert!(tape.tokens.iter().all(|token| alphabet.contains(token)));
        }
    }

    #[test]
    fn answers_are_right_by_their_beginning() {
        assert!(is_right("1977", "1977") && is_right("1977. Next", "1977"));
        assert!(!is_right("197", "1977") && !is_right(" 1977", "1977") && !is_right("", "1977"));
    }

    #[test]
    fn bad_parameters_name_themselves() {
        let cases = [
            (json!({"N": 0, "hops": 1}), "N is 0"),
            (json!({"N": 61, "hops": 1}), "N is 61"),
            (json!({"N": 5, "hops": 0}), "hops is 0"),
            (json!({"N": 60, "hops": 17}), "hops is 17"),
            (json!({"N": 5, "hops": 1, "M": -1}), "M is -1"),
            (json!({"N": 5, "hops": 1, "M": 10}), "no background sentences"),
            (
                json!({"N": 5, "hops": 1, "M": 10, "background": ["A b.", " "]}),
                "background sentence 1 is empty",
            ),
            (
                json!({"N": 5, "hops": 1, "background_lengths": "tokens"}),
                "`background_lengths` is `tokens`",
            ),
            (json!({"N": 5}), "needs the parameter `hops`"),
        ];
        for (params, want) in cases {
            let error = Task::parse("multihop", params).unwrap_err();
            assert!(error.message.contains(want), "{error}");
            assert!(!error.help.is_empty());
        }
        // All possible years, and one background sentence that never fits.
        let params = json!({"N": 60, "hops": 16, "M": 1, "background": ["Two words."]});
        let task = Task::parse("multihop", params).unwrap();
        let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
        task.sample(&mut Random::new(1), Mode::Test, &mut scratch, &mut tape);
        assert_eq!(tape.answers.len(), 1);
    }
}
