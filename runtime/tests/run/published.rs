//! The release's 64 experiments, shrunk: their own recipes and archs with small widths, a few documents and two steps.

use std::sync::Arc;

use compiler::program::{Program, Std};
use data::text::index::TextIndex;
use lab::experiment::Experiment;
use lab::field::{FieldValue, Fields};
use records::metrics::Record;

use super::support::*;

/// The recipe on bytes, which are its tokens by default.
fn small_recipe(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("tokenizer"));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

/// Two steps of short windows on this machine.
fn small(open: &Experiment, documents: &TextIndex) -> Experiment {
    let values = Fields::from(
        [
            ("data.digest", digest_of(documents)),
            ("data.seq_len", FieldValue::Int(32)),
            ("batch.sequences", FieldValue::Int(2)),
            ("batch.tokens_per_step", FieldValue::Int(128)),
            ("budget.steps", FieldValue::Int(2)),
            ("schedule.warmup", FieldValue::Int(1)),
            ("platform.device", FieldValue::text("cpu".to_owned())),
            ("platform.devices", FieldValue::Int(1)),
            ("platform.threads", FieldValue::Int(1)),
        ]
        .map(|(path, value)| (path.to_owned(), value)),
    );
    open.with(open.name.clone(), &values).unwrap_or_else(|why| panic!("{}: {why:?}", open.name))
}

/// Some documents of the recipe's source.
fn documents(recipe: &str) -> Arc<TextIndex> {
    let name = recipe.lines().find_map(|line| line.strip_prefix("source = ")).unwrap();
    let lines: String = (0..40)
        .map(|i| format!("{{\"text\": \"{}\"}}\n", "a few words, ".repeat(1 + i % 7)))
        .collect();
    index_of(name.trim_matches('"'), lines)
}

/// All experiments, each with documents.
fn experiments() -> Vec<(Experiment, Arc<TextIndex>)> {
    let archs = support::programs::files("arch", ".canon").into_iter().map(|file| {
        let name = file.rsplit('/').next().unwrap().to_owned();
        (name, support::archs::small(&support::programs::read(&file)))
    });
    let program = Program::new(archs, Std::Embedded);
    let mut all = Vec::new();
    let recipes = support::programs::files("recipes/published", ".toml");
    for name in recipes.iter().filter(|name| !name.contains("twins")) {
        let text = small_recipe(&support::programs::read(name));
        let index = documents(&text);
        let experiments = support::experiments::experiments(&program, "small", name, &text);
        let experiments = experiments.unwrap_or_else(|findings| panic!("{findings}"));
        all.extend(experiments.iter().map(|open| (small(open, &index), index.clone())));
    }
    all
}

#[test]
fn every_published_experiment_trains_in_bf16() {
    let experiments = experiments();
    assert_eq!(experiments.len(), 64);
    for (experiment, documents) in &experiments {
        let mut folder = Folder::new();
        folder.documents = Some(documents.clone());
        folder.finish(experiment);
        let text = std::fs::read_to_string(folder.paths().plan()).unwrap();
        assert!(text.contains("bf16[b, t, "), "{}", experiment.name);
        let losses = folder.records().into_iter().filter_map(|record| match record {
            Record::Step(step) => step.loss,
            Record::Start(_) | Record::Evaluation(_) => None,
        });
        let losses: Vec<f64> = losses.collect();
        // Near ln 258 at the start.
        assert!(losses.len() == 2, "{}: {losses:?}", experiment.name);
        assert!(losses.iter().all(|loss| (4.0..8.0).contains(loss)), "{losses:?}");
    }
}
