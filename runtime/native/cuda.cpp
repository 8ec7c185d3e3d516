// The C ABI of cuda.h over the CUDA driver and c10.
#include "cuda.h"
#include "guard.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace {

// The driver's interface, which is stable; its header is not needed.
using Handle = void *;
constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76, kSharedOptIn = 97; // CU_DEVICE_ATTRIBUTE_…
constexpr int kMaxDynamicShared = 8;                                             // CU_FUNC_ATTRIBUTE_…

struct Driver {
  int (*init)(unsigned);
  int (*version)(int *);
  int (*device_get)(int *, int);
  int (*device_name)(char *, int, int);
  int (*device_attribute)(int *, int, int);
  int (*device_uuid)(void *, int);
  int (*context_retain)(Handle *, int);
  int (*context_current)(Handle *);
  int (*context_set)(Handle);
  int (*module_load)(Handle *, const void *);
  int (*module_function)(Handle *, Handle, const char *);
  int (*function_set)(Handle, int, int);
  int (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);
  int (*error_text)(int, const char **);

  Driver() {
    Handle library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      const char *why = dlerror();
      throw std::runtime_error(why != nullptr ? why : "libcuda.so.1 cannot be opened");
    }
    const auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr)
        throw std::runtime_error(std::string("libcuda.so.1 has no ") + name);
    };
    find(init, "cuInit");
    find(version, "cuDriverGetVersion");
    find(device_get, "cuDeviceGet");
    find(device_name, "cuDeviceGetName");
    find(device_attribute, "cuDeviceGetAttribute");
    find(device_uuid, "cuDeviceGetUuid_v2");
    find(context_retain, "cuDevicePrimaryCtxRetain");
    find(context_current, "cuCtxGetCurrent");
    find(context_set, "cuCtxSetCurrent");
    find(module_load, "cuModuleLoadData");
    find(module_function, "cuModuleGetFunction");
    find(function_set, "cuFuncSetAttribute");
    find(launch, "cuLaunchKernel");
    find(error_text, "cuGetErrorString");
    check(init(0), "cuInit");
  }

  void check(int status, const char *call) const {
    if (status == 0)
      return;
    const char *text = nullptr;
    error_text(status, &text);
    throw std::runtime_error(std::string(call) + ": " + (text != nullptr ? text : "error " + std::to_string(status)));
  }
};

const Driver &driver() {
  static const Driver driver;
  return driver;
}

c10::Device on(int device) { return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)); }

// Makes the device current, with the context that libtorch uses.
struct Current {
  c10::DeviceGuard guard;
  explicit Current(int device) : guard(on(device)) {
    const Driver &cuda = driver();
    Handle context = nullptr;
    cuda.check(cuda.context_current(&context), "cuCtxGetCurrent");
    if (context == nullptr) {
      int known = 0;
      cuda.check(cuda.device_get(&known, device), "cuDeviceGet");
      cuda.check(cuda.context_retain(&context, known), "cuDevicePrimaryCtxRetain");
      cuda.check(cuda.context_set(context), "cuCtxSetCurrent");
    }
  }
};

c10::Stream stream(int device) { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(on(device)); }

Handle handle(uint64_t number) { return reinterpret_cast<Handle>(number); }

at::Tensor &tensor(void *pointer) { return *static_cast<at::Tensor *>(pointer); }

// PYTORCH_DEFAULT has no time, BACKEND_DEFAULT has.
c10::Event *record(int device, c10::EventFlag flag) {
  std::unique_ptr<c10::Event> event;
  const int status = canonc::guarded([&] {
    event = std::make_unique<c10::Event>(c10::DeviceType::CUDA, flag);
    event->record(stream(device));
  });
  return status == 0 ? event.release() : nullptr;
}

std::optional<int64_t> seen(int64_t left) { return left < 0 ? std::nullopt : std::optional<int64_t>(left); }

} // namespace

extern "C" {

int canonc_cuda_deterministic(void) {
  return canonc::guarded([] {
    // Read when the first handle is made; the size decides which algorithms may run.
    constexpr const char *name = "CUBLAS_WORKSPACE_CONFIG", *wanted = ":4096:8";
    setenv(name, wanted, 0);
    const char *value = getenv(name);
    if (value == nullptr || std::string(value) != wanted)
      throw std::runtime_error(std::string(name) + " is " + (value != nullptr ? value : "not set") + ", not " + wanted);
    auto &context = at::globalContext();
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context.setDeterministicCuDNN(true);
    context.setBenchmarkCuDNN(false);
    context.setAllowTF32CuDNN(false);
    context.setFloat32MatmulPrecision("highest");
    // Products of bf16 add in f32, also between the parts of a split product.
    context.setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false, /*allow_splitk=*/true);
    // Memory is not filled first: every kernel writes all of its results.
    context.setDeterministicFillUninitializedMemory(false);
    if (!context.deterministicAlgorithms() || context.allowTF32CuDNN() ||
        context.float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST)
      throw std::runtime_error("libtorch did not take the switches of deterministic mode");
  });
}

int canonc_cuda_use(int device) {
  return canonc::guarded([&] { c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).setDevice(on(device)); });
}

int canonc_cuda_uuid(int device, uint8_t *id) {
  return canonc::guarded([&] {
    const Driver &cuda = driver();
    int known = 0;
    cuda.check(cuda.device_get(&known, device), "cuDeviceGet");
    cuda.check(cuda.device_uuid(id, known), "cuDeviceGetUuid");
  });
}

int canonc_cuda_read_facts(int device, canonc_cuda_facts *facts) {
  return canonc::guarded([&] {
    const Driver &cuda = driver();
    int known = 0;
    cuda.check(cuda.device_get(&known, device), "cuDeviceGet");
    cuda.check(cuda.device_name(facts->name, sizeof facts->name, known), "cuDeviceGetName");
    const auto read = [&](int32_t &into, int attribute) {
      cuda.check(cuda.device_attribute(&into, attribute, known), "cuDeviceGetAttribute");
    };
    read(facts->major, kMajor);
    read(facts->minor, kMinor);
    read(facts->multiprocessors, kMultiprocessors);
    read(facts->shared_limit, kSharedOptIn);
    cuda.check(cuda.version(&facts->driver), "cuDriverGetVersion");
  });
}

int canonc_cuda_load(int device, const void *image, uint64_t *module) {
  return canonc::guarded([&] {
    Current current(device);
    Handle made = nullptr;
    driver().check(driver().module_load(&made, image), "cuModuleLoadData");
    *module = reinterpret_cast<uint64_t>(made);
  });
}

int canonc_cuda_function(int device, uint64_t module, const char *entry, uint64_t *function) {
  return canonc::guarded([&] {
    Current current(device);
    Handle made = nullptr;
    driver().check(driver().module_function(&made, handle(module), entry), "cuModuleGetFunction");
    *function = reinterpret_cast<uint64_t>(made);
  });
}

int canonc_cuda_allow_shared(int device, uint64_t function, int bytes) {
  return canonc::guarded([&] {
    Current current(device);
    driver().check(driver().function_set(handle(function), kMaxDynamicShared, bytes), "cuFuncSetAttribute");
  });
}

int canonc_cuda_launch(int device, uint64_t function, const uint32_t grid[3], uint32_t threads, uint32_t shared,
                       void **values) {
  return canonc::guarded([&] {
    Current current(device);
    driver().check(driver().launch(handle(function), grid[0], grid[1], grid[2], threads, 1, 1, shared,
                                   stream(device).native_handle(), values, nullptr),
                   "cuLaunchKernel");
  });
}

int canonc_flash_forward(void *q, void *k, void *v, double scale, int64_t left, void **y, void **lse) {
  return canonc::guarded([&] {
    auto made = at::_flash_attention_forward(tensor(q), tensor(k), tensor(v), {}, {}, tensor(q).size(1),
                                             tensor(k).size(1), /*dropout_p=*/0.0, /*is_causal=*/true,
                                             /*return_debug_mask=*/false, scale, seen(left), std::nullopt,
                                             std::optional<at::Tensor>(), std::optional<at::Tensor>());
    *y = new at::Tensor(std::get<0>(made));
    *lse = new at::Tensor(std::get<1>(made));
  });
}

int canonc_flash_backward(void *dy, void *q, void *k, void *v, void *y, void *lse, double scale, int64_t left,
                          void **dq, void **dk, void **dv) {
  return canonc::guarded([&] {
    // The state of a generator that only dropout would read.
    const auto unused = at::zeros({2}, tensor(q).options().dtype(at::kLong));
    auto made = at::_flash_attention_backward(tensor(dy), tensor(q), tensor(k), tensor(v), tensor(y), tensor(lse),
                                              at::Tensor(), at::Tensor(), tensor(q).size(1), tensor(k).size(1),
                                              /*dropout_p=*/0.0, /*is_causal=*/true, unused, unused, scale,
                                              seen(left), std::nullopt);
    *dq = new at::Tensor(std::get<0>(made));
    *dk = new at::Tensor(std::get<1>(made));
    *dv = new at::Tensor(std::get<2>(made));
  });
}

void *canonc_event_record(int device) { return record(device, c10::EventFlag::PYTORCH_DEFAULT); }

int canonc_event_wait(void *event) {
  return canonc::guarded([&] {
    std::unique_ptr<c10::Event> owned(static_cast<c10::Event *>(event));
    owned->synchronize();
  });
}

void *canonc_timed_event_record(int device) { return record(device, c10::EventFlag::BACKEND_DEFAULT); }

int canonc_timed_event_since(void *earlier, void *later, double *milliseconds) {
  return canonc::guarded([&] {
    const auto &first = *static_cast<c10::Event *>(earlier), &last = *static_cast<c10::Event *>(later);
    first.synchronize();
    last.synchronize();
    *milliseconds = first.elapsedTime(last);
  });
}

void canonc_timed_event_free(void *event) { delete static_cast<c10::Event *>(event); }

int canonc_cuda_forget(int device) {
  return canonc::guarded([&] {
    auto *allocator = dynamic_cast<c10::DeviceAllocator *>(c10::GetAllocator(c10::DeviceType::CUDA));
    if (allocator != nullptr && allocator->initialized()) {
      allocator->emptyCache();
      allocator->resetPeakStats(static_cast<c10::DeviceIndex>(device));
    }
  });
}

int canonc_cuda_reserved(int device, int64_t *now, int64_t *most) {
  return canonc::guarded([&] {
    auto *allocator = dynamic_cast<c10::DeviceAllocator *>(c10::GetAllocator(c10::DeviceType::CUDA));
    *now = *most = 0;
    if (allocator != nullptr && allocator->initialized()) {
      const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
      const auto reserved = allocator->getDeviceStats(static_cast<c10::DeviceIndex>(device)).reserved_bytes[all];
      *now = reserved.current;
      *most = reserved.peak;
    }
  });
}
}
