//! `canonc bench decode`: generating one text, token by token, next to `transformers`.
//!
//! In: a number of rounds, a Python. Out: times of a token, and the share of the memory's speed at which weights are
//! read. Must stay true: both sides have the same architecture, number of parameters and threads; each is a process of
//! its own, and they take turns; the memory's speed is measured in the same run.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use compiler::analyse::analyse;
use report::statistics::median;
use runtime::bench::decode::{Decoder, read_bandwidth};
use runtime::execute::ExecuteError;
use runtime::observe::observe;

use super::peers::process::{Contender, Ready, Steps, WARM_UP};
use super::peers::python;
use super::say;
use crate::forward::{machine, one_arch, options};
use canonc::args::{BenchArgs, OnDevice, WithType};
use canonc::fail::{Exit, Failure, Outcome};
use canonc::output;

const LLAMA: &str = include_str!("../../../arch/llama_768.canon");
const SCRIPT: &str = include_str!("decode.py");

/// Tokens of a process in each round.
const TOKENS: usize = 32;
/// Rounds if the command line does not say.
const ROUNDS: u16 = 7;

/// One way to decode.
struct Entry {
    name: &'static str,
    ours: bool,
    dtype: &'static str,
    /// Bytes of an element of a weight.
    bytes: f64,
}

const ENTRIES: [Entry; 4] = [
    Entry { name: "canonc, f32", ours: true, dtype: "f32", bytes: 4.0 },
    Entry { name: "transformers, f32", ours: false, dtype: "f32", bytes: 4.0 },
    Entry { name: "canonc, bf16", ours: true, dtype: "bf16", bytes: 2.0 },
    Entry { name: "transformers, bf16", ours: false, dtype: "bf16", bytes: 2.0 },
];

pub(super) fn decode(args: &BenchArgs) -> Outcome {
    if args.serve {
        return serve(args);
    }
    checked(args)?;
    let torch = observe().torch;
    let python = python::find(args, &torch.version)?;
    let program = super::peers::program()?;
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::machine(format!("no working folder can be made: {error}")))?;
    let (arch, script) = (folder.path().join("llama_768.canon"), folder.path().join("decode.py"));
    for (path, text) in [(&arch, LLAMA), (&script, SCRIPT)] {
        std::fs::write(path, text).map_err(|error| Failure::cannot_write(path, &error))?;
    }
    let mut contenders = Vec::new();
    for entry in &ENTRIES {
        output::note(&format!("starting {}", entry.name));
        let mut command = match entry.ours {
            true => ours(&program, &arch, entry.dtype),
            false => theirs(&python.program, &script, entry.dtype, torch.threads),
        };
        contenders.push((entry, Contender::start(entry.name, &mut command)?, Vec::new()));
    }
    super::peers::equal(contenders.iter().map(|(_, contender, _)| contender))?;
    let machine = machine(&args.machine)?;
    let mut memory = Vec::new();
    let rounds = args.rounds_or(ROUNDS);
    for round in 0..rounds {
        output::note(&format!("round {} of {rounds}", round + 1));
        memory.push(read_bandwidth(machine).map_err(failed)?);
        let mut turn: Vec<_> = contenders.iter_mut().collect();
        if round % 2 == 1 {
            turn.reverse();
        }
        for (_, contender, times) in turn {
            times.push(median(&contender.steps(TOKENS)?.ms));
        }
    }
    let graph = one_arch(&arch, None)?.compiled.graph;
    let weights = Decoder::new(&graph, options(&args.machine), machine).map_err(failed)?;
    let elements = weights.weight_bytes() as f64 / 4.0;
    let head =
        ["", "a token", "best round", "tokens/s", "weights", "of memory", "transformers/canonc"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (entry, _, times) in &contenders {
        let ms = median(times);
        let best = times.iter().copied().fold(f64::NAN, f64::min);
        let speed = |ms: f64| elements * entry.bytes / ms * 1e3;
        let shares: Vec<f64> =
            times.iter().zip(&memory).map(|(ms, memory)| 100.0 * speed(*ms) / memory).collect();
        let own = contenders.iter().find(|(other, _, _)| other.ours && other.dtype == entry.dtype);
        let ratios =
            |own: &[f64]| -> Vec<f64> { times.iter().zip(own).map(|(a, b)| a / b).collect() };
        rows.push(vec![
            entry.name.to_owned(),
            format!("{ms:.2} ms"),
            format!("{best:.2} ms"),
            format!("{:.1}", 1e3 / ms),
            format!("{:.1} GB/s", speed(ms) / 1e9),
            format!("{:.0}%", median(&shares)),
            match own {
                Some((_, _, own)) if !entry.ours => format!("{:.2}×", median(&ratios(own))),
                _ => String::new(),
            },
        ]);
    }
    output::data(&output::table(&rows, &[false, true, true, true, true, true, true], 0))?;
    output::note(&format!(
        "one text of {TOKENS} tokens after a first one, {:.1} M parameters, {} threads; {rounds} rounds, medians; PyTorch \
         {} and libtorch {}; weights: bytes of all weights but the embedding table, over the time of a token; of memory: \
         of the speed at which a sum reads 1 GiB in the same round, {:.1} GB/s",
        analyse(&graph, 1).parameters as f64 / 1e6,
        torch.threads,
        python.torch,
        torch.version,
        median(&memory) / 1e9,
    ));
    Ok(Exit::Fine)
}

fn failed(error: ExecuteError) -> Failure {
    Failure::machine(error.to_string())
}

fn checked(args: &BenchArgs) -> Result<(), Failure> {
    let refused = |message: &str, help: &str| Err(Failure::bad_input(message).help(help));
    if !args.files.is_empty() || args.arch.is_some() {
        return refused(
            "`bench decode` generates with its own architecture, arch/llama_768.canon",
            "leave out the file",
        );
    }
    if args.machine.dtype != WithType::F32 {
        return refused("`bench decode` compares f32 and bf16 in one run", "leave out --dtype");
    }
    match args.machine.device {
        OnDevice::Cpu => Ok(()),
        OnDevice::Cuda => refused("`bench decode` compares on the CPU", "leave out --device cuda"),
    }
}

fn ours(program: &Path, arch: &PathBuf, dtype: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["bench", "decode", "--serve", "--dtype", dtype]).arg(arch);
    command
}

fn theirs(program: &Path, script: &PathBuf, dtype: &str, threads: usize) -> Command {
    let mut command = Command::new(program);
    command.arg(script).args(["--dtype", dtype, "--threads", &threads.to_string()]);
    command.args(["--warm-up", &WARM_UP.to_string()]);
    command
}

/// Our side: the same lines as the Python script reads and prints.
fn serve(args: &BenchArgs) -> Outcome {
    let file = args.files.first().ok_or_else(|| Failure::bad_input("no architecture is named"))?;
    let graph = one_arch(file, args.arch.as_deref())?.compiled.graph;
    let decoder =
        Decoder::new(&graph, options(&args.machine), machine(&args.machine)?).map_err(failed)?;
    decoder.tokens(WARM_UP).map_err(failed)?;
    let torch = observe().torch;
    let parameters = analyse(&graph, 1).parameters;
    say(&Ready { torch: torch.version, threads: torch.threads, parameters })?;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let count: usize = line
            .trim()
            .parse()
            .map_err(|_| Failure::bad_input("give a number of tokens on each line"))?;
        say(&Steps { ms: decoder.tokens(count).map_err(failed)? })?;
    }
    Ok(Exit::Fine)
}
