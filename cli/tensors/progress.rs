//! Progress of a run: on the screen and, if asked, in an event file for TensorBoard.

use std::io::IsTerminal;
use std::time::Instant;

use lab::experiment::Experiment;
use records::checkpoint::{set_aside, step_of};
use records::metrics::{Evaluation, Score, Step, SuiteScores};
use records::progress::{Progress, span};
use records::run::Event;
use report::compare::measure_name;
use runtime::train::Observer;

use cli::fail::reason;
use cli::live::Live;
use cli::output;

/// Shows the progress of a run and writes its event file. An event file that cannot be written ends with a warning;
/// training goes on.
pub(crate) struct Observed {
    pub(crate) screen: Screen,
    pub(crate) live: Option<Live>,
}

impl Observed {
    /// Lets the event file go after an error: a torn record ends it. The next process repairs it.
    fn keep_if(&mut self, written: std::io::Result<()>) {
        let Err(error) = written else { return };
        self.live = None;
        self.screen.clear();
        output::note(&format!(
            "warning: the event file for TensorBoard cannot be written, and ends here: {}; \
             `canonc report RUN --tensorboard DIR` writes it whole",
            reason(&error)
        ));
    }
}

impl Observer for Observed {
    fn step(&mut self, step: &Step, seconds: f64) {
        self.screen.step(step, seconds);
        let written = self.live.as_mut().map_or(Ok(()), |live| live.step(step, seconds));
        self.keep_if(written);
    }

    fn evaluation(&mut self, evaluation: &Evaluation, seconds: f64) {
        self.screen.evaluation(evaluation, seconds);
        let written = self.live.as_mut().map_or(Ok(()), |live| live.evaluation(evaluation));
        self.keep_if(written);
    }

    fn event(&mut self, event: &Event) {
        self.screen.event(event);
    }
}

/// Progress: one line that is redrawn on a terminal, or separate lines in a log.
pub(crate) struct Screen {
    progress: Progress,
    every: u64,
    last: u64,
    terminal: bool,
    drawn: Option<Instant>,
    /// Whether the cursor is after a line that can be redrawn.
    open: bool,
}

/// Seconds between two redraws.
const REDRAW: f64 = 0.1;

impl Screen {
    pub(crate) fn new(experiment: &Experiment) -> Screen {
        Screen {
            progress: Progress::new(experiment.budget.steps, experiment.batch.tokens_per_step),
            every: experiment.log_every.max(1),
            last: experiment.budget.steps,
            terminal: std::io::stderr().is_terminal(),
            drawn: None,
            open: false,
        }
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.open) {
            output::draw("\r\x1b[2K");
        }
    }

    fn line(&mut self, text: &str) {
        self.clear();
        output::note(text);
    }
}

impl Observer for Screen {
    fn step(&mut self, step: &Step, seconds: f64) {
        let status = self.progress.step(step.step, step.loss, step.lr, seconds);
        if self.terminal {
            let due = self.drawn.is_none_or(|drawn| drawn.elapsed().as_secs_f64() > REDRAW);
            if due {
                output::draw(&format!("\r\x1b[2K{status}"));
                (self.drawn, self.open) = (Some(Instant::now()), true);
            }
        } else if step.step.is_multiple_of(self.every) || step.step == self.last {
            self.line(&status.to_string());
        }
    }

    fn evaluation(&mut self, evaluation: &Evaluation, seconds: f64) {
        let Evaluation { step, nll, counted, tokens, answers, measures, questions: _, suites } =
            evaluation;
        let mut parts = vec![format!("evaluation after step {step}:")];
        parts.extend(match nll {
            Some(nll) => Some(format!("eval_loss {nll:.4}")),
            None if *counted == 0 => Some("eval_loss - (no held-out target counts)".to_owned()),
            None => None,
        });
        let percent = |score: Score| score.ratio().map(|ratio| format!("{:.1}%", 100.0 * ratio));
        parts.extend(percent(*tokens).map(|share| format!("token_accuracy {share}")));
        parts.extend(percent(evaluation.exact()).map(|share| format!("exact_match {share}")));
        let levels: Vec<String> = answers
            .iter()
            .filter_map(|(level, score)| Some(format!("{level}: {}", percent(*score)?)))
            .collect();
        if levels.len() > 1 {
            parts.push(format!("({})", levels.join(", ")));
        }
        parts.extend(
            measures.iter().map(|(name, value)| format!("{} {value:.4}", measure_name(name))),
        );
        for SuiteScores { task, scores, .. } in suites {
            let one = |(word, value): (&String, &f64)| format!("{}/{word} {value:.4}", task.name);
            parts.extend(scores.iter().map(one));
        }
        parts.push(format!("in {}", span(seconds)));
        self.line(&parts.join(" "));
    }

    fn event(&mut self, event: &Event) {
        let text = match event {
            Event::Started { step: 0, .. } | Event::Interrupted { .. } | Event::Finished { .. } => {
                return;
            }
            Event::Started { step, .. } => format!("going on after step {step}"),
            Event::MetricsCut { .. } => {
                "the metrics log ended in an incomplete line, which was removed".to_owned()
            }
            Event::CheckpointRefused { name, why } => match step_of(name) {
                None => format!("warning: {name} is not used: {why}"),
                Some(_) => format!(
                    "warning: {name} is not used, and becomes checkpoints/{}: {why}",
                    set_aside(name)
                ),
            },
            Event::SavesAlone { rank } => format!(
                "warning: rank {rank} does not see the run's folder, so rank 0 collects the state and writes checkpoints alone"
            ),
            Event::Proved { step, lines } => {
                let lines = output::counted(*lines, "logged line");
                format!("{lines} up to step {step} came out the same")
            }
            Event::Failed { .. } | Event::Diverged { .. } => return,
        };
        self.line(&text);
    }
}
