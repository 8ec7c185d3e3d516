//! Counts the evaluation questions of a comparison that its training contained, for the label of its rows.
//!
//! In: a comparison with its runs. Out: counts over all seeds, or `None` for a task without repeatable
//! questions. Must stay true: counts follow from the locks alone, so they are cached in the comparison's folder under a
//! digest of their inputs; a training too long to regenerate is scanned only from its start, and then the count
//! is a bound.

use std::collections::BTreeMap;
use std::path::Path;

use compiler::lock::{Comparison, Experiment, Run};
use disk::json_lines;
use records::overlap::{Overlap, Share, overlap_of_tokens, windows_of};
use report::compare::Seen;
use serde::{Deserialize, Serialize};

use crate::fail::Failure;
use crate::out::{self, Kind};
use crate::output;
use crate::runs::failure;

/// Most training tokens that are regenerated for one seed: some seconds of work.
const MOST_TOKENS: u64 = 1 << 26;

/// A line of the cache file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    /// Digest of everything that determines the windows.
    of: String,
    questions: u64,
    shown: u64,
    windows: u64,
    of_windows: u64,
}

const KEYS: &[&str] = &["of", "questions", "shown", "windows", "of_windows"];
const FILE: &str = "shown.jsonl";

/// Counts for every run; equal windows are counted once. Stores them if `keep` is set.
pub fn seen(
    comparison: &Comparison,
    runs: &[&Run],
    folder: &Path,
    keep: bool,
) -> Result<Option<Seen>, Failure> {
    let task = comparison.arms.first().and_then(|arm| arm.experiment.value("data.task"));
    match task.map(|task| task.plain()).as_deref() {
        Some("capo") => return Ok(Some(Seen::ByDesign)),
        Some("brevo" | "depo" | "mano" | "multihop") => {}
        Some(_) | None => return Ok(None),
    }
    let path = folder.join(FILE);
    let mut known: BTreeMap<String, Kept> = json_lines(&path)
        .into_iter()
        .filter_map(|line| serde_json::from_value::<Kept>(line).ok())
        .map(|kept| (kept.of.clone(), kept))
        .collect();
    let (before, mut all) = (known.len(), BTreeMap::new());
    for run in runs {
        let of = windows_of(&run.experiment).to_string();
        if !known.contains_key(&of) {
            if known.len() == before {
                output::note("counting the questions that training showed");
            }
            known.insert(of.clone(), count(&run.experiment, of.clone())?);
        }
        if let Some(kept) = known.get(&of) {
            all.insert(of, kept.clone());
        }
    }
    if keep && known.len() > before {
        let lines: Result<Vec<String>, _> = known.values().map(serde_json::to_string).collect();
        let lines = lines
            .map_err(|error| Failure::machine(format!("a count cannot be written: {error}")))?;
        out::put(&path, Kind::Lines(KEYS), format!("{}\n", lines.join("\n")))?;
    }
    let sum = |part: fn(&Kept) -> u64| all.values().map(part).fold(0, u64::saturating_add);
    let seen = Seen::Questions {
        questions: sum(|kept| kept.questions),
        shown: sum(|kept| kept.shown),
        windows: sum(|kept| kept.windows),
        of_windows: sum(|kept| kept.of_windows),
    };
    Ok(Some(seen).filter(|_| !all.is_empty()))
}

fn count(experiment: &Experiment, of: String) -> Result<Kept, Failure> {
    let found = overlap_of_tokens(experiment, MOST_TOKENS, |_, _| {}).map_err(failure)?;
    let Overlap { windows, of_windows, all: Share { questions, shown }, .. } = found;
    Ok(Kept { of, questions, shown, windows, of_windows })
}
