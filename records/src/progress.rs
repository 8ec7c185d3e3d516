//! A line with the progress, speed and remaining time of a run. The caller times and prints.
//!
//! The rate follows the last steps, so neither the first one nor an evaluation in between dominates it.

use std::fmt;

/// Tracks a run's progress.
#[derive(Clone, Debug)]
pub struct Progress {
    total: u64,
    /// Tokens per step.
    tokens: u64,
    /// Seconds per step, smoothed.
    seconds: Option<f64>,
}

/// The status to show after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Number of the step, from 1.
    pub step: u64,
    /// Number of steps of the run.
    pub total: u64,
    /// `None` if no target counted.
    pub loss: Option<f64>,
    /// Learning rate of the step.
    pub lr: f64,
    /// Training tokens per second, smoothed over steps.
    pub tokens_per_second: f64,
    /// Estimated seconds to the last step.
    pub left: f64,
}

/// Weight of the newest step in the smoothed time.
const NEWEST: f64 = 0.1;

impl Progress {
    /// The progress of a run of `total` steps of `tokens` tokens each.
    pub fn new(total: u64, tokens: u64) -> Progress {
        Progress { total, tokens, seconds: None }
    }

    /// The status after a step that took `seconds`.
    pub fn step(&mut self, step: u64, loss: Option<f64>, lr: f64, seconds: f64) -> Status {
        let smoothed = match self.seconds {
            None => seconds,
            Some(before) => before + NEWEST * (seconds - before),
        };
        self.seconds = Some(smoothed);
        Status {
            step,
            total: self.total,
            loss,
            lr,
            tokens_per_second: self.tokens as f64 / smoothed.max(1e-9),
            left: smoothed * self.total.saturating_sub(step) as f64,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { step, total, loss, lr, tokens_per_second, left } = self;
        let loss = loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.4}"));
        let share = 100.0 * *step as f64 / (*total).max(1) as f64;
        write!(
            f,
            "step {step}/{total} ({share:.0}%)  loss {loss}  lr {lr:.2e}  {} tok/s  {} left",
            rounded(*tokens_per_second),
            span(*left)
        )
    }
}

/// `950`, `12.3k`, `4.56M`.
pub fn rounded(value: f64) -> String {
    match value {
        value if value < 1e4 => format!("{value:.0}"),
        value if value < 1e6 => format!("{:.1}k", value / 1e3),
        value if value < 1e9 => format!("{:.2}M", value / 1e6),
        value => format!("{:.2}G", value / 1e9),
    }
}

/// `4.2 s`, `3 min 20 s`, `5 h 07 min`, `12 d 3 h`.
pub fn span(seconds: f64) -> String {
    let rounded = seconds.max(0.0).round() as u64;
    let (minutes, hours, days) = (rounded / 60, rounded / 3600, rounded / 86400);
    match rounded {
        0..10 => format!("{:.1} s", seconds.max(0.0)),
        10..60 => format!("{rounded} s"),
        60..3600 => format!("{minutes} min {:02} s", rounded % 60),
        3600..86400 => format!("{hours} h {:02} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// `512 B`, `1.5 KiB`, `3.2 GiB`.
pub fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units.get(unit).unwrap_or(&"TiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_first_step_is_forgotten() {
        let mut progress = Progress::new(600, 4096);
        progress.step(1, Some(9.0), 0.0, 100.0);
        let status = (2..100).map(|step| progress.step(step, Some(2.5), 3e-3, 0.1)).last().unwrap();
        assert!((status.left - 50.0).abs() < 5.0, "{status:?}");
        assert!((status.tokens_per_second - 40960.0).abs() < 2000.0, "{status:?}");
    }

    #[test]
    fn a_progress_line_shows_loss_speed_and_time_left() {
        let mut progress = Progress::new(600, 4096);
        let line = progress.step(150, Some(2.345_67), 3e-3, 0.1).to_string();
        assert_eq!(line, "step 150/600 (25%)  loss 2.3457  lr 3.00e-3  41.0k tok/s  45 s left");
        let line = progress.step(151, None, 3e-3, 0.1).to_string();
        assert!(line.contains("  loss -  lr"), "{line}");
    }

    #[test]
    fn spans_and_sizes_are_readable() {
        let spans = [0.0, 9.26, 59.4, 200.0, 3600.0 * 5.0 + 420.0, 86400.0 * 12.1].map(span);
        assert_eq!(spans, ["0.0 s", "9.3 s", "59 s", "3 min 20 s", "5 h 07 min", "12 d 2 h"]);
        assert_eq!([0, 1023, 1536, 3 << 30].map(bytes), ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]);
        assert_eq!([950.0, 12_345.0, 4.56e6].map(rounded), ["950", "12.3k", "4.56M"]);
    }
}
