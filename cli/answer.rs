//! `canonc answer`: questions of a file answered by a model, each by itself, and judged.
//!
//! In: an arch, weights, JSON lines of questions with their answers. Out: each question's answer as a JSON line, and
//! how many are right. Must stay true: answers are the likeliest tokens, decoded as `canonc generate --temperature 0`
//! does; what counts as right is named, since no rule is published; no question is left out.

use compiler::plan::Options;
use runtime::data::text::{BOS, EOS};
use runtime::data::{babilong, multihop};
use runtime::decode::{Decoder, How, Prompt};
use serde::{Deserialize, Serialize};

use crate::args::{AnswerArgs, Judge};
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::forward::{machine, one_arch, weights};
use crate::load::Found;
use crate::runs::{self, failure};
use crate::{files, out, output};

/// A line of the file; `canonc data generate multihop` and `canonc data babilong` write such.
#[derive(Deserialize)]
struct Question {
    text: String,
    answer: String,
}

#[derive(Serialize)]
struct Answered<'a> {
    answer: &'a str,
    said: String,
    right: bool,
}

/// What a line says: the keys of [`Answered`].
const ANSWERS: out::Kind = out::Kind::Lines(&["answer", "right", "said"]);

/// Of the byte tokenizer.
const VOCAB: i64 = 258;

pub(crate) fn answer(args: &AnswerArgs) -> Outcome {
    let Found { compiled, train: _ } = one_arch(&args.file, args.arch.as_deref())?;
    let machine = machine(&args.machine)?;
    if compiled.graph.vocab != VOCAB {
        return Err(Failure::bad_input(format!(
            "questions are text, which needs the byte tokenizer's vocabulary of {VOCAB}, and this arch has {}",
            compiled.graph.vocab
        ))
        .help("name an arch that was trained on text"));
    }
    if args.out.as_os_str() != "-" {
        out::check(&args.out, ANSWERS)?;
    }
    let questions = questions(args)?;
    let weights = weights(&compiled, &runs::weights(&args.file, args.weights.as_deref())?, machine)?;
    let decoder = Decoder::new(&compiled.graph, Options::default(), machine)
        .map_err(|error| Failure::machine(error.to_string()))?;
    let tokens: Vec<Vec<i64>> = questions
        .iter()
        .map(|question| {
            let bytes = question.text.bytes().map(i64::from);
            [i64::from(BOS)].into_iter().chain(bytes).collect()
        })
        .collect();
    let prompts: Vec<Prompt<'_>> =
        tokens.iter().map(|tokens| Prompt { tokens, most: args.max_tokens, seed: 0 }).collect();
    let how = How { temperature: 0.0, top_k: None, stop: Some(i64::from(EOS)), rows: args.rows };
    let texts = decoder.decode(&weights, &prompts, how).map_err(failure)?;
    let (mut lines, mut right) = (String::new(), 0u64);
    for (question, text) in questions.iter().zip(&texts) {
        let bytes: Vec<u8> = text.tokens.iter().filter_map(|t| u8::try_from(*t).ok()).collect();
        let said = String::from_utf8_lossy(&bytes).into_owned();
        let is_right = match args.judge {
            Judge::Begins => multihop::is_right(&said, &question.answer),
            Judge::Words => babilong::is_right(&said, &question.answer),
        };
        right += u64::from(is_right);
        let answered = Answered { answer: &question.answer, said, right: is_right };
        lines += &serde_json::to_string(&answered).map_err(|e| Failure::machine(e.to_string()))?;
        lines.push('\n');
    }
    match args.out.as_os_str() == "-" {
        true => output::json_lines(&lines)?,
        false => out::put(&args.out, ANSWERS, &lines)?,
    }
    let of = questions.len();
    let share = 100.0 * right as f64 / of as f64;
    output::note(&format!("right: {right} of {of} ({share:.1}%), {}", args.judge.rule()));
    Ok(Exit::Fine)
}

fn questions(args: &AnswerArgs) -> Result<Vec<Question>, Failure> {
    let path = &args.questions;
    let text = runtime::files::read_text(path, runtime::files::TEXT)
        .map_err(|error| files::missing(path, &error))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let questions: Vec<Question> = lines
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| {
                Failure::bad_input(format!("{}:{}: {error}", shown(path), number + 1))
                    .help("a line is `{\"text\": …, \"answer\": …}`")
            })
        })
        .collect::<Result<_, _>>()?;
    if questions.is_empty() {
        return Err(Failure::bad_input(format!("`{}` asks nothing", shown(path))).help(
            "`canonc data generate multihop --set N=5 --set k=1 --count 50 --out questions.jsonl`",
        ));
    }
    Ok(questions)
}
