//! Counters and histograms of a server, for `/metrics` (Prometheus' text format) and `/health`. Counting never blocks,
//! and every series exists from the start.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Upper limits of the buckets, in milliseconds.
const LIMITS: [u64; 13] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000];

/// A number that counts up, or that is set.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Adds to it; returns the value before.
    pub fn add(&self, more: u64) -> u64 {
        self.0.fetch_add(more, Ordering::Relaxed)
    }

    /// Subtracts from it.
    pub fn take(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    /// Replaces it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Times {
    buckets: [Number; LIMITS.len()],
    count: Number,
    micros: Number,
}

impl Times {
    /// Adds a duration.
    pub fn add(&self, took: Duration) {
        let millis = took.as_secs_f64() * 1e3;
        for (limit, bucket) in LIMITS.iter().zip(&self.buckets) {
            if millis <= *limit as f64 {
                bucket.add(1);
            }
        }
        self.count.add(1);
        self.micros.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }
}

/// How a request ended, as a label.
pub const STATUSES: [&str; 10] =
    ["200", "400", "401", "403", "404", "413", "429", "503", "504", "other"];

/// Everything that is counted.
#[derive(Debug, Default)]
pub struct Stats {
    requests: [Number; STATUSES.len()],
    /// Prompt tokens that were fed.
    pub prompt_tokens: Number,
    /// Tokens that were drawn.
    pub drawn_tokens: Number,
    /// Steps of the batch.
    pub steps: Number,
    /// Sequences that ended because nobody waits for them.
    pub cancelled: Number,
    /// Sequences that took longer than allowed.
    pub timed_out: Number,
    /// Sequences that ended with an error of the model.
    pub failed: Number,
    /// Steps that failed for the whole batch and were repeated one sequence at a time.
    pub repeated: Number,
    /// Sequences being computed.
    pub running: Number,
    /// Sequences that wait.
    pub waiting: Number,
    /// Open connections.
    pub connections: Number,
    /// From a request's arrival to its end.
    pub request_times: Times,
    /// From a sequence's arrival to its first token.
    pub first_token_times: Times,
    /// Whether the server is ending.
    pub ending: AtomicBool,
    /// Whether it no longer waits for running answers.
    pub cut: AtomicBool,
}

impl Stats {
    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        let text = status.to_string();
        let at = STATUSES.iter().position(|known| *known == text).unwrap_or(STATUSES.len() - 1);
        if let Some(number) = self.requests.get(at) {
            number.add(1);
        }
    }

    /// Answers with this status, which is one of [`STATUSES`].
    pub fn answers(&self, status: &str) -> u64 {
        let at = STATUSES.iter().position(|known| *known == status);
        at.and_then(|at| self.requests.get(at)).map_or(0, Number::get)
    }

    /// The text of `/metrics`. `memory`: bytes that this process has in memory.
    pub fn render(&self, memory: Option<u64>) -> String {
        let mut text = String::new();
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ = write!(text, "# HELP canonc_{name} {help}\n# TYPE canonc_{name} {kind}\n");
        };
        head(&mut text, "requests_total", "counter", "Answered requests by status.");
        for (status, number) in STATUSES.iter().zip(&self.requests) {
            let _ = writeln!(text, "canonc_requests_total{{status=\"{status}\"}} {}", number.get());
        }
        for (name, kind, help, value) in [
            ("prompt_tokens_total", "counter", "Tokens of prompts.", self.prompt_tokens.get()),
            ("generated_tokens_total", "counter", "Tokens drawn.", self.drawn_tokens.get()),
            ("steps_total", "counter", "Decoding steps of the batch.", self.steps.get()),
            ("cancelled_total", "counter", "Sequences whose client left.", self.cancelled.get()),
            ("timed_out_total", "counter", "Sequences past their time.", self.timed_out.get()),
            ("failed_total", "counter", "Sequences that the model failed.", self.failed.get()),
            ("repeated_steps_total", "counter", "Steps repeated one by one.", self.repeated.get()),
            ("sequences_running", "gauge", "Sequences being computed.", self.running.get()),
            ("sequences_waiting", "gauge", "Sequences in the queue.", self.waiting.get()),
            ("connections", "gauge", "Open connections.", self.connections.get()),
            ("resident_memory_bytes", "gauge", "Memory of this process.", memory.unwrap_or(0)),
        ] {
            head(&mut text, name, kind, help);
            let _ = writeln!(text, "canonc_{name} {value}");
        }
        for (name, help, times) in [
            ("request_seconds", "From a request to its whole answer.", &self.request_times),
            ("first_token_seconds", "From a request to its first token.", &self.first_token_times),
        ] {
            head(&mut text, name, "histogram", help);
            for (limit, bucket) in LIMITS.iter().zip(&times.buckets) {
                let limit = *limit as f64 / 1e3;
                let _ = writeln!(text, "canonc_{name}_bucket{{le=\"{limit}\"}} {}", bucket.get());
            }
            let (count, sum) = (times.count.get(), times.micros.get() as f64 / 1e6);
            let _ = writeln!(text, "canonc_{name}_bucket{{le=\"+Inf\"}} {count}");
            let _ = writeln!(text, "canonc_{name}_sum {sum}\ncanonc_{name}_count {count}");
        }
        text
    }

    /// Whether the server is ending.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }
}
