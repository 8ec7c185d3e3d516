//! Observes the machine and the libtorch of this process without touching CUDA.

use records::platform::{Host, observe_host};

use crate::kernels::{self, Isa};

/// The machine and the libtorch of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub host: Host,
    pub torch: Torch,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torch {
    pub version: String,
    /// The folder that it was loaded from; empty if the loader does not say.
    pub folder: String,
    /// ATen's choice: `AVX2`, `AVX512`, `DEFAULT`.
    pub cpu_capability: String,
    /// The instruction set of our kernels.
    pub isa: Isa,
    pub threads: usize,
    /// The line of its build description that names the BLAS; empty if there is none.
    pub blas: String,
    pub deterministic: bool,
    /// Whether its CUDA half is in the same folder. This does not load it; `kernels::cuda_devices` does.
    pub has_cuda: bool,
}

/// Observes the machine and libtorch, without touching CUDA.
pub fn observe() -> Observed {
    let folder = kernels::library_folder().unwrap_or_default();
    let config = kernels::build_config();
    let blas = config
        .lines()
        .map(|line| line.trim_start_matches([' ', '-']))
        .find(|line| line.contains("Math Kernel Library"));
    Observed {
        host: observe_host(),
        torch: Torch {
            version: kernels::torch_version(),
            cpu_capability: kernels::cpu_capability(),
            isa: Isa::of_process(),
            threads: usize::try_from(tch::get_num_threads()).unwrap_or(1),
            blas: blas.unwrap_or_default().to_owned(),
            deterministic: kernels::is_deterministic(),
            has_cuda: folder.join("libtorch_cuda.so").exists(),
            folder: folder.display().to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_observed() {
        let torch = observe().torch;
        assert!(torch.threads >= 1 && torch.version.starts_with("2."), "{torch:?}");
        assert!(!torch.folder.is_empty() && !torch.cpu_capability.is_empty(), "{torch:?}");
    }
}
