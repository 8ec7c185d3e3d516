//! Runs on documents and on the other tasks and orders.

use std::io::{Cursor, Write};
use std::sync::Arc;

use compiler::digest::Digest;
use compiler::field::{FieldValue, Fields};
use compiler::lock::Experiment;
use runtime::data::text::index::{OnBadLine, SourceFiles, TextIndex};
use runtime::metrics::Record;
use runtime::run::Kind;

use super::support::*;

const LAST: u64 = 8;

fn documents(count: usize) -> Arc<TextIndex> {
    let lines: String = (0..count)
        .map(|i| format!("{{\"text\": \"document {i} of {count}, {}\"}}\n", i * i))
        .collect();
    let files = vec![SourceFiles {
        name: "small".to_owned(),
        files: vec![("memory".to_owned(), Cursor::new(lines))],
    }];
    Arc::new(TextIndex::build(files, OnBadLine::Refuse).unwrap().0)
}

fn text_recipe() -> String {
    let task = DEPO.find("task").unwrap()..DEPO.find("seq_len").unwrap();
    let mut text = DEPO.to_owned();
    text.replace_range(task, "task = \"text\"\nsource = \"small\"\nheld_out = 0.25\n");
    text
}

fn bound(index: &TextIndex) -> Experiment {
    let open = experiment("small_text", &text_recipe(), &[]);
    let digest = Digest::parse(&index.identity().to_hex()).unwrap();
    let values = Fields::from([("data.digest".to_owned(), FieldValue::text(digest.to_string()))]);
    open.with("small".to_owned(), &values).unwrap()
}

#[test]
fn a_run_on_documents_is_cut_and_gone_on_with() {
    let index = documents(40);
    let experiment = bound(&index);
    let folder = || {
        let mut folder = Folder::new();
        folder.documents = Some(index.clone());
        folder
    };
    let (straight, cut) = (folder(), folder());
    straight.finish(&experiment);
    cut.stop_at(&experiment, 5);
    cut.finish(&experiment);
    assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
    let Some(Record::Evaluation(evaluation)) = straight.records().pop() else { panic!() };
    assert!(evaluation.nll.is_some() && evaluation.answers.is_empty() && evaluation.tokens.of == 0);
}

#[test]
fn documents_that_drifted_are_a_finding() {
    let experiment = bound(&documents(40));
    let mut folder = Folder::new();
    folder.documents = Some(documents(41));
    let error = folder.fails(&experiment);
    assert_eq!(error.kind, Kind::Finding);
    assert!(error.message.contains("are not those that were locked"), "{error}");
    folder.documents = None;
    assert!(folder.fails(&experiment).help.contains("--data"));
    let open = self::experiment("small_text", &text_recipe(), &[]);
    assert!(folder.fails(&open).help.contains("canonc bind"));
    assert!(!folder.path().exists(), "nothing is made for a run that cannot begin");
}

#[test]
fn the_published_order_is_walked_again_after_a_stop() {
    let experiment = depo(&[("ids = \"dense\"", "ids = \"dense\"\norder = \"published\"")]);
    let (straight, cut) = (Folder::finished(&experiment), Folder::new());
    cut.stop_at(&experiment, 4);
    cut.finish(&experiment);
    assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
    assert_ne!(
        steps(&straight.records())[0].batch,
        steps(&Folder::finished(&depo(&[])).records())[0].batch
    );
}

#[test]
fn mano_runs_and_reports_values() {
    let task = DEPO.find("task").unwrap()..DEPO.find("ids").unwrap();
    let mut text = DEPO.to_owned();
    text.replace_range(task, "task = \"mano\"\nL = 2\nvalue_mod = 3\nknowledge_augment = false\n");
    let experiment = experiment("small", &text, &[]);
    let folder = Folder::finished(&experiment);
    let Some(Record::Evaluation(evaluation)) = folder.records().pop() else { panic!() };
    // Tests are all of the largest size; a value is one token.
    assert_eq!(evaluation.answers.keys().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(evaluation.exact(), evaluation.tokens);
    assert!(evaluation.exact().of > 0);
}

#[test]
fn only_what_is_asked_for_is_reported() {
    let windows = "windows = 3\nmetrics = [\"token_accuracy\"]";
    let folder = Folder::finished(&depo(&[("windows = 3", windows)]));
    let Some(Record::Evaluation(evaluation)) = folder.records().pop() else { panic!() };
    assert!(evaluation.nll.is_none() && evaluation.answers.is_empty() && evaluation.tokens.of > 0);
}

/// Windows so short that whole steps reach no answer.
pub(crate) const SHORT: [(&str, &str); 4] = [
    ("seq_len = 32", "seq_len = 13"),
    ("sequences = 2", "sequences = 1"),
    ("micro_batches = 2", "micro_batches = 1"),
    ("windows = 3", "windows = 1"),
];

#[test]
fn a_step_without_counted_targets_stops_the_run_and_has_no_loss() {
    let experiment = depo(&SHORT);
    let folder = Folder::new();
    let error = folder.fails(&experiment);
    assert_eq!(error.kind, Kind::Finding, "{error}");
    assert!(error.help.contains("data.seq_len") && error.help.contains("data.loss_on"), "{error}");
    let Some(Record::Step(step)) = folder.records().pop() else { panic!("{error}") };
    assert_eq!((step.loss, step.counted), (None, 0));
    let said =
        format!("step {} has no loss: not one target counts, since its window of 13", step.step);
    assert!(error.message.starts_with(&said), "{error}");
    assert!(!folder.paths().attestation().exists());
    // It is no matter of luck: gone on with, it stops there again.
    assert_eq!(folder.fails(&experiment), error);
    // A log that an older canonc wrote has 0 there. It can be read, and the reason is not that it differs.
    let text = std::fs::read_to_string(folder.paths().metrics()).unwrap();
    let path = folder.paths().metrics();
    std::fs::remove_file(&path).unwrap();
    let mut before = String::new();
    for line in text.lines() {
        let body = line.split(",\"chain\"").next().unwrap().replace("null", "0.0");
        let head = Digest::of("canonc.metrics.v1", &format!("{before}\n{body}}}"));
        before = head.to_string();
        let line = format!("{body},\"chain\":\"{head}\"}}\n");
        append(&path, &line);
    }
    std::fs::remove_dir_all(folder.paths().checkpoints()).unwrap();
    let Some(Record::Step(step)) = folder.records().pop() else { panic!("the last line") };
    assert_eq!(step.loss, None);
    assert_eq!(folder.fails(&experiment), error);
    // As the message says.
    Folder::finished(&depo(
        &[&SHORT[..], &[("ids = \"dense\"", "ids = \"dense\"\nloss_on = \"all\"")]].concat(),
    ));
}

fn append(path: &std::path::Path, line: &str) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
