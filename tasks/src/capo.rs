//! The Capo task: biographies of made-up people, byte for byte those of the published script. All six templates are drawn
//! in one order, whatever the order of the text.
//!
//! The papers are "Physics of Language Models: Part 3.3" and "Part 4.1", appendix A. `fields` holds the published names,
//! values and templates, `people` draws the people, `biography` writes a text, `permute` reorders any text, `prompt`
//! writes bioR prompts, `bits` turns losses into capacity.

mod biography;
pub mod bits;
pub mod fields;
pub mod people;
pub mod permute;
pub mod prompt;

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use super::TaskError;
use super::arguments::Arguments;
use super::cpython::Random;
use super::metric::{BITS, EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY};
use super::parameter::Default::Is;
use super::parameter::Values::{Bool, Int, Seed, Word};
use super::parameter::{Parameter, parameter};
use super::sample::{Mode, Span, Tape};
use super::task::{
    Definition, Generator, InTraining, Packing, Refusal, Scoring, Scratch, definition,
};
use super::{BYTES, EOS};
pub use biography::{Attribute, Biography};
use biography::{EMPLOYER, ORDER, WORKING_CITY, Writing};
use fields::Fields;
use people::{MOST_PEOPLE, Person, Pronoun, people};

/// Capo's row. What it knows is measured in bits instead of right answers.
pub static DEFINITION: Definition = Definition {
    usage: "[N people_seed permute order reverse_md pronoun=parity|drawn]",
    example: r#"{"N": 7, "permute": true}"#,
    is_text: true,
    cuts_anywhere: true,
    metrics: &[BITS, EVAL_LOSS, EXACT_MATCH, TOKEN_ACCURACY],
    usual_metrics: &[BITS, EVAL_LOSS],
    in_training: InTraining::ByDesign,
    ..definition::<Capo>("capo", 1, PARAMETERS)
};

#[rustfmt::skip]
const PARAMETERS: &[Parameter] = &[
    parameter("data.capo.N", Int(1, MOST_PEOPLE as i64), Is("50000"), "Number of people.").also(&["n_max", "n"]),
    parameter("data.capo.people_seed", Seed, Is("42"), "Seed of the people, who are the same whatever `seeds.data` is."),
    parameter("data.capo.permute", Bool, Is("false"), "Sentences in a drawn order, as in the paper's bioS."),
    parameter("data.capo.order", Int(i64::MIN, i64::MAX), Is("0"), "If not 0, the employer comes before the working city.").outside_recipes(),
    parameter("data.capo.reverse_md", Bool, Is("false"), "Write the day before the month."),
    parameter("data.capo.pronoun", Word(&["parity", "drawn"]), Is("\"parity\""), "How a person's pronoun is chosen: by the parity of the number, as published, or drawn, as in the paper."),
];

/// A shorter window would rarely contain a whole biography; their mean length is 367 bytes.
const LEAST_WINDOW: i64 = 512;

/// A checked Capo task.
#[derive(Clone, Debug)]
pub struct Capo {
    count: u32,
    /// Drawn when they are first needed: ten million of them take a second.
    people: Arc<OnceLock<Vec<Person>>>,
    people_seed: u64,
    /// Whether the people have a seed of their own, as in recipes and locks.
    has_own_people: bool,
    permute: bool,
    employer_first: bool,
    reverse: bool,
    pronoun: Pronoun,
}

impl Capo {
    /// Pairs seeds as the published vectors do: the people are drawn from `seed`, unless they have a seed of their own.
    /// Also returns the seed of the texts.
    fn paired(&self, seed: u64) -> (Capo, u64) {
        match self.has_own_people {
            true => (self.clone(), seed),
            false => {
                let paired = Capo { people: Arc::default(), people_seed: seed, ..self.clone() };
                (paired, seed.wrapping_add(1_000_003))
            }
        }
    }

    /// All people, in the order of their numbers.
    pub fn people(&self) -> &[Person] {
        let Capo { count, people_seed, pronoun, .. } = *self;
        self.people.get_or_init(|| people(&mut Random::new(people_seed), count, pronoun))
    }

    /// Appends a biography of person `id`, modulo the number of people.
    pub fn sample_of(
        &self,
        random: &mut Random,
        id: u32,
        scratch: &mut Biography,
        tape: &mut Tape,
    ) {
        self.write(random, id, scratch);
        let Tape { tokens, labels: _, answers } = tape;
        let start = tokens.len();
        answers
            .extend(scratch.spans().iter().map(|span| Span { start: start + span.start, ..*span }));
        tokens.extend(scratch.bytes().iter().map(|&byte| u32::from(byte)));
    }

    /// Writes a biography of person `id`, modulo the number of people.
    pub fn write(&self, random: &mut Random, id: u32, to: &mut Biography) {
        let id = id % self.count;
        let fields = Fields::get();
        let person = &self.people()[id as usize];
        let writing = Writing {
            fields,
            person,
            she: person.she,
            templates: fields.templates.each_ref().map(|list| &list[random.index(list.len())]),
            reverse: self.reverse,
        };
        let mut order = ORDER;
        if self.employer_first {
            order.swap(WORKING_CITY, EMPLOYER);
        }
        if !self.permute {
            writing.write(order, to);
        } else if writing.is_plain() {
            random.shuffle(&mut order);
            writing.write(order, to);
        } else {
            writing.write(order, to);
            writing.permute(random, order, to);
        }
    }
}

impl Generator for Capo {
    /// The people are drawn on first use.
    fn new(arguments: &Arguments) -> Result<Capo, TaskError> {
        let order: i64 = arguments.get("order")?;
        Ok(Capo {
            count: arguments.int("N", "there are 1 to 10000000 people")?,
            people: Arc::default(),
            people_seed: arguments.get("people_seed")?,
            has_own_people: arguments.has("people_seed"),
            permute: arguments.get("permute")?,
            employer_first: order != 0,
            reverse: arguments.get("reverse_md")?,
            pronoun: arguments.get("pronoun")?,
        })
    }

    fn vocab(&self) -> u32 {
        BYTES
    }

    fn alphabet(&self) -> Vec<u32> {
        Fields::get().bytes().into_iter().map(u32::from).chain([EOS]).collect()
    }

    fn separator(&self) -> Option<u32> {
        Some(EOS)
    }

    fn identity(&self) -> Option<String> {
        let Capo {
            count,
            people: _,
            people_seed,
            has_own_people: _,
            permute,
            employer_first,
            reverse,
            pronoun,
        } = self;
        let pronoun = match pronoun {
            Pronoun::Parity => "parity",
            Pronoun::Drawn => "drawn",
        };
        Some(format!(
            "N {count}\nfields {}\norder {}\npeople_seed {people_seed}\npermute {permute}\npronoun {pronoun}\n\
             reverse_md {reverse}\n",
            Fields::get().digest(),
            u32::from(*employer_first),
        ))
    }

    /// Appends a biography of a drawn person.
    fn sample(&self, random: &mut Random, _mode: Mode, scratch: &mut Scratch, tape: &mut Tape) {
        let id = random.below(self.count);
        self.sample_of(random, id, scratch.buffers(), tape);
    }

    /// The published vectors draw the people from the stream's seed, unless these have a seed of their own.
    fn published(&self, seed: u64) -> Option<(Arc<dyn Generator>, u64)> {
        let (paired, seed) = self.paired(seed);
        Some((Arc::new(paired), seed))
    }

    /// In the published stream, people come in sequence.
    fn sample_published(
        &self,
        number: u64,
        random: &mut Random,
        _mode: Mode,
        scratch: &mut Scratch,
        tape: &mut Tape,
    ) {
        let id = (number % u64::from(u32::MAX)) as u32;
        self.sample_of(random, id, scratch.buffers(), tape);
    }

    fn describe(&self, tape: &Tape, _random: Option<&Random>) -> String {
        let (text, _) = tape.text(false);
        let mut lines = format!("{}\n", text.trim_start());
        for (value, name) in Attribute::ALL.into_iter().zip([
            "name",
            "birth date",
            "birth city",
            "university",
            "field",
            "employer",
            "pronoun",
        ]) {
            for span in tape.answers.iter().filter(|span| span.level == value.level()) {
                let words = text.get(span.start..span.start + span.len).unwrap_or("?");
                let _ = writeln!(lines, "  {name:<11} {words}");
            }
        }
        lines
    }

    fn scoring(&self) -> Scoring<'_> {
        Scoring::Knowledge { people: u64::from(self.count) }
    }

    fn check(&self, packing: &Packing) -> Vec<Refusal> {
        let Packing { seq_len, is_published, metrics } = packing;
        let mut refusals = Vec::new();
        if *is_published {
            refusals.push(Refusal {
                field: "data.order",
                message: "order is \"published\", but the published data has one biography per person in a fixed order, not windows".to_owned(),
                help: "write order = \"indexed\", which draws new people and sentences for each window".to_owned(),
            });
        }
        if metrics.iter().any(|metric| metric == BITS) && *seq_len < LEAST_WINDOW {
            refusals.push(Refusal {
                field: "data.seq_len",
                message: format!("a window of {seq_len} tokens rarely holds a whole biography, and bits are counted over whole biographies"),
                help: format!("set seq_len to {LEAST_WINDOW} or more, or leave \"bits\" out of evaluation.metrics"),
            });
        }
        refusals
    }
}

#[cfg(test)]
mod tests {
    use super::biography::MOST_BYTES;
    use super::fields::{Template, Text};
    use super::*;
    use crate::task::Task;
    use serde_json::json;
    use support::golden::{self, StreamDigest};

    fn capo(params: serde_json::Value) -> Capo {
        Capo::new(&DEFINITION.arguments(params).unwrap()).unwrap()
    }

    #[test]
    fn biographies_equal_the_published_ones() {
        let mut tested = 0;
        for case in golden::cases("capo") {
            if !case["id"].as_str().unwrap().starts_with("bioS") {
                continue;
            }
            tested += 1;
            let mut params = case["params"].clone();
            params["N"] = json!(200);
            let people_seed = case["people_seed"].as_u64().unwrap();
            let (paired, seed) = capo(params.clone()).paired(people_seed);
            assert_eq!(seed, case["text_seed"]);
            params["people_seed"] = json!(people_seed);
            let (separate, same) = capo(params).paired(seed);
            assert_eq!(same, seed);
            for capo in [paired, separate] {
                let mut random = Random::new(seed);
                let mut digest = StreamDigest::default();
                let mut biography = Biography::default();
                for id in 0..200 {
                    capo.write(&mut random, id, &mut biography);
                    if let Some(want) = case["samples"].get(id as usize) {
                        assert_eq!(biography.bytes(), want["text"].as_str().unwrap().as_bytes());
                    }
                    digest.add(
                        biography
                            .bytes()
                            .iter()
                            .map(|&byte| u32::from(byte))
                            .collect::<Vec<_>>()
                            .into_iter(),
                    );
                }
                digest.check(&case["digest_utf8"]);
                assert_eq!(random.next_u32(), case["next_u32_after"], "{}", case["id"]);
            }
        }
        assert_eq!(tested, 10);
    }

    /// The text that a span should contain, from the person's record.
    fn expected_text(capo: &Capo, id: u32, value: Attribute) -> String {
        let person = &capo.people()[id as usize];
        match value {
            Attribute::Name => person.full_name(),
            Attribute::BirthDate => person.birthday(),
            Attribute::BirthCity => person.city().to_owned(),
            Attribute::University => person.university().to_owned(),
            Attribute::Field => person.field().to_owned(),
            Attribute::Employer => person.company().0.to_owned(),
            Attribute::Gender => if person.she { "She" } else { "He" }.to_owned(),
        }
    }

    #[test]
    fn spans_cover_the_values() {
        let mut missing = 0;
        for permute in [false, true] {
            let capo = capo(json!({"N": 5000, "permute": permute}));
            let (mut random, mut biography) = (Random::new(3), Biography::default());
            let mut longest = 0;
            for id in 0..5000 {
                capo.write(&mut random, id, &mut biography);
                longest = longest.max(biography.bytes().len());
                let spans = biography.spans();
                assert!(spans.is_sorted_by_key(|span| span.start));
                missing += Attribute::ALL.len() - spans.len();
                for span in spans {
                    let value = Attribute::ALL[span.level as usize];
                    let bytes = &biography.bytes()[span.start..span.start + span.len];
                    assert_eq!(
                        std::str::from_utf8(bytes).unwrap(),
                        expected_text(&capo, id, value)
                    );
                }
            }
            assert!(longest < 700, "{longest}");
        }
        // Where a name is part of a value, the published permuter replaces it there too.
        assert!((1..50).contains(&missing), "{missing}");
    }

    #[test]
    fn drawn_pronouns_differ_from_parity() {
        let capo = capo(json!({"N": 1000, "pronoun": "drawn"}));
        let odd = capo
            .people()
            .iter()
            .zip(0..)
            .filter(|(person, id)| person.she == (id % 2 == 1))
            .count();
        assert!((400..600).contains(&odd), "{odd}");
        let mut biography = Biography::default();
        let she = capo.people().iter().position(|person| person.she).unwrap();
        capo.write(&mut Random::new(1), she as u32, &mut biography);
        assert!(String::from_utf8_lossy(biography.bytes()).contains(" She "));
    }

    #[test]
    fn the_fast_order_equals_the_permuter() {
        let capo = capo(json!({"N": 6000, "permute": true}));
        let (mut random, mut plain) = (Random::new(9), 0);
        let (mut fast, mut slow) = (Biography::default(), Biography::default());
        for id in 0..6000 {
            let mut again = random.clone();
            capo.write(&mut random, id, &mut fast);
            let fields = Fields::get();
            let writing = Writing {
                fields,
                person: &capo.people()[id as usize],
                she: id % 2 == 1,
                templates: fields.templates.each_ref().map(|list| &list[again.index(list.len())]),
                reverse: false,
            };
            writing.write(ORDER, &mut slow);
            writing.permute(&mut again, ORDER, &mut slow);
            plain += usize::from(writing.is_plain());
            assert_eq!(
                String::from_utf8_lossy(fast.bytes()),
                String::from_utf8_lossy(slow.bytes())
            );
            assert_eq!(random.clone().next_u32(), again.next_u32());
        }
        assert!((5000..6000).contains(&plain), "{plain}");
    }

    #[test]
    fn the_longest_biography_fits() {
        let fields = Fields::get();
        let longest =
            |list: &[Text]| list.iter().map(|&text| fields.text(text).len()).max().unwrap();
        let sentences: usize = fields
            .templates
            .iter()
            .map(|list| {
                let len = |t: &Template| fields.text(t.she).len() + fields.text(t.end).len();
                list.iter().map(len).max().unwrap()
            })
            .sum();
        let values =
            [&fields.cities, &fields.universities, &fields.fields].map(|list| longest(list));
        let companies: Vec<Text> =
            fields.companies.iter().flat_map(|&(name, city)| [name, city]).collect();
        let names = [&fields.first_names, &fields.middle_names, &fields.last_names]
            .map(|list| longest(list) + 1);
        let most = sentences
            + values.iter().sum::<usize>()
            + 2 * longest(&companies)
            + names.iter().sum::<usize>()
            + longest(&fields.day_months)
            + 4;
        assert!(most + fields::PIECE <= MOST_BYTES, "{most}");
    }

    #[test]
    fn windows_hold_biographies_and_ends() {
        let task = Task::parse("capo", json!({"N": 10})).unwrap();
        let alphabet = task.alphabet();
        assert!(alphabet.is_sorted_by(|a, b| a < b) && alphabet.len() < 90);
        assert_eq!((task.separator(), task.vocab()), (Some(257), 258));
        let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
        for _ in 0..50 {
            task.sample(&mut Random::new(1), Mode::Train, &mut scratch, &mut tape);
        }
        assert!(tape.tokens.iter().all(|token| alphabet.contains(token)));
        assert_eq!(tape.answers.len(), 50 * 7);
        let name = tape.answers[7];
        assert_eq!(name.level, 0);
        assert!(char::from(tape.tokens[name.start] as u8).is_ascii_uppercase());
    }

    #[test]
    fn errors_name_the_bad_parameter() {
        let cases = [
            (json!({"N": 0}), "N is 0"),
            (json!({"N": -5}), "N is -5"),
            (json!({"N": 10_000_001}), "N is 10000001"),
            (json!({"people_seed": -1}), "`people_seed` is `-1`"),
            (json!({"permute": 1}), "`permute` is `1`, and must be"),
            (json!({"pronoun": "they"}), "`pronoun` is `they`, and must be `parity` or `drawn`"),
            (json!({"shuffle": true}), "has no parameter `shuffle`"),
        ];
        for (params, want) in cases {
            let error = Task::parse("capo", params).unwrap_err();
            assert!(error.message.contains(want), "{error}");
            assert!(!error.help.is_empty());
        }
    }
}
