//! The Depo task: which name comes k steps later on a cycle. Samples are token for token those of the published script.
//!
//! The paper is "Physics of Language Models: Part 4.1", appendix A.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::TaskError;
use super::arguments::Arguments;
use super::cpython::set::TupleSet;
use super::cpython::{Random, Weights};
use super::parameter::Default::{Is, Nothing, Required};
use super::parameter::Values::{Bool, Int};
use super::parameter::{Parameter, parameter};
use super::sample::{Mode, Span, Tape, verdict};
use super::task::{Definition, Generator, Scratch, definition};
use super::words::{Writer, joined, name_space, words};

const QUERY: u32 = 9000;
const ANSWER: u32 = 9500;
const SEPARATOR: u32 = 9700;

/// Depo's row.
pub static DEFINITION: Definition = Definition {
    usage: "N K mini_vocab min_tlen max_tlen [M QA separator bos eos]",
    example: r#"{"N": 12, "K": 2, "mini_vocab": 50, "min_tlen": 1, "max_tlen": 2}"#,
    has_qa: true,
    labels: true,
    sized: true,
    ..definition::<Depo>("depo", 1, PARAMETERS)
};

#[rustfmt::skip]
const PARAMETERS: &[Parameter] = &[
    parameter("data.depo.N", Int(3, 65_536), Required, "Maximum cycle size. Tests use it; training draws from 3 to N.").also(&["n_max", "n"]),
    parameter("data.depo.K", Int(1, 499), Required, "Maximum number of hops in a question.").also(&["hops"]),
    parameter("data.depo.mini_vocab", Int(1, 4500), Required, "Size of the name alphabet; the last letter of a name comes from a second alphabet of the same size.").also(&["V"]),
    parameter("data.depo.min_tlen", Int(1, 64), Required, "Tokens of the shortest name."),
    parameter("data.depo.max_tlen", Int(1, 64), Required, "Tokens of the longest name."),
    parameter("data.depo.M", Int(1, 65_536), Is("10"), "Questions per sample; a cycle with fewer names asks one question for each name."),
    parameter("data.depo.separator", Bool, Is("false"), "A token before each edge."),
    parameter("data.depo.bos", Int(0, 1 << 24), Is("9999"), "The token before each sample."),
    parameter("data.depo.eos", Int(0, 1 << 24), Nothing, "A token after each sample. The paper shows it; the code does not have it.").outside_recipes(),
];

/// A checked Depo task.
#[derive(Clone, Debug)]
pub struct Depo {
    size: u32,
    hops: u32,
    letters: u32,
    least_len: u32,
    most_len: u32,
    questions: u32,
    separator: bool,
    bos: u32,
    eos: Option<u32>,
    sizes: Weights,
    /// The hops that a test draws from uniformly, repeats included.
    test_hops: Vec<u32>,
}

/// A parsed sample: its edges in order, and its questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The names at both ends of each edge, first to last as written.
    pub edges: Vec<[&'a [u32]; 2]>,
    /// Questions in the order asked.
    pub questions: Vec<DepoQuestion<'a>>,
}

/// One question of a sample, with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepoQuestion<'a> {
    /// Number of edges to follow.
    pub hops: u32,
    /// Name to start from.
    pub from: &'a [u32],
    /// Name that is reached.
    pub answer: &'a [u32],
}

#[derive(Default)]
struct Buffers {
    words: TupleSet,
    names: Vec<u32>,
    picks: Vec<u32>,
}

impl Depo {
    /// Whether a name or another marker uses this token.
    fn uses(&self, mark: u32) -> bool {
        mark != 0 && (mark <= 2 * self.letters || (QUERY + 1..=QUERY + self.hops).contains(&mark))
            || [ANSWER, SEPARATOR].contains(&mark)
    }

    fn check_mark(&self, name: &str, mark: u32, help: &str) -> Result<(), TaskError> {
        let message = format!("depo: {name} is {mark}, which a name or a marker already uses");
        if self.uses(mark) { Err(TaskError::new(message, help)) } else { Ok(()) }
    }

    fn check_names(&self) -> Result<(), TaskError> {
        let Depo { size, letters, least_len, most_len, .. } = *self;
        let space = name_space(letters, least_len, most_len);
        if u64::from(size) <= space {
            return Ok(());
        }
        Err(TaskError::new(
            format!(
                "depo: N is {size}, but there are only {space} names of {least_len} to {most_len} tokens over {letters} letters"
            ),
            format!("lower N to {space}, or raise mini_vocab or max_tlen"),
        )
        .about("N"))
    }

    /// Parses a sample; None if the tokens are not one.
    pub fn parts<'a>(&self, tokens: &'a [u32]) -> Option<Parts<'a>> {
        let mut rest = tokens.strip_prefix(&[self.bos])?;
        if let Some(eos) = self.eos {
            rest = rest.strip_suffix(&[eos])?;
        }
        let marker = |token: &u32| (QUERY + 1..=QUERY + self.hops).contains(token);
        let mut parts = Parts { edges: Vec::new(), questions: Vec::new() };
        while !rest.first().is_none_or(marker) {
            if self.separator {
                rest = rest.strip_prefix(&[SEPARATOR])?;
            }
            parts.edges.push([self.take_name(&mut rest)?, self.take_name(&mut rest)?]);
        }
        while let Some((&marker, after)) = rest.split_first() {
            rest = after;
            let hops = marker.checked_sub(QUERY).filter(|hops| (1..=self.hops).contains(hops))?;
            let from = self.take_name(&mut rest)?;
            rest = rest.strip_prefix(&[ANSWER])?;
            parts.questions.push(DepoQuestion { hops, from, answer: self.take_name(&mut rest)? });
        }
        (!parts.edges.is_empty() && !parts.questions.is_empty()).then_some(parts)
    }

    /// Takes the name at the start: up to the first letter of the second alphabet.
    fn take_name<'a>(&self, rest: &mut &'a [u32]) -> Option<&'a [u32]> {
        let end = rest.iter().position(|&token| token > self.letters)?;
        let (name, after) = rest.split_at_checked(end + 1)?;
        *rest = after;
        (1..=2 * self.letters).contains(name.last()?).then_some(name)
    }

    /// Maximum number of tokens in a sample of this size.
    fn most_tokens(&self, size: u32) -> usize {
        let name = self.most_len as usize;
        let (size, questions) = (size as usize, size.min(self.questions) as usize);
        2 + size * (2 * name + usize::from(self.separator)) + questions * (2 + 2 * name)
    }
}

impl Generator for Depo {
    fn new(arguments: &Arguments) -> Result<Depo, TaskError> {
        let int = |name, reason| arguments.int(name, reason);
        let size = int("N", "a cycle has 3 to 65536 names")?;
        let hops = int("K", "questions ask for 1 to 499 hops (tokens 9001 to 9499)")?;
        let letters = int("mini_vocab", "names use tokens 1 to 2 * mini_vocab, below 9001")?;
        let least_len = int("min_tlen", "a name has 1 to 64 tokens")?;
        let most_len = int("max_tlen", "a name has min_tlen to 64 tokens")?;
        if most_len < least_len {
            let error = TaskError::new(
                format!("depo: max_tlen is {most_len}, but min_tlen is {least_len}"),
                "set max_tlen to min_tlen or more",
            );
            return Err(error.about("max_tlen"));
        }
        let questions = int("M", "a sample has 1 to 65536 questions")?;
        let small = "a token is a small non-negative number";
        let bos = int("bos", small)?;
        let mut depo = Depo {
            size,
            hops,
            letters,
            least_len,
            most_len,
            questions,
            separator: arguments.get("separator")?,
            bos,
            eos: None,
            sizes: Weights::sizes(size),
            test_hops: test_hops(hops),
        };
        depo.check_mark("bos", bos, "leave bos out: it is 9999, as published")
            .map_err(|error| error.about("bos"))?;
        depo.eos = arguments.int_if_given("eos", small)?;
        if let Some(eos) = depo.eos {
            depo.check_mark("eos", eos, "leave eos out, as published, or set it to 9998")?;
        }
        depo.check_names()?;
        Ok(depo)
    }

    fn vocab(&self) -> u32 {
        1 + self.bos.max(self.eos.unwrap_or(0)).max(if self.separator { SEPARATOR } else { ANSWER })
    }

    fn alphabet(&self) -> Vec<u32> {
        let mut tokens: Vec<u32> = (1..=2 * self.letters).collect();
        tokens.extend(QUERY + 1..=QUERY + self.hops);
        tokens.extend([ANSWER, self.bos]);
        tokens.extend(self.separator.then_some(SEPARATOR));
        tokens.extend(self.eos);
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    fn least_tokens(&self, mode: Mode) -> u64 {
        let size = match mode {
            Mode::Train => 3,
            Mode::Test => u64::from(self.size),
        };
        // Each name is in two edges, and there are `letters` to the power of `len` names of a length.
        let (mut left, mut names) = (size, 0);
        for len in self.least_len..=self.most_len {
            let taken = u64::from(self.letters).saturating_pow(len).min(left);
            left -= taken;
            names += taken * u64::from(len);
        }
        let separators = if self.separator { size } else { 0 };
        let name = u64::from(self.least_len);
        1 + 2 * names + separators + 1 + name + 1 + name
    }

    fn sample(&self, random: &mut Random, mode: Mode, scratch: &mut Scratch, tape: &mut Tape) {
        let Buffers { words: set, names, picks } = scratch.buffers();
        let Tape { tokens, labels, answers } = tape;
        let size = match mode {
            Mode::Train => random.choose(&self.sizes) as u32 + 3,
            Mode::Test => self.size,
        };
        words(random, set, size, self.letters, self.least_len, self.most_len);
        names.clear();
        set.order(names);
        random.shuffle(names);
        random.sample(size, size, picks);
        // names[j] -> names[(j + 1) mod size] is the cycle; j is at most size + hops - 1.
        let name = |j: u32| {
            let j = if j < size { j } else { j % size };
            set.padded(names[j as usize])
        };

        let mut writer = Writer::new(tokens, self.most_tokens(size));
        writer.push(self.bos);
        for &from in &*picks {
            if self.separator {
                writer.push(SEPARATOR);
            }
            writer.push_padded(name(from));
            writer.push_padded(name(from + 1));
        }
        random.sample(size, size.min(self.questions), picks);
        for &from in &*picks {
            let hops = match mode {
                Mode::Train => 1 + random.below(self.hops),
                Mode::Test => self.test_hops[random.index(self.test_hops.len())],
            };
            writer.push(QUERY + hops);
            writer.push_padded(name(from));
            labels.resize(writer.at, 0);
            writer.push(ANSWER);
            let (answer, len) = name(from + hops);
            answers.push(Span { start: writer.at, len, level: hops });
            writer.push_padded((answer, len));
            labels.resize(writer.at, 1);
        }
        if let Some(eos) = self.eos {
            writer.push(eos);
            labels.resize(writer.at, 0);
        }
        writer.finish();
    }

    fn describe(&self, tape: &Tape, _random: Option<&Random>) -> String {
        let Some(sample) = self.parts(&tape.tokens) else {
            return "these tokens are not a sample of depo\n".to_owned();
        };
        let next: BTreeMap<&[u32], &[u32]> =
            sample.edges.iter().map(|&[from, to]| (from, to)).collect();
        let mut text = format!("a cycle of {} names\n ", sample.edges.len());
        let first = sample.edges.first().map_or(&[][..], |edge| edge[0]);
        let mut name = first;
        for _ in 0..sample.edges.len() {
            let _ = write!(text, " {} ->", joined(name));
            name = next.get(name).copied().unwrap_or_default();
        }
        let _ = writeln!(text, " {}", joined(first));
        let walk = |from, hops| {
            (0..hops).fold(from, |name, _| next.get(name).copied().unwrap_or_default())
        };
        for DepoQuestion { hops, from, answer } in &sample.questions {
            let right = walk(*from, *hops) == *answer;
            let (from, answer) = (joined(from), joined(answer));
            let _ = writeln!(text, "{hops} after {from}: {answer} ({})", verdict(right));
        }
        text
    }
}

/// 1, 2, 4, ... up to K, then 24 for K = 32, then K unless it is last. So K = 32 gives 32 twice, as published.
fn test_hops(most: u32) -> Vec<u32> {
    let mut hops: Vec<u32> = (0..9).map(|power| 1 << power).filter(|&hops| hops <= most).collect();
    if most == 32 {
        hops.push(24);
    }
    if hops.last() != Some(&most) {
        hops.push(most);
    }
    hops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Task;
    use serde_json::{Value, json};
    use support::golden::{self, StreamDigest};

    fn parse(mut params: Value) -> Task {
        params.as_object_mut().unwrap().remove("QA");
        Task::parse("depo", params).unwrap()
    }

    fn labels(runs: &Value) -> Vec<u8> {
        let run =
            |run: &Value| vec![run[0].as_u64().unwrap() as u8; run[1].as_u64().unwrap() as usize];
        runs.as_array().unwrap().iter().flat_map(run).collect()
    }

    #[test]
    fn samples_equal_the_published_ones() {
        let cases = golden::cases("depo");
        assert_eq!(cases.len(), 33);
        for case in &cases {
            let mut random = Random::new(case["seed"].as_u64().unwrap());
            let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
            let mode = match case["mode"].as_str().unwrap() {
                "qa" => Mode::Test,
                _ => Mode::Train,
            };
            let samples = case["samples"].as_array().unwrap();
            if case["mode"] == "script" {
                for want in samples {
                    // The script asks for 8 hops with its first alphabet and for 16 with its second.
                    let (letters, least, most) =
                        if want["K"] == 8 { (50, 1, 2) } else { (3, 5, 7) };
                    let task = parse(json!({"N": want["N"], "K": want["K"], "mini_vocab": letters,
                        "min_tlen": least, "max_tlen": most}));
                    tape.clear();
                    task.sample(&mut random, mode, &mut scratch, &mut tape);
                    assert_eq!(tape.tokens, golden::tokens(&want["tokens"]));
                    assert_eq!(tape.labels, labels(&want["labels_rle"]));
                }
                assert_eq!(random.next_u32(), case["next_u32_after"]);
                continue;
            }
            let task = parse(case["params"].clone());
            let (mut tokens_digest, mut labels_digest) =
                (StreamDigest::default(), StreamDigest::default());
            for number in 0..200 {
                tape.clear();
                task.sample(&mut random, mode, &mut scratch, &mut tape);
                if let Some(want) = samples.get(number) {
                    assert_eq!(tape.tokens, golden::tokens(&want["tokens"]));
                    assert_eq!(tape.labels, labels(&want["labels_rle"]));
                }
                if let Some(want) = case["lens_first20"].get(number) {
                    assert_eq!(tape.tokens.len(), want.as_u64().unwrap() as usize);
                }
                check_spans(&task, &tape);
                tokens_digest.add(tape.tokens.iter().copied());
                labels_digest.add(tape.labels.iter().map(|&label| u32::from(label)));
            }
            tokens_digest.check(&case["digest_tokens"]);
            labels_digest.check(&case["digest_labels"]);
            assert_eq!(random.next_u32(), case["next_u32_after"], "{}", case["id"]);
        }
    }

    /// Checks that an answer's span is the labelled run after its marker, and its level the hops in the question.
    fn check_spans(task: &Task, tape: &Tape) {
        let mut labelled = 0;
        for span in &tape.answers {
            assert_eq!(tape.tokens[span.start - 1], ANSWER);
            assert!(
                tape.labels[span.start - 1..span.start + span.len].iter().all(|&label| label == 1)
            );
            let question = tape.tokens[..span.start]
                .iter()
                .rposition(|&token| (QUERY + 1..ANSWER).contains(&token));
            assert_eq!(tape.tokens[question.unwrap()] - QUERY, span.level);
            labelled += span.len + 1;
        }
        assert_eq!(labelled, tape.labels.iter().filter(|&&label| label == 1).count());
        assert!(tape.tokens.iter().all(|&token| token < task.vocab()));
    }

    #[test]
    fn test_hops_are_the_published_ones() {
        assert_eq!(test_hops(8), [1, 2, 4, 8]);
        assert_eq!(test_hops(6), [1, 2, 4, 6]);
        assert_eq!(test_hops(32), [1, 2, 4, 8, 16, 32, 24, 32]);
        assert_eq!(test_hops(1), [1]);
        assert_eq!(test_hops(499), [1, 2, 4, 8, 16, 32, 64, 128, 256, 499]);
    }

    #[test]
    fn errors_name_the_bad_parameter() {
        let good = json!({"N": 12, "K": 2, "mini_vocab": 50, "min_tlen": 1, "max_tlen": 2});
        let cases = [
            ("N", json!(2), "N is 2"),
            ("N", json!(2551), "only 2550 names of 1 to 2 tokens over 50 letters"),
            ("K", json!(0), "K is 0"),
            ("K", json!(500), "K is 500"),
            ("mini_vocab", json!(0), "mini_vocab is 0"),
            ("mini_vocab", json!(4501), "mini_vocab is 4501"),
            ("min_tlen", json!(0), "min_tlen is 0"),
            ("min_tlen", json!(3), "max_tlen is 2"),
            ("max_tlen", json!(i64::MAX), "max_tlen is 9223372036854775807"),
            ("M", json!(0), "M is 0"),
            ("M", json!(-1), "M is -1"),
            ("bos", json!(100), "bos is 100"),
            ("bos", json!(9002), "bos is 9002"),
            ("bos", json!(9500), "bos is 9500"),
            ("eos", json!(9500), "eos is 9500"),
            ("eos", json!(-1), "eos is -1"),
            ("QA", json!(true), "has no parameter `QA`"),
        ];
        for (name, value, want) in cases {
            let mut params = good.clone();
            params[name] = value;
            let error = Task::parse("depo", params).unwrap_err();
            assert!(error.message.contains(want), "{error}");
            assert!(!error.help.is_empty());
        }
    }

    #[test]
    fn all_possible_names_can_be_used() {
        let task = parse(json!({"N": 6, "K": 3, "mini_vocab": 2, "min_tlen": 1, "max_tlen": 2}));
        let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
        task.sample(&mut Random::new(5), Mode::Test, &mut scratch, &mut tape);
        assert_eq!(tape.answers.len(), 6);
        assert!(tape.answers[0].start as u64 + 1 >= task.least_tokens(Mode::Test));
    }

    #[test]
    fn the_papers_end_follows_the_published_sample() {
        let mut params = json!({"N": 6, "K": 3, "mini_vocab": 2, "min_tlen": 1, "max_tlen": 2});
        let mut samples = [json!(null), json!(9999), json!(9998)].map(|eos| {
            params["eos"] = eos;
            let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
            let task = parse(params.clone());
            task.sample(&mut Random::new(5), Mode::Train, &mut scratch, &mut tape);
            assert!(tape.tokens.iter().all(|token| task.alphabet().contains(token)));
            assert_eq!(tape.tokens.len(), tape.labels.len());
            tape
        });
        let [published, same, other] = &mut samples;
        for (tape, eos) in [(same, 9999), (other, 9998)] {
            assert_eq!((tape.tokens.pop(), tape.labels.pop()), (Some(eos), Some(0)));
            assert_eq!((&tape.tokens, &tape.labels), (&published.tokens, &published.labels));
        }
    }
}
