//! `canonc selftest`: one command that says what this machine does.
//!
//! Each check is a process of its own, since after a GPU's illegal access nothing else works in the same process. This
//! process starts them, ends those that take too long, and writes each result to the file as it comes.

mod children;
mod peers;
mod results;
mod runs;
mod steps;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use children::Child;
use clap::ValueEnum as _;
use compiler::plan::Precision;
use compiler::program::Compiled;
use interop::import;
use records::platform::peak_memory;
use records::weights::WeightSource;
use results::{Line, Log, SCHEMA, Within, tables};
use runtime::execute::{KernelRequest, Machine};
use runtime::selftest::models::{self, Family, Size};
use runtime::selftest::{goldens, kernels_of};
use rustix::process::{Signal, kill_process_group};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use crate::forward::processor;
use cli::fail::{Exit, Failure, Outcome, reason, shown};
use cli::options::OnDevice;
use cli::out::{self, OutputKind};
use cli::output;
use commands::selftest::{SelftestArgs, SelftestPart};
use tensors::ranks::signalled_with_parent;

/// The file of results.
const FILE: &str = "selftest.jsonl";

pub(crate) fn selftest(args: &SelftestArgs) -> Outcome {
    if let Some(only) = &args.only {
        return child(args, only);
    }
    let until = args.limit.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let parts = parts(args)?;
    // Refuses a device that is not there before anything is written. The checks' processes open it themselves.
    let _ = machine(args.device)?;
    let goldens = match parts.contains(&SelftestPart::Goldens) {
        true => Some(golden_folder(args.goldens.as_deref())?),
        false => None,
    };
    peer_starts(args)?;
    out::container(&args.out)?;
    std::fs::create_dir_all(&args.out).map_err(|error| {
        Failure::machine(format!("the folder cannot be created: {error}")).at(shown(&args.out))
    })?;
    let file = args.out.join(FILE);
    out::check(&file, OutputKind::Selftest)?;
    let mut log = Log::create(&file)?;
    log.add(Line::Machine {
        schema: SCHEMA.to_owned(),
        device: args.device.name().to_owned(),
        facts: runtime::train::machine_facts(),
    })?;
    for part in parts {
        let checks: Vec<Child> = names(part, args, goldens.as_deref())
            .into_iter()
            .map(|name| Child::new(part, name, args, goldens.as_deref()))
            .collect::<Result<_, _>>()?;
        output::note(&format!("{}: {} processes", part.name(), checks.len()));
        children::run(checks, children::at_once(part, args), until, &mut log)?;
    }
    let holds = results::hold(log.lines());
    log.add(Line::End { holds })?;
    output::data(&tables(log.lines()))?;
    output::note(&format!("{} has the same as lines of JSON", shown(&file)));
    Ok(if holds { Exit::Fine } else { Exit::Finding })
}

fn machine(device: OnDevice) -> Result<Machine, Failure> {
    Machine::new(device == OnDevice::Cuda, false, KernelRequest::FASTEST).map_err(Failure::from)
}

/// The parts that are asked for, in order, each once.
fn parts(args: &SelftestArgs) -> Result<Vec<SelftestPart>, Failure> {
    let mut parts = Vec::new();
    for part in &args.parts {
        if !parts.contains(part) {
            parts.push(*part);
        }
    }
    if parts.contains(&SelftestPart::Peers) && args.python.is_none() {
        return Err(Failure::bad_input("`--parts peers` needs a Python with PyTorch")
            .help("name one with --python, or leave peers out"));
    }
    if parts.is_empty() {
        let with_peers = args.python.is_some();
        parts = SelftestPart::value_variants().to_vec();
        parts.retain(|part| with_peers || *part != SelftestPart::Peers);
    }
    Ok(parts)
}

/// The longest wait for a Python that imports PyTorch, in seconds.
const PYTHON_STARTS: u64 = 120;

/// Refuses a Python or a script that would only fail after all the tests.
fn peer_starts(args: &SelftestArgs) -> Result<(), Failure> {
    if let Some(peer) = args.peer.as_ref().filter(|peer| !peer.is_file()) {
        return Err(Failure::bad_input(format!("`--peer {}` is not a file", shown(peer))).help(
            "name ext/models/src/bench/peers/step.py or a script with its options, or leave --peer out",
        ));
    }
    let Some(python) = &args.python else { return Ok(()) };
    let mut command = Command::new(python);
    command.args(["-c", "import torch"]);
    let seconds = args.limit.unwrap_or(PYTHON_STARTS).min(PYTHON_STARTS);
    let problem = match children::run_program(command, Some(Duration::from_secs(seconds))) {
        Ok((Some(status), _)) if status.success() => return Ok(()),
        Ok((Some(_), lines)) => {
            lines.errors.last().cloned().unwrap_or_else(|| "it imports no torch".to_owned())
        }
        Ok((None, _)) => format!("`import torch` takes more than {seconds} s"),
        Err(error) => reason(&error),
    };
    Err(Failure::bad_input(format!(
        "`--python {}` is no Python with PyTorch: {problem}",
        shown(python)
    ))
    .help("name another one, or leave --python out"))
}

/// The named folder, the one beside the program, or the repository's.
fn golden_folder(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("golden"));
    let folder = match named {
        Some(named) => Some(named.to_owned()),
        None => beside.into_iter().chain([PathBuf::from("tests/golden")]).find(|f| f.is_dir()),
    };
    match folder {
        Some(folder) if folder.join("checkpoints/index.json").is_file() => Ok(folder),
        Some(folder) => Err(Failure::machine("this folder has no published numbers")
            .at(shown(&folder))
            .help("name the folder with `checkpoints`, `mixers` and `scans`: --goldens DIR")),
        None => Err(Failure::machine("the published numbers are not found")
            .help("run it in a clone of the repository, or name their folder: --goldens DIR")),
    }
}

/// The arch and the weights in a folder of another program.
pub fn read_model(folder: &Path) -> Result<(Compiled, Option<Box<dyn WeightSource>>), String> {
    let request =
        import::Request { source: folder, name: Some("model"), devices: None, weights: true };
    let imported = import::read(&request).map_err(|error| error.to_string())?;
    let weights = imported.weights.map(|weights| Box::new(weights) as Box<dyn WeightSource>);
    Ok((imported.compiled, weights))
}

const DTYPES: [(&str, Precision); 2] = [("bf16", Precision::Bf16), ("f32", Precision::F32)];

/// What each process of a part checks, the most important first.
fn names(part: SelftestPart, args: &SelftestArgs, folder: Option<&Path>) -> Vec<String> {
    let on_gpu = args.device == OnDevice::Cuda;
    match part {
        SelftestPart::Goldens => folder.map(goldens::names).unwrap_or_default(),
        SelftestPart::Kernels => {
            let families = |dtype| Family::ALL.map(|family| format!("{} {dtype}", family.name()));
            DTYPES.into_iter().flat_map(|(dtype, _)| families(dtype)).collect()
        }
        SelftestPart::Runs => vec![runs::NAME.to_owned()],
        SelftestPart::Steps => steps::models(on_gpu)
            .into_iter()
            .map(|(family, size)| steps::model_name(family, size))
            .collect(),
        SelftestPart::Peers => peers::names(args, on_gpu),
    }
}

/// Ends this process, and what it has started, when the self-test ends, however that ends.
fn end_with_parent() -> Result<(), Failure> {
    let mut signals =
        Signals::new([SIGTERM]).map_err(|error| Failure::machine(error.to_string()))?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let _ = kill_process_group(rustix::process::getpgrp(), Signal::KILL);
        }
    });
    signalled_with_parent(children::PARENT, Signal::TERM)
}

/// A check in a process of its own. Its results go to standard output, a line each.
fn child(args: &SelftestArgs, only: &str) -> Outcome {
    end_with_parent()?;
    let unknown = || Failure::bad_input(format!("the self-test has no `{only}`"));
    let (part, name) = only.split_once('/').ok_or_else(unknown)?;
    let part = SelftestPart::from_str(part, false).ok();
    let mut print = |line: Line| -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{}", line.text()?)
            .and_then(|()| stdout.flush())
            .map_err(|error| Failure::machine(error.to_string()))
    };
    match part.ok_or_else(unknown)? {
        SelftestPart::Goldens => {
            let folder = golden_folder(args.goldens.as_deref())?;
            let golden = goldens::one(&folder, name, machine(args.device)?, read_model)?;
            print(Line::Golden(Within {
                model: None,
                holds: golden.holds(),
                path: golden.path.unwrap_or_default(),
                name: golden.name,
                bf16: golden.bf16,
                steps: 1,
                largest: golden.largest,
                allowed: golden.allowed,
            }))?;
        }
        SelftestPart::Kernels => {
            let (family, dtype) = name.rsplit_once(' ').ok_or_else(unknown)?;
            let family = Family::named(family).ok_or_else(unknown)?;
            let dtype = DTYPES.into_iter().find(|(known, _)| *known == dtype);
            let (_, precision) = dtype.ok_or_else(unknown)?;
            let graph = models::graph(family, Size::Small).map_err(Failure::machine)?;
            let options = models::options(precision, processor(args.device));
            let compared = kernels_of(&graph, &options, machine(args.device)?)
                .map_err(|error| Failure::machine(error.to_string()))?;
            for compared in compared {
                print(Line::Kernel(Within {
                    model: Some(family.name().to_owned()),
                    holds: compared.holds(),
                    allowed: compared.tolerance(),
                    name: compared.kernel.to_owned(),
                    path: compared.path,
                    bf16: compared.bf16,
                    steps: compared.steps,
                    largest: compared.largest,
                }))?;
            }
        }
        SelftestPart::Runs => {
            // Opens the device, so that the memory of a process that computes nothing is known.
            let _ = machine(args.device)?;
            runs::check(args, peak_memory().unwrap_or(0), &mut print)?;
        }
        SelftestPart::Steps => {
            let (family, size) = steps::model_named(name).ok_or_else(unknown)?;
            steps::time(args.device, machine(args.device)?, family, size, &mut print)?;
        }
        SelftestPart::Peers => print(peers::time(args, name).ok_or_else(unknown)??)?,
    }
    Ok(Exit::Fine)
}
