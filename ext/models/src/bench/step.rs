//! `canonc bench step`: times whole training steps, of one architecture by kernel or of several in comparison.

use std::path::Path;
use std::time::Instant;

use bench::step::{StepBench, StepShape, Stepper, step};
use compiler::analyse::analyse;
use compiler::graph::Graph;
use compiler::plan::{Precision, TrainOptions, Work};

use super::process::{self, WARM_UP, failed};
use crate::forward::{machine, processor};
use cli::archs::usual_training;
use cli::archs::{self, NamedArch, Trained};
use cli::fail::{Exit, Failure, Outcome};
use cli::options::{OnDevice, WithType};
use cli::output;
use commands::bench::BenchArgs;

/// Rounds if the command line does not say.
const ROUNDS: u16 = 20;

pub(super) fn training_steps(args: &BenchArgs) -> Outcome {
    match (&args.files[..], args.lengths()) {
        ([], _) => Err(Failure::bad_input("no architecture is named")
            .help("`canonc bench step arch/llamacanon_tiny.canon`")),
        ([file], [seq_len]) if args.serve => serve(args, file, *seq_len),
        _ if args.serve => Err(Failure::bad_input("--serve trains one architecture at one length")
            .help("name one file and one --seq-len")),
        ([file], [seq_len]) => in_detail(args, args.arch.as_deref(), file, *seq_len),
        (files, lengths) => beside(args, files, lengths),
    }
}

/// The graph to train and how; the name of its architecture.
fn asked(
    args: &BenchArgs,
    arch: Option<&str>,
    file: &Path,
) -> Result<(String, Graph, TrainOptions), Failure> {
    let NamedArch { compiled, train, .. } = archs::only(file, arch)?;
    let mut options = match train {
        Some(Trained { options, loss: _, seq_len: _ }) => options,
        None => usual_training().map_err(|error| Failure::machine(format!("{error:?}")))?,
    };
    options.common.processor = processor(args.machine.device);
    if args.machine.dtype() == WithType::Bf16 {
        options.common.precision = Precision::Bf16;
    }
    Ok((compiled.name, compiled.graph, options))
}

fn timed(
    args: &BenchArgs,
    arch: Option<&str>,
    file: &Path,
    seq_len: i64,
) -> Result<(String, Graph, StepBench), Failure> {
    let (name, graph, options) = asked(args, arch, file)?;
    let shape = StepShape { batch: args.sequences(), seq_len };
    let rounds = (2, args.rounds_or(ROUNDS));
    let bench = step(&graph, &options, shape, machine(&args.machine)?, rounds).map_err(failed)?;
    Ok((name, graph, bench))
}

fn beside(args: &BenchArgs, files: &[std::path::PathBuf], lengths: &[i64]) -> Outcome {
    let mut head = vec!["".to_owned(), "parameters".to_owned()];
    for length in lengths {
        head.extend([format!("T = {length}"), "tokens/s".to_owned(), "ratio".to_owned()]);
    }
    let mut rows = vec![head];
    let mut first: Vec<f64> = Vec::new();
    let mut threads = 0;
    for file in files {
        let mut row = Vec::new();
        for (at, length) in lengths.iter().enumerate() {
            let (name, graph, bench) = timed(args, args.arch.as_deref(), file, *length)?;
            if row.is_empty() {
                let size = analyse(&graph, *length).parameters;
                row.extend([name, output::rounded(size)]);
            }
            let total = bench.micro + bench.update;
            if first.len() == at {
                first.push(total);
            }
            threads = bench.threads;
            row.extend([
                format!("{total:.0} ms"),
                format!("{:.0}", (args.sequences() * length) as f64 / total * 1e3),
                format!("{:.2}×", total / first.get(at).unwrap_or(&f64::NAN)),
            ]);
        }
        rows.push(row);
    }
    let right: Vec<bool> = (0..2 + 3 * lengths.len()).map(|column| column > 0).collect();
    output::data(&output::table(&rows, &right, 0))?;
    output::note(&format!(
        "a training step of {} sequence(s) of T tokens on {threads} threads; medians; ratios are to the first time",
        args.sequences()
    ));
    Ok(Exit::Fine)
}

/// The time of a step, and each kernel's share of it and of what the machine does at most.
pub(super) fn in_detail(
    args: &BenchArgs,
    arch: Option<&str>,
    file: &Path,
    seq_len: i64,
) -> Outcome {
    let (_, _, bench) = timed(args, arch, file, seq_len)?;
    let StepBench { micro, update, kernels, update_work, paths, ceilings, threads, .. } = &bench;
    let total = micro + update;
    let tokens = args.sequences() * seq_len;
    let head =
        ["", "ms", "part", "GFLOP", "GFLOP/s", "of product", "GB", "GB/s", "of copy", "path"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut row = |name: &str, ms: f64, work: Work, path: &str| {
        let per_second = |count: i128| count as f64 / ms * 1e3;
        let mut row =
            vec![name.to_owned(), format!("{ms:.2}"), format!("{:.1}%", 100.0 * ms / total)];
        for (count, ceiling) in [(work.flops, ceilings.flops), (work.bytes, ceilings.bytes)] {
            row.extend(match count {
                0 => ["–"; 3].map(str::to_owned),
                count => [
                    format!("{:.3}", count as f64 / 1e9),
                    format!("{:.1}", per_second(count) / 1e9),
                    format!("{:.0}%", 100.0 * per_second(count) / ceiling),
                ],
            });
        }
        row.push(path.to_owned());
        rows.push(row);
    };
    let all: Work = kernels.iter().map(|kernel| kernel.work).sum();
    row("forward and backward", *micro, all, "");
    for kernel in kernels {
        let taken: Vec<&str> = paths
            .iter()
            .filter(|(known, _, _)| *known == kernel.kernel)
            .map(|(_, path, _)| path)
            .collect();
        row(&format!("  {}", kernel.kernel), kernel.ms, kernel.work, &taken.join(", "));
    }
    row("update", *update, *update_work, "");
    row("step", total, [all, *update_work].into_iter().sum(), "");
    let mut right = [true; 10];
    (right[0], right[9]) = (false, false);
    output::data(&output::table(&rows, &right, 0))?;
    output::note(&format!(
        "{tokens} tokens a step, {:.0} tokens/s on {threads} threads; medians; a product of two matrices reaches {:.0} \
         GFLOP/s, a copy {:.1} GB/s (read and written); GB are operands and results, so a kernel that finds them in \
         the caches can exceed a copy{}",
        tokens as f64 / total * 1e3,
        ceilings.flops / 1e9,
        ceilings.bytes / 1e9,
        match args.machine.device {
            OnDevice::Cpu => "",
            OnDevice::Cuda => "; kernels are timed by events on the GPU",
        },
    ));
    Ok(Exit::Fine)
}

/// Our side of `bench peers`: the same lines as its Python script reads and prints.
fn serve(args: &BenchArgs, file: &Path, seq_len: i64) -> Outcome {
    let (_, graph, options) = asked(args, args.arch.as_deref(), file)?;
    let shape = StepShape { batch: args.sequences(), seq_len };
    let machine = machine(&args.machine)?;
    let mut stepper = Stepper::new(&graph, &options, shape, machine).map_err(failed)?;
    for _ in 0..WARM_UP {
        stepper.advance(None).map_err(failed)?;
    }
    let parameters = analyse(&graph, seq_len).parameters;
    process::serve(parameters, |count| {
        let timed = |_| {
            let began = Instant::now();
            stepper.advance(None)?;
            Ok(began.elapsed().as_secs_f64() * 1e3)
        };
        (0..count).map(timed).collect()
    })
}
