//! `canonc bench step`: times whole training steps, of one architecture in detail or of several in comparison.
//!
//! In: architectures and lengths. Out: each kernel's share of one step; or, for several, milliseconds of a step and its
//! ratio to the first architecture's at that length. Must stay true: the timed step is the one that a run executes; the
//! architectures of a table take turns in one process.

use std::path::Path;

use compiler::analyse::analyse;
use compiler::graph::Graph;
use compiler::plan::Precision;
use runtime::bench::step::{StepBench, StepShape, step};

use crate::forward::{machine, one_arch};
use canonc::args::{BenchArgs, WithType};
use canonc::fail::{Exit, Failure, Outcome};
use canonc::graph::usual;
use canonc::load::{Found, Trained};
use canonc::output;

pub(super) fn training_steps(args: &BenchArgs) -> Outcome {
    match (&args.files[..], &args.seq_len[..]) {
        ([], _) => Err(Failure::bad_input("no architecture is named")
            .help("`canonc bench step arch/llamacanon_tiny.canon`")),
        ([file], [seq_len]) => in_detail(args, file, *seq_len),
        (files, lengths) => beside(args, files, lengths),
    }
}

fn timed(
    args: &BenchArgs,
    file: &Path,
    seq_len: i64,
) -> Result<(String, Graph, StepBench), Failure> {
    let Found { compiled, train, .. } = one_arch(file, args.arch.as_deref())?;
    let mut options = match train {
        Some(Trained { options, loss: _ }) => options,
        None => usual().map_err(|error| Failure::machine(format!("{error:?}")))?,
    };
    if args.machine.dtype == WithType::Bf16 {
        options.common.precision = Precision::Bf16;
    }
    let shape = StepShape { batch: args.batch, seq_len };
    let rounds = (2, usize::from(args.rounds));
    let bench = step(&compiled.graph, &options, shape, machine(&args.machine)?, rounds)
        .map_err(|error| Failure::machine(error.to_string()))?;
    Ok((compiled.name, compiled.graph, bench))
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
            let (name, graph, bench) = timed(args, file, *length)?;
            if row.is_empty() {
                let size = analyse(&graph, *length).parameters;
                row.extend([name, output::rounded(size)]);
            }
            let whole = bench.micro.median + bench.update.median;
            if first.len() == at {
                first.push(whole);
            }
            threads = bench.threads;
            row.extend([
                format!("{whole:.0} ms"),
                format!("{:.0}", (args.batch * length) as f64 / whole * 1e3),
                format!("{:.2}×", whole / first.get(at).unwrap_or(&f64::NAN)),
            ]);
        }
        rows.push(row);
    }
    let right: Vec<bool> = (0..2 + 3 * lengths.len()).map(|column| column > 0).collect();
    output::data(&output::table(&rows, &right, 0))?;
    output::note(&format!(
        "a training step of {} sequence(s) of T tokens on {threads} threads; medians; ratios are to the first time",
        args.batch
    ));
    Ok(Exit::Fine)
}

/// The time of a step, and each kernel's share of it.
fn in_detail(args: &BenchArgs, file: &Path, seq_len: i64) -> Outcome {
    let (_, graph, bench) = timed(args, file, seq_len)?;
    let StepBench { micro, update, kernels, paths, ceiling, threads, .. } = &bench;
    let whole = micro.median + update.median;
    let tokens = args.batch * seq_len;
    let flops = analyse(&graph, seq_len).train_flops_per_token as f64 * tokens as f64;
    let mut rows = vec![["", "ms", "part", "path"].map(str::to_owned).to_vec()];
    let mut row = |name: &str, ms: f64, path: &str| {
        rows.push(vec![
            name.to_owned(),
            format!("{ms:.2}"),
            format!("{:.1}%", 100.0 * ms / whole),
            path.to_owned(),
        ]);
    };
    row("forward and backward", micro.median, "");
    for (kernel, ms) in kernels {
        let taken: Vec<&str> =
            paths.iter().filter(|(known, _, _)| known == kernel).map(|(_, path, _)| path).collect();
        row(&format!("  {kernel}"), *ms, &taken.join(", "));
    }
    row("update", update.median, "");
    output::data(&output::table(&rows, &[false, true, true, false], 0))?;
    output::note(&format!(
        "{tokens} tokens a step, {:.0} tokens/s on {threads} threads; {:.0}% of this machine's matrix product",
        tokens as f64 / whole * 1e3,
        100.0 * flops / whole * 1e3 / ceiling,
    ));
    Ok(Exit::Fine)
}
