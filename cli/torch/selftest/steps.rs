//! Training steps of every family: time, share of the device, memory; with PyTorch's time where there is one.
//!
//! In: a device, perhaps a Python with PyTorch. Out: one line for each model. Must stay true: the step is the one of a
//! run; a model that does not fit is a line that says so.

use std::path::Path;
use std::process::{Command, Stdio};

use compiler::analyse::analyse;
use compiler::plan::{Precision, Recompute, Sizes, TrainOptions};
use runtime::bench::step::{StepBench, StepShape, step};
use runtime::kernels::cuda;
use runtime::selftest::models::{self, Family, Shape, Size};
use runtime::selftest::{measured_bytes, predicted_bytes};
use scale::device::Device;
use serde::Serialize;

use super::Setting;
use canonc::args::SelftestArgs;
use canonc::fail::Failure;
use canonc::output;

/// Bytes of a device or a process.
#[derive(Serialize)]
pub(super) struct Memory {
    pub(super) model: String,
    pub(super) predicted: u64,
    pub(super) measured: Option<u64>,
}

/// The step of a model.
#[derive(Serialize)]
pub(super) struct Timed {
    model: String,
    bf16: bool,
    batch: i64,
    seq_len: i64,
    ms: Option<f64>,
    tokens_per_second: Option<f64>,
    mfu: Option<f64>,
    peer_ms: Option<f64>,
    /// Why it has no time.
    pub(super) why: Option<String>,
}

/// Untimed and timed steps.
const ROUNDS: (usize, usize) = (2, 5);

pub(super) fn time(
    setting: &Setting,
    args: &SelftestArgs,
) -> Result<(Vec<Timed>, Vec<Memory>), Failure> {
    let (sizes, precision, shape): (&[Size], _, _) = match setting.cuda {
        false => (&[Size::Small], Precision::F32, StepShape { batch: 2, seq_len: 256 }),
        true => (
            &[Size::Hundred, Size::Billion],
            Precision::Bf16,
            StepShape { batch: 8, seq_len: 4096 },
        ),
    };
    let (mut steps, mut memory) = (Vec::new(), Vec::new());
    for size in sizes {
        for family in Family::ALL {
            let graph = models::graph(family, *size).map_err(Failure::machine)?;
            let mut options = models::options(precision);
            if *size == Size::Billion {
                options.recompute = Recompute::Layers;
            }
            let model = format!("{} {}", family.name(), size.name());
            output::detail(|| format!("step of {model}"));
            cuda::forget_peak().map_err(|error| Failure::machine(error.to_string()))?;
            let mut line = Timed {
                model: model.clone(),
                bf16: precision == Precision::Bf16,
                batch: shape.batch,
                seq_len: shape.seq_len,
                ms: None,
                tokens_per_second: None,
                mfu: None,
                peer_ms: None,
                why: None,
            };
            match step(&graph, &options, shape, setting.machine, ROUNDS) {
                Ok(bench) => {
                    let ms = bench.micro.median + bench.update.median;
                    let tokens = (shape.batch * shape.seq_len) as f64 / ms * 1e3;
                    let flops = analyse(&graph, shape.seq_len).train_flops_per_token as f64;
                    line.ms = Some(ms);
                    line.tokens_per_second = Some(tokens);
                    line.mfu = Some(tokens * flops / most(setting, &options, &bench));
                }
                Err(error) => line.why = Some(error.to_string()),
            }
            if setting.cuda {
                let sizes = Sizes { batch: shape.batch, time: shape.seq_len, past: 0 };
                let predicted = predicted_bytes(&graph, &options, sizes);
                memory.push(Memory { model, predicted, measured: measured_bytes() });
            }
            if let (Some(python), Some(peer)) = (&args.python, &args.peer) {
                line.peer_ms = peer_step(python, peer, setting, family, *size, shape)?;
            }
            steps.push(line);
        }
    }
    Ok((steps, memory))
}

/// The device's operations per second: stated where it is known, else those of the product that was measured.
fn most(setting: &Setting, options: &TrainOptions, bench: &StepBench) -> f64 {
    let name = cuda::facts().into_iter().find(|(fact, _)| *fact == "gpu");
    let name = name.map(|(_, name)| name.to_lowercase()).unwrap_or_default();
    let known = ["h200", "h100", "a100"].into_iter().find(|known| name.contains(known));
    match known.filter(|_| setting.cuda).and_then(Device::named) {
        Some(device) if options.common.precision == Precision::Bf16 => device.bf16,
        Some(device) => device.f32,
        None => bench.ceilings.flops,
    }
}

/// Milliseconds of PyTorch's step of the same model; `None` if the script has no such model.
fn peer_step(
    python: &Path,
    peer: &Path,
    setting: &Setting,
    family: Family,
    size: Size,
    StepShape { batch, seq_len }: StepShape,
) -> Result<Option<f64>, Failure> {
    let Some(slots) = family.peer_slots() else { return Ok(None) };
    let Shape { vocab, dim, layers, heads, linear_heads: _, hidden } = size.shape();
    let (device, dtype, mode) = match setting.cuda {
        true => ("cuda", "bfloat16", "compile"),
        false => ("cpu", "float32", "eager"),
    };
    let mut command = Command::new(python);
    command.arg(peer);
    for (name, value) in [
        ("--dim", dim),
        ("--layers", layers),
        ("--heads", heads),
        ("--hidden", hidden),
        ("--vocab", vocab),
        ("--seq", seq_len),
        ("--batch", batch),
        ("--steps", ROUNDS.1 as i64),
    ] {
        command.arg(name).arg(value.to_string());
    }
    command.args(["--canon", slots, "--device", device, "--dtype", dtype, "--mode", mode]);
    let failed = |why: String| Failure::machine(format!("PyTorch's step: {why}"));
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(format!("`{}`: {error}", python.display())))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next_back().unwrap_or_default();
    let seconds = serde_json::from_str::<serde_json::Value>(line).ok();
    let seconds = seconds.and_then(|line| line["step_s"].as_f64());
    match (output.status.success(), seconds) {
        (true, Some(seconds)) => Ok(Some(seconds * 1e3)),
        (_, _) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(failed(said.lines().next_back().unwrap_or("it printed no time").to_owned()))
        }
    }
}

pub(super) fn table(steps: &[Timed]) -> String {
    let head = ["step", "batch", "tokens", "ms", "tokens/s", "MFU", "PyTorch ms", "ratio"];
    let mut rows = vec![super::row(&head)];
    for step in steps {
        let or = |number: Option<String>| number.unwrap_or_else(|| "–".to_owned());
        let ratio = step.peer_ms.zip(step.ms).map(|(peer, ours)| format!("{:.2}×", peer / ours));
        let dtype = if step.bf16 { "bf16" } else { "f32" };
        rows.push(match &step.why {
            Some(why) => super::row(&[&format!("{}, {dtype}: {why}", step.model)]),
            None => vec![
                format!("{}, {dtype}", step.model),
                step.batch.to_string(),
                step.seq_len.to_string(),
                or(step.ms.map(|ms| format!("{ms:.1}"))),
                or(step.tokens_per_second.map(|tokens| format!("{tokens:.0}"))),
                or(step.mfu.map(|mfu| format!("{:.1}%", 100.0 * mfu))),
                or(step.peer_ms.map(|ms| format!("{ms:.1}"))),
                or(ratio),
            ],
        });
    }
    output::table(&rows, &[false, true, true, true, true, true, true, true], 0)
}
