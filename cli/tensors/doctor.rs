//! The libtorch of this process, for `canonc doctor`.

use std::collections::BTreeSet;

use runtime::kernels::cuda_devices;
use runtime::observe::{Torch, observe};

use cli::facts::Fact;
use cli::fail::shown;
use cli::{output, pytorch};

use crate::ranks::nccl;

pub(crate) fn facts() -> Vec<Fact> {
    let Torch { version, folder, cpu_capability, isa, threads, blas, .. } = observe().torch;
    let threads = output::counted(threads, "thread");
    let mut facts = vec![
        Fact::has("torch", format!("{version}, {cpu_capability}, {threads}, from {folder}")),
        Fact::has("kernels", format!("{isa:?}")),
    ];
    if !blas.is_empty() {
        facts.push(Fact::has("BLAS", blas));
    }
    facts.extend(std::fs::read_to_string("/proc/self/maps").ok().and_then(|maps| openmp(&maps)));
    facts.push(cuda());
    facts.push(gpu_ranks());
    facts
}

/// The OpenMP library in a list of this process's mappings. Two of them have two pools of threads.
pub fn openmp(maps: &str) -> Option<Fact> {
    let is_openmp = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        ["libgomp", "libiomp", "libomp"].iter().any(|known| name.starts_with(known))
    };
    let paths = maps
        .lines()
        .filter_map(|line| line.split_once('/').map(|(before, _)| line.get(before.len()..)));
    let libraries: BTreeSet<&str> = paths.flatten().filter(is_openmp).collect();
    let list = libraries.iter().copied().collect::<Vec<_>>().join(" and ");
    match libraries.len() {
        0 => None,
        1 => Some(Fact::has("OpenMP", list)),
        _ => Some(Fact::lacks(
            "OpenMP",
            format!("two libraries, each with its own threads: {list}"),
            "put the folder of libtorch first: `export LD_LIBRARY_PATH=.../torch/lib`",
        )),
    }
}

fn cuda() -> Fact {
    let torch = observe().torch;
    if !torch.has_cuda {
        let help = match pytorch::is_named() {
            true => "runs use the CPU; for a GPU, install a CUDA build of PyTorch instead",
            false => {
                "runs use the CPU; for a GPU, build with a CUDA version of libtorch: `export \
                 LIBTORCH_USE_PYTORCH=1`"
            }
        };
        return Fact::lacks("CUDA", "this libtorch is for CPUs", help);
    }
    match cuda_devices() {
        0 => Fact::lacks(
            "CUDA",
            "supported by libtorch, but no device was found",
            "`nvidia-smi` shows whether the driver works",
        ),
        n => Fact::has("CUDA", output::counted(n, "device")),
    }
}

/// Whether ranks on several GPUs can exchange tensors; those on CPUs always can.
fn gpu_ranks() -> Fact {
    let name = "GPU ranks";
    match nccl() {
        Some(library) => Fact::has(name, shown(&library)),
        None => Fact::lacks(
            name,
            "no libcanonc_nccl.so beside this program, so a run uses one GPU, or ranks on CPUs",
            "`sh runtime/native/nccl.sh TORCH DIR` of a clone compiles it, without a GPU; `export CANONC_NCCL=DIR/libcanonc_nccl.so`",
        ),
    }
}
