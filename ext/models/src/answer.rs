//! `canonc answer`: a model answers the questions of a file, each on its own, and the answers are judged.
//!
//! A question that no answer can settle counts as neither right nor wrong.

use std::collections::BTreeMap;

use data::babilong;
use runtime::decode::{Decoder, Prompt, SamplingOptions};
use serde::{Deserialize, Serialize};
use tasks::multihop;

use crate::forward::{machine, options, weights};
use crate::open::{Asked, Described};
use cli::fail::{Exit, Failure, Outcome, shown};
use cli::{files, out, output};
use commands::answer::{AnswerArgs, Judge};

/// A line of the file; `canonc data generate multihop` and `canonc data babilong` write such lines.
#[derive(Deserialize)]
struct Question {
    text: String,
    answer: String,
}

#[derive(Serialize)]
struct Answered<'a> {
    answer: &'a str,
    said: String,
    /// `None` if it cannot be judged.
    right: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flag: Option<&'static str>,
}

/// A line of output: the keys of [`Answered`].
const ANSWERS: out::OutputKind = out::OutputKind::Lines(&["answer", "flag", "right", "said"]);

pub(crate) fn answer(args: &AnswerArgs) -> Outcome {
    let asked = Asked {
        model: &args.file,
        arch: args.arch.as_deref(),
        weights: args.weights.as_deref(),
        prompts: &args.prompts,
        reads_text: true,
        instead: "use a model with text tokens",
    };
    let Described { compiled, weights: path, text, .. } = asked.describe()?;
    let machine = machine(&args.machine)?;
    if args.out.as_os_str() != "-" {
        out::check(&args.out, ANSWERS)?;
    }
    let by = text?;
    let questions = questions(args)?;
    let weights = weights(&compiled, &path, machine)?;
    let decoder = Decoder::new(&compiled.graph, options(&args.machine), machine)
        .map_err(|error| Failure::machine(error.to_string()))?;
    let tokens: Vec<Vec<i64>> =
        questions.iter().map(|question| by.tokens(&question.text)).collect::<Result<_, _>>()?;
    let prompts: Vec<Prompt<'_>> =
        tokens.iter().map(|tokens| Prompt { tokens, most: args.max_tokens, seed: 0 }).collect();
    let how = SamplingOptions { temperature: 0.0, top_k: None, stop: by.stop(), rows: args.rows };
    let texts = decoder.decode(&weights, &prompts, how)?;
    let (mut lines, mut right, mut judged) = (String::new(), 0u64, 0u64);
    let mut flags: BTreeMap<&'static str, u64> = BTreeMap::new();
    for ((question, tokens), text) in questions.iter().zip(&tokens).zip(&texts) {
        let said = by.continuation(tokens, &text.tokens)?;
        let said = String::from_utf8_lossy(&said).into_owned();
        let begins = match args.judge {
            Judge::Begins => multihop::is_right(&said, &question.answer),
            Judge::Words => babilong::is_right(&said, &question.answer),
        };
        let flag = flag(&question.answer, by.count(&question.answer)?, begins, args);
        let is_right = flag.is_none().then_some(begins);
        match flag {
            Some(flag) => *flags.entry(flag).or_insert(0) += 1,
            None => judged += 1,
        }
        right += u64::from(is_right == Some(true));
        let answered = Answered { answer: &question.answer, said, right: is_right, flag };
        lines += &serde_json::to_string(&answered).map_err(|e| Failure::machine(e.to_string()))?;
        lines.push('\n');
    }
    match args.out.as_os_str() == "-" {
        true => output::json_lines(&lines)?,
        false => out::put(&args.out, ANSWERS, &lines)?,
    }
    let share = match judged {
        0 => "none was judged".to_owned(),
        _ => format!("{:.1}%", 100.0 * right as f64 / judged as f64),
    };
    output::note(&format!("right: {right} of {judged} ({share}), {}", args.judge.rule()));
    for (flag, count) in flags {
        let answers = if count == 1 { "answer" } else { "answers" };
        output::note(&format!("not judged: {count} {answers} of the file, {flag}"));
    }
    Ok(Exit::Fine)
}

/// Why every answer or no answer to a question would count as right.
fn flag(answer: &str, tokens: usize, is_right: bool, args: &AnswerArgs) -> Option<&'static str> {
    let empty = match args.judge {
        Judge::Begins => answer.is_empty(),
        Judge::Words => answer.split(',').all(|part| part.trim().is_empty()),
    };
    match empty {
        true => Some("empty"),
        false => (tokens > args.max_tokens && !is_right).then_some("longer than --max-tokens"),
    }
}

fn questions(args: &AnswerArgs) -> Result<Vec<Question>, Failure> {
    let path = &args.questions;
    let text = disk::read_text(path, disk::TEXT).map_err(|error| files::missing(path, &error))?;
    let lines = text
        .trim_start_matches('\u{feff}')
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let questions: Vec<Question> = lines
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| {
                Failure::bad_input(format!("{}:{}: {error}", shown(path), number + 1))
                    .help("a line is `{\"text\": …, \"answer\": …}`")
            })
        })
        .collect::<Result<_, _>>()?;
    if questions.is_empty() {
        return Err(Failure::bad_input(format!("`{}` has no questions", shown(path))).help(
            "`canonc data generate multihop --set N=5 --set hops=1 --count 50 --out questions.jsonl`",
        ));
    }
    Ok(questions)
}
