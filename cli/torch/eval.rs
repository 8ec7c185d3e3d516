//! `canonc eval`: a model on the tasks of a suite.
//!
//! In: a model, requests. Out: a table, or JSON with every question's part. Must stay true: each request is computed
//! alone, so a result does not depend on the order or the number of questions; equal requests are computed once.

use std::collections::HashMap;
use std::ops::ControlFlow;

use report::compare::Table;
use report::scores::{SCHEMA, Scores, against};
use runtime::generate::{Continuation, Generator, Sampling};
use runtime::likelihood::{Likelihood, Scorer};
use runtime::state::digest_of_weights;
use serde::Serialize;
use suite::encode::{self, Encoder, Piece};
use suite::generated::cut;
use suite::request::Request;
use suite::score::{Measured, Reply, score};
use suite::suite::Task;

use crate::forward::{Ran, machine, options, ran};
use crate::model::{Model, Place};
use crate::prompts::Prompts;
use canonc::args::{EvalArgs, WithType};
use canonc::eval::{Asked, asked};
use canonc::fail::{Exit, Failure, Outcome, shown};
use canonc::report::scores;
use canonc::runs::failure;
use canonc::{out, output};

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
    let asked = asked(args)?;
    let (arch, weights) = (args.arch.as_deref(), args.weights.as_deref());
    let place = Place { word, arch, weights, prompts: &args.prompts };
    let model = Model::open(&place, machine)?;
    let graph = &model.compiled.graph;
    let options = options(&args.machine);
    let bound = |error: runtime::execute::ExecuteError| Failure::machine(error.to_string());
    let mut person = Person {
        scorer: Scorer::new(graph, options, machine).map_err(bound)?,
        generator: Generator::new(graph, options, machine).map_err(bound)?,
        bos: model.prompts.before().filter(|_| !args.no_bos),
        longest: args.max_length.or(model.longest).unwrap_or(LONGEST),
        model: &model,
        known: HashMap::new(),
    };
    let mut tasks = Vec::new();
    for Asked { task, questions, examples, requests } in &asked {
        output::detail(|| {
            format!("{}: {}", task.name, output::counted(requests.len(), "question"))
        });
        let replies: Vec<Reply> = requests
            .iter()
            .enumerate()
            .map(|(number, request)| person.reply(task, number, request))
            .collect::<Result<_, _>>()?;
        tasks.push(Done {
            name: &task.name,
            kind: task.kind.word(),
            task: task.digest().to_string(),
            questions: questions.to_string(),
            examples: examples.map(|digest| digest.to_string()),
            shots: task.shots,
            count: requests.len(),
            metrics: score(task, requests, &replies),
        });
    }
    let mut paths = person.scorer.paths();
    paths.merge(&person.generator.paths());
    let report = Report {
        schema: SCHEMA,
        model: Of {
            name: &model.name,
            graph: model.compiled.identity.graph.to_string(),
            weights: digest_of_weights(&model.weights).map_err(bound)?.to_string(),
            lock: model.lock.as_deref(),
        },
        suite: shown(&args.suite),
        settings: Settings {
            max_length: person.longest,
            bos: person.bos,
            dtype: match args.machine.dtype {
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
        let later = Scores::parse(&text).map_err(Failure::machine)?;
        let (Table { head, rows, .. }, left_out) = against(&earlier, &later);
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
    }
    Ok(Exit::Fine)
}

/// The `--json` document; the schema is in `canonc eval --help`.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    model: Of<'a>,
    suite: String,
    settings: Settings,
    tasks: Vec<Done<'a>>,
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

#[derive(Serialize)]
struct Done<'a> {
    name: &'a str,
    kind: &'static str,
    task: String,
    questions: String,
    examples: Option<String>,
    shots: usize,
    count: usize,
    metrics: Vec<Measured>,
}

fn table(tasks: &[Done<'_>]) -> String {
    let head = ["task", "questions", "shots", "metric", "value", "standard error"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for Done { name, count, shots, metrics, .. } in tasks {
        for Measured { metric, value, stderr, each: _ } in metrics {
            let (value, stderr) = match metric.is_share() {
                true => (
                    format!("{:.2}%", 100.0 * value),
                    stderr.map_or_else(String::new, |error| format!("±{:.2} pp", 100.0 * error)),
                ),
                false => (format!("{value:.4}"), String::new()),
            };
            let first = [name.to_string(), count.to_string(), shots.to_string()];
            rows.push([&first[..], &[metric.word().to_owned(), value, stderr]].concat());
        }
    }
    output::table(&rows, &[false, true, true, false, true, true], 0)
}

/// Answers requests with a model.
struct Person<'a> {
    model: &'a Model,
    scorer: Scorer,
    generator: Generator,
    bos: Option<i64>,
    longest: usize,
    known: HashMap<Piece, Likelihood>,
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

impl Person<'_> {
    fn reply(&mut self, task: &Task, number: usize, request: &Request) -> Result<Reply, Failure> {
        let tokens = Tokens { prompts: &self.model.prompts, bos: self.bos };
        let longest = self.longest;
        let wrong = |why: String| {
            Failure::bad_input(format!("question {} of task `{}`: {why}", number + 1, task.name))
                .help("shorten it, or change --max-length")
        };
        match request {
            Request::Choose { pairs, .. } => {
                let pieces: Vec<Piece> = pairs
                    .iter()
                    .map(|(context, rest)| encode::pair(&tokens, context, rest, longest))
                    .collect::<Result<_, _>>()
                    .map_err(wrong)?;
                let found = pieces.into_iter().map(|piece| self.likelihood(piece));
                let pair = |it: Likelihood| (it.sum, it.greedy);
                Ok(Reply::Likelihoods(found.map(|it| it.map(pair)).collect::<Result<_, _>>()?))
            }
            Request::Continue { context, continuation } => {
                let piece = encode::pair(&tokens, context, continuation, longest).map_err(wrong)?;
                let Likelihood { sum, greedy } = self.likelihood(piece)?;
                Ok(Reply::Likelihoods(vec![(sum, greedy)]))
            }
            Request::Document { text, .. } => {
                let mut total = 0.0;
                for piece in encode::document(&tokens, text, longest).map_err(wrong)? {
                    total += self.likelihood(piece)?.sum;
                }
                Ok(Reply::Likelihood(total))
            }
            Request::Generate { prompt, .. } => {
                let most = task.max_tokens();
                let prompt = encode::prompt(&tokens, prompt, longest, most).map_err(wrong)?;
                Ok(Reply::Text(self.text(&prompt, most, &task.until)?))
            }
        }
    }

    fn likelihood(&mut self, piece: Piece) -> Result<Likelihood, Failure> {
        if let Some(known) = self.known.get(&piece) {
            return Ok(*known);
        }
        let found =
            self.scorer.score(&self.model.weights, &piece.tokens, piece.scored).map_err(failure)?;
        self.known.insert(piece, found);
        Ok(found)
    }

    /// The likeliest text, up to a stop text.
    fn text(&self, prompt: &[i64], most: usize, until: &[String]) -> Result<String, Failure> {
        let prompts = &self.model.prompts;
        let what = Continuation {
            prompt,
            max_tokens: most,
            sampling: Sampling { temperature: 0.0, top_k: None, top_p: None, seed: 0 },
            stop: prompts.stop(),
        };
        let (mut tokens, mut text, mut ended) = (Vec::new(), String::new(), Ok(()));
        let each = |token: i64| {
            tokens.push(token);
            match prompts.continuation(prompt, &tokens) {
                Ok(bytes) => text = String::from_utf8_lossy(&bytes).into_owned(),
                Err(failure) => ended = Err(failure),
            }
            match ended.is_err() || until.iter().any(|stop| text.contains(stop.as_str())) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        self.generator.generate(&self.model.weights, &what, each).map_err(failure)?;
        ended?;
        Ok(cut(&text, until).to_owned())
    }
}
