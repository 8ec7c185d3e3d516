// PyTorch's process groups (c10d) as a C ABI: over Gloo, and over NCCL for tensors on GPUs. Tensors are tch's, pointers to
// at::Tensor. A function that fails returns a null pointer or −1, with the message in canonc_last_error. A group is used by
// one thread at a time.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct canonc_group canonc_group;
// An exchange that has begun.
typedef struct canonc_work canonc_work;

// Opens the store host:port, where ranks meet; `serve` is 1 for the process that hosts it. Keys begin with `prefix`.
canonc_group *canonc_group_meet(const char *host, int port, int serve, const char *prefix, int rank, int size,
                                int64_t timeout_ms);
// Connects all ranks of the store over Gloo, by the network interfaces `interfaces` (names with commas between them), else by
// this machine's `address`, else by that of its host name; both may be null.
int canonc_group_connect(canonc_group *group, const char *address, const char *interfaces, int64_t timeout_ms);
// Loads libcanonc_nccl.so (nccl.cpp), and connects the GPUs of all ranks.
int canonc_group_add_nccl(canonc_group *group, const char *library, int64_t timeout_ms);
// Begin an exchange, which runs while the caller goes on; null if it cannot begin. Tensors are [n, ...] and contiguous; the
// caller neither reads the output nor changes the input before canonc_work_wait. Counts are rows for each rank.
canonc_work *canonc_group_begin_all_to_all(canonc_group *group, void *output, void *input, const int64_t *output_counts,
                                           const int64_t *input_counts);
// output is [size * n], input [n].
canonc_work *canonc_group_begin_all_gather(canonc_group *group, void *output, void *input);
// On a CPU, waits for an exchange. On a GPU, what the current stream computes from now on waits for it, and the caller
// does not: `pending` is then an exchange without tensors, for canonc_work_done. Else it is null.
int canonc_work_wait(canonc_work *work, canonc_work **pending);
// Whether an exchange is done: 1, or 0 if it is not yet, or −1 if it failed. Does not wait.
int canonc_work_done(canonc_work *work);
// Forgets an exchange, whether it is done or not: it keeps its tensors until it is.
void canonc_work_free(canonc_work *work);
int canonc_group_broadcast(canonc_group *group, void *tensor, int root);
// Stores bytes under a key.
int canonc_group_set(canonc_group *group, const char *key, const uint8_t *bytes, int64_t count);
// The number of bytes under a key, of which at most `count` are copied, or −2 if it does not appear in time.
int64_t canonc_group_get(canonc_group *group, const char *key, int64_t timeout_ms, uint8_t *bytes, int64_t count);
// Closes all connections. After an exchange has `failed`, without waiting for what is still under way.
void canonc_group_leave(canonc_group *group, int failed);

#ifdef __cplusplus
}
#endif
