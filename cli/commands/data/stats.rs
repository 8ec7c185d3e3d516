//! `canonc data stats`: statistics of a task's samples.

use clap::Args;
use data::stats::Stats;
use records::progress::rounded;
use serde::Serialize;

use super::screen::Screen;
use super::{SampleArgs, at_least_one, stream};
use crate::fail::{Exit, Outcome};
use crate::output;

/// Show statistics of a task's samples: lengths, targets, answers, tokens used
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc data stats brevo --set N=110
  canonc data stats lano --set config=cfg3k --count 100000 --json

Schema of --json, one object on standard output:
  schema    \"canonc.data.stats.v1\"
  task      its name
  samples, tokens
  length    {least, most, mean}, tokens per sample
  targets   number of targets if only answers count; null for tasks without labels
  vocabulary       {tokens, used}: tokens that samples can have, and those that occurred
  bits_per_token   the entropy of single tokens
  answers   each {level, count, tokens}; the meaning of a level depends on the task (hops, depth, operations)")]
pub(super) struct StatsArgs {
    #[command(flatten)]
    pub samples: SampleArgs,
    /// Number of samples to inspect
    #[arg(long, value_name = "N", default_value_t = 1000, allow_negative_numbers = true, value_parser = at_least_one)]
    pub count: u64,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Counts {
    schema: &'static str,
    task: &'static str,
    samples: u64,
    tokens: u64,
    length: Length,
    targets: Option<u64>,
    vocabulary: Vocabulary,
    bits_per_token: f64,
    answers: Vec<Answers>,
}

#[derive(Serialize)]
struct Length {
    least: u64,
    most: u64,
    mean: f64,
}

#[derive(Serialize)]
struct Vocabulary {
    tokens: usize,
    used: usize,
}

#[derive(Serialize)]
struct Answers {
    level: u32,
    count: u64,
    tokens: u64,
}

pub(super) fn stats(args: &StatsArgs) -> Outcome {
    let StatsArgs { samples, count, json } = args;
    let mut stream = stream(samples, *count)?;
    let mut stats = Stats::default();
    let mut screen = Screen::new(*count);
    for done in 1..=*count {
        stats.add(stream.sample());
        screen.show(done, |seconds| {
            let rate = rounded(done as f64 / seconds.max(1e-9));
            format!("{} samples  {rate} samples/s", output::grouped(done))
        });
    }
    screen.clear();
    if !json {
        output::data(&stats.describe(stream.task()))?;
        return Ok(Exit::Fine);
    }
    let task = stream.task();
    let (mean, bits_per_token) = (stats.mean_tokens(), stats.token_entropy());
    let Stats { samples, tokens, least, most, labelled, answers, uses } = stats;
    output::json(&Counts {
        schema: "canonc.data.stats.v1",
        task: task.name(),
        samples,
        tokens,
        length: Length { least, most, mean },
        targets: task.has_labels().then_some(labelled),
        vocabulary: Vocabulary {
            tokens: task.alphabet().len(),
            used: uses.iter().filter(|&&uses| uses > 0).count(),
        },
        bits_per_token,
        answers: answers
            .into_iter()
            .map(|(level, (count, tokens))| Answers { level, count, tokens })
            .collect(),
    })?;
    Ok(Exit::Fine)
}
