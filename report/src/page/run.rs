//! A run's curves, timings, spikes and batches, read from its folder for the page. Thinned series are means over equal blocks
//! and carry the block length; timings belong to the same run as the log, or are absent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use compiler::digest::Digest;
use dsl::Problem;
use lab::comparison::Role;
use lab::experiment::{DataSource, Experiment};

use super::spikes::{self, Spike};
use crate::compare::{self, BITS_PER_BYTE, BITS_PER_TOKEN, Curves};
use records::external::trainer_of;
use records::finished;
use records::metrics::Record;
use records::run::{Paths, json_lines};
use tasks::metric::EVAL_LOSS;

/// Most points of a series on a page; longer series are thinned.
pub const MOST_POINTS: usize = 2000;

/// A run and its position in a comparison.
#[derive(Clone, Debug)]
pub struct PageRun {
    /// The name of its lock.
    pub name: String,
    /// Its arm; a run outside comparisons has its arch's name, and no role.
    pub arm: String,
    /// The arm's role.
    pub role: Option<Role>,
    /// Index in the list of seeds; runs with equal index are paired.
    pub seed: usize,
    /// Index of the grid's point.
    pub point: usize,
    /// Name of the grid's point; empty without a grid.
    pub at: String,
    /// The run's lock.
    pub experiment: Experiment,
    /// Its folder.
    pub folder: PathBuf,
    /// Its log.
    pub logged: Logged,
}

/// The run's log, in order of steps.
#[derive(Clone, Debug, Default)]
pub struct Logged {
    /// Losses and measures, as used in comparisons.
    pub curves: Curves,
    /// (step, norm of the gradients before clipping).
    pub grad_norm: Vec<(u64, f64)>,
    /// (step, learning rate).
    pub lr: Vec<(u64, f64)>,
    /// Each step's batch.
    pub batches: Vec<Digest>,
    /// Seconds from the start to the end of each step.
    pub seconds: Option<Vec<(u64, f64)>>,
    /// Whether the run shared its machine with other runs of its comparison.
    pub beside: bool,
    /// Facts about the machine that a finished run attests, if one machine did all of it.
    pub machine: BTreeMap<String, String>,
    /// Spikes of the training loss.
    pub spikes: Vec<Spike>,
}

/// Reads the log of a finished run of this lock; refuses any other folder.
pub fn read(folder: &Path, experiment: &Experiment) -> Result<Logged, Problem> {
    let curves = compare::read(folder, experiment)?;
    let paths = Paths::new(folder);
    let (attestation, records) = finished::read(&paths, experiment.into())?;
    let mut logged = Logged::from_records(&paths, curves, records)?;
    // Of another engine's run, it is the machine that evaluated.
    if attestation.other_machines.is_empty() && attestation.trainer.is_none() {
        logged.machine = attestation.machine;
    }
    logged.measure_bits(experiment);
    Ok(logged)
}

/// Reads the log of an unfinished run of this lock, and its last step. Omits timings, since other runs may have
/// used the machine at the same time.
pub fn read_so_far(folder: &Path, experiment: &Experiment) -> Result<(Logged, u64), Problem> {
    let paths = Paths::new(folder);
    let (records, step) = finished::so_far(&paths, experiment.into())?;
    let mut curves = Curves::from_records(&records);
    curves.trainer = trainer_of(&paths)?;
    let mut logged = Logged::from_records(&paths, curves, records)?;
    logged.measure_bits(experiment);
    Ok((logged, step))
}

/// Whether every token of text is a target, and a tokenizer of this kind made them.
pub fn is_text(experiment: &Experiment, tokenizer: &str) -> bool {
    let is = |path, word: &str| experiment.value(path).is_some_and(|value| value.plain() == word);
    is("data.task", "text") && is("data.tokenizer", tokenizer) && is("data.loss_on", "all")
}

impl Logged {
    /// Adds the evaluation loss in bits per byte, for a number of bytes of text per target.
    pub fn measure_bytes(&mut self, bytes_per_token: f64) {
        self.measure(BITS_PER_BYTE, bytes_per_token);
    }

    /// Adds the evaluation loss in bits, where tokens are bytes. The marks of documents are targets too, and the log does
    /// not count them: bits are per byte only without marks.
    fn measure_bits(&mut self, experiment: &Experiment) {
        if !is_text(experiment, "bytes") {
            return;
        }
        let has_marks = matches!(
            experiment.data.source,
            DataSource::Text { add_bos, add_eos, .. } if add_bos || add_eos
        );
        self.measure(if has_marks { BITS_PER_TOKEN } else { BITS_PER_BYTE }, 1.0);
    }

    fn measure(&mut self, name: &str, per: f64) {
        let Some(losses) = self.curves.metrics.get(EVAL_LOSS) else { return };
        let bits = |nats: f64| nats / std::f64::consts::LN_2 / per;
        let points = losses.iter().map(|(step, nats)| (*step, bits(*nats))).collect();
        self.curves.metrics.insert(name.to_owned(), points);
    }

    /// Whether each step has the digest of its batch.
    pub(super) fn has_all_batches(&self) -> bool {
        self.batches.len() == self.lr.len()
    }

    fn from_records(
        paths: &Paths,
        curves: Curves,
        records: Vec<Record>,
    ) -> Result<Logged, Problem> {
        let mut logged = Logged { curves, ..Logged::default() };
        for record in records {
            match record {
                Record::Start(_) | Record::Evaluation(_) => {}
                Record::Step(step) => {
                    logged.grad_norm.push((step.step, step.grad_norm));
                    logged.lr.push((step.step, step.lr));
                    let is_next = logged.batches.len() as u64 + 1 == step.step;
                    logged.batches.extend(step.batch.filter(|_| is_next));
                }
            }
        }
        // Times that no run writes are not drawn.
        logged.seconds = match logged.curves.untimed {
            None => seconds(&paths.timings(), logged.lr.len())?,
            Some(_) => None,
        };
        logged.beside =
            json_lines(&paths.timings())?.iter().any(|line| line.get("beside").is_some());
        logged.spikes = spikes::find(&logged.curves.loss);
        Ok(logged)
    }
}

/// Seconds of each step that was timed; for a repeated step, the last time counts.
pub(crate) fn step_seconds(path: &Path) -> Result<BTreeMap<u64, f64>, Problem> {
    let mut of_step = BTreeMap::new();
    for line in json_lines(path)? {
        let step = line.get("step").and_then(serde_json::Value::as_u64);
        let seconds = line.get("seconds").and_then(serde_json::Value::as_f64);
        if let (Some(step), Some(seconds)) = (step, seconds)
            && seconds.is_finite()
            && seconds >= 0.0
        {
            of_step.insert(step, seconds);
        }
    }
    Ok(of_step)
}

/// The end of each step, if every step was timed.
fn seconds(path: &Path, steps: usize) -> Result<Option<Vec<(u64, f64)>>, Problem> {
    let of_step = step_seconds(path)?;
    let all_timed = of_step.len() == steps && of_step.keys().copied().eq(1..=steps as u64);
    let mut now = 0.0;
    let ends = of_step.into_iter().map(|(step, seconds)| {
        now += seconds;
        (step, now)
    });
    Ok(all_timed.then(|| ends.collect()))
}

/// When the first process began, in seconds since 1970.
pub(crate) fn started(path: &Path) -> Result<Option<f64>, Problem> {
    Ok(json_lines(path)?.iter().find_map(|line| {
        (line.get("event")?.as_str()? == "started").then(|| line.get("unix_time")?.as_f64())?
    }))
}

/// At most [`MOST_POINTS`] of a series: means over equal blocks of points, placed at each block's last step.
pub(super) fn thinned(points: &[(u64, f64)]) -> (Vec<(u64, f64)>, usize) {
    let block = points.len().div_ceil(MOST_POINTS).max(1);
    let mean = |points: &[(u64, f64)]| {
        let (step, _) = points.last()?;
        Some((*step, points.iter().map(|(_, value)| value).sum::<f64>() / points.len() as f64))
    };
    (points.chunks(block).filter_map(mean).collect(), block)
}

/// Whether two runs read the same batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batches {
    /// At every step, as far as both go.
    Equal,
    /// This step is the first with other ones.
    DifferFrom(u64),
    /// A log has no digests of some steps.
    Unknown,
}

impl Batches {
    pub(super) fn of(a: &Logged, b: &Logged) -> Batches {
        let other = a.batches.iter().zip(&b.batches).position(|(a, b)| a != b);
        match other {
            Some(at) => Batches::DifferFrom(at as u64 + 1),
            None if a.has_all_batches() && b.has_all_batches() => Batches::Equal,
            None => Batches::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_is_thinned_by_means_of_equal_blocks() {
        let points: Vec<(u64, f64)> = (1..=4001).map(|step| (step, step as f64)).collect();
        let (thin, block) = thinned(&points);
        assert_eq!((thin.len(), block), (1334, 3));
        assert_eq!(thin[..2], [(3, 2.0), (6, 5.0)]);
        assert_eq!(thin[1333], (4001, 4000.5));
        assert_eq!(thinned(&points[..7]), (points[..7].to_vec(), 1));
    }

    #[test]
    fn bits_per_byte_follow_from_the_evaluation_loss() {
        let mut logged = Logged::default();
        logged.measure_bytes(1.0);
        assert!(logged.curves.metrics.is_empty(), "there was no evaluation");
        let losses = vec![(10, std::f64::consts::LN_2), (20, 0.0)];
        logged.curves.metrics.insert(EVAL_LOSS.to_owned(), losses);
        logged.measure_bytes(4.0);
        assert_eq!(logged.curves.metrics[BITS_PER_BYTE], [(10, 0.25), (20, 0.0)]);
    }

    #[test]
    fn batches_are_equal_or_differ_first_at_a_step() {
        let logged = |words: &[&str]| Logged {
            batches: words.iter().map(|word| Digest::of("test", word)).collect(),
            lr: (1..=4).map(|step| (step, 0.1)).collect(),
            ..Logged::default()
        };
        let base = logged(&["a", "b", "c", "d"]);
        assert_eq!(Batches::of(&base, &base), Batches::Equal);
        assert_eq!(Batches::of(&base, &logged(&["a", "x", "c"])), Batches::DifferFrom(2));
        assert_eq!(Batches::of(&base, &logged(&["a", "b"])), Batches::Unknown);
    }

    #[test]
    fn seconds_need_a_time_of_every_step() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timings.jsonl");
        let line = |step: u64, seconds: f64| format!("{{\"step\":{step},\"seconds\":{seconds}}}\n");
        std::fs::write(&path, line(1, 0.5) + &line(2, 9.0) + &line(2, 0.25)).unwrap();
        assert_eq!(seconds(&path, 2).unwrap(), Some(vec![(1, 0.5), (2, 0.75)]));
        assert_eq!(seconds(&path, 3).unwrap(), None);
        assert_eq!(seconds(&folder.path().join("none"), 0).unwrap(), Some(Vec::new()));
    }
}
