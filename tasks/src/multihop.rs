//! The multi-hop task: birth years, found by following several hops. Texts are byte for byte those of the published probe:
//! hidden birth years among background sentences, then a question and the year as answer.
//!
//! The paper is "Physics of Language Models: Part 4.1", the tasks (5, 1) and (3, 2).

use std::fmt::Write;
use std::sync::OnceLock;

use serde::Deserialize;

use super::TaskError;
use super::arguments::Arguments;
use super::capo::fields::Fields;
use super::cpython::Random;
use super::parameter::Default::{Is, Required};
use super::parameter::Values::{Int, Texts, Word};
use super::parameter::{Parameter, parameter};
use super::sample::{Mode, Span, Tape, verdict};
use super::task::{Definition, Generator, Scratch, definition};
use super::{BYTES, EOS};

/// The row of multi-hop questions.
pub static DEFINITION: Definition = Definition {
    usage: "N hops [M background=@FILE background_lengths]",
    example: r#"{"N": 3, "hops": 2}"#,
    is_text: true,
    is_answered: true,
    ..definition::<Multihop>("multihop", 1, PARAMETERS)
};

#[rustfmt::skip]
const PARAMETERS: &[Parameter] = &[
    parameter("data.multihop.N", Int(1, YEARS as i64), Required, "People per group. Only those in the first group have a stated year.").also(&["n_max", "n"]),
    parameter("data.multihop.hops", Int(1, MOST_PEOPLE as i64), Required, "Groups of people, and so hops from the question to a year.").also(&["k"]).alias("k"),
    parameter("data.multihop.M", Int(0, 1 << 20), Is("0"), "Background sentences are added while they have fewer words than this.").outside_recipes(),
    parameter("data.multihop.background", Texts, Is("[]"), "The background sentences, in order. Statements are hidden among them.").outside_recipes(),
    parameter("data.multihop.background_lengths", Word(&["space separated words"]), Is("\"space separated words\""), "How background length is measured. Counting words is the only way that needs no tokenizer.").outside_recipes(),
];

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
pub struct MultihopQuestion {
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

impl MultihopQuestion {
    /// Draws different names, as indices into the lists of [`Fields`].
    fn draw_names(&mut self, random: &mut Random, count: u32) {
        let fields = Fields::get();
        self.names.clear();
        while self.names.len() < count as usize {
            let name = [&fields.first_names, &fields.middle_names, &fields.last_names]
                .map(|list| random.index(list.len()) as u16);
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
    }
}

/// Appends a name.
fn push_name(name: [u16; 3], to: &mut String) {
    let fields = Fields::get();
    let [first, middle, last] = name.map(usize::from);
    let parts = [fields.first_names[first], fields.middle_names[middle], fields.last_names[last]];
    for (at, part) in parts.into_iter().enumerate() {
        if at > 0 {
            to.push(' ');
        }
        to.push_str(fields.text(part));
    }
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
    /// Probability that a guess among the text's years is right.
    pub fn chance(&self) -> f64 {
        1.0 / f64::from(self.group)
    }

    /// Draws a text and its question.
    pub fn ask(&self, random: &mut Random, to: &mut MultihopQuestion) {
        let people = self.group * self.groups;
        to.draw_names(random, people);
        self.state_years(random, to);
        let asked = people - self.group;
        to.answer.clear();
        to.answer.push_str(&to.years[asked as usize].to_string());

        let background = self.take_background(random);
        let MultihopQuestion { text, names, indices, stated, statements, .. } = to;
        let places = people + background.len() as u32;
        random.sample(places, people, indices);
        stated.clear();
        stated.resize(places as usize, false);
        indices.iter().for_each(|&position| stated[position as usize] = true);
        let Strings { instruction, head: [before, after], .. } = Strings::get();
        text.clear();
        if self.groups > 1 {
            text.push_str(instruction);
            text.push_str("<context>");
        }
        let (mut statements, mut background) = (statements.iter(), background.iter());
        for (position, &stated) in stated.iter().enumerate() {
            if position > 0 {
                text.push(' ');
            }
            let sentence = if stated { statements.next() } else { background.next() };
            text.push_str(sentence.map_or("", String::as_str));
        }
        text.push_str(if self.groups > 1 { "</context>" } else { " " });
        text.push_str(before);
        push_name(names[asked as usize], text);
        text.push_str(after);
    }

    /// Draws the year of each person in the first group, and whose year each other person has. Writes the statements.
    fn state_years(&self, random: &mut Random, to: &mut MultihopQuestion) {
        let Strings { direct, link, .. } = Strings::get();
        let MultihopQuestion { names, years, indices, statements, .. } = to;
        let name = |person: u32, to: &mut String| push_name(names[person as usize], to);
        random.sample(YEARS, self.group, years);
        statements.resize_with(names.len(), String::new);
        for person in 0..self.group {
            let year = FIRST_YEAR + years[person as usize];
            years.push(year);
            let push_year = |to: &mut String| to.push_str(&year.to_string());
            fill(&mut statements[person as usize], direct, |to| name(person, to), push_year);
        }
        // From here on, `years[i]` is the year of person i.
        years.drain(..self.group as usize);
        for group in 1..self.groups {
            indices.clear();
            indices.extend(0..self.group);
            random.shuffle(indices);
            for (number, &index) in indices.iter().enumerate() {
                let person = group * self.group + number as u32;
                let other = (group - 1) * self.group + index;
                years.push(years[other as usize]);
                let statement = &mut statements[person as usize];
                fill(statement, link, |to| name(person, to), |to| name(other, to));
            }
        }
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

impl Generator for Multihop {
    fn new(arguments: &Arguments) -> Result<Multihop, TaskError> {
        let group = arguments.int("N", "each of the N people has a different year, out of 60")?;
        let most = i64::from(MOST_PEOPLE / group);
        let reason = "a text names N * hops people, at most 1000";
        let groups = arguments.within("hops", arguments.get("hops")?, (1, most), reason)?;
        let most_words = arguments.int("M", "background has 0 to 1048576 words")?;
        let background: Vec<String> = arguments.get("background")?;
        if most_words > 0 && background.is_empty() {
            return Err(TaskError::new(
                format!("multihop: M is {most_words}, but there are no background sentences"),
                "give background, a list of sentences, or set M to 0",
            ));
        }
        if let Some(empty) = background.iter().position(|sentence| words(sentence) == 0) {
            return Err(TaskError::new(
                format!("multihop: background sentence {empty} is empty"),
                "take it out of the list",
            ));
        }
        Ok(Multihop { group, groups, most_words: u64::from(most_words), background })
    }

    fn separator(&self) -> Option<u32> {
        Some(EOS)
    }

    fn vocab(&self) -> u32 {
        BYTES
    }

    fn alphabet(&self) -> Vec<u32> {
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
    fn least_tokens(&self, _mode: Mode) -> u64 {
        let [before, middle, after] = &Strings::get().direct;
        let statement = before.len() + middle.len() + after.len() + "A B C 1950 ".len();
        u64::from(self.group * self.groups) * statement as u64
    }

    fn identity(&self) -> Option<String> {
        let Multihop { group, groups, most_words, background } = self;
        let mut hasher = blake3::Hasher::new_derive_key("canonc 1 data multihop background");
        for sentence in background {
            hasher.update(sentence.as_bytes()).update(b"\0");
        }
        let background = hasher.finalize();
        let fields = Fields::get().digest();
        Some(format!(
            "M {most_words}\nN {group}\nbackground {background}\nfields {fields}\nk {groups}\n"
        ))
    }

    fn sample(&self, random: &mut Random, _mode: Mode, scratch: &mut Scratch, tape: &mut Tape) {
        let question: &mut MultihopQuestion = scratch.buffers();
        self.ask(random, question);
        let Tape { tokens, labels: _, answers } = tape;
        tokens.extend(question.text.bytes().map(u32::from));
        answers.push(Span { start: tokens.len(), len: question.answer.len(), level: self.groups });
        tokens.extend(question.answer.bytes().map(u32::from));
    }

    /// Adds the path from the person in the question to the one with a stated year.
    fn describe(&self, tape: &Tape, _random: Option<&Random>) -> String {
        let (text, answer) = tape.text(true);
        let answer = answer.unwrap_or_default();
        let mut lines = format!("{text}{answer}\n");
        let sentence = |start: &str| {
            let (_, rest) = text.split_once(start)?;
            rest.split_once('.').map(|(end, _)| end.to_owned())
        };
        let asked =
            text.rsplit_once("Answer me: ").and_then(|(_, rest)| rest.split_once(" was born"));
        let Some((asked, _)) = asked else { return lines };
        let mut person = asked.to_owned();
        // A path has at most as many steps as people, so this ends even if people refer to each other in a circle.
        for _ in 0..=text.matches(" was born in the same year as ").count() {
            if let Some(other) = sentence(&format!("{person} was born in the same year as ")) {
                let _ = writeln!(lines, "  {person}, as {other}");
                person = other;
                continue;
            }
            let year = sentence(&format!("{person} was born in the year of ")).unwrap_or_default();
            let _ = writeln!(lines, "  {person}: {year} ({})", verdict(year == answer));
            break;
        }
        lines
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
    use crate::task::Task;
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
    fn errors_name_the_bad_parameter() {
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
