//! `canonc bench decode`: generating one text, token by token, next to `transformers`.
//!
//! In: a number of rounds, a Python. Out: times of a token, and the share of the memory's speed at which weights are
//! read. Must stay true: both sides have the same architecture, number of parameters and threads; each is a process of
//! its own, and they take turns; the memory's speed is measured in the same run.

use std::path::{Path, PathBuf};
use std::process::Command;

use compiler::analyse::analyse;
use report::statistics::median;
use runtime::bench::decode::{Decoder, read_bandwidth};
use runtime::observe::observe;

use super::process::{self, Contender, WARM_UP, equal, failed, folder_of, program, take_turns};
use super::python;
use crate::forward::{machine, options};
use canonc::args::{BenchArgs, OnDevice, WithKernels, WithType};
use canonc::fail::{Exit, Failure, Outcome};
use canonc::{archs, output};

const LLAMA: &str = include_str!("../../../arch/llama_768.canon");
const SCRIPT: &str = include_str!("decode.py");

/// Tokens that each process generates in a round.
const TOKENS: usize = 32;
/// Rounds if the command line does not say.
const ROUNDS: u16 = 7;

/// One way to decode.
struct Entry {
    name: &'static str,
    ours: bool,
    dtype: &'static str,
}

const ENTRIES: [Entry; 4] = [
    Entry { name: "canonc, f32", ours: true, dtype: "f32" },
    Entry { name: "transformers, f32", ours: false, dtype: "f32" },
    Entry { name: "canonc, bf16", ours: true, dtype: "bf16" },
    Entry { name: "transformers, bf16", ours: false, dtype: "bf16" },
];

pub(super) fn decode(args: &BenchArgs) -> Outcome {
    if args.serve {
        return serve(args);
    }
    checked(args)?;
    let torch = observe().torch;
    let python = python::find(args, &python::DECODE, &torch.version)?;
    let program = program()?;
    let (_folder, [arch, script]) = folder_of([("llama_768.canon", LLAMA), ("decode.py", SCRIPT)])?;
    let mut contenders = Vec::new();
    for entry in &ENTRIES {
        output::note(&format!("starting {}", entry.name));
        let mut command = match entry.ours {
            true => ours(&program, &arch, entry.dtype),
            false => theirs(&python.program, &script, entry.dtype, torch.threads),
        };
        contenders.push((entry, Contender::start(entry.name, &mut command)?, Vec::new()));
    }
    equal(contenders.iter().map(|(_, contender, _)| contender))?;
    let parameters = contenders.first().map_or(0, |(_, contender, _)| contender.ready.parameters);
    let machine = machine(&args.machine)?;
    let mut memory = Vec::new();
    let rounds = args.rounds_or(ROUNDS);
    let measure = || {
        memory.push(read_bandwidth(machine).map_err(failed)?);
        Ok(())
    };
    take_turns(&mut contenders, rounds, measure, |(_, contender, times)| {
        times.push(mean(&contender.steps(TOKENS)?.ms));
        Ok(())
    })?;
    let head =
        ["", "a token", "best round", "tokens/s", "weights", "of memory", "transformers/canonc"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (entry, _, times) in &contenders {
        let own = contenders.iter().find(|(other, _, _)| other.ours && other.dtype == entry.dtype);
        let (bytes, own) = match own {
            Some((_, own, times)) => (own.ready.weight_bytes, times.as_slice()),
            None => (None, &[][..]),
        };
        let own = (!entry.ours).then_some(own);
        rows.push(row(entry.name, times, bytes.unwrap_or_default() as f64, &memory, own));
    }
    output::data(&output::table(&rows, &[false, true, true, true, true, true, true], 0))?;
    output::note(&format!(
        "one text of {TOKENS} tokens after a first one, {:.1} M parameters, {} threads; a token: mean of a round, median \
         of {rounds} rounds; PyTorch {} and libtorch {}; weights: bytes of all weights but the embedding table, over \
         the time of a token; of memory: of the speed at which a sum reads 1 GiB in the same round, {:.1} GB/s",
        parameters as f64 / 1e6,
        torch.threads,
        python.torch,
        torch.version,
        median(&memory) / 1e9,
    ));
    Ok(Exit::Fine)
}

/// A process's row: its times by round in ms, the bytes of weights that a token reads, the memory's speed and canonc's times
/// by round.
fn row(name: &str, times: &[f64], bytes: f64, memory: &[f64], own: Option<&[f64]>) -> Vec<String> {
    let ms = median(times);
    let best = times.iter().copied().fold(f64::NAN, f64::min);
    let speed = |ms: f64| bytes / ms * 1e3;
    let shares: Vec<f64> =
        times.iter().zip(memory).map(|(ms, memory)| 100.0 * speed(*ms) / memory).collect();
    let ratios = own.map(|own| times.iter().zip(own).map(|(a, b)| a / b).collect::<Vec<f64>>());
    vec![
        name.to_owned(),
        format!("{ms:.2} ms"),
        format!("{best:.2} ms"),
        format!("{:.1}", 1e3 / ms),
        format!("{:.1} GB/s", speed(ms) / 1e9),
        format!("{:.0}%", median(&shares)),
        ratios.map_or_else(String::new, |ratios| format!("{:.2}×", median(&ratios))),
    ]
}

fn mean(ms: &[f64]) -> f64 {
    ms.iter().sum::<f64>() / ms.len() as f64
}

fn checked(args: &BenchArgs) -> Result<(), Failure> {
    let refused = |message: &str, help: &str| Err(Failure::bad_input(message).help(help));
    if !args.files.is_empty() || args.arch.is_some() {
        return refused(
            "`bench decode` generates with its own architecture, arch/llama_768.canon",
            "leave out the file",
        );
    }
    if args.batch.is_some() || !args.seq_len.is_empty() {
        return refused("`bench decode` generates one text", "leave out --batch and --seq-len");
    }
    if args.machine.kernels != WithKernels::Fastest {
        return refused("`bench decode` measures the fastest kernels", "leave out --kernels");
    }
    if args.machine.dtype() != WithType::F32 {
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
    if args.batch.is_some() || !args.seq_len.is_empty() {
        return Err(Failure::bad_input("`bench decode` generates one text")
            .help("leave out --batch and --seq-len"));
    }
    let [file] = args.files.as_slice() else {
        return Err(Failure::bad_input("name one architecture to serve"));
    };
    let graph = archs::only(file, args.arch.as_deref())?.compiled.graph;
    let decoder =
        Decoder::new(&graph, options(&args.machine), machine(&args.machine)?).map_err(failed)?;
    decoder.tokens(WARM_UP).map_err(failed)?;
    let parameters = analyse(&graph, 1).parameters;
    let weight_bytes = Some(decoder.weight_bytes());
    process::serve(parameters, weight_bytes, "tokens", |count| decoder.tokens(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_memory_in_the_same_round() {
        // 400 MB in 10, 20 and 40 ms, while the memory reads 50, 25 and 20 GB/s: 80%, 80% and 50%.
        let (times, memory) = ([10.0, 20.0, 40.0], [50e9, 25e9, 20e9]);
        let cells = row("a", &times, 4e8, &memory, Some(&[5.0, 5.0, 5.0]));
        assert_eq!(cells, ["a", "20.00 ms", "10.00 ms", "50.0", "20.0 GB/s", "80%", "4.00×"]);
        assert_eq!(row("a", &times, 4e8, &memory, None)[6], "");
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
    }
}
