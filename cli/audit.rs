//! `canonc audit`: problems across experiments that no pairwise diff shows.
//!
//! The release's published data is embedded in the binary.

mod configuration;
mod read;

use std::path::Path;

use audit::curves::{self, Curves};
use audit::vocabularies::Vocabulary;
use audit::{Experiment, Findings, MAX_EXPERIMENTS, Names, Rules, Subject};

use crate::args::AuditArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{named, output};

pub fn audit(args: &AuditArgs) -> Outcome {
    if args.list {
        output::data(&audit::document())?;
        return Ok(Exit::Fine);
    }
    let mut rules = match &args.rules {
        Some(path) => rules(path)?,
        None => Rules::default(),
    };
    let experiments = experiments(args, &rules)?;
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
    let report = audit::audit(&subjects, &rules, findings);
    match args.json {
        true => output::json(&audit::json(&report))?,
        false => output::data(&audit::text(&report))?,
    }
    Ok(if report.fails() { Exit::Finding } else { Exit::Fine })
}

/// The experiments of all files.
fn experiments(args: &AuditArgs, rules: &Rules) -> Result<Vec<Experiment>, Failure> {
    let vocabulary = args.vocabulary.as_deref().and_then(Vocabulary::named);
    let names = Names { vocabulary, own: rules.is.clone() };
    let mut experiments = if args.published { read::published()? } else { Vec::new() };
    named::once(&args.paths)?;
    for path in &args.paths {
        // With several files, locks of architectures are skipped, as in a folder.
        experiments.extend(match args.paths.len() {
            1 => read::experiments(path, &names)?,
            _ => read::experiments_of(path, &names)?,
        });
    }
    if let (true, Some(first)) = (experiments.is_empty() && !args.published, args.paths.first()) {
        return Err(Failure::bad_input("these files contain no experiment")
            .at(shown(first))
            .help("an architecture alone cannot be audited: build a recipe"));
    }
    Ok(experiments)
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
