//! `canonc eval`, the part without tensors: its tasks, and the questions that are read before a model is loaded.

use std::path::PathBuf;

use clap::{ArgMatches, Args};
use lab::experiment::Experiment;
use lab::field::{self, Fields};
use suite::asked::{Asked, Opened, open};
use suite::encode::Encoder;
use suite::needle::{NEEDLE, Needles};
use suite::suite::Task;

use cli::command::{Program, with};
use cli::fail::{Exit, Failure, Outcome};
use cli::options::{MachineArgs, PromptArgs, within};
use cli::{output, torch_program};

/// Evaluate a model on the tasks of a suite: multiple choice, continuations, perplexity, generated answers
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc eval runs/text/text-first-seed1 --suite mine.toml        a run's last checkpoint
  canonc eval meta/Llama-3.2-1B --suite release --data copies     a Hugging Face folder, your copies of 14 tasks
  canonc eval my.lock --weights w.safetensors --suite release --data copies --task piqa,wikitext --limit 100
  canonc eval runs/b --suite mine.toml --against a.json           then paired differences from the result a.json
  canonc eval --suite release --list                              the tasks of a suite and the files that they read
  canonc eval runs/text --suite mine.toml --lengths 512,1024      the same questions in inputs of each length
  canonc eval runs/text --suite needle --lengths 512,1024         find a number in a generated text, by length and depth
  canonc eval runs/depo --suite task --set data.depo.K=8          what the run's own evaluations measure, on other data

A suite is a TOML file; `release` is built in. Its tasks say how a question, one JSON object a line, becomes text:

  [[task]]
  name = \"piqa\"
  kind = \"choice\"                    # or continuation, document, generate
  file = \"piqa.jsonl\"                # next to the suite, or in --data
  prompt = \"Question: {{ goal }}\\nAnswer:\"
  choices = \"[sol1, sol2]\"
  answer = \"label\"

docs/evaluation.md describes every key. Prompts, token boundaries, ties and normalisations are those of EleutherAI's
lm-evaluation-harness 0.4.7.

Schema of --json and --out: {schema: \"canonc.eval.v1\", model: {name, graph, weights, lock}, suite, settings:
{max_length (the longest of --lengths), bos, dtype, limit}, tasks: [{name, kind, task, questions, examples, shots, count, metrics: [{metric,
value, stderr, each}]}], kernels: [{kernel, path, times}]}; task, questions and examples are digests (BLAKE3), each has
every question's part.")]
pub struct EvalArgs {
    /// A run, a lock, a .canon file, or a folder: of Hugging Face or Lingua, or of `canonc export --to hf` or `import`
    #[arg(value_name = "MODEL", required_unless_present = "list")]
    pub file: Option<PathBuf>,
    /// The suite: a TOML file, or `release`, `needle` or `task`
    #[arg(long, value_name = "FILE|NAME")]
    pub suite: PathBuf,
    /// Measure with inputs of each of these lengths, in tokens, also beyond those of training
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with = "max_length", allow_negative_numbers = true, value_parser = within::<usize>(1, 1 << 24))]
    pub lengths: Vec<usize>,
    /// For `needle`: where the number stands, in percent of the text [default: 0,25,50,75,100]
    #[arg(long, value_name = "P,P", value_delimiter = ',', allow_negative_numbers = true, value_parser = within::<u8>(0, 100))]
    pub depths: Vec<u8>,
    /// For `needle`: questions for each length and depth [default: 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<usize>(1, 100_000))]
    pub count: Option<usize>,
    /// For `needle`: the seed of its questions [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u64>(0, u64::MAX))]
    pub seed: Option<u64>,
    /// For `task`: another value of a field under data or evaluation, such as data.depo.K=8
    #[arg(long, value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
    /// Only these tasks, separated by commas
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    pub task: Vec<String>,
    /// List the tasks of the suite and their files instead
    #[arg(long, conflicts_with_all = ["file", "out", "weights", "against"])]
    pub list: bool,
    /// The folder with the files of questions [default: the suite's folder]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Examples in front of each question [default: each task's own number]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<usize>(0, 1000))]
    pub shots: Option<usize>,
    /// Only the first questions of each task
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<usize>(1, usize::MAX))]
    pub limit: Option<usize>,
    /// Most tokens of an input; longer ones are cut from the left [default: the lock's data.seq_len, or what the
    /// configuration of the folder or of the import says, or 2048]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<usize>(1, 1 << 24))]
    pub max_length: Option<usize>,
    /// Leave out the token before a context that training had there
    #[arg(long)]
    pub no_bos: bool,
    /// The architecture, if the file has several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The parameters: .safetensors, an index of shards, consolidated.pth, a folder with one, or a run [default for a run:
    /// its last checkpoint]
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    #[command(flatten)]
    pub prompts: PromptArgs,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Write results with every question's part into a JSON file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Then compare with an earlier result of the same questions, question by question
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Print results as JSON
    #[arg(long, conflicts_with = "against")]
    pub json: bool,
}

/// In `canonc`, everything but `--list` continues in `canonc-torch`.
pub(crate) fn run(_: &Program, matches: &ArgMatches) -> Outcome {
    with(matches, |args| eval(args, |_| Err(torch_program::replace_process(&[]))))
}

/// Lists the tasks of a suite, or measures a model on them with `measure`.
pub fn eval(args: &EvalArgs, measure: fn(&EvalArgs) -> Outcome) -> Outcome {
    if !args.list {
        return measure(args);
    }
    let (_, tasks) = chosen(args)?;
    let mut rows =
        vec![["task", "kind", "questions", "examples", "metrics"].map(str::to_owned).to_vec()];
    for task in &tasks {
        let metrics: Vec<&str> = task.metrics.iter().map(|metric| metric.word()).collect();
        let examples = match (task.shots, &task.shots_file) {
            (0, _) => "none".to_owned(),
            (count, Some(file)) => format!("{count} of {file}"),
            (count, None) => format!("{count} of the same file"),
        };
        let kind = task.kind.word().to_owned();
        rows.push(vec![task.name.clone(), kind, task.file.clone(), examples, metrics.join(", ")]);
    }
    output::data(&output::table(&rows, &[], 0))?;
    Ok(Exit::Fine)
}

/// The suite's tasks that are asked for, and the folder of questions.
fn chosen(args: &EvalArgs) -> Result<(PathBuf, Vec<Task>), Failure> {
    let Opened { file, tasks, folder } = open(&args.suite, args.data.as_deref())?;
    let known: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    if let Some(none) = args.task.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::bad_input(format!("`{file}` has no task `{none}`"))
            .help(format!("it has {}", known.join(", "))));
    }
    let Some(folder) = folder.or_else(|| args.list.then(PathBuf::new)) else {
        return Err(Failure::bad_input("the suite `release` needs your own copies of the questions")
            .help("name their folder with --data DIR; `canonc eval --suite release --list` lists the files"));
    };
    let chosen =
        tasks.into_iter().filter(|task| args.task.is_empty() || args.task.contains(&task.name));
    let shots = |mut task: Task| {
        if let Some(shots) = args.shots {
            task.shots = shots;
        }
        task
    };
    Ok((folder, chosen.map(shots).collect()))
}

/// What `--suite` names.
#[derive(Debug)]
pub enum Chosen {
    /// Tasks of a suite, with their questions.
    Suite(Vec<Asked>),
    /// Generated questions.
    Needle(Needles),
    /// The metrics of the lock.
    Own,
}

/// The suite of a lock's own metrics.
const OWN: &str = "task";

impl Chosen {
    /// Reads the suite, and refuses options that it does not use.
    pub fn of(args: &EvalArgs) -> Result<Chosen, Failure> {
        let named = |name: &str| args.suite.as_os_str() == name && !args.suite.exists();
        let (needle, own) = (named(NEEDLE), named(OWN));
        let for_needle = [
            ("--depths", !args.depths.is_empty()),
            ("--count", args.count.is_some()),
            ("--seed", args.seed.is_some()),
        ];
        let for_suites = [
            ("--task", !args.task.is_empty()),
            ("--shots", args.shots.is_some()),
            ("--limit", args.limit.is_some()),
        ];
        let unused = |options: &[(&'static str, bool)]| {
            options.iter().find(|(_, given)| *given).map(|(option, _)| *option)
        };
        let idle = match (needle, own) {
            (true, _) => unused(&for_suites)
                .or(unused(&[("--set", !args.set.is_empty()), ("--data", args.data.is_some())])),
            (_, true) => unused(&for_suites).or(unused(&for_needle)).or(unused(&[
                ("--no-bos", args.no_bos),
                ("--max-length", args.max_length.is_some()),
            ])),
            _ => unused(&for_needle).or(unused(&[("--set", !args.set.is_empty())])),
        };
        if let Some(option) = idle {
            let message = format!("{option} has no effect with --suite {}", args.suite.display());
            return Err(Failure::bad_input(message).help(format!("remove {option}")));
        }
        if own {
            refuse_idle_fields(args)?;
        }
        Ok(match (needle, own) {
            (true, _) => Chosen::Needle(Needles {
                seed: args.seed.unwrap_or(0),
                lengths: Vec::new(),
                depths: match args.depths.is_empty() {
                    true => vec![0, 25, 50, 75, 100],
                    false => args.depths.clone(),
                },
                count: args.count.unwrap_or(10),
            }),
            (_, true) => Chosen::Own,
            _ => Chosen::Suite(asked(args)?),
        })
    }

    /// Each task to ask, with its name in results and the longest input.
    pub fn rounds(
        self,
        args: &EvalArgs,
        lengths: &[usize],
        encoder: &dyn Encoder,
    ) -> Result<Vec<(String, usize, Asked)>, Failure> {
        match self {
            Chosen::Own => Ok(Vec::new()),
            Chosen::Needle(needles) => {
                let needles = Needles { lengths: lengths.to_vec(), ..needles };
                let all = needles.asked(encoder)?.into_iter();
                Ok(all.map(|(length, asked)| (asked.task.name.clone(), length, asked)).collect())
            }
            Chosen::Suite(all) => {
                let mut rounds = Vec::new();
                for length in lengths {
                    for asked in &all {
                        let name = match args.lengths.is_empty() {
                            true => asked.task.name.clone(),
                            false => format!("{}@{length}", asked.task.name),
                        };
                        rounds.push((name, *length, asked.clone()));
                    }
                }
                Ok(rounds)
            }
        }
    }
}

/// Refuses fields that `--suite task` does not use: suites are asked by their own name.
fn refuse_idle_fields(args: &EvalArgs) -> Result<(), Failure> {
    let of_suites = [
        "evaluation.suites",
        "evaluation.suite_tasks",
        "evaluation.suite_data",
        "evaluation.tokenizer_file",
    ];
    for text in &args.set {
        let path = text.split_once('=').map_or(text.as_str(), |(path, _)| path);
        let (with, help) = match path {
            _ if of_suites.contains(&path) => {
                ("--suite task", "remove it; `--suite FILE` asks the tasks of a suite")
            }
            "data.seq_len" if !args.lengths.is_empty() => ("--lengths", "remove one of the two"),
            _ => continue,
        };
        let message = format!("--set {path} has no effect with {with}");
        return Err(Failure::bad_input(message).help(help));
    }
    Ok(())
}

/// The fields that `--set` gives.
pub fn set(given: &[String]) -> Result<Fields, Failure> {
    let mut fields = Fields::new();
    for text in given {
        let wrong = |why: String, help: &str| {
            Err(Failure::bad_input(format!("--set {text}: {why}")).help(help))
        };
        let Some((path, value)) = text.split_once('=') else {
            return wrong("it has no `=`".to_owned(), "write FIELD=VALUE, such as data.depo.K=8");
        };
        let allowed = |path: &str| {
            path.starts_with("data.") || path.starts_with("evaluation.") || path == "seeds.eval"
        };
        let Some(def) = field::find(path).filter(|def| allowed(def.path) && def.is_writable())
        else {
            let inside = field::find(&format!("data.{path}")).map(|def| def.path);
            let near = inside
                .or_else(|| field::suggest(path))
                .map_or_else(String::new, |near| format!("did you mean {near}? "));
            let help =
                format!("{near}recipes/README.md lists the fields of [data] and [evaluation]");
            return wrong(format!("`{path}` is not a field of the data or the evaluation"), &help);
        };
        match def.kind.parse(value) {
            Ok(value) => drop(fields.insert(path.to_owned(), value)),
            Err(why) => {
                let help = match def.kind.parse(&format!("\"{value}\"")) {
                    Ok(_) => format!("write it as in a recipe: --set '{path}=\"{value}\"'"),
                    Err(_) => "write the value as in a recipe".to_owned(),
                };
                return wrong(why, &help);
            }
        }
    }
    Ok(fields)
}

/// A digest of everything besides the weights that decides a lock's own metrics.
pub fn settings(experiment: &Experiment) -> String {
    let (train, eval) = (experiment.train_text(), experiment.eval_text());
    let data = train.lines().filter(|line| line.starts_with("data."));
    let lines: Vec<&str> =
        data.chain(eval.lines().filter(|line| !line.starts_with("train"))).collect();
    compiler::digest::Digest::of("canonc.eval.task.v1", &lines.join("\n")).to_string()
}

/// All requests of the tasks that are asked for.
fn asked(args: &EvalArgs) -> Result<Vec<Asked>, Failure> {
    let (folder, tasks) = chosen(args)?;
    let mut all = Vec::new();
    for task in tasks {
        if task.shots > 0 && task.kind == suite::suite::Kind::Document {
            return Err(Failure::bad_input(format!(
                "--shots {} is given, but `{}` scores documents, which have no examples",
                task.shots, task.name
            ))
            .help("leave the task out with --task, or remove --shots"));
        }
        all.push(Asked::read(task, &folder, args.limit)?);
    }
    Ok(all)
}
