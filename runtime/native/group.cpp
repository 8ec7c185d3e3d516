// The C ABI of group.h over c10d.
#define USE_C10D_GLOO
#include "group.h"
#include "guard.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

using std::chrono::milliseconds;

// Of nccl.cpp: from one c10::intrusive_ptr<c10d::Work> * to another.
using keep_work = int (*)(const void *, void *, char *, int64_t);

struct canonc_group {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Backend> gloo;
  // Null without GPUs.
  c10::intrusive_ptr<c10d::Backend> nccl;
  // Makes a work that only says whether it is done.
  keep_work keep = nullptr;
  int rank;
  int size;
  // How long the store may take to answer.
  milliseconds grace;
};

struct canonc_work {
  c10::intrusive_ptr<c10d::Work> work;
  // They outlive the exchange, also on a GPU, where another stream uses them.
  at::Tensor output;
  at::Tensor input;
  // Null for an exchange on CPUs.
  keep_work keep = nullptr;
};

namespace {

using make_nccl = int (*)(void *, int, int, int64_t, void *, char *, int64_t);

at::Tensor &tensor(void *pointer) { return *static_cast<at::Tensor *>(pointer); }

// The backend for a tensor's device.
c10d::Backend &backend(const canonc_group &group, const at::Tensor &tensor) {
  const auto &chosen = tensor.is_cuda() ? group.nccl : group.gloo;
  if (!chosen) {
    throw std::runtime_error(tensor.is_cuda() ? "the ranks have no NCCL, so they cannot exchange a tensor on a GPU"
                                              : "the ranks are not connected");
  }
  return *chosen;
}

keep_work kept(const canonc_group &group, const at::Tensor &tensor) {
  return tensor.is_cuda() ? group.keep : nullptr;
}

// How long a store may take to answer, unless ranks wait less for each other.
constexpr milliseconds longest_grace(10000);

// Asks the store on a thread of its own: if the process that hosts it is stopped, the store's functions never return. Such
// a thread stays behind, with what it holds; the process is about to end.
template <class Question> auto ask(milliseconds limit, Question question) -> decltype(question()) {
  auto answer = std::make_shared<std::promise<decltype(question())>>();
  auto future = answer->get_future();
  std::thread([answer, question = std::move(question)] {
    try {
      answer->set_value(question());
    } catch (...) {
      answer->set_exception(std::current_exception());
    }
  }).detach();
  if (future.wait_for(limit) != std::future_status::ready) {
    throw std::runtime_error("the place where ranks meet does not answer");
  }
  return future.get();
}

} // namespace

extern "C" {

canonc_group *canonc_group_meet(const char *host, int port, int serve, const char *prefix, int rank, int size,
                                int64_t timeout_ms) {
  canonc_group *group = nullptr;
  canonc::guarded([&] {
    c10d::TCPStoreOptions meeting;
    meeting.port = static_cast<uint16_t>(port);
    meeting.isServer = serve != 0;
    meeting.waitWorkers = false;
    meeting.timeout = milliseconds(timeout_ms);
    auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, c10::make_intrusive<c10d::TCPStore>(host, meeting));
    group = new canonc_group{store, {}, {}, nullptr, rank, size, std::min(meeting.timeout, longest_grace)};
  });
  return group;
}

int canonc_group_connect(canonc_group *group, const char *address, const char *interfaces, int64_t timeout_ms) {
  return canonc::guarded([&] {
    using gloo = c10d::ProcessGroupGloo;
    // Gloo tries again at the end of its timeout, six times in all.
    auto options = gloo::Options::create(milliseconds(std::max<int64_t>(timeout_ms / 6, 1)));
    if (interfaces != nullptr) {
      std::stringstream names(interfaces);
      for (std::string name; std::getline(names, name, ',');) {
        options->devices.push_back(gloo::createDeviceForInterface(name));
      }
    } else {
      options->devices.push_back(address == nullptr ? gloo::createDefaultDevice()
                                                    : gloo::createDeviceForHostname(address));
    }
    group->gloo = c10::make_intrusive<gloo>(group->store, group->rank, group->size, options);
    group->gloo->setTimeout(milliseconds(timeout_ms));
  });
}

int canonc_group_add_nccl(canonc_group *group, const char *library, int64_t timeout_ms) {
  return canonc::guarded([&] {
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) {
      throw std::runtime_error(dlerror());
    }
    const auto make = reinterpret_cast<make_nccl>(dlsym(loaded, "canonc_nccl_backend"));
    group->keep = reinterpret_cast<keep_work>(dlsym(loaded, "canonc_nccl_keep"));
    if (make == nullptr || group->keep == nullptr) {
      throw std::runtime_error(std::string(library) + " is of another version: build it again with nccl.sh");
    }
    char message[1024] = {};
    c10::intrusive_ptr<c10d::Store> store =
        c10::make_intrusive<c10d::PrefixStore>("nccl", group->store);
    if (make(&store, group->rank, group->size, timeout_ms, &group->nccl, message, sizeof message) != 0) {
      throw std::runtime_error(message);
    }
  });
}

canonc_work *canonc_group_begin_all_to_all(canonc_group *group, void *output, void *input, const int64_t *output_counts,
                                           const int64_t *input_counts) {
  canonc_work *begun = nullptr;
  canonc::guarded([&] {
    std::vector<int64_t> out(output_counts, output_counts + group->size);
    std::vector<int64_t> in(input_counts, input_counts + group->size);
    at::Tensor to = tensor(output), from = tensor(input);
    begun = new canonc_work{backend(*group, to).alltoall_base(to, from, out, in), to, from, kept(*group, to)};
  });
  return begun;
}

canonc_work *canonc_group_begin_all_gather(canonc_group *group, void *output, void *input) {
  canonc_work *begun = nullptr;
  canonc::guarded([&] {
    at::Tensor to = tensor(output), from = tensor(input);
    begun = new canonc_work{backend(*group, to)._allgather_base(to, from), to, from, kept(*group, to)};
  });
  return begun;
}

int canonc_work_wait(canonc_work *work, canonc_work **pending) {
  *pending = nullptr;
  return canonc::guarded([&] {
    if (work->keep == nullptr) {
      work->work->wait();
      return;
    }
    // `wait` would block this thread, which polls with sleeps; this only makes the current stream wait.
    work->work->synchronize();
    auto rest = std::make_unique<canonc_work>();
    char message[1024] = {};
    if (work->keep(&work->work, &rest->work, message, sizeof message) != 0) {
      throw std::runtime_error(message);
    }
    *pending = rest.release();
  });
}

int canonc_work_done(canonc_work *work) {
  bool done = false;
  const int status = canonc::guarded([&] {
    done = work->work->isCompleted();
    if (const auto why = work->work->exception()) {
      std::rethrow_exception(why);
    }
  });
  return status != 0 ? status : static_cast<int>(done);
}

void canonc_work_free(canonc_work *work) {
  canonc::guarded([&] { delete work; });
}

int canonc_group_broadcast(canonc_group *group, void *pointer, int root) {
  return canonc::guarded([&] {
    std::vector<at::Tensor> tensors{tensor(pointer)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    backend(*group, tensor(pointer)).broadcast(tensors, options)->wait();
  });
}

int canonc_group_set(canonc_group *group, const char *key, const uint8_t *bytes, int64_t count) {
  return canonc::guarded([&] {
    ask(group->grace, [store = group->store, key = std::string(key), value = std::vector<uint8_t>(bytes, bytes + count)] {
      store->set(key, value);
      return true;
    });
  });
}

int64_t canonc_group_get(canonc_group *group, const char *key, int64_t timeout_ms, uint8_t *bytes, int64_t count) {
  int64_t found = -2;
  const int status = canonc::guarded([&] {
    const milliseconds timeout(timeout_ms);
    const auto value = ask(timeout + group->grace, [store = group->store, key = std::string(key), timeout] {
      const auto until = std::chrono::steady_clock::now() + timeout;
      // `wait` of the store would throw at its end, as for a broken connection; asking again tells them apart.
      while (!store->check({key})) {
        if (std::chrono::steady_clock::now() >= until) {
          return std::optional<std::vector<uint8_t>>();
        }
        std::this_thread::sleep_for(milliseconds(20));
      }
      return std::optional(store->get(key));
    });
    if (value) {
      found = static_cast<int64_t>(value->size());
      std::copy_n(value->begin(), std::min(found, count), bytes);
    }
  });
  return status == 0 ? found : -1;
}

void canonc_group_leave(canonc_group *group, int failed) {
  canonc::guarded([&] {
    if (group->nccl && failed == 0) {
      // Ends PyTorch's threads in order; they would end the process.
      group->nccl->shutdown();
    } else if (group->nccl) {
      // A shutdown would wait for a rank that is gone. This may not return, either; then the process ends with it.
      ask(longest_grace, [nccl = group->nccl] {
        nccl->abort();
        return true;
      });
    }
    delete group;
  });
}

} // extern "C"
