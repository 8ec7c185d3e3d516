//! Says before training what a lock's runs can show and what they cost: questions that training will contain, hours on
//! this machine, seeds that the noise of finished A/A runs asks for.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lab::comparison::{Comparison, Role, Stop};
use lab::experiment::{Device, Experiment};
use lab::lock::{self, Lock};
use records::job::evaluations;
use records::overlap::Share;
use records::progress::span;
use report::compare;
use report::statistics::{Noise, plan};
use serde::{Deserialize, Serialize};
use tasks::metric::EXACT_MATCH;
use tasks::task::InTraining;

use crate::measured_noise::{Source, measured, wanted};
use crate::{documents, output, overlap_counts};

/// What a dry run finds out, as `canonc run --dry-run --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEstimate {
    /// Name of the lock.
    pub name: String,
    /// Id of the lock.
    pub lock: String,
    /// The run's folder.
    pub folder: String,
    /// How far the run in it is.
    pub state: RunState,
    /// `cpu` or `cuda`.
    pub device: String,
    /// Number of processes; `None` for one.
    pub ranks: Option<u32>,
    /// Number of parameters.
    pub parameters: u64,
    /// Updates of the parameters.
    pub steps: u64,
    /// Training tokens.
    pub tokens: u64,
    /// Peak of each process, in bytes.
    pub memory_bytes: u64,
    /// Where `memory_bytes` is from.
    pub memory_from: MemorySource,
    /// Bytes of weights and moments.
    pub state_bytes: u64,
    /// Largest size of the run's folder, in bytes.
    pub disk_bytes: u64,
    /// Seconds of one step.
    pub step_seconds: f64,
    /// Seconds of all steps.
    pub training_seconds: f64,
    /// Seconds of all evaluations' windows, estimated from those of a step.
    pub evaluation_seconds: f64,
    /// Whether evaluations also write answers, which no seconds cover.
    pub written_answers: bool,
    /// Seconds of training and evaluations.
    pub seconds: f64,
    /// How the step was timed.
    pub timed: Timed,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Its folder has no lock.
    New,
    /// It is not finished.
    Begun,
    /// It is attested.
    Finished,
}

/// Where an estimate of memory is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// A micro-batch and an update, with libtorch.
    Measured,
    /// The plan's own sizes, without libtorch.
    Plan,
}

/// How a step was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timed {
    /// Micro-batches and an update were run.
    MicroBatches,
    /// FLOPs divided by the speed of a matrix product.
    Flops,
}

impl RunEstimate {
    /// The document that is printed.
    pub fn document(&self) -> impl Serialize {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: &'static str,
            #[serde(flatten)]
            estimate: &'a RunEstimate,
        }
        Document { schema: "canonc.run.estimate.v1", estimate: self }
    }
}

/// What is said before training.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Empty for tasks and documents without such questions.
    questions: Vec<Questions>,
    time: Time,
    /// `None` for one experiment, or if too few runs of the base are finished.
    seeds: Option<Seeds>,
}

/// Evaluation questions of runs that have the same training windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "in_training")]
enum Questions {
    ByDesign,
    /// Why they were not counted.
    Unknown {
        reason: String,
    },
    ByChance {
        /// Names of the runs' arms, or of the experiment.
        of: Vec<String>,
        questions: u64,
        /// Those found with their answer, word for word, in the windows that were searched.
        shown: u64,
        windows: u64,
        of_windows: u64,
    },
}

/// How long the runs that are not finished take here, one after another.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "estimate")]
enum Time {
    /// So few FLOPs that nothing was timed.
    UnderAMinute {
        runs: usize,
    },
    Seconds {
        runs: usize,
        seconds: f64,
        /// Runs of equal cost.
        kinds: Vec<Kind>,
        /// Whether a stopping rule may end the comparison earlier.
        at_most: bool,
    },
    Unknown {
        runs: usize,
        reason: String,
    },
}

/// Runs of equal cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Kind {
    /// Names of the arms, or of the experiment.
    of: Vec<String>,
    runs: usize,
    /// Seconds of one run.
    seconds: f64,
    from: TimeSource,
    written_answers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum TimeSource {
    MicroBatches,
    /// FLOPs and the speed of a matrix product.
    Flops,
    /// FLOPs and the speed of another kind of run.
    Scaled,
}

/// Seeds that the noise asks for.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Seeds {
    metric: String,
    noise: Noise,
    noise_from: Source,
    power: f64,
    listed: usize,
    /// The smallest difference that the listed seeds find with this power; `None` with a stopping rule or below 3 seeds.
    smallest: Option<f64>,
    /// The margin of [analysis], and the seeds that find a difference of that size.
    margin: Option<OfMargin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct OfMargin {
    margin: f64,
    /// `None` if more than [`plan::MOST`].
    seeds: Option<usize>,
}

/// Most training tokens in which questions are searched, for each group of runs with the same windows.
const MOST_TOKENS: u64 = 1 << 24;
/// Groups that are searched.
const MOST_GROUPS: usize = 4;
/// The power at which differences and seeds are told, as `canonc plan` has it.
const POWER: f64 = 0.8;
/// After these seconds, further kinds of runs are not timed but estimated from those that were.
const PATIENCE: f64 = 15.0;
/// FLOPs per second, seconds per step and seconds to start that any machine reaches.
const SLOWEST: (f64, f64, f64) = (1e9, 0.05, 2.0);

/// The experiments to train, each with the name it has in sentences.
struct Due<'a> {
    of: &'a str,
    experiment: &'a Experiment,
}

/// The forecast of one experiment.
pub fn of_experiment(experiment: &Experiment, data: Option<&Path>) -> Forecast {
    let due = [Due { of: &experiment.name, experiment }];
    let stop = &AtomicBool::new(false);
    Forecast { questions: questions(&due, stop), time: time(&due, data, false, stop), seeds: None }
}

/// The forecast of a comparison; `finished` tells the runs that need no training, and runs are under `dir`. `None` if all
/// are finished. Once `stop` is set, it is incomplete.
pub fn of_comparison(
    comparison: &Comparison,
    data: Option<&Path>,
    dir: &Path,
    finished: impl Fn(&Experiment) -> bool,
    stop: &AtomicBool,
) -> Option<Forecast> {
    let runs = comparison.runs();
    let first = runs.iter().filter(|run| run.role != Role::Replicate && run.seed == 0);
    let first: Vec<Due<'_>> =
        first.map(|run| Due { of: &run.arm, experiment: &run.experiment }).collect();
    let due: Vec<Due<'_>> = runs
        .iter()
        .filter(|run| !finished(&run.experiment))
        .map(|run| Due { of: &run.arm, experiment: &run.experiment })
        .collect();
    if due.is_empty() {
        return None;
    }
    let at_most = comparison.analysis.stop != Stop::Fixed;
    Some(Forecast {
        questions: questions(&first, stop),
        time: time(&due, data, at_most, stop),
        seeds: seeds(comparison, dir),
    })
}

/// Runs that have something in common.
struct Group<'a> {
    experiment: &'a Experiment,
    /// Their names, each once.
    of: Vec<String>,
    runs: usize,
}

/// Runs with equal keys, in the order of the first of them; those without a key are left out.
fn grouped<'a, K: PartialEq>(
    due: &[Due<'a>],
    key: impl Fn(&Experiment) -> Option<K>,
) -> Vec<(K, Group<'a>)> {
    let mut groups: Vec<(K, Group<'a>)> = Vec::new();
    for Due { of, experiment } in due {
        let Some(key) = key(experiment) else { continue };
        let known = match groups.iter().position(|(known, _)| *known == key) {
            Some(at) => at,
            None => {
                groups.push((key, Group { experiment, of: Vec::new(), runs: 0 }));
                groups.len() - 1
            }
        };
        if let Some((_, group)) = groups.get_mut(known) {
            group.runs += 1;
            if !group.of.iter().any(|name| name == of) {
                group.of.push((*of).to_owned());
            }
        }
    }
    groups
}

fn questions(runs: &[Due<'_>], stop: &AtomicBool) -> Vec<Questions> {
    let kind = |run: &Due<'_>| overlap_counts::in_training(run.experiment);
    if runs.iter().any(|run| kind(run) == InTraining::ByDesign) {
        return vec![Questions::ByDesign];
    }
    let windows = |experiment: &Experiment| {
        let is_counted = overlap_counts::in_training(experiment) == InTraining::ByChance;
        is_counted.then(|| records::overlap::windows_of(experiment).to_string())
    };
    let groups = grouped(runs, windows);
    let more = groups.len().saturating_sub(MOST_GROUPS);
    let mut all = Vec::new();
    for (windows, Group { experiment, of, runs: _ }) in groups.into_iter().take(MOST_GROUPS) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        all.push(match overlap_counts::counted(experiment, windows, MOST_TOKENS) {
            Ok(counted) => {
                let Share { questions, shown } = counted.share(EXACT_MATCH);
                let compare::Counted { windows, of_windows, .. } = counted;
                Questions::ByChance { of, questions, shown, windows, of_windows }
            }
            Err(failure) => Questions::Unknown { reason: failure.message.unwrap_or_default() },
        });
    }
    if more > 0 {
        let reason =
            format!("{} are not counted here", output::counted(more as u64, "more data set"));
        all.push(Questions::Unknown { reason });
    }
    all
}

/// Everything that the cost of a run depends on.
fn cost(experiment: &Experiment) -> String {
    let Experiment { arch, batch, budget, data, precision, evaluation, platform, .. } = experiment;
    format!(
        "{:?} {batch:?} {budget:?} {} {precision:?} {evaluation:?} {platform:?}",
        arch.compiled.identity, data.seq_len
    )
}

fn train_flops(experiment: &Experiment) -> f64 {
    experiment.analysis.train_flops_per_token as f64 * experiment.budget.tokens as f64
}

/// Whether runs surely take less than a minute together.
fn is_quick(runs: &[Due<'_>]) -> bool {
    let (speed, step, start) = SLOWEST;
    let seconds = runs.iter().map(|Due { experiment, .. }| {
        let Experiment { budget, evaluation, .. } = experiment;
        let writes = !evaluation.tasks.is_empty() || evaluation.samples > 0;
        if writes || experiment.platform.device != Device::Cpu {
            return f64::INFINITY;
        }
        let evaluations = evaluations(evaluation.every, budget.steps) as f64;
        let tokens = evaluations * evaluation.windows as f64 * experiment.data.seq_len as f64;
        let flops =
            train_flops(experiment) + experiment.analysis.train_flops_per_token as f64 * tokens;
        start + step * (budget.steps as f64 + evaluations) + flops / speed
    });
    seconds.sum::<f64>() < 60.0
}

fn time(due: &[Due<'_>], data: Option<&Path>, at_most: bool, stop: &AtomicBool) -> Time {
    let runs = due.len();
    if is_quick(due) {
        return Time::UnderAMinute { runs };
    }
    output::note("timing a step here, some seconds; -q leaves it out");
    let start = Instant::now();
    let mut timed: Vec<Kind> = Vec::new();
    let mut per_flop: Option<f64> = None;
    for (_, Group { experiment, of, runs }) in grouped(due, |experiment| Some(cost(experiment))) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let kind = match per_flop.filter(|_| start.elapsed().as_secs_f64() > PATIENCE) {
            Some(per_flop) => {
                let seconds = per_flop * train_flops(experiment);
                let written_answers = experiment.evaluation.samples > 0;
                Kind { of, runs, seconds, from: TimeSource::Scaled, written_answers }
            }
            None => match dry_run(experiment, data) {
                Ok(RunEstimate { seconds, timed, written_answers, .. }) => {
                    per_flop.get_or_insert(seconds / train_flops(experiment).max(1.0));
                    let from = match timed {
                        Timed::MicroBatches => TimeSource::MicroBatches,
                        Timed::Flops => TimeSource::Flops,
                    };
                    Kind { of, runs, seconds, from, written_answers }
                }
                Err(reason) => return Time::Unknown { runs: due.len(), reason },
            },
        };
        timed.push(kind);
    }
    let seconds = timed.iter().map(|kind| kind.seconds * kind.runs as f64).sum();
    Time::Seconds { runs, seconds, kinds: timed, at_most }
}

/// Asks `canonc run --dry-run`, or says why there is no estimate.
fn dry_run(experiment: &Experiment, data: Option<&Path>) -> Result<RunEstimate, String> {
    let cannot = |error: std::io::Error| format!("the estimate could not be started: {error}");
    let folder = tempfile::tempdir().map_err(cannot)?;
    let path = folder.path().join("forecast.lock");
    let text = lock::write(&Lock::Experiment(experiment.clone()));
    std::fs::write(&path, text).map_err(cannot)?;
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    command.args(["--color", "never", "--quiet", "run", "--dry-run", "--json", "--lock"]).arg(path);
    if let Some(ranks) = experiment.platform.devices.filter(|devices| *devices > 1) {
        command.args(["--ranks", &ranks.to_string()]);
    }
    if let Some(data) = data.filter(|_| documents::trains_on(experiment)) {
        command.arg("--data").arg(data);
    }
    let ended = command.stdin(Stdio::null()).output().map_err(cannot)?;
    if ended.status.success()
        && let Ok(estimate) = serde_json::from_slice(&ended.stdout)
    {
        return Ok(estimate);
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let error = said.lines().find_map(|line| line.strip_prefix("error: "));
    Err(error.map_or_else(|| format!("the estimate ended with {}", ended.status), str::to_owned))
}

/// The noise of finished runs of the base, and what it allows; `None` if they are too few.
fn seeds(comparison: &Comparison, dir: &Path) -> Option<Seeds> {
    let analysis = &comparison.analysis;
    let wanted = wanted(comparison, POWER).ok()?;
    let name = format!("lockfiles/{}.lock", comparison.name);
    let (noise, noise_from) = measured(dir, &name, comparison, wanted.confidence).ok()?;
    let spread = plan::Spread::from(&noise);
    let listed = match analysis.stop {
        Stop::Fixed => comparison.seeds.len(),
        Stop::Sequential { max_seeds } => max_seeds,
    };
    let smallest = match analysis.stop {
        Stop::Fixed => plan::smallest(spread, listed, &wanted),
        Stop::Sequential { .. } => None,
    };
    let margin = analysis.margin.map(|margin| {
        let margin = margin.to_f64();
        let seeds = plan::difference(spread, margin, &wanted).ok().map(|plan| plan.seeds);
        OfMargin { margin, seeds }
    });
    let metric = compare::metric_name(&analysis.primary).to_owned();
    Some(Seeds { metric, noise, noise_from, power: POWER, listed, smallest, margin })
}

/// A warning for an experiment in which no step changes a weight.
pub fn learns_nothing(experiment: &Experiment) -> Option<String> {
    if records::job::learns(experiment) {
        return None;
    }
    let steps = output::counted(experiment.budget.steps, "step");
    Some(format!(
        "warning: {}: the learning rate is 0 at every one of {steps}, so nothing is learned; lower \
         schedule.warmup, raise the budget or optimizer.lr",
        experiment.name
    ))
}

impl Forecast {
    /// One line each for questions, time and seeds.
    pub fn lines(&self) -> Vec<String> {
        let Forecast { questions, time, seeds } = self;
        let several = questions.len() > 1;
        let mut lines: Vec<(&str, String)> = Vec::new();
        lines.extend(questions.iter().map(|of| ("questions", of.line(several))));
        lines.push(("time", time.line()));
        lines.extend(seeds.iter().map(|seeds| ("seeds", seeds.line())));
        lines.into_iter().map(|(name, line)| format!("{name:<10} {line}")).collect()
    }
}

impl Questions {
    fn line(&self, several: bool) -> String {
        match self {
            Questions::ByDesign => {
                "training states what the evaluation asks about, by design, in other sentences"
                    .to_owned()
            }
            Questions::Unknown { reason } => format!("not counted: {reason}"),
            Questions::ByChance { of, questions, shown, windows, of_windows } => {
                let whole = windows == of_windows;
                let asked = output::counted(*questions, "evaluation question");
                let mut line = match *shown {
                    0 => format!("training will show none of {asked} word for word"),
                    shown => format!(
                        "training will show {}{} of {asked} word for word ({})",
                        if whole { "" } else { "at least " },
                        output::grouped(shown),
                        compare::percent_of(shown as f64 / (*questions).max(1) as f64)
                    ),
                };
                if !whole {
                    let searched = 100.0 * *windows as f64 / (*of_windows).max(1) as f64;
                    line += &format!(" (in the first {searched:.2}% of its windows)");
                }
                if several {
                    line += &format!(", of {}", of.join(", "));
                }
                if *shown * 100 > *questions {
                    line += "; no row on them is called held-out";
                }
                line
            }
        }
    }
}

impl Time {
    fn line(&self) -> String {
        match self {
            Time::UnderAMinute { runs } => {
                format!("less than a minute for {} here", output::counted(*runs as u64, "run"))
            }
            Time::Unknown { runs, reason } => {
                format!("not known for {} here: {reason}", output::counted(*runs as u64, "run"))
            }
            Time::Seconds { runs, seconds, kinds, at_most } => {
                let about = if *at_most { "at most about" } else { "about" };
                let mut line = format!(
                    "{about} {} for {} here",
                    span(*seconds),
                    output::counted(*runs as u64, "run")
                );
                if *runs > 1 {
                    line += ", one after another";
                }
                if kinds.len() > 1 {
                    let each = |kind: &Kind| {
                        let Kind { of, runs, seconds, from, .. } = kind;
                        let by = match from {
                            TimeSource::MicroBatches => "",
                            TimeSource::Flops => " at least, by FLOPs",
                            TimeSource::Scaled => ", by FLOPs",
                        };
                        format!("{runs} of {} at {}{by}", of.join(" and "), span(*seconds))
                    };
                    let each: Vec<String> = kinds.iter().map(each).collect();
                    line += &format!(": {}", each.join(", "));
                }
                if let [Kind { from: TimeSource::Flops, .. }] = kinds.as_slice() {
                    line += "; by FLOPs, so it may well take longer";
                }
                if kinds.iter().any(|kind| kind.written_answers) {
                    line += "; without the answers that evaluations write";
                }
                line
            }
        }
    }
}

impl Seeds {
    fn line(&self) -> String {
        let Seeds { metric, noise, noise_from, power, listed, smallest, margin } = self;
        let from = match noise_from.from {
            "aa_pairs" => output::counted(noise.repetitions as u64, "A/A pair"),
            _ => format!("{} of the base", output::counted(noise.repetitions as u64, "run")),
        };
        let percent = 100.0 * power;
        let mut parts = Vec::new();
        if let Some(smallest) = smallest {
            parts.push(format!(
                "{} find a difference of {smallest:.4} in {metric} in {percent:.0}% of cases",
                output::counted(*listed as u64, "seed")
            ));
        }
        if let Some(OfMargin { margin, seeds }) = margin {
            let needed = match seeds {
                Some(seeds) => output::counted(*seeds as u64, "seed"),
                None => format!("more than {} seeds", plan::MOST),
            };
            parts.push(format!("one as large as the margin {margin} needs {needed}"));
        }
        parts.push(format!("noise {:.4} in {metric}, from {from}", noise.sd));
        parts.join("; ")
    }
}
