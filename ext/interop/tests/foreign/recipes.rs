//! The release's 64 recipes as YAML: imported, exported and imported again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use interop::dtype::Dtype;
use interop::export::{self, To};
use interop::import::{Imported, Request, identifier, read};
use interop::node::{Node, NodeValue};
use interop::{training, yaml};
use lab::experiment::{Experiment, LockedArch};
use lab::recipe;

type RecipeRow = BTreeMap<String, String>;

fn rows() -> Vec<RecipeRow> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/published/data/recipes.tsv");
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split('\t').collect();
    lines
        .map(|line| {
            let cells = line.split('\t').map(str::to_owned);
            names.iter().map(|name| (*name).to_owned()).zip(cells).collect()
        })
        .collect()
}

/// The published file of a row: its keys from `steps` on, and the keys that the table omits.
fn published(row: &RecipeRow) -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/published/data/recipes.tsv");
    let text = fs::read_to_string(path).unwrap();
    let names: Vec<&str> = text.lines().next().unwrap().split('\t').collect();
    let keys = &names[names.iter().position(|name| *name == "steps").unwrap()..];
    let text = |text: &str| NodeValue::Text(text.to_owned());
    let mut root = Vec::new();
    for key in keys {
        let cell = row[*key].as_str();
        // `probe_freq: null` and `validation: null` are in every file; other empty cells are absent keys.
        let value = match (*key, cell) {
            ("probe_freq" | "eval.validation", "") => NodeValue::Null,
            (_, "") => continue,
            ("eval.harness.tasks", tasks) => NodeValue::List(tasks.split(',').map(task).collect()),
            (_, "True") => NodeValue::Bool(true),
            (_, "False") => NodeValue::Bool(false),
            (_, cell) if cell.parse::<f64>().is_ok() => NodeValue::Number(cell.to_owned()),
            (_, cell) => text(cell),
        };
        training::put(&mut root, key, value);
    }
    let source = row["data_source"].rsplit("::").next().unwrap();
    let one = Node { value: NodeValue::Number("1.0".to_owned()), line: 0 };
    training::put(&mut root, "data.sources", NodeValue::Map(vec![(source.to_owned(), one)]));
    training::put(&mut root, "name", text("<placeholder>"));
    training::put(&mut root, "logging.wandb.entity", text("<placeholder>"));
    yaml::write(&NodeValue::Map(root))
}

fn task(name: &str) -> Node {
    let mut entry = Vec::new();
    if ["boolq", "social_iqa", "lambada_openai"].contains(&name) {
        training::put(&mut entry, "task", NodeValue::Text(name.to_owned()));
        training::put(&mut entry, "dataset_kwargs.trust_remote_code", NodeValue::Bool(true));
    }
    if name == "lambada_openai" {
        let mut metric = Vec::new();
        training::put(&mut metric, "metric", NodeValue::Text("acc".to_owned()));
        training::put(&mut metric, "aggregation", NodeValue::Text("mean".to_owned()));
        training::put(&mut metric, "higher_is_better", NodeValue::Bool(true));
        let metric = Node { value: NodeValue::Map(metric), line: 0 };
        training::put(&mut entry, "metric_list", NodeValue::List(vec![metric]));
    }
    let value =
        if entry.is_empty() { NodeValue::Text(name.to_owned()) } else { NodeValue::Map(entry) };
    Node { value, line: 0 }
}

fn experiment(name: &str, imported: &Imported) -> Experiment {
    let text = imported.recipe().unwrap();
    let arch = Rc::new(LockedArch::new(&imported.compiled).unwrap());
    let mut sources = dsl::Sources::new();
    let file = sources.add("recipes/r.toml", &text);
    let (recipe, diagnostics) = recipe::read(&sources, file);
    let recipe =
        recipe.unwrap_or_else(|| panic!("{name}: {}", dsl::render(&sources, &diagnostics)));
    let (mut experiments, diagnostics) = recipe.experiments(name, "", &|_| Some(Rc::clone(&arch)));
    assert!(diagnostics.is_empty(), "{name}: {}", dsl::render(&sources, &diagnostics));
    experiments.remove(0)
}

fn import(path: &Path, name: &str, devices: Option<i64>) -> Imported {
    let name = identifier(name);
    let request = Request { source: path, name: Some(&name), devices, weights: true };
    read(&request).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn export(imported: &Imported, experiment: &Experiment, to: To, out: &Path) {
    let request = export::Request {
        compiled: &imported.compiled,
        experiment: Some(experiment),
        weights: None,
        to,
        dtype: Dtype::F32,
        gpus_per_node: 8,
        ranks: None,
        comparison: None,
        origin: None,
        tokenizer: Err("No tokenizer is in this folder."),
        imported_text: None,
        initial: None,
    };
    export::write(&request, out).unwrap_or_else(|error| panic!("{error}"));
}

/// Parameters of each recipe, as instantiated from the reference.
fn counts() -> BTreeMap<String, i64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/param_counts.tsv");
    let text = fs::read_to_string(path).unwrap();
    let cells = text.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    cells.map(|cells| (cells[0].to_owned(), cells[1].parse().unwrap())).collect()
}

#[test]
fn the_64_recipes_are_equal_after_import_export_and_import() {
    let rows = rows();
    assert_eq!(rows.len(), 64);
    let counts = counts();
    for row in &rows {
        let name = &row["model"];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("published.yaml");
        fs::write(&path, published(row)).unwrap();
        let devices = row["gpus_from_comment"].parse().unwrap();
        let first = import(&path, name, Some(devices));
        let before = experiment(name, &first);
        let field = |path: &str| before.value(path).unwrap().to_string();
        assert_eq!(field("batch.tokens_per_step"), row["tokens_per_step"], "{name}");
        assert_eq!(before.budget.tokens.to_string(), row["tokens_total"], "{name}");
        assert_eq!(before.analysis.parameters, counts[name], "{name}");
        let out = dir.path().join("lingua");
        export(&first, &before, To::Lingua, &out);
        for file in ["recipe.yaml", "default/params.json"] {
            // No --devices: the keys now give the number.
            let again = import(&out.join(file), name, None);
            assert_eq!(first.training, again.training, "{name} {file}");
            assert_eq!(
                first.compiled.identity.graph, again.compiled.identity.graph,
                "{name} {file}"
            );
            assert_eq!(
                first.compiled.identity.manifest, again.compiled.identity.manifest,
                "{name}"
            );
            assert_eq!(before.id(), experiment(name, &again).id(), "{name} {file}");
            // It is the same experiment as in our lock.
            let path = format!("{}/../../lockfiles/{name}.lock", env!("CARGO_MANIFEST_DIR"));
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(&format!("train = \"{}\"", before.id())), "{name}");
        }
        export(&first, &before, To::LinguaSlurm, &dir.path().join("slurm"));
        let script = fs::read_to_string(dir.path().join("slurm/launch.sh")).unwrap();
        assert!(script.contains(&format!("--nodes={}\n", devices / 8)), "{script}");
        assert!(script.contains(&format!("expected={devices}\n")), "{script}");
        export(&first, &before, To::Card, &dir.path().join("card"));
        let card = fs::read_to_string(dir.path().join("card/README.md")).unwrap();
        assert!(card.contains("has no digest") && !card.contains("{{"), "{card}");
    }
}

#[test]
fn a_recipe_that_does_not_say_its_devices_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.yaml");
    let text = published(&rows()[0]);
    fs::write(&path, &text).unwrap();
    let error = read(&Request { source: &path, name: None, devices: None, weights: true })
        .unwrap_err()
        .to_string();
    assert!(error.contains("no key determines the tokens of a step"), "{error}");
    assert!(error.contains("--devices 128"), "{error}");
    // The keys give the number, and the command line another one.
    fs::write(&path, format!("{text}\nx: 1\n")).unwrap();
    let error = read(&Request { source: &path, name: None, devices: Some(128), weights: true })
        .unwrap_err();
    assert!(error.message.contains("`x` is 1, and this key is unknown"), "{error}");
    fs::write(&path, text.replace("  tp_size: 1\n", "  tp_size: 1\n  dp_shard: 64\n")).unwrap();
    let error = read(&Request { source: &path, name: None, devices: Some(128), weights: true })
        .unwrap_err();
    assert!(error.message.contains("there are 64 devices, and --devices is 128"), "{error}");
}

/// The trainer builds a Mamba2 like the published class; no key can change its epsilon.
#[test]
fn a_mamba2_that_the_trainer_would_build_otherwise_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.yaml");
    let all = rows();
    let row = all.iter().find(|row| row["model"].starts_with("Mamba2Canon-1B")).unwrap();
    fs::write(&path, published(row)).unwrap();
    let mut imported = import(&path, "m", Some(128));
    for (from, to, wanted) in [
        ("norm_eps 1e-5", "norm_eps 1e-6", "`norm_eps` is 1e-6, but it loads 1e-5"),
        ("state 128", "state 32", "`state` is 32"),
    ] {
        let text = imported.text.replace(from, to);
        assert_ne!(text, imported.text, "{from}");
        imported.compiled = interop::arch::compile("m", &text).unwrap();
        let experiment = experiment("m", &imported);
        let request = export::Request {
            compiled: &imported.compiled,
            experiment: Some(&experiment),
            weights: None,
            to: To::LinguaSlurm,
            dtype: Dtype::F32,
            gpus_per_node: 8,
            ranks: None,
            comparison: None,
            origin: None,
            tokenizer: Err("No tokenizer is in this folder."),
            imported_text: None,
            initial: None,
        };
        let out = dir.path().join("out");
        let error = export::write(&request, &out).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        assert!(!out.exists());
    }
}

#[test]
fn what_lingua_cannot_train_is_refused_by_its_field() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.yaml");
    fs::write(&path, published(&rows()[0])).unwrap();
    let imported = import(&path, "r", Some(128));
    let good = imported.recipe().unwrap();
    for (from, to, wanted) in [
        (
            "kind = \"cosine\"",
            "kind = \"cosine\"\n[optimizer]\ndecay = \"matrices\"",
            "optimizer.decay",
        ),
        ("kind = \"cosine\"", "kind = \"wsd\"\ndecay = \"linear\"", "schedule.decay"),
        ("devices = 128", "devices = 48", "not a multiple of the devices"),
        ("devices = 128", "fuse = true", "a launch needs the number of devices"),
        ("held_out = 0", "held_out = 0.1", "hold none out"),
        ("nll_square = 1e-4", "nll_square = 1e-3", "loss.nll_square"),
    ] {
        let mut text = good.replace(from, to);
        assert_ne!(text, good, "{from}");
        if to.contains("[optimizer]") {
            text = good.replace("[optimizer]\n", "[optimizer]\ndecay = \"matrices\"\n");
        }
        if to.contains("wsd") {
            text = text.replace("theta = 1\n", "");
        }
        if to.contains("held_out") {
            text = text.replace("metrics = []", "metrics = [\"eval_loss\"]");
        }
        let arch = Rc::new(LockedArch::new(&imported.compiled).unwrap());
        let mut sources = dsl::Sources::new();
        let file = sources.add("recipes/r.toml", &text);
        let (recipe, diagnostics) = recipe::read(&sources, file);
        let recipe = recipe.unwrap_or_else(|| panic!("{}", dsl::render(&sources, &diagnostics)));
        let (experiments, diagnostics) = recipe.experiments("r", "", &|_| Some(Rc::clone(&arch)));
        let experiment = experiments
            .first()
            .unwrap_or_else(|| panic!("{}", dsl::render(&sources, &diagnostics)));
        let request = export::Request {
            compiled: &imported.compiled,
            experiment: Some(experiment),
            weights: None,
            to: To::Lingua,
            dtype: Dtype::F32,
            gpus_per_node: 8,
            ranks: None,
            comparison: None,
            origin: None,
            tokenizer: Err("No tokenizer is in this folder."),
            imported_text: None,
            initial: None,
        };
        let out = dir.path().join("out");
        let error = export::write(&request, &out).unwrap_err().to_string();
        assert!(error.contains(wanted), "{to}: {error}");
        assert!(!out.exists());
    }
}
