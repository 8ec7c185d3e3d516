//! Whether a result may depend on an environment variable.
//!
//! A variable of a library that computes for us counts, unless it is listed as harmless, since libraries have more variables
//! than we could list, and new ones with each release.

/// The possible effect of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Bits of results: it is recorded, and must be equal where bits are compared.
    Bits,
    /// Speed, or which libraries and devices are found: it is recorded.
    Speed,
    /// None that a run must record.
    None,
}

/// Prefixes of the libraries that compute: MKL, oneDNN, OpenMP, ATen, CUDA's. The dynamic loader and libm count as
/// well, since both can substitute the code that computes.
const DECIDING: [&str; 18] = [
    "ATEN_",
    "BLIS_",
    "CUBLAS",
    "CUDNN_",
    "DISABLE_ADDMM_",
    "DNNL_",
    "GLIBC_TUNABLES",
    "GOMP_",
    "KMP_",
    "LD_PRELOAD",
    "MKL_",
    "NCCL_",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH_",
];

/// Variables with one of these prefixes that do not affect bits. The number of threads is recorded separately.
const SPEED: [&str; 11] = [
    "CUDA_VISIBLE_DEVICES",
    "GOMP_CPU_AFFINITY",
    "GOMP_SPINCOUNT",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
    "THP_MEM_ALLOC_ENABLE",
];

/// Words in the names of variables that print, name folders or limit memory.
const SILENT: [&str; 9] = [
    "_ALLOC_CONF",
    "_DEBUG_FILE",
    "_DISPLAY_ENV",
    "_HOME",
    "_JIT_DUMP",
    "_LOG",
    "_LOGS",
    "_VERBOSE",
    "_WARN",
];

/// The possible effect of this variable.
pub fn effect(name: &str) -> Effect {
    if SPEED.contains(&name) {
        Effect::Speed
    } else if !DECIDING.iter().any(|start| name.starts_with(start))
        || SILENT.iter().any(|end| name.ends_with(end))
    {
        Effect::None
    } else {
        Effect::Bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_numeric_libraries_affect_results() {
        for name in [
            "ATEN_CPU_CAPABILITY",
            "CUBLAS_WORKSPACE_CONFIG",
            "CUBLASLT_WORKSPACE_SIZE",
            "DNNL_DEFAULT_FPMATH_MODE",
            "DNNL_MAX_CPU_ISA",
            "GLIBC_TUNABLES",
            "KMP_DETERMINISTIC_REDUCTION",
            "LD_PRELOAD",
            "MKL_CBWR",
            "MKL_DEBUG_CPU_TYPE",
            "MKL_DOMAIN_NUM_THREADS",
            "MKL_DYNAMIC",
            "MKL_ENABLE_INSTRUCTIONS",
            "MKL_NUM_THREADS",
            "MKL_THREADING_LAYER",
            "NVIDIA_TF32_OVERRIDE",
            "OMP_DYNAMIC",
            "OMP_THREAD_LIMIT",
            "ONEDNN_DEFAULT_FPMATH_MODE",
            "ONEDNN_MAX_CPU_ISA",
            "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
            "TORCH_MKLDNN_MATMUL_MIN_DIM",
        ] {
            assert_eq!(effect(name), Effect::Bits, "{name}");
        }
    }

    #[test]
    fn other_variables_affect_at_most_speed() {
        for name in ["OMP_NUM_THREADS", "KMP_AFFINITY", "LD_LIBRARY_PATH"] {
            assert_eq!(effect(name), Effect::Speed, "{name}");
        }
        for name in ["PATH", "HOME", "MKL_VERBOSE", "TORCH_HOME", "TORCH_LOGS", "MKLROOT", ""] {
            assert_eq!(effect(name), Effect::None, "{name}");
        }
    }
}
