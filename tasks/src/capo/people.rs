//! The made-up people, of whom no two have the same name. Person i does not depend on how many follow.

use serde::Deserialize;

use super::fields::{DAYS, FIRST_YEAR, Fields, MONTHS, YEARS};
use crate::cpython::Random;

/// More people than in any published experiment. Names run out at 160 million.
pub const MOST_PEOPLE: u32 = 10_000_000;

/// How a person's pronoun is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pronoun {
    /// By the parity of the person's number, as in the published code.
    Parity,
    /// Drawn, as in the paper.
    Drawn,
}

/// A person's values, as indices into the lists of [`Fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Person {
    /// Index into `first_names`.
    pub first_name: u16,
    /// Index into `middle_names`.
    pub middle_name: u16,
    /// Index into `last_names`.
    pub last_name: u16,
    /// City of birth, an index into `cities`.
    pub city: u16,
    /// Index into `universities`.
    pub university: u16,
    /// Field of study, an index into `fields`.
    pub field: u16,
    /// Employer, an index into `companies`.
    pub company: u16,
    /// Months and days count from 0, years from 1900.
    pub month: u8,
    /// Day of birth, from 0.
    pub day: u8,
    /// Year of birth, from 0 for 1900.
    pub year: u8,
    /// Whether the biography says "she" rather than "he".
    pub she: bool,
}

/// The first `count` people that this generator draws.
pub fn people(random: &mut Random, count: u32, pronoun: Pronoun) -> Vec<Person> {
    let fields = Fields::get();
    let (middles, lasts) = (fields.middle_names.len(), fields.last_names.len());
    // One bit per name. Memory pages without a drawn name are never touched.
    let names = fields.first_names.len() * middles * lasts;
    let mut taken = vec![0u64; names / 64 + 1];
    let mut people = Vec::with_capacity(count as usize);
    for id in 0..count {
        let (first_name, middle_name, last_name) = loop {
            let first = random.index(fields.first_names.len());
            let middle = random.index(middles);
            let last = random.index(lasts);
            let name = (first * middles + middle) * lasts + last;
            let (word, bit) = (&mut taken[name / 64], 1 << (name % 64));
            if *word & bit == 0 {
                *word |= bit;
                break (first as u16, middle as u16, last as u16);
            }
        };
        people.push(Person {
            first_name,
            middle_name,
            last_name,
            month: random.below(MONTHS.len() as u32) as u8,
            day: random.below(DAYS) as u8,
            year: random.below(YEARS) as u8,
            city: random.index(fields.cities.len()) as u16,
            university: random.index(fields.universities.len()) as u16,
            field: random.index(fields.fields.len()) as u16,
            company: random.index(fields.companies.len()) as u16,
            she: match pronoun {
                Pronoun::Parity => id % 2 == 1,
                Pronoun::Drawn => random.below(2) == 1,
            },
        });
    }
    people
}

impl Person {
    /// First, middle and last name.
    pub fn names(&self) -> [&'static str; 3] {
        let fields = Fields::get();
        [
            fields.text(fields.first_names[usize::from(self.first_name)]),
            fields.text(fields.middle_names[usize::from(self.middle_name)]),
            fields.text(fields.last_names[usize::from(self.last_name)]),
        ]
    }

    /// The three names, separated by spaces.
    pub fn full_name(&self) -> String {
        self.names().join(" ")
    }

    /// "May 3, 1999"
    pub fn birthday(&self) -> String {
        let month = MONTHS[usize::from(self.month)];
        format!("{month} {}, {}", self.day + 1, FIRST_YEAR + u32::from(self.year))
    }

    /// City of birth.
    pub fn city(&self) -> &'static str {
        Fields::get().text(Fields::get().cities[usize::from(self.city)])
    }

    /// Name of the university.
    pub fn university(&self) -> &'static str {
        Fields::get().text(Fields::get().universities[usize::from(self.university)])
    }

    /// Field of study.
    pub fn field(&self) -> &'static str {
        Fields::get().text(Fields::get().fields[usize::from(self.field)])
    }

    /// The employer and its city.
    pub fn company(&self) -> (&'static str, &'static str) {
        let (name, city) = Fields::get().companies[usize::from(self.company)];
        (Fields::get().text(name), Fields::get().text(city))
    }

    /// The person's record, under the published field names.
    pub fn record(&self, id: u32) -> serde_json::Value {
        let [first, middle, last] = self.names();
        let (company, company_city) = self.company();
        serde_json::json!({
            "id": id,
            "first_name": first,
            "middle_name": middle,
            "last_name": last,
            "birthmonth": MONTHS[usize::from(self.month)],
            "birthday": self.day + 1,
            "birthyear": FIRST_YEAR + u32::from(self.year),
            "birthcity": self.city(),
            "university": self.university(),
            "field": self.field(),
            "company1name": company,
            "company1city": company_city,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::golden::{self, StreamDigest};

    #[test]
    fn people_equal_the_vectors() {
        for id in ["people-s42", "people-s7"] {
            let case = golden::case("capo", id);
            let mut random = Random::new(case["seed"].as_u64().unwrap());
            let people = people(&mut random, case["n"].as_u64().unwrap() as u32, Pronoun::Parity);
            let mut digest = StreamDigest::default();
            for (id, person) in people.iter().enumerate() {
                let record = person.record(id as u32);
                if let Some(want) = case["people_first5"].get(id) {
                    assert_eq!(record, *want);
                }
                digest.add(record.to_string().bytes().map(u32::from));
            }
            digest.check(&case["digest_people_json_sorted"]);
            assert_eq!(random.next_u32(), case["next_u32_after"]);
        }
    }

    #[test]
    fn no_name_is_given_twice() {
        let mut names: Vec<(u16, u16, u16)> = people(&mut Random::new(1), 50_000, Pronoun::Parity)
            .iter()
            .map(|person| (person.first_name, person.middle_name, person.last_name))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 50_000);
    }
}
