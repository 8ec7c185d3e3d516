//! `canonc audit`: problems across experiments that no pairwise diff shows.
//!
//! The release's published data is embedded in the binary.

mod configuration;
mod read;

use std::path::Path;

use lab::audit::vocabulary::Vocabulary;
use lab::audit::{self, Findings, MAX_EXPERIMENTS, Names, Rules};
use report::curves::{self, LossCurves};

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
    let vocabulary = args.vocabulary.as_deref().and_then(Vocabulary::named);
    let names = Names { vocabulary, own: rules.is.clone() };
    let mut experiments = Vec::new();
    let mut curves = LossCurves::default();
    if args.published {
        experiments.extend(read::published()?);
        curves = read::published_curves()?;
    }
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
    let mut own = Vec::new();
    if let Some(path) = &args.curves {
        let read = read::curves(path)?;
        own.extend(read.runs().map(str::to_owned));
        curves.extend(read).map_err(|why| {
            Failure::bad_input(why).at(shown(path)).help("give each run its own name")
        })?;
    }
    if experiments.len() > MAX_EXPERIMENTS {
        let message = format!(
            "there are {} experiments; at most {MAX_EXPERIMENTS} can be compared",
            experiments.len()
        );
        return Err(Failure::bad_input(message).help("audit one sweep at a time"));
    }
    let mut experiments = read::once(experiments);
    read::told_apart(&mut experiments);
    experiments.iter_mut().for_each(|experiment| experiment.declare(&rules.keys));
    let subjects = audit::subjects(&experiments);
    rules.resolve(&subjects);
    if let Some((key, near)) = rules.unknown(&subjects).into_iter().next() {
        let failure =
            Failure::bad_input(format!("a rule uses the key `{key}`, which no experiment has"))
                .at(args.rules.as_deref().map_or(String::new(), shown));
        return Err(match near {
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None => failure.help("`canonc audit --list` lists the keys"),
        });
    }
    if let Some((entry, measured)) = rules.measured(&subjects) {
        return Err(Failure::bad_input(format!(
            "the treatment `{entry}` of a rule covers `{measured}`, and what is measured is no treatment"
        ))
        .at(args.rules.as_deref().map_or(String::new(), shown))
        .help("name what the experiments train differently"));
    }
    let has_experiment = |run: &str| subjects.iter().any(|subject| subject.name == run);
    let unmatched: Vec<&str> =
        own.iter().map(String::as_str).filter(|run| !has_experiment(run)).collect();
    if let (Some(path), true) = (&args.curves, unmatched.len() == own.len()) {
        let run = own.first().map_or("", String::as_str);
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
    let mut found = Findings::default();
    curves::add_findings(&curves, &subjects, &mut found);
    let report = audit::audit(&subjects, &rules, found);
    match args.json {
        true => output::json(&audit::json(&report))?,
        false => output::data(&audit::text(&report))?,
    }
    Ok(if report.fails() { Exit::Finding } else { Exit::Fine })
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
