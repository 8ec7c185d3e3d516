//! `canonc answer` as a process: what a model says to each question, and whether it is counted as right.

use std::fs;

use serde_json::Value;

use crate::{DEPO, Place, experiment};

const MULTIHOP: &str = "task = \"multihop\"\nN = 2\nk = 1\nseq_len = 200\n";

fn trained() -> (Place, String) {
    let data = DEPO.split("[data]\n").nth(1).unwrap().split("[batch]").next().unwrap();
    let small = experiment(
        "small_text",
        DEPO,
        &[(data, MULTIHOP), ("steps = 6", "steps = 2"), ("warmup = 2", "warmup = 0")],
    );
    let place = Place::new(&small);
    place.exits(0, "run --lock lockfiles/small.lock");
    (place, "runs/small/checkpoints/step-0000000002/weights.safetensors".to_owned())
}

#[test]
fn each_question_is_answered_as_if_it_were_alone() {
    let (place, weights) = trained();
    place.exits(0, "data generate multihop --set N=2 --set k=1 --count 5 --out q.jsonl");
    let ask = format!(
        "answer lockfiles/small.lock --weights {weights} --questions q.jsonl --max-tokens 4"
    );
    let output = place.type_in(&format!("{ask} --rows 3"));
    let said = crate::said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("of 5 (") && said.contains("beginning with the answer"), "{said}");
    let questions = fs::read_to_string(place.path("q.jsonl")).unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), 5);
    for (question, answer) in questions.lines().zip(answers.lines()) {
        let [question, answer] =
            [question, answer].map(|line| serde_json::from_str::<Value>(line).unwrap());
        assert_eq!(question["answer"], answer["answer"]);
        let begins =
            answer["said"].as_str().unwrap().starts_with(answer["answer"].as_str().unwrap());
        assert_eq!(answer["right"], begins);
        let alone = place
            .command("generate lockfiles/small.lock --max-tokens 4 --temperature 0 --weights")
            .args([&weights, "--prompt", question["text"].as_str().unwrap()])
            .output()
            .unwrap();
        let alone = String::from_utf8_lossy(&alone.stdout).into_owned();
        assert_eq!(answer["said"].as_str().unwrap(), alone.trim_end_matches('\n'));
    }
    // Right answers are counted as such.
    let known: Vec<String> = answers
        .lines()
        .zip(questions.lines())
        .map(|(answer, question)| {
            let mut question: Value = serde_json::from_str(question).unwrap();
            question["answer"] = serde_json::from_str::<Value>(answer).unwrap()["said"].clone();
            question.to_string()
        })
        .collect();
    fs::write(place.path("q.jsonl"), known.join("\n")).unwrap();
    assert!(place.exits(0, &ask).contains("right: 5 of 5 (100.0%)"));
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let (place, weights) = trained();
    fs::write(place.path("bad.jsonl"), "{\"text\": \"a\", \"answer\": \"b\"}\n{\"text\": 3}\n")
        .unwrap();
    fs::write(place.path("empty.jsonl"), "\n").unwrap();
    fs::write(place.path("prompts.py"), "X = 3\n").unwrap();
    let ask = format!("answer lockfiles/small.lock --weights {weights} --questions");
    for (words, what) in [
        (format!("{ask} bad.jsonl"), "bad.jsonl:2: "),
        (format!("{ask} empty.jsonl"), "asks nothing"),
        (format!("{ask} none.jsonl"), "none.jsonl"),
        ("data babilong --prompts prompts.py --task 1 --questions bad.jsonl".to_owned(), "prompts"),
        ("data babilong --prompts none.py --task 1 --questions bad.jsonl".to_owned(), "none.py"),
        ("data babilong --prompts prompts.py --task 21 --questions bad.jsonl".to_owned(), "1..=20"),
    ] {
        let said = place.exits(2, &words);
        assert!(said.contains(what), "{words}: {said}");
    }
}
