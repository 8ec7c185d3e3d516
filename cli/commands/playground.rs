//! `canonc playground`: every committed comparison of the synthetic tasks at CPU size, in one table and one picture.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;

use crate::child;
use crate::fail::{Failure, Outcome};
use crate::options::jobs;

/// Train small archs of every family with and without Canon layers on the synthetic tasks, and plot the differences
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc playground --jobs 2                        every task and family
  canonc playground --tasks depo,mano --families llama,gla
  canonc playground --wide --jobs 2                 eight architectures beyond the release, on depo and mano

Runs `canonc build` and `canonc compare` on recipes/cpu_TASK_FAMILY.toml; an interrupted command continues when
repeated. The picture is playground/playground.svg, with --wide playground/wide.svg.")]
pub struct PlaygroundArgs {
    /// Only these, separated by commas
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    pub tasks: Vec<String>,
    /// Only these, separated by commas
    #[arg(long, value_name = "FAMILY", value_delimiter = ',')]
    pub families: Vec<String>,
    /// Architectures beyond the release: recipes/wide_TASK_FAMILY.toml
    #[arg(long)]
    pub wide: bool,
    /// Runs at a time, one core each
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = jobs)]
    pub jobs: usize,
}

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
