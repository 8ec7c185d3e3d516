//! Suites of evaluation tasks during training: `[evaluation] suites` in a recipe.

use std::fs;

use records::attest::{Attestation, Circumstances};
use records::fault::Faults;
use records::finished;
use records::metrics::{self, Evaluation, Log, Record};
use records::run::{Paths, read_experiment};
use serde_json::{Value, json};
use tasks::metric;

use crate::{ARCH, DEPO, Place, same};

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
    assert!(lock.contains(" words 6 bytes 20\""), "{lock}");
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
    fs::write(place.path("recipes/suites/q.jsonl"), "{\"given\": \"a\"}\n").unwrap();
    refused("small", &good, &["recipes/suites/q.jsonl:1", "`answer` of task `next`"]);
}

#[test]
fn paths_of_suites_are_checked_when_a_recipe_is_built() {
    let place = place();
    let good = fs::read_to_string(place.path("recipes/small.toml")).unwrap();
    let named = "suites = [\"suites/s.toml\"]";
    let built = |name: &str, more: &str, code: i32| {
        let text = good.replace(named, &format!("{named}\n{more}"));
        fs::write(place.path(&format!("recipes/{name}.toml")), text).unwrap();
        place.exits(code, &format!("build recipes/{name}.toml"))
    };
    // The defaults, written out.
    built("beside", "suite_data = \"beside\"", 0);
    place.exits(0, "build recipes/small.toml");
    let tasks = |name: &str| {
        let text = fs::read_to_string(place.path(&format!("lockfiles/{name}.lock"))).unwrap();
        assert!(!text.contains("recipes/beside/"), "{text}");
        text.lines().find(|line| line.contains("suite_tasks")).unwrap().to_owned()
    };
    assert_eq!(tasks("beside"), tasks("small"));
    let trained =
        "task = \"text\"\nsource = \"s\"\ntokenizer = \"tiktoken\"\ntokenizer_vocab = 258";
    let text = good.replace("multihop.N = 2\nmultihop.hops = 1", trained);
    let text = text.replace(named, &format!("{named}\ntokenizer_file = \"none\""));
    fs::write(place.path("recipes/none.toml"), text).unwrap();
    let said = place.exits(2, "build recipes/none.toml");
    assert!(said.contains("tiktoken tokenizer is not named"), "{said}");
    // A folder in the place of the word.
    fs::create_dir(place.path("beside")).unwrap();
    let said = built("word", "suite_data = \"../beside\"", 2);
    assert!(said.contains("`beside` from here, a word with another meaning"), "{said}");
    // 115 bytes in the recipe, and `recipes/` in front of them in the lock.
    let long = format!("{}/{}", "d".repeat(57), "e".repeat(57));
    fs::create_dir_all(place.path("recipes").join(&long)).unwrap();
    fs::copy(
        place.path("recipes/suites/q.jsonl"),
        place.path("recipes").join(&long).join("q.jsonl"),
    )
    .unwrap();
    let said = built("long", &format!("suite_data = \"{long}\""), 2);
    for says in [
        &format!("\"{long}\" is \"recipes/{long}\""),
        "1 to 120 bytes",
        "rename the file or folder",
    ] {
        assert!(said.contains(says), "{says}: {said}");
    }
    assert!(!place.path("lockfiles/long.lock").exists());
    // A folder that is not in the composed form, which a recipe's text does not show.
    let folder = "recipes/cafe\u{301}";
    fs::create_dir_all(place.path(&format!("{folder}/suites"))).unwrap();
    for file in ["s.toml", "q.jsonl"] {
        let to = place.path(&format!("{folder}/suites/{file}"));
        fs::copy(place.path(&format!("recipes/suites/{file}")), to).unwrap();
    }
    let text = good.replace("../archs.canon", "../../archs.canon");
    fs::write(place.path(&format!("{folder}/small.toml")), text).unwrap();
    let said = place.exits(2, &format!("build {folder}/small.toml"));
    assert!(
        said.contains("composed form (NFC) it is [\"recipes/caf\u{e9}/suites/s.toml\"]"),
        "{said}"
    );
}

/// What somebody who did not train could write into a log, with its chain and attestation.
#[test]
fn scores_that_are_not_the_locks_are_found() {
    let place = place();
    place.exits(0, "build recipes/small.toml");
    place.exits(0, "run lockfiles/small.lock");
    let said = place.exits(0, "verify runs/small");
    assert!(said.contains("4 tasks and the metrics of 2 evaluations are the lock's"), "{said}");
    assert!(said.contains("scores of suites: each question's part after the last step"), "{said}");
    let paths = Paths::new(place.path("runs/small"));
    let lock = fs::read_to_string(paths.lock()).unwrap();
    let experiment = read_experiment("lock", &lock).unwrap();
    let attested = fs::read_to_string(paths.attestation()).unwrap();
    let records = metrics::read(&paths.metrics()).unwrap().0;
    let forged = |forge: &dyn Fn(&mut Evaluation)| {
        fs::remove_file(paths.metrics()).unwrap();
        let mut log = Log::open(&paths.metrics()).unwrap();
        for mut record in records.clone() {
            if let Record::Evaluation(evaluation) = &mut record {
                forge(evaluation);
            }
            log.append(&record, &Faults::none()).unwrap();
        }
        let mut attestation = Attestation::parse(&attested).unwrap();
        attestation.metrics = log.head().unwrap();
        attestation.write(&paths.attestation(), Circumstances::default(), &Faults::none()).unwrap();
        place.type_in("verify runs/small")
    };
    let found = |forge: &dyn Fn(&mut Evaluation), says: &str| {
        let output = forged(forge);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(says), "{says}: {said}");
        let error = finished::read(&paths, (&experiment).into()).unwrap_err();
        assert!(error.message.contains(says), "{says}: {error}");
    };
    assert_eq!(forged(&|_| ()).status.code(), Some(0));
    found(
        &|it| it.suites.clear(),
        "the evaluation after step 3 logged scores of 0 tasks of suites",
    );
    found(&|it| it.suites[0].task.asked = it.suites[0].task.settings, "but the lock has `next acc");
    found(
        &|it| {
            let wrong = 3.0 - (3.0 * it.suites[1].scores["acc"]).round();
            it.suites[1].scores.insert("acc".to_owned(), wrong / 3.0);
        },
        "for `pick/acc`, but its questions give",
    );
    for word in ["bits_per_byte", "byte_perplexity", "word_perplexity"] {
        let better = |it: &mut Evaluation| {
            it.suites[2].scores.entry(word.to_owned()).and_modify(|value| *value *= 0.9);
        };
        found(&better, "contradicts");
    }
    // All of them, so that they agree: only the last evaluation shows it.
    found(
        &|it| {
            let counted = it.suites[2].task.counted.unwrap();
            for (word, value) in &mut it.suites[2].scores {
                *value = metric::of_word(word).unwrap().rule.value(&[-1.0; 3], counted);
            }
        },
        "the evaluation after step 6 logged",
    );
}

#[test]
fn compare_refuses_changed_questions_before_it_writes() {
    let place = place();
    for (name, arch) in [("plain", "small_text"), ("treated", "text_canon")] {
        recipe(&place, name, arch, "suites = [\"suites/s.toml\"]");
    }
    let both = "base = \"plain\"\ntreatment = [\"canon\"]\n[arms]\nplain = \"plain.toml\"\ntreated = \"treated.toml\"\n\
                [seeds]\ninit = [1]\ndata = [1]\n";
    fs::write(place.path("recipes/both.toml"), both).unwrap();
    place.exits(0, "build recipes/both.toml");
    fs::write(place.path("recipes/suites/q.jsonl"), questions().replace("born", "burn")).unwrap();
    let said = place.exits(2, "compare lockfiles/both.lock");
    assert!(said.contains("the questions of task `next` changed"), "{said}");
    assert!(!place.path("runs").exists());
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
