// Declarations for ProcessGroupGloo.hpp; README.md in this folder says why they exist.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {
class Context {
public:
  void setTimeout(std::chrono::milliseconds timeout);
};
} // namespace gloo
