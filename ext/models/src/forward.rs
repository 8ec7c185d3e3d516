//! `canonc forward`: logits, losses and gradients of given weights on given tokens.

use std::io;
use std::io::Write as _;
use std::path::Path;

use compiler::plan::{Loss, Options, Precision, Processor};
use interop::source::{ArchWeights, as_sentence};
use runtime::execute::{KernelRequest, Machine, Paths as KernelPaths};
use runtime::forward::{Answer, Measured, Request, forward as run};
use runtime::weights::{Weights, file};
use serde::Serialize;

use cli::archs::{self, NamedArch};
use cli::fail::{Exit, Failure, Outcome, shown};
use cli::options::{MachineArgs, OnDevice, WithKernels, WithType};
use cli::{files, out, output};
use commands::forward::ForwardArgs;
use commands::weights;

pub(crate) fn forward(args: &ForwardArgs) -> Outcome {
    let NamedArch { compiled, train, .. } = archs::only(&args.file, args.arch.as_deref())?;
    let machine = machine(&args.machine)?;
    files::folder_of(&args.out)?;
    out::check(&args.out, out::OutputKind::Tensors)?;
    there(&args.tokens)?;
    let tokens = file::ids(&args.tokens, "tokens")?;
    let targets = match &args.targets {
        Some(named) => {
            let (path, name) = targets(&args.tokens, named)?;
            Some(file::ids(path, name)?)
        }
        None => None,
    };
    let weights = weights(&compiled, &weights::of(&args.file, args.weights.as_deref())?, machine)?;
    let request = Request {
        graph: &compiled.graph,
        weights: &weights,
        tokens: &tokens,
        targets: targets.as_ref(),
        gradients: args.grad,
        loss: train.map_or(Loss::CROSS_ENTROPY, |train| train.loss),
        options: options(&args.machine),
        machine,
    };
    let answer = run(&request)?;
    let bytes = answer.bytes()?;
    files::replace_with(&args.out, |file| {
        file.write_all(&bytes).map_err(|error| Failure::cannot_write(&args.out, &error))
    })?;
    if args.json {
        output::json(&report(&args.out, &answer))?;
        return Ok(Exit::Fine);
    }
    if let Some(Measured { loss, counted, nll: _ }) = &answer.measured {
        output::data(&format!("loss {loss} over {counted} targets\n"))?;
    }
    output::note(&format!(
        "{} of `{}` on {}, in {}",
        output::counted(answer.named().len(), "tensor"),
        compiled.name,
        output::counted(tokens.numel(), "token"),
        shown(&args.out)
    ));
    Ok(Exit::Fine)
}

/// The `--json` document; the schema is in `canonc forward --help`.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    out: String,
    loss: Option<f64>,
    counted: Option<i64>,
    tensors: Vec<Written>,
    kernels: Vec<Ran<'a>>,
}

#[derive(Serialize)]
struct Written {
    name: String,
    shape: Vec<i64>,
}

/// A kernel, the path it took, and the number of calls.
#[derive(Serialize)]
pub(crate) struct Ran<'a> {
    kernel: &'a str,
    path: &'a str,
    times: u64,
}

pub(crate) fn ran(paths: &KernelPaths) -> Vec<Ran<'_>> {
    paths.iter().map(|(kernel, path, times)| Ran { kernel, path, times }).collect()
}

fn report<'a>(out: &Path, answer: &'a Answer) -> Report<'a> {
    let measured = answer.measured.as_ref();
    Report {
        schema: "canonc.forward.v1",
        out: shown(out),
        loss: measured.map(|Measured { loss, .. }| *loss),
        counted: measured.map(|Measured { counted, .. }| *counted),
        tensors: answer
            .named()
            .into_iter()
            .map(|(name, tensor)| Written { name, shape: tensor.size() })
            .collect(),
        kernels: ran(&answer.paths),
    }
}

/// The weights of an arch, from a file or folder with any naming scheme, on the machine's device and in its dtype.
pub(crate) fn weights(
    compiled: &compiler::program::Compiled,
    path: &Path,
    machine: Machine,
) -> Result<Weights, Failure> {
    let path = &weights::file(path)?;
    let source = ArchWeights::open(compiled, path).map_err(|error| {
        let (file, arch) = (shown(path), &compiled.name);
        Failure::from(as_sentence(error)).help(match weights::run_of(path).ok().flatten() {
            Some((run, experiment)) => {
                let (run, theirs) = (shown(&run), &experiment.arch.compiled.name);
                format!(
                    "`{file}` belongs to the run `{run}` with the arch `{theirs}`, not `{arch}`; its lock is `{run}/lock`"
                )
            }
            None => format!("`{file}` was given as weights for the arch `{arch}`"),
        })
    })?;
    if let Some(warning) = weights::of_another_graph(path, compiled)? {
        output::note(&warning);
    }
    if source.is_turned() {
        output::note(&format!(
            "`{}` uses the names of {}: rows of q and k are reordered for this arch's RoPE",
            shown(path),
            source.names
        ));
    }
    Weights::read(&compiled.graph, &source, machine.device, machine.kind).map_err(Failure::from)
}

/// The requested device and dtype, if this machine supports them.
pub(crate) fn machine(args: &MachineArgs) -> Result<Machine, Failure> {
    let kernels = match args.kernels {
        WithKernels::Fastest => KernelRequest::FASTEST,
        WithKernels::Reference => KernelRequest::REFERENCE,
    };
    let cuda = args.device == OnDevice::Cuda;
    Machine::new(cuda, args.dtype() == WithType::F64, kernels).map_err(Failure::from)
}

/// The options of plans for the requested dtype.
pub(crate) fn options(args: &MachineArgs) -> Options {
    let processor = processor(args.device);
    Options { precision: precision(args.dtype()), processor, ..Options::default() }
}

/// What plans for a device run on.
pub(crate) fn processor(device: OnDevice) -> Processor {
    match device {
        OnDevice::Cpu => Processor::Cpu,
        OnDevice::Cuda => Processor::Gpu,
    }
}

/// The precision of a dtype. For f64 the machine computes plans of f32 in f64.
pub(crate) fn precision(dtype: WithType) -> Precision {
    match dtype {
        WithType::F32 | WithType::F64 => Precision::F32,
        WithType::Bf16 => Precision::Bf16,
    }
}

/// The file and name of the targets: a tensor in the tokens' file, or `targets` in another file.
fn targets<'a>(tokens: &'a Path, named: &'a Path) -> Result<(&'a Path, &'a str), Failure> {
    if named.is_file() {
        return Ok((named, "targets"));
    }
    match named.to_str() {
        Some(name) if !name.contains('/') => Ok((tokens, name)),
        Some(_) | None => Err(files::missing(named, &io::Error::from(io::ErrorKind::NotFound))),
    }
}

fn there(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(Failure::bad_input(format!(
            "`{}` is a folder, not a .safetensors file",
            shown(path)
        ))
        .help("name a file in it")),
        Ok(_) => Ok(()),
        Err(error) => Err(files::missing(path, &error)),
    }
}
