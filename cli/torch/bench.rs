//! `canonc bench`: our kernels compared with libtorch's, in one process; a training step compared with PyTorch's.
//!
//! In: the operation and sizes. Out: medians and ratios. Must stay true: both sides run in the same process on
//! the same tensors, or take turns in two; results are given as ratios; nothing here is a test.

mod data;
mod decode;
mod peers;
mod process;
mod python;
mod step;

use runtime::bench::scan::{Family, ScanBench, ScanShape, memory, scan};
use runtime::bench::{CANON_SHAPES, CanonBench, CanonShape, Timing, canon};
use runtime::kernels::KernelError;

use canonc::args::{BenchArgs, BenchWhat, OnDevice, WithKernels};
use canonc::fail::{Exit, Failure, Outcome};
use canonc::output;

/// Rounds of a benchmark within one process.
const ROUNDS: u16 = 20;

pub(crate) fn bench(args: &BenchArgs) -> Outcome {
    let serves = matches!(args.what, BenchWhat::Step | BenchWhat::Decode);
    if args.serve && !serves {
        return Err(Failure::bad_input("only `bench step` and `bench decode` can --serve")
            .help("leave out --serve"));
    }
    nothing_ignored(args)?;
    match args.what {
        BenchWhat::Canon => canon_layers(args),
        BenchWhat::Scan => scans(args),
        BenchWhat::Step => step::training_steps(args),
        BenchWhat::Peers => peers::peers(args),
        BenchWhat::Decode => decode::decode(args),
        BenchWhat::Data => data::generators(),
    }
}

/// What a message calls an argument without a name.
const FILE: &str = "file";

/// Refuses options that this benchmark would ignore. `bench peers` and `bench decode` say more about theirs.
fn nothing_ignored(args: &BenchArgs) -> Result<(), Failure> {
    let (name, taken): (_, &[&str]) = match args.what {
        BenchWhat::Canon => ("canon", &["--rounds"]),
        BenchWhat::Scan => ("scan", &["--rounds"]),
        BenchWhat::Data => ("data", &[]),
        BenchWhat::Step => (
            "step",
            &[
                FILE,
                "--arch",
                "--batch",
                "--seq-len",
                "--rounds",
                "--dtype",
                "--device",
                "--kernels",
            ],
        ),
        BenchWhat::Peers | BenchWhat::Decode => return Ok(()),
    };
    let given = [
        (FILE, !args.files.is_empty()),
        ("--arch", args.arch.is_some()),
        ("--batch", args.batch.is_some()),
        ("--seq-len", !args.seq_len.is_empty()),
        ("--rounds", args.rounds.is_some()),
        ("--python", args.python.is_some()),
        ("--make-environment", args.make_environment),
        ("--dtype", args.machine.dtype.is_some()),
        ("--device", args.machine.device != OnDevice::default()),
        ("--kernels", args.machine.kernels != WithKernels::default()),
    ];
    match given.into_iter().find(|(option, given)| *given && !taken.contains(option)) {
        None => Ok(()),
        Some((option, _)) => {
            let message = format!("`bench {name}` takes no {option}");
            let the = if option == FILE { "the " } else { "" };
            Err(Failure::bad_input(message).help(format!("leave out {the}{option}")))
        }
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
        let result = canon(shape, args.rounds_or(ROUNDS))
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

/// Sequence lengths at which our kernel is timed alone.
const TIMES: [i64; 4] = [512, 2048, 8192, 16_384];

fn scans(args: &BenchArgs) -> Outcome {
    let failed = |error: KernelError| Failure::machine(error.to_string());
    // Width 512 in 8 heads, as in the release's models.
    let families = [
        ("GLA", Family::Gla, 64, 128),
        ("Gated DeltaNet", Family::Delta, 64, 128),
        ("Mamba2", Family::Ssd, 128, 128),
    ];
    let rounds = args.rounds_or(ROUNDS);
    let ms = |timing: &Option<Timing>| match timing {
        Some(timing) => format!("{:.1} ms", timing.median),
        None => "–".to_owned(),
    };
    let head = ["[2, 2048, 8 heads]", "path", "token by token", "composed", "canonc"];
    let head = head.into_iter().chain(["over token by token", "over composed", "difference"]);
    let mut beside = vec![head.map(str::to_owned).collect::<Vec<_>>()];
    let mut head = vec!["ns a token".to_owned()];
    head.extend(TIMES.map(|time| format!("{time}")));
    head.extend(["longest over shortest", "memory at the longest"].map(str::to_owned));
    let mut alone = vec![head];
    for (name, family, key, value) in families {
        let shape = |time: i64| ScanShape { batch: 2, time, heads: 8, key, value };
        let bench = scan(family, shape(2048), rounds, true).map_err(failed)?;
        let ScanBench { path, steps, composed, ours, largest_difference, .. } = &bench;
        let over = |timing: &Option<Timing>| match timing {
            Some(timing) => format!("{:.1}×", timing.median / ours.median),
            None => "–".to_owned(),
        };
        beside.push(vec![
            name.to_owned(),
            path.to_string(),
            ms(steps),
            ms(composed),
            ms(&Some(*ours)),
            over(steps),
            over(composed),
            format!("{:.0e}", largest_difference.unwrap_or(f64::NAN)),
        ]);
        let mut per_token = Vec::new();
        for time in TIMES {
            let ours = scan(family, shape(time), rounds, false).map_err(failed)?.ours;
            per_token.push(1e6 * ours.median / (2 * time) as f64);
        }
        let mut row = vec![name.to_owned()];
        row.extend(per_token.iter().map(|ns| format!("{ns:.0}")));
        let (first, last) = (per_token.first(), per_token.last());
        row.push(format!("{:.2}×", last.unwrap_or(&f64::NAN) / first.unwrap_or(&f64::NAN)));
        let memory = memory(family, shape(TIMES[TIMES.len() - 1])).map_err(failed)?;
        row.push(
            memory.map_or("–".to_owned(), |bytes| format!("{:.0} MiB", bytes as f64 / 1048576.0)),
        );
        alone.push(row);
    }
    let right = [false, false, true, true, true, true, true, true];
    output::data(&output::table(&beside, &right, 0))?;
    output::data(&output::table(&alone, &[false, true, true, true, true, true, true], 0))?;
    output::note(
        "forward and backward, f32; medians; states of 64 × 128 a head, Mamba2's of 128 × 128",
    );
    Ok(Exit::Fine)
}
