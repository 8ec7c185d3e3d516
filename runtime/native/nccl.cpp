// PyTorch's process group over NCCL, which moves tensors between GPUs, in a library of its own: only this file needs
// names of CUDA (cuda/) and libtorch_cuda, so the program that loads the library runs without them. Never run so far: no machine
// with several GPUs was at hand.
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>

// With the headers of CUDA 13 and NCCL 2.28 instead of cuda/.
static_assert(sizeof(c10d::ProcessGroupNCCL) == 1112 && sizeof(c10d::ProcessGroupNCCL::Options) == 248 &&
                  sizeof(c10d::ProcessGroupNCCL::WorkNCCL) == 464 && sizeof(ncclConfig_t) == 80,
              "the declarations in cuda/ are not those that PyTorch was built with");

extern "C" {

// `store` is a c10::intrusive_ptr<c10d::Store> *, `backend` a c10::intrusive_ptr<c10d::Backend> *. Returns 0, or −1 with a
// message of at most `room` bytes.
__attribute__((visibility("default"))) int canonc_nccl_backend(void *store, int rank, int size, int64_t timeout_ms,
                                                               void *backend, char *message, int64_t room) {
  try {
    // A collective that takes too long is an error of the call that waits for it. PyTorch's own threads, which do not
    // start then, would end the process before this program can name the rank.
    setenv("TORCH_NCCL_BLOCKING_WAIT", "1", 0);
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 0);
    setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);
    setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 0);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(timeout_ms);
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(*static_cast<c10::intrusive_ptr<c10d::Store> *>(store),
                                                             rank, size, options);
    *static_cast<c10::intrusive_ptr<c10d::Backend> *>(backend) = group;
    return 0;
  } catch (const std::exception &error) {
    std::strncpy(message, error.what(), static_cast<size_t>(room - 1));
    message[room - 1] = '\0';
  } catch (...) {
    std::strncpy(message, "an exception of unknown type", static_cast<size_t>(room));
  }
  return -1;
}

// From a c10::intrusive_ptr<c10d::Work> * to another one, of a work that says whether the exchange is done or failed and
// holds no tensors, as PyTorch's own watchdog keeps them. Returns as above.
__attribute__((visibility("default"))) int canonc_nccl_keep(const void *work, void *kept, char *message, int64_t room) {
  using Work = c10d::ProcessGroupNCCL::WorkNCCL;
  const auto *whole = dynamic_cast<const Work *>(static_cast<const c10::intrusive_ptr<c10d::Work> *>(work)->get());
  if (whole == nullptr) {
    std::strncpy(message, "an exchange that is not NCCL's", static_cast<size_t>(room));
    return -1;
  }
  *static_cast<c10::intrusive_ptr<c10d::Work> *>(kept) = c10::make_intrusive<Work>(*whole);
  return 0;
}

} // extern "C"
