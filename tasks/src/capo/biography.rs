//! The text of one biography, and the positions of its values. A text in a drawn order is the one that the published
//! permuter makes of the text in the plain order; where a name occurs more than once, that permuter is called.

use super::fields::{self, Fields, SENTENCES, Template, Text};
use super::people::Person;
use super::permute::permute;
use crate::cpython::Random;
use crate::sample::Span;

/// A value in a biography that a model has to know. It gives the level of the value's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attribute {
    /// First, middle and last name.
    Name,
    /// Month, day and year.
    BirthDate,
    /// City of birth.
    BirthCity,
    /// University.
    University,
    /// Field of study.
    Field,
    /// Employer.
    Employer,
    /// Known from the first pronoun.
    Gender,
}

impl Attribute {
    /// All values, in the order of their numbers.
    pub const ALL: [Attribute; 7] = [
        Attribute::Name,
        Attribute::BirthDate,
        Attribute::BirthCity,
        Attribute::University,
        Attribute::Field,
        Attribute::Employer,
        Attribute::Gender,
    ];

    /// The value in a sentence. The working city has none, since it follows from the employer.
    fn in_sentence(sentence: usize) -> Option<Attribute> {
        match sentence {
            BIRTHDAY => Some(Attribute::BirthDate),
            BIRTH_CITY => Some(Attribute::BirthCity),
            UNIVERSITY => Some(Attribute::University),
            FIELD => Some(Attribute::Field),
            EMPLOYER => Some(Attribute::Employer),
            _ => None,
        }
    }

    /// The [`Span::level`] of this value.
    pub fn level(self) -> u32 {
        self as u32
    }
}

/// A text and the positions of its values. Its buffers are reused from text to text.
#[derive(Clone, Debug, Default)]
pub struct Biography {
    /// After the first write, one piece longer than any biography.
    bytes: Vec<u8>,
    len: usize,
    spans: Vec<Span>,
}

impl Biography {
    /// Its text, in UTF-8.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Positions in bytes of the text. Levels are those of [`Attribute`].
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    fn push(&mut self, text: &str) {
        let end = self.len + text.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[self.len..end].copy_from_slice(text.as_bytes());
        self.len = end;
    }

    fn clear(&mut self) {
        let Biography { bytes, len, spans } = self;
        if bytes.len() < MOST_BYTES {
            bytes.resize(MOST_BYTES, 0);
        }
        *len = 0;
        spans.clear();
    }
}

/// Sentence numbers in the order in which their templates are drawn and normally written.
pub(super) const ORDER: [usize; SENTENCES] =
    [BIRTHDAY, BIRTH_CITY, UNIVERSITY, FIELD, WORKING_CITY, EMPLOYER];
const BIRTHDAY: usize = 0;
const BIRTH_CITY: usize = 1;
const UNIVERSITY: usize = 2;
const FIELD: usize = 3;
pub(super) const WORKING_CITY: usize = 4;
pub(super) const EMPLOYER: usize = 5;

/// Maximum length of a biography plus one piece.
pub(super) const MOST_BYTES: usize = 2048;

/// A biography about to be written.
pub(super) struct Writing<'a> {
    pub(super) fields: &'a Fields,
    pub(super) person: &'a Person,
    pub(super) she: bool,
    pub(super) templates: [&'a Template; SENTENCES],
    /// Whether the day comes before the month.
    pub(super) reverse: bool,
}

impl Writing<'_> {
    /// Writes the sentences in this order, with the name in the first and a pronoun in the others.
    pub(super) fn write(&self, order: [usize; SENTENCES], to: &mut Biography) {
        to.clear();
        let Writing { fields, person: _, she, templates, reverse: _ } = self;
        let Biography { bytes, len: _, spans } = to;
        let mut at = 0;
        for (position, sentence) in order.into_iter().enumerate() {
            let template = templates[sentence];
            if position == 0 {
                for name in self.spaced_names() {
                    at = fields.copy(name, bytes, at);
                }
                spans.push(Span { start: 1, len: at - 1, level: Attribute::Name.level() });
                at = fields.copy(template.after_name, bytes, at);
            } else {
                if position == 1 {
                    let len = if *she { 3 } else { 2 };
                    spans.push(Span { start: at + 1, len, level: Attribute::Gender.level() });
                }
                at = fields.copy(if *she { template.she } else { template.he }, bytes, at);
            }
            let start = at;
            let (value, rest) = self.value(sentence);
            at = fields.copy(value, bytes, at);
            if let Some(rest) = rest {
                at = fields.copy(rest, bytes, at);
            }
            if let Some(value) = Attribute::in_sentence(sentence) {
                spans.push(Span { start, len: at - start, level: value.level() });
            }
            at = fields.copy(template.end, bytes, at);
        }
        to.len = at;
    }

    /// The names, each after a space.
    fn spaced_names(&self) -> [Text; 3] {
        let Writing { fields, person, .. } = self;
        [
            fields.first_names[usize::from(person.first_name)],
            fields.middle_names[usize::from(person.middle_name)],
            fields.last_names[usize::from(person.last_name)],
        ]
        .map(Fields::spaced)
    }

    /// The value in a sentence. For a date, the second part is the year.
    fn value(&self, sentence: usize) -> (Text, Option<Text>) {
        let Writing { fields, person, reverse, .. } = self;
        let company = fields.companies[usize::from(person.company)];
        match sentence {
            BIRTHDAY => {
                let days = if *reverse { &fields.day_months } else { &fields.month_days };
                let day = days
                    [usize::from(person.month) * fields::DAYS as usize + usize::from(person.day)];
                (day, Some(fields.years[usize::from(person.year)]))
            }
            BIRTH_CITY => (fields.cities[usize::from(person.city)], None),
            UNIVERSITY => (fields.universities[usize::from(person.university)], None),
            FIELD => (fields.fields[usize::from(person.field)], None),
            WORKING_CITY => (company.1, None),
            _ => (company.0, None),
        }
    }

    /// Whether each name occurs in the text exactly once. The published permuter then puts the full name in the first
    /// sentence and pronouns in the others, and changes nothing else.
    pub(super) fn is_plain(&self) -> bool {
        let Writing { fields, person, .. } = self;
        let [first, middle, last] = person.names().map(str::as_bytes);
        let among_names = has(middle, first)
            || has(last, first)
            || has(first, middle)
            || has(last, middle)
            || has(first, last)
            || has(middle, last);
        if among_names {
            return false;
        }
        // Templates contain no names, so only values need a check.
        let [firsts, middles, lasts] = &fields.named_in_values;
        let candidates = [
            firsts[usize::from(person.first_name)].then_some(first),
            middles[usize::from(person.middle_name)].then_some(middle),
            lasts[usize::from(person.last_name)].then_some(last),
        ];
        candidates.iter().flatten().all(|name| {
            (0..SENTENCES)
                .all(|sentence| !has(fields.text(self.value(sentence).0).as_bytes(), name))
        })
    }

    /// Reorders the written text with the published permuter.
    pub(super) fn permute(
        &self,
        random: &mut Random,
        order: [usize; SENTENCES],
        to: &mut Biography,
    ) {
        let text = String::from_utf8_lossy(to.bytes()).into_owned();
        let names = self.person.names();
        // Every sentence has the name or a pronoun, so any of them can come first.
        let Some(permuted) = permute(random, names, &text) else { return };
        to.clear();
        let full = names.join(" ");
        for (at, (sentence, &was)) in permuted.sentences.iter().zip(&permuted.order).enumerate() {
            let start = to.len + 1;
            // Names elsewhere are replaced too. A value that changes this way no longer counts as a value.
            let mut mark = |part: &str, value: Attribute| {
                to.spans.extend(sentence.find(part).map(|offset| Span {
                    start: start + offset,
                    len: part.len(),
                    level: value.level(),
                }));
            };
            match at {
                0 => mark(&full, Attribute::Name),
                1 => mark(if self.she { "She" } else { "He" }, Attribute::Gender),
                _ => {}
            }
            let moved =
                order.get(was).and_then(|&number| Some((number, Attribute::in_sentence(number)?)));
            if let Some((sentence, value)) = moved {
                let (first, rest) = self.value(sentence);
                let rest = rest.map_or("", |rest| self.fields.text(rest));
                mark(&format!("{}{rest}", self.fields.text(first)), value);
            }
            to.push(&format!(" {sentence}."));
        }
    }
}

/// Whether `part` is in `text`. Both are short, so testing every position is fastest.
fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
