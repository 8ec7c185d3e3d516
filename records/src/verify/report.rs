//! In: what each check of a run came to. Out: the claims that were recomputed, checked against digests, taken on
//! trust or broken, and one line that says which. Must stay true: a claim is in the weakest class that is true of it;
//! a finished check leaves every part of a run in one of the classes.

use serde::Serialize;

/// A part of a run that claims are made about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The lock's text.
    Lock,
    /// What no id covers: the lock's name, how often to log and to save.
    Settings,
    /// The initial parameters.
    InitialWeights,
    /// The plan of training, evaluation and generation.
    Plan,
    LearningRates,
    /// The windows of each step and their counted targets.
    Batches,
    /// That prepared text holds the tokens of its documents.
    Tokens,
    /// The windows that evaluations are made on: their counted targets and answers.
    HeldOut,
    /// The order of the log's lines, its chain and its totals.
    Log,
    /// Training losses and gradient norms.
    Losses,
    /// What each evaluation scored.
    Evaluations,
    /// The tensors that checkpoints hold: their names, shapes, bytes and digests.
    Tensors,
    /// That the weights and moments after the start came from training by this lock.
    Training,
    /// Which checkpoints are there, and which is the last.
    Checkpoints,
    /// Which kernel computed what.
    Kernels,
    /// The machines and libraries that the run was made on.
    Machine,
    Attestation,
    /// Who vouches for the attestation.
    Signature,
    /// When, how long, in how many processes: timings, events and what is below the attestation's seal.
    Times,
    /// Files that no part of a run is in.
    OtherFiles,
}

impl Subject {
    /// As the closing line says it.
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
            Subject::Tensors => "tensor digests",
            Subject::Training => "training from the first weights to the last",
            Subject::Checkpoints => "checkpoints",
            Subject::Kernels => "kernels",
            Subject::Machine => "machine",
            Subject::Attestation => "attestation",
            Subject::Signature => "who signed",
            Subject::Times => "times",
            Subject::OtherFiles => "other files",
        }
    }
}

/// A claim, and what was found of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    pub subject: Subject,
    /// How much of the subject, as `64 of 600 steps`, or why not; `None` for all of it.
    pub part: Option<String>,
    pub text: String,
}

/// What became of each claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Made again from the lock, the data or the bytes on disk, and equal.
    pub recomputed: Vec<Claim>,
    /// Equal to a digest or to another file of the run, which whoever writes the one can write as well.
    pub checked: Vec<Claim>,
    /// Believed, and why.
    pub trusted: Vec<Claim>,
    /// False, with both values.
    pub broken: Vec<String>,
    /// How many of `broken` are about who signed, and how many about files that are no part of a run.
    #[serde(skip)]
    pub about_signature: usize,
    #[serde(skip)]
    pub about_strays: usize,
    /// Came out differently on a machine whose rounding may differ: neither true nor false here.
    pub undecided: Vec<String>,
}

impl Report {
    pub fn recomputed(&mut self, subject: Subject, text: impl Into<String>) {
        self.recomputed.push(Claim { subject, part: None, text: text.into() });
    }

    pub fn checked(&mut self, subject: Subject, text: impl Into<String>) {
        self.checked.push(Claim { subject, part: None, text: text.into() });
    }

    pub fn trusted(&mut self, subject: Subject, text: impl Into<String>) {
        self.trusted.push(Claim { subject, part: None, text: text.into() });
    }

    /// A claim that could not be recomputed here, with the reason that the closing line gives.
    pub fn trusted_since(&mut self, subject: Subject, why: &str, text: impl Into<String>) {
        self.trusted.push(Claim { subject, part: Some(why.to_owned()), text: text.into() });
    }

    /// A part of a subject was recomputed, and the rest is taken on trust, each with how much of it.
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

    pub fn broken(&mut self, text: impl Into<String>) {
        self.broken.push(text.into());
    }

    /// A finding about the signature alone: the run may hold.
    pub fn broken_signature(&mut self, text: impl Into<String>) {
        self.about_signature += 1;
        self.broken(text);
    }

    /// A finding about a file that is no part of the run: the run may hold.
    pub fn broken_stray(&mut self, text: impl Into<String>) {
        self.about_strays += 1;
        self.broken(text);
    }

    pub fn undecided(&mut self, text: impl Into<String>) {
        self.undecided.push(text.into());
    }

    /// Whether a claim about this is among those taken on trust.
    pub fn trusts(&self, subject: Subject) -> bool {
        self.trusted.iter().any(|claim| claim.subject == subject)
    }

    /// A claim that was taken on trust and has now been recomputed in full.
    pub fn proved(&mut self, subject: Subject, text: impl Into<String>) {
        self.trusted.retain(|claim| claim.subject != subject);
        self.recomputed(subject, text);
    }

    /// A part of what was taken on trust has now been recomputed, each with how much of it.
    pub fn proved_in_part(
        &mut self,
        subject: Subject,
        recomputed: (String, String),
        trusted: (String, String),
    ) {
        self.trusted.retain(|claim| claim.subject != subject);
        self.split(subject, recomputed, trusted);
    }

    /// What was recomputed, what was checked against digests, and what was taken on trust, in one line.
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
        format!(
            "recomputed: {}; checked against digests: {}; taken on trust: {}",
            part(&self.recomputed),
            part(&self.checked),
            part(&self.trusted)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_names_each_subject_once_by_class() {
        let mut report = Report::default();
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
        let mut report = Report::default();
        report.split(Subject::Batches, part(4), part(5));
        let parts = "recomputed: batches (4 of 9 steps); checked against digests: nothing; taken on trust: batches (5 of 9 steps)";
        assert_eq!(report.closing(), parts);
    }
}
