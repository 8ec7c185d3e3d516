//! `canonc selftest`: one command that says what this machine does.
//!
//! In: a device, a folder. Out: tables on standard output, and the same as JSON in the folder. Must stay true: the device
//! is there or the command ends with exit code 3 before it writes; whatever does not hold makes the exit code 1; a part
//! that fails is reported and the others still run.

mod runs;
mod steps;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use compiler::plan::Precision;
use records::platform::peak_memory;
use runtime::execute::{KernelRequest, Machine};
use runtime::selftest::models::{self, Family, Size};
use runtime::selftest::{goldens, kernels_of};
use serde::Serialize;

use canonc::args::{OnDevice, SelftestArgs};
use canonc::fail::{Exit, Failure, Outcome, reason, shown};
use canonc::out::{self, OutputKind};
use canonc::output;
use canonc::runs::failure;

/// The file of results.
const FILE: &str = "selftest.json";

/// Everything that was found.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    device: &'static str,
    machine: BTreeMap<String, String>,
    goldens: Vec<Within>,
    kernels: Vec<Within>,
    runs: Vec<runs::Checked>,
    memory: Vec<steps::Memory>,
    steps: Vec<steps::Timed>,
    holds: bool,
}

/// A difference, and what is allowed.
#[derive(Serialize)]
struct Within {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'static str>,
    name: String,
    path: String,
    bf16: bool,
    steps: usize,
    largest: f64,
    allowed: f64,
    holds: bool,
}

/// What the parts have in common.
pub(crate) struct Setting {
    machine: Machine,
    cuda: bool,
    out: PathBuf,
    /// Bytes of a process that has loaded libtorch and computed nothing.
    idle: u64,
}

/// Refuses a Python or a script that would only fail after all the tests.
fn rival_starts(args: &SelftestArgs) -> Result<(), Failure> {
    if let Some(peer) = args.peer.as_ref().filter(|peer| !peer.is_file()) {
        return Err(Failure::bad_input(format!("`--peer {}` is not a file", shown(peer)))
            .help("name a script with the options of bench_torch.py, or leave --peer out"));
    }
    let Some(python) = &args.python else { return Ok(()) };
    let mut command = Command::new(python);
    command.args(["-c", "import torch"]).stdin(Stdio::null());
    let why = match command.output() {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            said.lines().last().unwrap_or("it imports no torch").to_owned()
        }
        Err(error) => reason(&error),
    };
    Err(Failure::bad_input(format!(
        "`--python {}` is no Python with PyTorch: {why}",
        shown(python)
    ))
    .help("name another one, or leave --python out"))
}

pub(crate) fn selftest(args: &SelftestArgs) -> Outcome {
    let cuda = args.device == OnDevice::Cuda;
    let machine = Machine::new(cuda, false, KernelRequest::FASTEST).map_err(failure)?;
    let idle = peak_memory().unwrap_or(0);
    let golden = golden_folder(args.goldens.as_deref())?;
    rival_starts(args)?;
    out::container(&args.out)?;
    std::fs::create_dir_all(&args.out).map_err(|error| {
        Failure::machine(format!("the folder cannot be created: {error}")).at(shown(&args.out))
    })?;
    let file = args.out.join(FILE);
    out::check(&file, OutputKind::Selftest)?;
    let setting = Setting { machine, cuda, out: args.out.clone(), idle };

    output::note("goldens: published numbers, f32");
    let goldens = compared_goldens(&golden, machine)?;
    output::note("kernels: each against its reference in f64");
    let kernels = compared_kernels(machine)?;
    output::note("runs: equal bits twice, killed and resumed");
    let (runs, run_memory) = runs::check(&setting)?;
    output::note("steps: time and memory");
    let (steps, step_memory) = steps::time(&setting, args)?;

    let memory: Vec<steps::Memory> = run_memory.into_iter().chain(step_memory).collect();
    let holds = goldens.iter().chain(&kernels).all(|within| within.holds)
        && runs.iter().all(|run| run.holds)
        && steps.iter().all(|step| step.why.is_none());
    let report = Report {
        schema: "canonc.selftest.v1",
        device: if cuda { "cuda" } else { "cpu" },
        machine: runtime::train::machine_facts(),
        goldens,
        kernels,
        runs,
        memory,
        steps,
        holds,
    };
    let text = serde_json::to_string_pretty(&report)
        .map_err(|error| Failure::machine(error.to_string()))?;
    out::put(&file, OutputKind::Selftest, text + "\n")?;
    output::data(&tables(&report))?;
    output::note(&format!("{} has the same as JSON", shown(&file)));
    Ok(if holds { Exit::Fine } else { Exit::Finding })
}

/// The named folder, the one that was packed with the program, or the repository's.
fn golden_folder(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let packed = std::env::current_exe().ok().map(|program| program.with_file_name("golden"));
    let found = match named {
        Some(named) => Some(named.to_owned()),
        None => packed.into_iter().chain([PathBuf::from("tests/golden")]).find(|f| f.is_dir()),
    };
    match found {
        Some(folder) if folder.join("checkpoints/index.json").is_file() => Ok(folder),
        Some(folder) => Err(Failure::machine("this folder has no published numbers")
            .at(shown(&folder))
            .help("name the folder with `checkpoints` and `mixers`: --goldens DIR")),
        None => Err(Failure::machine("the published numbers are not found")
            .help("run it in a clone of the repository, or name their folder: --goldens DIR")),
    }
}

fn compared_goldens(folder: &Path, machine: Machine) -> Result<Vec<Within>, Failure> {
    let all = goldens::all(folder, machine).map_err(failure)?;
    Ok(all
        .into_iter()
        .map(|golden| Within {
            model: None,
            holds: golden.holds(),
            path: golden.path.unwrap_or_default(),
            name: golden.name,
            bf16: false,
            steps: 1,
            largest: golden.largest,
            allowed: golden.allowed,
        })
        .collect())
}

fn compared_kernels(machine: Machine) -> Result<Vec<Within>, Failure> {
    let mut found = Vec::new();
    for family in Family::ALL {
        let graph = models::graph(family, Size::Small).map_err(Failure::machine)?;
        for precision in [Precision::F32, Precision::Bf16] {
            let compared = kernels_of(&graph, &models::options(precision), machine)
                .map_err(|error| Failure::machine(format!("{}: {error}", family.name())))?;
            found.extend(compared.into_iter().map(|compared| Within {
                model: Some(family.name()),
                holds: compared.holds(),
                allowed: compared.tolerance(),
                name: compared.kernel.to_owned(),
                path: compared.path,
                bf16: compared.bf16,
                steps: compared.steps,
                largest: compared.largest,
            }));
        }
    }
    Ok(found)
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn said(holds: bool) -> &'static str {
    if holds { "holds" } else { "FAILS" }
}

fn tables(report: &Report) -> String {
    let mut goldens = vec![row(&["golden", "path", "largest", "allowed", ""])];
    for within in &report.goldens {
        goldens.push(vec![
            within.name.clone(),
            within.path.clone(),
            format!("{:.0e}", within.largest),
            format!("{:.0e}", within.allowed),
            said(within.holds).to_owned(),
        ]);
    }
    // One line for each kernel, path and dtype: the worst of all models.
    let mut worst: BTreeMap<(&str, &str, bool), (usize, &Within)> = BTreeMap::new();
    for within in &report.kernels {
        let entry = worst.entry((&within.name, &within.path, within.bf16)).or_insert((0, within));
        entry.0 += within.steps;
        if within.largest.is_nan() || within.largest > entry.1.largest {
            entry.1 = within;
        }
    }
    let mut kernels = vec![row(&["kernel", "dtype", "path", "steps", "largest", "allowed", ""])];
    for ((name, path, bf16), (steps, within)) in worst {
        kernels.push(vec![
            name.to_owned(),
            if bf16 { "bf16" } else { "f32" }.to_owned(),
            path.to_owned(),
            steps.to_string(),
            format!("{:.0e}", within.largest),
            format!("{:.0e}", within.allowed),
            said(within.holds).to_owned(),
        ]);
    }
    let mut runs = vec![row(&["run", "", "", ""])];
    for run in &report.runs {
        runs.push(row(&[run.name, said(run.holds), &run.what, ""]));
    }
    let mut memory = vec![row(&["memory", "predicted", "measured", "measured / predicted"])];
    for of in &report.memory {
        let mib = |bytes: f64| format!("{:.0} MiB", bytes / 1048576.0);
        memory.push(vec![
            of.model.clone(),
            mib(of.predicted as f64),
            of.measured.map_or("–".to_owned(), |bytes| mib(bytes as f64)),
            of.measured.map_or("–".to_owned(), |bytes| {
                format!("{:.2}", bytes as f64 / of.predicted.max(1) as f64)
            }),
        ]);
    }
    let steps = steps::table(&report.steps);
    let right = [false, true, true, true];
    [
        output::table(&goldens, &[false, false, true, true, false], 0),
        output::table(&kernels, &[false, false, false, true, true, true, false], 0),
        output::table(&runs, &[false, false, false, false], 0),
        output::table(&memory, &right, 0),
        steps,
        format!("{}\n", if report.holds { "everything holds" } else { "not everything holds" }),
    ]
    .join("\n")
}
