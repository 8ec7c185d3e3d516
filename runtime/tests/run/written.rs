//! Tasks measured by the model's own writing, compared with the same done one sample at a time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use data::Windows;
use lab::experiment::Experiment;
use records::checkpoint::Store;
use records::job::Job;
use records::metrics::{Evaluation, Record, Score};
use runtime::evaluate::Measurer;
use runtime::execute::Machine;
use runtime::forward::forward;
use runtime::generate::{Request, Sampling, generate};
use runtime::state::State;
use runtime::train::machine;
use tasks::capo::Attribute;
use tasks::capo::bits::{Losses, capacity};
use tasks::grammar::law::divergence;
use tasks::task::Scoring;

use super::support::*;

const LAST: u64 = 8;

fn brevo(arch: &str, changes: &[(&str, &str)]) -> Experiment {
    experiment(arch, &recipe_of("task = \"brevo\"\nbrevo.N = 3"), changes)
}

/// Trained long enough that some answers are right.
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

/// The final state of a finished run.
fn trained(folder: &Folder, job: &Job, machine: Machine) -> State {
    let mut store = Store::new(folder.paths().checkpoints(), job.id(), job.slots());
    let (checkpoint, _) = store.find(|_| true).unwrap();
    State::load(job, machine, &store, &checkpoint.unwrap()).unwrap()
}

#[test]
fn orders_are_judged_as_the_model_writes_them() {
    let mut wrong = 0;
    for arch in ["small", "small_canon"] {
        let experiment = brevo(arch, &LONGER);
        let folder = Folder::finished(&experiment);
        let evaluation = evaluated(&folder);
        let mut job = job(&experiment, None).unwrap();
        let machine = machine(&experiment.platform).unwrap();
        let mut store =
            records::checkpoint::Store::new(folder.paths().checkpoints(), job.id(), job.slots());
        let (checkpoint, _) = store.find(|_| true).unwrap();
        let state = State::load(&job, machine, &store, &checkpoint.unwrap()).unwrap();
        let (vocab, graph) = (job.graph.vocab, job.graph.clone());
        let Windows::Task(windows) = &mut job.held_out else { panic!() };
        let task = windows.task().clone();
        let Scoring::Judged(judge) = task.scoring() else { panic!() };
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
                sampling: Sampling { temperature: 0.0, top_k: None, top_p: None, seed: 0 },
                stop: Some(windows.id(judge.end())),
                options: compiler::plan::Options::default(),
                machine,
            };
            let text = generate(&request, |_| ControlFlow::Continue(())).unwrap().tokens;
            let answer: Vec<u32> = text.iter().map(|id| windows.token(*id)).collect();
            let right = judge.is_right(&tape.tokens[..span.start], &answer);
            scores.entry(span.level).or_default().add(right && text.len() < 40);
        }
        assert_eq!(evaluation.answers, scores, "{arch}");
        let all = evaluation.exact();
        assert!(all.of == 21 && all.right > 0, "{arch}: {all:?}");
        wrong += all.of - all.right;
        // Tokens are still predicted from the true ones before them.
        assert!(evaluation.tokens.of > 0 && evaluation.nll.is_some());
        assert!(folder.paths().plan().exists());
        let plan = std::fs::read_to_string(folder.paths().plan()).unwrap();
        assert!(plan.contains("\nwrite\n"));
    }
    assert!(wrong > 0);
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
fn a_run_whose_model_writes_answers_resumes_to_the_bit() {
    let experiment =
        brevo("small_canon", &[("every = 4\nwindows = 3", "every = 4\nwindows = 3\nsamples = 5")]);
    let (straight, cut) = (Folder::finished(&experiment), Folder::new());
    cut.stop_at(&experiment, 5);
    cut.finish(&experiment);
    assert_eq!(differing(&straight.bits(LAST), &cut.bits(LAST)), Vec::<String>::new());
}

/// Trains on a tiny grammar, and computes its two measures again sentence by sentence.
#[test]
fn sentences_and_laws_are_those_of_one_at_a_time() {
    let metrics = "windows = 3\nsamples = 9";
    let changes = [
        ("every = 4\nwindows = 3", metrics),
        ("seq_len = 32", "seq_len = 200"),
        ("every = 3", "every = 0"),
    ];
    let text = recipe_of("task = \"lano\"\nlano.config = \"cfg3f\"");
    let experiment = experiment("small_canon", &text, &changes);
    let folder = Folder::finished(&experiment);
    let evaluation = evaluated(&folder);
    let mut job = job(&experiment, None).unwrap();
    let machine = machine(&experiment.platform).unwrap();
    let state = trained(&folder, &job, machine);
    let graph = job.graph.clone();
    let Windows::Task(windows) = &mut job.held_out else { panic!() };
    let task = windows.task().clone();
    let Scoring::Sentences(grammar) = task.scoring() else { panic!() };
    assert_eq!(windows.vocab(), 4);
    let (mut sum, mut count) = (0.0, 0.0);
    for number in 0..9 {
        let sentence = windows.first_sample(number).tokens.clone();
        let sentence = &sentence[..sentence.len().min(199)];
        let ids: Vec<i64> = [4].iter().chain(sentence).map(|token| windows.id(*token)).collect();
        let tokens = tch::Tensor::from_slice(&ids).reshape([1, -1]);
        let request = runtime::forward::Request {
            graph: &graph,
            weights: &state.weights,
            tokens: &tokens,
            targets: None,
            gradients: false,
            loss: compiler::plan::Loss::CROSS_ENTROPY,
            options: compiler::plan::Options::default(),
            machine,
        };
        let logits = forward(&request).unwrap().logits.to_kind(tch::Kind::Double);
        let law = grammar.law(sentence);
        assert_eq!(law.rows().len(), ids.len());
        for (place, truth) in law.rows().enumerate() {
            let p: Vec<f64> = Vec::try_from(
                logits.select(1, place as i64).softmax(-1, None::<tch::Kind>).view(-1),
            )
            .unwrap();
            // Dense ids: 1, 2, 3, then the end.
            sum += divergence(truth, &[p[3], p[0], p[1], p[2]]);
            count += 1.0;
        }
    }
    let kl = evaluation.measures["kl"];
    assert!((kl - sum / count).abs() < 1e-5 && kl > 0.01 && kl < 3.0, "{kl} {}", sum / count);
    // Eight steps are too few to learn a grammar.
    assert_eq!(evaluation.measures["validity"], 0.0);
    assert!(evaluation.answers.is_empty() && evaluation.tokens.of == 0);
}

#[test]
fn bits_are_counted_over_whole_biographies() {
    let text = recipe_of("task = \"capo\"\ncapo.N = 5\ncapo.permute = true");
    let changes = [
        ("seq_len = 32", "seq_len = 1200"),
        ("windows = 3", "windows = 4"),
        ("steps = 8", "steps = 3"),
    ];
    let experiment = experiment("small_text", &text, &changes);
    let folder = Folder::finished(&experiment);
    let evaluation = evaluated(&folder);
    let mut job = job(&experiment, None).unwrap();
    let machine = machine(&experiment.platform).unwrap();
    let state = trained(&folder, &job, machine);
    let graph = job.graph.clone();
    let parameters: i64 = graph.params().iter().map(|p| p.shape.iter().product::<i64>()).sum();
    let mut losses = Losses::default();
    let mut batch = data::batch::Batch::default();
    let mut complete = 0;
    for window in 0..4 {
        job.held_out.fill(window..window + 1, &mut batch).unwrap();
        let tensor = |ids: &[i64]| tch::Tensor::from_slice(ids).reshape([1, -1]);
        let (tokens, targets) = (tensor(batch.inputs()), tensor(batch.targets()));
        let request = runtime::forward::Request {
            graph: &graph,
            weights: &state.weights,
            tokens: &tokens,
            targets: Some(&targets),
            gradients: false,
            loss: compiler::plan::Loss::CROSS_ENTROPY,
            options: compiler::plan::Options::default(),
            machine,
        };
        let nll = forward(&request).unwrap().measured.unwrap().nll.view(-1);
        let nll: Vec<f64> = Vec::try_from(nll.to_kind(tch::Kind::Double)).unwrap();
        let names: Vec<usize> =
            (0..batch.answers().len()).filter(|i| batch.answers()[*i].level == 0).collect();
        for (n, first) in names.iter().enumerate() {
            let last = names.get(n + 1).copied().unwrap_or(batch.answers().len());
            let values = &batch.answers()[*first..last];
            if values.len() < 7 || !values.iter().all(|answer| answer.complete) {
                continue;
            }
            complete += 1;
            losses.add(values.iter().map(|answer| {
                let value = Attribute::ALL[answer.level as usize];
                (value, nll[answer.start..answer.start + answer.len].iter().sum())
            }));
        }
    }
    assert!(complete >= 8, "{complete}");
    let (name, values) = losses.means().unwrap();
    let want = capacity(5, parameters as u64, name, values);
    let are_near = |a: f64, b: f64| (a - b).abs() < 1e-4 * b.abs().max(1e-3);
    assert!(are_near(evaluation.measures["bits"], want.bits), "{:?} {want:?}", evaluation.measures);
    assert!(are_near(evaluation.measures["bits_per_parameter"], want.per_parameter));
}

/// Greedy text continues with the true year exactly where each of its bytes is the likeliest after the true ones.
#[test]
fn years_are_written_where_they_are_guessed() {
    let text = recipe_of("task = \"multihop\"\nmultihop.N = 1\nmultihop.hops = 1");
    let changes = [
        ("seq_len = 32", "seq_len = 256"),
        ("every = 4\nwindows = 3", "windows = 4"),
        ("every = 3", "every = 0"),
        ("steps = 8", "steps = 3"),
    ];
    let experiment = experiment("small_text", &text, &changes);
    let evaluation = evaluated(&Folder::finished(&experiment));
    // Every question is one hop; a year has four digits.
    assert_eq!(evaluation.answers.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(evaluation.tokens.of, 4 * evaluation.exact().of);
    assert!(evaluation.exact().of >= 4, "{evaluation:?}");
}
