//! The playground's generators in samples per second on one core, beside a Python stand-in for the published ones; and
//! Lano's parser.
//!
//! The stand-in is our own script: it makes as many draws as the published generator and does less besides.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::error::Error;
use std::hint::black_box;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use data::stream::Stream;
use data::window::Order;
use report::statistics::median;
use serde_json::{Value, json};
use tasks::cpython::Random;
use tasks::lano::{self, Lano};
use tasks::sample::Mode;
use tasks::task::Generator as _;
use tasks::task::Task;

/// A published setting of a generator, and its row in the stand-in.
struct Setting {
    name: &'static str,
    task: &'static str,
    params: Value,
    stand_in: Option<usize>,
}

fn settings() -> Vec<Setting> {
    let setting = |name, task, params| Setting { name, task, params, stand_in: None };
    let depo = |n: u64, k: u64, letters: u64, shortest: u64, longest: u64| json!({ "N": n, "K": k, "mini_vocab": letters, "min_tlen": shortest, "max_tlen": longest });
    vec![
        Setting { stand_in: Some(0), ..setting("depo1 N=375 K=8", "depo", depo(375, 8, 50, 1, 2)) },
        setting("depo2 N=125 K=16", "depo", depo(125, 16, 3, 5, 7)),
        setting("brevo1 N=110", "brevo", json!({ "N": 110, "multi": false })),
        setting("brevo2 N=50", "brevo", json!({ "N": 50, "multi": true })),
        Setting { stand_in: Some(1), ..setting("mano L=10", "mano", json!({ "L": 10 })) },
        setting("mano L=16", "mano", json!({ "L": 16 })),
        setting("lano cfg3f", "lano", json!({ "config": "cfg3f" })),
        setting("lano cfg3k", "lano", json!({ "config": "cfg3k" })),
        setting("capo bioS", "capo", json!({ "N": 20000, "permute": false })),
        setting("capo bioS permuted", "capo", json!({ "N": 20000, "permute": true })),
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    let stand_in = stand_in().unwrap_or_default();
    for setting in settings() {
        let (samples, tokens) = rate(&setting)?;
        let beside = setting.stand_in.and_then(|row| stand_in.get(row));
        let beside = beside.map_or(String::new(), |rate| {
            format!(", {:.0}× the Python stand-in's {rate:.0}", samples / rate)
        });
        println!("{:<19} {samples:>9.0} samples/s {tokens:>11.0} tokens/s{beside}", setting.name);
    }
    for config in ["cfg3b", "cfg3f", "cfg3i", "cfg3k"] {
        let [tokens, check, law] = parsing(config)?;
        println!(
            "{config}: medians of 15 sentences: {tokens:.0} tokens, sentence check {check:.2} ms, next-token \
             probabilities {law:.2} ms"
        );
    }
    Ok(())
}

/// Samples and tokens per second, over 1.5 seconds after an uncounted 0.1.
fn rate(setting: &Setting) -> Result<(f64, f64), Box<dyn Error>> {
    let task = Task::parse(setting.task, setting.params.clone()).map_err(|error| error.message)?;
    let mut stream = Stream::new(task, Order::Published, Mode::Train, 1);
    let mut timed = |seconds: f64| {
        let (start, mut samples, mut tokens) = (Instant::now(), 0u64, 0u64);
        loop {
            for _ in 0..64 {
                tokens += stream.sample().tokens.len() as u64;
            }
            samples += 64;
            let elapsed = start.elapsed().as_secs_f64();
            if elapsed > seconds {
                return (samples as f64 / elapsed, tokens as f64 / elapsed);
            }
        }
    };
    timed(0.1);
    Ok(timed(1.5))
}

/// Medians over sentences: tokens, milliseconds to parse one, milliseconds for its next-token probabilities.
fn parsing(config: &str) -> Result<[f64; 3], Box<dyn Error>> {
    let arguments = lano::DEFINITION.arguments(json!({ "config": config }))?;
    let lano = Lano::new(&arguments).map_err(|error| error.message)?;
    let (grammar, mut random) = (lano.grammar(), Random::new(7));
    let mut measured = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..15 {
        let sentence = lano.sample_tree(&mut random).tokens(grammar);
        let start = Instant::now();
        let accepted = black_box(grammar.accepts(&sentence));
        let check = start.elapsed().as_secs_f64() * 1e3;
        let start = Instant::now();
        let law = black_box(grammar.law(&sentence));
        let law_ms = start.elapsed().as_secs_f64() * 1e3;
        assert!(accepted && law.impossible().is_none());
        for (list, value) in measured.iter_mut().zip([sentence.len() as f64, check, law_ms]) {
            list.push(value);
        }
    }
    Ok(measured.map(|values| median(&values)))
}

/// Samples per second of our Python stand-ins for Depo1 and Mano on this machine; `None` without python3.
fn stand_in() -> Option<Vec<f64>> {
    let mut python = Command::new("python3")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    python.stdin.take()?.write_all(include_bytes!("stand_in.py")).ok()?;
    let output = python.wait_with_output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}
