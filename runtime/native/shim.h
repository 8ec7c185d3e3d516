// Functions that tch lacks, as a C ABI of plain integers, pointers and callbacks. One that can fail returns 0, or -1 with
// the reason in canonc_last_error() (of the calling thread, until its next call). No C++ exception crosses this interface,
// and no callback may unwind through it. runtime/src/kernels/ffi.rs declares the same list.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

const char *canonc_last_error(void);

// Runs body(context, begin, end) over disjoint pieces of [0, count), on ATen's own threads.
int canonc_parallel_for(int64_t count, int64_t grain, void *context, void (*body)(void *, int64_t, int64_t));

// "DEFAULT", "AVX2", "AVX512", ...: the kernels that ATen has picked for this process. Never null.
const char *canonc_cpu_capability(void);

// The PyTorch version compiled against, as 2.11.0; and libtorch's description of its own build.
const char *canonc_torch_version(void);
const char *canonc_build_config(void);

// The folder of the loaded libtorch_cpu; null with canonc_last_error() if the loader does not report it.
const char *canonc_library_folder(void);

// dlopen with RTLD_NOW | RTLD_GLOBAL, never closed: its kernels register themselves.
int canonc_load_library(const char *path);

// Deterministic algorithms or an error, no autotuned cuDNN kernels, no TF32.
int canonc_set_deterministic(int on);
int canonc_is_deterministic(void);
}
