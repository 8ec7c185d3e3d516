//! Runs on documents and on the other tasks and orders.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use compiler::digest::Digest;
use data::text::file;
use data::text::index::{OnBadLine, TextIndex};
use data::text::lines::Field;
use data::text::prepare::{Input, Plain, Request, SourceInput, prepare};
use data::text::tokenizer::Tokenizer;
use dsl::{Problem, ProblemKind};
use lab::experiment::{Experiment, Shard};
use lab::field::{FieldValue, Fields};
use records::fault::Faults;
use records::metrics::{Evaluation, Record, Step};
use records::run::Event;
use runtime::ranks::simulated::with_ranks;
use runtime::ranks::{Collectives, Member};
use runtime::train::{Observer, Options, TrainOutcome, follow, machine, train};

use super::support::*;

const LAST: u64 = 8;

fn documents(count: usize) -> Arc<TextIndex> {
    let lines: String = (0..count)
        .map(|i| format!("{{\"text\": \"document {i} of {count}, {}\"}}\n", i * i))
        .collect();
    index_of("small", lines)
}

fn text_recipe() -> String {
    let task = DEPO.find("task").unwrap()..DEPO.find("seq_len").unwrap();
    let mut text = DEPO.to_owned();
    text.replace_range(task, "task = \"text\"\nsource = \"small\"\nheld_out = 0.25\n");
    text
}

fn bound(index: &TextIndex) -> Experiment {
    let open = experiment("small_text", &text_recipe(), &[]);
    let values = Fields::from([("data.digest".to_owned(), digest_of(index))]);
    open.with("small".to_owned(), &values).unwrap()
}

#[test]
fn a_run_on_documents_resumes_after_an_interruption() {
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

/// Forty documents of one letter each. With consecutive windows a batch is one document, the loss on it falls to
/// nothing and jumps at the next one, and a model knows only the last document when held-out ones are measured.
#[test]
fn documents_of_one_letter_each_train_without_swings() {
    let lines: String = (0..40u8)
        .map(|i| format!("{{\"text\": \"{}\"}}\n", char::from(b'A' + i).to_string().repeat(700)))
        .map(|line| line.replace('\\', "z"))
        .collect();
    let index = index_of("small", lines);
    let losses = |shuffle: &str| {
        let recipe =
            text_recipe().replace("held_out", &format!("shuffle = \"{shuffle}\"\nheld_out"));
        let changes = [
            ("steps = 8", "steps = 240"),
            ("sequences = 2", "sequences = 4"),
            ("lr = 0.01", "lr = 0.02"),
        ];
        let open = experiment("small_text", &recipe, &changes);
        let digest = FieldValue::text(index.identity().to_hex().to_string());
        let values = Fields::from([("data.digest".to_owned(), digest)]);
        let bound = open.with("small".to_owned(), &values).unwrap();
        let mut folder = Folder::new();
        folder.documents = Some(index.clone());
        folder.finish(&bound);
        let steps = folder.records().into_iter().filter_map(|record| match record {
            Record::Step(step) => step.loss,
            Record::Start(_) | Record::Evaluation(_) => None,
        });
        steps.collect::<Vec<f64>>()
    };
    // From one step to the next, after the easiest part is learned.
    let leap = |losses: &[f64]| {
        losses[120..].windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f64::max)
    };
    let (windows, documents) = (losses("windows"), losses("documents"));
    assert!(leap(&documents) > 2.0, "{}", leap(&documents));
    assert!(leap(&windows) < 1.0, "{}", leap(&windows));
}

#[test]
fn replaced_tokens_are_found_before_a_run_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.index");
    prepared(&path, 40);
    let good = Arc::new(file::load(&path).unwrap());
    let experiment = bound(&good);
    let mut run = Folder::new();
    run.documents = Some(good.clone());
    run.stop_at(&experiment, 5);
    // Other documents of the same lengths, in a file that is consistent in itself.
    let other = folder.path().join("other.index");
    let lines = folder.path().join("other.jsonl");
    let texts = std::fs::read_to_string(path.with_extension("jsonl")).unwrap();
    std::fs::write(&lines, texts.replace("document", "DOCUMENT")).unwrap();
    prepared_from(&lines, &other);
    run.documents = Some(Arc::new(file::load(&other).unwrap()));
    let error = run.fails(&experiment);
    assert_eq!(error.kind, ProblemKind::Finding);
    assert!(error.message.contains("are not those of the lock"), "{error}");
    // A lock of an earlier version names the documents and not their tokens.
    let digest = FieldValue::text(good.documents_digest().to_hex().to_string());
    let open = self::experiment("small_text", &text_recipe(), &[]);
    let values = Fields::from([("data.digest".to_owned(), digest)]);
    let old = open.with("small".to_owned(), &values).unwrap();
    let mut run = Folder::new();
    run.documents = Some(good);
    let error = run.fails(&old);
    assert!(error.help.contains("canonc bind"), "{error}");
}

#[test]
fn documents_that_drifted_are_a_finding() {
    let experiment = bound(&documents(40));
    let mut folder = Folder::new();
    folder.documents = Some(documents(41));
    let error = folder.fails(&experiment);
    assert_eq!(error.kind, ProblemKind::Finding);
    assert!(error.message.contains("are not those of the lock"), "{error}");
    folder.documents = None;
    assert!(folder.fails(&experiment).help.contains("--data"));
    let open = self::experiment("small_text", &text_recipe(), &[]);
    assert!(folder.fails(&open).help.contains("canonc bind"));
    assert!(!folder.path().exists(), "nothing is made for a run that cannot begin");
}

/// Documents in a prepared file.
fn prepared(path: &Path, count: usize) {
    let documents = path.with_extension("jsonl");
    let lines: String = (0..count)
        .map(|i| format!("{{\"text\": \"document {i} of {count}, {}\"}}\n", i * i))
        .collect();
    std::fs::write(&documents, &lines).unwrap();
    prepared_from(&documents, path);
}

fn prepared_from(documents: &Path, path: &Path) {
    let bytes = std::fs::metadata(documents).unwrap().len();
    let input = Input { name: "documents".to_owned(), bytes, path: Some(documents.to_owned()) };
    let sources = [SourceInput { name: "small".to_owned(), files: vec![input] }];
    let request = Request {
        sources: &sources,
        field: Field::Usual,
        plain: Plain::File,
        on_bad_line: OnBadLine::Refuse,
        tokenizer: &Tokenizer::bytes(),
        workers: 1,
        checkpoint: 1 << 20,
        fault: None,
    };
    prepare(&request, path, &AtomicBool::new(false), &mut |_| ()).unwrap();
}

/// Changes the file that a run reads when the run reports that a step is done.
struct Changing<'a> {
    step: u64,
    change: &'a dyn Fn(),
}

impl Observer for Changing<'_> {
    fn step(&mut self, step: &Step, _: f64) {
        if step.step == self.step {
            (self.change)();
        }
    }
    fn evaluation(&mut self, _: &Evaluation, _: f64) {}
    fn event(&mut self, _: &Event) {}
}

/// The last step of a run that ended because its documents changed.
fn ended_as_damaged(folder: &Folder, end: Result<TrainOutcome, Problem>, words: &str) -> u64 {
    let error = end.unwrap_err();
    assert_eq!(error.kind, ProblemKind::Input, "{error}");
    assert!(error.message.contains("small.index is damaged: "), "{error}");
    assert!(error.message.contains(words), "{error}");
    assert!(error.message.contains("(block 0)"), "{error}");
    assert!(!folder.paths().attestation().exists());
    // The windows of one more step may have been read ahead, before the change; they are the right ones.
    let last = steps(&folder.records()).len() as u64;
    let in_evaluation = last == 4;
    assert_eq!(folder.checkpoint(last).exists(), !in_evaluation, "step {last}");
    let kept = format!("step {last} was saved; the same command continues from there");
    assert_eq!(error.help.contains(&kept), !in_evaluation, "{error}");
    last
}

#[test]
fn documents_that_change_under_a_run_end_it_with_a_checkpoint_and_no_attestation() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("small.index");
    prepared(&path, 40);
    let open = || Arc::new(file::load(&path).unwrap());
    let experiment = bound(&open());
    let mut straight = Folder::new();
    straight.documents = Some(open());
    straight.finish(&experiment);
    let good = std::fs::read(&path).unwrap();
    let write = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();
    let flipped = || {
        // Changes every token, since some of them are read next.
        let mut bad = good.clone();
        bad[16..1000].iter_mut().for_each(|byte| *byte ^= 1);
        write(&bad);
    };
    let cut = || write(&good[..good.len() / 3]);
    let gone = || {
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another file").unwrap();
    };
    for (name, change, words) in [
        ("flipped", &flipped as &dyn Fn(), "have changed since this process first read them"),
        ("cut", &cut, "it ends before bytes 0 to "),
        ("gone", &gone, ""),
    ] {
        // A step before a checkpoint, one before neither, and one before an evaluation.
        for step in [3, 5, 4] {
            write(&good);
            let folder = Folder::new();
            let mut job = job(&experiment, Some(open())).unwrap();
            let (stop, faults) = (AtomicBool::new(false), Faults::none());
            let options = Options { stop: &stop, stop_after: None, faults: &faults, ranks: None };
            let mut watch = Changing { step, change };
            let on = machine(&experiment.platform).unwrap();
            let end = train(&mut job, &folder.path(), on, &options, &mut watch);
            drop(job);
            write(&good);
            let mut folder = folder;
            folder.documents = Some(open());
            if name == "gone" && cfg!(unix) {
                // An open file stays the one that was opened, even if another file takes its name.
                assert!(matches!(end, Ok(TrainOutcome::Finished(_))), "{end:?}");
            } else {
                let last = ended_as_damaged(&folder, end, words);
                assert!((step..=step + 1).contains(&last), "{name}: {last} steps after {step}");
            }
            folder.run(&experiment, None, None).0.unwrap();
            assert_eq!(differing(&straight.bits(LAST), &folder.bits(LAST)), Vec::<String>::new());
        }
    }
}

/// Ranks tell each other of their windows a step ahead; the step that misses some is found before it begins.
#[test]
fn a_rank_without_its_data_is_named_with_the_step_that_needs_it() {
    let root = tempfile::tempdir().unwrap();
    let paths = [0, 1].map(|rank| root.path().join(format!("small.{rank}.index")));
    paths.iter().for_each(|path| prepared(path, 40));
    let open = |rank: u64| Arc::new(file::load(&paths[rank as usize]).unwrap());
    let recipe = || {
        // Only the last step is saved, unless a run ends before.
        let experiment = experiment("small_text", &text_recipe(), &[("every = 3", "every = 0")]);
        let values = Fields::from([("data.digest".to_owned(), digest_of(&open(0)))]);
        experiment.with("small".to_owned(), &values).unwrap()
    };
    let mut straight = Folder::new();
    straight.documents = Some(open(0));
    straight.finish(&recipe());
    let good = std::fs::read(&paths[1]).unwrap();
    let mut bad = good.clone();
    bad[16..1000].iter_mut().for_each(|byte| *byte ^= 1);
    let change = || std::fs::write(&paths[1], &bad).unwrap();
    let mut folder = Folder::new();
    let path = folder.path();
    let ends = with_ranks(2, |simulated| {
        let experiment = recipe();
        let mut job = job(&experiment, Some(open(simulated.rank()))).unwrap();
        let machine = machine(&experiment.platform).unwrap();
        let leads = simulated.rank() == 0;
        let (shard, ranks) = (Shard::Optimizer, std::rc::Rc::new(simulated));
        let member = Member { ranks, shard, node: None, wrong_in: None };
        let (stop, faults) = (AtomicBool::new(false), Faults::none());
        if !leads {
            return follow(&mut job, machine, &member, &stop, &path).map(|_| ());
        }
        let ranks = Some(&member);
        let options = Options { stop: &stop, stop_after: None, faults: &faults, ranks };
        // When step 5 is done, both ranks have announced step 6, and read nothing of step 7.
        let mut watch = Changing { step: 5, change: &change };
        train(&mut job, &path, machine, &options, &mut watch).map(|_| ())
    });
    let error = ends[0].as_ref().unwrap_err();
    assert!(error.message.starts_with("rank 1 has no data for step 7: "), "{error}");
    assert!(error.message.contains("small.1.index is damaged"), "{error}");
    assert!(ends[1].is_ok(), "{ends:?}");
    assert_eq!(steps(&folder.records()).len(), 6);
    assert!(error.help.contains("step 6 was saved"), "{error}");
    folder.documents = Some(open(0));
    folder.finish(&recipe());
    assert_eq!(differing(&straight.bits(LAST), &folder.bits(LAST)), Vec::<String>::new());
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
    text.replace_range(
        task,
        "task = \"mano\"\nmano.L = 2\nmano.value_mod = 3\nmano.knowledge_augment = false\n",
    );
    let experiment = experiment("small", &text, &[]);
    let folder = Folder::finished(&experiment);
    let Some(Record::Evaluation(evaluation)) = folder.records().pop() else { panic!() };
    // Tests always use the largest size; a value is one token.
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

/// Windows so short that whole steps contain no answer.
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
    assert_eq!(error.kind, ProblemKind::Finding, "{error}");
    assert!(error.help.contains("data.seq_len") && error.help.contains("data.loss_on"), "{error}");
    let Some(Record::Step(step)) = folder.records().pop() else { panic!("{error}") };
    assert_eq!((step.loss, step.counted), (None, 0));
    let expected =
        format!("step {} has no loss: no target counts, because its window of 13", step.step);
    assert!(error.message.starts_with(&expected), "{error}");
    assert!(!folder.paths().attestation().exists());
    // It is not by chance: when resumed, it stops there again.
    assert_eq!(folder.fails(&experiment), error);
    // A log that an older canonc wrote has 0 there. It can be read, and the error does not call it a difference.
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
