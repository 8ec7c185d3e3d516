//! `canonc data babilong`: questions of a Babilong task, in the prompts of a user's own checkout, for `canonc answer`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use data::babilong::{Prompts, Set};
use disk::{TEXT, read_text};
use serde::{Deserialize, Serialize};

use crate::fail::{Exit, Failure, Outcome, shown};
use crate::options::within;
use crate::out::{self, OutputKind};
use crate::{files, output};

/// Put questions of a Babilong task into the prompts of your own checkout
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data babilong --prompts babilong/prompts.py --task 1 --questions qa1.jsonl --out prompted.jsonl

canonc may not distribute the prompts: name the Python files of a Babilong checkout that define them. Prompts other
than the published ones are refused. A question is a line `{\"context\": …, \"question\": …, \"answer\": …}`, or with
Babilong's `input` and `target`; the output is for `canonc answer --judge words`.")]
pub(super) struct BabilongArgs {
    /// Python files that define the prompts, in the order in which they import each other
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub prompts: Vec<PathBuf>,
    /// The set of prompts
    #[arg(long, value_enum, value_name = "SET", default_value_t)]
    pub set: BabilongSet,
    /// Task number, for qa1 to qa20
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u32>(1, 20))]
    pub task: u32,
    /// A JSON lines file
    #[arg(long, value_name = "FILE")]
    pub questions: PathBuf,
    /// Output file for prompts; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum BabilongSet {
    /// Prompts of Part 4's experiments, qa1 to qa5
    #[default]
    Part4,
    /// Babilong's own prompts, qa1 to qa20
    Default,
}

/// A line of `--questions`; Babilong calls the context `input` and the answer `target`.
#[derive(Deserialize)]
struct Question {
    #[serde(alias = "input")]
    context: String,
    question: String,
    #[serde(alias = "target")]
    answer: String,
}

#[derive(Serialize)]
struct Prompted<'a> {
    text: String,
    answer: &'a str,
}

pub(super) fn babilong(args: &BabilongArgs) -> Outcome {
    let refused = |error: dsl::Problem| Failure::bad_input(error.message).help(error.help);
    let mut sources = Vec::new();
    for path in &args.prompts {
        let text = read_text(path, TEXT).map_err(|error| files::missing(path, &error))?;
        sources.push(text);
    }
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let set = match args.set {
        BabilongSet::Default => Set::Default,
        BabilongSet::Part4 => Set::Part4,
    };
    let prompt =
        Prompts::read(&sources).and_then(|read| read.published(set, args.task)).map_err(refused)?;
    let text = read_text(&args.questions, TEXT)
        .map_err(|error| files::missing(&args.questions, &error))?;
    let mut lines = String::new();
    for (number, line) in text
        .trim_start_matches('\u{feff}')
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let Question { context, question, answer } =
            serde_json::from_str(line).map_err(|error| {
                Failure::bad_input(format!("{}:{}: {error}", shown(&args.questions), number + 1))
                    .help("a line is `{\"context\": …, \"question\": …, \"answer\": …}`")
            })?;
        let prompted = Prompted { text: prompt.fill(&context, &question), answer: &answer };
        lines += &serde_json::to_string(&prompted).map_err(|e| Failure::machine(e.to_string()))?;
        lines.push('\n');
    }
    match args.out.as_os_str() == "-" {
        true => output::json_lines(&lines)?,
        false => out::put(&args.out, OutputKind::Samples, &lines)?,
    }
    Ok(Exit::Fine)
}
