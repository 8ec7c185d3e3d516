//! The results of the checks of a run: claims that were recomputed, checked against digests, taken on trust or broken.
//!
//! A claim is in the weakest class that applies to it; a finished check puts every part of a run in one of the classes.

use std::io;
use std::path::Path;

use dsl::Problem;
use serde::Serialize;

use crate::run::Refusal;

/// A part of a run that has claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The lock's text.
    Lock,
    /// Settings that no id covers: the lock's name, how often to log and to save.
    Settings,
    /// The initial parameters.
    InitialWeights,
    /// The plan of training, evaluation and generation.
    Plan,
    /// The learning rate of each step.
    LearningRates,
    /// The windows of each step and their counted targets.
    Batches,
    /// The match of prepared text with the tokens of its documents.
    Tokens,
    /// The windows of evaluations: their counted targets and answers.
    HeldOut,
    /// The order of the log's lines, its chain and its totals.
    Log,
    /// Training losses and gradient norms.
    Losses,
    /// The scores of each evaluation.
    Evaluations,
    /// Suites: the tasks and metrics of each evaluation, and how scores follow from each question's part.
    Suites,
    /// The tensors in checkpoints: their names, shapes, bytes and digests.
    Tensors,
    /// The origin of the weights and moments after the start in training by this lock.
    Training,
    /// Which checkpoints exist, and which is the last.
    Checkpoints,
    /// The implementation used by each kernel.
    Kernels,
    /// The machines and libraries of the run.
    Machine,
    /// What an engine says of itself and of how it trained the run.
    Trainer,
    /// The updates of the weights from one step to the next.
    Updates,
    /// What several steps make of kept states.
    States,
    /// The attestation's text and its seal.
    Attestation,
    /// The signer of the attestation.
    Signature,
    /// Times, durations and number of processes: timings, events and the text below the attestation's seal.
    Times,
    /// Files that do not belong to a run.
    OtherFiles,
}

impl Subject {
    /// Its name in the closing line.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Lock => "lock",
            Subject::Settings => "names and cadences",
            Subject::InitialWeights => "initial weights",
            Subject::Plan => "plan",
            Subject::LearningRates => "learning rates",
            Subject::Batches => "batches",
            Subject::Tokens => "tokens of the documents",
            Subject::HeldOut => "held-out windows",
            Subject::Log => "metrics log",
            Subject::Losses => "losses and gradient norms",
            Subject::Evaluations => "evaluations",
            Subject::Suites => "scores of suites",
            Subject::Tensors => "tensor digests",
            Subject::Training => "training from the first weights to the last",
            Subject::Checkpoints => "checkpoints",
            Subject::Kernels => "kernels",
            Subject::Machine => "machine",
            Subject::Trainer => "trainer record",
            Subject::Updates => "updates of the weights",
            Subject::States => "states that steps lead to",
            Subject::Attestation => "attestation",
            Subject::Signature => "who signed",
            Subject::Times => "times",
            Subject::OtherFiles => "other files",
        }
    }
}

/// A claim and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// What the claim is about.
    pub subject: Subject,
    /// How much of the subject, as `64 of 600 steps`, or why not; `None` for all of it.
    pub part: Option<String>,
    /// The claim and its result, in words.
    pub text: String,
}

/// The results of all claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Recomputed from the lock, the data or the bytes on disk, with an equal result.
    pub recomputed: Vec<Claim>,
    /// Equal to a digest or to another file of the run, which the author of the one could also have written.
    pub checked: Vec<Claim>,
    /// Of a run that another engine trained: computed again by canonc's kernels, within bounds.
    pub spot_checked: Vec<Claim>,
    /// Trusted, with the reason.
    pub trusted: Vec<Claim>,
    /// False, with both values.
    pub broken: Vec<String>,
    /// How many of `broken` are about the signer.
    #[serde(skip)]
    pub about_signature: usize,
    /// How many of `broken` are about files that do not belong to a run.
    #[serde(skip)]
    pub about_strays: usize,
    /// Different on a machine that may round differently: neither true nor false here.
    pub undecided: Vec<String>,
    /// Who trained the run.
    #[serde(skip)]
    pub trained_by: TrainedBy,
    /// The first file that the machine could not read, so that nothing can be said of the run.
    #[serde(skip)]
    pub unread: Option<Problem>,
}

/// Who trained a run, and what shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrainedBy {
    /// Not a run.
    #[default]
    None,
    /// canonc, by its files; `shown` if steps were trained again on the attested machine, with the same bits.
    Canonc {
        /// Whether a replay showed it.
        shown: bool,
    },
    /// Another engine, in words.
    Elsewhere(String),
}

/// Said of a run whose files look like canonc's, where no replay showed that canonc trained it.
const NOT_SHOWN: &str =
    "; nothing shown here says that canonc trained this run: `--replay` trains steps of it again";

impl VerifyReport {
    /// Adds a claim that was recomputed with an equal result.
    pub fn recomputed(&mut self, subject: Subject, text: impl Into<String>) {
        self.recomputed.push(Claim { subject, part: None, text: text.into() });
    }

    /// Adds a claim that agrees with another record of the run.
    pub fn checked(&mut self, subject: Subject, text: impl Into<String>) {
        self.checked.push(Claim { subject, part: None, text: text.into() });
    }

    /// Adds a claim that is taken on trust.
    pub fn trusted(&mut self, subject: Subject, text: impl Into<String>) {
        self.trusted.push(Claim { subject, part: None, text: text.into() });
    }

    /// Adds a claim that could not be recomputed here, with the reason for the closing line.
    pub fn trusted_since(&mut self, subject: Subject, reason: &str, text: impl Into<String>) {
        self.trusted.push(Claim { subject, part: Some(reason.to_owned()), text: text.into() });
    }

    /// Splits a subject: one part was recomputed, the rest is taken on trust, each with its amount.
    pub fn split(
        &mut self,
        subject: Subject,
        recomputed: (String, String),
        trusted: (String, String),
    ) {
        let claim = |(part, text)| Claim { subject, part: Some(part), text };
        self.recomputed.push(claim(recomputed));
        self.trusted.push(claim(trusted));
    }

    /// Adds a finding: a claim that is false.
    pub fn broken(&mut self, text: impl Into<String>) {
        self.broken.push(text.into());
    }

    /// Adds a finding about a file that is wrong or missing, with these words before it. One that could not be read is no
    /// finding.
    pub fn faulty(&mut self, what: &str, why: impl Into<Refusal>) {
        match why.into() {
            Refusal::Wrong(why) => self.broken(format!("{what}{why}")),
            Refusal::Unread(problem) => {
                self.unread.get_or_insert(problem);
            }
        }
    }

    /// The same for a file of the run that cannot be read.
    pub fn unreadable(&mut self, path: &Path, error: &io::Error) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.faulty(&format!("{name} cannot be read: "), Refusal::of_io(path, error));
    }

    /// Adds a finding about the signature alone: the run itself may be valid.
    pub fn broken_signature(&mut self, text: impl Into<String>) {
        self.about_signature += 1;
        self.broken(text);
    }

    /// Adds a finding about a file that does not belong to the run: the run itself may be valid.
    pub fn broken_stray(&mut self, text: impl Into<String>) {
        self.about_strays += 1;
        self.broken(text);
    }

    /// Adds a claim that this machine cannot decide.
    pub fn undecided(&mut self, text: impl Into<String>) {
        self.undecided.push(text.into());
    }

    /// Whether a claim about this subject is taken on trust.
    pub fn trusts(&self, subject: Subject) -> bool {
        self.trusted.iter().any(|claim| claim.subject == subject)
    }

    /// Moves a trusted claim to the recomputed ones, in full.
    pub fn proved(&mut self, subject: Subject, text: impl Into<String>) {
        self.trusted.retain(|claim| claim.subject != subject);
        self.recomputed(subject, text);
    }

    /// Moves a part of a trusted claim to the recomputed ones, each with its amount.
    pub fn proved_in_part(
        &mut self,
        subject: Subject,
        recomputed: (String, String),
        trusted: (String, String),
    ) {
        self.trusted.retain(|claim| claim.subject != subject);
        self.split(subject, recomputed, trusted);
    }

    /// One line that says what was recomputed, checked against digests, and taken on trust.
    pub fn closing(&self) -> String {
        let part = |claims: &[Claim]| {
            let mut names: Vec<String> = Vec::new();
            for Claim { subject, part, text: _ } in claims {
                let name = match part {
                    Some(part) => format!("{} ({part})", subject.name()),
                    None => subject.name().to_owned(),
                };
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
        };
        let (before, spot_checked, after) = match &self.trained_by {
            TrainedBy::Elsewhere(words) => {
                let spot_checked = format!("; spot-checked: {}", part(&self.spot_checked));
                (format!("trained elsewhere, by {words}; "), spot_checked, "")
            }
            TrainedBy::Canonc { shown: false } => (String::new(), String::new(), NOT_SHOWN),
            TrainedBy::Canonc { shown: true } | TrainedBy::None => {
                (String::new(), String::new(), "")
            }
        };
        format!(
            "{before}recomputed: {}; checked against digests: {}{spot_checked}; taken on trust: {}{after}",
            part(&self.recomputed),
            part(&self.checked),
            part(&self.trusted)
        )
    }

    /// Adds a claim that canonc's kernels computed again, within bounds, and how much of the subject that is.
    pub fn spot_checked(&mut self, subject: Subject, part: String, text: impl Into<String>) {
        self.spot_checked.push(Claim { subject, part: Some(part), text: text.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_no_finding() {
        let mut report = VerifyReport::default();
        let path = Path::new("run/plan.txt");
        report.unreadable(path, &io::ErrorKind::NotFound.into());
        assert_eq!(report.broken, ["plan.txt cannot be read: entity not found"]);
        report.unreadable(path, &io::ErrorKind::PermissionDenied.into());
        report.faulty("held-out windows: ", Problem::machine("the second", ""));
        assert_eq!(report.broken.len(), 1);
        assert!(report.unread.unwrap().message.starts_with("run/plan.txt cannot be read"));
    }

    #[test]
    fn the_closing_line_names_each_subject_once_by_class() {
        let mut report = VerifyReport::default();
        report.recomputed(Subject::Lock, "one");
        report.checked(Subject::Checkpoints, "step 6");
        report.checked(Subject::Checkpoints, "step 8");
        report.trusted(Subject::Losses, "no file proves them");
        let before = "recomputed: lock; checked against digests: checkpoints; taken on trust: losses and gradient norms";
        assert_eq!(report.closing(), before);
        assert!(report.trusts(Subject::Losses));
        report.proved(Subject::Losses, "8 of 8 steps");
        let after = "recomputed: lock, losses and gradient norms; checked against digests: checkpoints; taken on trust: nothing";
        assert_eq!(report.closing(), after);
        assert!(!report.trusts(Subject::Losses));
        let part = |count: u64| (format!("{count} of 9 steps"), String::new());
        let mut report = VerifyReport::default();
        report.split(Subject::Batches, part(4), part(5));
        let parts = "recomputed: batches (4 of 9 steps); checked against digests: nothing; taken on trust: batches (5 of 9 steps)";
        assert_eq!(report.closing(), parts);
    }
}
