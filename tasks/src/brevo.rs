//! The Brevo task: the ancestors of a vertex in a random graph, parents first. Samples are token for token those of the
//! published script.
//!
//! The paper is "Physics of Language Models: Part 4.1", appendix A. `graph` draws the graph and its answer; `check`
//! decides whether an answer is right.

pub mod check;
pub mod graph;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::TaskError;
use super::arguments::Arguments;
use super::cpython::set::TupleSet;
use super::cpython::{Random, Weights};
use super::metric::EXACT_MATCH;
use super::parameter::Default::{Is, Required};
use super::parameter::Values::{Bool, Int, Word};
use super::parameter::{Parameter, parameter};
use super::sample::{Mode, Span, Tape, verdict};
use super::task::{Definition, Generator, Judge, Scoring, Scratch, definition};
use super::words::{Writer, joined, name_space, words};
use graph::{Ask, Graph, Rounding};

/// Alphabet size and lengths of Brevo2's names.
const LETTERS: u32 = 4;
const LEAST_LEN: u32 = 2;
const MOST_LEN: u32 = 4;

/// Brevo's row.
pub static DEFINITION: Definition = Definition {
    usage: "N [multi bos query ans eos leaves=floor|ceil ask=last|last_quarter]",
    example: r#"{"N": 12}"#,
    labels: true,
    sized: true,
    written: &[EXACT_MATCH],
    ..definition::<Brevo>("brevo", 1, PARAMETERS)
};

#[rustfmt::skip]
const PARAMETERS: &[Parameter] = &[
    parameter("data.brevo.N", Int(3, 9000), Required, "Maximum number of vertices. Tests use it; training draws from 3 to N.").also(&["n_max", "n"]),
    parameter("data.brevo.multi", Bool, Is("false"), "Names of 2 to 4 tokens (Brevo2), or one token per vertex (Brevo1)."),
    parameter("data.brevo.bos", Int(1, 1 << 24), Is("9999"), "The token before each sample."),
    parameter("data.brevo.query", Int(1, 1 << 24), Is("9997"), "The token before the query."),
    parameter("data.brevo.ans", Int(1, 1 << 24), Is("9998"), "The token before the answer."),
    parameter("data.brevo.eos", Int(1, 1 << 24), Is("9998"), "The token after the answer; as published, the one before it again."),
    parameter("data.brevo.leaves", Word(&["floor", "ceil"]), Is("\"floor\""), "How the maximum number of leaves is rounded: down, as published, or up, as in the paper."),
    parameter("data.brevo.ask", Word(&["last", "last_quarter"]), Is("\"last\""), "The query vertex: the last one, as published, or one of the last quarter, as in the paper."),
];

/// A checked Brevo task.
#[derive(Clone, Debug)]
pub struct Brevo {
    size: u32,
    multi: bool,
    marks: Marks,
    leaves: Rounding,
    ask: Ask,
    sizes: Weights,
}

/// The marker tokens, which never occur in a vertex's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Begins a sample.
    pub bos: u32,
    /// Comes before the query.
    pub query: u32,
    /// Comes before the answer.
    pub answer: u32,
    /// Ends a sample.
    pub eos: u32,
}

#[derive(Default)]
struct Buffers {
    graph: Graph,
    /// Each edge as (parent, child).
    edges: Vec<(u16, u16)>,
    words: TupleSet,
    order: Vec<u32>,
    /// Whether each id is in an edge; then the word of each vertex.
    used: Vec<bool>,
    names: Vec<u32>,
}

impl Marks {
    /// The marks beside names, which are the tokens up to `names`.
    fn new(arguments: &Arguments, names: u32) -> Result<Marks, TaskError> {
        let mark = |name| {
            let reason = format!("tokens 1 to {names} are names, and no token is above 16777216");
            let (_, most) = arguments.bounds(name);
            arguments.within(name, arguments.get(name)?, (i64::from(names) + 1, most), &reason)
        };
        let marks = Marks {
            bos: mark("bos")?,
            query: mark("query")?,
            answer: mark("ans")?,
            eos: mark("eos")?,
        };
        let Marks { bos, query, answer, eos } = marks;
        if query == answer || [query, answer].contains(&bos) || eos == query {
            return Err(TaskError::new(
                format!(
                    "brevo: bos {bos}, query {query}, ans {answer} and eos {eos} must differ"
                ),
                "leave them out (9999, 9997, 9998, 9998), or give bos, query and ans three different numbers, and eos another number than query",
            )
            .about("eos"));
        }
        Ok(marks)
    }
}

impl Brevo {
    /// The marker tokens of this task's samples.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// Tokens above this one end a name; tokens up to it continue one. 0 where every token is a whole name.
    pub fn continues(&self) -> u32 {
        if self.multi { LETTERS } else { 0 }
    }

    #[inline]
    fn write(
        &self,
        graph: &Graph,
        edges: &[(u16, u16)],
        most_len: usize,
        tape: &mut Tape,
        name: impl Fn(&mut Writer, u32),
    ) {
        let Marks { bos, query, answer, eos } = self.marks;
        let Tape { tokens, labels, answers } = tape;
        let most = most_len * (2 * edges.len() + 1 + graph.answer().len()) + 4;
        let mut writer = Writer::new(tokens, most);
        writer.push(bos);
        for &(parent, child) in edges {
            name(&mut writer, u32::from(parent));
            name(&mut writer, u32::from(child));
        }
        writer.push(query);
        name(&mut writer, graph.query());
        labels.resize(writer.at, 0);
        writer.push(answer);
        let start = writer.at;
        for &vertex in graph.answer() {
            name(&mut writer, vertex);
        }
        answers.push(Span { start, len: writer.at - start, level: graph.depth() });
        writer.push(eos);
        labels.resize(writer.at, 1);
        writer.finish();
    }

    /// The ancestors of the query with their parents, then the other edges. None if the tokens are no sample.
    fn described(&self, tape: &Tape) -> Option<String> {
        let span = tape.answers.first()?;
        let query_at = tape.tokens.iter().position(|&token| token == self.marks.query)?;
        let (prompt, rest) = tape.tokens.split_at_checked(span.start)?;
        let answer = rest.get(..span.len).unwrap_or_default();
        let ends = self.names(prompt.get(1..query_at).unwrap_or_default())?;
        let query = self.names(prompt.get(query_at + 1..span.start - 1).unwrap_or_default())?;
        let order = self.names(answer)?;
        let mut parents: BTreeMap<&[u32], Vec<&[u32]>> = BTreeMap::new();
        for edge in ends.chunks_exact(2) {
            parents.entry(edge[1]).or_default().push(edge[0]);
        }
        let mut text = format!(
            "a graph of {} edges; the ancestors of {}, {} edges or more from a leaf\n",
            ends.len() / 2,
            query.iter().map(|name| joined(name)).collect::<String>(),
            span.level,
        );
        let list =
            |names: &[&[u32]]| names.iter().map(|name| joined(name)).collect::<Vec<_>>().join(" ");
        for name in &order {
            let _ = match parents.get(name) {
                Some(parents) => writeln!(text, "  {} <- {}", joined(name), list(parents)),
                None => writeln!(text, "  {}", joined(name)),
            };
        }
        let others: Vec<String> = parents
            .iter()
            .filter(|(name, _)| !order.contains(name))
            .map(|(name, parents)| format!("  {} <- {}\n", joined(name), list(parents)))
            .collect();
        if !others.is_empty() {
            let _ = write!(text, "beside them\n{}", others.concat());
        }
        let right = match self.judge(prompt, answer).strict {
            Ok(()) => verdict(true).to_owned(),
            Err(wrong) => format!("{}: {wrong}", verdict(false)),
        };
        let _ = writeln!(text, "answer {} ({right})", list(&order));
        Some(text)
    }
}

impl Generator for Brevo {
    fn new(arguments: &Arguments) -> Result<Brevo, TaskError> {
        let multi = arguments.get("multi")?;
        let size = if multi {
            let (least, most) = arguments.bounds("N");
            let space = name_space(LETTERS, LEAST_LEN, MOST_LEN) as i64;
            let reason = "a graph has 3 vertices or more, and 336 names of 2 to 4 tokens exist";
            arguments.within("N", arguments.get("N")?, (least, space.min(most)), reason)?
        } else {
            arguments.int("N", "a graph has 3 to 9000 vertices, numbered from 1")?
        };
        let marks = Marks::new(arguments, if multi { 2 * LETTERS } else { size })?;
        let (leaves, ask) = (arguments.get("leaves")?, arguments.get("ask")?);
        Ok(Brevo { size, multi, marks, leaves, ask, sizes: Weights::sizes(size) })
    }

    fn vocab(&self) -> u32 {
        let Marks { bos, query, answer, eos } = self.marks;
        1 + bos.max(query).max(answer).max(eos)
    }

    fn alphabet(&self) -> Vec<u32> {
        let Marks { bos, query, answer, eos } = self.marks;
        let names = if self.multi { 2 * LETTERS } else { self.size };
        let mut tokens: Vec<u32> = (1..=names).chain([bos, query, answer, eos]).collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    fn least_tokens(&self, mode: Mode) -> u64 {
        let size = match mode {
            Mode::Train => 3,
            Mode::Test => u64::from(self.size),
        };
        let name = if self.multi { u64::from(LEAST_LEN) } else { 1 };
        // Every vertex except a leaf has a parent, and the answer contains the query and at least one parent of it.
        let edges = size - ((size - 1).div_ceil(4) + 1);
        1 + 2 * edges * name + 1 + name + 1 + 2 * name
    }

    fn sample(&self, random: &mut Random, mode: Mode, scratch: &mut Scratch, tape: &mut Tape) {
        let Buffers { graph, edges, words: set, order, used, names } = scratch.buffers();
        let size = match mode {
            Mode::Train => random.choose(&self.sizes) as u32 + 3,
            Mode::Test => self.size,
        };
        graph.draw(random, size, self.size, self.leaves, self.ask);
        if self.multi {
            used.clear();
            used.resize(self.size as usize + 1, false);
            for vertex in 0..size {
                used[graph.id(vertex) as usize] = graph.in_an_edge(vertex);
            }
            let count = used.iter().filter(|&&used| used).count() as u32;
            words(random, set, count, LETTERS, LEAST_LEN, MOST_LEN);
            order.clear();
            set.order(order);
            // The i-th used id gets the i-th word of the set. Words are stored by id until they are stored by vertex.
            names.clear();
            names.resize(self.size as usize + 1, 0);
            let ids = used.iter().enumerate().filter_map(|(id, &used)| used.then_some(id));
            for (id, &word) in ids.zip(order.iter()) {
                names[id] = word;
            }
        }
        graph.edges(edges);
        random.shuffle(edges);
        if self.multi {
            let name = |vertex: u32| set.padded(names[graph.id(vertex) as usize]);
            self.write(graph, edges, MOST_LEN as usize, tape, |writer, vertex| {
                writer.push_padded(name(vertex))
            });
        } else {
            self.write(graph, edges, 1, tape, |writer, vertex| writer.push(graph.id(vertex)));
        }
    }

    fn scoring(&self) -> Scoring<'_> {
        Scoring::Judged(self)
    }

    fn describe(&self, tape: &Tape, _random: Option<&Random>) -> String {
        self.described(tape)
            .unwrap_or_else(|| "these tokens are not a sample of brevo\n".to_owned())
    }
}

impl Judge for Brevo {
    fn end(&self) -> u32 {
        self.marks.eos
    }

    fn is_right(&self, prompt: &[u32], answer: &[u32]) -> bool {
        self.judge(prompt, answer).strict.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Task;
    use serde_json::json;
    use support::golden::{self, StreamDigest};

    /// The task with these parameters, and its generator.
    fn both(parameters: &serde_json::Value) -> (Task, Brevo) {
        let arguments = DEFINITION.arguments(parameters).unwrap();
        (DEFINITION.task(parameters).unwrap(), Brevo::new(&arguments).unwrap())
    }

    /// The published bookkeeping: the depth at the prompt's second token and at the answer's first vertex.
    fn token_types(brevo: &Brevo, tape: &Tape) -> Vec<i32> {
        let [span] = tape.answers[..] else { panic!("one answer per sample") };
        let mut types = vec![0; tape.tokens.len()];
        types[0] = -1;
        types[1] = -2 - span.level as i32;
        let first = brevo.names(&tape.tokens[span.start..span.start + span.len]).unwrap()[0].len();
        types[span.start..span.start + first].fill(span.level.min(9) as i32 + 1);
        types
    }

    fn unpack(runs: &serde_json::Value) -> Vec<i32> {
        let run = |run: &serde_json::Value| {
            vec![run[0].as_i64().unwrap() as i32; run[1].as_u64().unwrap() as usize]
        };
        runs.as_array().unwrap().iter().flat_map(run).collect()
    }

    #[test]
    fn samples_equal_the_published_ones() {
        let cases = golden::cases("brevo");
        assert_eq!(cases.len(), 25);
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
                    let task =
                        Task::parse("brevo", json!({"N": want["N"], "multi": want["multi"]}));
                    tape.clear();
                    task.unwrap().sample(&mut random, mode, &mut scratch, &mut tape);
                    assert_eq!(tape.tokens, golden::tokens(&want["tokens"]));
                }
                assert_eq!(random.next_u32(), case["next_u32_after"]);
                continue;
            }
            let (task, brevo) = both(&case["params"]);
            let mut digests: [StreamDigest; 3] = Default::default();
            for number in 0..200 {
                tape.clear();
                task.sample(&mut random, mode, &mut scratch, &mut tape);
                let labels: Vec<i32> = tape.labels.iter().map(|&label| i32::from(label)).collect();
                let types = token_types(&brevo, &tape);
                if let Some(want) = samples.get(number) {
                    if let Some(tokens) = want.get("tokens") {
                        assert_eq!(tape.tokens, golden::tokens(tokens));
                    }
                    assert_eq!(labels, unpack(&want["labels_rle"]));
                    assert_eq!(types, unpack(&want["token_type_rle"]));
                }
                if let Some(want) = case["lens_first20"].get(number) {
                    assert_eq!(tape.tokens.len(), want.as_u64().unwrap() as usize);
                }
                check_answer(&task, &brevo, mode, &tape);
                let [tokens_digest, labels_digest, types_digest] = &mut digests;
                tokens_digest.add(tape.tokens.iter().copied());
                labels_digest.add(labels.iter().map(|&label| label as u32));
                types_digest.add(types.iter().map(|&kind| kind as u32));
            }
            for (digest, name) in digests.into_iter().zip(["tokens", "labels", "token_type"]) {
                digest.check(&case[format!("digest_{name}")]);
            }
            assert_eq!(random.next_u32(), case["next_u32_after"], "{}", case["id"]);
        }
    }

    /// Checks that a sample's answer is right and is where its span says.
    fn check_answer(task: &Task, brevo: &Brevo, mode: Mode, tape: &Tape) {
        let [span] = tape.answers[..] else { panic!("one answer per sample") };
        let (prompt, rest) = tape.tokens.split_at(span.start);
        let verdict = brevo.judge(prompt, &rest[..span.len]);
        assert!(verdict.strict.is_ok() && verdict.published, "{verdict:?}");
        assert_eq!(rest[span.len..], [brevo.marks().eos]);
        assert!(tape.tokens.len() as u64 > task.least_tokens(mode));
        assert!(tape.tokens.iter().all(|&token| token < task.vocab()));
    }

    #[test]
    fn errors_name_the_bad_parameter() {
        let cases = [
            (json!({"N": 2}), "N is 2"),
            (json!({"N": -1}), "N is -1"),
            (json!({"N": 9001}), "N is 9001"),
            (json!({"N": 337, "multi": true}), "N is 337"),
            (json!({"N": 20, "bos": 20}), "bos is 20"),
            (json!({"N": 20, "multi": true, "query": 8}), "query is 8"),
            (json!({"N": 20, "ans": 9997}), "must differ"),
            (json!({"N": 20, "eos": 9997}), "must differ"),
            (json!({"N": 20, "bos": 9998}), "must differ"),
            (json!({"N": 20, "K": 3}), "has no parameter `K`"),
            (
                json!({"N": 20, "leaves": "round"}),
                "`leaves` is `round`, and must be `floor` or `ceil`",
            ),
            (
                json!({"N": 20, "ask": "first"}),
                "`ask` is `first`, and must be `last` or `last_quarter`",
            ),
            (json!({}), "needs the parameter `N`"),
        ];
        for (params, want) in cases {
            let error = Task::parse("brevo", params).unwrap_err();
            assert!(error.message.contains(want), "{error}");
            assert!(!error.help.is_empty());
        }
        // The end token may equal bos, as the published checker expects.
        assert!(Task::parse("brevo", json!({"N": 20, "eos": 9999})).is_ok());
    }

    #[test]
    fn the_papers_variants_ask_for_more() {
        let (task, brevo) =
            both(&json!({"N": 40, "leaves": "ceil", "ask": "last_quarter", "eos": 9999}));
        let (mut random, mut scratch, mut tape) =
            (Random::new(5), Scratch::default(), Tape::default());
        let mut graph = Graph::default();
        let mut queries = std::collections::BTreeSet::new();
        for number in 0..300 {
            tape.clear();
            task.sample(
                &mut random,
                [Mode::Train, Mode::Test][number % 2],
                &mut scratch,
                &mut tape,
            );
            check_answer(&task, &brevo, Mode::Train, &tape);
            graph.draw(&mut random, 40, 40, Rounding::Ceil, Ask::LastQuarter);
            queries.insert(graph.query());
        }
        assert_eq!(queries, (30..40).collect());
    }

    #[test]
    fn the_largest_graphs_are_drawn() {
        for params in [json!({"N": 9000}), json!({"N": 336, "multi": true}), json!({"N": 3})] {
            let (task, brevo) = both(&params);
            let (mut scratch, mut tape) = (Scratch::default(), Tape::default());
            task.sample(&mut Random::new(5), Mode::Test, &mut scratch, &mut tape);
            check_answer(&task, &brevo, Mode::Test, &tape);
        }
    }
}
