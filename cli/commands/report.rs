//! `canonc report`: shows runs as one HTML page, or writes event files for TensorBoard.
//!
//! An unfinished run is shown up to its last step, and is in no table.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use lab::comparison::Comparison;
use lab::experiment::{Experiment, TokenizerKind};
use lab::lock::Lock;
use records::run::{Paths, experiment_from_text, if_there, lock_from_text};
use report::compare::Facts;
use report::page::{self, NoSuchModel, ON_TRUST, PageContents, PageLog, Part, Published};
use report::samples::Sample;
use report::tensorboard;

use crate::compared::{compared, other_records, part, run_folders, scores};
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::finished_runs::{FinishedRuns, folders};
use crate::live::event_files;
use crate::logs::{BoundLog, LogArgs};
use crate::out::{self, OutputKind};
use crate::workspace::{self, LOCKFILES, Target};
use crate::{comparison_folder, extensions, files, interim_looks, output, overlap_counts};

/// Write runs and comparisons as one offline HTML file: curves, paired differences, differences of locks
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc report lockfiles/demo.lock                        the runs of a comparison, from runs/demo
  canonc report runs/demo --out demo/report.html           the same
  canonc report runs/a runs/b                              two runs, paired if only Canon layers differ
  canonc report runs/demo --published 'GLA5*-1B-*'         with published curves
  canonc report --published all --out published.html       only the release's curves
  canonc report --scores mine.json --out scores.html       evaluations, beside published scores
  canonc report runs/demo --tensorboard tb                 also writes tb/RUN/events.out.tfevents…, for TensorBoard
  canonc report runs/demo --peak-flops 2.4e12              speeds as a share of what the machine can do
  canonc report runs/text --samples a.json,b.json          with texts of `canonc generate --json`
  canonc report --wandb-script > log_to_wandb.py           a script that logs a run for Weights & Biases
  canonc report lockfiles/demo.lock --log trainer_state.json    with a log of another program, by your word of this lock

Each run is first checked against its lock. An unfinished run is shown up to its last step and marked; a comparison
with a missing run has no table. Faulty runs of a folder are left out, and the page says so.

MFU is the share of the machine's peak that the model's own FLOPs take. The peaks of H100 and H200 are NVIDIA's; for
another machine, give --peak-flops. `canonc run --tensorboard DIR` writes event files while a run trains.

A log of a run that another program trained (transformers' trainer_state.json, metrics.jsonl of Lingua or torchtitan,
a CSV export of W&B, a TensorBoard event file) is drawn beside the runs and marked as on trust. It is in no comparison
and no pair. `canonc audit LOCK --log FILE` holds its learning rates, tokens and steps against the lock.")]
pub struct ReportArgs {
    /// Runs: folders, names under --dir, folders with several runs, or locks
    #[arg(value_name = "RUN|COMPARISON|LOCK", required_unless_present_any = ["published", "scores", "samples", "wandb_script", "log"])]
    pub what: Vec<PathBuf>,
    /// The HTML file to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Add curves of the release's models, by name with `*`, or `all`
    #[arg(long, value_name = "PATTERN")]
    pub published: Vec<String>,
    /// Add results of `canonc eval --out`, beside the release's scores and those of open models
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub scores: Vec<PathBuf>,
    /// Also write TensorBoard event files, in a folder for each run
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// The FLOP/s that the machine can do, all devices that train a run together, in the precision of the runs
    #[arg(long, value_name = "FLOPS", allow_negative_numbers = true, value_parser = positive)]
    pub peak_flops: Option<f64>,
    /// Bytes of text per token, marks of documents counted as tokens, for bits per byte of runs on text whose tokenizer is
    /// not `bytes`
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = positive)]
    pub bytes_per_token: Option<f64>,
    /// Add texts of `canonc generate --json`
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub samples: Vec<PathBuf>,
    /// Print docs/log_to_wandb.py, which logs a run offline with the `wandb` package (Python 3.11), and nothing else
    #[arg(long, conflicts_with_all = ["what", "published", "scores", "samples", "tensorboard", "log"])]
    pub wandb_script: bool,
    /// Folder in which to find runs of locks and names
    #[arg(long, value_name = "DIR", default_value = workspace::RUNS)]
    pub dir: PathBuf,
    #[command(flatten)]
    pub logs: LogArgs,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) | Err(_) => Err(format!("`{text}` is not a number above 0, such as 2.4e12")),
    }
}

/// The script that logs a run with the `wandb` package.
const WANDB: &str = include_str!("../../docs/log_to_wandb.py");

pub fn report(args: &ReportArgs) -> Outcome {
    if args.wandb_script {
        output::exact(WANDB)?;
        return Ok(Exit::Fine);
    }
    let published = Published::named(&args.published).map_err(no_such_model)?;
    let scores = args.scores.iter().map(|path| scores(path)).collect::<Result<_, _>>()?;
    let samples = args.samples.iter().map(|path| samples(path)).collect::<Result<Vec<_>, _>>()?;
    let (samples, peak_flops) = (samples.concat(), args.peak_flops);
    let mut report =
        PageContents { published, scores, samples, peak_flops, ..PageContents::default() };
    workspace::refuse_repeated(&args.what)?;
    out::folder(&args.dir)?;
    out::check(&args.out, OutputKind::Page)?;
    if let Some(folder) = &args.tensorboard {
        out::container(folder)?;
    }
    // Searched once, and only if a comparison needs it.
    let finished = OnceCell::new();
    let bound = args.logs.bound(&args.what)?;
    report.logs = page_logs(&bound, &args.logs.metric)?;
    for what in &args.what {
        if bound.iter().any(|log| log.word == *what && !has_run(log, &args.dir)) {
            continue;
        }
        add(&mut report, what, &args.dir, &finished)?;
    }
    if let Some(bytes) = args.bytes_per_token {
        measure_bytes(&mut report, bytes)?;
    }
    let page = page::page(&report).map_err(Failure::machine)?;
    out::put(&args.out, OutputKind::Page, &page)?;
    let runs = report.parts.iter().map(|part| part.runs.len()).sum::<usize>() + report.alone.len();
    let size = page.len().div_ceil(1000);
    let logs = match report.logs.len() {
        0 => String::new(),
        logs => format!(", {} {ON_TRUST}", output::counted(logs, "log")),
    };
    let what = format!("{}{logs}, {size} kB", output::counted(runs, "run"));
    output::note(&format!("page: {} ({what})", shown(&args.out)));
    for line in &report.left_out {
        output::note(&format!("left out: {line}"));
    }
    for run in report.parts.iter().flat_map(|part| &part.runs).chain(&report.alone) {
        comparison_folder::warn_of_private(&run.folder)?;
    }
    if let Some(folder) = &args.tensorboard {
        for run in report.parts.iter().flat_map(|part| &part.runs).chain(&report.alone) {
            let of_run = out::named(folder, &run.experiment.name, unfinished(run))?;
            // The file that the run wrote itself is replaced: TensorBoard would read both.
            let path = match event_files(&of_run)?.as_slice() {
                [one] => one.clone(),
                _ => of_run.join(tensorboard::file_name(tensorboard::begins(&run.folder)?)),
            };
            let events = tensorboard::events(&run.folder, &run.experiment)?;
            out::put(&path, OutputKind::Events, events)?;
        }
        output::note(&format!("event files: {}", shown(folder)));
    }
    Ok(Exit::Fine)
}

/// Logs of other programs, each held against its lock.
fn page_logs(bound: &[BoundLog], metrics: &[String]) -> Result<Vec<PageLog>, Failure> {
    let page_log = |BoundLog { word: _, experiment, file }: &BoundLog| {
        let log = extensions::logs().read(file, experiment, metrics)?;
        let held = format!("learning rates: {}; tokens: {}", log.rates, log.tokens);
        let log = PageLog::new(&shown(file), experiment.clone(), log);
        output::note(&format!("log: {}; {held}", log.name()));
        Ok(log)
    };
    bound.iter().map(page_log).collect()
}

/// Whether canonc has a run of the lock that a log is of: a lock that only another program trained has none.
fn has_run(log: &BoundLog, dir: &Path) -> bool {
    let is_run = |target| matches!(target, Target::Run(_));
    Paths::new(dir.join(&log.experiment.name)).lock().is_file()
        || workspace::resolve_under(dir, &log.word).is_ok_and(is_run)
}

/// Texts of `canonc generate --json`.
fn samples(path: &Path) -> Result<Vec<Sample>, Failure> {
    let text = disk::read_text(path, disk::SMALL).map_err(|error| files::missing(path, &error))?;
    Sample::parse(&text).map_err(|why| {
        Failure::bad_input(format!(
            "`{}` is not a text of `canonc generate --json`: {why}",
            shown(path)
        ))
        .help("write one with `canonc generate RUN --prompt TEXT --json > FILE`")
    })
}

/// Bits per byte of the runs on text with a trained tokenizer, which must be one.
fn measure_bytes(report: &mut PageContents, bytes: f64) -> Result<(), Failure> {
    let runs = report.parts.iter_mut().flat_map(|part| &mut part.runs).chain(&mut report.alone);
    let mut seen = BTreeSet::new();
    for run in runs {
        let trained =
            TokenizerKind::ALL.iter().any(|kind| page::is_text(&run.experiment, kind.name()));
        if trained {
            let digest = run.experiment.value("data.tokenizer_digest");
            seen.insert(digest.map(|digest| digest.plain()));
            run.logged.measure_bytes(bytes);
        }
    }
    match seen.len() {
        1 => Ok(()),
        0 => Err(Failure::bad_input(
            "`--bytes-per-token` is given, but no run is on text with a tokenizer other than `bytes`",
        )
        .help("leave it out: with bytes as tokens, the page has bits per token, or per byte without marks")),
        count => Err(Failure::bad_input(format!(
            "`--bytes-per-token` is of one tokenizer, but the runs have {count}"
        ))
        .help("report the runs of each tokenizer on a page of their own")),
    }
}

/// Adds what a word names: a run, a folder of several, or the runs of a lock.
fn add(
    report: &mut PageContents,
    word: &Path,
    dir: &Path,
    finished: &OnceCell<FinishedRuns>,
) -> Result<(), Failure> {
    let path = match workspace::resolve_under(dir, word)? {
        Target::Run(folder) => {
            report.alone.push(alone(&folder)?);
            return Ok(());
        }
        Target::Model(folder) | Target::Folder(folder) => {
            return add_folder(report, &folder, dir, finished);
        }
        Target::Lock(path) | Target::File(path) | Target::Missing(path) => path,
    };
    let is_lock = path.extension().is_some_and(|extension| extension == "lock");
    if let (Some(runs), false) = (among_runs(&path), is_lock) {
        let message = format!("`{}` is a file between runs, not a run", shown(&path));
        return Err(Failure::bad_input(message).help(all_of(runs)));
    }
    add_lock(report, word, dir, finished)
}

/// Adds the runs of a comparison's folder, or the runs and comparisons in any other folder.
fn add_folder(
    report: &mut PageContents,
    folder: &Path,
    dir: &Path,
    finished: &OnceCell<FinishedRuns>,
) -> Result<(), Failure> {
    let finished = || finished.get_or_init(|| FinishedRuns::under(dir));
    // A comparison's runs are in a folder of its name.
    if let Some(comparison) = comparison_of(folder)? {
        return self::comparison(report, &comparison, folder, finished());
    }
    if let Err(error) = std::fs::read_dir(folder) {
        return Err(Failure::cannot_read(folder, &error));
    }
    let (runs, others): (Vec<PathBuf>, Vec<PathBuf>) =
        folders(folder)?.into_iter().partition(|path| Paths::new(path).lock().is_file());
    let mut comparisons = Vec::new();
    for path in others {
        comparisons.extend(comparison_of(&path)?.map(|comparison| (path, comparison)));
    }
    if runs.is_empty() && comparisons.is_empty() {
        return Err(Failure::bad_input(format!("`{}` contains no run", shown(folder))).help(
            "name a run's folder, a folder with several runs, or a lock; `canonc run` and `canonc compare` train runs",
        ));
    }
    for run in runs {
        match alone(&run) {
            Ok(run) => report.alone.push(run),
            Err(failure) if failure.exit == Exit::Finding => {
                report.left_out.extend(failure.message);
            }
            Err(failure) => return Err(failure),
        }
    }
    for (folder, comparison) in comparisons {
        if let Err(failure) = self::comparison(report, &comparison, &folder, finished()) {
            if failure.exit == Exit::Machine {
                return Err(failure);
            }
            let message = failure.message.unwrap_or_default();
            report.left_out.push(format!("{}: {message}", shown(&folder)));
        }
    }
    Ok(())
}

fn add_lock(
    report: &mut PageContents,
    path: &Path,
    dir: &Path,
    finished: &OnceCell<FinishedRuns>,
) -> Result<(), Failure> {
    let name = shown(path);
    match lock_from_text(&name, &workspace::read_lock_text(path)?)? {
        Lock::Comparison(comparison) => {
            let folder = out::named(dir, &comparison.name, "")?;
            self::comparison(
                report,
                &comparison,
                &folder,
                finished.get_or_init(|| FinishedRuns::under(dir)),
            )?;
        }
        Lock::Experiment(experiment) => {
            let folder = out::named(dir, &experiment.name, "")?;
            if let Some(runs) = among_runs(path).filter(|_| !Paths::new(&folder).lock().is_file()) {
                let message = format!("`{name}` is the lock of a run, not the run's folder");
                return Err(Failure::bad_input(message).help(all_of(runs)));
            }
            report.alone.push(of_lock(&folder, experiment).map_err(|failure| {
                failure.help(format!("`canonc run --lock {name}` trains it"))
            })?);
        }
        Lock::Arch(_) => {
            return Err(Failure::bad_input(format!(
                "{name} is the lock of an architecture, which has no runs"
            ))
            .help("name a run, or a lock of an experiment or comparison")
            .help(format!("`canonc show {name}` describes it")));
        }
    }
    Ok(())
}

/// The folder of a file, if it has runs too: a comparison's folder also has their locks and a page.
fn among_runs(path: &Path) -> Option<&Path> {
    path.parent()
        .filter(|parent| path.is_file() && matches!(workspace::runs_in(parent), Ok(Some(_))))
}

fn all_of(folder: &Path) -> String {
    let folder = shown(folder);
    format!("name the folder of all runs, `{folder}`, or only folders: `{folder}/*/`")
}

/// A comparison with all its runs finished.
fn finished_part(
    comparison: &Comparison,
    folder: &Path,
    finished: &FinishedRuns,
) -> Result<Part, Failure> {
    let say = |failure: Failure| {
        failure.help(format!(
            "`canonc compare` on the lock of `{}` trains the missing runs",
            comparison.name
        ))
    };
    let (due, looks) = interim_looks::due(comparison, folder, finished).map_err(say)?;
    interim_looks::check(comparison, folder, &looks)?;
    let due = interim_looks::in_lock_order(comparison, &due);
    let mut compared = compared(comparison, &due, folder, finished).map_err(say)?;
    overlap_counts::count(&due, &mut compared, folder, false)?;
    if let Some(runs) = folder.parent() {
        let run_folders = run_folders(&due, folder, finished)?;
        compared.proof.other_records = other_records(comparison, &compared, runs, &run_folders)?;
    }
    part(comparison, Facts::new(&compared), &due, folder, finished)
}

/// The comparison lock with a folder's name.
fn comparison_of(folder: &Path) -> Result<Option<Comparison>, Failure> {
    let name = folder.file_name().and_then(|name| name.to_str());
    let Some(name) = name else { return Ok(None) };
    Ok(match workspace::lock_at(&Path::new(LOCKFILES).join(format!("{name}.lock")))? {
        Some(Lock::Comparison(comparison)) => Some(comparison),
        Some(Lock::Arch(_) | Lock::Experiment(_)) | None => None,
    })
}

/// A single run, from its folder.
fn alone(folder: &Path) -> Result<page::PageRun, Failure> {
    comparison_folder::refuse_others(folder)?;
    let path = Paths::new(folder).lock();
    let experiment = experiment_from_text(&shown(&path), &workspace::read_lock_text(&path)?)?;
    of_lock(folder, experiment)
}

/// The run of a lock. An unfinished run is shown up to its last step, under a name that says so.
fn of_lock(folder: &Path, experiment: Experiment) -> Result<page::PageRun, Failure> {
    let paths = Paths::new(folder);
    let metrics = paths.metrics();
    let has_log = if_there(&metrics, std::fs::metadata(&metrics))?.is_some();
    let (logged, name) = if paths.is_attested()? || !has_log {
        (page::read(folder, &experiment)?, experiment.name.clone())
    } else {
        let (logged, step) = page::read_so_far(folder, &experiment)?;
        let of = experiment.budget.steps;
        (logged, format!("{} (unfinished, step {step} of {of})", experiment.name))
    };
    Ok(page::PageRun {
        name,
        arm: experiment.arch.name.clone(),
        role: None,
        seed: 0,
        point: 0,
        at: String::new(),
        experiment,
        folder: folder.to_owned(),
        logged,
    })
}

/// The suffix of an unfinished run's folder of event files.
fn unfinished(run: &page::PageRun) -> &'static str {
    if run.name == run.experiment.name { "" } else { ".unfinished" }
}

/// The runs of a comparison that cannot be compared yet, one by one.
fn each_alone(
    report: &mut PageContents,
    comparison: &Comparison,
    folder: &Path,
    finished: &FinishedRuns,
) -> Result<usize, Failure> {
    let mut runs = Vec::new();
    for run in comparison.runs() {
        let place = finished.folder(folder, &run.experiment)?;
        if Paths::new(&place).lock().is_file() {
            runs.push(of_lock(&place, run.experiment.clone())?);
        }
    }
    let count = runs.len();
    report.alone.extend(runs);
    Ok(count)
}

/// A comparison: in one part if all its runs are finished, otherwise its runs one by one.
fn comparison(
    report: &mut PageContents,
    comparison: &Comparison,
    folder: &Path,
    finished: &FinishedRuns,
) -> Result<(), Failure> {
    match finished_part(comparison, folder, finished) {
        Ok(part) => report.parts.push(part),
        Err(why) if why.exit == Exit::Machine => return Err(why),
        Err(why) => {
            if each_alone(report, comparison, folder, finished)? == 0 {
                return Err(why);
            }
            let why = why.message.unwrap_or_default();
            report.left_out.push(format!("{}: its table, since {why}", comparison.name));
        }
    }
    Ok(())
}

fn no_such_model(NoSuchModel { pattern, similar }: NoSuchModel) -> Failure {
    let failure = Failure::bad_input(format!("no published model matches `{pattern}`"));
    let failure = match similar {
        Some(name) => failure.help(format!("did you mean `{name}`?")),
        None => failure,
    };
    failure.help(
        "`*` matches any text, as in `--published 'GLA5*-1B-*'`; `--published all` shows all 64",
    )
}
