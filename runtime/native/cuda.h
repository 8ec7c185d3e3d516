// A GPU through its driver and libtorch, as a C ABI. Neither is linked: libcuda is opened when it is first needed, and
// libtorch's CUDA half registers itself when it is loaded. Errors as in shim.h. runtime/src/kernels/ffi/cuda.rs declares
// the same list.
#pragma once
#include <cstdint>

extern "C" {

struct canonc_cuda_facts {
  char name[256];
  int32_t major, minor, multiprocessors, shared_limit, driver;
};

// Before the first CUDA call: deterministic algorithms or an error, no TF32, cuBLAS with one fixed workspace. An error if
// the environment asks for another one.
int canonc_cuda_deterministic(void);

// Makes the device the calling thread's current one: what names no device goes there, and no other one gets a context.
int canonc_cuda_use(int device);

// The 16 bytes that tell this device, or this part of one, from all others.
int canonc_cuda_uuid(int device, uint8_t *id);

int canonc_cuda_read_facts(int device, canonc_cuda_facts *facts);

// Loads a cubin, or PTX that ends with a zero. Modules are never unloaded.
int canonc_cuda_load(int device, const void *image, uint64_t *module);
int canonc_cuda_function(int device, uint64_t module, const char *entry, uint64_t *function);
int canonc_cuda_allow_shared(int device, uint64_t function, int bytes);

// Queues a launch on libtorch's current stream of the device. `values` points to each argument.
int canonc_cuda_launch(int device, uint64_t function, const uint32_t grid[3], uint32_t threads, uint32_t shared,
                       void **values);

// Flash attention of q [b, t, h, d], k and v [b, s, kv, d], all bf16: the last t of s positions ask, each for what is
// before it, at most `left` positions (-1: all). Writes new tensors; lse is [b, h, t]. The backward pass is deterministic
// if libtorch's switch is on.
int canonc_flash_forward(void *q, void *k, void *v, double scale, int64_t left, void **y, void **lse);
int canonc_flash_backward(void *dy, void *q, void *k, void *v, void *y, void *lse, double scale, int64_t left,
                          void **dq, void **dk, void **dv);

// Everything queued so far on the current stream of the device: waits for it, later. Null with an error.
void *canonc_event_record(int device);
int canonc_event_wait(void *event);

// When the device gets to the end of what was queued so far on its current stream. Null with an error.
void *canonc_timed_event_record(int device);
// Waits for both, which stay.
int canonc_timed_event_since(void *earlier, void *later, double *milliseconds);
void canonc_timed_event_free(void *event);

// Gives back what libtorch's allocator of the device holds and does not use, and forgets its peak.
int canonc_cuda_forget(int device);

// Bytes that libtorch's allocator of the device has reserved: now, and at most. 0 without CUDA.
int canonc_cuda_reserved(int device, int64_t *now, int64_t *most);
}
