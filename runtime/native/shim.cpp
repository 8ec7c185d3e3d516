// The C ABI of shim.h over ATen. Narrow headers only: torch/all.h would make this the slowest file to build.
#include "shim.h"
#include "guard.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/headeronly/version.h>

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace {

// libtorch requests huge pages for large CPU tensors only if this is set, and reads it with its first tensor, so set it
// before main: with small pages, a third of a scan over 16,384 tokens is spent in page faults. An existing value
// is kept. It affects the addresses of tensors, never their bits.
__attribute__((constructor)) void prefer_huge_pages() { setenv("THP_MEM_ALLOC_ENABLE", "1", 0); }

} // namespace

extern "C" {

// Read by jemalloc where a program links it: freed pages are kept and are huge, so that a training step after the first
// takes no page fault. MALLOC_CONF in the environment is read after it and wins.
extern const char *const malloc_conf;
const char *const malloc_conf = "dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always";

const char *canonc_last_error(void) { return canonc::last_error.c_str(); }

int canonc_parallel_for(int64_t count, int64_t grain, void *context, void (*body)(void *, int64_t, int64_t)) {
  return canonc::guarded([&] {
    at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) { body(context, begin, end); });
  });
}

const char *canonc_cpu_capability(void) {
  static const std::string text = at::get_cpu_capability();
  return text.c_str();
}

const char *canonc_torch_version(void) { return TORCH_VERSION; }

const char *canonc_build_config(void) {
  static const std::string text = at::show_config();
  return text.c_str();
}

const char *canonc_library_folder(void) {
  static const std::string folder = [] {
    Dl_info info;
    // Any function exported by libtorch_cpu shows where the loader found it.
    if (dladdr(reinterpret_cast<void *>(&at::get_num_threads), &info) == 0 || info.dli_fname == nullptr)
      return std::string();
    const std::string path = info.dli_fname;
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
  }();
  if (folder.empty()) {
    canonc::last_error = "the loader does not say where libtorch_cpu was found";
    return nullptr;
  }
  return folder.c_str();
}

int canonc_load_library(const char *path) {
  return canonc::guarded([&] {
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      const char *why = dlerror();
      throw std::runtime_error(why != nullptr ? why : "dlopen failed without a reason");
    }
  });
}

int canonc_set_deterministic(int on) {
  return canonc::guarded([&] {
    auto &context = at::globalContext();
    context.setDeterministicAlgorithms(on != 0, /*warn_only=*/false);
    context.setDeterministicCuDNN(on != 0);
    if (on != 0) {
      context.setBenchmarkCuDNN(false);
      context.setAllowTF32CuDNN(false);
      context.setFloat32MatmulPrecision("highest");
    }
  });
}

int canonc_is_deterministic(void) { return at::globalContext().deterministicAlgorithms() ? 1 : 0; }
}
