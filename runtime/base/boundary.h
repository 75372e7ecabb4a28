// The boundary between the library and its callers. Nothing in the library throws on purpose; an
// allocation of host memory that fails unwinds to here and becomes a status. Stages and locks are
// undone on the way. Without exceptions (BOWLINE_EXCEPTIONS=OFF) it ends the process.
#pragma once

#include <new>
#include <stdexcept>
#include <type_traits>

#include "base/status.h"

namespace bowline {

// out_of_memory, even where there is no room for the sentence.
inline Status host_memory_exhausted() {
#ifdef __cpp_exceptions
  try {
    return Status(Code::out_of_memory, "Host memory is exhausted.");
  } catch (const std::bad_alloc&) {
    return Status(Code::out_of_memory, "Out of memory.");  // short enough to need no allocation
  }
#else
  return Status(Code::out_of_memory, "Host memory is exhausted.");
#endif
}

// Calls a callback of the program, and ignores its exceptions.
template <class F>
void ignoring_exceptions(F&& call) {
#ifdef __cpp_exceptions
  try {
    call();
  } catch (...) {
    return;
  }
#else
  call();
#endif
}

// What `call` returns; of an allocation that fails a status, or an empty value where none can be
// returned.
template <class F>
auto guarded(F&& call) -> std::invoke_result_t<F> {
  using R = std::invoke_result_t<F>;
#ifdef __cpp_exceptions
  try {
    return call();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  if constexpr (std::is_constructible_v<R, Status>) {
    return host_memory_exhausted();
  } else {
    return R();
  }
#else
  return static_cast<R>(call());
#endif
}

// As above, `call` on the state of a public object: bad_argument if it has none, for it was moved
// from.
template <class State, class F>
auto guarded(const State& state, std::string_view object, F&& call) {
  using R = std::invoke_result_t<F, decltype(*state)>;
  return guarded([&]() -> R {
    if (state != nullptr) {
      return call(*state);
    }
    if constexpr (std::is_constructible_v<R, Status>) {
      return Status(
          Code::bad_argument,
          format("The {} is empty: it was moved from, or there was no memory for it.", object));
    } else {
      return R();
    }
  });
}

}  // namespace bowline
