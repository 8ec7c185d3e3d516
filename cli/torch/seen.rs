//! The libtorch of this process, for `canonc doctor`.

use canonc::doctor::Fact;
use canonc::{output, pytorch};
use runtime::kernels::cuda_devices;
use runtime::observe::{Torch, observe};

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
    facts.push(cuda());
    facts
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
