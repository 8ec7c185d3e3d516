//! Describes samples to a person. Answers are computed again from the sample alone, and a mismatch is reported.

use super::stream::Stream;

/// The next sample of `stream`, described.
pub fn inspect(stream: &mut Stream) -> String {
    let number = stream.number();
    let random = stream.generator();
    let tape = stream.sample().clone();
    let task = stream.task();
    format!(
        "{} sample {number}: {}\n{}",
        task.name(),
        dsl::counted(tape.tokens.len(), "token"),
        task.describe(&tape, Some(&random))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Order;
    use serde_json::json;
    use tasks::DEFINITIONS;
    use tasks::sample::{Mode, Tape};
    use tasks::task::{Definition, InTraining, Task};

    fn stream(name: &str, params: serde_json::Value) -> Stream {
        Stream::new(Task::parse(name, params).unwrap(), Order::Published, Mode::Train, 42)
    }

    #[test]
    fn every_task_is_described() {
        let depo = json!({"N": 6, "K": 3, "mini_vocab": 5, "min_tlen": 1, "max_tlen": 2, "M": 2, "separator": true,
            "eos": 9998});
        let background = json!(["It rains.", "It snows.", "Birds sing."]);
        let example = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let examples = DEFINITIONS.map(|task| (task.name, example(task.example)));
        let cases = [
            ("depo", depo),
            ("brevo", json!({"N": 8, "multi": true})),
            ("mano", json!({"L": 4, "knowledge_augment": false})),
            ("capo", json!({"N": 3, "permute": true})),
            ("multihop", json!({"N": 3, "k": 3, "M": 20, "background": background})),
        ];
        for (name, params) in examples.into_iter().chain(cases) {
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
                if Definition::find(name).unwrap().in_training == InTraining::ByChance {
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
            let text = stream.task().describe(&tape, None);
            assert!(text.contains("WRONG"), "{text}");
            // Meaningless tokens do not cause a panic.
            tape.tokens.truncate(3);
            tape.answers.clear();
            assert!(stream.task().describe(&tape, None).contains("are not a sample"), "{name}");
        }
    }

    #[test]
    fn samples_are_described_in_words() {
        let mano = Task::parse("mano", json!({"L": 2})).unwrap();
        let tokens = vec![9999, 20, 3, 5, 5002, 5022, 5004, 24, 5004];
        let tape = Tape { tokens, ..Tape::default() };
        assert_eq!(mano.describe(&tape, None), "((2 + 22) * 4) = 4 modulo 23 (right)\n");

        let grammar = json!({"depth": 2, "num_sym": 2, "sizes": [1, 2, 2], "idx": [[8], [6, 7], [1, 2]], "all": [
            [{"id": 8, "children": [[0, 1], [1, 1, 0]]}],
            [{"id": 6, "children": [[0, 1]]}, {"id": 7, "children": [[1], [0, 0]]}],
            [{"id": 1}, {"id": 2}]]});
        let lano = Task::parse("lano", json!({"grammar": grammar})).unwrap();
        let described = |tokens: &[u32]| {
            lano.describe(&Tape { tokens: tokens.to_vec(), ..Tape::default() }, None)
        };
        assert!(
            described(&[2, 1, 1, 1, 2]).ends_with("\n8 (7(2) 7(1 1) 6(1 2))\n"),
            "{}",
            described(&[2, 1, 1, 1, 2])
        );
        assert!(
            described(&[2, 1, 1, 1, 2])
                .starts_with("a sentence with one parse, probability e^-2.08, ")
        );
        assert_eq!(
            described(&[1, 1, 2]),
            "not a sentence of the grammar: replacing 1 of its tokens makes it one\n"
        );
        assert_eq!(described(&[1]), "not a sentence of the grammar: no sentence has this length\n");
    }
}
