//! `canonc audit`: problems across experiments that no pairwise diff shows.
//!
//! The release's published data is embedded in the binary.

mod configuration;
mod read;

use std::path::{Path, PathBuf};

use audit::curves::{self, Curves};
use audit::vocabularies::{VOCABULARIES, Vocabulary};
use audit::{
    AuditReport, BadInput, Experiment, Findings, LogSummary, LogValues, MAX_EXPERIMENTS, Names,
    Occurrence, Rules, Scope, Subject,
};
use clap::Args;
use clap::builder::PossibleValuesParser;
use logs::{Agreement, Difference};

use cli::fail::{Exit, Failure, Outcome, shown};
use cli::logs::{BoundLog, LogArgs};
use cli::{output, workspace};

/// Audit a set of experiments for faults that no pairwise diff shows: confounds, broken invariants, false claims
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc audit --published                       the 64 experiments of the release, with their curves
  canonc audit lockfiles/*.lock                  experiments, and the arms of comparisons
  canonc audit lockfiles                         every lock, table and configuration in a folder
  canonc audit runs.tsv --curves losses.csv.gz   a table: one row per experiment, one column per key
  canonc audit runs.tsv --rules mine.toml        with your own rules
  canonc audit lockfiles/demo.lock --log trainer_state.json    a log of another program, held against the lock

Exit codes: 0 only notes and warnings, 1 a confound or an error, 2 bad input.
`--list` prints every rule and key; `--help` describes the file formats.",
    after_long_help = "\
Examples:
  canonc audit --published                       the 64 experiments of the release, with their curves
  canonc audit lockfiles/*.lock                  experiments, and the arms of comparisons
  canonc audit lockfiles                         every lock, table and configuration in a folder
  canonc audit runs.tsv --curves losses.csv.gz   a table: one row per experiment, one column per key
  canonc audit runs.tsv --rules mine.toml        with your own rules
  canonc audit lockfiles/demo.lock --log trainer_state.json    a log of another program, held against the lock

A table has a line of column names, then a line for each experiment: CSV with `,`, `;` or tabs, a table of a
Markdown file, or JSON objects, one a line or in a list. `name` (or `model`) is the experiment's name; other
columns are keys: canonc's (optimizer.lr), or those of a trainer, which is recognised by its keys (`--list`
shows them; --as names one). An empty cell is an absent key. Results (losses, scores, dates, users) are listed
and not compared. Twins that differ in an unknown column are not clean. A column with a name ending in
`_from_comment` is not a key. A W&B export is such a table as it is.

A configuration (YAML, TOML, JSON) is one experiment, named after its file.

A log is one of a run that another program trained, and your word binds it to the lock: --log FILE with one lock, or
--log LOCK=FILE. Learning rates and tokens are held against the lock at each step, sequences and the number of steps
as far as the log has them. Read are transformers' trainer_state.json, JSON lines of Lingua (metrics.jsonl) and
torchtitan, CSV exports of W&B's charts, and event files of TensorBoard. Names that are not known need --metric:
  canonc audit lockfiles/demo.lock --log wandb.csv --metric loss=train/ce --metric lr=optim/lr
A log shows how a run was logged, not how it was trained: losses, norms and weights are on trust.

Curves are a header line and lines `model,step,loss`, plain or gzip; or a column of steps and one column for
each run, as W&B exports a chart.

A rules file is TOML:
  off = [\"twin-cosmetic\"]                  built-in rules to switch off
  [keys]                                   your own keys, each with its topic
  \"my.flag\" = \"training\"                 or data, budget, numerics, kernel, revision, evaluation,
                                           cadence, setup
  \"train.lr\" = \"optimizer.lr\"            or the field that the key is
  [severity]
  missing-twin = \"error\"                   \"error\", \"confound\", \"warning\" or \"note\"
  [[pairs]]                                more twins, by the fields that are meant to differ
  treatment = [\"arch.mixer.window\"]
  [[invariant]]                            a value that is constant over a sweep, by majority
  id = \"lr-by-batch\"
  of = \"optimizer.lr / batch.tokens_per_step\"
  within = [\"family\", \"size\"]            or `task`, `tokens`, or keys; by default the whole set
  tolerance = 0.01
  [[range]]
  id = \"lr-range\"
  of = \"optimizer.lr\"
  max = 0.01
Invariants and ranges can have a severity (default \"confound\"), a `why` and a `help`.

Exit codes: 0 only notes and warnings, 1 a confound or an error, 2 bad input.

Schema of --json, one object on standard output:
  schema       \"canonc.audit.v1\"
  experiments  number of experiments
  fails        whether there is a confound or an error
  pairs        each {without, with, clean}: names, and whether no other difference can affect results
  unpaired     treatments without pairs, and why
  unseen       facts that the files do not contain
  vocabularies how the keys of other trainers were read
  results      keys that hold results, which are not compared
  unknown      unknown keys in which no twins differ
  rules        changes to the built-in rules
  logs         with --log, each {experiment, file, program (or null), names, loss_is, last_step, learning_rates, tokens,
               sequences (each {compared, differing}), on_trust (true), notes}
  findings     the most severe first, each
    rule, severity, key (null for the whole experiment), message, why, help
    places     each {experiment, against (the other one of a pair, or null), says}"
)]
pub struct AuditArgs {
    /// Locks, tables (.csv, .tsv, .md, .jsonl), configurations (.yaml, .toml, .json), or folders that contain some
    #[arg(value_name = "PATH", required_unless_present_any = ["published", "list", "log"])]
    pub paths: Vec<PathBuf>,
    /// Audit the 64 experiments of the release and the loss curves of 48 of them, which are built in
    #[arg(long)]
    pub published: bool,
    /// Loss curves of the experiments, by experiment name
    #[arg(long, value_name = "FILE")]
    pub curves: Option<PathBuf>,
    /// A file of rules that change or extend the built-in ones
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Read the keys of files and tables as those of a trainer, instead of recognising it
    #[arg(long = "as", value_name = "NAME", value_parser = vocabularies())]
    pub vocabulary: Option<String>,
    /// List every rule and key instead, as in recipes/AUDIT.md
    #[arg(long, conflicts_with_all = ["paths", "published", "curves", "rules", "vocabulary", "json", "log"])]
    pub list: bool,
    #[command(flatten)]
    pub logs: LogArgs,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

fn vocabularies() -> PossibleValuesParser {
    PossibleValuesParser::new(VOCABULARIES.map(|vocabulary| vocabulary.name))
}

pub fn audit(args: &AuditArgs) -> Outcome {
    if args.list {
        output::data(&audit::document())?;
        return Ok(Exit::Fine);
    }
    let mut rules = match &args.rules {
        Some(path) => rules(path)?,
        None => Rules::default(),
    };
    let bound = args.logs.bound(&args.paths)?;
    let experiments = experiments(args, &bound, &rules)?;
    let mut curves = if args.published { read::published_curves()? } else { Curves::default() };
    let mut runs = Vec::new();
    if let Some(path) = &args.curves {
        let read = read::curves(path)?;
        runs.extend(read.runs().map(str::to_owned));
        curves.extend(read).map_err(|error| {
            Failure::bad_input(error).at(shown(path)).help("give each run its own name")
        })?;
    }
    let experiments = named_apart(experiments, &rules)?;
    let subjects = audit::subjects(&experiments);
    rules.resolve(&subjects);
    check_rules(args, &rules, &subjects)?;
    if let Some(path) = &args.curves {
        check_curves(path, &runs, &subjects)?;
    }
    let mut findings = Findings::default();
    curves::findings(&curves, &subjects, &mut findings);
    let logs = logs(&bound, &args.logs.metric, &mut findings)?;
    let report = AuditReport { logs, ..audit::audit(&subjects, &rules, findings) };
    match args.json {
        true => output::json(&audit::json(&report))?,
        false => output::data(&audit::text(&report))?,
    }
    Ok(if report.fails() { Exit::Finding } else { Exit::Fine })
}

/// The experiments of all files.
fn experiments(
    args: &AuditArgs,
    bound: &[BoundLog],
    rules: &Rules,
) -> Result<Vec<Experiment>, Failure> {
    let vocabulary = args.vocabulary.as_deref().and_then(Vocabulary::named);
    let names = Names { vocabulary, own: rules.is.clone() };
    let mut experiments = if args.published { read::published()? } else { Vec::new() };
    workspace::refuse_repeated(&args.paths)?;
    for path in &args.paths {
        // With several files, locks of architectures are skipped, as in a folder.
        experiments.extend(match args.paths.len() {
            1 => read::experiments(path, &names)?,
            _ => read::experiments_of(path, &names)?,
        });
    }
    for BoundLog { word, experiment, file: _ } in bound {
        let is_named = args.paths.contains(word);
        let locked = || Experiment::of_lock(&experiment.name, &shown(word), experiment);
        if !is_named && !experiments.iter().any(|known| known.name == experiment.name) {
            experiments.push(locked());
        }
    }
    if let (true, Some(first)) = (experiments.is_empty() && !args.published, args.paths.first()) {
        return Err(Failure::bad_input("these files contain no experiment")
            .at(shown(first))
            .help("an architecture alone cannot be audited: build a recipe"));
    }
    Ok(experiments)
}

/// Holds each log against its lock.
fn logs(
    bound: &[BoundLog],
    metrics: &[String],
    findings: &mut Findings,
) -> Result<Vec<LogSummary>, Failure> {
    let mut summaries = Vec::new();
    for BoundLog { word: _, experiment, file } in bound {
        let (log, check) = crate::logs::read(file, experiment, metrics)?;
        let name = &experiment.name;
        for Difference { rule, key, message, says } in check.differences {
            let says = format!("{}: {says}", shown(file));
            findings.add(rule, Scope::Run, key, message, Occurrence::in_experiment(name, says));
        }
        let named = log.names.iter().map(|(quantity, name)| (quantity.word(), name.clone()));
        summaries.push(LogSummary {
            experiment: name.clone(),
            file: shown(file),
            program: log.program,
            names: named.collect(),
            loss_is: log.loss_is,
            last_step: log.reached,
            steps: experiment.budget.steps,
            learning_rates: of_values(&check.lr),
            tokens: of_values(&check.tokens),
            sequences: of_values(&check.sequences),
            notes: log.notes,
        });
    }
    Ok(summaries)
}

fn of_values(agreement: &Agreement) -> LogValues {
    let Agreement { compared, differing, .. } = *agreement;
    LogValues { compared, differing, says: agreement.to_string() }
}

/// Each experiment once, with a name of its own.
fn named_apart(experiments: Vec<Experiment>, rules: &Rules) -> Result<Vec<Experiment>, Failure> {
    if experiments.len() > MAX_EXPERIMENTS {
        let message = format!(
            "there are {} experiments; at most {MAX_EXPERIMENTS} can be compared",
            experiments.len()
        );
        return Err(Failure::bad_input(message).help("audit one sweep at a time"));
    }
    let mut experiments = read::once(experiments);
    read::tell_apart(&mut experiments);
    experiments.iter_mut().for_each(|experiment| experiment.declare(&rules.keys));
    Ok(experiments)
}

/// Refuses rules about keys that no experiment has, and treatments that cover something measured.
fn check_rules(args: &AuditArgs, rules: &Rules, subjects: &[Subject]) -> Result<(), Failure> {
    let file = args.rules.as_deref().map_or(String::new(), shown);
    if let Some((key, suggestion)) = rules.unknown(subjects).into_iter().next() {
        let message = format!("a rule uses the key `{key}`, which no experiment has");
        return Err(Failure::bad_input(message).at(file).help(match suggestion {
            Some(key) => format!("did you mean `{key}`?"),
            None => "`canonc audit --list` lists the keys".to_owned(),
        }));
    }
    if let Some((entry, measured)) = rules.measured(subjects) {
        return Err(Failure::bad_input(format!(
            "the treatment `{entry}` of a rule covers `{measured}`, and what is measured is no treatment"
        ))
        .at(file)
        .help("name what the experiments train differently"));
    }
    Ok(())
}

/// Refuses curves of which none belongs to an experiment, and warns of one that belongs to none.
fn check_curves(path: &Path, runs: &[String], subjects: &[Subject]) -> Result<(), Failure> {
    let has_experiment = |run: &str| subjects.iter().any(|subject| subject.name == run);
    let unmatched: Vec<&str> =
        runs.iter().map(String::as_str).filter(|run| !has_experiment(run)).collect();
    if unmatched.len() == runs.len() {
        let run = runs.first().map_or("", String::as_str);
        let experiment = subjects.first().map_or("", |subject| subject.name.as_str());
        return Err(Failure::bad_input(format!(
            "no curve belongs to an experiment: the curves are of `{run}` and others, the experiments are `{experiment}` and others"
        ))
        .at(shown(path))
        .help("give runs the same names in both files"));
    }
    if let [first, rest @ ..] = unmatched.as_slice() {
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        output::note(&format!(
            "warning: no experiment is called `{first}`{more}: its curve is not used"
        ));
    }
    Ok(())
}

/// Reads a rules file. Its errors have been shown.
fn rules(path: &Path) -> Result<Rules, Failure> {
    let text = read::text(path)?;
    audit::rules(&text).map_err(|bad| {
        let failures = bad.into_iter().map(|bad| {
            Failure::bad_input(bad.message)
                .at(format!("{}:{}", shown(path), bad.line))
                .help(bad.help)
        });
        for failure in failures {
            output::failure(&failure);
        }
        Failure::shown(Exit::BadInput)
    })
}

/// A file that is not what it should be, with the line.
fn refused(source: &str, bad: BadInput) -> Failure {
    let line = if bad.line == 0 { source.to_owned() } else { format!("{source}:{}", bad.line) };
    Failure::bad_input(bad.message).at(line).help(bad.help)
}
