//! `canonc eval` as a process: its numbers are those of `forward` and `generate`; what it refuses.

use std::fs;
use std::path::Path;

use runtime::Tensor;
use runtime::weights::file;
use serde_json::{Value, json};

use crate::run_cli::answer::trained;
use crate::{ARCH, DEPO, Place, experiment};

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
delimiter = ""

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

/// A workspace with questions, a suite and weights, and the command that evaluates them.
fn with_suite() -> (Place, String) {
    let (workspace, weights) = trained();
    let line = |(given, next, other): (&str, &str, &str)| {
        json!({"given": given, "next": next, "other": other}).to_string() + "\n"
    };
    fs::write(workspace.path("q.jsonl"), QUESTIONS.map(line).concat()).unwrap();
    fs::write(workspace.path("s.toml"), SUITE).unwrap();
    (workspace, format!("eval lockfiles/small.lock --weights {weights} --suite s.toml"))
}

pub(super) fn results(workspace: &Place, words: &str) -> Value {
    let output = workspace.type_in(&format!("{words} --json"));
    assert_eq!(output.status.code(), Some(0), "{}", crate::said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn each(results: &Value, task: &str, metric: &str) -> Vec<f64> {
    let named = |list: &Value, key: &str, name: &str| {
        list.as_array().unwrap().iter().find(|item| item[key] == name).unwrap().clone()
    };
    let task = named(&results["tasks"], "name", task);
    serde_json::from_value(named(&task["metrics"], "metric", metric)["each"].clone()).unwrap()
}

/// The log-likelihood that `canonc forward` gives to the bytes of `text` after bos and `given`.
fn log_likelihood(workspace: &Place, weights: &str, given: &str, text: &str) -> f64 {
    let ids: Vec<i64> =
        [257].into_iter().chain(given.bytes().chain(text.bytes()).map(i64::from)).collect();
    let hidden = given.len();
    let targets: Vec<i64> = ids
        .iter()
        .skip(1)
        .enumerate()
        .map(|(at, id)| if at < hidden { -100 } else { *id })
        .collect();
    let row = |ids: &[i64]| Tensor::from_slice(ids).reshape([1, -1]);
    let (tokens, targets) = (row(&ids[..ids.len() - 1]), row(&targets));
    file::write(
        &workspace.path("t.safetensors"),
        &[("tokens", &tokens), ("targets", &targets)],
        None,
    )
    .unwrap();
    let output = workspace.exits(0, &format!("forward lockfiles/small.lock --weights {weights} --tokens t.safetensors --targets targets --out o.safetensors"));
    let mut words = output.split_whitespace().skip_while(|word| *word != "loss").skip(1);
    let loss: f64 = words.next().unwrap().parse().unwrap();
    -loss * text.len() as f64
}

#[test]
fn scores_are_those_of_forward_and_generate() {
    let (workspace, words) = with_suite();
    let scores = results(&workspace, &words);
    let weights = words.split_whitespace().nth(3).unwrap();
    for (number, (given, next, other)) in QUESTIONS.into_iter().enumerate() {
        let likelihood = |text: &str| log_likelihood(&workspace, weights, given, text);
        let (actual, expected) = (each(&scores, "next", "perplexity")[number], likelihood(next));
        assert!((actual - expected).abs() < 1e-4, "{actual} {expected}");
        let right = likelihood(next) >= likelihood(other);
        assert_eq!(each(&scores, "pick", "acc")[number] == 1.0, right);
        let output = workspace
            .command(&format!(
                "generate lockfiles/small.lock --weights {weights} --max-tokens 4 --temperature 0"
            ))
            .args(["--prompt", given])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = text.trim_end_matches('\n').split('q').next().unwrap().to_owned();
        assert_eq!(each(&scores, "write", "exact_match")[number] == 1.0, text == next);
    }
    // A limit takes the first questions, whose parts do not change.
    let fewer = results(&workspace, &format!("{words} --limit 2 --task next,text"));
    assert_eq!(fewer["tasks"].as_array().unwrap().len(), 2);
    assert_eq!(each(&fewer, "text", "bits_per_byte"), each(&scores, "text", "bits_per_byte")[..2]);
    // The table and the file have the same results.
    let output = workspace.exits(0, &format!("{words} --out scores.json"));
    assert!(output.contains("bits_per_byte"), "{output}");
    let written: Value =
        serde_json::from_str(&fs::read_to_string(workspace.path("scores.json")).unwrap()).unwrap();
    assert_eq!(written["tasks"], scores["tasks"]);
    assert_ne!(results(&workspace, &format!("{words} --no-bos"))["tasks"], scores["tasks"]);
}

#[test]
fn a_foreign_folder_is_a_model() {
    let (workspace, words) = with_suite();
    let weights = words.split_whitespace().nth(3).unwrap();
    workspace
        .exits(0, &format!("export lockfiles/small.lock --weights {weights} --to hf --out hf"));
    let ours = results(&workspace, &words);
    let theirs = results(&workspace, "eval hf --suite s.toml --max-length 200");
    assert_eq!(theirs["model"]["weights"], ours["model"]["weights"]);
    // The exported tokenizer begins a text as the run's does.
    assert_eq!(theirs["tasks"], ours["tasks"]);
    let plain = results(&workspace, &format!("{words} --no-bos"));
    let theirs = results(&workspace, "eval hf --suite s.toml --max-length 200 --no-bos");
    assert_eq!(theirs["tasks"], plain["tasks"]);
    let output = workspace.exits(2, "eval hf --suite s.toml --arch other");
    assert!(output.contains("has one arch") && output.contains("remove --arch"), "{output}");
}

#[test]
fn a_folder_with_an_arch_of_its_own_is_a_model() {
    let (workspace, _) = with_suite();
    let archs = format!("{ARCH}arch own = small_text with {{ canon A }}\n");
    fs::write(workspace.path("own.canon"), archs).unwrap();
    let data = DEPO.split("[data]\n").nth(1).unwrap().split("[batch]").next().unwrap();
    let recipe = DEPO.replace(data, "multihop.N = 2\nmultihop.hops = 1\nseq_len = 200\n");
    fs::write(workspace.path("own.toml"), format!("arch = \"own.canon#own\"\n{recipe}")).unwrap();
    workspace.exits(0, "build -q own.toml");
    workspace.exits(0, "run lockfiles/own.lock");
    workspace.exits(0, "export runs/own --to hf --out hf");
    assert!(workspace.path("hf/arch.canon").is_file());
    let ours = results(&workspace, "eval runs/own --suite s.toml");
    let theirs = results(&workspace, "eval hf --suite s.toml --max-length 200");
    assert_eq!(theirs["tasks"], ours["tasks"]);
    for member in ["graph", "weights"] {
        assert_eq!(theirs["model"][member], ours["model"][member]);
    }
    let lock = fs::read_to_string(workspace.path("lockfiles/own.lock")).unwrap();
    let id = ours["model"]["lock"].as_str().unwrap();
    assert!(lock.contains(&format!("train = \"{id}\"")), "{ours}");
    assert_eq!(theirs["model"]["lock"], Value::Null);
}

/// Gemma 2's norms store their weight minus one, which import adds.
#[test]
fn weights_are_converted_as_import_converts_them() {
    let (workspace, _) = with_suite();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/stock/gemma2");
    fs::create_dir(workspace.path("gemma2")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden.join(file), workspace.path(&format!("gemma2/{file}"))).unwrap();
    }
    let vocab: serde_json::Map<String, Value> = ["?", "a", "b", "c", "d"]
        .iter()
        .zip(0..)
        .map(|(word, id)| (word.to_string(), json!(id)))
        .collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "?"},
    });
    fs::write(workspace.path("gemma2/tokenizer.json"), tokenizer.to_string()).unwrap();
    let line =
        |given, next, other| json!({"given": given, "next": next, "other": other}).to_string();
    let questions = [line("a b", " c", " d"), line("d d a", " b", " c")].join("\n");
    fs::write(workspace.path("q.jsonl"), questions).unwrap();
    workspace.exits(0, "import gemma2 --out in --name model");
    let task = "--suite s.toml --task next,pick --max-length 8";
    let imported = format!(
        "eval in/arch/model.canon --weights in/weights.safetensors --tokenizer-file gemma2/tokenizer.json {task}"
    );
    let (theirs, ours) =
        (results(&workspace, &format!("eval gemma2 {task}")), results(&workspace, &imported));
    assert_eq!(theirs["tasks"], ours["tasks"]);
    assert_eq!(theirs["model"]["weights"], ours["model"]["weights"]);
}

fn names(results: &Value) -> Vec<&str> {
    let tasks = results["tasks"].as_array().unwrap();
    tasks.iter().map(|task| task["name"].as_str().unwrap()).collect()
}

#[test]
fn a_suite_is_asked_at_each_length() {
    let (workspace, words) = with_suite();
    let default = results(&workspace, &words);
    let by_length = results(&workspace, &format!("{words} --task next,text --lengths 8,200"));
    assert_eq!(names(&by_length), ["next@8", "text@8", "next@200", "text@200"]);
    assert_eq!(by_length["settings"]["max_length"], 200);
    // The lock's windows have 200 tokens.
    assert_eq!(
        each(&by_length, "text@200", "bits_per_byte"),
        each(&default, "text", "bits_per_byte")
    );
    assert_eq!(each(&by_length, "next@200", "perplexity"), each(&default, "next", "perplexity"));
    assert_ne!(
        each(&by_length, "text@8", "bits_per_byte"),
        each(&default, "text", "bits_per_byte")
    );
    // Needles: generated, by length and depth.
    let needle = words.replace("s.toml", "needle --lengths 300,400 --depths 0,100 --count 2");
    let needles = results(&workspace, &needle);
    let expected = ["needle-300-0", "needle-300-100", "needle-400-0", "needle-400-100"];
    assert_eq!(names(&needles), expected);
    assert_eq!(needles["tasks"][0]["count"], 2);
    assert_eq!(each(&needles, "needle-400-0", "exact_match"), [0.0, 0.0]);
    assert_eq!(results(&workspace, &needle)["tasks"], needles["tasks"]);
    let reseeded = results(&workspace, &format!("{needle} --seed 1"));
    assert_ne!(reseeded["tasks"][0]["questions"], needles["tasks"][0]["questions"]);
    for (more, expected) in [
        ("needle --lengths 40", "40 tokens are too few for the question alone"),
        ("needle --shots 1", "--shots has no effect with --suite needle"),
        ("needle --set data.seq_len=8", "--set has no effect"),
        ("s.toml --depths 5", "--depths has no effect with --suite s.toml"),
        ("task --limit 1", "--limit has no effect with --suite task"),
    ] {
        let output = workspace.exits(2, &words.replace("s.toml", more));
        assert!(output.contains(expected), "{more}: {output}");
    }
}

#[test]
fn a_runs_own_metrics_are_those_of_its_log_and_can_be_measured_on_other_data() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run --lock lockfiles/small.lock");
    let log = fs::read_to_string(workspace.path("runs/small/metrics.jsonl")).unwrap();
    let logged: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let value = |results: &Value, metric: &str| -> f64 {
        let metrics = results["tasks"][0]["metrics"].as_array().unwrap();
        metrics.iter().find(|row| row["metric"] == metric).unwrap()["value"].as_f64().unwrap()
    };
    let measured = results(&workspace, "eval runs/small --suite task");
    assert_eq!(names(&measured), ["depo"]);
    assert_eq!(json!(value(&measured, "eval_loss")), logged["eval_loss"]);
    let share = |score: &Value| score["right"].as_f64().unwrap() / score["of"].as_f64().unwrap();
    assert_eq!(value(&measured, "token_accuracy"), share(&logged["token_accuracy"]));
    assert_eq!(value(&measured, "exact_match"), share(&logged["exact_match"]["1"]));
    assert_eq!(measured["tasks"][0]["questions"], logged["questions"]["asked"]);
    // Longer windows and more of them, as a lock with them would evaluate.
    let longer_windows = "eval runs/small --suite task --lengths 24,48 --set evaluation.windows=4";
    let longer = results(&workspace, longer_windows);
    assert_eq!(names(&longer), ["depo@24", "depo@48"]);
    assert_ne!(longer["tasks"][0]["questions"], measured["tasks"][0]["questions"]);
    let count = |at: usize| longer["tasks"][at]["count"].as_u64().unwrap();
    assert!(count(1) > count(0), "{longer}");
    for (more, expected) in [
        ("--set optimizer.lr=1", "`optimizer.lr` is not a field of the data or the evaluation"),
        ("--set data.seq_len", "it has no `=`"),
        ("--set data.seq_len=\"x\"", "is not an integer"),
        ("--lengths 2", "too short for the first answer"),
        ("--lengths 24 --set data.seq_len=24", "data.seq_len has no effect with --lengths"),
        (
            "--set evaluation.suites=[\"s.toml\"]",
            "evaluation.suites has no effect with --suite task",
        ),
        ("--set evaluation.suite_tasks=[\"a\"]", "evaluation.suite_tasks has no effect with"),
    ] {
        let output = workspace.exits(2, &format!("eval runs/small --suite task {more}"));
        assert!(output.contains(expected), "{more}: {output}");
    }
    let output = workspace.exits(2, "eval runs/small --suite needle");
    assert!(
        output.contains("tokens that are not text") && output.contains("--suite task"),
        "{output}"
    );
}

/// A run's own metrics need no tokenizer, which the documents have already been through; suites do.
#[test]
fn a_run_with_a_trained_tokenizer_is_measured_without_its_file() {
    let workspace = Place::empty();
    let archs = format!("{ARCH}arch trained = small with {{ vocab 816 }}\n");
    fs::write(workspace.path("archs.canon"), archs).unwrap();
    let task = DEPO.find("task").unwrap()..DEPO.find("seq_len").unwrap();
    let mut recipe = DEPO.to_owned();
    let data = "task = \"text\"\nsource = \"web\"\nheld_out = 0.25\ntokenizer = \"tiktoken\"\ntokenizer_vocab = 816\n";
    recipe.replace_range(task, data);
    fs::write(workspace.path("text.toml"), format!("arch = \"archs.canon#trained\"\n{recipe}"))
        .unwrap();
    let documents = (0..40).map(|i| format!("{{\"text\": \"The document number {i}\"}}\n"));
    fs::write(workspace.path("a.jsonl"), documents.collect::<String>()).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizers/llama3.model");
    let file = format!("--tokenizer-file {}", golden.display());
    fs::create_dir(workspace.path("data")).unwrap();
    workspace.exits(0, "build -q text.toml");
    workspace.exits(
        0,
        &format!("data prepare a.jsonl --out data/web.index --tokenizer tiktoken {file}"),
    );
    workspace.exits(0, "bind lockfiles/text.lock --data data/web.index");
    workspace.exits(0, "run lockfiles/text.lock");
    let log = fs::read_to_string(workspace.path("runs/text/metrics.jsonl")).unwrap();
    let logged: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let measured = results(&workspace, "eval runs/text --suite task");
    assert_eq!(measured["tasks"][0]["metrics"][0]["value"], logged["eval_loss"]);
    let output = workspace.exits(2, "eval runs/text --suite needle --lengths 400");
    assert!(
        output.contains("needs a file") && output.contains("--tokenizer-file FILE"),
        "{output}"
    );
}

#[test]
fn what_cannot_be_evaluated_is_refused() {
    let (workspace, words) = with_suite();
    let cases = [
        ("--task nothing", "`s.toml` has no task `nothing`"),
        ("--data nowhere", "the questions cannot be read"),
        ("--max-length 4 --task write", "leaves no room for a prompt"),
        ("--max-length 3", "what is scored has 5 tokens"),
        ("--shots 3", "3 examples are wanted, but `q.jsonl` has 2 besides the question"),
        ("--shots 1 --task text", "which have no examples"),
        ("--out runs/small/scores.json", "is inside the run"),
    ];
    for (more, expected) in cases {
        let output = workspace.exits(2, &format!("{words} {more}"));
        assert!(output.contains(expected), "{more}: {output}");
    }
    fs::write(workspace.path("q.jsonl"), "{\"given\": \"a\"}\n").unwrap();
    let output = workspace.exits(2, &words);
    assert!(output.contains("q.jsonl:1") && output.contains("help: "), "{output}");
    // A question that has no tokens to ask is named by its line, with what fits the cause.
    fs::write(workspace.path("q.jsonl"), "\n{\"given\": \"a\", \"next\": \"bcdefgh\"}\n").unwrap();
    let output = workspace.exits(2, &format!("{words} --task next --max-length 3"));
    assert!(output.contains("q.jsonl:2: task `next`: what is scored has 7 tokens"), "{output}");
    assert!(output.contains("help: shorten the answer, or use a longer input"), "{output}");
    let output = workspace.exits(2, &words.replace("s.toml", "release"));
    assert!(output.contains("needs your own copies"), "{output}");
    assert!(workspace.exits(0, "eval --suite release --list").contains("wikitext.jsonl"));
}
