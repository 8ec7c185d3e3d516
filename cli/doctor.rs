//! `canonc doctor`: reports the programs and settings of this machine, the missing ones, and their fixes.
//!
//! In: the machine. Out: facts, as text or JSON on standard output. Must stay true: nothing is
//! changed; programs are started only to ask their version; a thing that cannot be checked is `unknown`, not
//! missing; every missing thing comes with its fix; the exit code is 0, since the check itself worked.

mod tools;

use std::path::{Path, PathBuf};

use records::platform::{Host, observe_host};
use serde::{Deserialize, Serialize};

use crate::args::DoctorArgs;
use crate::fail::{Exit, Outcome, shown};
use crate::output;
use crate::tensors::Tensors;

/// One thing that was checked.
#[derive(Debug, Deserialize, Serialize)]
pub struct Fact {
    pub name: String,
    pub value: String,
    pub state: State,
    pub help: Option<String>,
    /// Known only where libtorch is loaded.
    pub of_libtorch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Has,
    Lacks,
    Unknown,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Report {
    pub schema: String,
    pub facts: Vec<Fact>,
}

pub fn doctor(args: &DoctorArgs, tensors: &dyn Tensors) -> Outcome {
    let facts = facts(tensors);
    if args.json {
        output::json(&Report { schema: "canonc.doctor.v1".to_owned(), facts })?;
    } else {
        output::data(&text(&facts))?;
    }
    Ok(Exit::Fine)
}

impl Fact {
    pub fn has(name: &str, value: impl Into<String>) -> Fact {
        Fact {
            name: name.to_owned(),
            value: value.into(),
            state: State::Has,
            help: None,
            of_libtorch: false,
        }
    }

    pub fn lacks(name: &str, value: impl Into<String>, help: impl Into<String>) -> Fact {
        Fact {
            name: name.to_owned(),
            value: value.into(),
            state: State::Lacks,
            help: Some(help.into()),
            of_libtorch: false,
        }
    }

    pub fn unknown(name: &str) -> Fact {
        Fact {
            name: name.to_owned(),
            value: "unknown".to_owned(),
            state: State::Unknown,
            help: None,
            of_libtorch: false,
        }
    }
}

fn facts(tensors: &dyn Tensors) -> Vec<Fact> {
    let mut facts = vec![Fact::has("canonc", this_binary())];
    facts.extend(host(&observe_host()));
    facts.push(disk());
    facts.extend(tensors.facts().into_iter().map(|fact| Fact { of_libtorch: true, ..fact }));
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
