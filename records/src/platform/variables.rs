//! Environment variables that a result may depend on, and what a run records of them.
//!
//! Runs are published, and an environment has passwords and the names of folders in it. So a variable is recorded only if it
//! is listed here, and its value only if it has a form that its library documents.

/// The possible effect of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Bits of results: it is recorded, and must be equal where bits are compared.
    Bits,
    /// Speed, or which devices are found: it is recorded.
    Speed,
    /// None, as far as canonc knows: it is not recorded.
    None,
}

/// Values of a variable that are recorded.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// Numbers and these words, in any case, with commas and other marks between.
    Words(&'static [&'static str]),
    /// Settings of the C library: `glibc.NAME=VALUE`, with colons between.
    Tunables,
    /// Libraries, of which only the file names are recorded.
    Libraries,
}

const NUMBERS: Form = Form::Words(&[]);
const SWITCH: Form = Form::Words(&["true", "false", "yes", "no", "on", "off"]);
const INSTRUCTIONS: Form = Form::Words(&[
    "default",
    "all",
    "sse4_1",
    "sse4_2",
    "sse41",
    "avx",
    "avx2",
    "avx2_e1",
    "avx2_vnni",
    "avx2_vnni_2",
    "avx512",
    "avx512_e1",
    "avx512_e2",
    "avx512_e3",
    "avx512_e4",
    "avx512_e5",
    "avx512_core",
    "avx512_core_vnni",
    "avx512_core_bf16",
    "avx512_core_fp16",
    "avx512_core_amx",
    "avx512_core_amx_fp16",
    "avx512_mic",
    "avx10_1_512",
    "avx10_1_512_amx",
    "avx10_1_512_amx_fp16",
]);

/// Every variable whose value is recorded: those of the libraries that compute (MKL, oneDNN, OpenMP, ATen, CUDA's), and of
/// the loader and libm, which can substitute the code that computes.
const RECORDED: &[(&str, Effect, Form)] = &[
    ("ATEN_CPU_CAPABILITY", Effect::Bits, INSTRUCTIONS),
    ("BLIS_NUM_THREADS", Effect::Bits, NUMBERS),
    ("CUBLASLT_WORKSPACE_SIZE", Effect::Bits, NUMBERS),
    ("CUBLAS_WORKSPACE_CONFIG", Effect::Bits, NUMBERS),
    ("CUDA_VISIBLE_DEVICES", Effect::Speed, NUMBERS),
    ("DISABLE_ADDMM_CUDA_LT", Effect::Bits, SWITCH),
    (
        "DNNL_DEFAULT_FPMATH_MODE",
        Effect::Bits,
        Form::Words(&["strict", "bf16", "f16", "tf32", "any"]),
    ),
    ("DNNL_MAX_CPU_ISA", Effect::Bits, INSTRUCTIONS),
    ("FLA_USE_TMA", Effect::Speed, SWITCH),
    ("GLIBC_TUNABLES", Effect::Bits, Form::Tunables),
    ("GOMP_CPU_AFFINITY", Effect::Speed, NUMBERS),
    ("GOMP_SPINCOUNT", Effect::Speed, Form::Words(&["infinity", "infinite"])),
    (
        "KMP_AFFINITY",
        Effect::Speed,
        Form::Words(&[
            "granularity",
            "fine",
            "core",
            "thread",
            "compact",
            "scatter",
            "balanced",
            "disabled",
            "none",
            "verbose",
        ]),
    ),
    ("KMP_BLOCKTIME", Effect::Speed, Form::Words(&["infinite"])),
    ("KMP_DETERMINISTIC_REDUCTION", Effect::Bits, SWITCH),
    ("LD_PRELOAD", Effect::Bits, Form::Libraries),
    (
        "MKL_CBWR",
        Effect::Bits,
        Form::Words(&[
            "auto",
            "compatible",
            "sse2",
            "sse3",
            "ssse3",
            "sse4_1",
            "sse4_2",
            "avx",
            "avx2",
            "avx512",
            "avx512_mic",
            "avx512_e1",
            "avx512_mic_e1",
            "strict",
            "branch_off",
        ]),
    ),
    ("MKL_DEBUG_CPU_TYPE", Effect::Bits, NUMBERS),
    ("MKL_DISABLE_FAST_MM", Effect::Speed, SWITCH),
    (
        "MKL_DOMAIN_NUM_THREADS",
        Effect::Bits,
        Form::Words(&[
            "mkl_domain_all",
            "mkl_domain_blas",
            "mkl_domain_fft",
            "mkl_domain_vml",
            "mkl_domain_pardiso",
        ]),
    ),
    ("MKL_DYNAMIC", Effect::Bits, SWITCH),
    ("MKL_ENABLE_INSTRUCTIONS", Effect::Bits, INSTRUCTIONS),
    ("MKL_NUM_STRIPES", Effect::Bits, NUMBERS),
    ("MKL_NUM_THREADS", Effect::Bits, NUMBERS),
    (
        "MKL_THREADING_LAYER",
        Effect::Bits,
        Form::Words(&["intel", "gnu", "sequential", "tbb", "pgi"]),
    ),
    (
        "NCCL_ALGO",
        Effect::Bits,
        Form::Words(&[
            "ring",
            "tree",
            "collnet",
            "collnetchain",
            "collnetdirect",
            "nvls",
            "nvlstree",
            "pat",
            "allreduce",
            "allgather",
            "broadcast",
            "reduce",
            "reducescatter",
        ]),
    ),
    ("NCCL_PROTO", Effect::Bits, Form::Words(&["ll", "ll128", "simple"])),
    ("NVIDIA_TF32_OVERRIDE", Effect::Bits, SWITCH),
    ("OMP_DYNAMIC", Effect::Bits, SWITCH),
    ("OMP_NUM_THREADS", Effect::Speed, NUMBERS),
    (
        "OMP_PLACES",
        Effect::Speed,
        Form::Words(&["threads", "cores", "ll_caches", "numa_domains", "sockets"]),
    ),
    (
        "OMP_PROC_BIND",
        Effect::Speed,
        Form::Words(&["true", "false", "primary", "master", "close", "spread"]),
    ),
    ("OMP_SCHEDULE", Effect::Bits, Form::Words(&["static", "dynamic", "guided", "auto"])),
    ("OMP_THREAD_LIMIT", Effect::Bits, NUMBERS),
    ("OMP_WAIT_POLICY", Effect::Speed, Form::Words(&["active", "passive"])),
    (
        "ONEDNN_DEFAULT_FPMATH_MODE",
        Effect::Bits,
        Form::Words(&["strict", "bf16", "f16", "tf32", "any"]),
    ),
    ("ONEDNN_MAX_CPU_ISA", Effect::Bits, INSTRUCTIONS),
    (
        "OPENBLAS_CORETYPE",
        Effect::Bits,
        Form::Words(&["haswell", "zen", "skylakex", "cooperlake", "sapphirerapids"]),
    ),
    ("OPENBLAS_NUM_THREADS", Effect::Bits, NUMBERS),
    ("PYTORCH_TENSOREXPR", Effect::Bits, SWITCH),
    ("THP_MEM_ALLOC_ENABLE", Effect::Speed, SWITCH),
    ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", Effect::Bits, SWITCH),
    ("TORCH_BLAS_PREFER_CUBLASLT", Effect::Bits, SWITCH),
    ("TORCH_CUDNN_USE_HEURISTIC_MODE_B", Effect::Bits, SWITCH),
    ("TORCH_CUDNN_V8_API_DISABLED", Effect::Bits, SWITCH),
    ("TORCH_LINALG_PREFER_CUSOLVER", Effect::Bits, SWITCH),
    ("TORCH_LINEAR_FLATTEN_3D", Effect::Bits, SWITCH),
    ("TORCH_MKLDNN_MATMUL_MIN_DIM", Effect::Bits, NUMBERS),
    ("TORCH_MKLDNN_MATMUL_MIN_SIZE", Effect::Bits, NUMBERS),
];

/// Most bytes of a recorded value.
const LONGEST: usize = 256;

/// In place of a value that is not of its variable's form, and so may be private. What it decides is unknown.
pub const UNRECORDED: &str = "not recorded";

/// The possible effect of this variable.
pub fn effect(name: &str) -> Effect {
    row(name).map_or(Effect::None, |(effect, _)| effect)
}

fn row(name: &str) -> Option<(Effect, Form)> {
    let row = RECORDED.iter().find(|(known, ..)| *known == name)?;
    Some((row.1, row.2))
}

/// What is recorded of a variable's value; `None` if its name is not one of those that count.
pub(crate) fn recorded(name: &str, value: &str) -> Option<String> {
    let (_, form) = row(name)?;
    Some(form.recorded(value).unwrap_or_else(|| UNRECORDED.to_owned()))
}

/// Tunables of the C library that have numbers.
const TUNABLES: [&str; 8] = [
    "glibc.malloc.arena_max",
    "glibc.malloc.check",
    "glibc.malloc.hugetlb",
    "glibc.malloc.mmap_threshold",
    "glibc.malloc.tcache_count",
    "glibc.malloc.trim_threshold",
    "glibc.pthread.rseq",
    "glibc.cpu.x86_non_temporal_threshold",
];

/// Libraries that people preload: others may be named after anything.
const PRELOADED: [&str; 14] = [
    "asan",
    "c",
    "fakeroot",
    "gomp",
    "iomp5",
    "jemalloc",
    "m",
    "mimalloc",
    "mvec",
    "profiler",
    "stdc++",
    "tbbmalloc_proxy",
    "tcmalloc",
    "tcmalloc_minimal",
];

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.len() <= 10 && digits.bytes().all(|c| c.is_ascii_digit())
}

/// The file name of a library, if it is one of [`PRELOADED`].
fn library(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let (stem, version) = name.strip_prefix("lib")?.split_once(".so")?;
    let is_version = version.len() <= 8 && version.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    (PRELOADED.contains(&stem) && is_version).then_some(name)
}

impl Form {
    fn recorded(self, value: &str) -> Option<String> {
        // No setting is as long as a text or a key.
        if value.len() > LONGEST {
            return None;
        }
        match self {
            Form::Words(words) => {
                let is_word = |part: &str| words.iter().any(|word| word.eq_ignore_ascii_case(part));
                let mut parts = value.split(|c| ",:;=^(){}".contains(c)).map(str::trim);
                parts.all(|part| is_number(part) || is_word(part)).then(|| value.to_owned())
            }
            Form::Tunables => {
                // The CPU's features, which have names in capitals.
                let is_feature = |part: &str| {
                    part.len() <= 32
                        && part.bytes().all(|c| {
                            c.is_ascii_uppercase() || c.is_ascii_digit() || b"_-".contains(&c)
                        })
                };
                let is_setting = |part: &str| match part.split_once('=') {
                    Some(("glibc.cpu.hwcaps", value)) => value
                        .split(',')
                        .all(|feature| is_feature(feature.trim_end_matches("_Usable"))),
                    Some((name, value)) => TUNABLES.contains(&name) && is_number(value),
                    None => false,
                };
                value.split(':').all(is_setting).then(|| value.to_owned())
            }
            Form::Libraries => {
                let names = value.split([':', ' ']).filter(|path| !path.is_empty());
                Some(names.map(library).collect::<Option<Vec<_>>>()?.join(":"))
            }
        }
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
        for name in ["OMP_NUM_THREADS", "KMP_AFFINITY", "CUDA_VISIBLE_DEVICES"] {
            assert_eq!(effect(name), Effect::Speed, "{name}");
        }
        for name in
            ["PATH", "HOME", "MKL_VERBOSE", "TORCH_HOME", "TORCH_API_TOKEN", "LD_LIBRARY_PATH", ""]
        {
            assert_eq!(effect(name), Effect::None, "{name}");
        }
    }

    #[test]
    fn only_values_of_a_known_form_are_recorded() {
        for (name, value) in [
            ("ATEN_CPU_CAPABILITY", "avx2"),
            ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2_Usable:glibc.malloc.check=3"),
            ("KMP_AFFINITY", "granularity=fine,compact,1,0"),
            ("MKL_CBWR", "AVX2,STRICT"),
            ("MKL_DOMAIN_NUM_THREADS", "MKL_DOMAIN_ALL=4, MKL_DOMAIN_BLAS=1"),
            ("OMP_DYNAMIC", "FALSE"),
            ("OMP_PLACES", "{0:4},{4:4}"),
            ("OMP_SCHEDULE", "static,4"),
        ] {
            assert_eq!(recorded(name, value).as_deref(), Some(value), "{name}");
        }
        let preload = recorded("LD_PRELOAD", "/home/alice/lib/libm.so.6:libjemalloc.so");
        assert_eq!(preload.as_deref(), Some("libm.so.6:libjemalloc.so"));
        for (name, value) in [
            ("LD_PRELOAD", "/home/alice/.ssh/id_rsa"),
            ("MKL_CBWR", "sk-secret"),
            ("LD_PRELOAD", "/opt/libsk-secret.so"),
            ("MKL_NUM_THREADS", "555-12-3456"),
            ("OMP_PLACES", "4111 1111 1111 1111"),
            ("GLIBC_TUNABLES", "glibc.a=hunter2"),
            ("GLIBC_TUNABLES", "glibc.malloc.check=sk"),
            ("OMP_NUM_THREADS", "4111111111111111"),
            ("GLIBC_TUNABLES", "/home/alice"),
            ("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"),
        ] {
            assert_eq!(recorded(name, value).as_deref(), Some(UNRECORDED), "{name}");
        }
        assert_eq!(recorded("TORCH_API_TOKEN", "sk-secret"), None);
    }
}
