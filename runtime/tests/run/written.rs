//! Tasks that are measured by what a model writes, against the same done one sample at a time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use compiler::lock::Experiment;
use runtime::data::Windows;
use runtime::data::task::Task;
use runtime::evaluate::Measurer;
use runtime::generate::{Request, Sampling, generate};
use runtime::metrics::{Evaluation, Record, Score};
use runtime::train::{State, machine};

use super::support::*;

const LAST: u64 = 8;

fn brevo(arch: &str, changes: &[(&str, &str)]) -> Experiment {
    experiment(arch, &recipe_of("task = \"brevo\"\nN = 3"), changes)
}

/// Trained for so long that some answers are right.
const LONGER: [(&str, &str); 4] = [
    ("steps = 8", "steps = 200"),
    ("every = 4\nwindows = 3", "windows = 3\nsamples = 21"),
    ("every = 3", "every = 0"),
    ("sequences = 2", "sequences = 8"),
];

fn evaluated(folder: &Folder) -> Evaluation {
    match folder.records().pop() {
        Some(Record::Evaluation(evaluation)) => evaluation,
        last => panic!("{last:?}"),
    }
}

#[test]
fn orders_are_judged_as_the_model_writes_them() {
    for arch in ["small", "small_delta_hybrid"] {
        let experiment = brevo(arch, &LONGER);
        let folder = Folder::finished(&experiment);
        let evaluation = evaluated(&folder);
        let mut job = job(&experiment, None).unwrap();
        let machine = machine(&experiment.platform).unwrap();
        let mut store =
            runtime::checkpoint::Store::new(folder.paths().checkpoints(), job.id(), job.slots());
        let (found, _) = store.find(|_| true).unwrap();
        let state = State::load(&job, machine, &store, &found.unwrap()).unwrap();
        let (vocab, graph) = (job.graph.vocab, job.graph.clone());
        let Windows::Task(windows) = &mut job.held_out else { panic!() };
        let Task::Brevo(task) = windows.task().clone() else { panic!() };
        assert_eq!(windows.vocab(), 3 + 3);
        assert!(i64::from(windows.vocab()) <= vocab);
        let mut scores: BTreeMap<u32, Score> = BTreeMap::new();
        for number in 0..21 {
            let tape = windows.first_sample(number).clone();
            let span = tape.answers[0];
            let prompt: Vec<i64> =
                tape.tokens[..span.start].iter().map(|t| windows.id(*t)).collect();
            let request = Request {
                graph: &graph,
                weights: &state.weights,
                prompt: &prompt,
                // More than any right answer has.
                max_tokens: 40,
                sampling: Sampling { temperature: 0.0, top_k: None, seed: 0 },
                stop: Some(windows.id(task.marks().eos)),
                machine,
            };
            let text = generate(&request, |_| ControlFlow::Continue(())).unwrap().tokens;
            let answer: Vec<u32> = text.iter().map(|id| windows.token(*id)).collect();
            let right = task.judge(&tape.tokens[..span.start], &answer).strict.is_ok();
            scores.entry(span.level).or_default().add(right && text.len() < 40);
        }
        assert_eq!(evaluation.answers, scores, "{arch}");
        let all = evaluation.exact();
        assert!(all.of == 21 && all.right > 0 && all.right < 21, "{arch}: {all:?}");
        // Tokens are still guessed from the true ones before them.
        assert!(evaluation.tokens.of > 0 && evaluation.nll.is_some());
        assert!(folder.paths().plan().exists());
        let plan = std::fs::read_to_string(folder.paths().plan()).unwrap();
        assert!(plan.contains("\nwrite\n"));
    }
}

#[test]
fn what_is_not_asked_for_is_not_written() {
    let metrics = ("every = 4\nwindows = 3", "windows = 3\nmetrics = [\"token_accuracy\"]");
    let experiment = brevo("small", &[metrics]);
    let job = job(&experiment, None).unwrap();
    assert!(job.writing.is_none());
    let machine = machine(&experiment.platform).unwrap();
    assert!(Measurer::new(&job, machine).is_ok());
    let evaluation = evaluated(&Folder::finished(&experiment));
    assert!(evaluation.answers.is_empty() && evaluation.tokens.of > 0);
}

#[test]
fn a_run_that_writes_is_gone_on_with_to_the_bit() {
    let experiment =
        brevo("small_canon", &[("every = 4\nwindows = 3", "every = 4\nwindows = 3\nsamples = 5")]);
    let (straight, cut) = (Folder::finished(&experiment), Folder::new());
    cut.stop_at(&experiment, 5);
    cut.finish(&experiment);
    assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
}
