//! `canonc data stats`: statistics of a task's samples.
//!
//! In: the task and the number of samples. Out: counts on standard output, as text or as JSON. Must stay true: memory
//! does not grow with the number of samples.

use data::stats::Stats;
use records::progress::rounded;
use serde::Serialize;

use super::screen::Screen;
use super::stream;
use crate::args::StatsArgs;
use crate::fail::{Exit, Outcome};
use crate::output;

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
