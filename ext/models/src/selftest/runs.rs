//! Runs of `canonc run`, in processes of their own: the same run twice, and one that is killed and resumed.

use std::path::Path;
use std::process::{Command, Stdio};

use records::attest::Attestation;
use records::job::{Job, estimate};
use records::run::{Paths, experiment_from_text};
use runtime::selftest::models::{self, Family, Size};

use super::results::{Checked, Line, Memory};
use cli::fail::{Failure, shown};
use cli::options::OnDevice;
use cli::{documents, workspace};
use commands::selftest::SelftestArgs;

/// The name of the process that checks runs.
pub(super) const NAME: &str = "llamacanon small";

/// The recipe without its platform and precision.
const RECIPE: &str = r#"arch = "model.canon#model"
[data]
task = "depo"
depo.N = 12
depo.K = 2
depo.mini_vocab = 50
depo.min_tlen = 1
depo.max_tlen = 2
ids = "dense"
seq_len = 128
[batch]
sequences = 8
micro_batches = 2
[budget]
steps = 12
[optimizer]
lr = 0.003
weight_decay = 0.03
[schedule]
kind = "cosine"
warmup = 3
[seeds]
init = 1
data = 1
[evaluation]
every = 6
windows = 4
[checkpoint]
every = 4
"#;

/// The process dies while it writes the line of this step, after the checkpoint of step 4.
const KILL: &str = "metrics-torn:8";

/// Prints a line for each check. `idle`: bytes of a process that has loaded libtorch and computed nothing.
pub(super) fn check(
    args: &SelftestArgs,
    idle: u64,
    print: &mut dyn FnMut(Line) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let on_gpu = args.device == OnDevice::Cuda;
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::machine(format!("no working folder can be made: {error}")))?;
    let place = folder.path();
    let write = |name: &str, text: &str| {
        let path = place.join(name);
        std::fs::write(&path, text)
            .map_err(|error| Failure::machine(error.to_string()).at(shown(&path)))
    };
    write("model.canon", &models::text(Family::LlamaCanon, Size::Small))?;
    let (device, policy) = if on_gpu { ("cuda", "bf16") } else { ("cpu", "f32") };
    write(
        "run.toml",
        &format!(
            "{RECIPE}[precision]\npolicy = \"{policy}\"\n[platform]\ndevice = \"{device}\"\nthreads = 1\n"
        ),
    )?;
    works(place, &["build", "run.toml"])?;
    let run = |folder: &str| works(place, &["run", "lockfiles/run.lock", "--dir", folder]);
    run("first")?;
    let first = attested(&place.join("first"))?;
    for (name, folder) in [("equal bits twice", "second"), ("killed and resumed", "killed")] {
        if folder == "killed" {
            let killed =
                started(place, &["run", "lockfiles/run.lock", "--dir", folder, "--fault", KILL])?;
            if killed.success() {
                return Err(Failure::machine("a run that should die at a fault did not"));
            }
        }
        run(folder)?;
        let other = attested(&place.join(folder))?;
        let parts = [
            ("weights", first.weights, other.weights),
            ("first moments", first.first_moment, other.first_moment),
            ("second moments", first.second_moment, other.second_moment),
            ("log", first.metrics, other.metrics),
        ];
        let different: Vec<&str> =
            parts.iter().filter(|(_, a, b)| a != b).map(|(part, _, _)| *part).collect();
        let what = match different.as_slice() {
            [] => format!("weights {}, {} steps, {policy}", first.weights.short(), first.steps),
            parts => format!("different: {}", parts.join(", ")),
        };
        print(Line::Run(Checked { name: name.to_owned(), holds: different.is_empty(), what }))?;
    }
    // On a GPU the memory of the device is measured with the steps.
    if !on_gpu {
        print(Line::Memory(memory(place, idle)?))?;
    }
    Ok(())
}

/// The peak that the first run has recorded of its process, and the estimate of `run --dry-run` with what libtorch takes
/// by itself.
fn memory(place: &Path, idle: u64) -> Result<Memory, Failure> {
    let lock = place.join("lockfiles/run.lock");
    let text = workspace::read_lock_text(&lock)?;
    let experiment = experiment_from_text(&shown(&lock), &text)?;
    let documents = documents::read(&experiment, None)?;
    let job = Job::new(&experiment, &text, documents)?;
    let predicted = idle + estimate(&job).memory_bytes;
    let timings = Paths::new(place.join("first")).timings();
    let peaks = disk::read_text(&timings, disk::SMALL)
        .map_err(|error| Failure::machine(error.to_string()).at(shown(&timings)))?;
    let measured = peaks
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| line["peak_memory_bytes"].as_u64())
        .max();
    Ok(Memory { model: "run, llamacanon small".to_owned(), predicted, measured })
}

fn attested(folder: &Path) -> Result<Attestation, Failure> {
    let path = Paths::new(folder).attestation();
    let text = disk::read_text(&path, disk::SMALL)
        .map_err(|error| Failure::machine(error.to_string()).at(shown(&path)))?;
    Attestation::parse(&text).map_err(|why| Failure::machine(why).at(shown(&path)))
}

/// Runs a command of this program in a folder, quietly.
fn started(place: &Path, words: &[&str]) -> Result<std::process::ExitStatus, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::machine(format!("canonc does not find itself: {error}")))?;
    Command::new(program)
        .current_dir(place)
        .args(words)
        .arg("--quiet")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| Failure::machine(format!("`canonc {}`: {error}", words.join(" "))))
}

fn works(place: &Path, words: &[&str]) -> Result<(), Failure> {
    let status = started(place, words)?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::machine(format!("`canonc {}` ended with {status}", words.join(" ")))),
    }
}
