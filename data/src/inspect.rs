//! In: a sample. Out: a description for a person: the cycle, the graph, the expression and its value, the biography's
//! values, the tree, or the path to the year. Must stay true: the description uses only the sample; answers are
//! computed again, and a mismatch is reported.

mod lano;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::stream::Stream;
use super::write::text_of;
use tasks::brevo::Brevo;
use tasks::capo::Value;
use tasks::depo::Depo;
use tasks::lano::tree::Tree;
use tasks::mano::Mano;
use tasks::sample::Tape;
use tasks::task::Task;

/// The next sample of `stream`, described.
pub fn inspect(stream: &mut Stream) -> String {
    let number = stream.number();
    let tree = stream.next_tree();
    let tape = stream.sample().clone();
    let task = stream.task();
    format!(
        "{} sample {number}: {}\n{}",
        task.name(),
        dsl::counted(tape.tokens.len(), "token"),
        describe(task, &tape, tree.as_ref())
    )
}

/// Describes a sample. A sentence's tree is `tree`, or else its first parse.
pub fn describe(task: &Task, tape: &Tape, tree: Option<&Tree>) -> String {
    match task {
        Task::Depo(depo) => cycle(depo, tape),
        Task::Brevo(brevo) => graph(brevo, tape),
        Task::Capo(_) => biography(tape),
        Task::Mano(mano) => expression(mano, tape),
        Task::Lano(lano) => lano::sentence(lano.grammar(), &tape.tokens, tree),
        Task::Multihop(_) => hops(tape),
    }
}

/// The tokens of a name, joined.
fn joined(name: &[u32]) -> String {
    name.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

fn verdict(right: bool) -> &'static str {
    if right { "right" } else { "WRONG" }
}

fn cycle(depo: &Depo, tape: &Tape) -> String {
    let Some(sample) = depo.parts(&tape.tokens) else {
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
    let walk =
        |from, hops| (0..hops).fold(from, |name, _| next.get(name).copied().unwrap_or_default());
    for question in &sample.questions {
        let right = walk(question.from, question.hops) == question.answer;
        let _ = writeln!(
            text,
            "{} after {}: {} ({})",
            question.hops,
            joined(question.from),
            joined(question.answer),
            verdict(right),
        );
    }
    text
}

fn graph(brevo: &Brevo, tape: &Tape) -> String {
    let marks = brevo.marks();
    let (Some(span), Some(query_at)) =
        (tape.answers.first(), tape.tokens.iter().position(|&token| token == marks.query))
    else {
        return "these tokens are not a sample of brevo\n".to_owned();
    };
    let (prompt, rest) = tape.tokens.split_at(span.start);
    let answer = rest.get(..span.len).unwrap_or_default();
    let parts = (
        brevo.names(prompt.get(1..query_at).unwrap_or_default()),
        brevo.names(prompt.get(query_at + 1..span.start - 1).unwrap_or_default()),
        brevo.names(answer),
    );
    let (Some(ends), Some(query), Some(order)) = parts else {
        return "these tokens are not a sample of brevo\n".to_owned();
    };
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
        match parents.get(name) {
            Some(parents) => {
                let _ = writeln!(text, "  {} <- {}", joined(name), list(parents));
            }
            None => {
                let _ = writeln!(text, "  {}", joined(name));
            }
        }
    }
    let rest: Vec<String> = parents
        .iter()
        .filter(|(name, _)| !order.contains(name))
        .map(|(name, parents)| format!("  {} <- {}\n", joined(name), list(parents)))
        .collect();
    if !rest.is_empty() {
        let _ = write!(text, "beside them\n{}", rest.concat());
    }
    let right = match brevo.judge(prompt, answer).strict {
        Ok(()) => verdict(true).to_owned(),
        Err(wrong) => format!("{}: {wrong}", verdict(false)),
    };
    let _ = writeln!(text, "answer {} ({right})", list(&order));
    text
}

fn expression(mano: &Mano, tape: &Tape) -> String {
    match mano.parts(&tape.tokens) {
        Some((written, value, said)) => {
            format!("{written} = {said} modulo {} ({})\n", mano.modulus(), verdict(value == said),)
        }
        None => "these tokens are not a sample of mano\n".to_owned(),
    }
}

fn biography(tape: &Tape) -> String {
    let (text, _) = text_of(tape, false);
    let mut lines = format!("{}\n", text.trim_start());
    for (value, name) in Value::ALL.into_iter().zip([
        "name",
        "birth date",
        "birth city",
        "university",
        "field",
        "employer",
        "pronoun",
    ]) {
        for span in tape.answers.iter().filter(|span| span.level == value.level()) {
            let said = text.get(span.start..span.start + span.len).unwrap_or("?");
            let _ = writeln!(lines, "  {name:<11} {said}");
        }
    }
    lines
}

/// The path from the person in the question to the one with a stated year.
fn hops(tape: &Tape) -> String {
    let (text, answer) = text_of(tape, true);
    let answer = answer.unwrap_or_default();
    let mut lines = format!("{text}{answer}\n");
    let sentence = |start: &str| {
        let (_, rest) = text.split_once(start)?;
        rest.split_once('.').map(|(said, _)| said.to_owned())
    };
    let asked = text.rsplit_once("Answer me: ").and_then(|(_, rest)| rest.split_once(" was born"));
    let Some((asked, _)) = asked else { return lines };
    let mut person = asked.to_owned();
    // A path has at most as many steps as people, so this ends even if people refer to each other in a circle.
    for _ in 0..=text.matches(" was born in the same year as ").count() {
        if let Some(other) = sentence(&format!("{person} was born in the same year as ")) {
            let _ = writeln!(lines, "  {person}, as {other}");
            person = other;
            continue;
        }
        let year = sentence(&format!("{person} was born in the year of ")).unwrap_or_default();
        let _ = writeln!(lines, "  {person}: {year} ({})", verdict(year == answer));
        break;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Order;
    use serde_json::json;
    use tasks::sample::Mode;

    fn stream(name: &str, params: serde_json::Value) -> Stream {
        Stream::new(Task::parse(name, params).unwrap(), Order::Published, Mode::Train, 42)
    }

    #[test]
    fn every_task_is_described() {
        let depo = json!({"N": 6, "K": 3, "mini_vocab": 5, "min_tlen": 1, "max_tlen": 2, "M": 2, "separator": true,
            "eos": 9998});
        let background = json!(["It rains.", "It snows.", "Birds sing."]);
        let cases = [
            ("depo", depo),
            ("brevo", json!({"N": 8})),
            ("brevo", json!({"N": 8, "multi": true})),
            ("mano", json!({"L": 4})),
            ("mano", json!({"L": 4, "knowledge_augment": false})),
            ("capo", json!({"N": 3, "permute": true})),
            ("multihop", json!({"N": 3, "k": 3, "M": 20, "background": background})),
            ("lano", json!({"config": "cfg3b"})),
        ];
        for (name, params) in cases {
            let mut stream = stream(name, params);
            for number in 0..40 {
                let text = inspect(&mut stream);
                assert!(text.starts_with(&format!("{name} sample {number}: ")), "{text}");
                assert!(
                    !text.contains("WRONG")
                        && !text.contains("are not a sample")
                        && !text.contains('?'),
                    "{text}"
                );
                assert!(text.lines().count() > 1 && text.ends_with('\n'), "{text}");
                if !["capo", "lano"].contains(&name) {
                    assert!(text.contains("(right)"), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_changed_answer_is_noticed() {
        let changes: [(&str, serde_json::Value); 3] = [
            ("depo", json!({"N": 6, "K": 3, "mini_vocab": 6, "min_tlen": 1, "max_tlen": 1})),
            ("brevo", json!({"N": 8})),
            ("mano", json!({"L": 4})),
        ];
        for (name, params) in changes {
            let mut stream = stream(name, params);
            let mut tape = stream.sample().clone();
            let answer = &mut tape.tokens[tape.answers[0].start];
            *answer = match name {
                "depo" => 7 + (*answer - 6) % 6,
                "brevo" => 1 + *answer % 8,
                _ => 5000 + (*answer - 4999) % 23,
            };
            let text = describe(stream.task(), &tape, None);
            assert!(text.contains("WRONG"), "{text}");
            // Meaningless tokens do not cause a panic.
            tape.tokens.truncate(3);
            tape.answers.clear();
            assert!(describe(stream.task(), &tape, None).contains("are not a sample"), "{name}");
        }
    }

    #[test]
    fn texts_for_people() {
        let mano = Task::parse("mano", json!({"L": 2})).unwrap();
        let tokens = vec![9999, 20, 3, 5, 5002, 5022, 5004, 24, 5004];
        let tape = Tape { tokens, ..Tape::default() };
        assert_eq!(describe(&mano, &tape, None), "((2 + 22) * 4) = 4 modulo 23 (right)\n");

        let grammar = json!({"depth": 2, "num_sym": 2, "sizes": [1, 2, 2], "idx": [[8], [6, 7], [1, 2]], "all": [
            [{"id": 8, "children": [[0, 1], [1, 1, 0]]}],
            [{"id": 6, "children": [[0, 1]]}, {"id": 7, "children": [[1], [0, 0]]}],
            [{"id": 1}, {"id": 2}]]});
        let lano = Task::parse("lano", json!({"grammar": grammar})).unwrap();
        let of = |tokens: &[u32]| {
            describe(&lano, &Tape { tokens: tokens.to_vec(), ..Tape::default() }, None)
        };
        assert!(
            of(&[2, 1, 1, 1, 2]).ends_with("\n8 (7(2) 7(1 1) 6(1 2))\n"),
            "{}",
            of(&[2, 1, 1, 1, 2])
        );
        assert!(
            of(&[2, 1, 1, 1, 2]).starts_with("a sentence with one parse, probability e^-2.08, ")
        );
        assert_eq!(
            of(&[1, 1, 2]),
            "not a sentence of the grammar: replacing 1 of its tokens makes it one\n"
        );
        assert_eq!(of(&[1]), "not a sentence of the grammar: no sentence has this length\n");
    }
}
