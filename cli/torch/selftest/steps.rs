//! Training steps of every family: time, share of the device, memory; with PyTorch's and fla's times where there are any.
//!
//! In: a device, perhaps a Python with PyTorch. Out: one line for each model. Must stay true: the step is the one of a
//! run; a model that does not fit, or another program that fails, is a line that says so.

use std::collections::BTreeSet;
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
    /// PyTorch's step of the same model.
    peer_ms: Option<f64>,
    peer_why: Option<String>,
    /// The step with flash-linear-attention's layers.
    fla_ms: Option<f64>,
    fla_why: Option<String>,
    /// Why it has no time.
    pub(super) why: Option<String>,
}

/// Another program's step: milliseconds, or why there are none. Both are `None` if there is nothing to run.
#[derive(Default)]
struct Rival {
    ms: Option<f64>,
    why: Option<String>,
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
                peer_why: None,
                fla_ms: None,
                fla_why: None,
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
            let run = Rivals { python: args.python.as_deref(), setting, size: *size, shape };
            Rival { ms: line.peer_ms, why: line.peer_why } =
                run.torch(args.peer.as_deref(), family);
            Rival { ms: line.fla_ms, why: line.fla_why } = run.fla(family);
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

/// What runs other programs' steps.
struct Rivals<'a> {
    python: Option<&'a Path>,
    setting: &'a Setting,
    size: Size,
    shape: StepShape,
}

/// Prints a step with flash-linear-attention's layers.
const FLA: &str = include_str!("fla_step.py");

impl Rivals<'_> {
    /// The same model by the script of the command line.
    fn torch(&self, script: Option<&Path>, family: Family) -> Rival {
        let (Some(python), Some(script), Some(slots)) = (self.python, script, family.peer_slots())
        else {
            return Rival::default();
        };
        let mut command = Command::new(python);
        command.arg(script).args(self.words(self.size.shape().heads)).args(["--canon", slots]);
        self.step(command)
    }

    /// A model with fla's layer of the family, if Python has them.
    fn fla(&self, family: Family) -> Rival {
        let (Some(python), true) = (self.python, family.has_fla_layer()) else {
            return Rival::default();
        };
        let Shape { linear_heads, .. } = self.size.shape();
        let mut command = Command::new(python);
        command.args(["-c", FLA, "--family", family.name()]).args(self.words(linear_heads));
        command.arg("--state").arg(models::mamba2_state(self.size).to_string());
        self.step(command)
    }

    /// The options that both scripts have.
    fn words(&self, heads: i64) -> Vec<String> {
        let Shape { vocab, dim, layers, heads: _, linear_heads: _, hidden } = self.size.shape();
        let StepShape { batch, seq_len } = self.shape;
        let (device, dtype, mode) = match self.setting.cuda {
            true => ("cuda", "bfloat16", "compile"),
            false => ("cpu", "float32", "eager"),
        };
        [
            ("--dim", dim.to_string()),
            ("--layers", layers.to_string()),
            ("--heads", heads.to_string()),
            ("--hidden", hidden.to_string()),
            ("--vocab", vocab.to_string()),
            ("--seq", seq_len.to_string()),
            ("--batch", batch.to_string()),
            ("--steps", ROUNDS.1.to_string()),
            ("--device", device.to_owned()),
            ("--dtype", dtype.to_owned()),
            ("--mode", mode.to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }

    /// Runs a script that ends with a line of JSON.
    fn step(&self, mut command: Command) -> Rival {
        let why = |why: String| Rival { ms: None, why: Some(why) };
        let output = match command.stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(error) => {
                let program = command.get_program().to_string_lossy().into_owned();
                return why(format!("`{program}`: {error}"));
            }
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().next_back().unwrap_or_default();
        let line = serde_json::from_str::<serde_json::Value>(line).unwrap_or_default();
        match (output.status.success(), line["step_s"].as_f64(), line["missing"].as_str()) {
            (true, Some(seconds), _) => Rival { ms: Some(seconds * 1e3), why: None },
            (true, None, Some(name)) if name.starts_with("fla") => why("not installed".to_owned()),
            (true, None, Some(name)) => why(format!("{name} is not installed")),
            (_, _, _) => {
                let said = String::from_utf8_lossy(&output.stderr);
                why(said.lines().next_back().unwrap_or("it printed no time").to_owned())
            }
        }
    }
}

pub(super) fn table(steps: &[Timed]) -> String {
    let head = [
        "step",
        "batch",
        "tokens",
        "ms",
        "tokens/s",
        "MFU",
        "PyTorch ms",
        "ratio",
        "fla ms",
        "ratio",
    ];
    let mut rows = vec![super::row(&head)];
    let or = |number: Option<String>| number.unwrap_or_else(|| "–".to_owned());
    for step in steps {
        let ratio = |rival: Option<f64>| rival.zip(step.ms).map(|(rival, ours)| rival / ours);
        let times = |rival: Option<f64>| or(ratio(rival).map(|ratio| format!("{ratio:.2}×")));
        let ms = |ms: Option<f64>| or(ms.map(|ms| format!("{ms:.1}")));
        let dtype = if step.bf16 { "bf16" } else { "f32" };
        rows.push(match &step.why {
            Some(why) => super::row(&[&format!("{}, {dtype}: {why}", step.model)]),
            None => vec![
                format!("{}, {dtype}", step.model),
                step.batch.to_string(),
                step.seq_len.to_string(),
                ms(step.ms),
                or(step.tokens_per_second.map(|tokens| format!("{tokens:.0}"))),
                or(step.mfu.map(|mfu| format!("{:.1}%", 100.0 * mfu))),
                ms(step.peer_ms),
                times(step.peer_ms),
                ms(step.fla_ms),
                times(step.fla_ms),
            ],
        });
    }
    let right = [false, true, true, true, true, true, true, true, true, true];
    let mut text = output::table(&rows, &right, 0);
    // Each reason once, with the first model that has it.
    let mut said = BTreeSet::new();
    for step in steps {
        for (rival, why) in [("PyTorch", &step.peer_why), ("fla", &step.fla_why)] {
            let Some(why) = why else { continue };
            if said.insert((rival, why)) {
                text.push_str(&match why.as_str() {
                    "not installed" => format!("{rival}: not installed\n"),
                    why => format!("{rival}, {}: {why}\n", step.model),
                });
            }
        }
    }
    text
}
