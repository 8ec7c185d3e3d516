//! The runs of a comparison: curves, runs, arms.

use std::collections::BTreeMap;
use std::path::Path;

use compiler::digest::Digest;
pub use lab::comparison::Role;
use lab::trainer::{self, Setting, TrainerRecord};

use super::metric::{STEP_TIME, TRAINING_LOSS};
use super::question_scores::QuestionScores;
use super::training_overlap::RunOverlap;

/// A run's final training loss is the mean over this share of its last steps.
const TAIL: f64 = 0.1;

/// The logged curves of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// (step, training loss).
    pub loss: Vec<(u64, f64)>,
    /// By metric, (step, value).
    pub metrics: BTreeMap<String, Vec<(u64, f64)>>,
    /// By metric, the number of questions, tokens or targets behind its last value, if logged.
    pub asked: BTreeMap<String, u64>,
    /// Windows of one evaluation, by the lock.
    pub windows: Option<u64>,
    /// Samples that the model writes at one evaluation, by the lock.
    pub samples: Option<u64>,
    /// By metric, the score of each question after the last step, if logged.
    pub questions: BTreeMap<String, QuestionScores>,
    /// Peak memory of any process of the run, if it was measured.
    pub peak_bytes: Option<u64>,
    /// Median seconds of an optimiser step, if the run timed them.
    pub step_seconds: Option<f64>,
    /// The number of steps with a time.
    pub timed_steps: Option<u64>,
    /// Why the run's times are not used, if its file of times is not one that a run writes.
    pub untimed: Option<String>,
    /// The platform and machine of the timings; `None` if several machines worked on the run.
    pub timed_on: Option<String>,
    /// The step at which training diverged. Such a run has no metric values, and ranks below all runs that have.
    pub diverged: Option<u64>,
    /// Digest of the data of each step, from the first on; of another engine's run, as far as it computed them.
    pub batches: Vec<Digest>,
    /// The record of the engine that trained the run elsewhere; `None` for canonc.
    pub trainer: Option<TrainerRecord>,
    /// What decides whether two such records can be compared.
    pub setting: Setting,
}

/// One run of an arm.
#[derive(Clone, Debug)]
pub struct ArmRun {
    /// Index in the list of seeds; runs with equal index are paired.
    pub seed: usize,
    /// Its logged curves.
    pub curves: Curves,
    /// What training contained of its evaluation questions; `None` if that was not counted, as for documents.
    pub shown: Option<RunOverlap>,
}

/// One arm of a comparison, with its runs.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The arm's name in the lock.
    pub name: String,
    /// Base, treatment or replicate of the base.
    pub role: Role,
    /// The runs at each point of the grid.
    pub points: Vec<Vec<ArmRun>>,
}

impl Arm {
    /// The runs of all points.
    pub(super) fn runs(&self) -> impl Iterator<Item = &ArmRun> {
        self.points.iter().flatten()
    }
}

/// Before the folder, in the text of where a run was timed.
const IN_FOLDER: &str = "\nfolder ";

impl Curves {
    /// The number of last steps that a final training loss is the mean of.
    pub(super) fn tail(&self) -> usize {
        ((self.loss.len() as f64 * TAIL) as usize).max(1)
    }

    /// Every metric after the last step; none for a diverged run. The training loss is a mean over the last steps.
    pub(super) fn finals(&self) -> BTreeMap<String, f64> {
        if self.diverged.is_some() {
            return BTreeMap::new();
        }
        let last = self.loss.last().map(|(step, _)| *step);
        let at_the_end = |points: &Vec<(u64, f64)>| {
            let (step, value) = *points.last()?;
            (Some(step) == last).then_some(value)
        };
        let mut values: BTreeMap<String, f64> = self
            .metrics
            .iter()
            .filter_map(|(name, points)| Some((name.clone(), at_the_end(points)?)))
            .collect();
        let losses: Vec<f64> =
            self.loss.iter().rev().take(self.tail()).map(|(_, loss)| *loss).collect();
        if let Some(loss) = mean(&losses) {
            values.insert(TRAINING_LOSS.to_owned(), loss);
        }
        if let Some(seconds) = self.step_seconds {
            values.insert(STEP_TIME.to_owned(), seconds);
        }
        values
    }

    /// A metric after the last step.
    pub fn last(&self, metric: &str) -> Option<f64> {
        self.finals().get(metric).copied()
    }

    /// Records the session in which the run was timed: the comparison that its folder belongs to. A run outside of a
    /// comparison was not interleaved with others: it is a session of its own, so its times are not compared.
    pub fn timed_in(&mut self, run_folder: &Path, comparison_folder: &Path) {
        let session =
            run_folder.parent().filter(|session| Some(*session) != comparison_folder.parent());
        let session = session.unwrap_or(run_folder).display();
        self.timed_on = self.timed_on.take().map(|on| format!("{on}{IN_FOLDER}{session}"));
    }

    /// The confounds between the trainers of two runs, each in one line.
    pub fn confounds(&self, other: &Curves) -> Vec<String> {
        let Setting { bf16, means, noise } = self.setting;
        let also = other.setting;
        let setting = Setting {
            bf16: bf16 || also.bf16,
            means: means || also.means,
            noise: noise || also.noise,
        };
        trainer::confounds(self.trainer.as_ref(), other.trainer.as_ref(), setting)
    }

    /// Who trained the run, in words.
    pub fn trained_by(&self) -> String {
        self.trainer.as_ref().map_or_else(|| trainer::CANONC.to_owned(), TrainerRecord::described)
    }

    /// The platform and machine, whichever folder the run was timed in.
    pub(super) fn machine(&self) -> Option<&str> {
        let on = self.timed_on.as_deref()?;
        Some(on.split_once(IN_FOLDER).map_or(on, |(machine, _)| machine))
    }

    /// Whether two runs were timed on one machine, in one session.
    pub(super) fn is_timed_with(&self, other: &Curves) -> bool {
        self.timed_on.is_some() && self.timed_on == other.timed_on
    }
}

/// The mean; `None` for no values.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// A metric of each run that has it, after its last step.
pub(super) fn final_values(runs: &[ArmRun], metric: &str) -> Vec<f64> {
    runs.iter().filter_map(|run| run.curves.last(metric)).collect()
}

/// The number of diverged runs.
pub(super) fn diverged(runs: &[ArmRun]) -> usize {
    runs.iter().filter(|run| run.curves.diverged.is_some()).count()
}

/// Pairs of runs with equal seeds. Pairs whose runs were trained by engines that differ in a confound are left out, unless
/// all pairs are such.
pub(super) fn paired<'a>(base: &'a [ArmRun], other: &'a [ArmRun]) -> Vec<(&'a ArmRun, &'a ArmRun)> {
    let all = pairs_of_seeds(base, other);
    let (alike, mixed): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(one, other)| one.curves.confounds(&other.curves).is_empty());
    if alike.is_empty() { mixed } else { alike }
}

/// All pairs of runs with equal seeds.
pub(super) fn pairs_of_seeds<'a>(
    base: &'a [ArmRun],
    other: &'a [ArmRun],
) -> Vec<(&'a ArmRun, &'a ArmRun)> {
    base.iter()
        .filter_map(|base| Some((base, other.iter().find(|other| other.seed == base.seed)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds are compared within the folder of one comparison, where runs were interleaved.
    #[test]
    fn runs_are_timed_together_in_one_comparison_s_folder() {
        for (folders, together) in [
            (["runs/own/a", "runs/own/b"], true),
            (["runs/other/a", "runs/other/b"], true),
            (["runs/other/a", "runs/own/b"], false),
            // Runs that no comparison interleaved.
            (["runs/a", "runs/b"], false),
        ] {
            let [one, other] = folders.map(|folder| {
                let mut curves = Curves { timed_on: Some("here".to_owned()), ..Curves::default() };
                curves.timed_in(Path::new(folder), Path::new("runs/own"));
                curves
            });
            assert_eq!(one.is_timed_with(&other), together, "{folders:?}");
            assert_eq!(one.machine(), other.machine(), "another folder is no other machine");
        }
    }
}
