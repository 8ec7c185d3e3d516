// Declarations for ProcessGroupGloo.hpp; README.md of gloo/ says why they exist.
#pragma once

namespace gloo::transport {
class Device;
class UnboundBuffer {
public:
  virtual ~UnboundBuffer();
};
} // namespace gloo::transport
