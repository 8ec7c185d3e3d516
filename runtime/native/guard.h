// No C++ exception passes the C ABI: its message is kept for canonc_last_error.
#pragma once
#include <exception>
#include <string>

namespace canonc {

inline thread_local std::string last_error;

template <class F> int guarded(F &&body) {
  try {
    body();
    return 0;
  } catch (const std::exception &error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an exception of unknown type";
  }
  return -1;
}

} // namespace canonc
