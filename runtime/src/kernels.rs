//! The project's own kernels, on tch tensors, and what they are built on.
//!
//! Every fused kernel has a plain-tch reference in the same module. One `choose` for each kernel decides the path
//! before it runs (for a product, a path that depends on the rows), the caller records that path, and nothing falls
//! back silently. Results have the same bits at any thread count.

pub mod arrange;
pub mod attention;
pub mod canon;
pub mod channels;
pub mod cuda;
mod dense;
pub mod dropout;
pub mod experts;
mod ffi;
pub mod gated_norm;
pub mod head_loss;
pub mod l2_norm;
mod lanes;
pub mod linear;
pub mod loss;
pub mod mix_heads;
pub mod ngram;
mod matmul;
pub mod muon;
pub mod norm;
pub mod path;
pub mod pointwise;
pub mod rope;
pub mod scan;
pub mod swiglu;
#[cfg(test)]
mod tests;
pub mod transfer;
pub mod update;

use std::fmt;
use std::sync::OnceLock;

pub(crate) use ffi::{Cut, parallel_cuts, slice_mut};
pub use ffi::{
    Group, Meeting, Network, Pending, Work, build_config, cpu_capability, is_deterministic,
    library_folder, parallel_for, set_deterministic, torch_version,
};

/// Why a kernel could not run: operands that do not fit, or libtorch's own message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelError {
    message: String,
}

impl KernelError {
    pub(crate) fn new(message: String) -> Self {
        Self { message }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KernelError {}

impl From<tch::TchError> for KernelError {
    fn from(error: tch::TchError) -> Self {
        Self::new(error.to_string())
    }
}

/// The instruction set that a Rust kernel is compiled for. The two x86 sets give equal bits (the same fused operations
/// on the same elements in the same order); `Portable` rounds differently without a fused multiply-add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    Avx512,
    Avx2,
    Portable,
}

impl Isa {
    /// The instruction set for this process's kernels: never more than ATen's limit (`ATEN_CPU_CAPABILITY`), so one
    /// setting makes two machines agree.
    pub fn of_process() -> Self {
        static CHOSEN: OnceLock<Isa> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let capability = cpu_capability();
            [(Self::Avx512, &["AVX512"][..]), (Self::Avx2, &["AVX512", "AVX2"])]
                .into_iter()
                .find(|(isa, names)| {
                    isa.is_available() && names.iter().any(|name| capability.starts_with(name))
                })
                .map_or(Self::Portable, |(isa, _)| isa)
        })
    }

    /// Whether this CPU supports it.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512vl")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512dq")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx512 | Self::Avx2 => false,
            Self::Portable => true,
        }
    }
}

/// Whether this CPU is Intel's.
pub(crate) fn is_intel() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let name = std::arch::x86_64::__cpuid(0);
        // "GenuineIntel", in the order of the registers.
        [name.ebx, name.edx, name.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Portable => "portable",
        })
    }
}

/// The state of libtorch's CUDA half, which our binaries do not link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CudaLibrary {
    /// This libtorch has none: a CPU build or the lean tree.
    Absent,
    /// It is loaded; [`cuda_devices`] says whether there is a GPU.
    Loaded,
    /// It exists but does not load; holds the loader's message.
    Failed(String),
}

static LIBRARY: OnceLock<CudaLibrary> = OnceLock::new();

/// Whether [`cuda_library`] was called and found CUDA. Loads nothing.
pub fn has_loaded_cuda() -> bool {
    LIBRARY.get() == Some(&CudaLibrary::Loaded)
}

/// Loads libtorch_cuda from the folder of the loaded libtorch_cpu, once. It must come before any CUDA query: the first
/// query caches libtorch's stubs, and CUDA is then lost to the process. So use this, not tch.
pub fn cuda_library() -> &'static CudaLibrary {
    LIBRARY.get_or_init(|| {
        let path = match library_folder() {
            Ok(folder) => folder.join("libtorch_cuda.so"),
            Err(why) => return CudaLibrary::Failed(why.to_string()),
        };
        if !path.exists() {
            return CudaLibrary::Absent;
        }
        match ffi::load_library(&path) {
            Ok(()) => CudaLibrary::Loaded,
            Err(why) => CudaLibrary::Failed(why.to_string()),
        }
    })
}

/// Number of CUDA devices that libtorch can use; 0 without [`CudaLibrary::Loaded`] or a driver.
pub fn cuda_devices() -> usize {
    match cuda_library() {
        CudaLibrary::Loaded => usize::try_from(tch::Cuda::device_count()).unwrap_or(0),
        CudaLibrary::Absent | CudaLibrary::Failed(_) => 0,
    }
}

#[cfg(test)]
mod checks {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn parallel_for_covers_each_index_once() {
        let seen = Mutex::new(vec![0; 1000]);
        parallel_for(1000, 7, |piece| {
            for i in piece {
                seen.lock().unwrap()[i] += 1;
            }
        });
        assert_eq!(seen.into_inner().unwrap(), vec![1; 1000]);
    }

    #[test]
    fn parallel_for_uses_threads() {
        let before = tch::get_num_threads();
        tch::set_num_threads(2);
        let seen = Mutex::new(std::collections::BTreeSet::new());
        parallel_for(2, 1, |_| {
            seen.lock().unwrap().insert(format!("{:?}", std::thread::current().id()));
        });
        tch::set_num_threads(before);
        assert_eq!(seen.into_inner().unwrap().len(), 2, "the shim was compiled without OpenMP");
    }

    #[test]
    fn a_panic_in_a_body_reaches_the_caller() {
        let caught = std::panic::catch_unwind(|| {
            parallel_for(64, 1, |piece| assert!(!piece.contains(&63), "the last index"));
        });
        let message = caught.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(*message, "the last index");
    }

    #[test]
    fn libtorch_says_what_it_is() {
        assert!(torch_version().starts_with("2."), "{}", torch_version());
        assert!(build_config().contains("PyTorch built with"));
        assert!(library_folder().unwrap().join("libtorch_cpu.so").exists());
        assert!(Isa::of_process().is_available());
    }

    #[test]
    fn a_library_that_is_not_one_is_an_error_with_the_loaders_words() {
        let path = std::path::Path::new("/nonexistent/libnothing.so");
        let error = ffi::load_library(path).unwrap_err();
        assert!(error.to_string().contains("libnothing.so"), "{error}");
    }

    #[test]
    fn without_libtorch_cuda_there_are_no_devices() {
        let beside = library_folder().unwrap().join("libtorch_cuda.so").exists();
        assert_eq!(*cuda_library() == CudaLibrary::Absent, !beside);
        if !beside {
            assert_eq!(cuda_devices(), 0);
        }
    }

    #[test]
    fn deterministic_mode_can_be_asked_for() {
        let before = is_deterministic();
        set_deterministic(!before).unwrap();
        assert_eq!(is_deterministic(), !before);
        set_deterministic(before).unwrap();
    }
}
