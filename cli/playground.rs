//! `canonc playground`: every committed comparison of the synthetic tasks at CPU size, in one table and one picture.
//!
//! In: `recipes/cpu_TASK_FAMILY.toml`, or with `--wide` `recipes/wide_TASK_FAMILY.toml`. Out: their locks, their runs, a table, a picture. Must stay true: as in the
//! demo, every step is a printed command that does the same when typed by hand, and repeating it resumes.

use std::collections::BTreeSet;
use std::path::Path;

use crate::args::PlaygroundArgs;
use crate::child;
use crate::fail::{Failure, Outcome};

const RECIPES: &str = "recipes";

pub fn playground(args: &PlaygroundArgs) -> Outcome {
    let (prefix, picture) = match args.wide {
        false => ("cpu_", "playground/playground.svg"),
        true => ("wide_", "playground/wide.svg"),
    };
    let known = comparisons(prefix);
    if known.is_empty() {
        return Err(Failure::bad_input(format!(
            "there is no `{RECIPES}/{prefix}TASK_FAMILY.toml` here"
        ))
        .help("run it in the folder of the canonc repository"));
    }
    for (what, asked, part) in [
        ("task", &args.tasks, (|(task, _): &(String, String)| task.clone()) as fn(&_) -> _),
        ("family", &args.families, |(_, family)| family.clone()),
    ] {
        let there: BTreeSet<String> = known.iter().map(part).collect();
        if let Some(none) = asked.iter().find(|name| !there.contains(*name)) {
            let there: Vec<&str> = there.iter().map(String::as_str).collect();
            return Err(Failure::bad_input(format!("the playground has no {what} `{none}`"))
                .help(format!("it has {}", there.join(", "))));
        }
    }
    let chosen = |names: &[String], name: &String| names.is_empty() || names.contains(name);
    let chosen: Vec<String> = known
        .iter()
        .filter(|(task, family)| chosen(&args.tasks, task) && chosen(&args.families, family))
        .map(|(task, family)| format!("{prefix}{task}_{family}"))
        .collect();
    if chosen.is_empty() {
        return Err(Failure::bad_input(
            "no comparison has one of these tasks and one of these families",
        )
        .help("remove --tasks or --families"));
    }
    let mut build = vec!["build".to_owned()];
    build.extend(chosen.iter().map(|name| format!("{RECIPES}/{name}.toml")));
    let mut compare = vec!["compare".to_owned()];
    compare.extend(chosen.iter().map(|name| format!("lockfiles/{name}.lock")));
    compare.extend(["--jobs".to_owned(), args.jobs.to_string()]);
    compare.extend(["--out".to_owned(), picture.to_owned()]);
    child::steps(vec![build, compare], "canonc playground")
}

/// (task, family) of every committed comparison.
fn comparisons(prefix: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(Path::new(RECIPES)).into_iter().flatten().flatten();
    let mut found: Vec<(String, String)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let name = name.strip_prefix(prefix)?.strip_suffix(".toml")?;
            let (task, family) = name.split_once('_')?;
            Some((task.to_owned(), family.to_owned()))
        })
        .collect();
    found.sort();
    found
}
