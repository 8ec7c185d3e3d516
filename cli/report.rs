//! `canonc report`: shows runs as one HTML page, or writes event files for TensorBoard.
//!
//! In: run folders, folders of several, locks; patterns of published models. Out: a complete page. Must stay true: an
//! unfinished run is shown up to its last step, is labelled so, and is in no table; no run's folder is written to.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lab::comparison::Comparison;
use lab::experiment::{Experiment, TokenizerKind};
use lab::lock::Lock;
use records::run::{Paths, read_experiment, read_lock};
use report::compare::Facts;
use report::page::{self, NoSuchModel, PageContents, Part, Published};
use report::samples::Sample;
use report::scores::Scores;
use report::tensorboard;

use crate::args::ReportArgs;
use crate::beside;
use crate::compared::{arm_of, compared, heading, places};
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::files;
use crate::found::Found;
use crate::live::event_files;
use crate::looks;
use crate::named::{self, Named};
use crate::out::{self, OutputKind};
use crate::output;
use crate::runs::{self, failure, read_text};

/// The script that logs a run with the `wandb` package.
const WANDB: &str = include_str!("../docs/log_to_wandb.py");

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
    named::once(&args.what)?;
    out::folder(&args.dir)?;
    out::check(&args.out, OutputKind::Page)?;
    if let Some(folder) = &args.tensorboard {
        out::container(folder)?;
    }
    // Searched once, and only if a comparison needs it.
    let found = OnceCell::new();
    for what in &args.what {
        add(&mut report, what, &args.dir, &found)?;
    }
    if let Some(bytes) = args.bytes_per_token {
        measure_bytes(&mut report, bytes)?;
    }
    let page = page::page(&report).map_err(Failure::machine)?;
    out::put(&args.out, OutputKind::Page, &page)?;
    let runs = report.parts.iter().map(|part| part.runs.len()).sum::<usize>() + report.alone.len();
    let size = page.len().div_ceil(1000);
    let what = format!("{}, {size} kB", output::counted(runs, "run"));
    output::note(&format!("page: {} ({what})", shown(&args.out)));
    for line in &report.left_out {
        output::note(&format!("left out: {line}"));
    }
    if let Some(folder) = &args.tensorboard {
        for run in report.parts.iter().flat_map(|part| &part.runs).chain(&report.alone) {
            let of_run = out::named(folder, &run.experiment.name, unfinished(run))?;
            // The file that the run wrote itself is replaced: TensorBoard would read both.
            let path = match event_files(&of_run)?.as_slice() {
                [one] => one.clone(),
                _ => of_run.join(tensorboard::file_name(tensorboard::begins(&run.folder))),
            };
            let events = tensorboard::events(&run.folder, &run.experiment).map_err(failure)?;
            out::put(&path, OutputKind::Events, events)?;
        }
        output::note(&format!("event files: {}", shown(folder)));
    }
    Ok(Exit::Fine)
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

/// A result of `canonc eval`.
pub fn scores(path: &Path) -> Result<Scores, Failure> {
    let text = disk::read_text(path, disk::TEXT).map_err(|error| files::missing(path, &error))?;
    Scores::parse(&text).map_err(|why| {
        Failure::bad_input(format!("`{}` is not a result of `canonc eval`: {why}", shown(path)))
            .help("write one with `canonc eval MODEL --suite SUITE --out FILE`")
    })
}

/// The HTML file to write of a comparison, from curves that have been read.
pub fn page(
    locked: &Comparison,
    facts: Facts,
    runs: &[&lab::comparison::Run],
    folder: &Path,
    found: &Found,
) -> Result<String, Failure> {
    let parts = vec![part(locked, facts, runs, folder, found)?];
    page::page(&PageContents { parts, ..PageContents::default() }).map_err(Failure::machine)
}

fn add(
    report: &mut PageContents,
    what: &Path,
    dir: &Path,
    found: &OnceCell<Found>,
) -> Result<(), Failure> {
    let folder = match named::named(dir, what)? {
        Named::Run(path) | Named::Path(path) => path,
        Named::Nothing => what.to_owned(),
    };
    if !folder.is_dir() {
        let is_lock = folder.extension().is_some_and(|extension| extension == "lock");
        if let (Some(runs), false) = (among_runs(&folder), is_lock) {
            let message = format!("`{}` is a file between runs, not a run", shown(&folder));
            return Err(Failure::bad_input(message).help(all_of(runs)));
        }
        return add_lock(report, what, dir, found);
    }
    if Paths::new(&folder).lock().is_file() {
        report.alone.push(alone(&folder)?);
        return Ok(());
    }
    // A comparison's runs are in a folder of its name.
    if let Some(comparison) = comparison_of(&folder) {
        return self::comparison(
            report,
            &comparison,
            &folder,
            found.get_or_init(|| Found::under(dir)),
        );
    }
    let inside = folders(&folder)?;
    let (runs, others): (Vec<PathBuf>, Vec<PathBuf>) =
        inside.into_iter().partition(|path| Paths::new(path).lock().is_file());
    let comparisons: Vec<(PathBuf, Comparison)> = others
        .into_iter()
        .filter_map(|path| Some((comparison_of(&path)?, path)))
        .map(|(comparison, path)| (path, comparison))
        .collect();
    if runs.is_empty() && comparisons.is_empty() {
        return Err(Failure::bad_input(format!("`{}` contains no run", shown(&folder))).help(
            "name a run's folder, a folder with several runs, or a lock; `canonc run` and `canonc compare` train runs",
        ));
    }
    for run in runs {
        match alone(&run) {
            Ok(run) => report.alone.push(run),
            Err(why) if why.exit == Exit::Finding => {
                report.left_out.extend(why.message);
            }
            Err(why) => return Err(why),
        }
    }
    for (folder, comparison) in comparisons {
        if let Err(why) =
            self::comparison(report, &comparison, &folder, found.get_or_init(|| Found::under(dir)))
        {
            let why = why.message.unwrap_or_default();
            report.left_out.push(format!("{}: {why}", shown(&folder)));
        }
    }
    Ok(())
}

fn add_lock(
    report: &mut PageContents,
    path: &Path,
    dir: &Path,
    found: &OnceCell<Found>,
) -> Result<(), Failure> {
    let name = shown(path);
    match read_lock(&name, &read_text(path)?).map_err(failure)? {
        Lock::Comparison(comparison) => {
            let folder = out::named(dir, &comparison.name, "")?;
            self::comparison(
                report,
                &comparison,
                &folder,
                found.get_or_init(|| Found::under(dir)),
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
    path.parent().filter(|parent| path.is_file() && runs::holds_runs(parent))
}

fn all_of(folder: &Path) -> String {
    let folder = shown(folder);
    format!("name the folder of all runs, `{folder}`, or only folders: `{folder}/*/`")
}

/// A comparison with all its runs finished.
fn finished(comparison: &Comparison, folder: &Path, found: &Found) -> Result<Part, Failure> {
    let say = |failure: Failure| {
        failure.help(format!(
            "`canonc compare` on the lock of `{}` trains the missing runs",
            comparison.name
        ))
    };
    let (due, looks) = looks::due(comparison, folder, found).map_err(say)?;
    looks::check(comparison, folder, &looks)?;
    let due = looks::in_lock_order(comparison, &due);
    let mut compared = compared(comparison, &due, folder, found).map_err(say)?;
    crate::shown::count(&due, &mut compared, folder, false)?;
    if let Some(runs) = folder.parent() {
        let places = places(&due, folder, found)?;
        compared.proof.other_records =
            crate::compare::other_records(comparison, &compared, runs, &places);
    }
    part(comparison, Facts::new(&compared), &due, folder, found)
}

fn part(
    locked: &Comparison,
    facts: Facts,
    due: &[&lab::comparison::Run],
    folder: &Path,
    found: &Found,
) -> Result<Part, Failure> {
    let mut runs = Vec::new();
    for run in due {
        let place = found.place(folder, &run.experiment)?;
        let logged = page::read(&place, &run.experiment);
        runs.push(page::Run {
            name: run.experiment.name.clone(),
            arm: arm_of(run),
            role: Some(run.role),
            seed: run.seed,
            point: run.point,
            at: facts.points.get(run.point).cloned().unwrap_or_default(),
            experiment: run.experiment.clone(),
            folder: place.clone(),
            logged: logged.map_err(failure)?,
        });
    }
    let entries = locked.treatment.keys().map(|arm| (arm.clone(), locked.entries(arm))).collect();
    Ok(Part::new(heading(locked, &facts), facts, entries, runs))
}

/// The comparison lock with a folder's name.
fn comparison_of(folder: &Path) -> Option<Comparison> {
    let name = folder.file_name()?.to_str()?;
    let path = Path::new(crate::locks::FOLDER).join(format!("{name}.lock"));
    let text = disk::read_text(&path, disk::SMALL).ok()?;
    match read_lock(&shown(&path), &text) {
        Ok(Lock::Comparison(comparison)) => Some(comparison),
        Ok(Lock::Arch(_) | Lock::Experiment(_)) | Err(_) => None,
    }
}

/// A single run, from its folder.
fn alone(folder: &Path) -> Result<page::Run, Failure> {
    beside::refuse_others(folder)?;
    let path = Paths::new(folder).lock();
    let experiment = read_experiment(&shown(&path), &read_text(&path)?).map_err(failure)?;
    of_lock(folder, experiment)
}

/// The run of a lock. An unfinished run is shown up to its last step, under a name that says so.
fn of_lock(folder: &Path, experiment: Experiment) -> Result<page::Run, Failure> {
    let paths = Paths::new(folder);
    let (logged, name) = if paths.attestation().exists() || !paths.metrics().exists() {
        (page::read(folder, &experiment).map_err(failure)?, experiment.name.clone())
    } else {
        let (logged, step) = page::read_so_far(folder, &experiment).map_err(failure)?;
        let of = experiment.budget.steps;
        (logged, format!("{} (unfinished, step {step} of {of})", experiment.name))
    };
    Ok(page::Run {
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
fn unfinished(run: &page::Run) -> &'static str {
    if run.name == run.experiment.name { "" } else { ".unfinished" }
}

/// The runs of a comparison that cannot be compared yet, one by one.
fn each_alone(
    report: &mut PageContents,
    comparison: &Comparison,
    folder: &Path,
    found: &Found,
) -> Result<usize, Failure> {
    let mut runs = Vec::new();
    for run in comparison.runs() {
        let place = found.place(folder, &run.experiment)?;
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
    found: &Found,
) -> Result<(), Failure> {
    match finished(comparison, folder, found) {
        Ok(part) => report.parts.push(part),
        Err(why) => {
            if each_alone(report, comparison, folder, found)? == 0 {
                return Err(why);
            }
            let why = why.message.unwrap_or_default();
            report.left_out.push(format!("{}: its table, since {why}", comparison.name));
        }
    }
    Ok(())
}

/// Folders in a folder, sorted by name.
fn folders(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| Failure::cannot_read(folder, &error))?;
    let mut found: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    found.sort();
    Ok(found)
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
