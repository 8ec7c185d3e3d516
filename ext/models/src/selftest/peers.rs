//! The same training step by other programs: PyTorch by the script of the command line, and flash-linear-attention's layers.

use std::process::Command;

use runtime::selftest::models::{self, Family, Shape, Size};

use super::children;
use super::results::{Line, PeerTime};
use super::steps::{ROUNDS, model_name, model_named, models, shape};
use cli::fail::{Failure, reason};
use cli::options::OnDevice;
use commands::selftest::SelftestArgs;

/// Prints a step with flash-linear-attention's layers.
const FLA: &str = include_str!("fla_step.py");

const PYTORCH: &str = "PyTorch";
const FLA_NAME: &str = "fla";

/// The models that other programs have too, with the program's name at the end.
pub(super) fn names(args: &SelftestArgs, on_gpu: bool) -> Vec<String> {
    let of = |(family, size): (Family, Size)| {
        let model = model_name(family, size);
        let torch = args.peer.is_some() && family.peer_slots().is_some();
        let torch = torch.then(|| format!("{model} {PYTORCH}"));
        let fla = family.has_fla_layer().then(|| format!("{model} {FLA_NAME}"));
        torch.into_iter().chain(fla)
    };
    models(on_gpu).into_iter().flat_map(of).collect()
}

/// The step of one of [`names`]; `None` if it is not.
pub(super) fn time(args: &SelftestArgs, name: &str) -> Option<Result<Line, Failure>> {
    let (model, program) = name.rsplit_once(' ')?;
    let (family, size) = model_named(model)?;
    let python = args.python.as_ref()?;
    let Shape { heads, linear_heads, .. } = size.shape();
    let mut command = Command::new(python);
    match program {
        PYTORCH => {
            command.arg(args.peer.as_ref()?).args(words(args.device, size, heads));
            command.args(["--canon", family.peer_slots()?]);
        }
        FLA_NAME if family.has_fla_layer() => {
            command.args(["-c", FLA, "--family", family.name()]);
            command.args(words(args.device, size, linear_heads));
            command.arg("--state").arg(models::mamba2_state(size).to_string());
        }
        _ => return None,
    }
    Some(step(command).map(|(ms, missing)| {
        let (model, program) = (model.to_owned(), program.to_owned());
        Line::Peer(PeerTime { model, program, ms, missing })
    }))
}

/// The options that both scripts have.
fn words(device: OnDevice, size: Size, heads: i64) -> Vec<String> {
    let Shape { vocab, dim, layers, heads: _, linear_heads: _, hidden } = size.shape();
    let on_gpu = device == OnDevice::Cuda;
    let shape = shape(on_gpu);
    let (device, dtype, mode) = match on_gpu {
        true => ("cuda", "bfloat16", "compile"),
        false => ("cpu", "float32", "eager"),
    };
    [
        ("--dim", dim.to_string()),
        ("--layers", layers.to_string()),
        ("--heads", heads.to_string()),
        ("--hidden", hidden.to_string()),
        ("--vocab", vocab.to_string()),
        ("--seq", shape.seq_len.to_string()),
        ("--batch", shape.batch.to_string()),
        ("--steps", ROUNDS.1.to_string()),
        ("--device", device.to_owned()),
        ("--dtype", dtype.to_owned()),
        ("--mode", mode.to_owned()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect()
}

/// Runs a script that ends with a line of JSON: its milliseconds, or the package that is missing.
fn step(command: Command) -> Result<(Option<f64>, Option<String>), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let (status, lines) = children::run_program(command, None)
        .map_err(|error| Failure::machine(format!("`{program}`: {}", reason(&error))))?;
    let line = lines.output.last();
    let line = line.and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let line = line.unwrap_or_default();
    let success = status.is_some_and(|status| status.success());
    match (success, line["step_s"].as_f64(), line["missing"].as_str()) {
        (true, Some(seconds), _) => Ok((Some(seconds * 1e3), None)),
        (true, None, Some(name)) => Ok((None, Some(name.to_owned()))),
        (_, _, _) => {
            let last = lines.errors.last().cloned();
            Err(Failure::machine(last.unwrap_or_else(|| "it printed no time".to_owned())))
        }
    }
}
