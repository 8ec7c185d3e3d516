//! The parity task: random bits, and whether an odd number of them is set. It has no published script; its samples are
//! those of `tests/golden/playground/parity.py`.

use super::TaskError;
use super::arguments::Arguments;
use super::cpython::Random;
use super::parameter::Default::Is;
use super::parameter::Values::Int;
use super::parameter::{Parameter, parameter};
use super::sample::{Mode, Span, Tape, verdict};
use super::task::{Definition, Generator, Scratch, definition};

/// The token of a bit, or of a parity, is this plus its value.
const BIT: u32 = 1;
const ANSWER: u32 = 3;
const BOS: u32 = 4;

/// Parity's row.
pub static DEFINITION: Definition = Definition {
    usage: "[N]",
    example: r#"{"N": 6}"#,
    sized: true,
    ..definition::<Parity>("parity", 1, PARAMETERS)
};

#[rustfmt::skip]
const PARAMETERS: &[Parameter] = &[
    parameter("data.parity.N", Int(1, 4096), Is("16"), "Maximum number of bits. Tests use it; training draws from 1 to N.").also(&["n_max", "n"]),
];

/// A checked parity task.
#[derive(Clone, Debug)]
pub struct Parity {
    most: u32,
}

/// The bits of a sample, and the parity that it gives; None for other tokens.
fn parts(tokens: &[u32]) -> Option<(Vec<u32>, u32)> {
    let [BOS, bits @ .., ANSWER, claimed] = tokens else { return None };
    let bit = |token: &u32| token.checked_sub(BIT).filter(|bit| *bit < 2);
    Some((bits.iter().map(bit).collect::<Option<_>>()?, bit(claimed)?))
}

impl Generator for Parity {
    fn new(arguments: &Arguments) -> Result<Parity, TaskError> {
        Ok(Parity { most: arguments.int("N", "a prompt has 1 to 4096 bits")? })
    }

    fn vocab(&self) -> u32 {
        BOS + 1
    }

    fn alphabet(&self) -> Vec<u32> {
        vec![BIT, BIT + 1, ANSWER, BOS]
    }

    fn least_tokens(&self, mode: Mode) -> u64 {
        let bits = match mode {
            Mode::Train => 1,
            Mode::Test => self.most,
        };
        u64::from(bits) + 3
    }

    fn sample(&self, random: &mut Random, mode: Mode, _scratch: &mut Scratch, tape: &mut Tape) {
        let size = match mode {
            Mode::Train => 1 + random.below(self.most),
            Mode::Test => self.most,
        };
        tape.tokens.push(BOS);
        let mut parity = 0;
        for _ in 0..size {
            let bit = random.below(2);
            parity ^= bit;
            tape.tokens.push(BIT + bit);
        }
        tape.tokens.push(ANSWER);
        tape.answers.push(Span { start: tape.tokens.len(), len: 1, level: size });
        tape.tokens.push(BIT + parity);
    }

    fn describe(&self, tape: &Tape, _random: Option<&Random>) -> String {
        match parts(&tape.tokens) {
            Some((bits, claimed)) => {
                let written: String = bits.iter().map(u32::to_string).collect();
                let right = verdict(bits.iter().sum::<u32>() % 2 == claimed);
                format!("parity of {written} = {claimed} ({right})\n")
            }
            None => "these tokens are not a sample of parity\n".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Task;
    use serde_json::json;
    use support::golden::{self, StreamDigest};

    #[test]
    fn samples_equal_a_re_implementations() {
        let cases = golden::cases("parity");
        assert_eq!(cases.len(), 5);
        for case in &cases {
            let mode = if case["mode"] == "qa" { Mode::Test } else { Mode::Train };
            let task = Task::parse("parity", case["params"].clone()).unwrap();
            let mut random = Random::new(case["seed"].as_u64().unwrap());
            let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
            let mut digest = StreamDigest::default();
            for number in 0..200 {
                tape.clear();
                task.sample(&mut random, mode, &mut scratch, &mut tape);
                if let Some(want) = case["samples"].get(number) {
                    assert_eq!(tape.tokens, golden::tokens(want), "{}", case["id"]);
                }
                let [span] = tape.answers[..] else { panic!("one answer per sample") };
                assert_eq!((span.start + 1, span.len), (tape.tokens.len(), 1));
                assert_eq!(tape.tokens.len(), span.level as usize + 3);
                assert!(task.describe(&tape, None).ends_with("(right)\n"));
                digest.add(tape.tokens.iter().copied());
            }
            digest.check(&case["digest_tokens"]);
            assert_eq!(random.next_u32(), case["next_u32_after"], "{}", case["id"]);
        }
    }

    #[test]
    fn errors_name_the_bad_parameter() {
        for bits in [0, 4097] {
            let error = Task::parse("parity", json!({"N": bits})).unwrap_err();
            let message = format!("parity: N is {bits}, but a prompt has 1 to 4096 bits");
            assert_eq!((error.message, error.parameter), (message, Some("N")));
        }
    }
}
