//! `canonc audit`: problems across experiments that no pairwise diff shows.
//!
//! In: locks, tables, folders of them, or the published set; curves; rules. Out: findings on standard
//! output, as text or JSON; exit 1 if any of them is a confound or an error. Must stay true: every file of a folder is
//! read or reported; the release's published data is embedded in the binary.

mod read;

use std::path::Path;

use lab::audit::{self, Findings, MAX_EXPERIMENTS, Rules};
use report::curves::{self, Curves};

use crate::args::AuditArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{named, output};

pub fn audit(args: &AuditArgs) -> Outcome {
    if args.list {
        output::data(&audit::document())?;
        return Ok(Exit::Fine);
    }
    let rules = match &args.rules {
        Some(path) => rules(path)?,
        None => Rules::default(),
    };
    let mut experiments = Vec::new();
    let mut curves = Curves::default();
    if args.published {
        experiments.extend(read::published()?);
        curves = read::published_curves()?;
    }
    named::once(&args.paths)?;
    for path in &args.paths {
        // With several files, locks of architectures are skipped, as in a folder.
        experiments.extend(match args.paths.len() {
            1 => read::experiments(path)?,
            _ => read::experiments_of(path)?,
        });
    }
    if let (true, Some(first)) = (experiments.is_empty() && !args.published, args.paths.first()) {
        return Err(Failure::bad_input("these files contain no experiment")
            .at(shown(first))
            .help("an architecture alone cannot be audited: build a recipe"));
    }
    if let Some(path) = &args.curves {
        curves.extend(read::curves(path)?).map_err(|why| {
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
    if let Some((key, near)) = rules.unknown(&subjects).into_iter().next() {
        let failure =
            Failure::bad_input(format!("a rule uses the key `{key}`, which no experiment has"))
                .at(args.rules.as_deref().map_or(String::new(), shown));
        return Err(match near {
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None => failure.help("`canonc audit --list` lists the keys"),
        });
    }
    let mut found = Findings::default();
    curves::findings(&curves, &subjects, &mut found);
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
