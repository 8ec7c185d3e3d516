//! `canonc bench`: our kernels beside libtorch's, in one process.
//!
//! In: what to measure. Out: medians and ratios. Must stay true: both sides run in the same process on
//! the same tensors; a figure is quoted as a ratio; nothing here is a test.

use compiler::analyse::analyse;
use runtime::bench::step::{StepBench, StepShape, step};
use runtime::bench::{CANON_SHAPES, CanonBench, CanonShape, canon};

use crate::args::{BenchArgs, BenchWhat};
use crate::fail::{Exit, Failure, Outcome};
use crate::forward::{machine, one_arch};
use crate::graph::usual;
use crate::load::Found;
use crate::output;

pub(crate) fn bench(args: &BenchArgs) -> Outcome {
    match args.what {
        BenchWhat::Canon => canon_layers(args),
        BenchWhat::Step => training_step(args),
    }
}

fn canon_layers(args: &BenchArgs) -> Outcome {
    let mut rows = vec![
        [
            "shape",
            "threads",
            "path",
            "libtorch conv1d",
            "shifted sums",
            "canonc",
            "speed-up over conv1d",
            "difference",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for shape in CANON_SHAPES {
        let result = canon(shape, usize::from(args.rounds))
            .map_err(|error| Failure::machine(error.to_string()))?;
        let CanonBench {
            conv1d, shifted, ours, threads, path, speedup, largest_difference, ..
        } = &result;
        let CanonShape { batch, time, channels, kernel: _ } = shape;
        let ms = |milliseconds: f64| format!("{milliseconds:.2} ms");
        rows.push(vec![
            format!("[{batch}, {time}, {channels}]"),
            threads.to_string(),
            path.to_string(),
            ms(conv1d.median),
            ms(shifted.median),
            ms(ours.median),
            format!("{speedup:.1}×"),
            format!("{largest_difference:.0e}"),
        ]);
    }
    let right = [false, true, false, true, true, true, true, true];
    output::data(&output::table(&rows, &right, 0))?;
    output::note("forward and backward of one Canon layer, f32, kernel 4, residual; medians");
    Ok(Exit::Fine)
}

/// What a step takes, and each kernel's part of it.
fn training_step(args: &BenchArgs) -> Outcome {
    let Some(file) = &args.file else {
        return Err(Failure::bad_input("no architecture is named")
            .help("`canonc bench step arch/llamacanon_tiny.canon`"));
    };
    let Found { compiled, train } = one_arch(file, args.arch.as_deref())?;
    let options = match train {
        Some(train) => train,
        None => usual().map_err(|error| Failure::machine(format!("{error:?}")))?,
    };
    let shape = StepShape { batch: args.batch, seq_len: args.seq_len };
    let rounds = (2, usize::from(args.rounds));
    let machine = machine(&args.machine)?;
    let bench = step(&compiled.graph, &options, shape, machine, rounds)
        .map_err(|error| Failure::machine(error.to_string()))?;
    let StepBench { micro, update, kernels, paths, ceiling, threads, .. } = &bench;
    let whole = micro.median + update.median;
    let tokens = args.batch * args.seq_len;
    let flops = analyse(&compiled.graph, args.seq_len).train_flops_per_token as f64 * tokens as f64;
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
