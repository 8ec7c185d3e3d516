//! Prompts that ask a language model for a biography (bioR), draw for draw those of the published script, including its
//! odd list of employer sentences, where two became one. The biographies that such models wrote cannot be reproduced.

use super::fields::{Fields, Prompts};
use super::people::Person;
use crate::cpython::Random;
use crate::cpython::numpy::RandomState;

/// One of the two published prompts.
#[derive(Debug)]
pub enum Ask<'a> {
    /// For Llama-1. numpy draws the number of words even when one is given.
    Mode0 {
        /// Number of words to ask for; None asks for the number that numpy draws.
        words: Option<u32>,
        /// Generator of that number.
        numpy: &'a mut RandomState,
    },
    /// For Llama-2.
    Mode1 {
        /// The requested number of words, as text.
        words: &'a str,
    },
}

/// The bioR prompt for this person: a request for a biography, then four sentences in a drawn order.
pub fn prompt(random: &mut Random, person: &Person, ask: Ask) -> String {
    let name = person.full_name();
    let head = match ask {
        Ask::Mode0 { words, numpy } => {
            let drawn = numpy.randint(50, 200);
            format!(
                "Write a {} words biography about a person whose name is {name}.",
                words.unwrap_or(drawn)
            )
        }
        Ask::Mode1 { words } => format!(
            "Write a {words}-word biography about a person whose name is {name}. Be creative in the writing and permute sentences as much as you can."
        ),
    };
    let Prompts { university, field, city, employer, birthday } = &Fields::get().prompts;
    let (company, company_city) = person.company();
    let mut choose =
        |list: &[String]| list.get(random.index(list.len())).cloned().unwrap_or_default();
    let studies = choose(university).replace("{university}", person.university())
        + &choose(field).replace("{field}", person.field());
    let city = choose(city).replace("{birthcity}", person.city());
    let employer =
        choose(employer).replace("{company1name}", company).replace("{company1city}", company_city);
    let birthday = choose(birthday).replace("{birthday}", &person.birthday());
    let mut parts = [studies, city, employer, birthday];
    random.shuffle(&mut parts);
    head + &parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capo::people::{Pronoun, people};
    use support::golden::{self, StreamDigest};

    #[test]
    fn prompts_equal_the_published_ones() {
        let mut tested = 0;
        for case in golden::cases("capo") {
            if !case["id"].as_str().unwrap().starts_with("bioR") {
                continue;
            }
            tested += 1;
            let number = |name: &str| case[name].as_u64();
            let people =
                people(&mut Random::new(number("people_seed").unwrap()), 50, Pronoun::Parity);
            let mut random = Random::new(number("text_seed").unwrap());
            let mut numpy = RandomState::new(number("np_seed").unwrap_or(0) as u32);
            let mut digest = StreamDigest::default();
            for (id, person) in people.iter().enumerate() {
                let ask = match number("mode").unwrap() {
                    0 => Ask::Mode0 {
                        words: number("word").map(|words| words as u32),
                        numpy: &mut numpy,
                    },
                    _ => Ask::Mode1 { words: case["word"].as_str().unwrap() },
                };
                let text = prompt(&mut random, person, ask);
                if let Some(want) = case["samples"].get(id) {
                    assert_eq!(text, want["text"].as_str().unwrap());
                }
                digest.add(text.bytes().map(u32::from));
            }
            digest.check(&case["digest_utf8"]);
            assert_eq!(random.next_u32(), case["next_u32_after"]);
        }
        assert_eq!(tested, 6);
    }
}
