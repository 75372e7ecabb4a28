// Finds the storages that a pattern of parameter names selects.
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

struct Chosen {
  uint32_t tie = 0;
  std::string_view name;  // of the first matching parameter
};

// Returns the storages of the parameters that match `pattern` (base/pattern.h), ascending.
// Errors  bad_argument: no parameter matches, or the pattern is invalid.
Result<std::vector<Chosen>> chosen(const Table& table, std::string_view pattern);

}  // namespace bowline::detail::params
