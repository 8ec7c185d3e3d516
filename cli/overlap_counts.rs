//! Counts the evaluation questions of a comparison that its training contained, for the labels of its rows.
//!
//! Counts follow from the locks alone, so they are cached in the comparison's folder under a digest of their inputs. A
//! training too long to regenerate is scanned only from its start, and then the count is a bound.

use std::collections::BTreeMap;
use std::path::Path;

use lab::comparison::ComparisonRun;
use lab::experiment::{DataSource, Experiment};
use records::overlap::{Overlap, Share, overlap_of_tokens, windows_of};
use records::run::json_lines;
use report::compare::{self, Counted, RunOverlap};
use serde::{Deserialize, Serialize};
use tasks::task::InTraining;

use crate::compared::arm_of;
use crate::fail::Failure;
use crate::out::{self, OutputKind};
use crate::output;

/// Most training tokens that are regenerated for one seed: some seconds of work.
const MOST_TOKENS: u64 = 1 << 26;

/// A line of the cache file. Pairs are numbers of questions, and of those that training contained.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    /// Digest of everything that determines the windows.
    of: String,
    in_windows: (u64, u64),
    /// By level.
    answers: BTreeMap<u32, (u64, u64)>,
    windows: u64,
    of_windows: u64,
}

const KEYS: &[&str] = &["of", "in_windows", "answers", "windows", "of_windows"];
/// Not `shown.jsonl`: earlier versions kept one count for all levels there.
const FILE: &str = "overlap.jsonl";

/// How the evaluation questions can occur in training. Documents have no questions.
pub fn in_training(experiment: &Experiment) -> InTraining {
    match &experiment.data.source {
        DataSource::Task { task, .. } => task.definition().in_training,
        DataSource::Text { .. } => InTraining::Never,
    }
}

/// Counts for every run, and gives each its own; equal windows are counted once. Stores the counts if `keep` is set.
pub fn count(
    runs: &[&ComparisonRun],
    compared: &mut compare::Comparison,
    folder: &Path,
    keep: bool,
) -> Result<(), Failure> {
    let path = folder.join(FILE);
    let mut known: BTreeMap<String, Kept> = json_lines(&path)?
        .into_iter()
        .filter_map(|line| serde_json::from_value::<Kept>(line).ok())
        .map(|kept| (kept.of.clone(), kept))
        .collect();
    let before = known.len();
    for run in runs {
        let shown = match in_training(&run.experiment) {
            InTraining::Never => continue,
            InTraining::ByDesign => RunOverlap::ByDesign,
            InTraining::ByChance => {
                let of = windows_of(&run.experiment).to_string();
                let kept = match known.get(&of) {
                    Some(kept) => kept.clone(),
                    None => {
                        if known.len() == before {
                            output::note("counting evaluation questions in the training data");
                        }
                        let kept = kept(&run.experiment, of.clone(), MOST_TOKENS)?;
                        known.insert(of, kept.clone());
                        kept
                    }
                };
                RunOverlap::Counted(kept.into())
            }
        };
        let name = arm_of(run);
        let arm = compared.arms.iter_mut().find(|arm| arm.name == name && arm.role == run.role);
        let of_point = arm.and_then(|arm| arm.points.get_mut(run.point)).into_iter().flatten();
        of_point.filter(|of| of.seed == run.seed).for_each(|of| of.shown = Some(shown.clone()));
    }
    if keep && known.len() > before {
        let lines: Result<Vec<String>, _> = known.values().map(serde_json::to_string).collect();
        let lines = lines
            .map_err(|error| Failure::machine(format!("a count cannot be written: {error}")))?;
        out::put(&path, OutputKind::Lines(KEYS), format!("{}\n", lines.join("\n")))?;
    }
    Ok(())
}

/// Counts in at most this many tokens of training windows; `of` is their digest.
pub fn counted(experiment: &Experiment, of: String, most: u64) -> Result<Counted, Failure> {
    kept(experiment, of, most).map(Counted::from)
}

fn kept(experiment: &Experiment, of: String, most: u64) -> Result<Kept, Failure> {
    let found = overlap_of_tokens(experiment, most, |_, _| {})?;
    let Overlap { windows, of_windows, levels, in_windows, .. } = found;
    let pair = |Share { questions, shown }| (questions, shown);
    let answers = levels.into_iter().map(|(level, share)| (level, pair(share))).collect();
    Ok(Kept { of, in_windows: pair(in_windows), answers, windows, of_windows })
}

impl From<Kept> for Counted {
    fn from(kept: Kept) -> Counted {
        let share = |(questions, shown)| Share { questions, shown };
        let Kept { of, in_windows, answers, windows, of_windows } = kept;
        Counted {
            of,
            in_windows: share(in_windows),
            answers: answers.into_iter().map(|(level, pair)| (level, share(pair))).collect(),
            windows,
            of_windows,
        }
    }
}
