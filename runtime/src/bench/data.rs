//! Speed of the playground's generators in samples per second on one core, and of a stand-in for the published ones: our
//! own Python script, run on this machine just before, which makes as many draws as the published generator and does less
//! besides. No figures from other machines are used.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use data::DataError;
use data::stream::Stream;
use data::window::Order;
use tasks::cpython::Random;
use tasks::lano::{self, Lano};
use tasks::sample::Mode;
use tasks::task::{Generator, Task};

use super::Timing;

/// One published setting of a generator.
#[derive(Debug)]
pub struct Setting {
    pub name: &'static str,
    task: &'static str,
    params: fn() -> Value,
    mode: Mode,
}

#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub samples: f64,
    pub tokens: f64,
}

pub const SETTINGS: [Setting; 10] = [
    setting("depo1 N=375 K=8", "depo", || depo(375, 8, 50, 1, 2)),
    setting("depo2 N=125 K=16", "depo", || depo(125, 16, 3, 5, 7)),
    setting("brevo1 N=110", "brevo", || json!({ "N": 110, "multi": false })),
    setting("brevo2 N=50", "brevo", || json!({ "N": 50, "multi": true })),
    setting("mano L=10", "mano", || json!({ "L": 10 })),
    setting("mano L=16", "mano", || json!({ "L": 16 })),
    setting("lano cfg3f", "lano", || json!({ "config": "cfg3f" })),
    setting("lano cfg3k", "lano", || json!({ "config": "cfg3k" })),
    setting("capo bioS", "capo", || json!({ "N": 20000, "permute": false })),
    setting("capo bioS permuted", "capo", || json!({ "N": 20000, "permute": true })),
];

const fn setting(name: &'static str, task: &'static str, params: fn() -> Value) -> Setting {
    Setting { name, task, params, mode: Mode::Train }
}

fn depo(n: u64, k: u64, letters: u64, shortest: u64, longest: u64) -> Value {
    json!({ "N": n, "K": k, "mini_vocab": letters, "min_tlen": shortest, "max_tlen": longest })
}

/// Counts the samples made in 1.5 seconds, after an uncounted 0.1 seconds.
pub fn rate(setting: &Setting) -> Result<Rate, DataError> {
    let task = Task::parse(setting.task, (setting.params)())?;
    let mut stream = Stream::new(task, Order::Published, setting.mode, 1);
    let mut timed = |seconds: f64| {
        let (start, mut samples, mut tokens) = (Instant::now(), 0u64, 0u64);
        loop {
            for _ in 0..64 {
                tokens += stream.sample().tokens.len() as u64;
            }
            samples += 64;
            let taken = start.elapsed().as_secs_f64();
            if taken > seconds {
                return Rate { samples: samples as f64 / taken, tokens: tokens as f64 / taken };
            }
        }
    };
    timed(0.1);
    Ok(timed(1.5))
}

/// Lengths in tokens, and median milliseconds for one sentence: to parse it, and for the next-token probabilities.
#[derive(Clone, Copy, Debug)]
pub struct Parsing {
    pub tokens: f64,
    pub membership_ms: f64,
    pub law_ms: f64,
}

pub fn parsing(config: &str) -> Result<Parsing, DataError> {
    let lano = Lano::new(&lano::DEFINITION.arguments(json!({ "config": config }))?)?;
    let (grammar, mut random) = (lano.grammar(), Random::new(7));
    let mut found = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..15 {
        let sentence = lano.sample_tree(&mut random).tokens(grammar);
        let start = Instant::now();
        let accepted = std::hint::black_box(grammar.accepts(&sentence));
        let membership = start.elapsed().as_secs_f64() * 1e3;
        let start = Instant::now();
        let law = std::hint::black_box(grammar.law(&sentence));
        let law_ms = start.elapsed().as_secs_f64() * 1e3;
        debug_assert!(accepted && law.impossible().is_none());
        for (list, value) in found.iter_mut().zip([sentence.len() as f64, membership, law_ms]) {
            list.push(value);
        }
    }
    let [tokens, membership_ms, law_ms] = found.map(|values| Timing::from_times(&values).median);
    Ok(Parsing { tokens, membership_ms, law_ms })
}

/// Samples per second of our Python stand-ins for Depo1 and Mano on this machine; `None` without python3.
pub fn stand_in() -> Option<[f64; 2]> {
    let mut python = Command::new("python3")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    python.stdin.take()?.write_all(include_bytes!("stand_in.py")).ok()?;
    let output = python.wait_with_output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut rates = text.split_whitespace().filter_map(|word| word.parse().ok());
    Some([rates.next()?, rates.next()?])
}
