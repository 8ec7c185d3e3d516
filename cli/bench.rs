//! `canonc bench`: our kernels beside libtorch's, in one process.
//!
//! In: what to measure. Out: medians and ratios. Must stay true: both sides run in the same process on
//! the same tensors; a figure is quoted as a ratio; nothing here is a test.

use runtime::bench::{CANON_SHAPES, CanonBench, CanonShape, canon};

use crate::args::{BenchArgs, BenchWhat};
use crate::fail::{Exit, Failure, Outcome};
use crate::output;

pub(crate) fn bench(args: &BenchArgs) -> Outcome {
    match args.what {
        BenchWhat::Canon => canon_layers(args),
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
