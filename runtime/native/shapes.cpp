// The C ABI of shapes.h: a fallback for one dispatch key, which stands before all others while the key is included.
#include "shapes.h"
#include "guard.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local int64_t threshold = 0;
thread_local std::string performed;

// Calls `visit` with each tensor of a value.
template <class Visit> void each_tensor(const c10::IValue &value, Visit visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined())
      visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor &tensor : value.toTensorList())
      visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue &inner : value.toListRef())
      each_tensor(inner, visit);
  }
}

// The bytes from a tensor's first element to its last.
int64_t extent(const at::Tensor &tensor) {
  int64_t last = 0;
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) {
    if (tensor.size(axis) == 0)
      return 0;
    last += (tensor.size(axis) - 1) * tensor.stride(axis);
  }
  return (last + 1) * static_cast<int64_t>(tensor.element_size());
}

at::Tensor like(const at::Tensor &tensor, c10::Device device) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device));
}

// A value with each of its tensors on another device, in memory that holds nothing. A device becomes that device.
c10::IValue moved(const c10::IValue &value, c10::Device device) {
  if (value.isDevice())
    return device;
  if (value.isTensor())
    return value.toTensor().defined() ? c10::IValue(like(value.toTensor(), device)) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor &tensor : value.toTensorList())
      list.push_back(like(tensor, device));
    return list;
  }
  return value;
}

void note(const c10::OperatorHandle &op, int64_t bytes, bool computed) {
  const auto &schema = op.schema();
  performed += schema.name().substr(schema.name().find("::") + 2);
  performed += '\t' + std::to_string(bytes) + (computed ? "\t1\n" : "\t0\n");
}

// Operations that only CUDA has, and, of large tensors, those whose shapes libtorch knows only in Python: results by their
// definition.
bool known(const c10::OperatorHandle &op, torch::jit::Stack &stack, size_t count, bool large) {
  const std::string &name = op.schema().name();
  const auto argument = [&](size_t at) { return stack[stack.size() - count + at]; };
  std::vector<c10::IValue> results;
  if (name == "aten::mm" && op.schema().overload_name() == "dtype") {
    const at::Tensor left = argument(0).toTensor(), right = argument(1).toTensor();
    results = {at::empty({left.size(0), right.size(1)}, left.options().dtype(argument(2).toScalarType()))};
  } else if (name == "aten::_flash_attention_forward") {
    // q [b, t, h, d] → y like q, lse [b, h, t] in f32, and what only dropout reads.
    const at::Tensor q = argument(0).toTensor();
    const auto lse = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
    results = {at::empty(q.sizes(), q.options()), lse, at::empty({2}, q.options().dtype(at::kLong)),
               at::empty({}, q.options().dtype(at::kLong)), at::empty({0}, q.options())};
  } else if (name == "aten::_flash_attention_backward") {
    for (size_t at = 1; at < 4; ++at) {
      const at::Tensor operand = argument(at).toTensor();
      results.emplace_back(at::empty(operand.sizes(), operand.options()));
    }
  } else if (large && name == "aten::embedding") {
    const at::Tensor weight = argument(0).toTensor();
    auto sizes = argument(1).toTensor().sizes().vec();
    sizes.push_back(weight.size(1));
    results = {at::empty(sizes, weight.options())};
  } else if (large && name == "aten::log_sigmoid_forward") {
    const at::Tensor x = argument(0).toTensor();
    results = {like(x, x.device()), at::empty({0}, x.options())};
  } else if (large && name == "aten::log_sigmoid_backward") {
    const at::Tensor x = argument(1).toTensor();
    results = {like(x, x.device())};
  } else {
    return false;
  }
  torch::jit::drop(stack, count);
  for (c10::IValue &result : results)
    stack.push_back(std::move(result));
  return true;
}

void fallback(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
  const auto &schema = op.schema();
  const size_t count = schema.arguments().size();
  const size_t first = stack->size() - count;
  int64_t elements = 0, bytes = 0;
  bool has_tensors = false;
  for (size_t at = first; at < stack->size(); ++at) {
    c10::IValue &value = (*stack)[at];
    if (value.isDevice() && value.toDevice().is_cuda())
      value = c10::Device(c10::DeviceType::CPU);
    each_tensor(value, [&](const at::Tensor &tensor) {
      has_tensors = true;
      elements += tensor.numel();
      bytes += extent(tensor);
    });
  }
  bool writes = false, views = false;
  for (const auto &argument : schema.arguments())
    writes |= argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  for (const auto &result : schema.returns())
    views |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
  const auto computes = [&](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  const auto redispatch = [&] {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
  };
  if (schema.name() == "aten::pin_memory") {
    torch::jit::drop(*stack, count - 1);
    return;
  }
  // Made of other operations, which come here in their turn.
  const bool composed = computes(c10::DispatchKey::CompositeImplicitAutograd);
  if (!has_tensors || composed || (views && !writes)) {
    redispatch();
    // Numbers that no kernel writes, but that a step reads, are 0.
    if (schema.name() == "aten::empty" && stack->back().toTensor().numel() < threshold) {
      c10::impl::ExcludeDispatchKeyGuard usual(kKey);
      stack->back().toTensor().zero_();
    }
    return;
  }
  c10::impl::ExcludeDispatchKeyGuard usual(kKey);
  if (known(op, *stack, count, elements >= threshold))
    return note(op, bytes, false);
  if (elements < threshold) {
    note(op, bytes, true);
    return op.callBoxed(stack);
  }
  if (writes) {
    // The results are the operands that it writes, which stay as they are.
    std::vector<c10::IValue> results;
    for (const auto &result : schema.returns()) {
      for (size_t at = 0; at < count; ++at) {
        const auto *written = schema.arguments()[at].alias_info();
        if (written != nullptr && result.alias_info() != nullptr && *written == *result.alias_info())
          results.push_back((*stack)[first + at]);
      }
    }
    if (results.size() != schema.returns().size())
      throw std::runtime_error("no rule for the results of " + schema.name());
    torch::jit::drop(*stack, count);
    for (c10::IValue &result : results)
      stack->push_back(std::move(result));
    return note(op, bytes, false);
  }
  torch::jit::Stack shapes;
  for (size_t at = first; at < stack->size(); ++at)
    shapes.push_back(moved((*stack)[at], c10::Device(c10::DeviceType::Meta)));
  try {
    op.callBoxed(shapes);
  } catch (const c10::Error &) {
    // libtorch knows the shapes of some operations only in Python.
    note(op, bytes, true);
    return op.callBoxed(stack);
  }
  torch::jit::drop(*stack, count);
  for (const c10::IValue &result : shapes) {
    each_tensor(result, [&](const at::Tensor &tensor) { bytes += extent(tensor); });
    stack->push_back(moved(result, c10::Device(c10::DeviceType::CPU)));
  }
  note(op, bytes, false);
}

// Registered when it is first wanted: a program that never asks for it has no fallback.
void install() {
  static const torch::Library library = [] {
    torch::Library made(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
#ifdef __linux__
    // A huge page would be cleared whole for the one number that is touched in it.
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
#endif
    return made;
  }();
}

} // namespace

extern "C" {

int canonc_shapes_begin(int64_t from) {
  return canonc::guarded([&] {
    install();
    threshold = from;
    performed.clear();
    c10::impl::tls_set_dispatch_key_included(kKey, true);
  });
}

int canonc_shapes_end(void) {
  return canonc::guarded([] { c10::impl::tls_set_dispatch_key_included(kKey, false); });
}

const char *canonc_shapes_take(void) {
  thread_local std::string taken;
  taken = std::move(performed);
  performed.clear();
  return taken.c_str();
}
}
