//! Progress of a job: one line on standard error, redrawn in place; in a log, such a line now and then.

use std::io::IsTerminal;
use std::time::Instant;

use records::progress::span;

use crate::output;

/// Seconds between two redraws.
const REDRAW: f64 = 0.1;
/// Seconds between two lines of a log.
const LOGGED: f64 = 30.0;

/// The progress line of one job.
pub(super) struct Screen {
    total: u64,
    started: Instant,
    /// When the line was last drawn; at the start, the job's start.
    drawn: Instant,
    terminal: bool,
    /// Whether the cursor is after a line that can be redrawn.
    open: bool,
}

impl Screen {
    pub(super) fn new(total: u64) -> Screen {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        Screen { total, started: now, drawn: now, terminal, open: false }
    }

    /// `say` takes the elapsed seconds and returns the text to show after the share and the time left.
    pub(super) fn show(&mut self, done: u64, say: impl FnOnce(f64) -> String) {
        let every = if self.terminal { REDRAW } else { LOGGED };
        if self.drawn.elapsed().as_secs_f64() < every {
            return;
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let line = line(done, self.total, seconds, &say(seconds));
        match self.terminal {
            true => output::draw(&format!("\r\x1b[2K{line}")),
            false => output::note(&line),
        }
        (self.drawn, self.open) = (Instant::now(), self.terminal);
    }

    /// Clears the line, so that other lines can be written.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.open) {
            output::draw("\r\x1b[2K");
        }
    }
}

/// What the line says: the share that is done, a text, and the time left at this pace.
pub fn line(done: u64, total: u64, seconds: f64, said: &str) -> String {
    let share = done as f64 / total.max(1) as f64;
    let left = match done {
        0 => String::new(),
        _ => {
            format!("  {} left", span(seconds * (total.saturating_sub(done)) as f64 / done as f64))
        }
    };
    format!("{:.0}%  {said}{left}", 100.0 * share)
}
