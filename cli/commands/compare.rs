//! `canonc compare`: does the missing runs of a comparison, then reports how its arms differ.
//!
//! An error that would refuse a run is found before anything is written. A missing run is `canonc run` of its own lock,
//! so it starts in the platform of that lock and resumes on its own; a finished one is only checked.

mod slurm;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{ArgMatches, Args, ValueEnum};
use lab::comparison::{Comparison, ComparisonRun};
use lab::experiment::{DataSource, Evaluation, Experiment, Init};
use lab::field::FieldValue;
use lab::lock::Lock;
use lab::trainer::is_declared;
use records::job::Job;
use records::run::{Paths, belongs, refuse_elsewhere};
use report::compare::{self, Facts};
use report::overview::{self, TaskComparison};

use crate::command::{Program, with};
use crate::compared::{
    compared, heading, other_records, page, run_folders, same_data, trained_as_declared,
};
use crate::extensions::suites;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::finished_runs::{FinishedRuns, attestation};
use crate::forecast::{self, Forecast};
use crate::inputs::GivenPaths;
use crate::options::{jobs, within};
use crate::out::{self, OutputKind};
use crate::signals::stop_on_signals;
use crate::training::Trainer;
use crate::{
    build, documents, initial_weights, interim_looks, live, output, overlap_counts, torch_program,
    workspace,
};

/// Train the missing runs of a comparison, then compare its arms, paired by seed
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc build recipes/demo.toml && canonc compare lockfiles/demo.lock
  canonc compare lockfiles/demo.lock --out demo/report.html
  canonc compare lockfiles/c4_twins.lock --data data/c4.index
  canonc compare lockfiles/demo.lock --jobs 2       two runs at a time; set threads = 1 in each lock
  canonc compare lockfiles/demo.lock --json > demo.json
  canonc compare lockfiles/demo.lock --time 100     only time steps, alternating between arms
  canonc compare lockfiles/demo.lock --to slurm > demo.sh && sbatch demo.sh

Runs are in runs/<comparison>/<run>; an interrupted command continues when repeated. The order of runs is
random, keyed by the lock's id. A run that diverges is a result: it is attested, the other runs continue, and
the exit code stays 0. If the lock has a stopping rule, looks are recorded in looks.jsonl, intervals are
anytime-valid, and an arm's first decisive look counts: later seeds are not in its rows. Before the first missing run
it says what `canonc build` says of the lock: questions that training will contain, time on this machine, and what the
seeds can find, if runs of the base are finished.

Schema of --json: {schema: \"canonc.compare.v2\", controlled, attributable, comparisons: [...], together:
[{comparison, arm, metric, judged}]}, where controlled is true only if every judged pair is, attributable only
if each differs in one factor, and together judges the primary rows of all comparisons as one family.
Each comparison has
  name, lock   name and id of the comparison's lock
  design, controlled, attributable, verdict
               how the arms differ where they are judged, not how large the effect is; design is
               controlled, compensated (a size was adjusted to keep a quantity equal), bundle (several
               factors), tuned (each arm at its own best of the same points) or not_controlled
  arms         each {name, role (base, treated, replicate), trainer: [who trained its runs], verdict,
               design (at equal points), controlled, attributable, factors,
               matched: {on, path, within, base, arm, apart}, costs: {parameters, flops, activations,
               tokens}, measured: {step_seconds, peak_memory_bytes}, tuning: {points, runs, tokens},
               runs (at each point), best_point, at_the_edge: [{path, end (lowest, highest)}]}; a member
               that an arm lacks is null
  points       names of the grid's points; one empty name without a grid
  selection    {metric, called, mode (min, max), per_arm, declared, points,
               selected_on_reported}: the locked rule, the number of points it selects from, and
               whether it selects on the windows that are reported
  analysis     {primary, family, margin, confidence, max_seeds (of a stopping rule), declared}
  interval     {level, method, fewest, secondary}
  pairs        by the locked rule, every metric: each {arm, base, title, design, controlled,
               attributable, verdict, arm_point, base_point (places in points), seeds: {pairs, base, treated, both: of the pairs,
               how many diverged}, rows: [{metric, label (the metric, and
               why it is not held-out), unit (nats, share, count, seconds: differences are ratios), base,
               treated, replicate (means), paired (by seed),
               n, difference, lowest, highest, better (less, more), interval: {low, high, n,
               standard_error, sd, p, anytime, chosen_among: {treated, base, best_of_each} (points, if
               these runs chose them: interval and p allow for it), covers_percent} or null, no_interval (why), sign_flip,
               bootstrap, bootstrap_covers_percent, judged: {effect (better, worse, equivalent,
               undecided), p_adjusted, p_equivalence, within_margin, open} of rows of the family,
               noise, no_noise (why), asked (questions, tokens or targets), over: {fewest, most,
               unit, windows} (what a value is measured on), seen (as below, of the row), parts: {asked (same,
               fresh), seeds, questions, standard_error, df, low, high, p, seed_part, question_part,
               both_part (of the squared standard error)} or null, no_parts (why)}]}
  paired_at_each_point, best_per_arm, best_of_base_for_all
               the same of the judged metric, at equal points and by both rules; empty without a grid
  looks        with a stopping rule: the look that each arm's rows show, {arm, metric, n, mean, e, p,
               interval, undefined, decision (continue, differs, equivalent, exhausted)}
  siblings     {used, locks: [{name, path, id, seeds}], left_out: [{init, data, arms, paired}],
               earlier_looks: [{lock, looks, decision}], earlier_reports: [{lock, seeds, added}],
               taken}: other locks of the same arms, finished seeds that this lock leaves out, looks and
               results under an earlier lock with the seeds added since, runs in folders of other
               comparisons (of a lock with a stopping rule); warnings and notes say them in words
  seen         how many evaluation questions training contained: {questions: {questions, shown, windows,
               of_windows}} or \"by_design\"; null if not counted
  time_bound   largest ratio of the base to itself at which ratios of times get an interval
  warnings, notes, caption, methods
               sentences; methods is a paragraph to paste into a paper")]
pub struct CompareArgs {
    /// Comparison locks; several get one table and picture of all at the end
    #[arg(value_name = "LOCK", required = true)]
    pub locks: Vec<PathBuf>,
    /// Folder for runs, with a subfolder for each comparison
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Prepared documents, if the arms train on text [default: data/SOURCE.index]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// The weights that the arms begin from, if they name some [default: as each names them]
    #[arg(long, value_name = "PATH")]
    pub weights: Option<PathBuf>,
    /// Also write the page with the curves; for several comparisons, their picture as SVG
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write events of each run while it trains: DIR/RUN, for `tensorboard --logdir DIR`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["time", "to"])]
    pub tensorboard: Option<PathBuf>,
    /// Runs at a time; step times are accurate only if the machine has a core for every thread
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = jobs)]
    pub jobs: usize,
    /// Only time training steps, alternating between arms in this process [default: 40 of each]
    #[arg(long, value_name = "STEPS", num_args = 0..=1, default_missing_value = "40", allow_negative_numbers = true, value_parser = within::<u16>(12, u16::MAX), conflicts_with_all = ["out", "jobs"])]
    pub time: Option<u16>,
    /// Print a Slurm script instead: an array of machines that do the missing runs
    #[arg(long, value_enum, value_name = "TO", conflicts_with_all = ["out", "jobs", "time", "json"])]
    pub to: Option<CompareTo>,
    /// Machines of the array [default: one for each missing run]
    #[arg(long, value_name = "N", requires = "to", allow_negative_numbers = true, value_parser = jobs)]
    pub workers: Option<usize>,
    /// Do missing runs that no other worker does, then end without a report; any number can work at once
    #[arg(long, conflicts_with_all = ["out", "jobs", "time", "json", "to"])]
    pub work: bool,
    /// Take over the run of a worker that has been silent for this long, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true, value_parser = within::<u64>(1, 86_400))]
    pub lease: u64,
    /// Report no interval if the base differs from itself by more than this ratio, instead of the lock's time_bound
    #[arg(long, value_name = "RATIO", value_parser = ratio, requires = "time")]
    pub bound: Option<f64>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 1.0 && value < 10.0 => Ok(value),
        Ok(_) | Err(_) => Err("give a ratio above 1, such as 1.05".to_owned()),
    }
}

/// Where else a comparison can be trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareTo {
    /// A Slurm array
    Slurm,
}

/// In `canonc`, `--time` continues in `canonc-torch`.
pub(crate) fn run(_: &Program, matches: &ArgMatches) -> Outcome {
    with(matches, |args| compare(args, |_, _, _| Err(torch_program::replace_process(&[]))))
}

impl CompareArgs {
    /// The paths of what the locks name.
    pub(crate) fn given(&self) -> GivenPaths<'_> {
        GivenPaths { data: self.data.as_deref(), weights: self.weights.as_deref() }
    }
}

/// Trains and compares; `time` measures a number of steps of the arms in turn.
pub fn compare(
    args: &CompareArgs,
    time: fn(&CompareArgs, &[Comparison], usize) -> Outcome,
) -> Outcome {
    workspace::refuse_repeated(&args.locks)?;
    out::container(&args.dir)?;
    // Read all of them before the first run starts.
    let locked = args.locks.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    for (word, comparison) in args.locks.iter().zip(&locked) {
        let lock = Lock::Comparison(comparison.clone());
        if let Some(warning) = build::warning_of_source(&workspace::lock_path(word)?, &lock) {
            output::note(&warning);
        }
    }
    if let Some(steps) = args.time {
        return time(args, &locked, usize::from(steps));
    }
    if let Some(out) = &args.out {
        let kind = if locked.len() == 1 { OutputKind::Page } else { OutputKind::Picture };
        out::check(out, kind)?;
    }
    // A run made for another comparison is reused.
    let finished = FinishedRuns::under(&args.dir);
    for comparison in &locked {
        let finished = finished.of_trainer(comparison.trainer);
        let folder = out::named(&args.dir, &comparison.name, "")?;
        check(comparison, &folder, args.given(), &finished)?;
        if let Some(events) = &args.tensorboard {
            apart(events, comparison, &folder, &finished)?;
        }
    }
    if args.to == Some(CompareTo::Slurm) {
        return slurm::array(args, &locked);
    }
    // A signal is passed on to the current run, which leaves a checkpoint; this process waits for it.
    let stop = stop_on_signals()?;
    if args.work {
        return work::work(args, &locked, &stop);
    }
    let mut compared: Vec<Facts> = Vec::new();
    for comparison in &locked {
        match one(args, comparison, locked.len() == 1, &stop)? {
            Some(results) => compared.push(results),
            None => return Ok(Exit::Interrupted),
        }
    }
    if locked.len() > 1 {
        show_together(args, &locked, &compared)?;
    }
    if args.json {
        let all = locked.iter().zip(&compared);
        output::json(&compare::document(all.map(|(comparison, facts)| {
            (comparison.name.as_str(), comparison.id().to_string(), facts)
        })))?;
    }
    Ok(Exit::Fine)
}

/// Trains the missing runs of a comparison and shows its results; `None` if it was interrupted.
fn one(
    args: &CompareArgs,
    comparison: &Comparison,
    is_only: bool,
    stop: &AtomicBool,
) -> Result<Option<Facts>, Failure> {
    let folder = out::named(&args.dir, &comparison.name, "")?;
    disk::create_folders(&folder).map_err(|error| Failure::cannot_write(&folder, &error))?;
    // By now the runs of the earlier comparisons are there too.
    let finished = FinishedRuns::under(&args.dir).of_trainer(comparison.trainer);
    let trainer = Trainer {
        folder: &folder,
        given: args.given(),
        tensorboard: args.tensorboard.as_deref(),
        jobs: args.jobs,
        stop,
        finished: &finished,
    };
    forecast(comparison, args, &folder, &finished, stop);
    if stop.load(Ordering::Relaxed) {
        output::note("interrupted before the first run; the same command continues from there");
        return Ok(None);
    }
    // With a stopping rule, do the runs of one more seed until it decides.
    let (mut due, mut looks) = interim_looks::due(comparison, &folder, &finished)?;
    let mut trained = 0;
    while trained < due.len() {
        let missing = due.get(trained..).unwrap_or_default();
        if trainer.train_all(missing, due.len())? == Exit::Interrupted {
            return Ok(None);
        }
        trained = due.len();
        (due, looks) = interim_looks::due(comparison, &folder, &finished)?;
    }
    let due = interim_looks::in_lock_order(comparison, &due);
    interim_looks::record(comparison, &folder, &looks)?;
    let mut compared = compared(comparison, &due, &folder, &finished)?;
    same_data(&due, &compared)?;
    compared.proof.other_records =
        other_records(comparison, &compared, &args.dir, &run_folders(&due, &folder, &finished)?)?;
    overlap_counts::count(&due, &mut compared, &folder, true)?;
    for line in interim_looks::said(&looks) {
        output::note(&line);
    }
    let facts = Facts::new(&compared);
    let page = show(comparison, &facts, &due, &folder, &finished, args.json)?;
    interim_looks::reported(comparison, &folder, &due)?;
    if let (Some(out), true) = (&args.out, is_only) {
        out::put(out, OutputKind::Page, &page)?;
        output::note(&format!("page: {}", shown(out)));
    }
    Ok(Some(facts))
}

/// Shows the table and the picture of several comparisons.
fn show_together(
    args: &CompareArgs,
    locked: &[Comparison],
    compared: &[Facts],
) -> Result<(), Failure> {
    let task = |comparison: &Comparison| {
        let task = comparison.arms.first().and_then(|arm| arm.experiment.value("data.task"));
        task.map_or_else(String::new, FieldValue::plain)
    };
    let tasks: Vec<String> = locked.iter().map(task).collect();
    let lines: Vec<TaskComparison<'_>> =
        tasks.iter().zip(compared).map(|(task, facts)| TaskComparison { task, facts }).collect();
    if !args.json {
        let (table, caption) = (overview::table(&lines).text(), overview::caption(&lines));
        output::data(&format!("\n{table}\n{caption}\n"))?;
    }
    if let Some(out) = &args.out {
        out::put(out, OutputKind::Picture, overview::picture(&lines))?;
        output::note(&format!("picture: {}", shown(out)));
    }
    Ok(())
}

/// Says what the missing runs will show and cost.
fn forecast(
    comparison: &Comparison,
    args: &CompareArgs,
    folder: &Path,
    finished: &FinishedRuns,
    stop: &AtomicBool,
) {
    if output::quiet() {
        return;
    }
    let finished = |experiment: &Experiment| finished.has(folder, experiment);
    let data = args.data.as_deref();
    let forecast = forecast::of_comparison(comparison, data, &args.dir, finished, stop);
    let forecast = forecast.filter(|_| !stop.load(Ordering::Relaxed));
    for line in forecast.iter().flat_map(Forecast::lines) {
        output::note(&line);
    }
}

fn read(word: &Path) -> Result<Comparison, Failure> {
    workspace::read_comparison(word).map_err(|failure| {
        let is_experiment = || {
            let path = workspace::lock_path(word).ok()?;
            Some(matches!(workspace::lock_at(&path).ok()??, Lock::Experiment(_)))
        };
        match is_experiment() {
            Some(true) => {
                failure.help(format!("or train it alone: `canonc run --lock {}`", shown(word)))
            }
            Some(false) | None => failure,
        }
    })
}

/// Refuses a folder for event files that is, for any run, a part of any run's folder.
fn apart(
    events: &Path,
    comparison: &Comparison,
    folder: &Path,
    finished: &FinishedRuns,
) -> Result<(), Failure> {
    let runs = comparison.runs();
    for of in &runs {
        let run_folder = finished.folder(folder, &of.experiment)?;
        for run in &runs {
            live::folder(events, &run.experiment.name, &run_folder)?;
        }
    }
    Ok(())
}

/// Finds errors that would stop a run, before anything is written: a folder of another run, other data, other questions, a
/// lock that cannot run here.
fn check(
    comparison: &Comparison,
    folder: &Path,
    given: GivenPaths<'_>,
    finished: &FinishedRuns,
) -> Result<(), Failure> {
    check_weights(comparison, folder, given.weights, finished)?;
    let mut documents = BTreeMap::new();
    let mut asked: Vec<(&Evaluation, &DataSource)> = Vec::new();
    let runs = comparison.runs();
    for run in &runs {
        let experiment = &run.experiment;
        let run_folder = finished.folder(folder, experiment)?;
        let lock = Paths::new(&run_folder).lock();
        match disk::read_text(&lock, disk::SMALL) {
            Ok(text) => {
                belongs(&run_folder, experiment.digests, experiment.evaluation.every, &text)?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::cannot_read(&lock, &error)),
        }
        let name = experiment.value("data.source").map(FieldValue::plain);
        let documents = match documents.get(&name) {
            Some(known) => Option::clone(known),
            None => {
                // Of several comparisons some may be on a task.
                let read = documents::read(experiment, given.of(experiment).data)?;
                documents.insert(name, read.clone());
                read
            }
        };
        // Runs of one comparison mostly have the same suites, which take a while to read. A finished run needs none.
        let asks = (&experiment.evaluation, &experiment.data.source);
        if !Paths::new(&run_folder).is_attested()? && !asked.contains(&asks) {
            suites().measure(experiment, documents.as_deref())?;
            asked.push(asks);
        }
        Job::new(experiment, "", documents)?;
    }
    // With a stopping rule, the seeds after a look are due only if it does not decide.
    let (due, _) = interim_looks::due(comparison, folder, finished)?;
    for run in &due {
        let run_folder = finished.folder(folder, &run.experiment)?;
        check_trainer(comparison, &run.experiment, &run_folder)?;
    }
    warn_of_two_trainers(&due, folder, finished)
}

/// Says before anything is trained that another engine has trained some of the runs.
fn warn_of_two_trainers(
    due: &[&ComparisonRun],
    folder: &Path,
    finished: &FinishedRuns,
) -> Result<(), Failure> {
    let (mut engines, mut missing) = (BTreeSet::new(), 0);
    for run in due {
        match attestation(&Paths::new(finished.folder(folder, &run.experiment)?))? {
            Some(attested) => engines.extend(attested.trainer.map(|one| one.engine_words())),
            None => missing += 1,
        }
    }
    if missing > 0 && !engines.is_empty() {
        let engines = engines.into_iter().collect::<Vec<_>>().join(" and ");
        output::note(&format!(
            "warning: {engines} trained some of these runs, and canonc would train the other {missing}: two trainers are a \
             confound, which no treatment clears; with trainer = \"pytorch\" in the comparison file, none is trained here"
        ));
    }
    Ok(())
}

/// Refuses weights that are not those of the runs that are still to begin from them.
fn check_weights(
    comparison: &Comparison,
    folder: &Path,
    given: Option<&Path>,
    finished: &FinishedRuns,
) -> Result<(), Failure> {
    let names: BTreeSet<String> =
        comparison.arms.iter().filter_map(|arm| weights_of(&arm.experiment)).collect();
    if names.len() > 1
        && let Some(path) = given
    {
        let names = names.into_iter().collect::<Vec<_>>().join(" and ");
        return Err(Failure::bad_input(format!(
            "the arms of `{}` begin from several weights, {names}, but `--weights {}` names one",
            comparison.name,
            shown(path)
        ))
        .help("leave --weights out: each arm's are read where it names them"));
    }
    // Seeds do not change the weights.
    let mut arms = BTreeSet::new();
    for run in comparison.runs() {
        let run_folder = finished.folder(folder, &run.experiment)?;
        if !Paths::new(&run_folder).is_attested()? && arms.insert(&run.arm) {
            let weights = given.filter(|_| initial_weights::begins_from_some(&run.experiment));
            initial_weights::read(&run.experiment, weights)?;
        }
    }
    Ok(())
}

/// The name of the weights that an experiment begins from.
fn weights_of(experiment: &Experiment) -> Option<String> {
    match &experiment.init {
        Init::Weights { name, .. } => Some(format!("\"{name}\"")),
        Init::Drawn => None,
    }
}

/// Refuses a run of another trainer than the declared one, one of another engine that is not recorded yet, and a missing
/// one that canonc would have to train against the declaration.
fn check_trainer(
    comparison: &Comparison,
    experiment: &Experiment,
    run_folder: &Path,
) -> Result<(), Failure> {
    let paths = Paths::new(run_folder);
    if let Some(attested) = attestation(&paths)? {
        return trained_as_declared(comparison.trainer, attested.trainer.as_ref(), run_folder);
    }
    refuse_elsewhere(&paths)?;
    if is_declared(comparison.trainer, None) {
        return Ok(());
    }
    let (name, word) = (&experiment.name, comparison.trainer.word().unwrap_or_default());
    Err(Failure::bad_input(format!(
        "`{name}` has no finished run, and the comparison declares trainer = \"{word}\", so canonc does not train it"
    ))
    .help(format!(
        "`canonc export lockfiles/{}.lock --to trainer --out DIR` writes what trains every run; put this one into {1} \
         and `canonc record {1}`",
        comparison.name,
        shown(run_folder)
    )))
}

/// Prints the verdict and the table, and returns the page with the curves, which is written to the folder of the runs.
fn show(
    comparison: &Comparison,
    facts: &Facts,
    due: &[&ComparisonRun],
    folder: &Path,
    finished: &FinishedRuns,
    json: bool,
) -> Result<String, Failure> {
    let heading = heading(comparison, facts);
    let mut text = format!("design: {}\n", heading.verdict);
    for note in &heading.notes {
        text.push_str(&format!("  {note}\n"));
    }
    if !json {
        output::data(&format!("{text}\n{}", facts.summary().text()))?;
    }
    let page = page(comparison, facts.clone(), due, folder, finished)?;
    let path = folder.join("report.html");
    out::put(&path, OutputKind::Page, &page)?;
    output::note(&format!("curves: {}", shown(&path)));
    Ok(page)
}
