//! The Mano task: modular arithmetic in prefix notation. Samples are token for token those of the published script, and
//! take all its draws, also those that it throws away.
//!
//! The paper is "Physics of Language Models: Part 4.1", appendix A.

use super::TaskError;
use super::arguments::Arguments;
use super::cpython::Random;
use super::parameter::Default::{Is, Required, SameAs, UpTo};
use super::parameter::Values::{Bool, Int, Ints, Letters};
use super::parameter::{Parameter, parameter};
use super::sample::{Mode, Span, Tape, verdict};
use super::task::{Definition, Generator, Scratch, definition};

const VALUE: u32 = 5000;
/// Number of tokens in a sample of 499 operations.
const LONGEST: usize = 2 * 499 + 5;
/// With division, the maximum ratio of operations to the modulus. Expressions fail most often when every operation is a
/// division: one of l divisions has a value with probability (1 - 1/p)^l, which at l = 4p is at least 1/256.
const DIVISIBLE: u32 = 4;

/// Mano's row.
pub static DEFINITION: Definition = Definition {
    usage: "L [ttype value_mod knowledge_augment lens qids bos]",
    example: r#"{"L": 4}"#,
    sized: true,
    ..definition::<Mano>("mano", 1, PARAMETERS)
};

#[rustfmt::skip]
const PARAMETERS: &[Parameter] = &[
    parameter("data.mano.L", Int(1, 499), Required, "Maximum number of operations. Tests use it; training draws from `lens`."),
    parameter("data.mano.ttype", Letters("asmd"), Is("\"asm\""), "The operations: addition, subtraction, multiplication, division. Division needs a prime modulus, and no published data has it."),
    parameter("data.mano.value_mod", Int(2, 4900), Is("23"), "The modulus."),
    parameter("data.mano.knowledge_augment", Bool, Is("true"), "Two tokens for each marker and operation, chosen at random."),
    parameter("data.mano.lens", Ints(1, 499), UpTo("data.mano.L"), "Operation counts in training."),
    parameter("data.mano.qids", Ints(1, 499), SameAs("data.mano.lens"), "The number in the length token for each of `lens`."),
    parameter("data.mano.bos", Int(9901, 1 << 24), Is("9999"), "The token before each sample."),
];

/// A checked Mano task.
#[derive(Clone, Debug)]
pub struct Mano {
    operations: Vec<Operation>,
    modulus: u32,
    augment: bool,
    bos: u32,
    lengths: Vec<Length>,
    test_length: Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Length {
    operations: u32,
    id: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operation {
    /// The first of its two tokens. The second is this plus 4.
    fn token(self) -> u32 {
        match self {
            Operation::Add => 1,
            Operation::Subtract => 2,
            Operation::Multiply => 3,
            Operation::Divide => 4,
        }
    }

    /// The result; None for a division by zero.
    fn apply(self, left: u32, right: u32, modulus: u32) -> Option<u32> {
        // Both are below the modulus, which is below 5000, so nothing overflows.
        match self {
            Operation::Add => Some((left + right) % modulus),
            Operation::Subtract => Some((left + modulus - right) % modulus),
            Operation::Multiply => Some((left * right) % modulus),
            Operation::Divide => (right != 0).then(|| left * inverse(right, modulus) % modulus),
        }
    }
}

/// The inverse by Fermat: `number` to the power of the prime modulus less two.
fn inverse(number: u32, modulus: u32) -> u32 {
    let (mut power, mut square, mut left) = (1, number, modulus - 2);
    while left > 0 {
        if left % 2 == 1 {
            power = power * square % modulus;
        }
        square = square * square % modulus;
        left /= 2;
    }
    power
}

impl Mano {
    /// A sample's expression in infix notation, its value, and the value that the sample gives. None for other tokens.
    pub fn parts(&self, tokens: &[u32]) -> Option<(String, u32, u32)> {
        if tokens.len() > LONGEST {
            return None;
        }
        let (&last, rest) = tokens.split_last()?;
        let (_marker, rest) = rest.split_last()?;
        let mut rest = rest.get(2..)?;
        let mut text = String::new();
        let value = self.read(&mut rest, &mut text)?;
        let claimed = last.checked_sub(VALUE).filter(|&claimed| claimed < self.modulus)?;
        rest.is_empty().then_some((text, value, claimed))
    }

    /// Reads one expression, at most as deep as the longest sample.
    fn read(&self, rest: &mut &[u32], text: &mut String) -> Option<u32> {
        let (&token, after) = rest.split_first()?;
        *rest = after;
        if let Some(value) = token.checked_sub(VALUE).filter(|&value| value < self.modulus) {
            text.push_str(&value.to_string());
            return Some(value);
        }
        let operation = self.operations.iter().find(|operation| {
            token == operation.token() || self.augment && token == operation.token() + 4
        })?;
        let sign = match operation {
            Operation::Add => " + ",
            Operation::Subtract => " - ",
            Operation::Multiply => " * ",
            Operation::Divide => " / ",
        };
        text.push('(');
        let left = self.read(rest, text)?;
        text.push_str(sign);
        let right = self.read(rest, text)?;
        text.push(')');
        operation.apply(left, right, self.modulus)
    }

    /// Writes an expression with that many operations in prefix form and returns its value. Everything is drawn even
    /// where a part has no value.
    fn expression(
        &self,
        random: &mut Random,
        operations: u32,
        tokens: &mut Vec<u32>,
    ) -> Option<u32> {
        if operations == 0 {
            let value = random.below(self.modulus);
            tokens.push(VALUE + value);
            return Some(value);
        }
        let operation = self.operations[random.index(self.operations.len())];
        let left_operations = random.below(operations);
        let at = tokens.len();
        tokens.push(operation.token());
        let left = self.expression(random, left_operations, tokens);
        let right = self.expression(random, operations - 1 - left_operations, tokens);
        // Which of its two tokens to use is drawn after both sides. The second one is first in the published list.
        let second = if self.augment { random.below(2) == 0 } else { random.below(1) != 0 };
        tokens[at] += if second { 4 } else { 0 };
        operation.apply(left?, right?, self.modulus)
    }
}

impl Generator for Mano {
    fn new(arguments: &Arguments) -> Result<Mano, TaskError> {
        let most = arguments.int("L", LENGTHS)?;
        let modulus =
            arguments.int("value_mod", "values are 0 to value_mod - 1, tokens 5000 and up")?;
        let bos = arguments.int("bos", "tokens up to 9900 may be values")?;
        let lengths = lengths(arguments, most)?;
        let letters: String = arguments.get("ttype")?;
        let operations = operations(&letters)?;
        if operations.contains(&Operation::Divide) {
            divides(&letters, modulus, most)?;
        }
        Ok(Mano {
            operations,
            modulus,
            augment: arguments.get("knowledge_augment")?,
            bos,
            lengths,
            test_length: Length { operations: most, id: most },
        })
    }

    fn vocab(&self) -> u32 {
        self.bos + 1
    }

    fn alphabet(&self) -> Vec<u32> {
        let variants = u32::from(self.augment);
        let mut tokens: Vec<u32> = (VALUE..VALUE + self.modulus).collect();
        tokens.extend(self.bos - variants..=self.bos);
        for operation in &self.operations {
            tokens.push(operation.token());
            tokens.extend(self.augment.then_some(operation.token() + 4));
        }
        for length in self.lengths.iter().chain([&self.test_length]) {
            for first in [10 * length.id, 10 * length.id + 4] {
                tokens.extend(first..=first + variants);
            }
        }
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    fn least_tokens(&self, mode: Mode) -> u64 {
        let operations = match mode {
            Mode::Train => self.lengths.iter().map(|length| length.operations).min().unwrap_or(0),
            Mode::Test => self.test_length.operations,
        };
        2 * u64::from(operations) + 5
    }

    fn sample(&self, random: &mut Random, mode: Mode, _scratch: &mut Scratch, tape: &mut Tape) {
        let Length { operations, id } = match mode {
            Mode::Train => self.lengths[random.index(self.lengths.len())],
            Mode::Test => {
                random.below(1);
                self.test_length
            }
        };
        let start = tape.tokens.len();
        // Repeat until the expression has a value. Without division the first one does.
        let value = loop {
            // The script draws values for a flat form of the expression and never uses them.
            for _ in 0..=operations {
                random.below(self.modulus);
            }
            // Bos and length come first on the tape but are drawn last.
            tape.tokens.extend([self.bos, 10 * id]);
            match self.expression(random, operations, &mut tape.tokens) {
                Some(value) => break value,
                None => tape.tokens.truncate(start),
            }
        };
        let mut variant = || if self.augment { random.below(2) } else { 0 };
        if let Some([bos, length, ..]) = tape.tokens.get_mut(start..) {
            *bos -= variant();
            *length += variant();
        }
        tape.tokens.push(10 * id + 4 + variant());
        tape.answers.push(Span { start: tape.tokens.len(), len: 1, level: operations });
        tape.tokens.push(VALUE + value);
    }

    fn describe(&self, tape: &Tape, _random: Option<&Random>) -> String {
        match self.parts(&tape.tokens) {
            Some((written, value, claimed)) => {
                let right = verdict(value == claimed);
                format!("{written} = {claimed} modulo {} ({right})\n", self.modulus)
            }
            None => "these tokens are not a sample of mano\n".to_owned(),
        }
    }
}

const LENGTHS: &str = "length tokens allow 1 to 499 operations";

/// The lengths in training, with at most `most` operations. Each is drawn equally often, and its number identifies it.
fn lengths(arguments: &Arguments, most: u32) -> Result<Vec<Length>, TaskError> {
    let lens: Vec<i64> = arguments.get("lens")?;
    let qids: Vec<i64> = arguments.get("qids")?;
    if lens.is_empty() || lens.len() != qids.len() {
        return Err(TaskError::new(
            format!("mano: lens has {} entries and qids {}", lens.len(), qids.len()),
            "give lens at least one length and qids one number for each, or leave both out",
        )
        .about("qids"));
    }
    for (name, list) in [("lens", &lens), ("qids", &qids)] {
        let is_again = |(at, n): &(usize, &i64)| list.iter().take(*at).any(|other| other == *n);
        if let Some((_, again)) = list.iter().enumerate().find(is_again) {
            return Err(TaskError::new(
                format!("mano: {name} lists {again} twice"),
                format!("list each value of {name} once"),
            )
            .about(name));
        }
    }
    let length = |name, value| arguments.within(name, value, arguments.bounds(name), LENGTHS);
    let lengths: Vec<Length> = lens
        .iter()
        .zip(&qids)
        .map(|(&len, &id)| Ok(Length { operations: length("lens", len)?, id: length("qids", id)? }))
        .collect::<Result<_, TaskError>>()?;
    match lengths.iter().find(|length| length.operations > most) {
        Some(long) => Err(TaskError::new(
            format!(
                "mano: lens has {}, but L, the maximum number of operations, is {most}",
                long.operations
            ),
            format!("set L to {} or more, or leave {0} out of lens", long.operations),
        )
        .about("lens")),
        None => Ok(lengths),
    }
}

/// Refuses division without unique results, and settings where almost every expression divides by zero.
fn divides(letters: &str, modulus: u32, most: u32) -> Result<(), TaskError> {
    if let Some(factor) = (2..modulus).find(|factor| modulus.is_multiple_of(*factor)) {
        return Err(TaskError::new(
            format!(
                "mano: ttype `{letters}` divides, but value_mod is {modulus}, a multiple of {factor}, and {factor} has no inverse modulo {modulus}"
            ),
            "set value_mod to a prime, such as 23, or leave `d` out of ttype",
        )
        .about("value_mod"));
    }
    let bound = DIVISIBLE * modulus;
    if most > bound {
        return Err(TaskError::new(
            format!(
                "mano: L is {most}, but with division modulo {modulus} hardly any expression of more than {bound} operations has a value"
            ),
            format!("set L to {bound} or less, raise value_mod, or leave `d` out of ttype"),
        )
        .about("L"));
    }
    Ok(())
}

fn operations(letters: &str) -> Result<Vec<Operation>, TaskError> {
    let wrong = |message: String| {
        TaskError::new(message, "set ttype to letters of `asmd`, each at most once")
    };
    let mut operations = Vec::new();
    for letter in letters.chars() {
        let operation = match letter {
            'a' => Operation::Add,
            's' => Operation::Subtract,
            'm' => Operation::Multiply,
            'd' => Operation::Divide,
            _ => {
                return Err(wrong(format!(
                    "mano: ttype `{letters}` has a letter `{letter}`, which is not an operation"
                )));
            }
        };
        if operations.contains(&operation) {
            return Err(wrong(format!("mano: ttype `{letters}` has `{letter}` twice")));
        }
        operations.push(operation);
    }
    if operations.is_empty() {
        return Err(wrong("mano: ttype is empty".to_owned()));
    }
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Task;
    use serde_json::{Value, json};
    use support::golden::{self, StreamDigest};

    #[test]
    fn samples_equal_the_published_ones() {
        let cases = golden::cases("mano");
        assert_eq!(cases.len(), 14);
        for case in &cases {
            let mode = match case["mode"].as_str().unwrap() {
                "qa" => Mode::Test,
                _ => Mode::Train,
            };
            let samples = case["samples"].as_array().unwrap();
            let count = if case["mode"] == "script" { samples.len() } else { 200 };
            let (mut without_lists, mut with_lists) =
                (case["params"].clone(), case["params"].clone());
            if mode == Mode::Test {
                // The published test call passes one length; here the mode sets it.
                with_lists["lens"] = Value::Null;
                with_lists["qids"] = Value::Null;
            }
            without_lists["lens"] = Value::Null;
            without_lists["qids"] = Value::Null;
            for params in [with_lists, without_lists] {
                let task = Task::parse("mano", params).unwrap();
                let mut random = Random::new(case["seed"].as_u64().unwrap());
                let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
                let mut digest = StreamDigest::default();
                for number in 0..count {
                    tape.clear();
                    task.sample(&mut random, mode, &mut scratch, &mut tape);
                    if let Some(want) = samples.get(number) {
                        assert_eq!(tape.tokens, golden::tokens(&want["tokens"]));
                    }
                    if let Some(want) = case["lens_first20"].get(number) {
                        assert_eq!(tape.tokens.len(), want.as_u64().unwrap() as usize);
                    }
                    check_span(&task, mode, &tape);
                    digest.add(tape.tokens.iter().copied());
                }
                if let Some(want) = case.get("digest_tokens") {
                    digest.check(want);
                }
                assert_eq!(random.next_u32(), case["next_u32_after"], "{}", case["id"]);
            }
        }
    }

    fn check_span(task: &Task, mode: Mode, tape: &Tape) {
        let [span] = tape.answers[..] else { panic!("one answer per sample") };
        assert_eq!((span.start + 1, span.len), (tape.tokens.len(), 1));
        assert_eq!(tape.tokens.len(), 2 * span.level as usize + 5);
        assert!(tape.tokens.len() as u64 >= task.least_tokens(mode));
        assert!(tape.labels.is_empty() && tape.tokens.iter().all(|&token| token < task.vocab()));
    }

    #[test]
    fn errors_name_the_bad_parameter() {
        let cases = [
            ("L", json!(0), "L is 0"),
            ("L", json!(500), "L is 500"),
            ("value_mod", json!(1), "value_mod is 1"),
            ("value_mod", json!(-23), "value_mod is -23"),
            ("value_mod", json!(4901), "value_mod is 4901"),
            ("lens", json!([]), "lens has 0 entries and qids 0"),
            ("qids", json!([1]), "lens has 4 entries and qids 1"),
            ("lens", json!([0]), "lens is 0"),
            ("qids", json!([1, 2, 3, 0]), "qids is 0"),
            ("ttype", json!(""), "ttype is empty"),
            ("lens", json!([1, 7]), "lens has 7, but L, the maximum number of operations, is 4"),
            ("ttype", json!("aas"), "`a` twice"),
            ("ttype", json!("+"), "`+`"),
            ("bos", json!(9900), "bos is 9900"),
        ];
        for (name, value, want) in cases {
            let mut params = json!({"L": 4});
            params[name] = value;
            let error = Task::parse("mano", params).unwrap_err();
            assert!(error.message.contains(want), "{error}");
        }
    }

    #[test]
    fn divisions_equal_a_re_implementations() {
        let cases = golden::cases("mano_division");
        assert_eq!(cases.len(), 6);
        for case in &cases {
            let mode = if case["mode"] == "qa" { Mode::Test } else { Mode::Train };
            let task = Task::parse("mano", case["params"].clone()).unwrap();
            let mano = Mano::new(&DEFINITION.arguments(&case["params"]).unwrap()).unwrap();
            let mut random = Random::new(case["seed"].as_u64().unwrap());
            let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
            let mut digest = StreamDigest::default();
            for number in 0..200 {
                tape.clear();
                task.sample(&mut random, mode, &mut scratch, &mut tape);
                if let Some(want) = case["samples"].get(number) {
                    assert_eq!(tape.tokens, golden::tokens(want), "{}", case["id"]);
                }
                check_span(&task, mode, &tape);
                let (_, value, stated) = mano.parts(&tape.tokens).unwrap();
                assert_eq!(value, stated);
                digest.add(tape.tokens.iter().copied());
            }
            digest.check(&case["digest_tokens"]);
            assert_eq!(random.next_u32(), case["next_u32_after"], "{}", case["id"]);
        }
    }

    #[test]
    fn division_undoes_multiplication() {
        for modulus in [2, 3, 5, 7, 23, 101] {
            for (left, right) in (0..modulus).flat_map(|a| (0..modulus).map(move |b| (a, b))) {
                let divided = Operation::Divide.apply(left, right, modulus);
                let searched = (right != 0)
                    .then(|| (0..modulus).find(|value| value * right % modulus == left).unwrap());
                assert_eq!(divided, searched, "{left} / {right} modulo {modulus}");
            }
        }
        let largest = 4889;
        for right in 1..largest {
            let one = Operation::Divide.apply(right, right, largest);
            assert_eq!(one, Some(1), "{right} / {right}");
        }
    }

    #[test]
    fn division_is_refused_if_it_never_or_rarely_has_a_result() {
        let parsed = |params: Value| Task::parse("mano", params).map_err(|error| error.to_string());
        for (modulus, factor) in [(24, 2), (25, 5), (4, 2), (4897, 59)] {
            let error = parsed(json!({"L": 2, "ttype": "d", "value_mod": modulus})).unwrap_err();
            let want = format!("value_mod is {modulus}, a multiple of {factor}, ");
            assert!(error.contains(&want), "{error}");
            assert!(parsed(json!({"L": 2, "value_mod": modulus})).is_ok());
        }
        for modulus in [2, 3, 23, 4889] {
            let most = (4 * modulus).min(499);
            let params = json!({"L": most, "ttype": "d", "value_mod": modulus});
            let task = parsed(params.clone()).unwrap();
            // The longest expression gets a value after a few attempts.
            let (mut random, mut tape) = (Random::new(1), Tape::default());
            for _ in 0..10 {
                task.sample(&mut random, Mode::Test, &mut Scratch::default(), &mut tape);
            }
            assert_eq!(tape.tokens.len(), 10 * (2 * most + 5));
            let mut longer = params;
            longer["L"] = json!(most + 1);
            if most < 499 {
                let error = parsed(longer).unwrap_err();
                assert!(
                    error.contains(&format!("L is {}, but with division", most + 1)),
                    "{error}"
                );
            }
        }
    }
}
