// The boundary between the readers and a program. No exception leaves it.
#pragma once

#include <exception>

#include "base/boundary.h"

namespace bowline::import {

// Returns the result of `call`.
// Errors  out_of_memory: host memory is exhausted. internal: a library threw another exception.
template <class F>
auto guarded_import(F&& call) -> std::invoke_result_t<F> {
  try {
    return guarded(call);
  } catch (const std::exception& error) {
    return Status(Code::internal, format("The import failed: {}.", error.what()));
  }
}

}  // namespace bowline::import
