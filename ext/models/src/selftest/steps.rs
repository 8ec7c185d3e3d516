//! The training step of a model: its time, its share of the device, its memory.

use bench::step::{StepBench, StepShape, step};
use compiler::analyse::analyse;
use compiler::plan::{Precision, Sizes, TrainOptions};
use runtime::execute::Machine;
use runtime::kernels::cuda;
use runtime::selftest::models::{self, Family, Size};
use runtime::selftest::{measured_bytes, predicted_bytes};
use scale::device::Device;

use super::results::{Line, Memory, Timed};
use crate::forward::processor;
use cli::fail::Failure;
use cli::options::OnDevice;

/// Untimed and timed steps.
pub(super) const ROUNDS: (usize, usize) = (2, 5);

/// The models that are timed, the most important first.
pub(super) fn models(on_gpu: bool) -> Vec<(Family, Size)> {
    use Family::{GatedDeltaNet, Gla, Llama, LlamaCanon, Mamba2, Rwkv6};
    let of = |size, families: &[Family]| -> Vec<(Family, Size)> {
        families.iter().map(|family| (*family, size)).collect()
    };
    match on_gpu {
        false => of(Size::Small, &Family::ALL),
        true => [
            of(Size::Billion, &[Llama, LlamaCanon, GatedDeltaNet, Gla, Mamba2]),
            of(Size::Hundred, &[Llama, LlamaCanon, Rwkv6]),
        ]
        .concat(),
    }
}

pub(super) fn model_name(family: Family, size: Size) -> String {
    format!("{} {}", family.name(), size.name())
}

pub(super) fn model_named(name: &str) -> Option<(Family, Size)> {
    let (family, size) = name.rsplit_once(' ')?;
    let size = Size::ALL.into_iter().find(|known| known.name() == size)?;
    Some((Family::named(family)?, size))
}

/// The batch of a step. Four sequences of a model of 1.3 B parameters fit a GPU of 80 GB without recomputation.
pub(super) fn shape(on_gpu: bool) -> StepShape {
    match on_gpu {
        false => StepShape { batch: 2, seq_len: 256 },
        true => StepShape { batch: 4, seq_len: 4096 },
    }
}

pub(super) fn time(
    device: OnDevice,
    machine: Machine,
    family: Family,
    size: Size,
    print: &mut dyn FnMut(Line) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let on_gpu = device == OnDevice::Cuda;
    let precision = if on_gpu { Precision::Bf16 } else { Precision::F32 };
    let shape = shape(on_gpu);
    let graph = models::graph(family, size).map_err(Failure::machine)?;
    let options = models::options(precision, processor(device));
    cuda::forget_peak().map_err(|error| Failure::machine(error.to_string()))?;
    let bench = step(&graph, &options, shape, machine, ROUNDS)
        .map_err(|error| Failure::machine(error.to_string()))?;
    let ms = bench.micro + bench.update;
    let tokens_per_second = (shape.batch * shape.seq_len) as f64 / ms * 1e3;
    let flops = analyse(&graph, shape.seq_len).train_flops_per_token as f64;
    print(Line::Step(Timed {
        model: model_name(family, size),
        bf16: precision == Precision::Bf16,
        batch: shape.batch,
        seq_len: shape.seq_len,
        ms,
        tokens_per_second,
        mfu: tokens_per_second * flops / peak(on_gpu, &options, &bench),
    }))?;
    if on_gpu {
        let sizes = Sizes { batch: shape.batch, time: shape.seq_len, past: 0 };
        print(Line::Memory(Memory {
            model: model_name(family, size),
            predicted: predicted_bytes(&graph, &options, sizes),
            measured: measured_bytes(),
        }))?;
    }
    Ok(())
}

/// The device's operations per second: stated where it is known, else those of the product that was measured.
fn peak(on_gpu: bool, options: &TrainOptions, bench: &StepBench) -> f64 {
    let name = cuda::facts().into_iter().find(|(fact, _)| *fact == "gpu");
    let name = name.map(|(_, name)| name.to_lowercase()).unwrap_or_default();
    let known = ["h200", "h100", "a100"].into_iter().find(|known| name.contains(known));
    match known.filter(|_| on_gpu).and_then(Device::named) {
        Some(device) if options.common.precision == Precision::Bf16 => device.bf16,
        Some(device) => device.f32,
        None => bench.ceilings.flops,
    }
}
