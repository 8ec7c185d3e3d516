//! `canonc eval`: a model on the tasks of a suite.
//!
//! Each request is computed alone, so a result does not depend on the order or the number of questions.

mod own;

use compiler::plan::{Options, Precision};
use report::compare::TextTable;
use report::scores::{SCHEMA, Scores, against};
use runtime::answer::Answerer;
use runtime::execute::Paths;
use runtime::state::digest_of_weights;
use runtime::weights::Weights;
use serde::Serialize;
use suite::asked::Asked;
use suite::encode::{Codec, Encoder};
use suite::reply::{about_question, finite, reply};
use suite::request::Request;
use suite::score::{Measured, Reply, score};

use crate::forward::{Ran, machine, precision, processor, ran, weights};
use crate::open::{self, Described};
use crate::prompts::Prompts;
use cli::compared::{parse_scores, scores};
use cli::fail::{Exit, Failure, Outcome, shown};
use cli::options::WithType;
use cli::{out, output};
use commands::eval::{Chosen, EvalArgs};

/// Most tokens of an input where nothing says how many; the harness's default.
const LONGEST: usize = 2048;

pub(crate) fn eval(args: &EvalArgs) -> Outcome {
    let Some(word) = args.file.as_deref() else {
        return Err(Failure::bad_input("no model is given").help("name a run, a lock or a folder"));
    };
    if let Some(path) = &args.out {
        out::check(path, out::OutputKind::Evaluation)?;
    }
    let earlier = args.against.as_deref().map(scores).transpose()?;
    let machine = machine(&args.machine)?;
    let chosen = Chosen::of(args)?;
    let model = open::Asked {
        model: word,
        arch: args.arch.as_deref(),
        weights: args.weights.as_deref(),
        prompts: &args.prompts,
        reads_text: !matches!(chosen, Chosen::Own),
        instead: "use a model whose tokens are text",
    };
    let described = model.describe()?;
    let Described { name, compiled, weights: path, lock, longest, options, text, .. } = described;
    let weights = weights(&compiled, &path, machine)?;
    let graph = &compiled.graph;
    // As in training, unless another dtype is asked for.
    let dtype = args.machine.dtype.unwrap_or(match options.map(|options| options.precision) {
        Some(Precision::Bf16) => WithType::Bf16,
        Some(Precision::F32) | None => WithType::F32,
    });
    let (precision, processor) = (precision(dtype), processor(args.machine.device));
    let options = Options { precision, processor, ..options.unwrap_or_default() };
    let bound = |error: runtime::execute::ExecuteError| Failure::machine(error.to_string());
    let (longest, from) = input_length(args, longest);
    let lengths = if args.lengths.is_empty() { vec![longest] } else { args.lengths.clone() };
    let (tasks, bos, paths) = match chosen {
        Chosen::Own => {
            let own::Measured { tasks, paths } = own::measure(args, word, &weights, machine)?;
            (tasks, None, paths)
        }
        Chosen::Suite(_) | Chosen::Needle(_) => {
            let prompts = text.map_err(|failure| match &lock {
                Some(_) => failure.help("or measure the lock's own task with `--suite task`"),
                None => failure,
            })?;
            if args.lengths.is_empty() {
                let tokens = output::counted(longest, "token");
                output::note(&format!("inputs of at most {tokens} ({from})"));
            }
            let bos = prompts.before().filter(|_| !args.no_bos);
            let tokens = Tokens { prompts: &prompts, bos };
            let answerer = Answerer::new(graph, options, machine).map_err(bound)?;
            let rounds = chosen.rounds(args, &lengths, &tokens)?;
            let (tasks, paths) = answer_all(answerer, &weights, &tokens, rounds)?;
            (tasks, bos, paths)
        }
    };
    let report = Report {
        schema: SCHEMA,
        model: Of {
            name: &name,
            graph: compiled.identity.graph.to_string(),
            weights: digest_of_weights(&weights).map_err(bound)?.to_string(),
            lock: lock.as_deref(),
        },
        suite: shown(&args.suite),
        settings: Settings {
            max_length: lengths.iter().copied().max().unwrap_or(longest),
            bos,
            dtype: match dtype {
                WithType::F32 => "f32",
                WithType::F64 => "f64",
                WithType::Bf16 => "bf16",
            },
            limit: args.limit,
        },
        tasks,
        kernels: ran(&paths),
    };
    let text = serde_json::to_string_pretty(&report)
        .map_err(|error| Failure::machine(error.to_string()))?;
    if let Some(path) = &args.out {
        out::put(path, out::OutputKind::Evaluation, format!("{text}\n"))?;
    }
    match args.json {
        true => output::json(&report)?,
        false => output::data(&table(&report.tasks))?,
    }
    if let Some(earlier) = earlier {
        show_differences(&earlier, &parse_scores(&text).map_err(Failure::machine)?)?;
    }
    Ok(Exit::Fine)
}

/// The longest input, and who says so.
fn input_length(args: &EvalArgs, of_model: Option<usize>) -> (usize, &'static str) {
    match (args.max_length, of_model) {
        (Some(given), _) => (given, "--max-length"),
        (None, Some(known)) => (known, "what the model says"),
        (None, None) => (LONGEST, "the default: nothing says what the model takes"),
    }
}

/// Lets the model answer the tasks, each with its name in results and the longest input.
fn answer_all(
    mut answerer: Answerer,
    weights: &Weights,
    tokens: &Tokens<'_>,
    rounds: Vec<(String, usize, Asked)>,
) -> Result<(Vec<Done>, Paths), Failure> {
    let mut tasks = Vec::new();
    for (name, longest, asked) in rounds {
        let task = &asked.task;
        tasks.push(done(name, &asked, |request, place| {
            let mut model = answerer.with(weights);
            let reply = reply(&mut model, tokens, longest, task, request);
            reply
                .and_then(finite)
                .map_err(|error| Failure::from(about_question(error, place, &task.name)))
        })?);
    }
    Ok((tasks, answerer.paths()))
}

/// Shows the paired differences of two results, question by question.
fn show_differences(earlier: &Scores, later: &Scores) -> Result<(), Failure> {
    let (TextTable { head, rows, .. }, left_out) = against(earlier, later);
    if !rows.is_empty() {
        let right = [false, false, true, true, true, true, true, true];
        output::data(&format!("\n{}", output::table(&[vec![head], rows].concat(), &right, 0)))?;
        output::note(
            "intervals are over questions; they say nothing about other seeds of training",
        );
    }
    for line in left_out {
        output::note(&format!("not compared: {line}"));
    }
    Ok(())
}

/// The `--json` document; the schema is in `canonc eval --help`.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    model: Of<'a>,
    suite: String,
    settings: Settings,
    tasks: Vec<Done>,
    kernels: Vec<Ran<'a>>,
}

#[derive(Serialize)]
struct Of<'a> {
    name: &'a str,
    graph: String,
    weights: String,
    lock: Option<&'a str>,
}

#[derive(Serialize)]
struct Settings {
    max_length: usize,
    bos: Option<i64>,
    dtype: &'static str,
    limit: Option<usize>,
}

/// A task with its metrics.
#[derive(Serialize)]
struct Done {
    name: String,
    kind: &'static str,
    task: String,
    questions: String,
    examples: Option<String>,
    shots: usize,
    count: usize,
    metrics: Vec<Metric>,
}

#[derive(Serialize)]
struct Metric {
    metric: String,
    value: f64,
    stderr: Option<f64>,
    each: Vec<f64>,
    #[serde(skip)]
    is_share: bool,
}

/// Asks every question of a task.
fn done(
    name: String,
    asked: &Asked,
    mut reply: impl FnMut(&Request, &str) -> Result<Reply, Failure>,
) -> Result<Done, Failure> {
    let Asked { task, questions, examples, requests, places } = asked;
    output::detail(|| format!("{name}: {}", output::counted(requests.len(), "question")));
    let replies = requests.iter().zip(places).map(|(request, place)| reply(request, place));
    let replies: Vec<Reply> = replies.collect::<Result<_, _>>()?;
    let metric = |Measured { metric, value, stderr, each }| Metric {
        metric: metric.word().to_owned(),
        value,
        stderr,
        each,
        is_share: metric.is_share(),
    };
    Ok(Done {
        name,
        kind: task.kind.word(),
        task: task.digest().to_string(),
        questions: questions.to_string(),
        examples: examples.map(|digest| digest.to_string()),
        shots: task.shots,
        count: requests.len(),
        metrics: score(task, requests, &replies).into_iter().map(metric).collect(),
    })
}

/// A standard error. Where all answers are equal, their spread says nothing about other questions.
pub fn spread(stderr: Option<f64>) -> String {
    match stderr {
        None => String::new(),
        Some(0.0) => "unknown: all equal".to_owned(),
        Some(error) => format!("±{:.2} pp", 100.0 * error),
    }
}

fn table(tasks: &[Done]) -> String {
    let head = ["task", "questions", "shots", "metric", "value", "standard error"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for Done { name, count, shots, metrics, .. } in tasks {
        for Metric { metric, value, stderr, is_share, each: _ } in metrics {
            let (value, stderr) = match is_share {
                true => (format!("{:.2}%", 100.0 * value), spread(*stderr)),
                false => (format!("{value:.4}"), String::new()),
            };
            let first = [name.clone(), count.to_string(), shots.to_string()];
            rows.push([&first[..], &[metric.clone(), value, stderr]].concat());
        }
    }
    output::table(&rows, &[false, true, true, false, true, true], 0)
}

/// The model's tokenizer, with or without the mark before a text.
struct Tokens<'a> {
    prompts: &'a Prompts,
    bos: Option<i64>,
}

impl Encoder for Tokens<'_> {
    fn encode(&self, text: &str) -> Result<Vec<i64>, String> {
        let plain =
            self.prompts.plain(text).map_err(|failure| failure.message.unwrap_or_default())?;
        Ok(self.bos.into_iter().chain(plain).collect())
    }

    fn prefix(&self) -> Option<i64> {
        self.prompts.first()
    }
}

impl Codec for Tokens<'_> {
    fn continuation(&self, prompt: &[i64], tokens: &[i64]) -> Result<Vec<u8>, String> {
        let text = self.prompts.continuation(prompt, tokens);
        text.map_err(|failure| failure.message.unwrap_or_default())
    }

    fn stop(&self) -> Option<i64> {
        self.prompts.stop()
    }
}
