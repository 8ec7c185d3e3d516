//! Chooses the machine for an experiment's platform requirements, and collects facts about it.
//!
//! A requirement that this machine cannot meet is refused by name, never met halfway. The facts do not affect results.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dsl::Problem;
use lab::experiment::{Device, KernelPath, Platform};
use tch::Kind;

use crate::execute::{KernelRequest, Machine, gpu};
use crate::kernels::{self, CudaLibrary};
use crate::observe::{Observed, observe};
use records::platform::{BlasMode, CpuCapability, PlatformSpec, nvidia_driver, observe_host};

/// The device and kernels of a platform section.
pub fn machine(required: &Platform) -> Result<Machine, Problem> {
    machine_of_rank(required, 0, 1)
}

/// The same of a rank, by its place among the `local` ones on its computer.
pub fn machine_of_rank(
    required: &Platform,
    local_rank: u32,
    local: u32,
) -> Result<Machine, Problem> {
    let device = match required.device {
        Device::Cpu => tch::Device::Cpu,
        Device::Cuda => cuda(local_rank, local)?,
    };
    let kernels = KernelRequest {
        canon: required.canon == KernelPath::Reference,
        gated_norm: required.gated_norm == KernelPath::Reference,
        ..KernelRequest::FASTEST
    };
    Ok(Machine { device, kind: Kind::Float, kernels })
}

/// The requirements on the environment before libtorch is loaded.
pub fn spec(required: &Platform) -> Result<PlatformSpec, Problem> {
    let lacks = |field: &str, value: &str| {
        Problem::machine(
            format!("this canonc does not support platform.{field} = \"{value}\""),
            "use the canonc that wrote the lock",
        )
    };
    let capabilities = [CpuCapability::Default, CpuCapability::Avx2, CpuCapability::Avx512];
    let cpu_capability = match required.cpu_capability.as_deref() {
        None => None,
        Some(name) => {
            let known = capabilities.into_iter().find(|known| known.name() == name);
            Some(known.ok_or_else(|| lacks("cpu_capability", name))?)
        }
    };
    if let Some(wanted) = cpu_capability {
        let available = observe_host().cpu_capability;
        if wanted > available {
            return Err(Problem::machine(
                format!("the lock requires a CPU with {wanted}, but this one has {available}"),
                "run it on a machine that has it, or build a lock with another platform.cpu_capability",
            ));
        }
    }
    let blas = match required.blas.as_deref() {
        None => None,
        Some(name) => Some(BlasMode::named(name).ok_or_else(|| lacks("blas", name))?),
    };
    Ok(PlatformSpec { threads: required.threads, cpu_capability, blas })
}

fn cuda(local_rank: u32, local: u32) -> Result<tch::Device, Problem> {
    if kernels::cuda_devices() > 0 {
        return gpu(local_rank, local);
    }
    let reason = match kernels::cuda_library() {
        CudaLibrary::Absent => "this libtorch has no CUDA support".to_owned(),
        CudaLibrary::Loaded => "no GPU or driver was found".to_owned(),
        CudaLibrary::Failed(reason) => reason.clone(),
    };
    Err(Problem::machine(
        format!("the lock requires cuda, but this machine cannot run it: {reason}"),
        "run it on a machine with a GPU; `canonc doctor` shows what this machine lacks",
    ))
}

/// Facts that a result may depend on, as far as this process can see them.
pub fn facts() -> BTreeMap<String, String> {
    let Observed { host, torch } = observe();
    let mut facts: BTreeMap<String, String> = [
        ("blas", torch.blas),
        ("canonc", env!("CARGO_PKG_VERSION").to_owned()),
        ("cores", host.cores.to_string()),
        ("cpu", host.cpu_model),
        ("cpu_capability", torch.cpu_capability),
        ("kernels", torch.isa.to_string()),
        ("libtorch", torch.version),
        ("memory_bytes", host.memory_bytes.to_string()),
        ("system", host.system),
        ("threads", torch.threads.to_string()),
    ]
    .map(|(fact, value)| (fact.to_owned(), value))
    .into();
    let gpu = kernels::cuda::facts();
    if !gpu.is_empty() {
        facts.insert("gpu.driver".to_owned(), nvidia_driver());
    }
    facts.extend(gpu.into_iter().map(|(fact, value)| (fact.to_owned(), value)));
    facts.extend(host.env.into_iter().map(|(name, value)| (format!("env.{name}"), value)));
    facts
}

/// The facts as one line, which distinguishes the processes of a run.
pub(crate) fn line(facts: &BTreeMap<String, String>) -> String {
    let mut line = String::new();
    for (at, (fact, value)) in facts.iter().enumerate() {
        let comma = if at == 0 { "" } else { "; " };
        let _ = write!(line, "{comma}{fact} {value}");
    }
    line
}
