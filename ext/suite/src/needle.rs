//! Needle retrieval: a number in the middle of a long text, and a question about it at the end. Each length and depth
//! is a task with generated answers.
//!
//! A question depends only on the seed, its number and the tokenizer's token counts. The number appears only at its
//! depth, and a prompt with its answer fills the length as far as whole sentences can.

use dsl::Problem;
use tasks::cpython::Random;

use crate::asked::Asked;
use crate::encode::Encoder;
use crate::request::Request;
use crate::suite::{Filter, Kind, Metric, Task};

pub use crate::asked::NEEDLE;

/// The questions to generate.
#[derive(Clone, Debug)]
pub struct Needles {
    /// Seed of every text.
    pub seed: u64,
    /// Tokens of a prompt and its answer.
    pub lengths: Vec<usize>,
    /// Where the number stands, in percent of the text before the question.
    pub depths: Vec<u8>,
    /// Questions for each length and depth.
    pub count: usize,
}

/// Tokens that an answer may have: a space, six digits and a mark, each a token at worst.
const ANSWER: usize = 8;

const WHO: [&str; 8] = [
    "The baker",
    "A child",
    "My uncle",
    "The painter",
    "A sailor",
    "Our neighbour",
    "The judge",
    "A nurse",
];
const DID: [&str; 8] = [
    "walked",
    "slept",
    "sang",
    "waited",
    "read a letter",
    "drank tea",
    "told a story",
    "looked up",
];
const WHERE: [&str; 8] = [
    "by the river",
    "in the garden",
    "at the station",
    "under the bridge",
    "near the old mill",
    "in the kitchen",
    "on the hill",
    "behind the church",
];
const CITIES: [&str; 8] = ["Lima", "Oslo", "Cairo", "Delhi", "Quito", "Hanoi", "Rome", "Perth"];

/// The text of one question.
struct NeedleQuestion {
    sentences: Random,
    city: &'static str,
    number: i64,
}

impl NeedleQuestion {
    fn new(seed: u64, number: usize) -> NeedleQuestion {
        let mut hasher = blake3::Hasher::new_derive_key("canonc 1 needle");
        hasher.update(&seed.to_le_bytes()).update(&(number as u64).to_le_bytes());
        let mut random = Random::from_key(hasher.finalize().as_bytes());
        let city = pick(&mut random, &CITIES);
        let number = random.randint(100_000, 999_999);
        NeedleQuestion { sentences: random, city, number }
    }

    fn answer(&self) -> String {
        self.number.to_string()
    }

    /// The prompt with `count` other sentences; a prompt with more of them begins with the same ones.
    fn prompt(&self, count: usize, depth: u8) -> String {
        let mut random = self.sentences.clone();
        let before = count * usize::from(depth) / 100;
        let needle = format!("The secret number of {} is {}. ", self.city, self.number);
        let mut text = String::new();
        for at in 0..count {
            if at == before {
                text += &needle;
            }
            let (who, did) = (pick(&mut random, &WHO), pick(&mut random, &DID));
            text += &format!("{who} {did} {}. ", pick(&mut random, &WHERE));
        }
        if before == count {
            text += &needle;
        }
        format!(
            "{text}\nQuestion: What is the secret number of {}?\nAnswer: The secret number of {} is",
            self.city, self.city
        )
    }
}

fn pick(random: &mut Random, words: &[&'static str; 8]) -> &'static str {
    words.get(random.index(words.len())).copied().unwrap_or_default()
}

impl Needles {
    /// The tasks, each named after its length and depth.
    pub fn asked(&self, encoder: &dyn Encoder) -> Result<Vec<(usize, Asked)>, Problem> {
        let mut all = Vec::new();
        for length in &self.lengths {
            for depth in &self.depths {
                all.push((*length, self.generated(encoder, *length, *depth)?));
            }
        }
        Ok(all)
    }

    /// One task with its questions.
    fn generated(&self, encoder: &dyn Encoder, length: usize, depth: u8) -> Result<Asked, Problem> {
        let task = task(length, depth);
        let (mut requests, mut places) = (Vec::new(), Vec::new());
        let mut digest = blake3::Hasher::new_derive_key("canonc 1 needle questions");
        for number in 0..self.count {
            let location =
                format!("needle, length {length}, depth {depth}%, question {}", number + 1);
            let question = NeedleQuestion::new(self.seed, number);
            let fits = |count: usize| -> Result<bool, Problem> {
                let text = question.prompt(count, depth);
                let tokens = encoder.encode(&text).map_err(|reason| {
                    Problem::in_file(location.clone(), reason, "use a tokenizer of English text")
                })?;
                Ok(tokens.len() + ANSWER <= length)
            };
            if !fits(0)? {
                let message = format!("{length} tokens are too few for the question alone");
                return Err(Problem::in_file(location, message, "give longer --lengths"));
            }
            // Each sentence has at least one token.
            let (mut least, mut most) = (0, length);
            while least < most {
                let middle = (least + most).div_ceil(2);
                if fits(middle)? { least = middle } else { most = middle - 1 }
            }
            let (prompt, answer) = (question.prompt(least, depth), question.answer());
            for text in [&prompt, &answer] {
                digest.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
            }
            requests.push(Request::Generate { prompt, expected: vec![answer] });
            places.push(location);
        }
        Ok(Asked { task, questions: digest.finalize(), examples: None, requests, places })
    }
}

fn task(length: usize, depth: u8) -> Task {
    Task {
        name: format!("needle-{length}-{depth}"),
        kind: Kind::Generate,
        file: NEEDLE.to_owned(),
        description: None,
        prompt: Some("{{ prompt }}".to_owned()),
        choices: None,
        answer: Some("answer".to_owned()),
        ending: None,
        text: None,
        counted: None,
        delimiter: None,
        separator: None,
        shots: 0,
        shots_file: None,
        shots_order: None,
        shots_by: None,
        until: vec![".".to_owned(), "\n".to_owned()],
        max_tokens: Some(ANSWER),
        filters: vec![Filter::RemoveWhitespace],
        ignore: Vec::new(),
        ignore_case: false,
        ignore_punctuation: false,
        ignore_numbers: false,
        metrics: vec![Metric::ExactMatch],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes;

    impl Encoder for Bytes {
        fn encode(&self, text: &str) -> Result<Vec<i64>, String> {
            Ok(text.bytes().map(i64::from).collect())
        }

        fn prefix(&self) -> Option<i64> {
            None
        }
    }

    fn asked(seed: u64, lengths: &[usize]) -> Result<Vec<(usize, Asked)>, Problem> {
        let (lengths, depths) = (lengths.to_vec(), vec![0, 50, 100]);
        Needles { seed, lengths, depths, count: 3 }.asked(&Bytes)
    }

    #[test]
    fn a_number_stands_once_at_its_depth_and_fills_the_length() {
        let all = asked(0, &[300, 1000]).unwrap();
        let names: Vec<&str> = all.iter().map(|(_, asked)| asked.task.name.as_str()).collect();
        assert_eq!(
            names[..4],
            ["needle-300-0", "needle-300-50", "needle-300-100", "needle-1000-0"]
        );
        for (at, (length, asked)) in all.iter().enumerate() {
            for request in &asked.requests {
                let Request::Generate { prompt, expected } = request else { panic!() };
                assert_eq!(prompt.matches(&expected[0]).count(), 1);
                // The longest sentence has fewer than 60 bytes.
                assert!((length - 60..=*length).contains(&(prompt.len() + ANSWER)), "{length}");
                let story = prompt.find("\nQuestion").unwrap();
                let depth = prompt.find("The secret").unwrap() as f64 / story as f64;
                match at % 3 {
                    0 => assert_eq!(depth, 0.0),
                    1 => assert!((0.2..0.7).contains(&depth), "{depth}"),
                    _ => assert!(prompt[..story].ends_with(&format!("is {}. ", expected[0]))),
                }
            }
        }
    }

    #[test]
    fn a_seed_decides_every_text() {
        let digests = |seed| {
            let all = asked(seed, &[400]).unwrap();
            all.iter().map(|(_, asked)| asked.questions).collect::<Vec<_>>()
        };
        assert_eq!(digests(7), digests(7));
        assert!(digests(7).iter().zip(digests(8)).all(|(one, other)| *one != other));
        let short = asked(0, &[50]).unwrap_err();
        assert!(short.message.contains("50 tokens are too few"), "{short}");
    }
}
