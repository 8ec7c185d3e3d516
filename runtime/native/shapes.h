// libtorch's operations for their shapes alone, as a C ABI. Errors as in shim.h. runtime/src/kernels/ffi/shapes.rs declares
// the same list.
#pragma once
#include <cstdint>

extern "C" {

// From here on, on this thread, an operation on large tensors allocates its results and computes nothing, so that their
// memory is never touched; tensors for a GPU are made on the CPU. Operations on small tensors, and views, are as usual.
// `threshold`: from how many elements of all operands together a tensor is large.
int canonc_shapes_begin(int64_t threshold);
int canonc_shapes_end(void);

// The operations since the last call, one a line: name, a tab, bytes of operands and results, a tab, 1 if it computed.
const char *canonc_shapes_take(void);
}
