//! Suites of evaluation tasks during training: `[evaluation] suites` in a recipe.

use std::fs;
use std::net::TcpListener;
use std::process::Stdio;

use records::metrics::{self, Evaluation, Record, SuiteScores};
use serde_json::{Value, json};

use super::eval::results;
use crate::{ARCH, DEPO, Place, said, same};

mod forged;
mod stopped;

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
fn recipe(workspace: &Place, name: &str, arch: &str, suites: &str) {
    let data = DEPO.split("[data]\n").nth(1).unwrap().split("[batch]").next().unwrap();
    let recipe = DEPO
        .replace(data, "multihop.N = 2\nmultihop.hops = 1\nseq_len = 200\n")
        .replace("[evaluation]\n", &format!("[evaluation]\n{suites}\n"));
    let text = format!("arch = \"../archs.canon#{arch}\"\n{recipe}");
    fs::write(workspace.path(&format!("recipes/{name}.toml")), text).unwrap();
}

/// Archs and the recipe `small` with a suite.
fn with_suite() -> Place {
    let workspace = Place::empty();
    fs::create_dir_all(workspace.path("recipes/suites")).unwrap();
    let archs = format!("{ARCH}arch text_canon = small_text with {{ canon A }}\n");
    fs::write(workspace.path("archs.canon"), archs).unwrap();
    fs::write(workspace.path("recipes/suites/s.toml"), SUITE).unwrap();
    fs::write(workspace.path("recipes/suites/q.jsonl"), questions()).unwrap();
    recipe(&workspace, "small", "small_text", "suites = [\"suites/s.toml\"]");
    workspace
}

fn evaluations(workspace: &Place, run: &str) -> Vec<Evaluation> {
    let (records, _) = metrics::read(&workspace.path(&format!("{run}/metrics.jsonl"))).unwrap();
    let evaluation = |record| match record {
        Record::Evaluation(evaluation) => Some(evaluation),
        Record::Start(_) | Record::Step(_) => None,
    };
    records.into_iter().filter_map(evaluation).collect()
}

/// Tasks, as in the results of `canonc eval`, without what a log does not have.
fn scores(logged: &Evaluation) -> Value {
    let tasks = logged.suites.iter().map(|SuiteScores { task, scores, each }| {
        let metrics: Vec<Value> = scores
            .iter()
            .map(|(word, value)| json!({"metric": word, "value": value, "each": each[word]}))
            .collect();
        let (settings, asked) = (task.settings.to_string(), task.asked.to_string());
        json!({"name": task.name, "task": settings, "questions": asked, "metrics": metrics})
    });
    tasks.collect()
}

/// The results of `canonc eval` on the suite, in the same form.
fn eval(workspace: &Place, more: &str) -> Value {
    let results =
        results(workspace, &format!("eval runs/small --suite recipes/suites/s.toml {more}"));
    let metric =
        |row: &Value| json!({"metric": row["metric"], "value": row["value"], "each": row["each"]});
    let tasks = results["tasks"].as_array().unwrap().iter().map(|task| {
        let mut metrics: Vec<Value> = task["metrics"].as_array().unwrap().iter().map(metric).collect();
        metrics.sort_by_key(|metric| metric["metric"].as_str().unwrap().to_owned());
        json!({"name": task["name"], "task": task["task"], "questions": task["questions"], "metrics": metrics})
    });
    tasks.collect()
}

/// In the lock's precision, and where the arch has more tokens than there are bytes.
#[test]
fn a_run_in_bf16_is_measured_by_eval_in_bf16() {
    let workspace = with_suite();
    let archs = format!("{ARCH}arch more = small with {{ vocab 300 }}\n");
    fs::write(workspace.path("archs.canon"), archs).unwrap();
    recipe(&workspace, "small", "more", "suites = [\"suites/s.toml\"]");
    let path = workspace.path("recipes/small.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(path, format!("{text}[precision]\npolicy = \"bf16\"\n")).unwrap();
    workspace.exits(0, "build -q recipes/small.toml");
    workspace.exits(0, "run lockfiles/small.lock");
    let [_, last] = &evaluations(&workspace, "runs/small")[..] else { panic!("two evaluations") };
    assert_eq!(eval(&workspace, ""), scores(last));
    assert_eq!(eval(&workspace, "--dtype bf16"), scores(last));
    assert_ne!(eval(&workspace, "--dtype f32"), scores(last));
    // The lock with weights, and the lock's own metrics.
    let words = "eval lockfiles/small.lock --weights \
                 runs/small/checkpoints/step-0000000006/weights.safetensors --suite";
    let loss = |words: &str, dtype: &str| {
        let results = results(&workspace, words);
        assert_eq!(results["settings"]["dtype"], dtype, "{words}");
        results["tasks"][0]["metrics"][0]["value"].as_f64().unwrap()
    };
    let first = format!("{words} recipes/suites/s.toml --task next");
    assert_eq!(loss(&first, "bf16"), last.suites[0].scores["acc"]);
    assert_eq!(loss(&format!("{words} task"), "bf16"), last.nll.unwrap());
    assert_eq!(loss("eval runs/small --suite task --dtype bf16", "bf16"), last.nll.unwrap());
    for dtype in ["f32", "f64"] {
        let words = format!("{words} task --dtype {dtype}");
        assert_ne!(loss(&words, dtype), last.nll.unwrap());
    }
    let in_f32 = format!("{words} task --dtype f32");
    assert_ne!(loss(&in_f32, "f32"), loss(&in_f32.replace("f32", "f64"), "f64"));
}

#[test]
fn a_run_is_measured_on_its_suites_as_by_eval() {
    let workspace = with_suite();
    workspace.exits(0, "build -q recipes/small.toml");
    workspace.exits(0, "build --check recipes/small.toml");
    let lock = fs::read_to_string(workspace.path("lockfiles/small.lock")).unwrap();
    assert!(lock.contains("evaluation.suites = [\"recipes/suites/s.toml\"]"), "{lock}");
    assert!(lock.contains("evaluation.suite_tasks = [\"next acc,perplexity 3 settings "), "{lock}");
    assert!(lock.contains(" words 6 bytes 20\""), "{lock}");
    let output = workspace.exits(0, "run lockfiles/small.lock");
    assert!(output.contains("pick/acc"), "{output}");
    let [first, last] = &evaluations(&workspace, "runs/small")[..] else {
        panic!("two evaluations")
    };
    assert_eq!((first.step, last.step), (3, 6));
    assert!(first.suites.iter().all(|task| task.scores.len() == task.task.metrics.len()));
    assert!(first.suites.iter().all(|task| task.each.is_empty()));
    // The same numbers as of the last checkpoint.
    assert_eq!(eval(&workspace, ""), scores(last));
    workspace.holds("runs/small");
    let output = workspace.exits(0, "verify runs/small --replay --all");
    assert!(output.contains("2 of 2 evaluations: the same bits"), "{output}");
    // Interrupted, and by two ranks: the same bits.
    workspace.exits(75, "run lockfiles/small.lock --dir cut --stop-after-step 4");
    workspace.exits(0, "run lockfiles/small.lock --dir cut");
    workspace.exits(0, "run lockfiles/small.lock --dir two --ranks 2");
    for run in ["cut", "two"] {
        same(&workspace.bits("runs/small", 6), &workspace.bits(run, 6), run);
    }
}

#[test]
fn changed_questions_are_refused_by_the_lock_and_are_another_measurement() {
    let workspace = with_suite();
    workspace.exits(0, "build -q recipes/small.toml");
    fs::copy(workspace.path("lockfiles/small.lock"), workspace.path("before.lock")).unwrap();
    fs::write(workspace.path("recipes/suites/q.jsonl"), questions().replace("born", "burn"))
        .unwrap();
    let output = workspace.exits(2, "run lockfiles/small.lock");
    assert!(output.contains("the questions of task `next` changed"), "{output}");
    assert!(output.contains("help: restore the files"), "{output}");
    assert!(!workspace.path("runs/small/metrics.jsonl").exists());
    assert_eq!(workspace.type_in("build --check recipes/small.toml").status.code(), Some(1));
    workspace.exits(0, "build -q recipes/small.toml");
    let output = workspace.exits(1, "diff before.lock lockfiles/small.lock");
    assert!(output.contains("evaluation.suite_tasks"), "{output}");
    assert!(output.contains("measured differently"), "{output}");
    // The same training.
    let id = |name: &str| {
        let text = fs::read_to_string(workspace.path(name)).unwrap();
        text.lines().find(|line| line.starts_with("train = ")).unwrap().to_owned()
    };
    assert_eq!(id("before.lock"), id("lockfiles/small.lock"));
    fs::remove_file(workspace.path("recipes/suites/s.toml")).unwrap();
    let output = workspace.exits(2, "run lockfiles/small.lock");
    assert!(output.contains("recipes/suites/s.toml: there is no such suite or file"), "{output}");
    assert!(output.contains("the folder that canonc is started in"), "{output}");
}

#[test]
fn a_recipe_whose_suites_cannot_be_asked_is_refused() {
    let workspace = with_suite();
    let refused = |name: &str, text: &str, parts: &[&str]| {
        fs::write(workspace.path(&format!("recipes/{name}.toml")), text).unwrap();
        let output = workspace.exits(2, &format!("build recipes/{name}.toml"));
        assert!(parts.iter().all(|part| output.contains(part)), "{name}: {output}");
    };
    let depo = format!("arch = \"../archs.canon#small\"\n{DEPO}");
    let depo = depo.replace("[evaluation]\n", "[evaluation]\nsuites = [\"suites/s.toml\"]\n");
    refused("depo", &depo, &["the tokens are not text", "train on text: data.task = \"capo\""]);
    let good = fs::read_to_string(workspace.path("recipes/small.toml")).unwrap();
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
        fs::write(workspace.path("recipes/suites/s.toml"), suite).unwrap();
        let message = format!("task `write`: an answer of {tokens} tokens leaves no room");
        refused("small", &good, &[&message, "lower max_tokens", "small.toml:"]);
    }
    let free = good.replace("seq_len = 200\n", "");
    let swept = format!("{free}[sweep]\ndata.seq_len = [300, 200]\n");
    refused("swept", &swept, &["task `write`: an answer of 256 tokens leaves no room"]);
    fs::write(workspace.path("recipes/suites/s.toml"), SUITE.replace("= 4", "= 199")).unwrap();
    workspace.exits(0, "build -q recipes/small.toml");
    fs::write(workspace.path("recipes/suites/q.jsonl"), "{\"given\": \"a\"}\n").unwrap();
    refused("small", &good, &["recipes/suites/q.jsonl:1", "`answer` of task `next`"]);
}

/// Only the tokenizer shows that there are too many, so a lock can be built.
#[test]
fn a_question_with_too_many_tokens_ends_a_run_before_its_first_step() {
    let workspace = with_suite();
    let long = questions().replace("7é", &"7".repeat(201));
    fs::write(workspace.path("recipes/suites/q.jsonl"), long).unwrap();
    workspace.exits(0, "build -q recipes/small.toml");
    let reason = "recipes/suites/q.jsonl:2: task `next`: what is scored has 201 tokens, but the longest input is 200";
    for words in ["run", "run --dry-run", "run --ranks 2"] {
        let output = workspace.exits(2, &format!("{words} --lock lockfiles/small.lock"));
        assert!(output.contains(reason) && output.contains("help: shorten the answer"), "{output}");
        assert!(!workspace.path("runs").exists(), "nothing was begun");
    }
    // Each rank refuses by itself.
    let ends = two_ranks([&workspace, &workspace]);
    for (code, output) in &ends {
        assert_eq!(*code, Some(2), "{ends:?}");
        assert!(output.contains(reason), "{ends:?}");
    }
}

/// Starts rank 0 and rank 1 in a folder each. Returns their exit codes and output.
fn two_ranks(workspaces: [&Place; 2]) -> [(Option<i32>, String); 2] {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut rank = 0;
    let started = workspaces.map(|workspace| {
        let mut command = workspace.command("run --rank-timeout 60 --lock lockfiles/small.lock");
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
fn ranks_whose_questions_differ_do_not_train() {
    let workspaces = [with_suite(), with_suite()];
    let changed = questions().replace("born", "burn");
    fs::write(workspaces[1].path("recipes/suites/q.jsonl"), changed).unwrap();
    for workspace in &workspaces {
        workspace.exits(0, "build -q recipes/small.toml");
    }
    let ends = two_ranks([&workspaces[0], &workspaces[1]]);
    for (code, output) in &ends {
        assert_eq!(*code, Some(3), "{ends:?}");
        assert!(output.contains("differ: ") && output.contains(" has eval "), "{ends:?}");
    }
    assert!(
        workspaces.iter().all(|workspace| !workspace.path("runs").exists()),
        "nothing was begun"
    );
}

#[test]
fn paths_of_suites_are_checked_when_a_recipe_is_built() {
    let workspace = with_suite();
    let good = fs::read_to_string(workspace.path("recipes/small.toml")).unwrap();
    let named = "suites = [\"suites/s.toml\"]";
    let build = |name: &str, more: &str, code: i32| {
        let text = good.replace(named, &format!("{named}\n{more}"));
        fs::write(workspace.path(&format!("recipes/{name}.toml")), text).unwrap();
        workspace.exits(code, &format!("build recipes/{name}.toml"))
    };
    // The defaults, written out.
    build("beside", "suite_data = \"beside\"", 0);
    workspace.exits(0, "build -q recipes/small.toml");
    let tasks = |name: &str| {
        let text = fs::read_to_string(workspace.path(&format!("lockfiles/{name}.lock"))).unwrap();
        assert!(!text.contains("recipes/beside/"), "{text}");
        text.lines().find(|line| line.contains("suite_tasks")).unwrap().to_owned()
    };
    assert_eq!(tasks("beside"), tasks("small"));
    let trained =
        "task = \"text\"\nsource = \"s\"\ntokenizer = \"tiktoken\"\ntokenizer_vocab = 258";
    let text = good.replace("multihop.N = 2\nmultihop.hops = 1", trained);
    let text = text.replace(named, &format!("{named}\ntokenizer_file = \"none\""));
    fs::write(workspace.path("recipes/none.toml"), text).unwrap();
    let output = workspace.exits(2, "build recipes/none.toml");
    assert!(output.contains("tiktoken tokenizer is not named"), "{output}");
    // A folder whose name is the word.
    fs::create_dir(workspace.path("beside")).unwrap();
    let output = build("word", "suite_data = \"../beside\"", 2);
    assert!(output.contains("`beside` from here, a word with another meaning"), "{output}");
    // 115 bytes in the recipe, and `recipes/` in front of them in the lock.
    let long = format!("{}/{}", "d".repeat(57), "e".repeat(57));
    fs::create_dir_all(workspace.path("recipes").join(&long)).unwrap();
    fs::copy(
        workspace.path("recipes/suites/q.jsonl"),
        workspace.path("recipes").join(&long).join("q.jsonl"),
    )
    .unwrap();
    let output = build("long", &format!("suite_data = \"{long}\""), 2);
    for part in [
        &format!("\"{long}\" is \"recipes/{long}\""),
        "1 to 120 bytes",
        "rename the file or folder",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(!workspace.path("lockfiles/long.lock").exists());
    // A folder that is not in the composed form, which a recipe's text does not show.
    let folder = "recipes/cafe\u{301}";
    fs::create_dir_all(workspace.path(&format!("{folder}/suites"))).unwrap();
    for file in ["s.toml", "q.jsonl"] {
        let to = workspace.path(&format!("{folder}/suites/{file}"));
        fs::copy(workspace.path(&format!("recipes/suites/{file}")), to).unwrap();
    }
    let text = good.replace("../archs.canon", "../../archs.canon");
    fs::write(workspace.path(&format!("{folder}/small.toml")), text).unwrap();
    let output = workspace.exits(2, &format!("build {folder}/small.toml"));
    assert!(
        output.contains("composed form (NFC) it is [\"recipes/caf\u{e9}/suites/s.toml\"]"),
        "{output}"
    );
}

#[test]
fn compare_refuses_changed_questions_before_it_writes() {
    let workspace = with_suite();
    for (name, arch) in [("plain", "small_text"), ("treated", "text_canon")] {
        recipe(&workspace, name, arch, "suites = [\"suites/s.toml\"]");
    }
    let both = "base = \"plain\"\ntreatment = [\"canon\"]\n[arms]\nplain = \"plain.toml\"\ntreated = \"treated.toml\"\n\
                [seeds]\ninit = [1]\ndata = [1]\n";
    fs::write(workspace.path("recipes/both.toml"), both).unwrap();
    workspace.exits(0, "build -q recipes/both.toml");
    fs::write(workspace.path("recipes/suites/q.jsonl"), questions().replace("born", "burn"))
        .unwrap();
    let output = workspace.exits(2, "compare lockfiles/both.lock");
    assert!(output.contains("the questions of task `next` changed"), "{output}");
    assert!(!workspace.path("runs").exists());
}

#[test]
fn compare_reports_scores_of_suites_as_paired_differences() {
    let workspace = with_suite();
    for (name, arch) in [("plain", "small_text"), ("treated", "text_canon")] {
        recipe(&workspace, name, arch, "suites = [\"suites/s.toml\"]");
    }
    let both = "base = \"plain\"\ntreatment = [\"canon\"]\n[arms]\nplain = \"plain.toml\"\ntreated = \"treated.toml\"\n\
                [seeds]\ninit = [1, 2]\ndata = [1, 2]\n[selection]\nmetric = \"next/perplexity\"\n\
                [analysis]\nprimary = \"pick/acc\"\n";
    fs::write(workspace.path("recipes/both.toml"), both).unwrap();
    workspace.exits(0, "build -q recipes/both.toml");
    let output = workspace.exits(0, "compare lockfiles/both.lock");
    for row in ["next/acc", "next/perplexity", "pick/acc_norm", "text/bits_per_byte"] {
        assert!(output.lines().any(|line| line.starts_with(row)), "{row}: {output}");
    }
    let row = output.lines().find(|line| line.starts_with("pick/acc ")).unwrap();
    assert!(row.contains("3 questions") && row.contains('%'), "{row}");
    // The differences are those of the logs.
    let results = results(&workspace, "compare lockfiles/both.lock");
    let rows = results["comparisons"][0]["pairs"][0]["rows"].as_array().unwrap();
    let score = |run: &str, task: &str, word: &str| {
        let evaluations = evaluations(&workspace, &format!("runs/both/both-{run}"));
        let suites = &evaluations.last().unwrap().suites;
        suites.iter().find(|scores| scores.task.name == task).unwrap().scores[word]
    };
    for (task, word) in [("next", "perplexity"), ("pick", "acc"), ("text", "bits_per_byte")] {
        let name = format!("{task}/{word}");
        let row = rows.iter().find(|row| row["metric"] == name.as_str()).unwrap();
        let scores_of =
            |arm: &str| [1, 2].map(|seed| score(&format!("{arm}-seed{seed}"), task, word));
        let (base, treated) = (scores_of("plain"), scores_of("treated"));
        let differences = [treated[0] - base[0], treated[1] - base[1]];
        assert_eq!(row["paired"], json!(differences), "{name}");
        assert_eq!(row["base"], json!((base[0] + base[1]) / 2.0), "{name}");
        assert_eq!(row["asked"], 3, "{name}");
        assert!(word != "bits_per_byte" || differences.iter().all(|d| *d != 0.0), "{row}");
    }
    let caption = results["comparisons"][0]["caption"].as_str().unwrap();
    assert!(caption.contains("Suites ask all seeds the same questions"), "{caption}");
    let wrong = both.replace("pick/acc", "other/acc");
    fs::write(workspace.path("recipes/wrong.toml"), wrong).unwrap();
    let output = workspace.exits(2, "build recipes/wrong.toml");
    assert!(output.contains("does not have the metric other/acc"), "{output}");
    assert!(output.contains("write/exact_match"), "{output}");
}

/// The run ends, attested as diverged. Until then no answer of its model is right.
#[test]
fn a_model_that_diverges_answers_nothing() {
    let workspace = with_suite();
    let good = fs::read_to_string(workspace.path("recipes/small.toml")).unwrap();
    let mut unstable = good.clone();
    for (from, to) in
        [("lr = 0.01", "lr = 1e18"), ("warmup = 2", "warmup = 0"), ("every = 3", "every = 1")]
    {
        assert!(unstable.contains(from), "{from}: {unstable}");
        unstable = unstable.replace(from, to);
    }
    fs::write(workspace.path("recipes/unstable.toml"), &unstable).unwrap();
    workspace.exits(0, "build -q recipes/unstable.toml");
    let output = workspace.exits(1, "run lockfiles/unstable.lock");
    assert!(output.contains("attested as diverged"), "{output}");
    for logged in evaluations(&workspace, "runs/unstable") {
        let score = |task: usize, word: &str| logged.suites[task].scores[word];
        assert!(score(0, "perplexity").is_nan(), "{logged:?}");
        for (task, word) in [(0, "acc"), (1, "acc"), (1, "acc_norm"), (3, "exact_match")] {
            assert_eq!(score(task, word), 0.0, "{word}: {logged:?}");
        }
    }
    workspace.exits(0, "verify runs/unstable");
}
