// The C ABI of group.h over c10d.
#define USE_C10D_GLOO
#include "group.h"
#include "guard.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>

using std::chrono::milliseconds;

struct canonc_group {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  int size;
};

namespace {

at::Tensor &tensor(void *pointer) { return *static_cast<at::Tensor *>(pointer); }

} // namespace

extern "C" {

canonc_group *canonc_group_join(const char *host, int port, int serve, const char *prefix, int rank, int size,
                                const char *address, int64_t timeout_ms) {
  canonc_group *group = nullptr;
  canonc::guarded([&] {
    c10d::TCPStoreOptions meeting;
    meeting.port = static_cast<uint16_t>(port);
    meeting.isServer = serve != 0;
    meeting.waitWorkers = false;
    meeting.timeout = milliseconds(timeout_ms);
    auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, c10::make_intrusive<c10d::TCPStore>(host, meeting));
    auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout_ms));
    options->devices.push_back(address == nullptr ? c10d::ProcessGroupGloo::createDefaultDevice()
                                                  : c10d::ProcessGroupGloo::createDeviceForHostname(address));
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
    group = new canonc_group{store, gloo, size};
  });
  return group;
}

int canonc_group_all_to_all(canonc_group *group, void *output, void *input, const int64_t *output_counts,
                            const int64_t *input_counts) {
  return canonc::guarded([&] {
    std::vector<int64_t> out(output_counts, output_counts + group->size);
    std::vector<int64_t> in(input_counts, input_counts + group->size);
    group->gloo->alltoall_base(tensor(output), tensor(input), out, in)->wait();
  });
}

int canonc_group_all_gather(canonc_group *group, void *output, void *input) {
  return canonc::guarded([&] { group->gloo->_allgather_base(tensor(output), tensor(input))->wait(); });
}

int canonc_group_broadcast(canonc_group *group, void *pointer, int root) {
  return canonc::guarded([&] {
    std::vector<at::Tensor> tensors{tensor(pointer)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    group->gloo->broadcast(tensors, options)->wait();
  });
}

int canonc_group_set(canonc_group *group, const char *key, const uint8_t *bytes, int64_t count) {
  return canonc::guarded([&] { group->store->set(key, std::vector<uint8_t>(bytes, bytes + count)); });
}

int64_t canonc_group_get(canonc_group *group, const char *key, int64_t timeout_ms, uint8_t *bytes, int64_t count) {
  int64_t found = -2;
  const int status = canonc::guarded([&] {
    const auto until = std::chrono::steady_clock::now() + milliseconds(timeout_ms);
    // `wait` of the store would throw at its end, as for a broken connection; asking again tells them apart.
    while (!group->store->check({key})) {
      if (std::chrono::steady_clock::now() >= until) {
        return;
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
    const auto value = group->store->get(key);
    found = static_cast<int64_t>(value.size());
    std::copy_n(value.begin(), std::min(found, count), bytes);
  });
  return status == 0 ? found : -1;
}

void canonc_group_leave(canonc_group *group) {
  canonc::guarded([&] { delete group; });
}

} // extern "C"
