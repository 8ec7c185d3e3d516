//! The results of a replay, and what they prove in the report of `canonc verify`.

use records::metrics::Record;
use records::verify::{Subject, TrainedBy, VerifyReport};

use super::difference::{Difference, RunPoint};
use super::platform::Platform;
use super::stretch::{Origin, Stretch};

/// The result of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Number of steps computed again, then number of logged steps.
    pub steps: u64,
    pub of_steps: u64,
    /// Number of those steps with a compared weight update, through the next step or a checkpoint.
    pub updates: u64,
    /// First and last step of each stretch.
    pub stretches: Vec<(u64, u64)>,
    pub evaluations: u64,
    pub of_evaluations: u64,
    /// Steps with a kept checkpoint that was reached from the state before it, then the number of kept checkpoints.
    pub reached: Vec<u64>,
    pub kept: usize,
    pub differences: Vec<Difference>,
    pub platform: Platform,
    /// How many kernels were computed again by the recorded paths; `None` if this machine cannot decide that.
    pub kernels: Option<usize>,
}

impl Replay {
    /// Adds the results of `steps` steps from `origin`.
    pub(super) fn add(&mut self, origin: &Origin, steps: u64, stretch: Stretch) {
        let last = origin.step() + steps;
        let Stretch { steps: _, evaluations, without_questions: _, differences, checkpoint } =
            stretch;
        self.steps += steps;
        self.evaluations += evaluations;
        self.updates += steps.saturating_sub(u64::from(checkpoint.is_none()));
        if steps > 0 {
            self.stretches.push((origin.step() + 1, last));
        }
        let mut of_steps = Vec::new();
        for (record, difference) in differences {
            match record {
                Record::Step(step) => of_steps.push((step.step, difference)),
                Record::Start(_) | Record::Evaluation(_) => {
                    self.evaluations += 1;
                    let text =
                        format!("{}: {}", RunPoint::from_record(&record).text(), difference.text);
                    self.differences.push(Difference { text, ..difference });
                }
            }
        }
        if let [(step, first), rest @ ..] = of_steps.as_slice() {
            let after = match (rest, &checkpoint) {
                ([], Some(None)) => format!(
                    "; every other step to {last} and its checkpoint come out the same, so only the log is wrong"
                ),
                ([], _) if *step < last => {
                    format!("; the steps after it, to {last}, come out the same")
                }
                (rest, _) => format!(
                    "; {} of the {steps} steps from {} differ",
                    rest.len() + 1,
                    origin.text()
                ),
            };
            let text = format!("step {step}: {}{after}", first.text);
            self.differences.push(Difference { text, ..first.clone() });
        }
        match checkpoint {
            Some(Some(difference)) => {
                let text = format!(
                    "checkpoints/step-{last:010} differs from training from {}: {}",
                    origin.text(),
                    difference.text()
                );
                self.differences.push(Difference::of_state(text, &self.platform));
            }
            Some(None) => self.reached.push(last),
            None => {}
        }
    }

    /// Whether every logged step, every evaluation and every kept checkpoint was computed again.
    pub fn is_whole(&self) -> bool {
        self.steps == self.of_steps
            && self.evaluations == self.of_evaluations
            && self.reached.len() == self.kept
    }

    /// Adds the results to the report of `canonc verify`.
    pub fn tell(&self, report: &mut VerifyReport) {
        let other = match &self.platform {
            Platform::Same => String::new(),
            Platform::Other(differs) => {
                format!(", on another machine than the attested one ({})", differs.join("; "))
            }
        };
        for Difference { text, maybe_rounding, slight: _ } in &self.differences {
            match maybe_rounding {
                false => report.broken(format!("replay: {text}")),
                true => report.undecided(format!(
                    "replay: {text}; this may be rounding, which this machine cannot decide: {}",
                    other.trim_start_matches(", ")
                )),
            }
        }
        if !self.differences.is_empty() {
            return;
        }
        if self.steps > 0 && self.platform == Platform::Same {
            report.trained_by = TrainedBy::Canonc { shown: true };
        }
        self.tell_losses(&other, report);
        if self.evaluations > 0 {
            self.tell_evaluations(report);
        }
        if let Some(kernels) = self.kernels {
            let kernels = dsl::counted(kernels, "kernel");
            let text = format!(
                "kernels: the recorded paths of {kernels} are those that this machine takes"
            );
            report.proved(Subject::Kernels, text);
        }
        if !self.reached.is_empty() {
            self.tell_states(report);
        }
    }

    fn tell_losses(&self, other: &str, report: &mut VerifyReport) {
        let Replay { steps, of_steps, updates, stretches, .. } = self;
        let range = |(first, last): &(u64, u64)| match first == last {
            true => first.to_string(),
            false => format!("{first} to {last}"),
        };
        let ranges: Vec<String> = stretches.iter().map(range).collect();
        let compared = match updates {
            0 => "no update of the weights compared: `--replay 2` compares one".to_owned(),
            updates => format!("{} of the weights compared", dsl::counted(*updates, "update")),
        };
        let (rest, all) = (of_steps - steps, dsl::counted(*of_steps, "step"));
        let text = format!(
            "losses and gradient norms of {steps} of {all} ({}) trained again, {compared}: the same bits{other}",
            ranges.join(", ")
        );
        let trusted = format!(
            "losses and gradient norms of {}: --replay all trains them again",
            dsl::counted(rest, "step")
        );
        let parts = [(format!("{steps} of {all}"), text), (format!("{rest} of {all}"), trusted)];
        prove(report, Subject::Losses, rest == 0, parts);
    }

    fn tell_evaluations(&self, report: &mut VerifyReport) {
        let (count, all) = (self.evaluations, self.of_evaluations);
        let rest = all - count;
        let text = format!("{count} of {}: the same bits", dsl::counted(all, "evaluation"));
        let trusted =
            format!("scores of {}: --replay all recomputes them", dsl::counted(rest, "evaluation"));
        let parts = [(format!("{count} of {all}"), text), (format!("{rest} of {all}"), trusted)];
        prove(report, Subject::Evaluations, rest == 0, parts);
    }

    fn tell_states(&self, report: &mut VerifyReport) {
        let steps: Vec<String> = self.reached.iter().map(u64::to_string).collect();
        let (count, kept) = (self.reached.len(), self.kept);
        let text = format!(
            "weights and moments of {count} of {kept} kept checkpoints (after step {}), trained again from the state \
             before: the same bits",
            steps.join(", ")
        );
        let trusted = "the weights and moments that no replayed step reached: --replay all reaches all that are kept";
        let parts = [
            (format!("to {count} of {}", dsl::counted(kept, "checkpoint")), text),
            ("the rest".to_owned(), trusted.to_owned()),
        ];
        prove(report, Subject::Training, self.is_whole(), parts);
    }
}

/// Moves a trusted claim to the recomputed ones: all of it, or its first part.
fn prove(
    report: &mut VerifyReport,
    subject: Subject,
    is_whole: bool,
    [proved, trusted]: [(String, String); 2],
) {
    match is_whole {
        true => report.proved(subject, proved.1),
        false => report.proved_in_part(subject, proved, trusted),
    }
}
