//! `canonc doctor`: reports the programs and settings of this machine, the missing ones, and their fixes.
//!
//! A thing that cannot be checked is `unknown`, not missing.

mod tools;

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args};
use records::platform::{Host, observe_host};

use crate::command::{Program, with};
use crate::facts::{Fact, Facts, State};
use crate::fail::{Exit, Outcome, shown};
use crate::{output, torch_program};

/// Show what this machine has and lacks, and how to install what is missing
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc doctor
  canonc doctor --json

Schema of --json: {schema: \"canonc.doctor.v1\", facts: [{name, value, state, help}]}, where state is
\"has\", \"lacks\" or \"unknown\", and help (or null) says what to type.")]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// In `canonc`, facts about libtorch are those that `canonc-torch` prints.
pub(crate) fn run(_: &Program, matches: &ArgMatches) -> Outcome {
    with(matches, |args| doctor(args, torch_program::facts))
}

/// Reports on this machine; `of_libtorch` asks for the facts that only a program with libtorch knows.
pub fn doctor(args: &DoctorArgs, of_libtorch: fn() -> Vec<Fact>) -> Outcome {
    let facts = facts(of_libtorch());
    if args.json {
        output::json(&Facts { schema: "canonc.doctor.v1".to_owned(), facts })?;
    } else {
        output::data(&text(&facts))?;
    }
    Ok(Exit::Fine)
}

fn facts(of_libtorch: Vec<Fact>) -> Vec<Fact> {
    let mut facts = vec![Fact::has("canonc", this_binary())];
    facts.extend(host(&observe_host()));
    facts.push(disk());
    facts.extend(of_libtorch.into_iter().map(|fact| Fact { of_libtorch: true, ..fact }));
    // A build's needs are checked only where canonc can be built.
    let clone = Path::new("runtime/fetch-libtorch.py").is_file();
    if clone {
        facts.push(libtorch());
    }
    facts.extend(tools::facts(clone));
    facts
}

fn this_binary() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

fn host(host: &Host) -> Vec<Fact> {
    let Host { system, cpu_model, cores, memory_bytes, cpu_capability, env } = host;
    let cpu = match cpu_model.as_str() {
        "" => Fact::unknown("CPU"),
        model => Fact::has("CPU", model),
    };
    let memory = match memory_bytes {
        0 => Fact::unknown("memory"),
        bytes => Fact::has("memory", format!("{}B", output::rounded(*bytes))),
    };
    let mut facts = vec![
        Fact::has("system", system),
        cpu,
        Fact::has("cores", output::counted(*cores, "thread") + " at once"),
        Fact::has("vectors", cpu_capability.name()),
        memory,
    ];
    if !env.is_empty() {
        let set: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        facts.push(Fact::has("environment", set.join(" ")));
    }
    facts
}

/// Bytes that a run of some size writes: checkpoints of parameters and two moments.
const ROOM: u64 = 2_000_000_000;

fn disk() -> Fact {
    match fs4::available_space(".") {
        Ok(free) if free < ROOM => Fact::lacks(
            "disk here",
            format!("{}B free", output::rounded(free)),
            "free some space: libtorch needs 1.3 GB, checkpoints of a small run a few hundred MB",
        ),
        Ok(free) => Fact::has("disk here", format!("{}B free", output::rounded(free))),
        Err(_) => Fact::unknown("disk here"),
    }
}

/// The libtorch that a build would link, searched in the build's order.
fn libtorch() -> Fact {
    let name = "libtorch";
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let fetch = "`make libtorch` fetches it (544 MB, once), then `make build`";
    if set("LIBTORCH_USE_PYTORCH").is_some() {
        return Fact::has(name, "the PyTorch of python3 (LIBTORCH_USE_PYTORCH)");
    }
    if let Some(folder) = set("LIBTORCH").map(PathBuf::from) {
        let value = format!("{} (LIBTORCH)", shown(&folder));
        if has_libtorch(&folder) {
            return Fact::has(name, value);
        }
        // cargo sets the variable too; then the folder has just not been fetched yet.
        let help =
            format!("`unset LIBTORCH`, or point it at a folder with lib/{}; {fetch}", library());
        return Fact::lacks(name, format!("{value} has no lib/{}", library()), help);
    }
    let fetched = Path::new("third_party/libtorch/torch");
    if has_libtorch(fetched) {
        return Fact::has(name, shown(fetched));
    }
    Fact::lacks(name, "not here", fetch)
}

fn has_libtorch(folder: &Path) -> bool {
    folder.join("lib").join(library()).is_file()
}

fn library() -> String {
    use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
    format!("{DLL_PREFIX}torch_cpu{DLL_SUFFIX}")
}

fn text(facts: &[Fact]) -> String {
    let width = facts.iter().map(|fact| fact.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Fact { name, value, state, help, of_libtorch: _ } in facts {
        let mark = match state {
            State::Has => "has    ",
            State::Lacks => "lacks  ",
            State::Unknown => "unknown",
        };
        text += &format!("{mark}  {name:width$}  {value}\n");
        if let Some(help) = help {
            text += &format!("{:9}{:width$}  help: {help}\n", "", "");
        }
    }
    text
}
