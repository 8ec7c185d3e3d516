//! Suites of evaluation tasks during training: `[evaluation] suites` in a recipe.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use records::fault::Faults;
use records::metrics::{self, Evaluation, Log, Record};
use serde_json::{Value, json};

use crate::{ARCH, DEPO, Place, said, same, signal};

const SUITE: &str = r#"
[[task]]
name = "next"
kind = "continuation"
file = "q.jsonl"
prompt = "{{ given }}"
answer = "next"

[[task]]
name = "pick"
kind = "choice"
file = "q.jsonl"
prompt = "{{ given }}"
choices = "[next, other]"
answer = "0"

[[task]]
name = "text"
kind = "document"
file = "q.jsonl"
text = "{{ given }}{{ next }}"

[[task]]
name = "write"
kind = "generate"
file = "q.jsonl"
prompt = "{{ given }}"
answer = "next"
until = ["q"]
max_tokens = 4
"#;

const QUESTIONS: [(&str, &str, &str); 3] =
    [("A was", " born", "x"), ("In 19", "7é", "yy"), ("Q", "1", "2")];

fn questions() -> String {
    let line = |(given, next, other): (&str, &str, &str)| {
        json!({"given": given, "next": next, "other": other}).to_string() + "\n"
    };
    QUESTIONS.map(line).concat()
}

/// A recipe on text with suites, named `NAME.toml` in `recipes/`.
fn recipe(place: &Place, name: &str, arch: &str, suites: &str) {
    let data = DEPO.split("[data]\n").nth(1).unwrap().split("[batch]").next().unwrap();
    let recipe = DEPO
        .replace(data, "multihop.N = 2\nmultihop.hops = 1\nseq_len = 200\n")
        .replace("[evaluation]\n", &format!("[evaluation]\n{suites}\n"));
    let text = format!("arch = \"../archs.canon#{arch}\"\n{recipe}");
    fs::write(place.path(&format!("recipes/{name}.toml")), text).unwrap();
}

fn place() -> Place {
    let place = Place::empty();
    fs::create_dir_all(place.path("recipes/suites")).unwrap();
    let archs = format!("{ARCH}arch text_canon = small_text with {{ canon A }}\n");
    fs::write(place.path("archs.canon"), archs).unwrap();
    fs::write(place.path("recipes/suites/s.toml"), SUITE).unwrap();
    fs::write(place.path("recipes/suites/q.jsonl"), questions()).unwrap();
    recipe(&place, "small", "small_text", "suites = [\"suites/s.toml\"]");
    place
}

fn evaluations(place: &Place, run: &str) -> Vec<Evaluation> {
    let (records, _) = metrics::read(&place.path(&format!("{run}/metrics.jsonl"))).unwrap();
    let evaluation = |record| match record {
        Record::Evaluation(evaluation) => Some(evaluation),
        Record::Start(_) | Record::Step(_) => None,
    };
    records.into_iter().filter_map(evaluation).collect()
}

#[test]
fn a_run_is_measured_on_its_suites_as_by_eval() {
    let place = place();
    place.exits(0, "build recipes/small.toml");
    place.exits(0, "build --check recipes/small.toml");
    let lock = fs::read_to_string(place.path("lockfiles/small.lock")).unwrap();
    assert!(lock.contains("evaluation.suites = [\"recipes/suites/s.toml\"]"), "{lock}");
    assert!(lock.contains("evaluation.suite_tasks = [\"next acc,perplexity 3 settings "), "{lock}");
    let said = place.exits(0, "run lockfiles/small.lock");
    assert!(said.contains("pick/acc"), "{said}");
    let [first, last] = &evaluations(&place, "runs/small")[..] else { panic!("two evaluations") };
    assert_eq!((first.step, last.step), (3, 6));
    assert!(first.suites.iter().all(|task| task.scores.len() == task.task.metrics.len()));
    assert!(first.suites.iter().all(|task| task.each.is_empty()));
    // The same numbers as of the last checkpoint.
    let output = place.type_in("eval runs/small --suite recipes/suites/s.toml --json");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["tasks"].as_array().unwrap().len(), last.suites.len());
    for (task, logged) in found["tasks"].as_array().unwrap().iter().zip(&last.suites) {
        assert_eq!(task["name"], logged.task.name);
        assert_eq!(task["task"], logged.task.settings.to_string());
        assert_eq!(task["questions"], logged.task.asked.to_string());
        for metric in task["metrics"].as_array().unwrap() {
            let word = metric["metric"].as_str().unwrap();
            assert_eq!(metric["value"], json!(logged.scores[word]), "{}/{word}", task["name"]);
            assert_eq!(metric["each"], json!(logged.each[word]), "{}/{word}", task["name"]);
        }
    }
    place.holds("runs/small");
    let said = place.exits(0, "verify runs/small --replay --all");
    assert!(said.contains("2 of 2 evaluations: the same bits"), "{said}");
    // Interrupted, and by two ranks: the same bits.
    place.exits(75, "run lockfiles/small.lock --dir cut --stop-after-step 4");
    place.exits(0, "run lockfiles/small.lock --dir cut");
    place.exits(0, "run lockfiles/small.lock --dir two --ranks 2");
    for other in ["cut", "two"] {
        same(&place.bits("runs/small", 6), &place.bits(other, 6), other);
    }
}

#[test]
fn a_lock_refuses_other_questions_and_is_another_measurement() {
    let place = place();
    place.exits(0, "build recipes/small.toml");
    fs::copy(place.path("lockfiles/small.lock"), place.path("before.lock")).unwrap();
    fs::write(place.path("recipes/suites/q.jsonl"), questions().replace("born", "burn")).unwrap();
    let said = place.exits(2, "run lockfiles/small.lock");
    assert!(said.contains("the questions of task `next` changed"), "{said}");
    assert!(said.contains("help: restore the files"), "{said}");
    assert!(!place.path("runs/small/metrics.jsonl").exists());
    assert_eq!(place.type_in("build --check recipes/small.toml").status.code(), Some(1));
    place.exits(0, "build recipes/small.toml");
    let said = place.exits(1, "diff before.lock lockfiles/small.lock");
    assert!(said.contains("evaluation.suite_tasks"), "{said}");
    assert!(said.contains("measured differently"), "{said}");
    // The same training.
    let id = |name: &str| {
        let text = fs::read_to_string(place.path(name)).unwrap();
        text.lines().find(|line| line.starts_with("train = ")).unwrap().to_owned()
    };
    assert_eq!(id("before.lock"), id("lockfiles/small.lock"));
    fs::remove_file(place.path("recipes/suites/s.toml")).unwrap();
    let said = place.exits(2, "run lockfiles/small.lock");
    assert!(said.contains("recipes/suites/s.toml: the suite cannot be read"), "{said}");
    assert!(said.contains("the folder that canonc is started in"), "{said}");
}

#[test]
fn a_recipe_whose_suites_cannot_be_asked_is_refused() {
    let place = place();
    let refused = |name: &str, text: &str, says: &[&str]| {
        fs::write(place.path(&format!("recipes/{name}.toml")), text).unwrap();
        let said = place.exits(2, &format!("build recipes/{name}.toml"));
        assert!(says.iter().all(|says| said.contains(says)), "{name}: {said}");
    };
    let depo = format!("arch = \"../archs.canon#small\"\n{DEPO}");
    let depo = depo.replace("[evaluation]\n", "[evaluation]\nsuites = [\"suites/s.toml\"]\n");
    refused("depo", &depo, &["the tokens are not text", "train on text: data.task = \"capo\""]);
    let good = fs::read_to_string(place.path("recipes/small.toml")).unwrap();
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replace(from, to)
    };
    let named = "suites = [\"suites/s.toml\"]";
    refused("none", &with(named, "suites = [\"no.toml\"]"), &["recipes/no.toml", "none.toml:"]);
    refused(
        "release",
        &with(named, "suites = [\"release\"]"),
        &["your own copies of the questions", "suite_data = \"copies\""],
    );
    let elsewhere = format!("{named}\nsuite_data = \"elsewhere\"");
    refused("data", &with(named, &elsewhere), &["recipes/elsewhere/q.jsonl"]);
    refused("idle", &with(named, "suite_data = \"suites\""), &["has no effect without suites"]);
    refused("mine", &with(named, &format!("{named}\nsuite_tasks = []")), &["remove it"]);
    let text = "task = \"text\"\nsource = \"s\"\ntokenizer = \"tiktoken\"\ntokenizer_vocab = 258";
    let text = with("multihop.N = 2\nmultihop.hops = 1", text);
    refused("trained", &text, &["tiktoken tokenizer is not named", "tokenizer_file = "]);
    // As many tokens as a window has leave none for the prompt.
    for (most, tokens) in [("max_tokens = 200", 200), ("", 256)] {
        let suite = SUITE.replace("max_tokens = 4", most);
        fs::write(place.path("recipes/suites/s.toml"), suite).unwrap();
        let says = format!("task `write`: an answer of {tokens} tokens leaves no room");
        refused("small", &good, &[&says, "lower max_tokens", "small.toml:"]);
    }
    let swept = with("seq_len = 200\n", "") + "[sweep]\ndata.seq_len = [300, 200]\n";
    refused("swept", &swept, &["task `write`: an answer of 256 tokens leaves no room"]);
    fs::write(place.path("recipes/suites/s.toml"), SUITE.replace("= 4", "= 199")).unwrap();
    place.exits(0, "build recipes/small.toml");
    fs::write(place.path("recipes/suites/q.jsonl"), "{\"given\": \"a\"}\n").unwrap();
    refused("small", &good, &["recipes/suites/q.jsonl:1", "`answer` of task `next`"]);
}

/// Only the tokenizer shows it, so a lock can be built.
#[test]
fn a_question_that_has_no_tokens_ends_a_run_before_its_first_step() {
    let place = place();
    let long = questions().replace("7é", &"7".repeat(201));
    fs::write(place.path("recipes/suites/q.jsonl"), long).unwrap();
    place.exits(0, "build recipes/small.toml");
    let why = "recipes/suites/q.jsonl:2: task `next`: what is scored has 201 tokens, but the longest input is 200";
    for words in ["run", "run --dry-run", "run --ranks 2"] {
        let said = place.exits(2, &format!("{words} --lock lockfiles/small.lock"));
        assert!(said.contains(why) && said.contains("help: shorten the answer"), "{said}");
        assert!(!place.path("runs").exists(), "nothing was begun");
    }
    // Every rank finds it by itself.
    let ends = two_ranks([&place, &place]);
    for (code, said) in &ends {
        assert_eq!(*code, Some(2), "{ends:?}");
        assert!(said.contains(why), "{ends:?}");
    }
}

/// Starts rank 0 and rank 1 in a folder each. Returns their exit codes and what they said.
fn two_ranks(places: [&Place; 2]) -> [(Option<i32>, String); 2] {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut rank = 0;
    let started = places.map(|place| {
        let mut command = place.command("run --rank-timeout 60 --lock lockfiles/small.lock");
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "2")
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string());
        rank += 1;
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    });
    started.map(|child| {
        let output = child.wait_with_output().unwrap();
        (output.status.code(), said(&output))
    })
}

/// The id covers no questions, and rank 0 would log a mixture.
#[test]
fn ranks_whose_locks_ask_other_questions_do_not_train() {
    let places = [place(), place()];
    let changed = questions().replace("born", "burn");
    fs::write(places[1].path("recipes/suites/q.jsonl"), changed).unwrap();
    for place in &places {
        place.exits(0, "build recipes/small.toml");
    }
    let ends = two_ranks([&places[0], &places[1]]);
    for (code, said) in &ends {
        assert_eq!(*code, Some(3), "{ends:?}");
        assert!(said.contains("differ: ") && said.contains(" has eval "), "{ends:?}");
    }
    assert!(places.iter().all(|place| !place.path("runs").exists()), "nothing was begun");
}

#[test]
fn compare_reports_scores_of_suites_as_paired_differences() {
    let place = place();
    for (name, arch) in [("plain", "small_text"), ("treated", "text_canon")] {
        recipe(&place, name, arch, "suites = [\"suites/s.toml\"]");
    }
    let both = "base = \"plain\"\ntreatment = [\"canon\"]\n[arms]\nplain = \"plain.toml\"\ntreated = \"treated.toml\"\n\
                [seeds]\ninit = [1, 2]\ndata = [1, 2]\n[selection]\nmetric = \"next/perplexity\"\n\
                [analysis]\nprimary = \"pick/acc\"\n";
    fs::write(place.path("recipes/both.toml"), both).unwrap();
    place.exits(0, "build recipes/both.toml");
    let said = place.exits(0, "compare lockfiles/both.lock");
    for row in ["next/acc", "next/perplexity", "pick/acc_norm", "text/bits_per_byte"] {
        assert!(said.lines().any(|line| line.starts_with(row)), "{row}: {said}");
    }
    let row = said.lines().find(|line| line.starts_with("pick/acc ")).unwrap();
    assert!(row.contains("3 questions") && row.contains('%'), "{row}");
    let wrong = both.replace("pick/acc", "other/acc");
    fs::write(place.path("recipes/wrong.toml"), wrong).unwrap();
    let said = place.exits(2, "build recipes/wrong.toml");
    assert!(said.contains("does not have the metric other/acc"), "{said}");
    assert!(said.contains("write/exact_match"), "{said}");
}

/// So many questions that a signal after a step's line arrives in the evaluation after it.
fn with_many_questions() -> Place {
    let place = place();
    let line = |number: u32| {
        let given = format!("{number} is");
        json!({"given": given, "next": " so", "other": "not"}).to_string() + "\n"
    };
    let all: String = (0..150).map(line).collect();
    fs::write(place.path("recipes/suites/q.jsonl"), all).unwrap();
    place.exits(0, "build recipes/small.toml");
    place.exits(0, "run --dir straight --lock lockfiles/small.lock");
    place
}

/// Waits for words, sends SIGTERM to a process, and reads what else is said.
fn ask_to_stop(lines: &mut dyn BufRead, words: &str, child: &Child) -> String {
    let mut said = String::new();
    while !said.contains(words) {
        assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    signal(child, "-TERM");
    while lines.read_line(&mut said).unwrap() > 0 {}
    said
}

/// Stops a run when it says `words`; it ends with a checkpoint of this step, which it did not evaluate.
fn stopped(place: &Place, run: &str, words: &str, step: u64) {
    let (mut child, mut lines) =
        place.start(&format!("run --lock lockfiles/small.lock --dir {run}"));
    let said = ask_to_stop(&mut lines, words, &child);
    assert_eq!(child.wait().unwrap().code(), Some(75), "{said}");
    is_stopped_at(place, run, step, &said);
}

fn is_stopped_at(place: &Place, run: &str, step: u64, said: &str) {
    assert!(said.contains(&format!("interrupted after step {step}")), "{said}");
    assert_eq!(place.steps(run).len() as u64, step, "{said}");
    assert!(evaluations(place, run).iter().all(|logged| logged.step < step), "{said}");
    place.bits(run, step);
    let said = place.exits(0, &format!("verify {run}"));
    assert!(said.contains("none, because the run is not finished"), "{said}");
}

fn is_the_straight_run(place: &Place, run: &str) {
    place.exits(0, &format!("run --lock lockfiles/small.lock --dir {run}"));
    same(&place.bits("straight", 6), &place.bits(run, 6), run);
    place.holds(run);
}

#[test]
fn an_evaluation_that_is_stopped_is_done_first_when_the_run_goes_on() {
    let place = with_many_questions();
    stopped(&place, "one", "step 3/6", 3);
    // Again, before it is done.
    stopped(&place, "one", "small: 6 steps", 3);
    // Killed as soon as it is logged, with the checkpoint from before it.
    let killed = "run --lock lockfiles/small.lock --dir one --fault metrics-after:1";
    assert_eq!(place.type_in(killed).status.code(), None);
    assert_eq!(evaluations(&place, "one").len(), 1);
    place.exits(0, "verify one");
    place.exits(75, "run --lock lockfiles/small.lock --dir one --stop-after-step 4");
    stopped(&place, "one", "step 6/6", 6);
    is_the_straight_run(&place, "one");
    let said = place.exits(0, "verify one --replay --all");
    assert!(said.contains("2 of 2 evaluations: the same bits"), "{said}");
}

/// The checkpoint of the stopped process stays, without being announced, and is saved again after the evaluation.
#[test]
fn a_process_killed_while_it_saves_a_state_without_its_evaluation_loses_nothing() {
    let place = with_many_questions();
    let lock = "--lock lockfiles/small.lock --dir killed";
    let (mut child, mut lines) = place.start(&format!("run {lock} --fault pointer-before:2"));
    let said = ask_to_stop(&mut lines, "step 3/6", &child);
    assert_eq!(child.wait().unwrap().code(), None, "{said}");
    place.bits("killed", 3);
    place.exits(0, "verify killed");
    place.exits(75, &format!("run {lock} --stop-after-step 3"));
    assert_eq!(evaluations(&place, "killed").len(), 1);
    place.exits(0, "verify killed");
    is_the_straight_run(&place, "killed");
}

#[test]
fn any_rank_stops_an_evaluation_of_all() {
    let place = with_many_questions();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: u32| {
        let mut command =
            place.command("run --rank-timeout 60 --lock lockfiles/small.lock --dir two");
        let variables = [("RANK", rank.to_string()), ("WORLD_SIZE", "2".to_owned())];
        command.envs(variables).env("MASTER_ADDR", "127.0.0.1");
        command.env("MASTER_PORT", port.to_string()).stdout(Stdio::null());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let (mut leader, mut other) = (start(0), start(1));
    let mut lines = BufReader::new(leader.stderr.take().unwrap());
    let said = ask_to_stop(&mut lines, "step 3/6", &other);
    assert_eq!(leader.wait().unwrap().code(), Some(75), "{said}");
    assert_eq!(other.wait().unwrap().code(), Some(75), "{said}");
    is_stopped_at(&place, "two", 3, &said);
    place.exits(75, "run --lock lockfiles/small.lock --dir two --ranks 2 --stop-after-step 4");
    assert_eq!(evaluations(&place, "two").len(), 1);
    is_the_straight_run(&place, "two");
}

/// Even where the machine may round otherwise.
#[test]
fn a_forged_score_is_a_fault_on_any_machine() {
    let place = place();
    place.exits(0, "build recipes/small.toml");
    place.exits(75, "run --lock lockfiles/small.lock --dir forged --stop-after-step 3");
    let path = place.path("forged/metrics.jsonl");
    let honest = metrics::read(&path).unwrap().0;
    let events = fs::read_to_string(place.path("forged/events.jsonl")).unwrap();
    let elsewhere = events.replacen("\"machine\":\"", "\"machine\":\"another ", 1);
    assert_ne!(events, elsewhere);
    fs::write(place.path("forged/events.jsonl"), elsewhere).unwrap();
    // The initial weights are enough for a replay.
    fs::remove_dir_all(place.path("forged/checkpoints")).unwrap();
    let with = |change: &dyn Fn(&mut Evaluation)| {
        fs::remove_file(&path).unwrap();
        let mut log = Log::open(&path).unwrap();
        for mut record in honest.clone() {
            if let Record::Evaluation(evaluation) = &mut record {
                change(evaluation);
            }
            log.append(&record, &Faults::none()).unwrap();
        }
        place.type_in("verify forged --replay --all")
    };
    let score = |evaluation: &mut Evaluation, task: usize, word: &str, by: f64| {
        *evaluation.suites[task].scores.get_mut(word).unwrap() *= by;
    };
    let output = with(&|_| ());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    // The last digit may be rounding there.
    let output = with(&|evaluation| score(evaluation, 0, "perplexity", 1.0 + 1e-12));
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("may be rounding"), "{}", said(&output));
    let output = with(&|evaluation| score(evaluation, 0, "perplexity", 0.5));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("BROKEN     replay: the evaluation after step 3"));
    let output = with(&|evaluation| {
        let acc = evaluation.suites[1].scores.get_mut("acc").unwrap();
        *acc = if *acc > 0.5 { 0.0 } else { 1.0 };
    });
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}
