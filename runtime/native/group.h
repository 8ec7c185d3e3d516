// The C ABI of PyTorch's process groups (c10d) over Gloo. In: CPU tensors of tch (pointers to at::Tensor). Out: a status
// of 0, or a null pointer or −1 with the message in canonc_last_error. A group is used by one thread at a time.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct canonc_group canonc_group;

// Joins the ranks that meet at the store host:port; `serve` is 1 for the process that hosts the store. `address` is this
// machine's own, or null for the address of its host name. Keys of the store begin with `prefix`.
canonc_group *canonc_group_join(const char *host, int port, int serve, const char *prefix, int rank, int size,
                                const char *address, int64_t timeout_ms);
// Tensors are [n, ...] and contiguous; counts are rows for each rank.
int canonc_group_all_to_all(canonc_group *group, void *output, void *input, const int64_t *output_counts,
                            const int64_t *input_counts);
// output is [size * n], input [n].
int canonc_group_all_gather(canonc_group *group, void *output, void *input);
int canonc_group_broadcast(canonc_group *group, void *tensor, int root);
// Stores bytes under a key.
int canonc_group_set(canonc_group *group, const char *key, const uint8_t *bytes, int64_t count);
// The number of bytes under a key, of which at most `count` are copied, or −2 if it does not appear in time.
int64_t canonc_group_get(canonc_group *group, const char *key, int64_t timeout_ms, uint8_t *bytes, int64_t count);
// Closes all connections.
void canonc_group_leave(canonc_group *group);

#ifdef __cplusplus
}
#endif
