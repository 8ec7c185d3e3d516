//! `canonc answer` as a process: the model's answer to each question, and whether it counts as right.

use std::fs;

use serde_json::Value;

use lab::lock::Lock;

use crate::{DEPO, Place, experiment};

const MULTIHOP: &str = "multihop.N = 2\nmultihop.hops = 1\nseq_len = 200\n";

pub(crate) fn trained() -> (Place, String) {
    let data = DEPO.split("[data]\n").nth(1).unwrap().split("[batch]").next().unwrap();
    let small = experiment(
        "small_text",
        DEPO,
        &[(data, MULTIHOP), ("steps = 6", "steps = 2"), ("warmup = 2", "warmup = 0")],
    );
    let workspace = Place::new(&small);
    workspace.exits(0, "run --lock lockfiles/small.lock");
    (workspace, "runs/small/checkpoints/step-0000000002/weights.safetensors".to_owned())
}

#[test]
fn each_question_is_answered_as_if_it_were_alone() {
    let (workspace, weights) = trained();
    workspace.exits(0, "data generate multihop --set N=2 --set k=1 --count 5 --out q.jsonl");
    let ask = format!(
        "answer lockfiles/small.lock --weights {weights} --questions q.jsonl --max-tokens 4"
    );
    let output = workspace.type_in(&format!("{ask} --rows 3"));
    let text = crate::said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("of 5 (") && text.contains("beginning with the answer"), "{text}");
    let questions = fs::read_to_string(workspace.path("q.jsonl")).unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), 5);
    for (question, answer) in questions.lines().zip(answers.lines()) {
        let [question, answer] =
            [question, answer].map(|line| serde_json::from_str::<Value>(line).unwrap());
        assert_eq!(question["answer"], answer["answer"]);
        let begins =
            answer["said"].as_str().unwrap().starts_with(answer["answer"].as_str().unwrap());
        assert_eq!(answer["right"], begins);
        let alone = workspace
            .command("generate lockfiles/small.lock --max-tokens 4 --temperature 0 --weights")
            .args([&weights, "--prompt", question["text"].as_str().unwrap()])
            .output()
            .unwrap();
        let alone = String::from_utf8_lossy(&alone.stdout).into_owned();
        assert_eq!(answer["said"].as_str().unwrap(), alone.trim_end_matches('\n'));
    }
    // Right answers are counted as right.
    let known: Vec<String> = answers
        .lines()
        .zip(questions.lines())
        .map(|(answer, question)| {
            let mut question: Value = serde_json::from_str(question).unwrap();
            question["answer"] = serde_json::from_str::<Value>(answer).unwrap()["said"].clone();
            question.to_string()
        })
        .collect();
    fs::write(workspace.path("q.jsonl"), known.join("\n")).unwrap();
    assert!(workspace.exits(0, &ask).contains("right: 5 of 5 (100.0%)"));
}

#[test]
fn unreadable_questions_and_prompts_are_refused() {
    let (workspace, weights) = trained();
    fs::write(workspace.path("bad.jsonl"), "{\"text\": \"a\", \"answer\": \"b\"}\n{\"text\": 3}\n")
        .unwrap();
    fs::write(workspace.path("empty.jsonl"), "\n").unwrap();
    fs::write(workspace.path("prompts.py"), "X = 3\n").unwrap();
    let ask = format!("answer lockfiles/small.lock --weights {weights} --questions");
    for (words, expected) in [
        (format!("{ask} bad.jsonl"), "bad.jsonl:2: "),
        (format!("{ask} empty.jsonl"), "has no questions"),
        (format!("{ask} none.jsonl"), "none.jsonl"),
        ("data babilong --prompts prompts.py --task 1 --questions bad.jsonl".to_owned(), "prompts"),
        ("data babilong --prompts none.py --task 1 --questions bad.jsonl".to_owned(), "none.py"),
        (
            "data babilong --prompts prompts.py --task 21 --questions bad.jsonl".to_owned(),
            "from 1 to 20",
        ),
    ] {
        let output = workspace.exits(2, &words);
        assert!(output.contains(expected), "{words}: {output}");
    }
}

/// Writes a lock on text with these further lines of `[data]`; returns its path.
fn text_lock(workspace: &Place, name: &str, data: &str) -> String {
    let task = DEPO.find("task").unwrap()..DEPO.find("seq_len").unwrap();
    let mut recipe = DEPO.to_owned();
    recipe.replace_range(task, &format!("task = \"text\"\nsource = \"small\"\n{data}"));
    workspace.lock(name, &Lock::Experiment(experiment("small_text", &recipe, &[])));
    format!("lockfiles/{name}.lock")
}

#[test]
fn prompts_have_the_marks_that_training_has() {
    let (workspace, weights) = trained();
    let with = text_lock(&workspace, "with", "");
    let without = text_lock(&workspace, "without", "add_bos = false\nadd_eos = false\n");
    let tokens = |lock: &str, prompt: &str| -> Value {
        let line = format!(
            "generate {lock} --weights {weights} --max-tokens 40 --temperature 1 --seed 3 --json {prompt}"
        );
        let output = workspace.type_in(&line);
        assert_eq!(output.status.code(), Some(0), "{}", crate::said(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["tokens"].clone()
    };
    // With an end mark there may be fewer tokens; up to it they are equal.
    let begins = |start: &Value, tokens: &Value| {
        let (start, tokens) = (start.as_array().unwrap(), tokens.as_array().unwrap());
        !start.is_empty() && tokens.starts_with(start)
    };
    assert!(begins(&tokens(&with, "--prompt A"), &tokens(&with, "--prompt-tokens 256,65")));
    assert_eq!(tokens(&without, "--prompt A"), tokens(&without, "--prompt-tokens 65"));
    // In multihop an end mark precedes each text, and a bos never occurs.
    let multihop = "lockfiles/small.lock";
    assert!(begins(&tokens(multihop, "--prompt A"), &tokens(multihop, "--prompt-tokens 257,65")));
    let empty = workspace
        .command(&format!("generate {without} --weights {weights} --prompt"))
        .arg("")
        .output();
    let output = crate::said(&empty.unwrap());
    assert!(output.contains("the prompt is empty"), "{output}");
    // Tokens come from the tokenizer's file if the lock has one; otherwise the file is refused.
    let trained =
        text_lock(&workspace, "trained", "tokenizer = \"tiktoken\"\ntokenizer_vocab = 258\n");
    let output = workspace.exits(2, &format!("generate {trained} --weights {weights} --prompt A"));
    assert!(output.contains("--tokenizer-file"), "{output}");
    let golden = format!("{}/tests/golden/tokenizers/llama3.model", env!("CARGO_MANIFEST_DIR"));
    let file = format!("--tokenizer-file {golden}");
    let output =
        workspace.exits(2, &format!("generate {trained} --weights {weights} --prompt A {file}"));
    assert!(output.contains("data.tokenizer_vocab is 258"), "{output}");
    let output =
        workspace.exits(2, &format!("generate {with} --weights {weights} --prompt A {file}"));
    assert!(output.contains("the tokens here are bytes"), "{output}");
}

#[test]
fn an_answer_that_no_output_can_match_is_flagged() {
    let (workspace, weights) = trained();
    fs::write(
        workspace.path("q.jsonl"),
        "{\"text\": \"a\", \"answer\": \"\"}\n{\"text\": \"b\", \"answer\": \"12345\"}\n{\"text\": \"c\", \"answer\": \"1234\"}\n",
    )
    .unwrap();
    let ask = format!(
        "answer lockfiles/small.lock --weights {weights} --questions q.jsonl --max-tokens 4"
    );
    let output = workspace.type_in(&ask);
    let text = crate::said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!((&answers[0]["right"], &answers[0]["flag"]), (&Value::Null, &"empty".into()));
    assert_eq!(
        (&answers[1]["right"], &answers[1]["flag"]),
        (&Value::Null, &"longer than --max-tokens".into())
    );
    assert!(answers[2]["right"].is_boolean() && answers[2].get("flag").is_none());
    assert!(
        text.contains("of 1 (") && text.contains("not judged: 1 answer of the file, empty"),
        "{text}"
    );
    fs::write(workspace.path("q.jsonl"), "{\"text\": \"a\", \"answer\": \" , \"}\n").unwrap();
    let output = workspace.exits(0, &format!("{ask} --judge words"));
    assert!(output.contains("right: 0 of 0 (none was judged)"), "{output}");
}
