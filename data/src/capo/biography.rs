//! In: a person, drawn templates and an order of sentences. Out: the biography's bytes, and where its values are. Must
//! stay true: a text in a drawn order is the one the published permuter makes of the text in the plain order; it is
//! asked itself wherever a name stands in more than one place.

use super::fields::{self, Fields, SENTENCES, Template, Text};
use super::people::Person;
use super::permute::permute;
use crate::cpython::Random;
use crate::task::Span;

/// A value of a biography that a model has to know; the level of its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Name,
    BirthDate,
    BirthCity,
    University,
    Field,
    Employer,
    /// The first pronoun.
    Gender,
}

impl Value {
    pub const ALL: [Value; 7] = [
        Value::Name,
        Value::BirthDate,
        Value::BirthCity,
        Value::University,
        Value::Field,
        Value::Employer,
        Value::Gender,
    ];

    /// Of a sentence. The working city follows from the employer.
    fn of(sentence: usize) -> Option<Value> {
        match sentence {
            BIRTHDAY => Some(Value::BirthDate),
            BIRTH_CITY => Some(Value::BirthCity),
            UNIVERSITY => Some(Value::University),
            FIELD => Some(Value::Field),
            EMPLOYER => Some(Value::Employer),
            _ => None,
        }
    }

    /// What [`Span::level`] says of this value.
    pub fn level(self) -> u32 {
        self as u32
    }
}

/// A text and where its values are. The buffers are kept from text to text.
#[derive(Clone, Debug, Default)]
pub struct Biography {
    /// Longer than any biography by a piece, once one was written.
    bytes: Vec<u8>,
    len: usize,
    spans: Vec<Span>,
}

impl Biography {
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// In bytes of the text; levels are those of [`Value`].
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

/// The sentences by number, as their templates are drawn and, as a rule, written.
pub(super) const ORDER: [usize; SENTENCES] =
    [BIRTHDAY, BIRTH_CITY, UNIVERSITY, FIELD, WORKING_CITY, EMPLOYER];
const BIRTHDAY: usize = 0;
const BIRTH_CITY: usize = 1;
const UNIVERSITY: usize = 2;
const FIELD: usize = 3;
pub(super) const WORKING_CITY: usize = 4;
pub(super) const EMPLOYER: usize = 5;

/// No biography and a piece are longer.
pub(super) const MOST_BYTES: usize = 2048;

/// A biography about to be written.
pub(super) struct Writing<'a> {
    pub(super) fields: &'a Fields,
    pub(super) person: &'a Person,
    pub(super) she: bool,
    pub(super) templates: [&'a Template; SENTENCES],
    /// The day before the month.
    pub(super) reverse: bool,
}

impl Writing<'_> {
    /// The sentences in this order, the name in the first, a pronoun in the others.
    pub(super) fn write(&self, order: [usize; SENTENCES], to: &mut Biography) {
        to.clear();
        let Writing { fields, person: _, she, templates, reverse: _ } = self;
        let Biography { bytes, len: _, spans } = to;
        let mut at = 0;
        for (place, sentence) in order.into_iter().enumerate() {
            let template = templates[sentence];
            if place == 0 {
                for name in self.spaced_names() {
                    at = fields.copy(name, bytes, at);
                }
                spans.push(Span { start: 1, len: at - 1, level: Value::Name.level() });
                at = fields.copy(template.after_name, bytes, at);
            } else {
                if place == 1 {
                    let len = if *she { 3 } else { 2 };
                    spans.push(Span { start: at + 1, len, level: Value::Gender.level() });
                }
                at = fields.copy(if *she { template.she } else { template.he }, bytes, at);
            }
            let start = at;
            let (value, rest) = self.value(sentence);
            at = fields.copy(value, bytes, at);
            if let Some(rest) = rest {
                at = fields.copy(rest, bytes, at);
            }
            if let Some(value) = Value::of(sentence) {
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

    /// What a sentence says; a date's year is the second part.
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

    /// Whether each name stands in the text once only. The published permuter then puts the full name in the first
    /// sentence and pronouns in the others, and that is all.
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
        // No template has a name in it, so what is left are values.
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

    /// Puts what is written in a drawn order by the published permuter.
    pub(super) fn permute(
        &self,
        random: &mut Random,
        order: [usize; SENTENCES],
        to: &mut Biography,
    ) {
        let text = String::from_utf8_lossy(to.bytes()).into_owned();
        let names = self.person.names();
        // Every sentence has the name or a pronoun, so that any of them can come first.
        let Some(permuted) = permute(random, names, &text) else { return };
        to.clear();
        let full = names.join(" ");
        for (place, (sentence, &was)) in permuted.sentences.iter().zip(&permuted.order).enumerate()
        {
            let start = to.len + 1;
            // Names that stand elsewhere are replaced there too; a value that is changed so is none any more.
            let mut found = |part: &str, value: Value| {
                let at = sentence.find(part);
                to.spans.extend(at.map(|at| Span {
                    start: start + at,
                    len: part.len(),
                    level: value.level(),
                }));
            };
            match place {
                0 => found(&full, Value::Name),
                1 => found(if self.she { "She" } else { "He" }, Value::Gender),
                _ => {}
            }
            let said = order.get(was).and_then(|&said| Some((said, Value::of(said)?)));
            if let Some((sentence, value)) = said {
                let (first, rest) = self.value(sentence);
                let rest = rest.map_or("", |rest| self.fields.text(rest));
                found(&format!("{}{rest}", self.fields.text(first)), value);
            }
            to.push(&format!(" {sentence}."));
        }
    }
}

/// Whether `part` is in `text`; both are short, which makes searching at every place the fastest way.
fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
